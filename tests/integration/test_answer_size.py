"""The size of answers: counted while they are built, refused before anything is changed."""

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import leasehold
from leasehold.errors import Status, TooLarge
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_call import UnaryCall
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import MAX_HELD_BYTES
from leasehold.http2.limits import MIB
from leasehold.keyspace.answer_size import MAX_ANSWER_BYTES
from leasehold.keyspace.operations import Compare, Put, Relation, Target
from leasehold.keyspace.ranges import LONG
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.store.store import Store
from leasehold.wire import rpc_pb2 as pb

HOST = "127.0.0.1"
KV = "/etcdserverpb.KV/"
DEADLINE_S = 60.0
LIMIT = 200_000
TOO_LARGE = (
    f"etcdserver: answer would be larger than {LIMIT} bytes; use a limit (pages), a smaller range"
)
Message = pb.RangeRequest | pb.PutRequest | pb.DeleteRangeRequest | pb.TxnRequest


class Stage:
    def __init__(self, server: LeaseholdServer, channel: Channel, port: int) -> None:
        self.server = server
        self.channel = channel
        self.port = port

    @property
    def store(self) -> Store:
        return self.server.store

    def fill(self, keys: int, value_bytes: int) -> None:
        for number in range(keys):
            self.store.apply(Put(b"k%06d" % number, b"v" * value_bytes))

    async def call(self, method: str, request: Message) -> bytes:
        return await self.channel.unary(KV + method, request.SerializeToString())

    async def txn(self, *steps: pb.RequestOp) -> pb.TxnResponse:
        return pb.TxnResponse.FromString(await self.call("Txn", pb.TxnRequest(success=steps)))

    async def refuses(self, method: str, request: Message) -> None:
        """Expect a refusal that changes nothing."""
        revision, keys = self.store.revision, len(self.store.keyspace)
        with pytest.raises(RpcError) as refused:
            await self.call(method, request)
        assert refused.value.message.startswith(TOO_LARGE)
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert (self.store.revision, len(self.store.keyspace)) == (revision, keys)
        assert not self.store.is_busy

    async def http(self, path: str, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        return answer


Play = Callable[[Stage], Awaitable[None]]


@asynccontextmanager
async def staged(directory: Path | None, max_bytes: int) -> AsyncIterator[Stage]:
    async with LeaseholdServer(Settings(directory=directory)) as server:
        port = await server.start(HOST, 0)
        server.store.transactions.max_answer_bytes = max_bytes
        async with Channel(f"{HOST}:{port}") as channel:
            yield Stage(server, channel, port)


def play(scene: Play, directory: Path | None = None, max_bytes: int = LIMIT) -> None:
    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), staged(directory, max_bytes) as stage:
            await scene(stage)

    asyncio.run(run())


def ranged(**options: object) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=b"k", range_end=b"l", **options))  # type: ignore[arg-type]


def put(key: bytes, value: bytes = b"", **options: object) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, **options))  # type: ignore[arg-type]


def delete(key: bytes = b"k", end: bytes = b"l", *, prev_kv: bool) -> pb.RequestOp:
    request = pb.DeleteRangeRequest(key=key, range_end=end, prev_kv=prev_kv)
    return pb.RequestOp(request_delete_range=request)


def nested(*steps: pb.RequestOp) -> pb.RequestOp:
    return pb.RequestOp(request_txn=pb.TxnRequest(success=steps))


def test_a_server_limits_its_answers_and_an_answer_leaves_room_for_others() -> None:
    async def scene() -> None:
        async with LeaseholdServer(Settings(directory=None)) as server:
            assert server.store.transactions.max_answer_bytes == MAX_ANSWER_BYTES

    asyncio.run(scene())
    assert MAX_ANSWER_BYTES == 128 * MIB
    assert MAX_ANSWER_BYTES * 2 <= MAX_HELD_BYTES


FEW, MANY = 50, LONG + 500
"""Keys that are read in one go, and in slices."""

