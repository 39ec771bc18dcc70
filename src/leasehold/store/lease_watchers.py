"""Watchers of leases: events of leases that are granted, renewed, expire or are revoked.

There is no history of leases: a watcher receives events from now on, and one that does not read for
long misses some of them. Events without watchers cost nothing, and watchers of some leases, or of
those of a holder, cost the other leases nothing.

Renewals are far too many to send an event for each. They are sent only to watchers that ask for
them, at most once in `RENEWED_EVERY_S` for each lease, and the same renewals to all such watchers.
The keys of the lease are not looked at then: they may be very many, are unsorted, and a renewal
must not wait. So renewals cannot be filtered by a prefix of the lease's keys.

Theory of operation. An event is encoded once, and kept once for all watchers that have yet to
receive it. Watchers with the same filter share one *feed*: the events that concern them, numbered
from 0 on. A watcher has only the number of its next event. So it costs the same whether it reads or
not, and the cost of an event depends on the number of its feeds, not of their watchers.

All feeds together are limited by the *log*, which has each event once, in the order in which they
happened. It drops the oldest events first, from all feeds; a watcher whose number is below the
first one of its feed has missed exactly the difference.

The feeds of an event are found without looking at any other feed. A feed is indexed by the names in
its filter: a lease and a holder, one of them, or neither. So an event takes four lookups, whatever
other feeds there are. When a lease ends with keys, feeds with a prefix are found with a lookup per
different prefix, or with a lookup per key and different length of prefixes, whichever is less: a
lease with 100,000 keys costs no more lookups than there are prefixes, and one with a single key
costs next to nothing.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple, Protocol

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import to_wire_ms
from leasehold.errors import EndReason
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.store_leases import StoreLeases
from leasehold.wire.codec import field, varint

MAX_EVENTS: Final = 100_000
"""Events that are kept for watchers that have yet to receive them."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""The limit of their total encoded size."""

MAX_PLACES: Final = 500_000
"""The limit of the places that they have in feeds."""

EVENTS_PER_MESSAGE: Final = 500
MESSAGE_BYTES: Final = 64 * 1024
"""No further event is added to a message that has this many events, or bytes of them."""

_DEAD: Final = 1_000
"""The minimum number of empty places at the beginning of a feed that are removed together."""


Key = tuple[int | None, str]
"""The lease of a filter, if it names one, and the holder, if it names one."""


class LeaseWatchFilter(NamedTuple):
    """The filter of a watcher: leases that are named, a holder, both, or all leases."""

    leases: frozenset[int]
    holder: str
    key_prefix: bytes
    wants_renewals: bool


class Follower(Hashable, Protocol):
    """A watcher, as its feed sees it."""

    def visit(self) -> None:
        """Send the events that can be sent now."""
        ...


class _LoggedEvent(NamedTuple):
    encoded: bytes
    position: int
    feeds: "tuple[Feed, ...]"


class Feed:
    """The events for all watchers with one filter, as far as they are still kept."""

    __slots__ = ("_dead", "_entries", "filter", "first", "idle", "lost_position", "watchers")

    def __init__(self, wanted: LeaseWatchFilter) -> None:
        self.filter = wanted
        self.watchers = 0
        """The number of its watchers."""
        self.idle: dict[Follower, None] = {}
        """Those that have received everything."""
        self.first = 0
        """The number of the oldest event that is here, or of the next one to come."""
        self.lost_position = 0
        """The position that must be durable before the loss of earlier events may be reported."""
        self._entries: list[_LoggedEvent | None] = []
        self._dead = 0
        """How many places at the beginning are empty."""

    @property
    def end(self) -> int:
        """The number of the next event to come."""
        return self.first + len(self._entries) - self._dead

    def add(self, entry: _LoggedEvent) -> None:
        """Append an event."""
        self._entries.append(entry)

    def drop_first(self, position: int) -> None:
        """Drop the oldest event, which had this position."""
        self._entries[self._dead] = None
        self._dead += 1
        if self._dead >= _DEAD and 2 * self._dead >= len(self._entries):
            del self._entries[: self._dead]
            self._dead = 0
        self.first += 1
        self.lost_position = max(self.lost_position, position)

    def take(self, number: int, durable: int) -> list[bytes]:
        """Return the events from a number on that are on disk: as many as fit into a message."""
        at = self._dead + number - self.first
        taken: list[bytes] = []
        size_bytes = 0
        for entry in self._entries[at : at + EVENTS_PER_MESSAGE]:
            assert entry is not None, "only those before the first one are gone"
            if entry.position > durable or size_bytes >= MESSAGE_BYTES:
                break
            size_bytes += len(entry.encoded)
            taken.append(entry.encoded)
        return taken


