"""How long to wait before the next attempt: longer each time, and at random (full jitter).

Clients that have lost the same server must not come back in step: a pause is anything from 0 to its
bound, and the bound grows.
"""

from random import Random
from typing import Final

BASE_S: Final = 0.1
FACTOR: Final = 1.6
MAX_S: Final = 10.0


class Backoff:
    """Gives one pause after the other."""

    __slots__ = ("_base_s", "_max_s", "_next_s", "_random")

    def __init__(self, random: Random, base_s: float = BASE_S, max_s: float = MAX_S) -> None:
        self._random = random
        self._base_s = base_s
        self._max_s = max_s
        self._next_s = base_s

    def next_s(self) -> float:
        """Return the next pause: from 0 to a bound that grows up to `max_s`."""
        bound_s = self._next_s
        self._next_s = min(self._max_s, bound_s * FACTOR)
        return self._random.uniform(0.0, bound_s)

    def reset(self) -> None:
        """Begin anew: it went well for a while."""
        self._next_s = self._base_s
