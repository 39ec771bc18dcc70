"""Clocks for tests: a host's three clocks as functions of true time, and one driven by hand.

Theory of operation. True time is the simulation's own count of seconds; code under test does not
see it. Between two changes (of drift, of suspension, of the wall clock) each clock of a host is a
linear function of true time. `HostClock` keeps the readings at the last change (the *anchor*) and
the slope since. A change first moves the anchor to the present, so readings are continuous by
construction, and only `jump_wall` makes a step.

`boottime` is not a separate function: it is `monotonic` plus the time spent suspended, so that the
relation between the two holds exactly, whatever the rounding.
"""

import math
from collections.abc import Callable

DEFAULT_WALL_S = 1_750_000_000.0  # a day in June 2025: a fixed epoch, so that runs replay


def _check_finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return value


def check_span(name: str, seconds: float) -> float:
    """Return `seconds` if it is a valid duration, else raise ValueError."""
    if _check_finite(name, seconds) < 0:
        raise ValueError(f"{name} must not be negative: {seconds!r}")
    return seconds


class HostClock:
    """The clocks of one simulated machine, as functions of its true time `now`."""

    def __init__(
        self, now: Callable[[], float], *, origin: float, wall: float, drift_ppm: float
    ) -> None:
        self._now = now
        self._anchor = now()
        self._monotonic = origin
        self._asleep_s = 0.0
        self._wall = _check_finite("wall", wall)
        self._suspended = False
        self._rate = 1.0
        self._last_sought: tuple[float, float] | None = None  # a reading, and when it is reached
        self.drift_ppm = drift_ppm

    def monotonic(self) -> float:
        """Seconds awake since an arbitrary origin."""
        return self._monotonic_at(self._now())

    def boottime(self) -> float:
        """Seconds, awake or suspended, since the same origin."""
        now = self._now()
        return self._monotonic_at(now) + self._asleep_at(now)

    def wall(self) -> float:
        """Seconds since the Unix epoch, by this machine's wall clock."""
        return self._wall + self._elapsed(self._now())

    @property
    def drift_ppm(self) -> float:
        """How much faster than true time these clocks run, in parts per million."""
        return self._drift_ppm

    @drift_ppm.setter
    def drift_ppm(self, ppm: float) -> None:
        if _check_finite("drift_ppm", ppm) <= -1e6:
            raise ValueError(f"drift_ppm must be above -1e6, or time would stand still: {ppm!r}")
        self._move_anchor()
        self._drift_ppm = ppm
        self._rate = 1.0 + ppm / 1e6

    @property
    def suspended(self) -> bool:
        """Whether `monotonic` is halted."""
        return self._suspended

    @suspended.setter
    def suspended(self, asleep: bool) -> None:
        self._move_anchor()
        self._suspended = asleep

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock, as an operator or a time daemon does."""
        self._wall += _check_finite("seconds", seconds)

    def true_time_of(self, monotonic: float) -> float:
        """Return the true time at which `monotonic()` reaches a reading (never too early)."""
        if self._suspended:
            return math.inf
        if self._last_sought is not None and self._last_sought[0] == monotonic:
            return self._last_sought[1]  # the same timer is queried at each step until it is due
        when = self._anchor + max(0.0, monotonic - self._monotonic) / self._rate
        # Rounding may yield a time just before it; a turn whose timer is not yet due would spin.
        while self._monotonic_at(when) < monotonic:
            when += math.ulp(max(when, monotonic))
        self._last_sought = monotonic, when
        return when

    def _elapsed(self, now: float) -> float:
        return (now - self._anchor) * self._rate

    def _monotonic_at(self, now: float) -> float:
        return self._monotonic + (0.0 if self._suspended else self._elapsed(now))

    def _asleep_at(self, now: float) -> float:
        return self._asleep_s + (self._elapsed(now) if self._suspended else 0.0)

    def _move_anchor(self) -> None:
        now = self._now()
        self._monotonic, self._asleep_s, self._wall = (
            self._monotonic_at(now),
            self._asleep_at(now),
            self._wall + self._elapsed(now),
        )
        self._anchor = now
        self._last_sought = None


class VirtualClock:
    """A `Clock` that advances only when a test advances it: for unit tests without a loop."""

    def __init__(self, *, wall: float = DEFAULT_WALL_S) -> None:
        self._monotonic = 0.0
        self._asleep_s = 0.0
        self._wall = _check_finite("wall", wall)

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._monotonic

    def boottime(self) -> float:
        """Seconds advanced or suspended so far."""
        return self._monotonic + self._asleep_s

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Advance all three clocks."""
        self._monotonic += check_span("seconds", seconds)
        self._wall += seconds

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: `monotonic` is halted, the other two advance."""
        self._asleep_s += check_span("seconds", seconds)
        self._wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock alone."""
        self._wall += _check_finite("seconds", seconds)
