"""Semaphores: so many at a time, and all agree on how many that is."""

import asyncio
from typing import Any

import pytest

from leasehold import LockDenied
from leasehold.basics.pending import Pending
from leasehold.locks.queued_locks import QueueGuard
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play


async def acquired(pending: Pending[QueueGuard]) -> QueueGuard:
    return await pending


def test_so_many_are_let_in_at_a_time_first_come_first_served() -> None:
    async def scene(world: World) -> None:
        order: list[int] = []
        inside: set[int] = set()

        async def work(client: Participant, number: int) -> None:
            async with client.semaphore("pool", limit=3):
                order.append(number)
                inside.add(number)
                assert len(inside) <= 3
                await asyncio.sleep(1.0 + number % 2)
                inside.remove(number)

        clients = [world.client(name) for name in "ab"]
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(work(clients[number % 2], number))
                await asyncio.sleep(0.02)
        assert order == list(range(12))

    play(scene)


def test_another_limit_is_refused_and_names_both_and_who_uses_it() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.semaphore("pool", limit=3).acquire()
        for limit in (1, 2, 4, 30, 33):
            for timeout in (None, 0):
                with pytest.raises(ValueError, match=f"limit=3 by a.*limit={limit}"):
                    await b.semaphore("pool", limit).acquire(timeout)
        assert len(world.pairs()) == 1, "it did not even stand in line"
        (await b.semaphore("pool", limit=3).acquire()).release()
        guard.release()
        await world.until(lambda: not world.pairs())
        async with b.semaphore("pool", limit=30) as other:
            with pytest.raises(ValueError, match=r"limit=30 by b.*limit=3"):
                await a.semaphore("pool", limit=3).acquire()
            other.check()

    play(scene)


def test_of_two_limits_at_the_same_time_one_is_used() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(name) for name in "abcd"]
        waits = [
            asyncio.ensure_future(acquired(client.semaphore("pool", 1 + number % 2).acquire()))
            for number, client in enumerate(clients)
        ]
        await asyncio.sleep(5.0)
        refused = [wait for wait in waits if wait.done() and wait.exception() is not None]
        assert {type(wait.exception()) for wait in refused} == {ValueError}
        assert len(refused) == 2
        assert len({pair.key.split(b"/")[2][:2] for pair in world.pairs()}) == 1
        for wait in waits:
            if wait not in refused:
                (await wait).release()

    for seed in range(5):
        play(scene, seed)


def test_a_handle_may_be_shared_by_tasks() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("me").semaphore("pool", limit=3)
        guards: list[QueueGuard] = []

        async def work(seconds: float) -> None:
            async with semaphore as guard:
                guards.append(guard)
                await asyncio.sleep(seconds)
                guard.check()
                async with semaphore as inner:
                    inner.check()
                guard.check()

        await asyncio.gather(work(3.0), work(1.0))
        assert not any(guard.is_held for guard in guards)

    play(scene)


def test_a_block_may_be_left_by_another_task_than_has_entered_it() -> None:
    async def scene(world: World) -> None:
        semaphore = world.client("me").semaphore("pool", limit=2)
        guard = await asyncio.ensure_future(semaphore.__aenter__())
        await semaphore.__aexit__(None, None, None)
        assert not guard.is_held

    play(scene)


def test_the_timeout_of_a_handle_is_for_all_its_acquisitions_unless_told_otherwise() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.semaphore("pool", limit=1).acquire()
        semaphore = b.semaphore("pool", limit=1, timeout=2.0)
        for pending, waited_s in ((semaphore.acquire(), 2.0), (semaphore.acquire(0.5), 0.5)):
            with pytest.raises(LockDenied) as denied:
                await pending
            assert (denied.value.holder, denied.value.waited_s) == ("a", waited_s)
        with pytest.raises(LockDenied):
            await semaphore.__aenter__()
        waiting = asyncio.ensure_future(acquired(semaphore.acquire(timeout=200.0)))
        await asyncio.sleep(100.0)
        guard.release()
        (await waiting).release()

    play(scene)


@pytest.mark.parametrize("fault", LOSSES)
def test_a_lost_answer_never_costs_a_permit(fault: Fault) -> None:
    for number in range(1, 9):

        async def scene(world: World, number: int = number) -> None:
            clients = [world.client(name) for name in "abc"]
            for client in clients:
                client.engine.trouble_with("txn", number, fault)
            inside = 0

            async def work(client: Participant) -> None:
                nonlocal inside
                for _ in range(3):
                    async with client.semaphore("pool", limit=2):
                        inside += 1
                        assert inside <= 2
                        await asyncio.sleep(0.1)
                        inside -= 1

            await asyncio.gather(*map(work, clients))
            await world.until(lambda: not world.pairs())

        play(scene)


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (None, TypeError)]
)
def test_a_wrong_limit_is_refused(limit: Any, error: type[Exception]) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(error, match="limit"):
            world.client("me").semaphore("pool", limit=limit)

    play(scene)
