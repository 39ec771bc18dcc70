"""Blocks that another task exits: of async generators that are dropped, and of stacks."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from leasehold.errors import LockLost
from tests.support.faulty_engine import World, play


def test_a_dropped_generator_releases_its_own_place_of_a_semaphore() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("a").semaphore("x", 2)
        guards = []

        async def items() -> AsyncIterator[int]:
            async with semaphore as guard:
                guards.append(guard)
                yield 1

        dropped = items()
        await anext(dropped)
        async with semaphore as guard:
            del dropped
            gc.collect()
            await world.until(lambda: guards[0].is_released)
            guard.check()
        assert guard.is_released

    play(scene)


def test_a_dropped_generator_does_not_release_the_lock_of_another_block() -> None:
    async def scene(world: World) -> None:
        lock = world.client("a").lock("x")
        guards = []

        async def items() -> AsyncIterator[int]:
            with suppress(LockLost):
                async with lock as guard:
                    guards.append(guard)
                    yield 1

        dropped = items()
        await anext(dropped)
        await world.engine.delete(guards[0].key)
        await guards[0].lost.wait()
        async with lock as guard:
            del dropped
            gc.collect()
            await world.until(lambda: guards[0].is_released)
            guard.check()
        assert guard.is_released

    play(scene)


@pytest.mark.parametrize("order", ["as entered", "reversed"])
def test_stacks_of_blocks_release_those_of_their_tasks(order: str) -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("a").semaphore("x", 2)
        is_left = [asyncio.Event(), asyncio.Event()]

        async def work(number: int) -> None:
            async with AsyncExitStack() as stack:
                guard = await stack.enter_async_context(semaphore)
                await is_left[number].wait()
                guard.check()
            assert guard.is_released

        tasks = []
        for number in range(2):
            tasks.append(asyncio.ensure_future(work(number)))
            await world.until(lambda: len(world.pairs(b"x/semaphore/")) == len(tasks))
        for number in (0, 1) if order == "as entered" else (1, 0):
            is_left[number].set()
            await tasks[number]

    play(scene)


def test_a_stack_that_another_task_closes_releases_its_own_guard() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("a").semaphore("x", 3)
        stack, is_left = AsyncExitStack(), asyncio.Event()
        own = await asyncio.create_task(stack.enter_async_context(semaphore))

        async def work() -> None:
            async with semaphore as guard:
                await is_left.wait()
                guard.check()

        working = asyncio.create_task(work())
        await world.until(lambda: len(world.pairs(b"x/semaphore/")) == 2)
        await asyncio.create_task(stack.aclose())
        assert own.is_released
        is_left.set()
        await working

    play(scene)


def test_stacks_of_one_task_are_closed_in_any_order() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("a").semaphore("x", 2)
        stacks = [AsyncExitStack(), AsyncExitStack()]
        guards = [await stack.enter_async_context(semaphore) for stack in stacks]
        await stacks[0].aclose()
        assert [guard.is_released for guard in guards] == [True, False]
        await stacks[1].aclose()
        assert guards[1].is_released

    play(scene)


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_a_loss_is_reported_by_the_block_that_it_concerns(kind: str) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        handle: Any = a.lock("x") if kind == "lock" else a.semaphore("x", 2)
        stacks = [AsyncExitStack(), AsyncExitStack()]
        guards = [await asyncio.create_task(stacks[0].enter_async_context(handle))]
        await world.engine.delete(guards[0].key)
        await guards[0].lost.wait()
        guards.append(await asyncio.create_task(stacks[1].enter_async_context(handle)))
        await asyncio.create_task(stacks[1].aclose())
        assert guards[1].is_released
        with pytest.raises(LockLost):
            await asyncio.create_task(stacks[0].aclose())

    play(scene)


def test_a_reentrant_lock_of_a_stack_is_acquired_again() -> None:
    async def scene(world: World) -> None:
        lock = world.client("a").lock("x", reentrant=True)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(lock)
            async with lock as second:
                assert second.token == first.token
            first.check()
        assert first.is_released

    play(scene)


def test_an_exit_that_may_belong_to_several_blocks_is_refused() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("a").semaphore("x", 2)

        async def enter() -> Any:
            return await semaphore.__aenter__()

        guards = [await asyncio.create_task(enter()) for _ in range(2)]
        with pytest.raises(RuntimeError, match="use its guard as the context manager"):
            await semaphore.__aexit__(None, None, None)
        for guard in guards:
            guard.check()
            guard.release()

    play(scene)
