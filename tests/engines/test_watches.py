"""Watches on any engine: whole revisions, none missed, none twice, and how they end."""

import asyncio

import pytest

from leasehold import Closed, Compacted, Put
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.remote.remote_engine import RemoteEngine
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous


def tells_exact_progress(engine: Engine) -> bool:
    """Whether progress is told as far as it is: an old etcd's cannot be relied on."""
    return not isinstance(engine, RemoteEngine) or engine.server.trusts_progress


async def revisions(watch: Watch, count: int) -> list[int]:
    return [(await anext(watch)).revision for _ in range(count)]


@asynchronous
async def test_a_watch_tells_whole_revisions_from_now_or_from_the_past(place: Place) -> None:
    async with place.open() as engine:
        a, b = place.key(b"a"), place.key(b"b")
        first = (await engine.put(a, b"1")).revision
        now = engine.watch(place.prefix, place.end, previous=True)
        past = engine.watch(place.prefix, place.end, start=first)
        async with now, past:
            await engine.txn([], [Put(a, b"2"), Put(b, b"2"), Put(place.end, b"")])
            await engine.delete(place.prefix, place.end)
            told = [await anext(now), await anext(now)]
            assert [(each.revision, len(each.events)) for each in told] == [
                (first + 1, 2),
                (first + 2, 2),
            ]
            changed, created = told[0].events
            assert (changed.key, changed.revision, changed.is_delete) == (a, first + 1, False)
            assert changed.pair is not None
            assert (changed.pair.value, changed.pair.version) == (b"2", 2)
            assert changed.previous is not None
            assert changed.previous.value == b"1"
            assert created.previous is None
            assert [event.is_delete for event in told[1].events] == [True, True]
            assert told[1].events[1].previous is not None
            replayed = [await anext(past) for _ in range(3)]
            assert [each.revision for each in replayed] == [first, first + 1, first + 2]
            assert all(event.previous is None for each in replayed for event in each.events)


@asynchronous
async def test_a_watch_on_one_key_hears_of_that_one_only(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        async with engine.watch(key) as watch:
            await engine.put(place.key(b"aa"), b"")
            wanted = (await engine.put(key, b"")).revision
            assert (await anext(watch)).revision == wanted


@asynchronous
async def test_a_watch_may_leave_out_puts_or_deletes(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        first = (await engine.put(key, b"")).revision
        puts = engine.watch(key, deletes=False, start=first)
        deletes = engine.watch(key, puts=False, start=first)
        async with puts, deletes:
            await engine.delete(key)
            await engine.put(key, b"")
            await engine.delete(key)
            assert await revisions(puts, 2) == [first, first + 2]
            assert await revisions(deletes, 2) == [first + 1, first + 3]


@asynchronous
async def test_a_watch_may_begin_in_the_future(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        now = (await engine.put(key, b"")).revision
        async with engine.watch(key, start=now + 3) as watch:
            for _ in range(3):
                await engine.put(key, b"")
            assert (await anext(watch)).revision == now + 3


@asynchronous
async def test_many_watches_are_told_of_everything_in_order(place: Place) -> None:
    async with place.open() as engine:
        start = (await engine.put(place.key(b"first"), b"")).revision
        watches = [engine.watch(place.prefix, place.end, start=start) for _ in range(10)]
        names = [place.key(b"%d" % number) for number in range(100)]
        wanted = [start, *[(await engine.put(name, b"")).revision for name in names]]
        for watch in watches:
            async with watch:
                assert await revisions(watch, len(wanted)) == wanted


@asynchronous
async def test_an_event_larger_than_a_frame_comes_whole(place: Place) -> None:
    async with place.open() as engine:
        value = bytes(400_000)
        async with engine.watch(place.prefix, place.end) as watch:
            steps = [Put(place.key(b"%d" % number), value) for number in range(3)]
            for _ in range(3):  # together more than etcd puts into one message
                await engine.txn([], steps)
            for _ in range(3):
                told = await anext(watch)
                assert [len(event.pair.value) for event in told.events if event.pair] == [
                    400_000
                ] * 3


@asynchronous
async def test_progress_is_told_behind_everything_else(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        written = (await engine.put(key, b"")).revision
        async with engine.watch(key, start=written) as watch:
            assert (await anext(watch)).revision == written
            now = (await engine.put(place.end, b"")).revision
            watch.request_progress()
            progress = await anext(watch)
            assert list(progress.events) == []
            assert progress.revision == (now if tells_exact_progress(engine) else written)
            again = (await engine.put(key, b"")).revision
            assert (await anext(watch)).revision == again


@asynchronous
async def test_a_watch_has_one_reader_and_can_be_cancelled(place: Place) -> None:
    async with place.open() as engine:
        async with engine.watch(place.key(b"a")) as watch:
            reader = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one reader"):
                await anext(watch)
        with pytest.raises(Closed, match="cancelled"):
            await reader
        await engine.put(place.key(b"a"), b"")
        watch.request_progress()  # of no use, and no harm
        watch.cancel()
        with pytest.raises(Closed, match="cancelled"):
            await anext(watch)


@asynchronous
async def test_a_reader_that_gives_up_misses_nothing(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        async with engine.watch(key) as watch:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await anext(watch)
            wanted = [(await engine.put(key, b"")).revision for _ in range(3)]
            assert await revisions(watch, 3) == wanted


@asynchronous
async def test_what_was_compacted_cannot_be_watched(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        first = (await engine.put(key, b"")).revision
        for _ in range(3):
            last = (await engine.put(key, b"")).revision
        await engine.compact(last)
        watch = engine.watch(key, start=first)
        with pytest.raises(Compacted) as ended:
            await anext(watch)
        assert (ended.value.asked_for, ended.value.revision) == (first, last)
        async with engine.watch(key, start=last) as from_there:
            assert (await anext(from_there)).revision == last


@asynchronous
async def test_an_empty_range_cannot_be_watched(place: Place) -> None:
    async with place.open() as engine:
        with pytest.raises(ValueError, match=r"end must be after key"):
            engine.watch(place.key(b"b"), place.key(b"a"))


@asynchronous
async def test_closing_ends_watches_and_later_calls(place: Place) -> None:
    async with place.open() as engine:
        watch = engine.watch(place.key(b"a"))
        await watch.ready()
        assert engine.cluster_id
        assert engine.trouble == ""
    with pytest.raises(Closed):
        await anext(watch)
    key = place.key(b"a")
    for call in (
        engine.put(key, b""),
        engine.range(key),
        engine.delete(key),
        engine.txn(),
        engine.compact(1),
        engine.grant(10),
        engine.renew(1),
        engine.renew_all([1]),
        engine.revoke(1),
        engine.time_to_live(1),
        engine.leases(),
    ):
        with pytest.raises(Closed):
            await call
    with pytest.raises(Closed):
        engine.watch(key)
    with pytest.raises(Closed):
        engine.check()
    await engine.close()


@asynchronous
async def test_two_engines_of_one_place_see_the_same(place: Place) -> None:
    if not place.is_remote:
        pytest.skip("an engine in this process has its place for itself")
    async with place.open() as one, place.open() as other:
        assert one.cluster_id == other.cluster_id
        async with other.watch(place.prefix, place.end) as watch:
            revision = (await one.put(place.key(b"a"), b"1")).revision
            assert (await anext(watch)).revision == revision
            assert (await other.range(place.key(b"a"))).pairs[0].value == b"1"
