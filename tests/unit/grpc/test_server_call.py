"""A call of gRPC at the server: messages in frames, subscriptions, and how calls end."""

from collections.abc import Callable

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, framed
from leasehold.grpc.server_call import ServerCall
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.http2.inbound import STREAM_WINDOW
from leasehold.http2.limits import ConnectionLimits
from tests.support.h2_peer import (
    END,
    MANY,
    WATCH,
    Peer,
    RawPeer,
    no_leak,
)

frame = frames.frame
LIMITS = ConnectionLimits()


# Messages in frames.


def test_a_message_may_be_cut_anywhere(peer: Peer) -> None:
    data = framed(b"hello")
    for cut in range(len(data) + 1):
        number = peer.open()
        for piece in (data[:cut], data[cut:]):
            peer.client.send_data(number, piece)
            peer.pump()
        peer.client.end_stream(number)
        peer.pump()
        assert (peer.reply(number).messages, peer.reply(number).status) == ([b"hello"], 0)
    assert no_leak(peer.server)


def test_the_rest_of_a_message_is_not_taken_for_a_whole_one(peer: Peer) -> None:
    message = b"begin" + framed(b"looks whole")
    data = framed(message)
    number = peer.open()
    cut = len(data) - len(framed(b"looks whole"))
    peer.client.send_data(number, data[:cut])
    peer.client.send_data(number, data[cut:], end_stream=True)
    peer.pump()
    assert peer.service.heard == peer.reply(number).messages == [message]


def test_a_message_may_come_in_frames_of_one_octet(peer: Peer) -> None:
    number = peer.open(MANY)
    for byte in framed(b"hello") + framed(b"") + framed(b"you"):
        peer.client.send_data(number, bytes((byte,)))
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
    assert isinstance(stream, ServerCall)
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
    ear.stream.send_message(b"event 1", 2)
    ear.stream.send_message(b"event 2", 4)
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
    ear.stream.send_message(b"later", 1)
    peer.release(1)
    assert (peer.reply(number).messages, ear.gone_times) == ([b"later"], 0)


def _by_reset(peer: Peer, number: int) -> None:
    peer.client.reset_stream(number)


def _by_end(peer: Peer, number: int) -> None:
    peer.client.end_stream(number)


def _by_speaker(peer: Peer, number: int) -> None:
    peer.service.ears[-1].stream.end()
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
    ear.stream.send_message(b"held", 1)
    peer.client.reset_stream(number)
    peer.pump()
    ear.stream.send_message(b"late", 0)
    ear.stream.end()
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
    late = frame(frames.DATA, END, 1, framed(b"late"))
    assert raw.reset(late) == (1, ErrorCode.STREAM_CLOSED)
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
