"""`Lock`: what `client.lock` gives. A handle: it costs nothing, and holds nothing by itself."""

import asyncio
import contextlib
from datetime import timedelta
from types import TracebackType
from typing import Final, NamedTuple

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.core.duration import check_seconds
from leasehold.errors import LockDenied, LockLost, NotHeld, SessionExpired
from leasehold.owner_loop import running_loop
from leasehold.recipes.asker import Asker
from leasehold.recipes.blocks import take
from leasehold.recipes.cell import Cell
from leasehold.recipes.contending import contenders
from leasehold.recipes.events import LockEventKind as Kind
from leasehold.recipes.guard import Guard
from leasehold.recipes.locks import Locks
from leasehold.recipes.naming import line, text_of, who_has
from leasehold.recipes.options import RECALL_S, LockOptions, OnLoss, check_wait
from leasehold.recipes.token import Token

NOTED: Final = 8
"""Guards that a handle remembers without a look at whether they are held still."""

BREATHE: Final = 1_000
"""Every so many answers from the cache the event loop has its turn: who asks for a lock again and
again, and waits for nothing else, would keep it from renewing the session."""


class Holder(NamedTuple):
    """Who has a lock."""

    who: str
    """What it calls itself; `lease <hex>` if it is not one of our clients."""
    lease: int
    token: Token
    """The first that it had: its guards since then have the same revision."""
    waiters: int
    """How many are in line behind it."""


