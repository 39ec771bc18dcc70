"""How much of everything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Rounds, connections, and time."""

    rounds: int
    few: int
    """Rounds of what takes long."""
    connections: int
    """Idle ones, whose bytes are counted."""
    seconds: float
    """For one sample of calls, after warming up."""
    client_seconds: float
    """The same for a client."""
    paced_s: float
    """For one sample of latencies at a fixed rate."""
    server_s: float
    client_s: float
    memory_s: float
    """For all rounds of each part. A first round is always made; starting comes on top."""
    limit_s: float
    """For one sample."""


FULL = Scale(
    rounds=7,
    few=3,
    connections=5_000,
    seconds=0.4,
    client_seconds=0.3,
    paced_s=0.8,
    server_s=180.0,
    client_s=120.0,
    memory_s=32.0,
    limit_s=60.0,
)

QUICK = Scale(
    rounds=1,
    few=1,
    connections=200,
    seconds=0.1,
    client_seconds=0.1,
    paced_s=0.2,
    server_s=20.0,
    client_s=20.0,
    memory_s=10.0,
    limit_s=30.0,
)
