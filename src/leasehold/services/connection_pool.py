"""Connections to other processes, which are kept open for further calls."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from leasehold.basics.durations import NEVER
from leasehold.basics.timers import ResettableTimer
from leasehold.errors import TooBusy


class PooledConnection(Protocol):
    """A `Channel`, or an object of a service that has one."""

    async def close(self) -> None:
        """Disconnect; calls under way fail."""
        ...


K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=PooledConnection)


class _Entry(Generic[C]):
    """A connection, and its use."""

    __slots__ = ("calls", "connection", "used_at")

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.calls = 0
        self.used_at = 0.0


class ConnectionPool(Generic[K, C]):
    """The connections of one kind, by key; those that were not used for a while are closed.

    If there are too many, the one that was not used for the longest time is closed for another.
    """

    def __init__(self, what: str, most: int, idle_s: float = NEVER) -> None:
        """`what` is the name of the peers in errors; unused connections are closed after idle_s."""
        self._what = what
        self._most = most
        self._idle_s = idle_s
        self._entries: dict[K, _Entry[C]] = {}
        """The one that was used last is at the end."""
        self._closing: set[asyncio.Task[None]] = set()
        self._timer = ResettableTimer(self._close_idle)
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def use(self, key: K, connect: Callable[[], C], otherwise: str) -> Iterator[C]:
        """Return a connection, which is not closed in the block.

        Raises `TooBusy` if all are in use; its message ends with `otherwise`: what to do, or what
        happens next.
        """
        entry = self._entries.pop(key, None)
        if entry is None:
            self._make_room(otherwise)
            entry = _Entry(connect())
        self._entries[key] = entry
        entry.calls += 1
        try:
            yield entry.connection
        finally:
            entry.calls -= 1
            entry.used_at = asyncio.get_running_loop().time()
            self._set_timer()

    def _make_room(self, otherwise: str) -> None:
        if len(self._entries) < self._most:
            return
        idle = next((key for key, entry in self._entries.items() if not entry.calls), None)
        if idle is None:
            raise TooBusy(f"all {self._most:,} connections to {self._what} are in use: {otherwise}")
        self._close_later(self._entries.pop(idle))

    def _set_timer(self) -> None:
        if self._entries and self._idle_s < NEVER and not self.is_closed:
            self._timer.set(asyncio.get_running_loop(), self._idle_s)

    def _close_idle(self) -> None:
        until = asyncio.get_running_loop().time() - self._idle_s
        for key, entry in list(self._entries.items()):
            if not entry.calls and entry.used_at <= until:
                self._close_later(self._entries.pop(key))
        self._set_timer()

    def _close_later(self, entry: _Entry[C]) -> None:
        task = asyncio.get_running_loop().create_task(entry.connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them; calls under way fail."""
        self.is_closed = True
        self._timer.cancel()
        entries = list(self._entries.values())
        self._entries.clear()
        await asyncio.gather(*(entry.connection.close() for entry in entries), *self._closing)
