"""Policies: how long a lease is granted for.

A policy decides lengths and nothing else. What holds for every lease, whatever its policy (a
renewal never shortens a term unasked), is kept by the `LeaseTable`. Policies that need no clock of
their own are here; `leasehold.until` has the one that does.
"""

from abc import ABC, abstractmethod
from collections.abc import Sized
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakSet

from leasehold.core.duration import (
    ANY,
    FOREVER,
    NEVER,
    Duration,
    DurationLike,
    Forever,
    Requested,
    check_duration,
    check_seconds,
    duration_of,
    seconds_of,
)


class Leased(Protocol):
    """What a policy is shown of a lease."""

    @property
    def cookie(self) -> Any:
        """The lease's name at its landlord."""
        ...

    @property
    def resource(self) -> Any:
        """What is leased."""
        ...

    @property
    def end(self) -> float | Forever:
        """When the current term ends, in lease time. Of no meaning while the lease is granted."""
        ...


class LeasePolicy(ABC):
    """How long leases are granted for. One policy object may serve several landlords."""

    @abstractmethod
    def grant(self, leased: Leased, requested: Requested, now: float) -> Duration:
        """Return the length of a first term, or raise `LeaseDenied`."""

    def renew(self, leased: Leased, requested: Requested, now: float) -> Duration:
        """Return the length of a further term, from now on, or raise `LeaseDenied`.

        A result that would end before the current end takes effect only as far as a shorter term
        was asked for.
        """
        return self.grant(leased, requested, now)

    def is_current(self, leased: Leased, now: float) -> bool:
        """Say whether the lease still runs: the one test that reaper, renewal and lookup use."""
        return leased.end is Forever.FOREVER or leased.end > now

    def bound_s(self) -> float:
        """Seconds from now beyond which no lease may run, in real time; infinity for no bound.

        Whatever `grant` and `renew` answer is held to it, and all leases end when it is zero.
        """
        return NEVER

    def attach(self, leases: Sized) -> None:
        """Learn of a landlord that this policy serves, by the collection of its live leases."""
        return

    def detach(self, leases: Sized) -> None:
        """Learn that a landlord has another policy now."""
        return


class DurationPolicy(LeasePolicy):
    """Grants what is asked for up to `maximum`, and `default` where the choice is left to it."""

    def __init__(
        self, maximum: float | timedelta | Forever, default: float | timedelta | Forever
    ) -> None:
        self.maximum = check_duration(maximum, "maximum")
        self.default = check_duration(default, "default")
        self._maximum_s = seconds_of(self.maximum)
        self._default = duration_of(min(seconds_of(self.default), self._maximum_s))

    def __repr__(self) -> str:
        return f"DurationPolicy(maximum={self.maximum!r}, default={self.default!r})"

    def grant(self, leased: Leased, requested: Requested, now: float) -> Duration:
        if requested is ANY:
            return self._default
        if requested is FOREVER:
            return self.maximum
        return requested if requested <= self._maximum_s else self._maximum_s


class FixedPolicy(LeasePolicy):
    """Grants the same length whatever is asked for."""

    def __init__(self, duration: float | timedelta | Forever) -> None:
        self.duration = check_duration(duration, "duration")

    def __repr__(self) -> str:
        return f"FixedPolicy({self.duration!r})"

    def grant(self, leased: Leased, requested: Requested, now: float) -> Duration:
        return self.duration


class LoadPolicy(LeasePolicy):
    """Grants terms that grow with the number of live leases, whatever is asked for.

    With n live leases, of all its landlords together, everyone gets `n / budget_per_s` seconds,
    within `minimum` and `maximum`: so that, each renewed once a term, they need at most
    `budget_per_s` renewals a second. Once `maximum` is reached the budget no longer holds.
    """

    def __init__(
        self,
        budget_per_s: float,
        minimum: float | timedelta,
        maximum: float | timedelta | Forever,
    ) -> None:
        self.budget_per_s = check_seconds(budget_per_s, "budget_per_s")
        self.minimum = check_seconds(minimum, "minimum")
        self.maximum = check_duration(maximum, "maximum")
        self._maximum_s = seconds_of(self.maximum)
        if self._maximum_s < self.minimum:
            raise ValueError(f"maximum ({maximum!r}) must not be less than minimum ({minimum!r})")
        self._landlords: WeakSet[Sized] = WeakSet()

    def __repr__(self) -> str:
        return f"LoadPolicy({self.budget_per_s!r}, {self.minimum!r}, {self.maximum!r})"

    def attach(self, leases: Sized) -> None:
        self._landlords.add(leases)

    def detach(self, leases: Sized) -> None:
        self._landlords.discard(leases)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.budget_per_s, self.minimum, self.maximum)

    @property
    def live(self) -> int:
        """The number of live leases of all the landlords that this policy serves."""
        return sum(map(len, self._landlords))

    def term_s(self, live: int) -> float:
        """The term that `live` leases can have within the budget."""
        return min(max(self.minimum, live / self.budget_per_s), self._maximum_s)

    def grant(self, leased: Leased, requested: Requested, now: float) -> Duration:
        return self.term_s(self.live + 1)

    def renew(self, leased: Leased, requested: Requested, now: float) -> Duration:
        return self.term_s(self.live)


def check_policy(policy: LeasePolicy) -> LeasePolicy:
    """Refuse what is not a policy, above all a class where an object is meant."""
    if not isinstance(policy, LeasePolicy):
        raise TypeError(f"policy must be a LeasePolicy object, not {policy!r}")
    return policy


def check_granted(policy: LeasePolicy, granted: DurationLike, requested: Requested) -> float:
    """Return a policy's answer in core's form; an answer that is no length of time is refused."""
    try:
        return seconds_of(check_duration(granted, "the granted duration"))
    except (TypeError, ValueError) as error:
        error.add_note(f"answered by {policy!r} for a request of {requested!r}")
        raise