class LeaseLog:
    """All events that are kept, in order."""

    __slots__ = ("_bytes", "_entries", "_places")

    def __init__(self) -> None:
        self._entries: deque[_LoggedEvent] = deque()
        self._bytes = 0
        self._places = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, encoded: bytes, position: int, feeds: Sequence[Feed]) -> None:
        """Keep an event for these feeds; drop as few of the oldest as the limits require."""
        entry = _LoggedEvent(encoded, position, tuple(feeds))
        self._entries.append(entry)
        self._bytes += len(encoded)
        self._places += len(feeds)
        for feed in feeds:
            feed.add(entry)
        while self._is_over:
            self._drop_first()

    @property
    def _is_over(self) -> bool:
        return (
            len(self._entries) > MAX_EVENTS or self._bytes > MAX_BYTES or self._places > MAX_PLACES
        )

    def drop(self, budget: int) -> None:
        """Drop this many of the oldest events; for when no watcher still needs them."""
        for _ in range(min(budget, len(self._entries))):
            self._drop_first()

    def _drop_first(self) -> None:
        encoded, position, feeds = self._entries.popleft()
        self._bytes -= len(encoded)
        self._places -= len(feeds)
        for feed in feeds:
            feed.drop_first(position)


def keys_of(wanted: LeaseWatchFilter) -> Iterator[Key]:
    """Yield the keys that a feed is looked up by."""
    leases: Iterable[int | None] = wanted.leases or (None,)
    return ((lease, wanted.holder) for lease in leases)


def _keys_for(record: LeaseRecord) -> tuple[Key, ...]:
    unheld: tuple[Key, ...] = ((None, ""), (record.id, ""))
    return (*unheld, (None, record.holder), (record.id, record.holder)) if record.holder else unheld


class FeedIndex:
    """Feeds that receive events whatever the keys are."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Feed, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, key: Key, feed: Feed) -> None:
        """Add a feed under this key."""
        self._by_key.setdefault(key, {})[feed] = None

    def discard(self, key: Key, feed: Feed) -> None:
        """Remove a feed from this key."""
        feeds = self._by_key[key]
        del feeds[feed]
        if not feeds:
            del self._by_key[key]

    def find(self, record: LeaseRecord) -> list[Feed]:
        """Return the feeds for an event of a lease."""
        if not self._by_key:
            return []
        return [feed for key in _keys_for(record) for feed in self._by_key.get(key, ())]


class PrefixIndex:
    """Feeds that receive an event if a key begins with their prefix."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Key, _Prefixes] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, key: Key, feed: Feed) -> None:
        """Add a feed under this key, with its prefix."""
        self._by_key.setdefault(key, _Prefixes()).add(feed)

    def discard(self, key: Key, feed: Feed) -> None:
        """Remove a feed from this key."""
        prefixes = self._by_key[key]
        prefixes.discard(feed)
        if not prefixes.feeds:
            del self._by_key[key]

    def find(self, record: LeaseRecord, keys: Sequence[bytes]) -> list[Feed]:
        """Return the feeds for an event of a lease with these keys, which are sorted."""
        if not self._by_key or not keys:
            return []
        found = [self._by_key[key] for key in _keys_for(record) if key in self._by_key]
        return [feed for prefixes in found for feed in prefixes.find(keys)]


class _Prefixes:
    """The prefixes of feeds that are looked up by the same key."""

    __slots__ = ("_lengths", "feeds")

    def __init__(self) -> None:
        self.feeds: dict[bytes, dict[Feed, None]] = {}
        self._lengths: Counter[int] = Counter()
        """How many prefixes have which length."""

    def add(self, feed: Feed) -> None:
        prefix = feed.filter.key_prefix
        if prefix not in self.feeds:
            self.feeds[prefix] = {}
            self._lengths[len(prefix)] += 1
        self.feeds[prefix][feed] = None

    def discard(self, feed: Feed) -> None:
        prefix = feed.filter.key_prefix
        del self.feeds[prefix][feed]
        if not self.feeds[prefix]:
            del self.feeds[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]

    def find(self, keys: Sequence[bytes]) -> list[Feed]:
        return [feed for prefix in self._found(keys) for feed in self.feeds[prefix]]

    def _found(self, keys: Sequence[bytes]) -> Iterable[bytes]:
        if len(keys) * len(self._lengths) < len(self.feeds):
            beginnings = {key[:length] for key in keys for length in self._lengths}
            return beginnings & self.feeds.keys()
        return [prefix for prefix in self.feeds if is_any_under(prefix, keys)]


def is_any_under(prefix: bytes, keys: Sequence[bytes]) -> bool:
    """Return whether one of the keys, which are sorted, begins with a prefix."""
    at = bisect_left(keys, prefix)
    return at < len(keys) and keys[at].startswith(prefix)


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
    size_bytes = 0
    for key in keys[:MAX_EVENT_KEYS]:
        size_bytes += len(key)
        if size_bytes > MAX_EVENT_KEY_BYTES:
            return
        yield key
