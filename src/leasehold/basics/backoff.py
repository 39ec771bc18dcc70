"""Waits between attempts: a schedule gives their bounds, a random source shortens them.

Clients that have lost the same server must not retry in step, so every wait is random. Jitter only
shortens a wait: a specified schedule states the longest that a peer may have to wait for the next
attempt. Renewals of sessions do not use a backoff; `leases/renewal_times.py` says when they are
sent.
"""

from random import Random
from typing import Final, NamedTuple

BASE_S: Final = 0.1
FACTOR: Final = 1.6
MAX_S: Final = 10.0

FULL_JITTER: Final = 1.0
LISTED_JITTER: Final = 0.25


class Schedule(NamedTuple):
    """The longest waits in order, the last of which repeats; `jitter` is the share that may go."""

    waits_s: tuple[float, ...]
    jitter: float


def exponential(base_s: float = BASE_S, max_s: float = MAX_S) -> Schedule:
    """Return a schedule that grows by `FACTOR` up to `max_s`, with waits from 0 to the bound."""
    waits_s = [min(base_s, max_s)]
    while waits_s[-1] < max_s:
        waits_s.append(min(max_s, waits_s[-1] * FACTOR))
    return Schedule(tuple(waits_s), FULL_JITTER)


def listed(*waits_s: float) -> Schedule:
    """Return a schedule of these waits, each shortened by at most a quarter."""
    return Schedule(waits_s, LISTED_JITTER)


class Backoff:
    """Returns the waits of a schedule, one after the other."""

    __slots__ = ("_attempts", "_random", "_schedule")

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._attempts = 0

    def next_s(self) -> float:
        """Return the next wait."""
        waits_s, jitter = self._schedule
        bound_s = waits_s[min(self._attempts, len(waits_s) - 1)]
        self._attempts += 1
        return self._random.uniform((1.0 - jitter) * bound_s, bound_s)

    def reset(self) -> None:
        """Start the schedule again, after a time of success."""
        self._attempts = 0
