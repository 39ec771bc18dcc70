"""What the simulated clients of single-writer files do, and how often."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Habits:
    """What the tasks of processes do, and how often."""

    pause_s: tuple[float, float] = (0.0, 2.0)
    """Between two actions of a task."""
    work_s: tuple[float, float] = (0.0, 0.5)
    """Between two calls of a writer."""
    rounds: int = 4
    """Flushes of a writer, at most."""
    idles: float = 0.0
    """How often a writer pauses for several times the soft limit."""
    stalls: float = 0.0
    """How often a writer's host is stopped, for up to the hard limit and more."""
    aborts: float = 0.1
    leaves: float = 0.0
    """How often a writer neither closes its file nor writes any more."""
    overwrites: float = 0.3
    """How often a rename replaces what is there."""
    cancels: float = 0.0
    """How often a call of a task is cancelled."""
    weights: tuple[tuple[str, int], ...] = (("write", 6), ("read", 3))
    """Actions: write, read, recover, rename, move, delete, prune, look."""
    modes: tuple[str, ...] = ("xb", "ab", "ab", "wb", "append")
    """How writers open files; "over" replaces a file that is open."""


CALM: Final = Habits(pause_s=(0.0, 0.5), work_s=(0.0, 0.1))
