"""Locks: what goes wrong where nobody has thought of it."""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest

from leasehold import Guard, HistoryLost, LockDenied, LockLost, NotHeld, SessionExpired
from leasehold.errors import ConnectFailed
from leasehold.locks import ownership as ownership_module
from leasehold.locks.lock_contender import LocalWaiter
from leasehold.locks.lock_keys import Claim
from leasehold.locks.lock_queue import PAGE
from tests.support.faulty_engine import LOSSES, Fault, Participant, SleepyClock, World, play

TTL_S = 10.0
MARGIN_S = 1.0

LATER_S = 5.0
"""When every straggler has arrived."""


async def with_session(client: Participant) -> None:
    """Have a client's session begun: its next transaction is about a lock."""
    async with client.lock("something else", idle_timeout=1_000.0):
        pass


# Calls of unknown outcome.


def test_a_delete_that_straggles_after_a_recall_does_not_delete_a_later_key() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x") as first:
            pass
        a.engine.trouble_with("txn", 1, Fault.STRAGGLES)
        lease = await world.engine.grant(60.0)
        await world.engine.put(b"x/%x" % lease.id, b"", lease=lease.id)
        await world.until(lambda: world.keys("x") == 1, within_s=1.0)
        await world.engine.revoke(lease.id)
        async with a.lock("x") as again:
            assert again.key == first.key, "the straggler is about this very key"
            await asyncio.sleep(LATER_S)
            again.check()
            assert not again.lost
            assert [pair.key for pair in world.pairs(b"x/")] == [again.key]

    play(scene)


def test_a_put_that_straggles_after_its_waiter_was_cancelled_puts_nobody_in_line() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await with_session(b)
        async with a.lock("x"):
            b.engine.trouble_with("txn", 1, Fault.STRAGGLES)
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(LATER_S)
            assert world.keys("x") == 1, "an orphan is in line"

    play(scene)


def test_a_mark_that_straggles_does_not_deny_anybody_later() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        a.engine.trouble_with("txn", 1, Fault.STRAGGLES)
        with pytest.raises(LockDenied):
            await b.lock("x").acquire(timeout=0)
        before = world.pairs(b"x/")
        await asyncio.sleep(LATER_S)
        assert world.pairs(b"x/")[0].mod_revision == before[0].mod_revision
        guard.release()

    play(scene)


@pytest.mark.parametrize("faults", list(itertools.product(LOSSES, repeat=3)), ids=str)
def test_rewriting_the_sessions_key_may_itself_be_of_unknown_outcome(
    faults: tuple[Fault, ...],
) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await with_session(b)
        async with a.lock("x"):
            for number, fault in enumerate((Fault.STRAGGLES, *faults), 1):
                b.engine.trouble_with("txn", number, fault)
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(LATER_S)
            assert world.keys("x") == 1, "an orphan is in line"
        async with b.lock("x") as guard:
            await asyncio.sleep(LATER_S)
            guard.check()

    play(scene)


class Shop:
    """Something that only one may be in, and its tokens, in the order of their use."""

    def __init__(self) -> None:
        self.inside = 0
        self.tokens: list[Any] = []

    async def visit(self, guard: Any, seconds: float = 0.2) -> None:
        """Be there for a while."""
        assert self.inside == 0, "two have the lock"
        self.inside += 1
        self.tokens.append(guard.token)
        await asyncio.sleep(seconds)
        guard.check()
        self.inside -= 1


