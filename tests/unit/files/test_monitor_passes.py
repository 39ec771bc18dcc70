"""Passes of the monitor over a holder that has more files than one pass recovers."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

from leasehold.files import monitor as module
from leasehold.files.file_keys import opened_by
from leasehold.files.monitor import Monitor
from leasehold.files.state import FileState

HOLDER: Final = "h-" + "1" * 32
PER_PASS: Final = 2
FILES: Final = 5
PASSES: Final = 40


class Keys:
    """The open files of one holder that has ended. Each read takes `read_s`."""

    def __init__(self) -> None:
        self.keys = [opened_by(HOLDER) + b"%032x" % number for number in range(FILES)]
        self.now = 100.0
        self.random = Random(0)
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.read_s = 0.0
        self.now_ms = 0
        self.bad: set[bytes] = set()
        self.tried: list[bytes] = []

    def new_id(self) -> str:
        return "0" * 32

    async def range(self, key: bytes, end: bytes = b"", *, limit: int = 0) -> Any:
        self.now += self.read_s
        found = [each for each in self.keys if (key <= each < end if end else each == key)]
        pairs = [SimpleNamespace(key=each, value=b"") for each in found[: limit or None]]
        return SimpleNamespace(pairs=pairs, more=len(pairs) < len(found), total=len(found))

    async def find_id(self, file_id: str) -> Any:
        key = opened_by(HOLDER) + file_id.encode()
        return SimpleNamespace(key=key, record=SimpleNamespace(state=FileState.RECOVERING))

    async def recover(self, found: Any) -> None:
        self.tried.append(found.key)
        if found.key in self.bad:
            raise OSError("bad")
        self.keys.remove(found.key)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setattr(module, "FILES_PER_PASS", PER_PASS)
    return Keys()


async def passes(keys: Keys) -> list[bool]:
    stub: Any = keys
    monitor = Monitor(stub, stub)
    return [await monitor.make_pass() for _ in range(PASSES)]


def test_passes_that_follow_each_other_without_a_pause_recover_all_files(keys: Keys) -> None:
    results = asyncio.run(passes(keys))
    assert keys.keys == []
    assert results[-1] is False


def test_files_that_cannot_be_recovered_do_not_stop_the_rest(keys: Keys) -> None:
    keys.read_s = 0.005
    keys.bad = set(keys.keys[:PER_PASS])
    asyncio.run(passes(keys))
    assert set(keys.keys) == keys.bad


def test_files_that_cannot_be_recovered_are_not_tried_in_a_loop(keys: Keys) -> None:
    keys.read_s = 0.005
    keys.bad = set(keys.keys)
    results = asyncio.run(passes(keys))
    assert results[-1] is False
    assert len(keys.tried) <= FILES
