"""All locks of a client, by name, and `Lock`: returned by `client.lock`.

A `Lock` is a handle: creating it sends nothing and holds nothing.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple

from leasehold.basics.event_loop import running_loop
from leasehold.basics.fork_hooks import call_in_child, stop_calling_in_child
from leasehold.engine.time_limits import Timeout
from leasehold.errors import Closed, LockDenied, LockLost, NotHeld, SessionExpired, UnknownLease
from leasehold.fencing.token import Token
from leasehold.keyspace.operations import SortBy
from leasehold.locks.client_lock import ClientLock
from leasehold.locks.guards import (
    RECALL_S,
    Entered,
    HandleType,
    LockOptions,
    check_wait,
    take_block,
)
from leasehold.locks.lock_contender import LocalWaiter
from leasehold.locks.lock_events import LockEventKind
from leasehold.locks.lock_events import LockEventKind as Kind
from leasehold.locks.lock_keys import text_of, who_has
from leasehold.locks.lock_queue import LockQueue
from leasehold.locks.ownership import Guard
from leasehold.locks.recipe_context import RecipeContext

CONCURRENT_COUNT_STORES: Final = 64
"""Counts that the close of a client stores at the same time."""


class LockRegistry:
    """The locks of a client that have any state: held, cached or wanted."""

    def __init__(self, context: RecipeContext) -> None:
        self.context = context
        self.log = context.log
        self.owner = context.owner
        self.patience = context.patience
        sessions = context.sessions
        self.defaults = LockOptions(
            cache=True, recall=True, idle_s=sessions.ttl_s, recall_s=RECALL_S
        )
        self.locks: dict[bytes, ClientLock] = {}
        """May be read in any thread."""
        sessions.on_renewed = self._renewed
        sessions.on_jeopardy = self._in_jeopardy
        sessions.on_lost = self._lost
        call_in_child(self, LockRegistry.abandon)

    def get(self, name: bytes) -> ClientLock:
        """Return the only object for a lock, to be used before the loop runs again."""
        lock = self.locks.get(name)
        if lock is not None:
            lock.expire_by_clock()
            lock = self.locks.get(name)  # it may have been dropped with its lock
        if lock is None:
            lock = ClientLock(self.context, name, self.defaults, self._forget_if_unused)
            self.locks[name] = lock
        return lock

    def _forget_if_unused(self, lock: ClientLock) -> None:
        if lock.is_unused() and self.locks.get(lock.name) is lock:
            del self.locks[lock.name]

    async def close(self) -> None:
        """Close all locks."""
        stop_calling_in_child(self)
        self.context.sessions.close()
        error = Closed("the client was closed")
        turns = asyncio.Semaphore(CONCURRENT_COUNT_STORES)
        storing = [lock.close(error, turns) for lock in list(self.locks.values())]
        await asyncio.gather(*(each for each in storing if each is not None))
        await self.context.close()

    def abandon(self) -> None:
        """Make all locks unusable in a child process: the cached ones are the parent's."""
        self.context.is_forked = True
        for lock in self.locks.values():
            if lock.ownership is not None:
                lock.ownership.end("it is held by the parent of this process")

    # Events of the session, for the log: one for each lock that it holds.

    def _renewed(self) -> None:
        self._record(LockEventKind.AUTO_RENEWED)

    def _in_jeopardy(self, _error: BaseException | None) -> None:
        self._record(LockEventKind.DISCONNECTED)

    def _lost(self, error: BaseException | None) -> None:
        if not isinstance(error, UnknownLease):
            self._record(LockEventKind.RENEWAL_TIMED_OUT)

    def _record(self, kind: LockEventKind) -> None:
        if self.log.update():
            for lock in list(self.locks.values()):
                if lock.ownership is not None:
                    self.log.record("client", kind, lock.text)


NOTED: Final = 8
"""Number of guards that a handle remembers without checking whether they are still held."""

BREATHE: Final = 1_000
"""After this many answers from the cache the event loop gets a turn: a caller that acquires a lock
repeatedly, and waits for nothing else, would keep it from renewing the session."""


class Holder(NamedTuple):
    """The holder of a lock."""

    who: str
    """The client's name; `lease <hex>` if it is not one of our clients."""
    lease: int
    token: Token
    """Its first token: its later guards have the same revision."""
    waiters: int
    """The number of waiters behind it."""


