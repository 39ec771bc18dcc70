"""Recent events of leases, kept once for all watchers that have yet to receive them.

Theory of operation. Watchers with the same filter share one *feed*: the events that concern them,
numbered from 0 on. A watcher has only the number of its next event. So it costs the same whether it
reads or not, and the cost of an event depends on the number of its feeds, not of their watchers.

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
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from leasehold.store.lease_record import LeaseRecord

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
        octets = 0
        for entry in self._entries[at : at + EVENTS_PER_MESSAGE]:
            assert entry is not None, "only those before the first one are gone"
            if entry.position > durable or octets >= MESSAGE_BYTES:
                break
            octets += len(entry.encoded)
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
