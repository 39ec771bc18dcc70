"""Who ends the leases that are due, and when: the expiry strategies of a landlord.

`exact()` sleeps to the earliest end (the default), `polling(interval)` looks at fixed times,
`per_lease()` sets a timer for each lease, `lazy()` has no task and looks when somebody calls.

Theory of operation. A strategy is a description; `attend` makes a *caretaker* of it for one house,
which is what a landlord looks like from here. Caretakers use timers of the event loop, no tasks:
there is nothing to start, and nothing runs while no lease can end.

All but the lazy one keep lease time: they `advance` the clock at each call and, while a lease can
end, every `IDLE_TICK_S`, so that a longer gap means a stall. After a stall nothing may end until
what waits in the sockets was handled. The last of `POLL_HOPS` callbacks, each scheduled by the one
before, runs after that: asyncio and uvloop poll after the first, and a loop that serves due timers
before waiting bytes, and those a turn later, has served them before the third.

The lazy one cannot tell a stall from a quiet hour, so for it all time counts.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from leasehold.alarm import GRAIN_S, Alarm
from leasehold.core.duration import NEVER, check_seconds
from leasehold.core.lease_clock import IDLE_TICK_S, MAX_STEP_S
from leasehold.core.table import RECHECK_S, LeasedResource, LeaseTable

LAZY_BUDGET: Final = 16
"""Due entries that a call to a lazy landlord looks at before it does its own work."""

SLICE: Final = 64
"""Due entries looked at between two looks at the clock."""

SLICE_S: Final = 0.005
"""How long ending leases may keep the event loop; the rest follows in the next turn."""

POLL_HOPS: Final = 3
"""Callbacks, each scheduled by the one before, that have a poll of the sockets between them."""


class House(Protocol):
    """What a caretaker sees of its landlord."""

    @property
    def table(self) -> LeaseTable[Any]:
        """The leases to look after."""
        ...

    def monotonic(self) -> float:
        """Read the monotonic clock."""
        ...

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded, and tell the owners; True if more may be due."""
        ...

    def look(self, leased: LeasedResource[Any]) -> bool:
        """Run the expiry step for one live lease, and tell its owner; True if it is alive."""
        ...


class Caretaker(ABC):
    """Looks after the ends of one landlord's leases."""

    keeps_time = False
    """Whether a timer keeps lease time, because some lease can end."""

    def __init__(self, house: House) -> None:
        self.house = house

    @abstractmethod
    def enter(self) -> None:
        """Bring lease time up to date: the first thing in each call to the landlord."""

    def prepare(self) -> None:
        """Refuse a grant here and now if the lease could not be ended later."""
        return

    def placed(self, leased: LeasedResource[Any]) -> None:
        """Learn of a lease that is new or ends earlier than before."""
        return

    def must_hear_of(self, leased: LeasedResource[Any]) -> bool:
        """Say whether a lease may end before the timer that is set looks for it."""
        left_s = leased.deadline - self.house.table.clock.now
        return not self.keeps_time or left_s < IDLE_TICK_S

    def left(self, leased: LeasedResource[Any]) -> None:
        """Learn of a lease that is over."""
        return

    def hurry(self) -> None:
        """Have `House.reap` called again soon: some owners are yet to be told."""
        return

    def close(self) -> None:
        """Stop looking."""
        return


class ExpiryStrategy(ABC):
    """How a landlord finds out that leases are due."""

    @abstractmethod
    def attend(self, house: House) -> Caretaker:
        """Make the caretaker of one house."""


class _Lazy(Caretaker):
    def enter(self) -> None:
        self.house.table.clock.elapse(self.house.monotonic())
        self.house.reap(LAZY_BUDGET)


