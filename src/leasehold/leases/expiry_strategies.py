"""The expiry strategies of a landlord: when the leases that are due are ended.

`exact()` sleeps to the earliest end (the default), `polling(interval)` looks at fixed times,
`per_lease()` sets a timer for each lease, `lazy()` has no task and looks at each call.

Theory of operation. A strategy is a description; `reaper_for` makes the *reaper* of one grantor
from it. Reapers use timers of the event loop, no tasks: there is nothing to start, and nothing runs
while no lease can end.

All but the lazy one keep lease time: they `advance` the clock at each call and, while a lease can
end, every `IDLE_TICK_S`, so that a longer gap means a stall. After a stall nothing may end until
the bytes that wait in the sockets were handled. The last of `POLL_HOPS` callbacks, each scheduled
by the one before, runs after that: asyncio and uvloop poll after the first, and a loop that serves
due timers before waiting bytes, and those a turn later, has served them before the third.

The lazy one cannot distinguish a stall from a quiet hour, so for it all time counts.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from leasehold.basics.durations import NEVER, check_seconds
from leasehold.basics.timers import GRAIN_S, ResettableTimer
from leasehold.leases.lease_clock import IDLE_TICK_S, MAX_STEP_S
from leasehold.leases.lease_table import RECHECK_S, LeasedResource, LeaseTable

LAZY_BUDGET: Final = 16
"""Due entries that a call to a lazy landlord looks at before its own work."""

SLICE: Final = 64
"""Due entries looked at between two readings of the clock."""

SLICE_S: Final = 0.005
"""How long ending leases may occupy the event loop; the rest follows in the next turn."""

POLL_HOPS: Final = 3
"""Callbacks, each scheduled by the one before, that have a poll of the sockets between them."""


class Reapable(Protocol):
    """The interface of a grantor for its reaper: a landlord, or the leases of a store."""

    @property
    def table(self) -> LeaseTable[Any]:
        """The leases to be ended."""
        ...

    def monotonic(self) -> float:
        """Read the monotonic clock."""
        ...

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded, and notify the owners; return True if more may be due."""
        ...

    def expire_one(self, leased: LeasedResource[Any]) -> bool:
        """Run the expiry step for one live lease, notify its owner; return True if it is alive."""
        ...


class Reaper(ABC):
    """Ends the leases of one landlord when they are due."""

    keeps_time = False
    """Whether a timer keeps lease time, because some lease can end."""

    def __init__(self, grantor: Reapable) -> None:
        self.grantor = grantor

    @abstractmethod
    def enter(self) -> None:
        """Bring lease time up to date; every call to the landlord begins with this."""

    def prepare(self) -> None:
        """Refuse a grant here and now if the lease could not be ended later."""
        return

    def placed(self, leased: LeasedResource[Any]) -> None:
        """Called with a lease that is new or ends earlier than before."""
        return

    def needs_earlier_timer(self, leased: LeasedResource[Any]) -> bool:
        """Return whether a lease may end before the timer that is set looks for it."""
        left_s = leased.deadline - self.grantor.table.clock.now
        return not self.keeps_time or left_s < IDLE_TICK_S

    def removed(self, leased: LeasedResource[Any]) -> None:
        """Called with a lease that has ended."""
        return

    def reap_soon(self) -> None:
        """Have `Reapable.reap` called again soon: some owners are still to be notified."""
        return

    def close(self) -> None:
        """Stop ending leases."""
        return


class ExpiryStrategy(ABC):
    """How a landlord detects that leases are due."""

    @abstractmethod
    def reaper_for(self, grantor: Reapable) -> Reaper:
        """Return the reaper of one grantor."""


class _LazyReaper(Reaper):
    def enter(self) -> None:
        self.grantor.table.clock.elapse(self.grantor.monotonic())
        self.grantor.reap(LAZY_BUDGET)


