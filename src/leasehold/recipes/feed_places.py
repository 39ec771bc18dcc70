"""Where one watch could do for many subscriptions, and where that was tried in vain.

A subscription of `a/b/17/` could be covered by a watch on `a/b/`, or on `a/`. A flat name has what
is before its last word or number: `lock-17/` has `lock-`, and `lock17/` has `lock`. After all of
these comes the whole keyspace, which is worth it only for very many that have nothing in common.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from leasehold.core.keyspace import FROM_KEY
from leasehold.engine.interface import prefix_end

GROUP_FROM: Final = 16
"""With more subscriptions than this below a place, one watch on it is tried instead of theirs."""

WHOLE_FROM: Final = 2_000
"""The same for the whole keyspace."""

MAX_ALONE: Final = 5_000
"""A group is not split if there would be more watches than this, half of what a stream takes."""

LEVELS: Final = 4
"""How many places are thought of for a subscription, the nearest ones, besides the keyspace."""

COOL_S: Final = 60.0
COOL_MAX_S: Final = 3600.0
"""For how long no watch is tried on a place after it was given up; each time for twice as long."""

MAX_COOLING: Final = 1_000
"""Places that are remembered for it; then the oldest is forgotten, and may be tried again."""

WHOLE: Final = b""
"""The place that is above all others: the whole keyspace."""

_STEM: Final = re.compile(rb"(.*[^0-9A-Za-z])[0-9A-Za-z]+|(.*?[^0-9])[0-9]+", re.DOTALL)
"""A flat name up to its last word, or else up to its last number."""


def range_of(place: bytes) -> tuple[bytes, bytes]:
    """Give key and end of a watch on a place."""
    return (place, prefix_end(place)) if place else (FROM_KEY, FROM_KEY)


def places_above(prefix: bytes) -> Iterator[bytes]:
    """Name what could cover a prefix, the nearest first."""
    slash = len(prefix) - 1
    for _ in range(LEVELS):
        above = prefix.rfind(b"/", 0, slash)
        if above < 0:
            if (stem := _STEM.fullmatch(prefix, 0, slash)) is not None:
                yield stem[1] or stem[2]
            break
        slash = above
        yield prefix[: slash + 1]
    yield WHOLE


class Cooling:
    """Places that have turned out to be a bad idea, each for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pauses: dict[bytes, tuple[float, float]] = {}
        """How long a pause is, and its end."""

    def __contains__(self, place: bytes) -> bool:
        return place in self._pauses and self._now() < self._pauses[place][1]

    def is_refused(self, place: bytes) -> bool:
        """Whether it is left alone for as long as can be, as there is no right to it."""
        return place in self and self._pauses[place][0] >= COOL_MAX_S

    def add(self, place: bytes) -> None:
        """Have a place left alone, and those above it: what goes on there goes on in them."""
        self._add(place, COOL_S, COOL_MAX_S / 2)
        if place:
            for above in places_above(place if place.endswith(b"/") else place + b"/"):
                self._add(above, COOL_S, COOL_MAX_S / 2)

    def add_refused(self, place: bytes) -> None:
        """Have a place left alone that cannot be watched; those above may be another matter."""
        self._add(place, COOL_MAX_S, COOL_MAX_S)

    def _add(self, place: bytes, min_s: float, max_s: float) -> None:
        now = self._now()
        pause, end = self._pauses.pop(place, (0.0, 0.0))
        if now - end > COOL_MAX_S:
            pause = 0.0  # it went well for long
        pause = max(min(2 * pause, max_s), min_s)
        if len(self._pauses) >= MAX_COOLING:
            del self._pauses[next(iter(self._pauses))]
        self._pauses[place] = (pause, now + pause)
