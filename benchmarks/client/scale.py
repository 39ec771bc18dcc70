"""How much of everything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Rounds, leases, and time."""

    rounds: int
    seconds: float
    """For one sample of calls, after warming up."""
    calls_s: float
    """For all rounds of calls. A first round is always made; starting comes on top."""
    leases: int
    """That one client keeps alive."""
    ttl_s: int
    keeping_s: float
    """How long it is looked at while it does, beginning half a term after the last grant."""
    limit_s: float
    """For one sample."""


FULL = Scale(
    rounds=7,
    seconds=0.5,
    calls_s=165.0,
    leases=10_000,
    ttl_s=30,
    keeping_s=20.0,
    limit_s=60.0,
)

QUICK = Scale(
    rounds=1,
    seconds=0.1,
    calls_s=20.0,
    leases=500,
    ttl_s=3,
    keeping_s=2.0,
    limit_s=30.0,
)
