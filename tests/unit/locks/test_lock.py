"""Locks of clients that share an engine: who has them, from where, and who is told what."""

import asyncio

import pytest

from leasehold import LockDenied, LockLost, NotHeld, SessionExpired, Token
from leasehold.locks.lock_keys import Claim
from tests.support.faulty_engine import Participant, World, play

TTL_S = 10.0


async def in_line(world: World, name: str) -> list[str]:
    """Say who is in the line of a lock, the owner first."""
    found = []
    for pair in world.pairs(name.encode() + b"/"):
        claim = Claim.decode(pair.value)
        found.append("somebody" if claim is None else claim.who)
    return found


def held_elsewhere(client: Participant, name: str) -> "asyncio.Task[None]":
    """Have a lock held by a client until the task is cancelled."""

    async def hold() -> None:
        async with client.lock(name):
            await asyncio.get_running_loop().create_future()

    return asyncio.get_running_loop().create_task(hold())


def test_one_holder_at_a_time_in_the_order_of_asking() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(f"c{n}") for n in range(5)]
        order: list[str] = []
        inside = 0

        async def work(client: Participant, name: str) -> None:
            nonlocal inside
            async with client.lock("a"):
                inside += 1
                assert inside == 1
                order.append(name)
                await asyncio.sleep(0.5)
                inside -= 1

        tasks = []
        for n, client in enumerate(clients):
            tasks.append(asyncio.ensure_future(work(client, f"c{n}")))
            await world.until(lambda: len(world.pairs(b"a/")) == len(tasks))
        await asyncio.gather(*tasks)
        assert order == ["c0", "c1", "c2", "c3", "c4"]

    play(scene)


def test_a_cached_lock_is_answered_without_a_message() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        async with lock as first:
            assert first.token == Token(int(first.token), 1)
        calls = len(a.engine.calls)
        for n in range(2, 100):
            async with lock as guard:
                assert guard.token == Token(int(first.token), n)
                guard.check()
        assert len(a.engine.calls) == calls

    play(scene)


def test_who_takes_a_cached_lock_again_and_again_does_not_starve_the_loop() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        async with lock:
            pass
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(5_000):
            async with lock:
                pass
            (await lock.acquire()).release()
        assert 5 <= others <= 50
        task.cancel()

    play(scene)


def test_a_cached_lock_past_its_trusted_end_is_contended_for_again() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        async with a.lock("x") as old:
            pass
        lease = a._sessions._current.lease.id  # type: ignore[union-attr]
        world.host.stall(TTL_S)  # nobody has noticed anything yet
        async with a.lock("x") as guard:
            assert int(guard.token) > int(old.token)
        assert a._sessions._current.lease.id != lease  # type: ignore[union-attr]

    play(scene)


def test_who_only_asks_after_a_pause_is_not_denied_by_its_own_old_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        guard = await a.lock("x").acquire()
        world.host.stall(TTL_S)
        again = await a.lock("x").acquire(timeout=0)
        assert int(again.token) > int(guard.token)
        again.release()

    play(scene)


def test_an_idle_lock_is_given_up_as_soon_as_another_wants_it() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            pass
        began = world.host.clock.monotonic()
        async with b.lock("x", timeout=0):
            assert world.host.clock.monotonic() - began < 0.1
            assert await in_line(world, "x") == ["b"]

    play(scene)


def test_a_lock_in_use_is_denied_by_a_word_of_its_holder_who_is_named() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("client a"), world.client("b")
        async with a.lock("x"):
            began = world.host.clock.monotonic()
            with pytest.raises(LockDenied, match="'x' is held by client a") as denied:
                await b.lock("x").acquire(timeout=0)
            assert denied.value.holder == "client a"
            assert isinstance(denied.value, TimeoutError)
            assert world.host.clock.monotonic() - began < 0.1, "it had to wait for an answer"
            assert await in_line(world, "x") == ["client a"], "it is still in line"
        async with a.lock("x"):  # it was not given up
            pass

    play(scene)


