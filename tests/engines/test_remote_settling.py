"""A new connection has to show that it leads to the keyspace that we know, before anything else."""

import asyncio
from contextlib import suppress

import pytest

import leasehold
from leasehold import ClusterMismatch, ConnectionLost, HistoryLost
from leasehold.engine.remote.caller import STATUS
from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.testing import LocalServer
from leasehold.testing.simulation import run_virtual
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.maintenance_pb2 import StatusResponse
from tests.engines.scripted import CLUSTER, KEEP_ALIVE, RANGE, ScriptedChannel, header

PUT = "/etcdserverpb.KV/Put"


def reconnected(channel: ScriptedChannel, revision: int) -> None:
    """Have another connection, to a server that is at this revision."""
    channel.lose()
    channel.revision = revision


def test_a_renewal_is_not_believed_to_a_server_that_has_gone_back() -> None:
    """It may have the lease, and not the keys; then somebody else can have those."""

    async def main() -> None:
        channel = ScriptedChannel(has_others=False)
        channel.revision = 20
        async with await channel.engine() as engine:
            await engine.range(b"a", b"b")
            told: list[HistoryLost] = []
            engine.on_history_lost = told.append
            reconnected(channel, 7)
            with pytest.raises(HistoryLost, match="revision went back from 20 to 7"):
                await engine.renew(5)
            assert len(told) == 1
            assert channel.opening[KEEP_ALIVE].empty(), "nothing else was said there"

    run_virtual(main)


def test_each_connection_is_looked_at_once() -> None:
    async def main() -> None:
        channel = ScriptedChannel(has_others=False)
        asked: list[bytes] = []

        def answer(body: bytes) -> pb.RangeResponse:
            asked.append(body)
            return pb.RangeResponse(header=header(1))

        channel.answers[RANGE] = answer
        async with await channel.engine() as engine:
            for _ in range(3):
                await engine.range(b"a", b"b")
            assert len(asked) == 3, "the first one has nothing to be compared with"
            reconnected(channel, 1)
            await asyncio.gather(*(engine.range(b"a", b"b") for _ in range(10)))
            assert len(asked) == 3 + 1 + 10

    run_virtual(main)


def test_nothing_is_written_to_another_cluster() -> None:
    async def main() -> None:
        with LocalServer() as server:
            async with server.connect() as client:
                await client.kv.put("a", "ours")
                server.wipe()
                with suppress(ConnectionLost, HistoryLost):  # on the old connection
                    await client.kv.put("b", "before")
                with pytest.raises(HistoryLost):
                    await client.kv.put("a", "theirs")
            async with leasehold.connect(server.endpoint) as other:
                assert await other.kv.get("a") is None

    asyncio.run(main())


def test_a_read_is_not_made_again_on_a_connection_that_was_not_looked_at() -> None:
    async def main() -> None:
        channel = ScriptedChannel(has_others=False)
        channel.revision = 20
        async with await channel.engine() as engine:
            await engine.range(b"a", b"b")
            asked: list[pb.RangeRequest] = []

            def answer(body: bytes) -> pb.RangeResponse:
                asked.append(pb.RangeRequest.FromString(body))
                if len(asked) == 1:
                    reconnected(channel, 20)
                    raise RpcError(Status.UNAVAILABLE, "etcdserver: leader changed")
                return pb.RangeResponse(header=header(channel.revision, CLUSTER + 1))

            channel.answers[RANGE] = answer
            with pytest.raises(HistoryLost):
                await engine.range(b"a", b"b")
            assert [each.count_only for each in asked] == [False, True], "it was made again there"

    run_virtual(main)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_endpoints_of_two_clusters_are_refused_when_connecting(order: slice) -> None:
    """Two clients that list separate servers in different orders would both hold a lock."""

    async def main() -> None:
        with LocalServer() as one, LocalServer() as other:
            endpoints = [one.endpoint, other.endpoint][order]
            with pytest.raises(ClusterMismatch) as raised:
                await leasehold.connect(endpoints)
            assert set(raised.value.addresses) == {*endpoints}
            for server in (one, other):
                async with leasehold.connect([server.endpoint, server.endpoint]):
                    pass  # one server twice is one cluster

    asyncio.run(main())


def test_endpoints_of_two_clusters_are_refused_by_name() -> None:
    """Two separate servers are two lock tables: nothing is written to the second."""

    async def main() -> None:
        with LocalServer() as first, LocalServer() as second:
            second.stop()  # so that `connect` cannot compare them
            async with leasehold.connect([first.endpoint, second.endpoint]) as client:
                await client.kv.put("a", "ours")
                ours = client.engine.cluster_id
                second.start()
                first.stop()
                with suppress(ConnectionLost, ClusterMismatch):  # on the old connection
                    await client.kv.put("b", "theirs")
                with pytest.raises(ClusterMismatch) as raised:
                    await client.kv.put("b", "theirs")
                with pytest.raises(ClusterMismatch):
                    await client.lock("x").acquire()
            error = raised.value
            assert error.addresses == (first.endpoint, second.endpoint)
            assert first.endpoint in str(error)
            assert second.endpoint in str(error)
            async with leasehold.connect(second.endpoint) as other:
                assert error.cluster_ids == (ours, other.engine.cluster_id)
                assert f"{ours:x}" in str(error)
                assert await other.kv.get("b") is None
                assert await other.leases() == []

    asyncio.run(main())


def test_a_server_without_keys_shows_the_id_of_its_cluster_instead() -> None:
    """A Leasehold server on an etcd cluster serves no keys."""

    async def main() -> None:
        channel = ScriptedChannel("ours", has_others=False)

        def refuse(_: bytes) -> pb.RangeResponse:
            raise RpcError(Status.UNIMPLEMENTED, "its state is in the etcd cluster")

        channel.answers[RANGE] = refuse
        async with await channel.engine() as engine:
            assert engine.cluster_id == CLUSTER
            reconnected(channel, 1)
            with pytest.raises(leasehold.CallRefused, match="its state is in the etcd cluster"):
                await engine.range(b"a")
            channel.answers[STATUS] = lambda _: StatusResponse(header=header(1, CLUSTER + 1))
            reconnected(channel, 1)
            with pytest.raises(HistoryLost):
                await engine.renew_all([5])

    run_virtual(main)
