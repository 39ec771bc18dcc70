"""What a connection needs of the event loop; tests have one of their own, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Protocol


class Alarm(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Do not call it."""
        ...


class Host(Protocol):
    """The clock, the alarms and the tasks of a connection."""

    def now(self) -> float:
        """Give the time of a monotonic clock."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Call back after a while."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back when those have had their turn whose turn it is now."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while."""
        ...


class LoopHost:
    """The running event loop."""

    now = staticmethod(monotonic)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Call back after a while."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back when those have had their turn whose turn it is now."""
        asyncio.get_running_loop().call_soon(callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while."""
        return asyncio.get_running_loop().create_task(coroutine)
