"""`Guard` for blocking code, and the handles that acquire one for each block.

The state of a guard is read in the caller's own thread; only the rest of a release is left to the
loop.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

from leasehold.basics.pending import Pending
from leasehold.errors import LeaseholdError, LockLost
from leasehold.fencing.token import Token
from leasehold.locks import ownership as on_loop
from leasehold.locks.guards import AnyGuard, Blocks
from leasehold.sync.block_exit import begin, block_exit
from leasehold.sync.blocking_call import LossScope
from leasehold.sync.lease_base import Signal
from leasehold.sync.loop_thread import LoopThread

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=AnyGuard)
G = TypeVar("G", bound="Guard")


class _ThreadIdentity(threading.local):
    """An object for each thread. Python reuses the identifier of a thread that has ended."""

    def __init__(self) -> None:
        self.identity = object()


this_thread: Final = _ThreadIdentity()

OnLoss: TypeAlias = Callable[["Guard", BaseException | None], object]
"""Called with a guard that was lost, and the error of its session's last renewal."""


class Guard:
    """A held lock or similar, until `release`. The owner of this object holds it."""

    __slots__ = (
        "__weakref__",
        "_guard",
        "_is_reported",
        "_jeopardy",
        "_lost",
        "_on_loss",
        "_scope",
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
        self._is_reported = False
        self._lost: Signal | None = None
        self._jeopardy: Signal | None = None
        self._scope = LossScope(guard.as_lost) if cancel_on_loss else None
        guard.twin = self

    @property
    def token(self) -> Token:
        """The fencing token: higher than that of any earlier holder."""
        return self._guard.token

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._guard.name

    @property
    def key(self) -> bytes:
        """Its key at the server, which exists while the lock is held."""
        return self._guard.key

    @property
    def lost(self) -> Signal:
        """Set once the lock is lost. It only notifies; `check` decides."""
        if self._lost is None:
            self._lost = Signal(self, "lost")
        return self._lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact to the server, and it may yet be lost; and once it is."""
        if self._jeopardy is None:
            self._jeopardy = Signal(self, "jeopardy")
        return self._jeopardy

    @property
    def is_held(self) -> bool:
        """Whether it is held now, by the clock."""
        return self._guard.is_held

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return self._guard.is_released

    @property
    def remaining(self) -> float:
        """How long it is still held unless it is renewed, in seconds; 0.0 once it is not held."""
        return self._guard.remaining

    def check(self) -> None:
        """Raise `LockLost` unless it is held now: by the clock, whatever was reported."""
        self._guard.check()

    def release(self) -> None:
        """Release it. Returns immediately.

        Raises `NotHeld` if it was released before, and `LockLost` if the lock was lost in the
        meantime: work under it since then was not protected. If a signal handler raises an
        exception in this call, it is released nevertheless.
        """
        try:
            if not self._guard.put_back():
                self._thread.post(self._guard.put_by)
        except LeaseholdError:
            raise
        except BaseException:  # of a signal handler: the loop completes the release
            self._thread.post(self._guard.settle)
            raise
        finally:
            if self._lost is not None:
                self._lost.wake_waiters()  # it will not be set any more

    def again(self) -> "Guard":
        """Acquire the lock once more; it is free when both guards are released.

        The token is the same: to a resource they are one holder. Only guards of `client.lock` can
        do this; others raise `TypeError`.
        """
        if not isinstance(self._guard, on_loop.Guard):
            raise TypeError(f"{self.name!r} cannot be acquired again: it is not a client.lock()")
        nested = None
        try:
            nested = self._guard.nest()
            twin = twin_of(
                self._thread, nested, self._on_loss, cancel_on_loss=self._scope is not None
            )
            nested.hand_over()
            return twin
        except BaseException:  # of a signal handler, for instance: it may have been acquired
            if nested is not None:
                self._thread.post(nested.settle)
            raise

    def __enter__(self) -> Self:
        try:
            self.check()
            self.enter()
            begin(self, self)
            return self
        except BaseException:  # such as Ctrl-C: no block will release it
            self.abandon()
            raise

    def enter(self) -> None:
        """Enter its block, in this thread."""
        if self._scope is not None:
            self._scope.enter()

    @block_exit
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.leave(exc_type)
        except BaseException:  # such as Ctrl-C: otherwise it is released by now
            self.abandon()
            raise

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """Exit its block; raises `LockLost` if it was lost, unless the block has raised."""
        try:
            if self._scope is not None:
                self._scope.leave()
            if self._thread.is_forked or self.is_released:
                return  # it is the parent's, or was released in the block
            self.release()
        except LockLost:
            if exc_type is None:
                raise

    def abandon(self) -> None:
        """Have the loop release it, unless it was released: its block was interrupted."""
        if self._scope is not None:
            self._scope.leave()
        self._thread.post(self._guard.settle)

    def __repr__(self) -> str:
        return repr(self._guard)

    # For signals, and callbacks from the loop.

    def is_signalled(self, name: str) -> bool:
        """Return whether a signal is set. "lost" also counts as set once the end has passed."""
        self._thread.check_process()
        guard = self._guard
        if name == "jeopardy":
            return guard.jeopardy.is_set()
        return guard.lost.is_set() or (not guard.is_held and not guard.is_released)

    @property
    def is_ended(self) -> bool:
        """Whether its signals will not change any more."""
        return self.is_released

    def was_lost(self, error: BaseException | None) -> None:
        """Mark the lock as lost, and report it once."""
        if self._is_reported:
            return
        self._is_reported = True
        if self._scope is not None:
            self._scope.lose()
        for signal in (self._lost, self._jeopardy):
            if signal is not None:
                signal.wake_waiters()
        if self._on_loss is not None:
            self._thread.callbacks.submit(partial(self._call, self._on_loss, error))

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
    twin = Guard(thread, guard, on_loss, cancel_on_loss=cancel_on_loss)
    if guard.lost.is_set():  # it may have been lost before the twin existed
        twin.was_lost(None)
    return twin


leave_block: Final = Guard.__exit__
"""Exit the block of a handle, given its guard."""


def report_loss(guard: AnyGuard, error: BaseException | None) -> None:
    """Report a loss to the guard of blocking code."""
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
    """Wait for a guard, and return its counterpart in blocking code."""

    async def begin() -> G:
        guard = await pending  # its twin is created before it can be lost
        return kind(thread, guard, on_loss, cancel_on_loss=cancel_on_loss)

    return thread.run(begin, undo=_give_back)


async def _give_back(guard: Guard) -> None:
    with suppress(LockLost):
        guard.release()


class GuardedHandle(ABC):
    """A handle that acquires a guard for each `with` block, in any number of threads."""

    def __init__(
        self, thread: LoopThread, handle: Any, on_loss: OnLoss | None, *, cancel_on_loss: bool
    ) -> None:
        self._thread = thread
        self._on_loop = handle
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss
        self._blocks: Blocks[Guard] = Blocks()

    @abstractmethod
    def acquire(self) -> Guard:
        """Acquire a guard, and wait for it."""

    def __enter__(self) -> Guard:
        guard = None
        try:
            guard = self.acquire()
            guard.enter()
            if not begin(self, guard, leave_block):
                self._blocks.enter(this_thread.identity, guard)
            return guard
        except BaseException:  # of a signal handler, for instance: no block will release it
            if guard is not None:
                guard.abandon()
            raise

    @block_exit
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard = None
        try:
            guard = self._blocks.leave(this_thread.identity)
            guard.leave(exc_type)
        except BaseException:  # of a signal handler; after any other it is released already
            if guard is not None:
                guard.abandon()
            raise
