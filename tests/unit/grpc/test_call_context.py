"""Interceptors and handlers read the context of a call; other calls keep their short path."""

import logging
from typing import Any

import pytest

from leasehold.errors import Status, TooBusy
from leasehold.grpc.call_context import CallContext, DoneCallback, Peer
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange, intercept, resolve
from leasehold.http2.hpack import Field
from leasehold.http2.limits import ConnectionLimits
from tests.support import h2_peer
from tests.support.h2_peer import MANY, ONCE, WATCH, Reply, Service, no_leak, request_fields

TOKEN = {"token": "let me in"}


class Guarded(Service):
    """Refuses calls without a token, and records the contexts of all calls."""

    def __init__(self, fails: Exception | None = None) -> None:
        super().__init__()
        self.seen: list[CallContext] = []
        self.refusal = fails or RpcError(Status.UNAUTHENTICATED, "a token is required")
        self.methods = intercept(self.methods, self.check)

    def check(self, context: CallContext) -> None:
        self.seen.append(context)
        if dict(context.metadata).get("token") != "let me in":
            raise self.refusal


def call(peer: h2_peer.Peer, path: str, *messages: bytes, **fields: str) -> Reply:
    number = peer.open(path, end=False, **fields)
    peer.say(number, *messages, end=True)
    peer.pump()
    return peer.reply(number)


@pytest.mark.parametrize("path", [ONCE, MANY, WATCH])
def test_a_call_without_a_token_is_refused_before_its_handler_is_called(path: str) -> None:
    service = Guarded()
    peer = h2_peer.Peer(service)
    for _ in range(3):  # its header block is cached after the first
        reply = call(peer, path, b"hello")
        assert (reply.status, reply.why) == (Status.UNAUTHENTICATED, "a token is required")
    assert (len(service.seen), service.heard, service.ears) == (3, [], [])
    assert no_leak(peer.server)


@pytest.mark.parametrize("path", [ONCE, MANY, WATCH])
def test_a_refusal_does_not_wait_for_the_message(path: str) -> None:
    peer = h2_peer.Peer(Guarded())
    number = peer.open(path)
    peer.pump()
    assert peer.reply(number).status == Status.UNAUTHENTICATED
    assert no_leak(peer.server)


def test_calls_with_a_token_are_answered() -> None:
    service = Guarded()
    peer = h2_peer.Peer(service)
    for _ in range(3):
        assert call(peer, ONCE, b"hello", **TOKEN).messages == [b"hello"]
        assert call(peer, MANY, b"a", b"b", **TOKEN).messages == [b"a", b"b"]
        assert call(peer, ONCE, b"hello").status == Status.UNAUTHENTICATED
    call(peer, WATCH, b"listen", **TOKEN)
    assert len(service.ears) == 1
    assert [each.path for each in service.seen] == [ONCE, MANY, ONCE] * 3 + [WATCH]
    assert no_leak(peer.server)


def test_an_interceptor_reads_metadata_peer_and_deadline() -> None:
    service = Guarded()
    peer = h2_peer.Peer(service)
    began = peer.loop.now()
    call(peer, ONCE, b"hello", grpc_timeout="3S", **TOKEN)
    call(peer, ONCE, b"hello", **TOKEN)
    timed, untimed = service.seen
    assert timed.metadata == untimed.metadata == (("token", "let me in"),)
    assert (timed.timeout_s, timed.deadline) == (3.0, began + 3.0)
    assert (untimed.timeout_s, untimed.deadline) == (None, None)
    assert timed.peer is untimed.peer is peer.server.peer
    assert timed.peer.certificate is None


def test_a_malformed_timeout_is_refused_before_the_interceptor_is_called() -> None:
    service = Guarded()
    reply = call(h2_peer.Peer(service), ONCE, b"hello", grpc_timeout="soon", **TOKEN)
    assert (reply.status, service.seen, service.heard) == (Status.INTERNAL, [], [])


def test_errors_of_leasehold_have_their_own_status() -> None:
    reply = call(h2_peer.Peer(Guarded(TooBusy("come back later"))), ONCE, b"hello")
    assert (reply.status, reply.why) == (TooBusy.status, "leasehold: come back later")


def test_the_text_of_an_unexpected_exception_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        reply = call(h2_peer.Peer(Guarded(OSError("the secret"))), ONCE, b"hello")
    assert reply.status == Status.INTERNAL
    assert "secret" not in reply.why
    assert "the secret" in caplog.text


