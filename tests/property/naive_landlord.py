"""A landlord as the spec page tells it, and nothing more: a list of leases and their ends.

No heap, no laziness, no timers. Time comes from outside: `now` is lease time, `real_now` real time.
Where the page leaves room (how late a step may come, which of two equal instants is first) the
model gives a range, and the machine takes over what really happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from leasehold.basics.durations import ANY, NEVER, Requested
from leasehold.errors import EndReason

EPS: Final = 1e-6
GRACE_S: Final = 5.0
REMEMBERED: Final = 1024
FEW: Final = 8


@dataclass(eq=False)
class NaiveLease:
    """One lease. A pending one has a term, and no end yet."""

    cookie: int
    term: float
    end: float
    pending: bool = False
    ended: EndReason | None = None
    old_term: float = 0.0
    """Its term before a renewal that kept its end, which may still count as its TTL."""


@dataclass(frozen=True)
class Range:
    """What an answer may be."""

    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    def __contains__(self, value: float) -> bool:
        slack = EPS + 1e-9 * (abs(value) if value != NEVER else 0.0)
        return self.low - slack <= value <= self.high + slack


class NaivePolicy:
    """What a policy answers, by its sentence on the page."""

    def __init__(
        self,
        kind: str,
        *,
        maximum: float = NEVER,
        default: float = NEVER,
        budget: float = 1.0,
        minimum: float = 0.0,
        until: float = NEVER,
    ) -> None:
        self.kind = kind
        self.maximum = maximum
        self.default = default
        self.budget = budget
        self.minimum = minimum
        self.until = until  # in real time
        self.denies = False

    def term(self, requested: Requested, live: int, real_now: float) -> float:
        """The length of a term, in seconds; `live` counts the lease that asks."""
        match self.kind:
            case "duration":
                asked = requested if isinstance(requested, float) else NEVER
                length = min(self.default if requested is ANY else asked, self.maximum)
            case "fixed":
                length = self.default
            case "load":
                length = min(max(self.minimum, live / self.budget), self.maximum)
            case _:
                raise AssertionError(self.kind)
        return min(length, self.bound(real_now))

    def bound(self, real_now: float) -> float:
        """How long any lease may still run."""
        return max(0.0, self.until - real_now)


@dataclass
class NaiveLandlord:
    """The leases that were ever granted, and what is remembered of those that ended."""

    policy: NaivePolicy
    now: float = 0.0
    grace_from: float = -GRACE_S
    leases: dict[int, NaiveLease] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)

    def live(self) -> list[NaiveLease]:
        return [lease for lease in self.leases.values() if lease.ended is None]

    def earliest(self, lease: NaiveLease) -> float:
        """Before this no step may end the lease: its end, and the grace after a long stall."""
        return max(lease.end, self.grace_from + min(lease.term, GRACE_S))

    def latest(self, lease: NaiveLease) -> float:
        """From this on a step must end the lease."""
        return max(self.earliest(lease), self.grace_from + min(lease.old_term, GRACE_S))

    def is_alive(self, lease: NaiveLease, real_now: float) -> bool | None:
        """Whether a look finds it alive; None if it is too close to tell."""
        bound = self.policy.until - real_now
        if lease.ended is not None or min(self.latest(lease) - self.now, bound) < -EPS:
            return False
        return True if min(self.earliest(lease) - self.now, bound) > EPS else None

    def finish(self, cookie: int, reason: EndReason) -> None:
        self.leases[cookie].ended = reason
        self.ended.append(cookie)

    def reasons(self, cookie: Any) -> set[EndReason]:
        """Why a lease is not there, as far as it is remembered: so many ends, give or take a few.

        A few, because a batch ends others between one of its entries and the end of the call.
        """
        reasons = set()
        if cookie in self.ended[-REMEMBERED - FEW :]:
            reason = self.leases[cookie].ended
            assert reason is not None
            reasons.add(reason)
        if cookie not in self.ended[-REMEMBERED + FEW :]:
            reasons.add(EndReason.UNKNOWN)
        return reasons

    def renewed(
        self, lease: NaiveLease, requested: Requested, live: Range, real_now: float
    ) -> Range:
        """What a renewal of a live lease may be answered."""
        if requested == 0.0:
            return Range(0.0, 0.0)
        bound = self.policy.bound(real_now)
        if lease.pending:  # its grant is answered with this renewal at the latest
            ends = [self.now + min(lease.term, bound)]
        else:
            ends = [lease.end, self.earliest(lease), self.latest(lease)]
        asked = requested if isinstance(requested, float) else NEVER
        answers = []
        for end in ends:
            left = end - self.now
            for load in live:
                length = self.policy.term(requested, int(load), real_now)
                if length < left:  # never shorter than asked for, nor than what it has
                    length = max(length, min(left, asked))
                answers.append(min(length, bound))
        return Range(min(answers), max(answers))
