"""Who is told of a change, and in how many pieces."""

from collections.abc import Sequence

import pytest

from leasehold.core.keyspace import FROM_KEY, Change
from leasehold.core.watchers import Watchers


class Ear:
    """A watcher that writes down what it is told."""

    def __init__(self, key: bytes, range_end: bytes = b"") -> None:
        self.key = key
        self.range_end = range_end
        self.told: list[tuple[list[bytes], int]] = []

    def notify(self, changes: Sequence[Change], position: int) -> None:
        self.told.append(([change.key for change in changes], position))


def changes(*names: bytes) -> list[Change]:
    return [Change(name, 9, None, None) for name in names]


@pytest.fixture
def watchers() -> Watchers:
    return Watchers()


def test_a_watcher_of_a_key_hears_of_that_key_only(watchers: Watchers) -> None:
    ears = [Ear(b"a"), Ear(b"a"), Ear(b"b")]
    for ear in ears:
        watchers.add(ear)
    watchers.publish(changes(b"a"), 3)
    assert [ear.told for ear in ears] == [[([b"a"], 3)], [([b"a"], 3)], []]


def test_the_changes_of_one_revision_come_in_one_piece(watchers: Watchers) -> None:
    some, every = Ear(b"a", b"c"), Ear(b"\0", FROM_KEY)
    watchers.add(some)
    watchers.add(every)
    watchers.publish(changes(b"a", b"b", b"c"), 1)
    assert some.told == [([b"a", b"b"], 1)]
    assert every.told == [([b"a", b"b", b"c"], 1)]


def test_nobody_is_told_after_leaving(watchers: Watchers) -> None:
    ears = [Ear(b"a"), Ear(b"a", b"b")]
    for ear in ears:
        watchers.add(ear)
    assert (len(watchers), bool(watchers)) == (2, True)
    for ear in ears:
        watchers.discard(ear)
        watchers.discard(ear)
    watchers.publish(changes(b"a"), 1)
    assert [ear.told for ear in ears] == [[], []]
    assert (len(watchers), bool(watchers)) == (0, False)
