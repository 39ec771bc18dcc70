"""Servers that end and begin again: what is under way ends well, and later calls find the next."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from leasehold.errors import Status
from leasehold.serving import grpc_server
from tests.interop import demo
from tests.interop.callers import Caller, Outcome
from tests.interop.conftest import CALLERS
from tests.interop.demo import DEADLINE_S, NAME, Kind
from tests.interop.grpcio_callers import AioCaller, GrpcioCaller
from tests.interop.our_caller import OurCaller
from tests.interop.our_demo import OurServer

Connect = Callable[..., Caller]

_MAKE: Final[dict[type[Caller], Callable[[list[str]], Any]]] = {
    GrpcioCaller: lambda targets: "ipv4:" + ",".join(targets),
    AioCaller: lambda targets: "ipv4:" + ",".join(targets),
    OurCaller: lambda targets: targets,
}


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[OurServer]:
    """A server that may be shut down, and then waits for calls as long as a test takes."""
    monkeypatch.setattr(grpc_server, "DRAIN_CALLS_S", 10 * DEADLINE_S)
    server = OurServer()
    yield server
    server.close()


@pytest.fixture(params=CALLERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients, of each kind, of one server or of several."""
    made: list[Caller] = []
    make: Any = CALLERS[request.param]

    def connect_one(*targets: str) -> Caller:
        made.append(make(_MAKE[make](list(targets))))
        return made[-1]

    yield connect_one
    for each in made:
        each.close()


def _ask_until(caller: Caller, is_it: Callable[[Outcome], bool], **conditions: Any) -> Outcome:
    """Make calls until one has come to this; whether it must is for the clock to say."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        outcome = caller.ask(demo.ECHO, b"?", **conditions)
        if is_it(outcome):
            return outcome
        assert outcome.status == Status.OK, outcome
    raise AssertionError("it never came to this")


def _is_unavailable(outcome: Outcome) -> bool:
    return outcome.status == Status.UNAVAILABLE


@pytest.mark.parametrize("path", [demo.HOLD, demo.HOLD_LATER])
def test_a_call_under_way_gets_its_answer_and_later_ones_are_unavailable(
    ending: OurServer, connect: Connect, name: str, path: str
) -> None:
    client = connect(ending.target)
    held = client.open(Kind.ONE_TO_ONE, path, name.encode())
    ending.notes.wait("held", name)
    closing = ending.shut_down()
    _ask_until(client, _is_unavailable)
    assert not closing.done()
    ending.notes.say("released", name)
    assert held.outcome().answer == name.encode()
    closing.result(DEADLINE_S)


def test_a_stream_without_an_end_is_ended(ending: OurServer, connect: Connect, name: str) -> None:
    client = connect(ending.target)
    chat = client.open(Kind.MANY_TO_MANY, demo.CHAT, b"hello", metadata=((NAME, name),))
    assert chat.receive() == b"hello"
    ending.shut_down().result(DEADLINE_S)
    outcome = chat.outcome()
    assert (outcome.status, outcome.answers) == (Status.UNAVAILABLE, (b"hello",))
    assert "stopping" in outcome.message
    ending.notes.wait("cancelled", name)


def _ask_elsewhere(caller: Caller, message: bytes) -> Outcome:
    """Make a call while one of the servers is ending.

    A call that grpcio had begun when the GOAWAY arrived, it makes again only once, and sometimes
    not at all. It reports that the call was not sent, so the test makes it again.
    """
    outcome = caller.ask(demo.LATER, message, waits=True)
    if not isinstance(caller, OurCaller) and "GOAWAY received" in outcome.message:
        outcome = caller.ask(demo.LATER, message, waits=True)
    return outcome


def test_new_calls_go_to_another_server(
    ending: OurServer, our_server: OurServer, connect: Connect, name: str
) -> None:
    client = connect(ending.target, our_server.target)
    held = client.open(Kind.ONE_TO_ONE, demo.HOLD, name.encode(), waits=True)
    ending.notes.wait("held", name)
    closing = ending.shut_down()
    for index in range(100):
        assert _ask_elsewhere(client, b"%d" % index).answer == b"%d" % index
    ending.notes.say("released", name)
    assert held.outcome().answer == name.encode()
    closing.result(DEADLINE_S)
    assert client.ask(demo.ECHO, b"and then", waits=True).answer == b"and then"


@pytest.mark.parametrize("kind", [Kind.ONE_TO_ONE, Kind.MANY_TO_MANY], ids=lambda k: k.value)
def test_who_waits_is_answered_by_the_next_server_on_the_same_port(
    ending: OurServer, connect: Connect, kind: Kind
) -> None:
    path = demo.ECHO if kind == Kind.ONE_TO_ONE else demo.CHAT
    client = connect(ending.target)
    assert client.ask(demo.ECHO, b"before").answer == b"before"
    ending.shut_down().result(DEADLINE_S)
    _ask_until(client, _is_unavailable)
    waiting = client.open(kind, path, b"after", waits=True)
    waiting.end()
    following = OurServer(ending.port)
    assert waiting.outcome().answer == b"after"
    following.close()
