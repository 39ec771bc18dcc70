"""Locks of a client that is cut off: who loses what, and who is told.

The server is a real one, and so are the connections; only the way between them is in our hands.
"""

import asyncio
from collections.abc import Iterator

import pytest

import leasehold
import leasehold.sync
from leasehold import LockDenied, LockEvent, LockEventKind, LockLost
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous, longest_stall

SHORT_S = 4.0
"""A term that a test can wait for."""

STALL_S = 2.0
"""A term of which enough is left after a stall."""


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@asynchronous
async def test_a_partition_of_one_client_shorter_than_the_lease_does_no_harm(
    server: LocalServer,
) -> None:
    async with server.connect(name="anna") as anna, server.connect(name="bert") as bert:
        async with anna.lock("job") as guard:
            server.disconnect(anna, 0.3)
            with pytest.raises(LockDenied, match="anna"):
                await bert.lock("job").acquire(timeout=3.0)
            await anna.kv.put("contact", "again")
            guard.check()
            assert not guard.lost.is_set()
        async with bert.lock("job", timeout=10.0) as next_guard:
            assert next_guard.token > guard.token


@asynchronous
async def test_a_longer_one_costs_that_client_its_locks_and_nobody_else_anything(
    server: LocalServer,
) -> None:
    async with (
        server.connect(session_ttl=SHORT_S) as anna,
        server.connect() as bert,
        server.connect() as carla,
    ):
        guard = await anna.lock("job").acquire()
        berts = await bert.lock("other job").acquire()
        waiting = asyncio.create_task(carla.lock("job").acquire())
        server.disconnect(anna)
        carlas = await waiting
        assert not guard.is_held  # and not only now: its clock was ahead of the server's
        assert guard.remaining == 0.0
        assert carlas.token > guard.token
        berts.check()
        server.reconnect(anna)  # late renewals change nothing
        assert await anna.kv.get(guard.key) is None
        carlas.check()
        assert (await anna.lock("job").holder()) == (await carla.lock("job").holder())


@asynchronous
async def test_the_old_holder_is_told_and_finds_out_by_itself(server: LocalServer) -> None:
    told: list[leasehold.Guard] = []
    async with server.connect(session_ttl=SHORT_S) as anna, longest_stall() as stall:
        guard = await anna.lock("job", on_loss=lambda lost, _: told.append(lost)).acquire()

        async def is_held_in_jeopardy() -> bool:
            await guard.jeopardy.wait()
            return guard.is_held

        jeopardy = asyncio.create_task(is_held_in_jeopardy())
        server.disconnect(anna)
        await guard.lost.wait()
        there_was_time = jeopardy.done() and jeopardy.result()
        jeopardy.cancel()
        assert there_was_time or stall.seconds > SHORT_S / 5
        assert told == [guard]
        with pytest.raises(LockLost):
            guard.check()
        with pytest.raises(LockLost):
            guard.release()
        server.reconnect(anna)


@asynchronous
async def test_the_log_tells_of_a_partition_in_order(server: LocalServer) -> None:
    log: list[LockEvent] = []
    async with server.connect(session_ttl=SHORT_S) as anna, longest_stall() as stall:
        guard = await anna.lock("job").acquire()
        server.disconnect(anna)
        anna.on_lock_event(log.append)
        await guard.lost.wait()
        server.reconnect(anna)
        kinds = [event.kind for event in log if event.side == "client"]
        told = [kind for kind in kinds if kind != LockEventKind.AUTO_RENEWED]
        in_time = [LockEventKind.DISCONNECTED] if LockEventKind.DISCONNECTED in told else []
        assert told == [*in_time, LockEventKind.RENEWAL_TIMED_OUT, LockEventKind.LOST]
        assert in_time or stall.seconds > SHORT_S / 5, "only a stall up to the end hides jeopardy"


