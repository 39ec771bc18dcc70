"""The renewal plan: which leases to renew now, which to give up, and when to look again.

Theory of operation. A managed lease is in up to three queues, all of them lazy heaps:

- *ends*: when it leaves, because its desired end comes or its actual end passes. Always.
- *dues*: when it must be renewed. Not while a renewal is outstanding, nor if its actual end
  reaches its desired one.
- *batchable*, one queue for each landlord: from when on it may be renewed together with another
  lease that is due. That is the case within the batch window before it is due itself, but not in
  the first half of its term: otherwise N leases would renew each other round and round.

A lease that is due takes all batchable ones of its landlord with it, in one call. Each of them is
taken out of both queues once, so a renewal costs O(log n) whatever the number of leases.

Time is the holder's. `view` is called whenever it matters until when a lease runs, since others may
have renewed it; the plan keeps no more than the ends it has queued.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from leasehold.basics.durations import ANY, NEVER, Requested, duration_of, seconds_of
from leasehold.errors import UnknownLease, is_definite
from leasehold.leases.expiry_queue import Deadline, ExpiryQueue
from leasehold.leases.renewal_times import MIN_INTERVAL_S, Timing

MAX_BATCH: Final = 1_000
"""Leases renewed in one call: more would keep both sides from their other work for too long."""

STEP_BUDGET: Final = 1_000
"""Queue entries looked at, and leases sent, in one step; the rest follow in the next step."""

MAX_CALLS_PER_GRANTOR: Final = 32
"""Concurrent calls to one grantor, so that one that does not answer leaves room for the others."""

MAX_CALL_S: Final = 60.0
"""The maximum timeout of a call, however far away the end is."""

L = TypeVar("L", bound=Hashable)


class NoticeKind(StrEnum):
    """Why a lease left the plan without being removed."""

    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(slots=True)
class Terms:
    """The terms on which a lease is managed."""

    desired_end: float
    renew_duration: Requested
    tag: Any = None
    """The caller's data for the lease; the plan does not use it."""

    def to_request(self, now: float) -> Requested:
        """Return the duration to request in a renewal now."""
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
    """When a term was last requested, by any caller, if that is known."""


class Departure(NamedTuple, Generic[L]):
    """A lease that has left the plan without being removed."""

    kind: NoticeKind
    lease: L
    terms: Terms
    error: BaseException | None


class RenewalCall(NamedTuple, Generic[L]):
    """Leases of one landlord to be renewed in one call."""

    wants: list[tuple[L, Requested]]
    timeout_s: float
    """How long to wait for the answer before a retry."""
    late_s: float
    """How long ago the lease that made the call due was to be renewed."""


class Step(NamedTuple, Generic[L]):
    """The work to be done now."""

    departures: list[Departure[L]]
    calls: list[RenewalCall[L]]


class _QueueEntry(Deadline, Generic[L]):
    """A managed lease's entry in a queue."""

    __slots__ = ("managed",)

    def __init__(self, managed: "_Managed[L]") -> None:
        super().__init__(NEVER)
        self.managed = managed


class _Managed(Deadline, Generic[L]):
    """A lease in the plan. As a deadline: its entry in the queue of ends."""

    __slots__ = (
        "batchable",
        "due",
        "error",
        "first_due_at",
        "lease",
        "limit",
        "number",
        "planned_end",
        "pool",
        "sent_at",
        "terms",
    )

    def __init__(
        self,
        number: int,
        lease: L,
        terms: Terms,
        pool: "_Pool[L]",
        limit: "_CallLimit[L]",
        now: float,
    ) -> None:
        super().__init__(NEVER)
        self.number = number
        self.lease = lease
        self.terms = terms
        self.pool = pool
        self.limit = limit
        self.sent_at = now
        self.planned_end = now
        self.error: BaseException | None = None
        self.first_due_at = NEVER
        self.due: _QueueEntry[L] = _QueueEntry(self)
        self.batchable: _QueueEntry[L] = _QueueEntry(self)


