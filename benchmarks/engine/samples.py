"""What is measured: cells, each with a sample for every round, and how samples become one figure.

Samples during which the machine's speed changed are left out: see `benchmarks.common.steadiness`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.common.steadiness import is_steady, kept

MEMORY, DISK = "in memory", "on disk"
PLACES: Final = (MEMORY, DISK)


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is measured."""

    what: str
    where: str
    count: int
    """Of whatever it is done to: keys, watches, leases."""
    tuned: bool = False
    """Whether the interpreter was set up as the server does it, and not as Python starts it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest time for which the event loop stood still, and what may have kept it; seconds."""

    longest_s: float = 0.0
    busy_s: float = 0.0
    """The most processor time that the loop's thread took between two ticks."""
    collector_s: float = 0.0
    """The longest single collection, in whatever thread, in processor time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell in one round."""

    figures: dict[str, float]
    """By name; in seconds, bytes, or calls in a second."""
    pause: Pause
    quiet: Pause
    """The control: the same loop, just before, with nothing to do."""
    speeds: tuple[float, ...]
    """How long the fixed piece of work took, before and after."""

    @property
    def steady(self) -> bool:
        """Whether the machine was about as fast at the end as at the beginning."""
        return is_steady(self.speeds)


Cells = dict[Cell, list[Sample]]


def spread_of(samples: Sequence[Sample], value: Callable[[Sample], float]) -> Spread:
    """Summarize one figure over the rounds."""
    return Spread.of([value(each) for each in kept(samples, lambda each: each.steady)])


def growth(samples: Sequence[Sample], bases: Sequence[Sample], name: str) -> Spread:
    """How many times the figure of another cell this one is, round by round."""
    pairs = list(zip(samples, bases, strict=False))
    like = kept(pairs, lambda pair: is_steady((*pair[0].speeds, *pair[1].speeds)))
    return Spread.of([one.figures[name] / base.figures[name] for one, base in like])


def pause_of(sample: Sample) -> float:
    """How long the loop stood still at most."""
    return sample.pause.longest_s


def named(name: str) -> Callable[[Sample], float]:
    """Read a figure of a sample."""
    return lambda sample: sample.figures[name]
