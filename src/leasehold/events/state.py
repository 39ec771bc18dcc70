"""The queue of one registration for events, as a pure state machine.

A source, such as a renewal set, has one queue for each kind of its events. The queue numbers the
events, keeps those that its listener has not received yet, and decides when they are sent.

    state         meaning                                           left by
    NO_LISTENER   events are counted, not kept                      replace
    IDLE          there is a listener, and nothing to send          append, clear
    READY         events can be sent now                            begin, clear
    SENDING       a call is under way                               succeeded, failed, rejected,
                                                                    replace, clear
    WAITING       a call has failed; the next is due at `due_at`    retry, replace, clear

The rules:

- Numbers rise by exactly 1 with each event, and are never reused. An event for which there is no
  room, or that was given up, shows as a gap in the numbers that a listener receives.
- Events are sent in order, and stay in the queue until the listener has received them. So an event
  may arrive twice, with the same number.
- A failed call is repeated after the waits of `RETRIES_S`. An event that was not received
  `give_up_s` after its first failure is dropped.
- `replace` and `clear` begin another *generation*. The outcome of a call of an earlier generation
  has no effect. A listener that replaces another one gets everything that was not received, without
  a wait, and with its own handback.

Times are readings of any one clock, which the caller passes.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from leasehold.basics.callbacks import ignore

RETRIES_S: Final = (1.0, 5.0, 10.0, 60.0, 60.0, 300.0)
"""The longest waits after failed calls, in order; the last one repeats."""

GIVE_UP_S: Final = 86_400.0
"""How long an event is kept after its first failed delivery, by default."""

MAX_QUEUED: Final = 1_000
"""Events that were not delivered, for each registration, by default."""

MAX_NOTIFY_EVENTS: Final = 100
"""Events in one call. A mailbox stores them in one transaction of at most 128 operations."""

MAX_NOTIFY_BYTES: Final = 512 * 1024
"""Bytes of payloads and handbacks in one call, unless a single event has more."""


class QueueState(Enum):
    """The state of a registration: see the table above."""

    NO_LISTENER = "no listener"
    IDLE = "idle"
    READY = "ready"
    SENDING = "sending"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class EventTarget:
    """The receiver of events: a listener in the process at `endpoint`, or a mailbox.

    The endpoint of a mailbox of this cluster is empty, and `id` is the id of the mailbox.
    """

    endpoint: str
    id: str

    @property
    def is_mailbox(self) -> bool:
        """Whether it is a mailbox of this cluster."""
        return not self.endpoint

    def __str__(self) -> str:
        return f"mailbox {self.id}" if self.is_mailbox else f"listener {self.id} at {self.endpoint}"


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """An event, as a listener receives it."""

    service: str
    """The service that sends it, such as `<cluster>/renewal`."""
    source: str
    """The id of the object that it is about, such as a renewal set."""
    kind: int
    number: int
    """Rises by one with each event of this source and kind; a gap shows dropped events."""
    handback: bytes
    """From the registration, unchanged."""
    payload: bytes
    """A message of the service, by kind."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Identifies the event: a second delivery of it has the same key."""
        return self.service, self.source, self.kind, self.number


@dataclass(slots=True)
class QueuedEvent:
    """An event that was not received yet."""

    number: int
    payload: bytes
    failing_since: float | None = None
    """When the first delivery that it had to wait for has failed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that delivers the first events of a queue."""

    generation: int
    target: EventTarget
    events: tuple[RemoteEvent, ...]

    @property
    def up_to(self) -> int:
        """The number of the last event."""
        return self.events[-1].number


def _always() -> bool:
    return True


