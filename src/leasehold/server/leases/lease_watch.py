"""Watching leases: granted, renewed (some of them), expired, revoked, from now on.

Theory of operation. Events are encoded once, and kept for all watchers together
(`store.lease_watchers`); a watcher has the number of its next event. Events are sent, several in
one message, as soon as they are on disk and the client reads, when it is the watcher's turn
(`WatcherRounds`). A watcher that does not read costs nothing meanwhile. If its next events are no
longer kept, it has *lagged*: it gets the number of missed events, and then those that are still
kept.

Watchers are visited in turn, some in each iteration of the event loop. So an event for ten thousand
watchers does not delay other calls, and a call that changes a lease does not pay for notifying
watchers. A watcher that has been sent everything, one whose next event is not on disk, and one
whose client does not read are not visited until that changes.
"""

import asyncio
from collections import deque
from typing import Final

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import ServerStream, StreamHandler
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.leases.request_checks import check_holder, invalid
from leasehold.store.lease_watchers import Feed, Follower, LeaseWatchFilter
from leasehold.wire.codec import varint
from leasehold.wire.leases_pb2 import WatchLeasesRequest

VISITS_PER_TURN: Final = 100
"""Watchers that are visited before other work runs; some milliseconds at most."""

TIDIED_PER_TURN: Final = 1_000
"""Items that are dropped before other work runs; about a millisecond."""

MAX_WATCHERS: Final = 10_000
"""Watchers of a server's leases."""

MAX_WATCHED_IDS: Final = 10_000
"""Leases that one watcher may name."""

MAX_ALL_WATCHED_IDS: Final = 100_000
"""Leases that all watchers together may name; watchers with the same filter count once."""

MAX_PREFIX_BYTES: Final = 1_024
"""Of the prefix of keys in a filter."""

MAX_PREFIXES: Final = 1_000
"""Different filters with a prefix: each is checked when a lease ends."""

_CREATED: Final = b"\x10\x01"
_parse = WatchLeasesRequest.FromString


class WatcherRounds:
    """Visits watchers when there may be something to send to them."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store
        self._watchers = context.store.lease_watchers
        self._watchers.on_news = self._news
        self._called: deque[Follower] = deque()
        self._waiting: dict[Follower, None] = {}
        """Watchers whose next event is not on disk."""
        self._is_going_on = False
        self.behind = 0
        """The number of watchers that have not been sent everything."""

    def call(self, watcher: Follower) -> None:
        """Schedule a visit to a watcher, after those scheduled before."""
        self._called.append(watcher)
        self.go_on()

    def await_disk(self, watcher: Follower) -> None:
        """Schedule a visit to a watcher when more is on disk."""
        self._waiting[watcher] = None
        self._context.runtime.waiting.wake_when_durable(self)

    def dismiss(self, watcher: Follower) -> None:
        """Remove a watcher that is gone and had not been sent everything."""
        self.behind -= 1
        self._waiting.pop(watcher, None)

    def wake(self) -> None:
        """Visit the watchers that waited for the disk."""
        self._called.extend(self._waiting)
        self._waiting.clear()
        self.go_on()

    def _news(self, feed: Feed, position: int) -> None:
        """Schedule visits to the watchers that had been sent everything before this event."""
        self.behind += len(feed.idle)
        if position > self._store.durable:
            self._waiting.update(feed.idle)
            self._context.runtime.waiting.wake_when_durable(self)
        else:
            self._called.extend(feed.idle)
            self.go_on()
        feed.idle.clear()

    def go_on(self) -> None:
        """Visit watchers, or drop items, in the next iteration of the loop."""
        if not self._is_going_on:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_going_on = False
        try:
            for _ in range(min(VISITS_PER_TURN, len(self._called))):
                self._called.popleft().visit()
        finally:
            is_untidy = self._tidy()
            if self._called or is_untidy:
                self.go_on()

    def _tidy(self) -> bool:
        """Drop items that are not needed; return True if there are more."""
        more = self._watchers.tidy(TIDIED_PER_TURN)
        log = self._watchers.log
        if not self.behind:
            log.drop(TIDIED_PER_TURN)
        return more or (not self.behind and len(log) > 0)


class Watching:
    """Sends events of leases to clients."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._index = context.store.lease_watchers
        self._rounds = WatcherRounds(context)
        self.watchers = 0
        """The number of watchers."""

    def open(self, stream: ServerStream) -> StreamHandler:
        """Begin a stream."""
        return LeaseWatchStream(self, self._rounds, self._context, stream)

    def wanted(self, request: WatchLeasesRequest) -> LeaseWatchFilter:
        """Return the filter of a request, or refuse it."""
        if len(request.ids) > MAX_WATCHED_IDS:
            raise invalid(
                f"ids must have at most {MAX_WATCHED_IDS:,} leases, or none to watch all, got "
                f"{len(request.ids):,}"
            )
        if len(request.key_prefix) > MAX_PREFIX_BYTES:
            size = len(request.key_prefix)
            raise invalid(f"key_prefix must have at most {MAX_PREFIX_BYTES:,} bytes, got {size:,}")
        if request.key_prefix and request.renewals:
            raise invalid(
                "renewals and key_prefix cannot be used together; leave one out, or give ids or "
                "a holder"
            )
        check_holder(request.holder)
        wanted = LeaseWatchFilter(
            frozenset(request.ids), request.holder, request.key_prefix, request.renewals
        )
        self._check_room(wanted)
        return wanted

    def _check_room(self, wanted: LeaseWatchFilter) -> None:
        index = self._index
        full = ""
        if self.watchers >= MAX_WATCHERS:
            full = f"there are already {MAX_WATCHERS:,} watchers of leases"
        elif wanted in index:
            return
        elif index.named + len(wanted.leases) > MAX_ALL_WATCHED_IDS:
            full = f"watchers have {index.named:,} of at most {MAX_ALL_WATCHED_IDS:,} lease ids"
        elif wanted.key_prefix and index.prefixes >= MAX_PREFIXES:
            full = f"watchers of leases already use {MAX_PREFIXES:,} different prefixes"
        if full:
            raise RpcError(Status.RESOURCE_EXHAUSTED, full)