class _Pool(Generic[L]):
    """The leases of one landlord that wait for a renewal."""

    __slots__ = ("entries", "key", "members", "queue")

    def __init__(self, key: object) -> None:
        self.key = key
        self.members = 0
        self.entries: dict[int, _QueueEntry[L]] = {}
        self.queue: ExpiryQueue[int, _QueueEntry[L]] = ExpiryQueue(self.entries)


class _CallLimit(Generic[L]):
    """The calls to one grantor, and the leases that wait because of their limit."""

    __slots__ = ("calls", "key", "members", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.members = 0
        self.calls = 0
        self.waiting: dict[int, _Managed[L]] = {}


class _OutstandingCall(Generic[L]):
    """A call whose leases are not all settled."""

    __slots__ = ("left", "limit", "sent_at")

    def __init__(self, limit: _CallLimit[L], leases: int, now: float) -> None:
        self.limit = limit
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
        self._due_entries: dict[int, _QueueEntry[L]] = {}
        self._dues: ExpiryQueue[int, _QueueEntry[L]] = ExpiryQueue(self._due_entries)
        self._pools: dict[Hashable, _Pool[L]] = {}
        self._limits: dict[Hashable, _CallLimit[L]] = {}
        self._outstanding: dict[L, _OutstandingCall[L]] = {}

    def __len__(self) -> int:
        return len(self._managed)

    def __contains__(self, lease: object) -> bool:
        return lease in self._managed

    def leases(self) -> list[L]:
        """Return all managed leases."""
        return [managed.lease for managed in self._managed.values()]

    def terms(self, lease: L) -> Terms:
        """Return the terms of a lease; raise `UnknownLease` if it is not managed."""
        return self._find(lease).terms

    def managed(self, lease: L) -> L:
        """Return the managed lease that equals this one; raise `UnknownLease` if there is none."""
        return self._find(lease).lease

    def add(
        self,
        lease: L,
        batch_key: Hashable,
        terms: Terms,
        now: float,
        grantor: Hashable = None,
        due_at: float | None = None,
    ) -> None:
        """Manage a lease, or replace the terms on which it is managed.

        Its first renewal is due at `due_at`, unless its end makes it due earlier: for a lease whose
        end is only assumed. Leases that are due at the same time are renewed in the order in which
        they were added. A lease that is managed already keeps its `due_at` until it is renewed.
        """
        known = self._managed.get(lease)
        if known is not None:
            self.remove(lease)
        pool = self._pools.get(batch_key) or self._pools.setdefault(batch_key, _Pool(batch_key))
        limit = self._limits.get(grantor) or self._limits.setdefault(grantor, _CallLimit(grantor))
        pool.members += 1
        limit.members += 1
        self._numbers += 1
        managed = _Managed(self._numbers, lease, terms, pool, limit, now)
        self._managed[lease] = self._ending[managed.number] = managed
        view = self._view(lease, now)
        if known is not None:
            managed.sent_at, managed.error = known.sent_at, known.error
            if view.end <= known.planned_end + MIN_INTERVAL_S:  # else others have renewed it
                managed.first_due_at = known.first_due_at
        elif view.term_s != NEVER:
            managed.sent_at = min(now, view.end - view.term_s)
        managed.sent_at = max(managed.sent_at, view.sent_at)
        if due_at is not None:
            least = -NEVER if known is None else managed.sent_at + MIN_INTERVAL_S
            managed.first_due_at = min(managed.first_due_at, max(due_at, least))
        self._plan_end(managed, view)
        if lease not in self._outstanding:
            self._plan_renewal(managed, view, now)

    def remove(self, lease: L) -> Terms:
        """Stop managing a lease; raise `UnknownLease` if it is not managed."""
        managed = self._find(lease)
        self._unqueue(managed)
        del self._managed[lease], self._ending[managed.number]
        self._ends.discard(managed)
        managed.pool.members -= 1
        if not managed.pool.members:
            del self._pools[managed.pool.key]
        managed.limit.members -= 1
        self._drop_if_idle(managed.limit)
        self._wake(managed.limit)  # it may have had the turn of a lease that waits
        return managed.terms

    def look_again(self, lease: L, now: float) -> None:
        """Record that a lease may end earlier than it did; does nothing if it is not managed."""
        managed = self._managed.get(lease)
        if managed is None:
            return
        view = self._view(managed.lease, now)
        self._plan_end(managed, view)
        if managed.number in self._due_entries:
            self._unqueue(managed)
            self._plan_renewal(managed, view, now)

    def next_at(self, capacity: int) -> float:
        """Return when `step` has something to do, if `capacity` more calls may be started."""
        at = self._ends.next_at()
        return min(at, self._dues.next_at()) if capacity else at

    def step(self, now: float, capacity: int) -> Step[L]:
        """Remove the leases that end now, and start calls that are due, at most `capacity` of them.

        The leases of a call are outstanding from here on, until `settled` is called for each.
        """
        departures = [
            departure
            for _, managed in self._ends.pop_due(now, STEP_BUDGET)
            if (departure := self._end(managed, now)) is not None
        ]
        calls: list[RenewalCall[L]] = []
        budget = STEP_BUDGET
        while budget > 0 and len(calls) < capacity and self._dues.next_at() <= now:
            budget -= 1
            for _, entry in self._dues.pop_due(now, 1):
                managed, due_at = entry.managed, entry.deadline
                if not self._is_due(managed, now):
                    self._wake(managed.limit)  # it may have had the turn of a lease that waits
                    continue
                if managed.limit.calls >= MAX_CALLS_PER_GRANTOR:
                    managed.limit.waiting[managed.number] = managed
                    self._queue_batchable(managed, now)  # the next call of its landlord includes it
                    continue
                calls.append(self._start_call(managed, now, now - due_at))
                budget -= len(calls[-1].wants)
        return Step(departures, calls)

    def settled(self, lease: L, error: BaseException | None, now: float) -> Departure[L] | None:
        """Record the outcome of a renewal; a definite error makes the lease leave."""
        call = self._outstanding.pop(lease)
        call.left -= 1
        if not call.left:
            self._call_ended(call.limit)
        managed = self._managed.get(lease)
        if managed is None:
            return None
        managed.error = error
        managed.sent_at = call.sent_at
        view = self._view(managed.lease, now)
        if error is not None and is_definite(error):
            return self._depart(managed, NoticeKind.FAILED)
        if error is None or view.end > managed.planned_end + MIN_INTERVAL_S:
            managed.first_due_at = NEVER
        self._plan_end(managed, view)
        if error is None or _lasts(managed, view):
            self._plan_renewal(managed, view, now)
        else:
            managed.planned_end = view.end
            when = self._timing.retry(now, call.sent_at, view.end, view.term_s)
            if managed.first_due_at != NEVER:  # its end is still not known for certain
                managed.first_due_at = when.due_at
            self._queue_renewal(managed, *when)
        return None

    def _call_ended(self, limit: _CallLimit[L]) -> None:
        """Record that a call to a grantor has ended: one of the leases that wait for it is due."""
        limit.calls -= 1
        self._drop_if_idle(limit)
        self._wake(limit)

    def _wake(self, limit: _CallLimit[L]) -> None:
        """Let a lease be due that waits because of the limit of calls, if there is room."""
        if limit.waiting and limit.calls < MAX_CALLS_PER_GRANTOR:
            managed = next(iter(limit.waiting.values()))
            del limit.waiting[managed.number]
            self._queue_renewal(managed, managed.due.deadline, managed.due.deadline)

    def _drop_if_idle(self, limit: _CallLimit[L]) -> None:
        """Drop a grantor without leases here, unless calls to it are under way."""
        if not limit.members and not limit.calls:
            del self._limits[limit.key]

    def _find(self, lease: L) -> _Managed[L]:
        managed = self._managed.get(lease)
        if managed is None:
            raise UnknownLease(lease)
        return managed

    def _plan_end(self, managed: _Managed[L], view: View) -> None:
        desired_end = managed.terms.desired_end
        managed.deadline = desired_end if _lasts(managed, view) else min(view.end, desired_end)
        self._ends.schedule(managed.number, managed)

    def _plan_renewal(self, managed: _Managed[L], view: View, now: float) -> None:
        managed.planned_end = view.end
        if _lasts(managed, view):
            return
        due_at, batchable_at = self._timing.renew(now, managed.sent_at, view.end, view.term_s)
        self._queue_renewal(managed, min(due_at, managed.first_due_at), batchable_at)

    def _queue_renewal(self, managed: _Managed[L], due_at: float, batchable_at: float) -> None:
        managed.due.deadline = due_at
        self._due_entries[managed.number] = managed.due
        self._dues.schedule(managed.number, managed.due)
        self._queue_batchable(managed, min(due_at, batchable_at))

    def _queue_batchable(self, managed: _Managed[L], batchable_at: float) -> None:
        managed.batchable.deadline = batchable_at
        managed.pool.entries[managed.number] = managed.batchable
        managed.pool.queue.schedule(managed.number, managed.batchable)

    def _unqueue(self, managed: _Managed[L]) -> None:
        """Remove a lease from the queues for renewal."""
        managed.limit.waiting.pop(managed.number, None)
        if self._due_entries.pop(managed.number, None) is not None:
            self._dues.discard(managed.due)
        if managed.pool.entries.pop(managed.number, None) is not None:
            managed.pool.queue.discard(managed.batchable)

    def _is_due(self, managed: _Managed[L], now: float) -> bool:
        """Check a lease that came up again: it may be about to leave, or was renewed by others."""
        self._unqueue(managed)
        view = self._view(managed.lease, now)
        if view.end > managed.planned_end + MIN_INTERVAL_S:
            managed.first_due_at = NEVER
            managed.sent_at = max(managed.sent_at, view.end - view.term_s)
            self._plan_end(managed, view)
            self._plan_renewal(managed, view, now)
            return False
        return managed.deadline > now

    def _start_call(self, first: _Managed[L], now: float, late_s: float) -> RenewalCall[L]:
        """Collect the leases to renew with `first`, and mark all of them as outstanding."""
        batch = [first]
        for _, entry in first.pool.queue.pop_due(now, MAX_BATCH - 1):
            if self._is_due(entry.managed, now):
                batch.append(entry.managed)
        call = _OutstandingCall(first.limit, len(batch), now)
        first.limit.calls += 1
        for managed in batch:
            self._outstanding[managed.lease] = call
        left_s = min(managed.deadline for managed in batch) - now
        timeout_s = min(self._timing.call_timeout_s(left_s), MAX_CALL_S)
        wants = [(each.lease, each.terms.to_request(now)) for each in batch]
        return RenewalCall(wants, timeout_s, late_s)

    def _end(self, managed: _Managed[L], now: float) -> Departure[L] | None:
        """Remove a lease whose desired or actual end has come, if it has: the first of the two."""
        view = self._view(managed.lease, now)
        if view.end <= now and managed.deadline < managed.terms.desired_end:
            return self._depart(managed, NoticeKind.FAILED)
        if managed.terms.desired_end <= now:
            return self._depart(managed, NoticeKind.EXPIRED)
        self._plan_end(managed, view)  # it was renewed by another caller
        if not self._awaits_renewal(managed):  # it was given up in an earlier step
            managed.sent_at = max(managed.sent_at, view.end - view.term_s)
            self._plan_renewal(managed, view, now)
        return None

    def _awaits_renewal(self, managed: _Managed[L]) -> bool:
        """Whether a lease is queued for a renewal, held up at the limit, or outstanding."""
        number = managed.number
        queued = number in self._due_entries or number in managed.limit.waiting
        return queued or managed.lease in self._outstanding

    def _depart(self, managed: _Managed[L], kind: NoticeKind) -> Departure[L]:
        self.remove(managed.lease)
        error = managed.error if kind is NoticeKind.FAILED else None
        return Departure(kind, managed.lease, managed.terms, error)


def _lasts(managed: _Managed[L], view: View) -> bool:
    """Return whether a lease lasts as long as wanted, up to rounding and the holder's margin.

    A lease whose end is not known for certain does not, until it was renewed.
    """
    if managed.first_due_at != NEVER:
        return False
    return max(view.end, view.promised_end) >= managed.terms.desired_end - MIN_INTERVAL_S
