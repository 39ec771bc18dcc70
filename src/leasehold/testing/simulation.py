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
from collections import Counter
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from leasehold.testing.clocks import DEFAULT_WALL_S, check_span
from leasehold.testing.errors import NotReached, SimulationError, Spinning
from leasehold.testing.faults import Faults
from leasehold.testing.host import Host
from leasehold.testing.network import Network
from leasehold.testing.trace import Trace

MAX_TURNS = 5_000_000  # of all hosts in one simulation
MAX_TURNS_AT_ONCE = 100_000  # without time advancing
CLOSE_ROUNDS = 6  # tasks are cancelled this often before closing gives up
CLOSE_ROUND_S = 10.0
NOTE_LINES = 20  # of the trace, in the note on an exception


class Simulation:
    """A seeded world of hosts in virtual time. Use it in a `with` block."""

    def __init__(self, seed: int, *, max_turns: int = MAX_TURNS) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.turns = 0
        self._max_turns = max_turns
        self._now = 0.0
        self._turns_at_once = 0
        self._tally: Counter[str] = Counter()
        self._hosts: dict[str, Host] = {}
        self._events: list[tuple[float, int, bool, Callable[[], object]]] = []
        self._events_made = 0
        self._trace = Trace()
        self._errors: list[SimulationError] = []
        self._failed_tasks: WeakKeyDictionary[asyncio.Task[Any], tuple[float, str]] = (
            WeakKeyDictionary()
        )
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
        except SimulationError as closing_error:
            error.add_note(f"and closing the simulation failed: {closing_error}")

    @property
    def now(self) -> float:
        """True time in seconds since the start."""
        return self._now

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
        host = Host(self, name, drift_ppm=drift_ppm, wall=wall)
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
        end = self._now + check_span("seconds", seconds)
        self._run(end, lambda: False)
        self._now = end

    def run_until(self, predicate: Callable[[], object], *, within: float) -> None:
        """Run until `predicate` is true; raise `NotReached` if it is not within this time."""
        end = self._now + check_span("within", within)
        if not self._run(end, predicate):
            self._now = end
            raise NotReached(
                f"{_name(predicate)} was not true within {within} s", seed=self.seed, now=end
            )

    def close(self) -> None:
        """Cancel all tasks, run them to their end, and fail with what nobody has noticed."""
        if self._closing:
            return
        self._closing = True
        try:
            self._end_tasks()
            for task, (when, host) in list(self._failed_tasks.items()):
                if getattr(task, "_log_traceback", False):
                    self._note_error(
                        f"task failed unnoticed: {_name(task)}", task.exception(), host, when
                    )
        finally:
            for host_ in self._hosts.values():
                host_.lay_to_rest()
        self._raise_errors()

    # What hosts report.

    def crashed(self, host: Host) -> None:
        """Tell the networks that a process is gone."""
        for listener in self._crash_listeners:
            listener(host)

    def task_failed(self, host: Host, task: asyncio.Task[Any]) -> None:
        """Remember a failed task until somebody takes its exception."""
        self.record(f"task failed: {_name(task)}", host.name)
        self._failed_tasks[task] = (self._now, host.name)

    def failed(self, host: Host, context: dict[str, Any]) -> None:
        """Remember what asyncio would have logged, to raise it at the end of this step."""
        message = str(context.get("message", "unhandled error"))
        self._note_error(message, context.get("exception"), host.name, self._now)

    # One step at a time.

    def _run(self, end: float, done: Callable[[], object]) -> bool:
        if self._running:
            raise RuntimeError("the simulation is running already: use at() or after() from inside")
        self._running = True
        try:
            self._raise_errors()
            while not done():
                if not self._step(end):
                    return False
                self._raise_errors()
            return True
        finally:
            self._running = False

    def _step(self, end: float) -> bool:
        """Let one of those who are due next have its turn; False if nobody is due by `end`."""
        due_times = [(host.next_turn(), host) for host in self._hosts.values()]
        when = min((due for due, _ in due_times), default=math.inf)
        if self._events:
            when = min(when, self._events[0][0])
        if when > end:
            return False
        self._advance(when)
        due: list[Host | None] = [host for due_time, host in due_times if due_time <= when]
        if self._events and self._events[0][0] <= when:
            due.append(None)
        chosen = due[self.random.randrange(len(due))] if len(due) > 1 else due[0]
        if chosen is None:
            self._run_event()
        else:
            self._take_turn(chosen)
        return True

    def _advance(self, when: float) -> None:
        if when > self._now:
            self._now = when
            self._turns_at_once = 0
            if self.turns < self._max_turns * 0.9:
                self._tally.clear()

    def _run_event(self) -> None:
        _, _, outside, callback = heapq.heappop(self._events)
        if not (outside and self._closing):
            callback()

    def _take_turn(self, host: Host) -> None:
        self.turns += 1
        self._turns_at_once += 1
        # Naming callbacks costs time, so they are counted only on the way to a limit.
        near = self._turns_at_once > MAX_TURNS_AT_ONCE * 0.9 or self.turns > self._max_turns * 0.9
        ran = host.take_turn(self._tally if near else None)
        self._trace.count_turn(self._now, host.name, ran)
        if self.turns > self._max_turns:
            raise self._spinning(host, f"more than {self._max_turns} turns")
        if self._turns_at_once > MAX_TURNS_AT_ONCE:
            raise self._spinning(host, f"more than {MAX_TURNS_AT_ONCE} turns at one instant")

    def _spinning(self, host: Host, what: str) -> Spinning:
        most = ", ".join(f"{name} ({count} times)" for name, count in self._tally.most_common(5))
        return Spinning(f"{what}; ran most: {most}", seed=self.seed, now=self._now, host=host.name)

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
            live = self._live_tasks()
            if not live:
                return
            for host, task in live:
                with host.loop.entered():
                    task.cancel()
            self._run(self._now + CLOSE_ROUND_S, lambda: not self._live_tasks())
        if left := self._live_tasks():
            names = ", ".join(f"{_name(task)} on {host.name}" for host, task in left[:5])
            self._note_error(
                f"{len(left)} tasks do not end when cancelled: {names}", None, None, self._now
            )

    def _live_tasks(self) -> list[tuple[Host, asyncio.Task[Any]]]:
        return [
            (host, task)
            for host in self._hosts.values()
            if not host.down
            for task in host.loop.live_tasks()
        ]

    def _note_error(
        self, what: str, cause: BaseException | None, host: str | None, when: float
    ) -> None:
        if cause is not None:
            what = f"{what}: {type(cause).__name__}: {cause}"
        error = SimulationError(what, seed=self.seed, now=when, host=host)
        error.__cause__ = cause
        self._errors.append(error)

    def _raise_errors(self) -> None:
        if self._errors:
            first, *others = self._errors
            self._errors = []
            for other in others:
                first.add_note(f"also: {other}")
            raise first

    def _how_to_replay(self) -> str:
        lines = "".join(f"\n    {line}" for line in self._trace.lines[-NOTE_LINES:])
        return (
            f"simulation: seed {self.seed}, t={self._now:.6f}; "
            f"replay with LEASEHOLD_SEED={self.seed}; last of the trace:{lines}"
        )


def _name(thing: object) -> str:
    """Name without an address; never a task's default name, whose number is process-wide."""
    if isinstance(thing, asyncio.Task):
        thing = thing.get_coro()
    return getattr(thing, "__qualname__", type(thing).__qualname__)
