"""A registry in virtual time, on an engine that can be crashed and started again.

with RegistryStage() as stage:
    version = stage.register(web("a"))
    stage.listen("listener", WEB)
    stage.pass_time(100.0)
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from leasehold.basics.durations import ANY, Requested
from leasehold.engine.interface import prefix_end
from leasehold.engine.values import Events, KeyValue
from leasehold.events.state import EventTarget
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.event_registration import EventRequest
from leasehold.registry.item_events import ItemEvents
from leasehold.registry.messages import ITEMS, item_of
from leasehold.registry.rpc import RegistryLeases
from leasehold.registry.service import Page, RegistryService
from leasehold.registry.state import (
    ALL_TRANSITIONS,
    EVERYTHING,
    AttributeSet,
    Descriptor,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    Transition,
    attribute_set,
)
from leasehold.registry.storage import cookie_of
from leasehold.services.forwarding import Forwarder
from leasehold.services.record_leases import RecordLeases
from leasehold.services.shards import LocalShards
from leasehold.testing import Simulation
from leasehold.wire import registry_pb2 as pb
from tests.simulation.far_disk import image_of, open_engine
from tests.support.faulty_engine import FaultyEngine, FaultyWatch
from tests.support.renewal_stage import Inbox

T = TypeVar("T")

WITHIN_S = 1e6
WEB = Template(types=(ServiceType("web"),))
A, B, C = (f"00000000-0000-4000-8000-00000000000{digit}" for digit in "abc")


def item(item_id: str = "", *types: str, endpoint: str = "", **fields: Any) -> Item:
    """An item with these types, and one attribute set of kind `about` with these fields."""
    sets = (about(**fields),) if fields else ()
    return Item(item_id, tuple(map(ServiceType, types)), sets, endpoint)


def web(item_id: str = "", endpoint: str = "", **fields: Any) -> Item:
    """An item of the type `web`."""
    return item(item_id, "web", endpoint=endpoint, **fields)


def about(**fields: Any) -> AttributeSet:
    """An attribute set."""
    return attribute_set("about", fields)


def moved_to(endpoint: str) -> Callable[[Item], Item]:
    """A change of an item: it has another endpoint."""
    return lambda each: replace(each, endpoint=endpoint)


def descriptor(text: str) -> Descriptor:
    """A descriptor."""
    return Descriptor("test.Text", "text", text.encode())


class RegistryStage:
    """A server with a registry, and listeners."""

    def __init__(
        self, seed: int = 0, maximum: float = 3600.0, default: float = 60.0, **options: Any
    ) -> None:
        self.sim = Simulation(seed=seed)
        self.policy = DurationPolicy(maximum, default)
        self.options = options
        self.host = self.sim.host("server")
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
        self.shards = LocalShards(self.faulty)
        self.service = RegistryService(
            self.faulty, self.policy, random=self.sim.random, clock=self.host.clock
        )
        self.events = ItemEvents(
            self.faulty,
            self.shards,
            self.service.feed,
            self.inbox,
            self.policy,
            clock=self.host.clock,
            random=self.sim.random,
            **self.options,
        )
        records = RecordLeases(self.events.records, Forwarder(self.shards))
        self.leases = RegistryLeases(self.service.storage, records)

    async def _begin(self) -> None:
        await self.events.start()
        await self.shards.start([self.events.records])
        await self.service.start()

    async def close(self) -> None:
        """Stop the registry in order."""
        await self.events.close()
        await self.service.close()

    def crash(self, down_s: float = 0.0) -> None:
        """Kill the server, and start it again with what is on its disk."""
        self._image = image_of(self.engine)
        self.host.crash()
        self.sim.run_for(down_s)
        self.host.restart()
        self._start()

    def second_service(self) -> RegistryService:
        """The registry of another server on the same engine."""
        made: list[RegistryService] = []
        self.host.call(
            lambda: made.append(
                RegistryService(
                    FaultyEngine(self.engine),
                    self.policy,
                    random=self.sim.random,
                    clock=self.host.clock,
                )
            )
        )
        return made[0]

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Run a coroutine function on the server's host."""

        async def call() -> T:
            return await function(*args, **named)

        task = self.host.start(call)
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()

    def pass_time(self, seconds: float = 0.1) -> None:
        """Let virtual time pass."""
        self.sim.run_for(seconds)

    # Calls, with defaults.

    def register(self, registered: Item, ttl: Requested = 30.0, lease: int = 0) -> ItemVersion:
        """Register an item."""
        return self.run(self.service.register, registered, ttl, lease)

    def change(self, version: ItemVersion, change: Callable[[Item], Item]) -> None:
        """Change an item."""
        self.run(self.service.storage.change, cookie_of(version), change)

    def renew(self, cookie: Hashable, term: Requested = ANY) -> Outcome:
        """Renew one lease."""
        (outcome,) = self.run(self.leases.renew_all, [(cookie, term)])
        return outcome

    def cancel(self, version: ItemVersion) -> Outcome:
        """Cancel the lease of an item."""
        return self.renew(cookie_of(version), 0.0)

    def lookup(self, template: Template = WEB, limit: int = 1000, **options: Any) -> Page:
        """Look items up."""
        return self.run(self.service.lookup, template, limit, **options)

    def found(self, template: Template = WEB, **options: Any) -> list[Item]:
        """The items that match."""
        return [_item(data) for data in self.lookup(template, **options).items]

    def ids(self, template: Template = WEB, **options: Any) -> list[str]:
        """The ids of the items that match."""
        return [each.id for each in self.found(template, **options)]

    def listen(
        self,
        name: str = "l",
        template: Template = EVERYTHING,
        transitions: Transition = ALL_TRANSITIONS,
        ttl: Requested = 3600.0,
    ) -> str:
        """Register a listener; return the id of the registration."""
        request = EventRequest(template, transitions, EventTarget("listener:1", name), b"handback")
        return self.run(self.events.notify, request, ttl)[0]

    def told(self, name: str = "l") -> list[tuple[int, str, str]]:
        """The events that a listener has received: numbers, transitions and ids."""
        self.pass_time()
        return [
            (event.number, _transition(each.transition), each.id)
            for event, each in zip(self.inbox.events(name), self.payloads(name), strict=True)
        ]

    def payloads(self, name: str = "l") -> list[pb.ItemEvent]:
        """The events that a listener has received."""
        return [pb.ItemEvent.FromString(event.payload) for event in self.inbox.events(name)]

    def stored(self) -> list[KeyValue]:
        """The keys of items."""
        return [
            KeyValue(each) for each in self.engine._store.keyspace.range(ITEMS, prefix_end(ITEMS))
        ]

    def leases_left(self) -> int:
        """The number of leases of the engine."""
        return len(self.engine._store.leases.table)

    @property
    def revision(self) -> int:
        """The revision of the engine."""
        return self.engine._store.revision


def without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no watch report its progress, as with an etcd server whose progress is not trusted."""
    original = FaultyWatch.__anext__

    async def told(watch: FaultyWatch) -> Events:
        found = await original(watch)
        return found if found.events else Events(0, ())

    monkeypatch.setattr(FaultyWatch, "__anext__", told)


def _item(data: bytes) -> Item:
    return item_of(pb.ServiceItem.FromString(data))


def _transition(number: int) -> str:
    return Transition(number).name or "resync" if number else "resync"
