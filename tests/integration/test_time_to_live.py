"""LeaseTimeToLive while an operation is under way in steps, and for a lease with very many keys."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leasehold.grpc.channel import Channel
from leasehold.keyspace.operations import Delete, Grant, Put
from leasehold.keyspace.ranges import LONG, finish
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.store.store import Store
from leasehold.wire import leases_pb2, rpc_pb2

HOST = "127.0.0.1"
DEADLINE_S = 30.0
LEASE, OTHER, TTL_S = 7, 8, 60
SETTLE = 100
"""Turns of the event loop in which a call would be answered that does not wait."""


class Stage:
    def __init__(self, server: LeaseholdServer, channel: Channel) -> None:
        self.server = server
        self.store: Store = server.store
        self._channel = channel

    async def ask(self, lease: int, *, keys: bool = False) -> rpc_pb2.LeaseTimeToLiveResponse:
        request = rpc_pb2.LeaseTimeToLiveRequest(ID=lease, keys=keys)
        path = "/etcdserverpb.Lease/LeaseTimeToLive"
        answer = await self._channel.unary(path, request.SerializeToString())
        return rpc_pb2.LeaseTimeToLiveResponse.FromString(answer)

    async def show(self, lease: int) -> leases_pb2.ShowResponse:
        request = leases_pb2.ShowRequest(id=lease)
        path = "/leasehold.v1.Leases/Show"
        answer = await self._channel.unary(path, request.SerializeToString())
        return leases_pb2.ShowResponse.FromString(answer)

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Have an operation under way in steps."""
        async with self.server.runtime.housekeeping.turn:
            steps = self.store.steps(Delete(b"k", b"l"))
            next(steps)
            assert self.store.is_busy
            yield
            finish(steps)
        self.server.runtime.housekeeping.now_idle()


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            LeaseholdServer(Settings(directory=None)) as server,
            Channel(f"{HOST}:{await server.start(HOST, 0)}") as channel,
        ):
            for lease in (LEASE, OTHER):
                server.store.apply(Grant(lease, TTL_S))
            for number in range(LONG + 1):
                server.store.apply(Put(b"k%06d" % number, b"", LEASE))
            await scene(Stage(server, channel))

    asyncio.run(run())


async def settle() -> None:
    for _ in range(SETTLE):
        await asyncio.sleep(0)


def test_it_is_answered_while_an_operation_is_under_way() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.busy():
            for lease in (LEASE, OTHER):
                answer = await stage.ask(lease)
                assert answer.grantedTTL == TTL_S
                assert 0 < answer.TTL <= TTL_S
            assert (await stage.ask(99)).TTL == -1

    play(scene)


def test_the_keys_of_a_lease_are_listed_when_the_operation_is_over() -> None:
    async def scene(stage: Stage) -> None:
        async with stage.busy():
            asking = asyncio.ensure_future(stage.ask(LEASE, keys=True))
            await settle()
            assert not asking.done()
        answer = await asking
        assert answer.grantedTTL == TTL_S
        assert not answer.keys, "the operation has deleted them"

    play(scene)


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_the_end_of_a_lease_is_told_when_its_keys_are_gone(ends_meanwhile: bool) -> None:
    async def scene(stage: Stage) -> None:
        lease = OTHER if ends_meanwhile else LEASE
        turn = stage.server.runtime.housekeeping.turn
        async with stage.busy() if ends_meanwhile else turn:
            stage.store.leases.revoke(lease)
            assert stage.store.is_ending(lease)
            asking = asyncio.ensure_future(stage.ask(lease))
            showing = asyncio.ensure_future(stage.show(lease))
            await settle()
            assert not asking.done()
            assert not showing.done()
        assert (await asking).TTL == -1
        assert not (await showing).HasField("lease")
        assert not stage.store.is_ending(lease)
        assert stage.store.keyspace.get(b"k000000") is None

    play(scene)
