"""Deliveries of an `EventSender` to listeners in another process, for a fixed time."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.common.stats import quantile
from benchmarks.events.served import HANGING
from leasehold.events.delivery import EventSender
from leasehold.events.listeners import ListenerCalls
from leasehold.events.state import MAX_NOTIFY_EVENTS, EventQueue, EventTarget

PAYLOAD = b"x" * 100
START_S = 30.0
"""How long the listeners may take to start, and each healthy one to receive its first events."""


FEWEST_CALLS = 3
"""Calls that each healthy listener has to answer before a measurement ends."""

CALL_S = 60.0
"""The timeout of a call: longer than a measurement, so that hanging calls stay open in it."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    listeners: int
    endpoints: int
    hanging: int
    seconds: float
    rounds: int


FULL = Scale(listeners=1_000, endpoints=100, hanging=10, seconds=5.0, rounds=5)
QUICK = Scale(listeners=100, endpoints=10, hanging=10, seconds=0.5, rounds=1)


@dataclass(frozen=True)
class Load:
    """One way to send events."""

    name: str
    events: int
    """Events that each registration has at a time; the next ones follow when they were received."""


LOADS = (Load("one event in a call", 1), Load("many events in a call", MAX_NOTIFY_EVENTS))


@dataclass(frozen=True)
class Sample:
    """What one measurement has found; only healthy listeners count."""

    events_per_s: float
    cpu_us_per_event: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    fewest_calls: int
    """Calls that the listener with the fewest has answered."""
    still_hanging: int
    """Hanging listeners whose first call has not even failed at the end."""


@asynccontextmanager
async def served(endpoints: int) -> AsyncIterator[list[str]]:
    """Start listeners in a process of their own; yield their endpoints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.events.served",
        str(endpoints),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        yield json.loads(line)
    finally:
        process.stdin.close()
        await process.wait()


class Source:
    """Registrations whose next events follow as soon as the last ones were received."""

    def __init__(self, load: Load, endpoints: list[str], scale: Scale, hanging: int) -> None:
        self._load = load
        self.calls = ListenerCalls(_no_mailboxes, timeout_s=CALL_S)
        self.sender = EventSender(self, self.calls)
        self.took_s: list[float] = []
        self.received = 0
        self.answered: dict[str, int] = {}
        self.queues: list[EventQueue] = []
        self._since: dict[EventQueue, float] = {}
        self.is_counting = False
        for number in range(scale.listeners):
            name = f"{HANGING}{number}" if number < hanging else f"{number}"
            target = EventTarget(endpoints[number % len(endpoints)], name)
            queue = EventQueue("bench", name, 1, target=target)
            self.queues.append(queue)
            self.sender.offer(queue)
            if number >= hanging:
                self.answered[name] = 0
            self._append(queue)

    def _append(self, queue: EventQueue) -> None:
        self._since[queue] = time.perf_counter()
        for _ in range(self._load.events):
            queue.append(PAYLOAD)

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        """Count a call, and send the next events when all are received."""
        self.answered[queue.source] += 1
        if len(queue):
            return
        if self.is_counting:
            self.took_s.append(time.perf_counter() - self._since[queue])
            self.received += self._load.events
        self._append(queue)

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        """Fail: no listener refuses."""
        raise AssertionError(f"{queue} was refused") from error

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        """Fail: nothing takes that long."""
        raise AssertionError(f"{queue} has given up {up_to}")


async def _no_mailboxes(mailbox: str, events: object) -> None:
    raise AssertionError(f"{mailbox} is not used here: {events}")


async def measure(load: Load, endpoints: list[str], scale: Scale, hanging: int) -> Sample:
    """Send events for a fixed time, with a number of listeners that never answer."""
    source = Source(load, endpoints, scale, hanging)
    try:
        async with asyncio.timeout(START_S):
            while not all(source.answered.values()):  # noqa: ASYNC110  connections are being made
                await asyncio.sleep(0.01)
        source.is_counting = True
        began_at, cpu_began_at = time.perf_counter(), time.process_time()
        await asyncio.sleep(scale.seconds)
        async with asyncio.timeout(START_S):
            while min(source.answered.values()) < FEWEST_CALLS:  # noqa: ASYNC110  on a slow machine
                await asyncio.sleep(0.01)
        source.is_counting = False
        took_s, cpu_s = time.perf_counter() - began_at, time.process_time() - cpu_began_at
        return Sample(
            source.received / took_s,
            1e6 * cpu_s / max(1, source.received),
            1e3 * quantile(source.took_s, 0.5),
            1e3 * quantile(source.took_s, 0.99),
            1e3 * max(source.took_s),
            min(source.answered.values()),
            sum(
                queue.source.startswith(HANGING) and queue.failures == 0 for queue in source.queues
            ),
        )
    finally:
        await source.sender.close()
        await source.calls.close()
