"""Messages that have arrived in part: who may hold how much of them, and for how long."""

import tracemalloc
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http2_request import WebRequest
from leasehold.grpc.http_handlers import HttpRequest, PagesOnly, ResponseWriter, plain
from leasehold.grpc.protocol import PREFIX
from leasehold.grpc.routes import NO_HANDLER, Exchange, ServerStream, StreamHandler, Subscription
from leasehold.grpc.server_connection import MAX_HEADS, ServerConnection
from leasehold.http1.http1_connection import Http1Connection
from leasehold.http2 import frames
from leasehold.http2.header_encoder import literals
from leasehold.http2.inbound import SHARES, SMALL_BYTES, ReceiveAccount
from leasehold.http2.limits import KIB, ConnectionLimits
from tests.support.virtual_loop import VirtualLoop

LIMITS = ConnectionLimits(
    max_buffered_bytes=256 * KIB, max_streams=64, message_s=30.0, min_bytes_per_s=1 * KIB
)
HALF_BYTES = 100 * KIB


@dataclass
class Server:
    """Connections that share an account, as those of one server do."""

    loop: VirtualLoop = field(default_factory=VirtualLoop)
    account: ReceiveAccount = field(default_factory=lambda: ReceiveAccount(LIMITS))

    def connect(self) -> "Client":
        return Client(self)


class Client:
    def __init__(self, server: Server) -> None:
        self.sent = bytearray()
        self.calls: list[bytes] = []
        self.told: list[ServerStream] = []
        self.position = 0
        """The position that the gate must release before answers are sent."""
        self.connection = ServerConnection(
            {
                "/a.B/C": Exchange(self._call),
                "/a.B/Stream": Exchange(self._call, is_unary=False),
                "/a.B/Watch": Subscription(self._open, reads_context=False),
                "/a.B/Told": Subscription(self._open),
            },
            DurabilityGate(),
            self.sent.extend,
            limits=LIMITS,
            loop=server.loop,
            account=server.account,
        )
        self.connection.receive(frames.settings({}))
        self.number = -1

    def _call(self, message: bytes) -> tuple[bytes, int]:
        self.calls.append(message)
        return b"", self.position

    def _open(self, stream: ServerStream) -> StreamHandler:
        self.told.append(stream)
        return NO_HANDLER

    def begin(self, *fields: tuple[bytes, bytes], path: bytes = b"/a.B/C") -> None:
        self.number += 2
        block = literals(
            (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", path),
                (b"content-type", b"application/grpc"),
                *fields,
            )
        )
        self.connection.receive(
            frames.frame(frames.HEADERS, frames.END_HEADERS, self.number, block)
        )

    def send(self, data: bytes, flags: int = 0) -> None:
        for at in range(0, len(data), 16_000):
            piece = data[at : at + 16_000]
            is_last = at + 16_000 >= len(data)
            self.connection.receive(
                frames.frame(frames.DATA, flags if is_last else 0, self.number, piece)
            )

    def send_half(self, length: int = HALF_BYTES) -> bool:
        """Begin a call with half a message; False if it is refused."""
        self.begin()
        del self.sent[:]
        self.send(PREFIX.pack(0, 2 * length) + bytes(length))
        return str(Status.RESOURCE_EXHAUSTED.value).encode() not in self.sent

    def send_small_in_two(self) -> bool:
        """Make a call with a small message that comes in two frames; whether it is made."""
        before = len(self.calls)
        self.begin()
        self.send(PREFIX.pack(0, 11) + b"renew")
        self.send(b" lease", frames.END_STREAM)
        return len(self.calls) > before


def test_a_connection_may_take_an_eighth_of_what_the_server_holds() -> None:
    server = Server()
    client = server.connect()
    assert client.send_half()
    assert client.send_half()
    assert not client.send_half()
    assert server.account.used_bytes <= LIMITS.max_buffered_bytes
    assert client.send_small_in_two()
    client.connection.lost()
    assert server.account.used_bytes == 0