class LeaseWatchStream:
    """One stream, which has one watcher; it has a feed once the request was received.

    Until the stream is gone, the watcher is in exactly one place: idle in its feed, scheduled or
    waiting for the disk in the rounds, or nowhere because its client does not read.
    """

    def __init__(
        self,
        watching: Watching,
        rounds: WatcherRounds,
        context: ServiceContext,
        stream: ServerStream,
    ) -> None:
        self._watching = watching
        self._rounds = rounds
        self._context = context
        self._store = context.store
        self._stream = stream
        self._feed: Feed | None = None
        self._next = 0
        """The number of the next event in the feed."""
        self._created = b""
        """The first message, until it is sent, and the position that it waits for."""
        self._created_position = 0
        self._is_cramped = False

    # Events of the stream.

    def message_received(self, message: bytes) -> None:
        """Handle the request."""
        request = parse(_parse, message, is_streamed=True)
        if self._feed is not None:
            raise invalid("a stream can have only one watch; open another stream")
        feed = self._feed = self._store.lease_watchers.join(self._watching.wanted(request))
        self._watching.watchers += 1
        self._next = feed.end
        self._created = self._context.header(self._store.revision) + _CREATED
        self._created_position = self._store.position
        self._rounds.behind += 1
        self._rounds.call(self)

    def ended(self) -> None:
        """Continue: a client that sends no more requests still gets its events."""
        return

    def relieved(self) -> None:
        """Send what waited for room."""
        if self._is_cramped:
            self._is_cramped = False
            self._rounds.call(self)

    def gone(self) -> None:
        """Remove the watcher. The rounds may still refer to it, and skip it."""
        feed, self._feed = self._feed, None
        if feed is None:
            return
        self._watching.watchers -= 1
        if self in feed.idle:
            del feed.idle[self]
        else:
            self._rounds.dismiss(self)
        self._store.lease_watchers.leave(feed)
        self._rounds.go_on()

    # Sending.

    def visit(self) -> None:
        """Send durable events: one message, if the client reads."""
        feed = self._feed
        if feed is None:
            return
        if not self._stream.has_own_room:
            self._is_cramped = True
            return
        fields = self._take_durable(feed)
        if fields:
            self._stream.send_message(b"".join(fields), 0)
            self._stream.flush_soon()
        if self._next == feed.end and not self._created:
            feed.idle[self] = None
            self._rounds.behind -= 1
        elif fields:
            self._rounds.call(self)
        else:
            self._rounds.await_disk(self)

    def _take_durable(self, feed: Feed) -> list[bytes]:
        """Take what comes next: the creation, the number of missed events, and events."""
        fields: list[bytes] = []
        durable = self._store.durable
        if self._created:
            if self._created_position > durable:
                return fields
            fields.append(self._created)
            self._created = b""
        if self._next < feed.first:
            if feed.lost_position > durable:
                return fields
            fields.append(b"\x18" + varint(feed.first - self._next))
            self._next = feed.first
        events = feed.take(self._next, durable)
        self._next += len(events)
        return fields + events
