"""How often locks were acquired: exactly, without taking them, and what cannot be reached."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leasehold.engine.values import KeyValue
from leasehold.errors import LockDenied, LockLost, NoSpace, SessionExpired
from leasehold.locks.lock_count import AcquisitionCounts
from leasehold.locks.lock_keys import COUNTERS, Claim, counted_name, counter_key
from leasehold.locks.lock_queue import LockQueue
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play

TTL_S = 10.0


def counters(world: World) -> dict[bytes, bytes]:
    """Return all stored counts."""
    items = world.engine._store.keyspace.range(COUNTERS, COUNTERS + b"\xff")
    return {pair.key: pair.value for pair in map(KeyValue, items)}


async def use(client: Participant, name: str, times: int = 1, *, count: bool = False) -> None:
    """Acquire a lock several times."""
    for _ in range(times):
        async with client.lock(name, count=count):
            pass


async def counts(client: Participant, *names: str) -> dict[str, int]:
    """Count, and reach everything."""
    counted = await client.count_acquisitions(*names)
    assert counted.not_reached == {}
    return counted.counts


# Counting does not take the lock.


def test_an_idle_lock_stays_in_the_cache_of_its_holder() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3)
        assert await counts(b, "x") == {"x": 3}
        calls = len(a.engine.calls)
        await use(a, "x")
        assert len(a.engine.calls) == calls, "it was acquired from the cache"
        assert world.leases() == 1, "counting needs no session"
        assert await counts(b, "x") == {"x": 4}

    play(scene)


def test_a_lock_in_use_and_its_queue_stay_as_they_are() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        guard = await a.lock("x").acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        before = [(pair.key, pair.create_revision) for pair in world.pairs(b"x/")]
        assert await counts(c, "x") == {"x": 1}
        assert await counts(b, "x") == {"x": 1}
        assert [(pair.key, pair.create_revision) for pair in world.pairs(b"x/")] == before
        guard.check()
        guard.release()
        (await waiting).release()
        assert await counts(c, "x") == {"x": 2}

    play(scene)


def test_it_does_not_wait_behind_a_local_caller() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        waiting = [asyncio.ensure_future(b.lock("x").acquire()) for _ in range(2)]
        await world.in_line("x", 2)
        async with asyncio.timeout(0.5):
            assert await counts(b, "x") == {"x": 1}
        guard.release()
        for each in waiting:
            (await each).release()

    play(scene)


def test_a_lock_without_recall_is_counted_too() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x", recall=False).acquire()
        assert await counts(b, "x") == {"x": 1}
        guard.release()

    play(scene)


def test_many_ask_at_the_same_time() -> None:
    async def scene(world: World) -> None:
        holder = world.client("holder")
        readers = [world.client(f"r{n}") for n in range(5)]
        guard = await holder.lock("x").acquire()
        found = await asyncio.gather(*(counts(reader, "x") for reader in readers * 3))
        assert found == [{"x": 1}] * 15
        with pytest.raises(LockDenied, match="holder"):
            await readers[0].lock("x").acquire(timeout=0)
        guard.release()

    play(scene)


def test_a_request_does_not_hide_a_refusal() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        guard = await a.lock("x").acquire()
        asking = asyncio.ensure_future(b.lock("x", recall_timeout=60).acquire(timeout=0))
        for _ in range(20):
            assert await counts(c, "x") == {"x": 1}
        async with asyncio.timeout(1):
            with pytest.raises(LockDenied):
                await asking
        guard.release()

    play(scene)


def test_a_lock_that_is_handed_over_during_the_request_is_counted() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        guard = await a.lock("x").acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        c.engine.delay_s = 0.2
        counting = asyncio.ensure_future(counts(c, "x"))
        await asyncio.sleep(0.25)  # it has read the queue, and now asks the first holder
        guard.release()
        guard = await waiting
        assert await counting == {"x": 2}
        guard.release()

    play(scene)


def test_a_free_lock_has_no_count_and_no_name_gives_nothing() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        assert await counts(a, "x", "x") == {"x": 0}
        assert await a.count_acquisitions() == AcquisitionCounts({}, {})

    play(scene)


# What cannot be reached.


def test_a_silent_holder_is_reported_beside_the_others() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        await use(a, "x", 2)
        await use(c, "x")  # it has the count 2 in its key
        await use(b, "y")
        guard = await c.lock("x").acquire()
        c.engine.is_cut_off = True
        began_at = asyncio.get_running_loop().time()
        counted = await a.count_acquisitions("x", "y", recall_timeout=3)
        assert asyncio.get_running_loop().time() - began_at < 3.5
        assert counted.counts == {"y": 1}
        assert counted.not_reached == {"x": ("c", 2, "its holder has not answered within 3 s")}
        c.engine.is_cut_off = False
        await world.until(lambda: guard.is_held)
        guard.release()

    play(scene)


def test_a_silent_server_is_reported() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", timeout=2)
        a.engine.is_cut_off = True
        counted = await a.count_acquisitions("x")
        assert counted.not_reached == {"x": ("", 0, "no answer within 2 s")}

    play(scene)


@pytest.mark.parametrize(
    "value", [b"", b"leader", b'{"who":"b"}', b'{"who":"a","port":1}', b'{"who": "a"}', b"[1]"]
)
def test_the_value_of_another_program_is_not_touched(value: bytes) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.election("x").campaign(value)
        before = world.pairs(b"x/")
        counted = await b.count_acquisitions("x")
        assert counted.counts == {}
        assert counted.not_reached["x"].why == "its holder does not count acquisitions"
        assert world.pairs(b"x/") == before
        guard.release()

    play(scene)


# Locks with `count=True`.


def test_the_count_survives_the_idle_time_in_one_plain_key() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "some/desk", 3, count=True)
        assert counters(world) == {}, "it is written when the lock becomes free"
        await world.until(lambda: not world.leases())
        assert counters(world) == {b"leasehold-count:some%2Fdesk": b"3"}
        assert await counts(b, "some/desk") == {"some/desk": 3}
        await use(b, "some/desk", 2, count=True)
        assert await counts(a, "some/desk") == {"some/desk": 5}
        await use(a, "some/desk", count=True)
        assert await counts(b, "some/desk") == {"some/desk": 6}
        await world.until(lambda: not world.leases())
        assert counters(world) == {b"leasehold-count:some%2Fdesk": b"6"}

    play(scene)


def test_other_locks_pay_nothing() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3)
        assert [pair.value for pair in world.pairs(b"x/")] == [b'{"who":"a"}']
        calls = a.engine.calls.copy()
        await use(b, "x")
        assert a.engine.calls[len(calls) :] == ["txn"]
        assert [pair.value for pair in world.pairs(b"x/")] == [b'{"who":"b","count":3}']
        await world.until(lambda: not world.leases())
        assert counters(world) == {}
        assert await counts(a, "x") == {"x": 0}

    play(scene)


def test_the_counts_of_locks_with_and_without_a_counter_add_up() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        await use(a, "x", 2)
        await use(b, "x", 3, count=True)
        await use(b, "x")  # one handle that wants it is enough
        await use(c, "x")
        for client in (a, b, c):
            assert await counts(client, "x") == {"x": 7}
        await use(a, "x", count=True)
        await world.until(lambda: not world.leases())
        assert await counts(b, "x") == {"x": 8}

    play(scene)


@pytest.mark.parametrize("in_use", [False, True])
def test_a_client_that_is_closed_stores_its_counts(*, in_use: bool) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 2, count=True)
        await use(a, "y", 1, count=True)
        if in_use:
            guard = await a.lock("x").acquire()
        await a.close()
        if in_use:
            with pytest.raises(LockLost):
                guard.release()
        assert await counts(b, "x", "y") == {"x": 3 if in_use else 2, "y": 1}

    play(scene)


def test_a_client_without_contact_is_closed_nevertheless() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        await use(a, "x", count=True)
        a.engine.is_cut_off = True
        async with asyncio.timeout(60):
            await a.close()
        await world.until(lambda: not world.leases())

    play(scene)


@pytest.mark.parametrize("fault", LOSSES)
@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("count", [False, True])
def test_lost_answers_change_no_count(fault: Fault, number: int, *, count: bool) -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        a.engine.trouble_with("txn", number, fault)
        for _ in range(3):
            await use(a, "x", 2, count=count)
            await use(b, "x", 1, count=count)
        await use(a, "x", count=count)
        assert await counts(c, "x") == {"x": 10}
        if count:
            await world.until(lambda: not world.keys("x"))
            assert await counts(c, "x") == {"x": 10}
            assert counters(world) == {counter_key(b"x"): b"10"}

    play(scene)


@pytest.mark.parametrize("turns", range(60))
def test_a_caller_that_is_cancelled_has_not_acquired_it(turns: int) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        acquired = 0

        async def work() -> None:
            nonlocal acquired
            guard = await a.lock("x", count=True).acquire()
            acquired += 1
            guard.release()

        task = asyncio.ensure_future(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await use(a, "x")
        assert await counts(b, "x") == {"x": acquired + 1}

    play(scene)


def test_a_lost_session_costs_the_acquisitions_of_its_holder_and_no_more() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(b, "x", 4, count=True)
        await use(a, "x", 3, count=True)
        assert await counts(b, "x") == {"x": 7}
        a.engine.is_cut_off = True
        await world.until(lambda: not world.keys("x"))
        assert await counts(b, "x") == {"x": 4}
        a.engine.is_cut_off = False
        await use(a, "x", count=True)
        assert await counts(b, "x") == {"x": 5}

    play(scene)


def test_a_delete_without_an_answer_and_the_end_of_the_session_count_nothing_twice() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3, count=True)
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        session = a._sessions._current
        assert session is not None
        waiting = asyncio.ensure_future(b.lock("x", count=True).acquire())
        guard = await waiting
        a._sessions.give_up(session, SessionExpired(1, "a test"))
        assert await counts(b, "x") == {"x": 4}
        guard.release()
        await use(a, "x", count=True)
        assert await counts(b, "x") == {"x": 5}

    play(scene)


def test_without_space_the_lock_is_free_and_the_count_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3, count=True)
        a.engine.trouble_with("txn", 1, NoSpace(2_000, 1_000))
        await use(b, "x", count=True)
        assert await counts(a, "x") == {"x": 1}

    play(scene)
    assert "the number of acquisitions (3) of lock 'x' cannot be stored" in caplog.text


def test_a_counter_is_removed() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3, count=True)
        await use(b, "x", 2, count=True)
        assert await a.remove_count("x") == 3
        assert await a.remove_count("x") == 0
        assert counters(world) == {}
        assert await counts(a, "x") == {"x": 2}, "those of the holder"
        await world.until(lambda: not world.leases())
        assert await a.remove_count("x") == 2
        assert await counts(a, "x") == {"x": 0}

    play(scene)


def test_a_counter_that_is_removed_while_it_is_written_counts_from_there() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3, count=True)
        await use(b, "x", 2, count=True)
        b.engine.delay_s = 1.0
        await b.count_acquisitions("x")
        using = asyncio.ensure_future(use(a, "x", count=True))
        await asyncio.sleep(1.2)  # its first transaction has found the counter
        assert await a.remove_count("x") == 3
        await using
        assert await counts(a, "x") == {"x": 3}

    play(scene)


@pytest.mark.parametrize("value", [b"many", b"-3", b"", b"9" * 5_000])
def test_a_counter_with_another_value_counts_from_0(value: bytes) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        await world.engine.put(counter_key(b"x"), value)
        assert await counts(a, "x") == {"x": 0}
        await use(a, "x", count=True)
        await world.until(lambda: not world.leases())
        assert counters(world) == {counter_key(b"x"): b"1"}

    play(scene)


# Names.


def test_all_names_below_a_prefix_are_counted() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        for name in ("jobs/a", "jobs/b%2F", "jobs/deep/er", "jobs", "other/a"):
            await use(a, name, 2, count=True)
        await world.until(lambda: not world.leases())
        await use(a, "jobs/b%2F", count=True)
        await use(b, "jobs/new")
        await a.kv.put("jobs/hand/ab", "not a lock")
        await a.kv.put("jobs/x/rwlock/ab", "not a lock")
        leader = await b.election("jobs/leader").campaign("b")
        reader = world.client("reader")
        counted = await reader.count_acquisitions(prefix="jobs/")
        below = {"jobs/a": 2, "jobs/b%2F": 3, "jobs/deep/er": 2, "jobs/new": 1}
        assert counted.counts == below
        assert list(counted.not_reached) == ["jobs/leader"]
        counted = await reader.count_acquisitions("free", prefix=b"")
        assert counted.counts == {**below, "jobs": 2, "other/a": 2, "free": 0}
        leader.release()
        await a.kv.delete("jobs/hand/ab")
        await a.kv.delete("jobs/x/rwlock/ab")

    play(scene)


def test_names_are_found_in_any_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.locks.lock_count.NAMES_PAGE", 3)

    async def scene(world: World) -> None:
        a = world.client("a")
        for n in range(10):
            await use(a, f"x/{n}", count=True)
        await world.until(lambda: not world.leases())
        for n in range(5, 15):
            await use(a, f"x/{n}")
        counted = await a.count_acquisitions(prefix="x/")
        assert counted.counts == {f"x/{n}": 2 if 5 <= n < 10 else 1 for n in range(15)}

    play(scene)


@pytest.mark.parametrize("name", [b"x", b"a/b", b"a/7f", b"100%", b"%2F", b"/", b"\xff/\x00"])
def test_no_lock_takes_a_counter_for_a_contender(name: bytes) -> None:
    key = counter_key(name)
    assert b"/" not in key, "so Go's Mutex does not either, whatever its name"
    assert counted_name(key) == name
    for end in range(1, len(key)):
        assert not LockQueue(key[:end].rstrip(b"/")).counts(key)


def test_earlier_versions_ignore_a_request() -> None:
    asked = Claim.decode(b'{"who":"a","count":2,"denies":7,"asks":true}')
    assert asked == Claim("a", 2, denies=7, asks=True)
    assert asked.encode() == b'{"who":"a","count":2,"denies":7,"asks":true}'
    assert Claim.decode(b'{"who":"a","asks":3}') == Claim("a")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.count_acquisitions(""),
        lambda client: client.count_acquisitions("x", recall_timeout=-1),
        lambda client: client.remove_count("leasehold/sessions"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[Participant], Awaitable[object]]) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ValueError, match="must"):
            await call(world.client("a"))

    play(scene)


def test_a_session_with_a_count_to_store_ends_hardly_later() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        began_at = asyncio.get_running_loop().time()
        await use(a, "x", count=True)
        await world.until(lambda: not world.leases())
        assert asyncio.get_running_loop().time() - began_at < 1.5 * TTL_S

    play(scene)
