"""What is measured: cells, each with a sample for every round, and how samples become one figure.

As in the engine's benchmark, a fixed piece of work is timed before and after each sample. Where
that shows that the machine's speed changed, the sample is left out, if enough others are left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from benchmarks.common.children import MeasurementFailed
from benchmarks.common.progress import tell
from benchmarks.common.stats import Spread
from benchmarks.common.steadiness import is_steady, kept, work_s

RATE: Final = "per_s"
"""Calls or messages in a second."""
BYTES_RATE: Final = "bytes_per_s"
CPU_US: Final = "cpu_us"
"""Processor time of the process that is measured, for each call or message."""
OTHER_CPU_US: Final = "other_cpu_us"
"""Processor time of what is at the other end, for each call."""
P50_MS, P99_MS = "p50_ms", "p99_ms"
OFFERED: Final = "offered_per_s"
RESIDENT: Final = "resident_bytes"
"""For each connection."""

Figures = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is measured."""

    part: str
    what: str
    who: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell in one round."""

    round: int
    figures: Figures
    speeds: tuple[float, ...]
    """How long the fixed piece of work took, before and after."""

    @property
    def steady(self) -> bool:
        """Whether the machine was about as fast at the end as at the beginning."""
        return is_steady(self.speeds)


Cells = dict[Cell, list[Sample]]


@dataclass(slots=True)
class Run:
    """One run: what was measured so far, and what could not be."""

    cells: Cells = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def take(self, number: int, cell: Cell, measure: Callable[[], Figures]) -> None:
        """Measure a cell in a round. What fails is missing, and the others go on."""
        samples = self.cells.setdefault(cell, [])
        before_s = work_s()
        try:
            figures = measure()
        except MeasurementFailed as error:
            tell(f"{cell.what}, {cell.who} failed: {error}")
            last = str(error).strip().splitlines()[-1]
            self.missing.append(f"round {number + 1} of {cell.what}, {cell.who}: {last}")
        else:
            samples.append(Sample(number, figures, (before_s, work_s())))


def in_turns(those: Sequence[T], number: int) -> Iterator[T]:
    """All of them; each round starts with another one."""
    first = number % len(those)
    yield from those[first:]
    yield from those[:first]


def spread_of(samples: Sequence[Sample], name: str) -> Spread:
    """Summarize one figure over the rounds."""
    return Spread.of([each.figures[name] for each in kept(samples, lambda each: each.steady)])


def times(samples: Sequence[Sample], bases: Sequence[Sample], name: str) -> Spread | None:
    """How many times the figure of another cell this one is, round by round."""
    by_round = {base.round: base for base in bases if base.figures[name]}
    pairs = [(each, by_round[each.round]) for each in samples if each.round in by_round]
    if not pairs:
        return None
    like = kept(pairs, lambda pair: is_steady((*pair[0].speeds, *pair[1].speeds)))
    return Spread.of([one.figures[name] / base.figures[name] for one, base in like])
