"""A server whose start is slow after the journal was read: leases do not age before it serves."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.basics.sockets import Resolved
from leasehold.keyspace.operations import Grant, Put
from leasehold.server.app import LeaseholdServer
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import check_directory
from leasehold.store.restoring import restore

KEY: Final = b"lock/4d"
LEASE: Final = 77
TTL_S: Final = 0.8
"""More than a stall of the event loop adds to lease time, and than a slow disk takes to sync."""

RESOLVE_S: Final = 1.0


async def _first_run(directory: Path) -> None:
    async with LeaseholdServer(directory) as server:
        await server.start("127.0.0.1", 0)
        server.store.apply(Grant(LEASE, TTL_S))
        server.store.apply(Put(KEY, b"x", LEASE))
        await server.runtime.until_durable(server.store.position)


def test_leases_do_not_age_while_the_name_of_an_address_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    asyncio.run(_first_run(directory))
    slow_start_keeps_leases(directory, monkeypatch)
    report = check_directory(directory)
    assert report.revision == back_up_directory(directory, tmp_path / "backup").revision
    restore(tmp_path / "backup", tmp_path / "restored")

    async def third_run() -> None:
        async with LeaseholdServer(directory) as server:
            assert server.store.revision == report.revision

    asyncio.run(third_run())


def slow_start_keeps_leases(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with a slow lookup, and write something."""

    async def slow(address: TcpAddress, *args: Any) -> list[Resolved]:
        monkeypatch.undo()
        await asyncio.sleep(RESOLVE_S)
        return await resolve(address, *args)

    async def second_run() -> None:
        async with LeaseholdServer(directory) as server:
            await server.start_on([TcpAddress("localhost", 0)])
            assert server.store.leases.table.find(LEASE) is not None
            assert server.store.keyspace.get(KEY) is not None
            server.store.apply(Put(b"other", b"y"))
            await server.runtime.until_durable(server.store.position)

    from leasehold.basics.sockets import resolve  # noqa: PLC0415  the real one

    monkeypatch.setattr("leasehold.serving.listening.resolve", slow)
    asyncio.run(second_run())
