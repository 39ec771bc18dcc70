"""What goes out: the peer's windows, its settings, and the limit for what it does not take."""

import itertools

import pytest
from h2.settings import SettingCodes

from leasehold.errors import Status
from leasehold.grpc.coroutine_handlers import DEFERRED_BYTES
from leasehold.grpc.protocol import PREFIX_BYTES, RpcError, framed
from leasehold.grpc.routes import Answer, Exchange
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import SHARE_BYTES
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    WATCH,
    Frame,
    Peer,
    RawPeer,
    kinds,
    no_leak,
)
from tests.support.virtual_loop import Turn

WINDOW = frames.DEFAULT_WINDOW
LIMITS = ConnectionLimits()


def _data(sent: list[Frame], stream_id: int | None = None) -> bytes:
    return b"".join(
        one.payload
        for one in sent
        if one.kind == frames.DATA and stream_id in (None, one.stream_id)
    )


def _pattern(length: int, seed: int = 0) -> bytes:
    """Bytes that show when they come in another order."""
    return b"".join((seed + at).to_bytes(4, "big") for at in range(length // 4))


# Windows.


def test_a_big_answer_arrives_whole_and_in_order_through_small_windows(peer: Peer) -> None:
    message = _pattern(1_000_000)
    reply = peer.call(message)
    assert reply.messages == [message]
    assert reply.status == 0
    assert no_leak(peer.server)


def test_big_answers_of_several_streams_arrive_whole_though_they_share_a_window(
    peer: Peer,
) -> None:
    messages = [_pattern(200_000 + 1_000 * index, index << 24) for index in range(8)]
    numbers = [peer.begin(message) for message in messages]
    peer.pump()
    assert [peer.reply(number).messages for number in numbers] == [[one] for one in messages]
    assert no_leak(peer.server)


@pytest.mark.parametrize("primed", [False, True])
def test_a_stream_sends_no_more_than_its_window(raw: RawPeer, *, primed: bool) -> None:
    if primed:
        raw.send(raw.unary(1))
    raw.send(frames.window_update(0, 1_000_000))
    data = framed(_pattern(100_000))
    raw.send(raw.request(3))
    cut = [data[at : at + 16_000] for at in range(0, len(data), 16_000)]
    sent = []
    for piece in cut:
        sent += raw.send(frames.frame(frames.DATA, END * (piece is cut[-1]), 3, piece))
    assert len(_data(sent)) == WINDOW
    sent += raw.send(frames.window_update(3, 1))
    assert len(_data(sent)) == WINDOW + 1
    sent += raw.send(frames.window_update(3, 1_000_000))
    assert _data(sent) == data
    assert (sent[-1].kind, sent[-1].flags) == (frames.HEADERS, END | END_HEADERS)
    assert no_leak(raw.server)


def test_a_connection_sends_no_more_than_its_window_on_all_streams(raw: RawPeer) -> None:
    message = bytes(10_000)
    sent = [one for number in range(1, 21, 2) for one in raw.send(raw.unary(number, message))]
    assert len(_data(sent)) == WINDOW
    sent += raw.send(frames.window_update(0, 1_000_000))
    for number in range(1, 21, 2):
        assert _data(sent, number) == framed(message)
    assert no_leak(raw.server)


def test_an_answer_that_just_fits_leaves_at_once_and_one_octet_more_does_not(
    raw: RawPeer,
) -> None:
    raw.send(raw.unary(1, b""))
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 100}))
    assert _data(raw.send(raw.unary(3, bytes(95)))) == framed(bytes(95))
    assert len(_data(raw.send(raw.unary(5, bytes(96))))) == 100
    assert _data(raw.send(frames.window_update(5, 1))) == b"\0"


def test_a_window_of_one_octet_at_a_time_is_enough(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    sent = raw.send(raw.unary(1, b"hello"))
    assert kinds(sent) == [frames.HEADERS]
    for byte in framed(b"hello"):
        got = raw.send(frames.window_update(1, 1))
        assert got[0].payload == bytes((byte,))
        sent += got
    assert kinds(sent[-2:]) == [frames.DATA, frames.HEADERS]
    assert no_leak(raw.server)


def test_a_window_made_smaller_may_be_negative_and_must_be_filled_first(raw: RawPeer) -> None:
    raw.send(raw.request(1, MANY))
    raw.send(frames.frame(frames.DATA, 0, 1, framed(bytes(9_995))))  # 10,000 bytes come back
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 4_000}))
    assert _data(raw.send(frames.frame(frames.DATA, 0, 1, framed(b"more")))) == b""
    assert _data(raw.send(frames.window_update(1, 6_000))) == b""
    assert _data(raw.send(frames.window_update(1, 1))) == b"\0"
    assert (
        _data(raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 5_000})))
        == (framed(b"more")[1:])
    )


