"""The world: true time, chance, and whose turn it is.

Theory of operation. There is one list of things to happen (`at`, messages under way) and there
are hosts, each of which knows when it could next do something. A step finds the earliest instant
of them all, moves true time there, and lets one of those who are due at it have its turn, drawn
from the seed. Code takes no time; so a run is a sequence of steps, and chance comes from nowhere
but `random`: the same seed gives the same sequence.

An error inside a host that nobody takes ends the run that it happened in. A task that failed may
still be asked for its result, so it counts as an error only when it is forgotten or at the end.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self

from leasehold.testing.clocks import DEFAULT_WALL_S, check_span
from leasehold.testing.coroutines import name_of
from leasehold.testing.errors import NotReached
from leasehold.testing.failures import Failures
from leasehold.testing.faults import Faults
from leasehold.testing.host import Host
from leasehold.testing.limits import MAX_TURNS, TurnLimits
from leasehold.testing.network import Network
from leasehold.testing.trace import Trace

CLOSE_ROUNDS = 6  # tasks are cancelled this often before closing gives up
CLOSE_ROUND_S = 10.0
NOTE_LINES = 20  # of the trace, in the note on an exception


class Simulation:
    """A seeded world of hosts in virtual time. Use it in a `with` block."""

    def __init__(self, seed: int, *, max_turns: int = MAX_TURNS) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._limits = TurnLimits(seed, max_turns)
        self._now = 0.0
        self._hosts: dict[str, Host] = {}
        # When, a number that keeps the order of equals, whether it is from outside, what.
        self._events: list[tuple[float, int, bool, Callable[[], object]]] = []
        self._events_made = 0
        self._trace = Trace()
        self._failures = Failures(seed)
        self._crash_listeners: list[Callable[[Host], None]] = []
        self._running = False
        self._closing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self.close()
            except Exception as closing_error:
                closing_error.add_note(self._how_to_replay())
                raise
            return
        error.add_note(self._how_to_replay())
        try:
            self.close()
        except Exception as closing_error:  # noqa: BLE001 - the first error is the one to see
            error.add_note(f"and closing the simulation failed: {closing_error}")

    @property
    def now(self) -> float:
        """True time in seconds since the start."""
        return self._now

    @property
    def turns(self) -> int:
        """How many turns all hosts have taken, and how many events there were outside them."""
        return self._limits.turns

    @property
    def trace(self) -> tuple[str, ...]:
        """The last lines of what happened: time, host, what."""
        return self._trace.lines

    def digest(self) -> str:
        """Hash over all that happened: two runs with one seed have the same."""
        return self._trace.digest()

    # Building the world.

    def host(self, name: str, *, drift_ppm: float = 0.0, wall: float = DEFAULT_WALL_S) -> Host:
        """Add a machine with a running process."""
        if name in self._hosts:
            raise ValueError(f"there is already a host {name!r}")
        host = Host(self, self, name, drift_ppm=drift_ppm, wall=wall)
        self._hosts[name] = host
        return host

    def network(self, faults: Faults | None = None) -> Network:
        """Make a network that treats all pairs of hosts by `faults` unless told otherwise."""
        network = Network(self, faults if faults is not None else Faults())
        self._crash_listeners.append(network.host_crashed)
        return network

    def at(self, when: float, callback: Callable[[], object]) -> None:
        """Run `callback` at true time `when`, outside all hosts."""
        if not math.isfinite(when) or when < self._now:
            raise ValueError(f"cannot run at {when!r}: it is {self._now!r} now")
        self._push(when, callback, outside=True)

    def after(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in `delay` seconds of true time, outside all hosts."""
        self.at(self._now + check_span("delay", delay), callback)

    def carry(self, delay: float, callback: Callable[[], object]) -> None:
        """Like `after`, for what happens inside the world: it goes on while closing."""
        self._push(self._now + delay, callback, outside=False)

    def record(self, what: str, host: str | None = None) -> None:
        """Write a line into the trace. It must not show addresses or hashes."""
        self._trace.add(self._now, host, what)

    # Running it.

    def run_for(self, seconds: float) -> None:
        """Let this much true time pass."""
        self._refuse_if_closed()
        end = self._now + check_span("seconds", seconds)
        self._run(end, lambda: False)
        self._now = end

    def run_until(self, predicate: Callable[[], object], *, within: float) -> None:
        """Run until `predicate` is true; raise `NotReached` if it is not within this time."""
        self._refuse_if_closed()
        end = self._now + check_span("within", within)
        if not self._run(end, predicate):
            self._now = end
            raise NotReached(
                f"{name_of(predicate)} was not true within {within} s", seed=self.seed, now=end
            )

    def close(self) -> None:
        """Cancel all tasks, run them to their end, and fail with what nobody has noticed."""
        if self._running:
            raise RuntimeError("the simulation is running: it cannot be closed from inside")
        if self._closing:
            return
        self._closing = True
        try:
            self._end_tasks()
            self._failures.add_unnoticed_tasks()
        finally:
            for host in self._hosts.values():
                host.lay_to_rest()
        self._failures.raise_if_any()

    # What hosts report.

    def crashed(self, host: Host) -> None:
        """Tell the networks that a process is gone, and keep what it failed with."""
        self._failures.keep(host.name)
        for listener in self._crash_listeners:
            listener(host)

    def task_failed(self, host: Host, task: asyncio.Task[Any]) -> None:
        """Remember a failed task until somebody takes its exception."""
        self.record(f"task failed: {name_of(task)}", host.name)
        self._failures.watch(task, self._now, host.name)

    def failed(self, host: Host, context: dict[str, Any]) -> None:
        """Remember what asyncio would have logged, to raise it at the end of this step."""
        what, cause = str(context.get("message", "unhandled error")), context.get("exception")
        self._failures.add(what, now=self._now, host=host.name, cause=cause)

    # One step at a time.

    def _run(self, end: float, done: Callable[[], object]) -> bool:
        if self._running:
            raise RuntimeError("the simulation is running already: use at() or after() from inside")
        self._running = True
        try:
            self._failures.raise_if_any()
            while not done():
                if not self._step(end):
                    return False
                self._failures.raise_if_any()
            return True
        finally:
            self._running = False

    def _step(self, end: float) -> bool:
        """Let one of those who are due next have its turn; False if nobody is due by `end`."""
        when = self._events[0][0] if self._events else math.inf
        due: list[Host | None] = []
        for host in self._hosts.values():
            due_time = host.next_turn()
            if due_time < when:
                when, due = due_time, [host]
            elif due_time == when:
                due.append(host)
        if when > end:
            return False
        self._now = max(self._now, when)
        if self._events and self._events[0][0] <= when:
            due.append(None)
        chosen = due[self.random.randrange(len(due))] if len(due) > 1 else due[0]
        if chosen is None:
            self._run_event()
        else:
            self._take_turn(chosen)
        return True

    def _run_event(self) -> None:
        tally = self._limits.before_turn(self._now)
        _, _, outside, callback = heapq.heappop(self._events)
        if not (outside and self._closing):
            if tally is not None:
                tally[name_of(callback)] += 1
            callback()
        self._limits.after_turn(self._now, "outside all hosts")

    def _take_turn(self, host: Host) -> None:
        tally = self._limits.before_turn(self._now)
        ran = host.take_turn(tally)
        self._trace.count_turn(self._now, host.name, ran)
        self._limits.after_turn(self._now, host.name)

    def _push(self, when: float, callback: Callable[[], object], *, outside: bool) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (when, self._events_made, outside, callback))

    # Ending and failing.

    def _end_tasks(self) -> None:
        for host in self._hosts.values():
            if host.stopped:
                host.resume()
            if host.suspended:
                host.wake()
        for _ in range(CLOSE_ROUNDS):
            for host, task in self._live_tasks():
                with host.loop.entered():
                    task.cancel()
            if self._run(self._now + CLOSE_ROUND_S, self._is_quiet):
                return
        left = self._live_tasks()
        names = ", ".join(f"{name_of(task)} on {host.name}" for host, task in left[:5])
        self._failures.add(f"{len(left)} tasks do not end: {names}", now=self._now)

    def _is_quiet(self) -> bool:
        return all(host.down or host.loop.is_quiet() for host in self._hosts.values())

    def _live_tasks(self) -> list[tuple[Host, asyncio.Task[Any]]]:
        return [
            (host, task)
            for host in self._hosts.values()
            if not host.down
            for task in host.loop.live_tasks()
        ]

    def _refuse_if_closed(self) -> None:
        if self._closing:
            raise RuntimeError("the simulation is closed")

    def _how_to_replay(self) -> str:
        lines = "".join(f"\n    {line}" for line in self._trace.lines[-NOTE_LINES:])
        return (
            f"simulation: seed {self.seed}, t={self._now:.6f}; "
            f"replay with LEASEHOLD_SEED={self.seed}; last of the trace:{lines}"
        )
