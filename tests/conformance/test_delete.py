"""DeleteRange: what it answers, what is left, what it refuses."""

import itertools
from typing import Any, Final

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import DeleteRangeResponse, RangeResponse
from tests.conformance.client import Client, Granter, fails, header, prefix_end

KEY_MISSING: Final = "etcdserver: key is not provided"
REQUEST_MAX: Final = 3 << 19
FROM_KEY: Final = b"\x00"
_last_keys: Final = itertools.count()


@pytest.fixture
def four(client: Client, key: bytes) -> list[KeyValue]:
    """Four keys below `key`."""
    for name in (b"d", b"b", b"a", b"c", b"b"):
        client.put(key + name, b"value of " + name)
    return [client.range(key + name).kvs[0] for name in (b"a", b"b", b"c", b"d")]


def test_a_delete_is_one_revision(client: Client, key: bytes) -> None:
    start = client.put(key, b"v").header.revision
    assert client.delete(key) == DeleteRangeResponse(header=header(start + 1), deleted=1)
    assert client.range(key) == RangeResponse(header=header(start + 1))


@pytest.mark.parametrize("more", [{}, {"prev_kv": True}, {"range_end": b"\xff"}], ids=str)
def test_deleting_nothing_is_no_revision(client: Client, key: bytes, more: dict[str, Any]) -> None:
    start = client.revision()
    missing = b"\xfe" + key  # behind it there is nothing up to the end of the range
    assert client.delete(missing, **more) == DeleteRangeResponse(header=header(start))


def test_a_key_is_deleted_once(client: Client, key: bytes) -> None:
    client.put(key)
    start = client.delete(key).header.revision
    assert client.delete(key, prev_kv=True) == DeleteRangeResponse(header=header(start))


def test_the_previous_pair_comes_back_whole_if_asked_for(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, b"1", lease=lease)
    client.put(key, b"2", lease=lease)
    pair = client.range(key).kvs[0]
    start = client.revision()
    assert client.delete(key, prev_kv=True) == DeleteRangeResponse(
        header=header(start + 1), deleted=1, prev_kvs=[pair]
    )


def test_a_range_is_deleted_at_one_revision(
    client: Client, key: bytes, four: list[KeyValue]
) -> None:
    start = client.revision()
    assert client.delete(key, prefix_end(key), prev_kv=True) == DeleteRangeResponse(
        header=header(start + 1), deleted=4, prev_kvs=four
    )
    assert client.range(key, prefix_end(key)) == RangeResponse(header=header(start + 1))


@pytest.mark.parametrize(
    ("first", "end", "deleted"),
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
    client: Client, key: bytes, first: bytes, end: bytes, deleted: str
) -> None:
    start = client.revision()
    answer = client.delete(key + first, key + end, prev_kv=True)
    assert b"".join(pair.key[-1:] for pair in answer.prev_kvs).decode() == deleted
    assert (answer.deleted, answer.header.revision) == (len(deleted), start + bool(deleted))
    left = client.range(key, prefix_end(key))
    assert {pair.key[-1:].decode() for pair in left.kvs} == set("abcd") - set(deleted)


def test_from_a_key_on(client: Client) -> None:
    last = b"\xff\xff\xff%06d/" % next(_last_keys)
    client.delete(last, FROM_KEY)  # other tests have left keys there
    for name in (b"a", b"b", b"c"):
        client.put(last + name)
    assert client.delete(last + b"b", FROM_KEY).deleted == 2
    assert [pair.key for pair in client.range(last, FROM_KEY).kvs] == [last + b"a"]
    client.delete(last, FROM_KEY)


@pytest.mark.parametrize("range_end", [b"", b"z", FROM_KEY])
def test_an_empty_key_is_refused(client: Client, range_end: bytes) -> None:
    start = client.revision()
    with fails(StatusCode.INVALID_ARGUMENT, KEY_MISSING):
        client.delete(b"", range_end)
    assert client.revision() == start


def test_a_request_that_is_too_large_is_refused(client: Client, key: bytes) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large"):
        client.delete(key, b"\xff" * REQUEST_MAX)
    with fails(StatusCode.INVALID_ARGUMENT, KEY_MISSING):
        client.delete(b"", b"\xff" * REQUEST_MAX)


def test_a_delete_detaches_the_key_from_its_lease(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, lease=lease)
    client.put(key + b"other", lease=lease)
    client.delete(key)
    assert client.time_to_live(lease, keys=True).keys == [key + b"other"]
    start = client.put(key, b"without").header.revision
    assert client.revoke(lease).header.revision == start + 1
    assert client.range(key).count == 1


def test_a_lease_without_keys_left_ends_without_a_revision(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, lease=lease)
    start = client.delete(key).header.revision
    assert client.revoke(lease).header.revision == start


def test_a_key_that_comes_back_begins_anew(client: Client, key: bytes) -> None:
    for value in (b"1", b"2"):
        client.put(key, value)
    client.delete(key)
    revision = client.put(key, b"3").header.revision
    assert client.range(key).kvs == [
        KeyValue(key=key, value=b"3", create_revision=revision, mod_revision=revision, version=1)
    ]


@pytest.mark.parametrize("ignore", [{"ignore_value": True}, {"ignore_lease": True}], ids=str)
def test_a_deleted_key_has_nothing_to_keep(
    client: Client, key: bytes, ignore: dict[str, Any]
) -> None:
    client.put(key)
    client.delete(key)
    with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: key not found"):
        client.put(key, **ignore)


@pytest.mark.parametrize("count", [999, 1000, 1001, 2600])
def test_very_many_keys_are_deleted_at_one_revision(client: Client, key: bytes, count: int) -> None:
    """Ours does more than a thousand in slices, which nobody may see."""
    names = [key + b"%06d" % number for number in range(count)]
    client.put_all(names)
    start = client.revision()
    answer = client.delete(key, prefix_end(key), prev_kv=True)
    assert (answer.deleted, answer.header.revision) == (count, start + 1)
    assert [pair.key for pair in answer.prev_kvs] == names
    assert client.range(key, prefix_end(key)) == RangeResponse(header=header(start + 1))
    before = client.range(key, prefix_end(key), revision=start, keys_only=True)
    assert [pair.key for pair in before.kvs] == names
