"""Administration of real servers: services that join other registrars, attributes, bounds."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
import trustme

import leasehold
import leasehold.sync
from leasehold import (
    FOREVER,
    CallRefused,
    Client,
    Locator,
    Transition,
    attribute_set,
    service_item,
    service_template,
)
from leasehold.basics.addresses import TcpAddress
from leasehold.basics.durations import seconds_of
from leasehold.basics.tls import client_tls, server_tls
from leasehold.engine.values import KeyValue
from leasehold.registry.messages import item_key, version_of
from leasehold.registry.own_services import RENEWAL, SERVICES
from leasehold.registry.state import Item
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings, TlsFiles
from leasehold.services.shards import SHARD_COUNT
from leasehold.testing.local_server import LocalServer
from tests.support.asynchronous import asynchronous
from tests.support.clusters import cluster
from tests.support.serve_command import Serving, serving

RENEWALS = service_template(types=[SERVICES[RENEWAL]])
FLOOR = attribute_set("Location", {"floor": 3})
TAKE_OVER_S = 90.0


async def renewal_services(client: Client) -> list[Item]:
    found = await client.registry.lookup(RENEWALS, 10)
    return [item for item in found.items if item is not None]


async def key_of(client: Client, item_id: str) -> KeyValue | None:
    return await client.kv.get(item_key(item_id))


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition that has to be asked for; the test sets the deadline."""
    while not await holds():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.01)


async def joined(client: Client, item_id: str, **wanted: object) -> Item:
    """Wait until a service is registered with a registrar, with these values."""
    found: list[Item] = []

    async def holds() -> bool:
        pair = await key_of(client, item_id)
        if pair is None:
            return False
        found[:] = [version_of(pair.value, pair.lease, pair.mod_revision).item]
        return all(getattr(found[0], name) == value for name, value in wanted.items())

    await eventually(holds)
    return found[0]


async def left(client: Client, item_id: str) -> None:
    """Wait until a service is not registered with a registrar any more."""

    async def holds() -> bool:
        return await key_of(client, item_id) is None

    await eventually(holds)


async def has_its_share(server: Serving) -> None:
    """Wait until a server owns half of the shards: then they do not move any more."""

    def owned() -> str:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
            text: str = page.read().decode()
        return text

    async def holds() -> bool:
        return f"leasehold_service_shards {SHARD_COUNT // 2}\n" in await asyncio.to_thread(owned)

    await eventually(holds)


@asynchronous
async def test_a_service_that_joins_is_found_by_type_until_its_server_stops_and_again_later(
    tmp_path: Path,
) -> None:
    with LocalServer() as other:
        async with leasehold.connect(other.endpoint) as client:
            (own,) = await renewal_services(client)
            for is_first in (True, False):
                async with LeaseholdServer(tmp_path) as server:
                    port = await server.start("127.0.0.1", 0)
                    if is_first:
                        async with leasehold.connect(f"127.0.0.1:{port}") as admin:
                            locator = f"leasehold://localhost:{other.port}"
                            service = await admin.admin.add_locators(RENEWAL, [locator])
                            assert service.locators == (Locator("localhost", other.port),)
                    item = await joined(client, service.id)
                    assert item.endpoint == f"http://127.0.0.1:{port}"
                    found = {each.id for each in await renewal_services(client)}
                    assert found == {own.id, service.id}
                assert await renewal_services(client) == [own], "it is cancelled"


@asynchronous
async def test_attributes_of_a_service_are_found_at_its_own_registrar_and_at_those_it_joins() -> (
    None
):
    with LocalServer() as first, LocalServer() as second:
        async with (
            leasehold.connect(first.endpoint) as client,
            leasehold.connect(second.endpoint) as elsewhere,
        ):
            mailbox = await client.mailbox(600)
            template = service_template(attributes=[FLOOR])
            await client.registry.notify(template, [Transition.NOMATCH_MATCH], mailbox)
            await client.admin.set_locators(RENEWAL, [f"leasehold://127.0.0.1:{second.port}"])
            service = await client.admin.add_attributes(RENEWAL, [FLOOR])
            assert service.attributes == (FLOOR,)
            found = await client.registry.lookup(template)
            assert found is not None
            assert (found.id, found.attributes) == (service.id, (FLOOR,))
            event = client.registry.event(await anext(mailbox.events()))
            assert (event.number, event.id) == (1, service.id)
            await joined(elsewhere, service.id, attributes=(FLOOR,))
            await client.admin.remove_attributes(RENEWAL, [attribute_set("Location", {})])
            assert await client.registry.lookup(template) is None
            await joined(elsewhere, service.id, attributes=())
            await client.admin.set_locators(RENEWAL, [])
            await left(elsewhere, service.id)


@asynchronous
async def test_a_service_does_not_join_its_own_registrar() -> None:
    with LocalServer() as server, LocalServer() as other:
        async with (
            leasehold.connect(server.endpoint) as client,
            leasehold.connect(other.endpoint) as elsewhere,
        ):
            locators = [f"leasehold://127.0.0.1:{each.port}" for each in (server, other)]
            service = await client.admin.set_locators(RENEWAL, locators)
            await joined(elsewhere, service.id)
            assert await key_of(client, service.id) is None
            assert [item.id for item in await renewal_services(client)] == [service.id]


