"""One blocking call: asked for in its caller's thread, done on the loop.

The caller waits for a lock, which the loop lets go. If it cannot wait any longer, because of a
Ctrl-C, what it has asked for is cancelled; and if that comes too late, it is undone: a lease that
nobody has got must not be kept.
"""

import asyncio
from _thread import allocate_lock
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from leasehold.errors import Closed

T = TypeVar("T")


class Call(Generic[T]):
    """What is to be done, and what became of it."""

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
        """Whether an error came out of it."""

    # On the loop.

    def start(self) -> None:
        """Begin, unless that was done."""
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
            self._is_stopped = True  # a task that is cancelled before it begins tells nobody
        elif not self._task.done():
            self._task.cancel()

    def stop(self) -> None:
        """Cancel it, and undo what it has done already: nobody waits for it any more."""
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
        """Wait for it, but not for longer than this."""
        return self._done.acquire(timeout=within_s)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled; once it is done."""
        return isinstance(self._error, asyncio.CancelledError)

    def outcome(self) -> T:
        """Give what it gives, or raise what it raises; once it is done."""
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
