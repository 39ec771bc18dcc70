"""One watch of a remote engine: what it has been told, and where it goes on.

Theory of operation. A watch is *live* while the server tells it of changes, under a number that was
never used before; else it is *detached*: before it is created, while there is no connection, and
while its reader is so slow that more is waiting than should. The one thing that counts is
`next_revision`: all before it is in the queue, or was read. When it is created, or created again,
it is from there on; so nothing is missed or told twice, whatever becomes of connections.

Who watches from now on has no `next_revision` until the server has said what now is. A member of a
cluster may lag: what was there before we asked is not told, even if it is yet to come there.

An answer may be cut into *fragments*, also within a revision: a revision is told when the next one
begins, or the answer is whole.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from leasehold.engine.interface import Watch
from leasehold.engine.lazily import Lazily
from leasehold.engine.remote.messages import event_of
from leasehold.engine.values import Events
from leasehold.errors import Closed
from leasehold.owner_loop import OwnerLoop
from leasehold.stored_errors import fresh
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb

MAX_QUEUED: Final = 1_000
"""Revisions that wait to be read; a watch that has more is detached until half of them were."""

MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024
"""And how long their answers were. A single one may be longer."""


class RemoteWatch(Watch):
    """A watch on a server. The hub makes it live; its reader takes from the queue."""

    __slots__ = (
        "_created",
        "_failure",
        "_floor",
        "_on_cancel",
        "_on_room",
        "_owner",
        "_partial",
        "_partial_bytes",
        "_queue",
        "_queued_bytes",
        "_reader",
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
        self._request = request
        self._on_room = on_room
        self._on_cancel = on_cancel
        self._floor = floor
        """The last revision that was seen before: what is from now on is after it."""
        self.live_id = 0
        """Under which number the server knows it; 0 if it is detached."""
        self.is_told = False
        """Whether the server has said that it watches under that number."""
        self.next_revision = request.start_revision
        """Where to go on; 0 if it is to begin with whatever comes."""
        self._queue: deque[tuple[int, list[kv_pb2.Event], int]] = deque()
        self._queued_bytes = 0
        self._partial: list[kv_pb2.Event] = []
        """What is known of a revision that is not whole yet."""
        self._partial_bytes = 0
        self._created = asyncio.Event()
        self._owner = OwnerLoop("watch")
        self._reader: asyncio.Future[None] | None = None
        self._wants_progress = False
        self._failure: Exception | None = None

    # What the hub tells.

    @property
    def has_room(self) -> bool:
        """Whether it is worth telling it more."""
        is_short = len(self._queue) < MAX_QUEUED // 2
        return is_short and self._queued_bytes < MAX_QUEUED_BYTES // 2

    @property
    def is_full(self) -> bool:
        """Whether it must not be told more for now."""
        return len(self._queue) >= MAX_QUEUED or self._queued_bytes >= MAX_QUEUED_BYTES

    @property
    def wants_progress(self) -> bool:
        """Whether its reader has asked for progress and was not told."""
        return self._wants_progress

    def creation(self, live_id: int) -> pb.WatchCreateRequest:
        """Make the request that makes it live, under a new number."""
        self.live_id = live_id
        request = pb.WatchCreateRequest()
        request.CopyFrom(self._request)
        request.start_revision = self.next_revision
        request.watch_id = live_id
        return request

    def detach(self) -> None:
        """Learn that the server tells it nothing more."""
        self.live_id = 0
        self.is_told = False
        self._partial = []
        self._partial_bytes = 0

    def created(self, revision: int) -> None:
        """Learn that it is told of everything after `revision`, or after what it knows."""
        if not self.next_revision:
            self.next_revision = max(revision, self._floor) + 1
        self.is_told = True
        self._created.set()

    def take(self, events: Iterable[kv_pb2.Event], octets: int, *, goes_on: bool) -> None:
        """Take an answer, or a fragment of one."""
        self._partial_bytes += octets
        for event in events:
            if self._partial and self._partial[-1].kv.mod_revision != event.kv.mod_revision:
                self._tell()
            self._partial.append(event)
        if self._partial and not goes_on:
            self._tell()
        self._wake()

    def _tell(self) -> None:
        """Have a revision read that is whole; the length of an answer counts with its first one."""
        events, octets = self._partial, self._partial_bytes
        self._partial, self._partial_bytes = [], 0
        revision = events[0].kv.mod_revision
        if revision < self.next_revision:
            return  # it was told before
        self.next_revision = revision + 1
        self._queue.append((revision, events, octets))
        self._queued_bytes += octets

    def progressed(self, revision: int, *, is_trusted: bool) -> None:
        """Learn that everything up to `revision` was told, if that is to be believed."""
        if is_trusted:
            self.next_revision = max(self.next_revision, revision + 1)
        if self._wants_progress:
            self._wants_progress = False
            self._queue.append((self.next_revision - 1, [], 0))
            self._wake()

    def fail(self, error: Exception) -> None:
        """End, after what is in the queue."""
        if self._failure is not None:
            return
        self.detach()
        self._failure = error
        self._created.set()
        self._wake()

    def abandon(self, error: Exception) -> None:
        """Be of no use in a child process."""
        self._queue.clear()
        self._failure = error

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # What its reader does.

    async def ready(self) -> None:
        """Wait until the server watches; what happens from then on is told."""
        if self._failure is None:
            self._owner.check()
            await self._created.wait()
        if self._failure is not None and not self._queue:
            raise fresh(self._failure)

    def __aiter__(self) -> AsyncIterator[Events]:
        return self

    async def __anext__(self) -> Events:
        if self._failure is None:
            self._owner.check()
        if self._reader is not None:
            raise RuntimeError("a watch has one reader; make another watch for another one")
        while not self._queue:
            if self._failure is not None:
                raise fresh(self._failure)
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        revision, events, octets = self._queue.popleft()
        self._queued_bytes -= octets
        if not self.live_id and self.has_room and self._failure is None:
            self._on_room(self)
        return Events(revision, Lazily(event_of, events))

    def request_progress(self) -> None:
        """Have `Events` without events told, once everything before them was."""
        if self._failure is None:
            self._owner.check()
            self._wants_progress = True
            self._on_room(self)

    def cancel(self) -> None:
        """Watch no longer."""
        if self._failure is None:
            self._owner.check()
            self._on_cancel(self)
            self._queue.clear()
            self.fail(Closed("this watch was cancelled"))
