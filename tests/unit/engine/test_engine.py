"""`Engine` in this process: what `tests/engines` cannot see of it, or is not so with others."""

import asyncio
import os

import pytest

import leasehold
from leasehold import (
    FROM_KEY,
    AutoCompaction,
    Closed,
    Compacted,
    Compare,
    Delete,
    FutureRevision,
    NoSpace,
    Put,
    Relation,
    SortBy,
    Target,
    prefix_end,
)
from leasehold.engine import interface
from leasehold.store import housekeeping
from tests.support.engine_fixtures import Place, asynchronous, until


@asynchronous
async def test_compaction_leaves_nothing_of_what_it_forgets(place: Place) -> None:
    async with place.open() as engine:
        for number in range(5):
            await engine.put(b"a", b"%d" % number)
        assert await engine.compact(4, wait=True) == 6
        with pytest.raises(FutureRevision, match="7 is in the future; the current revision is 6"):
            await engine.compact(7)
        assert engine._store.keyspace.marks == 2


@asynchronous
async def test_history_is_compacted_by_itself_by_number(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "ROUND_S", 0.01)
    async with place.open(compaction=AutoCompaction(age=None, revisions=10)) as engine:
        for number in range(50):
            await engine.put(b"a", b"%d" % number)
        await until(lambda: engine._store.keyspace.marks <= 11)
        assert engine._store.keyspace.compacted >= 40
        with pytest.raises(Compacted):
            await engine.range(b"a", revision=30)


@asynchronous
async def test_history_is_compacted_by_itself_by_age(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "ROUND_S", 0.01)
    async with place.open(compaction=AutoCompaction(age=0.05, revisions=None)) as engine:
        for number in range(5):
            await engine.put(b"a", b"%d" % number)
        await until(lambda: engine._store.keyspace.compacted >= 6)
        assert (await engine.range(b"a")).pairs[0].value == b"4"


@pytest.mark.parametrize(("age", "revisions"), [(0.0, None), (-1.0, None), (None, 0)])
def test_a_history_of_no_length_is_refused(age: float | None, revisions: int | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        AutoCompaction(age=age, revisions=revisions)


# Watches.


@asynchronous
async def test_a_watch_that_is_not_read_falls_back_to_history_and_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED", 4)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MAX_REVISIONS", 10)
    monkeypatch.setattr("leasehold.keyspace.recent_changes.MIN_DROPPED", 5)
    async with place.open() as engine:
        watch = engine.watch(b"a", previous=True)
        for number in range(60):
            await engine.put(b"a", b"%d" % number)
        assert len(engine._store.recent) <= 11
        told = [await anext(watch) for _ in range(60)]
        assert [each.revision for each in told] == list(range(2, 62))
        previous = [each.events[0].previous for each in told]
        assert previous[0] is None
        assert [pair.value for pair in previous[1:] if pair] == [b"%d" % n for n in range(59)]


@asynchronous
async def test_only_compaction_ends_a_watch_that_lags(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "MAX_QUEUED", 4)
    async with place.open() as engine:
        watch = engine.watch(b"a")
        for number in range(20):
            await engine.put(b"a", b"%d" % number)
        await engine.compact(18)
        told = [(await anext(watch)).revision for _ in range(4)]
        with pytest.raises(Compacted) as ended:
            await anext(watch)
        assert told == [2, 3, 4, 5]
        assert (ended.value.asked_for, ended.value.revision) == (6, 18)
        with pytest.raises(Compacted):
            await anext(engine.watch(b"a", start=5))


@asynchronous
async def test_a_watch_has_one_reader_and_can_be_cancelled(place: Place) -> None:
    async with place.open() as engine:
        async with engine.watch(b"a") as watch:
            reader = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one reader"):
                await anext(watch)
        with pytest.raises(Closed, match="cancelled"):
            await reader
        await engine.put(b"a", b"")
        assert len(engine._store.watchers) == 0


@asynchronous
async def test_a_watch_may_begin_before_there_was_anything(place: Place) -> None:
    async with place.open() as engine:
        await engine.put(b"a", b"")
        watch = engine.watch(b"a", start=1)
        assert (await anext(watch)).revision == 2


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", FROM_KEY), (b"", FROM_KEY)],
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


# Long work.


