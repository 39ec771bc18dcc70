"""Calls whose caller has given up: reads stop, and a write that was begun is completed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import leasehold
from leasehold.basics.timers import task_limits
from leasehold.errors import Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_headers import RequestHeads
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import MAX_READS, ReadSlots
from leasehold.keyspace.operations import Put
from leasehold.keyspace.ranges import LONG
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.store.runtime import Runtime
from leasehold.store.slices import StoreReader
from leasehold.store.store import Store
from leasehold.wire import rpc_pb2 as pb

HOST = "127.0.0.1"
KV = "/etcdserverpb.KV/"
DEADLINE_S = 30.0
SOON_S = 0.05
EVERYTHING = pb.RangeRequest(key=b"\0", range_end=b"\0").SerializeToString()
READS = {
    "range": ("Range", EVERYTHING),
    "transaction": (
        "Txn",
        pb.TxnRequest(
            success=[
                pb.RequestOp(request_range=pb.RangeRequest(key=b"\0", range_end=b"\0"))
                for _ in range(2)
            ]
        ).SerializeToString(),
    ),
}
DELETE = pb.DeleteRangeRequest(key=b"k", range_end=b"l", prev_kv=True).SerializeToString()


class Stage:
    def __init__(self, server: LeaseholdServer, channel: Channel, endpoint: str) -> None:
        self.server = server
        self.channel = channel
        self.endpoint = endpoint
        self.reads: ReadSlots = server._context.reads
        self.store: Store = server.store


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  within the deadline of the test
        await asyncio.sleep(0.001)


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    async with LeaseholdServer(Settings(directory=None)) as server:
        endpoint = f"{HOST}:{await server.start(HOST, 0)}"
        for number in range(LONG + 1):
            server.store.apply(Put(b"k%06d" % number, b"v"))
        async with Channel(endpoint) as channel:
            yield Stage(server, channel, endpoint)


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), staged() as stage:
            await scene(stage)

    asyncio.run(run())


class Stuck:
    """Reads that go on until they are cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.cancelled = 0
        monkeypatch.setattr(StoreReader, "at", self._at)

    async def _at(self, *_args: object) -> None:
        self.begun += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def too_late(stage: Stage, method: str, message: bytes) -> RpcError:
    """Make a call whose deadline is known to the server only."""
    with pytest.raises(RpcError) as late:
        await stage.channel.unary(KV + method, message, server_timeout=SOON_S)
    assert late.value.status is Status.DEADLINE_EXCEEDED
    return late.value


@pytest.mark.parametrize("kind", READS)
def test_a_server_stops_a_read_at_its_deadline(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(monkeypatch)

    async def scene(stage: Stage) -> None:
        await too_late(stage, *READS[kind])
        await until(lambda: not stage.reads.running)
        assert (stuck.begun, stuck.cancelled) == (1, 1)

    play(scene)


@pytest.mark.parametrize("kind", READS)
def test_a_server_stops_a_read_that_is_cancelled(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(monkeypatch)

    async def scene(stage: Stage) -> None:
        method, message = READS[kind]
        call = asyncio.ensure_future(stage.channel.unary(KV + method, message))
        await until(lambda: stuck.begun)
        call.cancel()
        await until(lambda: stuck.cancelled and not stage.reads.running)

    play(scene)


@pytest.mark.parametrize(
    ("method", "message"), [*READS.values(), ("DeleteRange", DELETE)], ids=[*READS, "delete"]
)
@pytest.mark.parametrize("end", ["deadline", "cancelled"])
def test_a_call_that_waits_for_a_slot_leaves_the_queue_and_is_not_executed(
    method: str, message: bytes, end: str
) -> None:
    async def scene(stage: Stage) -> None:
        revision = stage.store.revision
        taken = [await stage.reads.acquire(object()) for _ in range(MAX_READS)]
        if end == "deadline":
            await too_late(stage, method, message)
        else:
            call = asyncio.ensure_future(stage.channel.unary(KV + method, message))
            await until(lambda: stage.reads.queued)
            call.cancel()
        await until(lambda: not stage.reads.queued)
        for slot in taken:
            slot.release()
        await stage.channel.unary(KV + "Range", EVERYTHING)
        assert stage.store.revision == revision

    play(scene)


def test_a_write_that_was_begun_before_its_deadline_is_completed_and_its_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_steps = Runtime._take_steps
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(self: Runtime, op: object) -> object:
        begun.set()
        await go_on.wait()
        return await take_steps(self, op)  # type: ignore[arg-type]

    monkeypatch.setattr(Runtime, "_take_steps", slow)

    async def scene(stage: Stage) -> None:
        error = as_ours(await too_late(stage, "DeleteRange", DELETE))
        assert begun.is_set()
        assert type(error) is TimeoutError
        go_on.set()
        await until(lambda: not len(stage.store.keyspace))
        await until(lambda: not stage.reads.running)

    play(scene)


# What a client sends.


def test_the_calls_of_a_client_send_the_limit_that_the_client_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[float | None] = []
    get = RequestHeads.get

    def noted(self: RequestHeads, path: str, timeout_s: float | None, pairs: object) -> object:
        sent.append(timeout_s)
        return get(self, path, timeout_s, pairs)  # type: ignore[arg-type]

    async def scene(stage: Stage) -> None:
        async with leasehold.connect(stage.endpoint, timeout=7.0) as client:
            await client.kv.get(b"k")
            monkeypatch.setattr(RequestHeads, "get", noted)
            for _ in range(3):
                await client.kv.get(b"k")
                await client.kv.put(b"k", b"v", timeout=3.0)
            await client.engine.range(b"k")
            monkeypatch.undo()
        assert sent == [7.0, 3.0] * 3 + [None], "the whole limit: the same header block each time"
        assert not task_limits

    play(scene)


def test_a_task_that_a_call_starts_does_not_inherit_its_limit() -> None:
    limits: list[float | None] = []

    async def note() -> None:
        task = asyncio.current_task()
        assert task is not None
        limits.append(task_limits.get(task))

    async def call() -> None:
        await note()
        await asyncio.create_task(note())

    async def scene(stage: Stage) -> None:
        async with leasehold.connect(stage.endpoint) as client:
            await client._patience.wait(call(), 5.0)
            with pytest.raises(TimeoutError):
                await client._patience.wait(asyncio.sleep(DEADLINE_S), SOON_S)
        assert limits == [5.0, None]
        assert not task_limits

    play(scene)