def test_a_window_closed_and_opened_again_by_settings_lets_go_what_waits(peer: Peer) -> None:
    peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    peer.pump()
    numbers = [peer.begin(b"%d" % index) for index in range(3)]
    peer.pump()
    assert [peer.reply(number).body for number in numbers] == [b""] * 3
    peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000})
    peer.pump()
    assert [peer.reply(number).messages for number in numbers] == [[b"0"], [b"1"], [b"2"]]
    assert no_leak(peer.server)


def test_an_error_needs_no_window(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    sent = raw.send(raw.request(1, "/no.Service/No", END))
    assert (kinds(sent), sent[0].flags & END) == ([frames.HEADERS], END)


def test_one_message_of_a_stream_waits_behind_the_other_for_the_window(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}))
    raw.send(raw.request(1, MANY))
    sent = raw.send(frames.frame(frames.DATA, 0, 1, framed(b"first") + framed(b"second")))
    sent += raw.send(frames.window_update(1, 100))
    assert _data(sent) == framed(b"first") + framed(b"second")


def test_a_stream_that_is_reset_gives_the_window_to_the_others(raw: RawPeer) -> None:
    raw.send(raw.unary(1, bytes(14_000)))
    sent = [one for number in range(3, 13, 2) for one in raw.send(raw.unary(number, bytes(14_000)))]
    [waiting] = {number for number, one in raw.server._streams.items() if one.unsent} - {11}
    assert raw.send(frames.rst_stream(waiting, ErrorCode.CANCEL)) == []
    got = raw.send(frames.window_update(0, 14_005))
    assert {one.stream_id for one in got} == {11}
    assert len(_data(sent + got, 11)) == 14_005
    assert no_leak(raw.server)


# Limits.


def test_a_peer_that_takes_nothing_is_cut_off(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, WATCH))
    [ear] = raw.service.ears
    ear.stream.send_message(bytes(LIMITS.max_event_bytes), 0)  # one may be large
    raw.server.flush()
    assert not ear.stream.has_room
    for _ in range(LIMITS.max_unsent_bytes // 1_000_000):
        ear.stream.send_message(bytes(1_000_000), 0)
        raw.server.flush()
    assert not raw.server.is_closing
    ear.stream.send_message(bytes(1_000_000), 0)
    assert raw.goaway() == ErrorCode.ENHANCE_YOUR_CALM
    assert ear.gone_times == 1
    assert no_leak(raw.server)


def test_a_listener_is_told_when_there_is_room_again(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, WATCH))
    [ear] = raw.service.ears
    room = [ear.stream.has_room]
    ear.stream.send_message(bytes(LIMITS.max_event_bytes // 2), 0)
    ear.stream.send_message(
        bytes(LIMITS.max_event_bytes // 2), 1
    )  # what waits for the disk counts as well
    room.append(ear.stream.has_room)
    raw.gate.release(1)
    raw.send(frames.window_update(0, 2 * LIMITS.max_event_bytes))
    assert ear.relieved_times == 0
    raw.send(frames.window_update(1, 2 * LIMITS.max_event_bytes))
    assert [*room, ear.stream.has_room] == [True, False, True]
    assert ear.relieved_times == 1


def test_a_peer_that_takes_its_answers_may_ask_for_much_at_once(peer: Peer) -> None:
    peer.service.methods["/test.Service/Large"] = Exchange(lambda _: (bytes(1_000_000), 0))
    count = LIMITS.max_unsent_bytes // 1_000_000 + 1
    numbers = [peer.begin(b"", "/test.Service/Large") for _ in range(count)]
    peer.pump()
    assert peer.goaway is None
    assert [len(peer.reply(number).body) for number in numbers] == [1_000_005] * count


def test_nothing_piles_up_once_a_peer_is_cut_off(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, WATCH))
    [ear] = raw.service.ears
    ear.stream.send_message(bytes(LIMITS.max_event_bytes), 0)
    raw.server.flush()
    ear.stream.send_message(bytes(LIMITS.max_unsent_bytes), 0)
    raw.goaway()
    ear.stream.send_message(bytes(1_000), 0)
    ear.stream.send_message(bytes(1_000), 1)
    raw.gate.release(1)
    assert raw.taken() == []
    assert no_leak(raw.server)


def test_what_was_taken_counts_no_more(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, WATCH))
    raw.service.ears[0].stream.send_message(bytes(1_000), 0)
    raw.server.flush()
    assert raw.server._outbound.unsent_bytes == 1_000 + PREFIX_BYTES
    raw.send(frames.window_update(1, 5))
    assert raw.server._outbound.unsent_bytes == 1_000
    raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert no_leak(raw.server)


# Settings.


def test_frames_are_no_larger_than_the_peer_allows(raw: RawPeer) -> None:
    raw.send(frames.window_update(0, 10_000_000))
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10_000_000}))
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    for size in (frames.MIN_MAX_FRAME_BYTES, 20_000, SHARE_BYTES, 1_000_000):
        raw.send(frames.settings({Setting.MAX_FRAME_SIZE: size}))
        stream.send_message(bytes(1_500_000), 0)
        raw.server.flush()
        largest = max(len(one.payload) for one in raw.taken())
        assert largest == min(size, SHARE_BYTES), "none has more than its share"


