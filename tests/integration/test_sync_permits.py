"""Permits for blocking code; what is cached is answered in the caller's thread."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import leasehold.sync
from leasehold.errors import Closed
from leasehold.locks.permit import names_of
from leasehold.testing import LocalServer


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:") as client:
        yield client


def test_permits_are_granted_checked_listed_and_revoked(client: leasehold.sync.Client) -> None:
    permits = client.permits
    permit = permits.grant("anna", "hall", {"in"}, ttl=60)
    assert permits.check("anna", "hall", "in")
    assert not permits.check("anna", "hall", "dance")
    assert permits.get("anna", "hall") == permit
    assert permits.list("anna") == permits.list(resource="hall") == [permit]
    assert permits.revoke("anna", "hall")
    assert not permits.check("anna", "hall", "in")
    assert not permits.revoke("anna", "hall")
    with client.lease(60) as lease:
        assert permits.grant("anna", "hall", {"in"}, lease=lease).lease == lease.id
        assert permits.check("anna", "hall", "in", cache=False)
    assert not permits.check("anna", "hall", "in", cache=False)
    for bad in ("", "\ud800"):
        with pytest.raises(ValueError, match="subject"):
            permits.check(bad, "hall", "in")


def test_what_is_cached_is_answered_without_the_loop(client: leasehold.sync.Client) -> None:
    client.permits.grant("anna", "hall", {"in"}, ttl=60)
    assert client.permits.check("anna", "hall", "in")
    is_stuck, is_free = threading.Event(), threading.Event()

    def hold_up() -> None:
        is_stuck.set()
        is_free.wait(30.0)

    client._thread.post(hold_up)
    assert is_stuck.wait(30.0)
    try:
        assert client.permits.check("anna", "hall", "in")
        assert not client.permits.check("anna", "hall", "dance")
    finally:
        is_free.set()


def test_after_the_end_nothing_is_answered_from_the_cache() -> None:
    with leasehold.sync.open("memory:") as client:
        client.permits.grant("anna", "hall", {"in"}, ttl=60)
        assert client.permits.check("anna", "hall", "in")
    with pytest.raises(Closed):
        client.permits.check("anna", "hall", "in")


def test_a_revocation_by_another_client_is_heard_of() -> None:
    with (
        LocalServer() as server,
        leasehold.sync.connect(server.endpoint) as gate,
        leasehold.sync.connect(server.endpoint) as admin,
    ):
        admin.permits.grant("anna", "hall", {"in"}, ttl=60)
        assert gate.permits.check("anna", "hall", "in")
        assert gate.permits._permits.cache.get(names_of("anna", "hall")) is not None
        admin.permits.revoke("anna", "hall")

        async def heard() -> None:
            async with asyncio.timeout(30.0):
                while len(gate.permits._permits.cache):  # noqa: ASYNC110  there is no event to await
                    await asyncio.sleep(0.01)

        gate._thread.run(heard)
        assert not gate.permits.check("anna", "hall", "in")
