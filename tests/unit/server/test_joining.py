"""Services of a server at other registrars: joined by the owner of a shard, and only by it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from leasehold.admin.config import ServiceConfig
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.join import Join
from leasehold.discovery.locators import Locator
from leasehold.registry.item_feed import IndexChange, IndexNotReady
from leasehold.registry.own_services import REGISTRAR, RENEWAL, registrar_id, service_id
from leasehold.registry.state import AttributeSet, Item, ItemVersion, attribute_set
from leasehold.server.engine_services import ServiceHost
from leasehold.server.joining import ServiceJoins
from leasehold.server.settings import Settings
from leasehold.services.shards import ShardOwnership
from leasehold.testing import current_host
from tests.support.fake_network import FakeNetwork, virtually
from tests.support.fake_registrars import TERM_S, FakeRegistrar

CLUSTER = 7
R, S = Locator("r.example"), Locator("s.example")
RENEWAL_ID = service_id(CLUSTER, RENEWAL)
AT_R = ServiceConfig(locators=(R,))
FLOOR = attribute_set("Location", {"floor": 3})


class Engine:
    cluster_id = CLUSTER


class Shards:
    """One shard for each id; all are owned, unless they are lost."""

    def __init__(self) -> None:
        self.lost: set[int] = set()

    def shard_of(self, item_id: str) -> int:
        return 1 if item_id == RENEWAL_ID else 2

    def owned(self, number: int) -> ShardOwnership | None:
        return None if number in self.lost else ShardOwnership(number)


class Index:
    def __init__(self) -> None:
        self.items = {
            service_id(CLUSTER, each): Item(service_id(CLUSTER, each), endpoint="http://me:1")
            for each in (REGISTRAR, RENEWAL)
        }

    def get(self, item_id: str) -> ItemVersion:
        return ItemVersion(self.items[item_id], "", 0, 0.0, 0)


class Feed:
    def __init__(self) -> None:
        self.index = Index()
        self.listeners: list[Any] = []
        self.errors: list[Exception] = []
        self.begun = 0

    async def ready(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)

    def set_attributes(self, *attributes: AttributeSet) -> None:
        before = self.index.get(RENEWAL_ID)
        item = replace(before.item, attributes=attributes)
        self.index.items[RENEWAL_ID] = item
        for listener in self.listeners:
            listener(IndexChange(RENEWAL_ID, before, self.index.get(RENEWAL_ID), 1))


class World:
    """Registrars at two locators, and any number of servers of one cluster."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.registrars: dict[str, FakeRegistrar] = {}
        for name, locator in (("R", R), ("S", S)):
            self.serve(name, locator)

    def serve(self, registrar: str, locator: Locator) -> None:
        self.registrars[registrar] = FakeRegistrar(registrar)
        self.network.serve(registrar, locator.endpoint)

    def server(self) -> "Server":
        return Server(self)

    def item(self, registrar: str) -> Item | None:
        """Return the service as a registrar has it."""
        return self.registrars[registrar].item

    async def connect(self, registrar: Any) -> FakeRegistrar:
        return self.registrars[registrar.id]


class Server:
    def __init__(self, world: World) -> None:
        self._world = world
        self.shards, self.feed = Shards(), Feed()
        self.made: list[Join] = []
        engine: Any = Engine()
        host = ServiceHost(engine, Settings(directory=None))
        shards: Any = self.shards
        feed: Any = self.feed
        self.joins = ServiceJoins(host, shards, feed, self.make)

    def make(self, host: ServiceHost, item: Item) -> Join:
        discovery = Discovery(network=self._world.network)
        join = Join(
            item,
            discovery=discovery,
            connect=self._world.connect,
            excluded={registrar_id(host.engine.cluster_id)},
            clock=current_host().clock,
        )
        self.made.append(join)
        return join

    def configure(self, config: ServiceConfig = AT_R, service: str = RENEWAL) -> None:
        self.joins.configure(service, config)

    def lose(self, shard: int = 1) -> None:
        self.shards.lost.add(shard)
        self.joins.shard_lost(ShardOwnership(shard))

    async def gain(self, shard: int = 1) -> None:
        self.shards.lost.discard(shard)
        await self.joins.shard_gained(ShardOwnership(shard))


@virtually
async def test_a_service_joins_with_its_id_endpoint_and_attributes() -> None:
    world = World()
    server = world.server()
    server.feed.set_attributes(FLOOR)
    server.configure()
    await asyncio.sleep(1)
    assert world.item("R") == Item(RENEWAL_ID, attributes=(FLOOR,), endpoint="http://me:1")
    assert world.registrars["S"].calls == []
    await server.joins.close()
    assert world.item("R") is None, "it is cancelled when the server stops"


