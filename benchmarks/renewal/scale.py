"""How much is measured."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of leases and sets, and for how many rounds they are renewed."""

    leases: int
    ttl_s: float
    sets: tuple[int, ...]
    """The leases are put into so many sets: one measurement for each number."""
    rounds: int
    """How often every lease is renewed while that is measured."""
    adding: int
    """Leases that are granted, and then added to sets, at a time."""
    adds_at_once: int
    """Calls of `renew_for` that are under way."""


FULL: Final = Scale(
    leases=100_000, ttl_s=60.0, sets=(1, 100), rounds=2, adding=2_000, adds_at_once=64
)
QUICK: Final = Scale(leases=1_000, ttl_s=8.0, sets=(1, 20), rounds=1, adding=500, adds_at_once=64)
"""Leases of up to 8 s are renewed at half of their terms: that leaves time on a busy machine."""
