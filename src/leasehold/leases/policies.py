"""Policies: how long a lease is granted for.

A policy decides lengths and nothing else. Rules that hold for every lease, whatever its policy (a
renewal never shortens a term unasked), are in `LeaseTable`. Policies that need no clock of their
own are here; `leasehold.leases.until_policy` has the one that does. The named policies of a server
come last: `leasehold config` and `lease grant` use them without the rest of the server.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    WIRE_FOREVER_MS,
    Duration,
    DurationLike,
    Forever,
    Requested,
    check_duration,
    check_seconds,
    duration_of,
    from_wire_ms,
    seconds_of,
    to_wire_ms,
)

R_co = TypeVar("R_co", covariant=True)


class Leased(Protocol[R_co]):
    """The attributes of a lease on a resource of type R that a policy may use."""

    @property
    def cookie(self) -> Any:
        """The lease's name at its landlord."""
        ...

    @property
    def resource(self) -> R_co:
        """The leased resource."""
        ...

    @property
    def end(self) -> float | Forever:
        """When the current term ends, in lease time. Has no meaning while the lease is granted."""
        ...


class LeasePolicy(ABC):
    """How long leases are granted for. One policy object may serve several landlords."""

    @abstractmethod
    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        """Return the length of a first term, or raise `LeaseDenied`."""

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        """Return the length of a further term, from now on, or raise `LeaseDenied`.

        A result that would end before the current end takes effect only as far as a shorter term
        was requested.
        """
        return self.grant(leased, requested, now)

    def is_current(self, leased: Leased[Any], now: float) -> bool:
        """Return whether the lease still runs: the one test for expiry, renewal and lookup."""
        return leased.end is Forever.FOREVER or leased.end > now

    def bound_s(self) -> float:
        """Return the seconds from now after which no lease may run, in real time; may be infinity.

        The results of `grant` and `renew` are clamped to it, and all leases end when it is zero.
        """
        return NEVER

    def attach(self, leases: Sized) -> None:
        """Called with the live leases of a landlord that this policy serves from now on."""
        return

    def detach(self, leases: Sized) -> None:
        """Called with the live leases of a landlord that has another policy now."""
        return


class DurationPolicy(LeasePolicy):
    """Grants the requested duration up to `maximum`, and `default` for ANY.

    `maximum` can be set; leases that are longer already keep their ends.
    """

    def __init__(
        self, maximum: float | timedelta | Forever, default: float | timedelta | Forever
    ) -> None:
        self.default = check_duration(default, "default")
        self.maximum = check_duration(maximum, "maximum")

    @property
    def maximum(self) -> Duration:
        """The longest duration that is granted, also in place of a longer `default`."""
        return self._maximum

    @maximum.setter
    def maximum(self, maximum: Duration) -> None:
        self._maximum = check_duration(maximum, "maximum")
        self._maximum_s = seconds_of(self._maximum)
        self._default = duration_of(min(seconds_of(self.default), self._maximum_s))

    def __repr__(self) -> str:
        return f"DurationPolicy(maximum={self.maximum!r}, default={self.default!r})"

    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        if requested is ANY:
            return self._default
        if requested is FOREVER:
            return self._maximum
        return requested if requested <= self._maximum_s else self._maximum_s


class FixedPolicy(LeasePolicy):
    """Grants the same length whatever is requested."""

    def __init__(self, duration: float | timedelta | Forever) -> None:
        self.duration = check_duration(duration, "duration")

    def __repr__(self) -> str:
        return f"FixedPolicy({self.duration!r})"

    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        return self.duration


