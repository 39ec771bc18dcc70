"""An engine in trouble: failed commits, broken-off writes, cancelled callers, stops half-way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import (
    FROM_KEY,
    Closed,
    DirectoryInUse,
    JournalFailed,
    Put,
    Range,
    StorageError,
    TooBusy,
)
from leasehold.engine import interface
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.journal import folding
from leasehold.journal.journal import Journal
from leasehold.keyspace.operations import Grant
from leasehold.keyspace.recent_changes import MAX_BYTES
from leasehold.store import committer
from leasehold.store.checking import check_directory
from leasehold.store.housekeeping import Housekeeping
from tests.support.engine_fixtures import Place, asynchronous, until


class Broken(Exception):
    """What the disk of a test says."""


def break_commits(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Broken

    monkeypatch.setattr(engine._runtime.journal, "append", fail)


@asynchronous
async def test_whoever_waits_when_a_commit_fails_is_told(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MAX_REVISIONS", 2)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MIN_DROPPED", 50)
    engine = await leasehold.open_engine(kept.path)
    for number in range(20):
        await engine.put(b"a", b"%d" % number)
    watch = engine.watch(b"a")
    break_commits(engine, monkeypatch)
    waiting = [
        asyncio.ensure_future(engine.put(b"a", b"lost")),
        asyncio.ensure_future(engine.range(b"a")),
        asyncio.ensure_future(anext(watch)),
        *(asyncio.ensure_future(engine.range(b"a", revision=3)) for _ in range(3)),
        asyncio.ensure_future(engine.compact(10, wait=True)),
    ]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], JournalFailed)
    assert isinstance(outcomes[2], JournalFailed)
    assert all(isinstance(each, JournalFailed | leasehold.RangeResult) for each in outcomes)
    for call in (engine.put(b"a", b""), engine.delete(b"a"), engine.renew(1)):
        with pytest.raises(JournalFailed, match="the engine has stopped"):
            await call
    with pytest.raises(JournalFailed):
        await anext(watch)
    await engine.close()


@asynchronous
async def test_a_write_that_breaks_off_half_way_stops_the_engine(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept.open() as engine:
        await engine.put(b"a", b"0")

        def fail(*_: object) -> None:
            raise Broken

        monkeypatch.setattr(engine._store, "_close", fail)
        with pytest.raises(Broken):
            await engine.txn([], [Put(b"a", b"1"), Put(b"b", b"1")])
        with pytest.raises(JournalFailed):
            await engine.range(b"a")
    async with kept.open() as engine:
        assert (await engine.range(b"a")).pairs[0].value == b"0"


@asynchronous
async def test_a_transaction_with_a_wrong_type_in_it_does_nothing(place: Place) -> None:
    wrong: Any = None
    async with place.open() as engine:
        for step in (Range(b"a", limit=wrong), Range(b"a", revision=wrong), Range(b"a", wrong)):
            with pytest.raises(TypeError):
                await engine.txn([], [Put(b"a", b"1"), step])
        found = await engine.range(b"a")
        assert (found.revision, found.total) == (1, 0)


@asynchronous
async def test_a_stop_in_the_middle_of_folding_takes_nothing_back(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the batch that is being folded may change no key."""
    monkeypatch.setattr(folding, "CHANGES_PER_STEP", 10)
    async with kept.open() as engine:
        lease = await engine.grant(1000)
        names = [b"%d" % number for number in range(10)]
        await engine.txn([], [Put(name, b"", lease.id) for name in names])
        revision = await engine.revoke(lease.id)
        await engine.put(b"x", b"")
        await engine.compact(revision + 1)
        journal = engine._runtime.journal
        monkeypatch.setattr(Housekeeping, "_forgettable", lambda self: -1)
    for steps in range(1, 6):
        journal = Journal(kept.path)  # type: ignore[arg-type]
        for _ in range(steps):
            journal.fold(revision + 1)
        journal.close()
        async with kept.open() as engine:
            found = await engine.range(b"\0", FROM_KEY)
            assert found.revision == revision + 1
            assert [pair.key for pair in found.pairs] == [b"x"]
            assert len(await engine.leases()) == 0
        assert check_directory(kept.path).revision == revision + 1  # type: ignore[arg-type]


