"""Waits between attempts: a schedule gives their bounds, a random source shortens them.

Clients that have lost the same server must not retry in step, so every wait is random. Jitter only
shortens a wait: a specified schedule states the longest that a peer may have to wait for the next
attempt. Renewals of sessions do not use a backoff; `leases/renewal_times.py` says when they are
sent.
"""

from random import Random
from typing import Final, TypeAlias

BASE_S: Final = 0.1
FACTOR: Final = 1.6
MAX_S: Final = 10.0

Schedule: TypeAlias = tuple[float, ...]
"""The longest waits in order, the last of which repeats."""


def exponential(base_s: float = BASE_S, max_s: float = MAX_S) -> Schedule:
    """Return a schedule that grows by `FACTOR` up to `max_s`, with waits from 0 to the bound."""
    waits_s = [min(base_s, max_s)]
    while waits_s[-1] < max_s:
        waits_s.append(min(max_s, waits_s[-1] * FACTOR))
    return tuple(waits_s)


class Backoff:
    """Returns random waits within the bounds of a schedule, one after the other."""

    __slots__ = ("_attempts", "_random", "_schedule")

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._attempts = 0

    def next_s(self) -> float:
        """Return the next wait."""
        bound_s = self._schedule[min(self._attempts, len(self._schedule) - 1)]
        self._attempts += 1
        return self._random.uniform(0.0, bound_s)

    def reset(self) -> None:
        """Start the schedule again, after a time of success."""
        self._attempts = 0
