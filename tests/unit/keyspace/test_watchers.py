"""Who is told of a change, in how many pieces, and who falls behind."""

from collections.abc import Generator, Sequence

import pytest

from leasehold.errors import LeaseholdError
from leasehold.keyspace.keyspace import FROM_KEY, Change
from leasehold.keyspace.ranges import LONG
from leasehold.keyspace.watchers import Watchers


class Ear:
    """A watcher that writes down what it is told, while it has room."""

    wants_previous = False

    def __init__(self, key: bytes, end: bytes = b"", room: int = 10) -> None:
        self.key = key
        self.end = end
        self.next_revision = 0
        self.room = room
        self.told: list[tuple[list[bytes], int]] = []

    @property
    def has_room(self) -> bool:
        return self.room > 0

    def notify(self, changes: Sequence[Change], position: int) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.told.append(([change.key for change in changes], position))
        return True

    def settle(self) -> None:
        raise NotImplementedError

    def joined(self, revision: int, position: int) -> None:
        raise NotImplementedError

    def failed(self, error: LeaseholdError) -> None:
        raise NotImplementedError

    def cancelled(self, compacted: int) -> None:
        raise NotImplementedError


def changes(*names: bytes, revision: int = 9) -> list[Change]:
    return [Change(name, revision, None, None) for name in names]


@pytest.fixture
def watchers() -> Watchers:
    return Watchers()


def test_a_watcher_of_a_key_hears_of_that_key_only(watchers: Watchers) -> None:
    ears = [Ear(b"a"), Ear(b"a"), Ear(b"b")]
    for ear in ears:
        watchers.join(ear)
    watchers.publish(changes(b"a"), 3)
    assert [ear.told for ear in ears] == [[([b"a"], 3)], [([b"a"], 3)], []]


def test_the_changes_of_one_revision_come_in_one_piece(watchers: Watchers) -> None:
    some, every, one = Ear(b"a", b"c"), Ear(b"\0", FROM_KEY), Ear(b"c")
    for ear in (some, every, one):
        watchers.join(ear)
    watchers.publish(changes(b"a", b"b", b"c"), 1)
    assert some.told == [([b"a", b"b"], 1)]
    assert every.told == [([b"a", b"b", b"c"], 1)]
    assert one.told == [([b"c"], 1)]


def test_nobody_is_told_after_leaving(watchers: Watchers) -> None:
    ears = [Ear(b"a"), Ear(b"a", b"b")]
    for ear in ears:
        watchers.join(ear)
    assert (len(watchers), watchers.any_live) == (2, True)
    for ear in ears:
        watchers.discard(ear)
        watchers.discard(ear)
    watchers.publish(changes(b"a"), 1)
    assert [ear.told for ear in ears] == [[], []]
    assert (len(watchers), watchers.any_live) == (0, False)


@pytest.mark.parametrize("names", [[b"a"], [b"a", b"b"]])
def test_a_watcher_without_room_falls_behind_and_is_told_nothing_until_it_joins(
    watchers: Watchers, names: list[bytes]
) -> None:
    slow, fast = Ear(b"a", b"z", room=1), Ear(b"a", b"z")
    for ear in (slow, fast):
        watchers.join(ear)
    for revision in (5, 6, 7):
        watchers.publish(changes(*names, revision=revision), revision)
    assert len(slow.told) == 1
    assert len(fast.told) == 3
    assert list(watchers.behind) == [slow]
    assert slow.next_revision == 6
    slow.room = 1
    watchers.join(slow)
    watchers.publish(changes(*names, revision=8), 8)
    assert slow.told[-1] == (names, 8)
    assert not watchers.behind


def test_a_watcher_that_raises_falls_behind_and_the_others_are_told(watchers: Watchers) -> None:
    class Bad(Ear):
        def notify(self, changes: Sequence[Change], position: int) -> bool:
            raise ValueError

    ears = [Ear(b"a"), Bad(b"a"), Ear(b"a"), Ear(b"a", b"b")]
    woken: list[int] = []
    watchers.on_behind = lambda: woken.append(len(watchers.behind))
    for ear in ears:
        watchers.join(ear)
    watchers.publish(changes(b"a"), 1)
    assert [len(ear.told) for ear in ears] == [1, 0, 1, 1]
    assert list(watchers.behind) == [ears[1]]
    assert woken == [1]


def test_a_watcher_that_is_behind_can_leave(watchers: Watchers) -> None:
    ear = Ear(b"a")
    watchers.fall_behind(ear, 3)
    assert (len(watchers), watchers.any_live) == (1, False)
    watchers.discard(ear)
    assert len(watchers) == 0


# Very many changes at once.

MANY = [b"k%05d" % number for number in range(3 * LONG)]


class PatientEar(Ear):
    """A watcher that wants very many changes in steps."""

    def notify_steps(self, changes: Sequence[Change], position: int) -> Generator[None, None, bool]:
        raise NotImplementedError


@pytest.mark.parametrize("is_sorted", [True, False])
def test_of_very_many_changes_each_hears_what_concerns_it(
    watchers: Watchers, is_sorted: bool
) -> None:
    names = MANY if is_sorted else [MANY[7], *MANY[:7], *MANY[8:]]
    ears = {
        Ear(MANY[7]): [MANY[7]],
        Ear(MANY[9]): [MANY[9]],
        Ear(b"k"): [],
        Ear(b"k", b"l"): names,
        Ear(b"k", b"l", room=0): [],
        Ear(MANY[8], MANY[10]): MANY[8:10],
        Ear(MANY[-2], FROM_KEY): MANY[-2:],
        Ear(b"a", b"k"): [],
        Ear(b"l", FROM_KEY): [],
    }
    for ear in ears:
        watchers.join(ear)
    watchers.publish(changes(*names), 5)
    for ear, heard in ears.items():
        assert ear.told == ([(heard, 5)] if heard else [])
    assert [ear.room for ear in watchers.behind if isinstance(ear, Ear)] == [0]


def test_a_key_that_is_changed_twice_among_very_many_is_told_twice(watchers: Watchers) -> None:
    ear = Ear(MANY[7])
    watchers.join(ear)
    watchers.publish(changes(*MANY[:7], MANY[7], *MANY[7:]), 5)
    assert ear.told == [([MANY[7]] * 2, 5)]


def test_a_patient_watcher_falls_behind_instead_of_being_told_very_much(
    watchers: Watchers,
) -> None:
    much, little = PatientEar(b"k", b"l"), PatientEar(MANY[0], MANY[LONG])
    for ear in (much, little):
        watchers.join(ear)
    watchers.publish(changes(*MANY), 5)
    assert [*watchers.behind] == [much]
    assert much.next_revision == 9
    assert (much.told, little.told) == ([], [(MANY[:LONG], 5)])