def test_a_holder_that_says_nothing_is_believed_until_its_lease_ends() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=TTL_S), world.client("b", session_ttl=TTL_S)
        async with a.lock("x") as guard:
            a.engine.is_cut_off = a.engine.is_deaf = True
            began = world.host.clock.monotonic()
            with pytest.raises(LockDenied):
                await b.lock("x", recall_timeout=1.0).acquire(timeout=0)
            assert world.host.clock.monotonic() - began == pytest.approx(1.0, abs=0.1)
            with pytest.raises(LockDenied, match="after 2 s"):
                await b.lock("x").acquire(timeout=2)
            async with b.lock("x") as later:
                assert not guard.is_held
                assert guard.lost
                assert later.token > guard.token
            with pytest.raises(LockLost):
                guard.check()
            a.engine.is_cut_off = a.engine.is_deaf = False
            with pytest.raises(LockLost):
                guard.release()

    play(scene)


def test_what_waits_is_told_when_its_session_is_over() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b", session_ttl=2.0)
        async with a.lock("x"):
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            again = asyncio.ensure_future(b.lock("x").acquire(ask_again=True))
            await world.until(lambda: len(world.pairs(b"x/")) == 2)
            b.engine.is_cut_off = True
            await world.until(lambda: len(world.pairs(b"x/")) == 1)
            with pytest.raises(SessionExpired):
                await waiting
            b.engine.is_cut_off = False
            await world.until(lambda: len(world.pairs(b"x/")) == 2)
        guard = await again
        guard.release()

    play(scene)


def test_releasing_what_is_not_held_is_a_clear_error() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        with pytest.raises(NotHeld, match="'x' is not held by this handle"):
            lock.release()
        guard = await lock.acquire()
        lock.release()
        with pytest.raises(NotHeld, match="released before"):
            guard.release()
        with pytest.raises(NotHeld):
            guard.check()
        async with a.lock("x"):  # nothing was released that was not held
            with pytest.raises(LockDenied, match="held by a"):
                await a.lock("x").acquire(timeout=0)

    play(scene)


def test_two_guards_of_one_client_exclude_each_other_first_come_first_served() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        order: list[int] = []

        async def work(n: int) -> None:
            async with a.lock("x") as guard:
                order.append(n)
                await asyncio.sleep(1)
                guard.check()
                assert order[-1] == n, "somebody else was let in"

        await asyncio.gather(*(work(n) for n in range(4)))
        assert order == [0, 1, 2, 3]

    play(scene)


def test_the_key_goes_to_a_foreign_waiter_before_local_ones() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        order: list[str] = []

        async def work(client: Participant, name: str) -> None:
            async with client.lock("x"):
                order.append(name)

        async with a.lock("x"):
            local = asyncio.ensure_future(work(a, "local"))
            await asyncio.sleep(0)
            foreign = asyncio.ensure_future(work(b, "foreign"))
            await world.until(lambda: len(world.pairs(b"x/")) == 2)
            await asyncio.sleep(0.1)
        await asyncio.gather(local, foreign)
        assert order == ["foreign", "local"]

    play(scene)


def test_a_lock_is_reentrant_only_if_asked_for() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        with pytest.raises(LockDenied):
            async with a.lock("x"), a.lock("x", timeout=0):
                pytest.fail("it is not reentrant")
        lock = a.lock("x", reentrant=True)
        async with lock as outer:
            async with lock as inner:
                assert inner.token == outer.token, "a fence must refuse neither"
            with pytest.raises(LockDenied):
                await b.lock("x").acquire(timeout=0)
            with pytest.raises(LockDenied):  # another handle of the same client
                await a.lock("x").acquire(timeout=0)
        async with b.lock("x", timeout=0):
            pass

    play(scene)


def test_recall_can_be_turned_off() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=TTL_S), world.client("b")
        async with a.lock("x", recall=False):
            pass
        with pytest.raises(LockDenied, match="held by a"):
            await b.lock("x").acquire(timeout=0)
        began = world.host.clock.monotonic()
        async with b.lock("x"):
            assert world.host.clock.monotonic() - began > TTL_S / 2

    play(scene)


