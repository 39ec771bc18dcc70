"""`Engine` in this process: its methods, one rule a test; machines test them together."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import (
    FROM_KEY,
    AutoCompaction,
    Closed,
    Compacted,
    Compare,
    Delete,
    DirectoryInUse,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    LeaseExists,
    NoSpace,
    Put,
    Range,
    Relation,
    SortBy,
    Target,
    TooManyOperations,
    Txn,
    UnknownKey,
    UnknownLease,
    prefix_end,
)
from leasehold.engine import embedded_watch, housekeeping
from tests.unit.engine.conftest import Place, asynchronous, until


@asynchronous
async def test_what_was_put_is_read_with_its_revisions(place: Place) -> None:
    async with place.open() as engine:
        first = await engine.put(b"a", b"1")
        second = await engine.put(b"a", b"2")
        assert (first.revision, first.previous) == (2, None)
        assert second.previous is not None
        assert second.previous.value == b"1"
        [pair] = (await engine.range(b"a")).pairs
        assert (pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.version) == (
            b"a",
            b"2",
            2,
            3,
            2,
        )
        assert pair.lease == 0
        assert "b'a': b'2' (version 2" in repr(pair)
        assert pair == (await engine.range(b"a", revision=3)).pairs[0]
        assert hash(pair) != hash((await engine.range(b"a", revision=2)).pairs[0])


@asynchronous
async def test_a_put_may_keep_the_value_or_the_lease(place: Place) -> None:
    async with place.open() as engine:
        lease = (await engine.grant(60)).id
        with pytest.raises(UnknownKey, match="b'a' is not there"):
            await engine.put(b"a", None)
        await engine.put(b"a", b"1", lease=lease)
        await engine.put(b"a", b"2", lease=None)
        assert (await engine.range(b"a")).pairs[0].lease == lease
        await engine.put(b"a", None)
        [pair] = (await engine.range(b"a")).pairs
        assert (pair.value, pair.lease) == (b"2", 0)
        assert (await engine.time_to_live(lease, keys=True)).keys == ()


@asynchronous
async def test_a_range_has_all_its_options_now_and_in_the_past(place: Place) -> None:
    async with place.open() as engine:
        for number, name in enumerate([b"c", b"a", b"b", b"a"]):
            await engine.put(name, b"%d" % -number)
        then = 5
        await engine.delete(b"\0", FROM_KEY)

        async def names(**options: Any) -> list[bytes]:
            found = await engine.range(b"\0", FROM_KEY, revision=then, **options)
            return [pair.key for pair in found.pairs]

        assert (await engine.range(b"\0", FROM_KEY)).pairs == []
        assert await names() == [b"a", b"b", b"c"]
        assert await names(descending=True) == [b"c", b"b", b"a"]
        assert await names(sort_by=SortBy.MOD_REVISION) == [b"c", b"b", b"a"]
        assert await names(sort_by=SortBy.CREATE_REVISION) == [b"c", b"a", b"b"]
        assert await names(sort_by=SortBy.VERSION, descending=True) == [b"a", b"b", b"c"]
        assert await names(sort_by=SortBy.VALUE) == [b"b", b"a", b"c"]
        assert await names(min_mod_revision=4) == [b"a", b"b"]
        assert await names(max_mod_revision=4, min_create_revision=3) == [b"b"]
        assert await names(max_create_revision=2) == [b"c"]
        cut = await engine.range(b"a", b"z", revision=then, limit=2)
        assert ([pair.key for pair in cut.pairs], cut.total, cut.more) == ([b"a", b"b"], 3, True)
        count = await engine.range(b"a", b"z", revision=then, count_only=True)
        assert (count.pairs, count.total, count.revision) == ([], 3, then)


@asynchronous
async def test_a_transaction_takes_one_branch_at_one_revision(place: Place) -> None:
    async with place.open() as engine:
        await engine.put(b"a", b"1")
        held = Compare(b"a", Target.VALUE, Relation.EQUAL, b"1")
        inner = Txn([Compare(b"x", Target.VERSION, Relation.EQUAL, 0)], [Put(b"n", b"yes")])
        done = await engine.txn(
            [held], [Put(b"b", b"2"), Range(b"a", b"z"), Delete(b"a"), inner], [Put(b"never", b"")]
        )
        assert (done.succeeded, done.revision) == (True, 3)
        put, found, deleted, nested = done.results
        assert (put.revision, put.previous) == (3, None)
        assert [pair.key for pair in found.pairs] == [b"a", b"b"]
        assert (deleted.deleted, deleted.previous[0].value) == (1, b"1")
        assert (nested.succeeded, nested.results[0].revision) == (True, 3)
        otherwise = await engine.txn([held], [], [Range(b"\0", FROM_KEY)])
        assert otherwise.succeeded is False
        assert [pair.key for pair in otherwise.results[0].pairs] == [b"b", b"n"]
        assert otherwise.revision == 3


@asynchronous
async def test_a_transaction_that_is_refused_does_nothing(place: Place) -> None:
    async with place.open() as engine:
        refused: list[tuple[type[Exception], list[Any]]] = [
            (DuplicateKey, [Put(b"a", b""), Put(b"a", b"")]),
            (DuplicateKey, [Put(b"a", b""), Delete(b"a", b"b")]),
            (TooManyOperations, [Put(b"%d" % number, b"") for number in range(129)]),
            (EmptyKey, [Put(b"a", b""), Put(b"", b"")]),
            (UnknownLease, [Put(b"a", b""), Put(b"b", b"", 99)]),
            (UnknownKey, [Put(b"a", b""), Put(b"b", None)]),
            (UnknownKey, [Delete(b"a", FROM_KEY), Put(b"b", None)]),
            (FutureRevision, [Put(b"a", b""), Range(b"b", revision=99)]),
            (TypeError, [Put(b"a", b""), "put"]),
            (TypeError, [Put(b"a", "text")]),  # type: ignore[arg-type]
            (ValueError, [Put(b"a", bytes(2_000_000))]),
        ]
        for error, steps in refused:
            with pytest.raises(error):
                await engine.txn([], steps)
        found = await engine.range(b"\0", FROM_KEY)
        assert (found.revision, found.total) == (1, 0)


@asynchronous
async def test_compaction_forgets_and_says_so(place: Place) -> None:
    async with place.open() as engine:
        for number in range(5):
            await engine.put(b"a", b"%d" % number)
        assert await engine.compact(4, wait=True) == 6
        with pytest.raises(Compacted, match="revision 3 was compacted"):
            await engine.range(b"a", revision=3)
        assert (await engine.range(b"a", revision=4)).pairs[0].value == b"2"
        assert (await engine.range(b"a", revision=5)).pairs[0].value == b"3"
        with pytest.raises(Compacted):
            await engine.compact(4)
        with pytest.raises(FutureRevision, match="7 is in the future; the current one is 6"):
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
async def test_a_watch_tells_whole_revisions_from_now_or_from_the_past(place: Place) -> None:
    async with place.open() as engine:
        await engine.put(b"a", b"1")
        now = engine.watch(b"a", b"z", previous=True)
        past = engine.watch(b"a", b"z", start=2)
        await engine.txn([], [Put(b"a", b"2"), Put(b"b", b"2"), Put(b"zz", b"")])
        await engine.delete(b"a", b"z")
        told = [await anext(now), await anext(now)]
        assert [(each.revision, len(each.events)) for each in told] == [(3, 2), (4, 2)]
        first = told[0].events[0]
        assert (first.key, first.is_delete) == (b"a", False)
        assert first.previous is not None
        assert first.previous.value == b"1"
        assert told[1].events[1].is_delete
        assert [(await anext(past)).revision for _ in range(3)] == [2, 3, 4]


@asynchronous
async def test_a_watch_may_leave_out_puts_or_deletes(place: Place) -> None:
    async with place.open() as engine:
        puts = engine.watch(b"a", deletes=False, start=2)
        deletes = engine.watch(b"a", puts=False, start=2)
        for _ in range(2):
            await engine.put(b"a", b"")
            await engine.delete(b"a")
        assert [(await anext(puts)).revision for _ in range(2)] == [2, 4]
        assert [(await anext(deletes)).revision for _ in range(2)] == [3, 5]


@asynchronous
async def test_a_watch_that_is_not_read_falls_back_to_history_and_loses_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_watch, "MAX_QUEUED", 4)
    monkeypatch.setattr("leasehold.core.recent.MAX_REVISIONS", 10)
    monkeypatch.setattr("leasehold.core.recent.DROPPED_AT_ONCE", 5)
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
    monkeypatch.setattr(embedded_watch, "MAX_QUEUED", 4)
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
async def test_progress_is_told_behind_everything_else(place: Place) -> None:
    async with place.open() as engine:
        watch = engine.watch(b"a", start=1)
        await engine.put(b"a", b"")
        await engine.put(b"b", b"")
        watch.request_progress()
        assert (await anext(watch)).revision == 2
        progress = await anext(watch)
        assert (progress.revision, progress.events) == (3, ())


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


# Leases.


@asynchronous
async def test_a_lease_takes_its_keys_with_it_at_one_revision(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(0.05)
        await engine.put(b"a", b"", lease=lease.id)
        await engine.put(b"b", b"", lease=lease.id)
        watch = engine.watch(b"\0", FROM_KEY)
        ended = await anext(watch)
        assert [(event.key, event.is_delete) for event in ended.events] == [
            (b"a", True),
            (b"b", True),
        ]
        with pytest.raises(UnknownLease):
            await engine.renew(lease.id)
        with pytest.raises(UnknownLease):
            await engine.time_to_live(lease.id)
        with pytest.raises(UnknownLease):
            await engine.put(b"a", b"", lease=lease.id)


@asynchronous
async def test_leases_are_granted_renewed_listed_and_revoked(place: Place) -> None:
    async with place.open() as engine:
        long, short = await engine.grant(1000, lease=5), await engine.grant(0.7004)
        assert (long.id, short.ttl) == (5, 0.701)
        with pytest.raises(LeaseExists):
            await engine.grant(10, lease=5)
        await engine.put(b"a", b"", lease=5)
        assert [(each.id, each.key_count) for each in await engine.leases()] == [
            (short.id, 0),
            (5, 1),
        ]
        assert await engine.renew(5) == 1000
        renewed = await engine.renew_all([5, short.id, 77])
        assert dict(renewed.terms) == {5: 1000, short.id: 0.701}
        assert list(renewed.failures) == [77]
        assert await engine.revoke(5) == 3
        assert (await engine.range(b"a")).total == 0
        with pytest.raises(UnknownLease):
            await engine.revoke(5)


@pytest.mark.parametrize("ttl", [0, -1, 10**10, float("nan"), float("inf")])
@asynchronous
async def test_a_term_that_makes_no_sense_is_refused(ttl: float) -> None:
    async with Place("memory:").open() as engine:
        with pytest.raises(ValueError, match=r"ttl must be more than 0 and at most 9000000000"):
            await engine.grant(ttl)


@asynchronous
async def test_wrong_types_are_refused_by_name() -> None:
    async with Place("memory:").open() as engine:
        wrong: Any = "text"
        for call in (
            lambda: engine.put(wrong, b""),
            lambda: engine.put(b"a", wrong),
            lambda: engine.put(b"a", b"", lease=wrong),
            lambda: engine.range(wrong),
            lambda: engine.range(b"a", wrong),
            lambda: engine.delete(wrong),
            lambda: engine.grant(wrong),
            lambda: engine.txn([wrong]),
        ):
            with pytest.raises(TypeError, match="must be"):
                await call()
        with pytest.raises(ValueError, match="revision must not be negative"):
            await engine.range(b"a", revision=-1)
        with pytest.raises(ValueError, match="limit must not be negative"):
            await engine.range(b"a", limit=-1)
        with pytest.raises(ValueError, match="start must be a revision"):
            engine.watch(b"a", start=-1)


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

        with pytest.raises(NoSpace, match="the quota is 400,000"):
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


@asynchronous
async def test_a_directory_has_one_engine_at_a_time(kept: Place) -> None:
    engine = await leasehold.open_engine(kept.path)
    with pytest.raises(DirectoryInUse, match="in use by this very process"):
        await leasehold.open_engine(kept.path)
    await engine.close()
    async with kept.open():
        said = await asyncio.to_thread(_open_elsewhere, kept.path)
    assert f"in use by process {os.getpid()}" in said


def _open_elsewhere(path: Path | str) -> str:
    opening = (
        "import asyncio, sys, leasehold; asyncio.run(leasehold.open_engine(sys.argv[1])._make())"
    )
    other = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", opening, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return other.stderr


def test_a_quota_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="quota_bytes must be at least 1"):
        leasehold.open_engine("memory:", quota_bytes=0)
