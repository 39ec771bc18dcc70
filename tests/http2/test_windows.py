"""Flow control, both ways (RFC 9113, 5.2, 6.9).

That the server never sends more than a window allows is checked for each DATA frame of each test
(`conduct`); here are the tests that bring it near the edge.
"""

import pytest

from tests.http2 import wire
from tests.http2.blocks import POST
from tests.http2.calls import PUT, RANGE, RANGE_MESSAGE, check_went_well, put_message
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting

TO_THE_TOP = wire.MAX_WINDOW - wire.DEFAULT_WINDOW
"""What brings a window of the default size to the largest that there is."""


# What the client says of its windows.


@pytest.mark.parametrize("increment", [1, 1000, TO_THE_TOP])
def test_window_update_of_the_connection_is_taken(peer: Peer, increment: int) -> None:
    """6.9, 6.9.1: up to 2^31-1 bytes."""
    peer.send(wire.window_update(0, increment), peer.request(1))
    peer.expect_answer(1)


@pytest.mark.parametrize("increment", [1, 1000, TO_THE_TOP])
def test_window_update_of_a_stream_is_taken(peer: Peer, increment: int) -> None:
    """6.9, 6.9.1: up to 2^31-1 bytes."""
    peer.send(peer.request(1, POST, ends=False), wire.window_update(1, increment))
    peer.send(wire.data(1, b"test", ends=True))
    peer.expect_answer(1)


@pytest.mark.parametrize("reserved", [0, wire.RESERVED_BIT], ids=["plain", "reserved-bit"])
def test_no_increment_of_the_connection_ends_it(peer: Peer, reserved: int) -> None:
    """6.9: an increment of zero is a PROTOCOL_ERROR; the reserved bit is no part of it."""
    peer.send(wire.window_update(0, reserved))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("reserved", [0, wire.RESERVED_BIT], ids=["plain", "reserved-bit"])
def test_no_increment_of_a_stream_is_an_error_of_it(peer: Peer, reserved: int) -> None:
    """6.9: an increment of zero is a PROTOCOL_ERROR; the reserved bit is no part of it."""
    peer.send(peer.request(1, ends=False), wire.window_update(1, reserved))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


def test_the_reserved_bit_of_an_increment_is_ignored(peer: Peer) -> None:
    """6.9: 31 bits are the increment."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1), wire.window_update(1, wire.RESERVED_BIT | 3))
    assert len(peer.expect_data(1).payload) == 3


@pytest.mark.parametrize(
    "increments", [(TO_THE_TOP, 1), (wire.MAX_WINDOW,) * 2, (TO_THE_TOP + 1,)], ids=repr
)
def test_too_large_a_window_of_the_connection_ends_it(
    peer: Peer, increments: tuple[int, ...]
) -> None:
    """6.9.1: beyond 2^31-1 it is a FLOW_CONTROL_ERROR of the connection."""
    peer.send(*(wire.window_update(0, increment) for increment in increments))
    peer.expect_connection_error({Code.FLOW_CONTROL_ERROR})


@pytest.mark.parametrize(
    "increments", [(TO_THE_TOP, 1), (wire.MAX_WINDOW,) * 2, (TO_THE_TOP + 1,)], ids=repr
)
def test_too_large_a_window_of_a_stream_resets_it(peer: Peer, increments: tuple[int, ...]) -> None:
    """6.9.1: beyond 2^31-1 the stream is reset with FLOW_CONTROL_ERROR, and no other."""
    peer.send(
        peer.request(1, ends=False), *(wire.window_update(1, increment) for increment in increments)
    )
    reset = peer.expect("RST_STREAM", lambda frame: frame.is_a(Kind.RST_STREAM, 1))
    assert reset.code == Code.FLOW_CONTROL_ERROR, reset
    peer.expect_ping_answered()
    peer.send(peer.request(3))
    peer.expect_answer(3)


def test_a_setting_that_makes_a_window_too_large_ends_the_connection(peer: Peer) -> None:
    """6.9.2: one stream beyond 2^31-1 is a FLOW_CONTROL_ERROR of the connection."""
    peer.send(peer.request(1, POST, ends=False), wire.window_update(1, TO_THE_TOP))
    peer.expect_ping_answered()
    peer.send(wire.settings((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW + 1)))
    peer.expect_connection_error({Code.FLOW_CONTROL_ERROR})


def test_a_setting_may_bring_a_window_to_the_top(peer: Peer) -> None:
    """6.9.1, 6.9.2: 2^31-1 is allowed, for each stream on its own."""
    peer.send(peer.request(1, POST, ends=False), wire.window_update(1, TO_THE_TOP - 5))
    peer.set((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW + 5))
    peer.send(wire.data(1, ends=True))
    peer.expect_answer(1)


def test_a_setting_does_not_change_the_window_of_the_connection(peer: Peer) -> None:
    """6.9.2: only WINDOW_UPDATE does; else this would be too large."""
    peer.send(wire.window_update(0, TO_THE_TOP))
    peer.set((Setting.INITIAL_WINDOW_SIZE, wire.MAX_WINDOW))
    peer.send(peer.request(1))
    peer.expect_answer(1)


# What the server does within small windows.


def test_data_keeps_to_the_window_of_the_stream(peer: Peer) -> None:
    """6.9.1: one byte is allowed, so one is sent, and the others when they are."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 1))
    peer.send(peer.request(1))
    first = peer.expect_data(1)
    assert len(first.payload) == 1
    assert not first.has(wire.END_STREAM)
    assert not _data_in(peer)
    peer.send(wire.window_update(1, 2))
    assert len(peer.expect_data(1).payload) == 2
    assert not _data_in(peer)
    peer.send(wire.window_update(1, 1000))
    assert len(peer.expect_answer(1).body) >= 5