class LoadPolicy(LeasePolicy):
    """Grants terms that grow with the number of live leases, whatever is requested.

    With n live leases, of all its landlords together, each gets `n / budget_per_s` seconds, within
    `minimum` and `maximum`: so that, each renewed once a term, they need at most `budget_per_s`
    renewals a second. Once `maximum` is reached the budget no longer holds.
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
        """Return the term that `live` leases can have within the budget."""
        return min(max(self.minimum, live / self.budget_per_s), self._maximum_s)

    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        return self.term_s(self.live + 1)

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        return self.term_s(self.live)


def check_policy(policy: LeasePolicy) -> LeasePolicy:
    """Refuse anything but a policy, above all a class in place of an instance."""
    if not isinstance(policy, LeasePolicy):
        raise TypeError(f"policy must be a LeasePolicy object, not {policy!r}")
    return policy


def check_granted(policy: LeasePolicy, granted: DurationLike, requested: Requested) -> float:
    """Return a policy's answer as seconds; raise if it is not a length of time."""
    try:
        return seconds_of(check_duration(granted, "the granted duration"))
    except (TypeError, ValueError) as error:
        error.add_note(f"answered by {policy!r} for a request of {requested!r}")
        raise


# Named policies of a server, which limit the TTLs that clients request on `leasehold.v1`.

MIN_TERM_MS: Final = 1

MAX_TERM_MS: Final = 9_000_000_000_000
"""The longest TTL of etcd, too; FOREVER is mapped to it."""

DEFAULT_TERM_MS: Final = 60_000

DEFAULT: Final = "default"
"""The policy of a grant that names none."""

SHOWN_NAMES: Final = 20
"""Policies that an error lists; there may be many more."""


@dataclass(frozen=True, slots=True)
class TermPolicy:
    """The shortest and the longest TTL, and the default if the client leaves it to the server.

    All in milliseconds. Requested TTLs are clamped to this range, and the answer has the result.
    """

    minimum_ms: int = MIN_TERM_MS
    maximum_ms: int = MAX_TERM_MS
    default_ms: int = DEFAULT_TERM_MS

    def __post_init__(self) -> None:
        for name in ("minimum_ms", "maximum_ms", "default_ms"):
            value = getattr(self, name)
            if type(value) is not int:
                raise TypeError(f"{name} must be a whole number of milliseconds, got {value!r}")
            if not MIN_TERM_MS <= value <= MAX_TERM_MS:
                raise ValueError(
                    f"{name} must be from {MIN_TERM_MS} to {MAX_TERM_MS:,} ms, got {value:,}"
                )
        if not self.minimum_ms <= self.default_ms <= self.maximum_ms:
            raise ValueError(
                f"minimum_ms ({self.minimum_ms:,}), default_ms ({self.default_ms:,}) and "
                f"maximum_ms ({self.maximum_ms:,}) must be in this order"
            )

    def term_ms(self, wanted_ms: int) -> int:
        """Return the TTL for a request in wire form: milliseconds, -1 for ANY, -2 for FOREVER.

        Raises `ValueError` for any other negative number, or zero.
        """
        if wanted_ms == 0:
            raise ValueError("ttl_ms must be at least 1, got 0")
        if wanted_ms < WIRE_FOREVER_MS:
            raise ValueError(
                f"ttl_ms must be at least 1, or -1 (any) or -2 (no end), got {wanted_ms}"
            )
        return self._term_ms(from_wire_ms(wanted_ms))

    def _term_ms(self, wanted: Requested) -> int:
        if wanted is ANY:
            return self.default_ms
        if wanted is FOREVER:
            return self.maximum_ms
        return min(max(to_wire_ms(wanted), self.minimum_ms), self.maximum_ms)


Policies = Mapping[str, TermPolicy]
"""The policies of a server by name. If `default` is missing, the one below is used."""

DEFAULT_POLICIES: Final[Policies] = {DEFAULT: TermPolicy()}


def find_policy(policies: Policies, name: str) -> TermPolicy:
    """Return the named policy, or the default. Raises a `ValueError` that lists the known names."""
    found = policies.get(name or DEFAULT)
    if found is None and (name or DEFAULT) == DEFAULT:
        return DEFAULT_POLICIES[DEFAULT]
    if found is None:
        raise ValueError(f"unknown policy {name!r}; this server has {_shown({DEFAULT, *policies})}")
    return found


def _shown(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - SHOWN_NAMES
    return ", ".join(ordered[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
