"""Bytes for each lease, and memory over a long run of grants and cancels."""

import asyncio
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.lease_core.children import resident_bytes
from benchmarks.lease_core.estate import long_terms, make_landlord
from benchmarks.lease_core.inside import queue_of
from leasehold import FOREVER, SYSTEM_CLOCK, LandlordLease, RenewalManager

CHURN_LIVE = 10_000
"""Leases that are live all through the run of grants and cancels."""

CHURN_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class BytesPerLease:
    """What one lease occupies: at its landlord, with its holder's object, and when managed."""

    size: int
    landlord: float
    holder: float
    manager: float
    by_module: dict[str, float]
    """The landlord's part, by the module that allocates the memory."""


@dataclass(frozen=True, slots=True)
class ChurnSample:
    """One look at a landlord during a run of grants and cancels."""

    done: int
    """Leases granted and cancelled so far."""
    live: int
    live_bytes: int
    """Resident in memory, relative to the state before the first lease."""
    live_blocks: int
    """Allocated and not freed, in blocks of Python's allocator: exact, where bytes are coarse."""
    queue_min: int
    queue_max: int
    """Entries of the expiry queue, live and stale: the fewest and the most since the last look."""


def measure_bytes(size: int) -> BytesPerLease:
    """Count what is allocated for `size` leases."""
    return asyncio.run(_measure_bytes(size))


async def _measure_bytes(size: int) -> BytesPerLease:
    landlord, manager = make_landlord(), RenewalManager()
    # The lists are made first: their own slots do not count.
    cookies: list[object] = [None] * size
    leases: list[LandlordLease | None] = [None] * size
    terms = long_terms(Random(0), size)
    tracemalloc.start()
    for number, term in enumerate(terms):
        cookies[number] = landlord.grant(None, term).cookie
    granted = tracemalloc.get_traced_memory()[0]
    by_module = _by_module(size)
    now = SYSTEM_CLOCK.boottime()
    for number, term in enumerate(terms):
        leases[number] = LandlordLease(landlord, cookies[number], term, now)
    held = tracemalloc.get_traced_memory()[0]
    for lease in leases:
        assert lease is not None
        manager.renew_until(lease, FOREVER)
    managed = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    manager.close()
    return BytesPerLease(
        size, granted / size, (held - granted) / size, (managed - held) / size, by_module
    )


def _by_module(size: int) -> dict[str, float]:
    shares: dict[str, float] = {}
    for statistic in tracemalloc.take_snapshot().statistics("filename"):
        share = statistic.size / size
        if share >= 1.0:
            path = Path(statistic.traceback[0].filename)
            shares[path.stem] = shares.get(path.stem, 0.0) + share
    return shares


def measure_churn(operations: int) -> list[ChurnSample]:
    """Grant and cancel so many leases at long terms, beside others that stay."""
    return asyncio.run(_measure_churn(operations))


async def _measure_churn(operations: int) -> list[ChurnSample]:
    landlord, rng = make_landlord(), Random(0)
    live = min(CHURN_LIVE, operations)
    bytes_before, blocks_before = resident_bytes() or 0, sys.getallocatedblocks()
    cookies = [landlord.grant(None, term).cookie for term in long_terms(rng, live)]
    samples: list[ChurnSample] = []
    every = max(1, operations // CHURN_SAMPLES)
    queue = queue_of(landlord)
    fewest = most = len(queue)
    for done in range(operations + 1):
        if done % every == 0:
            live_bytes = (resident_bytes() or 0) - bytes_before
            live_blocks = sys.getallocatedblocks() - blocks_before
            sample = ChurnSample(done, len(landlord), live_bytes, live_blocks, fewest, most)
            samples.append(sample)
            fewest = most = len(queue)
        number = rng.randrange(live)
        landlord.cancel(cookies[number])
        cookies[number] = landlord.grant(None, rng.uniform(50_000.0, 100_000.0)).cookie
        fewest, most = min(fewest, len(queue)), max(most, len(queue))
    return samples
