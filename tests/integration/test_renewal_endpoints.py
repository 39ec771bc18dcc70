"""The operator's list of endpoints at which a real server may renew leases."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold import FOREVER, DurationPolicy, Landlord, PermissionDenied, serve_landlord
from leasehold.renewal.references import GrantorKind, LeaseReference
from tests.support.asynchronous import asynchronous, until
from tests.support.serve_command import serving

OTHER_HOST = "127.0.0.2"
POLL_S = 0.02
TERMS_S = (1.0, 4.0, 16.0)
"""Of leases that another process is to renew in time; the longer ones are for a busy machine."""


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """Listen at another host, which answers nothing."""
    with socket.create_server((OTHER_HOST, 0)) as listening:
        listening.setblocking(False)
        yield listening


def was_connected(listening: socket.socket) -> bool:
    try:
        connection, _ = listening.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def test_an_endpoint_of_another_host_is_refused_and_never_connected(
    tmp_path: Path, elsewhere: socket.socket
) -> None:
    port = elsewhere.getsockname()[1]

    @asynchronous
    async def main(endpoint: str) -> None:
        renewed: list[str] = []
        landlord: Landlord[str] = Landlord(
            DurationPolicy(60.0, 60.0),
            name="desks",
            on_renewed=lambda resource, _view: renewed.append(resource),
        )
        async with await serve_landlord(landlord) as served, leasehold.connect(endpoint) as client:
            renewals = await client.renewal_set(60.0)
            for kind in GrantorKind:
                for endpoints in (
                    (f"{OTHER_HOST}:{port}",),
                    (served.address, f"{OTHER_HOST}:{port}"),
                ):
                    lease = LeaseReference("5" * 16, 5, kind, endpoints)
                    with pytest.raises(PermissionDenied, match=rf"{OTHER_HOST}.*--renew-at") as no:
                        await renewals.renew_for(lease, FOREVER)
                    assert no.value.not_executed
            assert (await renewals.info()).members == 0
            # An endpoint on the list is connected, and the lease renewed, more than once.
            for term_s in TERMS_S:
                renewed.clear()
                desk = landlord.grant("desk", term_s)
                await renewals.renew_for(desk, FOREVER, term_s, endpoints=served.address)
                await until(lambda: len(renewed) >= 2 or len(landlord) == 0)
                if len(renewed) >= 2:
                    break
            assert len(renewed) >= 2
            assert not was_connected(elsewhere)

    with serving("--data-dir", tmp_path / "data", "--renew-at", "127.0.0.1") as server:
        main(f"127.0.0.1:{server.port}")
        assert not was_connected(elsewhere)


def test_a_member_whose_endpoint_is_no_longer_on_the_list_is_not_renewed_there(
    tmp_path: Path, elsewhere: socket.socket
) -> None:
    away = LeaseReference(
        "desks", "away", endpoints=(f"{OTHER_HOST}:{elsewhere.getsockname()[1]}",)
    )
    ids: list[str] = []

    @asynchronous
    async def add(endpoint: str) -> None:
        async with leasehold.connect(endpoint) as client:
            renewals = await client.renewal_set(600.0)
            await renewals.renew_for(away, FOREVER)
            ids.append(renewals.id)
            await until(lambda: was_connected(elsewhere))

    @asynchronous
    async def find(endpoint: str) -> None:
        async with leasehold.connect(endpoint) as client:
            renewals = await client.renewal_set(id=ids[0])
            while "--renew-at" not in (await renewals.info()).last_error:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            assert (await renewals.info()).members == 1, "it stays until its end"

    data = ("--data-dir", tmp_path / "data")
    with serving(*data, "--renew-at", OTHER_HOST) as server:
        add(f"127.0.0.1:{server.port}")
        server.end(signal.SIGTERM)
    while was_connected(elsewhere):
        pass
    with serving(*data, "--renew-at", "127.0.0.1") as server:
        find(f"127.0.0.1:{server.port}")
        server.end(signal.SIGTERM)
    assert not was_connected(elsewhere)
