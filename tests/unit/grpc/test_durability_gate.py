"""The gate: what leaves when, in which order, and how often a connection is flushed."""

import gc
import traceback
import tracemalloc

import pytest

from leasehold.grpc import durability_gate as gates
from leasehold.grpc.durability_gate import DurabilityGate, Flushable
from leasehold.grpc.protocol import RpcError


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
def gate() -> DurabilityGate:
    return DurabilityGate()


@pytest.fixture
def line() -> Line:
    return Line([])


def test_nothing_leaves_before_its_position_is_released(gate: DurabilityGate, line: Line) -> None:
    gate.hold_answer(2, line.deliver, b"two")
    gate.release(1)
    assert (line.notes, len(gate), gate.released) == ([], 1, 1)
    gate.release(2)
    assert (line.notes, len(gate), gate.released) == ([b"two", b"flush"], 0, 2)


def test_what_was_held_leaves_in_order_and_in_one_write(gate: DurabilityGate, line: Line) -> None:
    for position, payload in ((1, b"a"), (1, b"b"), (2, b"c"), (4, b"d")):
        gate.hold_answer(position, line.deliver, payload)
    gate.release(3)
    assert line.notes == [b"a", b"b", b"c", b"flush"]
    gate.release(4)
    assert line.notes[4:] == [b"d", b"flush"]


def test_each_connection_is_flushed_once_after_all_was_delivered(gate: DurabilityGate) -> None:
    notes: list[bytes] = []
    lines = [Line(notes), Line(notes)]
    for payload in (b"a", b"b"):
        for line in lines:
            gate.hold_answer(1, line.deliver, payload)
    gate.release(1)
    assert notes == [b"a", b"a", b"b", b"b", b"flush", b"flush"]


def test_what_waits_for_less_leaves_first_whenever_it_came(
    gate: DurabilityGate, line: Line
) -> None:
    gate.hold_answer(5, line.deliver, b"first")
    gate.hold_event(3, line.deliver, b"second")
    gate.release(4)
    assert line.notes == [b"second", b"flush"]
    gate.hold_answer(5, line.deliver, b"third")
    gate.hold_answer(6, line.deliver, b"fourth")
    gate.release(6)
    assert line.notes[2:] == [b"first", b"third", b"fourth", b"flush"]


def test_a_full_gate_refuses_calls_before_they_are_executed(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_WAITING", 2)
    gate = DurabilityGate("too much of it")
    for payload in (b"a", b"b"):
        gate.hold_answer(1, line.deliver, payload)
    for refused in (gate.check_room, lambda: gate.hold_read(1, line.deliver, b"c")):
        with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED: too much of it"):
            refused()
    gate.release(1)
    gate.check_room()
    assert line.notes == [b"a", b"b", b"flush"]


def test_a_call_that_was_executed_is_answered_however_full_the_gate_is(
    gate: DurabilityGate, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_WAITING", "MAX_WAITING_BYTES", "MAX_WAITING_RENEWALS", "MAX_EVENT_BYTES"):
        monkeypatch.setattr(gates, limit, 0)
    for hold in (gate.hold_answer, gate.hold_renewal, gate.hold_event):
        hold(1, line.deliver, b"done")
    for refused in (gate.check_room, gate.check_renewal_room):
        with pytest.raises(RpcError, match="too many requests"):
            refused()
    gate.release(1)
    assert line.notes == [b"done", b"done", b"done", b"flush"]


def test_answers_fill_the_gate_by_their_bytes(
    gate: DurabilityGate, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_WAITING_BYTES", 1_000)
    gate.hold_answer(1, line.deliver, bytes(500))
    gate.check_room()
    gate.hold_answer(1, line.deliver, bytes(500))
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
        gate.check_room()
    gate.release(1)
    gate.check_room()
    assert (len(gate), gate.answers) == (0, 0)


class Events(Line):
    """A stream of events that notes when there is room again."""

    def relieve(self) -> None:
        self.notes.append(b"relieved")


def test_events_never_refuse_a_call_and_find_no_room_beyond_their_own_limit(
    gate: DurabilityGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_EVENT_BYTES", 1_000)
    stream, other = Events([]), Events([])
    gate.hold_event(1, stream.deliver, bytes(400))
    assert gate.has_event_room(stream)
    gate.hold_event(2, stream.deliver, bytes(400))
    gate.check_room()
    assert not gate.has_event_room(stream)
    assert not gate.has_event_room(other)
    gate.forget(other)
    gate.release(1)
    assert b"relieved" not in stream.notes, "more than half of it still waits"
    gate.release(2)
    assert stream.notes[-2:] == [b"flush", b"relieved"]
    assert other.notes == []
    assert gate.has_event_room(stream)


def test_releasing_the_same_position_again_does_nothing(gate: DurabilityGate, line: Line) -> None:
    gate.hold_answer(1, line.deliver, b"a")
    gate.release(1)
    gate.release(1)
    assert line.notes == [b"a", b"flush"]


def test_a_position_never_goes_back(gate: DurabilityGate) -> None:
    gate.release(2)
    with pytest.raises(AssertionError, match="released 2, now 1"):
        gate.release(1)


def test_ten_thousand_refusals_take_no_memory(
    gate: DurabilityGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a new exception: one that is raised again and again collects tracebacks."""
    monkeypatch.setattr(gates, "MAX_WAITING", 0)

    def refuse(times: int) -> set[int]:
        seen = set()
        for _ in range(times):
            try:
                gate.check_room()
            except RpcError as error:
                seen.add(len(list(traceback.walk_tb(error.__traceback__))))
        return seen

    refuse(10)
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        assert len(refuse(10_000)) == 1, "the traceback grows"
        gc.collect()
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_bytes - before_bytes < 100_000
    assert gate.refusal() is not gate.refusal()


def test_renewals_have_room_when_calls_have_none(
    gate: DurabilityGate, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_WAITING", 2)
    monkeypatch.setattr(gates, "MAX_WAITING_RENEWALS", 3)
    for _ in range(2):
        gate.hold_answer(1, line.deliver, b"a")
    for _ in range(3):
        gate.check_renewal_room()
        gate.hold_renewal(1, line.deliver, b"s")
    for refused in (gate.check_room, gate.check_renewal_room):
        with pytest.raises(RpcError, match="too many requests"):
            refused()
    gate.release(1)
    assert line.notes == [b"a"] * 2 + [b"s"] * 3 + [b"flush"]
    assert (gate.answers, gate.renewals) == (0, 0)
    for _ in range(3):
        gate.hold_renewal(2, line.deliver, b"s")
    gate.check_room()  # renewals do not take the place of calls
