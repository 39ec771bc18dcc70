"""What is measured side by side: cells, each with pairs of figures, one for each server.

The reference is etcd, or an earlier version of our own server (`--baseline`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from benchmarks.common import results
from benchmarks.common.stats import Spread
from benchmarks.etcd.servers import BASELINE, ETCD, OURS

RATE: Final = "per_s"
"""Calls answered in a second, on all cores."""
PER_CPU: Final = "per_cpu_s"
"""Calls for each second of processor time of the server."""
OWN_US: Final = "own_us"
"""Processor time of the load itself, for each call."""
P50_MS, P99_MS = "p50_ms", "p99_ms"
OFFERED: Final = "offered_per_s"
LAST_S: Final = "last_s"
"""How late the last of many leases was gone."""
MEDIAN_S: Final = "median_s"
LEASE_BYTES: Final = "lease_bytes"
START_S: Final = "start_s"

THROUGHPUT, LATENCY, EXPIRY = "throughput", "latency", "expiry"
MEMORY, START = "memory", "start-up"
PARTS: Final = (THROUGHPUT, LATENCY, EXPIRY, MEMORY, START)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is measured side by side."""

    part: str
    what: str
    headers: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both servers, one right after the other; one of them may be missing."""

    figures: dict[str, Figures]

    def has(self, name: str) -> bool:
        """Whether both servers have a figure, and the reference's is not zero."""
        return bool(self._reference.get(name)) and name in self.figures.get(OURS, {})

    def ratio(self, name: str) -> float:
        """Divide our figure by the reference's."""
        return self.figures[OURS][name] / self._reference[name]

    @property
    def _reference(self) -> Figures:
        return self.figures.get(ETCD) or self.figures.get(BASELINE) or {}


Results = results.Results[Cell, Pair]


def ratio(pairs: Iterable[Pair], name: str) -> Spread | None:
    """Our figure divided by the reference's, pair by pair: median and quartiles."""
    values = [pair.ratio(name) for pair in pairs if pair.has(name)]
    return Spread.of(values) if values else None


def spread_of(pairs: Iterable[Pair], server: str, name: str) -> Spread | None:
    """A figure of one server: median and quartiles."""
    found = [pair.figures.get(server, {}).get(name) for pair in pairs]
    values = [each for each in found if each is not None]
    return Spread.of(values) if values else None
