"""Whatever goes wrong at whatever point, nothing of a place in line stays behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold import (
    CallRefused,
    Client,
    Closed,
    Compacted,
    HistoryLost,
    LockDenied,
    LockLost,
    NotHeld,
    SessionExpired,
)
from leasehold.basics.pending import Pending
from leasehold.errors import ConnectFailed, NoSpace, TooBusy
from leasehold.locks.queued_locks import QueueGuard
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play
from tests.support.interrupted import Interrupted

Make = Callable[..., Pending[Any]]

KINDS: dict[str, Callable[[Client], Make]] = {
    "write": lambda client: client.rwlock("x").write,
    "semaphore": lambda client: client.semaphore("x", limit=1).acquire,
    "election": lambda client: lambda timeout=None: client.election("x").campaign("me", timeout),
}

kinds = pytest.mark.parametrize("kind", KINDS)


async def acquired(pending: Pending[Any]) -> QueueGuard:
    guard: QueueGuard = await pending
    return guard


@asynccontextmanager
async def holder_for(world: World, kind: str, seconds: float) -> AsyncIterator[None]:
    """Have somebody else hold it for a while, if at all."""
    if not seconds:
        yield
        return
    other = world.client("other")
    guard = await KINDS[kind](other)()

    async def release() -> None:
        await asyncio.sleep(seconds)
        guard.release()

    task = asyncio.ensure_future(release())
    yield
    await task


async def is_free_soon(world: World, kind: str) -> None:
    """Check that nobody is in line, and that others get in."""
    await world.until(lambda: not world.pairs(b"x/"), within_s=30.0)
    late = world.client("late")
    guard = await KINDS[kind](late)(timeout=5)
    guard.release()


@kinds
@pytest.mark.parametrize("held_s", [0.0, 6.0])
def test_cancelled_at_any_time_it_leaves_no_key(kind: str, held_s: float) -> None:
    outcomes: set[str] = set()
    for step in range(0, 40, 2) if held_s else range(14):

        async def scene(world: World, at: float = 0.25 + step / 2) -> None:
            async with holder_for(world, kind, held_s):
                client = world.client("me")
                client.engine.delay_s = 1.0

                async def work() -> None:
                    async with KINDS[kind](client)() as guard:
                        outcomes.add("held")
                        await asyncio.sleep(2.0)
                        guard.check()

                task = asyncio.ensure_future(work())
                await asyncio.sleep(at)
                task.cancel()
                await asyncio.wait([task])
                outcomes.add("cancelled" if task.cancelled() else "done")
            await is_free_soon(world, kind)

        play(scene)
    assert outcomes == {"held", "cancelled", "done"}


@kinds
@pytest.mark.parametrize("held_s", [0.0, 2.0])
def test_cancelled_at_any_wait_it_leaves_no_key(kind: str, held_s: float) -> None:
    waits: list[int] = []
    for cancel_at in range(1, 30):

        async def scene(world: World, cancel_at: int = cancel_at) -> None:
            async with holder_for(world, kind, held_s):
                client = world.client("me")

                async def work() -> None:
                    async with KINDS[kind](client)() as guard:
                        await asyncio.sleep(1.0)
                        guard.check()

                interrupted = Interrupted(work(), cancel_at)
                task = asyncio.ensure_future(interrupted.run())
                await asyncio.wait([task])
                waits.append(interrupted.waits)
            await is_free_soon(world, kind)

        play(scene)
        if waits[-1] < cancel_at:
            break
    assert len(waits) >= 3, "it waits to be let in, and in the block"


@kinds
@pytest.mark.parametrize("fault", LOSSES)
@pytest.mark.parametrize("held_s", [0.0, 3.0])
def test_any_call_may_be_lost(kind: str, fault: Fault, held_s: float) -> None:
    """A put that has no answer is resolved, and so is a delete; nothing comes back to life."""
    for number in range(1, 8):

        async def scene(world: World, number: int = number) -> None:
            async with holder_for(world, kind, held_s):
                client = world.client("me")
                client.engine.trouble_with("txn", number, fault)
                async with KINDS[kind](client)() as guard:
                    assert [pair.key for pair in world.pairs(b"x/")][:1] == [guard.key]
                    assert world.pairs(b"x/")[0].create_revision == int(guard.token)
                    await asyncio.sleep(0.5)
                    guard.check()
                await world.until(lambda: not world.pairs(b"x/"))
                await asyncio.sleep(client.engine.straggle_s)
            assert not world.pairs(b"x/"), "it came back"
            await is_free_soon(world, kind)

        play(scene)


@kinds
@pytest.mark.parametrize("fault", LOSSES)
def test_any_call_may_be_lost_while_the_caller_gives_up(kind: str, fault: Fault) -> None:
    for number in range(1, 6):
        for step in range(number % 2, 12, 2):

            async def scene(world: World, number: int = number, at: float = step * 0.4) -> None:
                client = world.client("me")
                client.engine.delay_s = 0.7
                client.engine.trouble_with("txn", number, fault)
                task = asyncio.ensure_future(acquired(KINDS[kind](client)()))
                await asyncio.sleep(at + 0.1)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result().release()
                await is_free_soon(world, kind)
                await asyncio.sleep(5.0)
                assert not world.pairs(b"x/"), "it came back"

            play(scene)


@kinds
@pytest.mark.parametrize("timeout", [0, 0.3, 1.0])
def test_a_denial_names_the_holder_and_leaves_no_key(kind: str, timeout: float) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        began = asyncio.get_running_loop().time()
        with pytest.raises(LockDenied) as denied:
            await KINDS[kind](b)(timeout=timeout)
        took_s = asyncio.get_running_loop().time() - began
        assert took_s == pytest.approx(timeout, abs=0.1)
        assert denied.value.name == "x"
        assert ("a" if kind != "election" else "'me'") in denied.value.holder
        assert denied.value.waited_s == timeout
        await asyncio.sleep(0.1)
        assert [pair.key for pair in world.pairs(b"x/")] == [guard.key]
        guard.release()

    play(scene)


@kinds
def test_who_only_asks_puts_no_key_there_while_it_is_held(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        revision = world.engine._store.revision
        with pytest.raises(LockDenied):
            await KINDS[kind](b)(timeout=0)
        assert world.engine._store.revision == revision
        guard.release()

    play(scene)


@kinds
def test_no_answer_is_no_denial(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        client.engine.is_cut_off = True
        for timeout in (0, 2.0):
            with pytest.raises(TimeoutError) as error:
                await KINDS[kind](client)(timeout=timeout)
            assert not isinstance(error.value, LockDenied)
            assert "no answer within" in str(error.value)

    play(scene)


@kinds
def test_its_own_key_gone_ends_the_wait(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        await world.engine.delete(world.pairs(b"x/")[1].key)
        with pytest.raises(SessionExpired, match="deleted or replaced"):
            await waiting
        assert guard.is_held
        guard.release()

    play(scene)


@kinds
def test_its_own_key_gone_is_found_by_who_is_let_in_late(kind: str) -> None:
    """What a watch tells may be old: before a waiter goes in, it reads."""

    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        b.engine.delay_s = 1.0  # it is told, and then reads for so long
        guard.release()
        await asyncio.sleep(0.2)
        [own] = world.pairs(b"x/")
        await world.engine.delete(own.key)
        with pytest.raises(SessionExpired):
            await waiting

    play(scene)


@kinds
def test_lost_at_once_if_its_key_is_gone(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        told: list[tuple[object, BaseException | None]] = []
        guard = await KINDS[kind](client)()
        guard._told = lambda lost, error: told.append((lost, error))
        waiting = asyncio.ensure_future(guard.lost.wait())
        await world.engine.delete(guard.key)
        async with asyncio.timeout(0.1):
            await waiting
        assert guard.lost
        assert (guard.is_held, guard.remaining) == (False, 0.0)
        assert [lost for lost, _ in told] == [guard]
        with pytest.raises(LockLost, match="deleted or replaced"):
            guard.check()
        with pytest.raises(LockLost):
            guard.release()
        with pytest.raises(NotHeld):
            guard.release()

    play(scene)


@kinds
def test_a_key_that_was_made_anew_is_not_its_own(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        guard = await KINDS[kind](client)()
        client.engine.is_deaf = True
        await world.engine.delete(guard.key)
        await world.engine.put(guard.key, b"by somebody else")
        client.engine.break_watches(Compacted(1, 2))
        client.engine.is_deaf = False
        await world.until(guard.lost.is_set)
        assert world.pairs(b"x/")[0].key == guard.key, "it is not ours to delete"
        await world.engine.delete(guard.key)

    play(scene)


@kinds
def test_a_block_that_has_lost_it_raises_in_the_end(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")

        async def lose_it(error: Exception | None) -> None:
            async with KINDS[kind](client)() as guard:
                await world.engine.delete(guard.key)
                await guard.lost.wait()
                if error is not None:
                    raise error

        with pytest.raises(LockLost):
            await lose_it(None)
        with pytest.raises(KeyError):
            await lose_it(KeyError("of the block"))

    play(scene)


def test_a_block_may_be_cancelled_when_it_is_lost() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        told: list[object] = []
        pendings: list[Pending[Any]] = [
            client.rwlock("x").read(cancel_on_loss=True, on_loss=lambda g, _: told.append(g)),
            client.rwlock("x").write(cancel_on_loss=True),
            client.semaphore("x", limit=2, cancel_on_loss=True).acquire(),
            client.election("x").campaign("me", cancel_on_loss=True),
        ]

        async def lose_it(pending: Pending[Any]) -> None:
            async with pending as guard:
                await world.engine.delete(guard.key)
                await asyncio.sleep(1000.0)

        for pending in pendings:
            with pytest.raises(LockLost):
                async with asyncio.timeout(1.0):
                    await lose_it(pending)
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()
        assert len(told) == 1

    play(scene)


@kinds
def test_without_contact_it_is_lost_by_the_clock_and_others_get_in(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=9.0), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await asyncio.sleep(1.0)
        assert 0.0 < guard.remaining <= 9.0
        a.engine.is_cut_off = True
        await guard.jeopardy.wait()
        guard.check()
        await guard.lost.wait()
        assert not waiting.done(), "it is told before anybody else gets in"
        with pytest.raises(LockLost):
            guard.check()
        (await waiting).release()
        a.engine.is_cut_off = False
        (await KINDS[kind](a)(timeout=30)).release()

    play(scene)


@kinds
def test_what_a_clock_says_counts_before_anybody_was_told(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=5.0)
        guard = await KINDS[kind](client)()
        world.host.stall(5.0)
        assert not guard.lost, "nobody was told yet"
        assert (guard.is_held, guard.remaining) == (False, 0.0)
        with pytest.raises(LockLost):
            guard.check()
        with pytest.raises(LockLost):
            guard.release()
        await is_free_soon(world, kind)

    play(scene)


@kinds
def test_no_block_is_entered_when_the_session_is_over_by_then(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=5.0)
        await client._sessions.live()
        ask = client.engine.txn

        async def txn(*parts: Any) -> Any:
            done = await ask(*parts)
            world.host.stall(5.0)
            return done

        async def work() -> None:
            async with client.semaphore("x", 1) if kind == "semaphore" else KINDS[kind](client)():
                pytest.fail("it was entered")

        setattr(client.engine, "txn", txn)  # noqa: B010  mypy rejects the other form
        with pytest.raises(SessionExpired):
            await work()
        setattr(client.engine, "txn", ask)  # noqa: B010
        await is_free_soon(world, kind)

    play(scene)


@kinds
def test_who_is_let_in_after_its_session_has_ended_is_not(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a", session_ttl=50.0), world.client("b", session_ttl=5.0)
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        b.engine.is_cut_off = True
        guard.release()
        await asyncio.sleep(0.0)
        world.host.stall(5.0)
        b.engine.is_cut_off = False
        with pytest.raises(SessionExpired):
            await waiting
        await is_free_soon(world, kind)

    play(scene)


@kinds
def test_who_waits_is_told_that_its_session_is_over(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await asyncio.sleep(1.0)
        b.engine.is_cut_off = True
        with pytest.raises(SessionExpired):
            await waiting
        b.engine.is_cut_off = False
        guard.release()
        (await KINDS[kind](b)(timeout=30)).release()

    play(scene)


@kinds
def test_another_history_ends_every_guard_and_every_wait(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        for client in (b, a):
            client.engine.on_history_lost(HistoryLost("another cluster"))
        assert guard.lost
        with pytest.raises(LockLost, match="another cluster"):
            guard.check()
        with pytest.raises(SessionExpired, match="another cluster"):
            await waiting
        await world.until(lambda: not world.pairs(b"x/"))

    play(scene)


@kinds
def test_what_was_compacted_is_read_again(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        b.engine.is_deaf = True
        guard.release()
        await world.until(lambda: len(world.pairs(b"x/")) == 1)
        await asyncio.sleep(1.0)
        assert not waiting.done()
        b.engine.break_watches(Compacted(1, 2))
        b.engine.is_deaf = False
        held = await waiting
        b.engine.break_watches(Compacted(1, 2))
        await asyncio.sleep(1.0)
        held.check()
        await world.engine.delete(held.key)
        await held.lost.wait()

    play(scene)


@kinds
def test_what_cannot_be_watched_cannot_be_held(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        b.engine.break_watches(CallRefused("permission denied"))
        with pytest.raises(CallRefused):
            await waiting
        a.engine.break_watches(CallRefused("permission denied"))
        await guard.lost.wait()
        with pytest.raises(LockLost, match="cannot be watched: permission denied"):
            guard.check()
        await world.until(lambda: not world.pairs(b"x/"))

    play(scene)


@kinds
def test_the_end_of_a_client_is_told_to_who_waits_and_waits_for_who_leaves(kind: str) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await KINDS[kind](a)()
        waiting = asyncio.ensure_future(acquired(KINDS[kind](b)()))
        await world.until(lambda: len(world.pairs(b"x/")) == 2)
        await b.close()
        with pytest.raises(Closed):
            await waiting
        assert [pair.key for pair in world.pairs(b"x/")] == [guard.key]
        a.engine.delay_s = 0.5
        guard.release()
        await a.close()
        assert not world.pairs()
        with pytest.raises(Closed):
            await KINDS[kind](a)()
        with pytest.raises(NotHeld):
            guard.check()

    play(scene)


@kinds
def test_the_end_of_a_client_takes_no_longer_than_it_may(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        guard = await KINDS[kind](client)()
        client.engine.is_cut_off = True
        guard.release()
        began = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - began < 10.0
        await world.until(lambda: not world.leases())

    play(scene)


@kinds
def test_a_guard_is_released_once(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with KINDS[kind](client)() as guard:
            assert guard.is_held
            assert "held" in repr(guard)
            guard.release()
            assert "not held" in repr(guard)
            for use in (guard.release, guard.check):
                with pytest.raises(NotHeld, match="'x'"):
                    use()
            assert (guard.is_held, guard.remaining, guard.lost.is_set()) == (False, 0.0, False)
        await is_free_soon(world, kind)

    play(scene)


@kinds
def test_those_who_wait_are_let_in_as_they_came(kind: str) -> None:
    async def scene(world: World) -> None:
        order: list[str] = []
        tokens: list[int] = []

        async def work(client: Participant, name: str) -> None:
            async with KINDS[kind](client)() as guard:
                order.append(name)
                tokens.append(int(guard.token))
                await asyncio.sleep(1.0)

        clients = [world.client(name) for name in "abc"]
        tasks: list[Awaitable[None]] = []
        for number in range(9):
            tasks.append(asyncio.ensure_future(work(clients[number % 3], str(number))))
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
        if kind != "election":  # there, one client has one place
            assert order == [str(number) for number in range(9)]
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == 9

    play(scene)


@kinds
def test_they_are_no_contenders_of_a_lock_of_another_name_or_kind(kind: str) -> None:
    async def scene(world: World) -> None:
        client, other = world.client("me"), world.client("other")
        guard = await KINDS[kind](client)()
        for name in ("x/rwlock", "x/semaphore", "x/y", "x/1") + ("x",) * (kind != "election"):
            async with other.lock(name, timeout=0) as lock:
                lock.check()
            (await other.rwlock(name if kind != "write" else f"{name}/z").write(0)).release()
        guard.check()
        guard.release()

    play(scene)


@kinds
@pytest.mark.parametrize("timeout", [-1, True, "1", float("nan")])
def test_a_wrong_timeout_is_refused_before_anything_is_done(kind: str, timeout: Any) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        with pytest.raises((TypeError, ValueError), match="timeout"):
            KINDS[kind](client)(timeout=timeout)
        assert not client.engine.calls

    play(scene)


@kinds
def test_a_session_that_nobody_needs_any_more_is_ended(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=5.0)
        async with KINDS[kind](client)():
            await asyncio.sleep(100.0)
            assert world.leases() == 1
        with pytest.raises(LockDenied):
            async with KINDS[kind](world.client("other"))():
                await KINDS[kind](client)(timeout=1.0)
        await world.until(lambda: not world.leases())

    play(scene)


@kinds
def test_a_refusal_is_told_and_leaves_no_key(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        await client._sessions.live()
        client.engine.trouble_with("txn", 1, Fault.REFUSED)
        with pytest.raises(CallRefused):
            await KINDS[kind](client)()
        (await KINDS[kind](client)(timeout=0)).release()

    play(scene)


@kinds
def test_a_session_is_given_up_if_its_key_cannot_be_deleted(kind: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        other = await client.rwlock("other").read()
        guard = await KINDS[kind](client)()
        client.engine.trouble_with("txn", 1, Fault.REFUSED)
        guard.release()
        await other.lost.wait()
        await is_free_soon(world, kind)
        (await KINDS[kind](client)(timeout=1)).release()

    play(scene)


def test_what_no_engine_takes_is_refused_and_leaves_no_key() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        with pytest.raises(ValueError, match="bytes"):
            await client.election("x").campaign("x" * 2_000_000)
        await is_free_soon(world, "election")
        (await client.election("x").campaign("me", timeout=1)).release()

    play(scene)


@kinds
def test_a_put_that_cannot_be_settled_ends_the_session_and_leaves_no_key(kind: str) -> None:
    """It was done, and had no answer: to say that it was refused would leave the key behind."""

    async def scene(world: World) -> None:
        client = world.client("me")
        other = await client.rwlock("other").read()
        client.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        client.engine.trouble_with("txn", 2, Fault.REFUSED)
        with pytest.raises(SessionExpired):
            await KINDS[kind](client)()
        assert other.lost
        await is_free_soon(world, kind)
        (await KINDS[kind](client)(timeout=1)).release()

    play(scene)


@pytest.mark.parametrize("error", [NoSpace(1, 1), TooBusy("later"), ConnectFailed("nobody there")])
def test_a_session_that_cannot_begin_is_tried_with_pauses_and_given_up(error: Exception) -> None:
    async def scene(world: World) -> None:
        client = world.client("me", session_ttl=10.0)
        for number in range(1, 100):
            client.engine.trouble_with("txn", number, error)
        began = world.host.clock.monotonic()
        with pytest.raises(type(error)):
            await client._sessions.live()
        assert 2.0 < world.host.clock.monotonic() - began <= 5.0
        assert client.engine.calls.count("txn") < 24
        assert not world.leases()
        client.engine.no_more_trouble()
        client.engine.trouble_with("txn", 1, error)  # for a moment
        (await client.rwlock("x").write()).release()

    play(scene)