def test_a_refusal_is_counted_as_a_call_that_failed() -> None:
    service = Guarded()
    peer = h2_peer.Peer(service)
    call(peer, ONCE, b"hello")
    call(peer, ONCE, b"hello", **TOKEN)
    counts = service.methods[ONCE].counts
    assert (counts.begun, counts.ended) == (2, 2)
    assert counts.failures == {Status.UNAUTHENTICATED: 1}


def test_large_headers_count_as_received_data_while_the_call_lasts() -> None:
    service = Guarded()
    peer = h2_peer.Peer(service)
    number = peer.open(ONCE, end=False, x_large="x" * 5_000, **TOKEN)
    peer.pump()
    assert peer.server.account.used_bytes > 5_000
    peer.say(number, b"hello", end=True)
    peer.pump()
    assert peer.reply(number).messages == [b"hello"]
    assert peer.server.account.used_bytes == 0
    assert no_leak(peer.server)


def test_messages_that_do_not_fit_into_a_frame_are_intercepted_as_well() -> None:
    service = Guarded()
    peer = h2_peer.Peer(service, limits=ConnectionLimits(max_message_bytes=10_000))
    assert call(peer, ONCE, b"x" * 9_000, **TOKEN).messages == [b"x" * 9_000]
    assert call(peer, ONCE, b"x" * 9_000).status == Status.UNAUTHENTICATED
    assert len(service.heard) == 1


class Asking(Service):
    """Its unary handler, and its stream of exchanges, are called with the context."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[CallContext] = []
        self.methods[ONCE] = Exchange(self.answer, reads_context=True)
        self.methods[MANY] = Exchange(self.answer, is_unary=False, reads_context=True)

    def answer(self, message: bytes, context: CallContext) -> Answer:
        self.seen.append(context)
        return message, 0


@pytest.mark.parametrize("path", [ONCE, MANY])
def test_a_handler_that_reads_the_context_is_called_with_it(path: str) -> None:
    service = Asking()
    peer = h2_peer.Peer(service)
    for index in range(3):
        assert call(peer, path, b"hello", x_index=str(index)).messages == [b"hello"]
        assert service.seen[-1].metadata == (("x-index", str(index)),)
        assert service.seen[-1].path == path
    assert no_leak(peer.server)


def _head_of(service: Service, path: str) -> tuple[bool, bool, bool]:
    fields = tuple(Field(name.encode(), value.encode()) for name, value in request_fields(path))
    head = resolve(fields, service.methods)
    return head.begins_short, head.is_short, head.keeps_fields


def test_without_an_interceptor_a_plain_call_is_short_and_keeps_no_fields() -> None:
    assert _head_of(Service(), ONCE) == (True, True, False)


def test_an_intercepted_call_still_passes_its_message_the_short_way() -> None:
    assert _head_of(Guarded(), ONCE) == (False, True, True)


def test_a_handler_that_reads_the_context_is_never_called_the_short_way() -> None:
    assert _head_of(Asking(), ONCE) == (False, False, True)


def test_a_peer_without_a_transport_has_no_certificate() -> None:
    assert (Peer().address, Peer().certificate) == ("a Unix socket", None)


# The done callback.


class Traced(Service):
    """Records the end of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.done: list[tuple[str, Status]] = []
        self.callback_fails: Exception | None = None
        self.methods = intercept(self.methods, self.begin)

    def begin(self, context: CallContext) -> DoneCallback:
        self.begun.append(context.path)
        return lambda status: self.end(context, status)

    def end(self, context: CallContext, status: Status) -> None:
        self.done.append((context.path, status))
        if self.callback_fails is not None:
            raise self.callback_fails


every_kind = pytest.mark.parametrize("path", [ONCE, MANY, WATCH])


@every_kind
def test_the_done_callback_is_called_once_with_ok(path: str) -> None:
    service = Traced()
    peer = h2_peer.Peer(service)
    for _ in range(3):
        call(peer, path, b"hello")
    peer.server.lost()
    assert service.begun == [path] * 3
    assert service.done == [(path, Status.OK)] * 3
    assert service.methods[path].counts.succeeded == 3


@every_kind
def test_the_done_callback_is_called_with_the_status_of_a_failed_call(path: str) -> None:
    service = Traced()
    service.fails = RpcError(Status.NOT_FOUND, "not here")
    peer = h2_peer.Peer(service)
    assert call(peer, path, b"hello").status == Status.NOT_FOUND
    service.fails = ValueError("unexpected")
    assert call(peer, path, b"hello").status == Status.INTERNAL
    assert service.done == [(path, Status.NOT_FOUND), (path, Status.INTERNAL)]
    assert service.methods[path].counts.failures == {Status.NOT_FOUND: 1, Status.INTERNAL: 1}


