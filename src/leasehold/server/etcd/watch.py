"""etcd's Watch service: several watches on one stream, each of a key or a range.

A watch is told of changes as they are made. One that begins in the past, or whose client does not
read, is brought up to date from the history by `engine.catching_up`; only a compaction ends it.

What is said about a watch keeps its order: nothing leaves before the answer to its creation, which
may have to wait for the disk.

The number of watches is limited per connection and per server. A watch keeps its key and its
`range_end`, so each `KEY_BYTES_PER_WATCH` bytes of them count as a further watch.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from leasehold.core.keyspace import FROM_KEY
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Listener, Method, Speaker, Subscription
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.fragments import fragments
from leasehold.server.etcd.one_watch import OneWatch
from leasehold.wire.encode import field, varint
from leasehold.wire.rpc_pb2 import WatchCreateRequest, WatchRequest

MAX_WATCHES: Final = 10_000
"""Watches of one connection, on all its streams: each costs about a kilobyte."""

KEY_BYTES_PER_WATCH: Final = 1024
"""Bytes of a watch's keys that count as a further watch: what a watch with a short key costs."""

MAX_ALL_WATCHES: Final = 1_000_000
"""Watches of all connections."""

PROGRESS_S: Final = 600.0
"""How often a watch that wants it, and has nothing to tell, tells how far it is; as in etcd."""

_NO_WATCH: Final = -1
_COUNTING: Final = f"and each {KEY_BYTES_PER_WATCH} bytes of keys count as one more"
_parse = WatchRequest.FromString


class Watch:
    """Tells clients of changes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._weights: dict[object, int] = {}
        """How many watches each connection has, each counted with its weight."""
        self._total = 0

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {"/etcdserverpb.Watch/Watch": Subscription(self.open, reads_metadata=False)}

    def open(self, speaker: Speaker) -> Listener:
        """Begin a stream."""
        return WatchStream(self._desk, speaker, self)

    def refusal(self, connection: object, added_weight: int) -> str | None:
        """Return why a connection may not have a further watch; None if it may."""
        if self._weights.get(connection, 0) + added_weight > MAX_WATCHES:
            return (
                f"leasehold: a connection may have at most {MAX_WATCHES} watches, {_COUNTING}; "
                "open another connection"
            )
        if self._total + added_weight > MAX_ALL_WATCHES:
            return f"leasehold: the server may have at most {MAX_ALL_WATCHES} watches, {_COUNTING}"
        return None

    def count(self, connection: object, change: int) -> None:
        """Add to the weight of a connection's watches, or subtract from it."""
        self._total += change
        weight = self._weights.get(connection, 0) + change
        if weight:
            self._weights[connection] = weight
        else:
            self._weights.pop(connection, None)


