"""Named policies: limits for the TTLs that clients request on `leasehold.v1`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    WIRE_FOREVER_MS,
    Requested,
    from_wire_ms,
    to_wire_ms,
)

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
