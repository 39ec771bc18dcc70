"""Watching leases: granted, renewed (some of it), expired, revoked, from now on.

Theory of operation. Each watcher has a queue of what it is to be told, encoded once for all of
them. From there it leaves, some events in one message, as soon as it is on disk and its client
takes it. If the queue is full the watcher *lags*: what happens is counted and not kept, until all
that is in the queue was told; then the client is told how much it has missed, and is up to date
again. So one that does not read costs no more than its queue, and nobody else anything.
"""

import asyncio
from collections import deque
from typing import Final

from leasehold.core.duration import to_wire_ms
from leasehold.engine.lease_watchers import LeaseEvent
from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Listener, Speaker
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.refusals import invalid
from leasehold.wire.encode import field, varint
from leasehold.wire.leases_pb2 import WatchLeasesRequest

MAX_WATCHERS: Final = 10_000
"""Who may watch the leases of a server at the same time."""

MAX_WATCHED_IDS: Final = 10_000
"""Leases that one watcher may name."""

MAX_QUEUED: Final = 10_000
"""Events that wait for one watcher; the bytes are those of all watchers together."""

EVENTS_PER_MESSAGE: Final = 500

MAX_EVENT_KEYS: Final = 100
"""Keys that an event names; it says how many there were in any case."""

_CREATED: Final = b"\x10\x01"
_parse = WatchLeasesRequest.FromString


class Watching:
    """Tells clients what happens to leases."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.watchers = 0
        """How many there are."""

    def open(self, speaker: Speaker) -> Listener:
        """Begin a stream."""
        return WatchedStream(self, self._desk, speaker)


class WatchedStream:
    """One stream, which has one watcher; that is in the index from its request on."""

    def __init__(self, watching: Watching, desk: Desk, speaker: Speaker) -> None:
        self._watching = watching
        self._desk = desk
        self._store = desk.store
        self._speaker = speaker
        self._is_created = False
        self._queue: deque[tuple[bytes, int]] = deque()
        """What is to be told: fields of a response, and the position they wait for."""
        self._missed = 0
        self._missed_position = 0
        self._is_flushing = False
        self.leases: frozenset[int] = frozenset()
        self.holder = ""
        self.key_prefix = b""
        self.wants_renewals = False

    # What the client does.

    def heard(self, message: bytes) -> None:
        """Take the request."""
        request = parse(_parse, message, is_streamed=True)
        if self._is_created:
            raise invalid("one request makes one watch; open another stream for the next one")
        if len(request.ids) > MAX_WATCHED_IDS:
            raise invalid(
                f"{len(request.ids):,} leases to be watched; name at most {MAX_WATCHED_IDS:,}, or "
                "none to watch all"
            )
        if self._watching.watchers >= MAX_WATCHERS:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED, f"leases are watched by {MAX_WATCHERS:,} already"
            )
        self.leases, self.holder = frozenset(request.ids), request.holder
        self.key_prefix, self.wants_renewals = request.key_prefix, request.renewals
        self._is_created = True
        self._watching.watchers += 1
        self._store.lease_watchers.join(self)
        header = self._desk.header(self._store.revision)
        self._add(header + _CREATED, self._store.position)

    def ended(self) -> None:
        """Go on: a client that has nothing more to ask for still wants its events."""
        return

    def relieved(self) -> None:
        """Tell what waited for room."""
        self._flush()

    def gone(self) -> None:
        """Forget it."""
        self._queue.clear()
        if self._is_created:
            self._is_created = False
            self._watching.watchers -= 1
            self._store.lease_watchers.discard(self)

    # What happens to leases.

    def notify(self, event: LeaseEvent, position: int) -> None:
        """Take an event, or count it as missed."""
        if self._missed or len(self._queue) >= MAX_QUEUED:
            self._missed += 1
            self._missed_position = max(self._missed_position, position)
            return
        if not event.encoded:
            event.encoded = encode(event)
        self._add(event.encoded, position)

    def _add(self, fields: bytes, position: int) -> None:
        self._queue.append((fields, position))
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    # How it is told.

    def wake(self) -> None:
        """Look again: more is on disk."""
        self._flush()

    def _flush(self) -> None:
        """Tell what is on disk, as far as the client takes it."""
        self._is_flushing = False
        said = False
        while self._is_created and self._speaker.has_own_room:
            fields = self._take_durable()
            if not fields:
                break
            said = True
            self._speaker.say(b"".join(fields), 0)
        if said:
            self._speaker.flush_soon()
        next_position = self._queue[0][1] if self._queue else self._missed_position
        if next_position > self._store.durable:
            self._desk.runtime.waiting.wake_when_durable(self)

    def _take_durable(self) -> list[bytes]:
        """Take the next ones from the queue, and last how many were missed."""
        queue, durable = self._queue, self._store.durable
        fields: list[bytes] = []
        while queue and queue[0][1] <= durable and len(fields) < EVENTS_PER_MESSAGE:
            fields.append(queue.popleft()[0])
        if self._missed and not queue and self._missed_position <= durable:
            fields.append(b"\x18" + varint(self._missed))
            self._missed = self._missed_position = 0
        return fields


def encode(event: LeaseEvent) -> bytes:
    """Encode an event as a field of a response."""
    record = event.lease
    parts = [b"\x08" + varint(event.kind) if event.kind else b"", b"\x10", record.encoded_id]
    if record.holder:
        parts.append(field(3, record.holder.encode()))
    parts += [b"\x20", varint(to_wire_ms(record.ttl_s))]
    parts += [field(5, key) for key in event.keys[:MAX_EVENT_KEYS]]
    if event.keys:
        parts += [b"\x30", varint(len(event.keys))]
    parts += [b"\x38", varint(event.revision)]
    return field(4, b"".join(parts))
