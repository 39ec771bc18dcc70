"""etcd's Watch service: several watches on one stream, each of a key or a range.

A watch receives changes as they are made. One that begins in the past, or whose client does not
read, is brought up to date from the history by `store.watch_catch_up`; only a compaction ends it.

Responses about a watch keep their order: nothing is sent before the answer to its creation, which
may have to wait for the disk.

The number of watches is limited per connection and per server. A watch keeps its key and its
`range_end`, so each `KEY_BYTES_PER_WATCH` bytes of them count as a further watch.

A large response is sent in fragments to clients that request them, because of a message size limit.
"""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from leasehold.errors import LeaseholdError
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Method, ServerStream, StreamHandler, Subscription
from leasehold.keyspace.keyspace import FROM_KEY, Change
from leasehold.keyspace.ranges import LONG, SLICE
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.store import Store
from leasehold.wire.codec import field, key_value, varint
from leasehold.wire.rpc_pb2 import WatchCreateRequest, WatchRequest

FRAGMENT_BYTES: Final = 2 * 1024 * 1024
"""A response of this size is sent in fragments: etcd's limit on requests."""

TO_BE_CONTINUED: Final = b"\x38\x01"
"""The field that all fragments have but the last."""

REPLAY_BYTES: Final = 1024 * 1024
"""A response about past changes is sent at this size: most clients accept 4 MiB."""

MAX_WATCHES: Final = 10_000
"""Watches of one connection, on all its streams: each costs about a kilobyte."""

KEY_BYTES_PER_WATCH: Final = 1024
"""Bytes of a watch's keys that count as a further watch: the cost of one with a short key."""

MAX_ALL_WATCHES: Final = 1_000_000
"""Watches of all connections."""

PROGRESS_S: Final = 600.0
"""How often an idle watch sends its progress, if requested; as in etcd."""

_NO_WATCH: Final = -1
_COUNTING: Final = f"and each {KEY_BYTES_PER_WATCH} bytes of keys count as one more"
_parse = WatchRequest.FromString


def fragments(events: Sequence[bytes], beside_bytes: int) -> Iterator[bytes]:
    """Split the events of a response into fragments, each with at least one and as many as fit.

    `beside_bytes` is the size of the other fields of each fragment.
    """
    size = beside_bytes + sum(map(len, events))
    if size < FRAGMENT_BYTES or len(events) == 1:
        yield b"".join(events)
        return
    beside_bytes += len(TO_BE_CONTINUED)
    first, size = 0, beside_bytes
    for number, event in enumerate(events):
        size += len(event)
        if size >= FRAGMENT_BYTES and number > first:
            yield TO_BE_CONTINUED + b"".join(events[first:number])
            first, size = number, beside_bytes + len(event)
    yield b"".join(events[first:])


