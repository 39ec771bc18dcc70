"""The order of keys under a name: a queue, ordered by create revision.

Theory of operation. A lock or an election is a prefix, and the keys under it form a queue: the one
with the lowest create revision holds the lock, or leads. A `NameQueue` is such a queue in memory.
It is created for the first call that waits or observes, and dropped with the last. It is a watcher
of the prefix, so it is notified of every change in the step that makes it, and reads nothing else.
A release costs only the next waiter, however long the queue is; a key that is deleted from the
middle costs no waiter anything; and a call whose own key is deleted is notified immediately.

Changes are delivered before they are on disk, and so are the notifications of waiters: each comes
with the position that must be durable before it is sent to a client.

A prefix with more than a thousand keys is read in slices. Changes made meanwhile are buffered, and
applied after the read.

Keys of callers that are gone are removed by `CleanupTasks`, in slices, for many may go together.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from leasehold.errors import LeaseholdError, TooBusy
from leasehold.keyspace.keyspace import Change, Item
from leasehold.keyspace.operations import Found, Range, SortBy
from leasehold.keyspace.ranges import LONG
from leasehold.server.etcd.service_context import invalid
from leasehold.store.runtime import Runtime
from leasehold.store.slices import Slicer

MAX_CALLERS: Final = 10_000
"""Calls of a service that wait for their turn, or observe the leader, on all connections.