class EventQueue:
    """The events of one kind from one source, and their listener."""

    def __init__(
        self,
        service: str,
        source: str,
        kind: int,
        *,
        number: int = 0,
        target: EventTarget | None = None,
        handback: bytes = b"",
        pending: Iterable[tuple[int, bytes]] = (),
        max_events: int = MAX_QUEUED,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        """Create a queue, or restore one.

        `number` is that of the last event. `pending` are numbers and payloads of events that were
        not received; without a listener they are ignored.
        """
        self.service = service
        self.source = source
        self.kind = kind
        self.max_events = max_events
        self.give_up_s = give_up_s
        self.number = number
        """The number of the last event; 0 if there was none."""
        self.target = target
        self.handback = handback if target is not None else b""
        self.may_send: Callable[[], bool] = _always
        """Called before anything is sent: whether the source is still served here, by the clock."""
        self.generation = 0
        self.failures = 0
        """Calls that failed since the last successful one."""
        self.last_error = ""
        """The error of the last call; empty if it was successful."""
        self.changed: Callable[[], object] = ignore
        """Called after each change by `append`, `replace` and `clear`; set by the sender."""
        self._pending = deque(
            [] if target is None else [QueuedEvent(*each) for each in sorted(pending)]
        )
        if self._pending and self._pending[-1].number > number:
            raise ValueError(
                f"number must be at least that of the last pending event, "
                f"{self._pending[-1].number}, got {number}"
            )
        self._sending: Attempt | None = None
        self._retry_at: float | None = None

    def __len__(self) -> int:
        """The number of events that were not received."""
        return len(self._pending)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return (
            f"<EventQueue of {self.source} kind {self.kind}: {self.state.value}, number "
            f"{self.number}, {len(self)} pending>"
        )

    @property
    def state(self) -> QueueState:
        """The state."""
        if self.target is None:
            return QueueState.NO_LISTENER
        if self._sending is not None:
            return QueueState.SENDING
        if not self._pending:
            return QueueState.IDLE
        return QueueState.READY if self._retry_at is None else QueueState.WAITING

    @property
    def pending(self) -> list[int]:
        """The numbers of the events that were not received."""
        return [event.number for event in self._pending]

    @property
    def undelivered(self) -> list[tuple[int, bytes]]:
        """The numbers and payloads of the events that were not received."""
        return [(event.number, event.payload) for event in self._pending]

    @property
    def keeps_next(self) -> bool:
        """Whether the next event will be kept: there are a listener and room."""
        return self.target is not None and len(self._pending) < self.max_events

    # For the source.

    def append(self, payload: bytes) -> QueuedEvent | None:
        """Count an event, and queue it; return it, or None if it was only counted.

        It is only counted if there is no listener, or if the queue is full.
        """
        self.number += 1
        if not self.keeps_next:
            return None
        event = QueuedEvent(self.number, payload)
        self._pending.append(event)
        self.changed()
        return event

    def resync(self, payload: bytes, skipped: int = 0) -> list[int]:
        """Queue an event in the place of those that wait; return the numbers of those.

        For a listener that has to start over, because the queue is full or events were lost.
        Events of a call under way stay. `skipped` numbers are left out before that of the event,
        so that none of the lost events can have had it.
        """
        kept = 0 if self._sending is None else len(self._sending.events)
        dropped: list[int] = []
        while len(self._pending) > kept:
            dropped.append(self._pending.pop().number)
        self.number += skipped
        self.append(payload)
        return dropped[::-1]

    def drop_first(self) -> int:
        """Drop the first event that is not in a call under way; return its number, or 0.

        For a source that makes room for later events.
        """
        place = 0 if self._sending is None else len(self._sending.events)
        if place >= len(self._pending):
            return 0
        number = self._pending[place].number
        del self._pending[place]
        return number

    def replace(self, target: EventTarget, handback: bytes) -> None:
        """Set the listener. It gets the events that were not received, without a wait."""
        self.target = target
        self.handback = handback
        for event in self._pending:
            event.failing_since = None
        self._start_over()
        self.changed()

    def clear(self) -> None:
        """Remove the listener, and drop the events that are queued for it."""
        self.target = None
        self.handback = b""
        self._pending.clear()
        self._start_over()
        self.changed()

    def _start_over(self) -> None:
        self.generation += 1
        self._sending = self._retry_at = None
        self.failures = 0
        self.last_error = ""

    # For the sender.

    @property
    def due_at(self) -> float | None:
        """In state WAITING: when to call `retry`; else None."""
        if self.state is not QueueState.WAITING:
            return None
        assert self._retry_at is not None
        return min(self._retry_at, self._give_up_at())

    def _give_up_at(self) -> float:
        """Return when the first event is given up; it was the first to fail, too."""
        since = self._pending[0].failing_since
        return float("inf") if since is None else since + self.give_up_s

    def retry(self, now: float) -> int:
        """Leave the state WAITING, if it is time; drop events that have failed for too long.

        Return the number of the last event that was dropped, or 0. It is the caller's task to do
        this at `due_at`; at any other time nothing happens.
        """
        due_at = self.due_at
        if due_at is None or now < due_at:
            return 0
        dropped = 0
        while self._pending and self._give_up_at() <= now:
            dropped = self._pending.popleft().number
        assert self._retry_at is not None
        if not self._pending:
            self.failures = 0  # the next event begins the schedule again
        if not self._pending or self._retry_at <= now:
            self._retry_at = None
        return dropped

    def begin(self) -> Attempt:
        """In state READY: begin a call with the first events."""
        if self.state is not QueueState.READY:
            raise RuntimeError(f"a call can begin in state READY only: {self!r}")
        assert self.target is not None
        size_bytes, count = 0, 0
        for event in islice(self._pending, MAX_NOTIFY_EVENTS):
            size_bytes += len(event.payload) + len(self.handback)
            if count and size_bytes > MAX_NOTIFY_BYTES:
                break
            count += 1
        events = tuple(
            RemoteEvent(
                self.service, self.source, self.kind, event.number, self.handback, event.payload
            )
            for event in islice(self._pending, count)
        )
        self._sending = Attempt(self.generation, self.target, events)
        return self._sending

    def is_current(self, attempt: Attempt) -> bool:
        """Return whether the outcome of a call still has an effect."""
        return self._sending is attempt and self.generation == attempt.generation

    def succeeded(self, attempt: Attempt) -> bool:
        """Drop the events of a call: the listener has received them. Return if it is current."""
        if not self.is_current(attempt):
            return False
        for _ in attempt.events:
            self._pending.popleft()
        self._sending = None
        self.failures = 0
        self.last_error = ""
        return True

    def failed(self, attempt: Attempt, now: float, error: str, shortened: float = 0.0) -> bool:
        """Wait before the next call. Return if this one is current.

        `shortened` is the fraction by which the wait is shortened, from 0 to 1.
        """
        if not self.is_current(attempt):
            return False
        self._sending = None
        for event in reversed(self._pending):
            if event.failing_since is not None:
                break  # and so were all before it
            event.failing_since = now
        wait_s = RETRIES_S[min(self.failures, len(RETRIES_S) - 1)]
        self._retry_at = now + wait_s * (1.0 - shortened)
        self.failures += 1
        self.last_error = error
        return True

    def rejected(self, attempt: Attempt) -> bool:
        """Clear the registration: its listener refused the events. Return if it is current."""
        if not self.is_current(attempt):
            return False
        self.clear()
        return True

    def interrupted(self, attempt: Attempt) -> bool:
        """Make the events of a call ready again: it was cancelled. Return if it is current."""
        if not self.is_current(attempt):
            return False
        self._sending = None
        return True
