"""What locks are made to do, and what is noted of it: the same for every library.

- *Re-acquiring*: one client repeatedly acquires and releases an uncontended lock.
- *Handing over*: one client holds the lock and another one waits for it. From just before the
  first one's release to the other one's acquire having returned; then the other way round. Between
  two hand-overs there is a pause of random length, so that polling is not always in phase.
- *A crowd*: many clients want one lock, each several times; how long until all have had it.

Libraries for asyncio run on one event loop, each client with a connection of its own; libraries
for threads have a thread for each client. This is run in the environments of other clients too, so
it needs nothing but Python.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from time import perf_counter, process_time, sleep
from typing import Final, Protocol

from benchmarks.common.processes import cpu_s_of
from benchmarks.common.stats import quantile
from benchmarks.transport.samples import CPU_US, OTHER_CPU_US, P50_MS, P99_MS, Figures

REACQUIRE, HAND_OVER, CROWD = "reacquire", "hand over", "crowd"

ACQUIRE_US: Final = "acquire_us"
"""The median of acquiring, with what reading a clock takes."""
PAIR_US: Final = "pair_us"
"""The median of acquiring and releasing, with that too."""
MESSAGES: Final = "messages_per_pair"
"""That the client sent, for acquiring and releasing once."""
BYTES: Final = "bytes_per_pair"
"""That went over the wire, both ways."""
HANDED_OVER: Final = "handed_over"
TOOK_S: Final = "took_s"

NAME: Final = "bench/lock"
WARM_UP_S: Final = 0.1
PAUSE_S: Final = (0.02, 0.12)
"""Before a hand-over: longer than any client needs to begin waiting."""
CLIENTS_OF: Final = {REACQUIRE: 1, HAND_OVER: 2}


@dataclass(frozen=True, slots=True)
class Order:
    """One sample: what to do, for how long, and where the server is."""

    what: str
    seconds: float
    port: int
    server_pid: int
    ttl_s: float
    """Of locks, or of what they are held by."""
    is_counted: bool = False
    """Whether messages are counted, through a relay, and nothing is timed."""
    pairs: int = 0
    """If they are counted: for so many."""
    clients: int = 0
    """In a crowd."""
    turns: int = 0
    """Of each in a crowd."""
    hold_s: float = 0.0
    """At each turn."""

    @property
    def connections(self) -> int:
        """How many clients it takes."""
        return CLIENTS_OF.get(self.what, self.clients)


class AsyncLock(Protocol):
    """A lock as one client has it. Both raise if the answer is not as it should be."""

    def acquire(self) -> Awaitable[object]:
        """Wait for it."""
        ...

    async def release(self) -> None:
        """Let go of it."""
        ...


class PlainLock(Protocol):
    """The same for threads; a lock is always used from the same one."""

    def acquire(self) -> object:
        """Wait for it."""
        ...

    def release(self) -> object:
        """Let go of it."""
        ...


class WrongAnswer(Exception):
    """A library reported a failure."""


class Meter:
    """Notes how long acquiring takes, and the processor time of both ends, from one moment on."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self.acquired_s: list[float] = []
        self.pairs_s: list[float] = []
        self.restart()

    def restart(self) -> None:
        """Forget what was before."""
        self.acquired_s.clear()
        self.pairs_s.clear()
        self._server_s = cpu_s_of(self._server_pid)
        self._cpu_s = process_time()

    def figures(self) -> Figures:
        """What was noted until now."""
        cpu_s = process_time() - self._cpu_s
        server_s, done = cpu_s_of(self._server_pid) - self._server_s, len(self.acquired_s)
        return {
            ACQUIRE_US: 1e6 * quantile(self.acquired_s, 0.5),
            PAIR_US: 1e6 * quantile(self.pairs_s, 0.5),
            CPU_US: 1e6 * cpu_s / done,
            OTHER_CPU_US: 1e6 * server_s / done,
        }


def of_hand_overs(waited_s: Sequence[float]) -> Figures:
    """Figures of how long hand-overs took."""
    return {
        P50_MS: 1e3 * quantile(waited_s, 0.5),
        P99_MS: 1e3 * quantile(waited_s, 0.99),
        HANDED_OVER: len(waited_s),
    }


# On an event loop.


async def drive(locks: Sequence[AsyncLock], order: Order) -> Figures:
    """Do what is ordered with the locks of as many clients."""
    if order.what == REACQUIRE:
        return await _reacquire(locks[0], order)
    if order.what == HAND_OVER:
        return await _hand_over(locks, order)
    return await _crowd(locks, order)


