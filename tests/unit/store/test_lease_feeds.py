"""How the feeds for an event are found: the right ones, and with how many looks."""

from collections.abc import Iterator, Sequence
from typing import overload

import pytest

from leasehold.store.lease_record import LeaseRecord
from leasehold.store.lease_watchers import (
    Feed,
    FeedIndex,
    LeaseWatchFilter,
    PrefixIndex,
    is_any_under,
    keys_of,
)

KEYS = 100_000
PREFIXES = 1_000


class CountedKeys(Sequence[bytes]):
    """Keys in order, which count how often one of them is looked at."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = sorted(keys)
        self.looks = 0

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        self.looks += 1
        return self._keys[at]

    def __iter__(self) -> Iterator[bytes]:
        self.looks += len(self._keys)
        return iter(self._keys)


def feed(leases: Sequence[int] = (), holder: str = "", prefix: bytes = b"") -> Feed:
    return Feed(LeaseWatchFilter(frozenset(leases), holder, prefix, wants_renewals=False))


def indexed(*feeds: Feed) -> PrefixIndex:
    index = PrefixIndex()
    for each in feeds:
        for key in keys_of(each.filter):
            index.add(key, each)
    return index


def test_a_feed_is_found_by_lease_and_holder() -> None:
    feeds = {
        "all": feed(),
        "anna": feed(holder="anna"),
        "bert": feed(holder="bert"),
        "1 and 2": feed([1, 2]),
        "2": feed([2]),
        "1 of anna": feed([1], "anna"),
        "1 of bert": feed([1], "bert"),
    }
    index = FeedIndex()
    for each in feeds.values():
        for key in keys_of(each.filter):
            index.add(key, each)

    def found(lease: int, holder: str) -> set[str]:
        at = index.find(LeaseRecord(lease, 1.0, holder=holder))
        assert len(at) == len(set(at))
        return {name for name, each in feeds.items() if each in at}

    assert found(1, "anna") == {"all", "anna", "1 and 2", "1 of anna"}
    assert found(1, "") == {"all", "1 and 2"}
    assert found(2, "bert") == {"all", "bert", "1 and 2", "2"}
    assert found(3, "carl") == {"all"}


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_feeds_with_a_prefix_are_found_whatever_there_is_more_of(count: int) -> None:
    prefixes = [b"a", b"a/", b"a/b", b"b", b"c/1", b"zz", b"a/b/c/d/e", b"\xff"]
    keys = CountedKeys([b"a/b/%02d" % number for number in range(count)] + [b"b"])
    feeds = [feed(prefix=each) for each in prefixes]
    found = indexed(*feeds).find(LeaseRecord(1, 1.0), keys)
    assert {each.filter.key_prefix for each in found} == {b"a", b"a/", b"a/b", b"b"}


def test_a_lease_with_very_many_keys_costs_a_few_looks_per_different_prefix() -> None:
    keys = CountedKeys([b"k/%05d" % number for number in range(KEYS)])
    feeds = [feed(prefix=b"k/%03d" % number) for number in range(PREFIXES)]
    assert indexed(*feeds).find(LeaseRecord(1, 1.0), keys) == feeds
    assert keys.looks <= PREFIXES * (KEYS.bit_length() + 1)


def test_a_lease_with_a_key_costs_a_look_whatever_the_number_of_prefixes() -> None:
    keys = CountedKeys([b"k/500/1"])
    feeds = [feed(prefix=b"k/%03d" % number) for number in range(PREFIXES)]
    assert indexed(*feeds).find(LeaseRecord(1, 1.0), keys) == [feeds[500]]
    assert keys.looks == 1


def test_what_is_discarded_is_not_found_and_leaves_nothing_behind() -> None:
    feeds = [feed(prefix=b"a"), feed(prefix=b"a"), feed([1], "anna", b"ab"), feed(prefix=b"ab")]
    index = indexed(*feeds)
    record = LeaseRecord(1, 1.0, holder="anna")
    for gone, each in enumerate(feeds, 1):
        for key in keys_of(each.filter):
            index.discard(key, each)
        assert set(index.find(record, [b"abc"])) == set(feeds[gone:])
    assert not index


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [(b"a", True), (b"ab", True), (b"abc", False), (b"b", False), (b"c", True), (b"d", False)],
)
def test_is_any_under(prefix: bytes, expected: bool) -> None:
    assert is_any_under(prefix, [b"a", b"ab", b"cd"]) is expected