EVERYTHING = pb.RangeRequest(key=b"\0", range_end=b"\0")
TOO_MUCH: dict[str, tuple[str, Message]] = {
    "range": ("Range", EVERYTHING),
    "sorted range": (
        "Range",
        pb.RangeRequest(key=b"\0", range_end=b"\0", sort_target="VALUE", sort_order="DESCEND"),
    ),
    "transaction": ("Txn", pb.TxnRequest(success=[ranged() for _ in range(8)])),
    "nested transactions": (
        "Txn",
        pb.TxnRequest(success=[nested(nested(ranged(), ranged())) for _ in range(8)]),
    ),
    "put beside ranges": (
        "Txn",
        pb.TxnRequest(success=[put(b"x"), *(ranged() for _ in range(8))]),
    ),
    "put in nested ranges": (
        "Txn",
        pb.TxnRequest(success=[nested(ranged(), ranged()), put(b"x"), nested(ranged())]),
    ),
    "what was deleted": (
        "DeleteRange",
        pb.DeleteRangeRequest(key=b"k", range_end=b"l", prev_kv=True),
    ),
    "what a transaction deletes": ("Txn", pb.TxnRequest(success=[delete(prev_kv=True)])),
    "what puts replace": (
        "Txn",
        pb.TxnRequest(success=[put(b"k%06d" % n, prev_kv=True) for n in range(FEW)]),
    ),
    "what it puts itself": (
        "Txn",
        pb.TxnRequest(success=[put(b"k", b"v" * 100_000), ranged(), ranged(), ranged()]),
    ),
}


