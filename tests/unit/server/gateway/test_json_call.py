"""Calls as JSON: what waits for the disk, for room and for others, and how calls end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import wraps
from http import HTTPStatus
from typing import Any

import pytest

from leasehold.basics.event_loop import RunningLoop
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, DoneCallback, Peer
from leasehold.grpc.coroutine_handlers import Conversation, one_to_many, one_to_one
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import MAX_BODY_BYTES, HttpRequest, PendingResponse, Reply
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import (
    Answer,
    Exchange,
    Method,
    Pieces,
    ServerStream,
    StreamHandler,
    Subscription,
)
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.header_encoder import Fields, literals
from leasehold.http2.inbound import ReceiveAccount
from leasehold.http2.limits import KIB, ConnectionLimits
from leasehold.server.gateway.gateway import MAX_DEPTH, Gateway
from leasehold.server.gateway.json_writer import LONG_BYTES, SHORT_BYTES, written
from leasehold.wire import kv_pb2 as kv
from leasehold.wire import leases_pb2, lock_pb2
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.pool import POOL
from tests.support.virtual_loop import Turn, VirtualLoop

PUT = "/etcdserverpb.KV/Put"
RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
RENEW_ALL = "/leasehold.v1.Leases/RenewAll"
WATCH = "/etcdserverpb.Watch/Watch"
KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
LOCK = "/v3lockpb.Lock/Lock"
DEADLINE_S = 60.0
ANSWER = pb.PutResponse(header=pb.ResponseHeader(revision=5)).SerializeToString()
AS_JSON = b'{"header":{"revision":"5"}}'


class FakeResponse:
    """Remembers what was answered."""

    def __init__(self) -> None:
        self.gate = DurabilityGate()
        self.loop = RunningLoop()
        self.connection = object()
        self.peer = Peer()
        self.replies: list[Reply] = []
        self.head: tuple[HTTPStatus, Fields] | None = None
        self.body = b""
        self.is_finished = False
        self.has_room = True
        self.has_body = True
        self.held_bytes = 0
        self.flushes = 0
        self.longest_write = 0
        self.is_narrow = False
        """Whether there is room for one piece only."""

    def reply(self, reply: Reply) -> None:
        assert self.head is None
        self.replies.append(reply)

    def add_fields(self, fields: Fields) -> None:
        raise AssertionError("no origin is listed")

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        assert self.head is None
        self.head = status, fields

    def write(self, data: bytes) -> None:
        assert self.head is not None
        assert not self.is_finished
        self.body += data
        self.longest_write = max(self.longest_write, len(data))
        self.has_room = self.has_room and not self.is_narrow

    def finish(self) -> None:
        assert not self.is_finished
        self.is_finished = True

    def held(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def body_taken(self) -> None:
        self.has_body = False

    def flush(self) -> None:
        self.flushes += 1

    def flush_soon(self) -> None:
        self.flushes += 1

    @property
    def only_reply(self) -> tuple[int, Any]:
        """The one answer."""
        (reply,) = self.replies
        return reply.status.value, json.loads(reply.body)


def no_health(_query: str) -> Reply:
    raise AssertionError("nobody has asked for it")


def ask(
    response: FakeResponse,
    method: Method,
    grpc_path: str,
    path: str,
    body: bytes = b"{}",
    **fields: str,
) -> PendingResponse | None:
    """Make a request of a gateway that has one method."""
    gateway = Gateway({grpc_path: method}, POOL, {}, no_health)
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return gateway.handle(HttpRequest(b"POST", path.encode(), named, body), response)


def looped(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  any condition
            await asyncio.sleep(0.001)


def test_an_answer_leaves_when_its_position_is_released() -> None:
    response = FakeResponse()
    ask(response, Exchange(lambda _: (ANSWER, 3)), PUT, "/v3/kv/put")
    response.gate.release(2)
    assert response.replies == []
    response.gate.release(3)
    assert [reply.body for reply in response.replies] == [AS_JSON]
    assert response.flushes > 0


def test_a_refusal_waits_for_what_it_is_based_on() -> None:
    def refuse(_: bytes) -> Answer:
        raise RpcError(Status.NOT_FOUND, "no such lease", position=4)

    response = FakeResponse()
    ask(response, Exchange(refuse), PUT, "/v3/kv/put")
    response.gate.release(3)
    assert response.replies == []
    response.gate.release(4)
    assert response.only_reply == (
        404,
        {"error": "no such lease", "code": 5, "message": "no such lease"},
    )


def test_events_wait_for_their_position_and_are_counted_until_then() -> None:
    opened: list[ServerStream] = []

    class Quiet:
        def __init__(self, stream: ServerStream) -> None:
            opened.append(stream)

        def message_received(self, message: bytes) -> None: ...
        def ended(self) -> None: ...
        def relieved(self) -> None: ...
        def gone(self) -> None: ...

    response = FakeResponse()
    ask(response, Subscription(Quiet), WATCH, "/v3/watch")
    assert (response.head, response.replies) == (None, []), (
        "nothing is said before the first message"
    )
    message = pb.WatchResponse(watch_id=1).SerializeToString()
    opened[0].send_message(message, 2)
    assert (response.body, response.held_bytes) == (b"", len(message))
    response.gate.release(2)
    assert (response.body, response.held_bytes) == (b'{"result":{"watch_id":"1"}}\n', 0)
    opened[0].end()
    assert response.is_finished


def test_a_failure_nobody_has_foreseen_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: bytes) -> Answer:
        raise ValueError("secret")

    response = FakeResponse()
    ask(response, Exchange(fail), PUT, "/v3/kv/put")
    status, document = response.only_reply
    assert (status, document["code"]) == (500, 13)
    assert "secret" not in document["error"]
    assert "secret" in caplog.text


def test_an_answer_that_is_no_message_is_a_failure_and_not_silence() -> None:
    response = FakeResponse()
    ask(response, Exchange(lambda _: (b"\xff", 0)), PUT, "/v3/kv/put")
    assert response.only_reply[0] == 500
    lines = FakeResponse()
    ask(lines, Exchange(lambda _: (b"\xff", 0), is_unary=False), KEEP_ALIVE, "/v3/lease/keepalive")
    assert lines.is_finished
    assert json.loads(lines.body)["error"]["http_code"] == 500


@looped
async def test_a_long_body_is_made_a_message_of_in_steps() -> None:
    heard: list[bytes] = []

    def renew(message: bytes) -> Answer:
        heard.append(message)
        return b"", 0

    response, ids = FakeResponse(), list(range(1, 20_001))
    body = json.dumps({"ids": list(map(str, ids))}).encode()
    ask(response, Exchange(renew), RENEW_ALL, "/v1/leases/renewall", body)
    turns = 0
    while not response.replies:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 15, "others have theirs"
    assert list(leases_pb2.RenewAllRequest.FromString(heard[0]).ids) == ids
    assert (len(heard), response.only_reply) == (1, (200, {}))


@looped
async def test_a_long_body_that_cannot_be_read_is_refused_and_nobody_hears_of_it() -> None:
    wrong = {"ids": ["1"] * 20_000, "ttl_ms": "x"}
    for body in (json.dumps(wrong).encode(), b'{"ids":[' + b"1," * 10_000, b" " * 20_000 + b"x"):
        response, heard = FakeResponse(), list[bytes]()
        ask(response, Exchange(heard.append), RENEW_ALL, "/v1/leases/renewall", body)  # type: ignore[arg-type]
        await until(lambda response=response: response.replies)
        assert (response.only_reply[0], heard) == (400, [])


@looped
async def test_whoever_hangs_up_while_a_long_body_is_read_is_not_served() -> None:
    response, heard = FakeResponse(), list[bytes]()
    body = json.dumps({"ids": [1] * 20_000}).encode()
    call = ask(response, Exchange(heard.append), RENEW_ALL, "/v1/leases/renewall", body)  # type: ignore[arg-type]
    assert call is not None
    call.gone()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (response.replies, heard) == ([], [])


@pytest.mark.parametrize("depth", [1, 49, 51, 90, 150, 250, 320, 328, 1000])
def test_messages_that_are_too_deep_are_refused_and_not_a_failure_of_ours(
    depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    response = FakeResponse()
    body = b'{"success":[{"request_txn":' * depth + b"{}" + b"}]}" * depth

    def read(message: bytes) -> Answer:
        pb.TxnRequest.FromString(message)
        return ANSWER, 0

    ask(response, Exchange(read), TXN, "/v3/kv/txn", body)
    status, document = response.only_reply
    assert (status, document.get("error")) == (
        (200, None) if depth < MAX_DEPTH // 2 else (400, "exceeded max depth")
    )
    assert "Traceback" not in caplog.text


def test_a_method_that_is_not_there_is_501() -> None:
    response = FakeResponse()
    ask(response, Exchange(lambda _: (ANSWER, 0)), PUT, "/v3/lock/lock")
    assert response.only_reply[0] == 501
    assert response.only_reply[1]["error"] == "unknown method Lock for service v3lockpb.Lock"


@pytest.mark.parametrize("status", [each for each in Status if each != Status.OK])
def test_every_code_has_its_status(status: Status) -> None:
    def refuse(_: bytes) -> Answer:
        raise RpcError(status, "why")

    response = FakeResponse()
    ask(response, Exchange(refuse), PUT, "/v3/kv/put")
    assert response.only_reply[1]["code"] == status.value
    expected = {
        Status.CANCELLED: 408,
        Status.INVALID_ARGUMENT: 400,
        Status.DEADLINE_EXCEEDED: 504,
        Status.NOT_FOUND: 404,
        Status.ALREADY_EXISTS: 409,
        Status.PERMISSION_DENIED: 403,
        Status.RESOURCE_EXHAUSTED: 429,
        Status.FAILED_PRECONDITION: 400,
        Status.ABORTED: 409,
        Status.OUT_OF_RANGE: 400,
        Status.UNIMPLEMENTED: 501,
        Status.UNAVAILABLE: 503,
        Status.UNAUTHENTICATED: 401,
    }
    assert response.only_reply[0] == expected.get(status, 500)


def test_a_body_that_is_too_large_is_refused_as_a_message_would_be() -> None:
    reply = Gateway({}, POOL, {}, no_health).too_large(MAX_BODY_BYTES + 1)
    assert reply.status == 429
    why = f"grpc: received message larger than max ({MAX_BODY_BYTES + 1} vs. 2097152)"
    assert json.loads(reply.body)["error"] == why


@looped
async def test_an_answer_that_takes_a_while() -> None:
    async def later() -> Answer:
        await asyncio.sleep(0)
        return ANSWER, 1

    response = FakeResponse()
    ask(response, Exchange(lambda _: later()), PUT, "/v3/kv/put")
    await until(lambda: len(response.gate) == 2)  # the answer, and its end
    assert response.replies == []
    response.gate.release(1)
    await until(lambda: response.replies)
    assert response.replies[0].body == AS_JSON


@looped
async def test_an_answer_that_takes_a_while_is_given_up_with_its_client() -> None:
    ends: list[str] = []

    async def later() -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    response = FakeResponse()
    call = ask(response, Exchange(lambda _: later()), PUT, "/v3/kv/put")
    await asyncio.sleep(0)
    assert call is not None
    call.gone()
    await until(lambda: ends)
    assert response.replies == []


@looped
async def test_a_long_answer_is_written_in_pieces_as_the_client_takes_them() -> None:
    pairs = [kv.KeyValue(key=b"%05d" % number, value=b"v" * 100) for number in range(3000)]
    message = pb.RangeResponse(kvs=pairs, count=3000)

    async def later() -> Pieces:
        data = message.SerializeToString()
        return Pieces([data[:1000], data[1000:]])

    response = FakeResponse()
    response.has_room = False
    call = ask(response, Exchange(lambda _: later()), RANGE, "/v3/kv/range")
    await until(lambda: response.body)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(response.body) < 3 * LONG_BYTES, "the rest waits for room"
    response.has_room = True
    assert call is not None
    call.relieved()
    await until(lambda: response.is_finished)
    found = json.loads(response.body)
    assert (len(found["kvs"]), found["count"]) == (3000, "3000")


def _read_at_any_depth(value_bytes: int, count: int) -> pb.TxnResponse:
    """Give what a transaction has read, twice, and once within another one."""
    pairs = [kv.KeyValue(key=b"%05d" % number, value=b"v" * value_bytes) for number in range(count)]
    read = pb.ResponseOp(response_range=pb.RangeResponse(kvs=pairs, count=count))
    nested = pb.ResponseOp(response_txn=pb.TxnResponse(responses=[read]))
    return pb.TxnResponse(succeeded=True, responses=[read, read, nested])


@pytest.mark.parametrize(("value_bytes", "count"), [(0, 10_000), (1_000_003, 3)])
def test_a_long_answer_is_written_in_pieces_however_deep_it_is_within_others(
    value_bytes: int, count: int
) -> None:
    message = _read_at_any_depth(value_bytes, count)

    @looped
    async def run() -> None:
        response = FakeResponse()
        response.is_narrow = True
        data = message.SerializeToString()
        pieces = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
        call = ask(response, Exchange(lambda _: Pieces(pieces)), TXN, "/v3/kv/txn")
        assert call is not None
        written_bytes, turns = -1, 0
        while not response.is_finished:
            response.has_room = True
            call.relieved()
            await asyncio.sleep(0)
            assert len(response.body) - written_bytes < 3 * LONG_BYTES
            written_bytes = len(response.body)
            turns += 1
            assert turns < 100_000
        assert response.longest_write < 3 * LONG_BYTES
        assert response.body.decode() == written(message)

    run()


@looped
async def test_an_answer_that_takes_a_while_to_write_is_sent_as_one_document() -> None:
    message = _read_at_any_depth(10, 600)
    data = message.SerializeToString()
    assert SHORT_BYTES < len(data) <= LONG_BYTES
    response = FakeResponse()
    ask(response, Exchange(lambda _: (data, 0)), TXN, "/v3/kv/txn")
    assert response.replies == [], "others have their turn"
    await until(lambda: response.replies)
    assert [reply.body.decode() for reply in response.replies] == [written(message)]


@looped
async def test_a_longer_answer_that_is_no_message_is_a_failure_and_not_silence() -> None:
    response, data = FakeResponse(), b"\xff" * (SHORT_BYTES + 1)
    ask(response, Exchange(lambda _: (data, 0)), PUT, "/v3/kv/put")
    await until(lambda: response.replies)
    assert response.only_reply[0] == 500
    lines = FakeResponse()
    ask(lines, Exchange(lambda _: (data, 0), is_unary=False), KEEP_ALIVE, "/v3/lease/keepalive")
    await until(lambda: lines.is_finished)
    assert json.loads(lines.body.splitlines()[-1])["error"]["http_code"] == 500


@looped
async def test_lines_behind_a_long_one_keep_their_order() -> None:
    events = [kv.Event(kv=kv.KeyValue(key=b"%05d" % number)) for number in range(10_000)]
    long = pb.WatchResponse(watch_id=1, events=events).SerializeToString()
    rooms = []

    async def answer(_: bytes, call: Conversation) -> AsyncIterator[bytes]:
        for message in (b"", long, pb.WatchResponse(watch_id=2).SerializeToString()):
            yield message
            rooms.append(call)

    response = FakeResponse()
    ask(response, one_to_many(answer), WATCH, "/v3/watch")
    await until(lambda: response.is_finished)
    results = [json.loads(line)["result"] for line in response.body.splitlines()]
    assert [each.get("watch_id") for each in results] == [None, "1", "2"]
    assert len(results[1]["events"]) == 10_000


@looped
async def test_a_coroutine_for_one_message_answers_with_one_document() -> None:
    async def lock(request: bytes, call: Conversation) -> bytes:
        assert call.context.metadata == (("authorization", "token"), ("color", "blue"))
        return lock_pb2.LockResponse(key=request[2:]).SerializeToString()

    response = FakeResponse()
    fields = {"authorization": "token", "grpc_metadata_color": "blue", "cookie": "no"}
    ask(response, one_to_one(lock), LOCK, "/v3/lock/lock", b'{"name":"eA=="}', **fields)
    await until(lambda: response.replies)
    assert response.head is None
    assert response.only_reply == (200, {"key": "eA=="})


@looped
async def test_a_coroutine_is_cancelled_when_its_client_hangs_up_or_its_time_is_over() -> None:
    ends: list[str] = []

    async def lock(_: bytes, __: Conversation) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    response = FakeResponse()
    call = ask(response, one_to_one(lock), LOCK, "/v3/lock/lock")
    await asyncio.sleep(0)
    assert call is not None
    call.gone()
    await until(lambda: len(ends) == 1)
    assert response.replies == []
    ask(response, one_to_one(lock), LOCK, "/v3/lock/lock", grpc_timeout="10m")
    await until(lambda: len(ends) == 2)
    assert response.only_reply[0] == 504


@looped
async def test_a_call_whose_time_is_over_does_not_wait_for_the_disk() -> None:
    response = FakeResponse()
    ask(response, Exchange(lambda _: (ANSWER, 9)), PUT, "/v3/kv/put", grpc_timeout="10m")
    await until(lambda: response.replies)
    assert response.only_reply[0] == 504
    response.gate.release(9)
    assert len(response.replies) == 1


@looped
async def test_a_server_that_closes_says_so() -> None:
    async def observe(_: bytes, __: Conversation) -> AsyncIterator[bytes]:
        yield b""
        await asyncio.Event().wait()

    response = FakeResponse()
    call = ask(response, one_to_many(observe), WATCH, "/v3/watch")
    await until(lambda: response.body)
    assert call is not None
    call.dismissed(RpcError(Status.UNAVAILABLE, "etcdserver: server stopped"))
    assert response.is_finished
    last = json.loads(response.body.splitlines()[-1])["error"]
    assert (last["grpc_code"], last["http_code"]) == (14, 503)


@looped
async def test_very_many_messages_of_one_body_let_others_have_their_turn() -> None:
    handled: list[bytes] = []

    def renew(message: bytes) -> Answer:
        handled.append(message)
        return b"", 0

    response = FakeResponse()
    method = Exchange(renew, is_unary=False)
    ask(response, method, KEEP_ALIVE, "/v3/lease/keepalive", b'{"ID":1}' * 500)
    assert 0 < len(handled) < 100
    assert response.has_body  # it counts as received data while it is read
    await until(lambda: response.is_finished)
    assert (len(handled), response.body) == (500, b'{"result":{}}\n' * 500)
    assert not response.has_body


@looped
async def test_a_body_is_not_kept_once_all_its_messages_are_heard() -> None:
    class Quiet:
        def __init__(self, stream: ServerStream) -> None: ...

        def message_received(self, message: bytes) -> None: ...

        def ended(self) -> None: ...

        def gone(self) -> None: ...

    response = FakeResponse()
    quiet: Any = Quiet
    call = ask(response, Subscription(quiet), WATCH, "/v3/watch", b'{"create_request":{}}')
    assert call is not None
    assert not response.has_body
    call.gone()


@looped
async def test_a_body_counts_until_an_answer_that_takes_a_while_is_there() -> None:
    """As in gRPC: the handler may keep the message while it waits."""
    is_idle = asyncio.Event()

    async def later() -> Answer:
        await is_idle.wait()
        return ANSWER, 7

    response = FakeResponse()
    ask(response, Exchange(lambda _: later()), PUT, "/v3/kv/put")
    for _ in range(5):
        await asyncio.sleep(0)
    assert response.has_body
    is_idle.set()
    await until(lambda: not response.has_body)
    assert response.replies == [], "it waits for the disk without the body"
    response.gate.release(7)
    assert response.only_reply[0] == 200


def test_calls_that_wait_hold_no_more_than_a_connection_may_hold() -> None:
    limits = ConnectionLimits(max_buffered_bytes=512 * KIB)
    account, loop, sent = ReceiveAccount(limits), VirtualLoop(), bytearray()
    waiting: list[bytes] = []

    async def later(message: bytes) -> Answer:
        waiting.append(message)
        while True:
            await Turn()

    gateway = Gateway({PUT: Exchange(later)}, POOL, {}, no_health)
    connection = ServerConnection(
        {},
        DurabilityGate(),
        sent.extend,
        web=gateway,
        limits=limits,
        loop=loop,
        account=account,
    )
    connection.receive(frames.settings({}))
    body = json.dumps({"key": "YQ==", "value": "A" * 100 * KIB}).encode()
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/kv/put")))
    for number in range(1, 200, 2):
        connection.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, number, block))
        for at in range(0, len(body), 16_000):
            flags = frames.END_STREAM if at + 16_000 >= len(body) else 0
            piece = body[at : at + 16_000]
            connection.receive(frames.frame(frames.DATA, flags, number, piece))
        loop.run_tasks()
    assert len(waiting) == limits.max_buffered_bytes // len(body)
    assert sent.count(b"503 too much received data") == 100 - len(waiting)
    connection.lost()
    loop.run_tasks()
    assert (account.used_bytes, loop.open_tasks) == (0, 0)


def test_a_listener_is_told_of_the_end_once() -> None:
    ends: list[str] = []

    class Mute:
        def __init__(self, stream: ServerStream) -> None:
            self.stream = stream

        def message_received(self, message: bytes) -> None:
            self.stream.end(RpcError(Status.ABORTED, "enough"))

        def ended(self) -> None: ...
        def relieved(self) -> None: ...
        def gone(self) -> None:
            ends.append("gone")

    def mute(stream: ServerStream) -> StreamHandler:
        return Mute(stream)

    response = FakeResponse()
    call = ask(response, Subscription(mute), WATCH, "/v3/watch")
    assert response.only_reply[0] == 409
    assert call is not None
    call.gone()
    assert ends == ["gone"]


# The done callback of an interceptor.


class Trace:
    """Records the ends of calls."""

    def __init__(self) -> None:
        self.done: list[Status] = []

    def __call__(self, context: CallContext) -> DoneCallback:
        return self.done.append


def test_the_done_callback_of_a_json_call_has_its_status_when_the_answer_is_sent() -> None:
    response, trace = FakeResponse(), Trace()
    ask(response, Exchange(lambda _: (ANSWER, 5), interceptor=trace), PUT, "/v3/kv/put")
    assert trace.done == []
    response.gate.release(5)
    assert (trace.done, response.only_reply[0]) == ([Status.OK], 200)


def test_the_done_callback_of_a_json_call_that_fails_has_its_status() -> None:
    def fail(_: bytes) -> Answer:
        raise RpcError(Status.NOT_FOUND, "not here")

    for call, body, status, http in (
        (fail, b"{}", Status.NOT_FOUND, 404),
        (lambda _: (ANSWER, 0), b"{", Status.INVALID_ARGUMENT, 400),
        (lambda _: (b"not a message", 0), b"{}", Status.INTERNAL, 500),
    ):
        response, trace = FakeResponse(), Trace()
        ask(response, Exchange(call, interceptor=trace), PUT, "/v3/kv/put", body)
        assert (trace.done, response.only_reply[0]) == ([status], http)


@looped
async def test_the_done_callback_of_a_json_call_is_called_however_it_ends() -> None:
    async def wait(_: bytes, __: Conversation) -> AsyncIterator[bytes]:
        yield pb.WatchResponse(watch_id=1).SerializeToString()
        await asyncio.Event().wait()

    async def begin(trace: Trace, **fields: str) -> PendingResponse:
        response = FakeResponse()
        method = replace(one_to_many(wait), interceptor=trace)
        call = ask(response, method, WATCH, "/v3/watch", b"{}", **fields)
        await until(lambda: response.body)
        assert (call is not None, trace.done) == (True, [])
        assert call is not None
        return call

    lost, closed, late = Trace(), Trace(), Trace()
    (await begin(lost)).gone()
    assert lost.done == [Status.CANCELLED]
    call = await begin(closed)
    call.dismissed(RpcError(Status.UNAVAILABLE, "the server is stopping"))
    call.gone()
    assert closed.done == [Status.UNAVAILABLE]
    await begin(late, grpc_timeout="100m")
    await until(lambda: late.done)
    assert late.done == [Status.DEADLINE_EXCEEDED]


@looped
async def test_the_done_callback_waits_until_a_long_json_answer_is_written() -> None:
    pairs = [kv.KeyValue(key=b"%05d" % number, value=b"v" * 100) for number in range(3000)]
    message = pb.RangeResponse(kvs=pairs, count=3000).SerializeToString()
    for is_lost in (False, True):
        response, trace = FakeResponse(), Trace()
        response.has_room = False
        method = Exchange(lambda _: Pieces([message]), interceptor=trace)
        call = ask(response, method, RANGE, "/v3/kv/range")
        await until(lambda response=response: response.body)
        assert (call is not None, trace.done) == (True, [])
        assert call is not None
        if is_lost:
            call.gone()
        else:
            response.has_room = True
            call.relieved()
            await until(lambda response=response: response.is_finished)
        await until(lambda trace=trace: trace.done)
        assert trace.done == [Status.CANCELLED if is_lost else Status.OK]


@looped
async def test_the_done_callback_has_the_error_of_an_answer_that_cannot_be_written() -> None:
    response, trace = FakeResponse(), Trace()
    invalid = b"\xff" * (SHORT_BYTES + 1)
    ask(response, Exchange(lambda _: (invalid, 0), interceptor=trace), PUT, "/v3/kv/put")
    await until(lambda: trace.done)
    assert (trace.done, response.only_reply[0]) == ([Status.INTERNAL], 500)
