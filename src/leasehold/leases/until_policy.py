"""The policy of a grantor with a known closing time.

It is apart from the other policies because its bound is in real time, and so needs a clock: lease
time stands still in a stall, closing time does not.
"""

from collections.abc import Sized
from typing import Any

from leasehold.basics.durations import (
    Duration,
    End,
    Requested,
    check_end,
    duration_of,
    seconds_of,
)
from leasehold.clock import SYSTEM_CLOCK, Clock, boottime_of
from leasehold.errors import LeaseDenied
from leasehold.leases.policies import Leased, LeasePolicy, check_policy


class UntilPolicy(LeasePolicy):
    """Grants the terms of `inner`, never beyond `end`, and denies everything after it."""

    def __init__(self, end: End, inner: LeasePolicy, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.end = check_end(end)
        self.inner = check_policy(inner)
        self._clock = clock
        self._end = boottime_of(end, clock)

    def __repr__(self) -> str:
        return f"UntilPolicy({self.end!r}, {self.inner!r})"

    def bound_s(self) -> float:
        return min(max(0.0, self._end - self._clock.boottime()), self.inner.bound_s())

    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        return self._bounded(self.inner.grant(leased, requested, now))

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        return self._bounded(self.inner.renew(leased, requested, now))

    def is_current(self, leased: Leased[Any], now: float) -> bool:
        return self.bound_s() > 0.0 and self.inner.is_current(leased, now)

    def attach(self, leases: Sized) -> None:
        self.inner.attach(leases)

    def detach(self, leases: Sized) -> None:
        self.inner.detach(leases)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.end, self.inner)  # another process has another boottime

    def _bounded(self, granted: Duration) -> Duration:
        bound_s = self.bound_s()
        if bound_s <= 0.0:
            raise LeaseDenied(f"this grantor closed at {self.end} and grants no more leases")
        return duration_of(min(seconds_of(granted), bound_s))
