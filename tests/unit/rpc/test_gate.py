"""The gate: what leaves when, in which order, and how often a connection is flushed."""

import pytest

from leasehold.rpc import gate as gates
from leasehold.rpc.gate import Flushable, Gate
from leasehold.rpc.grpc import RpcError


class Line:
    """A connection that notes what is delivered to it, and when it is flushed."""

    def __init__(self, notes: list[bytes]) -> None:
        self.notes = notes

    def deliver(self, payload: bytes) -> Flushable:
        self.notes.append(payload)
        return self

    def flush(self) -> None:
        self.notes.append(b"flush")


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def line() -> Line:
    return Line([])


def test_nothing_leaves_before_its_position_is_released(gate: Gate, line: Line) -> None:
    gate.hold_answer(2, line.deliver, b"two")
    gate.release(1)
    assert (line.notes, len(gate), gate.released) == ([], 1, 1)
    gate.release(2)
    assert (line.notes, len(gate), gate.released) == ([b"two", b"flush"], 0, 2)


def test_what_was_held_leaves_in_order_and_in_one_write(gate: Gate, line: Line) -> None:
    for position, payload in ((1, b"a"), (1, b"b"), (2, b"c"), (4, b"d")):
        gate.hold_answer(position, line.deliver, payload)
    gate.release(3)
    assert line.notes == [b"a", b"b", b"c", b"flush"]
    gate.release(4)
    assert line.notes[4:] == [b"d", b"flush"]


def test_each_connection_is_flushed_once_after_all_was_delivered(gate: Gate) -> None:
    notes: list[bytes] = []
    lines = [Line(notes), Line(notes)]
    for payload in (b"a", b"b"):
        for line in lines:
            gate.hold_answer(1, line.deliver, payload)
    gate.release(1)
    assert notes == [b"a", b"a", b"b", b"b", b"flush", b"flush"]


def test_what_waits_for_less_leaves_first_whenever_it_came(gate: Gate, line: Line) -> None:
    gate.hold_answer(5, line.deliver, b"first")
    gate.hold_event(3, line.deliver, b"second")
    gate.release(4)
    assert line.notes == [b"second", b"flush"]
    gate.hold_answer(5, line.deliver, b"third")
    gate.hold_answer(6, line.deliver, b"fourth")
    gate.release(6)
    assert line.notes[2:] == [b"first", b"third", b"fourth", b"flush"]


def test_a_full_gate_refuses_answers_in_the_words_it_was_given(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.rpc.gate.MAX_WAITING", 2)
    gate = Gate("too much of it")
    for payload in (b"a", b"b"):
        gate.hold_answer(1, line.deliver, payload)
    for refused in (gate.check_room, lambda: gate.hold_answer(1, line.deliver, b"c")):
        with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED: too much of it"):
            refused()
    gate.release(1)
    gate.check_room()
    assert line.notes == [b"a", b"b", b"flush"]


def test_events_fill_the_gate_by_their_bytes_only(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.rpc.gate.MAX_WAITING", 2)
    monkeypatch.setattr("leasehold.rpc.gate.MAX_WAITING_BYTES", 10)
    gate = Gate()
    for _ in range(9):
        gate.hold_event(1, line.deliver, b"x")
    gate.hold_answer(1, line.deliver, b"answer")
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
        gate.check_room()
    gate.hold_event(1, line.deliver, b"nobody asked for it, so nobody can be refused")
    gate.release(1)
    gate.check_room()
    assert (len(gate), gate.answers) == (0, 0)


def test_releasing_the_same_position_again_does_nothing(gate: Gate, line: Line) -> None:
    gate.hold_answer(1, line.deliver, b"a")
    gate.release(1)
    gate.release(1)
    assert line.notes == [b"a", b"flush"]


def test_a_position_never_goes_back(gate: Gate) -> None:
    gate.release(2)
    with pytest.raises(AssertionError, match="released 2, now 1"):
        gate.release(1)


def test_a_refusal_that_is_said_very_often_does_not_grow(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one object, whose traceback would become longer each time it is raised."""
    monkeypatch.setattr("leasehold.rpc.gate.MAX_WAITING", 0)
    lengths = set()
    for _ in range(5):
        with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED") as refusal:
            gate.check_room()
        lengths.add(len(refusal.traceback))
    assert len(lengths) == 1


def test_streams_of_exchanges_have_room_when_calls_have_none(
    gate: Gate, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_WAITING", 2)
    monkeypatch.setattr(gates, "MAX_WAITING_STREAMED", 3)
    for _ in range(2):
        gate.hold_answer(1, line.deliver, b"a")
    for _ in range(3):
        gate.hold_streamed(1, line.deliver, b"s")
    for hold in (gate.hold_answer, gate.hold_streamed):
        with pytest.raises(RpcError, match="too many requests"):
            hold(1, line.deliver, b"x")
    gate.release(1)
    assert line.notes == [b"a"] * 2 + [b"s"] * 3 + [b"flush"]
    assert gate.answers == 0
    for _ in range(3):
        gate.hold_streamed(2, line.deliver, b"s")
    gate.check_room()  # they do not take the place of calls