@every_kind
@pytest.mark.parametrize("messages", [(), (b"hello",)])
def test_the_done_callback_is_called_when_the_client_resets_the_call(
    path: str, messages: tuple[bytes, ...]
) -> None:
    service = Traced()
    service.position = 1
    peer = h2_peer.Peer(service)
    number = peer.open(path)
    peer.say(number, *messages)
    peer.pump()
    assert service.done == []
    peer.client.reset_stream(number)
    peer.pump()
    assert service.done == [(path, Status.CANCELLED)]
    peer.release(1)
    assert service.done == [(path, Status.CANCELLED)], "the answer was held for a call that is over"
    assert no_leak(peer.server)


@every_kind
def test_the_done_callback_is_called_when_the_server_resets_the_call(path: str) -> None:
    service = Traced()
    peer = h2_peer.RawPeer(service)
    peer.send(peer.request(1, path))
    peer.reset(peer.request(1, path))  # a second HEADERS frame that does not end the stream
    assert service.done == [(path, Status.CANCELLED)]


@every_kind
def test_the_done_callback_is_called_when_the_connection_is_lost(path: str) -> None:
    service = Traced()
    service.position = 1
    peer = h2_peer.Peer(service)
    peer.begin(path=path)
    service.ends_when_client_does = False
    peer.pump()
    assert service.done == []
    peer.server.lost()
    assert service.done == [(path, Status.CANCELLED)]


@every_kind
def test_the_done_callback_is_called_when_the_server_closes(path: str) -> None:
    service = Traced()
    peer = h2_peer.Peer(service)
    number = peer.open(path)
    peer.pump()
    peer.server.dismiss(RpcError(Status.UNAVAILABLE, "the server is stopping"))
    peer.pump()
    assert peer.reply(number).status == Status.UNAVAILABLE
    assert service.done == [(path, Status.UNAVAILABLE)]


@pytest.mark.parametrize("path", [MANY, WATCH])
def test_the_done_callback_is_called_when_the_deadline_has_passed(path: str) -> None:
    service = Traced()
    peer = h2_peer.Peer(service)
    number = peer.open(path, grpc_timeout="3S")
    peer.say(number, b"hello")
    peer.pump()
    peer.loop.pass_time(2.9)
    assert service.done == []
    peer.loop.pass_time(0.2)
    assert service.done == [(path, Status.DEADLINE_EXCEEDED)]


@pytest.mark.parametrize("path", [ONCE, MANY])
def test_the_done_callback_waits_until_the_answer_is_sent(path: str) -> None:
    service = Traced()
    service.position = 1
    peer = h2_peer.Peer(service)
    assert call(peer, path, b"hello").messages == []
    assert service.done == [], "the answer is not on disk"
    peer.takes_data = False
    number = peer.begin(bytes(100_000), path)
    peer.release(1)
    assert service.done == [(path, Status.OK)], "the window has no room for the second answer"
    assert len(peer.reply(number).body) < 100_000
    peer.client.increment_flow_control_window(100_000)
    peer.client.increment_flow_control_window(100_000, number)
    peer.pump()
    assert peer.reply(number).messages == [bytes(100_000)]
    assert service.done == [(path, Status.OK)] * 2


def test_a_message_that_is_too_long_ends_a_call_with_its_status() -> None:
    service = Traced()
    peer = h2_peer.Peer(service, limits=ConnectionLimits(max_message_bytes=100))
    assert call(peer, ONCE, bytes(101)).status == Status.RESOURCE_EXHAUSTED
    assert service.done == [(ONCE, Status.RESOURCE_EXHAUSTED)]


def test_a_done_callback_that_fails_affects_no_call(caplog: pytest.LogCaptureFixture) -> None:
    service = Traced()
    service.callback_fails = OSError("no route to the collector")
    peer = h2_peer.Peer(service)
    with caplog.at_level(logging.ERROR):
        assert call(peer, ONCE, b"hello").messages == [b"hello"]
        assert call(peer, MANY, b"a", b"b").messages == [b"a", b"b"]
    assert len(service.done) == 2
    assert caplog.messages == [
        f"the done callback of a call of {each} failed" for each in (ONCE, MANY)
    ]
    assert no_leak(peer.server)


@every_kind
def test_a_result_that_cannot_be_called_fails_the_call(path: str) -> None:
    """As of a coroutine function, which would check nothing."""
    service = Service()
    check: Any = lambda _context: "a coroutine"  # noqa: E731
    service.methods = intercept(service.methods, check)
    peer = h2_peer.Peer(service)
    assert call(peer, path, b"hello").status == Status.INTERNAL
    assert (service.heard, service.ears) == ([], [])
