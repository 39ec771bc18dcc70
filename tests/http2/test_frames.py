"""The form of frames: types, flags, reserved bits, lengths, streams (RFC 9113, 4 and 6)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, PLAIN_GET, POST, plain
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting

LIMIT = wire.DEFAULT_MAX_FRAME_BYTES
ONE_SETTING = wire.settings((Setting.MAX_CONCURRENT_STREAMS, 100))[wire.HEAD_BYTES :]
PUSH_PROMISE = wire.word(2) + PLAIN_GET


# 4.1: types, flags and reserved bits.


@pytest.mark.parametrize("kind", [0x0B, 0x16, 0x42, 0xFF], ids=hex)
@pytest.mark.parametrize("stream_id", [0, 1, 2, 77])
def test_frames_of_unknown_types_are_ignored(peer: Peer, kind: int, stream_id: int) -> None:
    """4.1, 5.5: on any stream, with any flags, and also with nothing in them."""
    peer.send(wire.frame(kind, 0xFF, stream_id, b"whatever"), wire.frame(kind, 0, stream_id))
    peer.expect_ping_answered()


def test_a_frame_of_an_unknown_type_on_an_open_stream_is_ignored(peer: Peer) -> None:
    """4.1, 5.5: between the frames of a request too."""
    unknown = wire.frame(0x16, 0xFF, 1, b"whatever")
    peer.send(peer.request(1, POST, ends=False), unknown, wire.data(1, b"test", ends=True))
    peer.expect_answer(1)


@pytest.mark.parametrize("flags", [0x16, 0xFE, 0x80])
def test_undefined_flags_of_ping_are_ignored(peer: Peer, flags: int) -> None:
    """4.1: a flag without a meaning has none; the answer sets ACK and nothing else."""
    peer.send(wire.frame(Kind.PING, flags, 0, b"12345678"))
    answer = peer.expect("an answer to PING", lambda frame: frame.is_a(Kind.PING))
    assert (answer.flags, answer.payload) == (wire.ACK, b"12345678")


def test_undefined_flags_of_settings_are_ignored(peer: Peer) -> None:
    """4.1: only ACK has a meaning here."""
    peer.send(wire.frame(Kind.SETTINGS, 0xFE, 0, ONE_SETTING))
    peer.expect_settings_ack()


def test_undefined_flags_of_a_request_are_ignored(peer: Peer) -> None:
    """4.1: HEADERS, CONTINUATION, DATA, PRIORITY and WINDOW_UPDATE with all that means nothing."""
    block = peer.block(POST)
    peer.send(
        wire.frame(Kind.HEADERS, 0xD2, 1, block[:5]),
        wire.frame(Kind.CONTINUATION, 0xFF, 1, block[5:]),
        wire.frame(Kind.WINDOW_UPDATE, 0xFF, 1, wire.word(1)),
        wire.frame(Kind.PRIORITY, 0xFF, 1, wire.dependency()),
        wire.frame(Kind.DATA, 0xF6, 1, b"test"),
        wire.frame(Kind.DATA, 0xF7, 1, b"test"),
    )
    peer.expect_answer(1)


def test_undefined_flags_of_rst_stream_and_goaway_are_ignored(peer: Peer) -> None:
    """4.1: both define no flags."""
    peer.send(
        peer.request(1, POST, ends=False),
        wire.frame(Kind.RST_STREAM, 0xFF, 1, wire.word(Code.CANCEL)),
    )
    peer.expect_ping_answered()
    peer.send(peer.request(3), wire.frame(Kind.GOAWAY, 0xFF, 0, bytes(wire.GOAWAY_BYTES)))
    peer.expect_answer(3)


def test_the_reserved_bit_of_a_ping_is_ignored(peer: Peer) -> None:
    """4.1: the stream is zero, whatever stands before it."""
    peer.send(wire.frame(Kind.PING, 0, wire.RESERVED_BIT, b"12345678"))
    answer = peer.expect("an answer to PING", lambda frame: frame.is_a(Kind.PING, 0))
    assert answer.payload == b"12345678"


def test_the_reserved_bit_of_a_request_is_ignored(peer: Peer) -> None:
    """4.1: all frames of a request, some with the bit and some without."""
    block = peer.block(POST)
    peer.send(
        wire.headers(1 | wire.RESERVED_BIT, block[:3], ends=False, ends_headers=False),
        wire.continuation(1, block[3:7], ends_headers=False),
        wire.continuation(1 | wire.RESERVED_BIT, block[7:]),
        wire.window_update(1 | wire.RESERVED_BIT, 1),
        wire.data(1, b"test"),
        wire.data(1 | wire.RESERVED_BIT, b"test", ends=True),
    )
    peer.expect_answer(1)


def test_the_reserved_bit_of_settings_is_ignored(peer: Peer) -> None:
    """4.1: the stream is zero, whatever stands before it."""
    peer.send(wire.frame(Kind.SETTINGS, 0, wire.RESERVED_BIT, ONE_SETTING))
    peer.expect_settings_ack()


# 4.2: lengths.


def test_a_data_frame_of_the_largest_size_is_taken(peer: Peer) -> None:
    """4.2: every server takes 2^14 bytes."""
    peer.send(peer.request(1, POST, ends=False), wire.data(1, b"x" * LIMIT, ends=True))
    peer.expect_answer(1)


def test_a_headers_frame_of_the_largest_size_is_taken(peer: Peer) -> None:
    """4.2: here, filled up with a priority, one long field, and padding."""
    name, padding = b"x-long", 200
    overhead = len(plain(name, b"x" * 1000)) - 1000
    room = LIMIT - 1 - padding - wire.PRIORITY_BYTES - len(PLAIN_GET) - overhead
    block = PLAIN_GET + plain(name, b"x" * room)
    largest = wire.headers(1, block, padding=padding, priority=wire.dependency())
    assert len(largest) == wire.HEAD_BYTES + LIMIT
    peer.send(largest)
    peer.expect_answer(1)


@pytest.mark.parametrize(
    ("kind", "stream_id"),
    [
        pytest.param(Kind.HEADERS, 1, id="HEADERS"),
        pytest.param(Kind.SETTINGS, 0, id="SETTINGS"),
        pytest.param(Kind.PING, 0, id="PING"),
        pytest.param(Kind.GOAWAY, 0, id="GOAWAY"),
        pytest.param(Kind.WINDOW_UPDATE, 0, id="WINDOW_UPDATE"),
        pytest.param(0x16, 0, id="unknown-on-the-connection"),
    ],
)
def test_too_large_a_frame_that_concerns_the_connection_ends_it(
    peer: Peer, kind: int, stream_id: int
) -> None:
    """4.2: header blocks, SETTINGS, and all on stream zero: FRAME_SIZE_ERROR of the connection."""
    peer.send(wire.frame(kind, wire.END_HEADERS, stream_id, bytes(LIMIT + 2)))
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR})


def test_a_request_of_too_large_a_headers_frame_ends_the_connection(peer: Peer) -> None:
    """4.2: also when all in it is right."""
    fields = [*GET, *((b"x-dummy%d" % number, b"x" * 4000) for number in range(5))]
    block = peer.block(fields)
    assert len(block) > LIMIT
    peer.send(wire.headers(1, block))
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR})


def test_too_large_a_continuation_ends_the_connection(peer: Peer) -> None:
    """4.2: CONTINUATION carries a header block too."""
    peer.send(wire.headers(1, b"", ends_headers=False), wire.continuation(1, bytes(LIMIT + 1)))
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR})


@pytest.mark.parametrize("length", [LIMIT + 1, 2 * LIMIT, 1 << 18])
def test_too_large_a_data_frame_is_an_error_of_the_stream(peer: Peer, length: int) -> None:
    """4.2: FRAME_SIZE_ERROR; DATA changes nothing but its stream."""
    peer.send(peer.request(1, POST, ends=False), wire.data(1, bytes(length), ends=True))
    peer.expect_stream_error(1, {Code.FRAME_SIZE_ERROR})


@pytest.mark.parametrize(
    ("data", "stream_id"),
    [
        pytest.param(wire.frame(Kind.SETTINGS, 0, 0, bytes(3)), 0, id="6.5-SETTINGS-of-3"),
        pytest.param(wire.frame(Kind.SETTINGS, 0, 0, bytes(7)), 0, id="6.5-SETTINGS-of-7"),
        pytest.param(wire.frame(Kind.SETTINGS, wire.ACK, 0, b"\0"), 0, id="6.5-SETTINGS-ack-of-1"),
        pytest.param(
            wire.frame(Kind.SETTINGS, wire.ACK, 0, ONE_SETTING), 0, id="6.5-SETTINGS-ack-of-6"
        ),
        pytest.param(wire.ping(b""), 0, id="6.7-PING-of-0"),
        pytest.param(wire.ping(bytes(6)), 0, id="6.7-PING-of-6"),
        pytest.param(wire.ping(bytes(9)), 0, id="6.7-PING-of-9"),
        pytest.param(wire.frame(Kind.PING, wire.ACK, 0, bytes(7)), 0, id="6.7-PING-ack-of-7"),
        pytest.param(wire.frame(Kind.GOAWAY, 0, 0, b""), 0, id="6.8-GOAWAY-of-0"),
        pytest.param(wire.frame(Kind.GOAWAY, 0, 0, bytes(7)), 0, id="6.8-GOAWAY-of-7"),
        pytest.param(wire.frame(Kind.WINDOW_UPDATE, 0, 0, b""), 0, id="6.9-WINDOW_UPDATE-of-0"),
        pytest.param(
            wire.frame(Kind.WINDOW_UPDATE, 0, 0, b"\0\0\1"), 0, id="6.9-WINDOW_UPDATE-of-3"
        ),
        pytest.param(
            wire.frame(Kind.WINDOW_UPDATE, 0, 0, bytes(4) + b"\1"), 0, id="6.9-WINDOW_UPDATE-of-5"
        ),
        pytest.param(
            wire.frame(Kind.WINDOW_UPDATE, 0, 1, b"\0\0\1"), 1, id="6.9-WINDOW_UPDATE-of-a-stream"
        ),
        pytest.param(wire.frame(Kind.RST_STREAM, 0, 1, b""), 1, id="6.4-RST_STREAM-of-0"),
        pytest.param(wire.frame(Kind.RST_STREAM, 0, 1, bytes(3)), 1, id="6.4-RST_STREAM-of-3"),
        pytest.param(wire.frame(Kind.RST_STREAM, 0, 1, bytes(5)), 1, id="6.4-RST_STREAM-of-5"),
    ],
)
def test_a_frame_of_a_wrong_length_ends_the_connection(
    peer: Peer, data: bytes, stream_id: int
) -> None:
    """6.4, 6.5, 6.7, 6.8, 6.9: FRAME_SIZE_ERROR of the connection."""
    opening = peer.request(stream_id, POST, ends=False) if stream_id else b""
    peer.send(opening, data)
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR})


# 6: which frames belong to a stream, and which to the connection.


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wire.data(0, b"test", ends=True), id="6.1-DATA"),
        pytest.param(wire.headers(0, PLAIN_GET), id="6.2-HEADERS"),
        pytest.param(wire.priority(0), id="6.3-PRIORITY"),
        pytest.param(wire.rst_stream(0), id="6.4-RST_STREAM"),
        pytest.param(wire.continuation(0, PLAIN_GET), id="6.10-CONTINUATION"),
        pytest.param(
            wire.frame(Kind.PUSH_PROMISE, wire.END_HEADERS, 0, PUSH_PROMISE), id="6.6-PUSH_PROMISE"
        ),
    ],
)
def test_a_frame_that_needs_a_stream_must_name_one(peer: Peer, data: bytes) -> None:
    """6.1 to 6.4, 6.6, 6.10: on stream zero they are a PROTOCOL_ERROR of the connection."""
    peer.send(data)
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("stream_id", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        pytest.param(Kind.SETTINGS, ONE_SETTING, id="6.5-SETTINGS"),
        pytest.param(Kind.SETTINGS, b"", id="6.5-SETTINGS-empty"),
        pytest.param(Kind.PING, bytes(8), id="6.7-PING"),
        pytest.param(Kind.GOAWAY, bytes(8), id="6.8-GOAWAY"),
    ],
)
def test_a_frame_of_the_connection_must_name_no_stream(
    peer: Peer, kind: Kind, payload: bytes, stream_id: int
) -> None:
    """6.5, 6.7, 6.8: on a stream, open or not, they are a PROTOCOL_ERROR of the connection."""
    peer.send(peer.request(1, POST, ends=False), wire.frame(kind, 0, stream_id, payload))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("stream_id", [1, 2, 3])
def test_a_client_cannot_push(peer: Peer, stream_id: int) -> None:
    """8.4: PUSH_PROMISE of a client is a PROTOCOL_ERROR of the connection."""
    promise = wire.frame(Kind.PUSH_PROMISE, wire.END_HEADERS, stream_id, PUSH_PROMISE)
    peer.send(peer.request(1, POST, ends=False), promise)
    peer.expect_connection_error({Code.PROTOCOL_ERROR})