async def every_call(world: World, a: Participant, b: Participant) -> None:
    """Have two clients do all that can be done about a lock."""
    shop = Shop()
    async with a.lock("x") as guard:
        await shop.visit(guard)
    guard = await b.lock("x").acquire()  # a is asked for it, and yields
    with pytest.raises(LockDenied):  # b refuses, and a withdraws
        await a.lock("x").acquire(timeout=0)
    with pytest.raises(LockDenied):  # a withdraws
        await a.lock("x").acquire(timeout=0.5)
    waiting = asyncio.ensure_future(a.lock("x", cache=False).acquire())
    await asyncio.sleep(0.5)
    await shop.visit(guard)
    guard.release()  # b yields
    guard = await waiting
    await shop.visit(guard)
    guard.release()  # and a deletes its key
    await asyncio.sleep(LATER_S)
    assert world.keys("x") == 0, "something has come back to life"
    for client in (a, b, a):
        async with client.lock("x") as guard:
            await shop.visit(guard)
    assert shop.tokens == sorted(set(shop.tokens)), "a later holder has a lower token"


MAX_CALLS = 24


def test_the_scenario_of_every_call_has_fewer_of_them_than_are_tried() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await every_call(world, a, b)
        for client in (a, b):
            assert 5 < client.engine.calls.count("txn") <= MAX_CALLS

    play(scene)


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("who", [0, 1], ids=["a", "b"])
@pytest.mark.parametrize("number", range(1, MAX_CALLS + 1))
def test_any_transaction_may_have_an_unknown_outcome(number: int, who: int, fault: Fault) -> None:
    async def scene(world: World) -> None:
        clients = [world.client("a"), world.client("b")]
        clients[who].engine.trouble_with("txn", number, fault)
        await every_call(world, *clients)
        assert world.keys("x") <= 1

    play(scene)


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", ["grant", "renew", "revoke"])
def test_any_call_about_a_lease_may_have_an_unknown_outcome(name: str, fault: Fault) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=3.0), world.client("b", session_ttl=3.0)
        for client in (a, b):
            client.engine.trouble_with(name, 1, fault)
        await every_call(world, a, b)
        await asyncio.sleep(5 * TTL_S)
        assert world.leases() == 0, "sessions that nobody needs"
        await every_call(world, a, b)

    play(scene)


# Suspend: nothing has run, and the rest of the world went on.


def test_a_process_that_wakes_up_is_told_by_its_first_check() -> None:
    async def scene(world: World) -> None:
        clock = SleepyClock(world)
        a = world.client("a", session_ttl=TTL_S, clock=clock)
        async with a.lock("idle", idle_timeout=1_000.0):
            pass
        guard = await a.lock("x").acquire()
        assert 0.0 < guard.remaining <= TTL_S - MARGIN_S
        clock.slept_s = TTL_S - MARGIN_S - 0.5
        guard.check()
        clock.slept_s = TTL_S - MARGIN_S + 0.5
        assert not guard.lost, "nobody has noticed yet: that is what this is about"
        with pytest.raises(LockLost):
            guard.check()
        assert guard.remaining == 0.0
        assert not guard.is_held
        assert a.lock("idle").acquire_cached() is None
        with pytest.raises(LockLost):
            guard.release()

    play(scene)


def test_what_was_lost_while_asleep_is_lost_for_good() -> None:
    async def scene(world: World) -> None:
        clock = SleepyClock(world)
        a, b = world.client("a", session_ttl=TTL_S, clock=clock), world.client("b")
        idle = a.lock("idle", idle_timeout=1_000.0)
        async with idle:
            pass
        guard = await a.lock("x").acquire()
        await asyncio.sleep(3.0)
        a.engine.delay_s = 0.4
        calls = len(a.engine.calls)
        await world.until(lambda: len(a.engine.calls) > calls)  # a renewal is under way
        clock.slept_s = TTL_S - MARGIN_S - 3.0
        assert idle.acquire_cached() is None, "as a thread would ask"
        with pytest.raises(LockLost):
            guard.check()
        await asyncio.sleep(0.5)  # its answer comes, and would be good for a while longer
        a.engine.delay_s = 0.0
        with pytest.raises(LockLost):
            guard.check()
        async with b.lock("idle", timeout=2.0), b.lock("x", timeout=2.0):
            pass
        async with idle as again:
            assert again.is_held

    play(scene)


