"""Discovery services that clients find in the registry, and the service in blocking code."""

import asyncio
import queue
import threading
from typing import Any

import pytest

import leasehold
import leasehold.sync
from leasehold import CallRefused, Closed, NoSuchObject, RegistrarEvent, service_item
from leasehold.registry.own_services import DISCOVERY, SERVICES, service_id
from leasehold.testing.local_server import LocalServer
from tests.support.asynchronous import asynchronous

TYPE = SERVICES[DISCOVERY]
WITHIN_S = 30.0
UNKNOWN = "6d2f3c3e-52a4-4b53-9a34-1f2f4c8a1b00"


def locator_of(server: LocalServer) -> str:
    return f"leasehold://127.0.0.1:{server.port}"


async def announce(client: leasehold.Client, server: LocalServer) -> str:
    """Register the discovery service of another server, as if it had joined; return its id."""
    async with leasehold.connect(server.endpoint) as other:
        item_id = service_id(other.engine.cluster_id, DISCOVERY)
    item = service_item(id=item_id, types=[TYPE], endpoint=server.endpoint)
    await client.registry.register(item, 60)
    return item_id


# Found in the registry.


@asynchronous
async def test_without_an_id_the_service_of_the_connected_server_is_found() -> None:
    with LocalServer() as server, LocalServer() as other:
        async with leasehold.connect(server.endpoint) as client:
            await announce(client, other)
            async with client.find_discovery_service() as service:
                assert service is client.discovery_service
            own = service_id(client.engine.cluster_id, DISCOVERY)
            assert await client.find_discovery_service(own) is service
            assert await service.registrations() == [], "the connection is that of the client"


@asynchronous
async def test_a_service_of_another_cluster_is_called_at_its_endpoint() -> None:
    with LocalServer() as server, LocalServer() as other:
        async with leasehold.connect(server.endpoint) as client:
            item_id = await announce(client, other)
            received: asyncio.Queue[RegistrarEvent[Any]] = asyncio.Queue()
            async with client.find_discovery_service(item_id) as service:
                assert service != client.discovery_service
                assert service == await client.find_discovery_service(item_id)
                registration = await service.register(
                    locators=[locator_of(server)], listener=received.put_nowait
                )
                event = await asyncio.wait_for(received.get(), WITHIN_S)
                assert event.source == registration
                assert [each.id for each in event.registrars()] == list(event.groups)
                with pytest.raises(NoSuchObject):
                    await client.discovery_service.registration(registration.id)
            with pytest.raises(Closed):
                await registration.registrars()
        async with leasehold.connect(other.endpoint) as client:
            found = await client.discovery_service.registration(registration.id)
            assert len(await found.registrars()) == 1, "it outlives the connection"


@asynchronous
async def test_a_service_that_has_joined_the_registry_is_found() -> None:
    with LocalServer() as server, LocalServer() as other:
        async with leasehold.connect(other.endpoint) as client:
            await client.admin.add_locators(DISCOVERY, [locator_of(server)])
            expected = client.discovery_service.id
            item_id = service_id(client.engine.cluster_id, DISCOVERY)
        async with leasehold.connect(server.endpoint) as client, asyncio.timeout(WITHIN_S):
            while True:
                try:
                    service = await client.find_discovery_service(item_id)
                    break
                except NoSuchObject:
                    await asyncio.sleep(0.05)
            assert service.id == expected


@asynchronous
async def test_a_mailbox_of_another_cluster_is_refused_as_a_listener() -> None:
    with LocalServer() as server, LocalServer() as other:
        async with leasehold.connect(server.endpoint) as client:
            service = await client.find_discovery_service(await announce(client, other))
            mailbox = await client.mailbox(60)
            with pytest.raises(ValueError, match="listener must be a mailbox of cluster"):
                await service.register(["a"], listener=mailbox)
        with pytest.raises(Closed):
            await service.registrations()  # the client has closed it


@asynchronous
async def test_a_service_that_the_registry_does_not_have_or_that_has_no_endpoint_is_refused() -> (
    None
):
    with LocalServer() as server:
        async with leasehold.connect(server.endpoint) as client:
            with pytest.raises(NoSuchObject):
                await client.find_discovery_service(UNKNOWN)
            await client.registry.register(service_item(id=UNKNOWN, types=["printer"]), 60)
            with pytest.raises(NoSuchObject):
                await client.find_discovery_service(UNKNOWN)
            item = service_item(id=UNKNOWN, types=[TYPE], endpoint="")
            await client.registry.register(item, 60)
            with pytest.raises(CallRefused, match=f"discovery service {UNKNOWN} cannot be called"):
                await client.find_discovery_service(UNKNOWN)


@asynchronous
async def test_an_engine_in_this_process_has_no_discovery_service() -> None:
    async with leasehold.open("memory:") as client:
        with pytest.raises(CallRefused):
            _ = client.discovery_service
        with pytest.raises(NoSuchObject):
            await client.find_discovery_service()


# Blocking code.


def test_blocking_code_registers_changes_and_discards() -> None:
    with (
        LocalServer() as server,
        LocalServer() as other,
        leasehold.sync.connect(server.endpoint) as client,
    ):
        events: queue.Queue[tuple[RegistrarEvent[Any], threading.Thread]] = queue.Queue()
        service = client.discovery_service
        registration = service.register(
            ["a"],
            [locator_of(other)],
            listener=lambda event: events.put((event, threading.current_thread())),
            handback=b"laptop",
            duration=60,
        )
        found, thread = events.get(timeout=WITHIN_S)
        assert thread is not threading.current_thread()
        assert isinstance(found.source, leasehold.sync.DiscoveryRegistration)
        assert (found.source, found.handback, found.number) == (registration, b"laptop", 1)
        (registrar,) = found.registrars()
        assert not found.is_discarded
        assert registration.registrars() == [registrar]
        registration.add_groups(["b"])
        assert registration.groups() == ["a", "b"]
        assert registration.event_registration.lease is registration.lease
        registration.lease.renew(120)
        assert registration.info().registrars == 1
        registration.discard(registrar)
        discarded, _ = events.get(timeout=WITHIN_S)
        assert (discarded.number, discarded.is_discarded) == (2, True)
        assert service.registration(registration.id) == registration
        assert [each.id for each in service.registrations()] == [registration.id]
        registration.cancel()
        with pytest.raises(NoSuchObject):
            registration.registrars()


def test_blocking_code_reads_events_from_a_mailbox() -> None:
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        mailbox = client.mailbox(60)
        with client.find_discovery_service() as service:
            assert service == client.discovery_service
            registration = service.register(locators=[locator_of(server)], listener=mailbox)
            (received,) = mailbox.read(wait=WITHIN_S)
            event = service.event(received.event)
            assert event.source == registration
            assert event.registrars() == registration.registrars()
        with pytest.raises(TypeError):
            service.register(listener=None)  # type: ignore[arg-type]