def test_a_closed_window_does_not_hold_up_the_head(peer: Peer) -> None:
    """6.9: only DATA is under flow control."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1))
    peer.expect("HEADERS on stream 1", lambda frame: frame.is_a(Kind.HEADERS, 1))
    assert not peer.conduct.answers[1].is_ended, "there is a body to come"
    assert not _data_in(peer)


def test_a_new_setting_opens_the_windows_of_open_streams(peer: Peer) -> None:
    """6.9.2: by the difference between the old and the new value, of all of them."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1), peer.request(3))
    assert not _data_in(peer)
    peer.send(wire.settings((Setting.INITIAL_WINDOW_SIZE, 1)))
    lengths = {}
    for _ in range(2):
        one = peer.expect("DATA", lambda frame: frame.is_a(Kind.DATA))
        lengths[one.stream_id] = len(one.payload)
    assert lengths == {1: 1, 3: 1}


def test_a_window_may_become_negative(peer: Peer) -> None:
    """6.9.2: a server keeps count below zero, and sends again from one byte on."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 3))
    peer.send(peer.request(1))
    assert len(peer.expect_data(1).payload) == 3
    peer.set((Setting.INITIAL_WINDOW_SIZE, 2))
    peer.send(wire.window_update(1, 2))
    assert len(peer.expect_data(1).payload) == 1


def test_a_negative_window_stays_closed_up_to_zero(peer: Peer) -> None:
    """6.9.2: three bytes below zero, then three granted, are no byte to send."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 3))
    peer.send(peer.request(1))
    assert len(peer.expect_data(1).payload) == 3
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(wire.window_update(1, 3))
    assert not _data_in(peer)
    peer.set((Setting.INITIAL_WINDOW_SIZE, 1))
    assert len(peer.expect_data(1).payload) == 1


def test_many_small_increments_add_up(peer: Peer) -> None:
    """6.9.1: byte by byte to the end, and the answer is whole."""
    peer.send(peer.request(1))
    whole = peer.expect_answer(1).body
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(3))
    for _ in whole:
        peer.send(wire.window_update(3, 1))
        assert len(peer.expect_data(3).payload) == 1
    assert peer.expect_answer(3).body == whole


