"""`ClientLock`: one lock of one client, and its local callers.

Theory of operation. In the queue of a lock a client is one contender, whichever of its tasks and
threads want the lock. Its states, and the table of their transitions, are in `lock_state.py`; every
change of the state goes through that table. The client has an entry in the queue unless it is free,
and an `Ownership` while it is owned or yielding.

All calls to the engine are made by the driver, one task, in sequence. Callers never cancel it: each
waits for its own future, in order, and may leave at any time. So a caller that gives up leaves
nothing half done; a driver that finds no callers left deletes the key.

While it owns the lock the client receives every change of the queue. If the lock is idle when a
waiter appears, it is handed over immediately; that is one step, after which nothing is served from
the cache. If it is in use, waiters with `timeout=0` are refused, and the others get the lock when
it is released, before local callers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from leasehold.basics.backoff import Backoff
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import Event
from leasehold.errors import (
    Compacted,
    LeaseholdError,
    LockDenied,
    SessionExpired,
    is_definite,
)
from leasehold.locks.guards import LockOptions
from leasehold.locks.lock_contender import LocalWaiter, LocalWaiters, LockContender
from leasehold.locks.lock_events import LockEventKind as Kind
from leasehold.locks.lock_keys import Claim, counter_key, text_of, who_has
from leasehold.locks.lock_queue import LockEntry, LockQueue, QueueSnapshot, Successors
from leasehold.locks.lock_state import LockChange, State, next_state
from leasehold.locks.ownership import Ownership
from leasehold.locks.recipe_context import LEAVE_S, RecipeContext
from leasehold.sessions.lease_keeper import retry_until_answered
from leasehold.sessions.session import RETRIES, Session

logger = logging.getLogger(__name__)


class ClientLock:
    """The state of one lock in one client."""

    def __init__(
        self,
        context: RecipeContext,
        name: bytes,
        options: LockOptions,
        on_unused: "Callable[[ClientLock], object]",
    ) -> None:
        """`on_unused` is called when it may have no state to keep."""
        self._context = context
        self._log = context.log
        self._on_unused = on_unused
        self.name = name
        self.text = text_of(name)
        self.state = State.FREE
        self.ownership: Ownership | None = None
        """The ownership of the lock, if we have it; may be read in any thread."""
        self._queue = LockQueue(name)
        self._entry: LockEntry | None = None
        """Our key in the queue, or about to be put there."""
        self._waiters = LocalWaiters()
        self._contender = LockContender(self._waiters, self._log, self.text, context.who)
        self._driver: asyncio.Task[None] | None = None
        self._successors = Successors(self._queue, self._changed, self._missed)
        self._unlisten: Callable[[], object] | None = None
        self._options = options
        """The options of the latest caller."""
        self._trouble: BaseException | None = None

    def _change(self, change: LockChange) -> None:
        """Change the state."""
        self.state = next_state(self.state, change)

    # Local callers.

    def expire_by_clock(self) -> None:
        """Handle a loss by the clock that was not handled yet. This may be dropped then."""
        if self.ownership is not None and not self.ownership.is_live:
            self.lost(None)

    def add(self, waiter: LocalWaiter) -> None:
        """Add a caller to the local waiters."""
        ownership = self.ownership
        self._options = waiter.options
        is_seized = ownership is not None and not self._waiters and ownership.seize()
        is_taken = bool(self._waiters) or self.state is State.OWNED
        if waiter.tries and not is_seized and is_taken:
            # It is in use here, or other callers wait: a request to the server could not change
            # that.
            if ownership is not None:
                waiter.deny(self._context.who, is_own=True)
            else:
                waiter.deny(self._contender.holder)
            return
        waiter.answers_before = self._contender.answers
        self._waiters.append(waiter)
        if ownership is not None:
            ownership.wanted = True
            if is_seized:
                self.pass_on(ownership)
            else:
                self._take_right(ownership)
        self._kick()

    def remove(self, waiter: LocalWaiter) -> None:
        """Remove a caller whose timeout has passed."""
        with suppress(ValueError):  # it is not waiting any more
            self._waiters.remove(waiter)
            self._waiters.stir.set()
            self._update_wanted()

    def denial(self, waiter: LocalWaiter, waited_s: float) -> TimeoutError:
        """Return the error for a caller that has not got the lock."""
        if self.ownership is not None:
            return LockDenied(self.text, self._context.who, waited_s, is_own=True)
        if self._contender.is_behind or self._contender.answers > waiter.answers_before:
            return LockDenied(self.text, self._contender.last_holder, waited_s)
        why = str(self._trouble or "") or self._context.engine.trouble
        message = f"{self.text!r}: no answer within {waited_s:.3g} s"
        return TimeoutError(f"{message}: {why}" if why else message)

    # The right to the lock.

    def released(self, ownership: Ownership) -> None:
        """Handle a released lock, if it is wanted or not cached."""
        if ownership.wanted or not ownership.options.cache:
            self._take_right(ownership)

    def pass_on(self, ownership: Ownership) -> None:
        """Handle the right that the loop has taken: pass it on, keep it, or delete the key."""
        if ownership is not self.ownership or not ownership.is_live:
            return
        if self._successors and ownership.options.recall:
            self._yield(ownership)
        else:
            self._grant_next(ownership)

    def _grant_next(self, ownership: Ownership) -> None:
        """Pass the right to the next local caller; without one, keep it or delete the key."""
        is_given = False
        while self._waiters and not is_given:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(ownership.give(waiter.options))
                is_given = True
        self._update_wanted()
        self._context.sessions.check_idle_within(ownership.options.idle_s)
        if is_given:
            return
        if ownership.options.cache and not (self._successors and ownership.options.recall):
            ownership.let()
            if ownership.wanted:
                self._take_right(ownership)
        else:
            self._yield(ownership)

    def _take_right(self, ownership: Ownership) -> None:
        """Take the right if it is idle, and pass it on."""
        if ownership.seize():
            self.pass_on(ownership)

    def _update_wanted(self) -> None:
        ownership = self.ownership
        if ownership is not None and not ownership.is_over:
            ownership.has_waiters = bool(self._successors)
            ownership.wanted = bool(self._waiters) or (
                ownership.has_waiters and ownership.options.recall
            )

    def _yield(self, ownership: Ownership) -> None:
        """Delete the key: from now on, nothing is served from the cache."""
        ownership.wanted = True
        self._change(LockChange.GIVEN_UP)
        self._kick()

    # For the session, which gives up idle locks (`client_session.CachedEntry`).

    def idle_at(self) -> float:
        """Return the earliest time at which it may have been idle for long enough."""
        assert self.ownership is not None
        return self.ownership.idle_at()

    def seize(self) -> bool:
        """Stop serving from the cache; return False if the lock is in use.

        It is, if local callers wait: a lock that was released in another thread is passed to them
        as soon as the loop executes the rest of that release.
        """
        ownership = self.ownership
        return ownership is not None and not self._waiters and ownership.seize()

    def drop(self) -> None:
        """Drop the lock: its key is deleted with the session."""
        self._forget(LockChange.ENDED, "its session has ended: it was idle")

    @property
    def must_be_deleted(self) -> bool:
        """Whether its key must not just be deleted with the session: its count would be lost."""
        return self.ownership is not None and self.ownership.is_counted

    def give_up(self) -> None:
        """Delete its key."""
        if self.ownership is not None:
            self._yield(self.ownership)

    # The driver.

    def _kick(self) -> None:
        """Start the driver, or wake it."""
        if self._driver is None:
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        self._waiters.stir.set()

    async def _drive(self) -> None:
        backoff = Backoff(RETRIES, self._context.random)
        try:
            while self._has_work():
                try:
                    await self._step()
                    backoff.reset()
                except (LeaseholdError, OSError, ValueError) as error:
                    self._trouble = error
                    if isinstance(error, SessionExpired) and not self._may_have_place:
                        self._leave_queue()  # no caller had a place yet: retry in another session
                    elif is_definite(error):
                        self._fail(error)
                        continue
                    await asyncio.sleep(backoff.next_s())
        except Exception as error:
            logger.exception("lock %r has failed", self.text)
            entry, may_have_place = self._entry, self._may_have_place
            self._leave_queue()
            self._fail(error)
            if entry is not None and may_have_place:
                self._abandon(entry.session, error)
        finally:
            self._driver = None
            self._on_unused(self)

    @property
    def _may_have_place(self) -> bool:
        """Whether we wait by a key that is in the queue, or may be."""
        entry = self._entry
        return self.state is State.CONTENDING and entry is not None and entry.is_in_queue

    def _leave_queue(self) -> None:
        """Drop an entry whose key is gone, or that cannot be used any more."""
        if self.state is State.CONTENDING:
            self._change(LockChange.LEFT)
            self._entry = None

    def _has_work(self) -> bool:
        ownership = self.ownership
        if ownership is None:
            return bool(self._waiters) or self.state is State.CONTENDING
        if not ownership.is_live:
            if not ownership.is_over:
                self.lost(None)
            return self.ownership is None and bool(self._waiters)
        return self.state is State.YIELDING or self._successors.has_work

    async def _step(self) -> None:
        ownership = self.ownership
        if ownership is None:
            await self._contend()
        elif self.state is State.YIELDING:
            await self._delete(ownership)
        else:
            await self._attend(ownership)
        self._trouble = None

    def _fail(self, error: BaseException) -> None:
        """Fail all callers that wait."""
        had_waiters = self._waiters.fail(error)
        if isinstance(error, SessionExpired) or (
            self.ownership is None and not self._may_have_place
        ):
            self._leave_queue()  # its key is gone, or was never put
        elif self.ownership is not None:
            self._abandon(self.ownership.session, error)
        elif self._entry is not None and not had_waiters:  # the key could not be deleted either
            session = self._entry.session
            self._leave_queue()
            self._abandon(session, error)

    def _abandon(self, session: Session, error: BaseException) -> None:
        """Abandon a session whose keys cannot be managed any more: they are deleted with its lease.

        Otherwise a key could remain without an owner, or be taken for that of a later attempt.
        """
        logger.warning("giving up the session because of lock %r: %s", self.text, error)
        self._context.sessions.give_up(session, error)

    def is_unused(self) -> bool:
        """Whether there is no state to keep."""
        return self.state is State.FREE and self._driver is None and not self._waiters

    # Acquiring.

    async def _contend(self) -> None:
        entry = self._entry
        if entry is not None and not entry.session.is_live:
            self._leave_queue()  # its key is deleted with its session
            entry = None
        if entry is None:
            if not self._waiters:
                return
            session = await self._context.sessions.live()
            if not self._waiters:
                return
            self._entry = entry = LockEntry(self._context, self._queue)
            entry.use(session)
            self._change(LockChange.ENTERED)
        with entry.session.used():
            seen = await self._contender.contend(entry)
        if seen is not None and entry.session.is_live:
            self._own(entry, seen)
            return
        self._leave_queue()
        if seen is not None:
            raise entry.session.as_expired()

    def _own(self, entry: LockEntry, seen: QueueSnapshot) -> None:
        """Become the owner, with the queue as it was read."""
        assert seen.own is not None
        assert seen.ahead is None
        assert self.ownership is None
        claim = Claim.decode(seen.own.value)
        self._change(LockChange.GRANTED)
        self.ownership = Ownership(
            self._context,
            self.text,
            entry.session,
            entry.key,
            entry.created,
            0 if claim is None else claim.count,
            self._waiters[0].options if self._waiters else self._options,
            self.released,
        )
        self._unlisten = entry.session.on_lost(self.lost)
        self._context.sessions.cached[self] = None
        self._log.record("client", Kind.GRANTED, self.text)
        self._successors.follow(seen, self._context.subscriptions)
        self._grant_next(self.ownership)  # even if other clients wait: it was our turn

    # Owning.

    def _changed(self, event: Event) -> None:
        """Handle a change of the queue."""
        ownership = self.ownership
        if ownership is None or self.state is State.YIELDING:
            return
        if event.key != ownership.key:
            is_new = self._successors.apply(event)
            self._update_wanted()
            if is_new and ownership.options.recall:
                self._take_right(ownership)
        elif event.pair is None:
            self.lost(None, "its key was deleted")
        elif event.pair.create_revision != ownership.revision:
            self.lost(None, "its key was deleted, and created again by another client")
        else:
            self._successors.read_own(event.pair)
        if self._successors.has_work and self.state is State.OWNED:
            self._kick()

    def _missed(self, error: LeaseholdError) -> None:
        """Handle the end of the watch on the queue."""
        if self.ownership is None:
            return
        if isinstance(error, Compacted):
            self._kick()
        else:
            self._abandon(self.ownership.session, error)

    async def _attend(self, ownership: Ownership) -> None:
        """Serve the others: read the queue, refuse one of them, or answer how often we had it."""
        entry, successors = self._entry, self._successors
        assert entry is not None
        if not successors.must_look:
            asked_at, successors.asked_at = successors.asked_at, 0
            if asked_at:
                await entry.answer(ownership.total, asked_at)
            elif (waiter := successors.next_unanswered()) is not None and ownership.options.recall:
                self._log.record("client", Kind.REFUSED, self.text, who_has(waiter))
                await entry.answer(ownership.total, waiter.create_revision)
            return
        seen = await entry.look()
        if ownership is not self.ownership or self.state is State.YIELDING:
            return
        if seen.own is None:
            self.lost(None, "its key was deleted")
            return
        self._successors.follow(seen, self._context.subscriptions)
        self._update_wanted()
        self._take_right(ownership)

    # Ending.

    async def _delete(self, ownership: Ownership) -> None:
        """Delete the key, and pass the count on to the next in the queue."""
        entry = self._entry
        assert entry is not None
        heir = self._successors.first
        if self._successors.is_cut_off:  # the first known waiter may not be the next one
            heir = next(iter((await entry.look()).behind), None)
        self._log.record("client", Kind.GAVE_UP, self.text, "" if heir is None else who_has(heir))
        counter = counter_key(self.name) if ownership.is_counted else b""
        await entry.give_up(ownership.total, heir, counter)
        if ownership is self.ownership:
            self._forget(LockChange.DELETED, "it was released")

    def lost(self, error: BaseException | None, why: str = "") -> None:
        """Mark the lock as lost, alone or with its session."""
        if self.ownership is None:
            return
        self._forget(LockChange.ENDED, why, error, is_lost=True)
        if self._waiters:
            self._kick()

    def _forget(
        self,
        change: LockChange,
        why: str,
        error: BaseException | None = None,
        *,
        is_lost: bool = False,
    ) -> None:
        """Drop the ownership: nothing is served from the cache, and no guard is valid."""
        ownership, self.ownership = self.ownership, None
        if ownership is None:
            return
        self._change(change)
        self._entry = None
        self._successors.stop()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        self._context.sessions.cached.pop(self, None)
        if is_lost:
            self._log.record("client", Kind.LOST, self.text)
            ownership.lose(why, error)
        else:
            ownership.end(why)
        self._on_unused(self)

    def close(
        self, error: BaseException, turns: asyncio.Semaphore
    ) -> Coroutine[Any, Any, None] | None:
        """Close with the client, whose leases delete all keys.

        Returns a coroutine if there is a number of acquisitions to be stored before that, in one of
        the `turns`.
        """
        ownership, entry = self.ownership, self._entry
        self._leave_queue()
        self._forget(LockChange.ENDED, "the client was closed")
        self._fail(error)
        if self._driver is not None:
            self._driver.cancel()
        if ownership is None or entry is None or not ownership.is_counted:
            return None
        return self._store_count(ownership, entry, self._driver, turns)

    async def _store_count(
        self,
        ownership: Ownership,
        entry: LockEntry,
        driver: asyncio.Task[None] | None,
        turns: asyncio.Semaphore,
    ) -> None:
        """Delete the key of a lock when the client closes, and store its count."""
        if driver is not None:
            await asyncio.wait([driver])

        async def give_up() -> None:
            await entry.give_up(ownership.total, None, counter_key(self.name))

        try:
            async with time_limit(LEAVE_S, self._context.engine), turns:
                await retry_until_answered(give_up, Backoff(RETRIES, self._context.random))
        except (LeaseholdError, OSError) as error:
            message = "the %d acquisitions of %r may not be stored: %s"
            logger.warning(message, ownership.total, self.text, error)
