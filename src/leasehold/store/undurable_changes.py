"""Changes in memory that are not on disk yet: what may be shown, when, and what waits for it.

Theory of operation. Memory runs ahead of the disk by two batches at most: one *under way* and one
*open*. Nothing may be shown before it is on disk. So each change or read returns the *position*
that must be durable before its result is shown: the number of the batch that has the change. (A
revision would not do: a grant must be on disk as well, and does not move the revision.) For reads:

- keys and leases that neither batch has touched are as they were at `durable_revision`, and may be
  shown immediately, at that revision;
- everything else is at `revision`, and may be shown when `position` is durable.

A position of 0 has always been durable. Calls and watches that have to wait for a position are
`DurabilityWaiters`; the server has a gate of its own (`grpc.durability_gate`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Final, Protocol

from leasehold.basics.callbacks import ignore
from leasehold.errors import LeaseholdError, TooBusy, fresh
from leasehold.keyspace.keyspace import covers
from leasehold.leases.lease_table import LeasedResource
from leasehold.store.lease_record import LeaseRecord

MAX_KEYS_LOOKED_AT: Final = 1000
"""A range waits for the disk rather than being compared with more changed keys than this."""

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Limit of the changes that wait for the disk; beyond it the store is full and refuses more."""

MAX_WAITING: Final = 10_000
"""Calls that may wait for the disk; beyond it, further calls that change something are refused."""

WAKES_PER_TURN: Final = 250
"""Watches whose readers are woken in one turn of the event loop."""


class Batch:
    """Changes that go to disk together, in one row, and the keys and leases they concern."""

    __slots__ = (
        "changes",
        "compacted",
        "first_revision",
        "granted",
        "keys",
        "last_revision",
        "leases",
        "number",
        "rekeyed",
        "size_bytes",
    )

    def __init__(self, number: int, first_revision: int) -> None:
        self.number = number
        """Batches are numbered from 1 in each run of a store: these numbers are its positions."""
        self.first_revision = first_revision
        self.last_revision = first_revision - 1
        self.compacted = 0
        self.size_bytes = 0
        """The size of all changes together."""
        self.changes: list[bytes] = []
        self.keys: set[bytes] = set()
        self.leases: set[int] = set()
        """Leases that began or ended."""
        self.rekeyed: set[int] = set()
        """Leases that gained or lost a key."""
        self.granted: list[LeasedResource[LeaseRecord]] = []
        """Leases whose terms begin when the batch is on disk."""

    def touches(self, key: bytes, end: bytes) -> bool:
        """Return whether a key in this range was changed, or may have been."""
        if not end:
            return key in self.keys
        return len(self.keys) > MAX_KEYS_LOOKED_AT or any(
            covers(key, end, name) for name in self.keys
        )


class UndurableChanges(ABC):
    """The two batches that are not on disk, and the keys and leases that they have touched."""

    def __init__(self, revision: int, compacted: int) -> None:
        self.durable = 0
        """The position up to which everything is on disk."""
        self.durable_revision = revision
        self.durable_compacted = compacted
        self.on_durable: Callable[[int], None] = ignore
        """Called with each new value of `durable`."""
        self._under_way: Batch | None = None
        self._open = Batch(1, revision + 1)

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision of the data in memory."""

    @property
    def position(self) -> int:
        """The position that must be durable before the present data in memory may be shown."""
        if self._open.changes:
            return self._open.number
        return self.durable if self._under_way is None else self._under_way.number

    def position_of(self, revision: int) -> int:
        """Return the position that must be durable before this revision may be shown."""
        if revision <= self.durable_revision:
            return 0
        if self._under_way is not None and revision <= self._under_way.last_revision:
            return self._under_way.number
        return self._open.number

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing further should be applied."""
        return self._open.size_bytes >= MAX_BATCH_BYTES

    def is_durable(self, key: bytes) -> bool:
        """Return whether a key is the same in memory and on disk."""
        return key not in self._open.keys and (
            self._under_way is None or key not in self._under_way.keys
        )

    def is_range_durable(self, key: bytes, end: bytes) -> bool:
        """Return whether a range is the same in memory and on disk."""
        return not self._open.touches(key, end) and (
            self._under_way is None or not self._under_way.touches(key, end)
        )

    def lease_position(self, lease: int) -> int:
        """Return the position that must be durable before the existence of a lease may be shown."""
        if lease in self._open.leases:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.leases:
            return self._under_way.number
        return 0

    def leases_position(self, leases: Collection[int]) -> int:
        """Return the position that must be durable before the existence of leases may be shown."""
        if self._open.leases and not self._open.leases.isdisjoint(leases):
            return self._open.number
        under_way = self._under_way
        if under_way is not None and not under_way.leases.isdisjoint(leases):
            return under_way.number
        return 0

    def listing_position(self, *, with_keys: bool) -> int:
        """Return the position that must be durable before a list of leases, or keys, may be shown.

        A listing does not wait for other changes than those of leases.
        """
        for batch in (self._open, self._under_way):
            if batch is not None and (batch.leases or (with_keys and batch.rekeyed)):
                return batch.number
        return 0

    def keys_position(self, lease: int) -> int:
        """Return the position that must be durable before the keys of a lease may be shown."""
        if lease in self._open.rekeyed:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.rekeyed:
            return self._under_way.number
        return 0


class Sleeper(Protocol):
    """A watch whose reader waits."""

    def wake(self) -> None:
        """Check again whether there is something to read."""
        ...


class DurabilityWaiters:
    """The calls and watches to be woken when more is on disk."""

    def __init__(self, store: UndurableChanges) -> None:
        self._store = store
        self.on_durable: Callable[[int], None] = ignore
        """Called with each position that is durable, before any waiter."""
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._count = 0
        self._to_wake: dict[Sleeper, None] = {}
        self._is_waking = False
        self._over: LeaseholdError | None = None
        store.on_durable = self._released

    @property
    def is_crowded(self) -> bool:
        """Whether there are too many waiters to admit another."""
        return self._count >= MAX_WAITING

    def check_room(self) -> None:
        """Refuse a call while there are too many waiters."""
        if self.is_crowded or self._store.is_full:
            raise TooBusy(f"{self._count} calls wait for the disk; retry later")

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
        """Wake a watch when more is on disk, or soon if all of it is."""
        self._to_wake[watch] = None
        self._wake_soon()

    def give_up(self, error: LeaseholdError) -> None:
        """Raise the error in all present and future waiters."""
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
        """Wake the readers of watches, some at a time so as not to block the loop for long."""
        for watch in [
            watch for watch, _ in zip(self._to_wake, range(WAKES_PER_TURN), strict=False)
        ]:
            del self._to_wake[watch]
            watch.wake()
        self._wake_soon()

    def _wake_soon(self) -> None:
        """Schedule the next turn, unless it is scheduled, or their positions are not durable."""
        is_durable = self._store.position <= self._store.durable
        if self._to_wake and is_durable and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_next)

    def _wake_next(self) -> None:
        self._is_waking = False
        self._wake_some()
