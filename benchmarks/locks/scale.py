"""How much of everything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Rounds, clients, locks, and time."""

    rounds: int
    contest_s: float
    """For all rounds of re-acquiring and handing over. A first round is always made."""
    reacquire_s: float
    """For one sample, after warming up."""
    hand_over_s: float
    """For one sample."""
    counted_pairs: int
    """For which messages are counted."""
    ttl_s: float
    """Of sessions and locks."""
    clients: int
    """In a crowd."""
    turns: int
    """Of each of them."""
    hold_s: float
    """At each turn."""
    locks: int
    """That one client holds."""
    holding_ttl_s: float
    holding_s: float
    """How long it is looked at while it does."""
    traffic_s: float
    """Of virtual time, for each term; where more share, less."""
    terms_s: tuple[float, ...]
    limit_s: float
    """For one sample."""


FULL = Scale(
    rounds=5,
    contest_s=150.0,
    reacquire_s=0.5,
    hand_over_s=2.0,
    counted_pairs=100,
    ttl_s=5.0,
    clients=10,
    turns=3,
    hold_s=0.1,
    locks=10_000,
    holding_ttl_s=30.0,
    holding_s=20.0,
    traffic_s=1_000.0,
    terms_s=(0.0, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0),
    limit_s=180.0,
)

QUICK = Scale(
    rounds=1,
    contest_s=20.0,
    reacquire_s=0.05,
    hand_over_s=0.2,
    counted_pairs=5,
    ttl_s=1.0,
    clients=3,
    turns=2,
    hold_s=0.01,
    locks=100,
    holding_ttl_s=3.0,
    holding_s=2.0,
    traffic_s=200.0,
    terms_s=(0.0, 2.0, 10.0),
    limit_s=60.0,
)
