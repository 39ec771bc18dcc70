"""Calls of all four kinds that go well, between all pairs: messages, sizes, order, metadata."""

from typing import Final

import pytest

from leasehold.errors import Status
from tests.interop import demo
from tests.interop.callers import Caller
from tests.interop.demo import Kind

KIB: Final = 1024
FRAME_BYTES: Final = 16 * KIB
"""A frame of HTTP/2 has no more, unless the peer says so."""
PREFIX_BYTES: Final = 5
LIMIT_BYTES: Final = 2 * KIB * KIB
"""What our server takes in one message."""

SIZES: Final = (
    *(0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1),
    *(FRAME_BYTES - PREFIX_BYTES - 1, FRAME_BYTES - PREFIX_BYTES, FRAME_BYTES - PREFIX_BYTES + 1),
    *(64 * KIB, KIB * KIB, LIMIT_BYTES - 1, LIMIT_BYTES),
)
METADATA: Final = (
    ("x-empty", ""),
    ("x-empty-bin", b""),
    ("x-octets-bin", bytes(range(256))),
    ("x-signs", "~!@#$%^&*()"),
    ("x-text", "one two"),
    ("x-text", "a second value, with a comma"),
)

unary_paths = pytest.mark.parametrize("path", [demo.ECHO, demo.LATER])


