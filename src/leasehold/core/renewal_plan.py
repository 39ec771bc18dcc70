"""The renewal plan: which leases to renew now, which to give up, and when to look again.

Theory of operation. A managed lease stands in up to three queues, all of them lazy heaps:

- *ends*: when it leaves, because its desired end comes or its actual end passes. Always.
- *dues*: when it must be renewed. Not while a renewal is outstanding, nor if its actual end
  reaches its desired one.
- *ripe*, one queue for each landlord: from when on it may go along with another lease that is due.
  That is the case within the batch window before it is due itself, but not in the first half of its
  term: otherwise N leases would renew each other round and round.

One lease that is due takes all the ripe ones of its landlord with it, in one call; each of them is
taken out of both queues once, so a renewal costs O(log n) whatever the number of leases.

Time is the holder's. Whether a lease was renewed by somebody else, and until when it runs, is asked
of `view` whenever it matters; the plan remembers no more than the ends it has queued.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from leasehold.core.duration import ANY, NEVER, Requested, duration_of, seconds_of
from leasehold.core.expiry_queue import Deadline, ExpiryQueue
from leasehold.core.renewal_times import MIN_INTERVAL_S, Timing
from leasehold.errors import UnknownLease, is_definite

MAX_BATCH: Final = 1_000
"""Leases renewed in one call: more would keep both ends from their other work for too long."""

STEP_BUDGET: Final = 1_000
"""Queue entries looked at, and leases sent off, in one step; what is left has another one."""

MAX_CALLS_PER_GRANTOR: Final = 32
"""Calls to one grantor at once, so that one that does not answer leaves room for the others."""

MAX_CALL_S: Final = 60.0
"""How long one call may take, however far away the end is."""

L = TypeVar("L", bound=Hashable)


class NoticeKind(StrEnum):
    """Why a lease left the plan by itself."""

    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(slots=True)
class Terms:
    """What the manager was asked to do with a lease."""

    desired_end: float
    renew_duration: Requested
    tag: Any = None
    """What the caller keeps with the lease; the plan does not look at it."""

    def to_request(self, now: float) -> Requested:
        """The duration to ask for in a renewal now."""
        if self.renew_duration is ANY:
            return ANY
        return duration_of(min(seconds_of(self.renew_duration), self.desired_end - now))


class View(NamedTuple):
    """A lease as its holder sees it at one moment."""

    end: float
    term_s: float
    promised_end: float = -NEVER
    """The end without the holder's margin, where there is one."""
    sent_at: float = -NEVER
    """When a term was last asked for, by whomever, where that is known."""


class Departure(NamedTuple, Generic[L]):
    """A lease that has left the plan by itself."""

    kind: NoticeKind
    lease: L
    terms: Terms
    error: BaseException | None


class Call(NamedTuple, Generic[L]):
    """Leases of one landlord to be renewed in one call."""

    wants: list[tuple[L, Requested]]
    timeout_s: float
    """When to stop waiting for the answer and to try again."""


class Step(NamedTuple, Generic[L]):
    """What is to be done now."""

    departures: list[Departure[L]]
    calls: list[Call[L]]


class _Mark(Deadline, Generic[L]):
    """A managed lease's place in a queue."""

    __slots__ = ("managed",)

    def __init__(self, managed: "_Managed[L]") -> None:
        super().__init__(NEVER)
        self.managed = managed


class _Managed(Deadline, Generic[L]):
    """A lease in the plan. As a deadline: its place among the ends."""

    __slots__ = (
        "due",
        "error",
        "gate",
        "lease",
        "number",
        "planned_end",
        "pool",
        "ripe",
        "sent_at",
        "terms",
    )

    def __init__(
        self, number: int, lease: L, terms: Terms, pool: "_Pool[L]", gate: "_Gate[L]", now: float
    ) -> None:
        super().__init__(NEVER)
        self.number = number
        self.lease = lease
        self.terms = terms
        self.pool = pool
        self.gate = gate
        self.sent_at = now
        self.planned_end = now
        self.error: BaseException | None = None
        self.due: _Mark[L] = _Mark(self)
        self.ripe: _Mark[L] = _Mark(self)


class _Pool(Generic[L]):
    """The leases of one landlord that wait for a renewal."""

    __slots__ = ("key", "marks", "members", "queue")

    def __init__(self, key: object) -> None:
        self.key = key
        self.members = 0
        self.marks: dict[int, _Mark[L]] = {}
        self.queue: ExpiryQueue[int, _Mark[L]] = ExpiryQueue(self.marks)


