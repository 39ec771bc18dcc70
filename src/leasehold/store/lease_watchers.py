"""Watchers of leases: events of leases that are granted, renewed, expire or are revoked.

An event is encoded once, and added to the feeds that it belongs to (`store.lease_feeds`).

There is no history of leases: a watcher receives events from now on, and one that does not read for
long misses some of them. Events without watchers cost nothing, and watchers of some leases, or of
those of a holder, cost the other leases nothing.

Renewals are far too many to send an event for each. They are sent only to watchers that ask for
them, at most once in `RENEWED_EVERY_S` for each lease, and the same renewals to all such watchers.
The keys of the lease are not looked at then: they may be very many, are unsorted, and a renewal
must not wait. So renewals cannot be filtered by a prefix of the lease's keys.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, Protocol

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import to_wire_ms
from leasehold.errors import EndReason
from leasehold.store.lease_feeds import (
    Feed,
    FeedIndex,
    Key,
    LeaseLog,
    LeaseWatchFilter,
    PrefixIndex,
    keys_of,
)
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.store_leases import StoreLeases
from leasehold.wire.codec import field, varint

RENEWED_EVERY_S: Final = 10.0
"""The minimum interval between two events of renewals of one lease."""

MAX_EVENT_KEYS: Final = 100
"""Keys that an event names; the number of keys is always included."""

MAX_EVENT_KEY_BYTES: Final = 64 * 1024
"""The limit of the total length of their names."""


class LeaseWatchKind(IntEnum):
    """The kind of an event; the numbers are those of our wire."""

    GRANTED = 0
    RENEWED = 1
    EXPIRED = 2
    REVOKED = 3


class _WatchedStore(Protocol):
    """The parts of `Store` that are used here; `store.store` imports this module."""

    leases: StoreLeases
    durable_revision: int

    @property
    def revision(self) -> int: ...

    def lease_position(self, lease: int) -> int: ...


class LeaseWatchers:
    """All watchers of the leases of a store: their feeds and the events in them."""

    __slots__ = (
        "_changes",
        "_feeds",
        "_prefixed",
        "_renewals",
        "_renewing",
        "_retired",
        "_store",
        "any",
        "log",
        "named",
        "on_news",
        "prefixes",
    )

    def __init__(self, store: _WatchedStore) -> None:
        self._store = store
        self._feeds: dict[LeaseWatchFilter, Feed] = {}
        self._changes = FeedIndex()
        self._renewals = FeedIndex()
        self._prefixed = PrefixIndex()
        self._renewing = 0
        """Feeds that receive renewals."""
        self._retired: deque[tuple[Feed, Iterator[Key]]] = deque()
        """Feeds without watchers, and the keys under which they are still in the indexes."""
        self.log = LeaseLog()
        self.any = False
        """Whether there is a watcher."""
        self.named = 0
        """The number of leases that all filters name."""
        self.prefixes = 0
        """Filters that have a prefix."""
        self.on_news: Callable[[Feed, int], None] = ignore
        """Called with a feed with idle watchers that has a new event, and the event's position."""

    def __contains__(self, wanted: LeaseWatchFilter) -> bool:
        return wanted in self._feeds

    def join(self, wanted: LeaseWatchFilter) -> Feed:
        """Return the feed for a new watcher; its events begin at the feed's end."""
        assert not (wanted.key_prefix and wanted.wants_renewals), "a key prefix selects no renewals"
        feed = self._feeds.get(wanted)
        if feed is None:
            feed = self._feeds[wanted] = Feed(wanted)
            self.named += len(wanted.leases)
            self.prefixes += bool(wanted.key_prefix)
            self._renewing += wanted.wants_renewals
            for key in keys_of(wanted):
                for index in self._indexes(wanted):
                    index.add(key, feed)
            self._changed()
        feed.watchers += 1
        return feed

    def leave(self, feed: Feed) -> None:
        """Remove a watcher from this feed; `tidy` does the rest."""
        feed.watchers -= 1
        if not feed.watchers:
            del self._feeds[feed.filter]
            self._retired.append((feed, keys_of(feed.filter)))
            self._renewing -= feed.filter.wants_renewals
            self._changed()

    def tidy(self, budget: int) -> bool:
        """Remove feeds without watchers from the indexes; return True if there is more to do."""
        while self._retired and budget > 0:
            feed, keys = self._retired[0]
            some = list(islice(keys, budget))
            for key in some:
                for index in self._indexes(feed.filter):
                    index.discard(key, feed)
            if len(some) < budget:
                self._retired.popleft()
                self.named -= len(feed.filter.leases)
                self.prefixes -= bool(feed.filter.key_prefix)
            budget -= 1 + len(some)
        return bool(self._retired)

    def _indexes(self, wanted: LeaseWatchFilter) -> "Sequence[FeedIndex | PrefixIndex]":
        if wanted.key_prefix:
            return (self._prefixed,)
        return (self._changes, self._renewals) if wanted.wants_renewals else (self._changes,)

    def _changed(self) -> None:
        self.any = bool(self._feeds)
        self._store.leases.on_renewed = self._renewed if self._renewing else None

    # Events.

    def granted(self, record: LeaseRecord, position: int) -> None:
        """Add the event of a new lease."""
        feeds = self._changes.find(record)
        if feeds:
            self._tell(
                feeds, _encode(LeaseWatchKind.GRANTED, record, self._store.revision), position
            )

    def ended(
        self, record: LeaseRecord, reason: EndReason, keys: Sequence[bytes], position: int
    ) -> None:
        """Add the event of a lease that has ended; the sorted `keys` were deleted with it."""
        feeds = self._changes.find(record) + self._prefixed.find(record, keys)
        if feeds:
            kind = LeaseWatchKind.EXPIRED if reason is EndReason.EXPIRED else LeaseWatchKind.REVOKED
            self._tell(feeds, _encode(kind, record, self._store.revision, keys), position)

    def _renewed(self, record: LeaseRecord) -> None:
        now = self._store.leases.table.clock.now
        if now < record.told_at + RENEWED_EVERY_S:
            return
        feeds = self._renewals.find(record)
        if feeds:
            record.told_at = now
            event = _encode(LeaseWatchKind.RENEWED, record, self._store.durable_revision)
            self._tell(feeds, event, self._store.lease_position(record.id))

    def _tell(self, feeds: Sequence[Feed], event: bytes, position: int) -> None:
        self.log.add(event, position, feeds)
        for feed in feeds:
            if feed.idle:
                self.on_news(feed, position)


def _encode(
    kind: LeaseWatchKind, record: LeaseRecord, revision: int, keys: Sequence[bytes] = ()
) -> bytes:
    """Encode an event as a field of a `WatchLeasesResponse`; `keys` are those that were deleted."""
    parts = [b"\x08" + varint(kind) if kind else b"", b"\x10", record.encoded_id]
    if record.holder:
        parts.append(field(3, record.holder.encode()))
    parts += [b"\x20", varint(to_wire_ms(record.ttl_s))]
    if keys:
        parts += [field(5, key) for key in _named(keys)]
        parts += [b"\x30", varint(len(keys))]
    parts += [b"\x38", varint(revision)]
    return field(4, b"".join(parts))


def _named(keys: Sequence[bytes]) -> Iterator[bytes]:
    octets = 0
    for key in keys[:MAX_EVENT_KEYS]:
        octets += len(key)
        if octets > MAX_EVENT_KEY_BYTES:
            return
        yield key
