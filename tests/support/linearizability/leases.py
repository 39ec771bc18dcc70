"""The rules for what may be seen of one lease.

A term counts from when the request for it was sent: the holder may rely on it from then on, and the
server, which counts from when it heard of it, never ends it sooner. What was seen of a lease, in
any answer, no crash undoes: it lives to its end, and once it has gone it is gone.

    lease = LeaseHistory(7)
    lease.granted(ttl_s, invoked, returned)
    lease.seen_gone(invoked, returned)
    assert (violation := check_lease(lease)) is None, violation

The holder's clock is taken to run as fast as the server's.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from tests.support.linearizability.violation import Violation


class Kind(Enum):
    """What was done or seen."""

    GRANTED = "granted"
    RENEWED = "renewed"
    REVOKED = "revoked"
    ALIVE = "seen alive"
    GONE = "seen gone"
    REFUSED = "renewal refused"


PROMISES = frozenset({Kind.GRANTED, Kind.RENEWED})
SIGNS_OF_LIFE = frozenset({*PROMISES, Kind.ALIVE})


@dataclass(frozen=True, slots=True)
class LeaseEvent:
    """A call that concerned a lease."""

    kind: Kind
    invoked: float
    returned: float | None
    """None: no answer came."""
    ttl_s: float = 0.0

    def __post_init__(self) -> None:
        if self.end < self.invoked:
            raise ValueError(f"returned at {self.returned}, before it was invoked, {self.invoked}")

    @property
    def end(self) -> float:
        """When it returned; infinite if no answer came."""
        return inf if self.returned is None else self.returned

    def __str__(self) -> str:
        end = "?" if self.returned is None else f"{self.returned:.6f}"
        ttl = f" for {self.ttl_s} s" if self.kind in PROMISES else ""
        return f"[{self.invoked:.6f}, {end}] {self.kind.value}{ttl}"


@dataclass(frozen=True)
class LeaseViolation(Violation):
    """Events of a lease that contradict each other."""

    lease: object
    events: tuple[LeaseEvent, ...]


class LeaseHistory:
    """What was done with one lease, and seen of it. Any thread may add to it.

    A lease that is granted again after its end, with the same number, is another lease.
    """

    def __init__(self, lease: object) -> None:
        self.lease = lease
        self._events: list[LeaseEvent] = []
        self._lock = threading.Lock()

    def granted(self, ttl_s: float, invoked: float, returned: float | None) -> None:
        """Note a grant, with the term in its answer; `returned` None: no answer came."""
        self._add(LeaseEvent(Kind.GRANTED, invoked, returned, ttl_s))

    def renewed(self, ttl_s: float, invoked: float, returned: float | None) -> None:
        """Note a renewal. One that was refused because the lease is unknown is `refused`."""
        self._add(LeaseEvent(Kind.RENEWED, invoked, returned, ttl_s))

    def revoked(self, invoked: float, returned: float | None) -> None:
        """Note a revoke. One that was refused because the lease is unknown is `seen_gone`."""
        self._add(LeaseEvent(Kind.REVOKED, invoked, returned))

    def seen_alive(self, invoked: float, returned: float) -> None:
        """Note an answer that shows the lease, or a key that is under it."""
        self._add(LeaseEvent(Kind.ALIVE, invoked, returned))

    def refused(self, invoked: float, returned: float) -> None:
        """Note a renewal that came too late. A crash may undo the end that it was told of."""
        self._add(LeaseEvent(Kind.REFUSED, invoked, returned))

    def seen_gone(self, invoked: float, returned: float) -> None:
        """Note an answer that shows that it is not there, or, at one moment, such an event."""
        self._add(LeaseEvent(Kind.GONE, invoked, returned))

    def _add(self, event: LeaseEvent) -> None:
        with self._lock:
            self._events.append(event)

    def events(self) -> list[LeaseEvent]:
        """A snapshot, by time of invocation."""
        with self._lock:
            return sorted(self._events, key=lambda event: event.invoked)


def check_lease(lease: LeaseHistory) -> LeaseViolation | None:
    """Check that it lived as long as was promised, and that its end was one.

    - It is not seen gone, nor is a renewal refused, in an answer that came before the end of the
      last term that was promised, unless its revoke had been sent before that answer came.
    - After it was seen gone, or its revoke was answered, it is not seen alive, nor renewed.

    A grant without an answer promises its term if the lease was seen alive.
    """
    seen = _Seen(lease.lease, lease.events())
    for rule in (_revived, _ended_early):
        violation = rule(seen)
        if violation is not None:
            return violation
    return None


class _Seen:
    """The events of a lease, sorted out."""

    def __init__(self, lease: object, events: Sequence[LeaseEvent]) -> None:
        self.lease = lease
        answered = [each for each in events if each.returned is not None]
        self.alive = [each for each in answered if each.kind in SIGNS_OF_LIFE]
        born = min((each.end for each in self.alive), default=inf)
        # Before it was certainly there, an answer that it is not tells nothing about its end.
        self.gone = [each for each in answered if each.kind is Kind.GONE and each.invoked > born]
        self.refused = [
            each for each in answered if each.kind is Kind.REFUSED and each.invoked > born
        ]
        self.revokes = [each for each in events if each.kind is Kind.REVOKED]
        self.promises = [each for each in events if each.kind in PROMISES]
        self.kept = [
            each
            for each in self.promises
            if each.returned is not None or (each.kind is Kind.GRANTED and self.alive)
        ]

    def violation(self, rule: str, *events: LeaseEvent) -> LeaseViolation:
        lines = "".join(f"\n  {event}" for event in events)
        return LeaseViolation(f"lease {self.lease}: {rule}:{lines}", self.lease, events)


def _revived(seen: _Seen) -> LeaseViolation | None:
    ends = [*seen.gone, *seen.revokes]
    if not ends:
        return None
    end = min(ends, key=lambda each: each.end)  # a revoke without an answer never ends
    for event in seen.alive:
        if event.invoked > end.end:
            return seen.violation("it came back after its end", end, event)
    return None


def _ended_early(seen: _Seen) -> LeaseViolation | None:
    for gone in (*seen.gone, *seen.refused):
        if any(revoke.invoked <= gone.end for revoke in seen.revokes):
            continue
        kept = [each for each in seen.kept if each.invoked <= gone.end]
        if not kept:
            continue
        last = max(kept, key=lambda each: each.invoked)
        if gone.end < last.invoked + _least_term(seen, last.invoked, gone.end):
            return seen.violation("it ended before its term did", last, gone)
    return None


def _least_term(seen: _Seen, last_sent: float, until: float) -> float:
    """The shortest of the terms that may have been the last: of those not surely superseded."""
    possible = [each for each in seen.promises if each.end >= last_sent and each.invoked <= until]
    return min(each.ttl_s for each in possible)


@dataclass(frozen=True, slots=True)
class Stall:
    """The server stood still meanwhile; no lease's time went on."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Restart:
    """The server was down; a lease that had not ended got its longest term again."""

    began: float
    ended: float


