"""A session on servers with different data: an etcd cluster may have such members (issue 13766)."""

import asyncio

import pytest

from leasehold import LockLost
from tests.support.faulty_engine import World, play


def test_a_session_whose_key_went_back_is_given_up() -> None:
    async def scene(world: World) -> None:
        client = world.client("a")
        client.engine.delay_s = 0.01
        guard = await client.lock("x").acquire()
        session = await client._locks.context.sessions.live()
        session._epoch += 1  # a member that has executed one more transaction has answered this
        calls = len(client.engine.calls)
        async with asyncio.timeout(5.0), client.lock("y") as other:
            other.check()
        assert len(client.engine.calls) - calls < 20, "no write of the session could succeed"
        with pytest.raises(LockLost, match="went back from revision"):
            guard.check()
        assert (await client._locks.context.sessions.live()) is not session

    play(scene)
