"""What readers of the lock have found, who had not written it: one test for each."""

import asyncio
import threading
from typing import Any
from unittest.mock import patch

import pytest

from leasehold import CallRefused, Guard, LockDenied, LockLost, NoSpace, connect
from leasehold.leases.holder_view import Holding
from leasehold.locks.lock import BREATHE
from leasehold.locks.lock_queue import PAGE
from tests.support.faulty_engine import Fault, Participant, World, play

TTL_S = 10.0


def test_a_refused_name_costs_no_other_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("mine") as guard:
            a.engine.trouble_with("txn", 1, Fault.REFUSED)
            with pytest.raises(CallRefused):
                await a.lock("forbidden").acquire()
            a.engine.trouble_with("txn", 1, ValueError("too long"))
            with pytest.raises(ValueError, match="too long"):
                await a.lock("forbidden").acquire()
            guard.check()

    play(scene)


def test_a_session_that_was_found_over_stays_so_though_an_answer_comes_at_that_moment() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=TTL_S), world.client("b")
        guard = await a.lock("x").acquire()
        answered = Holding.answered
        seen: list[type[BaseException]] = []

        def as_it_ends(self: Holding, *args: object) -> None:
            if self is guard._ownership.holding and not seen:
                world.host.stall(TTL_S)  # the loop has looked at the clock, and was stopped then
                seen.append(_error_of(guard))
            answered(self, *args)  # type: ignore[arg-type]

        with patch.object(Holding, "answered", as_it_ends):
            await world.until(lambda: seen)
        await asyncio.sleep(0)
        assert seen == [LockLost]
        assert _error_of(guard) is LockLost
        async with asyncio.timeout(TTL_S + 1), b.lock("x"):
            pass

    def _error_of(guard: Guard) -> type[BaseException]:
        with pytest.raises(LockLost) as lost:
            guard.check()
        return lost.type

    play(scene)


def test_a_lock_that_is_lost_before_its_block_begins_is_got_again() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=TTL_S), world.client("b")
        held = await b.lock("x").acquire()
        entered: list[bool] = []

        async def work() -> None:
            async with a.lock("x", cancel_on_loss=True) as guard:
                entered.append(guard.is_held)

        task = asyncio.ensure_future(work())
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        lock = a._locks.get(b"x")
        give = lock._grant_next

        def give_and_stall(*args: object) -> None:
            give(*args)  # type: ignore[arg-type]
            lock._grant_next = give  # type: ignore[method-assign]
            world.host.stall(TTL_S)  # granted, and the task did not run yet

        lock._grant_next = give_and_stall  # type: ignore[method-assign,assignment]
        held.release()
        await task
        assert entered == [True]

    play(scene)


def test_a_waiter_that_came_while_recall_was_off_is_served_once_it_is_on() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x", recall=False).acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        guard.release()
        async with a.lock("x"):
            pass
        async with asyncio.timeout(1):
            (await waiting).release()

    play(scene)


def test_counting_is_denied_by_nobody() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        async with a.lock("x"):
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await world.until(lambda: len(world.pairs(b"x/")) == 2)
            assert (await c.count_acquisitions("x", "x")).counts == {"x": 1}
        (await waiting).release()

    play(scene)


def test_who_only_asks_after_a_denied_wait_has_its_answer_soon() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            with pytest.raises(LockDenied):
                await b.lock("x").acquire(timeout=1)
            began = world.host.clock.monotonic()
            with pytest.raises(LockDenied):
                await b.lock("x").acquire(timeout=0)
            assert world.host.clock.monotonic() - began < 1.5

    play(scene)


def test_a_guard_is_not_taken_again_once_it_was_released_in_another_thread() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x", reentrant=True)
        outer = await lock.acquire()
        check = type(outer).check
        held: list[Guard] = []

        def checked(self: Guard) -> None:
            check(self)
            if not held:
                thread = threading.Thread(target=outer.put_back)
                thread.start()
                thread.join()
                taken = a.lock("x").acquire_cached()
                assert taken is not None
                held.append(taken)

        with patch.object(Guard, "check", checked):
            assert lock.acquire_cached(asyncio.current_task()) is None
        assert held[0].is_held
        held[0].release()
        async with lock:
            pass

    play(scene)


def test_a_nested_block_is_told_of_a_loss() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        told: list[Guard] = []
        lock = a.lock(
            "x", reentrant=True, cancel_on_loss=True, on_loss=lambda guard, _: told.append(guard)
        )

        async def work(outer: Guard) -> None:
            async with lock as inner:
                outer.release()
                await world.engine.delete(inner.key)
                await asyncio.sleep(1_000)
                pytest.fail("it was not cancelled")

        with pytest.raises(LockLost):
            await work(await lock.acquire())
        assert len(told) == 1
        async with a.lock("y"):  # the session goes on
            pass

    play(scene)


