"""Locks with a key for each acquisition: `client.rwlock` and `client.semaphore`, and their guards.

Theory of operation. Each acquisition has its own key, unlike that of a lock, which has one for all
callers of a client. The `QueueDefinition` decides by the keys ahead whether the key is admitted.
The events of a watch may be old, so an acquisition that has waited reads once more before it is
admitted. Elections use the same acquisition.

The keys of a read-write lock are `<name>/rwlock/<lease in hex>.<number>.read` and `….write`. A
writer is admitted when no key is ahead of it, a reader when no writer is: so a reader behind a
waiting writer waits, too, and a stream of readers cannot keep a writer out. Keys of a semaphore are
`<name>/semaphore/<limit>.<lease in hex>.<number>`: a key with fewer than `limit` others ahead is
admitted.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Generic, TypeVar
from weakref import ref

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import seconds_of
from leasehold.basics.pending import Pending
from leasehold.engine.key import BytesOrText
from leasehold.engine.time_limits import Timeout
from leasehold.engine.values import KeyValue
from leasehold.errors import (
    LeaseholdError,
    LeaseLost,
    LockDenied,
    LockLost,
    NotHeld,
    SessionExpired,
    fresh,
)
from leasehold.fencing.token import Token
from leasehold.locks.guards import AnyGuard, Blocks, HandleType, OnLoss, check_wait
from leasehold.locks.lock_keys import LEASE_HEX, Claim, name_of, text_of
from leasehold.locks.queue import CountedQueue, QueueDefinition, QueuePosition, check_count
from leasehold.locks.recipe_context import DetachedTask, RecipeContext
from leasehold.sessions.kept_lease import Signal

logger = logging.getLogger(__name__)


class QueueGuard(AnyGuard):
    """An admitted key, until `release`. Its token is higher than that of any key ahead."""

    __slots__ = ("__weakref__", "_cancels", "_claim", "_lost", "_position", "_told")

    def __init__(
        self,
        position: QueuePosition,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        super().__init__(Token(position.created, 1))
        self._position = position
        self._claim = [position]
        """The caller that pops it releases it, in any thread."""
        self._lost = Signal()
        self._told = on_loss
        self._cancels = cancel_on_loss
        position.on_loss = partial(_lose, ref(self))

    def __del__(self) -> None:
        position = self._position
        if self._claim and position.loss is None and position.is_wanted and not self._is_forked:
            position.forgotten(self._claim)

    @property
    def name(self) -> str:
        """The name of what is held."""
        return text_of(self._position.queue.name)

    @property
    def key(self) -> bytes:
        """Its key at the server, which exists while it is held."""
        return self._position.key

    @property
    def lost(self) -> Signal:
        """Set once it is lost. It only notifies; `check` decides."""
        return self._lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact to the server, and it may yet be lost."""
        return self._position.session.lease.jeopardy

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return not self._claim

    @property
    def is_held(self) -> bool:
        """Whether it is held now, by the clock."""
        return self.remaining > 0.0

    @property
    def remaining(self) -> float:
        """How long it is still held unless it is renewed, in seconds; 0.0 once it is not held."""
        position = self._position
        if (
            not self._claim
            or position.loss is not None
            or not position.is_wanted
            or self._is_forked
        ):
            return 0.0
        return seconds_of(position.session.lease.remaining)

    def check(self) -> None:
        """Raise `LockLost` unless it is held now: by the clock, whatever was reported.

        Its cause is `Closed`, `Forked` or `HistoryLost` if the client was closed, belongs to the
        parent process, or has found another keyspace. After a release it raises `NotHeld`.
        """
        if not self._claim:
            raise self._not_held()
        try:
            self._position.context.keeper.check()
        except LeaseholdError as error:
            raise LockLost(self.name, self._position.session.lease.id, str(error)) from error
        if not self.is_held:
            raise self.as_lost()

    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to complete the release."""
        if self._is_forked:
            self._position.context.keeper.check()
        is_held = self.is_held
        try:
            self._claim.pop()
        except IndexError:
            raise self._not_held() from None
        except BaseException:  # of a signal handler: the caller may not know that it was released
            self._claim.clear()
            self._position.give_up_soon()
            raise
        if not is_held:
            self._position.give_up_soon()
            raise self.as_lost()
        return False

    def put_by(self) -> None:
        """Have the loop complete the release that `put_back` has begun."""
        self._position.give_up_in_any_loop()

    def settle(self) -> None:
        """Release it, or complete a release that was interrupted; on the loop."""
        self._claim.clear()
        self._position.give_up()

    def as_lost(self) -> LockLost:
        """Return the error for a caller that relies on it after its end."""
        position = self._position
        lease = position.session.lease.id
        if position.loss is None and not position.is_wanted:
            return LockLost(self.name, lease, "the client was closed")
        loss = position.loss or position.session.as_expired()
        return LockLost(self.name, lease, loss.why)

    @property
    def _is_forked(self) -> bool:
        return self._position.context.is_forked

    @property
    def _on_loss(self) -> OnLoss | None:
        return self._told

    @property
    def _cancel_on_loss(self) -> bool:
        return self._cancels

    def _not_held(self) -> NotHeld:
        return NotHeld(f"this guard of {self.name!r} was released before")

    def lose(self, error: BaseException | None) -> None:
        """Report that it is lost."""
        if self.is_released:
            return
        self._lost.set()
        logger.warning("%s", self.as_lost())
        self.was_lost(error)


def _lose(guard: ref[QueueGuard], _loss: LeaseLost, error: BaseException | None) -> None:
    """Report the loss of a key to its guard, unless that was garbage-collected."""
    if (alive := guard()) is not None:
        alive.lose(error)


G = TypeVar("G", bound=QueueGuard)


class QueueAcquisition(DetachedTask[G], Generic[G]):
    """Waits in a queue until its key is admitted, and holds it until it is released or lost."""

    def __init__(
        self,
        context: RecipeContext,
        queue: QueueDefinition,
        value: bytes,
        make_guard: Callable[[QueuePosition], G],
        *,
        only_asks: bool,
        in_turn: bool = False,
    ) -> None:
        """With `in_turn` the client has one key in this queue at a time; others wait for it."""
        self._position = QueuePosition(context, queue, value)
        self._make_guard = make_guard
        self._only_asks = only_asks
        self._in_turn = in_turn
        self._waits_for_turn = False
        super().__init__(context)

    def denied(self, waited_s: float) -> Exception:
        """Return the error for a caller whose timeout has passed."""
        position = self._position
        name = text_of(position.queue.name)
        if self._waits_for_turn:
            return LockDenied(name, self._context.who, waited_s, is_own=True)
        if not position.created:
            why = self._context.engine.trouble
            message = f"{name!r}: no answer within {waited_s:.3g} s"
            return TimeoutError(f"{message}: {why}" if why else message)
        first = next(iter(position.ahead.values()), None)
        return (
            LockDenied(name, waited_s=waited_s) if first is None else self._held_by(first, waited_s)
        )

    def _held_by(self, first: KeyValue, waited_s: float = 0.0) -> LockDenied:
        queue = self._position.queue
        is_own = self._context.sessions.owns(first.lease)
        return LockDenied(text_of(queue.name), queue.who(first), waited_s, is_own=is_own)

    def _give_up(self) -> None:
        self._position.give_up()
        if self._waits_for_turn:
            self._task.cancel()

    async def _run(self) -> None:
        position = self._position
        if self._only_asks:
            try:
                ahead = await self._context.patience.wait(position.ask(), None)
            except Exception as error:  # noqa: BLE001  the caller gets it, unless it is gone
                self._fail(error)  # a read leaves nothing that must be cleaned up
                return
            if not position.queue.admits(ahead):
                raise self._held_by(ahead[0])
        if not self._in_turn:
            await self._wait_and_hold()
            return
        self._waits_for_turn = True
        async with self._context.turn(position.queue.prefix):
            self._waits_for_turn = False
            await self._wait_and_hold()

    async def _wait_and_hold(self) -> None:
        position = self._position
        if not self.is_wanted:
            return
        try:
            try:
                await position.join()
                await self._wait()
            except Exception as error:  # noqa: BLE001  the caller gets it before the key is deleted
                self._fail(error)
                return
            if self.is_wanted:
                self._succeed(self._make_guard(position))
                await self._hold()
        finally:
            await position.leave()

    async def _wait(self) -> None:
        """Wait until the key is admitted."""
        position, is_fresh = self._position, True
        while position.is_wanted:
            if position.loss is not None:
                raise fresh(position.loss)
            if position.queue.admits(list(position.ahead.values())):
                if is_fresh:
                    return
                is_fresh = True
                await position.look()
            elif self._only_asks:
                raise self.denied(0.0)
            else:
                await position.change()
                is_fresh = False

    async def _hold(self) -> None:
        """Watch its own key until it is released or lost."""
        position = self._position
        while position.is_wanted and position.loss is None:
            try:
                await position.change()
            except SessionExpired as expired:
                position.lose(expired, None)
            except (LeaseholdError, OSError) as error:
                lease = position.session.lease.id
                position.lose(SessionExpired(lease, f"it cannot be watched: {error}"), error)


async def acquire_in_queue(
    context: RecipeContext,
    queue: QueueDefinition,
    value: bytes,
    make_guard: Callable[[QueuePosition], G],
    timeout_s: float | None,
    *,
    in_turn: bool = False,
) -> G:
    """Wait in a queue. Raises `LockDenied` after the timeout, and leaves nothing behind then."""
    context.check_call()
    only_asks = timeout_s == 0.0
    one = QueueAcquisition(context, queue, value, make_guard, only_asks=only_asks, in_turn=in_turn)
    limit_s = context.patience.timeout_s if only_asks else timeout_s
    if await one.wait(limit_s):
        guard = one.take()
        if guard.is_held:
            return guard
        one.abandon()  # it was lost before it could be returned
        loss = guard.as_lost()
        raise SessionExpired(loss.lease, loss.why)
    assert limit_s is not None, "an acquisition without a timeout has a result"
    denied = one.denied(limit_s)
    one.abandon()
    raise denied


READ: Final = b".read"
WRITE: Final = b".write"


class _ReadersAndWriters(QueueDefinition):
    def __init__(self, name: bytes, role: bytes) -> None:
        super().__init__(name, b"rwlock", LEASE_HEX + rb"\.[0-9]{1,19}\.(?:read|write)")
        self._role = role

    def tail(self, lease: bytes, number: int) -> bytes:
        return b"%b.%d%b" % (lease, number, self._role)

    def admits(self, ahead: Sequence[KeyValue]) -> bool:
        if self._role == WRITE:
            return not ahead
        return not any(pair.key.endswith(WRITE) for pair in ahead)


class RWLock:
    """A shared and exclusive lock. A handle: creating it sends nothing."""

    def __init__(self, context: RecipeContext, name: BytesOrText) -> None:
        self._context = context
        self._name = name_of(name)
        self.name = text_of(self._name)
        """Its name."""

    def read(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[QueueGuard]:
        """Acquire it shared with other readers: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others: None for no limit, 0 to not wait. Raises
        `LockDenied` after that. `on_loss(guard, error)` is called if it is lost; with
        `cancel_on_loss` the block is cancelled then, and raises `LockLost`.
        """
        return self._acquire(READ, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def write(
        self,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Pending[QueueGuard]:
        """Acquire it exclusively; otherwise like `read`."""
        return self._acquire(WRITE, timeout, on_loss, cancel_on_loss=cancel_on_loss)

    def _acquire(
        self, role: bytes, timeout: Timeout, on_loss: OnLoss | None, *, cancel_on_loss: bool
    ) -> Pending[QueueGuard]:
        timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        queue = _ReadersAndWriters(self._name, role)
        value = Claim(self._context.who).encode()

        def guard(position: QueuePosition) -> QueueGuard:
            return QueueGuard(position, on_loss=on_loss, cancel_on_loss=cancel_on_loss)

        return Pending(
            lambda: acquire_in_queue(self._context, queue, value, guard, timeout_s),
            f"{role[1:].decode()}() of rwlock {self.name!r}",
        )


MAX_LIMIT: Final = 1_000_000
"""The highest limit of a semaphore."""


class Semaphore(metaclass=HandleType):
    """Admits a limited number of holders. A handle: creating it sends nothing."""

    def __init__(
        self,
        context: RecipeContext,
        name: BytesOrText,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        self._context = context
        data = name_of(name)
        self.name = text_of(data)
        """Its name."""
        self.limit = check_count(limit, "limit", MAX_LIMIT, "what a semaphore can count")
        """The maximum number of holders."""
        self._queue = CountedQueue(data, b"semaphore", limit, "limit")
        self._timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss
        self._blocks: Blocks[QueueGuard] = Blocks()

    def acquire(self, timeout: Timeout = None) -> Pending[QueueGuard]:
        """Acquire it: to be awaited, or entered with `async with`.

        Waits for `timeout` seconds, by default the semaphore's own timeout; 0 does not wait for a
        free position. Raises `LockDenied`, which names a holder.
        """
        wait_s = self._timeout_s if timeout is None else check_wait(timeout)
        value = Claim(self._context.who).encode()
        return Pending(
            lambda: acquire_in_queue(self._context, self._queue, value, self._guard, wait_s),
            f"acquire() of semaphore {self.name!r}",
        )

    def _guard(self, position: QueuePosition) -> QueueGuard:
        return QueueGuard(position, on_loss=self._on_loss, cancel_on_loss=self._cancel_on_loss)

    async def __aenter__(self) -> QueueGuard:
        frame = sys._getframe(1)  # noqa: SLF001  no public alternative
        guard = await self.acquire()
        guard.enter()
        self._blocks.enter(asyncio.current_task(), guard, frame)
        return guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        self._blocks.leave(asyncio.current_task(), frame).leave(exc_type)

    def _forget_block(self, guard: QueueGuard) -> None:
        """Leave the end of a block to an `AsyncExitStack`."""
        self._blocks.forget(guard)
