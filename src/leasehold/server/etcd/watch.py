"""etcd's Watch service: several watches on one stream, each of a key or a range.

A watch is told of changes as they are made. One that begins in the past, or whose client does not
read, is brought up to date from the history by `engine.catching_up`; only a compaction ends it.

What is said about a watch keeps its order: nothing leaves before the answer to its creation, which
may have to wait for the disk.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from leasehold.core.keyspace import FROM_KEY, Change
from leasehold.errors import LeaseholdError
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Listener, Method, Speaker, Subscription
from leasehold.server.etcd.desk import Desk
from leasehold.server.etcd.fragments import fragments
from leasehold.wire.encode import field, key_value, varint
from leasehold.wire.rpc_pb2 import WatchCreateRequest, WatchRequest

MAX_WATCHES: Final = 10_000
"""Watches on one stream."""

PROGRESS_S: Final = 600.0
"""How often a watch that wants it, and has nothing to tell, tells how far it is; as in etcd."""

REPLAY_BYTES: Final = 1024 * 1024
"""A response about the past is sent when it is as large as this: most clients take 4 MiB."""

_NO_WATCH: Final = -1
_parse = WatchRequest.FromString


class Watch:
    """Tells clients of changes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {"/etcdserverpb.Watch/Watch": Subscription(self.open)}

    def open(self, speaker: Speaker) -> Listener:
        """Begin a stream."""
        return WatchStream(self._desk, speaker)


class WatchStream:
    """The watches of one stream."""

    def __init__(self, desk: Desk, speaker: Speaker) -> None:
        self._desk = desk
        self._store = desk.store
        self.speaker = speaker
        self._watches: dict[int, OneWatch] = {}
        self._next_id = 0
        self._is_asked_for_progress = False
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
        self._watches.clear()
        if self._progress is not None:
            self._progress.cancel()

    def _create(self, request: WatchCreateRequest) -> None:
        if len(self._watches) >= MAX_WATCHES:
            self._refuse(f"leasehold: a stream has {MAX_WATCHES} watches at most; open another")
            return
        if request.range_end and FROM_KEY != request.range_end <= request.key:
            self._refuse("mvcc: watcher range is empty")
            return
        if request.watch_id and request.watch_id in self._watches:
            self._refuse("mvcc: duplicate watch ID provided on the WatchStream")
            return
        watch_id = request.watch_id or self._free_id()
        watch = OneWatch(self, watch_id, request, self._store.position)
        self._watches[watch_id] = watch
        self._say(_watch_id(watch_id) + b"\x18\x01")
        self._follow(watch, request.start_revision)
        if request.progress_notify and self._progress is None:
            self._tell_progress_later()

    def _follow(self, watch: "OneWatch", start: int) -> None:
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
            self._store.watchers.discard(watch)
            watch.forget()
            self._say(_watch_id(watch_id) + b"\x20\x01")

    def _refuse(self, why: str) -> None:
        self._say(_watch_id(_NO_WATCH) + b"\x18\x01\x20\x01" + field(6, why.encode()))

    def _say(self, fields: bytes) -> None:
        """Send a response about the watches themselves, at the revision that is in memory."""
        store = self._store
        self.speaker.say(self._desk.header(store.revision) + fields, store.position)

    # What watches say.

    def tell(self, watch_id: int, revision: int, fields: bytes, position: int) -> None:
        """Send something about a watch, as of a revision."""
        self.speaker.say(self._desk.header(revision) + _watch_id(watch_id) + fields, position)

    def tell_in_parts(
        self, watch_id: int, revision: int, events: Sequence[bytes], position: int
    ) -> None:
        """Send events, in several responses if they would be too large for one."""
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
            header = self._desk.durable_header()
            self.speaker.say(header + b"\x10" + varint(_NO_WATCH), position)

    def _tell_progress_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._progress = loop.call_later(PROGRESS_S, self._tell_progress)

    def _tell_progress(self) -> None:
        self._store.leases.enter()
        for watch in self._watches.values():
            watch.tell_progress(self._store.durable_revision)
        self.speaker.flush()
        self._tell_progress_later()