def test_who_only_asks_after_waking_up_is_not_denied_by_its_own_old_lock() -> None:
    async def scene(world: World) -> None:
        clock = SleepyClock(world)
        a = world.client("a", session_ttl=TTL_S, clock=clock)
        old = await a.lock("x").acquire()
        clock.slept_s = TTL_S
        async with a.lock("x", timeout=0) as guard:
            assert guard.token > old.token
        assert not old.is_held

    play(scene)


def test_a_thread_that_takes_a_cached_lock_while_it_is_lost_does_not_get_it() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        async with lock:
            pass

        class LateGuard(Guard):
            def __init__(self, ownership: ownership_module.Ownership, *args: Any) -> None:
                super().__init__(ownership, *args)
                ownership.lose("it was lost at this very moment")

        with patch.object(ownership_module, "Guard", LateGuard):
            assert lock.acquire_cached() is None

    play(scene)


# Marks.


def test_a_mark_for_another_waiter_does_not_deny() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.client("client a"), world.client("b"), world.client("c")
        guard = await a.lock("x").acquire()
        with pytest.raises(LockDenied):
            await b.lock("x").acquire(timeout=0)  # which leaves a mark
        [pair] = world.pairs(b"x/")
        mark = Claim.decode(pair.value)
        assert mark is not None
        assert mark.denies
        a.engine.is_cut_off = a.engine.is_deaf = True
        asking = asyncio.ensure_future(c.lock("x", recall_timeout=4.0).acquire(timeout=0))
        await world.in_line("x", 2)
        await asyncio.sleep(1.0)
        assert not asking.done(), "the mark that was there is another's"
        other = Claim("client a", denies=mark.denies + 1).encode()
        await world.engine.put(guard.key, other, lease=None)
        await asyncio.sleep(1.0)
        assert not asking.done(), "so is a new one"
        own = world.pairs(b"x/")[1].create_revision
        await world.engine.put(guard.key, Claim("client a", denies=own).encode(), lease=None)
        with pytest.raises(LockDenied, match="client a"):
            async with asyncio.timeout(0.1):
                await asking
        a.engine.is_cut_off = a.engine.is_deaf = False
        guard.release()

    play(scene)


def test_a_foreign_owner_neither_yields_nor_marks_and_is_believed_after_a_while() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lease = await world.engine.grant(60.0)
        await world.engine.put(b"x/%x" % lease.id, b"", lease=lease.id)
        began = world.host.clock.monotonic()
        with pytest.raises(LockDenied, match=f"lease {lease.id:016x}"):
            await a.lock("x").acquire(timeout=0)
        assert world.host.clock.monotonic() - began == pytest.approx(1.0, abs=0.1)
        assert world.keys("x") == 1
        waiting = asyncio.ensure_future(a.lock("x").acquire())
        await world.in_line("x", 2)
        await world.engine.revoke(lease.id)
        (await waiting).release()
        # And an idle lock of ours yields to it.
        lease = await world.engine.grant(60.0)
        await world.engine.put(b"x/%x" % lease.id, b"", lease=lease.id)
        await world.until(lambda: world.keys("x") == 1, within_s=1.0)
        await world.engine.revoke(lease.id)

    play(scene)


# Guards.


def test_the_guard_before_cannot_release_the_one_after_it() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        lock = a.lock("x")
        old = await lock.acquire()
        old.release()
        new = await lock.acquire()
        with pytest.raises(NotHeld):
            old.release()
        with pytest.raises(NotHeld):
            old.check()
        assert not old.is_held
        assert old.remaining == 0.0
        assert new.is_held
        with pytest.raises(LockDenied):
            await a.lock("x").acquire(timeout=0)
        with pytest.raises(LockDenied):
            await b.lock("x").acquire(timeout=0)
        new.release()

    play(scene)


def test_the_guard_of_a_lost_lock_cannot_release_the_next_one() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        old = await lock.acquire()
        await world.engine.delete(old.key)
        await old.lost.wait()
        new = await lock.acquire()
        with pytest.raises(LockLost):
            old.release()
        with pytest.raises(NotHeld):
            old.release()
        assert new.is_held
        new.release()

    play(scene)


