"""How a connection is closed in good order: drain, stop taking, dismiss."""

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, framed
from leasehold.http2 import frames
from leasehold.http2.frames import MAX_WINDOW, ErrorCode
from tests.support.h2_peer import MANY, WATCH, Frame, RawPeer, kinds, no_leak

frame = frames.frame
STOPS = RpcError(Status.UNAVAILABLE, "the server stops")
PONG = frame(frames.PING, frames.ACK, 0, bytes(8))


def _last_taken(goaway: Frame) -> int:
    return int.from_bytes(goaway.payload[:4], "big")


def test_drain_asks_for_no_new_calls_and_whether_that_was_heard(raw: RawPeer) -> None:
    raw.server.drain()
    goaway, ping = raw.taken()
    assert (goaway.kind, goaway.code) == (frames.GOAWAY, ErrorCode.NO_ERROR)
    assert _last_taken(goaway) == MAX_WINDOW
    assert (ping.kind, ping.flags, len(ping.payload)) == (frames.PING, 0, 8)
    assert raw.server.is_pinged
    assert not raw.server.is_closing
    assert raw.send(PONG) == []
    assert not raw.server.is_pinged


def test_calls_that_were_on_their_way_are_taken_after_drain(raw: RawPeer) -> None:
    raw.server.drain()
    raw.taken()
    assert len(raw.send(raw.unary(1))) == 3
    raw.send(raw.request(3, WATCH))
    assert len(raw.service.ears) == 1


def test_stop_taking_names_the_last_call_that_was_taken_and_refuses_all_others(
    raw: RawPeer,
) -> None:
    raw.service.position = 1
    raw.send(raw.unary(5))
    raw.server.stop_taking()
    [goaway] = raw.taken()
    assert (goaway.kind, goaway.code, _last_taken(goaway)) == (
        frames.GOAWAY,
        ErrorCode.NO_ERROR,
        5,
    )
    assert raw.reset(raw.request(7)) == (7, ErrorCode.REFUSED_STREAM)
    assert raw.send(frame(frames.DATA, 0, 7, framed(b"on its way"))) == []
    assert raw.service.heard == [b"hello"]
    raw.gate.release(1)
    assert kinds(raw.taken()) == [frames.HEADERS, frames.DATA, frames.HEADERS]
    assert no_leak(raw.server)


def test_a_call_that_was_refused_is_never_said_to_have_been_taken(raw: RawPeer) -> None:
    raw.send(raw.request(5, WATCH))
    raw.server.stop_taking()
    raw.reset(raw.request(7))
    raw.server.stop_taking()
    raw.server.dismiss(STOPS)
    goaways = [one for one in raw.taken() if one.kind == frames.GOAWAY]
    assert [_last_taken(one) for one in goaways] == [5]


def test_calls_that_were_taken_go_on_after_stop_taking(raw: RawPeer) -> None:
    raw.send(raw.request(1, MANY), raw.request(3, WATCH))
    raw.server.stop_taking()
    raw.taken()
    sent = raw.send(frame(frames.DATA, 0, 1, framed(b"still there?")))
    assert framed(b"still there?") in [one.payload for one in sent]
    raw.service.ears[0].stream.send_message(b"event", 0)
    raw.server.flush()
    assert framed(b"event") in [one.payload for one in raw.taken()]


def test_dismiss_ends_every_call_and_says_good_bye_behind_the_last(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH), raw.request(3, MANY))
    raw.send(frame(frames.DATA, 0, 3, framed(b"said before")))
    raw.server.dismiss(STOPS)
    sent = raw.taken()
    ended = [one.stream_id for one in sent if one.kind == frames.HEADERS and one.flags & 1]
    assert sorted(ended) == [1, 3]
    assert (sent[-1].kind, sent[-1].code) == (frames.GOAWAY, ErrorCode.NO_ERROR)
    assert _last_taken(sent[-1]) == 3
    assert raw.server.is_closing
    assert raw.service.ears[0].gone_times == 1
    assert no_leak(raw.server)


def test_dismiss_tells_why(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    raw.server.dismiss(STOPS)
    assert b"the server stops" in raw.taken()[0].payload


def test_what_was_said_leaves_before_a_dismissed_call_ends(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    raw.service.ears[0].stream.send_message(b"event", 0)
    raw.server.dismiss(STOPS)
    assert kinds(raw.taken()) == [
        frames.HEADERS,
        frames.DATA,
        frames.HEADERS,
        frames.RST_STREAM,
        frames.GOAWAY,
    ]


def test_a_dismissed_connection_stays_until_its_answers_are_taken(raw: RawPeer) -> None:
    raw.send(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.unary(1), raw.request(3, WATCH))
    raw.service.ears[0].stream.send_message(b"event", 0)
    raw.server.dismiss(STOPS)
    assert frames.GOAWAY not in kinds(raw.taken())
    assert raw.reset(raw.request(5)) == (5, ErrorCode.REFUSED_STREAM)
    first = raw.send(frames.window_update(1, 100))
    assert [(one.kind, one.stream_id) for one in first] == [(frames.DATA, 1), (frames.HEADERS, 1)]
    assert not raw.server.is_closing
    assert raw.goaway(frames.window_update(3, 100)) == ErrorCode.NO_ERROR
    assert no_leak(raw.server)


def test_after_dismiss_nothing_is_read_nor_said(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH))
    raw.server.dismiss(STOPS)
    raw.taken()
    assert raw.send(raw.unary(3)) == []
    raw.service.ears[0].stream.send_message(b"late", 0)
    raw.server.flush()
    raw.server.drain()
    raw.server.stop_taking()
    raw.server.dismiss(STOPS)
    assert raw.taken() == []


def test_a_connection_is_quiet_if_only_calls_without_end_are_under_way(raw: RawPeer) -> None:
    calls = raw.request(1, WATCH) + raw.request(3, MANY)
    was_quiet = []
    for data in (b"", calls, raw.request(5), frames.rst_stream(5, ErrorCode.CANCEL)):
        raw.send(data)
        was_quiet.append(raw.server.is_quiet)
    assert was_quiet == [True, True, False, True]


def test_a_connection_is_not_quiet_while_an_answer_waits_for_the_disk(raw: RawPeer) -> None:
    raw.service.position = 1
    raw.send(raw.unary(1))
    assert not raw.server.is_quiet
    raw.gate.release(1)
    assert raw.server.is_quiet


def test_a_connection_is_not_quiet_while_the_end_of_a_call_is_not_taken(raw: RawPeer) -> None:
    raw.send(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, WATCH))
    stream = raw.service.ears[0].stream
    stream.send_message(b"event", 0)
    stream.end()
    raw.server.flush()
    assert not raw.server.is_quiet
    raw.send(frames.window_update(1, 100))
    assert raw.server.is_quiet


@pytest.mark.parametrize("step", ["drain", "stop_taking"])
def test_a_connection_that_is_closing_says_nothing_more(raw: RawPeer, step: str) -> None:
    raw.goaway(frame(frames.PING, 0, 0))
    getattr(raw.server, step)()
    assert raw.taken() == []
