"""Tests that are coroutines: each on an event loop of its own, for a bounded time."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

DEADLINE_S = 30.0

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
    """Wait for something that nobody tells of; the deadline is the test's."""
    while not condition():  # noqa: ASYNC110  nobody is told
        await asyncio.sleep(0)