class Lock(metaclass=HandleType):
    """A lock of a client. It may be acquired any number of times, one after the other."""

    __slots__ = (
        "_blocks",
        "_entered",
        "_guards",
        "_is_reentrant",
        "_name",
        "_options",
        "_registry",
        "_timeout_s",
    )

    def __init__(
        self,
        registry: LockRegistry,
        name: bytes,
        options: LockOptions,
        *,
        timeout_s: float | None,
        is_reentrant: bool,
    ) -> None:
        self._registry = registry
        self._name = name
        self._options = options
        self._timeout_s = timeout_s
        self._is_reentrant = is_reentrant
        self._guards: list[tuple[object, Guard]] = []
        """Guards that `acquire` has returned, and `release` has not released."""
        self._entered: list[Entered[Guard]] = []
        """Blocks that were entered: more than one if the lock was lost."""
        self._blocks: list[tuple[object, Guard]] = []
        """Blocks that release their guards themselves, if the lock is reentrant."""

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
        """Acquire the lock: from the cache if possible, else in the queue with all other clients.

        Waits for `timeout` seconds, by default the lock's own timeout; 0 does not wait for a
        release. Raises `LockDenied`, which names the holder, or `SessionExpired` if the place in
        the queue was lost. With `ask_again` the client retries after either, until it has the lock
        or the timeout has passed; 0 means no timeout then.
        """
        if timeout is not None:
            check_wait(timeout)  # even if it is not used
        if running_loop() is not self._registry.owner.loop:
            self._registry.patience.check()
        task = asyncio.current_task() if self._is_reentrant else None
        guard = self.acquire_cached(task)
        if guard is None or (not guard.token.count % BREATHE and not await breathe(guard)):
            guard = await self.obtain(timeout=timeout, ask_again=ask_again)
        self.note(task, guard)
        return guard.hand_over()

    async def obtain(self, *, timeout: Timeout, ask_again: bool) -> Guard:  # noqa: ASYNC109
        """Acquire the lock in the queue with all other clients; the guard is not recorded here."""
        loop = asyncio.get_running_loop()
        wait_s = self._timeout_s if timeout is None else check_wait(timeout)
        if ask_again:
            wait_s = wait_s or None
        left_s, give_up_at = wait_s, loop.time() + (wait_s or 0.0)
        while True:
            try:
                guard = await self._ask(left_s)
            except SessionExpired:
                if not ask_again or left_s == 0.0:
                    raise
            else:
                if guard.is_held:
                    return guard
                with contextlib.suppress(LockLost):  # it was lost before this could run
                    guard.release()
            left_s = max(0.0, give_up_at - loop.time()) if wait_s else wait_s

    def acquire_cached(self, who: object = None) -> Guard | None:
        """Acquire the lock without a request, in any thread; None if that is not possible.

        `who` is the task or thread of the caller: the one that holds it already may acquire it
        again.
        """
        lock = self._registry.locks.get(self._name)
        if lock is None or (ownership := lock.ownership) is None:
            return None
        guard = ownership.take(self._options)
        if guard is None and self._is_reentrant:
            guard = self._nested(who)
        log = self._registry.log
        if guard is not None and log.is_on:
            log.record("application", Kind.ASKED, self.name)
            log.record("application", Kind.FROM_CACHE, self.name, token=guard.token)
            log.record("application", Kind.GRANTED, self.name, token=guard.token)
        return guard

    def _nested(self, who: object) -> Guard | None:
        """Acquire it once more if this task or thread already holds it by this handle."""
        entered = ((holder, guard) for holder, guard, _ in self._entered)
        for holder, guard in (*self._guards, *entered, *self._blocks):
            if holder == who and guard.is_held:
                with contextlib.suppress(NotHeld, LockLost):  # released or lost at this moment
                    return guard.nest()
        return None

    async def _ask(self, wait_s: float | None) -> Guard:
        """Wait in the queue; leaves nothing behind, whatever happens to the caller."""
        log = self._registry.log
        self._registry.context.check_call()
        log.record("application", Kind.ASKED, self.name)
        lock = self._registry.get(self._name)
        waiter = LocalWaiter(lock.text, self._options, tries=wait_s == 0.0)
        lock.add(waiter)
        try:
            await self._wait(lock, waiter, wait_s)
        except BaseException:
            lock.remove(waiter)
            if not waiter.future.cancel() and waiter.future.exception() is None:
                waiter.future.result().take_back()
            raise
        try:
            guard = waiter.future.result()
        except LockDenied as denied:
            log.record("application", Kind.DENIED, self.name, denied.holder)
            raise
        log.record("application", Kind.GRANTED, self.name, token=guard.token)
        return guard

    async def _wait(self, lock: ClientLock, waiter: LocalWaiter, wait_s: float | None) -> None:
        limit_s = wait_s
        if waiter.tries:  # the answer comes long before, unless there is no contact
            limit_s = self._options.recall_s + self._registry.patience.timeout_s
        done, _ = await asyncio.wait([waiter.future], timeout=limit_s)
        if not done:
            assert limit_s is not None
            denial = lock.denial(waiter, limit_s)
            self._registry.log.record(
                "application", Kind.DENIED, self.name, getattr(denial, "holder", "")
            )
            raise denial

    async def __aenter__(self) -> Guard:
        if running_loop() is not self._registry.owner.loop:
            self._registry.patience.check()
        task = asyncio.current_task()
        guard = self.acquire_cached(task)
        if guard is None or (not guard.token.count % BREATHE and not await breathe(guard)):
            guard = await self.obtain(timeout=None, ask_again=False)
        # Almost always this is the only block, and then its statement need not be known.
        frame = sys._getframe(1) if self._entered else None  # noqa: SLF001
        self._entered.append((task, guard, frame))
        if self._options.cancel_on_loss:
            guard.enter()
        return guard.hand_over()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._entered
        if len(entered) == 1:
            guard = entered.pop()[1]
        else:
            frame = sys._getframe(1)  # noqa: SLF001
            guard = take_block(entered, asyncio.current_task(), frame)
        guard.leave(exc_type)

    def _forget_block(self, guard: Guard) -> None:
        """Leave the end of a block to an `AsyncExitStack`."""
        who = next(entry[0] for entry in self._entered if entry[1] is guard)
        self._entered = [entry for entry in self._entered if entry[1] is not guard]
        self.entered(who, guard, is_left=True)

    # The guards of this handle, and their owners.

    def note(self, who: object, guard: Guard) -> None:
        """Remember a guard for `release`, and the task or thread that has it."""
        guards = self._guards
        if guards and guards[-1][1].is_released:  # almost always: released directly, not here
            guards.pop()
        if len(guards) > NOTED:
            self._guards = guards = [each for each in guards if each[1].is_held]
        guards.append((who, guard))

    def latest(self) -> Guard:
        """Return and forget the latest guard that `release` was not called for."""
        if not self._guards:
            self._registry.log.record("application", Kind.RELEASE_NOT_HELD, self.name)
            raise NotHeld(f"{self.name!r} is not held by this handle: acquire it first")
        return self._guards.pop()[1]

    def _next_held(self) -> Guard | None:
        """Return and forget the latest guard that is not released; None if there is none."""
        while self._guards:
            guard = self._guards.pop()[1]
            if not guard.is_released:
                return guard
        return None

    def entered(self, who: object, guard: Guard, *, is_left: bool) -> None:
        """Remember the guard of a block, and the task or thread that is in it.

        With `is_left` the block itself releases it, without `left`.
        """
        if not is_left:
            self._entered.append((who, guard, None))
        elif self._is_reentrant:
            self._blocks = [each for each in self._blocks if each[1].is_held] + [(who, guard)]

    def left(self, who: object) -> Guard:
        """Return the guard of the block that a thread exits."""
        return take_block(self._entered, who)

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    # Releasing and querying.

    def release(self) -> None:
        """Release the latest guard that `acquire` has returned; `NotHeld` if there is none."""
        self.latest().release()

    def release_all(self) -> int:
        """Release every guard that `acquire` has returned and that is not released; count them.

        Returns 0 if there is none. If the lock was lost in the meantime, raises `LockLost` when all
        are released: work under it since then was not protected.
        """
        return self.release_each(Guard.release)

    def release_each(self, release: Callable[[Guard], object]) -> int:
        """Do as `release_all`, with a function that releases one guard."""
        released, loss = 0, None
        while (guard := self._next_held()) is not None:
            try:
                release(guard)
            except LockLost as lost:
                loss = loss or lost
            released += 1
        if loss is not None:
            raise loss
        return released

    async def holder(self, *, timeout: Timeout = None) -> Holder | None:  # noqa: ASYNC109
        """Return the holder of the lock; None if it is free."""
        queue, context = LockQueue(self._name), self._registry.context
        reading = context.engine.range(*queue.span, sort_by=SortBy.CREATE_REVISION)
        contenders = queue.contenders(await context.patience.wait(reading, timeout))
        if not contenders:
            return None
        first = contenders[0]
        token = Token(first.create_revision, 1)
        return Holder(who_has(first), first.lease, token, len(contenders) - 1)


async def breathe(guard: Guard) -> bool:
    """Give the event loop a turn; return False if the lock was lost in it, and release it then."""
    is_held = False
    try:
        await asyncio.sleep(0)
        is_held = guard.is_held
    finally:
        if not is_held:
            guard.take_back()
    return is_held
