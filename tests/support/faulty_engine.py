"""Several clients on one engine in virtual time, each with a connection that a test can trouble.

    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)  # the second from now on
        ...

    play(scene)

The engine is the shipped one, without a disk's thread. A scene must leave no lease and no key.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from leasehold import Client
from leasehold.clock import Clock
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import (
    DeleteResult,
    Events,
    KeyValue,
    LeaseInfo,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import CallRefused, ConnectionLost, LeaseholdError
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import too_large
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.keyspace.operations import Compare, Step
from leasehold.locks.lock_queue import LockQueue
from leasehold.testing import Host, Simulation
from tests.simulation import far_disk

T = TypeVar("T")

WITHIN_S: Final = 100_000.0
"""How long a scene may take, in virtual time."""

RESERVED: Final = (b"leasehold/sessions/", b"leasehold-count:")
"""Keys of sessions, and the stored counts of locks, which are meant to stay."""


class Fault(Enum):
    """What a call meets with."""

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    REFUSED = auto()
    """The server refuses, definitely."""
    EXHAUSTED = auto()
    """It is executed, and its answer is too long for the client, or for a proxy."""
    STRAGGLES = auto()
    """The connection is lost, and the request executed later, if it can be."""


LOSSES: Final = (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.EXHAUSTED, Fault.STRAGGLES)
"""Faults that leave a client in the dark."""


class FaultyEngine(Engine):
    """One client's way to an engine that it shares with others."""

    def __init__(self, shared: Engine) -> None:
        self._shared = shared
        self.limits = shared.limits
        self.features = shared.features
        self.delay_s = 0.0
        """How long each call takes, the half of it before anything is done."""
        self.is_cut_off = False
        """Whether calls are neither done nor answered; what happens is told all the same."""
        self.is_deaf = False
        """Whether what happens is not told, never to be."""
        self.straggle_s = 3.0
        self.calls: list[str] = []
        self._faults: dict[tuple[str, int], Fault | BaseException] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._watches: weakref.WeakSet[FaultyWatch] = weakref.WeakSet()

    def trouble_with(self, name: str, number: int, fault: Fault | BaseException) -> None:
        """Have a fault in a call of this name, the next being number 1; an error is refused."""
        self._faults[name, self.calls.count(name) + number] = fault

    def no_more_trouble(self) -> None:
        """Have none of what was to come."""
        self._faults.clear()

    @property
    def cluster_id(self) -> int:
        return self._shared.cluster_id

    def check(self) -> None:
        self._shared.check()

    async def range(self, key: bytes, end: bytes = b"", **options: Any) -> RangeResult:
        return await self._call("range", lambda: self._shared.range(key, end, **options))

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        return await self._call("put", lambda: self._shared.put(key, value, lease=lease))

    async def delete(self, key: bytes, end: bytes = b"", *, previous: bool = False) -> DeleteResult:
        return await self._call("delete", lambda: self._shared.delete(key, end, previous=previous))

    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        return await self._call("txn", lambda: self._shared.txn(compares, success, failure))

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        return await self._call("compact", lambda: self._shared.compact(revision, wait=wait))

    def watch(self, key: bytes, end: bytes = b"", **options: Any) -> Watch:
        self.calls.append("watch")
        watch = FaultyWatch(self, self._shared.watch(key, end, **options))
        self._watches.add(watch)
        return watch

    def break_watches(self, error: LeaseholdError) -> None:
        """End all watches with an error, such as of a compaction."""
        for watch in list(self._watches):
            watch.fail(error)

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        return await self._call("grant", lambda: self._shared.grant(ttl, lease=lease))

    async def renew(self, lease: int) -> float:
        return await self._call("renew", lambda: self._shared.renew(lease))

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        wanted = list(leases)
        return await self._call("renew_all", lambda: self._shared.renew_all(wanted))

    async def revoke(self, lease: int) -> int:
        return await self._call("revoke", lambda: self._shared.revoke(lease))

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        return await self._call("time_to_live", lambda: self._shared.time_to_live(lease, keys=keys))

    def has_ended(self, lease: int) -> bool:
        return self._shared.has_ended(lease)

    async def leases(self) -> Sequence[LeaseInfo]:
        return await self._call("leases", self._shared.leases)

    async def close(self) -> None:
        for task in self._late:
            task.cancel()

    async def _call(self, name: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.calls.append(name)
        # Counting takes as long as there are calls.
        fault = self._faults.pop((name, self.calls.count(name)), None) if self._faults else None
        await asyncio.sleep(self.delay_s / 2)
        if self.is_cut_off:
            await asyncio.get_running_loop().create_future()
        if isinstance(fault, BaseException):
            raise fault
        if fault is Fault.REQUEST_LOST:
            raise ConnectionLost("the request was lost")
        if fault is Fault.REFUSED:
            raise CallRefused("permission denied")
        if fault is Fault.STRAGGLES:
            task = asyncio.get_running_loop().create_task(self._do_later(call))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            raise ConnectionLost("the connection was lost")
        try:
            answer = await call()
        except GeneratorExit:  # its host has crashed
            raise
        except BaseException:
            await asyncio.sleep(self.delay_s / 2)
            raise
        await asyncio.sleep(self.delay_s / 2)
        if fault is Fault.ANSWER_LOST:
            raise ConnectionLost("the answer was lost")
        if fault is Fault.EXHAUSTED:
            raise as_ours(too_large(5_000_000, 4_194_304))
        return answer

    async def _do_later(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        await asyncio.sleep(self.straggle_s)
        with suppress(LeaseholdError):  # the caller has given up
            await call()


class FaultyWatch(Watch):
    """A watch that may miss something, and end."""

    def __init__(self, engine: FaultyEngine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch
        self._failure: asyncio.Future[Events] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """End with an error."""
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()

    def __aiter__(self) -> AsyncIterator[Events]:
        return self

    async def __anext__(self) -> Events:
        while True:
            told = asyncio.ensure_future(anext(self._watch))
            try:
                await asyncio.wait([told, self._failure], return_when=asyncio.FIRST_COMPLETED)
                if self._failure.done():
                    return self._failure.result()
                if not self._engine.is_deaf or told.exception() is not None:
                    return told.result()
            finally:
                with suppress(RuntimeError):  # the loop of a host that has crashed is closed
                    told.cancel()

    def request_progress(self) -> None:
        self._watch.request_progress()

    def cancel(self) -> None:
        self._watch.cancel()


class Participant(Client):
    """A client, whose connection a test can trouble."""

    engine: FaultyEngine


class SleepyClock:
    """The clock of one client, whose machine may have been asleep: nothing of it has run."""

    def __init__(self, world: "World") -> None:
        self._clock = world.host.clock
        self.slept_s = 0.0

    def monotonic(self) -> float:
        """Return the clock of timers."""
        return self._clock.monotonic()

    def boottime(self) -> float:
        """Return the clock of holders."""
        return self._clock.boottime() + self.slept_s

    def wall(self) -> float:
        """Return the wall clock."""
        return self._clock.wall() + self.slept_s


class World:
    """An engine, and clients on it."""

    def __init__(self, host: Host, engine: EmbeddedEngine, random: Random) -> None:
        self.host = host
        self.random = random
        self.engine = engine
        self.clients: list[Participant] = []

    def client(self, name: str, *, clock: Clock | None = None, **options: Any) -> Participant:
        """Make one more client."""
        engine = FaultyEngine(self.engine)
        clock = clock or self.host.clock
        client = Participant(engine, clock=clock, name=name, random=self.random, **options)
        self.clients.append(client)
        return client

    def pairs(self, prefix: bytes = b"") -> list[KeyValue]:
        """Return all keys, without those of sessions and counts; by create revisions."""
        items = self.engine._store.keyspace.range(b"\0", FROM_KEY)
        pairs = [KeyValue(item) for item in items if not item[5].startswith(RESERVED)]
        found = [pair for pair in pairs if pair.key.startswith(prefix)]
        return sorted(found, key=lambda pair: pair.create_revision)

    def leases(self) -> int:
        """Count the leases that are there."""
        return len(self.engine._store.leases.table)

    def keys(self, name: str) -> int:
        """Count the keys in the queue of a lock."""
        prefix = name.encode() + b"/"
        queue = LockQueue(prefix.removesuffix(b"/"))
        return sum(queue.counts(pair.key) for pair in self.pairs(prefix))

    async def in_line(self, name: str, count: int) -> None:
        """Wait until this many keys are in the queue of a lock."""
        await self.until(lambda: self.keys(name) == count)

    async def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        """Wait for a condition that sends no notification."""
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110  there is no event to await
                await asyncio.sleep(0.01)


Scene: TypeAlias = Callable[[World], Awaitable[None]]


def play(scene: Scene, seed: int = 0, on_turn: Callable[[Host], None] | None = None) -> None:
    """Run a scene in virtual time; in the end there must be nothing left.

    `on_turn` is called between the turns of the loop.
    """
    with Simulation(seed) as sim:
        host = sim.host("main")
        engine = far_disk.open_engine(host, Random(seed), None)

        async def main() -> None:
            world = World(host, engine, Random(seed))
            async with asyncio.timeout(WITHIN_S):
                await scene(world)
            for client in world.clients:
                client.engine.is_cut_off = False
                await client.close()
            assert world.pairs() == [], "a key was left behind"
            assert world.leases() == 0, "a lease was left behind"

        task = host.start(main)

        def is_done() -> bool:
            if on_turn is not None:
                on_turn(host)
            return task.done()

        sim.run_until(is_done, within=WITHIN_S)
        task.result()
        engine.discard()
