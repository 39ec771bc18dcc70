"""Locks, and callers that give up or meet with an error at any moment: nothing is left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

from leasehold import CallRefused, Closed, Guard, LeaseholdError, LockDenied, NoSpace, TooBusy
from leasehold.errors import StorageError
from leasehold.testing import Host
from tests.support.faulty_engine import Participant, World, play

MAX_TURNS = 2_000
"""No scene has more."""

HELD_S = 0.03
"""How long somebody else has the lock, in between."""


class Caller:
    """Somebody who wants the lock, and is cancelled at a turn of the loop."""

    def __init__(self, cancel_at: int) -> None:
        self._cancel_at = cancel_at
        self._turns = 0
        self.task: asyncio.Task[None] | None = None
        self.is_inside = False
        self.was_inside = False

    def start(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        """Begin; turns are counted from now on."""
        self.task = asyncio.ensure_future(work)
        return self.task

    def turn(self, host: Host) -> None:
        """Be cancelled, if it is time."""
        if self.task is None:
            return
        self._turns += 1
        assert self._turns < MAX_TURNS
        if self._turns == self._cancel_at:
            host.call(self.task.cancel)


Work: TypeAlias = Callable[[Participant, Caller], Awaitable[None]]


async def acquires(client: Participant, caller: Caller) -> None:
    guard = await client.lock("x").acquire()
    guard.release()


async def acquires_for_a_time(client: Participant, caller: Caller) -> None:
    with suppress(LockDenied):
        guard = await client.lock("x", cache=False).acquire(timeout=1.0)
        guard.release()


async def runs_out_of_time(client: Participant, caller: Caller) -> None:
    with suppress(LockDenied):
        guard = await client.lock("x").acquire(timeout=HELD_S)
        guard.release()


async def only_asks(client: Participant, caller: Caller) -> None:
    with suppress(LockDenied):
        guard = await client.lock("x").acquire(timeout=0)
        guard.release()


async def asks_again(client: Participant, caller: Caller) -> None:
    guard = await client.lock("x").acquire(timeout=0, ask_again=True)
    guard.release()


async def enters(client: Participant, caller: Caller) -> None:
    async with client.lock("x") as guard:
        guard.check()
        caller.is_inside = caller.was_inside = True
        try:
            await asyncio.sleep(0.005)
        finally:
            guard.check()
            caller.is_inside = False


async def counts(client: Participant, caller: Caller) -> None:
    await client.count_acquisitions("x")


async def two_ask(client: Participant, caller: Caller) -> None:
    """Be cancelled while another task of the same client waits too."""
    other = asyncio.ensure_future(acquires(client, caller))
    try:
        await only_asks(client, caller)
        await acquires(client, caller)
    finally:
        await asyncio.shield(other)


WORKS = [
    acquires,
    acquires_for_a_time,
    runs_out_of_time,
    only_asks,
    asks_again,
    enters,
    counts,
    two_ask,
]


async def nobody_else(client: Participant, caller: Caller) -> None:
    """Nobody else is there."""


async def in_use(client: Participant, caller: Caller) -> None:
    """It is in use elsewhere, for a while."""
    async with client.lock("x"):
        await asyncio.sleep(HELD_S)
        assert not caller.is_inside, "two have the lock"


async def idle(client: Participant, caller: Caller) -> None:
    """It is idle elsewhere."""
    async with client.lock("x"):
        pass


OTHERS = [nobody_else, in_use, idle]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_whoever_is_cancelled_at_any_moment_leaves_nothing(work: Work, other: Work) -> None:
    for cancel_at in range(1, MAX_TURNS):
        caller = Caller(cancel_at)
        play(lambda world, c=caller: _cancelled(world, c, work, other), on_turn=caller.turn)  # type: ignore[misc]
        assert caller.task is not None
        if not caller.task.cancelled():
            assert cancel_at > 1, "it was never cancelled"
            return
    pytest.fail("it never comes to an end")


async def _cancelled(world: World, caller: Caller, work: Work, other: Work) -> None:
    a, b, c = world.client("a"), world.client("b"), world.client("c")
    before = asyncio.ensure_future(other(a, caller))
    await world.until(lambda: other is nobody_else or world.keys("x") == 1)
    if other is idle:
        await before
    task = caller.start(work(b, caller))
    await asyncio.wait([task])
    caller.turn = lambda host: None  # type: ignore[method-assign]
    assert not caller.is_inside
    await before
    await asyncio.sleep(0.5)
    assert world.keys("x") <= 1, "somebody is in line who has gone"
    async with asyncio.timeout(0.1):  # it is idle, wherever it is
        async with c.lock("x", timeout=0):
            pass
        async with b.lock("x"):
            pass


TURNS = 60
"""By then, whoever waits for a lock does nothing else any more."""


@pytest.mark.parametrize("work", WORKS[:-1], ids=lambda work: work.__name__)
def test_whoever_is_cancelled_while_another_has_the_lock_leaves_the_line(work: Work) -> None:
    for cancel_at in range(1, TURNS):
        caller = Caller(cancel_at)
        play(lambda world, c=caller: _leaving(world, c, work), on_turn=caller.turn)  # type: ignore[misc]


async def _leaving(world: World, caller: Caller, work: Work) -> None:
    a, b = world.client("a"), world.client("b")
    async with a.lock("x"):
        await asyncio.wait([caller.start(work(b, caller))])
        caller.task = None
        await asyncio.sleep(0.1)
        assert world.keys("x") == 1, "somebody is in line who has gone"
        assert not b._locks.locks
    async with b.lock("x", timeout=0):
        pass


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_lock_that_was_released_is_released_though_its_task_was_cancelled(
    is_cached: bool,
) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")

        async def work() -> None:
            guard = await a.lock("x", cache=is_cached).acquire()
            try:
                await asyncio.sleep(1_000.0)
            finally:
                guard.release()

        task = asyncio.ensure_future(work())
        await world.in_line("x", 1)
        waiting = asyncio.ensure_future(b.lock("x").acquire())
        await world.in_line("x", 2)
        task.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        async with asyncio.timeout(0.1):
            (await waiting).release()

    play(scene)


def test_time_limits_of_callers_leave_nothing() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            for wait_ms in range(40):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1_000):
                        await b.lock("x").acquire()
            await asyncio.sleep(0.1)
            assert world.keys("x") == 1
        async with b.lock("x", timeout=0):
            pass

    play(scene)


# Errors.

ERRORS: dict[str, Callable[[], BaseException]] = {
    "refused": lambda: CallRefused("the server does not like it"),
    "no space": lambda: NoSpace(100, 10),
    "too busy": lambda: TooBusy("come again"),
    "closed": lambda: Closed("it was closed"),
    "storage": lambda: StorageError("the disk is on fire"),
    "a bug": lambda: RuntimeError("an odd one"),
}

CALLS = {"txn": 16, "grant": 2, "revoke": 2}


@pytest.mark.parametrize("error", list(ERRORS))
@pytest.mark.parametrize("who", [0, 1], ids=["a", "b"])
def test_any_call_may_fail_and_nothing_is_left(who: int, error: str) -> None:
    for name, count in CALLS.items():
        for number in range(1, count + 1):
            play(lambda world, name=name, n=number: _failing(world, who, name, n, ERRORS[error]))  # type: ignore[misc]


async def _failing(
    world: World, who: int, name: str, number: int, error: Callable[[], BaseException]
) -> None:
    clients = a, b = world.client("a"), world.client("b")
    clients[who].engine.trouble_with(name, number, error())
    inside: list[Guard] = []

    async def use(client: Participant, *, wait_s: float = 10.0, cache: bool = True) -> None:
        no_answer = (TimeoutError,) if wait_s < 1.0 else ()  # the failed call is under way again
        with suppress(LeaseholdError, RuntimeError, *no_answer):
            async with client.lock("x", timeout=wait_s, cache=cache) as guard:
                assert not any(each.is_held for each in inside), "two have the lock"
                inside.append(guard)
                try:
                    await asyncio.sleep(0.1)
                finally:
                    inside.remove(guard)

    await use(a)
    first = asyncio.ensure_future(use(b))
    await asyncio.sleep(0.02)
    await use(a, wait_s=0)
    await asyncio.gather(use(a, cache=False), use(b, wait_s=0.05), use(a), first)
    await asyncio.sleep(1.0)
    clients[who].engine.no_more_trouble()
    assert world.keys("x") <= 1, "somebody is in line who has gone"
    for client in (world.client("c"), a, b, a):
        async with client.lock("x", timeout=1.0) as guard:
            guard.check()


def test_a_key_that_cannot_be_given_up_goes_with_its_session() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with a.lock("x"):
            pass
        a.engine.trouble_with("txn", 1, CallRefused("the server does not like it"))
        async with b.lock("x", timeout=1.0):
            pass

    play(scene)


def test_a_block_is_not_entered_after_an_error() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        a.engine.trouble_with("txn", 2, CallRefused("the server does not like it"))
        with pytest.raises(CallRefused):
            async with a.lock("x"):
                pytest.fail("it is not locked")

    play(scene)
