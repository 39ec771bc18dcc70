"""The targets, and whether a figure reaches them."""

from dataclasses import dataclass
from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.common.tables import figure

REACHED, NOT_REACHED = "reached", "NOT reached"
WITHIN_SPREAD: Final = "within the spread"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number of times the figure of another implementation."""

    times: float

    def __str__(self) -> str:
        return f"at least {figure(self.times)} times"

    def verdict(self, measured: Spread) -> str:
        """Whether the median is that."""
        return REACHED if measured.median >= self.times else NOT_REACHED


UNARY: Final = AtLeast(5.0)
"""Unary calls per second relative to grpcio aio, for the server and for the client."""


def no_slower(measured: Spread) -> str:
    """Whether something takes no more than before, by how many times as much it takes now."""
    if measured.median <= 1.0:
        return REACHED
    return WITHIN_SPREAD if measured.low <= 1.0 else NOT_REACHED
