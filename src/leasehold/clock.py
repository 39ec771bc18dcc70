"""The three clocks of a machine, behind one small interface.

Nothing else in Leasehold reads a clock: everything that needs one is given a `Clock`, so that a
simulation can replace it. There are three readings, because each rule about leases needs a
different one:

- `monotonic` stands still while the machine is suspended. Grantors use it (through `LeaseClock`): a
  lease must not age while its grantor could not have received a renewal.
- `boottime` runs through suspend. Holders use it: other machines kept running.
- `wall` is the time for people and files. It may jump; it is read only to convert an aware datetime
  on entry, or to write one.
"""

import functools
import sys
import time
from collections.abc import Callable
from typing import Protocol

from leasehold.basics.durations import FOREVER, NEVER, End


class Clock(Protocol):
    """Readings in seconds. The first two have an arbitrary origin and never go back."""

    def monotonic(self) -> float:
        """Time for grantors: does not run while the machine is suspended."""
        ...

    def boottime(self) -> float:
        """Time for holders: runs while the machine is suspended."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch, as set in the operating system."""
        ...


def _choose_boottime(platform: str) -> Callable[[], float]:
    """Return the clock that runs through suspend.

    Linux has a clock of its own for it. On macOS CLOCK_MONOTONIC is that clock (and Python's
    `time.monotonic` is another one, which stops). Windows' `time.monotonic` runs through sleep.
    """
    name = "CLOCK_MONOTONIC" if platform == "darwin" else "CLOCK_BOOTTIME"
    if hasattr(time, name):
        return functools.partial(time.clock_gettime, getattr(time, name))
    return time.monotonic


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(_choose_boottime(sys.platform))
    wall = staticmethod(time.time)


SYSTEM_CLOCK = SystemClock()


def boottime_of(end: End, clock: Clock) -> float:
    """Convert an end into the holder's time; `NEVER` for FOREVER.

    To be done once, on entry: a later jump of the wall clock then has no effect.
    """
    if end is FOREVER:
        return NEVER
    return clock.boottime() + (end.timestamp() - clock.wall())
