"""Grants and revokes move no revision: their batches are folded without a compaction."""

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import Compacted, NoSpace
from leasehold.journal import records
from leasehold.journal.journal import Journal
from leasehold.keyspace.operations import Compact, Grant, Put, Range, Revoke
from leasehold.store.checking import check
from leasehold.store.housekeeping import AutoCompaction
from leasehold.store.runtime import Runtime
from leasehold.store.store import FOLDABLE_SHARE, MAX_FOLDABLE_BYTES
from leasehold.wire.codec import key_value

QUOTA_BYTES = 400_000
PAIRS_PER_BATCH = 200
PAIRS = 20_000
"""Grants, each with its revoke: several times the quota."""

FOREVER = AutoCompaction(age=None, revisions=None)
Work = Callable[[Runtime], Coroutine[Any, Any, None]]


def with_runtime(
    directory: Path | None, work: Work, compaction: AutoCompaction | None = None
) -> None:
    async def main() -> None:
        runtime = Runtime(directory, quota_bytes=QUOTA_BYTES, compaction=compaction)
        runtime.start()
        try:
            await work(runtime)
        finally:
            await runtime.stop()
            runtime.journal.close()

    asyncio.run(main())


async def apply(runtime: Runtime, *ops: Any) -> None:
    for op in ops:
        _, position = runtime.store.apply(op)
    await runtime.until_durable(position)


async def churn(runtime: Runtime, pairs: int = PAIRS) -> None:
    """Grant and revoke, again and again."""
    store = runtime.store
    for _ in range(pairs // PAIRS_PER_BATCH):
        for _ in range(PAIRS_PER_BATCH):
            (lease, _), _ = store.apply(Grant(0, 60.0))
            store.apply(Revoke(lease))
        await runtime.until_durable(store.position)


async def folded(runtime: Runtime) -> int:
    """Wait until nothing is left to be folded; return how many batches are left."""
    runtime.housekeeping.forget()
    await runtime.housekeeping.forgotten()
    return await runtime.do(lambda journal: len(list(journal.rows())))


def test_grants_and_revokes_after_a_compaction_do_not_fill_the_journal(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await apply(runtime, Put(b"config", b"static"), Compact(2), Grant(7, 600.0, "anna"))
        await churn(runtime)
        assert runtime.store.revision == runtime.store.keyspace.compacted == 2
        assert runtime.store.used_bytes < QUOTA_BYTES
        await apply(runtime, Put(b"key", b"value"))

    with_runtime(tmp_path / "data", work, FOREVER)
    report = check(tmp_path / "data")
    assert (report.revision, report.compacted, report.keys, report.leases) == (3, 2, 2, 1)


def test_grants_and_revokes_alone_do_not_fill_a_journal_that_never_had_a_key(
    tmp_path: Path,
) -> None:
    async def work(runtime: Runtime) -> None:
        await apply(runtime, Grant(7, 600.0, "anna"))
        await churn(runtime)
        assert runtime.store.used_bytes < QUOTA_BYTES
        assert await folded(runtime) == 0

    async def again(runtime: Runtime) -> None:
        assert [leased.resource.holder for leased in runtime.store.leases.table] == ["anna"]
        await apply(runtime, Put(b"key", b"value"))
        assert runtime.store.revision == 2

    with_runtime(tmp_path / "data", work, FOREVER)
    report = check(tmp_path / "data")
    assert (report.revision, report.compacted, report.leases) == (1, -1, 1)
    with_runtime(tmp_path / "data", again, FOREVER)
    assert check(tmp_path / "data").revision == 2


def test_what_is_left_to_be_folded_is_folded_at_the_next_start(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await runtime.housekeeping.forgotten()  # the fold at the start finds nothing
        await churn(runtime, PAIRS_PER_BATCH)
        assert runtime.journal.progress.folded == 0

    async def again(runtime: Runtime) -> None:
        await runtime.housekeeping.forgotten()
        assert await runtime.do(lambda journal: len(list(journal.rows()))) == 0

    with_runtime(tmp_path / "data", work)
    with_runtime(tmp_path / "data", again)


def test_history_that_is_not_compacted_is_kept_and_a_compaction_makes_room(
    tmp_path: Path,
) -> None:
    """Batches after an uncompacted put wait for it; at the quota a compaction still works."""

    async def work(runtime: Runtime) -> None:
        store = runtime.store
        await apply(runtime, Put(b"key", b"old"), Compact(2), Put(b"key", b"new"))
        await apply(runtime, Put(b"key", b"newest"))
        with pytest.raises(NoSpace):
            await churn(runtime)
        await folded(runtime)
        assert store.used_bytes > QUOTA_BYTES
        old, _ = await runtime.reader.scan(Range(b"key", revision=3))
        assert [item[2] for item in old.items] == [3], "the history is as it was configured"
        await apply(runtime, Compact(store.revision))
        assert await folded(runtime) == 0
        assert store.used_bytes < QUOTA_BYTES // 2
        await churn(runtime)

    with_runtime(tmp_path / "data", work, FOREVER)
    report = check(tmp_path / "data")
    assert (report.revision, report.compacted, report.leases) == (4, 4, 0)


def test_a_compaction_at_the_compacted_revision_is_refused_and_folds(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        store = runtime.store
        await apply(runtime, Put(b"key", b""), Compact(2))
        await folded(runtime)
        await churn(runtime, PAIRS_PER_BATCH)
        assert 0 < store.foldable_bytes < MAX_FOLDABLE_BYTES
        before = runtime.journal.progress.folded
        with pytest.raises(Compacted):
            store.apply(Compact(2))
        await runtime.housekeeping.forgotten()
        assert runtime.journal.progress.folded > before
        assert store.foldable_bytes == 0

    with_runtime(tmp_path / "data", work, FOREVER)


def test_nothing_is_folded_that_is_being_read(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        store = runtime.store
        await apply(runtime, Put(b"key", b"old"), Put(b"key", b"new"))
        store.pins[2] += 1
        await apply(runtime, Compact(3))
        await churn(runtime, 4 * PAIRS_PER_BATCH)
        await folded(runtime)
        assert runtime.journal.progress.base_revision <= 2
        del store.pins[2]
        assert await folded(runtime) == 0

    with_runtime(tmp_path / "data", work, FOREVER)


def test_the_bound_is_a_part_of_a_small_quota() -> None:
    async def work(runtime: Runtime) -> None:
        store = runtime.store
        store.foldable_bytes = QUOTA_BYTES // FOLDABLE_SHARE
        assert not store.is_fold_due
        store.foldable_bytes += 1
        assert store.is_fold_due

    assert QUOTA_BYTES // FOLDABLE_SHARE < MAX_FOLDABLE_BYTES
    with_runtime(None, work)


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_changes_of_a_batch_that_is_not_compacted_are_not_read(
    tmp_path: Path, in_memory: bool
) -> None:
    """Every start looks for batches to fold. One batch may have many megabytes."""
    journal = Journal(None if in_memory else tmp_path)
    value = b"v" * 1_000_000
    changes = b"".join(
        records.put(key_value(b"key%d" % revision, revision, revision, 1, value, 0))
        for revision in range(2, 6)
    )
    journal.append(2, 5, changes)
    tracemalloc.start()
    try:
        assert not journal.fold(4)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert journal.fold(5)
    assert not journal.fold(5)
    assert journal.progress.base_revision == 5
    journal.close()
