"""Watching leases: granted, renewed (some of it), expired, revoked, from now on.

Theory of operation. What happens is encoded once, and kept for all watchers together
(`engine.lease_feeds`); a watcher has the number of the event that it is told next. Events leave,
some in one message, as soon as they are on disk and the client takes them, when the watcher has its
turn (`Rounds`). One that does not read costs nothing meanwhile. If what it has yet to be told is no
longer kept, it has *lagged*: it is told how much it has missed, and then what is still there.
"""

from typing import Final

from leasehold.engine.lease_feeds import Feed, LeaseFilter
from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Listener, Speaker
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.refusals import check_holder, invalid
from leasehold.server.leases.rounds import Rounds
from leasehold.wire.encode import varint
from leasehold.wire.leases_pb2 import WatchLeasesRequest

MAX_WATCHERS: Final = 10_000
"""Who may watch the leases of a server at the same time."""

MAX_WATCHED_IDS: Final = 10_000
"""Leases that one watcher may name."""

MAX_ALL_WATCHED_IDS: Final = 100_000
"""Leases that all watchers may name together; watchers that want the same count once."""

MAX_PREFIX_BYTES: Final = 1_024
"""What the keys may have to begin with."""

MAX_PREFIXES: Final = 1_000
"""Different filters with a prefix: each is looked at when a lease ends."""

_CREATED: Final = b"\x10\x01"
_parse = WatchLeasesRequest.FromString


class Watching:
    """Tells clients what happens to leases."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._index = desk.store.lease_watchers
        self._rounds = Rounds(desk)
        self.watchers = 0
        """How many there are."""

    def open(self, speaker: Speaker) -> Listener:
        """Begin a stream."""
        return WatchedStream(self, self._rounds, self._desk, speaker)

    def wanted(self, request: WatchLeasesRequest) -> LeaseFilter:
        """Give what a request asks for, or refuse it."""
        if len(request.ids) > MAX_WATCHED_IDS:
            raise invalid(
                f"{len(request.ids):,} leases to be watched; name at most {MAX_WATCHED_IDS:,}, or "
                "none to watch all"
            )
        if len(request.key_prefix) > MAX_PREFIX_BYTES:
            size = len(request.key_prefix)
            raise invalid(f"key_prefix has at most {MAX_PREFIX_BYTES:,} bytes, not {size:,}")
        if request.key_prefix and request.renewals:
            raise invalid(
                "renewals cannot be filtered by key_prefix; leave one of them out, or name ids or "
                "a holder"
            )
        check_holder(request.holder)
        wanted = LeaseFilter(
            frozenset(request.ids), request.holder, request.key_prefix, request.renewals
        )
        self._check_room(wanted)
        return wanted

    def _check_room(self, wanted: LeaseFilter) -> None:
        index = self._index
        full = ""
        if self.watchers >= MAX_WATCHERS:
            full = f"leases are watched by {MAX_WATCHERS:,} already"
        elif wanted in index:
            return
        elif index.named + len(wanted.leases) > MAX_ALL_WATCHED_IDS:
            full = f"watchers name {index.named:,} leases, of {MAX_ALL_WATCHED_IDS:,} in all"
        elif wanted.key_prefix and index.prefixes >= MAX_PREFIXES:
            full = f"leases are watched with {MAX_PREFIXES:,} different prefixes already"
        if full:
            raise RpcError(Status.RESOURCE_EXHAUSTED, full)


class WatchedStream:
    """One stream, which has one watcher; that has a feed from its request on.

    Until the stream is gone, the watcher is at exactly one place: idle in its feed, called or
    waiting for the disk in the rounds, or nowhere because its client does not read.
    """

    def __init__(self, watching: Watching, rounds: Rounds, desk: Desk, speaker: Speaker) -> None:
        self._watching = watching
        self._rounds = rounds
        self._desk = desk
        self._store = desk.store
        self._speaker = speaker
        self._feed: Feed | None = None
        self._next = 0
        """The number of the event in the feed that is told next."""
        self._created = b""
        """The first message, until it is told, and what it waits for."""
        self._created_position = 0
        self._is_cramped = False

    # What the client does.

    def heard(self, message: bytes) -> None:
        """Take the request."""
        request = parse(_parse, message, is_streamed=True)
        if self._feed is not None:
            raise invalid("one request makes one watch; open another stream for the next one")
        feed = self._feed = self._store.lease_watchers.join(self._watching.wanted(request))
        self._watching.watchers += 1
        self._next = feed.end
        self._created = self._desk.header(self._store.revision) + _CREATED
        self._created_position = self._store.position
        self._rounds.behind += 1
        self._rounds.call(self)

    def ended(self) -> None:
        """Go on: a client that has nothing more to ask for still wants its events."""
        return

    def relieved(self) -> None:
        """Tell what waited for room."""
        if self._is_cramped:
            self._is_cramped = False
            self._rounds.call(self)

    def gone(self) -> None:
        """Forget it; whoever still has it will find that out."""
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

    # How it is told.

    def visit(self) -> None:
        """Tell what is on disk: one message, if the client takes it."""
        feed = self._feed
        if feed is None:
            return
        if not self._speaker.has_own_room:
            self._is_cramped = True
            return
        fields = self._take_durable(feed)
        if fields:
            self._speaker.say(b"".join(fields), 0)
            self._speaker.flush_soon()
        if self._next == feed.end and not self._created:
            feed.idle[self] = None
            self._rounds.behind -= 1
        elif fields:
            self._rounds.call(self)
        else:
            self._rounds.await_disk(self)

    def _take_durable(self, feed: Feed) -> list[bytes]:
        """Take what comes next: that it is there, how many it has missed, and events."""
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
