"""`Guard` for blocking code: what may be relied on is answered in the caller's own thread."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from leasehold.errors import LockLost, NotHeld
from leasehold.pending import Pending
from leasehold.recipes import guard as on_loop
from leasehold.recipes.guarding import AnyGuard
from leasehold.recipes.token import Token
from leasehold.sync import bodies
from leasehold.sync.loop_thread import LoopThread
from leasehold.sync.signals import Signal

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=AnyGuard)
G = TypeVar("G", bound="Guard")

OnLoss: TypeAlias = Callable[["Guard", BaseException | None], object]
"""Told of a guard that was lost, and of what its session's last renewal met with."""


class Guard:
    """A lock, or the like, that is held until `release`. Whoever has this object has it."""

    __slots__ = (
        "__weakref__",
        "_body",
        "_guard",
        "_is_told",
        "_jeopardy",
        "_lost",
        "_on_loss",
        "_thread",
    )

    def __init__(
        self,
        thread: LoopThread,
        guard: AnyGuard,
        on_loss: OnLoss | None,
        *,
        cancel_on_loss: bool,
    ) -> None:
        self._thread = thread
        self._guard = guard
        self._on_loss = on_loss
        self._is_told = False
        self._lost: Signal | None = None
        self._jeopardy: Signal | None = None
        self._body = bodies.Body(guard.as_lost) if cancel_on_loss else None
        guard.twin = self

    @property
    def token(self) -> Token:
        """The fencing token: higher than that of anybody who had the lock before."""
        return self._guard.token

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._guard.name

    @property
    def key(self) -> bytes:
        """The key that stands for it at the server: it is there while the lock is held."""
        return self._guard.key

    @property
    def lost(self) -> Signal:
        """Set once the lock is lost. It tells; what counts is `check`."""
        if self._lost is None:
            self._lost = Signal(self, "lost")
        return self._lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact, and the lock may yet be lost."""
        if self._jeopardy is None:
            self._jeopardy = Signal(self, "jeopardy")
        return self._jeopardy

    @property
    def is_held(self) -> bool:
        """Whether it can be relied on now: by the clock."""
        return self._guard.is_held

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return self._guard.is_released

    @property
    def remaining(self) -> float:
        """How long it may still be relied on, unless it is renewed; 0.0 once it may not."""
        return self._guard.remaining

    def check(self) -> None:
        """Raise `LockLost` unless it can be relied on now: by the clock, whatever was told."""
        self._guard.check()

    def release(self) -> None:
        """Release it. There is nothing to wait for.

        Raises `NotHeld` if that was done before, and `LockLost` if the lock was lost meanwhile:
        what was done under it since then was not protected.
        """
        rest: list[Callable[[], None]] | None = None
        try:
            rest = None if self._guard.put_back() else [self._guard.put_by]
            if rest is not None:
                self._thread.post(_do_once, rest)
        except BaseException:  # such as Ctrl-C: the loop may not have been told
            if rest is not None:
                self._thread.post(_do_once, rest)
            raise
        finally:
            if self._lost is not None:
                self._lost.tell()  # who waits for that waits in vain

    def again(self) -> "Guard":
        """Acquire the lock once more; it is free when both guards are released.

        The token is the same: to a resource they are one holder. Only guards of `client.lock` can
        do this; others raise `TypeError`.
        """
        if not isinstance(self._guard, on_loop.Guard):
            raise TypeError(f"{self.name!r} cannot be acquired again: it is not a client.lock()")
        nested = None
        try:
            nested = self._guard.again()
            return twin_of(
                self._thread, nested, self._on_loss, cancel_on_loss=self._body is not None
            )
        except BaseException:  # of a signal handler, for instance: it may have been acquired
            if nested is not None:
                abandon(self._thread, nested)
            raise

    def __enter__(self) -> Self:
        try:
            self.check()
            self.enter()
            return self
        except BaseException:  # such as Ctrl-C: no block will release it
            self.abandon()
            raise

    def enter(self) -> None:
        """Begin its block, in this thread."""
        if self._body is not None:
            bodies.enter(self._body)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.leave(exc_type)
        except BaseException:  # such as Ctrl-C: else it is released by now
            self.abandon()
            raise

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """End its block; `LockLost` if it was lost, unless the block has failed of something."""
        try:
            if self._body is not None:
                bodies.leave(self._body)
            if self._thread.is_forked or self.is_released:
                return  # it is the parent's; or it was released in the block
            self.release()
        except LockLost:
            if exc_type is None:
                raise

    def abandon(self) -> None:
        """See that it is released, unless it is: after a Ctrl-C nobody else will do that."""
        if self._body is not None:
            bodies.leave(self._body)
        abandon(self._thread, self._guard)

    def __repr__(self) -> str:
        return repr(self._guard)

    # What signals ask, and what the loop tells.

    def is_signalled(self, name: str) -> bool:
        """Whether a signal is set. It is lost, too, once its end has passed unnoticed."""
        self._thread.check_process()
        guard = self._guard
        if name == "jeopardy":
            return guard.jeopardy.is_set()
        return guard.lost.is_set() or (not guard.is_held and not guard.is_released)

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will be told of it."""
        return self.is_released

    def was_lost(self, error: BaseException | None) -> None:
        """Hear that the lock is lost; that is told once."""
        if self._is_told:
            return
        self._is_told = True
        if self._body is not None:
            self._body.lose()
        if self._lost is not None:
            self._lost.tell()
        if self._on_loss is not None:
            self._thread.notices.submit(partial(self._call, self._on_loss, error))

    def _call(self, callback: OnLoss, error: BaseException | None) -> None:
        try:
            callback(self, error)
        except BaseException:
            if self._thread.is_ending:
                return  # and so is this thread
            logger.exception("a callback for lock %r has failed", self.name)


def twin_of(
    thread: LoopThread, guard: AnyGuard, on_loss: OnLoss | None, *, cancel_on_loss: bool
) -> Guard:
    """Return the guard of blocking code for a guard on the loop; made in the caller's thread."""
    twin: Guard | None = guard.twin
    if twin is None:
        twin = Guard(thread, guard, on_loss, cancel_on_loss=cancel_on_loss)
        if guard.lost.is_set():  # it may have been lost before there was a twin to be told
            twin.was_lost(None)
    return twin


def tell_twin(guard: AnyGuard, error: BaseException | None) -> None:
    """Have the guard of blocking code told, for one that was lost."""
    if guard.twin is not None:
        guard.twin.was_lost(error)


def obtain(
    thread: LoopThread,
    pending: Pending[A],
    on_loss: OnLoss | None,
    *,
    cancel_on_loss: bool,
    kind: type[G],
) -> G:
    """Wait for a guard, and give the one that stands for it here."""

    async def begin() -> G:
        guard = await pending  # what stands for it is made before it can be lost
        return kind(thread, guard, on_loss, cancel_on_loss=cancel_on_loss)

    return thread.run(begin, undo=_give_back)


async def _give_back(guard: Guard) -> None:
    with suppress(LockLost):
        guard.release()


def _do_once(rest: list[Callable[[], None]]) -> None:
    """Do the rest of a release, unless that was done; on the loop."""
    if rest:
        rest.pop()()


def abandon(thread: LoopThread, guard: AnyGuard) -> None:
    """Have the loop release what nobody has got, because of a Ctrl-C; or has left by half."""
    thread.post(release_if_held, guard)


def release_if_held(guard: AnyGuard) -> None:
    """Release it, unless that was done; on the loop."""
    with suppress(LockLost, NotHeld):
        guard.release()
