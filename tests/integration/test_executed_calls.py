"""A call that was executed is answered, whatever its own events and answers take of the gate."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import leasehold
from leasehold.errors import Status
from leasehold.grpc import durability_gate as gates
from leasehold.grpc.channel import Channel
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange
from leasehold.keyspace.recent_changes import Recent
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.store import committer
from leasehold.wire import election_pb2 as election
from leasehold.wire import leases_pb2 as leases
from leasehold.wire import lock_pb2 as lock
from leasehold.wire import rpc_pb2 as rpc

HOST: Final = "127.0.0.1"
DEADLINE_S: Final = 30.0

KV: Final = "/etcdserverpb.KV/"
LEASE: Final = "/etcdserverpb.Lease/"
LEASES: Final = "/leasehold.v1.Leases/"
LOCK: Final = "/v3lockpb.Lock/"
ELECTION: Final = "/v3electionpb.Election/"

READING: Final = {
    KV + "Range",
    LEASE + "LeaseTimeToLive",
    LEASE + "LeaseLeases",
    LEASES + "Show",
    LEASES + "List",
    ELECTION + "Leader",
}
"""The methods that may be refused at the gate: they change nothing."""

Play = Callable[["Stage"], Coroutine[Any, Any, None]]


class Stage:
    """A server, a channel to it, and a watch of all keys on another connection."""

    def __init__(self, server: LeaseholdServer, endpoint: str, channel: Channel) -> None:
        self.server = server
        self.store = server.store
        self.endpoint = endpoint
        self._channel = channel

    async def call(self, path: str, request: Any) -> bytes:
        return await self._channel.unary(path, request.SerializeToString(), timeout=DEADLINE_S)

    async def grant(self, lease: int) -> None:
        await self.call(LEASE + "LeaseGrant", rpc.LeaseGrantRequest(ID=lease, TTL=60))


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    async with LeaseholdServer(Settings(directory=None)) as server:
        endpoint = f"{HOST}:{await server.start(HOST, 0)}"
        async with (
            leasehold.connect(endpoint) as other,
            Channel(endpoint) as channel,
            other.kv.watch(b"", prefix=True),
        ):
            yield Stage(server, endpoint, channel)


def play(scene: Play) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), staged() as stage:
            await scene(stage)

    asyncio.run(run())


def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave room for one byte: so there is room before a call, and none after its first event."""
    for limit in ("MAX_WAITING_BYTES", "MAX_EVENT_BYTES"):
        monkeypatch.setattr(gates, limit, 1, raising=False)


def put_op(key: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"v"))


async def _put(stage: Stage) -> None:
    await stage.call(KV + "Put", rpc.PutRequest(key=b"k", value=b"v"))
    assert stage.store.keyspace.get(b"k") is not None


async def _put_previous(stage: Stage) -> None:
    await _put(stage)
    request = rpc.PutRequest(key=b"k", value=b"w", prev_kv=True)
    answer = rpc.PutResponse.FromString(await stage.call(KV + "Put", request))
    assert answer.prev_kv.value == b"v"


async def _delete(stage: Stage) -> None:
    await _put(stage)
    await stage.call(KV + "DeleteRange", rpc.DeleteRangeRequest(key=b"k", prev_kv=True))
    assert stage.store.keyspace.get(b"k") is None


async def _txn(stage: Stage) -> None:
    await stage.call(KV + "Txn", rpc.TxnRequest(success=[put_op(b"k"), put_op(b"l")]))
    assert stage.store.keyspace.get(b"l") is not None


async def _compact(stage: Stage) -> None:
    await _put(stage)
    await stage.call(KV + "Compact", rpc.CompactionRequest(revision=stage.store.revision))


async def _revoke(stage: Stage) -> None:
    await stage.grant(7)
    await stage.call(KV + "Put", rpc.PutRequest(key=b"k", lease=7))
    await stage.call(LEASE + "LeaseRevoke", rpc.LeaseRevokeRequest(ID=7))
    assert stage.store.keyspace.get(b"k") is None


async def _revoke_all(stage: Stage) -> None:
    await stage.grant(7)
    await stage.call(KV + "Put", rpc.PutRequest(key=b"k", lease=7))
    await stage.call(LEASES + "RevokeAll", leases.RevokeAllRequest(ids=[7]))
    assert stage.store.keyspace.get(b"k") is None


async def _renew_all(stage: Stage) -> None:
    granting = asyncio.ensure_future(stage.grant(7))
    await stage.call(LEASES + "RenewAll", leases.RenewAllRequest(ids=[7]))
    await granting


