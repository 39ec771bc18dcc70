"""Engines for tests: in memory and in a directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.engine.embedded import EmbeddedEngine
from tests.support.asynchronous import asynchronous, until

__all__ = ["Place", "asynchronous", "until"]


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
