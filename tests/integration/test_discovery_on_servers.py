"""The discovery service of real servers: over a kill, and of two servers on an etcd cluster.

Registrars are found by locator here. Groups need multicast: `tests/faults`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import leasehold
from leasehold.discovery.client import DiscoveryRegistration
from leasehold.discovery.registrar_events import RegistrarEvent
from leasehold.events.client import Mailbox
from leasehold.testing.local_server import LocalServer
from tests.support.clusters import cluster
from tests.support.serve_command import Serving, serving

WITHIN_S = 60.0


def locator_of(server: LocalServer | Serving) -> str:
    return f"leasehold://127.0.0.1:{server.port}"


Numbered = dict[int, tuple[bool, tuple[str, ...]]]


def shown(event: RegistrarEvent[DiscoveryRegistration]) -> tuple[bool, tuple[str, ...]]:
    return event.is_discarded, tuple(each.id for each in event.registrars())


async def events(client: leasehold.Client, mailbox: Mailbox, count: int) -> Numbered:
    """Wait for events in a mailbox; return them by number."""
    found: Numbered = {}
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            try:
                received = await mailbox.read(wait=0.5)
            except leasehold.LeaseholdError:  # its server is gone, another has not taken it over
                await asyncio.sleep(0.1)
                continue
            for each in received:
                event = client.discovery_service.event(each.event)
                assert found.setdefault(event.number, shown(event)) == shown(event)
    return found


async def eventually(call: Callable[[], Awaitable[object]]) -> None:
    """Make a call until it is answered: a shard may have no owner for a while."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await call()
            except leasehold.LeaseholdError:
                await asyncio.sleep(0.1)
            else:
                return


async def has_registrars(registration: DiscoveryRegistration, count: int) -> None:
    """Wait until a registration has so many registrars."""
    async with asyncio.timeout(WITHIN_S):
        while len(await registration.registrars()) != count:  # noqa: ASYNC110  it is asked for
            await asyncio.sleep(0.05)


def test_a_registration_survives_a_kill_and_announces_nothing_twice(tmp_path: Path) -> None:
    async def begin(port: int, locator: str) -> tuple[str, str, str]:
        async with leasehold.connect(f"127.0.0.1:{port}") as client:
            mailbox = await client.mailbox(3600)
            made = await client.discovery_service.register(
                locators=[locator], listener=mailbox, handback=b"mine", duration=3600
            )
            found = await events(client, mailbox, 1)
            ((number, (is_discarded, (registrar,))),) = found.items()
            assert (number, is_discarded) == (1, False)
            assert [each.id for each in await made.registrars()] == [registrar]
            return made.id, mailbox.id, registrar

    async def go_on(port: int, registration: str, mailbox_id: str, registrar: str) -> None:
        async with leasehold.connect(f"127.0.0.1:{port}") as client:
            mailbox = await client.mailbox(id=mailbox_id)
            again = await client.discovery_service.registration(registration)
            assert again.event_registration.number == 1
            (found,) = await again.registrars()
            assert found.id == registrar
            await again.discard(found)
            assert await again.registrars() == []
            found_events = await events(client, mailbox, 2)
            assert found_events == {1: (False, (registrar,)), 2: (True, (registrar,))}

    with LocalServer() as other:
        with serving("--data-dir", tmp_path / "data") as server:
            state = asyncio.run(begin(server.port, locator_of(other)))
        with serving("--data-dir", tmp_path / "data") as server:
            asyncio.run(go_on(server.port, *state))


def test_another_server_of_the_cluster_takes_a_registration_over(tmp_path: Path) -> None:
    with cluster(tmp_path) as members, LocalServer() as registrar, LocalServer() as second:
        engine = f"etcd://{','.join(members.endpoints)}"
        with serving("--engine", engine) as one, serving("--engine", engine) as other:

            async def main() -> None:
                async with (
                    leasehold.connect(f"127.0.0.1:{one.port}") as at_one,
                    leasehold.connect(f"127.0.0.1:{other.port}") as at_other,
                ):
                    assert at_one.discovery_service == at_other.discovery_service
                    mailbox = await at_one.mailbox(3600)
                    made = [
                        await at_one.discovery_service.register(
                            locators=[locator_of(registrar)], listener=mailbox, duration=3600
                        )
                        for _ in range(8)
                    ]
                    there = [await at_other.discovery_service.registration(e.id) for e in made]
                    assert there == made
                    for each in there:
                        await has_registrars(each, 1)
                    one.process.kill()
                    one.process.wait(WITHIN_S)
                    for each in there:
                        await eventually(each.registrars)
                        assert len(await each.registrars()) == 1, "it is not lost, nor found twice"
                        await eventually(partial(each.add_locators, [locator_of(second)]))
                        await has_registrars(each, 2)
                    numbers: dict[str, list[int]] = {}
                    left = await at_other.mailbox(id=mailbox.id)
                    async with asyncio.timeout(WITHIN_S):
                        while sum(map(len, numbers.values())) < 16:
                            numbers.clear()
                            for received in await left.read(wait=0.5):
                                event = received.event
                                numbers.setdefault(event.source, []).append(event.number)
                    assert all(set(each) == {1, 2} for each in numbers.values()), "no gap"

            asyncio.run(main())
