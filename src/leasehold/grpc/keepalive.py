"""Pings a server that is silent.

Only while calls are under way: many servers hang up on clients that ping without a reason. There is
one timer for a connection, and none while nothing is under way. It is not moved when data is
received; it checks when it fires.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from leasehold.grpc.client_connection import ClientConnection

LATE_S: Final = 1.0
"""A timer that fires this late ran in a process that was suspended: data received meanwhile may not
have been read yet."""


class KeepAlive:
    """Calls `lost` with the reason if a server does not answer; the reader sets `heard_at`."""

    __slots__ = (
        "_after_s",
        "_alarm",
        "_alarm_at",
        "_busy_since",
        "_connection",
        "_loop",
        "_lost",
        "_pinged_at",
        "_timeout_s",
        "heard_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: ClientConnection,
        after_s: float | None,
        timeout_s: float,
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._after_s = after_s
        self._timeout_s = timeout_s
        self._lost = lost
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._pinged_at: float | None = None
        self.heard_at = self._busy_since = loop.time()
        """When data was last received."""

    def wake(self) -> None:
        """Called when a call begins while there is no other."""
        if self._after_s is None:
            return
        if self.heard_at >= self._busy_since:  # else callers time out, one after the other
            self._busy_since = self._loop.time()
        if self._alarm is None:
            self._pinged_at = None
            self._set_alarm(self._busy_since + self._after_s)

    def stop(self) -> None:
        """Stop pinging: the connection is gone."""
        self._after_s = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, at: float) -> None:
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._go_off)

    def _go_off(self) -> None:
        self._alarm = None
        if self._after_s is None or not self._connection.has_streams:
            return
        now = self._loop.time()
        if self._pinged_at is not None and self.heard_at >= self._pinged_at:
            self._pinged_at = None
        if self._pinged_at is not None:
            self._answer_is_due(self._pinged_at, now)
            return
        ping_at = max(self.heard_at, self._busy_since) + self._after_s
        if now < ping_at:
            self._set_alarm(ping_at)
            return
        self._pinged_at = now
        self._set_alarm(now + self._timeout_s)
        self._connection.ping()

    def _answer_is_due(self, pinged_at: float, now: float) -> None:
        if now > self._alarm_at + LATE_S:
            self._pinged_at = now
            self._set_alarm(now + self._timeout_s)
        elif now < pinged_at + self._timeout_s:
            self._set_alarm(pinged_at + self._timeout_s)
        else:
            self._lost(f"no answer to a ping for {self._timeout_s:g} s")