@asynchronous
async def test_a_lease_that_is_longer_than_a_new_bound_keeps_its_end() -> None:
    with LocalServer() as server:
        async with leasehold.connect(server.endpoint) as client:
            before = await client.renewal_set(7200)
            item = await client.registry.register(service_item(types=["web"]), 3000)
            assert item.lease is not None
            for service in SERVICES:
                shown = await client.admin.set_lease_bound(service, 600)
                assert (shown.lease_bound, shown.is_default_bound) == (600.0, False)
            assert seconds_of(before.lease.remaining) > 7000
            kept = await before.lease.renew(FOREVER)
            assert seconds_of(kept) > 7000, "a renewal does not shorten it"
            assert seconds_of(await item.lease.renew(FOREVER)) > 2900
            assert (await client.renewal_set(FOREVER)).lease.term == 600.0
            assert (await client.mailbox(FOREVER)).lease.term == 600.0
            later = await client.registry.register(service_item(types=["web"]), FOREVER)
            assert later.lease is not None
            assert later.lease.term == 600.0
            for service in SERVICES:
                assert (await client.admin.set_lease_bound(service, None)).is_default_bound
            assert (await client.renewal_set(FOREVER)).lease.term == 7200.0


@asynchronous
async def test_errors_of_the_server_are_errors_of_the_client() -> None:
    with LocalServer() as server:
        async with leasehold.connect(server.endpoint) as client:
            with pytest.raises(CallRefused, match="unknown service 'x': the services are"):
                await client.admin.service("x")
            await client.admin.set_groups(RENEWAL, [])
            with pytest.raises(ValueError, match="is not a locator"):
                await client.admin.add_locators(RENEWAL, ["nonsense"])
            with pytest.raises(TypeError, match="must be a str, not None"):
                await client.admin.add_groups(RENEWAL, [None])  # type: ignore[list-item]
            with pytest.raises(TypeError, match="groups must be a collection of str"):
                await client.admin.add_groups(RENEWAL, None)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="must not be empty"):
                await client.admin.service("")
            keys = await client.kv.range("leasehold/", prefix=True)
            assert keys.pairs == []


@asynchronous
async def test_an_engine_without_a_server_has_no_administration(tmp_path: Path) -> None:
    async with leasehold.open(tmp_path) as client:
        with pytest.raises(CallRefused, match="requires a Leasehold server"):
            await client.admin.services()


def test_blocking_code_has_the_same_calls() -> None:
    with LocalServer() as server, leasehold.sync.connect(server.endpoint) as client:
        assert [each.name for each in client.admin.services()] == list(SERVICES)
        assert client.admin.add_member_groups(["b", "a"]).names == ("a", "b")
        client.admin.set_attributes(RENEWAL, [FLOOR])
        assert client.admin.service(RENEWAL).attributes == (FLOOR,)


@asynchronous
async def test_a_server_with_tls_joins_over_tls(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = TlsFiles(*(tmp_path / f"{name}.pem" for name in ("cert", "key", "ca")))
    assert files.client_ca is not None
    ca.cert_pem.write_to_path(files.client_ca)
    issued = ca.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(files.cert)
    issued.private_key_pem.write_to_path(files.key)
    tls = client_tls(files.client_ca, files.cert, files.key)
    settings = Settings(directory=None, tls=files)
    any_port = [TcpAddress("127.0.0.1", 0)]
    async with LeaseholdServer(settings) as one, LeaseholdServer(settings) as other:
        for_clients = server_tls(files.cert, files.key, files.client_ca)
        (here,) = await one.start_on(any_port, for_clients)
        (there,) = await other.start_on(any_port, for_clients)
        async with (
            leasehold.connect(f"https://{here}", tls=tls) as client,
            leasehold.connect(f"https://{there}", tls=tls) as elsewhere,
        ):
            service = await client.admin.set_locators(RENEWAL, [f"leaseholds://{there}"])
            assert (await joined(elsewhere, service.id)).endpoint == f"https://{here}"


def test_of_two_servers_on_a_cluster_one_joins_and_the_other_takes_over(tmp_path: Path) -> None:
    with cluster(tmp_path) as members, LocalServer() as target:
        engine = f"etcd://{','.join(members.endpoints)}"
        with serving("--engine", engine) as first, serving("--engine", engine) as second:
            servers = {f"http://127.0.0.1:{each.port}": each for each in (first, second)}

            async def main() -> None:
                async with (
                    leasehold.connect(f"127.0.0.1:{first.port}") as one,
                    leasehold.connect(f"127.0.0.1:{second.port}") as other,
                    leasehold.connect(target.endpoint) as at_target,
                    asyncio.timeout(TAKE_OVER_S),
                ):
                    for server in (first, second):
                        await has_its_share(server)
                    locators = [f"leasehold://127.0.0.1:{target.port}"]
                    service = await one.admin.set_locators(RENEWAL, locators)
                    item = await joined(at_target, service.id)
                    await one.admin.set_lease_bound(RENEWAL, 600)
                    for client in (one, other):  # until both have applied it all

                        async def is_bounded(client: Client = client) -> bool:
                            return (await client.renewal_set(FOREVER)).lease.term == 600.0

                        await eventually(is_bounded)
                    await other.admin.set_attributes(RENEWAL, [FLOOR])
                    await joined(at_target, service.id, attributes=(FLOOR,))
                    before = await key_of(at_target, service.id)
                    assert before is not None
                    assert before.version == 2, "one registration, and one change"
                    owner = servers[item.endpoint]
                    owner.process.kill()
                    owner.process.wait()
                    (left_over,) = servers.keys() - {item.endpoint}
                    await joined(at_target, service.id, endpoint=left_over)
                    after = await key_of(at_target, service.id)
                    assert after is not None
                    assert after.create_revision == before.create_revision, "it was replaced"

            asyncio.run(main())