All observers of one election are notified in one step: some 40 ms for this many."""

MAX_NAME_BYTES: Final = 16 * 1024
"""Of the name of a lock or an election: it is kept for each waiting call."""

MAX_QUEUED_KEYS: Final = 1_000_000
"""Keys in all queues of a service; a call that would need a further queue is refused."""

_CREATED: Final = 1  # in an item


class Waiter(Protocol):
    """A call that waits until no key is left that was created before its own."""

    def is_first(self, revision: int, position: int) -> None:
        """Called when its key is the first, as of a revision."""
        ...

    def is_out(self, position: int) -> None:
        """Called when its key is deleted."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """Called when the queue cannot be read."""
        ...


class Observer(Protocol):
    """A call that is notified of the first key."""

    def leads(self, first: Item, revision: int, position: int) -> None:
        """Called with the first key as of a revision, when the key or its value has changed."""
        ...

    def failed(self, error: LeaseholdError) -> None:
        """Called when the queue cannot be read."""
        ...


def bounds(name: bytes) -> tuple[bytes, bytes]:
    """Return the range of the keys in the queue for a name."""
    return name + b"/", name + b"0"


class NameQueues:
    """All queues of a service that have waiters or observers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._queues: dict[bytes, NameQueue] = {}
        self.monotonic = runtime.store.leases.monotonic
        self.callers = 0
        self.queued_keys = 0
        """The number of keys in all queues."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.cleanup = CleanupTasks(runtime)

    def __len__(self) -> int:
        return len(self._queues)

    def check_room(self, name: bytes) -> None:
        """Refuse a call that would have to wait if there are too many of them."""
        if len(name) > MAX_NAME_BYTES:
            raise invalid(f"name must have at most {MAX_NAME_BYTES} bytes, got {len(name)}")
        if self.callers >= MAX_CALLERS:
            raise TooBusy(f"{self.callers} calls wait in queues, which is the limit; retry later")
        if name not in self._queues:
            queued_keys = self.queued_keys + self._store.keyspace.count(*bounds(name))
            if queued_keys > MAX_QUEUED_KEYS:
                raise TooBusy(
                    f"queues would have {queued_keys} keys; the limit is {MAX_QUEUED_KEYS} in total"
                )

    def of(self, name: bytes) -> "NameQueue":
        """Return the queue for a name; not while a sliced operation is in progress."""
        queue = self._queues.get(name)
        if queue is None:
            queue = NameQueue(self, name)
            query = Range(queue.key, queue.end, sort_by=SortBy.CREATE_REVISION)
            read = self._store.read(query)  # before a call can wait in it
            self._queues[name] = queue
            self._store.watchers.join(queue)
            if read is None:
                query.revision = self._store.revision  # later changes are delivered to the watcher
                self._store.pins[query.revision] += 1
                self.spawn(self._read_long(queue, query))
            else:
                queue.begin(read[0], read[0].revision, read[1])
        return queue

    async def _read_long(self, queue: "NameQueue", query: Range) -> None:
        try:
            found, _ = await self._runtime.reader.scan(query)
        except LeaseholdError as error:
            self.drop(queue)  # later calls read it again
            queue.failed(error)
            return
        finally:
            self._unpin(query.revision)
        if self._queues.get(queue.name) is queue:  # otherwise all calls have gone meanwhile
            revision = self._store.revision
            queue.begin(found, revision, self._store.position_of(revision))

    def _unpin(self, revision: int) -> None:
        pins = self._store.pins
        pins[revision] -= 1
        if not pins[revision]:
            del pins[revision]

    def drop(self, queue: "NameQueue") -> None:
        """Drop a queue without waiters and observers."""
        if self._queues.get(queue.name) is queue:
            del self._queues[queue.name]
        self._store.watchers.discard(queue)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class NameQueue:
    """The keys under one name, the calls that wait for theirs, and the observers."""

    __slots__ = (
        "_callers",
        "_early",
        "_items",
        "_observers",
        "_queues",
        "_shown",
        "_waiters",
        "end",
        "key",
        "name",
        "next_revision",
    )

    has_room = True
    wants_previous = False

    def __init__(self, queues: NameQueues, name: bytes) -> None:
        self._queues = queues
        self.name = name
        self.key, self.end = bounds(name)
        self.next_revision = 0
        self._items: OrderedDict[bytes, Item] = OrderedDict()
        self._callers = 0
        self._waiters: dict[bytes, dict[Waiter, None]] = {}
        self._observers: dict[Observer, None] = {}
        self._shown: Item | None = None
        """The first key of which the observers were last notified."""
        self._early: list[Sequence[Change]] | None = []
        """Changes that arrived before the queue was read; None after that."""

    @property
    def first(self) -> Item | None:
        """The first key, if there is any."""
        return next(iter(self._items.values()), None)

    # Calls.

    def wait(self, key: bytes, waiter: Waiter) -> bool:
        """Notify a call when its key, which exists, is the first; return True if it is now."""
        self._came()
        first = self.first
        if first is not None and first[_CREATED] == self._items[key][_CREATED]:
            return True
        self._waiters.setdefault(key, {})[waiter] = None
        return False

    def observe(self, observer: Observer) -> None:
        """Notify a call of the first key, from now on."""
        self._observers[observer] = None
        self._came()

    def leave(self, key: bytes, waiter: Waiter) -> bool:
        """Remove a waiter; return True if it was still waiting, as the only one for its key."""
        waiting = self._waiters.get(key, {})
        was_last = list(waiting) == [waiter]
        waiting.pop(waiter, None)
        if not waiting:
            self._waiters.pop(key, None)
        self._left()
        return was_last

    def ignore(self, observer: Observer) -> None:
        """Remove an observer."""
        self._observers.pop(observer, None)
        self._left()

    def _came(self) -> None:
        self._callers += 1
        self._queues.callers += 1

    def _left(self) -> None:
        self._queues.callers -= 1
        self._callers -= 1
        if not self._callers:
            self._queues.queued_keys -= len(self._items)
            self._items.clear()
            self._queues.drop(self)

    # Changes.

    def begin(self, found: Found, revision: int, position: int) -> None:
        """Set the keys as they were read, and notify as of a revision, which is the current one.

        Calls that came before are notified now, and not of the states in between.
        """
        assert self._early is not None, "this is known already"
        early, self._early = self._early, None
        for item in found.items:
            self._items[item[5]] = item
        self._queues.queued_keys += len(self._items)
        out: list[Waiter] = []
        for changes in early:
            out += self._take(changes)
        self._tell(out, revision, position)

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Apply the changes of one revision, and notify the calls that they concern."""
        if self._early is None:
            self._tell(self._take(changes), changes[0].revision, position)
        else:
            self._early.append(changes)
        return True

    def _take(self, changes: Sequence[Change]) -> list[Waiter]:
        """Update the queue; return the waiters whose keys are deleted."""
        before = len(self._items)
        out: list[Waiter] = []
        for change in changes:
            if change.item is None:
                self._items.pop(change.key, None)
                out += self._waiters.pop(change.key, ())
            else:
                self._items[change.key] = change.item  # a new one is behind all others
        self._queues.queued_keys += len(self._items) - before
        return out

    def _tell(self, out: list[Waiter], revision: int, position: int) -> None:
        """Notify waiters without a key, the first waiters, and the observers."""
        if len(out) > LONG:
            self._queues.spawn(self._tell_in_slices(out, position))
        else:
            for waiter in out:
                waiter.is_out(position)
        first = self.first
        if first is not None:
            self._serve(first, revision, position)
        self._shown = first

    async def _tell_in_slices(self, out: list[Waiter], position: int) -> None:
        """Notify very many waiters without a key. Notifying one that has left is harmless."""
        slicer = Slicer(self._queues.monotonic)
        for waiter in out:
            waiter.is_out(position)
            await slicer.pause()

    def _serve(self, first: Item, revision: int, position: int) -> None:
        for key, item in self._items.items():
            if item[_CREATED] != first[_CREATED]:
                break
            for waiter in self._waiters.pop(key, ()):
                waiter.is_first(revision, position)
        if first is not self._shown:
            for observer in self._observers:
                observer.leads(first, revision, position)

    def settle(self) -> None:
        """Do nothing: all calls were notified."""

    def joined(self, revision: int, position: int) -> None:
        """Do nothing: it is never behind."""

    def failed(self, error: LeaseholdError) -> None:
        """Notify all calls that the queue cannot be read."""
        for waiter in [each for waiting in self._waiters.values() for each in waiting]:
            waiter.failed(error)
        for observer in list(self._observers):
            observer.failed(error)

    def cancelled(self, compacted: int) -> None:
        """Do nothing: it is never behind."""


class CleanupTasks:
    """Removes keys, and leases, as soon as no sliced operation is in progress."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._tasks_by_key: OrderedDict[bytes, list[Callable[[], None]]] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._tasks_by_key)

    def do_soon(self, key: bytes, task: Callable[[], None]) -> None:
        """Remove a key or its lease soon, and before the key is claimed again."""
        try:
            self._runtime.check()
        except LeaseholdError:
            return  # the server has stopped: data on disk stays as it is
        self._tasks_by_key.setdefault(key, []).append(task)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def do_now(self, key: bytes) -> None:
        """Do the task of a key immediately; not while a sliced operation is in progress."""
        for task in self._tasks_by_key.pop(key, ()):
            task()

    async def _work(self) -> None:
        slicer = Slicer(self._store.leases.monotonic)
        try:
            while self._tasks_by_key:
                await self._runtime.enter()
                if self._tasks_by_key:  # another task may have been faster
                    self.do_now(next(iter(self._tasks_by_key)))
                await slicer.pause()
        except LeaseholdError:
            self._tasks_by_key.clear()  # the server has stopped
        finally:
            self._worker = None  # in the same step as its last check: nothing is missed