@asynchronous
async def test_folding_is_taken_up_again_after_a_restart(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Housekeeping, "_forgettable", lambda self: -1)
        async with kept.open() as engine:
            for number in range(20):
                await engine.put(b"a", b"%d" % number)
            await engine.compact(15)
    async with kept.open() as engine:
        journal = engine._runtime.journal
        await until(lambda: journal.progress.base_revision == 15)
        assert (await engine.range(b"a", revision=15)).pairs[0].value == b"13"


@asynchronous
async def test_a_watch_may_begin_with_the_compacted_revision(kept: Place) -> None:
    async with kept.open() as engine:
        for number in range(5):
            await engine.put(b"a", b"%d" % number)
        await engine.compact(6, wait=True)
        await engine.grant(10)
    for _ in range(2):
        async with kept.open() as engine:
            await engine._runtime.housekeeping.forgotten()
            told = await anext(engine.watch(b"a", start=6))
            assert (told.revision, told.events[0].pair.value) == (6, b"4")  # type: ignore[union-attr]


@asynchronous
async def test_catching_up_goes_on_while_callers_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "MAX_CHORES", 3)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MAX_REVISIONS", 2)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MIN_DROPPED", 50)
    async with place.open() as engine:
        for number in range(20):
            await engine.put(b"a", b"%d" % number)
        reads = [asyncio.ensure_future(engine.range(b"a", revision=5)) for _ in range(20)]
        await asyncio.sleep(0)
        watch = engine.watch(b"a", start=2)
        assert [(await anext(watch)).revision for _ in range(20)] == list(range(2, 22))
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert any(isinstance(each, TooBusy) for each in outcomes)