Pause = Stall | Restart


def check_latest_end(
    lease: LeaseHistory,
    *,
    slack_s: float,
    pauses: Iterable[Pause] = (),
    unanswered_s: float = inf,
) -> LeaseViolation | None:
    """Check that no call sees the lease alive later than it can possibly have been.

    That is a term after the return of the last grant or renewal, and `slack_s`. A request without
    an answer may be heard as late as `unanswered_s` after it was sent: with the default, one that
    was lost allows the lease to live for ever.
    """
    seen = _Seen(lease.lease, lease.events())
    end, longest_s, last = -inf, 0.0, None
    steps = sorted([*seen.promises, *seen.alive, *pauses], key=_began)
    # A grant or renewal is both: it shows the lease alive, and then makes it live longer.
    for step in dict.fromkeys(steps):
        if not isinstance(step, LeaseEvent):
            end = _later_end(step, end, end + slack_s, longest_s)
            continue
        if last is not None and step.invoked > end + slack_s and step.returned is not None:
            return seen.violation(f"it lived longer than until {end + slack_s:.6f}", last, step)
        if step.kind in PROMISES and (last is None or step.invoked <= end + slack_s):
            heard = step.invoked + unanswered_s if step.returned is None else step.returned
            end, last = max(end, heard + step.ttl_s), step
            longest_s = max(longest_s, step.ttl_s)
    return None


def _later_end(pause: Pause, end: float, ended_by: float, longest_s: float) -> float:
    if pause.began > ended_by:
        return end
    if isinstance(pause, Restart):
        return max(end, pause.ended + longest_s)
    return end + (pause.ended - pause.began)


def _began(step: LeaseEvent | Pause) -> float:
    return step.invoked if isinstance(step, LeaseEvent) else step.began
