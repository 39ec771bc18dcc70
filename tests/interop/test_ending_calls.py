"""Calls that are given up: by a deadline, by the client. The server's handler is always told."""

import time
from typing import Final

import pytest

from leasehold.errors import Status
from tests.interop import demo
from tests.interop.callers import Caller
from tests.interop.conftest import Server
from tests.interop.demo import NAME, Kind
from tests.interop.grpcio_demo import GrpcioServer

SOON_S: Final = 0.1
"""A deadline that is meant to come; `soon_s` is later on a busy machine."""
SOON_IN_CALLS: Final = 20
TRIES_MAX: Final = 5
"""For a deadline that came before a starved call was heard of; each is twice as long."""

each_kind = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)


def soon_s(caller: Caller) -> float:
    """Return a deadline that is long enough to reach the server: a multiple of a whole call."""
    began_at = time.monotonic()
    assert caller.ask(demo.ECHO, b"").answer == b""
    return max(SOON_S, SOON_IN_CALLS * (time.monotonic() - began_at))


@pytest.mark.parametrize("timeout_s", [5.0, 90.0, 7_000.0, 1e8])
def test_the_server_knows_how_long_a_call_may_take(caller: Caller, timeout_s: float) -> None:
    began_at = time.monotonic()
    told_s = float(caller.ask(demo.TIMEOUT, b"", timeout_s=timeout_s).answer)
    took_s = time.monotonic() - began_at  # what is told is what is left
    assert timeout_s * 0.9 - took_s < told_s < timeout_s * 1.03  # it may be rounded


def test_a_call_may_have_all_the_time_there_is(caller: Caller) -> None:
    assert caller.ask(demo.TIMEOUT, b"", timeout_s=None).answer == b"none"


@each_kind
def test_a_deadline_ends_a_call_on_both_sides(
    server: Server, caller: Caller, kind: Kind, name: str
) -> None:
    timeout_s = soon_s(caller)
    for attempt in range(TRIES_MAX):
        named = f"{name} {attempt}"
        conditions = {"timeout_s": timeout_s * 2**attempt, "metadata": ((NAME, named),)}
        outcome = caller.call(kind, demo.path(demo.SLEEP, kind), b"", **conditions)
        assert outcome.status == Status.DEADLINE_EXCEEDED
        if server.notes.has("begun", named):
            break
    server.notes.wait("cancelled", named)
    assert caller.ask(demo.ECHO, b"and then").answer == b"and then"


def test_a_deadline_ends_a_stream_between_messages(
    server: Server, caller: Caller, name: str
) -> None:
    timeout_s = soon_s(caller)
    for attempt in range(TRIES_MAX):
        named = f"{name} {attempt}"
        conditions = {"timeout_s": timeout_s * 2**attempt, "metadata": ((NAME, named),)}
        call = caller.open(Kind.MANY_TO_MANY, demo.CHAT, **conditions)
        call.send(b"in time")
        received, outcome = call.receive(), call.outcome()
        assert outcome.status == Status.DEADLINE_EXCEEDED
        if received is not None:
            break
    assert (received, outcome.answers) == (b"in time", (b"in time",))
    server.notes.wait("cancelled", named)


@each_kind
def test_a_handler_learns_that_its_call_was_taken_back(
    server: Server, caller: Caller, kind: Kind, name: str
) -> None:
    call = caller.open(kind, demo.path(demo.SLEEP, kind), b"", metadata=((NAME, name),))
    server.notes.wait("heard", name)
    call.cancel()
    assert call.outcome().status == Status.CANCELLED
    server.notes.wait("cancelled", name)
    assert caller.ask(demo.ECHO, b"and then").answer == b"and then"


def test_a_stream_is_taken_back_between_messages(server: Server, caller: Caller, name: str) -> None:
    call = caller.open(Kind.MANY_TO_MANY, demo.CHAT, b"one", metadata=((NAME, name),))
    assert call.receive() == b"one"
    call.cancel()
    outcome = call.outcome()
    assert (outcome.status, outcome.answers) == (Status.CANCELLED, (b"one",))
    server.notes.wait("cancelled", name)


def test_a_client_that_half_closes_at_once_may_still_take_its_call_back(
    server: Server, caller: Caller, name: str
) -> None:
    path = demo.path(demo.SLEEP, Kind.MANY_TO_MANY)
    call = caller.open(Kind.MANY_TO_MANY, path, b"", metadata=((NAME, name),))
    call.end()
    server.notes.wait("heard", name)
    call.cancel()
    assert call.outcome().status == Status.CANCELLED
    server.notes.wait("cancelled", name)


def test_taking_one_call_back_leaves_the_others_alone(
    server: Server, caller: Caller, name: str
) -> None:
    path = demo.path(demo.SLEEP, Kind.MANY_TO_MANY)
    chats = [caller.open(Kind.MANY_TO_MANY, demo.CHAT) for _ in range(5)]
    slept = [
        caller.open(Kind.MANY_TO_MANY, path, b"", metadata=((NAME, f"{name} {index}"),))
        for index in range(10)
    ]
    for index, call in enumerate(slept):
        server.notes.wait("heard", f"{name} {index}")
        call.cancel()
        chats[index % 5].send(b"%d" % index)
        assert chats[index % 5].receive() == b"%d" % index
        server.notes.wait("cancelled", f"{name} {index}")
    for chat in chats:
        chat.end()
    assert {chat.outcome().status for chat in chats} == {Status.OK}
    assert {call.outcome().status for call in slept} == {Status.CANCELLED}


def test_a_generator_that_nobody_listens_to_is_closed(
    server: Server, caller: Caller, name: str
) -> None:
    request = b"1000000 100000"
    call = caller.open(Kind.ONE_TO_MANY, demo.COUNT, request, metadata=((NAME, name),))
    assert call.receive() == demo.counted(0, 100_000)
    call.cancel()
    assert call.outcome().status == Status.CANCELLED
    server.notes.wait("closed", name)


def test_a_thousand_calls_taken_back_at_once(server: Server, caller: Caller, name: str) -> None:
    if isinstance(server, GrpcioServer):
        pytest.skip("each would need a thread")
    path = demo.path(demo.SLEEP, Kind.ONE_TO_ONE)
    calls = [
        caller.open(Kind.ONE_TO_ONE, path, b"", metadata=((NAME, f"{name} {index}"),))
        for index in range(1_000)
    ]
    for index in range(1_000):
        server.notes.wait("heard", f"{name} {index}")
    for call in calls:
        call.cancel()
    assert {call.outcome().status for call in calls} == {Status.CANCELLED}
    for index in range(1_000):
        server.notes.wait("cancelled", f"{name} {index}")
    assert caller.ask(demo.ECHO, b"and then").answer == b"and then"
