"""A watch on an engine in this process."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from leasehold.basics.event_loop import OwnerLoop
from leasehold.engine.interface import Watch
from leasehold.engine.values import Events, LazySequence, event_of, event_with_previous
from leasehold.errors import Closed, Compacted, LeaseholdError, fresh
from leasehold.keyspace.keyspace import Change
from leasehold.keyspace.recent_changes import octets_of

if TYPE_CHECKING:
    from leasehold.store.runtime import Runtime

MAX_QUEUED: Final = 1_000
"""Revisions that wait to be read; a watch that has more falls back to the history."""

MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024
"""The limit of the pairs in them. A single revision may be larger."""


class EmbeddedWatch(Watch):
    """Returns changes once they are on disk."""

    __slots__ = (
        "_deletes",
        "_failure",
        "_is_asked",
        "_owner",
        "_puts",
        "_queue",
        "_queued_bytes",
        "_reader",
        "_runtime",
        "_start",
        "_store",
        "end",
        "key",
        "next_revision",
        "wants_previous",
    )

    def __init__(
        self,
        runtime: "Runtime",
        key: bytes,
        end: bytes,
        *,
        start: int,
        previous: bool,
        puts: bool,
        deletes: bool,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self.key = key
        self.end = end
        self.wants_previous = previous
        self.next_revision = start
        self._start = start
        self._puts = puts
        self._deletes = deletes
        self._queue: deque[tuple[int, int, Sequence[Change], int]] = deque()
        """Positions, revisions, their changes, and the sizes of those."""
        self._queued_bytes = 0
        self._owner = OwnerLoop("watch")
        self._reader: asyncio.Future[None] | None = None
        self._failure: LeaseholdError | None = None
        self._is_asked = False

    # Called by the store.

    @property
    def has_room(self) -> bool:
        """Whether it has room for more."""
        is_short = len(self._queue) < MAX_QUEUED // 2
        return is_short and self._queued_bytes < MAX_QUEUED_BYTES // 2

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision; return False if too many are queued already."""
        if len(self._queue) >= MAX_QUEUED or self._queued_bytes >= MAX_QUEUED_BYTES:
            return False
        revision = changes[0].revision
        if revision >= self._start:
            if not (self._puts and self._deletes):
                changes = [each for each in changes if self._passes(each)]
            if changes:
                self._take(position, revision, changes)
        return True

    def _passes(self, change: Change) -> bool:
        return self._deletes if change.item is None else self._puts

    def _take(self, position: int, revision: int, changes: Sequence[Change]) -> None:
        octets = octets_of(changes) if self._queue else 0  # not counted for a reader that keeps up
        self._queue.append((position, revision, changes, octets))
        self._queued_bytes += octets
        if self._reader is not None:
            self._runtime.waiting.wake_when_durable(self)

    def settle(self) -> None:
        """Do nothing: the reader has been woken."""

    def joined(self, revision: int, position: int) -> None:
        """Record that it is up to date."""
        if self._is_asked:
            self._is_asked = False
            self._take(position, revision, ())

    def failed(self, error: LeaseholdError) -> None:
        """End with an error: the next revision cannot be read."""
        self._end(error)

    def cancelled(self, compacted: int) -> None:
        """End with `Compacted`: the next revision was compacted."""
        self._end(Compacted(self.next_revision, compacted))

    def fail(self, error: LeaseholdError) -> None:
        """End with the engine, after the queued changes that are on disk; the rest is dropped."""
        while self._queue and self._queue[-1][0] > self._store.durable:
            self._queue.pop()
        self._end(error)

    def _end(self, error: LeaseholdError) -> None:
        """End, after the queued changes."""
        self._failure = error
        self.wake()

    # Called by the reader.

    async def ready(self) -> None:
        """Return: an engine in this process watches from the beginning."""
        if self._failure is None:
            self._owner.check()

    def __aiter__(self) -> AsyncIterator[Events]:
        return self

    async def __anext__(self) -> Events:
        if self._failure is None:
            self._owner.check()
        if self._reader is not None:
            raise RuntimeError("a watch can have only one reader; create another watch")
        while not self._is_readable:
            if self._failure is not None and not self._queue:
                raise fresh(self._failure)
            self._reader = asyncio.get_running_loop().create_future()
            if self._queue:
                self._runtime.waiting.wake_when_durable(self)
            try:
                await self._reader
            finally:
                self._reader = None
        _, revision, changes, octets = self._queue.popleft()
        self._queued_bytes -= octets
        if self in self._store.watchers.behind and self.has_room:
            self._runtime.catch_up()
        make = event_with_previous if self.wants_previous else event_of
        return Events(revision, LazySequence(make, changes))

    @property
    def _is_readable(self) -> bool:
        return bool(self._queue) and self._queue[0][0] <= self._store.durable

    def wake(self) -> None:
        """Have a reader check the queue again."""
        if self._reader is not None and not self._reader.done():
            if self._is_readable or self._failure is not None:
                self._reader.set_result(None)
            elif self._queue:
                self._runtime.waiting.wake_when_durable(self)

    def request_progress(self) -> None:
        """Request `Events` without events, to be returned after everything before them."""
        if self._failure is None:
            self._owner.check()
        self._is_asked = True
        if self not in self._store.watchers.behind and self._failure is None:
            self._store.watchers.fall_behind(self, self._store.revision + 1)
            self._runtime.catch_up()

    def cancel(self) -> None:
        """Cancel the watch."""
        if self._failure is None:
            self._owner.check()
        self._store.watchers.discard(self)
        self._queue.clear()
        self._end(Closed("this watch was cancelled"))
