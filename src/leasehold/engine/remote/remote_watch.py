"""One watch of a remote engine: what it has received, and where it continues.

Theory of operation. A watch is *live* while the server sends it changes, under a number that was
never used before; else it is *detached*: before it is created, while there is no connection, and
while its reader is so slow that too much is queued. Its state is `next_revision`: everything before
it is in the queue, or was read. The watch is created, and created again, from there on; so nothing
is missed or repeated, whatever happens to connections.

A watch from now on has no `next_revision` until the server has sent the current revision. A member
of a cluster may lag: changes before our request are not returned, even if they are yet to arrive
there.

An answer may be split into *fragments*, also within a revision: a revision is complete when the
next one begins, or the answer is complete.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from leasehold.engine.interface import QueuedWatch
from leasehold.engine.remote.etcd_messages import event_of
from leasehold.engine.values import Events, LazySequence
from leasehold.errors import Closed, fresh
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb


class RemoteWatch(QueuedWatch):
    """A watch on a server. The hub makes it live; its reader takes from the queue.

    One whose queue is full is detached until half of it was read.
    """

    _queue: deque[tuple[int, list[kv_pb2.Event], int]]
    """Revisions, their events, and the length of their answers."""

    __slots__ = (
        "_created",
        "_floor",
        "_on_cancel",
        "_on_room",
        "_partial",
        "_partial_bytes",
        "_request",
        "_wants_progress",
        "is_told",
        "live_id",
        "next_revision",
    )

    def __init__(
        self,
        request: pb.WatchCreateRequest,
        on_room: "Callable[[RemoteWatch], None]",
        on_cancel: "Callable[[RemoteWatch], None]",
        floor: int = 0,
    ) -> None:
        super().__init__()
        self._request = request
        self._on_room = on_room
        self._on_cancel = on_cancel
        self._floor = floor
        """The last revision that was seen before: a watch from now on begins after it."""
        self.live_id = 0
        """Its number at the server; 0 if it is detached."""
        self.is_told = False
        """Whether the server has confirmed that it watches under that number."""
        self.next_revision = request.start_revision
        """Where to continue; 0 if it is to begin with the first change to come."""
        self._partial: list[kv_pb2.Event] = []
        """The events so far of a revision that is not complete yet."""
        self._partial_bytes = 0
        self._created = asyncio.Event()
        self._wants_progress = False

    # Called by the hub.

    @property
    def wants_progress(self) -> bool:
        """Whether its reader has requested progress that was not returned yet."""
        return self._wants_progress

    def creation(self, live_id: int) -> pb.WatchCreateRequest:
        """Return the request that makes it live, under a new number."""
        self.live_id = live_id
        request = pb.WatchCreateRequest()
        request.CopyFrom(self._request)
        request.start_revision = self.next_revision
        request.watch_id = live_id
        return request

    def detach(self) -> None:
        """Mark it as detached: the server sends it nothing more."""
        self.live_id = 0
        self.is_told = False
        self._partial = []
        self._partial_bytes = 0

    def created(self, revision: int) -> None:
        """Mark it as created: it receives everything after `revision`, or after what it has."""
        if not self.next_revision:
            self.next_revision = max(revision, self._floor) + 1
        self.is_told = True
        self._created.set()

    def take(self, events: Iterable[kv_pb2.Event], size_bytes: int, *, goes_on: bool) -> None:
        """Take an answer, or a fragment of one."""
        self._partial_bytes += size_bytes
        for event in events:
            if self._partial and self._partial[-1].kv.mod_revision != event.kv.mod_revision:
                self._tell()
            self._partial.append(event)
        if self._partial and not goes_on:
            self._tell()
        self._wake()

    def _tell(self) -> None:
        """Queue a complete revision; the length of an answer counts with its first one."""
        events, size_bytes = self._partial, self._partial_bytes
        self._partial, self._partial_bytes = [], 0
        revision = events[0].kv.mod_revision
        if revision < self.next_revision:
            return  # it was queued before
        self.next_revision = revision + 1
        self._queue.append((revision, events, size_bytes))
        self._queued_bytes += size_bytes

    def progressed(self, revision: int, *, is_trusted: bool) -> None:
        """Record that everything up to `revision` was received, if that can be trusted."""
        if is_trusted:
            self.next_revision = max(self.next_revision, revision + 1)
        if self._wants_progress:
            self._wants_progress = False
            self._queue.append((self.next_revision - 1, [], 0))
            self._wake()

    def fail(self, error: Exception) -> None:
        """End with an error, after the queued revisions."""
        if self._failure is not None:
            return
        self.detach()
        self._failure = error
        self._created.set()
        self._wake()

    def abandon(self, error: Exception) -> None:
        """Disable this in a child process."""
        self._queue.clear()
        self._failure = error

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # Called by the reader.

    async def ready(self) -> None:
        """Wait until the server watches; changes from then on are returned."""
        if self._failure is None:
            self._owner.check()
            await self._created.wait()
        if self._failure is not None and not self._queue:
            raise fresh(self._failure)

    def _take_next(self) -> Events:
        revision, events, size_bytes = self._queue.popleft()
        self._queued_bytes -= size_bytes
        if not self.live_id and self.has_room and self._failure is None:
            self._on_room(self)
        return Events(revision, LazySequence(event_of, events))

    def request_progress(self) -> None:
        """Request `Events` without events, to be returned after everything before them."""
        if self._failure is None:
            self._owner.check()
            self._wants_progress = True
            self._on_room(self)

    def cancel(self) -> None:
        """Cancel the watch."""
        if self._failure is None:
            self._owner.check()
            self._on_cancel(self)
            self._queue.clear()
            self.fail(Closed("this watch was cancelled"))
