"""An acquisition in a queue, and its guard: for read-write locks, semaphores and elections.

Theory of operation. Each acquisition has its own key. The `QueueDefinition` decides by the keys
ahead whether the key is admitted. The events of a watch may be old, so an acquisition that has
waited reads once more before it is admitted.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

from leasehold.basics.durations import seconds_of
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
from leasehold.locks.guard_base import AnyGuard
from leasehold.locks.lock_keys import text_of
from leasehold.locks.lock_options import OnLoss
from leasehold.locks.queue import QueueDefinition, QueuePosition
from leasehold.locks.recipe_context import DetachedTask, RecipeContext
from leasehold.sessions.loss_signals import Signal

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
            said = f"{name!r}: no answer within {waited_s:.3g} s"
            return TimeoutError(f"{said}: {why}" if why else said)
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