def test_window_update_of_an_answered_stream_is_ignored(peer: Peer) -> None:
    """5.1, 6.9: even one that would be too large, or for nothing any more."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.send(wire.window_update(1, wire.MAX_WINDOW))
    peer.expect_ping_answered()


# Answers that are larger than the windows.


@pytest.mark.usefixtures("ours")
def test_an_answer_waits_for_the_window_of_its_stream(peer: Peer) -> None:
    """6.9.1: to the byte, and goes on where it stood."""
    value = bytes(range(256)) * 400
    _put(peer, 1, value)
    peer.send(wire.window_update(0, 1 << 20), peer.request(3, RANGE, ends=False))
    peer.send(wire.data(3, RANGE_MESSAGE, ends=True))
    _read_until_window_is_used_up(peer, 3, 3)
    peer.send(wire.window_update(3, 1 << 20))
    answer = peer.expect_answer(3)
    check_went_well(answer)
    assert value in answer.body


@pytest.mark.usefixtures("ours")
def test_answers_share_the_window_of_the_connection(peer: Peer) -> None:
    """5.2, 6.9.1: to the byte, however large the windows of the streams are."""
    value = b"0123456789" * 10_000
    _put(peer, 1, value)
    peer.set((Setting.INITIAL_WINDOW_SIZE, 1 << 20))
    for stream_id in (3, 5):
        opening = peer.request(stream_id, RANGE, ends=False)
        peer.send(opening, wire.data(stream_id, RANGE_MESSAGE, ends=True))
    _read_until_window_is_used_up(peer, 0, None)
    assert not _data_in(peer)
    peer.send(wire.window_update(0, 1))
    one = peer.expect("DATA", lambda frame: frame.is_a(Kind.DATA))
    assert len(one.payload) == 1
    peer.send(wire.window_update(0, 1 << 20))
    for stream_id in (3, 5):
        answer = peer.expect_answer(stream_id)
        check_went_well(answer)
        assert value in answer.body


@pytest.mark.usefixtures("ours")
def test_a_stream_without_room_does_not_hold_up_others(peer: Peer) -> None:
    """5.2.1: each stream has a window of its own."""
    _put(peer, 1, b"v" * 1000)
    peer.set((Setting.INITIAL_WINDOW_SIZE, 10))
    for stream_id in (3, 5):
        opening = peer.request(stream_id, RANGE, ends=False)
        peer.send(opening, wire.data(stream_id, RANGE_MESSAGE, ends=True))
    peer.send(wire.window_update(5, 10_000))
    check_went_well(peer.expect_answer(5))
    assert len(peer.conduct.answers[3].body) == 10


# What the server says of its windows.


def test_more_can_be_sent_than_the_window_of_the_connection(peer: Peer) -> None:
    """5.2, 6.9: the server opens its window again for what it has taken, or thrown away."""
    total = peer.conduct.send_windows[0] + 100_000
    stream_id = -1
    while total > 0:
        stream_id += 2
        peer.send(peer.request(stream_id, POST, ends=False))
        total -= _upload(peer, stream_id, total)
        peer.expect_answer(stream_id)


def test_what_comes_on_a_reset_stream_counts_for_the_connection(peer: Peer) -> None:
    """5.1, 6.9: DATA on a stream that the server has reset is still under flow control."""
    total = peer.conduct.send_windows[0] + 100_000
    stream_id = 1
    peer.send(peer.request(stream_id, [*POST, (b"content-length", b"no")], ends=False))
    peer.expect_stream_error(stream_id, {Code.PROTOCOL_ERROR})
    initial = peer.conduct.send_window(stream_id)
    while total > 0:
        stream_id += 2
        # The reset is on its way while this is sent, as far as anybody can tell.
        peer.send(peer.request(stream_id, [*POST, (b"content-length", b"no")], ends=False))
        total -= _upload(peer, stream_id, min(total, initial), ends=False)
        peer.expect_ping_answered()
    peer.send(peer.request(stream_id + 2))
    peer.expect_answer(stream_id + 2)


def _data_in(peer: Peer) -> list[wire.Frame]:
    """DATA that comes before everything else that was sent is dealt with."""
    return [frame for frame in peer.expect_ping_answered() if frame.is_a(Kind.DATA)]


def _put(peer: Peer, stream_id: int, value: bytes) -> None:
    message = put_message(value)
    peer.send(peer.request(stream_id, PUT, ends=False))
    cut = wire.DEFAULT_MAX_FRAME_BYTES
    for at in range(0, len(message), cut):
        piece = message[at : at + cut]
        peer.send(wire.data(stream_id, piece, ends=at + cut >= len(message)))
    check_went_well(peer.expect_answer(stream_id))


def _upload(peer: Peer, stream_id: int, most: int, *, ends: bool = True) -> int:
    """Send what the stream's window allows, at most so many bytes; wait for the connection's."""
    left = most
    while left:
        room = min(left, peer.conduct.send_window(stream_id), wire.DEFAULT_MAX_FRAME_BYTES)
        if room:
            peer.send(wire.data(stream_id, bytes(room)))
            left -= room
        elif peer.conduct.send_windows[0]:
            break
        else:
            peer.expect("WINDOW_UPDATE", lambda frame: frame.is_a(Kind.WINDOW_UPDATE, 0))
    if ends:
        peer.send(wire.data(stream_id, ends=True))
    return most - left


def _read_until_window_is_used_up(peer: Peer, window_of: int, stream_id: int | None) -> None:
    while peer.conduct.window(window_of):
        peer.expect("DATA", lambda frame: frame.is_a(Kind.DATA, stream_id))
    assert not _data_in(peer)
