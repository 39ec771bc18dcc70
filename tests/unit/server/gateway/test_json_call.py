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
from leasehold.grpc.durability_gate import Gate
from leasehold.grpc.http_handlers import MAX_BODY_BYTES, Ask, Reply, Visitor
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange, Listener, Method, Pieces, Speaker, Subscription
from leasehold.http2.header_encoder import Fields
from leasehold.server.gateway.gateway import MAX_DEPTH, Gateway
from leasehold.server.gateway.json_writer import LONG_BYTES, SHORT_BYTES, written
from leasehold.wire import kv_pb2 as kv
from leasehold.wire import leases_pb2, lock_pb2
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.pool import POOL

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


class FakeVisit:
    """Remembers what was answered."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.host = RunningLoop()
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

    def write(self, octets: bytes) -> None:
        assert self.head is not None
        assert not self.is_finished
        self.body += octets
        self.longest_write = max(self.longest_write, len(octets))
        self.has_room = self.has_room and not self.is_narrow

    def finish(self) -> None:
        assert not self.is_finished
        self.is_finished = True

    def held(self, octets: int) -> None:
        self.held_bytes += octets

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
    visit: FakeVisit, method: Method, grpc_path: str, path: str, body: bytes = b"{}", **fields: str
) -> Visitor | None:
    """Make a request of a gateway that has one method."""
    gateway = Gateway({grpc_path: method}, POOL, {}, no_health)
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return gateway.handle(Ask(b"POST", path.encode(), named, body), visit)


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
    visit = FakeVisit()
    ask(visit, Exchange(lambda _: (ANSWER, 3)), PUT, "/v3/kv/put")
    visit.gate.release(2)
    assert visit.replies == []
    visit.gate.release(3)
    assert [reply.body for reply in visit.replies] == [AS_JSON]
    assert visit.flushes > 0


def test_a_refusal_waits_for_what_it_is_based_on() -> None:
    def refuse(_: bytes) -> Answer:
        raise RpcError(Status.NOT_FOUND, "no such lease", position=4)

    visit = FakeVisit()
    ask(visit, Exchange(refuse), PUT, "/v3/kv/put")
    visit.gate.release(3)
    assert visit.replies == []
    visit.gate.release(4)
    assert visit.only_reply == (
        404,
        {"error": "no such lease", "code": 5, "message": "no such lease"},
    )


def test_events_wait_for_their_position_and_are_counted_until_then() -> None:
    speakers: list[Speaker] = []

    class Quiet:
        def __init__(self, speaker: Speaker) -> None:
            speakers.append(speaker)

        def heard(self, message: bytes) -> None: ...
        def ended(self) -> None: ...
        def relieved(self) -> None: ...
        def gone(self) -> None: ...

    visit = FakeVisit()
    ask(visit, Subscription(Quiet), WATCH, "/v3/watch")
    assert (visit.head, visit.replies) == (None, []), "nothing is said before the first message"
    message = pb.WatchResponse(watch_id=1).SerializeToString()
    speakers[0].say(message, 2)
    assert (visit.body, visit.held_bytes) == (b"", len(message))
    visit.gate.release(2)
    assert (visit.body, visit.held_bytes) == (b'{"result":{"watch_id":"1"}}\n', 0)
    speakers[0].end()
    assert visit.is_finished


def test_a_failure_nobody_has_foreseen_is_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: bytes) -> Answer:
        raise ValueError("secret")

    visit = FakeVisit()
    ask(visit, Exchange(fail), PUT, "/v3/kv/put")
    status, document = visit.only_reply
    assert (status, document["code"]) == (500, 13)
    assert "secret" not in document["error"]
    assert "secret" in caplog.text


def test_an_answer_that_is_no_message_is_a_failure_and_not_silence() -> None:
    visit = FakeVisit()
    ask(visit, Exchange(lambda _: (b"\xff", 0)), PUT, "/v3/kv/put")
    assert visit.only_reply[0] == 500
    lines = FakeVisit()
    ask(lines, Exchange(lambda _: (b"\xff", 0), is_unary=False), KEEP_ALIVE, "/v3/lease/keepalive")
    assert lines.is_finished
    assert json.loads(lines.body)["error"]["http_code"] == 500


@looped
async def test_a_long_body_is_made_a_message_of_in_steps() -> None:
    heard: list[bytes] = []

    def renew(message: bytes) -> Answer:
        heard.append(message)
        return b"", 0

    visit, ids = FakeVisit(), list(range(1, 20_001))
    body = json.dumps({"ids": list(map(str, ids))}).encode()
    ask(visit, Exchange(renew), RENEW_ALL, "/v1/leases/renewall", body)
    turns = 0
    while not visit.replies:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 15, "others have theirs"
    assert list(leases_pb2.RenewAllRequest.FromString(heard[0]).ids) == ids
    assert (len(heard), visit.only_reply) == (1, (200, {}))


@looped
async def test_a_long_body_that_cannot_be_read_is_refused_and_nobody_hears_of_it() -> None:
    wrong = {"ids": ["1"] * 20_000, "ttl_ms": "x"}
    for body in (json.dumps(wrong).encode(), b'{"ids":[' + b"1," * 10_000, b" " * 20_000 + b"x"):
        visit, heard = FakeVisit(), list[bytes]()
        ask(visit, Exchange(heard.append), RENEW_ALL, "/v1/leases/renewall", body)  # type: ignore[arg-type]
        await until(lambda visit=visit: visit.replies)
        assert (visit.only_reply[0], heard) == (400, [])


@looped
async def test_whoever_hangs_up_while_a_long_body_is_read_is_not_served() -> None:
    visit, heard = FakeVisit(), list[bytes]()
    body = json.dumps({"ids": [1] * 20_000}).encode()
    call = ask(visit, Exchange(heard.append), RENEW_ALL, "/v1/leases/renewall", body)  # type: ignore[arg-type]
    assert call is not None
    call.gone()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (visit.replies, heard) == ([], [])


@pytest.mark.parametrize("depth", [1, 49, 51, 90, 150, 250, 320, 328, 1000])
def test_messages_that_are_too_deep_are_refused_and_not_a_failure_of_ours(
    depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    visit = FakeVisit()
    body = b'{"success":[{"request_txn":' * depth + b"{}" + b"}]}" * depth

    def read(message: bytes) -> Answer:
        pb.TxnRequest.FromString(message)
        return ANSWER, 0

    ask(visit, Exchange(read), TXN, "/v3/kv/txn", body)
    status, document = visit.only_reply
    assert (status, document.get("error")) == (
        (200, None) if depth < MAX_DEPTH // 2 else (400, "exceeded max depth")
    )
    assert "Traceback" not in caplog.text


def test_a_method_that_is_not_there_is_501() -> None:
    visit = FakeVisit()
    ask(visit, Exchange(lambda _: (ANSWER, 0)), PUT, "/v3/lock/lock")
    assert visit.only_reply[0] == 501
    assert visit.only_reply[1]["error"] == "unknown method Lock for service v3lockpb.Lock"


@pytest.mark.parametrize("status", [each for each in Status if each != Status.OK])
def test_every_code_has_its_status(status: Status) -> None:
    def refuse(_: bytes) -> Answer:
        raise RpcError(status, "why")

    visit = FakeVisit()
    ask(visit, Exchange(refuse), PUT, "/v3/kv/put")
    assert visit.only_reply[1]["code"] == status.value
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
    assert visit.only_reply[0] == expected.get(status, 500)


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

    visit = FakeVisit()
    ask(visit, Exchange(lambda _: later()), PUT, "/v3/kv/put")
    await until(lambda: len(visit.gate) == 2)  # the answer, and its end
    assert visit.replies == []
    visit.gate.release(1)
    await until(lambda: visit.replies)
    assert visit.replies[0].body == AS_JSON


@looped
async def test_an_answer_that_takes_a_while_is_given_up_with_its_client() -> None:
    ends: list[str] = []

    async def later() -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    visit = FakeVisit()
    call = ask(visit, Exchange(lambda _: later()), PUT, "/v3/kv/put")
    await asyncio.sleep(0)
    assert call is not None
    call.gone()
    await until(lambda: ends)
    assert visit.replies == []


@looped
async def test_a_long_answer_is_written_in_pieces_as_the_client_takes_them() -> None:
    pairs = [kv.KeyValue(key=b"%05d" % number, value=b"v" * 100) for number in range(3000)]
    message = pb.RangeResponse(kvs=pairs, count=3000)

    async def later() -> Pieces:
        octets = message.SerializeToString()
        return Pieces([octets[:1000], octets[1000:]])

    visit = FakeVisit()
    visit.has_room = False
    call = ask(visit, Exchange(lambda _: later()), RANGE, "/v3/kv/range")
    await until(lambda: visit.body)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(visit.body) < 3 * LONG_BYTES, "the rest waits for room"
    visit.has_room = True
    assert call is not None
    call.relieved()
    await until(lambda: visit.is_finished)
    found = json.loads(visit.body)
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
        visit = FakeVisit()
        visit.is_narrow = True
        octets = message.SerializeToString()
        pieces = [octets[at : at + 100_000] for at in range(0, len(octets), 100_000)]
        call = ask(visit, Exchange(lambda _: Pieces(pieces)), TXN, "/v3/kv/txn")
        assert call is not None
        written_bytes, turns = -1, 0
        while not visit.is_finished:
            visit.has_room = True
            call.relieved()
            await asyncio.sleep(0)
            assert len(visit.body) - written_bytes < 3 * LONG_BYTES
            written_bytes = len(visit.body)
            turns += 1
            assert turns < 100_000
        assert visit.longest_write < 3 * LONG_BYTES
        assert visit.body.decode() == written(message)

    run()


@looped
async def test_an_answer_that_takes_a_while_to_write_is_sent_as_one_document() -> None:
    message = _read_at_any_depth(10, 600)
    octets = message.SerializeToString()
    assert SHORT_BYTES < len(octets) <= LONG_BYTES
    visit = FakeVisit()
    ask(visit, Exchange(lambda _: (octets, 0)), TXN, "/v3/kv/txn")
    assert visit.replies == [], "others have their turn"
    await until(lambda: visit.replies)
    assert [reply.body.decode() for reply in visit.replies] == [written(message)]


@looped
async def test_a_longer_answer_that_is_no_message_is_a_failure_and_not_silence() -> None:
    visit, octets = FakeVisit(), b"\xff" * (SHORT_BYTES + 1)
    ask(visit, Exchange(lambda _: (octets, 0)), PUT, "/v3/kv/put")
    await until(lambda: visit.replies)
    assert visit.only_reply[0] == 500
    lines = FakeVisit()
    ask(lines, Exchange(lambda _: (octets, 0), is_unary=False), KEEP_ALIVE, "/v3/lease/keepalive")
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

    visit = FakeVisit()
    ask(visit, one_to_many(answer), WATCH, "/v3/watch")
    await until(lambda: visit.is_finished)
    results = [json.loads(line)["result"] for line in visit.body.splitlines()]
    assert [each.get("watch_id") for each in results] == [None, "1", "2"]
    assert len(results[1]["events"]) == 10_000


@looped
async def test_a_coroutine_for_one_message_answers_with_one_document() -> None:
    async def lock(request: bytes, call: Conversation) -> bytes:
        assert call.context.metadata == (("authorization", "token"), ("color", "blue"))
        return lock_pb2.LockResponse(key=request[2:]).SerializeToString()

    visit = FakeVisit()
    fields = {"authorization": "token", "grpc_metadata_color": "blue", "cookie": "no"}
    ask(visit, one_to_one(lock), LOCK, "/v3/lock/lock", b'{"name":"eA=="}', **fields)
    await until(lambda: visit.replies)
    assert visit.head is None
    assert visit.only_reply == (200, {"key": "eA=="})


@looped
async def test_a_coroutine_is_cancelled_when_its_client_hangs_up_or_its_time_is_over() -> None:
    ends: list[str] = []

    async def lock(_: bytes, __: Conversation) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    visit = FakeVisit()
    call = ask(visit, one_to_one(lock), LOCK, "/v3/lock/lock")
    await asyncio.sleep(0)
    assert call is not None
    call.gone()
    await until(lambda: len(ends) == 1)
    assert visit.replies == []
    ask(visit, one_to_one(lock), LOCK, "/v3/lock/lock", grpc_timeout="10m")
    await until(lambda: len(ends) == 2)
    assert visit.only_reply[0] == 504


@looped
async def test_a_call_whose_time_is_over_does_not_wait_for_the_disk() -> None:
    visit = FakeVisit()
    ask(visit, Exchange(lambda _: (ANSWER, 9)), PUT, "/v3/kv/put", grpc_timeout="10m")
    await until(lambda: visit.replies)
    assert visit.only_reply[0] == 504
    visit.gate.release(9)
    assert len(visit.replies) == 1


@looped
async def test_a_server_that_closes_says_so() -> None:
    async def observe(_: bytes, __: Conversation) -> AsyncIterator[bytes]:
        yield b""
        await asyncio.Event().wait()

    visit = FakeVisit()
    call = ask(visit, one_to_many(observe), WATCH, "/v3/watch")
    await until(lambda: visit.body)
    assert call is not None
    call.dismissed(RpcError(Status.UNAVAILABLE, "etcdserver: server stopped"))
    assert visit.is_finished
    last = json.loads(visit.body.splitlines()[-1])["error"]
    assert (last["grpc_code"], last["http_code"]) == (14, 503)


@looped
async def test_very_many_messages_of_one_body_let_others_have_their_turn() -> None:
    handled: list[bytes] = []

    def renew(message: bytes) -> Answer:
        handled.append(message)
        return b"", 0

    visit = FakeVisit()
    method = Exchange(renew, is_unary=False)
    ask(visit, method, KEEP_ALIVE, "/v3/lease/keepalive", b'{"ID":1}' * 500)
    assert 0 < len(handled) < 100
    assert visit.has_body  # it counts as received data while it is read
    await until(lambda: visit.is_finished)
    assert (len(handled), visit.body) == (500, b'{"result":{}}\n' * 500)
    assert not visit.has_body


@looped
async def test_a_body_is_not_kept_once_all_its_messages_are_heard() -> None:
    class Quiet:
        def __init__(self, speaker: Speaker) -> None: ...

        def heard(self, message: bytes) -> None: ...

        def ended(self) -> None: ...

        def gone(self) -> None: ...

    visit = FakeVisit()
    quiet: Any = Quiet
    call = ask(visit, Subscription(quiet), WATCH, "/v3/watch", b'{"create_request":{}}')
    assert call is not None
    assert not visit.has_body
    call.gone()


def test_a_listener_is_told_of_the_end_once() -> None:
    ends: list[str] = []

    class Mute:
        def __init__(self, speaker: Speaker) -> None:
            self.speaker = speaker

        def heard(self, message: bytes) -> None:
            self.speaker.end(RpcError(Status.ABORTED, "enough"))

        def ended(self) -> None: ...
        def relieved(self) -> None: ...
        def gone(self) -> None:
            ends.append("gone")

    def mute(speaker: Speaker) -> Listener:
        return Mute(speaker)

    visit = FakeVisit()
    call = ask(visit, Subscription(mute), WATCH, "/v3/watch")
    assert visit.only_reply[0] == 409
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
    visit, trace = FakeVisit(), Trace()
    ask(visit, Exchange(lambda _: (ANSWER, 5), interceptor=trace), PUT, "/v3/kv/put")
    assert trace.done == []
    visit.gate.release(5)
    assert (trace.done, visit.only_reply[0]) == ([Status.OK], 200)


def test_the_done_callback_of_a_json_call_that_fails_has_its_status() -> None:
    def fail(_: bytes) -> Answer:
        raise RpcError(Status.NOT_FOUND, "not here")

    for call, body, status, http in (
        (fail, b"{}", Status.NOT_FOUND, 404),
        (lambda _: (ANSWER, 0), b"{", Status.INVALID_ARGUMENT, 400),
        (lambda _: (b"not a message", 0), b"{}", Status.INTERNAL, 500),
    ):
        visit, trace = FakeVisit(), Trace()
        ask(visit, Exchange(call, interceptor=trace), PUT, "/v3/kv/put", body)
        assert (trace.done, visit.only_reply[0]) == ([status], http)


@looped
async def test_the_done_callback_of_a_json_call_is_called_however_it_ends() -> None:
    async def wait(_: bytes, __: Conversation) -> AsyncIterator[bytes]:
        yield pb.WatchResponse(watch_id=1).SerializeToString()
        await asyncio.Event().wait()

    async def begin(trace: Trace, **fields: str) -> Visitor:
        visit = FakeVisit()
        method = replace(one_to_many(wait), interceptor=trace)
        call = ask(visit, method, WATCH, "/v3/watch", b"{}", **fields)
        await until(lambda: visit.body)
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
        visit, trace = FakeVisit(), Trace()
        visit.has_room = False
        method = Exchange(lambda _: Pieces([message]), interceptor=trace)
        call = ask(visit, method, RANGE, "/v3/kv/range")
        await until(lambda visit=visit: visit.body)
        assert (call is not None, trace.done) == (True, [])
        assert call is not None
        if is_lost:
            call.gone()
        else:
            visit.has_room = True
            call.relieved()
            await until(lambda visit=visit: visit.is_finished)
        await until(lambda trace=trace: trace.done)
        assert trace.done == [Status.CANCELLED if is_lost else Status.OK]


@looped
async def test_the_done_callback_has_the_error_of_an_answer_that_cannot_be_written() -> None:
    visit, trace = FakeVisit(), Trace()
    invalid = b"\xff" * (SHORT_BYTES + 1)
    ask(visit, Exchange(lambda _: (invalid, 0), interceptor=trace), PUT, "/v3/kv/put")
    await until(lambda: trace.done)
    assert (trace.done, visit.only_reply[0]) == ([Status.INTERNAL], 500)
