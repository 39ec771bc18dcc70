"""Rules that hold for every replica store. The name of a function is the rule that it checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from leasehold.errors import Closed, UnsupportedOperation
from leasehold.files.replica_store import ReplicaStore, open_store
from leasehold.files.threaded_store import OWNER

NAME: Final = "3f/3f00000000000000000000000000000a-0-5"
MAX_AGE_S: Final = 3_600.0
"""No test takes so long; an age in other units, or by another epoch, is greater."""

KEYSPACE: Final = "0123456789abcdef"

Rule = Callable[[ReplicaStore], Awaitable[None]]


async def what_was_put_can_be_read_in_any_part(store: ReplicaStore) -> None:
    data = bytes(range(256)) * 4_096
    await store.put(NAME, data)
    assert await store.size(NAME) == len(data)
    assert await store.read(NAME, 0, len(data)) == data
    assert await store.read(NAME, 1_000, 3) == data[1_000:1_003]
    assert await store.read(NAME, 1_000, 0) == b""


async def a_read_returns_fewer_bytes_at_the_end(store: ReplicaStore) -> None:
    await store.put(NAME, b"0123456789")
    assert await store.read(NAME, 7, 100) == b"789"
    assert await store.read(NAME, 10, 1) == b""
    assert await store.read(NAME, 1_000, 1) == b""


async def an_object_may_be_empty(store: ReplicaStore) -> None:
    await store.put(NAME, b"")
    assert await store.size(NAME) == 0
    assert await store.read(NAME, 0, 10) == b""
    assert [(each.name, each.size_bytes) for each in await store.list("", 10)] == [(NAME, 0)]


async def put_replaces_the_whole_object(store: ReplicaStore) -> None:
    await store.put(NAME, b"a long one")
    await store.put(NAME, b"short")
    assert await store.read(NAME, 0, 100) == b"short"


async def a_missing_object_has_no_size_and_cannot_be_read(store: ReplicaStore) -> None:
    for _ in range(2):  # in an empty store, and in one with the directory
        assert await store.size(NAME) is None
        for length in (0, 10):
            with pytest.raises(FileNotFoundError):
                await store.read(NAME, 0, length)
        await store.put(f"{NAME}.1", b"another one")


async def a_deleted_object_is_gone_and_can_be_deleted_again(store: ReplicaStore) -> None:
    await store.delete(NAME)
    await store.put(NAME, b"data")
    await store.delete(NAME)
    await store.delete(NAME)
    assert await store.size(NAME) is None
    assert await store.list("", 10) == []


async def names_are_listed_in_code_point_order_in_pages(store: ReplicaStore) -> None:
    # A slash comes after '-' and '.', and before digits and letters.
    names = ["3-/a", "3./a", "3/b", "3/b-0", "3/b.0", "3/b0", "30/0", "3f/a", "3f/b"]
    assert names == sorted(names)
    await asyncio.gather(*(store.put(name, name.encode()) for name in names))
    for limit in (1, 2, 4, len(names), 100):
        listed: list[str] = []
        after = ""
        while page := await store.list(after, limit):
            assert len(page) == min(limit, len(names) - len(listed))
            assert all(each.size_bytes == len(each.name) for each in page)
            assert all(0.0 <= each.age_s < MAX_AGE_S for each in page)
            listed += [each.name for each in page]
            after = listed[-1]
        assert listed == names


async def a_listing_may_begin_anywhere(store: ReplicaStore) -> None:
    names = ["3/b", "30/0", "3f/a", "3f/b"]
    await asyncio.gather(*(store.put(name, b"") for name in names))
    for after in (
        "",
        "3",
        "3-",
        "3/",
        "3/b",
        "3/b0",
        "30",
        "3f",
        "3f/",
        "3f/a.0",
        "3f/b",
        "Z",
        "~",
    ):
        listed = [each.name for each in await store.list(after, 100)]
        assert listed == [name for name in names if name > after], after


async def an_empty_store_lists_nothing(store: ReplicaStore) -> None:
    assert await store.list("", 10) == []


async def what_others_write_is_seen(store: ReplicaStore) -> None:
    await store.put(NAME, b"one")
    other = open_store("other", store.url)
    try:
        assert len(await other.list("", 10)) == 1
        assert await other.size(f"{NAME}.1") is None
        await store.put(f"{NAME}.1", b"two")
        assert await other.size(f"{NAME}.1") == 3
        assert len(await other.list("", 10)) == 2
        await store.put(NAME, b"longer")
        assert await other.size(NAME) == 6
        assert [each.size_bytes for each in await other.list("", 10)] == [6, 3]
        await store.delete(NAME)
        assert await other.size(NAME) is None
        assert [each.name for each in await other.list("", 10)] == [f"{NAME}.1"]
    finally:
        await other.close()


async def bad_arguments_are_refused(store: ReplicaStore) -> None:
    for name in (
        "",
        "a",
        "/a",
        "a/",
        "/a/b",
        "a//b",
        "a/b/c",
        "../a",
        "a/..",
        "a/b..c",
        "./a",
        "a/.tmp-0",
        "A/b",
        "a/b c",
        "a/b\n",
        "a/ü",
        "a\\b/c",
    ):
        for call in (
            store.append(name, 0, b""),
            store.put(name, b""),
            store.read(name, 0, 1),
            store.size(name),
            store.delete(name),
        ):
            with pytest.raises(ValueError, match="object name must be"):
                await call
    with pytest.raises(ValueError, match="must not be negative"):
        await store.read(NAME, -1, 1)
    with pytest.raises(ValueError, match="must not be negative"):
        await store.read(NAME, 0, -1)
    with pytest.raises(ValueError, match="must not be negative"):
        await store.append(NAME, -1, b"")
    with pytest.raises(ValueError, match="limit must be positive"):
        await store.list("", 0)
    assert await store.list("", 10) == []


async def an_append_is_refused_unless_the_store_appends(store: ReplicaStore) -> None:
    if store.appends:
        await store.append(NAME, 0, b"data")
        assert await store.read(NAME, 0, 10) == b"data"
    else:
        with pytest.raises(UnsupportedOperation, match="cannot append"):
            await store.append(NAME, 0, b"data")
        assert await store.size(NAME) is None


async def many_calls_at_the_same_time_all_complete(store: ReplicaStore) -> None:
    names = [f"{number:02x}/{number:02x}00-0-1" for number in range(40)]
    await asyncio.gather(*(store.put(name, name.encode()) for name in names))
    found = await asyncio.gather(*(store.read(name, 0, 100) for name in names))
    assert found == [name.encode() for name in names]


async def a_cancelled_write_leaves_a_whole_object_or_none(store: ReplicaStore) -> None:
    names = [f"{NAME}.{number}" for number in range(12)]
    writes = [asyncio.ensure_future(store.put(name, b"whole" * 1_000)) for name in names]
    await writes[0]
    for write in writes[1:]:
        write.cancel()
    await asyncio.gather(*writes, return_exceptions=True)
    assert await store.size(names[0]) == 5_000
    assert {await store.size(name) for name in names} <= {None, 5_000}


async def a_closed_store_refuses_calls(store: ReplicaStore) -> None:
    await store.put(NAME, b"data")
    await store.close()
    await store.close()
    for call in (
        store.append(NAME, 0, b""),
        store.put(NAME, b""),
        store.read(NAME, 0, 1),
        store.size(NAME),
        store.list("", 1),
        store.delete(NAME),
    ):
        with pytest.raises(Closed, match="was closed"):
            await call


async def a_store_of_no_keyspace_or_of_another_one_is_read_only(store: ReplicaStore) -> None:
    await store.put(NAME, b"data")
    for owner, text in ((None, "belongs to no keyspace"), ("other", "another keyspace")):
        other = open_store("s2", store.url)
        if owner is None:
            await other.delete(OWNER)
        else:
            await other.put(OWNER, owner.encode())
        other.keyspace = KEYSPACE
        calls: list[Awaitable[object]] = [other.put(NAME, b"x"), other.delete(NAME)]
        calls += [other.list("", 10)]
        calls += [other.size(f"{NAME}.1"), other.read(f"{NAME}.1", 0, 1)]
        if other.appends:
            calls += [other.append(NAME, 4, b"x"), other.append(f"{NAME}.1", 0, b"x")]
        for call in calls:
            with pytest.raises(OSError, match=text) as raised:
                await call
            assert not isinstance(raised.value, FileNotFoundError)
            assert f"`leasehold files stores --claim {store.url}`" in str(raised.value)
        assert await other.read(NAME, 0, 10) == b"data"
        await other.close()


async def a_store_that_is_claimed_can_be_written(store: ReplicaStore) -> None:
    other = open_store("s2", store.url)
    await other.put(OWNER, b"other")
    other.keyspace = KEYSPACE
    with pytest.raises(OSError, match="another keyspace"):
        await other.put(NAME, b"data")
    await other.put(OWNER, KEYSPACE.encode())
    await other.put(NAME, b"data")
    assert [each.name for each in await other.list("", 10)] == [NAME]
    await other.close()


RULES: Final[list[Rule]] = [
    what_was_put_can_be_read_in_any_part,
    a_read_returns_fewer_bytes_at_the_end,
    an_object_may_be_empty,
    put_replaces_the_whole_object,
    a_missing_object_has_no_size_and_cannot_be_read,
    a_deleted_object_is_gone_and_can_be_deleted_again,
    names_are_listed_in_code_point_order_in_pages,
    a_listing_may_begin_anywhere,
    an_empty_store_lists_nothing,
    what_others_write_is_seen,
    bad_arguments_are_refused,
    an_append_is_refused_unless_the_store_appends,
    many_calls_at_the_same_time_all_complete,
    a_cancelled_write_leaves_a_whole_object_or_none,
    a_store_of_no_keyspace_or_of_another_one_is_read_only,
    a_store_that_is_claimed_can_be_written,
    a_closed_store_refuses_calls,
]


async def open_owned(url: str) -> ReplicaStore:
    """Open a store that belongs to a keyspace; it is created if it is missing."""
    store = open_store("s1", url)
    store.keyspace = KEYSPACE
    await store.put(OWNER, KEYSPACE.encode())
    return store


async def check(rule: Rule, url: str) -> None:
    """Check a rule with a store, which must be empty."""
    store = await open_owned(url)
    try:
        await rule(store)
    finally:
        await store.close()
