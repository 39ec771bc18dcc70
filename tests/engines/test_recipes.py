"""What is built of places in line, on any engine: also where calls lose their answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import pytest

from leasehold import Client, LockDenied
from leasehold.basics.pending import Pending
from leasehold.engine.interface import Engine
from leasehold.locks.queued_locks import QueueGuard
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous
from tests.support.faulty_engine import Fault, FaultyEngine

G = TypeVar("G", bound=QueueGuard)

SOON_S = (0.1, 3.0, 30.0)
"""Timeouts that are meant to pass; the longer ones are for a slow engine."""

TTL_S = 30.0
"""Longer than a starved test takes to renew a session, and shorter than a test may take."""


@asynccontextmanager
async def clients(place: Place, *names: str) -> AsyncIterator[list[Client]]:
    """Have some clients, each with a connection of its own where there are any."""
    made: list[Client] = []
    engine: Engine | None = None
    async with AsyncExitStack() as stack:
        for name in names:
            if engine is None or place.is_remote:
                engine = await stack.enter_async_context(place.open())
            client = Client(FaultyEngine(engine), name=name, session_ttl=TTL_S)
            stack.push_async_callback(client.close)
            made.append(client)
        yield made
        await asyncio.gather(*(client.close() for client in made))
        if engine is not None:
            assert not (await engine.range(place.prefix, place.end)).pairs


def trouble(client: Client, number: int) -> None:
    """Have one of the next calls of a client executed, and not answered."""
    assert isinstance(client.engine, FaultyEngine)
    client.engine.trouble_with("txn", number, Fault.ANSWER_LOST)


async def acquired(pending: Pending[G]) -> G:
    return await pending


@asynchronous
async def test_readers_and_writers(place: Place) -> None:
    name = place.key(b"config")
    async with clients(place, "a", "b") as (a, b):
        reader = await a.rwlock(name).read()
        async with b.rwlock(name).read(timeout=0) as guard:
            guard.check()
        for timeout_s in SOON_S:
            with pytest.raises(TimeoutError) as denied:
                await b.rwlock(name).write(timeout=timeout_s)
            if isinstance(denied.value, LockDenied):  # else its time was over before the answer
                break
        assert isinstance(denied.value, LockDenied)
        assert denied.value.holder == "a"
        for number in (1, 2, 3):
            trouble(b, number)
            writing = asyncio.ensure_future(acquired(b.rwlock(name).write()))
            await asyncio.sleep(0.05)
            assert not writing.done()
            reader.release()
            writer = await writing
            assert writer.token > reader.token
            reading = asyncio.ensure_future(acquired(a.rwlock(name).read()))
            writer.release()
            reader = await reading
        reader.release()


@asynchronous
async def test_a_semaphore_and_its_limit(place: Place) -> None:
    name = place.key(b"pool")
    async with clients(place, "a", "b") as (a, b):
        inside = 0

        async def work(client: Client) -> None:
            nonlocal inside
            async with client.semaphore(name, limit=2):
                inside += 1
                assert inside <= 2
                await asyncio.sleep(0.01)
                inside -= 1

        trouble(a, 4)
        async with a.semaphore(name, limit=2) as guard:
            for limit in (1, 20):
                with pytest.raises(ValueError, match=rf"limit=2 by a.*limit={limit}"):
                    await b.semaphore(name, limit).acquire()
            await asyncio.gather(*(work(client) for client in (a, b, a, b)))
            guard.check()


@asynchronous
async def test_a_barrier_counts_nobody_twice(place: Place) -> None:
    name = place.key(b"start")
    async with clients(place, "a", "b", "c") as (a, b, c):
        for number in range(1, 4):
            for client in (a, b, c):
                trouble(client, number)
            async with asyncio.timeout(TTL_S):
                waits = [client.barrier(name, 3).wait() for client in (a, b, c)]
                assert len(set(await asyncio.gather(*waits))) == 1
        with pytest.raises(TimeoutError, match="only 1 of 3 parties arrived"):
            await a.barrier(name, 3).wait(timeout=0.1)


@asynchronous
async def test_who_has_no_answer_finds_in_the_history_that_it_has_passed(place: Place) -> None:
    name = place.key(b"start")
    async with clients(place, "a", "b") as (a, b):
        await a.barrier(name, 1).wait()
        assert isinstance(a.engine, FaultyEngine)
        trouble(a, 1)
        a.engine.delay_s = 0.5
        first = asyncio.ensure_future(a.barrier(name, 2).wait())
        token = await b.barrier(name, 2).wait()
        await b.close()
        assert await first == token


@asynchronous
async def test_an_election_and_who_observes_it(place: Place) -> None:
    name = place.key(b"boss")
    async with clients(place, "a", "b") as (a, b):
        seen: list[str] = []
        is_told = asyncio.Event()

        async def observe() -> None:
            async for leader in b.election(name).observe():
                seen.append(leader.text)
                is_told.set()

        async def until_seen(value: str) -> None:
            while seen[-1:] != [value]:
                await is_told.wait()
                is_told.clear()

        observing = asyncio.ensure_future(observe())
        async with a.election(name).campaign("one") as leadership:
            assert await b.election(name).leader() is not None
            trouble(a, 1)
            await leadership.proclaim("two")
            with pytest.raises(LockDenied, match="two"):
                await b.election(name).campaign("other", timeout=0)
            waiting = asyncio.ensure_future(acquired(b.election(name).campaign("three")))
            await until_seen("two")
        second = await waiting
        await until_seen("three")
        assert second.token > leadership.token
        assert seen[-2:] == ["two", "three"]
        await a.kv.compact((await a.kv.put(place.key(b"x"), "")).revision)
        await a.kv.delete(place.key(b"x"))
        second.check()
        second.release()
        async with a.election(name).campaign("four"):
            await until_seen("four")
        observing.cancel()
        await asyncio.wait([observing])


@asynchronous
async def test_acquisitions_are_counted_and_kept(place: Place) -> None:
    name, prefix = place.key(b"counted/desk"), place.key(b"counted/")
    text = name.decode()
    async with clients(place, "a", "b", "reader") as (a, b, reader):
        for number, client in enumerate((a, b, a)):
            trouble(client, 1 + number)
            for _ in range(2):
                async with client.lock(name, count=True):
                    pass
        guard = await b.lock(name, count=True).acquire()
        counted = await reader.count_acquisitions(prefix=prefix, recall_timeout=30)
        assert counted == ({text: 7}, {})
        guard.check()
        guard.release()
        await b.close()
        await a.close()
        assert await reader.count_acquisitions(name) == ({text: 7}, {})
        assert await reader.remove_count(name) == 7
        assert await reader.count_acquisitions(prefix=prefix) == ({}, {})
