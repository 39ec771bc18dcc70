"""Whether the machine was as fast at the end of a measurement as at its beginning.

On a shared machine a core may be several times slower in one second than in the next. So a fixed
piece of work, which has nothing to do with what is measured, is timed before and after it. Where
that shows that the speed changed, a sample is left out, if enough others are left to go by.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, TypeVar

STEADY: Final = 1.4
WORK_TIMES, WORK_STEPS = 5, 200_000

FEWEST_STEADY: Final = 3
"""With fewer, unsteady samples count as well: one lucky sample must not decide for the others."""

T = TypeVar("T")


def work_s() -> float:
    """How long a fixed piece of work takes now; the best of a few, to leave out interruptions."""
    took_s = []
    for _ in range(WORK_TIMES):
        start = perf_counter()
        for _ in range(WORK_STEPS):
            pass
        took_s.append(perf_counter() - start)
    return min(took_s)


def is_steady(speeds: Sequence[float]) -> bool:
    """Whether the same work took about as long each time."""
    return max(speeds) <= STEADY * min(speeds)


def kept(samples: Sequence[T], steady: Callable[[T], bool]) -> Sequence[T]:
    """The steady ones, or all if those are too few to go by."""
    found = [each for each in samples if steady(each)]
    return found if len(found) >= FEWEST_STEADY else samples