def _message(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@unary_paths
@pytest.mark.parametrize("size", SIZES)
def test_a_message_of_any_size_comes_back(caller: Caller, path: str, size: int) -> None:
    assert caller.ask(path, _message(size)).answer == _message(size)


@unary_paths
@pytest.mark.parametrize("over", [1, KIB * KIB])
def test_a_message_over_the_limit_is_refused(caller: Caller, path: str, over: int) -> None:
    outcome = caller.ask(path, bytes(LIMIT_BYTES + over))
    assert outcome.status == Status.RESOURCE_EXHAUSTED
    assert "larger than max" in outcome.message
    assert caller.ask(path, b"and then").answer == b"and then"


@pytest.mark.parametrize("number", [0, 1, 7, 1_000])
def test_one_to_many_keeps_the_order(caller: Caller, number: int) -> None:
    outcome = caller.call(Kind.ONE_TO_MANY, demo.COUNT, b"%d 0" % number)
    assert outcome.status == Status.OK
    assert outcome.answers == tuple(demo.counted(index, 0) for index in range(number))


@pytest.mark.parametrize("number", [0, 1, 7, 1_000])
def test_many_to_one_hears_them_all(caller: Caller, number: int) -> None:
    asked = [b"%d" % index for index in range(number)]
    assert caller.call(Kind.MANY_TO_ONE, demo.SUM, *asked).answer == b"%d" % sum(range(number))


@pytest.mark.parametrize("size", SIZES[:-2])
def test_a_stream_of_messages_of_any_size(caller: Caller, size: int) -> None:
    asked = tuple(b"%d" % index + _message(size) for index in range(5))
    outcome = caller.call(Kind.MANY_TO_MANY, demo.CHAT, *asked)
    assert (outcome.status, outcome.answers) == (Status.OK, asked)


def test_a_conversation_goes_back_and_forth(caller: Caller) -> None:
    call = caller.open(Kind.MANY_TO_MANY, demo.CHAT)
    for index in range(100):
        call.send(b"%d" % index)
        assert call.receive() == b"%d" % index
    call.end()
    assert call.receive() is None
    assert call.outcome().status == Status.OK


@pytest.mark.parametrize("kind", [Kind.MANY_TO_ONE, Kind.MANY_TO_MANY])
def test_a_client_may_have_nothing_to_say(caller: Caller, kind: Kind) -> None:
    path = demo.SUM if kind == Kind.MANY_TO_ONE else demo.CHAT
    outcome = caller.call(kind, path)
    assert outcome.status == Status.OK
    assert outcome.answers == ((b"0",) if kind == Kind.MANY_TO_ONE else ())


def test_empty_messages_are_messages(caller: Caller) -> None:
    outcome = caller.call(Kind.MANY_TO_MANY, demo.CHAT, b"", b"x", b"", b"")
    assert outcome.answers == (b"", b"x", b"", b"")


@pytest.mark.parametrize("mebibytes", [3, 8])
def test_a_long_answer(caller: Caller, mebibytes: int) -> None:
    assert caller.ask(demo.BIG, b"%d" % (mebibytes << 20)).answer == bytes(mebibytes << 20)


def test_long_messages_both_ways_in_one_stream(caller: Caller) -> None:
    asked = tuple(bytes([index]) * (KIB * KIB) for index in range(8))
    outcome = caller.call(Kind.MANY_TO_MANY, demo.CHAT, *asked)
    assert outcome.answers == asked


@unary_paths
def test_a_thousand_calls_at_once(caller: Caller, path: str) -> None:
    asked = [b"%d" % index for index in range(1_000)]
    calls = [caller.open(Kind.ONE_TO_ONE, path, message) for message in asked]
    assert [call.outcome().answer for call in calls] == asked


def test_streams_are_interleaved(caller: Caller) -> None:
    calls = [caller.open(Kind.MANY_TO_MANY, demo.CHAT) for _ in range(10)]
    for turn in range(10):
        for index, call in enumerate(calls):
            call.send(b"%d %d" % (turn, index))
        for index, call in reversed(list(enumerate(calls))):
            assert call.receive() == b"%d %d" % (turn, index)
    for call in calls:
        call.end()
    assert {call.outcome().status for call in calls} == {Status.OK}


def test_metadata_goes_there_and_back(caller: Caller) -> None:
    outcome = caller.ask(demo.METADATA, b"!", metadata=METADATA)
    assert outcome.answer == b"!"
    assert outcome.head == METADATA
    assert outcome.trailers == METADATA


def test_metadata_comes_before_the_first_message(caller: Caller) -> None:
    call = caller.open(Kind.MANY_TO_MANY, demo.GREET, metadata=METADATA)
    assert call.head() == METADATA
    call.send(b"thanks")
    assert call.receive() == b"thanks"
    call.end()
    outcome = call.outcome()
    assert (outcome.status, outcome.head) == (Status.OK, METADATA)


def test_both_may_speak_at_the_same_time(caller: Caller) -> None:
    """Neither side waits for the other: all is said before anything is read."""
    number, size = 32, 256 * KIB
    call = caller.open(Kind.MANY_TO_MANY, demo.DUPLEX, b"%d %d" % (number, size))
    for _ in range(number):
        call.send(bytes(size))
    call.end()
    outcome = call.outcome()
    counted = tuple(demo.counted(index, size) for index in range(number))
    assert outcome.answers == (*counted, b"%d" % (number * size))
    assert outcome.status == Status.OK


@pytest.mark.parametrize("size", [0, 1_023, 1_024, 1_000_000])
def test_requests_may_be_compressed(caller: Caller, size: int) -> None:
    message = b"x" * size
    for path in (demo.ECHO, demo.LATER):
        assert caller.ask(path, message, is_packed=True).answer == message
    outcome = caller.call(Kind.MANY_TO_MANY, demo.CHAT, message, b"", message, is_packed=True)
    assert outcome.answers == (message, b"", message)


def test_answers_may_be_compressed(caller: Caller) -> None:
    assert caller.ask(demo.PACKED, b"", is_packed=True).answer == demo.PACKED_ANSWER


def test_what_is_short_when_packed_may_be_too_long_all_the_same(caller: Caller) -> None:
    outcome = caller.ask(demo.ECHO, bytes(LIMIT_BYTES + 1), is_packed=True)
    assert outcome.status == Status.RESOURCE_EXHAUSTED
    assert caller.ask(demo.ECHO, bytes(LIMIT_BYTES), is_packed=True).answer == bytes(LIMIT_BYTES)
