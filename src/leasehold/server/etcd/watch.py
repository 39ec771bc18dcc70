"""etcd's Watch service: several watches on one stream, each of a key or a range, from now on.

This version keeps no history, and behaves as an etcd that is compacted at every revision: a watch
that is to begin before the current one is cancelled as one whose start was compacted, and one that
begins with it is told of the keys that it has put.
"""

from collections.abc import Sequence
from typing import Final

from leasehold.core.keyspace import FROM_KEY, Change
from leasehold.rpc.routes import Listener, Method, Speaker, Subscription
from leasehold.server.etcd.desk import Desk, parse
from leasehold.wire.encode import field, key_value, varint
from leasehold.wire.rpc_pb2 import WatchCreateRequest, WatchRequest

MAX_WATCHES: Final = 10_000
"""Watches on one stream."""

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
        self._speaker = speaker
        self._watches: dict[int, OneWatch] = {}
        self._next_id = 0

    def heard(self, message: bytes) -> None:
        """Take a request of the client."""
        request = parse(_parse, message, is_streamed=True)
        what = request.WhichOneof("request_union")
        if what == "create_request":
            self._create(request.create_request)
        elif what == "cancel_request":
            self._cancel(request.cancel_request.watch_id)
        elif what == "progress_request":
            self._say(b"\x10" + varint(_NO_WATCH))

    def ended(self) -> None:
        """Go on: a client that has nothing more to ask for still wants its events."""
        return

    def gone(self) -> None:
        """Forget all watches."""
        for watch in self._watches.values():
            self._desk.store.watchers.discard(watch)
        self._watches.clear()

    def _create(self, request: WatchCreateRequest) -> None:
        if len(self._watches) >= MAX_WATCHES:
            self._refuse(f"leasehold: a stream has {MAX_WATCHES} watches at most; open another")
            return
        if request.watch_id and request.watch_id in self._watches:
            self._refuse("mvcc: duplicate watch ID provided on the WatchStream")
            return
        if request.range_end and FROM_KEY != request.range_end <= request.key:
            self._refuse("mvcc: watcher range is empty")
            return
        store = self._desk.store
        watch_id = request.watch_id or self._free_id()
        created = _watch_id(watch_id) + b"\x18\x01"
        if 0 < request.start_revision < store.revision:
            self._say(created)
            gone = _watch_id(watch_id) + b"\x20\x01\x28" + varint(store.revision)
            self._speaker.say(self._desk.header(0) + gone, store.position)  # as etcd has it
            return
        watch = OneWatch(self, watch_id, request)
        self._watches[watch_id] = watch
        self._say(created)
        store.watchers.add(watch)
        if request.start_revision == store.revision:
            self._replay(watch)

    def _replay(self, watch: "OneWatch") -> None:
        """Send what the revision that is in memory has put: what a client that resumes asks for."""
        store = self._desk.store
        keyspace = store.keyspace
        changes = [
            Change(name, item[2], item, None)
            for name in keyspace.names(watch.key, watch.range_end)
            if (item := keyspace.get(name)) is not None and item[2] == store.revision
        ]
        if changes:
            watch.notify(changes, store.position)

    def _free_id(self) -> int:
        while self._next_id in self._watches:
            self._next_id += 1
        watch_id, self._next_id = self._next_id, self._next_id + 1
        return watch_id

    def _cancel(self, watch_id: int) -> None:
        watch = self._watches.pop(watch_id, None)
        if watch is not None:
            self._desk.store.watchers.discard(watch)
            self._say(_watch_id(watch_id) + b"\x20\x01")

    def _refuse(self, why: str) -> None:
        self._say(_watch_id(_NO_WATCH) + b"\x18\x01\x20\x01" + field(6, why.encode()))

    def _say(self, fields: bytes) -> None:
        """Send a response about the watches themselves, at the revision that is in memory."""
        store = self._desk.store
        self._speaker.say(self._desk.header(store.revision) + fields, store.position)

    def tell(self, watch_id: int, revision: int, events: bytes, position: int) -> None:
        """Send the events of one revision."""
        fields = _watch_id(watch_id) + events
        self._speaker.say(self._desk.header(revision) + fields, position)


class OneWatch:
    """One watch: of a key, or of a range."""

    __slots__ = (
        "_id",
        "_no_delete",
        "_no_put",
        "_prev_kv",
        "_start",
        "_stream",
        "key",
        "range_end",
    )

    def __init__(self, stream: WatchStream, watch_id: int, request: WatchCreateRequest) -> None:
        self._stream = stream
        self._id = watch_id
        self.key = request.key or b"\0"
        self.range_end = request.range_end
        self._start = request.start_revision
        self._prev_kv = request.prev_kv
        self._no_put = WatchCreateRequest.NOPUT in request.filters
        self._no_delete = WatchCreateRequest.NODELETE in request.filters

    def notify(self, changes: Sequence[Change], position: int) -> None:
        """Send what concerns this watch of the changes of one revision."""
        revision = changes[0].revision
        if revision < self._start:
            return
        events = [
            self._event(change)
            for change in changes
            if not (self._no_delete if change.item is None else self._no_put)
        ]
        if events:
            self._stream.tell(self._id, revision, b"".join(events), position)

    def _event(self, change: Change) -> bytes:
        if change.encoded is None:
            change.encoded = _encode(change)
        event = change.encoded
        if self._prev_kv and change.previous is not None:
            event += field(3, change.previous[0])
        return field(11, event)


def _encode(change: Change) -> bytes:
    """Encode an event without the pair before it."""
    if change.item is not None:
        return field(2, change.item[0])
    return b"\x08\x01" + field(2, key_value(change.key, 0, change.revision, 0, b"", 0))


def _watch_id(watch_id: int) -> bytes:
    return b"\x10" + varint(watch_id) if watch_id else b""