def test_when_the_server_holds_too_much_large_messages_are_refused_and_small_ones_are_not() -> None:
    server = Server()
    clients = [server.connect() for _ in range(2 * SHARES)]
    results = [client.send_half() for client in clients for _ in range(2)]
    assert any(results)
    assert not all(results)
    assert server.account.used_bytes <= SHARES * LIMITS.max_buffered_bytes
    newcomer = server.connect()
    assert not newcomer.send_half()
    assert newcomer.send_small_in_two()
    assert all(client.send_small_in_two() for client in clients)
    for client in clients:
        client.connection.lost()
    assert newcomer.send_half()
    newcomer.connection.lost()
    assert server.account.used_bytes == 0


@pytest.mark.parametrize("is_trickling", [False, True])
def test_a_message_that_does_not_go_on_ends_its_call(is_trickling: bool) -> None:
    server = Server()
    client = server.connect()
    assert client.send_half(SMALL_BYTES)
    patience_s = int(LIMITS.message_s + SMALL_BYTES / LIMITS.min_bytes_per_s)
    for _ in range(patience_s - 1):
        server.loop.pass_time(1.0)
        if is_trickling:
            client.send(b"x")
        client.connection.drop_overdue(server.loop.now())
    assert server.account.used_bytes >= SMALL_BYTES
    server.loop.pass_time(2.0)
    client.connection.drop_overdue(server.loop.now())
    assert server.account.used_bytes == 0
    assert b"a message did not arrive completely" in client.sent
    client.send(b"more that nobody reads")
    assert server.account.used_bytes == 0
    assert client.send_small_in_two()


def test_a_message_that_goes_on_has_the_time_that_it_needs() -> None:
    server = Server()
    client = server.connect()
    assert client.send_half(HALF_BYTES)
    server.loop.pass_time(LIMITS.message_s + 5.0)
    client.connection.drop_overdue(server.loop.now())
    client.send(bytes(HALF_BYTES), frames.END_STREAM)
    assert client.calls == [bytes(2 * HALF_BYTES)]
    assert server.account.used_bytes == 0


def test_a_body_over_http2_that_does_not_go_on_is_refused() -> None:
    server = Server()
    client = server.connect()
    client.number += 2
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/kv/put")))
    client.connection.receive(
        frames.frame(frames.HEADERS, frames.END_HEADERS, client.number, block)
    )
    client.send(bytes(100))
    assert server.account.used_bytes == 100
    server.loop.pass_time(LIMITS.message_s + 1)
    client.connection.drop_overdue(server.loop.now())
    assert server.account.used_bytes == 0
    assert str(HTTPStatus.REQUEST_TIMEOUT.value).encode() in client.sent


