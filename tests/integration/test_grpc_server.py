"""The server on real sockets and both event loops, with `grpcio` and `http.client` as clients.

The server runs in a thread of its own, so that the clients are what users have: blocking calls, and
a C core that knows nothing of ours.
"""

import asyncio
import http.client
import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from typing import Any, Final

import grpc
import pytest
import uvloop

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import PagesOnly, Reply
from leasehold.grpc.protocol import RpcError, framed
from leasehold.http1.http1_messages import MAX_HEAD_BYTES
from leasehold.http2 import frames
from leasehold.serving.server_protocol import ServerProtocol, SharedState
from tests.support.h2_peer import MANY, ONCE, WATCH, RawPeer, Service, split_frames

DEADLINE_S: Final = 60.0
BIG: Final = bytes(range(256)) * 7_600  # 1.9 MiB
GET: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

Run = Callable[[Coroutine[Any, Any, None]], None]
Channel = Any
"""A `grpc.Channel`, whose stubs ask for serializers that bytes do not need."""


class Running:
    """A server in a thread of its own; `do` runs a function in its event loop."""

    def __init__(self, run: Run) -> None:
        self.service = Service()
        self.gate = DurabilityGate()
        self.site = SharedState(
            self.service.methods, PagesOnly({"/health": _health}), self.gate, lambda: None
        )
        self.port = 0
        self._run = run
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._done: asyncio.Event
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(DEADLINE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _main(self) -> None:
        self._run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(
            lambda: ServerProtocol(self.site), "127.0.0.1", 0, backlog=100
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._done.wait()
        server.close()
        for protocol in list(self.site.connections):
            protocol.cut_off()
        async with asyncio.timeout(DEADLINE_S):
            # connection_lost comes with one of the next turns, and there is no event for it
            while self.site.connections:  # noqa: ASYNC110
                await asyncio.sleep(0)

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        async def call() -> Any:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(DEADLINE_S)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something in the server, or fail."""
        until = time.monotonic() + DEADLINE_S
        while not self.do(condition):
            assert time.monotonic() < until, "it never came true"
            time.sleep(0.002)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)

    def only_protocol(self) -> ServerProtocol:
        [protocol] = self.site.connections
        return protocol


def _health() -> Reply:
    return Reply(HTTPStatus.OK, "text/plain", b"healthy")


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(request.param)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def channel(server: Running) -> Iterator[Channel]:
    with _channel(server.port) as channel:
        yield channel


def _channel(port: int) -> Channel:
    """Connect; channels share no connection, so that no test sees that of another."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])


def _call(channel: Channel, message: bytes, path: str = ONCE, **options: Any) -> bytes:
    answer = channel.unary_unary(path)(message, timeout=DEADLINE_S, **options)
    assert isinstance(answer, bytes)
    return answer


def _error(channel: Channel, path: str = ONCE) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.RpcError) as caught:
        _call(channel, b"x", path)
    return caught.value.code(), caught.value.details()


# gRPC.


def test_unary_calls_are_answered(channel: Channel) -> None:
    for index in range(100):
        assert _call(channel, b"%d" % index) == b"%d" % index


def test_many_calls_at_once_are_answered(channel: Channel) -> None:
    method = channel.unary_unary(ONCE)
    futures = [method.future(b"%d" % index, timeout=DEADLINE_S) for index in range(300)]
    assert [one.result() for one in futures] == [b"%d" % index for index in range(300)]


def test_a_stream_of_exchanges_is_a_conversation(channel: Channel) -> None:
    asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    answers = channel.stream_stream(MANY)(iter(asked.get, None), timeout=DEADLINE_S)
    for index in range(50):
        asked.put(b"%d" % index)
        assert next(answers) == b"%d" % index
    asked.put(None)
    assert list(answers) == []
    assert answers.code() == grpc.StatusCode.OK


def test_a_subscription_hears_what_is_said_later(server: Running, channel: Channel) -> None:
    server.service.ends_when_client_does = False
    events = channel.unary_stream(WATCH)(b"what?", timeout=DEADLINE_S)
    server.wait_until(lambda: bool(server.service.ears) and server.service.ears[0].heard_all != [])
    [ear] = server.service.ears
    for position in (1, 2, 3):
        server.do(ear.stream.send_message, b"event %d" % position, position)
        server.do(server.gate.release, position)
        assert next(events) == b"event %d" % position
    server.do(ear.stream.end, RpcError(Status.ABORTED, "enough", 4))
    server.do(server.gate.release, 4)
    with pytest.raises(grpc.RpcError):
        next(events)
    assert (events.code(), events.details()) == (grpc.StatusCode.ABORTED, "enough")


def test_an_answer_waits_for_the_gate(server: Running, channel: Channel) -> None:
    server.service.position = 1
    future = channel.unary_unary(ONCE).future(b"held", timeout=DEADLINE_S)
    server.wait_until(lambda: len(server.gate) == 1)
    assert not future.done()
    server.do(server.gate.release, 1)
    assert future.result(DEADLINE_S) == b"held"


@pytest.mark.parametrize("why", ["plain", "grüße, 100 % \N{SNOWMAN}\n", " spaces ", "x" * 3_000])
def test_an_error_keeps_its_words(server: Running, channel: Channel, why: str) -> None:
    server.service.fails = RpcError(Status.FAILED_PRECONDITION, why)
    assert _error(channel) == (grpc.StatusCode.FAILED_PRECONDITION, why)


def test_what_is_unknown_is_unimplemented(channel: Channel) -> None:
    unimplemented = grpc.StatusCode.UNIMPLEMENTED
    assert _error(channel, "/no.Service/No") == (unimplemented, "unknown service no.Service")
    assert _error(channel, "/test.Service/No") == (
        unimplemented,
        "unknown method No for service test.Service",
    )


def test_big_messages_go_both_ways(channel: Channel) -> None:
    assert _call(channel, BIG) == BIG
    answers = channel.stream_stream(MANY)(iter([BIG] * 12), timeout=DEADLINE_S)
    assert [answer == BIG for answer in answers] == [True] * 12


def test_a_message_too_big_is_refused_and_the_connection_kept(channel: Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _call(channel, bytes(2 * 1024 * 1024 + 1))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _call(channel, b"next") == b"next"


def test_metadata_and_credentials_are_ignored(channel: Channel) -> None:
    metadata = (("x-number", "1"), ("x-bin", b"\0\xff"), ("authorization", "Basic abc"))
    for index in range(5):
        more = (*metadata, ("x-changing", str(index)))
        assert _call(channel, b"hello", metadata=more) == b"hello"


def test_gzip_is_understood_and_answered(channel: Channel) -> None:
    message = b"".join(b"%d " % number for number in range(3_000))
    assert _call(channel, message, compression=grpc.Compression.Gzip) == message
    assert _call(channel, b"plain") == b"plain"


def test_compression_that_we_do_not_have_is_said_to_be_missing(channel: Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _call(channel, bytes(10_000), compression=grpc.Compression.Deflate)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert _call(channel, b"plain") == b"plain"


def test_a_call_cancelled_while_held_leaves_nothing(server: Running, channel: Channel) -> None:
    server.service.position = 1
    future = channel.unary_unary(ONCE).future(b"held", timeout=DEADLINE_S)
    server.wait_until(lambda: len(server.gate) == 1)
    connection = server.do(lambda: server.only_protocol()._speaks)
    assert len(connection._streams) == 1
    future.cancel()
    server.wait_until(lambda: not connection._streams)
    server.do(server.gate.release, 1)
    assert _call(channel, b"next") == b"next"


def test_a_listener_learns_once_that_its_client_has_cancelled_or_is_gone(server: Running) -> None:
    server.service.ends_when_client_does = False
    with _channel(server.port) as channel:
        first = channel.unary_stream(WATCH)(b"1", timeout=DEADLINE_S)
        server.wait_until(lambda: len(server.service.ears) == 1)
        second = channel.unary_stream(WATCH)(b"2", timeout=DEADLINE_S)
        server.wait_until(lambda: len(server.service.ears) == 2)
        first.cancel()
        server.wait_until(lambda: server.service.ears[0].gone_times == 1)
        assert server.service.ears[1].gone_times == 0
        assert second.is_active()
    server.wait_until(lambda: not server.site.connections)
    assert [ear.gone_times for ear in server.service.ears] == [1, 1]


def test_calls_of_several_channels_do_not_mix(server: Running) -> None:
    channels = [_channel(server.port) for _ in range(5)]
    for turn, (index, channel) in itertools.product(range(10), enumerate(channels)):
        assert _call(channel, b"%d %d" % (turn, index)) == b"%d %d" % (turn, index)
    assert server.do(lambda: len(server.site.connections)) == 5
    for channel in channels:
        channel.close()
    server.wait_until(lambda: not server.site.connections)


# The same port, HTTP/1.1.


def test_pages_are_answered_on_one_kept_connection(server: Running) -> None:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    for method, target, status, body in [
        ("GET", "/health", 200, b"healthy"),
        ("HEAD", "/health", 200, b""),
        ("GET", "/other", 404, b"404 Not Found\n"),
        ("DELETE", "/health", 405, b"405 Method Not Allowed\n"),
        ("GET", "/health?x=1", 200, b"healthy"),
    ]:
        client.request(method, target)
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (status, body)
        answer.close()
    assert server.do(lambda: len(server.site.connections)) == 1
    client.close()
    server.wait_until(lambda: not server.site.connections)


def _read_until_closed(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65_536), b""))


def test_requests_may_be_pipelined_and_the_last_may_close(server: Running) -> None:
    with server.connect() as client:
        client.sendall(
            GET * 50 + GET.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close")
        )
        assert _read_until_closed(client).count(b"healthy") == 51


def test_a_request_may_come_octet_by_octet(server: Running) -> None:
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in GET.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"):
            client.sendall(bytes((byte,)))
        assert _read_until_closed(client).endswith(b"healthy")


def test_a_head_too_large_is_431_and_closes(server: Running) -> None:
    with server.connect() as client:
        client.sendall(GET[:-2] + b"X: " + b"x" * MAX_HEAD_BYTES)
        assert _read_until_closed(client).startswith(b"HTTP/1.1 431 ")


# BytesOrText.


def test_the_preface_may_come_octet_by_octet(server: Running) -> None:
    data = frames.PREFACE + frames.settings({}) + RawPeer().unary(1)
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            client.sendall(bytes((byte,)))
        received = b""
        while framed(b"hello") not in received:
            got = client.recv(65_536)
            assert got
            received += got


def test_what_begins_like_the_preface_but_is_not_is_told_in_http2(server: Running) -> None:
    with server.connect() as client:
        client.sendall(frames.PREFACE[:-4] + b"XX\r\n")
        last = split_frames(_read_until_closed(client))[-1]
        assert (last.kind, last.code) == (frames.GOAWAY, frames.ErrorCode.PROTOCOL_ERROR)


def test_what_begins_like_the_first_line_of_the_preface_only_is_no_request(
    server: Running,
) -> None:
    with server.connect() as client:
        client.sendall(b"PRI / HTTP/2.0\r\n\r\n")
        assert _read_until_closed(client).startswith(b"HTTP/1.1 400 ")


def test_a_broken_rule_is_told_and_the_connection_closed(server: Running) -> None:
    with server.connect() as client:
        client.sendall(frames.PREFACE + frames.settings({}) + frames.frame(frames.PING, 0, 3))
        received = _read_until_closed(client)
        assert b"PING must be on stream 0" in received
    server.wait_until(lambda: not server.site.connections)


def _fill(
    client: socket.socket, raw: RawPeer, message: bytes, is_paused: Callable[[], bool]
) -> int:
    """Make calls until the server takes no more, and all buffers are full; give their bytes."""
    calls = (raw.unary(number, message) for number in range(1, 20_001, 2))
    pending, sent, until = next(calls), 0, time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        try:
            done = client.send(pending)
        except BlockingIOError:
            if is_paused():
                return sent
            continue
        sent += done
        pending = pending[done:] or next(calls)
    raise AssertionError("the server reads on and on")


def test_a_client_that_reads_nothing_is_not_read_any_more(server: Running) -> None:
    raw = RawPeer()
    message = bytes(16_000)
    opened = frames.window_update(0, 2**31 - 1 - frames.DEFAULT_WINDOW)
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.sendall(frames.PREFACE + frames.settings({}) + opened)
        server.wait_until(lambda: len(server.site.connections) == 1)
        protocol = server.do(server.only_protocol)
        client.setblocking(False)
        sent = _fill(client, raw, message, lambda: server.do(lambda: protocol._is_paused))
        waiting = server.do(protocol._transport.get_write_buffer_size)
        assert waiting < sent
        assert waiting < 2 * 1024 * 1024, "one reading and the high-water mark, not more"


def test_a_client_that_reads_again_is_served_again(server: Running) -> None:
    raw = RawPeer()
    count, message = 1_000, bytes(16_000)
    opened = frames.window_update(0, 2**31 - 1 - frames.DEFAULT_WINDOW)
    calls = b"".join(raw.unary(2 * index + 1, message) for index in range(count))
    with server.connect() as client:
        writer = threading.Thread(
            target=client.sendall, args=(frames.PREFACE + frames.settings({}) + opened + calls,)
        )
        writer.start()
        server.wait_until(lambda: any(protocol._is_paused for protocol in server.site.connections))
        expected = count * len(framed(message))
        received = 0
        while received < expected:
            got = client.recv(1 << 20)
            assert got
            received += len(got)
        writer.join(DEADLINE_S)
        assert not writer.is_alive()
        server.wait_until(lambda: len(server.service.heard) == count)


def _watch_with_wide_windows(server: Running, client: socket.socket) -> None:
    """Subscribe as a client that no window keeps from getting everything."""
    opened = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 2**31 - 1})
    opened += frames.window_update(0, 2**31 - 1 - frames.DEFAULT_WINDOW)
    client.sendall(frames.PREFACE + opened + RawPeer().request(1, WATCH))
    server.wait_until(lambda: len(server.service.ears) == 1)


