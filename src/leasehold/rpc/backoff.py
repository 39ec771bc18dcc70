"""How long to wait before the next attempt: longer each time, and never all at once."""

from random import Random
from typing import Final

BASE_S: Final = 0.1
FACTOR: Final = 1.6
MAX_S: Final = 10.0

JITTER: Final = 0.2
"""The part of a pause that chance decides about, up and down: so that clients that have lost the
same server do not come back in step."""


class Backoff:
    """Gives one pause after the other."""

    __slots__ = ("_base_s", "_max_s", "_next_s", "_random")

    def __init__(self, random: Random, base_s: float = BASE_S, max_s: float = MAX_S) -> None:
        self._random = random
        self._base_s = base_s
        self._max_s = max_s
        self._next_s = base_s

    def next_s(self) -> float:
        """Give the next pause."""
        pause_s = self._next_s
        self._next_s = min(self._max_s, pause_s * FACTOR)
        return pause_s * self._random.uniform(1 - JITTER, 1 + JITTER)

    def reset(self) -> None:
        """Begin anew: it went well for a while."""
        self._next_s = self._base_s
