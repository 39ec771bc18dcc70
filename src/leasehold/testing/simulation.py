"""The simulation: true time, randomness, and scheduling.

Theory of operation. There is one list of scheduled events (`at`, messages in transit) and there are
hosts, each with the time of its next turn. A step finds the earliest instant of them all, moves
true time there, and runs one of those that are due, drawn from the seed. Code takes no time; so a
run is a sequence of steps, and `random` is the only source of randomness: the same seed gives the
same sequence.

An unhandled error inside a host ends the run that it happened in. The exception of a failed task
may still be retrieved, so it counts as an error only when the task is freed or at the end.
"""

import asyncio
import hashlib
import heapq
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from leasehold.testing.clocks import DEFAULT_WALL_S, check_span
from leasehold.testing.host import Host
from leasehold.testing.loop import HostLoop
from leasehold.testing.network import Network
from leasehold.testing.packets import Faults
from leasehold.testing.simulation_errors import Failures, NotReached, Spinning, name_of

T = TypeVar("T")

MAX_TURNS = 5_000_000  # of all hosts in one simulation
MAX_TURNS_WITHOUT_TIME = 100_000  # without time advancing
NEAR_LIMIT = 0.9  # above this fraction callbacks are counted: doing so all the time would be slow
MAX_SHOWN_CALLBACKS = 5  # in the message of `Spinning`
TRACE_LINES = 1_000  # kept for reading; the digest covers all of them
RUN_WITHIN_S = 1e9  # virtual: some thirty years
CLOSE_ROUNDS = 6  # rounds of cancelling tasks before closing gives up
CLOSE_ROUND_S = 10.0
NOTE_LINES = 20  # of the trace, in the note on an exception


class Trace:
    """Collects lines. They must not contain process-specific values (addresses, hashes)."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TRACE_LINES)
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)

    def add(self, now: float, host: str | None, what: str) -> None:
        """Add a line, and include it in the digest."""
        line = f"{now:.6f} {host or '-'} {what}"
        self._lines.append(line)
        self._hash.update(f"{now!r} {line}\n".encode())

    def count_turn(self, now: float, host: str, callbacks: int) -> None:
        """Include a turn in the digest only: as lines, turns would push out all others."""
        self._hash.update(f"{now!r} {host} {callbacks}\n".encode())

    def digest(self) -> str:
        """Return a hash over all that was added so far."""
        return self._hash.hexdigest()


class TurnLimits:
    """Counts turns, in total and at one instant."""

    def __init__(self, seed: int, max_turns: int) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        self.turns = 0
        self._seed = seed
        self._max_turns = max_turns
        self._instant = 0.0
        self._turns_at_once = 0
        self._tally: Counter[str] = Counter()

    def before_turn(self, now: float) -> Counter[str] | None:
        """Count a turn. Return a counter for its callbacks, if a limit is near."""
        if now > self._instant:
            self._instant, self._turns_at_once = now, 0
        self.turns += 1
        self._turns_at_once += 1
        near = (
            self.turns > self._max_turns * NEAR_LIMIT
            or self._turns_at_once > MAX_TURNS_WITHOUT_TIME * NEAR_LIMIT
        )
        if not near:
            self._tally.clear()
        return self._tally if near else None

    def after_turn(self, now: float, host: str) -> None:
        """Raise `Spinning` if the limit is exceeded."""
        if self.turns > self._max_turns:
            limit = f"more than {self._max_turns} turns"
        elif self._turns_at_once > MAX_TURNS_WITHOUT_TIME:
            limit = f"more than {MAX_TURNS_WITHOUT_TIME} turns at one instant"
        else:
            return
        most = ", ".join(
            f"{name} ({count}x)" for name, count in self._tally.most_common(MAX_SHOWN_CALLBACKS)
        )
        raise Spinning(f"{limit}; ran most: {most}", seed=self._seed, now=now, host=host)


class Simulation:
    """A seeded simulation of hosts in virtual time. Use it in a `with` block."""

    def __init__(self, seed: int, *, max_turns: int = MAX_TURNS) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._limits = TurnLimits(seed, max_turns)
        self._now = 0.0
        self._hosts: dict[str, Host] = {}
        # Time, a number that keeps the order of equals, whether it is external, callback.
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
        """How many turns all hosts have taken, plus the number of events outside them."""
        return self._limits.turns

    @property
    def trace(self) -> tuple[str, ...]:
        """The last lines of the trace: time, host, event."""
        return self._trace.lines

    def digest(self) -> str:
        """Return a hash over the whole trace: it is the same for two runs with one seed."""
        return self._trace.digest()

    # Building the world.

    def host(self, name: str, *, drift_ppm: float = 0.0, wall: float = DEFAULT_WALL_S) -> Host:
        """Add a machine with a running process."""
        if name in self._hosts:
            raise ValueError(f"host name {name!r} is already in use")
        host = Host(self, name, drift_ppm=drift_ppm, wall=wall)
        self._hosts[name] = host
        return host

    def network(self, faults: Faults | None = None) -> Network:
        """Make a network; `faults` apply to all pairs of hosts without their own."""
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
        """Like `after`, for events inside the simulation: they run while closing, too."""
        self._push(self._now + delay, callback, outside=False)

    def record(self, what: str, host: str | None = None) -> None:
        """Write a line into the trace. It must not contain addresses or hashes."""
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
        """Cancel all tasks, run them to their end, and raise errors that were not retrieved."""
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
                host.close()
        self._failures.raise_if_any()

    # Reports of hosts.

    def crashed(self, host: Host) -> None:
        """Notify the networks that a process is gone, and keep its failed tasks."""
        self._failures.keep(host.name)
        for listener in self._crash_listeners:
            listener(host)

    def task_failed(self, host: Host, task: asyncio.Task[Any]) -> None:
        """Track a failed task until its exception is retrieved."""
        self.record(f"task failed: {name_of(task)}", host.name)
        self._failures.watch(task, self._now, host.name)

    def failed(self, host: Host, context: dict[str, Any]) -> None:
        """Record an error that asyncio would have logged, to raise it at the end of this step."""
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
        """Run one of the events and turns that are due next; return False if none is by `end`."""
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
        ran = host.loop.turn(tally)
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


# A single host, and seeds.


def current_host() -> Host:
    """The host whose code is running."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if not isinstance(loop, HostLoop):
        raise RuntimeError("current_host() was called outside of simulated hosts")
    return loop.host


def run_virtual(function: Callable[..., Coroutine[Any, Any, T]], *args: Any, seed: int = 0) -> T:
    """Run an async function on a separate host, as `asyncio.run` would in real time."""
    with Simulation(seed) as sim:
        task = sim.host("main").start(function, *args)
        sim.run_until(task.done, within=RUN_WITHIN_S)
        return task.result()


def seeds(count: int) -> list[int]:
    """Return `count` fixed seeds for `pytest.mark.parametrize`, or those of the environment.

    LEASEHOLD_SEED=7      just that one: replay a failure
    LEASEHOLD_SEEDS=500   seeds 0 to 499: search for one
    """
    if (one := os.environ.get("LEASEHOLD_SEED")) is not None:
        return [_parse_seed("LEASEHOLD_SEED", one)]
    if (many := os.environ.get("LEASEHOLD_SEEDS")) is not None:
        count = _parse_seed("LEASEHOLD_SEEDS", many)
    if count < 1:
        raise ValueError(f"a test needs at least one seed, not {count}")
    return list(range(count))


def _parse_seed(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
