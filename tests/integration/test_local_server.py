"""A real server for tests, and what it does to its clients."""

import asyncio
import socket
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import leasehold
from leasehold.server.app import LeaseholdServer
from leasehold.serving import grpc_server
from leasehold.testing import LocalServer
from tests.support.cost import cost

DEADLINE_S = 20.0
TERMS_S = (0.3, 3.0)
"""Of a lease that is to end soon; the longer one is for a starved test."""
START_COST = 5


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def test_it_serves_whoever_connects(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as one, leasehold.connect(server.endpoint) as two:
            await one.kv.put("greeting", "hello")
            found = await two.kv.get("greeting")
            assert found is not None
            assert found.text == "hello"

    _run(use())


def test_each_one_is_empty_and_has_a_port_of_its_own(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as client:
            await client.kv.put("greeting", "hello")
        with LocalServer() as other:
            assert other.endpoint != server.endpoint
            async with other.connect() as client:
                assert await client.kv.get("greeting") is None

    _run(use())


def test_it_starts_and_ends_within_50_ms() -> None:
    """50 ms of an idle processor are 5 units of cost."""

    def start_and_end() -> None:
        with LocalServer():
            pass

    assert cost(start_and_end, times=10) < START_COST


def test_a_stopped_server_refuses_connections_and_comes_back_with_its_keys(
    server: LocalServer,
) -> None:
    async def use() -> None:
        async with server.connect() as client:
            await client.kv.put("greeting", "hello")
            with server.outage():
                with pytest.raises(leasehold.ConnectFailed):
                    await server.connect()
                with pytest.raises(TimeoutError):
                    await client.kv.get("greeting", timeout=0.2)
            assert await client.kv.get("greeting") is not None

    _run(use())


def test_a_stopped_server_keeps_its_port(server: LocalServer) -> None:
    with server.outage(), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", server.port))


def test_leases_end_at_their_time_while_a_server_is_stopped(server: LocalServer) -> None:
    async def put_with_a_short_lease(client: leasehold.Client) -> leasehold.HeldLease:
        for term_s in TERMS_S:
            lease = await client.lease(term_s)
            try:
                await client.kv.put("members/1", "here", lease=lease)
            except (leasehold.LeaseLost, leasehold.UnknownLease):
                continue
            return lease
        pytest.fail("each lease was over before the put")

    async def use() -> None:
        async with server.connect() as client, client.kv.watch("members/1") as watch:
            async with await put_with_a_short_lease(client) as lease:
                assert not (await anext(watch)).events[0].is_delete
                with server.outage():
                    await lease.lost.wait()
                    assert not lease.is_held
            assert (await anext(watch)).events[0].is_delete

    _run(use())


def test_no_lease_ages_while_a_server_is_frozen(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as client:
            number = (await client.engine.grant(6.0)).id
            with server.frozen():
                with pytest.raises(TimeoutError):
                    await client.kv.get("greeting", timeout=0.2)
                await asyncio.sleep(7.0)  # longer than its term
            assert (await client.lease_info(number)).id == number

    _run(use())


def test_connections_that_were_cut_come_back_by_themselves(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as client, client.kv.watch("jobs/", prefix=True) as watch:
            server.hang_up()
            async with server.connect() as other:
                put = await other.kv.put("jobs/1", "todo")
            assert (await anext(watch)).revision == put.revision

    _run(use())


def test_a_wiped_server_has_lost_its_history(server: LocalServer) -> None:
    async def use() -> None:
        async with server.connect() as client:
            await client.kv.put("greeting", "hello")
            server.wipe()
            with pytest.raises(leasehold.HistoryLost):
                await client.kv.get("greeting")
        async with server.connect() as client:
            assert await client.kv.get("greeting") is None

    _run(use())


def test_it_ends_at_once_whoever_is_still_there(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "DRAIN_CALLS_S", 2 * DEADLINE_S)

    async def use() -> None:
        client = await server.connect()
        watch = client.kv.watch("jobs/", prefix=True)
        await watch.ready()
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < DEADLINE_S  # an orderly end would wait for the watch
        await client.close()

    _run(use())


def test_it_ends_while_it_is_stopped_or_frozen() -> None:
    with LocalServer() as server:
        server.stop()
    with LocalServer() as server, server.frozen():
        server.close()


def test_closing_twice_does_nothing(server: LocalServer) -> None:
    server.close()
    server.close()
    assert "closed" in repr(server)


def test_a_closed_server_says_so(server: LocalServer) -> None:
    server.close()
    with pytest.raises(RuntimeError, match="is closed: make another one"):
        server.start()


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: LeaseholdServer, host: str, port: int) -> None:
        raise OSError(f"no {host}:{port} here")

    monkeypatch.setattr(LeaseholdServer, "start", fail)
    with pytest.raises(OSError, match=r"no 127\.0\.0\.1:\d+ here"):
        LocalServer()
