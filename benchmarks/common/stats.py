"""Medians with their spread: a single figure from a noisy machine is not reliable."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of repeated measurements, and the quartiles that half of them lie between."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarize at least one measurement."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def scaled(self, factor: float) -> "Spread":
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def ratios(values: Sequence[float], bases: Sequence[float]) -> Spread:
    """Compare round by round: what slows the whole machine slows both sides of a ratio."""
    return Spread.of([value / base for value, base in zip(values, bases, strict=True)])


def differences(values: Sequence[float], bases: Sequence[float]) -> Spread:
    """Like `ratios`, for what was added."""
    return Spread.of([value - base for value, base in zip(values, bases, strict=True)])


def quantile(values: Sequence[float], fraction: float) -> float:
    """The value that this fraction of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]
