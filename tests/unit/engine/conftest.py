"""Engines for tests: in memory and in a directory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.engine.embedded import EmbeddedEngine

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
    """Wait for something that the engine does by itself."""
    while not condition():  # noqa: ASYNC110  nobody is told; the deadline is the test's
        await asyncio.sleep(0)


class Place:
    """Where an engine is kept."""

    def __init__(self, path: Path | str) -> None:
        self.path = path

    @property
    def is_kept(self) -> bool:
        return self.path != "memory:"

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[EmbeddedEngine]:
        async with leasehold.open_engine(self.path, **options) as engine:
            yield engine


@pytest.fixture(params=["memory:", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place("memory:" if request.param == "memory:" else tmp_path / "data")


@pytest.fixture
def kept(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")
