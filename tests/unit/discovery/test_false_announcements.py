"""Announcements that lie: any host on the network can send them. In virtual time."""

import asyncio
from typing import Final

from leasehold.discovery.announced import (
    MAX_ENDPOINTS,
    MAX_REGISTRARS,
    MAX_SERVERS,
    Announcement,
    Registrar,
)
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.registrar_search import CALL_S
from leasehold.discovery.state import MAX_CALLS, UNCONFIRMED_CALLS, DiscoveryState
from tests.support.fake_network import FakeNetwork, virtually

REAL: Final = "http://10.0.0.1:1"
FALSE: Final = "http://10.9.9.9:1"
DAY_S: Final = 86_400.0


def lie(
    network: FakeNetwork, server: str, registrar: str, *endpoints: str, number: int = 1
) -> None:
    network.announced(Announcement(server, registrar, endpoints or (FALSE,), number, DAY_S))


def tasks() -> int:
    return len(asyncio.all_tasks())


# Calls.


@virtually
async def test_a_registrar_is_called_once_at_a_time_however_often_its_groups_change() -> None:
    network = FakeNetwork()
    network.hanging.add(FALSE)
    async with Discovery(["a"], network=network):
        for number in range(1_000):
            lie(network, "liar", "R", number=number)
            await asyncio.sleep(0)
        assert network.called == [FALSE]
        await asyncio.sleep(60)
        assert len(network.called) <= 60 / CALL_S


@virtually
async def test_calls_under_way_are_bounded() -> None:
    network = FakeNetwork()
    network.hanging.add(FALSE)
    async with Discovery(["a"], network=network):
        before = tasks()
        for number in range(MAX_REGISTRARS):
            lie(network, f"s{number}", f"R{number}")
        await asyncio.sleep(0.1)
        assert len(network.called) == UNCONFIRMED_CALLS < MAX_CALLS
        assert tasks() - before <= 2 * UNCONFIRMED_CALLS
        for server in range(MAX_REGISTRARS):
            network.withdrawn(f"s{server}")
            lie(network, f"s{server}", f"R{server}")
        await asyncio.sleep(0.1)
        assert tasks() - before <= 2 * UNCONFIRMED_CALLS


@virtually
async def test_false_announcements_do_not_delay_locators() -> None:
    network = FakeNetwork()
    network.hanging.add(FALSE)
    network.serve("R", "here:2379")
    async with Discovery(["a"], network=network) as discovery:
        for number in range(MAX_REGISTRARS):
            lie(network, f"s{number}", f"R{number}")
        discovery.set_locators(["leasehold://here"])
        await asyncio.sleep(0.1)
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_a_registrar_whose_number_is_announced_falsely_is_found() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    async with Discovery(["a"], network=network) as discovery:
        network.announce("R", REAL)
        for number in range(100):
            lie(network, "liar", "R", number=number)
            await asyncio.sleep(0.001)
        assert discovery.registrars() == [Registrar("R")]
        called = network.called.count(REAL)
        for number in range(1_000):
            lie(network, "liar", "R", number=number)
            await asyncio.sleep(0.01)
        assert network.called.count(REAL) <= called + 11  # at most one in a second


# Registrars.


@virtually
async def test_registrars_that_never_answered_give_way() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    async with Discovery(["a"], network=network) as discovery:
        for number in range(MAX_REGISTRARS):
            lie(network, f"s{number}", f"R{number}")
        network.announce("R", REAL)
        await asyncio.sleep(1)
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_a_registrar_that_has_answered_does_not_give_way() -> None:
    network = FakeNetwork()
    network.serve("R", REAL, groups="other")
    network.hanging.add(FALSE)
    async with Discovery(["a"], network=network) as discovery:
        network.announce("R", REAL)
        await asyncio.sleep(1)
        for number in range(2 * MAX_REGISTRARS):
            lie(network, f"s{number}", f"R{number}")
        calls = network.called.count(REAL)
        discovery.set_groups(["other"])
        await asyncio.sleep(1)
        assert discovery.registrars() == [Registrar("R")]
        assert network.called.count(REAL) == calls + 1


