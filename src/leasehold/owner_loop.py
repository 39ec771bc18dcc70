"""The event loop that an object belongs to: calls from another one are refused.

Futures, tasks and timers of one loop do not work in another, and its lock-free state is not
protected against another thread. A call from a second loop would damage the owner, so it is refused
before it changes anything.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

running_loop: Final = asyncio._get_running_loop  # noqa: SLF001  the other one raises if there is none


def post(
    loop: asyncio.AbstractEventLoop | None, callback: Callable[..., object], *args: object
) -> None:
    """Have a loop make a call soon; from any thread or finalizer. Does nothing if it is closed."""
    if loop is not None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, *args)


def call_on(
    loop: asyncio.AbstractEventLoop | None, callback: Callable[..., object], *args: object
) -> None:
    """Make a call now if this loop is running here, else have it made there soon."""
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
        """To be compared with `running_loop()` where a call of `check` would cost too much."""

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
