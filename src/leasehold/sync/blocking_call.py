"""One blocking call: started in its caller's thread, executed on the loop.

The caller waits for a lock, which the loop releases. If the caller is interrupted, by Ctrl-C for
example, the call is cancelled; if that comes too late, it is undone: a lease that did not reach its
caller must not be kept.

`cancel_on_loss` is implemented by cancelling calls. A thread cannot be stopped from outside, but a
call in which it waits can. In a block whose lease is lost, the waiting call raises `LeaseLost`, or
if there is none, the next one: once, as a task is cancelled once. Calls that end or close something
are exempt, because they are needed to leave a block.
"""

import asyncio
import threading
from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from leasehold.errors import Closed, LeaseLost

T = TypeVar("T")


class BlockingCall(Generic[T]):
    """The work of a call, and its outcome."""

    __slots__ = (
        "_done",
        "_error",
        "_has_begun",
        "_is_stopped",
        "_task",
        "_undo",
        "_value",
        "_work",
        "has_failed",
    )

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Awaitable[object]] | None = None,
    ) -> None:
        self._work = work
        self._undo = undo
        self._done = allocate_lock()
        self._done.acquire()
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._is_stopped = False
        self._value: T
        self._error: BaseException | None = None
        self.has_failed = False
        """Whether it has raised an error."""

    # On the loop.

    def start(self) -> None:
        """Start, unless it was started."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._do())

    async def _do(self) -> None:
        self._has_begun = True
        try:
            self._check_wanted()
            self._value = await self._work()
            if self._is_stopped and self._undo is not None:
                await self._undo(self._value)
        except BaseException as error:  # noqa: BLE001  its caller gets it
            self._fail(error)
        finally:
            self._done.release()

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise asyncio.CancelledError

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self.has_failed = True

    def cancel(self) -> None:
        """Cancel it, unless it is done."""
        if self._task is None or not self._has_begun:
            self._is_stopped = True  # a task that is cancelled before it starts has no callbacks
        elif not self._task.done():
            self._task.cancel()

    def stop(self) -> None:
        """Cancel it, or undo it if it is done: its caller does not wait any more."""
        self._is_stopped = True
        self.cancel()
        if self._task is not None and self._task.done():
            self._take_back_later()

    def _take_back_later(self) -> None:
        if not self.has_failed and self._undo is not None:
            self._task = asyncio.get_running_loop().create_task(self._take_back())

    async def _take_back(self) -> None:
        assert self._undo is not None
        await self._undo(self._value)

    # In the caller's thread.

    def is_done(self, within_s: float) -> bool:
        """Wait for it, up to this time; return whether it is done."""
        return self._done.acquire(timeout=within_s)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled; once it is done."""
        return isinstance(self._error, asyncio.CancelledError)

    def outcome(self) -> T:
        """Return its result, or raise its error; once it is done."""
        if self.is_cancelled:
            raise Closed("the client was closed while this call was under way")
        error, self._error = self._error, None
        if error is None:
            assert not self.has_failed, "an error is raised once"
            return self._value
        try:
            raise error
        finally:  # the error refers to this frame: neither should keep the other alive
            del error, self


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.open: list[LossScope] = []


_scopes = _Scopes()


class LossScope:
    """A block with `cancel_on_loss` that a thread is in."""

    __slots__ = ("_call", "_is_due", "_is_raised", "_loss")

    def __init__(self, loss: Callable[[], LeaseLost]) -> None:
        self._loss = loss
        self._call: BlockingCall[Any] | None = None
        self._is_due = False
        self._is_raised = False

    def enter(self) -> None:
        """Enter the block, in this thread."""
        _scopes.open.append(self)

    def leave(self) -> None:
        """Exit it, if this thread is in it."""
        if self in _scopes.open:
            _scopes.open.remove(self)

    def lose(self) -> None:
        """Mark the lease as lost, and cancel the call that the thread waits for; on the loop."""
        self._is_due = not self._is_raised
        call = self._call
        if call is not None:
            call.cancel()

    def waits_for(self, call: BlockingCall[Any] | None) -> None:
        """Record the call that the thread waits for."""
        self._call = call

    def raise_loss(self, *, is_lost: bool = False) -> None:
        """Raise the loss, if there was one that was not raised before."""
        if (self._is_due or is_lost) and not self._is_raised:
            self._is_raised = True
            self._is_due = False
            raise self._loss()


def open_scopes() -> Sequence[LossScope]:
    """Return the blocks that this thread is in and whose leases can be lost."""
    return _scopes.open
