"""Blocks in async generators that their program drops: another task closes those."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

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
