"""A discovery service in virtual time, on an engine that can be crashed and started again.

with DiscoveryStage() as stage:
    stage.network.add("R", groups="a")
    registration = stage.register("a")
    assert stage.told() == ["1 discovered R"]
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar
from unittest.mock import patch

from leasehold.basics.durations import Duration, Requested
from leasehold.discovery import registrar_search
from leasehold.discovery.announced import Registrar
from leasehold.discovery.interest_limits import DiscoveryLimits
from leasehold.discovery.known_registrars import PREFIX
from leasehold.discovery.live_registration import Interests, LiveRegistration, StoredListener
from leasehold.discovery.locators import InterestChange, LocatorLike, groups_of, locators_of
from leasehold.discovery.service import DiscoveryService
from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.policies import DurationPolicy
from leasehold.services.record_storage import service_prefix
from leasehold.services.shards import LocalShards
from leasehold.testing import Simulation
from leasehold.wire import discovery_pb2 as pb
from tests.simulation.far_disk import image_of, open_engine
from tests.support.faulty_engine import FaultyEngine
from tests.support.registrar_network import RegistrarNetwork, groups_in
from tests.support.renewal_stage import Inbox

T = TypeVar("T")

WITHIN_S = 1e6
SOON_S = 1.0
"""Long enough for calls, writes and deliveries, shorter than every wait."""


class DiscoveryStage:
    """A server with a discovery service, registrars, and listeners."""

    def __init__(self, seed: int = 0, limits: DiscoveryLimits | None = None) -> None:
        self.sim = Simulation(seed=seed)
        self.limits = limits or DiscoveryLimits()
        self.policy = DurationPolicy(7200.0, 3600.0)
        self.host = self.sim.host("server")
        self.network = RegistrarNetwork(self.sim)
        self.inbox = Inbox(self)  # type: ignore[arg-type]  # it needs the time only
        self._image: bytes | None = None
        self._begun = 0.0
        self._start()
        self._begun = self.sim.now

    def __enter__(self) -> Self:
        self.sim.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sim.__exit__(kind, error, traceback)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.sim.now - self._begun

    def _start(self) -> None:
        self.engine = open_engine(self.host, self.sim.random, self._image)
        self.host.call(self._make)
        self.run(self._begin)

    def _make(self) -> None:
        self.faulty = FaultyEngine(self.engine)
        self.shards = LocalShards(self.faulty, random=self.sim.random)
        self.service = make_service(
            self.faulty,
            self.shards,
            self.network.view(self.host),
            self.inbox,
            self.policy,
            self.limits,
            clock=self.host.clock,
            random=self.sim.random,
        )

    async def _begin(self) -> None:
        await self.service.start()
        await self.shards.start([self.service])

    def crash(self, down_s: float = 0.0) -> None:
        """Kill the server, and start it again with what is on its disk."""
        self.kill()
        self.sim.run_for(down_s)
        self.host.restart()
        self._start()

    def kill(self) -> None:
        """Kill the server; what is on its disk stays."""
        self._image = image_of(self.engine)
        self.host.crash()

    async def close(self) -> None:
        """Stop the server in order."""
        await self.service.close()
        await self.shards.close()
        await self.service.records.close()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Run a coroutine function on the server's host."""

        async def call() -> T:
            return await function(*args, **named)

        task = self.host.start(call)
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()

    def pass_time(self, seconds: float = SOON_S) -> None:
        """Let virtual time pass."""
        self.sim.run_for(seconds)

    # Calls, with defaults.

    def register(
        self,
        groups: str | None = "",
        locators: Iterable[LocatorLike] = (),
        name: str = "l",
        ttl: Requested = 3600.0,
        handback: bytes = b"handback",
    ) -> str:
        """Make a registration; groups are separated by spaces, and None stands for all."""
        return self.register_leased(groups, locators, name, ttl, handback)[0]

    def register_leased(
        self,
        groups: str | None = "",
        locators: Iterable[LocatorLike] = (),
        name: str = "l",
        ttl: Requested = 3600.0,
        handback: bytes = b"handback",
    ) -> tuple[str, Duration]:
        """Make a registration; return its id and term."""
        wanted = groups_of(None if groups is None else groups_in(groups))
        interests = Interests(wanted, locators_of(locators))
        listener = StoredListener(EventTarget("listener:1", name), handback)
        return self.run(self.service.register, interests, listener, ttl)

    def groups(self, registration: str, change: InterestChange, groups: str | None) -> None:
        """Change the wanted groups."""
        given = None if groups is None else groups_in(groups)
        self.run(self.service.change_groups, registration, change, given)

    def locators(
        self, registration: str, change: InterestChange, locators: Iterable[LocatorLike]
    ) -> None:
        """Change the wanted locators."""
        given = locators_of(locators)
        self.run(self.service.change_locators, registration, change, given)

    def discard(self, registration: str, registrar: str) -> None:
        """Discard a registrar."""
        self.run(self.service.discard, registration, registrar)

    def live(self, registration: str) -> LiveRegistration:
        """The registration in memory."""
        return self.service.find(registration)

    def registrars(self, registration: str) -> list[str]:
        """The ids of the registrars that a registration has, sorted."""
        return sorted(each.id for each in self.described(registration))

    def described(self, registration: str) -> list[Registrar]:
        """The registrars that a registration has."""
        return self.service.registrars_of(self.live(registration))

    def told(self, name: str = "l", wait_s: float = SOON_S) -> list[str]:
        """What a listener has received until soon: numbers, kinds and registrars."""
        self.pass_time(wait_s)
        return [told(event) for event in self.inbox.events(name)]

    def news(self, name: str = "l", wait_s: float = SOON_S) -> list[str]:
        """The same since the last call of this method, without numbers."""
        found = self.told(name, wait_s)
        self.inbox.received.pop(name, None)
        return [each.partition(" ")[2] for each in found]

    # What is stored.

    def stored(self, prefix: bytes = b"") -> dict[bytes, bytes]:
        """The keys of the service, or those with another prefix."""
        prefix = prefix or service_prefix("discovery")
        items = self.engine._store.keyspace.range(prefix, prefix_end(prefix))
        return {(pair := KeyValue(item)).key: pair.value for item in items}

    def stored_registration(self, registration: str) -> pb.StoredDiscovery:
        """What is stored of a registration."""
        (value,) = (
            value
            for key, value in self.stored().items()
            if registration.encode() in key and key.endswith(b"/s")
        )
        return pb.StoredDiscovery.FromString(value)

    def known(self) -> set[str]:
        """The registrars in keys of their own."""
        return {key.removeprefix(PREFIX).decode() for key in self.stored(PREFIX)}


