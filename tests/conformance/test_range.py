"""Range at the current revision: one key, prefixes, from a key on; order, limits, filters."""

import itertools
from typing import Any, Final

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import RangeRequest, RangeResponse
from tests.conformance.client import Client, fails, header, prefix_end

ASCEND, DESCEND, NONE = RangeRequest.ASCEND, RangeRequest.DESCEND, RangeRequest.NONE
KEY, VERSION, CREATE = RangeRequest.KEY, RangeRequest.VERSION, RangeRequest.CREATE
MOD, VALUE = RangeRequest.MOD, RangeRequest.VALUE
_last_keys: Final = itertools.count()


@pytest.fixture
def four(client: Client, key: bytes) -> list[KeyValue]:
    """Four keys; their values, versions and revisions are each in an order of their own."""
    # Versions 3, 1, 4 and 2: etcd has no order among equals.
    values = {"a": b"4", "b": b"3", "c": b"1", "d": b"2"}
    for name in "cadb" + "ccc" + "aa" + "d":
        client.put(key + name.encode(), values[name])
    return [client.range(key + name).kvs[0] for name in (b"a", b"b", b"c", b"d")]


def names(answer: RangeResponse) -> str:
    return b"".join(pair.key[-1:] for pair in answer.kvs).decode()


def test_a_missing_key_is_an_empty_answer(client: Client, key: bytes) -> None:
    assert client.range(key) == RangeResponse(header=header(client.revision()))


@pytest.mark.parametrize("range_end", [b"", b"z", b"\x00"])
def test_an_empty_key_is_refused(client: Client, range_end: bytes) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided"):
        client.range(b"", range_end)


def test_a_prefix_comes_in_the_order_of_keys(
    client: Client, key: bytes, four: list[KeyValue]
) -> None:
    client.put(prefix_end(key), b"the first key behind it")
    answer = client.range(key, prefix_end(key))
    assert answer == RangeResponse(header=header(client.revision()), kvs=four, count=4)


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (b"a", b"c", "ab"),
        (b"b", b"b\x00", "b"),
        (b"aa", b"cc", "bc"),
        (b"b", b"b", ""),
        (b"c", b"a", ""),
        (b"e", b"f", ""),
    ],
)
@pytest.mark.usefixtures("four")
def test_a_range_has_its_first_and_not_its_end(
    client: Client, key: bytes, first: bytes, end: bytes, expected: str
) -> None:
    answer = client.range(key + first, key + end)
    assert (names(answer), answer.count, answer.more) == (expected, len(expected), False)


def test_from_a_key_on(client: Client) -> None:
    last = b"\xff\xff%06d/" % next(_last_keys)
    client.delete(last, b"\x00")  # other tests have left keys there
    for name in (b"a", b"b", b"c"):
        client.put(last + name)
    answer = client.range(last + b"b", b"\x00")
    assert (names(answer), answer.count) == ("bc", 2)


@pytest.mark.usefixtures("four")
def test_from_the_first_key_on_is_everything(client: Client, key: bytes) -> None:
    answer = client.range(b"\x00", b"\x00")
    assert answer.count == len(answer.kvs)
    assert answer.kvs == sorted(answer.kvs, key=lambda pair: pair.key)
    own = [pair.key[-1:] for pair in answer.kvs if pair.key.startswith(key)]
    assert own == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("limit", "expected", "more"),
    [(1, "a", True), (3, "abc", True), (4, "abcd", False), (9, "abcd", False), (0, "abcd", False)],
)
@pytest.mark.usefixtures("four")
def test_a_limit_counts_all_and_says_more(
    client: Client, key: bytes, limit: int, expected: str, more: bool
) -> None:
    answer = client.range(key, prefix_end(key), limit=limit)
    assert (names(answer), answer.more, answer.count) == (expected, more, 4)


@pytest.mark.usefixtures("four")
def test_a_negative_limit_is_none(client: Client, key: bytes) -> None:
    answer = client.range(key, prefix_end(key), limit=-1)
    assert (names(answer), answer.more, answer.count) == ("abcd", False, 4)


