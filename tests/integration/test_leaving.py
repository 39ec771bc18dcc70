"""A server that is out of reach for a while, and has everything when it is back."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import leasehold
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from tests.support.servers import free_port

HOST = "127.0.0.1"
DEADLINE_S = 60.0


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def test_it_comes_back_where_it_was_with_what_it_had() -> None:
    async def leave_and_return() -> None:
        async with LeaseholdServer(Settings(directory=None)) as server:
            port = await server.start(HOST, free_port())
            async with leasehold.connect(f"{HOST}:{port}") as client:
                await client.kv.put("greeting", "hello")
                await server.leave()
                with pytest.raises(leasehold.ConnectFailed):
                    await leasehold.connect(f"{HOST}:{port}")
                assert await server.start(HOST, port) == port
                found = await client.kv.get("greeting")
                assert found is not None
                assert found.text == "hello"

    _run(leave_and_return())


def test_commits_go_on_and_are_not_begun_anew() -> None:
    async def leave_and_return() -> None:
        async with LeaseholdServer(Settings(directory=None)) as server:
            port = await server.start(HOST, free_port())
            costs_s = server.runtime.commit_costs_s
            await server.leave()
            await server.start(HOST, port)
            assert server.runtime.commit_costs_s is costs_s

    _run(leave_and_return())


def test_leaving_twice_does_nothing() -> None:
    async def leave() -> None:
        async with LeaseholdServer(Settings(directory=None)) as server:
            await server.start(HOST, 0)
            await server.leave()
            await server.leave()

    _run(leave())
