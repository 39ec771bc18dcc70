"""Errors inside hosts, kept until the simulation can raise them.

What asyncio would only log (a callback that raised, a failed task that was forgotten) is an error
at once. A failed task that somebody still holds may yet be asked for its result, so it becomes
one only at the end, if nobody has.
"""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from leasehold.testing.coroutines import name_of
from leasehold.testing.errors import SimulationError


class Failures:
    """The errors of one simulation that nobody has taken yet."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._errors: list[SimulationError] = []
        # Weak, for asyncio reports a failed task itself when the last reference to it goes.
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], tuple[float, str]] = WeakKeyDictionary()
        # But not to a loop that is dead: tasks of crashed hosts are kept until the end.
        self._kept: list[asyncio.Task[Any]] = []

    def add(
        self, what: str, *, now: float, host: str | None = None, cause: BaseException | None = None
    ) -> None:
        """Keep an error."""
        if cause is not None:
            what = f"{what}: {type(cause).__name__}: {cause}"
        error = SimulationError(what, seed=self._seed, now=now, host=host)
        error.__cause__ = cause
        self._errors.append(error)

    def watch(self, task: asyncio.Task[Any], now: float, host: str) -> None:
        """Keep an eye on a task that failed."""
        self._tasks[task] = (now, host)

    def keep(self, host: str) -> None:
        """Keep the failed tasks of a host that crashes, so that none is forgotten."""
        self._kept += [task for task, (_, name) in self._tasks.items() if name == host]

    def add_unnoticed_tasks(self) -> None:
        """Turn failed tasks that nobody asked for their result into errors."""
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
    """Whether a task failed and nobody has read its exception: asyncio's own flag."""
    return bool(getattr(task, "_log_traceback", False))
