"""What the handler of a subscription can do besides speaking: metadata, and holding back."""

import asyncio
import gc
import weakref

import pytest

from leasehold.errors import Status
from leasehold.grpc.call_context import encode_metadata
from leasehold.grpc.coroutine_handlers import Conversation, conversation
from leasehold.grpc.protocol import COMPRESS_FROM_BYTES, QUEUED_BYTES, RpcError, framed
from leasehold.grpc.routes import ServerStream, Subscription
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.http2.inbound import CONNECTION_WINDOW, STREAM_WINDOW
from leasehold.http2.limits import ConnectionLimits
from tests.support.h2_peer import END, WATCH, Ear, Frame, Peer, RawPeer, Service, kinds, no_leak

frame = frames.frame
GREETED = "/test.Service/Greeted"


class Greeting(Service):
    """Says something before the first message as soon as a stream is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.methods[GREETED] = Subscription(self.greet)

    def greet(self, stream: ServerStream) -> Ear:
        stream.send_head(encode_metadata([("x-node", "1"), ("x-raw-bin", b"\0\xff")]))
        return self.listen(stream)


def _watch(peer: Peer, path: str = WATCH, **changed: str) -> tuple[int, ServerStream]:
    number = peer.open(path, end=False, **changed)
    peer.pump()
    return number, peer.service.ears[-1].stream


# How long it is kept.


def test_what_listened_to_a_call_is_gone_with_it_without_the_collector(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    ear = weakref.ref(raw.service.ears.pop())
    assert ear() is not None
    gc.collect()
    gc.disable()  # as it almost is in a server
    try:
        raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
        assert ear() is None
    finally:
        gc.enable()


# Metadata.


def test_what_a_caller_says_besides_its_messages_reaches_the_handler(peer: Peer) -> None:
    _, stream = _watch(peer, x_trace="abc", x_raw_bin="AP8", authorization="Basic abc")
    assert dict(stream.context.metadata) == {
        "x-trace": "abc",
        "x-raw-bin": b"\0\xff",
        "authorization": "Basic abc",
    }


def test_of_calls_with_other_metadata_each_has_its_own(peer: Peer) -> None:
    for index in range(5):
        _, stream = _watch(peer, x_index=str(index % 3))
        assert stream.context.metadata == (("x-index", str(index % 3)),)


def test_metadata_that_is_not_base64_is_internal_for_who_asks_for_it() -> None:
    class Asking(Service):
        def listen(self, stream: ServerStream) -> Ear:
            assert stream.context.metadata is not None
            return super().listen(stream)

    peer = Peer(Asking())
    number = peer.open(WATCH, x_raw_bin="*")
    peer.pump()
    reply = peer.reply(number)
    assert (reply.status, reply.why) == (Status.INTERNAL, "metadata 'x-raw-bin' is not base64")
    assert no_leak(peer.server)


def test_a_head_may_be_sent_before_the_first_message(peer: Peer) -> None:
    number, stream = _watch(peer)
    stream.send_head(encode_metadata({"x-node": "1"}))
    stream.flush()
    peer.pump()
    head = {":status": "200", "content-type": "application/grpc", "x-node": "1"}
    assert peer.reply(number).head == head
    assert not peer.reply(number).is_ended
    stream.send_message(b"event", 0)
    stream.end()
    stream.flush()
    peer.pump()
    reply = peer.reply(number)
    assert (reply.head, reply.messages, reply.trailers) == (head, [b"event"], {"grpc-status": "0"})
    assert no_leak(peer.server)


def test_a_head_may_be_sent_while_the_stream_is_opened() -> None:
    peer = Peer(Greeting())
    number, _ = _watch(peer, GREETED)
    assert peer.reply(number).head["x-node"] == "1"
    assert peer.reply(number).head["x-raw-bin"] == "AP8"


def test_a_head_sent_while_the_stream_is_opened_says_how_messages_are_packed() -> None:
    peer = Peer(Greeting())
    packed = {"grpc_encoding": "gzip", "grpc_accept_encoding": "gzip"}
    number, stream = _watch(peer, GREETED, **packed)
    stream.send_message(b"x" * COMPRESS_FROM_BYTES, 0)
    stream.flush()
    peer.pump()
    assert peer.reply(number).body[0] == 1
    assert peer.reply(number).head["grpc-encoding"] == "gzip"


@pytest.mark.parametrize("before", ["a head", "a message", "a message that waits for a window"])
def test_a_head_is_too_late_once_something_was_said(peer: Peer, before: str) -> None:
    if "window" in before:
        peer.client.update_settings({4: 0})  # INITIAL_WINDOW_SIZE
        peer.pump()
    _, stream = _watch(peer)
    if before == "a head":
        stream.send_head(())
    else:
        stream.send_message(b"event", 0)
        stream.flush()
    with pytest.raises(ValueError, match="response headers were already sent"):
        stream.send_head(encode_metadata({"x-late": "1"}))


def test_a_head_on_a_stream_that_is_over_goes_nowhere(peer: Peer) -> None:
    number, stream = _watch(peer)
    peer.client.reset_stream(number)
    peer.pump()
    stream.send_head(encode_metadata({"x-late": "1"}))
    stream.flush()
    peer.pump()
    assert peer.reply(number).head == {}


def test_metadata_of_the_end_comes_with_the_status(peer: Peer) -> None:
    number, stream = _watch(peer)
    stream.send_message(b"event", 0)
    stream.end(metadata=encode_metadata({"x-cost": "7"}))
    stream.flush()
    peer.pump()
    assert peer.reply(number).trailers == {"grpc-status": "0", "x-cost": "7"}


def test_metadata_of_an_end_without_messages_comes_too(peer: Peer) -> None:
    number, stream = _watch(peer)
    stream.end(metadata=encode_metadata({"x-cost": "7"}))
    stream.flush()
    peer.pump()
    reply = peer.reply(number)
    assert reply.head | reply.trailers == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "0",
        "x-cost": "7",
    }
    assert reply.is_ended


def test_metadata_of_an_error_comes_with_it(peer: Peer) -> None:
    number, stream = _watch(peer)
    stream.end(RpcError(Status.ABORTED, "no", metadata=encode_metadata({"x-why": "because"})))
    stream.flush()
    peer.pump()
    assert (peer.reply(number).status, peer.reply(number).head["x-why"]) == (10, "because")


# Holding back.

PIECE = frame(frames.DATA, 0, 1, framed(bytes(16_000)))
BYTES = len(PIECE) - frames.HEAD_BYTES
MANY_PIECES = STREAM_WINDOW // 2 // BYTES + 1
"""As many as make the server open the window again."""


def _updates(sent: list[Frame]) -> list[int]:
    return [
        int.from_bytes(one.payload, "big")
        for one in sent
        if one.kind == frames.WINDOW_UPDATE and one.stream_id == 1
    ]


def test_what_is_not_deferred_is_given_back_by_itself(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    assert _updates(raw.send(PIECE * MANY_PIECES)) == [MANY_PIECES * BYTES]


def test_what_is_deferred_is_withheld_and_given_back_once_it_is_taken(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    stream.defer(MANY_PIECES * 16_000)
    assert _updates(raw.send(PIECE * MANY_PIECES)) == []
    assert raw.server._inbound.buffered_bytes == MANY_PIECES * 16_000
    stream.taken(16_000)
    stream.flush()
    assert _updates(raw.taken()) == [], "so little is not worth a frame"
    stream.taken((MANY_PIECES - 1) * 16_000)
    stream.flush()
    assert _updates(raw.taken()) == [MANY_PIECES * BYTES]
    assert raw.server._inbound.buffered_bytes == 0


def test_the_window_is_given_back_without_what_is_still_deferred(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    stream.defer(100_000)
    pieces = (STREAM_WINDOW // 2 + 100_000) // BYTES + 1
    assert _updates(raw.send(PIECE * pieces)) == [pieces * BYTES - 100_000]


def test_nothing_is_given_back_to_a_client_that_has_ended_its_side(raw: RawPeer) -> None:
    raw.service.ends_when_client_does = False
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    stream.defer(MANY_PIECES * 16_000)
    raw.send(PIECE * MANY_PIECES, frame(frames.DATA, END, 1))
    stream.taken(MANY_PIECES * 16_000)
    stream.flush()
    assert raw.taken() == []
    assert raw.server._inbound.buffered_bytes == 0


def test_what_is_deferred_is_not_counted_once_the_stream_is_over(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    stream.defer(1_000)
    raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert no_leak(raw.server)
    stream.taken(1_000)
    assert no_leak(raw.server)


def test_too_much_that_is_deferred_ends_the_call_and_is_counted_right() -> None:
    class Hoarding(Ear):
        def message_received(self, message: bytes) -> None:
            self.stream.defer(len(message))
            super().message_received(message)

    service = Service()
    service.methods[WATCH] = Subscription(lambda stream: Hoarding(service, stream))
    raw = RawPeer(service, limits=ConnectionLimits(max_buffered_bytes=20_000))
    raw.send(raw.request(1, WATCH), PIECE)
    assert raw.server._inbound.buffered_bytes == 16_000
    sent = raw.send(PIECE)
    assert kinds(sent) == [frames.HEADERS, frames.RST_STREAM]
    assert b"too much received data" in sent[0].payload
    assert no_leak(raw.server)


@pytest.mark.parametrize("message", [b"", b"xy"])
def test_messages_that_a_conversation_does_not_take_are_bounded_however_short(
    message: bytes,
) -> None:
    async def listen_to_nothing(_: Conversation) -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        most, service = 100, Service()
        service.methods[WATCH] = conversation(listen_to_nothing)
        limits = ConnectionLimits(max_buffered_bytes=most * (len(message) + QUEUED_BYTES))
        raw = RawPeer(service, limits=limits)
        raw.send(raw.request(1, WATCH))
        data = frame(frames.DATA, 0, 1, framed(message))
        assert raw.send(data * most) == []
        sent = raw.send(data)
        assert kinds(sent) == [frames.HEADERS, frames.RST_STREAM]
        assert b"too much received data" in sent[0].payload
        assert no_leak(raw.server)

    asyncio.run(main())


class Hoarder:
    """A listener that takes nothing of what it hears."""

    def __init__(self, stream: ServerStream) -> None:
        self.stream = stream
        self.gone_times = 0

    def message_received(self, message: bytes) -> None:
        """Keep it."""
        self.stream.defer(len(message))

    def ended(self) -> None:
        """Wait."""

    def relieved(self) -> None:
        """Say nothing."""

    def gone(self) -> None:
        """Count."""
        self.gone_times += 1


def test_who_oversteps_the_window_of_all_is_cut_off_and_every_handler_hears_of_it() -> None:
    hoarders: list[Hoarder] = []

    def open_one(stream: ServerStream) -> Hoarder:
        hoarders.append(Hoarder(stream))
        return hoarders[-1]

    raw = RawPeer(limits=ConnectionLimits(max_buffered_bytes=2 * CONNECTION_WINDOW))
    raw.service.methods[WATCH] = Subscription(open_one)
    message = framed(bytes(16_000))
    fills = STREAM_WINDOW // len(message) - 1
    sent: list[Frame] = []
    for number in range(1, 41, 2):
        sent += raw.send(raw.request(number, WATCH))
        sent += raw.send(*[frames.frame(frames.DATA, 0, number, message)] * fills)
        if raw.server.is_closing:
            break
    assert (sent[-1].kind, sent[-1].code) == (frames.GOAWAY, ErrorCode.FLOW_CONTROL_ERROR)
    assert [hoarder.gone_times for hoarder in hoarders] == [1] * len(hoarders)
    assert no_leak(raw.server)


def test_the_window_of_all_is_withheld_while_very_much_waits_and_then_given_back() -> None:
    hoarders: list[Hoarder] = []

    def open_one(stream: ServerStream) -> Hoarder:
        hoarders.append(Hoarder(stream))
        return hoarders[-1]

    raw = RawPeer(limits=ConnectionLimits(max_buffered_bytes=CONNECTION_WINDOW - 500_000))
    raw.service.methods[WATCH] = Subscription(open_one)
    message = framed(bytes(16_000))
    sent: list[Frame] = []
    for number in (1, 3, 5):
        sent += raw.send(raw.request(number, WATCH))
        sent += raw.send(*[frames.frame(frames.DATA, 0, number, message)] * 190)
    assert frames.WINDOW_UPDATE not in kinds(sent), "more than half of what may be buffered waits"
    for hoarder in hoarders:
        hoarder.stream.taken(190 * 16_000)
        hoarder.stream.flush()
    given = [each for each in raw.taken() if each.kind == frames.WINDOW_UPDATE]
    of_all = [int.from_bytes(each.payload, "big") for each in given if each.stream_id == 0]
    assert sum(of_all) == 3 * 190 * len(message)
