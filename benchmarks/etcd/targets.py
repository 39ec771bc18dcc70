"""The targets against etcd, and whether they are reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.common.tables import figure
from benchmarks.etcd.samples import (
    EXPIRY,
    LAST_S,
    LATENCY,
    LEASE_BYTES,
    MEMORY,
    P99_MS,
    PER_CPU,
    RATE,
    START,
    START_S,
    THROUGHPUT,
    Cell,
    Results,
    ratio,
    spread_of,
)
from benchmarks.etcd.servers import OURS
from benchmarks.etcd.workloads import CASES

YES, NARROWLY, NO = "yes", "yes, but not in every fourth pair", "NO"


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio of our figure to etcd's, or on ours alone."""

    title: str
    part: str
    what: str
    """A case, or empty for the only thing that a part measures."""
    figures: Sequence[str]
    """One for each column: on all cores, and per core where there is such a thing."""
    bound: float
    is_least: bool = True
    """Whether the bound is a minimum, not a maximum."""
    is_absolute: bool = False

    def __str__(self) -> str:
        how = "at least" if self.is_least else "at most"
        return f"{how} {_plain(self.bound)}{' s' if self.is_absolute else ' times'}"

    def measured(self, results: Results, name: str) -> Spread | None:
        """The figure that counts: where there are several kinds of headers, the worst of them."""
        found = [
            value
            for cell, pairs in results.cells.items()
            if self.concerns(cell)
            and (value := spread_of(pairs, OURS, name) if self.is_absolute else ratio(pairs, name))
        ]
        worst = min if self.is_least else max
        return worst(found, key=lambda each: each.median, default=None)

    def concerns(self, cell: Cell) -> bool:
        """Whether a cell counts for it."""
        return cell.part == self.part and self.what in ("", cell.what)

    def verdict(self, measured: Spread) -> str:
        """Whether the median reaches the bound, and whether the worse quartile does too."""
        worse = measured.low if self.is_least else measured.high
        if not self._reaches(measured.median):
            return NO
        return YES if self._reaches(worse) else NARROWLY

    def _reaches(self, value: float) -> bool:
        return value >= self.bound if self.is_least else value <= self.bound


def _plain(value: float) -> str:
    return f"{value:g}" if value == round(value, 2) else figure(value)


TARGETS: Final = (
    *(
        Target(case.title, THROUGHPUT, case.name, (RATE, PER_CPU), case.bar)
        for case in CASES.values()
    ),
    Target("leases that end together: until all are gone", EXPIRY, "", (LAST_S,), 0.05, False),
    Target("the same, ours alone", EXPIRY, "", (LAST_S,), 0.5, False, is_absolute=True),
    Target("p99 of Put at half of etcd's peak", LATENCY, "put", (P99_MS,), 1.0, False),
    Target("p99 of Range at half of etcd's peak", LATENCY, "range", (P99_MS,), 1.0, False),
    Target("memory for a live lease", MEMORY, "", (LEASE_BYTES,), 1.0, False),
    Target("start-up with leases on disk", START, "", (START_S,), 1.0, False),
)
