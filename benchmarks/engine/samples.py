"""What is measured: cells, each with a sample for every round, and how samples become one figure.

On a shared machine a core may be several times slower in one second than in the next. So a fixed
piece of work is timed before and after each sample. Where that shows that the speed changed, the
sample is left out, if enough others are left to go by.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from benchmarks.common.stats import Spread
from benchmarks.etcd.rounds import is_steady

FEWEST_STEADY: Final = 3
"""With fewer, unsteady samples count as well: one lucky sample must not decide for the others."""

MEMORY, DISK = "in memory", "on disk"
PLACES: Final = (MEMORY, DISK)

T = TypeVar("T")


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


def kept(samples: Sequence[T], steady: Callable[[T], bool]) -> Sequence[T]:
    """The steady ones, or all if those are too few to go by."""
    found = [each for each in samples if steady(each)]
    return found if len(found) >= FEWEST_STEADY else samples


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
