"""The expiry queue: a lazy heap of deadlines.

Theory of operation. The items live in a table of the caller; the heap holds `(at, ticket, key)`, so
it keeps nothing alive and the garbage collector need not walk it. Each item has `queued_at`, the
time of its one live entry, and `ticket`, that entry's number.

- Extending a deadline touches only the item: when its entry comes up too early, it goes back with
  the new deadline. One attribute write per renewal.
- Shortening pushes a second entry; the first one's ticket is no longer the item's: it is *stale*.
- An item that leaves the table makes its entry stale.

Stale entries are bounded: once they exceed half the live ones plus `STALE_SLACK` the heap is
*rebuilt*, and never in one go, which would be a pause of half a second at a million leases. The
heap becomes `_old`; each later operation takes `REBUILD_STEP` entries off its tail (which leaves a
heap a heap), moves the live ones into the new heap and drops the others. With eight entries an
operation, a rebuild of one and a half times the live entries ends after a fifth as many operations,
each of which makes at most one entry stale: so the stale never exceed the live plus the slack.
"""

from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

from leasehold.basics.durations import NEVER

STALE_SLACK: Final = 64
REBUILD_STEP: Final = 8

NEXT_LOOKS: Final = 32
"""The most stale entries that `next_at` drops in a call, so that a mass cancel causes no pause."""


class Deadline:
    """Something with a deadline that an `ExpiryQueue` can watch over."""

    __slots__ = ("deadline", "queued_at", "ticket")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.queued_at = NEVER  # not queued
        self.ticket = 0


K = TypeVar("K", bound=Hashable)
D = TypeVar("D", bound=Deadline)


class ExpiryQueue(Generic[K, D]):
    """The deadlines of the items of `table`, earliest first."""

    __slots__ = ("_heap", "_live", "_old", "_table", "_tickets")

    def __init__(self, table: Mapping[K, D]) -> None:
        self._table = table
        self._heap: list[tuple[float, int, K]] = []
        self._old: list[tuple[float, int, K]] = []
        self._live = 0
        self._tickets = 0

    def __len__(self) -> int:
        """The number of entries, live and stale."""
        return len(self._heap) + len(self._old)

    @property
    def stale(self) -> int:
        """The number of entries that no longer belong to an item."""
        return len(self) - self._live

    def schedule(self, key: K, item: D, at: float | None = None) -> None:
        """Queue `item` for its deadline, or for `at`, unless it is queued for earlier already.

        Not needed after a deadline moved later: that is detected when the entry comes up.
        """
        if at is None:
            at = item.deadline
        if at >= item.queued_at:
            return
        if item.queued_at == NEVER:
            self._live += 1
        self._push(key, item, at)
        self._tidy()

    def schedule_all(self) -> None:
        """Queue all items of the table for their deadlines; none of them may be queued yet."""
        assert not self._heap, "only an empty queue is filled"
        for ticket, (key, item) in enumerate(self._table.items(), 1):
            if item.deadline != NEVER:
                item.queued_at = item.deadline
                item.ticket = ticket
                self._heap.append((item.deadline, ticket, key))
        heapify(self._heap)
        self._live = len(self._heap)
        self._tickets = len(self._table)

    def discard(self, item: D) -> None:
        """Remove `item`, which has left the table or is about to."""
        if item.queued_at != NEVER:
            self._unqueue(item)

    def pop_due(self, now: float, budget: int) -> list[tuple[K, D]]:
        """Remove and return items that are due at `now`; look at `budget` entries at most."""
        due: list[tuple[K, D]] = []
        table = self._table
        for _ in range(budget):
            heap = self._earliest_heap() if self._old else self._heap
            if not heap or heap[0][0] > now:
                break
            _, ticket, key = heap[0]
            item = table.get(key)
            if item is None or item.ticket != ticket:
                heappop(heap)
            elif item.deadline <= now:
                heappop(heap)
                self._unqueue(item)
                due.append((key, item))
            elif item.deadline == NEVER:
                heappop(heap)
                self._unqueue(item)
            elif heap is self._heap:
                self._tickets = item.ticket = self._tickets + 1
                item.queued_at = item.deadline
                heapreplace(heap, (item.deadline, item.ticket, key))
            else:
                heappop(heap)
                self._push(key, item, item.deadline)
        return due

    def next_at(self) -> float:
        """Return when to look again: no deadline is earlier, `NEVER` if there is none.

        Behind many stale entries it may be the time of one of them: too early, never too late.
        """
        if not self._live:
            return NEVER
        table = self._table
        for _ in range(NEXT_LOOKS):
            heap = self._earliest_heap()
            at, ticket, key = heap[0]
            item = table.get(key)
            if item is not None and item.ticket == ticket:
                return at
            heappop(heap)
        return self._earliest_heap()[0][0]

    def _earliest_heap(self) -> list[tuple[float, int, K]]:
        if self._old and (not self._heap or self._old[0] < self._heap[0]):
            return self._old
        return self._heap

    def _push(self, key: K, item: D, at: float) -> None:
        self._tickets = item.ticket = self._tickets + 1
        item.queued_at = at
        heappush(self._heap, (at, item.ticket, key))

    def _unqueue(self, item: D) -> None:
        item.queued_at = NEVER
        item.ticket = 0
        self._live -= 1
        self._tidy()  # with fewer live ones, fewer stale ones are allowed

    def _tidy(self) -> None:
        """Continue a rebuild by one step, or begin one if it is due."""
        if self._old:
            self._rebuild_step()
        elif len(self._heap) - self._live > self._live // 2 + STALE_SLACK:
            self._old, self._heap = self._heap, self._old
            self._rebuild_step()

    def _rebuild_step(self) -> None:
        old, table = self._old, self._table
        for _ in range(min(REBUILD_STEP, len(old))):
            entry = old.pop()
            item = table.get(entry[2])
            if item is not None and item.ticket == entry[1]:
                heappush(self._heap, entry)
