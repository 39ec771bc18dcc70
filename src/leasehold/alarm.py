"""One timer of an event loop that can be set again and again."""

import asyncio
from collections.abc import Callable
from typing import Final

from leasehold.core.duration import NEVER

GRAIN_S: Final = 0.0001
"""No sleep is shorter, unless it is none: lease time and the loop's time round differently, and an
alarm for the last trillionth of a second would ring again and again without getting there."""


class Alarm:
    """Calls `ring` at the earliest of the times it was set to, then is unset."""

    __slots__ = ("_at", "_handle", "_loop", "_ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = NEVER
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_set(self) -> bool:
        """Whether it will ring."""
        return self._handle is not None

    def set(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        """Ring in `delay_s` seconds, unless it will ring before."""
        if loop is not self._loop:  # an alarm of a loop that is gone would never ring
            self.cancel()
            self._loop = loop
        at = loop.time() + (max(delay_s, GRAIN_S) if delay_s > 0.0 else 0.0)
        if at < self._at:
            self.cancel()
            self._at = at
            self._handle = loop.call_at(at, self._rang)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self._at = None, NEVER

    def _rang(self) -> None:
        self._handle, self._at = None, NEVER
        self._ring()
