"""A watch on an engine in this process."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leasehold.engine.interface import QueuedWatch
from leasehold.engine.values import Events, LazySequence, event_of, event_with_previous
from leasehold.errors import Closed, Compacted, LeaseholdError
from leasehold.keyspace.keyspace import Change
from leasehold.keyspace.recent_changes import changes_bytes

if TYPE_CHECKING:
    from leasehold.store.runtime import Runtime


class EmbeddedWatch(QueuedWatch):
    """Returns changes once they are on disk. One whose queue is full falls back to the history."""

    _queue: deque[tuple[int, int, Sequence[Change], int]]
    """Positions, revisions, their changes, and the sizes of those."""

    __slots__ = (
        "_deletes",
        "_is_asked",
        "_puts",
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
        super().__init__()
        self._runtime = runtime
        self._store = runtime.store
        self.key = key
        self.end = end
        self.wants_previous = previous
        self.next_revision = start
        self._start = start
        self._puts = puts
        self._deletes = deletes
        self._is_asked = False

    # Called by the store.

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Take the changes of one revision; return False if too many are queued already."""
        if self.is_full:
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
        size_bytes = (
            changes_bytes(changes) if self._queue else 0
        )  # not counted for a reader that keeps up
        self._queue.append((position, revision, changes, size_bytes))
        self._queued_bytes += size_bytes
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
        self._check_owner()

    def _begin_to_wait(self) -> None:
        if self._queue:
            self._runtime.waiting.wake_when_durable(self)

    def _take_next(self) -> Events:
        _, revision, changes, size_bytes = self._queue.popleft()
        self._queued_bytes -= size_bytes
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
        self._check_owner()
        self._is_asked = True
        if self not in self._store.watchers.behind and self._failure is None:
            self._store.watchers.fall_behind(self, self._store.revision + 1)
            self._runtime.catch_up()

    def cancel(self) -> None:
        """Cancel the watch."""
        self._check_owner()
        self._store.watchers.discard(self)
        self._queue.clear()
        self._end(Closed("this watch was cancelled"))
