"""Servers of one cluster that reach different registrars; in virtual time."""

import asyncio
from collections.abc import Callable, Sequence

from leasehold.discovery.live_registration import Interests, StoredListener
from leasehold.discovery.locators import InterestChange, Locator
from leasehold.discovery.search_exchange import PREFIX
from leasehold.discovery.service import DiscoveryService
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.policies import DurationPolicy
from leasehold.services.elected_shards import ElectedShards
from leasehold.wire import discovery_pb2 as pb
from tests.support.discovery_stage import make_service, told
from tests.support.fake_network import FakeNetwork
from tests.support.faulty_engine import FaultyEngine, World
from tests.support.record_service import play_services

GROUP_A = frozenset({"a"})
SETTLED_S = 15.0
"""Long enough for shards to be shared, and for a server that is gone to be noticed."""


class Server:
    """One of several servers, with a network of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.network = FakeNetwork()
        self.engine = FaultyEngine(world.engine)
        self.shards = ElectedShards(
            self.engine,
            f"{name}:1",
            server=name,
            ttl_s=5.0,
            clock=world.host.clock,
            random=world.random,
        )
        self.told: list[str] = []
        self.service: DiscoveryService = make_service(
            self.engine,
            self.shards,
            self.network,
            self,
            DurationPolicy(7200.0, 3600.0),
            clock=world.host.clock,
            random=world.random,
        )

    async def start(self) -> "Server":
        await self.service.start()
        await self.shards.start([self.service])
        return self

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        check()
        self.told += map(told, events)

    async def register(
        self, groups: frozenset[str] = GROUP_A, locators: Sequence[Locator] = ()
    ) -> str:
        listener = StoredListener(EventTarget("listener:1", "l"), b"")
        made = await self.service.register(Interests(groups, tuple(locators)), listener, 3600.0)
        return made[0]

    def registrars(self, registration: str) -> list[str]:
        live = self.service.find(registration)
        return sorted(each.id for each in self.service.registrars_of(live))

    async def close(self) -> None:
        await self.service.close()
        await self.shards.close()
        await self.service.records.close()


async def two(world: World) -> tuple[Server, Server]:
    servers = await Server(world, "one").start(), await Server(world, "other").start()
    await asyncio.sleep(SETTLED_S)
    assert all(server.shards.all_owned for server in servers)
    return servers


async def end(world: World, *servers: Server) -> None:
    for server in servers:
        for record in list(server.service.records):
            await server.service.records.cancel(record.id)
    await asyncio.sleep(SETTLED_S)
    for server in servers:
        await server.close()
    await world.engine.delete(b"leasehold/", b"leasehold0")


def test_a_registration_has_the_registrars_that_any_server_reaches() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        registration = await one.register()
        await asyncio.sleep(1.0)
        assert other.network.browsed == 1, "it searches for the groups of the other server"
        one.network.serve("R", "r:1")
        one.network.announce("R", "r:1")
        other.network.serve("S", "s:1")
        other.network.announce("S", "s:1")
        await asyncio.sleep(1.0)
        assert one.registrars(registration) == ["R", "S"]
        assert sorted(one.told) == ["1 discovered R", "2 discovered S"]
        assert other.told == []
        await end(world, one, other)

    play_services(scene)


def test_a_locator_is_called_by_all_servers() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        other.network.serve("S", "s:2379")
        registration = await one.register(frozenset(), [Locator("s")])
        await asyncio.sleep(6.0)
        assert one.registrars(registration) == ["S"]
        await one.service.change_locators(registration, InterestChange.REMOVE, [Locator("s")])
        await asyncio.sleep(1.0)
        assert one.told == ["1 discovered S", "2 discarded S"]
        await end(world, one, other)

    play_services(scene)


def test_a_registrar_is_lost_when_no_server_reaches_it() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        registration = await one.register()
        await asyncio.sleep(1.0)
        for server in (one, other):
            server.network.serve("R", "r:1")
            server.network.announce("R", "r:1")
        await asyncio.sleep(1.0)
        del other.network.at["r:1"]
        other.network.withdrawn("r:1")
        await asyncio.sleep(10.0)
        assert one.registrars(registration) == ["R"], "one server still reaches it"
        del one.network.at["r:1"]
        one.network.withdrawn("r:1")
        await asyncio.sleep(10.0)
        assert one.told == ["1 discovered R", "2 discarded R"]
        await end(world, one, other)

    play_services(scene)


def test_a_registrar_that_only_a_dead_server_reached_is_called_before_it_is_lost() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        registration = await one.register()
        await asyncio.sleep(1.0)
        for name in "RS":
            other.network.serve(name, f"{name}:1")
            other.network.announce(name, f"{name}:1")
        one.network.serve("R", "R:1")  # it receives no announcement, and would get an answer
        await asyncio.sleep(1.0)
        assert one.registrars(registration) == ["R", "S"]
        assert one.network.called == []
        other.engine.is_cut_off = True
        await asyncio.sleep(SETTLED_S)
        assert one.registrars(registration) == ["R"]
        assert one.told[1:] in (["2 discarded S"], ["2 discovered S", "3 discarded S"])
        other.engine.is_cut_off = False
        await end(world, one, other)

    play_services(scene)


def test_servers_do_not_assure_each_other_of_a_registrar_that_is_gone() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        made = await one.register(), await other.register()
        await asyncio.sleep(1.0)
        other.network.serve("R", "r:1")
        other.network.announce("R", "r:1")
        await asyncio.sleep(1.0)
        assert (one.registrars(made[0]), other.registrars(made[1])) == (["R"], ["R"])
        del other.network.at["r:1"]
        other.network.withdrawn("r:1")
        await asyncio.sleep(30.0)
        assert (one.told, other.told) == (["1 discovered R", "2 discarded R"],) * 2
        calls = len(one.network.called) + len(other.network.called)
        await asyncio.sleep(300.0)
        assert len(one.network.called) + len(other.network.called) == calls, "it is over"
        await end(world, one, other)

    play_services(scene)


def test_a_registration_that_is_taken_over_announces_nothing_twice() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        for server in (one, other):
            server.network.serve("R", "r:1")
        made = [await one.register() for _ in range(3)]
        await asyncio.sleep(1.0)
        for server in (one, other):
            server.network.announce("R", "r:1")
        await asyncio.sleep(1.0)
        one.engine.is_cut_off = True
        await asyncio.sleep(2 * SETTLED_S)
        assert [other.registrars(each) for each in made] == [["R"]] * 3
        assert other.told == []
        one.engine.is_cut_off = False
        await end(world, other, one)

    play_services(scene)


def test_a_key_of_another_program_counts_as_a_server_that_reaches_nothing() -> None:
    async def scene(world: World) -> None:
        one, other = await two(world)
        registration = await one.register()
        for value in (b"\xff\xff", pb.ServerReach(locators=["nowhere"]).SerializeToString()):
            await world.engine.put(PREFIX + b"x", value)
            await asyncio.sleep(1.0)
        one.network.serve("R", "r:1")
        one.network.announce("R", "r:1")
        await asyncio.sleep(1.0)
        assert one.registrars(registration) == ["R"]
        await end(world, one, other)

    play_services(scene)
