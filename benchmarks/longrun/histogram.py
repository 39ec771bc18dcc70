"""How long things took, counted in buckets: it does not grow with what it counts."""

from collections import Counter
from collections.abc import Iterable
from math import ceil, exp, log
from typing import Final

LEAST_S: Final = 1e-6
STEP: Final = 0.02
"""How much larger a bucket is than the one before: the error of every quantile."""


class Histogram:
    """Seconds, to two percent."""

    def __init__(self, counts: Iterable[tuple[int, int]] = ()) -> None:
        self.counts: Counter[int] = Counter(dict(counts))
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        if seconds > self.max_s:
            self.max_s = seconds
        self.counts[bucket_of(seconds)] += 1

    def merge(self, other: "Histogram") -> None:
        """Count what another one has counted."""
        self.counts.update(other.counts)
        self.max_s = max(self.max_s, other.max_s)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def quantile(self, fraction: float) -> float:
        """The time that this fraction of all did not exceed; 0 if there is none."""
        left = ceil(fraction * len(self))
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return min(end_of(bucket), self.max_s)
        return 0.0


def bucket_of(seconds: float) -> int:
    """The bucket for a time."""
    return 0 if seconds <= LEAST_S else ceil(log(seconds / LEAST_S) / STEP)


def end_of(bucket: int) -> float:
    """The longest time that goes into a bucket."""
    return LEAST_S * exp(bucket * STEP)


class Seconds:
    """A histogram for each second, so that each phase can be evaluated separately."""

    def __init__(self) -> None:
        self.by_second: dict[int, Histogram] = {}

    def add(self, at: float, seconds: float) -> None:
        """Count something that was due at a time."""
        second = int(at)
        found = self.by_second.get(second)
        if found is None:
            found = self.by_second[second] = Histogram()
        found.add(seconds)

    def between(self, begin: float, end: float) -> Histogram:
        """All whole seconds of a phase."""
        whole = Histogram()
        for second, histogram in self.by_second.items():
            if begin <= second and second + 1 <= end:
                whole.merge(histogram)
        return whole