# Own keys.


def test_an_idle_lock_whose_key_was_deleted_is_not_answered_from_the_cache() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x") as old:
            pass
        await world.engine.delete(old.key)
        await world.until(lambda: b"x" not in a._locks.locks, within_s=0.1)
        async with a.lock("x") as guard:
            assert int(guard.token) > int(old.token)

    play(scene)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_waiter_whose_key_was_deleted_has_lost_its_place(is_made_again: bool) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        own = world.pairs(b"x/")[1]
        await world.engine.delete(own.key)
        if is_made_again:
            await world.engine.put(own.key, b"mine now")
        guard.release()
        with pytest.raises(SessionExpired, match="its key in the queue was deleted"):
            await waiting
        await world.engine.delete(own.key)
        async with b.lock("x", timeout=1.0):
            pass

    play(scene)


def test_after_its_predecessor_went_a_waiter_reads_once_and_may_have_to_wait_again() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.client("a"), world.client("b"), world.client("c")
        guard = await a.lock("x").acquire()
        second = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        third = asyncio.ensure_future(c.lock("x").acquire())
        await world.in_line("x", 3)
        await asyncio.sleep(0.1)
        calls = len(c.engine.calls)
        second.cancel()
        await world.in_line("x", 2)
        await asyncio.sleep(1.0)
        assert not third.done(), "the first still has it"
        assert c.engine.calls[calls:] == ["txn", "watch"], "own key and the lowest in one call"
        guard.release()
        (await third).release()

    play(scene)


# Names of which one begins with the other.


async def names_below(client: Participant, name: str, count: int) -> list[Any]:
    """Hold so many locks with names that begin with another's."""
    return [await client.lock(f"{name}/{n:x}").acquire() for n in range(count)]


def test_a_lock_is_not_blocked_by_locks_whose_names_begin_with_its_own() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guards = await names_below(a, "x", 3 * PAGE)
        async with b.lock("x", timeout=0):
            pass
        holder = await b.lock("x").holder()
        assert holder is not None
        assert (holder.who, holder.waiters) == ("b", 0)
        for guard in guards:
            guard.release()

    play(scene)


def test_a_lock_does_not_yield_to_locks_whose_names_begin_with_its_own() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x") as first:
            pass
        guards = await names_below(b, "x", 3 * PAGE)
        async with a.lock("x") as again:
            assert int(again.token) == int(first.token), "it was given up for nobody"
        async with b.lock("x", timeout=0):  # and those do not hide who wants it
            pass
        for guard in guards:
            guard.release()

    play(scene)


def test_locks_whose_names_begin_with_its_own_do_not_hide_who_is_ahead() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.client("a"), world.client("b"), world.client("c")
        guard = await a.lock("x").acquire()
        guards = await names_below(b, "x", 3 * PAGE)
        with pytest.raises(LockDenied, match="held by a"):
            await c.lock("x").acquire(timeout=0)
        waiting = asyncio.ensure_future(c.lock("x").acquire())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        more = await names_below(b, "x/y", 3 * PAGE)
        guard.release()
        (await waiting).release()
        for each in (*guards, *more):
            each.release()

    play(scene)


def test_a_lock_is_not_blocked_by_one_whose_name_its_own_begins_with() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x") as guard:
            name = guard.key.decode()  # not even by the key itself
            async with b.lock("x/y", timeout=0), b.lock(name, timeout=0):
                guard.check()
                holder = await a.lock("x").holder()
                assert holder is not None
                assert (holder.who, holder.waiters) == ("a", 0)

    play(scene)


# Sessions.


