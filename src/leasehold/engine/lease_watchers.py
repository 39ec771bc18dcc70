"""Who is to be told what happens to leases: granted, renewed, expired, revoked.

There is no history of leases: a watcher is told from now on, and one that takes nothing for long
misses some of it (see `engine.lease_feeds`). It costs nothing to be told of what nobody watches,
and those who watch some leases, or those of a holder, cost the others nothing.

Renewals are far too many to be told of each. They are told of only if somebody wants to know, and
of each lease one in `RENEWED_EVERY_S` at most, the same one to all who want to know. Which keys the
lease has is not looked at then: they may be very many, are in no order, and a renewal waits for
nobody. So nobody can ask for the renewals of leases with keys under a prefix.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from leasehold.core.callback import ignore
from leasehold.engine.lease_events import Kind, encode
from leasehold.engine.lease_feeds import Feed, LeaseFilter, LeaseLog
from leasehold.engine.lease_index import FeedIndex, Key, PrefixIndex, keys_of
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.leases import Leases
from leasehold.errors import EndReason

RENEWED_EVERY_S: Final = 10.0
"""How often a watcher is told of the renewals of a lease, at most."""


class _Place(Protocol):
    """What is known of the store that the leases are in."""

    leases: Leases
    durable_revision: int

    @property
    def revision(self) -> int: ...

    def lease_position(self, lease: int) -> int: ...


class LeaseWatchers:
    """All who watch the leases of a store: the feeds that they have, and what is in those."""

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

    def __init__(self, store: _Place) -> None:
        self._store = store
        self._feeds: dict[LeaseFilter, Feed] = {}
        self._changes = FeedIndex()
        self._renewals = FeedIndex()
        self._prefixed = PrefixIndex()
        self._renewing = 0
        """Feeds that want to be told of renewals."""
        self._retired: deque[tuple[Feed, Iterator[Key]]] = deque()
        """Feeds that nobody has any more, and where they are still to be found."""
        self.log = LeaseLog()
        self.any = False
        """Whether anybody watches."""
        self.named = 0
        """Leases that are named by filters, all together."""
        self.prefixes = 0
        """Filters that have a prefix."""
        self.on_news: Callable[[Feed, int], None] = ignore
        """Told of a feed with idle watchers that has an event, and of the event's position."""

    def __contains__(self, wanted: LeaseFilter) -> bool:
        return wanted in self._feeds

    def join(self, wanted: LeaseFilter) -> Feed:
        """Give a watcher its feed; what it is told begins at the feed's end."""
        assert not (wanted.key_prefix and wanted.wants_renewals), "nobody can find those"
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
        """Tell a watcher of this feed nothing more; `tidy` does the rest."""
        feed.watchers -= 1
        if not feed.watchers:
            del self._feeds[feed.filter]
            self._retired.append((feed, keys_of(feed.filter)))
            self._renewing -= feed.filter.wants_renewals
            self._changed()

    def tidy(self, budget: int) -> bool:
        """Take what nobody has any more out of the indexes; True if there is more to do."""
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

    def _indexes(self, wanted: LeaseFilter) -> "Sequence[FeedIndex | PrefixIndex]":
        if wanted.key_prefix:
            return (self._prefixed,)
        return (self._changes, self._renewals) if wanted.wants_renewals else (self._changes,)

    def _changed(self) -> None:
        self.any = bool(self._feeds)
        self._store.leases.on_renewed = self._renewed if self._renewing else None

    # What happens.

    def granted(self, record: LeaseRecord, position: int) -> None:
        """Tell of a new lease."""
        feeds = self._changes.find(record)
        if feeds:
            self._tell(feeds, encode(Kind.GRANTED, record, self._store.revision), position)

    def ended(
        self, record: LeaseRecord, reason: EndReason, keys: Sequence[bytes], position: int
    ) -> None:
        """Tell of a lease that has ended, and of the keys, in order, that went with it."""
        feeds = self._changes.find(record) + self._prefixed.find(record, keys)
        if feeds:
            kind = Kind.EXPIRED if reason is EndReason.EXPIRED else Kind.REVOKED
            self._tell(feeds, encode(kind, record, self._store.revision, keys), position)

    def _renewed(self, record: LeaseRecord) -> None:
        now = self._store.leases.table.clock.now
        if now < record.told_at + RENEWED_EVERY_S:
            return
        feeds = self._renewals.find(record)
        if feeds:
            record.told_at = now
            event = encode(Kind.RENEWED, record, self._store.durable_revision)
            self._tell(feeds, event, self._store.lease_position(record.id))

    def _tell(self, feeds: Sequence[Feed], event: bytes, position: int) -> None:
        self.log.add(event, position, feeds)
        for feed in feeds:
            if feed.idle:
                self.on_news(feed, position)
