"""How much of everything, and how long each part may take."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of one run. Times are seconds."""

    pairs: int
    slice_s: float
    throughput_s: float
    """For each case: no pair is begun after it."""

    paced_pairs: int
    paced_s: float
    latency_s: float
    """For each kind of call."""

    ending: int
    """Leases that end together."""
    ending_ttl_s: int
    endings: int
    expiry_s: float

    weighed: int
    weighings: int
    memory_s: float

    stored: int
    """Leases on disk at a start."""
    starts: int
    start_s: float

    sync_s: float
    limit_s: float
    """The time limit of a measurement."""


FULL: Final = Scale(
    pairs=16,
    slice_s=0.4,
    throughput_s=36.0,
    paced_pairs=12,
    paced_s=1.0,
    latency_s=32.0,
    ending=30_000,
    ending_ttl_s=15,
    endings=2,
    expiry_s=150.0,
    weighed=100_000,
    weighings=1,
    memory_s=60.0,
    stored=200_000,
    starts=7,
    start_s=60.0,
    sync_s=1.0,
    limit_s=240.0,
)
QUICK: Final = Scale(
    pairs=3,
    slice_s=0.2,
    throughput_s=8.0,
    paced_pairs=3,
    paced_s=0.3,
    latency_s=8.0,
    ending=1_000,
    ending_ttl_s=3,
    endings=1,
    expiry_s=20.0,
    weighed=5_000,
    weighings=1,
    memory_s=20.0,
    stored=5_000,
    starts=2,
    start_s=20.0,
    sync_s=0.3,
    limit_s=60.0,
)