@asynchronous
async def test_renewals_go_on_while_very_many_keys_are_deleted(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(1000)
        keeper = await engine.grant(1000)
        for start in range(0, 5_000, 100):
            names = [b"k%05d" % number for number in range(start, start + 100)]
            await engine.txn([], [Put(name, b"", lease.id) for name in names])
        revision = (await engine.range(b"k", count_only=True)).revision
        watch = engine.watch(b"k", b"l")
        ending = asyncio.ensure_future(engine.revoke(lease.id))
        await asyncio.sleep(0)
        renewals = 0
        while not ending.done():
            await engine.renew(keeper.id)
            renewals += 1
            await asyncio.sleep(0)
        assert renewals > 3
        assert await ending == revision + 1
        assert len((await anext(watch)).events) == 5_000
        assert (await engine.range(b"k", b"l")).total == 0
        assert (await engine.range(b"k", b"l", revision=revision)).total == 5_000


@asynchronous
async def test_a_long_range_is_of_one_revision_whatever_happens_meanwhile(place: Place) -> None:
    async with place.open() as engine:
        for start in range(0, 4_000, 100):
            names = [b"k%05d" % number for number in range(start, start + 100)]
            await engine.txn([], [Put(name, b"old") for name in names])
        reading = asyncio.ensure_future(engine.range(b"k", b"l", sort_by=SortBy.MOD_REVISION))
        await asyncio.sleep(0)
        await engine.put(b"k03999", b"new")
        await engine.delete(b"k03998")
        await engine.put(b"k04000", b"new")
        now = (await engine.range(b"k")).revision
        await engine.compact(now)
        found = await reading
        assert (found.total, len(found.pairs)) == (4_000, 4_000)
        assert {pair.value for pair in found.pairs} == {b"old"}
        assert (await engine.range(b"k", b"l", count_only=True)).total == 4_000


@asynchronous
async def test_a_transaction_over_very_many_keys_is_still_one(place: Place) -> None:
    async with place.open() as engine:
        for start in range(0, 2_000, 100):
            names = [b"k%05d" % number for number in range(start, start + 100)]
            await engine.txn([], [Put(name, b"x") for name in names])
        every = Compare(b"k", Target.VALUE, Relation.EQUAL, b"x", b"l")
        both = await asyncio.gather(
            engine.txn([every], [Delete(b"k", b"l"), Put(b"won", b"")], [Put(b"lost", b"")]),
            engine.put(b"k00001", b"y"),
        )
        won = both[0].succeeded
        left = [pair.key for pair in (await engine.range(b"\0", FROM_KEY, limit=10)).pairs]
        assert left == ([b"k00001", b"won"] if won else left)
        assert (b"lost" in left) is not won or b"won" not in left


# Limits and ends.


@asynchronous
async def test_beyond_the_quota_only_what_makes_space_goes_on(place: Place) -> None:
    async with place.open(quota_bytes=400_000) as engine:
        lease = await engine.grant(1000)

        async def fill() -> None:
            for number in range(1_000):
                await engine.put(b"%d" % number, bytes(1_000), lease=lease.id)

        with pytest.raises(NoSpace, match="of 400,000 bytes are used"):
            await fill()
        with pytest.raises(NoSpace):
            await engine.grant(10)
        with pytest.raises(NoSpace):
            await engine.txn([], [Put(b"x", b"")])
        await engine.renew(lease.id)
        assert (await engine.txn([], [Delete(b"0")])).results[0].deleted == 1
        revision = await engine.revoke(lease.id)
        await engine.compact(revision, wait=True)
        assert (await engine.put(b"x", b"")).revision == revision + 1


@asynchronous
async def test_after_closing_nothing_is_taken_and_watches_end(place: Place) -> None:
    async with place.open() as engine:
        watch = engine.watch(b"a")
        reader = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(engine.put(b"a", b""))
        await asyncio.sleep(0)
    assert (await waiting).revision == 2
    assert (await reader).revision == 2
    with pytest.raises(Closed):
        await anext(watch)
    for call in (engine.put(b"a", b""), engine.range(b"a"), engine.renew(1), engine.grant(1)):
        with pytest.raises(Closed):
            await call
    with pytest.raises(Closed):
        engine.watch(b"a")
    await engine.close()


@asynchronous
async def test_what_is_in_a_directory_is_there_again(kept: Place) -> None:
    async with kept.open() as engine:
        lease = await engine.grant(1000)
        for number in range(10):
            await engine.put(b"a", b"%d" % number, lease=lease.id)
        await engine.compact(5, wait=True)
    async with kept.open() as engine:
        assert (await engine.range(b"a")).pairs[0].value == b"9"
        assert (await engine.range(b"a", revision=5)).pairs[0].value == b"3"
        with pytest.raises(Compacted):
            await engine.range(b"a", revision=4)
        assert (await engine.time_to_live(lease.id, keys=True)).keys == (b"a",)
        assert (await engine.put(b"a", b"")).revision == 12
        told = engine.watch(b"a", start=6)
        assert [(await anext(told)).revision for _ in range(7)] == list(range(6, 13))


@asynchronous
async def test_in_memory_nothing_is_kept() -> None:
    async with leasehold.open_engine("memory:") as engine:
        await engine.put(b"a", b"")
    async with leasehold.open_engine("memory:") as engine:
        assert (await engine.range(b"a")).total == 0
    assert not os.access("memory:", os.F_OK)


def test_a_quota_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="quota_bytes must be at least 1"):
        leasehold.open_engine("memory:", quota_bytes=0)