def test_without_a_cache_the_key_goes_when_the_lock_is_released() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x", cache=False):
            assert await in_line(world, "x") == ["a"]
        await world.until(lambda: not world.pairs(b"x/"), within_s=1.0)

    play(scene)


def test_an_idle_lock_is_kept_for_its_time_and_then_let_go() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        async with a.lock("busy"):
            async with a.lock("x", idle_timeout=3.0):
                pass
            await asyncio.sleep(2.5)
            assert world.pairs(b"x/")
            await world.until(lambda: not world.pairs(b"x/"), within_s=2.0)
            await asyncio.sleep(5 * TTL_S)
            assert world.pairs(b"busy/"), "it is in use"

    play(scene)


def test_a_session_with_nothing_in_use_is_not_renewed_beyond_the_idle_time() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        async with a.lock("x"), a.lock("y"):
            await asyncio.sleep(5 * TTL_S)
        await asyncio.sleep(0.8 * TTL_S)
        assert world.leases() == 1
        await world.until(lambda: not world.leases(), within_s=0.5 * TTL_S)
        async with a.lock("x"):  # and another one is begun
            assert world.leases() == 1

    play(scene)


def test_own_key_deleted_by_somebody_else_loses_the_lock_at_once() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        told: list[str] = []
        lock = a.lock("x", on_loss=lambda guard, _: told.append(guard.name))
        guard = await lock.acquire()
        await world.engine.delete(guard.key)
        async with asyncio.timeout(0.1):
            await guard.lost.wait()
        assert not guard.is_held
        assert told == ["x"]
        with pytest.raises(LockLost, match="its key was deleted"):
            guard.release()
        async with a.lock("x") as guard:
            assert guard.is_held

    play(scene)


def test_own_key_made_again_by_somebody_else_loses_the_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        guard = await a.lock("x").acquire()
        await world.engine.delete(guard.key)
        await world.engine.put(guard.key, b"mine now")
        async with asyncio.timeout(0.1):
            await guard.lost.wait()
        with pytest.raises(LockLost, match="its key was deleted"):
            guard.check()
        await world.engine.delete(guard.key)

    play(scene)


def test_a_block_is_cancelled_when_its_lock_is_lost_if_asked_for() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        reached = False

        async def work() -> None:
            nonlocal reached
            async with a.lock("x", cancel_on_loss=True) as guard:
                await world.engine.delete(guard.key)
                await asyncio.sleep(1_000)
                reached = True

        with pytest.raises(LockLost):
            await work()
        assert not reached

    play(scene)


def test_one_session_covers_all_locks_whatever_their_number() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        guards = [await a.lock(f"many/{n}").acquire() for n in range(200)]
        assert world.leases() == 1
        a.engine.calls.clear()
        await asyncio.sleep(10 * TTL_S)
        renewals = [call for call in a.engine.calls if call.startswith("renew")]
        assert 25 <= len(renewals) <= 35, "every third of a term"
        assert len(a.engine.calls) == len(renewals)
        for guard in guards:
            guard.release()

    play(scene)


def test_counts_go_along_with_recalled_locks() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(f"c{n}") for n in range(3)]
        for n, client in enumerate(clients * 4):
            async with client.lock("x"):
                if n % 2:
                    async with client.lock("y"):
                        pass
        for client in clients:
            assert (await client.count_acquisitions("x", "y")).counts == {"x": 12, "y": 6}
        async with clients[0].lock("x"):  # in use: its holder says so, and how often
            assert (await clients[1].count_acquisitions("x")).counts == {"x": 13}

    play(scene)


def test_names_are_checked() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        with pytest.raises(ValueError, match="name must not be empty"):
            a.lock("")
        with pytest.raises(TypeError, match="name must be bytes or str, not NoneType"):
            a.lock(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout must not be negative"):
            a.lock("x", timeout=-1)
        with pytest.raises(ValueError, match="idle_timeout must be"):
            a.lock("x", idle_timeout=0)
        with pytest.raises(TypeError, match="on_loss must be callable"):
            a.lock("x", on_loss=3)  # type: ignore[arg-type]

    play(scene)
