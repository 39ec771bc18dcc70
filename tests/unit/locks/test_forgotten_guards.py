"""A guard that is garbage-collected without being released is reported, and released later."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import leasehold
from leasehold import LockDenied
from tests.support.asynchronous import asynchronous
from tests.support.faulty_engine import Participant, World, play

TTL_S = 10.0
FORGOTTEN = "a guard of 'x' was garbage-collected without being released"

Acquire = Callable[[Participant], Awaitable[Any]]

RECIPES: dict[str, Acquire] = {
    "lock": lambda client: client.lock("x").acquire(),
    "told": lambda client: client.lock("x", on_loss=lambda _guard, _error: None).acquire(),
    "read": lambda client: client.rwlock("x").read(),
    "write": lambda client: client.rwlock("x").write(),
    "semaphore": lambda client: client.semaphore("x", 1).acquire(),
    "election": lambda client: client.election("x").campaign("me"),
}


async def _others_wait(world: World, recipe: str) -> "asyncio.Task[Any]":
    """Have another client wait for what the first one has."""
    other = world.client("other", session_ttl=TTL_S)

    async def wait() -> Any:
        acquire = RECIPES["write" if recipe == "read" else recipe]
        return await acquire(other)

    waiting = asyncio.ensure_future(wait())
    await world.until(lambda: len(world.pairs(b"x/")) == 2)
    return waiting


async def _collected() -> None:
    """Collect what was forgotten, and let the loop take what finalizers have posted."""
    gc.collect()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_forgotten_guard_is_reported_and_released_one_session_ttl_later(
    recipe: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        guard = await RECIPES[recipe](client)
        waiting = await _others_wait(world, recipe)
        del guard
        with pytest.warns(ResourceWarning, match=FORGOTTEN):
            await _collected()
        assert f"{FORGOTTEN}; it is released in 10 s" in caplog.messages
        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done(), "the work may still be running"
        async with asyncio.timeout(1.0):
            other = await waiting
        other.release()
        await client.close()

    with caplog.at_level(logging.WARNING):
        play(scene)


def test_a_guard_whose_handle_is_alive_is_not_forgotten() -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        lock = client.lock("x")
        await lock.acquire()
        gc.collect()
        await asyncio.sleep(3 * TTL_S)
        with pytest.raises(LockDenied):
            await world.client("other").lock("x").acquire(timeout=0)
        lock.release()
        await client.close()

    play(scene)


def test_a_guard_that_was_released_lost_or_closed_is_not_reported() -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        for recipe, acquire in RECIPES.items():
            guard = await acquire(world.client(recipe))
            guard.release()
            del guard
        lost = await client.lock("lost").acquire()
        client.engine.is_cut_off = True
        await asyncio.sleep(2 * TTL_S)
        del lost
        client.engine.is_cut_off = False
        left_open = await client.lock("open").acquire()
        await client.close()
        del left_open
        gc.collect()
        await asyncio.sleep(1.0)

    play(scene)  # warnings are errors


def test_a_nested_guard_that_is_forgotten_leaves_the_outer_one() -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=TTL_S)
        outer = await client.lock("x").acquire()
        inner = outer.again()
        del inner
        with pytest.warns(ResourceWarning, match=FORGOTTEN):
            await _collected()
        await asyncio.sleep(2 * TTL_S)
        outer.check()
        outer.release()
        await client.close()

    play(scene)


@asynchronous
async def test_a_finalizer_may_run_in_another_thread() -> None:
    async with leasehold.open("memory:") as client:
        guards = [await client.lock("x").acquire()]
        with pytest.warns(ResourceWarning, match=FORGOTTEN):
            await _cleared_elsewhere(guards)


async def _cleared_elsewhere(guards: list[Any]) -> None:
    await asyncio.to_thread(guards.clear)
    await asyncio.sleep(0.01)


def test_a_finalizer_after_the_loop_was_closed_does_nothing() -> None:
    async def acquire() -> Any:
        client = await leasehold.open("memory:")
        return await client.lock("x").acquire()

    guard = asyncio.run(acquire())
    del guard
    gc.collect()


@asynchronous
async def test_a_lock_has_one_holder_after_a_task_was_collected_in_its_block() -> None:
    """Finalizers of all objects of a cycle run: two of them must not give the lock back twice."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with leasehold.open("memory:") as client:
        is_entered = asyncio.Event()

        async def work() -> None:
            async with client.lock("x"):
                is_entered.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(work())
        await is_entered.wait()
        del task
        await _collected()
        async with client.lock("x", timeout=TTL_S):
            with pytest.raises(LockDenied):
                await client.lock("x").acquire(timeout=0)
