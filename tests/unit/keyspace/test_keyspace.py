"""The keyspace: revisions, versions, ranges and the past, one rule a test; a machine tests all."""

import pytest

from leasehold.keyspace.keyspace import (
    FIRST_REVISION,
    FROM_KEY,
    Change,
    Item,
    Keyspace,
    PairCodec,
    covers,
)


def encode(*parts: object) -> bytes:
    return repr(parts).encode()


def value_of(item: Item) -> bytes:
    raise NotImplementedError


@pytest.fixture
def keys() -> Keyspace:
    return Keyspace(PairCodec(encode, value_of))


def put(keys: Keyspace, name: bytes, lease: int = 0) -> Change:
    change = keys.put(name, b"x", lease, keys.revision + 1)
    keys.revision += 1
    return change


def delete(keys: Keyspace, name: bytes) -> Change:
    change = keys.delete(name, keys.revision + 1)
    keys.revision += 1
    return change


def test_an_empty_keyspace_is_at_the_first_revision(keys: Keyspace) -> None:
    assert (keys.revision, len(keys)) == (FIRST_REVISION, 0)
    assert keys.range(b"\0", FROM_KEY) == []


def test_each_put_is_a_revision_and_a_version(keys: Keyspace) -> None:
    for number in range(1, 4):
        item = put(keys, b"a", 7).item
        assert item is not None
        assert item[1:] == (2, FIRST_REVISION + number, number, 7, b"a")
        assert item[0] == encode(b"a", 2, FIRST_REVISION + number, number, b"x", 7)


def test_a_delete_tells_what_was_there(keys: Keyspace) -> None:
    before = put(keys, b"a").item
    change = delete(keys, b"a")
    assert (change.key, change.revision, change.item, change.previous) == (b"a", 3, None, before)
    assert keys.get(b"a") is None
    assert list(keys.names(b"\0", FROM_KEY)) == []


def test_a_key_that_was_deleted_begins_anew(keys: Keyspace) -> None:
    put(keys, b"a")
    delete(keys, b"a")
    item = put(keys, b"a").item
    assert item is not None
    assert item[1:4] == (4, 4, 1)


def test_a_failed_encoding_changes_nothing() -> None:
    def fail(*_: object) -> bytes:
        raise OverflowError

    keys = Keyspace(PairCodec(fail, value_of))
    with pytest.raises(OverflowError):
        keys.put(b"a", b"", 0, 2)
    assert (keys.revision, len(keys), keys.marks) == (FIRST_REVISION, 0, 0)
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
        put(keys, name)
    assert list(keys.names(key, end)) == names
    assert list(keys.names(key, end, reverse=True)) == names[::-1]
    assert keys.count(key, end) == len(names)
    assert keys.range(key, end) == [keys.get(name) for name in names]
    assert sorted(name for name in every if covers(key, end, name)) == names


def test_the_past_is_known_by_its_revisions(keys: Keyspace) -> None:
    first = put(keys, b"a")  # 2
    put(keys, b"b")  # 3
    put(keys, b"a")  # 4
    delete(keys, b"a")  # 5
    last = put(keys, b"a")  # 6
    assert [keys.at(b"a", revision) for revision in range(1, 8)] == [
        None,
        2,
        2,
        4,
        None,
        last.item,
        last.item,
    ]
    assert keys.before(first) is None
    assert keys.before(last) is None
    assert keys.before(Change(b"a", 5, None, None)) == 4
    assert keys.marks == 3


def test_the_names_of_the_past_have_the_dead_among_them(keys: Keyspace) -> None:
    for name in (b"a", b"b", b"c", b"d"):
        put(keys, name)
    delete(keys, b"b")
    delete(keys, b"d")
    assert list(keys.all_names(b"\0", FROM_KEY)) == [b"a", b"b", b"c", b"d"]
    assert list(keys.all_names(b"a", b"d", after=b"a")) == [b"b", b"c"]
    assert list(keys.all_names(b"b", b"")) == [b"b"]
    assert list(keys.all_names(b"b", b"", after=b"b")) == []
    put(keys, b"b")
    assert list(keys.all_names(b"\0", FROM_KEY)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("until", range(1, 9))
def test_trimming_forgets_only_what_no_later_read_can_see(keys: Keyspace, until: int) -> None:
    put(keys, b"a")  # 2
    put(keys, b"a")  # 3
    delete(keys, b"a")  # 4
    put(keys, b"a")  # 5
    put(keys, b"b")  # 6
    delete(keys, b"b")  # 7
    seen = {
        (name, revision): keys.at(name, revision)
        for name in (b"a", b"b")
        for revision in range(until, 9)
    }
    for name in keys.past_names():
        keys.trim(name, until)
    assert {place: keys.at(*place) for place in seen} == seen
    if until >= 7:
        assert (keys.marks, keys.past_names()) == (0, [])
        assert list(keys.all_names(b"\0", FROM_KEY)) == [b"a"]


def test_the_memory_that_is_counted_goes_with_the_keys(keys: Keyspace) -> None:
    for number in range(100):
        put(keys, b"%d" % number)
        put(keys, b"%d" % number)
    full = keys.memory_bytes
    for number in range(100):
        delete(keys, b"%d" % number)
    for name in keys.past_names():
        keys.trim(name, keys.revision)
    assert full > 100 * 100
    assert keys.memory_bytes == 0
