"""Histograms for metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise


class Histogram:
    """Counts observations by the bounds that they do not exceed."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert all(a < b for a, b in pairwise(bounds)), "bounds must grow"
        self.bounds = tuple(bounds)
        self.total = 0.0
        """The sum of all observations."""
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count an observation."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """Return how many observations did not exceed each bound; the last one counts all."""
        return list(accumulate(self._counts))