def test_keys_only_leaves_out_the_values(client: Client, key: bytes, four: list[KeyValue]) -> None:
    for pair in four:
        pair.ClearField("value")
    answer = client.range(key, prefix_end(key), keys_only=True)
    assert answer == RangeResponse(header=header(client.revision()), kvs=four, count=4)
    assert client.range(key + b"a", keys_only=True).kvs == four[:1]


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("more", [{}, {"limit": 2}, {"keys_only": True}], ids=str)
def test_count_only_has_no_pairs(client: Client, key: bytes, more: dict[str, Any]) -> None:
    answer = client.range(key, prefix_end(key), count_only=True, **more)
    assert answer == RangeResponse(header=header(client.revision()), count=4)
    assert client.range(key + b"a", count_only=True, **more).count == 1
    assert client.range(key + b"x", count_only=True, **more).count == 0


@pytest.mark.parametrize(
    ("target", "ascending"),
    [(KEY, "abcd"), (VERSION, "bdac"), (CREATE, "cadb"), (MOD, "bcad"), (VALUE, "cdba")],
)
@pytest.mark.usefixtures("four")
def test_sorting_by_each_field(
    client: Client, key: bytes, target: RangeRequest.SortTarget, ascending: str
) -> None:
    end = prefix_end(key)
    up = client.range(key, end, sort_order=ASCEND, sort_target=target)
    down = client.range(key, end, sort_order=DESCEND, sort_target=target)
    unsaid = client.range(key, end, sort_order=NONE, sort_target=target)
    assert (names(up), names(down), names(unsaid)) == (ascending, ascending[::-1], ascending)
    assert (up.count, up.more) == (4, False)


@pytest.mark.usefixtures("four")
def test_a_limit_is_applied_after_sorting(client: Client, key: bytes) -> None:
    answer = client.range(key, prefix_end(key), sort_order=DESCEND, sort_target=VALUE, limit=2)
    assert (names(answer), answer.more, answer.count) == ("ab", True, 4)


def test_an_unknown_order_is_none(client: Client, key: bytes, four: list[KeyValue]) -> None:
    """An unknown sort target is not tried: it ends the process of etcd 3.5.1."""
    wrong: Any = 3
    assert client.range(key, prefix_end(key), sort_order=wrong).kvs == four


def test_filters_by_revision(client: Client, key: bytes, four: list[KeyValue]) -> None:
    a, _, c, d = four
    end = prefix_end(key)
    at_least = client.range(key, end, min_mod_revision=a.mod_revision)
    at_most = client.range(key, end, max_mod_revision=c.mod_revision)
    old = client.range(key, end, max_create_revision=a.create_revision)
    new = client.range(key, end, min_create_revision=d.create_revision, limit=1)
    assert [names(answer) for answer in (at_least, at_most, old, new)] == ["ad", "bc", "ac", "b"]
    assert [answer.count for answer in (at_least, at_most, old, new)] == [4, 4, 4, 4]
    assert [answer.more for answer in (at_least, at_most, old, new)] == [False, False, False, True]


def test_the_current_revision_may_be_asked_for(
    client: Client, key: bytes, four: list[KeyValue]
) -> None:
    start = client.revision()
    for revision in (start, 0, -1):
        answer = client.range(key, prefix_end(key), revision=revision)
        assert answer == RangeResponse(header=header(start), kvs=four, count=4)


@pytest.mark.parametrize("serializable", [False, True])
def test_a_future_revision_is_refused(client: Client, key: bytes, serializable: bool) -> None:
    revision = client.revision() + 1
    text = "etcdserver: mvcc: required revision is a future revision"
    for more in ({}, {"count_only": True}, {"range_end": b"\x00"}):
        with fails(StatusCode.OUT_OF_RANGE, text):
            client.range(key, revision=revision, serializable=serializable, **more)


def test_a_serializable_read_is_the_same(client: Client, key: bytes, four: list[KeyValue]) -> None:
    assert client.range(key, prefix_end(key), serializable=True).kvs == four
