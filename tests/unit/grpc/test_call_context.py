"""Interceptors and handlers read the context of a call; other calls keep their short path."""

import logging

import pytest

from leasehold.errors import Status, TooBusy
from leasehold.grpc.call_context import CallContext, Peer
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
    began = peer.host.now()
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