class WatchStream:
    """The watches of one stream."""

    def __init__(self, desk: Desk, speaker: Speaker, service: Watch) -> None:
        self._desk = desk
        self._service = service
        self._store = desk.store
        self.speaker = speaker
        self._watches: dict[int, OneWatch] = {}
        self._next_id = 0
        self._is_asked_for_progress = False
        self._told_revision = self._told_position = 0
        self._progress: asyncio.TimerHandle | None = None

    def heard(self, message: bytes) -> None:
        """Take a request of the client."""
        request = parse(_parse, message, is_streamed=True)
        what = request.WhichOneof("request_union")
        if what == "create_request":
            self._create(request.create_request)
        elif what == "cancel_request":
            self._cancel(request.cancel_request.watch_id)
        elif what == "progress_request":
            self._is_asked_for_progress = True
            self.answer_progress()

    def ended(self) -> None:
        """Go on: a client that has nothing more to ask for still wants its events."""
        return

    def relieved(self) -> None:
        """Have the watches brought up to date that were told nothing while there was no room."""
        self._desk.runtime.catch_up()

    def gone(self) -> None:
        """Forget all watches."""
        for watch in self._watches.values():
            self._store.watchers.discard(watch)
            watch.forget()
        weight = sum(watch.weight for watch in self._watches.values())
        self._service.count(self.speaker.connection, -weight)
        self._watches.clear()
        if self._progress is not None:
            self._progress.cancel()

    def _create(self, request: WatchCreateRequest) -> None:
        weight = _weight(request.key, request.range_end)
        refusal = self._service.refusal(self.speaker.connection, weight)
        if refusal is not None:
            self._refuse(refusal)
            return
        if request.range_end and FROM_KEY != request.range_end <= request.key:
            self._refuse("mvcc: watcher range is empty")
            return
        if request.watch_id and request.watch_id in self._watches:
            self._refuse("mvcc: duplicate watch ID provided on the WatchStream")
            return
        watch_id = request.watch_id or self._free_id()
        watch = OneWatch(self, self._store, watch_id, request, weight)
        self._watches[watch_id] = watch
        self._service.count(self.speaker.connection, weight)
        self._say(_watch_id(watch_id) + b"\x18\x01")
        self._follow(watch, request.start_revision)
        if request.progress_notify and self._progress is None:
            self._tell_progress_later()

    def _follow(self, watch: OneWatch, start: int) -> None:
        runtime = self._desk.runtime
        if start < min(0, self._store.keyspace.compacted):  # in etcd, this is compacted as well
            self._store.watchers.fall_behind(watch, start)
            runtime.catch_up()
        else:
            runtime.follow(watch, max(0, start))

    def _free_id(self) -> int:
        while self._next_id in self._watches:
            self._next_id += 1
        watch_id, self._next_id = self._next_id, self._next_id + 1
        return watch_id

    def _cancel(self, watch_id: int) -> None:
        watch = self._watches.pop(watch_id, None)
        if watch is not None:
            self._service.count(self.speaker.connection, -watch.weight)
            self._store.watchers.discard(watch)
            watch.forget()
            self._say(_watch_id(watch_id) + b"\x20\x01")

    def _refuse(self, why: str) -> None:
        self._say(_watch_id(_NO_WATCH) + b"\x18\x01\x20\x01" + field(6, why.encode()))

    def _say(self, fields: bytes) -> None:
        """Send a response about the watches themselves, at the revision that is in memory."""
        store = self._store
        self._note(store.revision, store.position)
        self.speaker.say(self._desk.header(store.revision) + fields, store.position)

    def _note(self, revision: int, position: int) -> None:
        """Remember how far the client is told to be: progress must not take it back."""
        if revision > self._told_revision:
            self._told_revision, self._told_position = revision, position

    # What watches say.

    def tell(self, watch_id: int, revision: int, fields: bytes, position: int) -> None:
        """Send something about a watch, as of a revision."""
        self._note(revision, position)
        self.speaker.say(self._desk.header(revision) + _watch_id(watch_id) + fields, position)

    def tell_in_parts(
        self, watch_id: int, revision: int, events: Sequence[bytes], position: int
    ) -> None:
        """Send events, in several responses if they would be too large for one."""
        self._note(revision, position)
        beside = self._desk.header(revision) + _watch_id(watch_id)
        for part in fragments(events, len(beside)):
            self.speaker.say(beside + part, position)

    def compacted(self, watch_id: int, revision: int, position: int) -> None:
        """End a watch whose next event is forgotten; in such a response etcd has no revision.

        Its id stays taken until the client cancels it, as in etcd.
        """
        self.tell(watch_id, 0, b"\x20\x01\x28" + varint(revision), position)
        self.answer_progress()

    def answer_progress(self) -> None:
        """Tell how far all watches are, if the client has asked, once none of them lags."""
        if self._is_asked_for_progress and not any(
            watch in self._store.watchers.behind for watch in self._watches.values()
        ):
            self._is_asked_for_progress = False
            position = max((watch.said for watch in self._watches.values()), default=0)
            revision = self._store.durable_revision
            if self._told_revision > revision:  # which is on its way, and not on disk yet
                revision, position = self._told_revision, max(position, self._told_position)
            self.speaker.say(self._desk.header(revision) + b"\x10" + varint(_NO_WATCH), position)

    def _tell_progress_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._progress = loop.call_later(PROGRESS_S, self._tell_progress)

    def _tell_progress(self) -> None:
        self._store.leases.enter()
        for watch in self._watches.values():
            watch.tell_progress(self._store.durable_revision)
        self.speaker.flush()
        self._tell_progress_later()


def _watch_id(watch_id: int) -> bytes:
    return b"\x10" + varint(watch_id) if watch_id else b""


def _weight(key: bytes, range_end: bytes) -> int:
    """Return how many watches a watch of these keys counts as."""
    return 1 + (len(key) + len(range_end)) // KEY_BYTES_PER_WATCH
