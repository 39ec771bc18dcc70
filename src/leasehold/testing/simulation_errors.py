"""Errors of a simulation, and errors inside hosts, kept until the simulation can raise them.

SimulationError        an error inside the simulation; names seed, host and virtual time
 +-- NotReached        `run_until` ran out of virtual time
 +-- Spinning          a limit on turns was hit: time does not advance, or nothing ends
NotSimulated           host code used a thread, a socket or another real resource

A failure that asyncio would only log (a callback that raised, a failed task without references) is
an error immediately. A failed task that is still referenced may yet be awaited, so it becomes an
error only at the end, if its exception was never retrieved.
"""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary


class SimulationError(Exception):
    """A simulation failed. The seed in the message replays it."""

    def __init__(self, what: str, *, seed: int, now: float, host: str | None = None) -> None:
        place = f", host {host}" if host is not None else ""
        super().__init__(f"[seed {seed}, t={now:.6f}{place}] {what}")
        self.seed = seed
        self.now = now
        self.host = host


class NotReached(SimulationError):
    """The condition of `run_until` did not become true in time."""


class Spinning(SimulationError):
    """More turns than the limit allows."""


class NotSimulated(RuntimeError):
    """Raised for threads and real sockets: they are not simulated, and would break replay."""


class Failures:
    """The unhandled errors of one simulation."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._errors: list[SimulationError] = []
        # Weak, because asyncio reports a failed task itself when its last reference is dropped.
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], tuple[float, str]] = WeakKeyDictionary()
        # But not to a dead loop: tasks of crashed hosts are kept until the end.
        self._kept: list[asyncio.Task[Any]] = []

    def add(
        self, what: str, *, now: float, host: str | None = None, cause: BaseException | None = None
    ) -> None:
        """Record an error."""
        if cause is not None:
            what = f"{what}: {type(cause).__name__}: {cause}"
        error = SimulationError(what, seed=self._seed, now=now, host=host)
        error.__cause__ = cause
        self._errors.append(error)

    def watch(self, task: asyncio.Task[Any], now: float, host: str) -> None:
        """Track a task that failed."""
        self._tasks[task] = (now, host)

    def keep(self, host: str) -> None:
        """Keep the failed tasks of a host that crashes, so that all are reported."""
        self._kept += [task for task, (_, name) in self._tasks.items() if name == host]

    def add_unnoticed_tasks(self) -> None:
        """Turn failed tasks whose exceptions were never retrieved into errors."""
        unnoticed = [(*place, task) for task, place in self._tasks.items() if is_unnoticed(task)]
        for now, host, task in sorted(unnoticed, key=lambda entry: entry[:2]):
            what = f"task failed unnoticed: {name_of(task)}"
            self.add(what, now=now, host=host, cause=task.exception())
        self._tasks.clear()
        self._kept.clear()

    def raise_if_any(self) -> None:
        """Raise the first error, with the others in its notes."""
        if self._errors:
            first, *others = self._errors
            self._errors = []
            for other in others:
                first.add_note(f"also: {other}")
            raise first


def is_unnoticed(task: asyncio.Task[Any]) -> bool:
    """Whether a task failed and its exception was not retrieved: asyncio's own flag."""
    return bool(getattr(task, "_log_traceback", False))


def name_of(thing: object) -> str:
    """Return a name without an address; never a task's own name, whose number is process-wide."""
    if isinstance(thing, asyncio.Task):
        thing = thing.get_coro()
    return getattr(thing, "__qualname__", type(thing).__qualname__)