async def pairs(lock: AsyncLock, count: int) -> None:
    """Acquire and release a number of times."""
    for _ in range(count):
        await lock.acquire()
        await lock.release()


async def _reacquire(lock: AsyncLock, order: Order) -> Figures:
    meter, clock = Meter(order.server_pid), perf_counter
    for for_s in (WARM_UP_S, order.seconds):
        meter.restart()
        now, deadline = clock(), clock() + for_s
        while now < deadline:
            began = clock()
            await lock.acquire()
            now = clock()
            await lock.release()
            meter.pairs_s.append(clock() - began)
            meter.acquired_s.append(now - began)
    return meter.figures()


async def _hand_over(locks: Sequence[AsyncLock], order: Order) -> Figures:
    holder, waiter = locks
    random = Random()
    waited_s: list[float] = []

    async def wait(lock: AsyncLock) -> float:
        await lock.acquire()
        return perf_counter()

    await holder.acquire()
    deadline = perf_counter() + order.seconds
    while not waited_s or perf_counter() < deadline:
        waiting = asyncio.ensure_future(wait(waiter))
        await asyncio.sleep(random.uniform(*PAUSE_S))
        if waiting.done():
            raise WrongAnswer("two clients hold one lock")
        began = perf_counter()
        await holder.release()
        waited_s.append(await waiting - began)
        holder, waiter = waiter, holder
    await holder.release()
    return of_hand_overs(waited_s)


async def _crowd(locks: Sequence[AsyncLock], order: Order) -> Figures:
    async def one(lock: AsyncLock) -> None:
        for _ in range(order.turns):
            await lock.acquire()
            await asyncio.sleep(order.hold_s)
            await lock.release()

    began = perf_counter()
    await asyncio.gather(*map(one, locks))
    return {TOOK_S: perf_counter() - began}


# In threads.


def drive_threads(locks: Sequence[PlainLock], order: Order) -> Figures:
    """Do what is ordered with the locks of as many clients."""
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in locks]
        if order.what == REACQUIRE:
            return threads[0].submit(_reacquire_in_thread, locks[0], order).result()
        if order.what == HAND_OVER:
            return _hand_over_between_threads(list(zip(locks, threads, strict=True)), order)
        began = perf_counter()
        turns = [
            thread.submit(_take_turns, lock, order)
            for lock, thread in zip(locks, threads, strict=True)
        ]
        for each in turns:
            each.result()
        return {TOOK_S: perf_counter() - began}


def plain_pairs(lock: PlainLock, count: int) -> None:
    """Acquire and release a number of times."""
    for _ in range(count):
        lock.acquire()
        lock.release()


def _reacquire_in_thread(lock: PlainLock, order: Order) -> Figures:
    meter, clock = Meter(order.server_pid), perf_counter
    for for_s in (WARM_UP_S, order.seconds):
        meter.restart()
        now, deadline = clock(), clock() + for_s
        while now < deadline:
            began = clock()
            lock.acquire()
            now = clock()
            lock.release()
            meter.pairs_s.append(clock() - began)
            meter.acquired_s.append(now - began)
    return meter.figures()


def _hand_over_between_threads(
    those: Sequence[tuple[PlainLock, Executor]], order: Order
) -> Figures:
    holder, waiter = those
    random = Random()
    waited_s: list[float] = []

    def acquire(lock: PlainLock) -> float:
        lock.acquire()
        return perf_counter()

    def release(lock: PlainLock) -> float:
        began = perf_counter()
        lock.release()
        return began

    holder[1].submit(acquire, holder[0]).result()
    deadline = perf_counter() + order.seconds
    while not waited_s or perf_counter() < deadline:
        waiting = waiter[1].submit(acquire, waiter[0])
        sleep(random.uniform(*PAUSE_S))
        if waiting.done():
            waiting.result()
            raise WrongAnswer("two clients hold one lock")
        began = holder[1].submit(release, holder[0]).result()
        waited_s.append(waiting.result() - began)
        holder, waiter = waiter, holder
    holder[1].submit(release, holder[0]).result()
    return of_hand_overs(waited_s)


def _take_turns(lock: PlainLock, order: Order) -> None:
    for _ in range(order.turns):
        lock.acquire()
        sleep(order.hold_s)
        lock.release()