def test_a_lost_session_is_ended_with_an_answer_before_there_is_another() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=2.0), world.client("b")
        guard = await a.lock("x").acquire()
        [old] = [lease.id for lease in await world.engine.leases()]
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        a.engine.is_cut_off = True
        while not guard.lost:  # the server stands still, so to speak: to it the lease is there
            await asyncio.sleep(0.1)
            await world.engine.renew(old)
        assert not waiting.done()
        grant, was_there = a.engine.grant, []

        async def noting(*args: Any, **named: Any) -> Any:
            was_there.append(old in [lease.id for lease in await world.engine.leases()])
            return await grant(*args, **named)

        with patch.object(a.engine, "grant", noting):
            for number in range(1, 5):
                a.engine.trouble_with("revoke", number, Fault.REQUEST_LOST)
            a.engine.is_cut_off = False
            again = asyncio.ensure_future(a.lock("x").acquire())
            (await waiting).release()
            (await again).release()
        assert was_there == [False]

    play(scene)


def test_an_idle_session_is_ended_before_there_is_another() -> None:
    async def scene(world: World) -> None:
        a = world.client("a", session_ttl=TTL_S)
        async with a.lock("x"):
            pass
        for number in range(1, 7):
            a.engine.trouble_with("revoke", number, Fault.REQUEST_LOST)
        await world.until(lambda: "revoke" in a.engine.calls)
        async with a.lock("x", timeout=0):  # or it would be denied, by its own old key
            assert world.leases() == 1

    play(scene)


def test_lost_history_ends_every_guard() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        told: list[BaseException | None] = []
        guards = [
            await a.lock(f"x{n}", on_loss=lambda _, why: told.append(why)).acquire()
            for n in range(3)
        ]
        async with a.lock("idle"):
            pass
        error = HistoryLost("the server was restored from a backup")
        a.engine.on_history_lost(error)
        for guard in guards:
            with pytest.raises(LockLost, match="restored from a backup"):
                guard.check()
            assert guard.lost
        assert a.lock("idle").acquire_cached() is None
        assert told == [error] * 3
        for lease in await world.engine.leases():  # they are here yet: it was only said
            await world.engine.revoke(lease.id)

    play(scene)


# Found in this package.


def test_who_comes_while_a_denied_one_withdraws_keeps_its_place() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            b.engine.delay_s = 0.2
            asking = asyncio.ensure_future(b.lock("x").acquire(timeout=0))
            await world.in_line("x", 2)
            await world.in_line("x", 1)  # its key is gone, and it does not know yet
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            with pytest.raises(LockDenied):
                await asking
            await asyncio.sleep(1.0)
        (await waiting).release()

    play(scene)


def test_an_attempt_whose_session_has_ended_is_forgotten() -> None:
    async def scene(world: World) -> None:
        b = world.client("b", session_ttl=2.0)
        await with_session(b)
        for number in range(1, 20):
            b.engine.trouble_with("txn", number, ConnectFailed("nobody is there"))
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await asyncio.sleep(0.8)
        waiting.cancel()  # while it pauses
        session = b._sessions._current
        assert session is not None
        b._sessions.give_up(session, None)
        await asyncio.sleep(TTL_S)
        assert not b._locks.locks
        assert world.leases() == 0, "there is no need for another session"

    play(scene)


def test_a_count_goes_to_the_next_in_line_if_the_first_has_left() -> None:
    async def scene(world: World) -> None:
        a, b, c = world.client("a"), world.client("b"), world.client("c")
        guard = await a.lock("x").acquire()
        second = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        third = asyncio.ensure_future(c.lock("x").acquire())
        await world.in_line("x", 3)
        await asyncio.sleep(0.1)
        a.engine.delay_s = 1.0
        guard.release()
        second.cancel()
        guard = await third
        assert (await c.count_acquisitions("x")).counts == {"x": 2}
        guard.release()

    play(scene)


def test_an_error_that_nobody_has_thought_of_leaves_nobody_in_line() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await world.in_line("x", 2)
            b.engine.trouble_with("txn", 1, RuntimeError("an odd one"))
        with pytest.raises(RuntimeError, match="an odd one"):
            await waiting
        async with a.lock("x", timeout=1.0):
            pass

    play(scene)


