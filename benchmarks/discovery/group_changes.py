"""Registrars that change their groups, for a discovery service with many registrations.

The service runs in this process, on an engine with its data on disk. Its network is simulated: a
registrar is announced again with its new groups, and answers immediately. Its listeners are
simulated as well: the cost of a delivery is measured by `benchmarks.events`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.common.processes import cpu_s_of, settled_bytes
from leasehold.discovery.announced import Announcement, Registrar
from leasehold.discovery.live_registration import Interests, StoredListener
from leasehold.discovery.service import DiscoveryService
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.policies import DurationPolicy
from leasehold.services.shards import LocalShards
from leasehold.wire import discovery_pb2 as pb

GROUP: Final = "bench"
TTL_S: Final = 3600.0
WITHIN_S: Final = 300.0
CONCURRENT_CALLS: Final = 64
"""Registrations that are made at the same time."""


@dataclass(frozen=True)
class ChangeCell:
    """How many registrars change their groups at the same time."""

    registrars: int


@dataclass(frozen=True)
class ChangeSample:
    """What one measurement has found."""

    events_per_s: float
    reports_per_s: float
    """Registrars in these events."""
    cpu_us: float
    """Processor time for one event."""
    last_ms: float
    """From the change to the last event."""


class SimulatedNetwork:
    """A network of registrars that are announced, and answer immediately."""

    def __init__(self, registrars: int) -> None:
        self._registrars = [
            Registrar(f"{number:032x}", frozenset(), 1, (f"http://10.0.0.1:{number + 1}",))
            for number in range(registrars)
        ]
        self._announced: Callable[[Announcement], None] | None = None

    async def describe(self, endpoint: str) -> Registrar:
        return self._registrars[int(endpoint.rpartition(":")[2]) - 1]

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        del withdrawn
        self._announced = announced
        self.announce(range(len(self._registrars)))

    def announce(self, numbers: Sequence[int]) -> None:
        assert self._announced is not None
        for each in (self._registrars[number] for number in numbers):
            self._announced(
                Announcement(each.id, each.id, each.endpoints, each.groups_number, TTL_S)
            )

    def change(self, numbers: Sequence[int], groups: frozenset[str]) -> None:
        """Change the groups of registrars, and announce that."""
        for number in numbers:
            each = self._registrars[number]
            self._registrars[number] = replace(
                each, groups=groups, groups_number=each.groups_number + 1
            )
        self.announce(numbers)

    async def close(self) -> None:
        """Do nothing."""


class CountingListeners:
    """Listeners that count their events, and the registrars in them."""

    def __init__(self) -> None:
        self.events = self.reports = 0
        self._expected = 0
        self._done = asyncio.Event()

    def expect(self, reports: int) -> None:
        self.events, self.reports, self._expected = 0, 0, reports
        self._done.clear()

    async def all(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self._done.wait()

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        del target
        check()
        for event in events:
            self.events += 1
            self.reports += len(pb.RegistrarsPayload.FromString(event.payload).registrars)
        if self.reports >= self._expected:
            self._done.set()


class Stage:
    """A service with registrations that want the group of the registrars."""

    def __init__(
        self, service: DiscoveryService, network: SimulatedNetwork, listeners: CountingListeners
    ) -> None:
        self._service = service
        self._network = network
        self._listeners = listeners
        self.registrations = 0

    async def register(self, count: int) -> float:
        """Make registrations; return how many a second."""
        turns, began = asyncio.Semaphore(CONCURRENT_CALLS), perf_counter()

        async def one(number: int) -> None:
            async with turns:
                listener = StoredListener(EventTarget("", f"{number:032x}"), b"")
                await self._service.register(Interests(frozenset({GROUP}), ()), listener, TTL_S)

        await asyncio.gather(*(one(number) for number in range(count)))
        self.registrations += count
        return count / (perf_counter() - began)

    async def change(self, registrars: int, *, is_member: bool) -> ChangeSample:
        """Let registrars enter or leave the group, and wait for all events."""
        groups = frozenset({GROUP} if is_member else ())
        self._listeners.expect(registrars * self.registrations)
        began, cpu_s = perf_counter(), cpu_s_of(os.getpid())
        self._network.change(range(registrars), groups)
        await self._listeners.all()
        took_s, events = perf_counter() - began, self._listeners.events
        return ChangeSample(
            events / took_s,
            self._listeners.reports / took_s,
            1e6 * (cpu_s_of(os.getpid()) - cpu_s) / events,
            1e3 * took_s,
        )


@asynccontextmanager
async def stage_of(registrars: int, directory: Path) -> AsyncIterator[Stage]:
    """Start a service with so many registrars, which are in no group."""
    network, listeners = SimulatedNetwork(registrars), CountingListeners()
    async with EmbeddedEngine(directory) as engine:
        engine.start()
        shards = LocalShards(engine)
        policy = DurationPolicy(TTL_S, TTL_S)
        service = DiscoveryService(engine, shards, network, listeners, policy)
        await service.start()
        await shards.start([service])
        try:
            yield Stage(service, network, listeners)
        finally:
            await service.close()
            await shards.close()
            await service.records.close()


def resident_bytes() -> int:
    """Return the memory of this process."""
    return settled_bytes(os.getpid())
