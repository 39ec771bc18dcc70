"""Locks among keys, and for how long their holders were seen."""

import pytest

from leasehold.cli.top_reading import HeldTime, HeldTimes, QueueKey, find_locks, lock_of, who_of


def contender(key: bytes, revision: int, lease: int) -> QueueKey:
    return QueueKey(key, revision, revision, lease)


@pytest.mark.parametrize(
    ("key", "lease", "name"),
    [
        (b"cron/7a", 0x7A, b"cron"),
        (b"a/b/c/7a", 0x7A, b"a/b/c"),
        (b"a//7a", 0x7A, b"a/"),
        (b"\xff/7a", 0x7A, b"\xff"),
        (b"cron/-7a", -0x7A, b"cron"),
        (b"cron/-8000000000000000", -(2**63), b"cron"),
        (b"cron/-7a", 0x7A, None),
        (b"cron/7a", -0x7A, None),
        (b"cron/7b", 0x7A, None),  # of another lease
        (b"cron/7a", 0, None),  # of none
        (b"cron/07a", 0x7A, None),  # not as it is written
        (b"cron/7A", 0x7A, None),
        (b"/7a", 0x7A, None),
        (b"7a", 0x7A, None),
        (b"cron7a", 0x7A, None),
        (b"leasehold/sessions/7a", 0x7A, None),
    ],
)
def test_a_contender_is_a_key_with_the_number_of_its_own_lease(
    key: bytes, lease: int, name: bytes | None
) -> None:
    assert lock_of(contender(key, 5, lease)) == name


def test_who_came_first_holds_and_the_others_wait() -> None:
    keys = [
        contender(b"a/1", 9, 1),
        contender(b"a/2", 4, 2),
        contender(b"a/b/1", 3, 1),
        contender(b"b/3", 5, 3),
        contender(b"b/4", 6, 4),
        contender(b"b/5", 7, 5),
        contender(b"other", 8, 5),
    ]
    found = [(lock.name, lock.holder.lease, lock.waiting) for lock in find_locks(keys)]
    assert found == [(b"b", 3, 2), (b"a", 2, 1), (b"a/b", 1, 0)]


def test_a_tenure_is_whole_if_its_beginning_was_seen() -> None:
    held_times = HeldTimes()
    before, after = contender(b"a/1", 4, 1), contender(b"a/2", 9, 2)
    assert held_times.update(find_locks([before]), 100.0) == [HeldTime(0.0, is_whole=False)]
    assert held_times.update(find_locks([before, after]), 105.0) == [HeldTime(5.0, is_whole=False)]
    assert held_times.update(find_locks([after]), 106.0) == [HeldTime(0.0, is_whole=True)]
    assert held_times.update(find_locks([after]), 108.0) == [HeldTime(2.0, is_whole=True)]
    assert held_times.update([], 109.0) == []
    assert held_times.update(find_locks([after]), 110.0) == [HeldTime(0.0, is_whole=True)]


def test_only_clients_of_ours_say_who_they_are() -> None:
    assert who_of(b'{"who":"anna@host"}') == "anna@host"
    for value in (b"", b"anna", b'{"who":7}', b"[" * 100_000, b"\xff"):
        assert who_of(value) == ""
    assert who_of(b"anna@host", is_session=True) == "anna@host"