@asynchronous
async def test_a_cached_lock_past_its_trusted_end_is_never_answered_from_the_cache(
    server: LocalServer,
) -> None:
    async with server.connect(session_ttl=SHORT_S) as anna, server.connect(name="bert") as bert:
        lock = anna.lock("job", idle_timeout=60.0)
        (await lock.acquire()).release()
        server.disconnect(anna)
        (await lock.acquire()).release()  # still from the cache: nothing is needed for that
        berts = await bert.lock("job").acquire()
        with pytest.raises(TimeoutError):
            await lock.acquire(timeout=0.1)
        server.reconnect(anna)
        with pytest.raises(LockDenied, match="bert"):
            await lock.acquire(timeout=0)
        berts.release()
        assert (await lock.acquire(timeout=10.0)).token > berts.token


@asynchronous
async def test_a_recall_without_an_answer_is_denied_until_the_lease_ends_and_then_granted(
    server: LocalServer,
) -> None:
    async with server.connect(session_ttl=SHORT_S, name="anna") as anna, server.connect() as bert:
        (await bert.lock("other job").acquire()).release()  # there is a session: the rest is fast
        (await anna.lock("job").acquire()).release()
        server.disconnect(anna)
        lock = bert.lock("job", recall_timeout=0.1)
        with pytest.raises(LockDenied, match="anna"):
            await lock.acquire(timeout=0)
        assert (await lock.acquire(timeout=0, ask_again=True)).is_held
        server.reconnect(anna)


@asynchronous
async def test_a_waiter_that_is_cut_off_loses_its_place_and_blocks_nobody(
    server: LocalServer,
) -> None:
    async with (
        server.connect() as anna,
        server.connect(session_ttl=SHORT_S) as bert,
        server.connect() as carla,
    ):
        guard = await anna.lock("job").acquire()
        berts = asyncio.create_task(bert.lock("job").acquire(ask_again=True))
        await _in_line(anna, "job", 2)
        carlas = asyncio.create_task(carla.lock("job").acquire())
        server.disconnect(bert)
        guard.release()
        last = await carlas
        assert not berts.done()
        server.reconnect(bert)
        last.release()
        assert (await berts).token > last.token


async def _in_line(client: leasehold.Client, name: str, count: int) -> None:
    """Wait until so many contend for a lock."""
    async with client.kv.watch(f"{name}/", prefix=True, start=1) as watch:
        seen: set[bytes] = set()
        while len(seen) < count:
            seen.update(event.key for event in (await anext(watch)).events)


@asynchronous
async def test_the_session_of_a_holder_that_lost_its_locks_is_ended_before_it_makes_another(
    server: LocalServer,
) -> None:
    async with (
        server.connect(session_ttl=STALL_S) as anna,
        server.connect() as other,
        longest_stall() as stall,
    ):
        lock = anna.lock("job")
        guard = await lock.acquire()
        with server.frozen():  # the lease does not age, but its holder's trust does
            await guard.lost.wait()
        try:
            again = await lock.acquire(timeout=0.6 * STALL_S)  # sooner than the lease would end
        except TimeoutError:
            assert stall.seconds > STALL_S / 5, "only a stall takes as long"
            again = await lock.acquire(timeout=20.0)
        assert again.token > guard.token
        assert int(guard.key.rpartition(b"/")[2], 16) not in [
            lease.id for lease in await other.leases()
        ]


def test_a_sync_client_that_is_cut_off_loses_its_locks(server: LocalServer) -> None:
    with (
        server.wire() as wire,
        leasehold.sync.connect(wire.endpoint, session_ttl=SHORT_S) as anna,
        leasehold.sync.connect(server.endpoint) as bert,
    ):
        guard = anna.lock("job").acquire()
        server.disconnect(anna)
        berts = bert.lock("job").acquire(timeout=20.0)
        assert not guard.is_held
        with pytest.raises(LockLost):
            guard.release()
        server.reconnect(anna)
        assert berts.token > guard.token
