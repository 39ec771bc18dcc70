"""Settings, and when they hold (RFC 9113, 6.5)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import DEFAULT_TABLE_BYTES, EMPTY_TABLE
from tests.http2.calls import PUT, RANGE, RANGE_MESSAGE, check_went_well, put_message
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting, named

ANY = [
    (Setting.HEADER_TABLE_SIZE, DEFAULT_TABLE_BYTES),
    (Setting.ENABLE_PUSH, 1),
    (Setting.MAX_CONCURRENT_STREAMS, 100),
    (Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW),
    (Setting.MAX_FRAME_SIZE, wire.DEFAULT_MAX_FRAME_BYTES),
    (Setting.MAX_HEADER_LIST_SIZE, 100),
]
LARGEST_FRAME = (1 << 24) - 1


@pytest.mark.parametrize("values", [(), ANY, ANY * 20], ids=["none", "all", "many"])
def test_settings_are_acknowledged(peer: Peer, values: list[tuple[int, int]]) -> None:
    """6.5, 6.5.3: whatever is in them, also nothing."""
    peer.send(wire.settings(*values))
    ack = peer.expect_settings_ack()
    assert (ack.stream_id, ack.payload) == (0, b"")


def test_each_settings_frame_is_acknowledged_at_once(peer: Peer) -> None:
    """6.5.3: once each, and before what comes after it is answered."""
    for count in (1, 2, 7):
        peer.send(*(wire.settings((Setting.ENABLE_PUSH, 0)) for _ in range(count)))
        before = peer.expect_ping_answered()
        acks = [frame for frame in before if frame.is_a(Kind.SETTINGS) and frame.has(wire.ACK)]
        assert len(acks) == count


def test_settings_are_acknowledged_before_they_are_made_use_of(peer: Peer) -> None:
    """6.5.3: a smaller window holds for the request right behind it, and the ACK comes first."""
    peer.send(wire.settings((Setting.INITIAL_WINDOW_SIZE, 1)), peer.request(1))
    peer.expect_settings_ack()
    assert len(peer.expect_data(1).payload) == 1


def test_the_last_of_equal_settings_holds(peer: Peer) -> None:
    """6.5.3: values are processed in the order in which they appear."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 100), (Setting.INITIAL_WINDOW_SIZE, 1))
    peer.send(peer.request(1))
    assert len(peer.expect_data(1).payload) == 1


@pytest.mark.parametrize("name", [0x0, 0x7, 0xB, 0xFF, 0xFFFF], ids=hex)
@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF], ids=hex)
def test_unknown_settings_are_ignored(peer: Peer, name: int, value: int) -> None:
    """6.5.2: and acknowledged with the others."""
    peer.set((name, value))
    peer.expect_ping_answered()


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (Setting.ENABLE_PUSH, 2, Code.PROTOCOL_ERROR),
        (Setting.ENABLE_PUSH, 0xFFFFFFFF, Code.PROTOCOL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, wire.MAX_WINDOW + 1, Code.FLOW_CONTROL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, 0xFFFFFFFF, Code.FLOW_CONTROL_ERROR),
        (Setting.MAX_FRAME_SIZE, 0, Code.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, wire.DEFAULT_MAX_FRAME_BYTES - 1, Code.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, LARGEST_FRAME + 1, Code.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, 0xFFFFFFFF, Code.PROTOCOL_ERROR),
    ],
    ids=named,
)
def test_a_value_that_is_not_allowed_ends_the_connection(
    peer: Peer, name: Setting, value: int, code: Code
) -> None:
    """6.5.2: with the code that the setting names."""
    peer.send(wire.settings((Setting.MAX_CONCURRENT_STREAMS, 1), (name, value)))
    peer.expect_connection_error({code})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (Setting.HEADER_TABLE_SIZE, 0),
        (Setting.HEADER_TABLE_SIZE, 0xFFFFFFFF),
        (Setting.ENABLE_PUSH, 0),
        (Setting.ENABLE_PUSH, 1),
        (Setting.MAX_CONCURRENT_STREAMS, 0),
        (Setting.MAX_CONCURRENT_STREAMS, 0xFFFFFFFF),
        (Setting.INITIAL_WINDOW_SIZE, wire.MAX_WINDOW),
        (Setting.MAX_FRAME_SIZE, wire.DEFAULT_MAX_FRAME_BYTES),
        (Setting.MAX_FRAME_SIZE, LARGEST_FRAME),
        (Setting.MAX_HEADER_LIST_SIZE, 0xFFFFFFFF),
    ],
    ids=named,
)
def test_the_outermost_values_are_allowed(peer: Peer, name: Setting, value: int) -> None:
    """6.5.2: and requests are answered under them. No streams of the server are needed for it."""
    peer.set((name, value))
    peer.send(peer.request(1))
    peer.expect_answer(1)


