"""The queue of a registration for events, beside a naive model of its listener."""

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.events.state import RETRIES_S, Attempt, EventQueue, EventTarget, QueueState
from tests.property.support import effort

HERE = EventTarget("", "a")


class QueueMachine(RuleBasedStateMachine):
    """A queue beside a list of what the listener must get, and of what it got."""

    @initialize(max_events=st.integers(1, 5))
    def create(self, max_events: int) -> None:
        self.queue = EventQueue("c", "s", 1, max_events=max_events, give_up_s=100.0)
        self.max_events = max_events
        self.now = 0.0
        self.number = 0
        self.has_listener = False
        self.expected: deque[tuple[int, bytes]] = deque()
        self.handback = b""
        self.call: Attempt | None = None
        self.late: list[Attempt] = []
        self.retry_at: float | None = None
        self.failures = 0
        self.failing_since: dict[int, float] = {}

    @rule(payload=st.binary(max_size=2))
    def append(self, payload: bytes) -> None:
        self.number += 1
        is_kept = self.has_listener and len(self.expected) < self.max_events
        assert (self.queue.append(payload) is not None) == is_kept
        if is_kept:
            self.expected.append((self.number, payload))

    def _start_over(self) -> None:
        if self.call is not None:
            self.late.append(self.call)
        self.call = self.retry_at = None
        self.failures = 0
        self.failing_since.clear()

    @rule(handback=st.binary(max_size=2))
    def replace(self, handback: bytes) -> None:
        self.queue.replace(HERE, handback)
        self.has_listener, self.handback = True, handback
        self._start_over()

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.has_listener = False
        self.expected.clear()
        self._start_over()

    @precondition(lambda self: self.expected and self.call is None and self.retry_at is None)
    @rule()
    def begin(self) -> None:
        self.call = self.queue.begin()
        sent = [(event.number, event.payload) for event in self.call.events]
        assert sent == list(self.expected)
        assert {event.handback for event in self.call.events} == {self.handback}

    @precondition(lambda self: self.call is not None)
    @rule()
    def succeed(self) -> None:
        assert self.call is not None
        assert self.queue.succeeded(self.call)
        for _ in self.call.events:
            self.expected.popleft()
        self.call, self.failures = None, 0

    @precondition(lambda self: self.call is not None)
    @rule()
    def fail(self) -> None:
        assert self.call is not None
        assert self.queue.failed(self.call, self.now, "down")
        self.call = None
        self.retry_at = self.now + RETRIES_S[min(self.failures, 5)]
        self.failures += 1
        for number, _ in self.expected:
            self.failing_since.setdefault(number, self.now)

    @precondition(lambda self: self.call is not None)
    @rule()
    def reject(self) -> None:
        assert self.call is not None
        assert self.queue.rejected(self.call)
        self.call = None
        self.has_listener = False
        self.expected.clear()
        self._start_over()

    @precondition(lambda self: self.late)
    @rule(which=st.sampled_from(["succeeded", "rejected", "interrupted", "failed"]))
    def end_late(self, which: str) -> None:
        attempt = self.late.pop()
        if which == "failed":
            assert not self.queue.failed(attempt, self.now, "late")
        else:
            assert not getattr(self.queue, which)(attempt)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 60.0, 300.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.queue.due_at is not None and self.queue.due_at <= end:
            self.now = max(self.now, self.queue.due_at)
            self.queue.retry(self.now)
            assert self.retry_at is not None
            while self.expected and self.failing_since.get(self.expected[0][0], 1e9) <= (
                self.now - 100.0
            ):
                self.expected.popleft()
            if not self.expected:
                self.failures, self.retry_at = 0, None
            elif self.retry_at <= self.now:
                self.retry_at = None
        self.now = end

    @invariant()
    def agrees(self) -> None:
        queue = self.queue
        assert queue.number == self.number
        assert queue.pending == [number for number, _ in self.expected]
        if not self.has_listener:
            assert queue.state is QueueState.NO_LISTENER
        elif self.call is not None:
            assert queue.state is QueueState.SENDING
        elif not self.expected:
            assert queue.state is QueueState.IDLE
        elif self.retry_at is not None:
            assert queue.state is QueueState.WAITING
        else:
            assert queue.state is QueueState.READY


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = effort(300, steps=40)
