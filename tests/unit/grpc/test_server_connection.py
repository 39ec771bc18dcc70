"""A connection of a server with calls of gRPC, as a client sees it: answers and errors."""

import gzip
import logging
from http import HTTPStatus

import hpack
import pytest

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import MAX_BODY_BYTES, PagesOnly
from leasehold.grpc.http_handlers import Reply as Page
from leasehold.grpc.protocol import (
    COMPRESS_FROM_BYTES,
    PREFIX,
    PREFIX_BYTES,
    RpcError,
    compress,
    framed,
)
from leasehold.grpc.routes import ServerStream, Subscription
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from tests.support.h2_peer import (
    MANY,
    ONCE,
    WATCH,
    Ear,
    Peer,
    RawPeer,
    no_leak,
)
from tests.support.virtual_loop import VirtualLoop

frame = frames.frame
LIMITS = ConnectionLimits()


# Calls.


def test_a_unary_call_is_answered_with_one_message_and_status_0(peer: Peer) -> None:
    reply = peer.call(b"hello")
    assert reply.head == {":status": "200", "content-type": "application/grpc"}
    assert (reply.messages, reply.trailers) == ([b"hello"], {"grpc-status": "0"})
    assert (reply.is_ended, reply.reset) == (True, None)
    assert no_leak(peer.server)


def test_later_answers_read_the_same_as_the_first(peer: Peer) -> None:
    first = peer.call(b"same")
    assert [peer.call(b"same") for _ in range(5)] == [first] * 5


@pytest.mark.parametrize("message", [b"", b"\0", b"x" * 16_000, b"x" * 100_000])
def test_messages_of_any_length_come_back(peer: Peer, message: bytes) -> None:
    assert peer.call(message).messages == [message]
    assert peer.call(message).messages == [message]


def test_several_calls_in_one_piece_are_all_answered(peer: Peer) -> None:
    numbers = [peer.begin(b"%d" % index) for index in range(200)]
    peer.pump()
    assert [peer.reply(number).messages for number in numbers] == [
        [b"%d" % index] for index in range(200)
    ]
    assert no_leak(peer.server)


def test_a_call_may_come_octet_by_octet(raw: RawPeer) -> None:
    whole = RawPeer().send(raw.unary(1))
    pieces = RawPeer()
    sent = [pieces.send(bytes((byte,))) for byte in pieces.unary(1)]
    assert not any(sent[:-1])
    assert sent[-1] == whole


def test_an_answer_that_must_wait_leaves_when_its_position_is_released(peer: Peer) -> None:
    peer.call()
    peer.service.position = 7
    number = peer.begin(b"held")
    peer.pump()
    peer.release(6)
    assert not peer.reply(number).head
    peer.release(7)
    assert peer.reply(number).messages == [b"held"]
    assert no_leak(peer.server)


def test_the_first_answer_of_a_connection_may_wait_too(peer: Peer) -> None:
    peer.service.position = 1
    number = peer.begin(b"held")
    peer.pump()
    peer.release(1)
    assert (peer.reply(number).messages, peer.reply(number).status) == ([b"held"], 0)


def test_a_held_answer_does_not_hold_those_that_need_not_wait(peer: Peer) -> None:
    peer.service.position = 1
    held = peer.begin()
    peer.pump()
    peer.service.position = 0
    assert peer.call(b"at once").messages == [b"at once"]
    assert not peer.reply(held).is_ended


def test_an_answer_larger_than_the_windows_may_wait_for_the_gate_and_then_for_them(
    peer: Peer,
) -> None:
    peer.call()
    peer.service.position = 1
    number = peer.begin(b"x" * 300_000)
    peer.pump()
    peer.release(1)
    assert peer.reply(number).messages == [b"x" * 300_000]
    assert no_leak(peer.server)


# Errors.


def test_an_error_raised_is_the_only_block_of_the_answer(peer: Peer) -> None:
    peer.service.fails = RpcError(Status.NOT_FOUND, "no such lease: 100 % sure, ü")
    reply = peer.call()
    assert (reply.head[":status"], reply.status) == ("200", Status.NOT_FOUND)
    assert reply.why == "no such lease: 100 %25 sure, %C3%BC"
    assert (reply.body, reply.trailers, reply.is_ended) == (b"", {}, True)
    assert no_leak(peer.server)


def test_an_error_waits_for_its_position(peer: Peer) -> None:
    peer.service.fails = RpcError(Status.NOT_FOUND, "gone", position=3)
    number = peer.begin()
    peer.pump()
    peer.release(2)
    assert not peer.reply(number).is_ended
    peer.release(3)
    assert peer.reply(number).status == Status.NOT_FOUND
    assert no_leak(peer.server)