@virtually
async def test_a_service_that_joins_nothing_costs_nothing() -> None:
    server = World().server()
    server.configure(ServiceConfig())
    await server.gain()
    await asyncio.sleep(1)
    assert (server.made, server.feed.begun) == ([], 0)
    await server.joins.close()


@virtually
async def test_changes_of_locators_are_applied_and_none_leaves_all_registrars() -> None:
    world = World()
    server = world.server()
    server.configure()
    await asyncio.sleep(1)
    assert server.joins.registrations == 1
    server.configure(ServiceConfig(locators=(R, S)))
    await asyncio.sleep(1)
    assert server.joins.registrations == 2
    server.configure(ServiceConfig(locators=(S,)))
    await asyncio.sleep(1)
    assert world.item("R") is None
    assert world.item("S") is not None
    server.configure(ServiceConfig())
    await asyncio.sleep(1)
    assert world.item("S") is None
    assert server.joins.registrations == 0
    server.configure(ServiceConfig(frozenset("a")))
    await asyncio.sleep(1)
    world.network.announce("R", R.endpoint)
    await asyncio.sleep(1)
    assert world.item("R") is not None, "it is found by its group"
    await server.joins.close()


@virtually
async def test_changes_of_attributes_reach_the_registrars() -> None:
    world = World()
    server = world.server()
    server.configure()
    await asyncio.sleep(1)
    server.feed.set_attributes(FLOOR)
    await asyncio.sleep(1)
    item = world.item("R")
    assert item is not None
    assert item.attributes == (FLOOR,)
    assert world.registrars["R"].calls == ["register", "set"]
    await server.joins.close()


@virtually
async def test_the_own_registrar_is_never_joined() -> None:
    world = World()
    own = registrar_id(CLUSTER)
    world.serve(own, R)
    server = world.server()
    server.configure(ServiceConfig(locators=(R, S)))
    await asyncio.sleep(1000)
    assert world.registrars[own].calls == []
    assert world.item("S") is not None
    await server.joins.close()


@virtually
async def test_only_the_owner_of_the_shard_joins_and_the_next_owner_replaces_its_registration() -> (
    None
):
    world = World()
    one, other = world.server(), world.server()
    other.lose()
    for server in (one, other):
        server.configure()
    await asyncio.sleep(TERM_S)
    registrar = world.registrars["R"]
    assert registrar.calls.count("register") == 1
    one.lose()
    await asyncio.sleep(1)
    assert world.item("R") is not None, "it is there until the next owner replaces it"
    await other.gain()
    await asyncio.sleep(10 * TERM_S)
    assert registrar.calls.count("register") == 2, "they do not replace each other"
    assert "cancel" not in registrar.calls
    await one.joins.close()
    assert world.item("R") is not None
    await other.joins.close()
    assert world.item("R") is None


@virtually
async def test_a_server_that_gets_its_shard_again_joins_again() -> None:
    world = World()
    server = world.server()
    server.configure()
    await asyncio.sleep(1)
    server.lose()
    await asyncio.sleep(1)
    await server.gain()
    await asyncio.sleep(1)
    assert world.registrars["R"].calls.count("register") == 2
    server.lose(2)
    await asyncio.sleep(TERM_S)
    assert world.registrars["R"].calls.count("register") == 2, "that was the shard of another"
    await server.joins.close()


@virtually
async def test_a_service_waits_until_its_attributes_are_known() -> None:
    world = World()
    server = world.server()
    server.feed.errors = [IndexNotReady("loading")] * 3
    server.configure()
    await asyncio.sleep(60)
    assert world.registrars["R"].calls.count("register") == 1
    await server.joins.close()


@virtually
async def test_without_zeroconf_locators_are_joined_and_the_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def browse(*_: object) -> None:
        raise ImportError("no zeroconf")

    world = World()
    monkeypatch.setattr(world.network, "browse", browse)
    server = world.server()
    server.configure(ServiceConfig(frozenset("a"), (R,)))
    await asyncio.sleep(1)
    assert world.item("R") is not None
    server.configure(ServiceConfig(frozenset("b"), (R, S)))
    await asyncio.sleep(1)
    assert world.item("S") is not None
    assert caplog.text.count("install leasehold[discovery]") == 1
    await server.joins.close()
