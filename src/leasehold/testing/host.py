"""A simulated machine with one process: its clocks, its event loop, and its faults.

Theory of operation. A host takes turns when the simulation lets it. Four faults keep it from its
turn, each with its own effect on the clocks and on the pending work:

    stop     the process is stopped (SIGSTOP): clocks continue, timers fall due, messages wait
    suspend  the machine sleeps: as stop, but `monotonic` is halted, and so are timers
    stall    a callback takes long: clocks have jumped when it continues, all else waits till then
    crash    the process is gone, and with it all tasks, timers, services and waiting messages

Callbacks take no time, so a stall is bookkeeping: the host's own present (`now`) is ahead of the
simulation's until the simulation catches up. Messages of the stalled callback leave then. A stop or
suspend during a stall takes effect when the stall ends.

Each start of the process has a number, its *incarnation*: messages, services and connections of an
earlier one are dropped.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, ParamSpec, Protocol, TypeVar

from leasehold.testing.clocks import HostClock, check_span
from leasehold.testing.loop import HostLoop

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAITING_MESSAGES = 100_000  # for one host; more are dropped, as a kernel would
MAX_ORIGIN_S = 1_000  # clocks start apart, so that comparing two hosts' readings fails visibly


class World(Protocol):
    """The part of a `Simulation` that hosts and networks use: it imports them, not they it.

    It has true time, randomness, scheduled events and the trace, and receives the events of hosts.
    """

    @property
    def now(self) -> float:
        """True time in seconds."""
        ...

    @property
    def random(self) -> Random:
        """The only source of randomness."""
        ...

    def after(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in `delay` seconds, unless the simulation is closing by then."""
        ...

    def carry(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in `delay` seconds, even while the simulation is closing."""
        ...

    def record(self, what: str, host: str | None = None) -> None:
        """Write a line into the trace."""
        ...

    def crashed(self, host: "Host") -> None:
        """The process is gone: its peers must be notified."""
        ...

    def task_failed(self, host: "Host", task: asyncio.Task[Any]) -> None:
        """A task ended with an exception, which may yet be retrieved."""
        ...

    def failed(self, host: "Host", context: dict[str, Any]) -> None:
        """An error was not handled."""
        ...


class Host:
    """One machine of a simulation; made by `Simulation.host`."""

    def __init__(self, world: World, name: str, *, drift_ppm: float, wall: float) -> None:
        self.name = name
        self.world = world
        self._busy_until = 0.0
        origin = float(world.random.randint(1, MAX_ORIGIN_S))
        self._clock = HostClock(lambda: self.now, origin=origin, wall=wall, drift_ppm=drift_ppm)
        self._incarnation = 1
        self._down = False
        self._stopped = False
        # Numbers of the last stop and sleep, so that the timer of one does not end a later one.
        self._stop_number = 0
        self._sleep_number = 0
        self._loop = HostLoop(self, world.random)
        self._dead_loops: list[HostLoop] = []

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
        """True time of this host: ahead of the simulation's during a stall."""
        return max(self.world.now, self._busy_until)

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
        self.world.record(what, self.name)

    # Faults.

    def stop(self, seconds: float | None = None) -> None:
        """Stop the process (SIGSTOP), for some seconds or until `resume`."""
        _check_optional_span(seconds)
        self._stopped = True
        self._stop_number += 1
        self.record("stop")
        number = self._stop_number
        self._end_after(seconds, self.resume, lambda: self._stop_number == number)

    def resume(self) -> None:
        """Continue a stopped process (SIGCONT)."""
        self._stop_number += 1
        self._stopped = False
        self.record("resume")

    def suspend(self, seconds: float | None = None) -> None:
        """Suspend the machine, for some seconds or until `wake`."""
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
        """Let time pass inside the current callback; the rest of the host waits until then."""
        self._busy_until = self.now + check_span("seconds", seconds)
        self.record(f"stall {seconds}")

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock."""
        self._clock.jump_wall(seconds)
        self.record(f"wall jumps {seconds}")

    def crash(self) -> None:
        """End the process at this instant: none of its code runs another line.

        Code that crashes its own host runs on to its next await, but without any effect.
        """
        self._refuse_if_down("crash")
        self._stop_number += 1
        self._sleep_number += 1
        self._down, self._stopped = True, False
        self._clock.suspended = False
        self._loop.kill()
        self._dead_loops.append(self._loop)
        self.record("crash")
        self.world.crashed(self)

    def restart(self) -> None:
        """Start the process again with an empty loop, crashing it first if it runs."""
        if not self._down:
            self.crash()
        self._down = False
        self._incarnation += 1
        self._loop = HostLoop(self, self.world.random)
        self.record("restart")

    # For the simulation and the network.

    @property
    def halted(self) -> bool:
        """Whether nothing of this host may run at this instant."""
        return self._down or self._stopped or self.suspended or self._busy_until > self.world.now

    def next_turn(self) -> float:
        """True time of the next turn, infinite if there is nothing to do."""
        if self._down or self._stopped or self._clock.suspended:
            return math.inf
        if self._loop.has_work():
            return self.now
        timer = self._loop.next_timer()
        if timer is None:
            return math.inf
        due = self._clock.true_time_of(timer)
        return due if due >= self._busy_until and due >= self.world.now else self.now

    def deliver(self, callback: Callable[[], None]) -> bool:
        """Deliver a message; return False if it is lost because the process cannot receive it."""
        if self._down or self._loop.arrived >= MAX_WAITING_MESSAGES:
            return False
        self._loop.deliver(callback)
        return True

    def close(self) -> None:
        """Close all loops that this host ever had."""
        for loop in self._dead_loops:
            loop.close_with_tasks()
        self._dead_loops.clear()
        if not self._loop.is_closed():
            self._loop.close_with_tasks()

    def _end_after(
        self, seconds: float | None, end: Callable[[], None], still_on: Callable[[], bool]
    ) -> None:
        if seconds is None:
            return
        # From the host's own present: a stall in progress comes first.
        delay = self.now - self.world.now + seconds

        def end_if_still_on() -> None:
            if still_on():
                end()

        self.world.after(delay, end_if_still_on)

    def _refuse_if_down(self, what: str) -> None:
        if self._down:
            raise RuntimeError(f"host {self.name} is down: cannot {what}; restart() it first")


def _check_optional_span(seconds: float | None) -> None:
    if seconds is not None:
        check_span("seconds", seconds)