def test_settings_of_the_server_are_allowed_values(peer: Peer) -> None:
    """6.5.2: a server keeps to the limits too."""
    told = peer.conduct.server_settings
    assert told.get(Setting.INITIAL_WINDOW_SIZE, 0) <= wire.MAX_WINDOW
    least = wire.DEFAULT_MAX_FRAME_BYTES
    assert least <= told.get(Setting.MAX_FRAME_SIZE, least) <= LARGEST_FRAME


# HEADER_TABLE_SIZE: what the server does with its own table (RFC 7541, 4.2).


@pytest.mark.parametrize("table_bytes", [0, 1, 40, 100, 4095])
def test_a_smaller_table_is_announced_and_kept(peer: Peer, table_bytes: int) -> None:
    """6.5.2; RFC 7541, 4.2: the first block after the ACK says so, and the table is that small.

    The table of the peer has that size then; a server that uses more of it cannot be decoded.
    """
    for stream_id in (1, 3):
        peer.send(peer.request(stream_id))
        peer.expect_answer(stream_id)
    peer.set((Setting.HEADER_TABLE_SIZE, table_bytes))
    for stream_id in (5, 7, 9):
        peer.send(peer.request(stream_id))
        peer.expect_answer(stream_id)


def test_the_smallest_size_of_the_table_is_announced(peer: Peer) -> None:
    """RFC 7541, 4.2: a size that held for no block still evicts what was in the table."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.set((Setting.HEADER_TABLE_SIZE, 0), (Setting.HEADER_TABLE_SIZE, DEFAULT_TABLE_BYTES))
    peer.send(peer.request(3))
    head = peer.expect("HEADERS on stream 3", lambda frame: frame.is_a(Kind.HEADERS, 3))
    assert head.content.startswith(EMPTY_TABLE)
    peer.send(peer.request(5))
    peer.expect_answer(5)


# MAX_FRAME_SIZE: what the server may send.


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    "largest", [wire.DEFAULT_MAX_FRAME_BYTES, wire.DEFAULT_MAX_FRAME_BYTES + 1, 40_000]
)
def test_frames_of_the_server_keep_to_the_size_of_the_client(peer: Peer, largest: int) -> None:
    """4.2, 6.5.2: no frame is larger than MAX_FRAME_SIZE; also after it is set back."""
    value = b"v" * 60_000
    peer.send(peer.request(1, PUT, ends=False))
    put = put_message(value)
    cut = wire.DEFAULT_MAX_FRAME_BYTES
    pieces = [put[at : at + cut] for at in range(0, len(put), cut)]
    peer.send(*(wire.data(1, piece, ends=piece is pieces[-1]) for piece in pieces))
    check_went_well(peer.expect_answer(1))
    peer.send(wire.window_update(0, 200_000))
    for stream_id, size in ((3, largest), (5, wire.DEFAULT_MAX_FRAME_BYTES)):
        peer.set((Setting.MAX_FRAME_SIZE, size))
        peer.send(
            peer.request(stream_id, RANGE, ends=False),
            wire.data(stream_id, RANGE_MESSAGE, ends=True),
        )
        answer = peer.expect_answer(stream_id)
        check_went_well(answer)
        assert value in answer.body
