"""What has gone wrong with other distributed locks in Python, and must not go wrong here.

Each test says what was reported of one or another of them: of etcd, ZooKeeper or Redis.
"""

import asyncio
import inspect
from typing import Any

import pytest

from leasehold import Closed, Guard, LockDenied, LockLost, SessionExpired
from leasehold.engine.interface import prefix_end
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play

TTL_S = 10.0


async def hold(client: Participant, seconds: float) -> None:
    async with client.lock("x"):
        await asyncio.sleep(seconds)


# Getting it.


def test_a_block_ran_although_the_lock_was_not_acquired() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            for wait_s in (0, 0.5):
                with pytest.raises(LockDenied):
                    async with b.lock("x", timeout=wait_s):
                        pytest.fail("it is not locked")

    play(scene)


def test_the_time_limit_of_the_lock_was_not_that_of_the_block() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        holding = asyncio.ensure_future(hold(a, 70.0))
        await world.in_line("x", 1)
        began = world.host.clock.monotonic()
        with pytest.raises(LockDenied):
            async with b.lock("x", timeout=60.0):
                pytest.fail("it is not locked")
        assert world.host.clock.monotonic() - began == pytest.approx(60.0, abs=0.1)
        async with b.lock("x"):  # without one it waits, longer than any other limit
            assert holding.done()
        await holding

    play(scene)


def test_a_block_was_given_nothing() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x") as guard:
            assert isinstance(guard, Guard)
            assert guard.is_held
        assert not guard.is_held

    play(scene)


def test_what_went_before_the_watch_began_was_waited_for_in_vain() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        async with b.lock("y"):
            pass
        b.engine.delay_s = 1.0
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)  # and b does not know it yet
        guard.release()
        await world.in_line("x", 1)
        async with asyncio.timeout(3.0):
            (await waiting).release()

    play(scene)


def test_each_failed_attempt_left_a_lease() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            for _ in range(50):
                with pytest.raises(LockDenied):
                    await b.lock("x").acquire(timeout=0)
            assert world.leases() == 2, "one for each client"

    play(scene)


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
def test_who_was_denied_stayed_in_line_if_its_connection_was_lost(fault: Fault) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with b.lock("y"):
            pass
        async with a.lock("x"):
            b.engine.trouble_with("txn", 3, fault)  # it is put in line, looks, and leaves
            with pytest.raises(LockDenied):
                await b.lock("x").acquire(timeout=0)
            await asyncio.sleep(5.0)
            assert world.keys("x") == 1
        async with a.lock("x", timeout=0):
            pass

    play(scene)


@pytest.mark.slow
def test_those_who_ask_again_and_again_kept_a_lock_from_ever_being_free() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=2.0)
        others = [world.client(f"c{n}", session_ttl=2.0) for n in range(3)]
        guard = await a.lock("x").acquire()

        async def try_on(client: Participant) -> None:
            while True:
                try:
                    (await client.lock("x").acquire(timeout=0)).release()
                except LockDenied:
                    await asyncio.sleep(0.1)
                else:
                    return

        trying = [asyncio.ensure_future(try_on(client)) for client in others]
        await asyncio.sleep(10.0)
        assert not any(each.done() for each in trying)
        guard.release()
        async with asyncio.timeout(5.0):
            await asyncio.gather(*trying)

    play(scene)


def test_a_waiter_whose_own_key_had_ended_waited_for_ever() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b", session_ttl=2.0)
        holding = asyncio.ensure_future(hold(a, 30.0))
        await world.in_line("x", 1)
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        again = asyncio.ensure_future(b.lock("x").acquire(ask_again=True))
        await world.in_line("x", 2)
        b.engine.is_cut_off = b.engine.is_deaf = True
        await world.in_line("x", 1)
        async with asyncio.timeout(1.0):
            with pytest.raises(SessionExpired):
                await waiting
        b.engine.is_cut_off = b.engine.is_deaf = False
        await holding
        async with asyncio.timeout(5.0):
            (await again).release()

    play(scene)


def test_waiters_were_disturbed_by_each_renewal_of_the_holder() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=2.0), world.client("b")
        async with a.lock("x"):
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await world.in_line("x", 2)
            await asyncio.sleep(0.1)
            b.engine.calls.clear()
            await asyncio.sleep(60.0)
            assert set(b.engine.calls) == {"renew"}
        (await waiting).release()

    play(scene)


def test_many_who_waited_in_one_process_were_an_error() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            waiting = [asyncio.ensure_future(hold(b, 0.001)) for _ in range(500)]
            await asyncio.sleep(0.5)
            assert world.keys("x") == 2, "they are one in line"
            assert world.leases() == 2
        await asyncio.gather(*waiting)

    play(scene)


