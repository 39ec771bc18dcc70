"""A client, an engine and a manager refuse calls from a second event loop, without side effects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import leasehold
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous

REFUSED: Final = "belongs to the event loop that made it"
Stray = Callable[[leasehold.Client], Coroutine[Any, Any, object]]


async def _enter(pending: Any) -> None:
    async with pending:
        pytest.fail("it belongs to another loop")


async def _watch(client: leasehold.Client) -> None:
    async for _ in client.kv.watch("k"):
        pytest.fail("it belongs to another loop")


async def _observe(client: leasehold.Client) -> None:
    async for _ in client.election("e").observe():
        pytest.fail("it belongs to another loop")


STRAYS: Final[dict[str, Stray]] = {
    "get": lambda client: client.kv.get("k"),
    "put": lambda client: client.kv.put("k", "stray"),
    "delete": lambda client: client.kv.delete("k"),
    "watch": _watch,
    "lease": lambda client: _enter(client.lease(5)),
    "leases": lambda client: client.leases(),
    "revoke": lambda client: client.revoke(7),
    "keep": lambda client: _enter(client.keep(7)),
    "lock": lambda client: client.lock("other").acquire(timeout=2),
    "lock in a block": lambda client: _enter(client.lock("other")),
    "cached lock": lambda client: client.lock("cached").acquire(),
    "cached lock in a block": lambda client: _enter(client.lock("cached")),
    "holder": lambda client: client.lock("other").holder(),
    "count": lambda client: client.count_acquisitions("mine"),
    "reader": lambda client: _enter(client.rwlock("other").read(timeout=2)),
    "writer": lambda client: _enter(client.rwlock("other").write(timeout=2)),
    "semaphore": lambda client: client.semaphore("other", 2).acquire(timeout=2),
    "barrier": lambda client: client.barrier("other", 2).wait(timeout=2),
    "campaign": lambda client: _enter(client.election("other").campaign("v", timeout=2)),
    "leader": lambda client: client.election("other").leader(),
    "observe": _observe,
    "permit": lambda client: client.permits.grant("anna", "house", ["enter"], ttl=5),
    "permits": lambda client: client.permits.list(),
    "close": lambda client: client.close(),
    "engine: range": lambda client: client.engine.range(b"k"),
    "engine: put": lambda client: client.engine.put(b"k", b"stray"),
    "engine: grant": lambda client: client.engine.grant(5),
    "engine: renew": lambda client: client.engine.renew(7),
    "engine: close": lambda client: client.engine.close(),
}


@asynccontextmanager
async def _client(kind: str) -> AsyncIterator[leasehold.Client]:
    if kind == "embedded":
        async with leasehold.open("memory:") as client:
            yield client
    else:
        with LocalServer() as server:
            async with server.connect() as client:
                yield client


def _elsewhere(call: Coroutine[Any, Any, object]) -> None:
    async def main() -> None:
        await asyncio.wait_for(call, 20)

    asyncio.run(main())


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS.keys())
@pytest.mark.parametrize("kind", ["embedded", "remote"])
@asynchronous
async def test_a_call_from_a_second_loop_is_refused_and_has_no_effect(
    kind: str, stray: Stray
) -> None:
    async with _client(kind) as client:
        await client.kv.put("k", "mine")
        (await client.lock("cached").acquire()).release()
        guard = await client.lock("mine").acquire()
        async with client.lease(30) as lease:
            before = await client.leases()
            with pytest.raises(RuntimeError, match=REFUSED):
                await asyncio.to_thread(_elsewhere, stray(client))
            guard.check()
            lease.check()
            pair = await client.kv.get("k")
            assert pair is not None
            assert pair.value == b"mine"
            assert [each.id for each in await client.leases()] == [each.id for each in before]
            async with client.lock("another"), client.rwlock("another").write():
                await client.kv.put("k", "still")
        guard.release()


@pytest.mark.parametrize("kind", ["embedded", "remote"])
@asynchronous
async def test_what_a_client_has_given_is_refused_in_a_second_loop(kind: str) -> None:
    async with _client(kind) as client:
        lease, watch = await client.lease(30), client.kv.watch("k")

        async def read() -> None:
            await anext(aiter(watch))

        strays: list[Coroutine[Any, Any, object]] = [lease.end(), lease.renew(), read()]
        for stray in strays:
            with pytest.raises(RuntimeError, match=REFUSED):
                await asyncio.to_thread(_elsewhere, stray)
        lease.check()
        await lease.renew()


async def _call(method: Callable[[], object]) -> None:
    """Call a plain method in a running loop."""
    method()


@pytest.mark.parametrize("kind", ["embedded", "remote"])
@asynchronous
async def test_a_watch_is_neither_cancelled_nor_changed_by_a_second_loop(kind: str) -> None:
    async with _client(kind) as client, client.kv.watch("k") as watch:
        strays = [watch.cancel, watch.request_progress]
        for stray in strays:
            with pytest.raises(RuntimeError, match=REFUSED):
                await asyncio.to_thread(_elsewhere, _call(stray))
        for wait in (watch.ready(), watch.__aenter__()):
            with pytest.raises(RuntimeError, match=REFUSED):
                await asyncio.to_thread(_elsewhere, wait)
        await client.kv.put("k", "v")
        async with asyncio.timeout(20):
            told = await anext(aiter(watch))
        assert [event.key for event in told.events] == [b"k"]


@pytest.mark.parametrize("kind", ["embedded", "remote"])
@asynchronous
async def test_what_is_held_is_not_changed_by_a_second_loop(kind: str) -> None:
    async with _client(kind) as client:
        lease = await client.lease(30)
        leadership = await client.election("e").campaign("me")
        observation = client.election("e").observe()
        await anext(observation)
        strays: list[Coroutine[Any, Any, object]] = [
            _call(lease.release),
            lease.cancel(),
            leadership.proclaim("stray"),
            _call(observation.cancel),
            client.lease_info(lease),
            client.kv.txn().then(leasehold.Key("k").put("stray")).commit(),
            client.permits.check("anna", "house", "enter"),
            client.permits.get("anna", "house"),
            client.permits.revoke("anna", "house"),
        ]
        for stray in strays:
            with pytest.raises(RuntimeError, match=REFUSED):
                await asyncio.to_thread(_elsewhere, stray)
        lease.check()
        await leadership.proclaim("still")
        async with asyncio.timeout(20):
            assert (await anext(observation)).value == b"still"
        leadership.release()


@pytest.mark.parametrize("kind", ["embedded", "remote"])
@asynchronous
async def test_a_guard_may_be_released_in_a_second_loop(kind: str) -> None:
    async with _client(kind) as client:
        guards: list[Any] = [
            await client.lock("x", cache=False).acquire(),
            await client.rwlock("y").write(),
        ]
        for guard in guards:
            await asyncio.to_thread(_elsewhere, _call(guard.release))
        async with client.lock("x", timeout=20), client.rwlock("y").write(timeout=20):
            pass


def test_a_call_is_refused_also_while_the_first_loop_does_not_run() -> None:
    async def make(server: LocalServer) -> leasehold.Client:
        return await server.connect()

    with LocalServer() as server, asyncio.Runner() as first:
        client = first.run(make(server))
        with pytest.raises(RuntimeError, match=REFUSED):
            asyncio.run(client.kv.get("k"))
        first.run(client.kv.put("k", "mine"))
        first.run(client.close())


@asynchronous
async def test_a_renewal_manager_refuses_a_second_loop() -> None:
    async with _client("embedded") as client, leasehold.RenewalManager() as manager:
        lease = await client.lease(30)

        async def add() -> None:
            manager.renew_until(lease, leasehold.FOREVER)

        with pytest.raises(RuntimeError, match="this renewal manager belongs to the event loop"):
            await asyncio.to_thread(_elsewhere, add())
        assert len(manager) == 0