class _TimedReaper(Reaper):
    """Keeps lease time with a timer on the event loop."""

    name: str
    """The name of the strategy, for errors."""

    def __init__(self, grantor: Reapable) -> None:
        super().__init__(grantor)
        self._clock = grantor.table.clock
        self._monotonic = grantor.monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm = ResettableTimer(self._wake)
        self.keeps_time = False
        self._polls_awaited = 0
        self._starved_from = NEVER
        self._is_urgent = False
        self._closed = False

    @abstractmethod
    def next_reap_in(self) -> float:
        """Return the seconds until the next expiry step; `NEVER` if only the clock must be kept."""

    def enter(self) -> None:
        clock = self._clock
        if not self.keeps_time:  # no lease could end meanwhile
            clock.elapse(self._monotonic())
            return
        monotonic = self._monotonic()
        if monotonic < self._starved_from:
            clock.advance(monotonic)
        else:
            clock.stand_still(monotonic)
        if not clock.may_end and self._polls_awaited != clock.cuts:
            self._await_poll()

    def prepare(self) -> None:
        if self._follow() is None:
            raise RuntimeError(
                f"{self.name} expiry needs a running event loop; "
                "grant from async code, or make the landlord with expiry=lazy()"
            )

    def _follow(self) -> asyncio.AbstractEventLoop | None:
        """Move to the event loop that runs here now, if it is another one than before.

        Not done in `enter`: to look up the running loop costs half as much as a renewal. While the
        old loop is dead nothing keeps lease time, so one of the next calls finds a gap, and does
        it.
        """
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public one raises without a loop
        if loop is not self._loop and not self._closed:
            if loop is not None:
                if self._loop is not None and self._loop.is_running():
                    raise RuntimeError(
                        "this landlord belongs to another event loop, which is running; "
                        "call it from there (loop.call_soon_threadsafe), or make one for each loop"
                    )
                self.use_loop(loop)
            elif self._loop is not None and self._loop.is_closed():
                self.leave_loop()
        return loop

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop from now on, whatever loop it was before."""
        self.leave_loop()
        self._loop, self._polls_awaited = loop, 0
        self._arm()

    def placed(self, leased: LeasedResource[Any]) -> None:
        self._follow()
        if self.needs_earlier_timer(leased):
            self._arm()

    def leave_loop(self) -> None:
        """Remove the timer from the event loop."""
        self._alarm.cancel()
        self.keeps_time = False
        self._loop = None

    def close(self) -> None:
        self._closed = True
        self.leave_loop()

    def _arm(self) -> None:
        """Set the timer in time for the next end, if anything can end at all."""
        table = self.grantor.table
        lasting = table.next_at() == NEVER and not (table.ended or self._is_urgent)
        self.keeps_time = self._loop is not None and not lasting
        if self._loop is None or not self.keeps_time:
            return
        reap_in = self.next_reap_in() if self._clock.may_end else NEVER
        if table.ended or self._is_urgent:  # owners that were not notified in time
            reap_in = 0.0
        self._starved_from = self._monotonic() + IDLE_TICK_S + MAX_STEP_S
        self._alarm.set(self._loop, min(reap_in, IDLE_TICK_S))

    def reap_soon(self) -> None:
        self._is_urgent = True
        self._arm()

    def _wake(self) -> None:
        self._starved_from = NEVER  # the loop has run again
        self.enter()
        self._alarm.cancel()
        try:
            if self.next_reap_in() <= 0.0 or self._is_urgent or self.grantor.table.ended:
                self._is_urgent = False
                self.reap_slice()
        finally:
            self._arm()  # immediately if more is due

    def reap_slice(self) -> bool:
        """Run the expiry step for a bounded time; return True if there is more to do."""
        stop_at = self._monotonic() + SLICE_S
        while self.grantor.reap(SLICE):
            if self._monotonic() >= stop_at:
                return True
        return False

    def _await_poll(self) -> None:
        """Let leases end again once the sockets were polled and their data was handled."""
        loop = self._follow()
        if loop is not None:
            self._polls_awaited = self._clock.cuts
            loop.call_soon(self._hop, self._polls_awaited, POLL_HOPS - 1)
        elif self._loop is None:  # its loop is closed, and will not poll any more
            self._clock.polled(self._clock.cuts)

    def _hop(self, cuts: int, hops_left: int) -> None:
        self._starved_from = NEVER
        self.enter()
        if hops_left:
            asyncio.get_running_loop().call_soon(self._hop, cuts, hops_left - 1)
            return
        self._clock.polled(cuts)
        if self.keeps_time:
            try:
                self.reap_slice()  # leases that came due in a turn in which nothing may end
            finally:
                self._arm()


class _ExactReaper(_TimedReaper):
    name = "exact"

    def next_reap_in(self) -> float:
        table = self.grantor.table
        return table.next_at() - table.clock.now


class _PollingReaper(_TimedReaper):
    name = "polling"

    def __init__(self, grantor: Reapable, interval_s: float) -> None:
        super().__init__(grantor)
        self._interval_s = interval_s
        self._poll_at = grantor.monotonic() + interval_s

    def next_reap_in(self) -> float:
        return self._poll_at - self._monotonic()

    def reap_slice(self) -> bool:
        more = super().reap_slice()
        if not more and self._clock.may_end:
            self._poll_at = self._monotonic() + self._interval_s
        return more


class _PerLeaseReaper(_TimedReaper):
    name = "per_lease"

    def __init__(self, grantor: Reapable) -> None:
        super().__init__(grantor)
        self._timers: dict[LeasedResource[Any], asyncio.TimerHandle] = {}

    def next_reap_in(self) -> float:
        if self._timers:
            return NEVER
        # No lease has an end: the queue holds only entries of leases that lost theirs later on,
        # which go when they come up. Then there is no time to be kept any more.
        return self.grantor.table.next_at() - self._clock.now

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        super().use_loop(loop)
        for leased in self.grantor.table:
            self._sleep(leased)

    def placed(self, leased: LeasedResource[Any]) -> None:
        super().placed(leased)
        self.removed(leased)
        self._sleep(leased)

    def removed(self, leased: LeasedResource[Any]) -> None:
        timer = self._timers.pop(leased, None)
        if timer is not None:
            timer.cancel()

    def leave_loop(self) -> None:
        super().leave_loop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _sleep(self, leased: LeasedResource[Any]) -> None:
        if self._loop is not None and leased.deadline != NEVER:
            left_s = leased.deadline - self._clock.now
            delay_s = left_s if left_s > 0.0 else RECHECK_S  # due, but may not end now
            self._timers[leased] = self._loop.call_later(max(delay_s, GRAIN_S), self._look, leased)

    def _look(self, leased: LeasedResource[Any]) -> None:
        del self._timers[leased]
        self.enter()
        if self.grantor.expire_one(leased):
            self._sleep(leased)


@dataclass(frozen=True, slots=True)
class lazy(ExpiryStrategy):  # noqa: N801  reads as a verb where it is used: expiry=lazy()
    """No task: every call to the landlord first ends a bounded number of leases that are due.

    Without calls no lease is ended. Works without an event loop.
    """

    def reaper_for(self, grantor: Reapable) -> Reaper:
        return _LazyReaper(grantor)


@dataclass(frozen=True, slots=True)
class polling(ExpiryStrategy):  # noqa: N801
    """Look for due leases every `interval` seconds: ends many together, up to that much late."""

    interval: float | timedelta

    def __post_init__(self) -> None:
        check_seconds(self.interval, "interval")

    def reaper_for(self, grantor: Reapable) -> Reaper:
        return _PollingReaper(grantor, check_seconds(self.interval, "interval"))


@dataclass(frozen=True, slots=True)
class per_lease(ExpiryStrategy):  # noqa: N801
    """A timer for each lease, which is set again if the lease was renewed meanwhile."""

    def reaper_for(self, grantor: Reapable) -> Reaper:
        return _PerLeaseReaper(grantor)


@dataclass(frozen=True, slots=True)
class exact(ExpiryStrategy):  # noqa: N801
    """One timer for the earliest end, set again when an earlier one arrives."""

    def reaper_for(self, grantor: Reapable) -> Reaper:
        return _ExactReaper(grantor)