class OneWatch:
    """One watch: of a key, or of a range.

    While it is told of the past, it gathers: etcd sends the events of many revisions in one
    response then, and clients rely on it.
    """

    __slots__ = (
        "_gathered",
        "_gathered_bytes",
        "_gathered_revision",
        "_id",
        "_is_quiet",
        "_no_delete",
        "_no_put",
        "_start",
        "_store",
        "_stream",
        "_wants_parts",
        "_wants_progress",
        "end",
        "key",
        "next_revision",
        "said",
        "wants_previous",
    )

    def __init__(
        self, stream: WatchStream, watch_id: int, request: WatchCreateRequest, position: int
    ) -> None:
        self._stream = stream
        self._store = stream._store  # noqa: SLF001  they are one thing
        self._id = watch_id
        self.said = position
        """The position that all that was said so far waits for."""
        self.key = request.key or b"\0"
        self.end = request.range_end
        self._start = self.next_revision = request.start_revision
        self.wants_previous = request.prev_kv
        self._wants_parts = request.fragment
        self._wants_progress = request.progress_notify
        self._is_quiet = True
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._gathered_revision = 0
        self._no_put = WatchCreateRequest.NOPUT in request.filters
        self._no_delete = WatchCreateRequest.NODELETE in request.filters

    @property
    def has_room(self) -> bool:
        """Whether the client takes what it is told."""
        return self._stream.speaker.has_room

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Send what concerns this watch of the changes of one revision."""
        if not self._stream.speaker.has_room:
            return False
        revision = changes[0].revision
        if revision < self._start:
            return True
        events = [
            self._event(change)
            for change in changes
            if not (self._no_delete if change.item is None else self._no_put)
        ]
        if events:
            self._is_quiet = False
            self.said = max(self.said, position)
            if self in self._store.watchers.behind:
                self._gather(events, revision)
            else:
                self._tell(events, revision)
        return True

    def _tell(self, events: Sequence[bytes], revision: int) -> None:
        if self._wants_parts:
            self._stream.tell_in_parts(self._id, revision, events, self.said)
        else:
            self._stream.tell(self._id, revision, b"".join(events), self.said)

    def _gather(self, events: Sequence[bytes], revision: int) -> None:
        self._gathered += events
        self._gathered_bytes += sum(map(len, events))
        self._gathered_revision = revision
        if self._gathered_bytes >= REPLAY_BYTES:
            self._tell_gathered()

    def _tell_gathered(self) -> None:
        if self._gathered:
            events = self._gathered
            self.forget()
            self._tell(events, self._gathered_revision)

    def forget(self) -> None:
        """Forget what was gathered and not said yet."""
        self._gathered = []
        self._gathered_bytes = 0

    def _event(self, change: Change) -> bytes:
        if change.encoded is None:
            change.encoded = _encode(change)
        event = change.encoded
        if self.wants_previous and change.previous is not None:
            event += field(3, change.previous[0])
        return field(11, event)

    def joined(self, revision: int, position: int) -> None:
        """Learn that it is up to date."""
        self._tell_gathered()
        self._stream.answer_progress()

    def settle(self) -> None:
        """Send what was told."""
        self._tell_gathered()
        self._stream.speaker.flush()

    def failed(self, error: LeaseholdError) -> None:
        """Learn that what it had to be told next cannot be read: the whole stream ends."""
        self._tell_gathered()
        self._stream.speaker.end(RpcError(error.status, f"leasehold: {error}"))

    def cancelled(self, compacted: int) -> None:
        """Learn that what it had to be told next was compacted."""
        position = max(self.said, self._store.position)
        self._stream.compacted(self._id, compacted, position)

    def tell_progress(self, revision: int) -> None:
        """Tell how far this watch is, if it wants to and had nothing else to tell lately."""
        if self._wants_progress and self._is_quiet and self not in self._store.watchers.behind:
            self._stream.tell(self._id, revision, b"", self.said)
        self._is_quiet = True


def _encode(change: Change) -> bytes:
    """Encode an event without the pair before it."""
    if change.item is not None:
        return field(2, change.item[0])
    return b"\x08\x01" + field(2, key_value(change.key, 0, change.revision, 0, b"", 0))


def _watch_id(watch_id: int) -> bytes:
    return b"\x10" + varint(watch_id) if watch_id else b""
