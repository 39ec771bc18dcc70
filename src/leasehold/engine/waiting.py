"""Calls and watches that wait for the disk."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from leasehold.core.callback import ignore
from leasehold.engine.store import Store
from leasehold.errors import LeaseholdError, TooBusy
from leasehold.stored_errors import fresh

MAX_WAITING: Final = 10_000
"""Calls that may wait for the disk; further ones that change something are refused."""

WAKES_AT_ONCE: Final = 250
"""Watches whose readers go on in one turn of the event loop."""


class Sleeper(Protocol):
    """A watch whose reader waits."""

    def wake(self) -> None:
        """Look again."""
        ...


class Waiting:
    """Who is to go on when more is on disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on_durable: Callable[[int], None] = ignore
        """Told of each position that is durable, before anybody who waits here."""
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._count = 0
        self._to_wake: dict[Sleeper, None] = {}
        self._is_waking = False
        self._over: LeaseholdError | None = None
        store.on_durable = self._released

    @property
    def is_crowded(self) -> bool:
        """Whether so many wait that nobody else should."""
        return self._count >= MAX_WAITING

    def check_room(self) -> None:
        """Refuse a call while too many wait already."""
        if self.is_crowded or self._store.is_full:
            raise TooBusy(f"{self._count} calls wait for the disk; try again a little later")

    async def until_durable(self, position: int) -> None:
        """Wait until everything up to a position is on disk."""
        if position <= self._store.durable:
            return
        if self._over is not None:
            raise fresh(self._over)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(position, []).append(waiter)
        self._count += 1
        try:
            await waiter
        finally:
            self._count -= 1

    def wake_when_durable(self, watch: Sleeper) -> None:
        """Have a watch look again when more is on disk, or soon if all of it is."""
        self._to_wake[watch] = None
        self._wake_soon()

    def give_up(self, error: LeaseholdError) -> None:
        """Tell everybody that it is over, those who come later too."""
        self._over = error
        waiters, self._waiters = self._waiters, {}
        for waiting in waiters.values():
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(fresh(error))

    def _released(self, position: int) -> None:
        self.on_durable(position)
        for each in [held for held in self._waiters if held <= position]:
            for waiter in self._waiters.pop(each):
                if not waiter.done():
                    waiter.set_result(None)
        if self._to_wake:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake the readers of watches, so many at a time that the loop is not kept for long."""
        for watch in [watch for watch, _ in zip(self._to_wake, range(WAKES_AT_ONCE), strict=False)]:
            del self._to_wake[watch]
            watch.wake()
        self._wake_soon()

    def _wake_soon(self) -> None:
        """Go on in the next turn, unless that is planned, or what they wait for is not on disk."""
        is_durable = self._store.position <= self._store.durable
        if self._to_wake and is_durable and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_next)

    def _wake_next(self) -> None:
        self._is_waking = False
        self._wake_some()