def test_who_only_asks_does_not_let_a_thread_have_the_lock_it_was_to_get() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        async with lock:
            pass
        let, taken = ownership_module.Ownership.let, []

        def steal(ownership: ownership_module.Ownership) -> None:
            let(ownership)
            taken.append(lock.acquire_cached())  # as another thread might, at this very moment

        began = world.host.clock.monotonic()
        with patch.object(ownership_module.Ownership, "let", steal):
            client_lock = a._locks.get(b"x")
            waiter = LocalWaiter("x", a._locks.defaults, tries=True)
            client_lock.add(waiter)
            done, _ = await asyncio.wait([waiter.future], timeout=0.5)
        assert done, f"nobody answers; taken: {taken}"
        assert world.host.clock.monotonic() == began
        guard = waiter.future.result()
        assert isinstance(guard, Guard)
        guard.release()

    play(scene)


def test_a_lock_that_is_acquired_again_in_the_middle_of_its_release_is_held() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        guard = await lock.acquire()
        client_lock = a._locks.get(b"x")
        nested: list[Guard] = []

        class Slot(list[int]):
            def extend(self, right: Iterable[int]) -> None:
                if nested:
                    super().extend(right)
                    return
                nested.append(guard.nest())  # as another thread may
                super().extend(right)
                assert lock.acquire_cached() is None

        assert client_lock.ownership is not None
        client_lock.ownership._slot = Slot()
        guard.release()
        nested[0].check()
        assert lock.acquire_cached() is None
        with pytest.raises(LockDenied):
            await world.client("b").lock("x").acquire(timeout=0)
        nested[0].release()
        (await world.client("b").lock("x").acquire(timeout=1.0)).release()

    play(scene)


def test_a_lock_that_is_not_cached_is_given_up_if_two_threads_release_its_guards() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        guard = await a.lock("x", cache=False, recall=False).acquire()
        inner = guard.again()
        client_lock = a._locks.get(b"x")

        class Slot(list[int]):
            def extend(self, right: Iterable[int]) -> None:
                if self is slots[-1]:
                    slots.append(Slot())
                    inner.release()  # as another thread may
                super().extend(right)

        slots = [Slot()]
        assert client_lock.ownership is not None
        client_lock.ownership._slot = slots[0]
        guard.release()
        await world.until(lambda: not world.pairs(b"x/"))

    play(scene)


def test_a_guard_that_is_released_in_two_threads_is_released_once() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x")
        guard = await lock.acquire()
        client_lock = a._locks.get(b"x")
        holders: list[Guard] = []

        class Slot(list[int]):
            def extend(self, right: Iterable[int]) -> None:
                if not holders:
                    super().extend(map(list.pop, map(list.pop, (guard._claims,))))
                    holder = lock.acquire_cached()
                    assert holder is not None
                    holders.append(holder)
                super().extend(right)

        assert client_lock.ownership is not None
        client_lock.ownership._slot = Slot()
        with pytest.raises(NotHeld):
            guard.release()
        holders[0].check()
        assert holders[0].reference in client_lock.ownership.guards
        assert lock.acquire_cached() is None
        holders[0].release()
        assert holders[0].reference not in client_lock.ownership.guards

    play(scene)


def test_a_claim_that_goes_back_just_when_somebody_comes_is_found() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        guard = await a.lock("x").acquire()
        client_lock = a._locks.get(b"x")
        waiter = LocalWaiter("x", a._locks.defaults, tries=False)

        class Slot(list[int]):
            def extend(self, right: Iterable[int]) -> None:
                if not client_lock._waiters and not waiter.future.done():
                    client_lock.add(waiter)  # as the loop may, while a thread is here
                super().extend(right)

        assert client_lock.ownership is not None
        client_lock.ownership._slot = Slot()
        guard.release()
        async with asyncio.timeout(0.1):
            given = await waiter.future
        assert isinstance(given, Guard)
        given.release()

    play(scene)