def test_an_unexpected_failure_is_internal_says_no_secret_and_is_logged(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.service.fails = ZeroDivisionError("secret")
    reply = peer.call()
    assert reply.status == Status.INTERNAL
    assert "secret" not in reply.why
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is peer.service.fails


@pytest.mark.parametrize("path", [ONCE, MANY, WATCH])
@pytest.mark.parametrize("error", [RpcError(Status.ABORTED, "no"), ValueError("no")])
def test_a_failure_in_any_kind_of_method_ends_the_call_and_not_the_connection(
    peer: Peer, path: str, error: Exception
) -> None:
    peer.service.fails = error
    number = peer.open(path)
    peer.say(number, b"one")
    peer.pump()
    expected = Status.ABORTED if isinstance(error, RpcError) else Status.INTERNAL
    assert peer.reply(number).status == expected
    peer.service.fails = None
    assert peer.call(b"next").messages == [b"next"]
    assert no_leak(peer.server)


def test_a_subscription_that_fails_to_open_ends_the_call_and_not_the_connection(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.service.open_fails = ValueError("secret")
    number = peer.open(WATCH)
    peer.pump()
    assert peer.reply(number).status == Status.INTERNAL
    assert "the handler of /test.Service/Watch failed" in caplog.text
    assert peer.call(b"next").messages == [b"next"]
    assert no_leak(peer.server)


def test_a_subscription_may_refuse_to_open(peer: Peer) -> None:
    peer.service.open_fails = RpcError(Status.RESOURCE_EXHAUSTED, "too many")
    number = peer.open(WATCH)
    peer.say(number, b"first")
    peer.pump()
    assert (peer.reply(number).status, peer.reply(number).why) == (8, "too many")
    assert no_leak(peer.server)


def test_a_listener_that_fails_at_the_end_of_the_client_ends_the_call_only(peer: Peer) -> None:
    peer.service.ended_fails = ValueError("secret")
    number = peer.open(WATCH, end=True)
    peer.pump()
    assert peer.reply(number).status == Status.INTERNAL
    assert peer.call(b"next").messages == [b"next"]


def test_a_listener_that_fails_when_it_is_gone_keeps_nobody_else_from_hearing(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.service.gone_fails = ValueError("secret")
    for _ in range(3):
        peer.open(WATCH)
    peer.pump()
    peer.server.lost()
    assert [ear.gone_times for ear in peer.service.ears] == [1, 1, 1]
    assert "the handler of /test.Service/Watch failed" in caplog.text


class Neighbour(Ear):
    """Ends its neighbours' calls when it is gone, as the last of a room puts out the light."""

    def gone(self) -> None:
        super().gone()
        for ear in self.service.ears:
            if ear is not self:
                ear.stream.end()
                ear.stream.flush()


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_listener_that_ends_others_when_it_is_gone_keeps_nobody_from_hearing(
    peer: Peer, *, is_lost: bool
) -> None:
    def listen(stream: ServerStream) -> Ear:
        peer.service.ears.append(Neighbour(peer.service, stream))
        return peer.service.ears[-1]

    peer.service.methods[WATCH] = Subscription(listen)
    for _ in range(4):
        peer.open(WATCH)
    peer.pump()
    if is_lost:
        peer.server.lost()
    else:
        peer.server.close(ErrorCode.PROTOCOL_ERROR)
    assert [ear.gone_times for ear in peer.service.ears] == [1, 1, 1, 1]
    assert no_leak(peer.server)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/test.Service/Nothing", "unknown method Nothing for service test.Service"),
        ("/other.Service/Once", "unknown service other.Service"),
        ("/", "unknown service%20"),
        ("/nonsense", "unknown service nonsense"),
    ],
)
def test_an_unknown_method_is_unimplemented(peer: Peer, path: str, why: str) -> None:
    reply = peer.call(path=path)
    assert (reply.status, reply.why) == (Status.UNIMPLEMENTED, why)
    assert no_leak(peer.server)


def test_another_method_than_post_is_405(peer: Peer) -> None:
    number = peer.open(method="GET", end=True)
    peer.pump()
    reply = peer.reply(number)
    assert (reply.head[":status"], reply.is_ended) == ("405", True)
    assert reply.body == b"405 gRPC calls are made with POST\n"
    assert int(reply.head["content-length"]) == len(reply.body)
    assert no_leak(peer.server)


def test_a_path_that_is_no_method_is_a_page_that_is_not_there(peer: Peer) -> None:
    number = peer.open("/favicon.ico", method="GET", end=True)
    peer.pump()
    reply = peer.reply(number)
    assert (reply.head[":status"], reply.body) == ("404", b"404 Not Found\n")
    assert "grpc-status" not in reply.head
    assert no_leak(peer.server)


def test_a_page_is_answered_once_its_request_has_ended() -> None:
    pages = {"/health": lambda: Page(HTTPStatus.OK, "text/plain", b"healthy")}
    peer = Peer(pages=pages)
    number = peer.open("/health?full=1", method="GET")
    peer.pump()
    assert peer.reply(number).head == {}
    peer.client.end_stream(number)
    peer.pump()
    reply = peer.reply(number)
    assert reply.head == {
        ":status": "200",
        "content-type": "text/plain",
        "date": "Thu, 01 Jan 1970 00:00:00 GMT",
        "content-length": "7",
    }
    assert (reply.body, reply.is_ended, reply.reset) == (b"healthy", True, None)
    assert no_leak(peer.server)


def test_head_is_answered_without_the_body_but_with_its_length() -> None:
    peer = Peer(pages={"/health": lambda: Page(HTTPStatus.OK, "text/plain", b"healthy")})
    number = peer.open("/health", method="HEAD", end=True)
    peer.pump()
    reply = peer.reply(number)
    assert (reply.head["content-length"], reply.body, reply.is_ended) == ("7", b"", True)


def test_a_page_larger_than_the_windows_arrives_whole() -> None:
    body = bytes(range(256)) * 2_000
    peer = Peer(pages={"/metrics": lambda: Page(HTTPStatus.OK, "text/plain", body)})
    number = peer.open("/metrics", method="GET", end=True)
    peer.pump()
    assert peer.reply(number).body == body
    assert no_leak(peer.server)


def test_a_page_that_fails_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Page:
        raise ValueError("secret")

    peer = Peer(pages={"/broken": broken})
    number = peer.open("/broken", method="GET", end=True)
    peer.pump()
    reply = peer.reply(number)
    assert (reply.head[":status"], b"secret" in reply.body) == ("500", False)
    assert "the page b'/broken' failed" in caplog.text


def test_what_is_sent_to_a_page_is_kept_until_it_is_there_or_too_much(peer: Peer) -> None:
    number = peer.open("/upload", content_type="text/plain")
    for sent in range(100_000, MAX_BODY_BYTES, 100_000):
        peer.send(number, bytes(100_000))
        peer.pump()
        assert peer.server._inbound.buffered_bytes == sent
    for _ in range(3):
        peer.send(number, bytes(100_000))
        peer.pump()
        assert peer.server._inbound.buffered_bytes == 0
    peer.client.end_stream(number)
    peer.pump()
    assert peer.reply(number).head[":status"] == "413"
    assert no_leak(peer.server)


@pytest.mark.parametrize("content_type", ["application/json", "application/grpc-web", ""])
def test_another_content_type_than_grpc_is_415(peer: Peer, content_type: str) -> None:
    number = peer.open(content_type=content_type)
    peer.say(number, b"hello", end=True)
    peer.pump()
    reply = peer.reply(number)
    assert reply.head[":status"] == "415"
    assert reply.body.startswith(b"415 content-type must be application/grpc, not ")
    assert peer.service.heard == []
    assert peer.call(b"next").messages == [b"next"]
    assert no_leak(peer.server)


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;v=1"])
def test_kinds_of_grpc_are_taken(peer: Peer, content_type: str) -> None:
    number = peer.open(content_type=content_type)
    peer.say(number, b"hello", end=True)
    peer.pump()
    assert peer.reply(number).messages == [b"hello"]


def test_a_unary_call_without_a_message_is_an_error(peer: Peer) -> None:
    number = peer.open(end=True)
    other = peer.open()
    peer.client.end_stream(other)
    peer.pump()
    assert peer.reply(number).status == peer.reply(other).status == Status.INTERNAL
    assert peer.service.heard == []


def test_a_second_message_in_a_unary_call_is_an_error_and_not_a_second_call(peer: Peer) -> None:
    number = peer.open()
    peer.say(number, b"one", b"two", end=True)
    peer.pump()
    assert peer.reply(number).status == Status.INTERNAL
    assert peer.service.heard == [b"one"]
    assert no_leak(peer.server)


def test_a_stream_that_ends_within_a_message_is_an_error(peer: Peer) -> None:
    number = peer.open()
    peer.send(number, framed(b"hello")[:-1], end=True)
    peer.pump()
    assert peer.reply(number).status == Status.INTERNAL
    assert peer.service.heard == []


@pytest.mark.parametrize("path", [ONCE, MANY, WATCH])
def test_a_message_over_the_limit_is_refused_before_it_is_there(peer: Peer, path: str) -> None:
    number = peer.open(path)
    peer.send(number, b"\0" + (LIMITS.max_message_bytes + 1).to_bytes(4, "big") + b"begin")
    peer.pump()
    reply = peer.reply(number)
    assert reply.status == Status.RESOURCE_EXHAUSTED
    assert f"({LIMITS.max_message_bytes + 1} vs. {LIMITS.max_message_bytes})" in reply.why
    assert peer.service.heard == []
    assert no_leak(peer.server)


def test_a_message_at_the_limit_is_taken(peer: Peer) -> None:
    message = b"x" * LIMITS.max_message_bytes
    assert peer.call(message).messages == [message]


def test_a_compressed_message_of_a_call_that_has_no_encoding_is_internal(peer: Peer) -> None:
    number = peer.open()
    peer.send(number, b"\1" + framed(b"hello")[1:], end=True)
    peer.pump()
    reply = peer.reply(number)
    assert reply.status == Status.INTERNAL
    assert reply.why == "grpc: compressed flag set with identity or empty encoding"
    assert peer.service.heard == []


def test_an_encoding_that_we_do_not_have_is_unimplemented_and_told_which_we_have(
    peer: Peer,
) -> None:
    number = peer.open(grpc_encoding="zstd")
    peer.send(number, b"\1" + framed(b"hello")[1:], end=True)
    peer.pump()
    reply = peer.reply(number)
    assert reply.status == Status.UNIMPLEMENTED
    assert reply.why == "grpc: Decompressor is not installed for grpc-encoding 'zstd'"
    assert reply.head["grpc-accept-encoding"] == "identity, gzip"
    assert peer.service.heard == []
    assert no_leak(peer.server)


def test_gzip_is_understood_message_by_message(peer: Peer) -> None:
    number = peer.open(MANY, grpc_encoding="gzip")
    peer.send(number, compress(b"packed" * 100) + framed(b"plain") + compress(b""), end=True)
    peer.pump()
    assert peer.service.heard == [b"packed" * 100, b"plain", b""]
    reply = peer.reply(number)
    assert "grpc-encoding" not in reply.head, "nobody has said that they take it"
    assert reply.messages == [b"packed" * 100, b"plain", b""]


def test_who_sends_gzip_and_takes_it_gets_it_for_what_is_worth_it(peer: Peer) -> None:
    number = peer.open(MANY, grpc_encoding="gzip", grpc_accept_encoding="identity, gzip")
    peer.send(number, framed(b"x" * COMPRESS_FROM_BYTES) + framed(b"short"), end=True)
    peer.pump()
    reply = peer.reply(number)
    assert reply.head["grpc-encoding"] == "gzip"
    flag, length = PREFIX.unpack_from(reply.body)
    end = PREFIX_BYTES + length
    assert flag == 1
    assert gzip.decompress(reply.body[PREFIX_BYTES:end]) == b"x" * COMPRESS_FROM_BYTES
    assert reply.body[end:] == framed(b"short")


def test_who_takes_gzip_but_sends_none_gets_none(peer: Peer) -> None:
    number = peer.open(grpc_accept_encoding="identity, gzip")
    peer.say(number, b"x" * 10_000, end=True)
    peer.pump()
    assert "grpc-encoding" not in peer.reply(number).head
    assert peer.reply(number).messages == [b"x" * 10_000]


def test_pages_that_are_not_taken_are_refused_beyond_the_limit() -> None:
    out: list[bytes] = []
    server = ServerConnection(
        {},
        DurabilityGate(),
        out.append,
        web=PagesOnly({"/": lambda: Page(HTTPStatus.OK, "text/plain", bytes(300_000))}),
        loop=VirtualLoop(),
    )
    server.receive(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    encoder = hpack.Encoder()
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")]
    for number in range(1, 401, 2):
        flags = frames.END_HEADERS | frames.END_STREAM
        server.receive(frames.frame(frames.HEADERS, flags, number, encoder.encode(fields)))
    assert server.unsent_bytes < ConnectionLimits().max_unsent_bytes + 400_000
    assert server.has_streams
    refused = [each for each in server._streams.values() if len(each.unsent or b"") < 1_000]
    assert len(refused) > 100, "with a few words, which are not taken either"
