"""Timeouts of calls, and their messages.

Theory of operation. Almost every call is answered long before its limit, so a limit must cost
little. It is one entry among the client's deadlines, which have one alarm for all of them; an
`asyncio.timeout` would be a timer of the event loop for each call. When the alarm goes off, the
task that waits is cancelled, and the cancellation is turned into `TimeoutError` unless the task was
also cancelled for another reason.
"""

import asyncio
from asyncio import CancelledError, get_running_loop
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from leasehold.basics.durations import check_seconds
from leasehold.basics.event_loop import OwnerLoop, running_loop
from leasehold.basics.timers import Deadlines, task_limits
from leasehold.engine.interface import Engine

TIMEOUT_S: Final = 10.0
"""The default timeout of a call."""

Timeout: TypeAlias = float | timedelta | None
"""Seconds, or None for the default of the client."""

T = TypeVar("T")


@asynccontextmanager
async def time_limit(seconds: float | None, engine: Engine) -> AsyncIterator[None]:
    """Limit the calls to an engine in a block; the `TimeoutError` has the time waited, and why.

    For calls that are not the client's own (`CallTimeouts` costs less for those).
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            with _sent_to_servers(seconds):
                yield
    except TimeoutError as error:
        if seconds is None or not limit.expired():
            raise
        raise TimeoutError(no_answer(seconds, engine)) from error


@contextmanager
def _sent_to_servers(seconds: float | None) -> Iterator[None]:
    """Send the limit of a block to servers, in all its calls."""
    task = asyncio.current_task()
    if seconds is None or seconds <= 0 or task is None:
        yield
        return
    outer_s = task_limits.get(task)
    task_limits[task] = seconds if outer_s is None else min(seconds, outer_s)
    try:
        yield
    finally:
        _restore(task, outer_s)


def _restore(task: "asyncio.Task[Any]", outer_s: float | None) -> None:
    """Remove the limit of a task, or restore that of the block around."""
    if outer_s is None:
        task_limits.pop(task, None)
    else:
        task_limits[task] = outer_s


def no_answer(seconds: float, engine: Engine) -> str:
    """Return the message that an engine did not answer in time, and why if that is known."""
    text = f"no answer within {seconds:g} s"
    return f"{text}: {engine.trouble}" if engine.trouble else text


class _Limit:
    """The limit of one call that is under way."""

    __slots__ = ("_cancels_before", "is_over", "task")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self._cancels_before = task.cancelling()
        self.is_over = False

    def expire(self, _seconds: float) -> None:
        """Cancel the call."""
        self.is_over = True
        self.task.cancel()

    def take_back(self) -> bool:
        """Undo the cancellation; return False if the task was also cancelled by others."""
        return self.task.uncancel() <= self._cancels_before


class CallTimeouts:
    """The timeouts of a client's calls."""

    __slots__ = ("_deadlines", "_engine", "_loop", "owner", "timeout_s")

    def __init__(self, engine: Engine, timeout: float | timedelta) -> None:
        self._engine = engine
        self.owner = OwnerLoop("client")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadlines: Deadlines[_Limit]
        self.timeout_s = check_seconds(timeout, "timeout")

    def seconds(self, timeout: Timeout) -> float:
        """Return a limit in seconds."""
        return self.timeout_s if timeout is None else check_seconds(timeout, "timeout")

    async def wait(self, call: Coroutine[Any, Any, T], timeout: Timeout) -> T:  # noqa: ASYNC109  to be checked
        """Wait for a call; `TimeoutError` has the reason why there was no answer, if it is known.

        It is unknown then whether a call that changes something was executed.
        """
        seconds = self.timeout_s if timeout is None else _checked(timeout, call)
        if running_loop() is not self._loop:
            self._begin(call)
        loop = self._loop
        assert loop is not None
        deadlines = self._deadlines
        task = asyncio.current_task(loop)
        assert task is not None, "calls are made in tasks"
        limit = _Limit(task)
        tick = deadlines.add(limit, loop.time() + seconds, seconds)
        outer_s = task_limits.get(task)
        task_limits[task] = seconds if outer_s is None else min(seconds, outer_s)
        try:
            answer = await call
        except BaseException as error:
            _restore(task, outer_s)
            deadlines.discard(limit, tick)
            if limit.is_over and limit.take_back() and isinstance(error, CancelledError):
                raise TimeoutError(no_answer(seconds, self._engine)) from error
            raise
        _restore(task, outer_s)
        deadlines.discard(limit, tick)
        if limit.is_over:
            limit.take_back()
        return answer

    def check(self) -> None:
        """Refuse to work in another event loop, after the end, and in a child process."""
        try:
            self.owner.check()
        except RuntimeError:
            self._engine.check()  # raises the clearer error in a child process
            raise

    def _begin(self, call: Coroutine[Any, Any, object]) -> None:
        """Prepare for the first call; close and refuse any other call that comes here."""
        try:
            self.check()
        except BaseException:
            call.close()
            raise
        self._loop = get_running_loop()
        self._deadlines = Deadlines(self._loop, _Limit.expire)

    def close(self) -> None:
        """Leave no alarm behind, unless there are waiters."""
        if self._loop is not None and not self._deadlines:
            self._deadlines.close()


def _checked(timeout: float | timedelta, call: Coroutine[Any, Any, object]) -> float:
    """Check a limit; a call with an invalid one is not made."""
    try:
        return check_seconds(timeout, "timeout")
    except BaseException:
        call.close()
        raise