def test_counts_go_along_a_line_that_is_longer_than_what_was_read_of_it() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(f"c{n}") for n in range(PAGE + 5)]
        last = world.client("last")
        is_whole = asyncio.Event()

        async def work(client: Participant) -> None:
            async with client.lock("x"):
                await is_whole.wait()

        tasks = []
        for client in clients:
            tasks.append(asyncio.ensure_future(work(client)))
            await world.until(lambda: len(world.pairs(b"x/")) == len(tasks))
        leaving = tasks[1 : PAGE + 1]
        for task in leaving:
            task.cancel()
        is_whole.set()
        await asyncio.wait(tasks)
        grants = len(tasks) - len(leaving)
        assert (await last.count_acquisitions("x")).counts == {"x": grants}

    play(scene)


def test_nobody_is_said_to_hold_it_if_nobody_has_answered() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        a.engine.is_cut_off = True
        with pytest.raises(TimeoutError, match="no answer within 3 s") as error:
            await a.lock("x").acquire(timeout=3)
        assert not isinstance(error.value, LockDenied)

    play(scene)


def test_a_second_handle_may_keep_it_for_a_shorter_time() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        async with a.lock("busy"):
            async with a.lock("x", idle_timeout=3_600):
                pass
            async with a.lock("x", idle_timeout=1):
                pass
            await world.until(lambda: not world.pairs(b"x/"), within_s=TTL_S + 2)

    play(scene)


def test_a_reentrant_handle_that_tasks_share_excludes_them_also_from_the_cache() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x", reentrant=True)
        inside = 0

        async def work() -> None:
            nonlocal inside
            async with lock as outer, lock as inner:
                assert inner.token == outer.token
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.1)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(3)))
        await asyncio.gather(*(work() for _ in range(3)))  # it is in the cache now

    play(scene)


def test_who_had_no_place_in_line_is_not_told_of_an_old_session() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("idle"):
            pass
        session = a._sessions._current
        assert session is not None
        await world.engine.revoke(session.lease.id)  # by somebody else's hand
        async with a.lock("other") as guard:
            assert guard.is_held

    play(scene)


@pytest.mark.parametrize("timeout", ["5", -1, float("nan")])
def test_a_wrong_timeout_is_refused_also_if_the_lock_is_cached(timeout: Any) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x"):
            pass
        with pytest.raises((TypeError, ValueError)):
            await a.lock("x").acquire(timeout=timeout)

    play(scene)


def test_a_session_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"session_ttl must be at least 0\.1 s, not 0\.001"):
        connect(session_ttl=0.001)


def test_an_idle_session_does_not_take_a_lock_that_a_local_waiter_is_about_to_get() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=2)
        lock = a.lock("x", idle_timeout=0.001)
        guard = await lock.acquire()
        waiting = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(5)
        assert not guard.put_back()  # a release in another thread, up to the part for the loop
        await asyncio.sleep(5)  # the session looks for idle locks before that part is executed
        guard.put_by()
        async with asyncio.timeout(5):
            (await waiting).release()

    play(scene)


@pytest.mark.parametrize("cancels", [False, True])
def test_a_lock_that_is_lost_while_the_event_loop_gets_a_turn_is_acquired_again(
    cancels: bool,
) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x", cancel_on_loss=cancels)
        for enters in (True, False):
            while True:
                async with lock as guard:
                    count = guard.token.count
                if (count + 1) % BREATHE == 0:
                    break
            session = a._sessions._current
            assert session is not None
            asyncio.get_running_loop().call_soon(a._sessions.give_up, session, None)
            if enters:
                async with lock as guard:
                    guard.check()
            else:
                (await lock.acquire()).release()

    play(scene)


@pytest.mark.parametrize("error", [TimeoutError("late"), ValueError("frame"), RuntimeError("bug")])
def test_a_waiter_whose_watch_fails_blocks_no_other_client(error: Exception) -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name, session_ttl=5) for name in "abc")
        guard = await a.lock("x").acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        await asyncio.sleep(0.1)
        for watch in list(b.engine._watches):
            watch.fail(error)
        await asyncio.sleep(0.1)
        guard.release()
        await asyncio.wait([waiting], timeout=60)
        assert waiting.done()
        if isinstance(error, OSError):
            waiting.result().release()
        else:  # another attempt would end the same way
            assert type(waiting.exception()) is type(error)
        async with c.lock("x", timeout=60):
            pass

    play(scene)


def test_a_released_lock_is_free_although_there_is_no_space_to_settle_a_lost_answer() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=60), world.client("b")
        (await a.lock("x").acquire()).release()
        a.engine.trouble_with("txn", 1, Fault.REQUEST_LOST)
        for number in range(2, 1_000):
            a.engine.trouble_with("txn", number, NoSpace(100, 10))
        async with asyncio.timeout(5):
            guard = await b.lock("x").acquire()
        guard.release()
        a.engine.no_more_trouble()
        async with a.lock("x"):
            pass

    play(scene)
