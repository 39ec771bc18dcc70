"""Which feeds an event of a lease belongs to, found without a look at any other feed.

A feed is looked up by what its filter names: a lease and a holder, one of them, or neither. So an
event has four places to look at, whatever there is to be told to others.

Of a lease that ends with keys, feeds with a prefix are found with a look per different prefix, or
with a look per key and different length of prefixes, whatever is less: a lease with 100,000 keys
costs no more looks than there are prefixes, and one with a key next to nothing.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from leasehold.engine.lease_feeds import Feed, LeaseFilter
from leasehold.engine.lease_record import LeaseRecord

Key = tuple[int | None, str]
"""A lease, if one is named, and a holder, if one is."""


def keys_of(wanted: LeaseFilter) -> Iterator[Key]:
    """Give what a feed is looked up by."""
    leases: Iterable[int | None] = wanted.leases or (None,)
    return ((lease, wanted.holder) for lease in leases)


def _keys_for(record: LeaseRecord) -> tuple[Key, ...]:
    unheld: tuple[Key, ...] = ((None, ""), (record.id, ""))
    return (*unheld, (None, record.holder), (record.id, record.holder)) if record.holder else unheld


class FeedIndex:
    """Feeds that want to be told whatever the keys are."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Feed, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, key: Key, feed: Feed) -> None:
        """Have a feed found by this key."""
        self._by_key.setdefault(key, {})[feed] = None

    def discard(self, key: Key, feed: Feed) -> None:
        """Have a feed no longer found by this key."""
        feeds = self._by_key[key]
        del feeds[feed]
        if not feeds:
            del self._by_key[key]

    def find(self, record: LeaseRecord) -> list[Feed]:
        """Give the feeds for what happens to a lease."""
        if not self._by_key:
            return []
        return [feed for key in _keys_for(record) for feed in self._by_key.get(key, ())]


class PrefixIndex:
    """Feeds that want to be told if a key begins with their prefix."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Key, _Prefixes] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, key: Key, feed: Feed) -> None:
        """Have a feed found by this key, and its prefix."""
        self._by_key.setdefault(key, _Prefixes()).add(feed)

    def discard(self, key: Key, feed: Feed) -> None:
        """Have a feed no longer found by this key."""
        prefixes = self._by_key[key]
        prefixes.discard(feed)
        if not prefixes.feeds:
            del self._by_key[key]

    def find(self, record: LeaseRecord, keys: Sequence[bytes]) -> list[Feed]:
        """Give the feeds for what happens to a lease with these keys, which are in order."""
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
    """Say whether one of the keys, which are in order, begins with a prefix."""
    at = bisect_left(keys, prefix)
    return at < len(keys) and keys[at].startswith(prefix)
