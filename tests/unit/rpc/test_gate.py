"""The gate: what leaves when, in which order, and how often a connection is flushed."""

import pytest

from leasehold.rpc.gate import Flushable, Gate


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
    gate.hold(2, line.deliver, b"two")
    gate.release(1)
    assert (line.notes, len(gate), gate.released) == ([], 1, 1)
    gate.release(2)
    assert (line.notes, len(gate), gate.released) == ([b"two", b"flush"], 0, 2)


def test_what_was_held_leaves_in_order_and_in_one_write(gate: Gate, line: Line) -> None:
    for position, payload in ((1, b"a"), (1, b"b"), (2, b"c"), (4, b"d")):
        gate.hold(position, line.deliver, payload)
    gate.release(3)
    assert line.notes == [b"a", b"b", b"c", b"flush"]
    gate.release(4)
    assert line.notes[4:] == [b"d", b"flush"]


def test_each_connection_is_flushed_once_after_all_was_delivered(gate: Gate) -> None:
    notes: list[bytes] = []
    lines = [Line(notes), Line(notes)]
    for payload in (b"a", b"b"):
        for line in lines:
            gate.hold(1, line.deliver, payload)
    gate.release(1)
    assert notes == [b"a", b"a", b"b", b"b", b"flush", b"flush"]


def test_a_lower_position_waits_behind_what_was_held_before_it(gate: Gate, line: Line) -> None:
    gate.hold(5, line.deliver, b"first")
    gate.hold(3, line.deliver, b"second")
    gate.release(4)
    assert line.notes == []
    gate.release(5)
    assert line.notes == [b"first", b"second", b"flush"]


def test_what_is_held_while_others_are_delivered_is_released_with_them(gate: Gate) -> None:
    notes: list[bytes] = []
    line = Line(notes)

    def deliver_and_hold(payload: bytes) -> Flushable:
        gate.hold(1, line.deliver, b"follows")
        return line.deliver(payload)

    gate.hold(1, deliver_and_hold, b"first")
    gate.release(1)
    assert notes == [b"first", b"follows", b"flush"]


def test_releasing_the_same_position_again_does_nothing(gate: Gate, line: Line) -> None:
    gate.hold(1, line.deliver, b"a")
    gate.release(1)
    gate.release(1)
    assert line.notes == [b"a", b"flush"]


def test_a_position_never_goes_back(gate: Gate) -> None:
    gate.release(2)
    with pytest.raises(AssertionError, match="released 2, now 1"):
        gate.release(1)


def test_a_gate_may_begin_where_the_journal_is() -> None:
    assert Gate(17).released == 17
