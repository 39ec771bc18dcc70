"""Calls that one of two servers passes on to the other one, on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from leasehold import open_engine
from leasehold.clock import SYSTEM_CLOCK
from leasehold.engine.interface import Engine
from leasehold.errors import (
    EndReason,
    LeaseholdError,
    NoSuchObject,
    ShardLost,
    Status,
    UnknownLease,
)
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.landlord.batch_messages import outcomes_in, terms_of, wants_in
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.server.leases.service_leases import outcomes_of
from leasehold.services import elected_shards
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.forwarding import FORWARDED, PEER, Forwarder, methods_of
from leasehold.services.record_leases import SERVICE, RecordLeases, RecordsRpc
from leasehold.services.shards import SHARD_COUNT
from leasehold.serving.grpc_server import GrpcServer
from leasehold.wire import leases_pb2 as pb
from tests.support.asynchronous import asynchronous, until
from tests.support.record_service import ServiceProcess

RENEW_ALL = "/leasehold.v1.Leases/RenewAll"
SOON_S = (0.3, 3.0, 30.0)
"""Deadlines that are meant to come; the longer ones are for a starved call."""


class Server:
    """A server with records, and the methods to create, show and renew them."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.shards = ElectedShards(engine, "", server=f"id-of-{name}")
        self.process = ServiceProcess(engine, self.shards, SYSTEM_CLOCK)
        self.records = self.process.records
        self.forwarder = Forwarder(self.shards)
        self.leases = RecordLeases(self.records, self.forwarder)
        self.calls: list[str] = []
        """The methods that were called here."""
        self.waited = 0
        """The calls of `Wait` that were executed here, and of these the cancelled ones."""
        self.cancelled = 0
        self._grpc = GrpcServer(
            {
                **methods_of("test.Notes", {"Create": self.create, "Show": self.show}),
                **methods_of("test.Notes", {"Wait": self.wait}),
                **methods_of("leasehold.v1.Leases", {"RenewAll": self.renew_all}),
                **methods_of(SERVICE, {"RenewAll": self.renew_here}),
            }
        )
        self.channel: Channel

    async def bind(self) -> None:
        await self._grpc.start(["127.0.0.1:0"])
        self.shards.address = str(self._grpc.addresses[0])
        self.channel = Channel(self.shards.address)

    async def create(self, message: bytes, context: CallContext) -> bytes:
        async def execute(_message: bytes, _context: CallContext) -> bytes:
            if message == b"wrong":
                raise ValueError("the term must be positive, got 'wrong'")
            record = await self.process.create(100.0)
            return record.id.encode()

        return await self.forwarder.call_any(message, context, execute)

    async def show(self, message: bytes, context: CallContext) -> bytes:
        """Return what the server of a record sees of the call."""
        self.calls.append("Show")

        async def execute(_message: bytes, _context: CallContext) -> bytes:
            if message == b"wrong":
                raise ValueError("wrong")
            record = self.records.find(message.decode())
            deadline = context.deadline
            seen = {
                "id": record.id,
                "server": self.shards.server,
                "metadata": [list(pair) for pair in context.metadata if pair[0] != "trace-bin"],
                "trace": [value.hex() for _, value in context.metadata if isinstance(value, bytes)],
                "client": self.forwarder.client_address(context),
                "remaining_s": None if deadline is None else deadline - monotonic(),
            }
            return json.dumps(seen).encode()

        return await self.forwarder.call(message.decode(), message, context, execute)

    async def wait(self, message: bytes, context: CallContext) -> bytes:
        self.calls.append("Wait")

        async def execute(_message: bytes, _context: CallContext) -> bytes:
            self.waited += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
            raise AssertionError("it waits forever")

        return await self.forwarder.call(message.decode(), message, context, execute)

    async def renew_all(self, message: bytes, _context: CallContext) -> bytes:
        request = pb.RenewAllRequest.FromString(message)
        return (await outcomes_of({self.leases.grantor: self.leases}, request)).renewed()

    async def renew_here(self, message: bytes, context: CallContext) -> bytes:
        self.calls.append("Records")
        return await RecordsRpc([self.leases]).renew_all(message, context)

    async def close(self) -> None:
        await self.channel.close()
        await self.process.close()
        await self.forwarder.close()
        await self._grpc.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elected_shards, "REBALANCE_S", 0.0)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[Server, Server]]:
    async with open_engine("memory:") as engine:
        servers = Server(engine, "a"), Server(engine, "b")
        for server in servers:
            await server.bind()
            await server.shards.start([server.records])

        def is_shared() -> bool:
            shards = range(SHARD_COUNT)
            return all(
                len(server.process.shard_numbers) == SHARD_COUNT // 2
                and len(server.records._loaded) == SHARD_COUNT // 2
                and all(map(server.shards.address_of, shards))
                for server in servers
            )

        await until(is_shared)
        try:
            yield servers
        finally:
            for server in servers:
                await server.close()


