"""Looks at a call for renewals while it has no answer: whose lease is in jeopardy by now?

One timer for a call, however many leases it is for. A renewal that fails is looked at when it does
(`HeldLease.has_trouble`); this is for those that just hang.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from leasehold.core.duration import NEVER
from leasehold.engine.interface import Engine


class Endangered(Protocol):
    """A lease with a renewal under way."""

    @property
    def jeopardy_in_s(self) -> float:
        """How long until it is in jeopardy, if there is no answer; 0 if it is."""
        ...

    def has_trouble(self, error: BaseException) -> None:
        """Learn that it has no answer yet."""
        ...


class Suspense:
    """For the time that a call takes: tells leases of jeopardy when it comes, and not later.

    A server that is silent for so long may be gone without a word. So the connection is given up:
    another one, or another server, has time enough to renew.
    """

    __slots__ = ("_engine", "_leases", "_timer")

    def __init__(self, engine: Engine, leases: Sequence[Endangered]) -> None:
        self._engine = engine
        self._leases = leases
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._set_timer()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        waits = [lease.jeopardy_in_s for lease in self._leases]
        waits = [wait_s for wait_s in waits if 0.0 < wait_s < NEVER]
        self._timer = None
        if waits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(waits), self._look)

    def _look(self) -> None:
        silence = TimeoutError("the server does not answer")
        for lease in self._leases:
            if lease.jeopardy_in_s <= 0.0:
                lease.has_trouble(silence)
        self._engine.give_up_connection("a renewal has had no answer for a third of its term")
        self._set_timer()