class ServerWatch:
    """One watch: of a key, or of a range.

    While it receives past changes, it collects them: etcd then sends the events of many revisions
    in one response, and clients rely on it.
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
        "position",
        "wants_previous",
        "weight",
    )

    def __init__(
        self,
        stream: "WatchStream",
        store: Store,
        watch_id: int,
        request: WatchCreateRequest,
        weight: int,
    ) -> None:
        self._stream = stream
        self._store = store
        self._id = watch_id
        self.weight = weight
        """How many watches this one counts as in the limits."""
        self.position = store.position
        """The position that must be durable before all responses so far are sent."""
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
        """Whether the client reads its responses."""
        return self._stream.server_stream.has_room

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        """Send the events for this watch from the changes of one revision, if they are few."""
        if not self._stream.server_stream.has_room or len(changes) > LONG:
            return False
        if changes[0].revision >= self._start:
            self._take(self._events(changes), changes[0].revision, position)
        return True

    def notify_steps(self, changes: Sequence[Change], position: int) -> Generator[None, None, bool]:
        """Send the events for this watch from very many changes of one revision."""
        if not self._stream.server_stream.has_room:
            return False
        if changes[0].revision < self._start:
            return True
        events: list[bytes] = []
        for start in range(0, len(changes), SLICE):
            events += self._events(changes[start : start + SLICE])
            yield
        self._take(events, changes[0].revision, position)
        return True

    def _events(self, changes: Sequence[Change]) -> list[bytes]:
        return [
            self._event(change)
            for change in changes
            if not (self._no_delete if change.item is None else self._no_put)
        ]

    def _take(self, events: Sequence[bytes], revision: int, position: int) -> None:
        """Send events; those of a watch that is behind are collected with the next ones."""
        if events:
            self._is_quiet = False
            self.position = max(self.position, position)
            if self in self._store.watchers.behind:
                self._gather(events, revision)
            else:
                self._send(events, revision)

    def _send(self, events: Sequence[bytes], revision: int) -> None:
        if self._wants_parts:
            self._stream.send_in_parts(self._id, revision, events, self.position)
        else:
            self._stream.send(self._id, revision, b"".join(events), self.position)

    def _gather(self, events: Sequence[bytes], revision: int) -> None:
        self._gathered += events
        self._gathered_bytes += sum(map(len, events))
        self._gathered_revision = revision
        if self._gathered_bytes >= REPLAY_BYTES:
            self._send_gathered()

    def _send_gathered(self) -> None:
        if self._gathered:
            events = self._gathered
            self.forget()
            self._send(events, self._gathered_revision)

    def forget(self) -> None:
        """Drop collected events that were not sent yet."""
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
        """Called when it is up to date."""
        self._send_gathered()
        self._stream.answer_progress()

    def settle(self) -> None:
        """Send the collected events."""
        self._send_gathered()
        self._stream.server_stream.flush()

    def failed(self, error: LeaseholdError) -> None:
        """Called when its next events cannot be read: the whole stream ends."""
        self._send_gathered()
        self._stream.server_stream.end(RpcError(error.status, f"leasehold: {error}"))

    def cancelled(self, compacted: int) -> None:
        """Called when its next events were compacted."""
        position = max(self.position, self._store.position)
        self._stream.compacted(self._id, compacted, position)

    def send_progress(self, revision: int) -> None:
        """Send the progress of this watch, if requested and if it has sent nothing lately."""
        if self._wants_progress and self._is_quiet and self not in self._store.watchers.behind:
            self._stream.send(self._id, revision, b"", self.position)
        self._is_quiet = True


def _encode(change: Change) -> bytes:
    """Encode an event without the previous pair."""
    if change.item is not None:
        return field(2, change.item[0])
    return b"\x08\x01" + field(2, key_value(change.key, 0, change.revision, 0, b"", 0))


class WatchService:
    """Sends changes to clients."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._weights: dict[object, int] = {}
        """The number of watches of each connection, counted with their weights."""
        self._total = 0

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        return {"/etcdserverpb.Watch/Watch": Subscription(self.open, reads_context=False)}

    def open(self, server_stream: ServerStream) -> StreamHandler:
        """Begin a stream."""
        return WatchStream(self._context, server_stream, self)

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

    def __init__(
        self, context: ServiceContext, server_stream: ServerStream, service: WatchService
    ) -> None:
        self._context = context
        self._service = service
        self._store = context.store
        self.server_stream = server_stream
        self._watches: dict[int, ServerWatch] = {}
        self._next_id = 0
        self._is_asked_for_progress = False
        self._sent_revision = self._sent_position = 0
        self._progress: asyncio.TimerHandle | None = None

    def message_received(self, message: bytes) -> None:
        """Handle a request of the client."""
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
        """Continue: a client that sends no more requests still gets its events."""
        return

    def relieved(self) -> None:
        """Catch up the watches that have skipped changes while there was no room."""
        self._context.runtime.catch_up()

    def gone(self) -> None:
        """Drop all watches."""
        for watch in self._watches.values():
            self._store.watchers.discard(watch)
            watch.forget()
        weight = sum(watch.weight for watch in self._watches.values())
        self._service.count(self.server_stream.connection, -weight)
        self._watches.clear()
        if self._progress is not None:
            self._progress.cancel()

    def _create(self, request: WatchCreateRequest) -> None:
        weight = _weight(request.key, request.range_end)
        refusal = self._service.refusal(self.server_stream.connection, weight)
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
        watch = ServerWatch(self, self._store, watch_id, request, weight)
        self._watches[watch_id] = watch
        self._service.count(self.server_stream.connection, weight)
        self._send_status(_watch_id(watch_id) + b"\x18\x01")
        self._follow(watch, request.start_revision)
        if request.progress_notify and self._progress is None:
            self._send_progress_later()

    def _follow(self, watch: ServerWatch, start: int) -> None:
        runtime = self._context.runtime
        if start < min(0, self._store.keyspace.compacted):  # as in etcd, this counts as compacted
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
            self._service.count(self.server_stream.connection, -watch.weight)
            self._store.watchers.discard(watch)
            watch.forget()
            self._send_status(_watch_id(watch_id) + b"\x20\x01")

    def _refuse(self, why: str) -> None:
        self._send_status(_watch_id(_NO_WATCH) + b"\x18\x01\x20\x01" + field(6, why.encode()))

    def _send_status(self, fields: bytes) -> None:
        """Send a response about the watches themselves, at the revision in memory."""
        store = self._store
        self._note(store.revision, store.position)
        self.server_stream.send_message(
            self._context.header(store.revision) + fields, store.position
        )

    def _note(self, revision: int, position: int) -> None:
        """Record the latest revision that was sent: progress must not go below it."""
        if revision > self._sent_revision:
            self._sent_revision, self._sent_position = revision, position

    # Responses of watches.

    def send(self, watch_id: int, revision: int, fields: bytes, position: int) -> None:
        """Send a response about a watch, as of a revision."""
        self._note(revision, position)
        self.server_stream.send_message(
            self._context.header(revision) + _watch_id(watch_id) + fields, position
        )

    def send_in_parts(
        self, watch_id: int, revision: int, events: Sequence[bytes], position: int
    ) -> None:
        """Send events, in several responses if they would be too large for one."""
        self._note(revision, position)
        beside = self._context.header(revision) + _watch_id(watch_id)
        for part in fragments(events, len(beside)):
            self.server_stream.send_message(beside + part, position)

    def compacted(self, watch_id: int, revision: int, position: int) -> None:
        """End a watch whose next event was compacted; as in etcd, the response has no revision.

        Its id stays in use until the client cancels it, as in etcd.
        """
        self.send(watch_id, 0, b"\x20\x01\x28" + varint(revision), position)
        self.answer_progress()

    def answer_progress(self) -> None:
        """Send the progress of all watches, if the client requested it, once none is behind."""
        if self._is_asked_for_progress and not any(
            watch in self._store.watchers.behind for watch in self._watches.values()
        ):
            self._is_asked_for_progress = False
            position = max((watch.position for watch in self._watches.values()), default=0)
            revision = self._store.durable_revision
            if self._sent_revision > revision:  # it is not on disk yet
                revision, position = self._sent_revision, max(position, self._sent_position)
            self.server_stream.send_message(
                self._context.header(revision) + b"\x10" + varint(_NO_WATCH), position
            )

    def _send_progress_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._progress = loop.call_later(PROGRESS_S, self._send_progress)

    def _send_progress(self) -> None:
        self._store.leases.enter()
        for watch in self._watches.values():
            watch.send_progress(self._store.durable_revision)
        self.server_stream.flush()
        self._send_progress_later()


def _watch_id(watch_id: int) -> bytes:
    return b"\x10" + varint(watch_id) if watch_id else b""


def _weight(key: bytes, range_end: bytes) -> int:
    """Return how many watches a watch of these keys counts as."""
    return 1 + (len(key) + len(range_end)) // KEY_BYTES_PER_WATCH