class Lock:
    """A lock of a client. It may be acquired any number of times, one after the other."""

    __slots__ = (
        "_entered",
        "_guards",
        "_is_reentrant",
        "_locks",
        "_name",
        "_options",
        "_timeout_s",
    )

    def __init__(
        self,
        locks: Locks,
        name: bytes,
        options: LockOptions,
        *,
        timeout_s: float | None,
        is_reentrant: bool,
    ) -> None:
        self._locks = locks
        self._name = name
        self._options = options
        self._timeout_s = timeout_s
        self._is_reentrant = is_reentrant
        self._guards: list[tuple[object, Guard]] = []
        """Those that `acquire` has given, and that `release` has not taken back."""
        self._entered: list[tuple[object, Guard]] = []
        """Blocks, and the tasks or threads in them: more than one if the lock was lost."""

    @property
    def name(self) -> str:
        """Its name."""
        return text_of(self._name)

    # Acquiring.

    async def acquire(
        self,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
        ask_again: bool = False,
    ) -> Guard:
        """Acquire it: from the cache if it is there, else in line with all others.

        Waits for `timeout` seconds, or as the lock was made to; 0 only asks. `LockDenied` names the
        holder. `SessionExpired` if its place in line was lost. With `ask_again` the client goes on
        by itself after either, until it has the lock or the time is over; then 0 is no time limit.
        """
        if timeout is not None:
            check_wait(timeout)  # whether it is needed or not
        if running_loop() is not self._locks.owner.loop:
            self._locks.patience.check()
        task = asyncio.current_task() if self._is_reentrant else None
        guard = self.acquire_cached(task)
        if guard is None:
            guard = await self.obtain(timeout=timeout, ask_again=ask_again)
        elif not guard.token.count % BREATHE:
            await breathe(guard)
        self.note(task, guard)
        return guard

    async def obtain(self, *, timeout: Timeout, ask_again: bool) -> Guard:  # noqa: ASYNC109
        """Acquire it in line with all others; nobody notes here that it was."""
        wait_s = self._timeout_s if timeout is None else check_wait(timeout)
        return await (self._insist(wait_s or None) if ask_again else self._ask(wait_s))

    def acquire_cached(self, who: object = None) -> Guard | None:
        """Acquire it without a message, in any thread; None if that is not possible.

        `who` is the task or thread that wants it: one that has it already may have it again.
        """
        cell = self._locks.cells.get(self._name)
        if cell is None or (tenure := cell.tenure) is None:
            return None
        guard = tenure.take(self._options)
        if guard is None and self._is_reentrant:
            guard = self._nested(who)
        log = self._locks.log
        if guard is not None and log.is_on:
            log.say("application", Kind.ASKED, self.name)
            log.say("application", Kind.FROM_CACHE, self.name, token=guard.token)
            log.say("application", Kind.GRANTED, self.name, token=guard.token)
        return guard

    def _nested(self, who: object) -> Guard | None:
        """Acquire it once more if this task or thread has it already, by this handle."""
        for holder, guard in (*self._guards, *self._entered):
            if holder == who and guard.is_held:
                with contextlib.suppress(NotHeld, LockLost):  # released, or lost, at this moment
                    return guard.again()
        return None

    async def _insist(self, wait_s: float | None) -> Guard:
        loop = asyncio.get_running_loop()
        give_up_at = None if wait_s is None else loop.time() + wait_s
        while True:
            left_s = None if give_up_at is None else max(0.0, give_up_at - loop.time())
            try:
                return await self._ask(left_s)
            except SessionExpired:
                if left_s == 0.0:
                    raise

    async def _ask(self, wait_s: float | None) -> Guard:
        """Wait in line; again, if what we have got is lost before we could run."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + (wait_s or 0.0)
        while True:
            left_s = max(0.0, give_up_at - loop.time()) if wait_s else wait_s
            guard = await self._ask_once(left_s)
            if guard.is_held:
                return guard
            with contextlib.suppress(LockLost):
                guard.release()

    async def _ask_once(self, wait_s: float | None) -> Guard:
        """Wait in line; whatever happens to us, nothing is left behind."""
        locks = self._locks
        locks.check_call()
        locks.log.say("application", Kind.ASKED, self.name)
        cell = locks.of(self._name)
        asker = Asker(cell.text, self._options, tries=wait_s == 0.0)
        cell.add(asker)
        try:
            await self._wait(cell, asker, wait_s)
        except BaseException:
            cell.remove(asker)
            if not asker.future.cancel() and asker.future.exception() is None:
                _take_back(asker)
            raise
        try:
            guard = asker.future.result()
        except LockDenied as denied:
            locks.log.say("application", Kind.DENIED, self.name, denied.holder)
            raise
        assert isinstance(guard, Guard)
        locks.log.say("application", Kind.GRANTED, self.name, token=guard.token)
        return guard

    async def _wait(self, cell: Cell, asker: Asker, wait_s: float | None) -> None:
        limit_s = wait_s
        if asker.tries:  # it is answered long before, unless nobody is there
            limit_s = self._options.recall_s + self._locks.patience.timeout_s
        done, _ = await asyncio.wait([asker.future], timeout=limit_s)
        if not done:
            assert limit_s is not None
            denial = cell.denial(asker, limit_s)
            self._locks.log.say(
                "application", Kind.DENIED, self.name, getattr(denial, "holder", "")
            )
            raise denial

    async def __aenter__(self) -> Guard:
        if running_loop() is not self._locks.owner.loop:
            self._locks.patience.check()
        task = asyncio.current_task()
        guard = self.acquire_cached(task)
        if guard is None:
            guard = await self._ask(self._timeout_s)
        elif not guard.token.count % BREATHE:
            await breathe(guard)
        self._entered.append((task, guard))
        if self._options.cancel_on_loss:
            guard.enter()
        return guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._entered
        guard = entered.pop()[1] if len(entered) == 1 else self.left(asyncio.current_task())
        guard.leave(exc_type)

    # Who has it of this handle.

    def note(self, who: object, guard: Guard) -> None:
        """Remember a guard for `release`, and the task or thread that has it."""
        guards = self._guards
        if guards and guards[-1][1].is_released:  # as almost always: by itself, not by the handle
            guards.pop()
        if len(guards) > NOTED:
            self._guards = guards = [each for each in guards if each[1].is_held]
        guards.append((who, guard))

    def latest(self) -> Guard:
        """Give the latest guard that `release` was not called for, and remember it no longer."""
        if not self._guards:
            self._locks.log.say("application", Kind.RELEASE_NOT_HELD, self.name)
            raise NotHeld(f"{self.name!r} is not held by this handle: acquire it first")
        return self._guards.pop()[1]

    def entered(self, who: object, guard: Guard) -> None:
        """Remember the guard of a block, and the task or thread that is in it."""
        self._entered.append((who, guard))

    def left(self, who: object) -> Guard:
        """Give the guard of the block that is left."""
        return take(self._entered, who)

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    # Releasing, and looking.

    def release(self) -> None:
        """Release the latest guard that `acquire` has given; `NotHeld` if there is none."""
        self.latest().release()

    async def holder(self, *, timeout: Timeout = None) -> Holder | None:  # noqa: ASYNC109
        """Ask who has it; None if nobody has."""
        asked = line(self._name, limit=0)
        reading = self._locks.engine.range(asked.key, asked.end, sort_by=asked.sort_by)
        line_of = contenders(self._name, await self._locks.patience.wait(reading, timeout))
        if not line_of:
            return None
        first = line_of[0]
        token = Token(first.create_revision, 1)
        return Holder(who_has(first), first.lease, token, len(line_of) - 1)


async def breathe(guard: Guard) -> None:
    """Let others have their turn."""
    try:
        await asyncio.sleep(0)
    except BaseException:
        with contextlib.suppress(LockLost):
            guard.release()
        raise


def _take_back(asker: Asker) -> None:
    """Release what somebody was given who did not wait to get it."""
    guard = asker.future.result()
    if isinstance(guard, Guard):
        with contextlib.suppress(LockLost):
            guard.release()


def options_of(
    locks: Locks,
    *,
    cache: bool,
    recall: bool,
    idle_timeout: float | timedelta | None,
    recall_timeout: float | timedelta,
    on_loss: OnLoss | None,
    cancel_on_loss: bool,
) -> LockOptions:
    """Check what a lock is to be like."""
    given = (cache, recall, idle_timeout, recall_timeout, on_loss, cancel_on_loss)
    if given == (True, True, None, RECALL_S, None, False):
        return locks.defaults  # as almost always, and often
    check_plain_callback(on_loss, "on_loss")
    idle_s = locks.defaults.idle_s
    if idle_timeout is not None:
        idle_s = check_seconds(idle_timeout, "idle_timeout")
    recall_s = check_seconds(recall_timeout, "recall_timeout")
    return LockOptions(cache, recall, idle_s, recall_s, on_loss, cancel_on_loss)
