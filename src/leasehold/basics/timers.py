"""Timers of an event loop: one that can be set repeatedly, and one for very many deadlines.

A `ResettableTimer` calls one function at the earliest of the times that it was set to.

`Deadlines` has one timer for the deadlines of all calls. Theory of operation: most calls end long
before their deadline, so a deadline must cost little to set and to discard. Time is cut into ticks,
and each tick with deadlines has a bucket of them. One timer is set for the earliest tick that there
was when it was set. When it goes off, the due entries expire, and the timer is set for the earliest
tick that there is then. In between, discarding a deadline moves nothing, and setting one moves the
timer only if it is earlier. An empty bucket is dropped, so there are never more of them than
deadlines. A deadline is kept to within a tick, and never early.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from leasehold.basics.durations import NEVER

GRAIN_S: Final = 0.0001
"""The shortest delay other than 0: lease time and the loop's time round differently, and a timer
for the last trillionth of a second would ring repeatedly without getting there."""

TICKS_PER_S: Final = 100

MAX_AT_S: Final = 1e10
"""A time that no clock of a loop reaches; later deadlines never expire."""

T = TypeVar("T", bound=Hashable)

task_limits: Final[dict["asyncio.Task[Any]", float]] = {}
"""How many seconds the code that a task runs now may take, for tasks that have such a limit.

The code that sets the limit also cancels the task. The calls that the task makes meanwhile send it
to the server as `grpc-timeout`, so that a server stops a read although the cancellation is lost,
for example with the connection. It is always the whole limit: the same header block for all calls.
An entry belongs to the task only, not to tasks that it starts.
"""


class ResettableTimer:
    """Calls `ring` at the earliest of the times it was set to, then is unset."""

    __slots__ = ("_at", "_handle", "_loop", "_ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = NEVER
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is set."""
        return self._handle is not None

    def set(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        """Ring in `delay_s` seconds, unless it will ring before."""
        if loop is not self._loop:  # a timer of a loop that is gone would never ring
            self.cancel()
            self._loop = loop
        at = loop.time() + (max(delay_s, GRAIN_S) if delay_s > 0.0 else 0.0)
        if at < self._at:
            self.cancel()
            self._at = at
            self._handle = loop.call_at(at, self._rang)

    def cancel(self) -> None:
        """Unset the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self._at = None, NEVER

    def _rang(self) -> None:
        self._handle, self._at = None, NEVER
        self._ring()


class Deadlines(Generic[T]):
    """Calls `expire` with an entry whose deadline has passed, and with its timeout."""

    __slots__ = ("_alarm", "_alarm_tick", "_buckets", "_expire", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[T, float], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._buckets: dict[int, dict[T, float]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_tick = 0

    def __len__(self) -> int:
        """The number of deadlines."""
        return sum(map(len, self._buckets.values()))

    def add(self, entry: T, at: float, timeout_s: float) -> int:
        """Set the deadline of `entry` to a time of the loop; return the number for `discard`."""
        tick = int(min(at, MAX_AT_S) * TICKS_PER_S) + 1
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket[entry] = timeout_s
            return tick
        self._buckets[tick] = {entry: timeout_s}
        if self._alarm is None or tick < self._alarm_tick:
            self._set_alarm(tick)
        return tick

    def discard(self, entry: T, tick: int) -> None:
        """Remove a deadline, if it is still there."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(entry, None)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        """Remove all deadlines."""
        self._buckets.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, tick: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_tick = tick
        self._alarm = self._loop.call_at(tick / TICKS_PER_S, self._go_off)

    def _go_off(self) -> None:
        self._alarm = None
        # The tick it was set for has come, even if the product is rounded to just below it.
        now_tick = max(int(self._loop.time() * TICKS_PER_S), self._alarm_tick)
        due = sorted(tick for tick in self._buckets if tick <= now_tick)
        late = [entry for tick in due for entry in self._buckets.pop(tick).items()]
        if self._buckets:
            self._set_alarm(min(self._buckets))
        for entry, timeout_s in late:
            self._expire(entry, timeout_s)
