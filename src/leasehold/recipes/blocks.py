"""The blocks of a handle that tasks or threads share: each leaves what it has entered."""

from typing import Generic, TypeVar

G = TypeVar("G")


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
        entered = self._entered
        mine = max((at for at, (each, _) in enumerate(entered) if each == who), default=-1)
        return entered.pop(mine)[1]
