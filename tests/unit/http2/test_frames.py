"""Frames that a client may send, frames that it must not, and the windows for what it sends."""

import itertools

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, WindowUpdated

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, framed
from leasehold.grpc.server_connection import MAX_HEADS
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.http2.inbound import CONNECTION_WINDOW, STREAM_WINDOW
from leasehold.http2.limits import ConnectionLimits
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
LIMITS = ConnectionLimits()


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
        (frames.HEADERS, b"\x05abcd"),
        (frames.DATA, b""),
        (frames.HEADERS, b""),
    ],
)
def test_padding_longer_than_its_frame_ends_the_connection(
    raw: RawPeer, kind: int, payload: bytes
) -> None:
    raw.send(raw.request(1))
    number = 1 if kind == frames.DATA else 3
    bad = frame(kind, frames.PADDED | END_HEADERS, number, payload)
    code = ErrorCode.PROTOCOL_ERROR if payload else ErrorCode.FRAME_SIZE_ERROR
    assert raw.goaway(bad) == code


def test_priority_that_does_not_fit_ends_the_connection(raw: RawPeer) -> None:
    bad = frame(frames.HEADERS, END_HEADERS | frames.PRIORITISED, 1, bytes(4))
    assert raw.goaway(bad) == ErrorCode.FRAME_SIZE_ERROR


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
    assert raw.send(head, *[piece] * (LIMITS.max_block_bytes // 16_000 - 1)) == []
    assert raw.goaway(piece) == ErrorCode.ENHANCE_YOUR_CALM


def test_no_more_continuations_are_suffered_than_anybody_needs(raw: RawPeer) -> None:
    head = frame(frames.HEADERS, 0, 1, raw.block())
    empty = frame(frames.CONTINUATION, 0, 1)
    assert raw.send(head, empty * LIMITS.max_continuations) == []
    assert raw.goaway(empty) == ErrorCode.ENHANCE_YOUR_CALM


def test_each_block_may_have_as_many_continuations(raw: RawPeer) -> None:
    last = frame(frames.CONTINUATION, END_HEADERS, 1)
    for number in (1, 3, 5):
        block = frame(frames.HEADERS, 0, number, raw.block(MANY))
        empty = frame(frames.CONTINUATION, 0, number)
        last = frame(frames.CONTINUATION, END_HEADERS, number)
        assert raw.send(block, empty * (LIMITS.max_continuations - 1), last) == []


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
    ("data", "code"),
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
    raw: RawPeer, data: bytes, code: ErrorCode | None
) -> None:
    if code is None:
        assert raw.send(data) == []
    else:
        assert raw.goaway(data) == code
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


@pytest.mark.parametrize("skipped", [1, 3, 7])
def test_numbers_that_were_skipped_can_never_be_used(skipped: int) -> None:
    for late in (RawPeer.request, RawPeer.unary, _data_on):
        raw = RawPeer()
        raw.send(raw.unary(5), raw.unary(9))
        assert raw.goaway(late(raw, skipped)) == ErrorCode.PROTOCOL_ERROR


def _data_on(_: RawPeer, stream_id: int) -> bytes:
    return frame(frames.DATA, 0, stream_id, b"x")


def test_a_stream_whose_head_was_refused_cannot_begin_after_all(raw: RawPeer) -> None:
    prioritised = END_HEADERS | frames.PRIORITISED
    own = (1).to_bytes(4, "big") + b"\0"
    bad = frame(frames.HEADERS, prioritised, 1, own + raw.block())
    assert raw.reset(bad) == (1, ErrorCode.PROTOCOL_ERROR)
    assert raw.send(raw.request(1, MANY)) == []
    assert no_leak(raw.server)
    assert raw.send(frame(frames.DATA, END, 1, framed(b"late"))) == []
    assert raw.service.heard == []


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


def test_what_is_wrong_with_one_head_is_not_held_against_the_next(raw: RawPeer) -> None:
    own = (1).to_bytes(4, "big") + b"\0"
    large = raw.encoder.encode([("x-large", "x" * 2_000)] * 10)
    bad = frame(frames.HEADERS, END_HEADERS | frames.PRIORITISED, 1, own + large)
    assert raw.reset(bad) == (1, ErrorCode.ENHANCE_YOUR_CALM)
    good = frame(frames.HEADERS, END_HEADERS | frames.PRIORITISED, 3, bytes(5) + raw.block())
    assert len(raw.send(good, frame(frames.DATA, END, 3, framed(b"hello")))) == 3


def _end_first(raw: RawPeer, stream_id: int) -> None:
    """Make a call that the server ends before the client has."""
    raw.service.fails = RpcError(Status.ABORTED, "no")
    raw.send(raw.request(stream_id, MANY), frame(frames.DATA, 0, stream_id, framed(b"")))
    raw.service.fails = None


def test_frames_for_a_stream_that_we_ended_first_are_ignored(raw: RawPeer) -> None:
    _end_first(raw, 1)
    assert raw.send(frame(frames.DATA, 0, 1, b"x")) == []
    assert raw.send(frames.window_update(1, 5)) == []
    assert raw.send(raw.request(1, flags=END)) == []
    assert raw.send(frames.rst_stream(1, ErrorCode.CANCEL)) == []
    assert len(raw.send(raw.unary(3))) == 3


def test_windows_and_resets_for_a_stream_that_the_client_ended_are_ignored(raw: RawPeer) -> None:
    raw.send(raw.unary(1))
    assert raw.send(frames.window_update(1, 5)) == []
    assert raw.send(frames.rst_stream(1, ErrorCode.CANCEL)) == []
    assert len(raw.send(raw.unary(3))) == 3


@pytest.mark.parametrize("ended_by", ["end of data", "reset", "end after ours", "reset after ours"])
def test_data_on_a_stream_that_the_client_has_ended_is_told_that_it_is_closed(
    raw: RawPeer, ended_by: str
) -> None:
    if "ours" in ended_by:
        _end_first(raw, 1)
    if "reset" in ended_by:
        raw.send(*([raw.request(1, MANY)] if "ours" not in ended_by else []))
        raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    elif "ours" in ended_by:
        raw.send(frame(frames.DATA, END, 1, b""))
    else:
        raw.send(raw.unary(1))
    assert raw.reset(frame(frames.DATA, 0, 1, b"x")) == (1, ErrorCode.STREAM_CLOSED)
    assert raw.send(frame(frames.DATA, 0, 1, b"x")) == [], "it was told once"
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
    for number in itertools.islice(numbers, LIMITS.max_streams):
        assert raw.send(raw.request(number, MANY)) == []
    beyond = next(numbers)
    assert raw.reset(raw.request(beyond)) == (beyond, ErrorCode.REFUSED_STREAM)
    raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert len(raw.send(raw.unary(next(numbers)))) == 3


def test_a_header_list_too_large_loses_only_its_stream(raw: RawPeer) -> None:
    big = raw.request(1, x_big="x" * 3_000)  # goes into the table
    assert raw.send(big) == []
    reference = raw.encoder.encode([("x-big", "x" * 3_000)])
    block = raw.block() + reference * (LIMITS.max_header_list_bytes // 3_000 + 1)
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
    assert peer.client.remote_settings.max_concurrent_streams == LIMITS.max_streams
    assert peer.client.remote_settings.max_header_list_size == LIMITS.max_header_list_bytes
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
    _end_first(raw, 1)
    padded = frame(frames.DATA, frames.PADDED, 1, b"\xff" + bytes(16_000))
    updates = [
        one
        for _ in range(CONNECTION_WINDOW // len(padded))
        for one in raw.send(padded)
        if one.kind == frames.WINDOW_UPDATE
    ]
    assert [one.stream_id for one in updates] == [0]
    assert int.from_bytes(updates[0].payload, "big") > CONNECTION_WINDOW // 2


def test_padding_counts_for_the_window_of_its_stream(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    payload = b"\xff" + framed(b"") + bytes(255)
    padded = frame(frames.DATA, frames.PADDED, 1, payload)
    rounds = STREAM_WINDOW // 2 // len(payload) + 1
    sent = [one for _ in range(rounds) for one in raw.send(padded)]
    assert [(one.kind, one.stream_id) for one in sent] == [(frames.WINDOW_UPDATE, 1)]
    assert int.from_bytes(sent[0].payload, "big") == rounds * len(payload)


def test_more_than_the_window_of_a_stream_resets_it(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    raw.service.ears[0].stream.defer(1)  # so that what was taken is not given back by itself
    raw.service.ears[0].stream.defer(STREAM_WINDOW)
    piece = frame(frames.DATA, 0, 1, framed(bytes(16_000)))
    size_bytes = len(piece) - frames.HEAD_BYTES
    assert raw.send(*[piece] * (STREAM_WINDOW // size_bytes)) == []
    assert raw.reset(piece) == (1, ErrorCode.FLOW_CONTROL_ERROR)
    assert no_leak(raw.server)


def test_h2_and_we_agree_on_error_codes() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        code.name: code.value for code in ErrorCodes
    }