def test_an_answer_larger_than_a_frame_is_cut_though_the_windows_are_open(raw: RawPeer) -> None:
    message = _pattern(20_000)
    raw.service.methods["/test.Service/Large"] = Exchange(lambda _: (message, 0))
    raw.send(frames.window_update(0, 10_000_000))
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10_000_000}))
    raw.send(raw.unary(1))
    call = frames.frame(frames.DATA, END, 3, framed(b""))
    sent = raw.send(raw.request(3, "/test.Service/Large"), call)
    assert _data(sent) == framed(message)
    assert max(len(one.payload) for one in sent) == frames.MIN_MAX_FRAME_BYTES


def test_a_long_header_block_goes_on_in_continuations(peer: Peer) -> None:
    peer.service.fails = RpcError(Status.ABORTED, "x" * 40_000)
    peer.client.decoder.max_header_list_size = 100_000
    assert peer.call().why == "x" * 40_000


@pytest.mark.parametrize("table_bytes", [0, 64, 4_095])
def test_answers_stay_readable_for_a_peer_with_a_smaller_table(
    peer: Peer, table_bytes: int
) -> None:
    first = peer.call()
    peer.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: table_bytes})
    peer.pump()
    assert [peer.call() for _ in range(3)] == [first] * 3


def test_the_first_answer_to_a_peer_with_a_smaller_table_may_be_a_refusal(peer: Peer) -> None:
    peer.call()
    peer.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
    peer.pump()
    number = peer.open(method="GET", end=True)
    peer.pump()
    assert peer.reply(number).head[":status"] == "405"
    assert peer.call(b"next").messages == [b"next"]


def test_a_table_made_smaller_and_larger_again_keeps_answers_readable(peer: Peer) -> None:
    first = peer.call()
    for table_bytes in (0, 4_096, 100, 65_536):
        peer.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: table_bytes})
        peer.pump()
        assert peer.call() == first


def test_answers_of_one_piece_leave_in_one_piece(raw: RawPeer) -> None:
    calls = b"".join(raw.unary(number) for number in itertools.islice(itertools.count(1, 2), 50))
    raw.server.receive(calls)
    assert len(raw._arrived) == 1


def test_answers_released_together_leave_in_one_piece(raw: RawPeer) -> None:
    raw.service.position = 1
    for number in range(1, 101, 2):
        raw.send(raw.unary(number))
    raw.gate.release(1)
    assert len(raw._arrived) == 1
    assert len(_data(raw.taken())) == 50 * len(framed(b"hello"))


def test_what_waits_for_the_window_of_all_comes_before_later_answers(raw: RawPeer) -> None:
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW}))
    for number in (1, 3):  # the table is filled, so that short answers can take the short way
        raw.send(raw.unary(number))
    raw.send(raw.request(5, WATCH))
    [ear] = raw.service.ears
    ear.stream.send_message(bytes(200_000), 0)
    ear.stream.flush()
    raw.taken()
    sent = []
    for number in range(7, 87, 2):
        sent += raw.send(raw.unary(number, bytes(1_000)), frames.window_update(0, 1_000))
    assert len(_data(sent)) == 40_000, "all of what was opened"
    assert len(_data(sent, 5)) > 5_000, "its share, though it is not the only one that waits"


def test_there_is_a_limit_to_answers_of_one_stream_that_take_a_while() -> None:
    begun = []

    async def never(message: bytes) -> Answer:
        begun.append(message)
        while True:
            await Turn()

    raw = RawPeer(limits=ConnectionLimits(max_buffered_bytes=100 * DEFERRED_BYTES))
    raw.service.methods[MANY] = Exchange(never, is_unary=False)
    raw.send(raw.request(1, MANY))
    sent = raw.send(*[frames.frame(frames.DATA, 0, 1, framed(b"x"))] * 200)
    assert kinds(sent)[-1] == frames.RST_STREAM
    raw.loop.run_tasks()
    assert len(begun) <= 100
    assert no_leak(raw.server)