def test_bodies_over_http1_count_as_well() -> None:
    account = ReceiveAccount(ConnectionLimits(max_buffered_bytes=HALF_BYTES // SHARES))
    sent = bytearray()
    one, other = (
        Http1Connection(PagesOnly({}), sent.extend, loop=VirtualLoop(), account=account)
        for _ in range(2)
    )
    head = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    one.receive(head % HALF_BYTES + bytes(HALF_BYTES - 1))
    assert account.used_bytes == HALF_BYTES - 1
    other.receive(head % 5 + b"smal")
    assert not sent
    other.receive(b"l")
    assert b"404" in sent
    del sent[:]
    other.receive(head % HALF_BYTES + bytes(2 * SMALL_BYTES))
    assert b"503" in sent
    assert other.is_closing
    assert account.used_bytes == HALF_BYTES - 1
    one.lost()
    assert account.used_bytes == 0


MAX_SMALL = SHARES * LIMITS.max_streams
"""Small messages that may be incomplete on all connections."""


def exhaust_small(server: Server, length: int = SMALL_BYTES - 5) -> list[Client]:
    """Have connections begin more small messages than may be incomplete."""
    clients = [server.connect() for _ in range(2 * SHARES)]
    for client in clients:
        for _ in range(LIMITS.max_streams):
            client.begin()
            client.send(PREFIX.pack(0, length + 1) + bytes(length))
    return clients


def test_the_number_of_incomplete_small_messages_is_limited() -> None:
    server = Server()
    clients = exhaust_small(server)
    assert server.account.small_messages == MAX_SMALL
    assert server.account.used_bytes == MAX_SMALL * SMALL_BYTES
    # Those that were incomplete for longest are given up; the newest stay.
    assert not clients[0].connection.has_streams
    assert b"incomplete for longest" in clients[0].sent
    assert len(clients[-1].connection._streams) == LIMITS.max_streams
    for client in clients:
        client.connection.lost()
    assert (server.account.small_messages, server.account.used_bytes) == (0, 0)


def test_small_messages_are_not_refused_while_the_most_are_incomplete() -> None:
    server = Server()
    newcomer = server.connect()
    clients = exhaust_small(server)
    assert newcomer.send_small_in_two()
    assert all(client.send_small_in_two() for client in clients[:SHARES])
    assert server.account.small_messages <= MAX_SMALL


def test_a_message_that_becomes_large_is_not_given_up_as_a_small_one() -> None:
    server = Server()
    client = server.connect()
    client.begin()
    client.send(PREFIX.pack(0, 2 * SMALL_BYTES))
    client.send(bytes(2 * SMALL_BYTES - 1))
    assert server.account.small_messages == 0
    exhaust_small(server)
    client.send(b"x", frames.END_STREAM)
    assert len(client.calls) == 1


def test_a_stream_counts_from_its_last_message_on() -> None:
    """Messages of a stream that goes on are not given up for the age of the stream."""
    server = Server()
    old, new = server.connect(), server.connect()
    for client in (old, new):
        client.begin(path=b"/a.B/Stream")
        client.send(PREFIX.pack(0, 2) + b"h")
    old.send(b"i" + PREFIX.pack(0, 2) + b"h")
    assert server.account.small_messages == 2
    for _ in range((MAX_SMALL - 1) // LIMITS.max_streams):
        client = server.connect()
        for _ in range(LIMITS.max_streams):
            client.begin()
            client.send(b"\0")
    client = server.connect()
    for _ in range(MAX_SMALL + 1 - server.account.small_messages):
        client.begin()
        client.send(b"\0")
    assert not new.connection.has_streams
    old.send(b"i", frames.END_STREAM)
    assert old.calls == [b"hi", b"hi"]


def test_small_bodies_over_http2_count_as_well() -> None:
    server = Server()
    client = server.connect()
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/kv/put")))
    client.connection.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    client.number = 1
    client.send(bytes(100))
    client.send(bytes(100))
    assert server.account.small_messages == 1
    exhaust_small(server)
    assert str(HTTPStatus.SERVICE_UNAVAILABLE.value).encode() in client.sent
    assert not client.connection.has_streams
    assert server.account.used_bytes == MAX_SMALL * SMALL_BYTES
    client.send(bytes(100))
    assert server.account.used_bytes == MAX_SMALL * SMALL_BYTES


LARGE = (b"token", b"x" * 15_000)
"""A metadata field that makes a head too large to be cached."""

NO_MESSAGE = b"the message of a unary call did not arrive"


def pass_message_s(server: Server, client: Client) -> None:
    """Pass the time that a message may take, with the last look just before its end."""
    server.loop.pass_time(LIMITS.message_s - 1.0)
    client.connection.drop_overdue(server.loop.now())
    assert client.connection.has_streams
    server.loop.pass_time(1.0)
    client.connection.drop_overdue(server.loop.now())


@pytest.mark.parametrize("fields", [(), (LARGE,)], ids=["usual head", "large head"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_unary_call_without_a_message_ends(
    fields: tuple[tuple[bytes, bytes], ...], is_known: bool
) -> None:
    server = Server()
    client = server.connect()
    if is_known:
        client.begin(*fields)
        client.send(PREFIX.pack(0, 0), frames.END_STREAM)
        server.loop.pass_time(5.0)
    client.begin(*fields)
    pass_message_s(server, client)
    assert NO_MESSAGE in client.sent
    assert b"grpc-status\x01%d" % Status.DEADLINE_EXCEEDED.value in client.sent
    assert not client.connection.has_streams
    assert server.account.used_bytes == 0
    client.send(PREFIX.pack(0, 0), frames.END_STREAM)  # too late, and without an effect
    assert len(client.calls) == is_known
    assert client.send_small_in_two()


def test_an_empty_data_frame_does_not_extend_the_time_of_a_unary_call() -> None:
    server = Server()
    client = server.connect()
    client.begin()
    server.loop.pass_time(LIMITS.message_s)
    client.connection.receive(frames.frame(frames.DATA, 0, client.number, b""))
    client.connection.drop_overdue(server.loop.now())
    assert NO_MESSAGE in client.sent
    assert not client.connection.has_streams


@pytest.mark.parametrize("fields", [(), (LARGE,)], ids=["usual head", "large head"])
def test_a_unary_call_that_the_client_does_not_end_is_ended_after_its_answer(
    fields: tuple[tuple[bytes, bytes], ...],
) -> None:
    server = Server()
    client = server.connect()
    client.begin(*fields)
    client.send(PREFIX.pack(0, 2) + b"hi")
    assert client.calls == [b"hi"]
    pass_message_s(server, client)
    assert b"did not arrive" not in client.sent
    assert not client.connection.has_streams
    assert server.account.used_bytes == 0


def test_a_streaming_call_may_stay_open_without_a_message() -> None:
    server = Server()
    client = server.connect()
    client.begin(path=b"/a.B/Stream")
    server.loop.pass_time(100 * LIMITS.message_s)
    client.connection.drop_overdue(server.loop.now())
    assert client.connection.has_streams
    client.send(PREFIX.pack(0, 2) + b"hi", frames.END_STREAM)
    assert client.calls == [b"hi"]


def test_a_unary_call_whose_answer_waits_is_not_overdue() -> None:
    server = Server()
    client = server.connect()
    client.position = 1  # which the gate has not released
    client.begin()
    client.send(PREFIX.pack(0, 2) + b"hi", frames.END_STREAM)
    server.loop.pass_time(100 * LIMITS.message_s)
    client.connection.drop_overdue(server.loop.now())
    assert client.connection.has_streams
    assert b"did not arrive" not in client.sent


NO_METADATA = [b"/a.B/C", b"/a.B/Stream", b"/a.B/Watch", b"/a.B/Unknown"]
MAX_KEPT_BYTES = 2 * KIB
"""What a call may keep on average: much less than its head has here."""


@pytest.mark.parametrize("path", NO_METADATA)
@pytest.mark.parametrize("name", [b"token", b"grpc-encoding", b"grpc-timeout"])
def test_the_fields_of_a_large_head_are_not_kept(path: bytes, name: bytes) -> None:
    server = Server()
    client = server.connect()
    client.begin(LARGE, path=path)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(LIMITS.max_streams - 1):
            client.begin((name, b"%d" % number + LARGE[1]), path=path)
        del client.sent[:]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < LIMITS.max_streams * MAX_KEPT_BYTES
    assert server.account.used_bytes == 0


def test_large_heads_count_while_a_handler_may_read_their_metadata() -> None:
    server = Server()
    client = server.connect()
    opened: list[int] = []
    while str(Status.RESOURCE_EXHAUSTED.value).encode() not in client.sent:
        assert len(opened) < LIMITS.max_streams
        opened.append(client.number + 2)
        del client.sent[:]
        client.begin(LARGE, path=b"/a.B/Told")
    assert len(client.told) == len(opened) - 1  # the last one was refused before it began
    used_bytes = server.account.used_bytes
    assert LIMITS.max_buffered_bytes - 16 * KIB < used_bytes <= LIMITS.max_buffered_bytes
    assert client.told[0].context.metadata == ((LARGE[0].decode(), LARGE[1].decode()),)
    assert client.send_small_in_two()
    client.number = opened[0]
    client.send(b"", frames.END_STREAM)
    client.told[0].end()
    client.connection.flush()
    assert server.account.used_bytes < used_bytes - len(LARGE[1])
    client.connection.lost()
    assert server.account.used_bytes == 0


def test_heads_of_a_few_kib_are_refused_if_a_server_holds_too_much() -> None:
    server = Server()
    for _ in range(2 * SHARES):
        client = server.connect()
        for _ in range(LIMITS.max_streams):
            client.begin((b"token", b"x" * 3 * KIB), path=b"/a.B/Told")
    assert server.account.used_bytes <= SHARES * LIMITS.max_buffered_bytes


class OpenWeb(PagesOnly):
    """Answers no request."""

    def handle(self, ask: HttpRequest, response: ResponseWriter) -> Any:
        self.response = response
        self.ask = ask._replace(fields=())
        self.names = [name for name, _ in ask.fields]
        return Nothing()


class Nothing:
    ends_by_itself = False

    def gone(self) -> None:
        pass


def test_a_large_head_of_a_web_request_counts_until_it_is_handled() -> None:
    server = Server()
    client = server.connect()
    client.connection.web = web = OpenWeb()
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/watch"), LARGE)
    client.connection.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, literals(fields)))
    client.number = 1
    assert len(LARGE[1]) < server.account.used_bytes < 16 * KIB
    client.send(bytes(10))
    client.send(bytes(10), frames.END_STREAM)
    assert (web.ask.method, web.ask.target, web.ask.body) == (b"POST", b"/v3/watch", bytes(20))
    assert web.names == [LARGE[0]]
    assert client.connection.has_streams
    assert server.account.used_bytes == len(web.ask.body)
    web.response.body_taken()
    assert server.account.used_bytes == 0
    (stream,) = client.connection._streams.values()
    assert isinstance(stream, WebRequest)
    assert stream._fields == ()


@pytest.mark.parametrize("end", ["taken", "answered", "lost"])
def test_a_body_over_http2_counts_until_its_handler_has_taken_it(end: str) -> None:
    server = Server()
    client = server.connect()
    client.connection.web = web = OpenWeb()
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/watch")))
    client.connection.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    client.number = 1
    client.send(bytes(HALF_BYTES), frames.END_STREAM)
    assert server.account.used_bytes == HALF_BYTES
    assert server.account.small_messages == 0
    release(end, web.response, client.connection)
    assert server.account.used_bytes == 0


@pytest.mark.parametrize("end", ["taken", "answered", "lost"])
def test_a_body_over_http1_counts_until_its_handler_has_taken_it(end: str) -> None:
    account = ReceiveAccount(LIMITS)
    web = OpenWeb()
    connection = Http1Connection(web, bytearray().extend, loop=VirtualLoop(), account=account)
    head = b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % HALF_BYTES
    connection.receive(head + bytes(HALF_BYTES))
    assert account.used_bytes == HALF_BYTES
    release(end, web.response, connection)
    assert account.used_bytes == 0


def release(
    end: str, response: ResponseWriter, connection: Http1Connection | ServerConnection
) -> None:
    if end == "taken":
        response.body_taken()
    elif end == "answered":
        response.reply(plain(HTTPStatus.OK, "done"))
    else:
        connection.lost()


def test_web_requests_without_a_body_are_given_up_if_there_are_too_many() -> None:
    server = Server()
    clients = [server.connect() for _ in range(2 * SHARES)]
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v3/kv/put")))
    for client in clients:
        for number in range(LIMITS.max_streams):
            client.connection.receive(
                frames.frame(frames.HEADERS, frames.END_HEADERS, 2 * number + 1, block)
            )
    assert server.account.small_messages == MAX_SMALL
    assert not clients[0].connection.has_streams
    for client in clients:
        client.connection.lost()
    assert (server.account.small_messages, server.account.used_bytes) == (0, 0)


def begin_block(client: Client, size_bytes: int) -> None:
    """Send the first part of a header block, of which the rest does not come."""
    client.connection.receive(frames.frame(frames.HEADERS, 0, 1, bytes(min(size_bytes, 16_000))))
    for at in range(16_000, size_bytes, 16_000):
        piece = bytes(min(16_000, size_bytes - at))
        client.connection.receive(frames.frame(frames.CONTINUATION, 0, 1, piece))


def test_incomplete_header_blocks_count_as_received() -> None:
    server = Server()
    clients = [server.connect() for _ in range(64)]
    for client in clients:
        begin_block(client, 48_000)
    refused = [client for client in clients if client.connection.is_closing]
    assert refused
    assert b"too much received data" in refused[0].sent
    for client in clients:
        client.connection.lost()
    assert server.account.used_bytes == 0


def test_a_header_block_that_is_complete_is_not_counted_any_more() -> None:
    server = Server()
    client = server.connect()
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C"), LARGE))
    client.connection.receive(frames.frame(frames.HEADERS, 0, 1, block[:100]))
    assert server.account.used_bytes == 100
    client.connection.receive(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[100:]))
    assert client.connection._assembly is None
    client.connection.lost()
    assert server.account.used_bytes == 0


def test_a_header_block_that_does_not_go_on_ends_its_connection() -> None:
    server = Server()
    client = server.connect()
    begin_block(client, 100)
    server.loop.pass_time(LIMITS.message_s - 1.0)
    client.connection.drop_overdue(server.loop.now())
    assert b"a header block did not" not in client.sent
    server.loop.pass_time(1.0)
    client.connection.drop_overdue(server.loop.now())
    assert client.connection.is_closing
    assert server.account.used_bytes == 0
    assert b"a header block did not arrive completely within 30 s" in client.sent
    assert NO_MESSAGE not in client.sent


def test_a_usual_head_is_not_counted() -> None:
    server = Server()
    server.connect().begin()
    assert server.account.used_bytes == 0


@pytest.mark.parametrize("path", [b"/v3/kv/put", b"/a.B/C"])
def test_a_request_over_http2_whose_body_never_comes_is_refused(path: bytes) -> None:
    server = Server()
    client = server.connect()
    block = literals(((b":method", b"POST"), (b":scheme", b"http"), (b":path", path)))
    client.connection.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    pass_message_s(server, client)
    is_method = path == b"/a.B/C"  # which is refused, since its content type is missing
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE if is_method else HTTPStatus.REQUEST_TIMEOUT
    assert str(status.value).encode() in client.sent
    assert not client.connection.has_streams


def test_memos_of_an_idle_connection_are_forgotten() -> None:
    client = Server().connect()
    for number in range(MAX_HEADS):
        client.begin((b"a", b"%d" % number))
        client.send(PREFIX.pack(0, 0), frames.END_STREAM)
    assert client.connection._heads
    client.connection.forget_memos()
    assert not client.connection._heads
    assert not client.connection._decoder._memo
    assert client.send_small_in_two()


@pytest.mark.parametrize("timeout", [b"", b"1", b"1x", b"123456789S", b"-1S", b"1 S"])
def test_a_malformed_timeout_is_refused_on_the_short_way_too(timeout: bytes) -> None:
    client = Server().connect()
    for _ in range(2):  # the second time its head is known
        client.begin((b"grpc-timeout", timeout))
        del client.sent[:]
        client.send(PREFIX.pack(0, 0), frames.END_STREAM)
        assert b"malformed grpc-timeout" in client.sent
    assert client.calls == []