@asynchronous
async def test_history_that_cannot_be_read_ends_the_watch_that_needs_it(
    kept: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept.open() as engine:
        for number in range(5):
            await engine.put(b"a", b"%d" % number)
    async with kept.open() as engine:

        def fail(*_: object) -> None:
            raise StorageError("a bad sector")

        monkeypatch.setattr(engine._runtime.journal, "history", fail)
        with pytest.raises(StorageError, match="a bad sector"):
            await anext(engine.watch(b"a", start=2))
        other = engine.watch(b"a")
        await engine.put(b"a", b"")
        assert (await anext(other)).revision == 7


@asynchronous
async def test_an_opening_that_is_given_up_gives_the_directory_back(kept: Place) -> None:
    opening = asyncio.ensure_future(leasehold.open_engine(kept.path)._make())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    engine = None
    while engine is None:
        try:
            engine = await leasehold.open_engine(kept.path)
        except DirectoryInUse:
            await asyncio.sleep(0.005)
    await engine.close()


@asynchronous
async def test_a_closing_that_is_given_up_goes_on(kept: Place) -> None:
    engine = await leasehold.open_engine(kept.path)
    await engine.put(b"a", b"")
    closing = asyncio.ensure_future(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    await engine.close()
    with pytest.raises(Closed):
        await engine.put(b"a", b"")
    async with kept.open():
        pass


@pytest.mark.slow
@asynchronous
async def test_what_is_kept_in_memory_of_the_past_is_bounded(place: Place) -> None:
    async with place.open() as engine:
        value = bytes(1_000_000)
        for number in range(50):
            await engine.put(b"%d" % number, value)
        await engine.delete(b"\0", FROM_KEY)
        for _ in range(30):
            await engine.put(b"x", b"")
        recent = engine._store.recent
        assert recent._bytes <= MAX_BYTES + 50 * len(value)
        for _ in range(3):
            await asyncio.gather(*(engine.put(b"x", b"") for _ in range(9_000)))
        assert len(recent) < 40_000
        assert recent._bytes <= MAX_BYTES


@asynchronous
async def test_a_watch_holds_no_more_than_its_limit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED_BYTES", 100_000)
    async with place.open() as engine:
        watch = engine.watch(b"a")
        for number in range(50):
            await engine.put(b"a", b"%d" % number + bytes(20_000))
        assert len(watch._queue) < 10  # type: ignore[attr-defined]
        told = [(await anext(watch)).revision for _ in range(50)]
        assert told == list(range(2, 52))


@asynchronous
async def test_calls_that_need_not_wait_still_let_others_have_their_turn(place: Place) -> None:
    async with place.open() as engine:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        lease = await engine.grant(100)
        before = turns
        for _ in range(1_000):
            await engine.range(b"a")
            await engine.renew(lease.id)
        assert turns - before >= 10
        counting.cancel()


@asynchronous
async def test_many_leases_that_end_during_long_work_go_afterwards(place: Place) -> None:
    async with place.open() as engine:
        for start in range(0, 3_000, 100):
            names = [b"k%05d" % number for number in range(start, start + 100)]
            await engine.txn([], [Put(name, b"") for name in names])
        leases = [(await engine.grant(1000)).id for _ in range(20)]
        for lease in leases:
            await engine.put(b"leased/%d" % lease, b"", lease=lease)
        deleting = asyncio.ensure_future(engine.delete(b"k", b"l"))
        store = engine._store
        await until(lambda: store.is_busy)
        for lease in leases:
            store.leases.revoke(lease)
        assert len(store.ends) == 20
        assert (await deleting).deleted == 3_000
        assert (await engine.range(b"\0", FROM_KEY)).total == 0
        with pytest.raises(leasehold.UnknownLease):
            await engine.renew(leases[0])


@asynchronous
async def test_a_grant_that_is_refused_during_long_work_harms_nobody(place: Place) -> None:
    async with place.open() as engine:
        for start in range(0, 3_000, 100):
            names = [b"k%05d" % number for number in range(start, start + 100)]
            await engine.txn([], [Put(name, b"") for name in names])
        await engine.grant(1000, lease=7)
        deleting = asyncio.ensure_future(engine.delete(b"k", b"l"))
        await until(lambda: engine._store.is_busy)
        with pytest.raises(leasehold.LeaseExists):
            engine._store.apply(Grant(7, 10.0))  # as the server does, which waits for nobody
        assert (await deleting).deleted == 3_000


@asynchronous
async def test_an_idle_engine_does_nothing_however_its_watches_were_read(place: Place) -> None:
    async with place.open() as engine:
        for start in range(0, 3_000, 100):
            await asyncio.gather(*(engine.put(b"a", b"%d" % n) for n in range(start, start + 100)))
        watch = engine.watch(b"a", start=2)
        assert [(await anext(watch)).revision for _ in range(3_000)] == list(range(2, 3_002))
        reader = asyncio.ensure_future(anext(watch))
        loop: Any = asyncio.get_running_loop()
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(loop._ready) <= 2
        reader.cancel()


@asynchronous
async def test_a_watch_that_raises_ends_alone(place: Place) -> None:
    async with place.open() as engine:
        bad, good = engine.watch(b"a"), engine.watch(b"a")

        def fail(*_: object) -> bool:
            raise Broken

        bad.notify = fail  # type: ignore[attr-defined]
        await engine.put(b"a", b"")
        assert (await anext(good)).revision == 2
        with pytest.raises(leasehold.LeaseholdError, match="a watch has failed"):
            await anext(bad)


@pytest.mark.parametrize("lease", [1 << 63, -(1 << 63) - 1])
@asynchronous
async def test_an_id_that_has_no_place_on_disk_is_refused(lease: int) -> None:
    async with Place("memory:").open() as engine:
        with pytest.raises(ValueError, match="signed 64-bit integer"):
            await engine.grant(10, lease=lease)
        with pytest.raises(ValueError, match="signed 64-bit integer"):
            await engine.put(b"a", b"", lease=lease)


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    async def main() -> None:
        with pytest.raises(StorageError, match="cannot be used as data directory"):
            await leasehold.open_engine(tmp_path / "data")

    asyncio.run(main())