@virtually
async def test_a_registrar_is_found_within_seconds_after_many_that_do_not_answer() -> None:
    network = FakeNetwork()
    network.hanging.add(FALSE)
    network.serve("R", REAL)
    async with Discovery(["a"], network=network) as discovery:
        for number in range(MAX_REGISTRARS):
            lie(network, f"s{number}", f"R{number}")
        await asyncio.sleep(1)
        network.announce("R", REAL)
        await asyncio.sleep(CALL_S)
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_a_registrar_that_never_answered_is_forgotten() -> None:
    network = FakeNetwork()
    async with Discovery(["a"], network=network):
        lie(network, "liar", "R")
        await asyncio.sleep(DAY_S / 2)
        assert 1 < len(network.called) <= 6


def test_the_ttl_of_an_announcement_is_clamped_until_its_endpoint_has_answered() -> None:
    state: DiscoveryState[str] = DiscoveryState()
    state.set_groups(frozenset({"a"}), 0.0)
    for server in (REAL, FALSE):
        state.announced(Announcement(server, "R", (server,), 1, DAY_S), 0.0)
    (call,) = state.due(0.0)
    assert state.next_at == 120.0
    state.answered(call, Registrar("R", frozenset({"a"}), 1, (REAL,)), 1.0)
    assert state.next_at == 120.0  # of the false one
    assert state.due(120.0) == []
    assert state.next_at == DAY_S


# Endpoints.


@virtually
async def test_false_endpoints_of_a_registrar_do_not_displace_the_true_one() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    false = [f"http://10.9.9.{number}:1" for number in range(MAX_ENDPOINTS)]
    async with Discovery(["a"], network=network) as discovery:
        lie(network, "liar", "R", *false)
        await asyncio.sleep(0.1)
        network.announce("R", REAL)
        await asyncio.sleep(2)
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_each_server_has_a_share_of_the_endpoints_that_are_called() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    async with Discovery(network=network) as discovery:
        discovery.set_groups(["other"])
        discovery.set_groups([])  # announcements are still received
        network.announce("R", REAL)
        for number in range(3):
            lie(network, f"liar{number}", "R", *(f"http://10.9.{number}.{n}:1" for n in range(16)))
        discovery.set_groups(["a"])
        await asyncio.sleep(0.1)
        assert len(network.called) == MAX_ENDPOINTS
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_all_endpoints_are_tried() -> None:
    network = FakeNetwork()
    endpoints = [f"http://10.0.{n // 16}.{n % 16}:1" for n in range(100)]
    network.hanging.update(endpoints)
    network.serve("R", REAL)
    async with Discovery(network=network) as discovery:
        discovery.set_groups(["other"])
        discovery.set_groups([])
        for number in range(0, 100, 10):
            lie(network, f"s{number}", "R", *endpoints[number : number + 10])
        discovery.set_groups(["a"])
        await asyncio.sleep(60)
        assert set(network.called) == set(endpoints)


@virtually
async def test_endpoints_that_have_answered_come_first() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    async with Discovery(["a"], network=network) as discovery:
        network.announce("R", REAL)
        await asyncio.sleep(1)
        for number in range(50):
            lie(network, f"liar{number}", "R", f"http://10.9.9.{number}:1")
        network.called.clear()
        lie(network, "liar", "R", number=7)
        await asyncio.sleep(0.005)
        assert network.called[0] == REAL
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_servers_that_never_answered_give_way_to_others() -> None:
    network = FakeNetwork()
    network.serve("R", REAL)
    async with Discovery(["a"], network=network) as discovery:
        for number in range(MAX_SERVERS):
            lie(network, f"liar{number}", "R", f"http://10.9.9.{number}:1")
        network.announce("R", REAL)
        await asyncio.sleep(10)
        assert discovery.registrars() == [Registrar("R")]
        for number in range(2 * MAX_SERVERS):
            lie(network, f"liar{number}", "R", f"http://10.9.9.{number}:1")
        network.at.clear()
        network.withdrawn(REAL)
        for number in range(2 * MAX_SERVERS):
            network.withdrawn(f"liar{number}")
        await asyncio.sleep(10)
        assert discovery.registrars() == []
