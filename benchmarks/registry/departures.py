"""Events of a registry to many listeners: how many a second, and how soon after a service's death.

All listeners wait for one type. They are served by this process, so their clock is that of the
measurement.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.etcd.servers import OURS, Server, running
from leasehold.events.client import EventCallback, ListenerService
from leasehold.events.listeners import NOTIFY
from leasehold.events.state import RemoteEvent
from leasehold.grpc.channel import Channel
from leasehold.grpc.routes import Exchange
from leasehold.registry.state import ALL_TRANSITIONS
from leasehold.serving.grpc_server import GrpcServer
from leasehold.wire import registry_pb2 as pb

TYPE: Final = "bench.Service"
LEASE_MS: Final = 7_200_000
DEATH_MS: Final = 500
"""The term of a service that is not renewed."""
WITHIN_S: Final = 60.0
CONCURRENT_CALLS: Final = 32
SERVICE: Final = "/leasehold.v1.Registry/"


@dataclass(frozen=True)
class EventCell:
    """The number of listeners, and the server."""

    listeners: int
    server: str = OURS


@dataclass(frozen=True)
class EventSample:
    """What one measurement has found."""

    events_per_s: float
    server_us: float
    """Processor time of the server for one event."""
    first_ms: float
    """From the end of a service's lease to the event of the first listener."""
    last_ms: float
    """To that of the last one."""


class _Received(Mapping[str, EventCallback]):
    """Listeners with any id, which count their events."""

    def __init__(self) -> None:
        self.count = 0
        self.first_at = self.last_at = 0.0
        self._expected = 0
        self._done = asyncio.Event()

    def expect(self, count: int) -> None:
        self.count, self._expected, self.first_at = 0, count, 0.0
        self._done.clear()

    async def all(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self._done.wait()

    def _receive(self, _event: RemoteEvent) -> None:
        self.last_at = monotonic()
        self.first_at = self.first_at or self.last_at
        self.count += 1
        if self.count == self._expected:
            self._done.set()

    def __getitem__(self, key: str) -> EventCallback:
        return self._receive

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


async def measure_events(listeners: int, services: int, directory: Path) -> EventSample:
    """Register services, then let one die, with so many listeners."""
    received = _Received()
    serving = GrpcServer({NOTIFY: Exchange(ListenerService(received).notify)})
    await serving.start(["127.0.0.1:0"])
    try:
        with running(OURS, directory) as server:
            async with Channel(f"127.0.0.1:{server.port}") as channel:
                await _listen(channel, str(serving.addresses[0]), listeners)
                per_s, server_us = await _register_all(
                    channel, server, received, listeners, services
                )
                first_s, last_s = await _die(channel, received, listeners)
                return EventSample(per_s, server_us, 1e3 * first_s, 1e3 * last_s)
    finally:
        await serving.close()


async def _listen(channel: Channel, endpoint: str, listeners: int) -> None:
    turns = asyncio.Semaphore(CONCURRENT_CALLS)

    async def one(number: int) -> None:
        request = pb.RequestEventsRequest(
            template=pb.ItemTemplate(types=[pb.ServiceType(name=TYPE)]),
            transitions=int(ALL_TRANSITIONS),
            ttl_ms=LEASE_MS,
        )
        request.listener.endpoint, request.listener.id = endpoint, str(number)
        async with turns:
            await channel.unary(SERVICE + "Notify", request.SerializeToString())

    await asyncio.gather(*(one(number) for number in range(listeners)))


async def _register(channel: Channel, name: str, ttl_ms: int) -> None:
    item = pb.ServiceItem(types=[pb.ServiceType(name=TYPE)], endpoint=name)
    request = pb.RegisterRequest(item=item, ttl_ms=ttl_ms)
    await channel.unary(SERVICE + "Register", request.SerializeToString())


async def _register_all(
    channel: Channel, server: Server, received: _Received, listeners: int, services: int
) -> tuple[float, float]:
    """Return how many events were received in a second, and their cost for the server in µs."""
    received.expect(listeners * services)
    began, cpu_s = monotonic(), cpu_s_of(server.pid)
    for number in range(services):
        await _register(channel, f"10.0.0.1:{number + 1}", LEASE_MS)
    await received.all()
    events = listeners * services
    return events / (monotonic() - began), 1e6 * (cpu_s_of(server.pid) - cpu_s) / events


async def _die(channel: Channel, received: _Received, listeners: int) -> tuple[float, float]:
    """Return the times from the end of a service's lease to the first and the last event."""
    received.expect(listeners)
    await _register(channel, "10.0.0.2:1", DEATH_MS)
    ends_at = monotonic() + DEATH_MS / 1000  # or a little earlier
    await received.all()
    received.expect(listeners)
    await received.all()
    return received.first_at - ends_at, received.last_at - ends_at