class _Gate(Generic[L]):
    """The calls to one grantor, and the leases that wait because there are enough of them."""

    __slots__ = ("calls", "key", "members", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.members = 0
        self.calls = 0
        self.waiting: dict[int, _Managed[L]] = {}


class _OpenCall(Generic[L]):
    """A call whose leases are not all settled."""

    __slots__ = ("gate", "left", "sent_at")

    def __init__(self, gate: _Gate[L], leases: int, now: float) -> None:
        self.gate = gate
        self.left = leases
        self.sent_at = now


class RenewalPlan(Generic[L]):
    """The leases of one renewal manager."""

    def __init__(self, view: Callable[[L, float], View], timing: Timing) -> None:
        self._view = view
        self._timing = timing
        self._numbers = 0
        self._managed: dict[L, _Managed[L]] = {}
        self._ending: dict[int, _Managed[L]] = {}
        self._ends: ExpiryQueue[int, _Managed[L]] = ExpiryQueue(self._ending)
        self._due_marks: dict[int, _Mark[L]] = {}
        self._dues: ExpiryQueue[int, _Mark[L]] = ExpiryQueue(self._due_marks)
        self._pools: dict[Hashable, _Pool[L]] = {}
        self._gates: dict[Hashable, _Gate[L]] = {}
        self._outstanding: dict[L, _OpenCall[L]] = {}

    def __len__(self) -> int:
        return len(self._managed)

    def __contains__(self, lease: object) -> bool:
        return lease in self._managed

    def leases(self) -> list[L]:
        """All managed leases."""
        return [managed.lease for managed in self._managed.values()]

    def terms(self, lease: L) -> Terms:
        """What was asked for a lease; `UnknownLease` if it is not managed."""
        return self._find(lease).terms

    def managed(self, lease: L) -> L:
        """The managed lease that equals this one; `UnknownLease` if there is none."""
        return self._find(lease).lease

    def add(
        self,
        lease: L,
        batch_key: Hashable,
        terms: Terms,
        now: float,
        grantor: Hashable = None,
    ) -> None:
        """Manage a lease, or replace the terms on which it is managed."""
        known = self._managed.get(lease)
        if known is not None:
            self.remove(lease)
        pool = self._pools.get(batch_key) or self._pools.setdefault(batch_key, _Pool(batch_key))
        gate = self._gates.get(grantor) or self._gates.setdefault(grantor, _Gate(grantor))
        pool.members += 1
        gate.members += 1
        self._numbers += 1
        managed = _Managed(self._numbers, lease, terms, pool, gate, now)
        self._managed[lease] = self._ending[managed.number] = managed
        view = self._view(lease, now)
        if known is not None:
            managed.sent_at, managed.error = known.sent_at, known.error
        elif view.term_s != NEVER:
            managed.sent_at = min(now, view.end - view.term_s)
        managed.sent_at = max(managed.sent_at, view.sent_at)
        self._plan_end(managed, view)
        if lease not in self._outstanding:
            self._plan_renewal(managed, view, now)

    def remove(self, lease: L) -> Terms:
        """Leave a lease alone from now on; `UnknownLease` if it is not managed."""
        managed = self._find(lease)
        self._unqueue(managed)
        del self._managed[lease], self._ending[managed.number]
        self._ends.discard(managed)
        managed.pool.members -= 1
        if not managed.pool.members:
            del self._pools[managed.pool.key]
        managed.gate.members -= 1
        self._drop_if_idle(managed.gate)
        return managed.terms

    def look_again(self, lease: L, now: float) -> None:
        """Note that a lease may end earlier than it did; nothing if it is not managed."""
        managed = self._managed.get(lease)
        if managed is None:
            return
        view = self._view(managed.lease, now)
        self._plan_end(managed, view)
        if managed.number in self._due_marks:
            self._unqueue(managed)
            self._plan_renewal(managed, view, now)

    def next_at(self, capacity: int) -> float:
        """When `step` has something to do, if `capacity` more calls may be started."""
        at = self._ends.next_at()
        return min(at, self._dues.next_at()) if capacity else at

    def step(self, now: float, capacity: int) -> Step[L]:
        """Take out what ends now, and start what is due, at most `capacity` calls.

        The leases of a call are outstanding from here on, until `settled` is told of each.
        """
        departures = [
            departure
            for _, managed in self._ends.pop_due(now, STEP_BUDGET)
            if (departure := self._end(managed, now)) is not None
        ]
        calls: list[Call[L]] = []
        budget = STEP_BUDGET
        while budget > 0 and len(calls) < capacity and self._dues.next_at() <= now:
            budget -= 1
            for _, mark in self._dues.pop_due(now, 1):
                managed = mark.managed
                if not self._is_due(managed, now):
                    continue
                if managed.gate.calls >= MAX_CALLS_PER_GRANTOR:
                    managed.gate.waiting[managed.number] = managed
                    self._ripen(managed, now)  # the next call of its landlord takes it along
                    continue
                calls.append(self._start_call(managed, now))
                budget -= len(calls[-1].wants)
        return Step(departures, calls)

    def settled(self, lease: L, error: BaseException | None, now: float) -> Departure[L] | None:
        """Note the outcome of a renewal; a definite error makes the lease leave."""
        call = self._outstanding.pop(lease)
        call.left -= 1
        if not call.left:
            self._open_gate(call.gate, now)
        managed = self._managed.get(lease)
        if managed is None:
            return None
        managed.error = error
        managed.sent_at = call.sent_at
        view = self._view(managed.lease, now)
        if error is not None and is_definite(error):
            return self._depart(managed, NoticeKind.FAILED)
        self._plan_end(managed, view)
        if error is None or _lasts(managed, view):
            self._plan_renewal(managed, view, now)
        else:
            managed.planned_end = view.end
            self._queue_renewal(
                managed, *self._timing.retry(now, call.sent_at, view.end, view.term_s)
            )
        return None

    def _open_gate(self, gate: _Gate[L], now: float) -> None:
        """Note that a call to a grantor is over: one of the leases that wait for it is due."""
        gate.calls -= 1
        self._drop_if_idle(gate)
        if gate.waiting:
            managed = next(iter(gate.waiting.values()))
            del gate.waiting[managed.number]
            self._queue_renewal(managed, now, now)

    def _drop_if_idle(self, gate: _Gate[L]) -> None:
        """Forget a grantor with no leases here; but not while calls to it are under way."""
        if not gate.members and not gate.calls:
            del self._gates[gate.key]

    def _find(self, lease: L) -> _Managed[L]:
        managed = self._managed.get(lease)
        if managed is None:
            raise UnknownLease(lease)
        return managed

    def _plan_end(self, managed: _Managed[L], view: View) -> None:
        managed.deadline = managed.terms.desired_end if _lasts(managed, view) else view.end
        self._ends.schedule(managed.number, managed)

    def _plan_renewal(self, managed: _Managed[L], view: View, now: float) -> None:
        managed.planned_end = view.end
        if _lasts(managed, view):
            return
        self._queue_renewal(
            managed, *self._timing.renew(now, managed.sent_at, view.end, view.term_s)
        )

    def _queue_renewal(self, managed: _Managed[L], due_at: float, ripe_at: float) -> None:
        managed.due.deadline = due_at
        self._due_marks[managed.number] = managed.due
        self._dues.schedule(managed.number, managed.due)
        self._ripen(managed, min(due_at, ripe_at))

    def _ripen(self, managed: _Managed[L], ripe_at: float) -> None:
        managed.ripe.deadline = ripe_at
        managed.pool.marks[managed.number] = managed.ripe
        managed.pool.queue.schedule(managed.number, managed.ripe)

    def _unqueue(self, managed: _Managed[L]) -> None:
        """Take a lease out of the queues for renewal."""
        managed.gate.waiting.pop(managed.number, None)
        if self._due_marks.pop(managed.number, None) is not None:
            self._dues.discard(managed.due)
        if managed.pool.marks.pop(managed.number, None) is not None:
            managed.pool.queue.discard(managed.ripe)

    def _is_due(self, managed: _Managed[L], now: float) -> bool:
        """Look again at a lease that came up: it may be about to leave, or renewed by others."""
        self._unqueue(managed)
        view = self._view(managed.lease, now)
        if view.end > managed.planned_end + MIN_INTERVAL_S:
            managed.sent_at = max(managed.sent_at, view.end - view.term_s)
            self._plan_end(managed, view)
            self._plan_renewal(managed, view, now)
            return False
        return managed.deadline > now

    def _start_call(self, first: _Managed[L], now: float) -> Call[L]:
        """Collect the leases that go along with `first`, and mark all of them as outstanding."""
        batch = [first]
        for _, mark in first.pool.queue.pop_due(now, MAX_BATCH - 1):
            if self._is_due(mark.managed, now):
                batch.append(mark.managed)
        call = _OpenCall(first.gate, len(batch), now)
        first.gate.calls += 1
        for managed in batch:
            self._outstanding[managed.lease] = call
        left_s = min(managed.deadline for managed in batch) - now
        timeout_s = min(self._timing.patience_s(left_s), MAX_CALL_S)
        return Call([(each.lease, each.terms.to_request(now)) for each in batch], timeout_s)

    def _end(self, managed: _Managed[L], now: float) -> Departure[L] | None:
        """Let a lease go whose desired or actual end has come, if it has: the first of the two."""
        view = self._view(managed.lease, now)
        if view.end <= now and managed.deadline < managed.terms.desired_end:
            return self._depart(managed, NoticeKind.FAILED)
        if managed.terms.desired_end <= now:
            return self._depart(managed, NoticeKind.EXPIRED)
        self._plan_end(managed, view)  # somebody else renewed it
        if not self._awaits_renewal(managed):  # it was given up in an earlier step
            managed.sent_at = max(managed.sent_at, view.end - view.term_s)
            self._plan_renewal(managed, view, now)
        return None

    def _awaits_renewal(self, managed: _Managed[L]) -> bool:
        """Whether a lease is queued for a renewal, held up at the gate, or outstanding."""
        number = managed.number
        queued = number in self._due_marks or number in managed.gate.waiting
        return queued or managed.lease in self._outstanding

    def _depart(self, managed: _Managed[L], kind: NoticeKind) -> Departure[L]:
        self.remove(managed.lease)
        error = managed.error if kind is NoticeKind.FAILED else None
        return Departure(kind, managed.lease, managed.terms, error)


def _lasts(managed: _Managed[L], view: View) -> bool:
    """Whether a lease lasts as long as is wanted, but for rounding and the holder's margin."""
    return max(view.end, view.promised_end) >= managed.terms.desired_end - MIN_INTERVAL_S
