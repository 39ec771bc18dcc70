"""Tests that are coroutines: each on an event loop of its own, for a bounded time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

DEADLINE_S = 60.0
TICK_S = 0.01

Test = Callable[..., Coroutine[Any, Any, None]]


def asynchronous(test: Test) -> Callable[..., None]:
    """Run a test on an event loop, for a bounded time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await test(*args, **kwargs)

        asyncio.run(main())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition without an event; the test sets the deadline."""
    while not condition():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0)


@dataclass
class LongestStall:
    """How long an event loop has stood still, at most."""

    seconds: float = 0.0


@asynccontextmanager
async def longest_stall() -> AsyncIterator[LongestStall]:
    """Measure the longest stall of the running loop, to distinguish starvation from a defect."""
    stall = LongestStall()

    async def measure() -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            await asyncio.sleep(TICK_S)
            stall.seconds = max(stall.seconds, loop.time() - began_at - TICK_S)

    measuring = asyncio.create_task(measure())
    try:
        yield stall
    finally:
        measuring.cancel()
