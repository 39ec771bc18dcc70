"""Shared and exclusive locks: who is let in with whom, and in which order."""

import asyncio
from typing import Any

import pytest

from leasehold import LockDenied
from leasehold.basics.pending import Pending
from leasehold.locks.queued_locks import QueueGuard
from tests.support.faulty_engine import World, play


async def acquired(pending: Pending[QueueGuard]) -> QueueGuard:
    return await pending


def test_readers_share_and_a_writer_is_alone() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        one = await a.rwlock("config").read()
        two = await b.rwlock("config").read()
        three = await b.rwlock("config").read()  # of one client, too
        for guard in (one, two, three):
            guard.check()
        with pytest.raises(LockDenied) as denied:
            await b.rwlock("config").write(timeout=0)
        assert denied.value.holder == "a"
        writing = asyncio.ensure_future(acquired(b.rwlock("config").write()))
        for guard in (one, two, three):
            await asyncio.sleep(1.0)
            assert not writing.done()
            guard.release()
        writer = await writing
        with pytest.raises(LockDenied) as denied:
            await a.rwlock("config").read(timeout=1.5)
        assert (denied.value.holder, denied.value.waited_s) == ("b", 1.5)
        writer.release()

    play(scene)


def test_a_reader_behind_a_writer_that_waits_waits_too() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        reader = await a.rwlock("config").read()
        writing = asyncio.ensure_future(acquired(b.rwlock("config").write()))
        await world.until(lambda: len(world.pairs()) == 2)
        reading = asyncio.ensure_future(acquired(c.rwlock("config").read()))
        with pytest.raises(LockDenied):
            await c.rwlock("config").read(timeout=0)
        await asyncio.sleep(1.0)
        assert not reading.done()
        reader.release()
        writer = await writing
        assert not reading.done()
        writer.release()
        second = await reading
        assert reader.token < writer.token < second.token
        second.release()

    play(scene)


def test_readers_go_in_together_when_the_writer_ahead_gives_up() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        reader = await a.rwlock("config").read()
        writing = asyncio.ensure_future(acquired(b.rwlock("config").write()))
        await world.until(lambda: len(world.pairs()) == 2)
        readings = [asyncio.ensure_future(acquired(c.rwlock("config").read())) for _ in range(5)]
        await asyncio.sleep(1.0)
        writing.cancel()
        async with asyncio.timeout(1.0):
            guards = await asyncio.gather(*readings)
        reader.check()
        for guard in (reader, *guards):
            guard.release()

    play(scene)


def test_a_writer_waits_for_all_readers_ahead_and_no_other() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        readers = [await a.rwlock("config").read() for _ in range(3)]
        writing = asyncio.ensure_future(acquired(b.rwlock("config").write()))
        await world.until(lambda: len(world.pairs()) == 4)
        late = asyncio.ensure_future(acquired(a.rwlock("config").read()))
        for reader in reversed(readers):
            assert not writing.done()
            reader.release()
            await asyncio.sleep(0.5)
        (await writing).release()
        (await late).release()

    play(scene)


def test_keys_say_who_and_what() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with client.rwlock("config").read() as guard:
            [pair] = world.pairs()
            assert pair.key == guard.key
            assert pair.key == b"config/rwlock/%x.1.read" % pair.lease
            assert b'"who":"me"' in pair.value

    play(scene)


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (None, TypeError), (7, TypeError)])
def test_a_wrong_name_is_refused(name: Any, error: type[Exception]) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        for make in (client.rwlock, client.election):
            with pytest.raises(error, match="name"):
                make(name)
        for counted in (client.semaphore, client.barrier):
            with pytest.raises(error, match="name"):
                counted(name, 3)

    play(scene)
