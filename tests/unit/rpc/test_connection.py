"""A connection of HTTP/2 with calls of gRPC, as a client sees it: calls and broken rules."""

import itertools
import logging
from collections.abc import Callable

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, WindowUpdated

from leasehold.errors import Status
from leasehold.rpc import frames
from leasehold.rpc.connection import (
    CONNECTION_WINDOW,
    MAX_BLOCK_BYTES,
    MAX_HEADS,
    MAX_STREAMS,
    STREAM_WINDOW,
)
from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.grpc import MAX_MESSAGE_BYTES, RpcError, framed
from leasehold.rpc.hpack import MAX_HEADER_LIST_BYTES
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    ONCE,
    WATCH,
    Peer,
    RawPeer,
    kinds,
    no_leak,
)

frame = frames.frame


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
    sent = [pieces.send(bytes((octet,))) for octet in pieces.unary(1)]
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
    assert "a handler failed" in caplog.text
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
    assert "a handler failed" in caplog.text


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
    assert (reply.head[":status"], reply.status) == ("405", Status.UNKNOWN)
    assert reply.is_ended
    assert no_leak(peer.server)


@pytest.mark.parametrize("content_type", ["application/json", "application/grpc-web", ""])
def test_another_content_type_than_grpc_is_415(peer: Peer, content_type: str) -> None:
    number = peer.open(content_type=content_type)
    peer.say(number, b"hello", end=True)
    peer.pump()
    assert peer.reply(number).head[":status"] == "415"
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
    peer.send(number, b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big") + b"begin")
    peer.pump()
    reply = peer.reply(number)
    assert reply.status == Status.RESOURCE_EXHAUSTED
    assert f"({MAX_MESSAGE_BYTES + 1} vs. {MAX_MESSAGE_BYTES})" in reply.why
    assert peer.service.heard == []
    assert no_leak(peer.server)


def test_a_message_at_the_limit_is_taken(peer: Peer) -> None:
    message = b"x" * MAX_MESSAGE_BYTES
    assert peer.call(message).messages == [message]


def test_a_compressed_message_is_unimplemented(peer: Peer) -> None:
    number = peer.open()
    peer.send(number, b"\1" + framed(b"hello")[1:], end=True)
    peer.pump()
    assert peer.reply(number).status == Status.UNIMPLEMENTED
    assert peer.service.heard == []


# Messages in frames.


def test_a_message_may_be_cut_anywhere(peer: Peer) -> None:
    octets = framed(b"hello")
    for cut in range(len(octets) + 1):
        number = peer.open()
        for piece in (octets[:cut], octets[cut:]):
            peer.client.send_data(number, piece)
            peer.pump()
        peer.client.end_stream(number)
        peer.pump()
        assert (peer.reply(number).messages, peer.reply(number).status) == ([b"hello"], 0)
    assert no_leak(peer.server)


def test_the_rest_of_a_message_is_not_taken_for_a_whole_one(peer: Peer) -> None:
    message = b"begin" + framed(b"looks whole")
    octets = framed(message)
    number = peer.open()
    cut = len(octets) - len(framed(b"looks whole"))
    peer.client.send_data(number, octets[:cut])
    peer.client.send_data(number, octets[cut:], end_stream=True)
    peer.pump()
    assert peer.service.heard == peer.reply(number).messages == [message]


def test_a_message_may_come_in_frames_of_one_octet(peer: Peer) -> None:
    number = peer.open(MANY)
    for octet in framed(b"hello") + framed(b"") + framed(b"you"):
        peer.client.send_data(number, bytes((octet,)))
    peer.client.end_stream(number)
    peer.pump()
    assert peer.reply(number).messages == [b"hello", b"", b"you"]


def test_a_stream_of_exchanges_answers_each_of_several_messages_in_one_frame(peer: Peer) -> None:
    number = peer.open(MANY)
    peer.say(number, b"one", b"", b"three")
    peer.pump()
    assert peer.reply(number).messages == [b"one", b"", b"three"]
    assert not peer.reply(number).is_ended
    peer.say(number, b"four", end=True)
    peer.pump()
    assert peer.reply(number).messages == [b"one", b"", b"three", b"four"]
    assert (peer.reply(number).is_ended, peer.reply(number).status) == (True, 0)
    assert no_leak(peer.server)


def test_a_stream_of_exchanges_without_any_ends_well(peer: Peer) -> None:
    number = peer.open(MANY, end=True)
    peer.pump()
    assert (peer.reply(number).status, peer.reply(number).messages) == (0, [])


def test_an_answer_that_must_wait_holds_up_no_other_but_the_end_of_its_stream(peer: Peer) -> None:
    number = peer.open(MANY)
    for position, message in ((0, b"1"), (5, b"2"), (3, b"3"), (0, b"4")):
        peer.service.position = position
        peer.say(number, message)
        peer.pump()
    assert peer.reply(number).messages == [b"1", b"4"]
    peer.client.end_stream(number)
    peer.pump()
    peer.release(4)
    assert peer.reply(number).messages == [b"1", b"4", b"3"]
    assert not peer.reply(number).is_ended
    peer.release(5)
    assert peer.reply(number).messages == [b"1", b"4", b"3", b"2"]
    assert (peer.reply(number).status, peer.reply(number).is_ended) == (0, True)
    assert no_leak(peer.server)


def test_what_was_said_before_an_error_leaves_before_it(peer: Peer) -> None:
    number = peer.open(MANY)
    peer.service.position = 5
    peer.say(number, b"held")
    peer.pump()
    peer.service.fails = RpcError(Status.ABORTED, "no more")
    peer.say(number, b"bad")
    peer.pump()
    assert not peer.reply(number).is_ended
    peer.release(5)
    assert (peer.reply(number).messages, peer.reply(number).status) == ([b"held"], 10)


def test_no_handler_is_called_once_a_call_has_failed_though_its_error_must_wait(
    peer: Peer,
) -> None:
    number = peer.open(MANY)
    peer.service.fails = RpcError(Status.ABORTED, "no more", position=5)
    peer.say(number, b"bad")
    peer.pump()
    peer.service.fails = None
    peer.say(number, b"in the same stream", b"and again", end=True)
    peer.pump()
    peer.release(5)
    assert peer.service.heard == [b"bad"]
    assert (peer.reply(number).status, peer.reply(number).messages) == (Status.ABORTED, [])
    assert no_leak(peer.server)


def test_what_comes_in_after_a_call_has_failed_is_not_kept(peer: Peer) -> None:
    peer.client.update_settings({4: 0})  # INITIAL_WINDOW_SIZE
    peer.pump()
    number = peer.open(MANY)
    peer.say(number, b"an answer that cannot leave")
    peer.send(number, b"\1" + framed(b"compressed")[1:])
    peer.pump()
    stream = peer.server._streams[number]
    for _ in range(3 * STREAM_WINDOW // 10_000):
        peer.send(number, bytes(10_000))
    peer.pump()
    assert stream.reader is None or len(stream.reader._buffer) < 10_000


def test_a_server_that_ends_first_tells_the_client_to_stop_sending(peer: Peer) -> None:
    number = peer.open(MANY)
    peer.service.fails = RpcError(Status.ABORTED, "no")
    peer.say(number, b"one")
    peer.pump()
    assert (peer.reply(number).status, peer.reply(number).reset) == (10, ErrorCode.NO_ERROR)


def test_client_trailers_end_its_side(peer: Peer) -> None:
    number = peer.open(MANY)
    peer.say(number, b"one")
    peer.client.send_headers(number, [("x-checksum", "1")], end_stream=True)
    peer.pump()
    assert (peer.reply(number).messages, peer.reply(number).status) == ([b"one"], 0)
    assert no_leak(peer.server)


# Subscriptions.


def test_a_subscription_speaks_by_itself_and_waits_for_the_gate(peer: Peer) -> None:
    number = peer.open(WATCH)
    peer.say(number, b"what", b"now")
    peer.pump()
    [ear] = peer.service.ears
    assert ear.heard_all == [b"what", b"now"]
    ear.speaker.say(b"event 1", 2)
    ear.speaker.say(b"event 2", 4)
    assert peer.reply(number).messages == []
    peer.release(4)
    assert peer.reply(number).messages == [b"event 1", b"event 2"]
    assert not peer.reply(number).is_ended


def test_a_subscription_may_go_on_after_the_client_has_ended_its_side(peer: Peer) -> None:
    peer.service.ends_when_client_does = False
    number = peer.open(WATCH, end=True)
    peer.pump()
    [ear] = peer.service.ears
    assert (ear.ended_times, ear.gone_times) == (1, 0)
    ear.speaker.say(b"later", 1)
    peer.release(1)
    assert (peer.reply(number).messages, ear.gone_times) == ([b"later"], 0)


def _by_reset(peer: Peer, number: int) -> None:
    peer.client.reset_stream(number)


def _by_end(peer: Peer, number: int) -> None:
    peer.client.end_stream(number)


def _by_speaker(peer: Peer, number: int) -> None:
    peer.service.ears[-1].speaker.end()
    peer.server.flush()


def _by_error(peer: Peer, number: int) -> None:
    peer.service.fails = RpcError(Status.ABORTED, "no")
    peer.say(number, b"fail")


def _by_bad_message(peer: Peer, number: int) -> None:
    peer.send(number, b"\1" + bytes(4))


def _by_rule(peer: Peer, number: int) -> None:
    peer.server.receive(frames.window_update(number, 0))


def _by_loss(peer: Peer, _: int) -> None:
    peer.server.lost()


@pytest.mark.parametrize(
    "how", [_by_reset, _by_end, _by_speaker, _by_error, _by_bad_message, _by_rule, _by_loss]
)
def test_a_listener_learns_once_that_its_stream_is_over(
    peer: Peer, how: Callable[[Peer, int], None]
) -> None:
    number = peer.open(WATCH)
    peer.say(number, b"hello")
    peer.pump()
    [ear] = peer.service.ears
    assert ear.gone_times == 0
    how(peer, number)
    peer.pump()
    assert ear.gone_times == 1
    peer.server.lost()
    assert ear.gone_times == 1
    assert no_leak(peer.server)


def test_what_is_said_on_a_stream_that_is_over_goes_nowhere(peer: Peer) -> None:
    number = peer.open(WATCH)
    peer.pump()
    [ear] = peer.service.ears
    ear.speaker.say(b"held", 1)
    peer.client.reset_stream(number)
    peer.pump()
    ear.speaker.say(b"late", 0)
    ear.speaker.end()
    peer.release(1)
    assert peer.reply(number).messages == []
    assert no_leak(peer.server)


def test_a_call_reset_while_its_answer_is_held_leaves_nothing(raw: RawPeer) -> None:
    raw.service.position = 1
    assert raw.send(raw.unary(1), raw.request(3, MANY)) == []
    raw.send(frame(frames.DATA, 0, 3, framed(b"held too")))
    reset = frames.rst_stream(1, ErrorCode.CANCEL) + frames.rst_stream(3, ErrorCode.CANCEL)
    assert raw.send(reset) == []
    raw.gate.release(1)
    assert raw.taken() == []
    assert len(raw.gate) == 0
    assert no_leak(raw.server)


def test_a_call_reset_before_its_message_leaves_nothing(raw: RawPeer) -> None:
    assert raw.send(raw.request(1), frames.rst_stream(1, ErrorCode.CANCEL)) == []
    assert raw.send(frame(frames.DATA, END, 1, framed(b"late"))) == []
    assert raw.service.heard == []
    assert no_leak(raw.server)


def test_a_lost_connection_leaves_nothing(peer: Peer) -> None:
    peer.service.position = 1
    peer.begin()
    peer.open(WATCH)
    peer.open(MANY)
    peer.pump()
    peer.server.lost()
    peer.release(1)
    assert no_leak(peer.server)


# Frames that need not come, but may.


def test_padding_and_priority_are_taken_off(raw: RawPeer) -> None:
    block = b"\x03" + bytes(5) + raw.block() + b"pad"
    flags = END_HEADERS | frames.PADDED | frames.PRIORITISED
    data = b"\xff" + framed(b"hello") + bytes(255)
    sent = raw.send(
        frame(frames.HEADERS, flags, 1, block), frame(frames.DATA, END | frames.PADDED, 1, data)
    )
    assert framed(b"hello") in [one.payload for one in sent]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (frames.DATA, b"\x05abcd"),
        (frames.DATA, b""),
        (frames.HEADERS, b"\x05abcd"),
        (frames.HEADERS, b""),
    ],
)
def test_padding_longer_than_its_frame_ends_the_connection(
    raw: RawPeer, kind: int, payload: bytes
) -> None:
    raw.send(raw.request(1))
    number = 1 if kind == frames.DATA else 3
    bad = frame(kind, frames.PADDED | END_HEADERS, number, payload)
    assert raw.goaway(bad) == ErrorCode.PROTOCOL_ERROR


