"""A test server can cut one client off and let it back, over the real transport."""

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

import leasehold
import leasehold.sync
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous
from tests.support.asynchronous import until as soon
from tests.support.scripts import until

SHORT_TTL_S = 5.0
"""Not so short that a stall of the process ends a lease before its key is put."""


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@asynchronous
async def test_a_client_that_is_cut_off_hears_nothing_until_it_is_let_back(
    server: LocalServer,
) -> None:
    async with server.connect() as client, server.connect() as other:
        server.disconnect(client)
        with pytest.raises(TimeoutError):
            await client.kv.get("greeting", timeout=0.1)
        await other.kv.put("greeting", "hello", timeout=5.0)
        asking = asyncio.create_task(client.kv.get("greeting"))
        server.reconnect(client)
        found = await asking
        assert found is not None
        assert found.text == "hello"


def test_a_sync_client_may_be_cut_off_as_well(server: LocalServer) -> None:
    with (
        server.wire() as wire,
        leasehold.sync.connect(wire.endpoint) as client,
        leasehold.sync.connect(server.endpoint) as other,
    ):
        server.disconnect(client)
        with pytest.raises(TimeoutError):
            client.kv.get("greeting", timeout=0.1)
        other.kv.put("greeting", "hello", timeout=5.0)
        server.reconnect(client)
        assert client.kv.get("greeting") is not None


@asynchronous
async def test_a_client_is_let_back_when_the_seconds_are_over(server: LocalServer) -> None:
    async with server.connect() as client:
        began = time.monotonic()
        server.disconnect(client, 0.3)
        await client.kv.put("greeting", "hello")
        assert time.monotonic() - began >= 0.3


@asynchronous
async def test_a_partition_that_is_shorter_than_the_lease_does_no_harm(server: LocalServer) -> None:
    async with server.connect() as client, client.lease(10.0) as lease:
        await client.kv.put("members/1", "here", lease=lease)
        server.disconnect(client, 0.3)
        found = await client.kv.get("members/1")
        assert found is not None
        assert lease.is_held
        assert not lease.lost.is_set()


@asynchronous
async def test_leases_of_a_client_that_is_cut_off_end_at_their_time_and_nobody_elses(
    server: LocalServer,
) -> None:
    async with (
        server.connect() as client,
        server.connect() as other,
        other.kv.watch("members/", prefix=True) as watch,
        other.lease(10.0) as others,
    ):
        await other.kv.put("members/2", "here", lease=others)
        lease = await client.lease(SHORT_TTL_S)
        await client.kv.put("members/1", "here", lease=lease)
        server.disconnect(client)
        events = [(await anext(watch)).events[0] for _ in range(3)]
        assert [(event.key, event.is_delete) for event in events] == [
            (b"members/2", False),
            (b"members/1", False),
            (b"members/1", True),
        ]
        assert not lease.is_held
        assert others.is_held
        server.reconnect(client)
        assert await client.kv.get("members/1") is None
        assert await client.kv.get("members/2") is not None


@asynchronous
async def test_what_a_client_asked_while_it_was_cut_off_is_done_late(server: LocalServer) -> None:
    async with (
        server.connect() as client,
        server.connect() as other,
        other.kv.watch("greeting") as watch,
    ):
        await watch.ready()
        server.disconnect(client)
        putting = asyncio.create_task(client.kv.put("greeting", "late"))
        await soon(lambda: server.wire_of(client).held_bytes("to_server") > 0)
        assert await other.kv.get("greeting") is None
        server.reconnect(client)
        assert (await anext(watch)).revision == (await putting).revision


@asynchronous
async def test_with_a_reset_calls_under_way_are_lost_and_new_ones_work(server: LocalServer) -> None:
    async with server.connect() as client:
        server.disconnect(client)
        putting = asyncio.create_task(client.kv.put("greeting", "lost"))
        await soon(lambda: server.wire_of(client).held_bytes("to_server") > 0)
        server.reconnect(client, reset=True)
        with pytest.raises(leasehold.ConnectionLost):
            await putting
        assert await client.kv.get("greeting") is None
        server.disconnect(client)
        put = asyncio.create_task(_put(client, "lost"))
        (wire,) = server._wires
        await soon(lambda: wire.held_bytes() > 0)
        server.disconnect(client, 0.2, reset=True)
        with pytest.raises(leasehold.ConnectionLost):
            await put
        assert await client.kv.get("greeting") is None


@asynchronous
async def test_a_new_client_on_a_wire_that_is_cut_gets_no_answer(server: LocalServer) -> None:
    with server.wire() as wire:
        wire.cut()
        with pytest.raises(TimeoutError):
            await leasehold.connect(wire.endpoint, timeout=0.1)
        connecting = asyncio.create_task(_connected(wire.endpoint))
        await soon(lambda: wire.held_bytes() > 0)
        wire.mend()
        await connecting


async def _put(client: leasehold.Client, value: str) -> None:
    await client.kv.put("greeting", value)


async def _connected(endpoint: str) -> None:
    async with leasehold.connect(endpoint) as client:
        await client.kv.put("greeting", "hello")


@asynchronous
async def test_each_client_has_a_wire_of_its_own(server: LocalServer) -> None:
    pending = server.connect()
    one, two = await pending, await pending
    server.disconnect(two)
    await one.kv.put("greeting", "hello", timeout=5.0)
    server.reconnect(two)
    await one.close()
    await two.close()


@asynchronous
async def test_one_may_be_cut_off_from_a_server_that_is_frozen_or_stopped(
    server: LocalServer,
) -> None:
    async with server.connect() as client:
        with server.frozen():
            server.disconnect(client)
        with pytest.raises(TimeoutError):
            await client.kv.get("greeting", timeout=0.1)
        with server.outage():
            server.reconnect(client)
        assert await client.kv.get("greeting") is None


def test_wires_go_with_their_clients(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as client:
            await client.kv.put("greeting", "hello")
        with server.outage(), pytest.raises(leasehold.ConnectFailed):
            await server.connect()

    asyncio.run(use())
    gc.collect()
    until(lambda: all(wire.is_closed for wire in server._wires))
    with server.wire() as wire:
        assert server._wires == [wire]


@asynchronous
async def test_who_cannot_be_cut_off_is_told_why(server: LocalServer) -> None:
    server.wire()
    async with leasehold.connect(server.endpoint) as client:
        with pytest.raises(
            ValueError, match=r"127\.0\.0\.1:\d+ does not use a wire of .*: make the client with"
        ):
            server.disconnect(client, 1.0)
        with pytest.raises(ValueError, match="does not use a wire"):
            server.reconnect(client)
    async with leasehold.open("memory:") as client:
        with pytest.raises(ValueError, match=r"made with open\(\), not with connect\(\)"):
            server.disconnect(client, 1.0)
    with pytest.raises(TypeError, match="must be a leasehold client"):
        server.disconnect(None, 1.0)  # type: ignore[arg-type]
    async with server.connect() as client:
        with pytest.raises(ValueError, match="seconds must not be negative"):
            server.disconnect(client, -1.0)
        with LocalServer() as another, pytest.raises(ValueError, match="does not use a wire"):
            another.disconnect(client, 1.0)
    server.close()
    with pytest.raises(RuntimeError, match="is closed: make another one"):
        server.wire()
