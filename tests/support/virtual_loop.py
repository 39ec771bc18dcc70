"""The clock and the alarms of a connection, in virtual time.

    loop = VirtualLoop()
    ...
    loop.pass_time(10.0)  # calls what is due, in its order

Tasks are driven by hand, with `run_tasks`.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, cast

BEGINNING_S: Final = 1_000.0


class VirtualAlarm:
    """Something that will be called, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_set = True

    def cancel(self) -> None:
        """Do not call it."""
        self.is_set = False


class Turn:
    """What a coroutine awaits to let others have their turn: until the next `run_tasks`."""

    def __await__(self) -> Generator[None, None, None]:
        """Wait."""
        yield


class VirtualTask:
    """A coroutine that is driven by hand; it can only wait for others to have their turn."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._callbacks: list[Callable[[Any], object]] = []
        self.is_done = False
        self._is_to_end = self._is_cancelled = False

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Learn of the end."""
        self._callbacks.append(callback)

    def cancel(self) -> None:
        """End it with its next step, as asyncio does."""
        self._is_to_end = True

    def cancelled(self) -> bool:
        """Whether it ended because it was cancelled."""
        return self._is_cancelled

    def step(self) -> None:
        """Go on until it waits for something again."""
        try:
            if not self._is_to_end:
                self._coroutine.send(None)
                return
            self._is_to_end = False
            self._coroutine.throw(asyncio.CancelledError)
        except (asyncio.CancelledError, StopIteration) as end:
            self.is_done = True
            self._is_cancelled = isinstance(end, asyncio.CancelledError)
            for callback in self._callbacks:
                callback(self)


class VirtualLoop:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self._now = BEGINNING_S
        self._order = itertools.count()
        self._due: list[tuple[float, int, VirtualAlarm]] = []
        self.tasks: list[VirtualTask] = []

    def now(self) -> float:
        """Return the time."""
        return self._now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> VirtualAlarm:
        """Call back once so much time has passed."""
        alarm = VirtualAlarm(callback)
        heapq.heappush(self._due, (self._now + delay_s, next(self._order), alarm))
        return alarm

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back immediately: this loop runs one task."""
        callback()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while: by `run_tasks`."""
        task = VirtualTask(coroutine)
        self.tasks.append(task)
        return cast("asyncio.Task[None]", task)

    def run_tasks(self) -> None:
        """Let each task go on once."""
        for task in [task for task in self.tasks if not task.is_done]:
            task.step()
        self.tasks = [task for task in self.tasks if not task.is_done]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and call what is due."""
        until = self._now + seconds
        while self._due and self._due[0][0] <= until:
            self._now, _, alarm = heapq.heappop(self._due)
            if alarm.is_set:
                alarm.is_set = False
                alarm.callback()
        self._now = until

    @property
    def alarms(self) -> int:
        """How many are set."""
        return sum(alarm.is_set for _, _, alarm in self._due)

    @property
    def open_tasks(self) -> int:
        """How many are not done."""
        return sum(not task.is_done for task in self.tasks)
