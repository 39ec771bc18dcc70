"""The event loop: the one that an object belongs to, and the interface that connections use.

Futures, tasks and timers of one loop do not work in another, and lock-free state is not protected
against another thread. A call from a second loop would damage its owner, so `OwnerLoop` refuses it
before it changes anything. Calls from other threads and from finalizers are posted to the loop.

Connections use a loop only through `EventLoop`, which tests implement in virtual time. With a
`ChangeWaiter` one task at a time waits for something to change.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

running_loop: Final = asyncio._get_running_loop  # noqa: SLF001  the other one raises if there is none


# The loop of an object.


def post(
    loop: asyncio.AbstractEventLoop | None, callback: Callable[..., object], *args: object
) -> None:
    """Schedule a call on a loop; from any thread or finalizer. Does nothing if it is closed."""
    if loop is not None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, *args)


def is_cancelled() -> bool:
    """Return whether the current task is cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())


def call_on(
    loop: asyncio.AbstractEventLoop | None, callback: Callable[..., object], *args: object
) -> None:
    """Make a call now if this loop is running here, else schedule it there."""
    if running_loop() is loop:
        callback(*args)
    else:
        post(loop, callback, *args)


class OwnerLoop:
    """The loop that was running when the object was made or, if none was, at its first call."""

    __slots__ = ("_what", "loop")

    def __init__(self, what: str) -> None:
        self._what = what
        self.loop: asyncio.AbstractEventLoop | None = running_loop()
        """Compare it with `running_loop()` where a call of `check` would cost too much."""

    def check(self) -> None:
        """Raise `RuntimeError` unless this loop is the one that is running."""
        loop = running_loop()
        if loop is not self.loop or loop is None:
            self._differs(loop)

    def _differs(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is None:
            raise RuntimeError(f"this {self._what} must be called from its running event loop")
        if self.loop is not None:
            raise RuntimeError(
                f"this {self._what} belongs to the event loop that made it and was called from "
                "another one: make one for each loop, or use leasehold.sync from any thread"
            )
        self.loop = loop


# The loop of a connection.


class LoopTimer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class EventLoop(Protocol):
    """The clock, the timers and the tasks of a connection."""

    def now(self) -> float:
        """Return the time of a monotonic clock."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> LoopTimer:
        """Schedule a call after a delay."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Schedule a call after the callbacks that are ready now."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task."""
        ...


class RunningLoop:
    """The running event loop."""

    now = staticmethod(monotonic)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> LoopTimer:
        """Schedule a call after a delay."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Schedule a call after the callbacks that are ready now."""
        asyncio.get_running_loop().call_soon(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task."""
        return asyncio.get_running_loop().create_task(coroutine)


class ChangeWaiter:
    """Lets one task wait until it is woken; `what` names the operation in errors."""

    __slots__ = ("_future", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._future: asyncio.Future[None] | None = None

    def check_free(self) -> None:
        """Raise an error if another task waits."""
        if self._future is not None:
            raise RuntimeError(f"another task is {self._what} on this call; one at a time")

    async def wait(self) -> None:
        """Wait until something has changed."""
        self.check_free()
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None

    def wake(self) -> None:
        """Wake the waiting task."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
