"""Ranges at past revisions, and compaction: what is still there, what is refused."""

from typing import Any, Final

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import CompactionResponse, RangeRequest, RangeResponse
from tests.conformance.client import (
    Client,
    Granter,
    delete_op,
    fails,
    header,
    prefix_end,
    put_op,
    range_op,
)

ASCEND, DESCEND, NONE = RangeRequest.ASCEND, RangeRequest.DESCEND, RangeRequest.NONE
KEY, VERSION, CREATE = RangeRequest.KEY, RangeRequest.VERSION, RangeRequest.CREATE
MOD, VALUE = RangeRequest.MOD, RangeRequest.VALUE
FUTURE: Final = "etcdserver: mvcc: required revision is a future revision"
COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
MIB: Final = 1 << 20


def names(answer: RangeResponse) -> str:
    return b"".join(pair.key[-1:] for pair in answer.kvs).decode()


# Ranges at past revisions.


def test_a_key_is_seen_as_it_was_at_each_revision(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    first = client.put(key, b"1", lease=lease).header.revision
    client.put(key, b"2")
    client.delete(key)
    client.put(key + b"other")
    last = client.put(key, b"3").header.revision
    assert last == first + 4

    def at(revision: int) -> RangeResponse:
        return client.range(key, revision=revision)

    now = header(last)
    one = KeyValue(
        key=key, value=b"1", create_revision=first, mod_revision=first, version=1, lease=lease
    )
    two = KeyValue(key=key, value=b"2", create_revision=first, mod_revision=first + 1, version=2)
    three = KeyValue(key=key, value=b"3", create_revision=last, mod_revision=last, version=1)
    assert at(first - 1) == RangeResponse(header=now)
    assert at(first) == RangeResponse(header=now, kvs=[one], count=1)
    assert at(first + 1) == RangeResponse(header=now, kvs=[two], count=1)
    assert at(first + 2) == RangeResponse(header=now)
    assert at(first + 3) == RangeResponse(header=now)
    assert at(last) == RangeResponse(header=now, kvs=[three], count=1)


def test_a_range_is_seen_as_it_was_at_each_revision(client: Client, key: bytes) -> None:
    start = client.revision()
    for name in (b"b", b"d", b"a"):
        client.put(key + name)
    client.delete(key + b"b")
    client.put(key + b"c")
    client.txn([], [delete_op(key + b"a"), put_op(key + b"b"), delete_op(key + b"d")])
    client.delete(key, prefix_end(key))
    expected = ["", "b", "bd", "abd", "ad", "acd", "bc", ""]
    for more, seen in enumerate(expected):
        answer = client.range(key, prefix_end(key), revision=start + more)
        assert (names(answer), answer.count, answer.more) == (seen, len(seen), False)
        assert answer.header == header(start + 7)


def test_the_keys_of_a_lease_that_is_gone_are_still_in_the_past(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    for name in (b"a", b"b"):
        client.put(key + name, lease=lease)
    start = client.revision()
    before = client.range(key, prefix_end(key))
    client.revoke(lease)
    after = client.range(key, prefix_end(key), revision=start)
    assert (after.kvs, after.count) == (before.kvs, 2)
    assert [pair.lease for pair in after.kvs] == [lease, lease]
    assert client.range(key, prefix_end(key), revision=start + 1).count == 0


@pytest.fixture
def four(client: Client, key: bytes) -> int:
    """Four keys, each of their fields in an order of its own, and all different afterwards.

    The revision is that of the four.
    """
    values = {"a": b"4", "b": b"3", "c": b"1", "d": b"2"}
    for name in "cadb" + "ccc" + "aa" + "d":
        client.put(key + name.encode(), values[name])
    revision = client.revision()
    client.put(key + b"b", b"0")
    client.delete(key + b"c")
    client.txn([], [put_op(key + b"e", b"9"), put_op(key + b"c", b"9"), put_op(key + b"a", b"0")])
    return revision


@pytest.mark.parametrize(
    ("target", "ascending"),
    [(KEY, "abcd"), (VERSION, "bdac"), (CREATE, "cadb"), (MOD, "bcad"), (VALUE, "cdba")],
)
def test_the_past_sorted_by_each_field(
    client: Client, key: bytes, four: int, target: RangeRequest.SortTarget, ascending: str
) -> None:
    def sort(order: RangeRequest.SortOrder, limit: int) -> RangeResponse:
        return client.range(
            key,
            prefix_end(key),
            revision=four,
            sort_order=order,
            sort_target=target,
            limit=limit,
        )

    for limit in (-1, 0, 1, 2, 3, 4, 5):
        length = limit if limit > 0 else 4
        up, down = sort(ASCEND, limit), sort(DESCEND, limit)
        assert (names(up), names(down)) == (ascending[:length], ascending[::-1][:length])
        assert (up.more, down.more) == (length < 4, length < 4)
        assert (up.count, down.count) == (4, 4)


@pytest.mark.parametrize("is_past", [False, True])
def test_a_limit_without_an_order_is_applied_before_sorting_too(
    client: Client, key: bytes, four: int, is_past: bool
) -> None:
    """For `more` one key beyond the limit is read, by name; these are sorted, and cut."""
    revision = four if is_past else 0
    if not is_past:
        client.delete(key, prefix_end(key))
        for name, value in ((b"a", b"4"), (b"b", b"3"), (b"c", b"1"), (b"d", b"2")):
            client.put(key + name, value)

    def limited(limit: int, **more: Any) -> RangeResponse:
        end = prefix_end(key)
        return client.range(key, end, revision=revision, sort_target=VALUE, limit=limit, **more)

    expected = {0: "cdba", -1: "cdba", 1: "b", 2: "cb", 3: "cdb", 4: "cdba", 5: "cdba"}
    for limit, seen in expected.items():
        answer = limited(limit)
        assert (names(answer), answer.more, answer.count) == (seen, 0 < limit < 4, 4)
    # With any filter all are read, and sorted before they are cut.
    assert names(limited(2, min_mod_revision=1)) == "cd"
    assert names(limited(2, max_create_revision=MAX_INT64)) == "cd"


@pytest.mark.parametrize("order", [3, -1])
def test_with_an_unknown_order_nothing_is_sorted(
    client: Client, key: bytes, four: int, order: Any
) -> None:
    for target in (KEY, VERSION, CREATE, MOD, VALUE):
        answer = client.range(
            key, prefix_end(key), revision=four, sort_order=order, sort_target=target, limit=3
        )
        assert (names(answer), answer.more, answer.count) == ("abc", True, 4)


def test_filters_in_the_past(client: Client, key: bytes, four: int) -> None:
    a, b, c, d = client.range(key, prefix_end(key), revision=four).kvs

    def filtered(**more: Any) -> tuple[str, bool, int]:
        answer = client.range(key, prefix_end(key), revision=four, **more)
        return names(answer), answer.more, answer.count

    assert filtered(min_mod_revision=a.mod_revision) == ("ad", False, 4)
    assert filtered(max_mod_revision=c.mod_revision) == ("bc", False, 4)
    assert filtered(max_create_revision=a.create_revision) == ("ac", False, 4)
    assert filtered(min_create_revision=d.create_revision, limit=1) == ("b", True, 4)
    assert filtered(min_create_revision=d.create_revision, limit=2) == ("bd", False, 4)
    assert filtered(min_mod_revision=d.mod_revision + 1) == ("", False, 4)
    both = {"min_mod_revision": c.mod_revision, "max_create_revision": d.create_revision}
    assert filtered(**both) == ("acd", False, 4)
    assert filtered(**both, sort_target=MOD, sort_order=DESCEND, limit=2) == ("da", True, 4)
    assert filtered(min_mod_revision=-1) == ("abcd", False, 4)
    assert filtered(max_mod_revision=-1) == ("", False, 4)
    assert filtered(max_create_revision=-1, limit=2) == ("", False, 4)
    assert filtered(max_mod_revision=b.mod_revision, count_only=True) == ("", False, 4)


def test_keys_only_and_count_only_in_the_past(client: Client, key: bytes, four: int) -> None:
    whole = client.range(key, prefix_end(key), revision=four)
    for pair in whole.kvs:
        pair.ClearField("value")
    assert client.range(key, prefix_end(key), revision=four, keys_only=True) == whole
    del whole.kvs[:]
    assert client.range(key, prefix_end(key), revision=four, count_only=True) == whole
    for more in ({"limit": 2}, {"keys_only": True}, {"sort_target": VALUE}):
        answer = client.range(key, prefix_end(key), revision=four, count_only=True, **more)
        assert answer == whole


def test_a_limit_in_the_past(client: Client, key: bytes, four: int) -> None:
    for limit, seen in ((1, "a"), (3, "abc"), (4, "abcd"), (9, "abcd"), (0, "abcd"), (-2, "abcd")):
        answer = client.range(key, prefix_end(key), revision=four, limit=limit)
        assert (names(answer), answer.more, answer.count) == (seen, 0 < limit < 4, 4)


def test_parts_of_the_past(client: Client, key: bytes, four: int) -> None:
    def part(first: bytes, end: bytes) -> str:
        return names(client.range(key + first, key + end, revision=four))

    assert (part(b"b", b"d"), part(b"aa", b"z"), part(b"c", b"a")) == ("bc", "bcd", "")
    on = client.range(key + b"c", b"\x00", revision=four, limit=2)
    assert (names(on), on.count >= 2) == ("cd", True)


def test_a_serializable_read_of_the_past_is_the_same(client: Client, key: bytes, four: int) -> None:
    answer = client.range(key, prefix_end(key), revision=four, serializable=True)
    assert answer == client.range(key, prefix_end(key), revision=four)


@pytest.mark.parametrize("count", [1000, 1001, 2600])
def test_very_many_keys_in_the_past(client: Client, key: bytes, count: int) -> None:
    """Ours reads more than a thousand in slices, which nobody may see."""
    all_names = [key + b"%06d" % number for number in range(count)]
    client.put_all(all_names, b"old")
    revision = client.revision()
    client.put_all(all_names[::3], b"new")
    client.delete(all_names[count // 2], prefix_end(key))
    end = prefix_end(key)
    whole = client.range(key, end, revision=revision)
    assert [(pair.key, pair.value) for pair in whole.kvs] == [(name, b"old") for name in all_names]
    assert (whole.count, whole.more) == (count, False)
    assert whole.header == header(client.revision())
    page = client.range(key, end, revision=revision, limit=5)
    assert ([pair.key for pair in page.kvs], page.count) == (all_names[:5], count)
    assert page.more
    down = client.range(key, end, revision=revision, limit=5, sort_order=DESCEND)
    assert ([pair.key for pair in down.kvs], down.count) == (all_names[:-6:-1], count)
    assert down.more
    only = client.range(key, end, revision=revision, count_only=True)
    assert (len(only.kvs), only.count) == (0, count)
    late = whole.kvs[-1].mod_revision
    filtered = client.range(key, end, revision=revision, min_mod_revision=late)
    assert [pair for pair in whole.kvs if pair.mod_revision == late] == filtered.kvs
    assert filtered.count == count


def test_a_past_that_no_memory_holds(client: Client, key: bytes) -> None:
    """Ours keeps the last 32 MiB in memory."""
    values = [bytes((number,)) * MIB for number in range(40)]
    start = client.revision()
    for value in values:
        client.put(key, value)
    for number in (0, 1, 17, 38, 39):
        pair = client.range(key, prefix_end(key), revision=start + 1 + number).kvs[0]
        assert (pair.value, pair.version) == (values[number], number + 1)
        assert (pair.create_revision, pair.mod_revision) == (start + 1, start + 1 + number)
        answer = client.txn([], [range_op(key, revision=start + 1 + number)])
        assert answer.responses[0].response_range.kvs == [pair]


# Compaction.


@pytest.mark.parametrize("physical", [False, True])
def test_a_compaction_is_no_revision_and_tells_the_current_one(
    client: Client, key: bytes, physical: bool
) -> None:
    first = client.put(key, b"1").header.revision
    client.put(key, b"2")
    current = client.put(key, b"3").header.revision
    answer = client.compact(first + 1, physical=physical)
    assert answer == CompactionResponse(header=header(current))
    assert client.revision() == current


@pytest.mark.parametrize("physical", [False, True])
def test_what_was_before_a_compaction_is_refused(
    client: Client, key: bytes, physical: bool
) -> None:
    first = client.put(key, b"1").header.revision
    for value in (b"2", b"3"):
        client.put(key, value)
    client.compact(first + 1, physical=physical)
    for more in ({}, {"count_only": True}, {"range_end": b"\x00"}, {"serializable": True}):
        for revision in (1, first - 1, first):
            with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
                client.range(key, revision=revision, **more)
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.range(key + b"none", revision=first)
    values = [client.range(key, revision=first + more).kvs[0].value for more in (1, 2)]
    assert values == [b"2", b"3"]


def test_a_negative_revision_is_the_current_one_after_a_compaction_too(
    client: Client, key: bytes
) -> None:
    start = client.put(key, b"v").header.revision
    client.compact(start)
    for revision in (0, -1, MIN_INT64):
        assert client.range(key, revision=revision).kvs[0].value == b"v"


@pytest.mark.parametrize("physical", [False, True])
def test_the_compacted_revision_itself_may_be_read(
    client: Client, key: bytes, physical: bool
) -> None:
    for name in (b"a", b"b", b"c", b"d"):
        client.put(key + name, b"1")
    client.delete(key + b"b")
    client.put(key + b"c", b"2")
    client.txn([], [delete_op(key + b"d"), put_op(key + b"e", b"1")])
    revision = client.revision()
    before = client.range(key, prefix_end(key))
    client.delete(key, prefix_end(key))
    client.put(key + b"a", b"later")
    client.compact(revision, physical=physical)
    at = client.range(key, prefix_end(key), revision=revision)
    assert (at.kvs, at.count) == (before.kvs, 3)
    assert at.header == header(revision + 2)
    assert client.range(key, prefix_end(key), revision=revision + 1).count == 0
    for name in (b"b", b"d"):
        assert client.range(key + name, revision=revision).count == 0


def test_the_current_revision_may_be_compacted(client: Client, key: bytes) -> None:
    client.put(key, b"1")
    current = client.put(key, b"2").header.revision
    before = client.range(key, revision=current)
    client.compact(current, physical=True)
    assert client.range(key, revision=current) == client.range(key) == before
    assert client.put(key, b"3").header.revision == current + 1
    pair = client.range(key).kvs[0]
    assert (pair.version, pair.create_revision) == (3, current - 1)


@pytest.mark.parametrize("physical", [False, True])
def test_a_revision_is_compacted_once_and_never_a_lower_one(
    client: Client, key: bytes, physical: bool
) -> None:
    for _ in range(3):
        current = client.put(key).header.revision
    client.compact(current - 1, physical=physical)
    for revision in (current - 1, current - 2, 1, 0, -1, MIN_INT64):
        with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
            client.compact(revision, physical=physical)
    assert client.compact(current, physical=physical).header == header(current)
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.compact(current, physical=not physical)


@pytest.mark.parametrize("physical", [False, True])
def test_the_future_cannot_be_compacted(client: Client, key: bytes, physical: bool) -> None:
    current = client.put(key).header.revision
    for revision in (current + 1, MAX_INT64):
        with fails(StatusCode.OUT_OF_RANGE, FUTURE):
            client.compact(revision, physical=physical)
    assert client.range(key, revision=current).count == 1


def test_an_empty_key_is_told_before_a_compacted_or_future_revision(
    client: Client, key: bytes
) -> None:
    current = client.put(key).header.revision
    client.compact(current)
    for revision in (current - 1, current + 1):
        with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided"):
            client.range(b"", revision=revision)


def test_keys_that_were_deleted_before_a_compaction_begin_anew(client: Client, key: bytes) -> None:
    client.put(key, b"1")
    client.put(key, b"2")
    client.delete(key)
    current = client.revision()
    client.compact(current, physical=True)
    assert client.range(key, revision=current).count == 0
    revision = client.put(key, b"3").header.revision
    assert client.range(key).kvs == [
        KeyValue(key=key, value=b"3", create_revision=revision, mod_revision=revision, version=1)
    ]


def test_one_compaction_after_the_other(client: Client, key: bytes) -> None:
    start = client.revision()
    for number in range(1, 9):
        client.put(key + b"%d" % (number % 3), b"%d" % number)
    for compacted in range(1, 8):
        client.compact(start + compacted, physical=compacted % 2 == 0)
        for number in range(compacted, 9):
            answer = client.range(key, prefix_end(key), revision=start + number)
            last = [value for value in range(1, number + 1) if value > number - 3]
            assert sorted(pair.value for pair in answer.kvs) == [b"%d" % value for value in last]


def test_compaction_keeps_leases_and_their_keys(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    client.put(key, lease=lease)
    client.compact(client.put(key + b"other").header.revision, physical=True)
    assert client.time_to_live(lease, keys=True).keys == [key]
    client.revoke(lease)
    assert client.range(key).count == 0


# A store without a past.


def test_a_store_begins_with_revision_1_and_nothing_compacted(fresh_client: Client) -> None:
    client = fresh_client
    assert client.range(b"k") == RangeResponse(header=header(1))
    for revision in (1, 0, -1, MIN_INT64):
        answer = client.range(b"k", b"\x00", revision=revision)
        assert answer == RangeResponse(header=header(1))
    for revision in (-1, MIN_INT64):
        with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
            client.compact(revision)
    with fails(StatusCode.OUT_OF_RANGE, FUTURE):
        client.compact(2)
    # A range of a transaction takes its revision as it is, and -1 is what was compacted so far.
    assert client.txn([], [range_op(b"k", revision=-1)]).succeeded
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.txn([], [range_op(b"k", revision=-2)])
    assert client.compact(0) == CompactionResponse(header=header(1))
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.compact(0)
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.txn([], [range_op(b"k", revision=-1)])
    client.put(b"k", b"v")
    assert client.range(b"k", revision=1) == RangeResponse(header=header(2))
    assert client.compact(1, physical=True) == CompactionResponse(header=header(2))
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.compact(1)
    assert client.range(b"k", revision=1) == RangeResponse(header=header(2))
    assert client.range(b"k", revision=2).count == 1