@pytest.mark.parametrize("keys", [FEW, MANY])
@pytest.mark.parametrize("case", TOO_MUCH)
def test_an_answer_above_the_limit_is_refused_and_nothing_is_changed(case: str, keys: int) -> None:
    method, request = TOO_MUCH[case]

    async def scene(stage: Stage) -> None:
        stage.fill(keys, max(300, LIMIT // FEW) if case == "what puts replace" else 300_000 // keys)
        await stage.refuses(method, request)
        answer = await stage.call("Range", pb.RangeRequest(key=b"k000001"))
        assert pb.RangeResponse.FromString(answer).count == 1

    play(scene)


SMALL: dict[str, pb.RequestOp] = {
    "a page": ranged(limit=1),
    "the last page": ranged(limit=1, sort_order="DESCEND", sort_target="KEY"),
    "the first by another order": ranged(limit=1, sort_order="DESCEND", sort_target="MOD"),
    "a filtered page": ranged(limit=1, min_mod_revision=5),
    "a count": ranged(count_only=True),
    "names": ranged(keys_only=True, limit=100),
    "one key": pb.RequestOp(request_range=pb.RangeRequest(key=b"k000001")),
}


@pytest.mark.parametrize("case", SMALL)
def test_a_small_answer_about_much_data_is_not_refused(case: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        await stage.call("Range", SMALL[case].request_range)
        await stage.txn(SMALL[case])
        await stage.txn(put(b"x"), SMALL[case])
        await stage.txn(put(b"x"), delete(b"k000000", b"k000003", prev_kv=True), SMALL[case])

    play(scene)


def test_names_without_values_count_as_names() -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        old = stage.store.revision
        stage.fill(MANY, 1001)
        for revision in (0, old):
            request = pb.RangeRequest(key=b"k", range_end=b"l", keys_only=True, revision=revision)
            answer = pb.RangeResponse.FromString(await stage.call("Range", request))
            assert [pair.key for pair in answer.kvs] == [b"k%06d" % n for n in range(MANY)]
            assert {pair.version for pair in answer.kvs} == {1 if revision else 2}
            assert {pair.value for pair in answer.kvs} == {b""}

    play(scene)


def test_values_of_the_past_count_when_they_are_loaded(tmp_path: Path) -> None:
    """A sorted page loads the whole range, though its answer is small."""

    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        old = stage.store.revision
        stage.fill(MANY, 1)
        page = {"revision": old, "limit": 1, "sort_target": "VALUE", "sort_order": "DESCEND"}
        await stage.refuses("Range", ranged(**page).request_range)
        await stage.refuses("Txn", pb.TxnRequest(success=[ranged(**page)]))
        await stage.refuses("Txn", pb.TxnRequest(success=[put(b"k"), ranged(**page)]))
        await stage.call("Range", ranged(revision=old, limit=100).request_range)

    play(scene, tmp_path)


def test_a_range_of_the_past_is_not_affected_by_its_own_transaction() -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(3, 1)
        old = stage.store.revision
        answer = await stage.txn(delete(prev_kv=False), put(b"l"), ranged(revision=old), ranged())
        past, now = (each.response_range for each in answer.responses[2:])
        assert [pair.key for pair in past.kvs] == [b"k000000", b"k000001", b"k000002"]
        assert not now.kvs
        assert past.header.revision == now.header.revision == old + 1

    play(scene)


def test_a_delete_that_does_not_return_keys_has_no_limit() -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        await stage.txn(put(b"x"), delete(b"k0000", b"k0001", prev_kv=False))
        await stage.call("DeleteRange", pb.DeleteRangeRequest(key=b"k", range_end=b"l"))
        assert len(stage.store.keyspace) == 1

    play(scene)


@pytest.mark.parametrize("case", ["transaction", "nested transactions", "put beside ranges"])
def test_a_refused_answer_takes_no_memory(case: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 3000)
        await stage.call("Put", pb.PutRequest(key=b"k"))  # so that all the others are committed
        await stage.server.runtime.housekeeping.forgotten()  # the start-up fold reads their batch
        method, request = TOO_MUCH[case]
        tracemalloc.start()
        try:
            with pytest.raises(RpcError, match="answer would be larger than"):
                await stage.call(method, request)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * MIB, "the answer would have 36 MB"

    play(scene, max_bytes=8 * MIB)


@pytest.mark.parametrize("path", ["range", "txn"])
def test_the_gateway_refuses_an_answer_above_the_limit(path: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        query = b'{"key": "AA==", "range_end": "AA=="}'
        body = query if path == "range" else b'{"success": [{"requestRange": %b}]}' % query
        answer = await stage.http(f"/v3/kv/{path}", body)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert TOO_LARGE.encode() in answer

    play(scene)


def test_a_write_with_a_long_answer_waits_for_a_slot_before_it_is_executed() -> None:
    writes: list[tuple[str, Message]] = [
        ("Txn", pb.TxnRequest(success=[put(b"x"), ranged()])),
        ("DeleteRange", pb.DeleteRangeRequest(key=b"k", range_end=b"l", prev_kv=True)),
    ]

    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1)
        reads = stage.server._context.reads
        for method, request in writes:
            revision = stage.store.revision
            taken = [await reads.acquire(object()) for _ in range(4)]
            calling = asyncio.ensure_future(stage.call(method, request))
            while not reads.queued:  # noqa: ASYNC110  within the deadline
                await asyncio.sleep(0)
            await stage.call("Put", pb.PutRequest(key=b"other"))
            assert stage.store.revision == revision + 1, "only the other write is executed"
            for slot in taken:
                slot.release()
            await calling
            assert stage.store.revision == revision + 2

    play(scene, max_bytes=MIB)


def random_steps(chance: random.Random, depth: int = 0) -> list[pb.RequestOp]:
    """Make some operations that change each key once at most: two halves of the keyspace."""
    steps: list[pb.RequestOp] = []
    for number in chance.sample(range(20), chance.randint(0, 4)):
        key = b"k%06d" % (number + 40 * depth)
        value = b"w" * chance.choice([0, 10, 3000])
        steps.append(put(key, value, prev_kv=chance.random() < 0.5))
    if chance.random() < 0.5:
        first = 20 + 40 * depth + chance.randint(0, 10)
        end = b"k%06d" % (first + chance.randint(1, 9))
        steps.append(delete(b"k%06d" % first, end, prev_kv=chance.random() < 0.5))
    steps += [
        ranged(
            limit=chance.choice([0, 0, 1, 5, 30]),
            keys_only=chance.random() < 0.2,
            count_only=chance.random() < 0.1,
            sort_order=chance.choice(["NONE", "ASCEND", "DESCEND"]),
            sort_target=chance.choice(["KEY", "VERSION", "MOD", "VALUE"]),
            max_mod_revision=chance.choice([0, 0, 60]),
        )
        for _ in range(chance.randint(0, 4))
    ]
    if depth < 2 and chance.random() < 0.5:
        steps.append(nested(*random_steps(chance, depth + 1)))
    chance.shuffle(steps)
    return steps


@pytest.mark.slow
def test_no_transaction_that_is_executed_has_an_answer_above_the_limit() -> None:
    async def scene(stage: Stage) -> None:
        chance = random.Random(16)
        sizes = random.Random(17)
        executed = refused = 0
        for _ in range(400):
            for number in range(120):
                if sizes.random() < 0.3:
                    value = b"v" * sizes.choice([0, 50, 2000])
                    stage.store.apply(Put(b"k%06d" % number, value))
            limit = stage.store.transactions.max_answer_bytes = chance.randint(1_000, 400_000)
            revision = stage.store.revision
            steps = random_steps(chance)
            why, answer = "", b""
            try:
                answer = await stage.call("Txn", pb.TxnRequest(success=steps))
            except RpcError as error:
                why = error.message
            assert len(answer) <= limit
            if why:
                assert "answer would be larger than" in why
                assert stage.store.revision == revision
            refused += bool(why)
            executed += not why
        assert executed > 100
        assert refused > 50

    play(scene)


# The errors of a client.


def test_a_request_above_the_limits_of_a_server_is_too_large_and_not_executed() -> None:
    async def scene(stage: Stage) -> None:
        async with leasehold.connect(f"{HOST}:{stage.port}") as client:
            for size, why in ((MIB * 8 // 5, "request is larger"), (3 * MIB, "larger than max")):
                large = Compare(b"k", Target.VALUE, Relation.NOT_EQUAL, bytes(size))
                with pytest.raises(TooLarge, match=why) as refused:
                    await client.engine.txn([large], [], [Put(b"k", b"")])
                assert refused.value.not_executed
                assert stage.store.keyspace.get(b"k") is None

    play(scene)


def test_an_answer_above_the_limit_of_a_server_is_too_large_and_not_executed() -> None:
    async def scene(stage: Stage) -> None:
        stage.fill(MANY, 1000)
        async with leasehold.connect(f"{HOST}:{stage.port}") as client:
            delete = partial(client.engine.delete, previous=True)
            for call in (client.engine.range, delete):
                with pytest.raises(TooLarge, match=f"answer would be larger than {LIMIT}") as why:
                    await call(b"k", b"l")
                assert why.value.not_executed
            assert len(stage.store.keyspace) == MANY
            gone = await client.kv.delete("k", prefix=True)
            assert (gone.deleted, list(gone.previous)) == (MANY, []), "it has no limit"

    play(scene)


def test_an_answer_that_the_client_does_not_accept_leaves_the_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UnaryCall, "max_message_bytes", property(lambda _: 1000, _ignored))

    async def scene(stage: Stage) -> None:
        stage.fill(FEW, 1000)
        async with leasehold.connect(f"{HOST}:{stage.port}") as client:
            with pytest.raises(TooLarge, match="answer larger than this client accepts") as why:
                await client.engine.delete(b"k", b"l", previous=True)
            assert not why.value.not_executed
        assert not len(stage.store.keyspace)

    play(scene)


def _ignored(_call: UnaryCall, _limit: int) -> None:
    pass
