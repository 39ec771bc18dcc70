"""Calls that fail: the status, its words and its metadata are the same between all pairs."""

from typing import Final

import pytest

from leasehold.errors import Status
from tests.interop import demo
from tests.interop.callers import Caller
from tests.interop.demo import Failing, Kind

WORDS: Final = (
    "",
    "plain",
    "100 % of Grüße aus Zürich: ☃, 漢字, \N{PILE OF POO}",
    "two\nlines, a\ttab",
    "%41 is not A",
    "x" * 3_000,
)
METADATA: Final = (("x-detail-bin", bytes(range(256))), ("x-why", "because"), ("x-why", "again"))

each_kind = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)


@pytest.mark.parametrize("status", [status for status in Status if status], ids=lambda s: s.name)
def test_every_status_arrives(caller: Caller, status: Status) -> None:
    request = Failing(status, "as told").encoded()
    outcome = caller.ask(demo.path(demo.FAIL, Kind.ONE_TO_ONE), request)
    assert (outcome.status, outcome.message) == (status, "as told")


@pytest.mark.parametrize("words", WORDS)
def test_words_arrive_as_they_are(caller: Caller, words: str) -> None:
    request = Failing(Status.ABORTED, words).encoded()
    outcome = caller.ask(demo.path(demo.FAIL, Kind.ONE_TO_ONE), request)
    assert (outcome.status, outcome.message) == (Status.ABORTED, words)


def test_spaces_around_words_arrive(caller: Caller) -> None:
    request = Failing(Status.ABORTED, " spaces ").encoded()
    outcome = caller.ask(demo.path(demo.FAIL, Kind.ONE_TO_ONE), request)
    assert (outcome.status, outcome.message) == (Status.ABORTED, " spaces ")


@each_kind
def test_a_failure_has_metadata(caller: Caller, kind: Kind) -> None:
    request = Failing(Status.NOT_FOUND, "nothing").encoded()
    outcome = caller.call(kind, demo.path(demo.FAIL, kind), request, metadata=METADATA)
    assert (outcome.status, outcome.message) == (Status.NOT_FOUND, "nothing")
    assert outcome.trailers == METADATA
    assert outcome.answers == ()


@pytest.mark.parametrize("kind", [Kind.ONE_TO_MANY, Kind.MANY_TO_MANY], ids=lambda k: k.value)
def test_what_was_said_before_a_failure_arrives(caller: Caller, kind: Kind) -> None:
    request = Failing(Status.DATA_LOSS, "broken", after=5).encoded()
    outcome = caller.call(kind, demo.path(demo.FAIL, kind), request, metadata=METADATA)
    assert outcome.answers == tuple(demo.counted(index, 0) for index in range(5))
    assert (outcome.status, outcome.message) == (Status.DATA_LOSS, "broken")
    assert outcome.trailers == METADATA


@pytest.mark.parametrize("kind", [Kind.MANY_TO_ONE, Kind.MANY_TO_MANY], ids=lambda k: k.value)
def test_a_server_may_fail_while_the_client_goes_on(caller: Caller, kind: Kind) -> None:
    call = caller.open(kind, demo.path(demo.FAIL, kind))
    call.send(Failing(Status.OUT_OF_RANGE, "enough").encoded())
    for _ in range(64):
        call.send(bytes(64 * 1024))
    outcome = call.outcome()
    assert (outcome.status, outcome.message) == (Status.OUT_OF_RANGE, "enough")
    assert caller.ask(demo.ECHO, b"and then").answer == b"and then"


@pytest.mark.parametrize("kind", [Kind.MANY_TO_ONE, Kind.MANY_TO_MANY], ids=lambda k: k.value)
def test_a_server_may_have_enough_while_the_client_goes_on(caller: Caller, kind: Kind) -> None:
    call = caller.open(kind, demo.path(demo.QUIT, kind))
    call.send(b"first")
    for _ in range(64):
        call.send(bytes(64 * 1024))
    assert call.outcome().answer == b"first"
    assert caller.ask(demo.ECHO, b"and then").answer == b"and then"


@each_kind
@pytest.mark.parametrize("path", [demo.path("NoSuchMethod"), "/no.such.Service/Method", "/", "/x"])
def test_what_is_not_there_is_unimplemented(caller: Caller, kind: Kind, path: str) -> None:
    outcome = caller.call(kind, path, b"?")
    assert outcome.status == Status.UNIMPLEMENTED
    assert outcome.answers == ()


def test_a_unary_method_needs_a_message(caller: Caller) -> None:
    """A client that takes the method for another kind learns that something is wrong with it."""
    for path in (demo.ECHO, demo.LATER):
        assert caller.call(Kind.MANY_TO_ONE, path).status != Status.OK
        assert caller.ask(path, b"and then").answer == b"and then"
