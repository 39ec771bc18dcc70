"""Shared and exclusive locks: who is let in with whom, and in which order."""

import asyncio

import pytest

from leasehold import LockDenied
from tests.support.faulty_engine import World, play


def test_readers_share_and_a_writer_is_alone() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        one = await a.rwlock("config").read()
        two = await b.rwlock("config").read()
        three = await b.rwlock("config").read()  # of one client, too
        assert all(guard.is_held for guard in (one, two, three))
        with pytest.raises(LockDenied) as denied:
            await b.rwlock("config").write(timeout=0)
        assert denied.value.holder == "a"
        writing = asyncio.ensure_future(b.rwlock("config").write()._make())
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