async def _lock(stage: Stage) -> None:
    answer = await stage.call(LOCK + "Lock", lock.LockRequest(name=b"n"))
    key = lock.LockResponse.FromString(answer).key
    assert stage.store.keyspace.get(key) is not None
    await stage.call(LOCK + "Unlock", lock.UnlockRequest(key=key))
    assert stage.store.keyspace.get(key) is None


async def _campaign(stage: Stage) -> None:
    await stage.grant(7)
    request = election.CampaignRequest(name=b"n", lease=7, value=b"v")
    answer = await stage.call(ELECTION + "Campaign", request)
    leader = election.CampaignResponse.FromString(answer).leader
    proclaim = election.ProclaimRequest(leader=leader, value=b"w")
    await stage.call(ELECTION + "Proclaim", proclaim)
    await stage.call(ELECTION + "Resign", election.ResignRequest(leader=leader))
    assert stage.store.keyspace.get(leader.key) is None


async def _gateway(stage: Stage) -> None:
    reader, writer = await asyncio.open_connection(*stage.endpoint.split(":"))
    body = json.dumps({"key": "aw==", "value": "dg=="}).encode()
    writer.write(
        b"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert stage.store.keyspace.get(b"k") is not None


WRITES: Final[dict[str, Play]] = {
    "put": _put,
    "put, previous": _put_previous,
    "delete": _delete,
    "txn": _txn,
    "compact": _compact,
    "revoke": _revoke,
    "revoke all": _revoke_all,
    "renew all": _renew_all,
    "lock": _lock,
    "campaign": _campaign,
    "gateway": _gateway,
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_not_refused_once_it_was_executed(
    write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        tiny(monkeypatch)
        await WRITES[write](stage)

    play(scene)


def test_only_methods_that_read_may_be_refused_at_the_gate() -> None:
    async def scene(stage: Stage) -> None:
        methods = stage.server._server._state.methods
        refusable = {
            path
            for path, method in methods.items()
            if isinstance(method, Exchange) and method.hold is DurabilityGate.hold_read
        }
        assert refusable == READING

    play(scene)


def test_a_watch_without_room_in_the_gate_is_told_everything_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(stage: Stage) -> None:
        async with (
            leasehold.connect(stage.endpoint) as client,
            client.kv.watch(b"k", prefix=True) as watch,
        ):
            tiny(monkeypatch)
            for number in range(20):
                await stage.call(KV + "Put", rpc.PutRequest(key=b"k%d" % number))
            seen: list[bytes] = []
            async for told in watch:
                seen += [event.key for event in told.events]
                if len(seen) >= 20:
                    break
            assert seen == [b"k%d" % n for n in range(20)]

    play(scene)


def test_a_long_delete_is_answered_however_many_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(stage: Stage) -> None:
        for start in range(0, 1_200, 100):
            ops = [put_op(b"k%d" % n) for n in range(start, start + 100)]
            await stage.call(KV + "Txn", rpc.TxnRequest(success=ops))
        monkeypatch.setattr("leasehold.store.undurable_changes.MAX_WAITING", 0)
        request = rpc.DeleteRangeRequest(key=b"k", range_end=b"l", prev_kv=True)
        answer = rpc.DeleteRangeResponse.FromString(await stage.call(KV + "DeleteRange", request))
        assert answer.deleted == 1_200

    play(scene)


def test_a_long_transaction_reads_the_past_however_many_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read refused after the first put would leave the transaction half done."""

    async def scene(stage: Stage) -> None:
        await stage.call(KV + "Put", rpc.PutRequest(key=b"k", value=b"first"))
        first = stage.store.revision
        await stage.call(KV + "Put", rpc.PutRequest(key=b"k", value=b"second"))
        monkeypatch.setattr(Recent, "find", lambda *_: None)
        monkeypatch.setattr(committer, "MAX_CHORES", 0)
        read = rpc.RequestOp(request_range=rpc.RangeRequest(key=b"k", revision=first))
        request = rpc.TxnRequest(success=[put_op(b"other"), read])
        answer = rpc.TxnResponse.FromString(await stage.call(KV + "Txn", request))
        assert answer.responses[1].response_range.kvs[0].value == b"first"
        assert stage.server.failure is None

    play(scene)


def test_a_full_gate_refuses_writes_and_nothing_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(gates, "MAX_WAITING", 0)
        with pytest.raises(RpcError, match="too many requests") as refusal:
            await _put(stage)
        assert refusal.value.status is Status.RESOURCE_EXHAUSTED
        assert stage.store.keyspace.get(b"k") is None

    play(scene)
