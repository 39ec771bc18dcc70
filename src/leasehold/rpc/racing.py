"""The first of several attempts that works: one after the other, and none holds up the next.

An attempt that fails is followed by the next at once. One that takes longer than it usually does
goes on, and the next begins beside it: a server that was stopped lets everybody in and says
nothing. Whoever is done first has won; the others are given up.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from leasehold.errors import ConnectFailed

T = TypeVar("T")


class Won(NamedTuple, Generic[T]):
    """Which attempt it was, and what it gave."""

    place: int
    prize: T


class Lost(NamedTuple):
    """Why each of them failed, in their order."""

    failures: list[ConnectFailed]


async def race(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]],
    head_start_s: float,
    discard: Callable[[T], None],
) -> Won[T] | Lost:
    """Have attempts made until one works; those that fail raise `ConnectFailed`.

    What works too late is discarded.
    """
    waiting = deque(enumerate(attempts))
    running: dict[asyncio.Task[T], int] = {}
    failures: dict[int, ConnectFailed] = {}
    try:
        while waiting or running:
            if waiting:
                place, attempt = waiting.popleft()
                running[asyncio.get_running_loop().create_task(attempt())] = place
            patience_s = head_start_s if waiting else None
            done, _ = await asyncio.wait(
                running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in sorted(done, key=running.__getitem__):
                place = running.pop(task)
                try:
                    return Won(place, task.result())
                except ConnectFailed as error:
                    failures[place] = error
        return Lost([failures[place] for place in sorted(failures)])
    finally:
        await _give_up(list(running), discard)


async def _give_up(late: "list[asyncio.Task[T]]", discard: Callable[[T], None]) -> None:
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
    for task in late:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())