async def _create(server: Server, owner: Server) -> str:
    """Create a record at its server; any server with a shard creates it there."""
    record_id = (await server.channel.unary("/test.Notes/Create", b"")).decode()
    assert owner.records.find(record_id).id == record_id
    return record_id


async def _show(server: Server, record_id: str, **options: Any) -> dict[str, Any]:
    answer = await server.channel.unary("/test.Notes/Show", record_id.encode(), **options)
    seen: dict[str, Any] = json.loads(answer)
    return seen


async def _error(server: Server, record_id: str, **options: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await _show(server, record_id, **options)
    return caught.value


def _free_id(server: Server) -> str:
    """Return an id of a shard of a server, which no record has."""
    ids = (f"{number:032x}" for number in range(10_000))
    return next(each for each in ids if server.shards.owned(server.shards.shard_of(each)))


@asynchronous
async def test_a_call_at_the_wrong_server_is_passed_on() -> None:
    async with two_servers() as (a, b):
        record_id = await _create(b, b)
        metadata = (("authorization", "Bearer x"), ("trace-bin", b"\0\xff"), (PEER, "10.9.9.9:1"))
        for server in (a, b):
            seen = await _show(server, record_id, timeout=50.0, metadata=metadata)
            assert (seen["id"], seen["server"]) == (record_id, "id-of-b")
            assert ["authorization", "Bearer x"] in seen["metadata"]
            assert seen["trace"] == ["00ff"]
            assert 0.0 < seen["remaining_s"] <= 50.0
            assert seen["client"].startswith("127.0.0.1:"), "not the address that it claims"
        assert (a.calls, b.calls) == (["Show"], ["Show", "Show"])
        passed_on = dict((await _show(a, record_id))["metadata"])
        assert passed_on[FORWARDED] == "id-of-a"
        assert PEER not in passed_on, "loopback may be another machine at the other server"
        assert (await _show(a, record_id))["remaining_s"] is None, "as the client has sent it"


@asynchronous
async def test_an_error_arrives_unchanged() -> None:
    async with two_servers() as (a, b):
        record_id = _free_id(b)
        errors = [await _error(server, record_id) for server in (a, b)]
        assert b.calls == ["Show", "Show"]
        first, second = [(each.status, each.message, each.detail) for each in errors]
        assert first == second
        ours = as_ours(errors[0])
        assert isinstance(ours, NoSuchObject)
        assert (ours.service, ours.id) == ("notes", record_id)
        assert ours.not_executed
        for server in (a, b):
            error = await _error(server, "wrong")
            assert (error.status, error.message) == (Status.INVALID_ARGUMENT, "wrong")
            refused = as_ours(error)
            assert isinstance(refused, LeaseholdError)
            assert refused.not_executed


@asynchronous
async def test_servers_that_disagree_do_not_pass_a_call_to_and_fro() -> None:
    async with two_servers() as (a, b):
        record_id = _free_id(b)
        shard = b.shards.shard_of(record_id)
        ownership = b.shards.owned(shard)
        assert ownership is not None
        b.shards._lose(ownership)
        b.shards._owners[shard] = b.shards._owners[shard]._replace(address=a.shards.address)
        for first, calls in ((a, [1, 1]), (b, [2, 2])):
            error = await _error(first, record_id)
            assert [len(a.calls), len(b.calls)] == calls
            assert error.status is Status.UNAVAILABLE
            ours = as_ours(error)
            assert isinstance(ours, ShardLost)
            assert ours.shard == shard
            assert ours.not_executed


@asynchronous
async def test_a_client_cannot_forge_the_fields_of_a_server() -> None:
    async with two_servers() as (a, b):
        record_id = await _create(b, b)
        forged = {FORWARDED: "id-of-c", PEER: "10.9.9.9:1"}
        assert (await _show(b, record_id, metadata=forged))["client"].startswith("127.0.0.1:")
        error = await _error(a, record_id, metadata=forged)
        assert error.status is Status.UNAVAILABLE
        assert len(b.calls) == 1


@asynchronous
async def test_the_deadline_of_the_client_ends_the_call_at_both_servers() -> None:
    async with two_servers() as (a, b):
        record_id = _free_id(b).encode()
        for timeout_s in SOON_S:
            with pytest.raises(RpcError) as caught:
                await a.channel.unary("/test.Notes/Wait", record_id, timeout=timeout_s)
            assert caught.value.status is Status.DEADLINE_EXCEEDED
            if b.waited:  # else its time was over before it was passed on
                break
        await until(lambda: b.cancelled == b.waited)
        before = b.waited
        assert 1 <= before <= len(b.calls) <= len(a.calls), "each was passed on once at most"
        waiting = asyncio.ensure_future(a.channel.unary("/test.Notes/Wait", record_id))
        await until(lambda: b.waited == before + 1)
        waiting.cancel()
        await until(lambda: b.cancelled == before + 1)


@asynchronous
async def test_a_server_that_has_gone_is_unavailable_until_its_shards_are_taken_over() -> None:
    async with two_servers() as (a, b):
        record_id = await _create(b, b)
        await b._grpc.close()
        error = await _error(a, record_id)
        assert error.status is Status.UNAVAILABLE
        await b.process.close()

        await until(lambda: len(a.process.shard_numbers) == len(a.records._loaded) == SHARD_COUNT)
        assert (await _show(a, record_id))["server"] == "id-of-a"


@asynchronous
async def test_an_object_is_created_by_any_server_with_a_shard() -> None:
    async with two_servers() as (a, b):
        await _create(a, a)
        a.shards._lose_all()  # as after the loss of its session
        await _create(a, b)
        with pytest.raises(RpcError, match="term must be positive, got 'wrong'") as caught:
            await a.channel.unary("/test.Notes/Create", b"wrong")
        assert caught.value.status is Status.INVALID_ARGUMENT
        b.shards._lose_all()
        with pytest.raises(RpcError) as caught:
            await a.channel.unary("/test.Notes/Create", b"")
        assert caught.value.status is Status.UNAVAILABLE


@asynchronous
async def test_a_batch_with_records_of_both_servers_is_one_call_for_each_server() -> None:
    async with two_servers() as (a, b):
        here = [await _create(a, a) for _ in range(2)]
        there = [await _create(b, b) for _ in range(2)]
        ended = await _create(b, b)
        await b.records.cancel(ended)
        request = pb.RenewAllRequest(grantor=a.leases.grantor)
        cookies = [there[0], here[0], ended, here[1], there[1], b"bytes"]
        request.cookies.extend(map(name_to_bytes, cookies))
        request.ttls_ms.extend([0, 60_000, 61_000, 0, 62_000, 63_000])
        answer = pb.RenewAllResponse.FromString(
            await a.channel.unary(RENEW_ALL, request.SerializeToString())
        )
        outcomes = outcomes_in(answer, terms_of(answer, len(cookies)), wants_in(request))
        assert [outcomes[place] for place in (0, 1, 3, 4)] == [0.0, 60.0, 0.0, 62.0]
        for place, reason in ((2, EndReason.CANCELLED), (5, EndReason.UNKNOWN)):
            unknown = outcomes[place]
            assert isinstance(unknown, UnknownLease)
            assert unknown.reason is reason
        assert (a.calls, b.calls) == ([], ["Records"])
        assert [record.id for record in b.records] == [there[1]]
        ownership = b.records.find(there[1]).ownership
        b.shards._lose(ownership)
        lost = pb.RenewAllRequest(grantor=a.leases.grantor, ttl_ms=60_000)
        lost.cookies.extend(map(name_to_bytes, [there[1], here[0]]))
        answers = [
            pb.RenewAllResponse.FromString(
                await server.channel.unary(RENEW_ALL, lost.SerializeToString())
            )
            for server in (a, b)
        ]
        (failure,) = answers[0].failures
        assert (failure.place, failure.status) == (0, Status.UNAVAILABLE)
        assert failure.message.startswith(f"shard {ownership.number:02x} is not served here")
        assert answers[1].failures[0].status == Status.UNAVAILABLE
        assert [terms_of(each, 2)[1] for each in answers] == [60.0, 60.0]
