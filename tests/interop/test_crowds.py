"""Clients that are slow, many or nosy: others are served, and nobody is punished for nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from leasehold.errors import Status
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2.limits import ConnectionLimits
from tests.interop import demo
from tests.interop.callers import Caller
from tests.interop.conftest import Server
from tests.interop.demo import DEADLINE_S, NAME, Kind
from tests.interop.grpcio_callers import AioCaller, GrpcioCaller
from tests.interop.our_caller import OurCaller
from tests.interop.our_demo import OurServer

MIB: Final = 1024 * 1024
PINGS: Final = 3
"""One more than grpcio's own server suffers; its client sends one a second, whatever it is told."""
LOOK_S: Final = 0.01
ANSWERS_S: Final = (0.2, 1.0, 5.0)
"""How long a ping may stay without an answer; the longer ones are for a starved server."""
PIECES: Final = 64
"""How many pieces of a mebibyte a slow client has asked for."""

STEADY: Final = (("grpc.http2.bdp_probe", 0),)
"""Has grpcio keep its windows as they are; else they may grow beyond all that is sent here."""

CALLERS: Final[dict[str, Callable[[str], Caller]]] = {
    "grpcio": lambda target: GrpcioCaller(target, STEADY),
    "aio": lambda target: AioCaller(target, STEADY),
    "ours": OurCaller,
}


def _unsent_bytes(server: OurServer) -> int:
    async def count() -> int:
        speaking = [each._speaks for each in server.connections()]
        return sum(each.unsent_bytes for each in speaking if isinstance(each, ServerConnection))

    return server.thread.run(count())


@pytest.fixture(params=CALLERS)
def own_caller(request: pytest.FixtureRequest, server: Server) -> Iterator[Caller]:
    """A client with a connection of its own."""
    with closing(CALLERS[request.param](server.target)) as client:
        yield client


def test_a_slow_reader_holds_up_its_own_stream_only(
    server: Server, own_caller: Caller, name: str
) -> None:
    slow = own_caller.open(
        Kind.ONE_TO_MANY, demo.COUNT, b"%d %d" % (PIECES, MIB), metadata=((NAME, name),)
    )
    assert slow.receive() == demo.counted(0, MIB)
    server.notes.wait("past 1", name)
    for path in (demo.ECHO, demo.LATER):
        assert own_caller.ask(path, b"meanwhile").answer == b"meanwhile"
    chat = own_caller.open(Kind.MANY_TO_MANY, demo.CHAT)
    for index in range(10):
        chat.send(b"%d" % index)
        assert chat.receive() == b"%d" % index
    quick = own_caller.call(Kind.ONE_TO_MANY, demo.COUNT, b"10 1000")
    assert quick.answers == tuple(demo.counted(index, 1000) for index in range(10))
    assert not server.notes.has(f"past {PIECES - 1}", name), "nobody has read it"
    outcome = slow.outcome()
    assert outcome.answers == tuple(demo.counted(index, MIB) for index in range(PIECES))


def test_what_a_slow_reader_has_not_taken_is_bounded(our_server: OurServer, name: str) -> None:
    client, pieces = GrpcioCaller(our_server.target, STEADY), 16  # all together far more than held
    request = b"%d %d" % (pieces, MIB)
    calls = [
        client.open(Kind.ONE_TO_MANY, demo.COUNT, request, metadata=((NAME, f"{name} {index}"),))
        for index in range(4)
    ]
    for call in calls:
        assert call.receive() == demo.counted(0, MIB)
    assert client.ask(demo.ECHO, b"meanwhile").answer == b"meanwhile"
    limits = ConnectionLimits()
    assert _unsent_bytes(our_server) <= limits.max_event_bytes + len(calls) * MIB
    assert [len(call.outcome().answers) for call in calls] == [pieces] * len(calls)
    client.close()


def test_what_a_slow_handler_has_not_heard_is_bounded(
    server: Server, own_caller: Caller, name: str
) -> None:
    """More is sent than any window has room for; taking the call back ends it all."""
    path = demo.path(demo.SLEEP, Kind.MANY_TO_MANY)
    call = own_caller.open(Kind.MANY_TO_MANY, path, b"", metadata=((NAME, name),))
    for _ in range(PIECES):
        call.send(bytes(MIB))
    server.notes.wait("heard", name)
    assert own_caller.ask(demo.ECHO, b"meanwhile").answer == b"meanwhile"
    if isinstance(server, OurServer):
        assert _buffered_bytes(server) <= 6 * MIB
    call.cancel()
    assert call.outcome().status == Status.CANCELLED
    server.notes.wait("cancelled", name)


def _buffered_bytes(server: OurServer) -> int:
    async def count() -> int:
        speaking: list[Any] = [each._speaks for each in server.connections()]
        return sum(each._inbound.buffered_bytes for each in speaking)

    return server.thread.run(count())


def test_pings_are_not_punished_while_a_call_runs(our_server: OurServer, name: str) -> None:
    options = (
        ("grpc.keepalive_time_ms", 10),
        ("grpc.keepalive_timeout_ms", int(1e3 * DEADLINE_S)),
        ("grpc.http2.max_pings_without_data", 0),
    )
    with closing(GrpcioCaller(our_server.target, options)) as client:
        chat = client.open(Kind.MANY_TO_MANY, demo.CHAT, b"hello", metadata=((NAME, name),))
        assert chat.receive() == b"hello"
        before = _activity(our_server)
        until = time.monotonic() + DEADLINE_S
        while _activity(our_server) < before + PINGS:
            assert time.monotonic() < until, "it never pings"
            time.sleep(LOOK_S)
        chat.send(b"still there?")
        assert chat.receive() == b"still there?"
        chat.end()
        assert chat.outcome().status == Status.OK


def _activity(server: OurServer) -> int:
    """How often something came in."""

    async def count() -> int:
        speaking: list[Any] = [each._speaks for each in server.connections()]
        return sum(each.activity for each in speaking)

    return server.thread.run(count())


def test_our_own_pings_are_answered(server: Server, name: str) -> None:
    """The answers are what keeps the call: without them it would end at once."""
    path = demo.path(demo.SLEEP, Kind.ONE_TO_ONE)
    metadata = ((NAME, name),)
    for answer_s in ANSWERS_S:
        client = OurCaller(server.target, keepalive=0.1, keepalive_timeout=answer_s)
        with closing(client):
            outcome = client.ask(path, b"", metadata=metadata, timeout_s=3 * answer_s)
        if outcome.status == Status.DEADLINE_EXCEEDED:
            break
    assert outcome.status == Status.DEADLINE_EXCEEDED


def test_many_clients_at_once(server: Server) -> None:
    clients: list[Caller] = [GrpcioCaller(server.target) for _ in range(20)]
    clients += [OurCaller(server.target) for _ in range(20)]
    clients += [AioCaller(server.target)]
    calls = [
        (client.open(Kind.ONE_TO_ONE, demo.LATER, b"%d %d" % (index, turn)), index, turn)
        for turn in range(10)
        for index, client in enumerate(clients)
    ]
    for call, index, turn in calls:
        assert call.outcome().answer == b"%d %d" % (index, turn)
    for client in clients:
        client.close()
