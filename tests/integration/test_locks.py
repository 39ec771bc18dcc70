"""Locks and elections on a real server: how it stops, and what is there when it comes again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from leasehold.keyspace.operations import Grant
from leasehold.server.app import LeaseholdServer
from leasehold.serving import grpc_server
from leasehold.wire import election_pb2 as epb
from leasehold.wire import lock_pb2 as lpb

WAIT_S = 60.0


@asynccontextmanager
async def calling(server: LeaseholdServer) -> AsyncIterator[grpc.aio.Channel]:
    port = await server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


def begin_lock(
    channel: grpc.aio.Channel, name: bytes, lease: int
) -> "grpc.aio.UnaryUnaryCall[bytes, bytes]":
    method = channel.unary_unary("/v3lockpb.Lock/Lock", bytes, bytes)
    return method(lpb.LockRequest(name=name, lease=lease).SerializeToString())


async def in_line(server: LeaseholdServer, name: bytes, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while server.store.keyspace.count(name + b"/", name + b"0") != count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_calls_that_wait_do_not_hold_up_the_end_and_their_keys_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "DRAIN_CALLS_S", 10 * WAIT_S)
    asyncio.run(_stop_and_come_again(tmp_path))


async def _stop_and_come_again(tmp_path: Path) -> None:
    server = LeaseholdServer(tmp_path)
    async with calling(server) as channel:
        for lease in (1, 2):
            server.store.apply(Grant(lease, 100.0))
        await begin_lock(channel, b"l", 1)
        waiting = begin_lock(channel, b"l", 2)
        campaign = channel.unary_unary("/v3electionpb.Election/Campaign", bytes, bytes)(
            epb.CampaignRequest(name=b"l", lease=2, value=b"v").SerializeToString()
        )
        observing = channel.unary_stream("/v3electionpb.Election/Observe", bytes, bytes)(
            epb.LeaderRequest(name=b"l").SerializeToString()
        )
        await in_line(server, b"l", 2)
        assert await observing.read()
        async with asyncio.timeout(WAIT_S):  # far less than calls in progress are waited for
            await server.close()
        for call in (waiting, campaign):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            assert refused.value.details() == "etcdserver: server stopped"
        assert await observing.code() == grpc.StatusCode.UNAVAILABLE
    again = LeaseholdServer(tmp_path)
    async with calling(again) as channel:
        await in_line(again, b"l", 2)
        waiting = begin_lock(channel, b"l", 2)
        unlock = channel.unary_unary("/v3lockpb.Lock/Unlock", bytes, bytes)
        await unlock(lpb.UnlockRequest(key=b"l/1").SerializeToString())
        answer = lpb.LockResponse.FromString(await asyncio.wait_for(waiting, WAIT_S))
        assert answer.key == b"l/2"
    await again.close()


def test_a_unary_call_has_one_message(tmp_path: Path) -> None:
    asyncio.run(_say_too_little_and_too_much(tmp_path))


async def _say_too_little_and_too_much(tmp_path: Path) -> None:
    async with LeaseholdServer(tmp_path) as server, calling(server) as channel:
        method = channel.stream_unary("/v3lockpb.Lock/Lock", bytes, bytes)
        message = lpb.LockRequest(name=b"l").SerializeToString()
        for messages in ([], [message, message]):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(iter(messages))
            assert refused.value.code() == grpc.StatusCode.INTERNAL
        assert server.store.revision == 1
