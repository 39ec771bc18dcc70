"""Clients that want the same locks, over a faulty network, and what befalls them.

Each process has a shipped `Client` on the simulated engine, and some tasks that take a lock, read,
pause, write, and release; beside them are clients that follow Go's recipe. Whatever is drawn is
drawn from the seed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from types import coroutine
from typing import Any, Final

from leasehold import Client, HistoryLost, LeaseholdError, LeaseLost
from leasehold.errors import CallRefused, Closed, LockDenied, NotHeld
from leasehold.fencing.token import Token
from leasehold.locks.lock_keys import COUNTERS
from leasehold.testing import Faults, Host, NotReached, Simulation
from tests.simulation.far_keyspace import FarKeyspace
from tests.simulation.far_server import EtcdLikeServer, KeyspaceServer, Stragglers
from tests.simulation.go_mutex import GoMutex
from tests.simulation.lock_oracle import Held, LockOracle
from tests.simulation.lock_resource import Refused, Resource
from tests.simulation.oracle import Violation

MAX_DRIFT_PPM: Final = 10_000.0
QUIET: Final = Faults(delay=(0.001, 0.02))
STORMY: Final = Faults(loss=0.03, delay=(0.001, 0.1), spike=0.03, spike_delay=(0.1, 3.0))
TERMS_S: Final = (2.0, 3.0, 5.0, 10.0)
NAMES: Final = ("a", "a/b", "b")
CALM_S: Final = 20.0
FOREIGN_TTL_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Habits:
    """What the tasks of processes do, how long and how often."""

    pause_s: tuple[float, float] = (0.0, 1.0)
    """Between two acquisitions of a task."""
    work_s: tuple[float, float] = (0.0, 0.5)
    """Between reading and writing, and between two such rounds."""
    rounds: int = 2
    """How often a holder reads and writes at most before it releases."""
    stalls: float = 0.0
    """How often a holder stalls between its last look at the guard and a write."""
    cancels: float = 0.0
    """How often a task is cancelled, at any of its awaits."""
    tries: float = 0.2
    """How often it only asks."""
    hurries: float = 0.2
    """How often it waits for a while only."""
    uncached: float = 0.2
    """How often the lock is not to be cached."""
    counts: bool = False
    """Whether the number of acquisitions is kept when the lock is free."""


BRIEF: Final = Habits(work_s=(0.0, 0.05), rounds=1)


@dataclass(eq=False)
class Process:
    """A program that uses locks."""

    host: Host
    ttl_s: float
    is_foreign: bool = False
    client: Client | None = None
    uses: Counter[str] = field(default_factory=Counter)
    """How many of its tasks ask for a lock, or have it."""
    got: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    denied: int = 0
    failed: int = 0
    why_failed: BaseException | None = None


class LockWorld:
    """A server, a resource, processes that want locks, and who watches all of them."""

    def __init__(
        self,
        sim: Simulation,
        faults: Faults = QUIET,
        *,
        habits: Habits = Habits(),
        processes: int | None = None,
        foreigners: int = 1,
        tasks: int = 2,
        names: tuple[str, ...] = NAMES,
        ttl_s: float | None = None,
        etcd: bool | None = None,
        is_locked: bool = True,
        is_fenced: bool = True,
    ) -> None:
        self.sim = sim
        self.habits = habits
        self.names = names
        self.is_locked = is_locked
        self.network = sim.network(faults)
        like_etcd = sim.random.random() < 0.3 if etcd is None else etcd
        kind = EtcdLikeServer if like_etcd else KeyspaceServer
        self.server = kind(sim, self.network, self._host("server"))
        self.resource = Resource(self.network, sim.host("storage"), is_fenced=is_fenced)
        self.oracle = LockOracle(sim, self.server, self.resource)
        self.is_over = False
        self.is_paused = False
        """Whether nobody begins anything."""
        self._tasks = tasks
        self._unlocked = 0
        self.cancelled = 0
        processes = sim.random.randint(3, 7) if processes is None else processes
        self.processes = [
            Process(
                self._host(f"client{n}" if n < processes else f"foreign{n}"),
                ttl_s or sim.random.choice(TERMS_S),
                is_foreign=n >= processes,
            )
            for n in range(processes + foreigners)
        ]
        for process in self.processes:
            self.start(process)

    @property
    def ours(self) -> list[Process]:
        """Processes with a client of ours."""
        return [process for process in self.processes if not process.is_foreign]

    def _host(self, name: str) -> Host:
        drift = self.sim.random.choice((-1.0, 1.0, self.sim.random.uniform(-1.0, 1.0)))
        return self.sim.host(name, drift_ppm=drift * MAX_DRIFT_PPM)

    # Processes.

    def start(self, process: Process) -> None:
        """Let a process begin, on its host."""
        process.client = None
        process.uses.clear()
        process.host.start(self._live, process)

    async def connect(self, process: Process) -> Client:
        """Give a process a client."""
        engine = FarKeyspace(self.server, process.host)
        await engine.start()
        client = Client(
            engine,
            clock=process.host.clock,
            session_ttl=process.ttl_s,
            name=f"{process.host.name}.{process.host.incarnation}",
            random=self.sim.random,
        )
        process.client = client
        return client

    async def _live(self, process: Process) -> None:
        await self.connect(process)
        for _ in range(self._tasks):
            process.host.start(self._want_locks, process, process.host.incarnation)

    async def _want_locks(self, process: Process, incarnation: int) -> None:
        random = self.sim.random
        while not self.is_over and process.host.incarnation == incarnation:
            await asyncio.sleep(random.uniform(*self.habits.pause_s))
            if self.is_paused:
                await asyncio.sleep(0.1)
                continue
            name = random.choice(self.names)
            use = self._use_foreign if process.is_foreign else self.use
            process.uses[name] += 1
            try:
                await self._maybe_cancelled(use(process, name))
            except HistoryLost:
                await self._begin_anew(process)
            except Closed:
                await asyncio.sleep(0.1)  # another task of it begins anew
            except (LeaseholdError, OSError) as error:
                self.sim.record(f"failed: {name}: {error!r}", process.host.name)
                if isinstance(error, CallRefused):
                    self.oracle.fail(f"{process.host.name} was refused: {error}")
                process.failed += 1
                process.why_failed = error
            finally:
                process.uses[name] -= 1

    async def _begin_anew(self, process: Process) -> None:
        """Connect again, if no other task of the process does so."""
        client = process.client
        if client is None:
            await asyncio.sleep(0.1)
            return
        try:
            client.engine.check()
        except LeaseholdError:
            process.client = None
            await client.close()
            await self.connect(process)

    async def _maybe_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        if self.sim.random.random() >= self.habits.cancels:
            await work
            return
        await_number, is_late = self.sim.random.randrange(1, 12), self.sim.random.random() < 0.5
        task = asyncio.ensure_future(cancelled_at(work, await_number, is_late=is_late))
        await asyncio.wait([task])
        if task.cancelled():
            self.cancelled += 1
        else:
            task.result()

    # What they do.

    async def use(self, process: Process, name: str) -> None:
        """Take a lock, do some work, release it."""
        random, habits, client = self.sim.random, self.habits, process.client
        if client is None:
            return
        if not self.is_locked:
            await self._work_unlocked(process, name)
            return
        limit: float | None = None
        if random.random() < habits.tries:
            limit = 0.0
        elif random.random() < habits.hurries:
            limit = random.uniform(0.05, 3.0)
        cache = random.random() >= habits.uncached
        lock = client.lock(name, cache=cache, count=habits.counts)
        ask_again, asked_at = random.random() < 0.2, process.host.clock.boottime()
        try:
            guard = await lock.acquire(timeout=limit, ask_again=ask_again)
        except TimeoutError as error:
            if not limit and not isinstance(error, LockDenied):
                raise  # who has time, or only asks, is answered
            process.denied += 1
            return
        held = self.granted(process, client, name, guard)
        if not held.passes and process.host.clock.boottime() == asked_at:
            self.oracle.fail(f"{name}: {held} was answered from the cache, and was over")
        try:
            await self._work(process, held)
        except LeaseLost:
            process.lost += 1
        finally:
            self.oracle.released(held)
            self._release(process, guard)

    def granted(self, process: Process, client: Client, name: str, guard: Any) -> Held:
        """Have the oracle see what a process has got."""
        process.got[name] += 1
        engine = client.engine
        assert isinstance(engine, FarKeyspace)
        return self.oracle.granted(name, guard, engine)

    def _release(self, process: Process, guard: Any) -> None:
        is_held = guard.is_held
        try:
            guard.release()
        except (LeaseLost, NotHeld) as error:
            if is_held:
                self.oracle.fail(f"{process.host.name} has held what it could not release: {error}")

    async def _use_foreign(self, process: Process, name: str) -> None:
        client = process.client
        if client is None or "/" in name or any(each.startswith(f"{name}/") for each in self.names):
            return  # Go's recipe takes keys of `a/b` for contenders of `a`
        async with GoMutex(client, name, FOREIGN_TTL_S) as guard:
            held = self.granted(process, client, name, guard)
            try:
                await self._work(process, held)
            except LeaseLost:
                process.lost += 1
            finally:
                self.oracle.released(held)

    async def _work(self, process: Process, held: Held) -> None:
        """Read, pause, write: nothing but the lock keeps others from doing that meanwhile."""
        random, habits, resource = self.sim.random, self.habits, self.resource
        for _ in range(random.randint(1, habits.rounds)):
            held.guard.check()
            try:
                base = await resource.read(process.host, held.lock, held.token)
                await asyncio.sleep(random.uniform(*habits.work_s))
                held.guard.check()
                if random.random() < habits.stalls:
                    process.host.stall(random.uniform(0.0, 1.5 * process.ttl_s))
                await resource.write(process.host, held.lock, held.token, base)
            except (Refused, TimeoutError):
                held.guard.check()
                continue
            await asyncio.sleep(random.uniform(*habits.work_s))

    async def _work_unlocked(self, process: Process, name: str) -> None:
        """Do the same without asking anybody."""
        self._unlocked += 1
        token = Token(self._unlocked, 0)
        try:
            base = await self.resource.read(process.host, name, token)
            await asyncio.sleep(self.sim.random.uniform(*self.habits.work_s))
            await self.resource.write(process.host, name, token, base)
        except (Refused, TimeoutError):
            return

    # How it ends.

    def calm_down(self, seconds: float = CALM_S) -> None:
        """End all faults, and let things settle."""
        sim, server = self.sim, self.server
        server.stragglers = Stragglers()
        self.habits = BRIEF
        self.network.heal()
        self.network.default = QUIET
        if server.host.down:
            server.restart()
        for process in self.processes:
            if process.host.down:
                process.host.restart()
                self.start(process)
        hosts = [server.host, *(process.host for process in self.processes)]
        sim.run_until(lambda: not any(host.halted for host in hosts), within=600.0)
        sim.run_for(seconds)

    def check_everybody_gets_everything(self, within_s: float = 120.0) -> None:
        """Each process gets each lock, over a healthy network."""
        before = {process: Counter(process.got) for process in self.ours}
        tasks = [
            process.host.start(self._get_once, process, name)
            for process in self.ours
            for name in self.names
        ]
        try:
            self.sim.run_until(lambda: all(task.done() for task in tasks), within=within_s)
        except NotReached as error:
            missing = [
                f"{process.host.name}: {name}"
                for process in self.ours
                for name in self.names
                if process.got[name] <= before[process][name]
            ]
            raise Violation(f"not everybody gets a lock: {missing[:5]}") from error
        for task in tasks:
            task.result()

    async def _get_once(self, process: Process, name: str) -> None:
        while True:
            client = process.client
            if client is None:
                await asyncio.sleep(0.1)
                continue
            try:
                guard = await client.lock(name).acquire()
            except HistoryLost:
                await self._begin_anew(process)
                continue
            except (LeaseholdError, OSError):
                await asyncio.sleep(0.1)
                continue
            held = self.granted(process, client, name, guard)
            try:
                await self._work(process, held)
            finally:
                self.oracle.released(held)
                guard.release()
            return

    def pause(self, within_s: float = 60.0) -> None:
        """Let nobody begin anything, and wait until all have finished what they do."""
        self.is_paused = True
        try:
            self.sim.run_until(
                lambda: not any(+process.uses for process in self.processes), within=within_s
            )
        except NotReached as error:
            stuck = [p.host.name for p in self.processes if +p.uses]
            raise Violation(f"these do not come to an end: {stuck}") from error

    def check_all_is_idle(self) -> None:
        """Nobody uses anything: whoever only asks for a lock gets it, over a healthy network."""
        for process in self.sim.random.sample(self.ours, 2):
            for name in self.names:
                asking = process.host.start(self._ask_once, process, name)
                self.sim.run_until(asking.done, within=10.0)
                asking.result()

    async def _ask_once(self, process: Process, name: str) -> None:
        client = process.client
        assert client is not None
        try:
            guard = await client.lock(name).acquire(timeout=0)
        except (LockDenied, CallRefused) as denied:  # the latter by a key of its own that was left
            raise Violation(f"{name} is not in use, and {process.host.name}: {denied}") from denied
        held = self.granted(process, client, name, guard)
        self.oracle.released(held)
        guard.release()

    def stop_working(self, within_s: float = 60.0) -> None:
        """Let all tasks of processes come to their end."""
        self.is_over = True
        self.pause(within_s)
        self.sim.run_for(2.0)

    def check_no_waiter_is_left(self) -> None:
        """Nobody asks for anything: there is one key for each lock at most, a cached one."""
        self.sim.run_for(2.0)
        pairs = self.server.pairs()
        for name in self.names:
            prefix = name.encode() + b"/"
            left = [
                key for key in pairs if key.startswith(prefix) and b"/" not in key[len(prefix) :]
            ]
            if len(left) > 1:
                raise Violation(f"{name}: {len(left)} keys are left, and nobody asks: {left}")

    def wind_down(self) -> None:
        """Close all clients: then there is no key and no lease."""
        self.is_over = True
        closing = [
            process.host.start(process.client.close)
            for process in self.processes
            if process.client is not None
        ]
        self.sim.run_until(lambda: all(task.done() for task in closing), within=60.0)
        for task in closing:
            task.result()
        self.sim.run_for(1.0)
        if left := {key for key in self.server.pairs() if not key.startswith(COUNTERS)}:
            raise Violation(f"keys are left after all clients were closed: {sorted(left)[:5]}")
        if leases := self.server.lease_ids():
            raise Violation(f"{len(leases)} leases are left after all clients were closed")
        if self.oracle.violations:
            raise Violation(self.oracle.violations[0])


async def cancelled_at(
    work: Coroutine[Any, Any, None], await_number: int, *, is_late: bool
) -> None:
    """Run a coroutine, and cancel its task when it waits for the so-manieth time.

    That is when it begins to wait; or, if it `is_late`, when it has what it waits for, and does not
    know yet.
    """
    await _cancelled_at(work, await_number, is_late=is_late)


@coroutine
def _cancelled_at(
    work: Coroutine[Any, Any, None], await_number: int, *, is_late: bool
) -> Generator[Any, None, None]:
    awaits = 0
    error: BaseException | None = None
    while True:
        try:
            future = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return
        error = None
        awaits += 1
        if awaits == await_number:
            task = asyncio.current_task()
            assert task is not None
            if is_late and future is not None:
                future.add_done_callback(lambda _done, task=task: task.cancel())
            else:
                task.get_loop().call_soon(task.cancel)
        try:
            yield future
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:  # noqa: BLE001  the waiting task gets it
            error = thrown


# What befalls them.


def mishap(world: LockWorld) -> None:
    """Let something go wrong."""
    random, sim, server = world.sim.random, world.sim, world.server
    process = _victim(world)
    long_s = random.choice((1.0, 5.0, 20.0))
    for_s = random.uniform(0.1, long_s)
    what: list[Callable[[], object]] = [
        lambda: world.network.partition({process.host}, {server.host}),
        lambda: world.network.partition({process.host}, {server.host}, one_way=True),
        lambda: world.network.partition({server.host}, {process.host}, one_way=True),
        lambda: world.network.partition({server.host}),
        lambda: _unless_down(server.host, server.host.stop, for_s),
        lambda: crash_server(world, for_s),
        lambda: _unless_down(process.host, process.host.stop, for_s),
        lambda: _unless_down(process.host, process.host.suspend, for_s),
        lambda: crash_process(world, process, for_s),
        lambda: _straggle(world, for_s),
    ]
    random.choice(what)()
    sim.after(for_s, world.network.heal)


def _unless_down(host: Host, befall: Callable[[float], None], for_s: float) -> None:
    if not host.down:
        befall(for_s)


def _victim(world: LockWorld) -> Process:
    """Choose a process, one that has a lock more often than not."""
    random = world.sim.random
    holders = {held.host for entries in world.oracle.live.values() for held in entries}
    having = [process for process in world.processes if process.host in holders]
    return random.choice(having if having and random.random() < 0.6 else world.processes)


def crash_server(world: LockWorld, for_s: float) -> None:
    """Crash the server, and start it again."""
    if not world.server.host.down:
        world.server.crash()
        world.sim.after(for_s, partial(_restart, world))


def _restart(world: LockWorld) -> None:
    if world.server.host.down:
        world.server.restart()


def crash_process(world: LockWorld, process: Process, for_s: float) -> None:
    """Crash a client, and start it again."""
    if not process.host.down:
        process.host.crash()
        world.sim.after(for_s, partial(_begin_process, world, process))


def _begin_process(world: LockWorld, process: Process) -> None:
    if process.host.down:
        process.host.restart()
        world.start(process)


def _straggle(world: LockWorld, for_s: float) -> None:
    world.server.stragglers = Stragglers(world.sim.random.uniform(0.02, 0.3))

    def end() -> None:
        world.server.stragglers = Stragglers()

    world.sim.after(for_s, end)
