"""The targets, and whether a figure reaches them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.common.tables import figure
from benchmarks.engine.samples import Sample, pause_of, spread_of


@dataclass(frozen=True, slots=True)
class Target:
    """A time that something is to stay under."""

    title: str
    under_s: float

    def __str__(self) -> str:
        return f"under {figure(self.under_s * 1e3)} ms"

    def is_reached(self, measured: Spread) -> bool:
        """Whether the median is under it."""
        return measured.median < self.under_s

    def verdict(self, measured: Spread) -> str:
        """The same in words."""
        return "reached" if self.is_reached(measured) else "NOT reached"


PAUSE: Final = Target("the longest pause of the event loop", 0.050)
RENEWAL: Final = Target("a renewal while all keys are read, p99", 0.010)


def is_collectors_fault(samples: Sequence[Sample]) -> bool:
    """Whether pauses are longer than the target, and would not be without the collector."""
    pause = spread_of(samples, pause_of)
    collector = spread_of(samples, lambda each: each.pause.collector_s)
    if PAUSE.is_reached(pause):
        return False
    return not PAUSE.is_reached(collector) or pause.median - collector.median < PAUSE.under_s