def test_priority_that_does_not_fit_ends_the_connection(raw: RawPeer) -> None:
    bad = frame(frames.HEADERS, END_HEADERS | frames.PRIORITISED, 1, bytes(4))
    assert raw.goaway(bad) == ErrorCode.PROTOCOL_ERROR


def test_headers_may_go_on_in_continuations(raw: RawPeer) -> None:
    block = raw.block()
    pieces = [
        frame(frames.CONTINUATION, END_HEADERS * (at == len(block) - 1), 1, block[at : at + 1])
        for at in range(2, len(block))
    ]
    head = frame(frames.HEADERS, END, 1, block[:2])
    assert raw.send(head, *pieces[:-1]) == []
    assert kinds(raw.send(pieces[-1])) == [frames.HEADERS]  # a unary call without a message


def test_nothing_may_come_between_headers_and_their_continuation(raw: RawPeer) -> None:
    head = frame(frames.HEADERS, 0, 1, raw.block()[:3])
    assert raw.goaway(head, frame(frames.PING, 0, 0, bytes(8))) == ErrorCode.PROTOCOL_ERROR


def test_a_continuation_must_be_of_the_same_stream(raw: RawPeer) -> None:
    head = frame(frames.HEADERS, 0, 1, raw.block()[:3])
    assert raw.goaway(head, frame(frames.CONTINUATION, 0, 3, b"x")) == ErrorCode.PROTOCOL_ERROR