def make_service(
    *args: Any, random: Random, kind: type[DiscoveryService] = DiscoveryService, **named: Any
) -> DiscoveryService:
    """Make a service whose search draws from the seed, too."""
    with patch.object(registrar_search, "Random", lambda: random):
        return kind(*args, random=random, **named)


def told(event: RemoteEvent) -> str:
    """An event in short."""
    payload = pb.RegistrarsPayload.FromString(event.payload)
    kind = "discarded" if payload.discarded else "discovered"
    return f"{event.number} {kind} {' '.join(each.id for each in payload.registrars)}"


class EventStream:
    """The events of one registration, as its listener receives them; checks their rules.

    Numbers rise strictly, except that an event may be received again; then it is the same one. A
    registrar is discovered when it is not there, and discarded when it is. After a gap in the
    numbers, the set of registrars is unknown until `resume`.
    """

    def __init__(self, *, may_have_gaps: bool = False) -> None:
        self._may_have_gaps = may_have_gaps
        self.last = 0
        self.registrars: set[str] | None = set()
        """The set by the events; None after a gap."""
        self.repeated = self.gaps = self.received = 0
        self._payloads: dict[int, bytes] = {}

    def receive(self, event: RemoteEvent) -> str:
        """Take an event; return what is wrong with it, or an empty text."""
        payload = pb.RegistrarsPayload.FromString(event.payload)
        before = self._payloads.setdefault(event.number, event.payload)
        if before != event.payload:
            return f"event {event.number} is two different events"
        if event.number <= self.last:
            self.repeated += 1
            return ""
        if event.number != self.last + 1:
            self.gaps += 1
            if not self._may_have_gaps:
                return f"event {event.number} follows event {self.last}"
            self.registrars = None
        self.last = event.number
        self.received += 1
        ids = [each.id for each in payload.registrars]
        if not ids or len(ids) != len(set(ids)):
            return f"event {event.number} has the registrars {ids}"
        if self.registrars is None:
            return ""
        for registrar in ids:
            if (registrar in self.registrars) is not payload.discarded:
                return f"{told(event)}: the registrars were {sorted(self.registrars)} before"
        if payload.discarded:
            self.registrars -= set(ids)
        else:
            self.registrars |= set(ids)
        return ""

    def resume(self, registrars: Iterable[str]) -> None:
        """Take the set as it was read by a call."""
        self.registrars = set(registrars)


def check_stream(events: Iterable[RemoteEvent]) -> EventStream:
    """Check all events of a registration; return the stream."""
    stream = EventStream()
    for event in events:
        assert not (wrong := stream.receive(event)), wrong
    return stream


def ignore_errors(function: Callable[[], object]) -> None:
    """Call something that may fail, such as because the server is killed meanwhile."""
    with suppress(Exception):
        function()
