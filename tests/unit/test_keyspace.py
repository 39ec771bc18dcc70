"""The keyspace: revisions, versions and ranges, one rule a test; a machine tests them together."""

import pytest

from leasehold.core.keyspace import FIRST_REVISION, FROM_KEY, Keyspace, covers


def encode(*parts: object) -> bytes:
    return repr(parts).encode()


@pytest.fixture
def keys() -> Keyspace:
    return Keyspace(encode)


def test_an_empty_keyspace_is_at_the_first_revision(keys: Keyspace) -> None:
    assert (keys.revision, len(keys)) == (FIRST_REVISION, 0)
    assert keys.range(b"\0", FROM_KEY) == []


def test_each_put_is_a_revision_and_a_version(keys: Keyspace) -> None:
    for number in range(1, 4):
        item = keys.put(b"a", b"x", 7)
        assert item[1:] == (2, FIRST_REVISION + number, number, 7)
        assert item[0] == encode(b"a", 2, FIRST_REVISION + number, number, b"x", 7)


def test_keys_are_deleted_together_at_one_revision_in_their_order(keys: Keyspace) -> None:
    for name in (b"b", b"a", b"c"):
        keys.put(name, b"", 0)
    before = keys.get(b"c")
    changes = keys.delete([b"c", b"a"])
    assert [(change.key, change.revision, change.item) for change in changes] == [
        (b"a", 5, None),
        (b"c", 5, None),
    ]
    assert changes[1].previous == before
    assert list(keys.names(b"\0", FROM_KEY)) == [b"b"]


def test_deleting_nothing_is_no_revision(keys: Keyspace) -> None:
    assert keys.delete([]) == []
    assert keys.revision == FIRST_REVISION


def test_a_key_that_was_deleted_begins_anew(keys: Keyspace) -> None:
    keys.put(b"a", b"", 0)
    keys.delete([b"a"])
    assert keys.put(b"a", b"", 0)[1:4] == (4, 4, 1)


def test_a_failed_encoding_changes_nothing() -> None:
    def fail(*_: object) -> bytes:
        raise OverflowError

    keys = Keyspace(fail)
    with pytest.raises(OverflowError):
        keys.put(b"a", b"", 0)
    assert (keys.revision, len(keys)) == (FIRST_REVISION, 0)
    assert list(keys.names(b"\0", FROM_KEY)) == []


RANGES = [
    (b"b", b"", [b"b"]),
    (b"x", b"", []),
    (b"a", b"b", [b"a", b"a/1", b"a/2"]),
    (b"a/", b"a0", [b"a/1", b"a/2"]),
    (b"a/2", FROM_KEY, [b"a/2", b"b", b"\xff"]),
    (b"\0", FROM_KEY, [b"a", b"a/1", b"a/2", b"b", b"\xff"]),
    (b"b", b"a", []),
    (b"b", b"b", []),
]


@pytest.mark.parametrize(("key", "end", "names"), RANGES)
def test_a_range_has_its_keys_in_order(
    keys: Keyspace, key: bytes, end: bytes, names: list[bytes]
) -> None:
    every = [b"b", b"a", b"\xff", b"a/2", b"a/1"]
    for name in every:
        keys.put(name, b"", 0)
    assert list(keys.names(key, end)) == names
    assert keys.range(key, end) == [keys.get(name) for name in names]
    assert sorted(name for name in every if covers(key, end, name)) == names
