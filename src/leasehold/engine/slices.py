"""Long work in short slices, so that the event loop is never kept for long."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from leasehold.core.keyspace import Item
from leasehold.core.ranges import Wanted

T = TypeVar("T")

SLICE_S: Final = 0.002
"""How long work may keep the event loop before everybody else has had a turn.

Short of the 5 ms that are promised: a call may have to wait for a slice of two such works.
"""

Load = Callable[[Wanted], Awaitable[list[Item]]]
"""Gets old values from wherever they are."""


def at_once(steps: Generator[Any, Any, T]) -> T:
    """Take all steps without a pause, of work that is known to be short."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return result


class Slicer:
    """Tells work when it is time for a pause."""

    __slots__ = ("_monotonic", "_until")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + SLICE_S

    async def pause(self) -> None:
        """Let everybody else have a turn, if it is time."""
        if self._monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = self._monotonic() + SLICE_S

    async def run(self, steps: Generator[Wanted, list[Item], T], load: Load) -> T:
        """Do all steps, with what they need from the history, and with pauses."""
        loaded: list[Item] = []
        try:
            wanted = next(steps)
            while True:
                loaded = await load(wanted) if wanted else []
                await self.pause()
                wanted = steps.send(loaded)
        except StopIteration as done:
            result: T = done.value
            return result
