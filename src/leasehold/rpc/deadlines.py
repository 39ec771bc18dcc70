"""When calls are too late: one alarm for all of them.

Theory of operation. Most calls are over long before their deadline, so a deadline must cost little
to set and to take back. Time is cut into ticks, and each tick that any deadline is in has a bucket
of them. One alarm is set for the earliest tick that there was when it was set. When it goes off,
what is due is told, and the alarm is set for the earliest tick that there is then: in between,
taking a deadline back moves nothing, and setting one moves the alarm only if it is earlier.

A bucket that is empty is dropped, so there are never more of them than deadlines. A deadline is
kept to within a tick, and never early.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

TICKS_PER_S: Final = 100

MAX_AT_S: Final = 1e10
"""A time that no clock of a loop comes to; what is to happen later never does either."""

T = TypeVar("T", bound=Hashable)

task_limits: Final[dict["asyncio.Task[Any]", float]] = {}
"""How many seconds the code that a task runs now may take, for tasks that have such a limit.

Whatever sets the limit also cancels the task. The calls that the task makes meanwhile send it to
the server as `grpc-timeout`, so that a server stops a read although the cancellation is lost, for
example with the connection. It is always the whole limit: the same header block for all calls.
An entry belongs to the task only, not to tasks that it starts.
"""


class Deadlines(Generic[T]):
    """Calls `expire` with what is too late, and with the time-out that it was given."""

    __slots__ = ("_alarm", "_alarm_tick", "_buckets", "_expire", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[T, float], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._buckets: dict[int, dict[T, float]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_tick = 0

    def __len__(self) -> int:
        """How many deadlines there are."""
        return sum(map(len, self._buckets.values()))

    def add(self, entry: T, at: float, timeout_s: float) -> int:
        """Set the deadline of `entry` to a time of the loop; `discard` wants the number back."""
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
        """Take a deadline back, if it is still there."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(entry, None)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        """Forget all of them."""
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
        # The tick it was set for has come, even if the time times ticks is rounded to just below.
        now_tick = max(int(self._loop.time() * TICKS_PER_S), self._alarm_tick)
        due = sorted(tick for tick in self._buckets if tick <= now_tick)
        late = [entry for tick in due for entry in self._buckets.pop(tick).items()]
        if self._buckets:
            self._set_alarm(min(self._buckets))
        for entry, timeout_s in late:
            self._expire(entry, timeout_s)
