"""How long a call may take: its alarm is set when it may take a while, and rings in time."""

import asyncio

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import framed
from leasehold.grpc.routes import Answer, Exchange
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from tests.support.h2_peer import END, MANY, ONCE, WATCH, Peer, RawPeer, no_leak
from tests.support.virtual_loop import Turn

LATER = "/test.Service/Later"
LATER_MANY = "/test.Service/LaterMany"


class Slow:
    """Answers after so many turns, and notes how that ended."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.begun = self.finished = 0
        self.cancelled = False
        """Whether somebody else cancels what it waits for."""

    async def answer(self, message: bytes) -> Answer:
        self.begun += 1
        for _ in range(self.turns):
            await Turn()
        if self.cancelled:
            raise asyncio.CancelledError
        self.finished += 1
        return message, 0


@pytest.fixture
def slow(peer: Peer) -> Slow:
    service = Slow(turns=3)
    peer.service.methods[LATER] = Exchange(service.answer)
    peer.service.methods[LATER_MANY] = Exchange(service.answer, is_unary=False)
    return service


def _too_late(peer: Peer, number: int) -> None:
    reply = peer.reply(number)
    assert reply.is_ended
    assert (reply.status, reply.why) == (Status.DEADLINE_EXCEEDED, "context deadline exceeded")
    assert peer.loop.alarms == 0
    assert no_leak(peer.server)


def test_a_subscription_ends_when_its_time_is_over(peer: Peer) -> None:
    number = peer.open(WATCH, grpc_timeout="5S")
    peer.pump()
    peer.loop.pass_time(4.9)
    peer.pump()
    assert not peer.reply(number).is_ended
    peer.loop.pass_time(0.2)
    peer.pump()
    _too_late(peer, number)
    [ear] = peer.service.ears
    assert ear.gone_times == 1


def test_what_was_said_before_the_time_was_over_leaves_before_the_end(peer: Peer) -> None:
    number = peer.open(WATCH, grpc_timeout="5S")
    peer.pump()
    peer.service.ears[0].stream.send_message(b"event", 0)
    peer.server.flush()
    peer.loop.pass_time(5.0)
    peer.pump()
    assert peer.reply(number).messages == [b"event"]
    _too_late(peer, number)


def test_a_handler_can_ask_how_long_it_may_take(peer: Peer) -> None:
    peer.open(WATCH, grpc_timeout="250m")
    peer.open(WATCH)
    peer.pump()
    assert [ear.stream.context.timeout_s for ear in peer.service.ears] == [0.25, None]


def test_a_long_stream_of_exchanges_ends_when_its_time_is_over(peer: Peer) -> None:
    number = peer.open(MANY, grpc_timeout="10S")
    peer.say(number, b"one")
    peer.pump()
    peer.loop.pass_time(6.0)
    peer.say(number, b"two")
    peer.pump()
    assert peer.loop.alarms == 1, "the time does not begin anew with each message"
    peer.loop.pass_time(4.0)
    peer.pump()
    assert peer.reply(number).messages == [b"one", b"two"]
    _too_late(peer, number)


def test_a_message_that_never_becomes_whole_has_its_time_too(peer: Peer) -> None:
    number = peer.open(ONCE, grpc_timeout="1S")
    peer.send(number, framed(b"a long message")[:-1])
    peer.pump()
    peer.loop.pass_time(1.0)
    peer.pump()
    _too_late(peer, number)


@pytest.mark.parametrize("path", [LATER, LATER_MANY])
def test_an_answer_that_takes_too_long_is_given_up(peer: Peer, slow: Slow, path: str) -> None:
    number = peer.open(path, grpc_timeout="1S")
    peer.say(number, b"hello", end=True)
    peer.pump()
    peer.loop.run_tasks()
    assert (slow.begun, peer.loop.alarms) == (1, 1)
    peer.loop.pass_time(1.0)
    peer.pump()
    _too_late(peer, number)
    peer.loop.run_tasks()
    assert slow.finished == 0
    assert peer.loop.open_tasks == 0


@pytest.mark.parametrize("path", [LATER, LATER_MANY])
def test_an_answer_in_time_cancels_the_alarm(peer: Peer, slow: Slow, path: str) -> None:
    number = peer.open(path, grpc_timeout="1S")
    peer.say(number, b"hello", end=True)
    peer.pump()
    for _ in range(slow.turns + 1):
        peer.loop.run_tasks()
    peer.pump()
    reply = peer.reply(number)
    assert (reply.messages, reply.status) == ([b"hello"], 0)
    assert (peer.loop.alarms, peer.loop.open_tasks) == (0, 0)
    peer.loop.pass_time(10.0)
    assert no_leak(peer.server)


@pytest.mark.parametrize("path", [LATER, LATER_MANY])
def test_a_handler_that_was_cancelled_is_no_success(peer: Peer, slow: Slow, path: str) -> None:
    slow.cancelled = True
    number = peer.begin(b"?", path)
    for _ in range(slow.turns + 1):
        peer.pump()
        peer.loop.run_tasks()
    peer.pump()
    reply = peer.reply(number)
    assert (reply.is_ended, reply.status, reply.messages) == (True, Status.CANCELLED, [])
    assert no_leak(peer.server)


def test_a_call_that_is_answered_at_once_sets_no_alarm(peer: Peer) -> None:
    number = peer.open(ONCE, grpc_timeout="1S")
    peer.say(number, b"hello", end=True)
    peer.pump()
    assert peer.reply(number).messages == [b"hello"]
    assert peer.loop._due == []


@pytest.mark.parametrize(
    "how", ["the client ends", "the client resets", "the handler ends", "the connection is lost"]
)
def test_the_alarm_is_cancelled_when_the_call_is_over(peer: Peer, how: str) -> None:
    number = peer.open(WATCH, grpc_timeout="5S")
    peer.pump()
    assert peer.loop.alarms == 1
    if how == "the client ends":
        peer.client.end_stream(number)
    elif how == "the client resets":
        peer.client.reset_stream(number)
    elif how == "the handler ends":
        peer.service.ears[0].stream.end()
        peer.server.flush()
    else:
        peer.server.lost()
    peer.pump()
    assert peer.loop.alarms == 0


def test_an_answer_that_is_not_taken_in_time_is_dropped(raw: RawPeer) -> None:
    raw.send(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, MANY, grpc_timeout="1S"))
    raw.send(frames.frame(frames.DATA, 0, 1, framed(b"hello")))
    raw.send(frames.frame(frames.DATA, END, 1))
    raw.loop.pass_time(2.0)
    [reset] = raw.taken()
    assert (reset.kind, reset.code) == (frames.RST_STREAM, ErrorCode.CANCEL)
    assert raw.send(frames.window_update(1, 100)) == []
    assert no_leak(raw.server)
    assert raw.loop.alarms == 0


@pytest.mark.parametrize("path", [WATCH, MANY, LATER])
@pytest.mark.parametrize("timeout", ["", "soon", "-1S", "123456789S"])
def test_a_malformed_time_is_internal(peer: Peer, slow: Slow, path: str, timeout: str) -> None:
    number = peer.open(path, grpc_timeout=timeout)
    peer.say(number, b"hello", end=path == LATER)
    peer.pump()
    reply = peer.reply(number)
    assert reply.status == Status.INTERNAL
    assert reply.why.startswith("malformed grpc-timeout")
    assert peer.loop.open_tasks == slow.begun == 0
    assert no_leak(peer.server)


def test_no_time_at_all_is_over_at_once(peer: Peer) -> None:
    number = peer.open(WATCH, grpc_timeout="0n")
    peer.pump()
    peer.loop.pass_time(0.0)
    peer.pump()
    _too_late(peer, number)


def test_of_calls_with_the_same_head_each_has_its_own_time(raw: RawPeer) -> None:
    raw.send(raw.request(1, WATCH, grpc_timeout="1S"))
    raw.send(raw.request(3, WATCH, grpc_timeout="3S"))
    raw.send(raw.request(5, WATCH))
    assert len(raw.server._heads) == 1
    raw.loop.pass_time(2.0)
    assert {one.stream_id for one in raw.taken()} == {1}
    raw.loop.pass_time(2.0)
    assert {one.stream_id for one in raw.taken()} == {3}
    raw.send(frames.rst_stream(5, ErrorCode.CANCEL))
    assert no_leak(raw.server)