def test_keys_that_somebody_has_tidied_up_broke_whoever_was_there() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        again = asyncio.ensure_future(b.lock("x").acquire(ask_again=True))
        await world.in_line("x", 2)
        await world.engine.delete(b"x/", prefix_end(b"x/"))
        with pytest.raises(SessionExpired):
            await waiting
        (await again).release()
        with pytest.raises(LockLost):
            guard.release()
        async with a.lock("x"):
            pass

    play(scene)


# Releasing it.


def test_a_release_that_was_cancelled_left_the_lock_for_good() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        for cache in (True, False):
            lock = a.lock("x", cache=cache)
            assert not inspect.iscoroutinefunction(lock.release), "there is nothing to cancel"

            async def leave(lock: Any = lock) -> None:
                async with lock:
                    await asyncio.sleep(1_000.0)

            task = asyncio.ensure_future(leave())
            await world.until(lambda: b"x" in a._locks.locks and world.keys("x") == 1)
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
            async with b.lock("x", timeout=1.0):
                pass

    play(scene)


def test_a_lock_stayed_if_its_block_had_failed() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        with pytest.raises(ZeroDivisionError):
            async with a.lock("x"):
                raise ZeroDivisionError
        async with b.lock("x", timeout=0):
            pass

    play(scene)


def test_an_error_of_the_release_hid_that_of_the_block() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")

        async def fail() -> None:
            async with a.lock("x") as guard:
                await world.engine.delete(guard.key)
                await guard.lost.wait()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()

    play(scene)


@pytest.mark.parametrize("cancel_on_loss", [False, True])
def test_an_error_of_the_release_hid_that_its_task_was_cancelled(cancel_on_loss: bool) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        is_lost = asyncio.Event()

        async def work() -> None:
            async with a.lock("x", cancel_on_loss=cancel_on_loss) as guard:
                try:
                    await asyncio.sleep(1_000.0)
                finally:  # cancelled; and only then it is lost
                    await world.engine.delete(guard.key)
                    await guard.lost.wait()
                    is_lost.set()

        task = asyncio.ensure_future(work())
        await world.in_line("x", 1)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert is_lost.is_set() or cancel_on_loss
        assert task.cancelled(), "whoever has cancelled it must see that"

    play(scene)


def test_a_block_that_lost_its_lock_ended_as_if_nothing_was() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        told: list[Guard] = []

        async def work() -> None:
            async with a.lock("x", on_loss=lambda guard, _: told.append(guard)) as guard:
                await world.engine.delete(guard.key)
                await guard.lost.wait()

        with pytest.raises(LockLost):
            await work()
        assert [guard.name for guard in told] == ["x"]

    play(scene)


def test_a_lock_that_was_released_before_its_holder_crashed_was_never_free() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=TTL_S), world.client("b")
        async with a.lock("x"):
            pass
        a.engine.is_cut_off = a.engine.is_deaf = True
        async with b.lock("x", timeout=TTL_S + 1.0):
            pass

    play(scene)


def test_a_holder_without_a_session_believed_to_have_the_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        guard = await a.lock("x").acquire()
        [lease] = await world.engine.leases()
        await world.engine.revoke(lease.id)
        await world.until(lambda: guard.lost, within_s=0.1)  # not only with the next renewal
        assert not guard.is_held
        with pytest.raises(LockLost):
            guard.check()

    play(scene)


# Handles.


def test_a_handle_was_of_no_use_after_a_cancelled_attempt() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        lock = b.lock("x")
        async with a.lock("x"):
            waiting = asyncio.ensure_future(lock.acquire())
            await world.in_line("x", 2)
            waiting.cancel()
            await asyncio.wait([waiting])
        (await lock.acquire()).release()
        (await lock.acquire()).release()

    play(scene)


def test_a_waiter_that_was_cancelled_when_its_turn_came_kept_the_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        guard = await a.lock("x").acquire()
        first = asyncio.ensure_future(a.lock("x").acquire())
        second = asyncio.ensure_future(a.lock("x").acquire())
        await asyncio.sleep(0.1)
        guard.release()  # it is the first's, who does not know it yet
        first.cancel()
        async with asyncio.timeout(0.1):
            (await second).release()
        assert first.cancelled()

    play(scene)


def test_another_handle_said_that_the_lock_was_free() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("client a"), world.client("b")
        assert await b.lock("x").holder() is None
        async with a.lock("x") as guard:
            for client in (a, b):
                holder = await client.lock("x").holder()
                assert holder is not None
                assert (holder.who, int(holder.token)) == ("client a", int(guard.token))

    play(scene)


def test_an_end_of_the_client_left_those_who_waited_and_complained() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            waiting = [
                asyncio.ensure_future(b.lock("x").acquire(timeout=wait_s))
                for wait_s in (None, 100.0)
            ]
            asking = asyncio.ensure_future(b.lock("x").acquire(ask_again=True))
            await world.in_line("x", 2)
            await b.close()
            for each in (*waiting, asking):
                with pytest.raises(Closed):
                    await each
            assert world.keys("x") == 1

    play(scene)
