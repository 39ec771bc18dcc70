"""Compaction by age goes on after a restart: the ages of revisions are kept in the journal."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from leasehold.keyspace.operations import Compact, Put
from leasehold.store import housekeeping
from leasehold.store.housekeeping import HISTORY_NOTE, SAVES, AutoCompaction
from leasehold.store.runtime import Runtime

AGE_S = 3600.0
RUN_S = 600.0
WITHIN_S = 60.0


class Uptime:
    """The time for which an engine has been running, as its housekeeping sees it."""

    def __init__(self) -> None:
        self.now_s = 12_345.0

    def __call__(self) -> float:
        return self.now_s


Work = Callable[[Runtime, Uptime], Coroutine[Any, Any, None]]


def run(directory: Path, work: Work, *, is_killed: bool = False) -> None:
    async def main() -> None:
        runtime = Runtime(directory, compaction=AutoCompaction(age=AGE_S, revisions=None))
        uptime = Uptime()
        runtime.housekeeping._monotonic = uptime
        runtime.start()
        try:
            await work(runtime, uptime)
        finally:
            if is_killed:
                runtime.housekeeping._saved_at = None  # a process that is killed writes nothing
            await runtime.stop()
            runtime.journal.close()

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.001)


async def put(runtime: Runtime, key: bytes) -> None:
    _, position = runtime.store.apply(Put(key, b""))
    await runtime.until_durable(position)
    revision = runtime.store.revision
    samples = runtime.housekeeping._samples
    await until(lambda: any(sampled >= revision for _, sampled in samples))


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "ROUND_S", 0.001)


async def _begin(runtime: Runtime, uptime: Uptime) -> None:
    await put(runtime, b"first")
    uptime.now_s += RUN_S
    await put(runtime, b"second")


async def _live(runtime: Runtime, uptime: Uptime) -> None:
    """Run for ten minutes; see that the ages are saved meanwhile."""
    await until(lambda: runtime.housekeeping._saved_at is not None)
    before = runtime.journal.notes.get(HISTORY_NOTE)
    uptime.now_s += RUN_S
    await until(lambda: runtime.journal.notes.get(HISTORY_NOTE) != before)
    assert runtime.store.keyspace.compacted < 2, "younger than an hour of running time"


async def _expect(runtime: Runtime, uptime: Uptime) -> None:
    """The first revision is an hour old in ten minutes, the second ten minutes after that."""
    await until(lambda: runtime.housekeeping._saved_at is not None)
    uptime.now_s += RUN_S
    await until(lambda: runtime.store.keyspace.compacted == 2)
    uptime.now_s += RUN_S
    await until(lambda: runtime.store.keyspace.compacted == 3)


@pytest.mark.parametrize("is_killed", [False, True])
def test_revisions_age_over_restarts(is_killed: bool, tmp_path: Path) -> None:
    run(tmp_path / "data", _begin)
    for _ in range(4):
        run(tmp_path / "data", _live, is_killed=is_killed)
    run(tmp_path / "data", _expect)


def test_nothing_is_written_for_history_that_is_compacted(tmp_path: Path) -> None:
    async def work(runtime: Runtime, uptime: Uptime) -> None:
        await put(runtime, b"key")
        _, position = runtime.store.apply(Compact(2))
        await runtime.until_durable(position)
        before = runtime.journal.notes.get(HISTORY_NOTE)
        uptime.now_s += AGE_S / SAVES
        saved_at = uptime.now_s
        await until(lambda: runtime.housekeeping._saved_at == saved_at)
        assert runtime.journal.notes.get(HISTORY_NOTE) == before

    run(tmp_path / "data", work)