def test_events_for_a_client_that_reads_nothing_are_bounded(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.serving.server_protocol.MAX_UNREAD_BYTES", 1_000_000)
    with server.connect() as client:
        _watch_with_wide_windows(server, client)
        [ear] = server.service.ears
        for position in range(1, 2_000):
            server.do(ear.stream.send_message, bytes(50_000), position)
            server.do(server.gate.release, position)
            if ear.gone_times:
                break
    assert ear.gone_times == 1
    server.wait_until(lambda: not server.site.connections)


def test_a_client_that_broke_a_rule_and_reads_nothing_is_not_waited_for(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.serving.server_protocol.MAX_LINGER_S", 0.05)
    with server.connect() as client:
        _watch_with_wide_windows(server, client)
        protocol = server.do(server.only_protocol)
        stream = server.service.ears[0].stream
        server.do(stream.send_message, bytes(20_000_000), 0)
        server.do(stream.flush)
        server.wait_until(lambda: protocol._is_paused)

        def break_a_rule() -> int:
            protocol.data_received(frames.frame(frames.PING, 0, 3))
            waiting: int = protocol._transport.get_write_buffer_size()
            return waiting

        assert server.do(break_a_rule) > 0  # in one turn: a moment later it is cut off
        server.wait_until(lambda: not server.site.connections)


def test_good_bye_lets_what_was_said_arrive(server: Running) -> None:
    raw = RawPeer()
    with server.connect() as client:
        client.sendall(frames.PREFACE + frames.settings({}) + raw.unary(1))
        server.wait_until(lambda: bool(server.service.heard))
        server.do(lambda: server.only_protocol().good_bye(RpcError(Status.UNAVAILABLE, "stop")))
        received = _read_until_closed(client)
    assert framed(b"hello") in received
    assert received[-17:] == frames.goaway(1, frames.ErrorCode.NO_ERROR)