class _Attending(Caretaker):
    """Keeps lease time with a timer on the event loop."""

    def __init__(self, house: House) -> None:
        super().__init__(house)
        self._clock = house.table.clock
        self._monotonic = house.monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm = Alarm(self._wake)
        self.keeps_time = False
        self._polls_awaited = 0
        self._starved_from = NEVER
        self._closed = False

    @abstractmethod
    def next_reap_in(self) -> float:
        """Seconds until the expiry step should run; `NEVER` if only the clock must be kept."""

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
                f"{type(self).__name__.strip('_').lower()} expiry needs a running event loop; "
                "grant from async code, or make the landlord with expiry=lazy()"
            )

    def _follow(self) -> asyncio.AbstractEventLoop | None:
        """Move to the event loop that runs here now, if it is another one than before.

        Not done in `enter`: to ask which loop runs costs half as much as a renewal. While the old
        loop is dead nothing keeps lease time, so one of the next calls finds a gap, and asks.
        """
        loop = asyncio._get_running_loop()  # noqa: SLF001  the other one raises if there is none
        if loop is not self._loop and not self._closed:
            if loop is not None:
                if self._loop is not None and self._loop.is_running():
                    raise RuntimeError(
                        "this landlord belongs to another event loop, which is running; "
                        "call it from there (loop.call_soon_threadsafe), or make one for each loop"
                    )
                self.move_in(loop)
            elif self._loop is not None and self._loop.is_closed():
                self.move_out()
        return loop

    def move_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work on this event loop from now on, whatever loop it was before."""
        self.move_out()
        self._loop, self._polls_awaited = loop, 0
        self._arm()

    def placed(self, leased: LeasedResource[Any]) -> None:
        self._follow()
        if self.must_hear_of(leased):
            self._arm()

    def move_out(self) -> None:
        """Have no timer on any event loop."""
        self._alarm.cancel()
        self.keeps_time = False
        self._loop = None

    def close(self) -> None:
        self._closed = True
        self.move_out()

    def _arm(self) -> None:
        """Have the timer ring in time, if anything can end at all."""
        table = self.house.table
        lasting = table.next_at() == NEVER and not table.ended
        self.keeps_time = self._loop is not None and not lasting
        if self._loop is None or not self.keeps_time:
            return
        reap_in = self.next_reap_in() if self._clock.may_end else NEVER
        if table.ended:  # owners that there was no time for
            reap_in = 0.0
        self._starved_from = self._monotonic() + IDLE_TICK_S + MAX_STEP_S
        self._alarm.set(self._loop, min(reap_in, IDLE_TICK_S))

    def hurry(self) -> None:
        self._arm()

    def _wake(self) -> None:
        self._starved_from = NEVER  # the loop got around to us
        self.enter()
        self._alarm.cancel()
        try:
            if self.next_reap_in() <= 0.0 or self.house.table.ended:
                self.reap_slice()
        finally:
            self._arm()  # at once if more is due

    def reap_slice(self) -> bool:
        """Run the expiry step for a bounded time; True if there is more to do."""
        stop_at = self._monotonic() + SLICE_S
        while self.house.reap(SLICE):
            if self._monotonic() >= stop_at:
                return True
        return False

    def _await_poll(self) -> None:
        """Let leases end again once the sockets were polled and what they held was handled."""
        loop = self._follow()
        if loop is not None:
            self._polls_awaited = self._clock.cuts
            loop.call_soon(self._hop, self._polls_awaited, POLL_HOPS - 1)
        elif self._loop is None:  # its loop is closed, and nobody will poll any more
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
                self.reap_slice()  # what came due in a turn in which nothing may end
            finally:
                self._arm()


class _Exact(_Attending):
    def next_reap_in(self) -> float:
        table = self.house.table
        return table.next_at() - table.clock.now


class _Polling(_Attending):
    def __init__(self, house: House, interval_s: float) -> None:
        super().__init__(house)
        self._interval_s = interval_s
        self._poll_at = house.monotonic() + interval_s

    def next_reap_in(self) -> float:
        return self._poll_at - self._monotonic()

    def reap_slice(self) -> bool:
        more = super().reap_slice()
        if not more and self._clock.may_end:
            self._poll_at = self._monotonic() + self._interval_s
        return more


class _PerLease(_Attending):
    def __init__(self, house: House) -> None:
        super().__init__(house)
        self._timers: dict[LeasedResource[Any], asyncio.TimerHandle] = {}

    def next_reap_in(self) -> float:
        if self._timers:
            return NEVER
        # No lease has an end: what the queue still holds is of leases that got none later on, and
        # goes when it comes up. Then there is no time to be kept any more.
        return self.house.table.next_at() - self._clock.now

    def move_in(self, loop: asyncio.AbstractEventLoop) -> None:
        super().move_in(loop)
        for leased in self.house.table:
            self._sleep(leased)

    def placed(self, leased: LeasedResource[Any]) -> None:
        super().placed(leased)
        self.left(leased)
        self._sleep(leased)

    def left(self, leased: LeasedResource[Any]) -> None:
        timer = self._timers.pop(leased, None)
        if timer is not None:
            timer.cancel()

    def move_out(self) -> None:
        super().move_out()
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
        if self.house.look(leased):
            self._sleep(leased)


@dataclass(frozen=True, slots=True)
class lazy(ExpiryStrategy):  # noqa: N801  reads as a verb where it is used: expiry=lazy()
    """No task: every call to the landlord first ends a bounded number of leases that are due.

    A landlord that nobody calls ends nothing. Works without an event loop.
    """

    def attend(self, house: House) -> Caretaker:
        return _Lazy(house)


@dataclass(frozen=True, slots=True)
class polling(ExpiryStrategy):  # noqa: N801
    """Look for due leases every `interval` seconds: ends many at once, up to that much late."""

    interval: float | timedelta

    def __post_init__(self) -> None:
        check_seconds(self.interval, "interval")

    def attend(self, house: House) -> Caretaker:
        return _Polling(house, check_seconds(self.interval, "interval"))


@dataclass(frozen=True, slots=True)
class per_lease(ExpiryStrategy):  # noqa: N801
    """A timer for each lease, which sleeps again if the lease was renewed meanwhile."""

    def attend(self, house: House) -> Caretaker:
        return _PerLease(house)


@dataclass(frozen=True, slots=True)
class exact(ExpiryStrategy):  # noqa: N801
    """One sleeper to the earliest end, woken when an earlier one arrives."""

    def attend(self, house: House) -> Caretaker:
        return _Exact(house)
