"""A server that does not answer: without a time limit a recipe waits for as long as it takes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.faulty_engine import Participant, World, play

TTL_S = 10.0
SILENT_S = 10 * TTL_S
WITHIN_S = 5.0

Acquire = Callable[[Participant, float | None], Awaitable[Any]]

RECIPES: dict[str, Acquire] = {
    "lock": lambda client, timeout: client.lock("x").acquire(timeout=timeout),
    "read": lambda client, timeout: client.rwlock("x").read(timeout),
    "write": lambda client, timeout: client.rwlock("x").write(timeout),
    "semaphore": lambda client, timeout: client.semaphore("x", 1).acquire(timeout),
    "election": lambda client, timeout: client.election("x").campaign("me", timeout),
    "barrier": lambda client, timeout: client.barrier("x", 1).wait(timeout),
}


async def _acquire(acquire: Acquire, client: Participant, timeout: float | None) -> Any:  # noqa: ASYNC109
    return await acquire(client, timeout)


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_waits_for_a_silent_server_as_long_as_it_takes(recipe: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        client.engine.is_cut_off = True
        waiting = asyncio.ensure_future(_acquire(RECIPES[recipe], client, None))
        await asyncio.sleep(SILENT_S)
        assert not waiting.done()
        client.engine.is_cut_off = False
        async with asyncio.timeout(SILENT_S):
            await waiting

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_time_limit_ends_it_with_a_text(recipe: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        client.engine.is_cut_off = True
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match=r"\w+ \w+"):
            await _acquire(RECIPES[recipe], client, WITHIN_S)
        waited_s = asyncio.get_running_loop().time() - began_at
        assert WITHIN_S <= waited_s < WITHIN_S + 2 * TTL_S
        client.engine.is_cut_off = False
        await world.until(lambda: not world.pairs(b"x/"))

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_waiter_that_is_cancelled_leaves_nothing_behind(recipe: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        client.engine.is_cut_off = True
        waiting = asyncio.ensure_future(_acquire(RECIPES[recipe], client, None))
        await asyncio.sleep(3 * TTL_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        client.engine.is_cut_off = False
        await asyncio.sleep(3 * TTL_S)
        assert not world.pairs(b"x/")

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_caller_that_only_asks_a_silent_server_logs_no_error(
    recipe: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        client.engine.is_cut_off = True
        with pytest.raises(TimeoutError, match=r"\w+ \w+"):
            await _acquire(RECIPES[recipe], client, 0)
        await asyncio.sleep(TTL_S)
        client.engine.is_cut_off = False
        await world.until(lambda: not world.pairs(b"x/"))

    play(scene)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