def test_a_continuation_must_have_something_to_continue(raw: RawPeer) -> None:
    bad = frame(frames.CONTINUATION, END_HEADERS, 1, raw.block())
    assert raw.goaway(bad) == ErrorCode.PROTOCOL_ERROR


def test_headers_without_end_are_cut_off(raw: RawPeer) -> None:
    piece = frame(frames.CONTINUATION, 0, 1, bytes(16_000))
    head = frame(frames.HEADERS, 0, 1, bytes(16_000))
    assert raw.send(head, *[piece] * (MAX_BLOCK_BYTES // 16_000 - 1)) == []
    assert raw.goaway(piece) == ErrorCode.ENHANCE_YOUR_CALM


def test_empty_continuations_are_not_suffered(raw: RawPeer) -> None:
    head = frame(frames.HEADERS, 0, 1, raw.block())
    assert raw.goaway(head, frame(frames.CONTINUATION, 0, 1)) == ErrorCode.ENHANCE_YOUR_CALM


def test_a_ping_is_answered_with_the_same_octets(peer: Peer) -> None:
    peer.client.ping(b"12345678")
    peer.pump()
    [event] = [event for event in peer.events if isinstance(event, PingAckReceived)]
    assert event.ping_data == b"12345678"


def test_the_answer_to_a_ping_is_not_answered(raw: RawPeer) -> None:
    assert raw.send(frame(frames.PING, frames.ACK, 0, bytes(8))) == []


def test_unknown_frames_priorities_and_the_good_bye_of_a_client_are_ignored(raw: RawPeer) -> None:
    assert raw.send(frame(0xBE, 0xFF, 7, b"whatever")) == []
    assert raw.send(frame(frames.PRIORITY, 0, 1, bytes(5))) == []
    assert raw.send(frames.goaway(0, ErrorCode.NO_ERROR)) == []
    assert len(raw.send(raw.unary(1))) == 3


def test_reserved_bits_are_ignored(raw: RawPeer) -> None:
    call = bytearray(raw.unary(1))
    call[5] |= 0x80
    assert len(raw.send(bytes(call))) == 3


def test_settings_are_acknowledged_and_unknown_ones_ignored(raw: RawPeer) -> None:
    sent = raw.send(frame(frames.SETTINGS, 0, 0, b"\x00\xff\x00\x00\x00\x01"))
    assert [(one.kind, one.flags, one.payload) for one in sent] == [
        (frames.SETTINGS, frames.ACK, b"")
    ]
    assert raw.send(frame(frames.SETTINGS, frames.ACK, 0)) == []


def test_metadata_is_taken_and_ignored(peer: Peer) -> None:
    number = peer.open(x_custom="1", grpc_timeout="5S", authorization="Basic abc")
    peer.say(number, b"hello", end=True)
    peer.pump()
    assert peer.reply(number).messages == [b"hello"]


def test_more_different_heads_than_are_remembered_are_all_served(peer: Peer) -> None:
    for index in range(MAX_HEADS + 10):
        number = peer.open(x_number=str(index))
        peer.say(number, b"%d" % index, end=True)
        peer.pump()
        assert peer.reply(number).messages == [b"%d" % index]
    assert len(peer.server._heads) <= MAX_HEADS


# Broken rules.


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, frames.ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (frame(frames.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 2, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 0, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 2, b"\x82"), ErrorCode.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 1, b"\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (b"\x00\x40\x01", None),  # the head of a frame is not there yet
        (b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", ErrorCode.FRAME_SIZE_ERROR),
        (
            frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 2**31}),
            ErrorCode.FLOW_CONTROL_ERROR,
        ),
        (frames.settings({frames.Setting.MAX_FRAME_SIZE: 2**14 - 1}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.Setting.MAX_FRAME_SIZE: 2**24}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.Setting.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_a_broken_rule_of_the_connection_ends_it(
    raw: RawPeer, octets: bytes, code: ErrorCode | None
) -> None:
    if code is None:
        assert raw.send(octets) == []
    else:
        assert raw.goaway(octets) == code
        assert raw.send(raw.unary(99)) == [], "nothing is read any more"


def test_a_request_must_not_come_before_settings() -> None:
    raw = RawPeer(greets=False)
    assert raw.goaway(raw.request(1)) == ErrorCode.PROTOCOL_ERROR


def test_a_good_bye_names_the_last_stream_that_was_taken(raw: RawPeer) -> None:
    raw.send(raw.unary(7))
    raw.server.close()
    raw.server.flush()
    [last] = raw.taken()
    assert (last.payload[:4], last.code) == (b"\0\0\0\x07", ErrorCode.NO_ERROR)


def test_a_connection_that_broke_a_rule_is_done_with_its_calls(raw: RawPeer) -> None:
    raw.service.position = 1
    raw.send(raw.request(1, WATCH), raw.unary(3))
    raw.goaway(frame(frames.PING, 0, 0))
    [ear] = raw.service.ears
    assert ear.gone_times == 1
    raw.gate.release(1)
    assert raw.taken() == []
    assert no_leak(raw.server)


def test_a_number_used_before_cannot_begin_a_call(raw: RawPeer) -> None:
    raw.send(raw.unary(5))
    assert raw.goaway(raw.request(5)) == ErrorCode.STREAM_CLOSED


def test_numbers_that_were_skipped_are_closed(raw: RawPeer) -> None:
    raw.send(raw.unary(5))
    assert raw.goaway(raw.request(3)) == ErrorCode.STREAM_CLOSED


def test_a_second_headers_frame_without_end_resets_the_stream(raw: RawPeer) -> None:
    raw.send(raw.request(1, MANY))
    assert raw.reset(raw.request(1, MANY)) == (1, ErrorCode.PROTOCOL_ERROR)
    assert no_leak(raw.server)


def test_data_after_the_end_resets_the_stream(raw: RawPeer) -> None:
    raw.service.position = 1
    raw.send(raw.unary(1))
    assert raw.reset(frame(frames.DATA, 0, 1, b"x")) == (1, ErrorCode.STREAM_CLOSED)
    raw.gate.release(1)
    assert raw.taken() == []
    assert no_leak(raw.server)


def test_headers_after_the_end_reset_the_stream(raw: RawPeer) -> None:
    raw.service.position = 1
    raw.send(raw.unary(1))
    assert raw.reset(raw.request(1, flags=END)) == (1, ErrorCode.STREAM_CLOSED)
    assert no_leak(raw.server)


def test_a_stream_is_reset_by_its_number_without_the_reserved_bit(raw: RawPeer) -> None:
    raw.service.position = 1
    raw.send(raw.unary(1))
    late = frame(frames.DATA, 0, 1 | 1 << 31, b"x")
    assert raw.reset(late) == (1, ErrorCode.STREAM_CLOSED)
    assert no_leak(raw.server)


def test_frames_for_a_stream_that_is_over_are_ignored(raw: RawPeer) -> None:
    raw.send(raw.unary(1))
    assert raw.send(frame(frames.DATA, END, 1, b"x")) == []
    assert raw.send(frames.window_update(1, 5)) == []
    assert raw.send(frames.rst_stream(1, ErrorCode.CANCEL)) == []
    assert len(raw.send(raw.unary(3))) == 3


@pytest.mark.parametrize(
    ("increment", "code"),
    [(0, ErrorCode.PROTOCOL_ERROR), (2**31 - 1, ErrorCode.FLOW_CONTROL_ERROR)],
)
def test_a_bad_window_of_a_stream_resets_it(raw: RawPeer, increment: int, code: ErrorCode) -> None:
    raw.send(raw.request(1, MANY))
    assert raw.reset(frames.window_update(1, increment)) == (1, code)
    assert len(raw.send(raw.unary(3))) == 3


def test_settings_that_open_a_window_beyond_its_limit_end_the_connection(raw: RawPeer) -> None:
    raw.send(raw.request(1, MANY), frames.window_update(1, 2**31 - 1 - frames.DEFAULT_WINDOW))
    grown = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1})
    assert raw.goaway(grown) == ErrorCode.FLOW_CONTROL_ERROR


def test_more_streams_than_allowed_are_refused_and_the_others_go_on(raw: RawPeer) -> None:
    numbers = itertools.count(1, 2)
    for number in itertools.islice(numbers, MAX_STREAMS):
        assert raw.send(raw.request(number, MANY)) == []
    beyond = next(numbers)
    assert raw.reset(raw.request(beyond)) == (beyond, ErrorCode.REFUSED_STREAM)
    raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert len(raw.send(raw.unary(next(numbers)))) == 3


def test_a_header_list_too_large_loses_only_its_stream(raw: RawPeer) -> None:
    big = raw.request(1, x_big="x" * 3_000)  # goes into the table
    assert raw.send(big) == []
    reference = raw.encoder.encode([("x-big", "x" * 3_000)])
    block = raw.block() + reference * (MAX_HEADER_LIST_BYTES // 3_000 + 1)
    bad = frame(frames.HEADERS, END_HEADERS, 3, block)
    assert raw.reset(bad) == (3, ErrorCode.ENHANCE_YOUR_CALM)
    assert len(raw.send(raw.unary(5))) == 3


def test_a_malformed_request_loses_only_its_stream(raw: RawPeer) -> None:
    block = raw.encoder.encode([(":method", "POST"), (":path", ONCE)])
    bad = frame(frames.HEADERS, END_HEADERS, 1, block)
    assert raw.reset(bad) == (1, ErrorCode.PROTOCOL_ERROR)
    assert len(raw.send(raw.unary(3))) == 3


# Receive windows.


def test_the_windows_are_announced_at_once(raw: RawPeer) -> None:
    peer = Peer()
    number = peer.open()
    assert peer.client.remote_settings.initial_window_size == STREAM_WINDOW
    assert peer.client.remote_settings.max_concurrent_streams == MAX_STREAMS
    assert peer.client.remote_settings.max_header_list_size == MAX_HEADER_LIST_BYTES
    assert peer.client.outbound_flow_control_window == CONNECTION_WINDOW
    assert peer.client.local_flow_control_window(number) == STREAM_WINDOW


def test_one_stream_may_send_more_than_all_windows(peer: Peer) -> None:
    number = peer.open(WATCH)
    for _ in range(2 * CONNECTION_WINDOW // 1_000_000):
        peer.say(number, bytes(1_000_000))
    peer.pump()
    assert len(peer.service.ears[0].heard_all) == 2 * CONNECTION_WINDOW // 1_000_000
    updated = {event.stream_id for event in peer.events if isinstance(event, WindowUpdated)}
    assert {0, number} <= updated


def test_many_streams_may_send_more_than_all_windows(peer: Peer) -> None:
    for _ in range(2 * CONNECTION_WINDOW // 1_000_000):
        number = peer.open(MANY)
        peer.service.fails = RpcError(Status.ABORTED, "no")
        peer.say(number, bytes(1_000_000), end=True)
        peer.pump()
        assert peer.reply(number).status == Status.ABORTED


def test_padding_and_what_is_sent_to_streams_that_are_over_count_for_the_windows(
    raw: RawPeer,
) -> None:
    raw.send(raw.unary(1))
    padded = frame(frames.DATA, frames.PADDED, 1, b"\xff" + bytes(255))
    updates = [
        one
        for _ in range(CONNECTION_WINDOW // len(padded))
        for one in raw.send(padded)
        if one.kind == frames.WINDOW_UPDATE
    ]
    assert [one.stream_id for one in updates] == [0]
    assert int.from_bytes(updates[0].payload, "big") > CONNECTION_WINDOW // 2


def test_padding_counts_for_the_window_of_its_stream(raw: RawPeer) -> None:
    raw.send(raw.request(1, MANY))
    padded = frame(frames.DATA, frames.PADDED, 1, b"\xff" + bytes(255))
    rounds = STREAM_WINDOW // 2 // 256 + 1
    sent = [one for _ in range(rounds) for one in raw.send(padded)]
    assert [(one.kind, one.stream_id) for one in sent] == [(frames.WINDOW_UPDATE, 1)]
    assert int.from_bytes(sent[0].payload, "big") == rounds * 256


def test_h2_and_we_agree_on_error_codes() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        code.name: code.value for code in ErrorCodes
    }
