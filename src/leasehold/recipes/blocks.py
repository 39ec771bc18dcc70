"""The blocks of a handle that tasks or threads share: each leaves what it has entered.

Threads do so at the same time. Nothing here goes by an index, which another thread would make
wrong: what is found is taken out as such, at once, or was taken by another.
"""

from typing import Generic, TypeVar

G = TypeVar("G")


def take(entered: list[tuple[object, G]], who: object) -> G:
    """Take out the guard of the latest block of a task or thread; if it has none, of any."""
    while True:
        for entry in reversed(entered.copy()):
            if entry[0] == who:
                break
        else:
            return entered.pop()[1]
        try:
            entered.remove(entry)
        except ValueError:
            continue  # one that had none was faster
        return entry[1]


class Blocks(Generic[G]):
    """Guards of blocks that were entered, and by whom."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: list[tuple[object, G]] = []

    def enter(self, who: object, guard: G) -> None:
        """Note the guard of a block, and the task or thread that is in it."""
        self._entered.append((who, guard))

    def leave(self, who: object) -> G:
        """Give the guard of the latest block of a task or thread; if it has none, of any."""
        return take(self._entered, who)
