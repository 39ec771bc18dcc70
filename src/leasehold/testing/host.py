"""A simulated machine with one process: its clocks, its event loop, and what can befall it.

Theory of operation. A host takes turns when the simulation lets it. Four things keep it from its
turn, each with its own effect on the clocks and on the work that waits:

    stop     the process is stopped (SIGSTOP): clocks go on, timers fall due, messages wait
    suspend  the machine sleeps: as stop, but `monotonic` stands still, and so do timers
    stall    a callback takes long: clocks have jumped when it goes on, all else waits till then
    crash    the process is gone, and with it all tasks, timers, services and waiting messages

Callbacks run in no time, so a stall is bookkeeping: the host's own present (`now`) is ahead of
the simulation's until the simulation catches up. What the stalled callback sends leaves then. A
stop or suspend that meets a stalling host takes hold when the stall ends.

Each start of the process has a number, its *incarnation*: what belongs to an earlier one (a
message under way, a service, a connection) finds nobody.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from leasehold.testing.clocks import HostClock, check_span
from leasehold.testing.loop import HostLoop
from leasehold.testing.world import World

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAITING_MESSAGES = 100_000  # for one host; more are dropped, as a kernel would
MAX_ORIGIN_S = 1_000  # clocks start apart, so that comparing two hosts' readings shows


class Reports(Protocol):
    """Who hears what happens to a host."""

    def crashed(self, host: "Host") -> None:
        """The process is gone: tell those who had dealings with it."""
        ...

    def task_failed(self, host: "Host", task: asyncio.Task[Any]) -> None:
        """A task ended with an exception, which somebody may yet retrieve."""
        ...

    def failed(self, host: "Host", context: dict[str, Any]) -> None:
        """An error was taken by nobody."""
        ...


class Host:
    """One machine of a simulation; made by `Simulation.host`."""

    def __init__(
        self, world: World, reports: Reports, name: str, *, drift_ppm: float, wall: float
    ) -> None:
        self.name = name
        self._world = world
        self._reports = reports
        self._busy_until = 0.0
        origin = float(world.random.randint(1, MAX_ORIGIN_S))
        self._clock = HostClock(lambda: self.now, origin=origin, wall=wall, drift_ppm=drift_ppm)
        self._incarnation = 1
        self._down = False
        self._stopped = False
        # Numbers of the last stop and sleep, so that the timer of one ends no later one.
        self._stop_number = 0
        self._sleep_number = 0
        self._loop = HostLoop(self, world.random)
        self._graves: list[HostLoop] = []

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    @property
    def clock(self) -> HostClock:
        """The machine's clocks: a `leasehold.clock.Clock`."""
        return self._clock

    @property
    def loop(self) -> HostLoop:
        """The process's event loop; another one after `restart`."""
        return self._loop

    @property
    def now(self) -> float:
        """True time as this host lives it: ahead of the simulation's during a stall."""
        return max(self._world.now, self._busy_until)

    @property
    def incarnation(self) -> int:
        """Number of this start of the process."""
        return self._incarnation

    @property
    def down(self) -> bool:
        """Whether the process crashed and was not restarted."""
        return self._down

    @property
    def stopped(self) -> bool:
        """Whether the process is stopped."""
        return self._stopped

    @property
    def suspended(self) -> bool:
        """Whether the machine sleeps."""
        return self._clock.suspended

    @property
    def drift_ppm(self) -> float:
        """How much faster than true time the clocks run; may be set at any time."""
        return self._clock.drift_ppm

    @drift_ppm.setter
    def drift_ppm(self, ppm: float) -> None:
        self._clock.drift_ppm = ppm
        self.record(f"drift {ppm} ppm")

    # Running code.

    def start(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Task[T]:
        """Start a task in this host's loop; it runs from the host's next turn on."""
        self._refuse_if_down("start a task")
        name = f"{self.name}/{getattr(function, '__qualname__', '?')}"
        with self._loop.entered():
            return self._loop.create_task(function(*args, **kwargs), name=name)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function inside the host at this instant and return its result."""
        self._refuse_if_down("call a function")
        if self._loop.is_running():
            return function(*args, **kwargs)
        if self.halted:
            raise RuntimeError(f"host {self.name} is stopped, suspended or stalled")
        with self._loop.entered():
            return function(*args, **kwargs)

    def record(self, what: str) -> None:
        """Write a line about this host into the simulation's trace."""
        self._world.record(what, self.name)

    # What can befall it.

    def stop(self, seconds: float | None = None) -> None:
        """Stop the process (SIGSTOP), for so long or until `resume`."""
        _check_optional_span(seconds)
        self._stopped = True
        self._stop_number += 1
        self.record("stop")
        number = self._stop_number
        self._end_after(seconds, self.resume, lambda: self._stop_number == number)

    def resume(self) -> None:
        """Let a stopped process go on (SIGCONT)."""
        self._stop_number += 1
        self._stopped = False
        self.record("resume")

    def suspend(self, seconds: float | None = None) -> None:
        """Let the machine sleep, for so long or until `wake`."""
        _check_optional_span(seconds)
        self._clock.suspended = True
        self._sleep_number += 1
        self.record("suspend")
        number = self._sleep_number
        self._end_after(seconds, self.wake, lambda: self._sleep_number == number)

    def wake(self) -> None:
        """Wake a suspended machine."""
        self._sleep_number += 1
        self._clock.suspended = False
        self.record("wake")

    def stall(self, seconds: float) -> None:
        """Let time pass here and now; the rest of the host waits until it has."""
        self._busy_until = self.now + check_span("seconds", seconds)
        self.record(f"stall {seconds}")

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock."""
        self._clock.jump_wall(seconds)
        self.record(f"wall jumps {seconds}")

    def crash(self) -> None:
        """Lose the process at this instant: none of its code runs another line.

        Code that crashes its own host runs on to its next await, but nothing it does counts.
        """
        self._refuse_if_down("crash")
        self._stop_number += 1
        self._sleep_number += 1
        self._down, self._stopped = True, False
        self._clock.suspended = False
        self._loop.die()
        self._graves.append(self._loop)
        self.record("crash")
        self._reports.crashed(self)

    def restart(self) -> None:
        """Start the process again with an empty loop, crashing it first if it runs."""
        if not self._down:
            self.crash()
        self._down = False
        self._incarnation += 1
        self._loop = HostLoop(self, self._world.random)
        self.record("restart")

    # What the simulation and the network use.

    @property
    def halted(self) -> bool:
        """Whether nothing of this host may run at this instant."""
        return self._down or self._stopped or self.suspended or self._busy_until > self._world.now

    def monotonic(self) -> float:
        """Reading for `loop.time()`."""
        return self._clock.monotonic()

    def next_turn(self) -> float:
        """True time of the next turn, infinite if nothing is to be done."""
        if self._down or self._stopped or self._clock.suspended:
            return math.inf
        if self._loop.has_work():
            return self.now
        timer = self._loop.next_timer()
        if timer is None:
            return math.inf
        due = self._clock.true_time_of(timer)
        return due if due >= self._busy_until and due >= self._world.now else self.now

    def take_turn(self, tally: Counter[str] | None) -> int:
        """Run one iteration of the loop."""
        return self._loop.turn(tally)

    def deliver(self, callback: Callable[[], None]) -> bool:
        """Let a message arrive; False if it is lost because nobody can take it."""
        if self._down or self._loop.arrived >= MAX_WAITING_MESSAGES:
            return False
        self._loop.deliver(callback)
        return True

    def task_failed(self, task: asyncio.Task[Any]) -> None:
        """Pass on what the loop noticed."""
        self._reports.task_failed(self, task)

    def failed(self, context: dict[str, Any]) -> None:
        """Pass on an error that nobody took."""
        self._reports.failed(self, context)

    def lay_to_rest(self) -> None:
        """End all loops this host ever had."""
        for loop in self._graves:
            loop.lay_to_rest()
        self._graves.clear()
        if not self._loop.is_closed():
            self._loop.lay_to_rest()

    def _end_after(
        self, seconds: float | None, end: Callable[[], None], still_on: Callable[[], bool]
    ) -> None:
        if seconds is None:
            return
        # From the host's own present: a stall under way comes first.
        delay = self.now - self._world.now + seconds

        def end_if_still_on() -> None:
            if still_on():
                end()

        self._world.after(delay, end_if_still_on)

    def _refuse_if_down(self, what: str) -> None:
        if self._down:
            raise RuntimeError(f"host {self.name} is down: cannot {what}; restart() it first")


def _check_optional_span(seconds: float | None) -> None:
    if seconds is not None:
        check_span("seconds", seconds)
