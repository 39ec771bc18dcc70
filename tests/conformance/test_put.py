"""Put: what it answers, what it stores, what it refuses and in which order."""

from typing import Any

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import PutResponse, RangeResponse
from tests.conformance.client import LEASE_NOT_FOUND, Client, Granter, fails, header

UNKNOWN_LEASE = 404_404
KEY_MISSING = "etcdserver: key is not provided"
KEY_NOT_FOUND = "etcdserver: key not found"
VALUE_GIVEN = "etcdserver: value is provided"
LEASE_GIVEN = "etcdserver: lease is provided"


def test_each_put_is_one_revision_and_one_version(client: Client, key: bytes) -> None:
    start = client.revision()
    assert client.put(key, b"1") == PutResponse(header=header(start + 1))
    assert client.put(key, b"1") == PutResponse(header=header(start + 2))
    pair = KeyValue(
        key=key, value=b"1", create_revision=start + 1, mod_revision=start + 2, version=2
    )
    assert client.range(key) == RangeResponse(header=header(start + 2), kvs=[pair], count=1)


def test_the_previous_pair_comes_back_whole_if_asked_for(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease, start = grant(), client.revision()
    assert client.put(key, b"1", lease=lease, prev_kv=True) == PutResponse(header=header(start + 1))
    pair = KeyValue(
        key=key,
        value=b"1",
        create_revision=start + 1,
        mod_revision=start + 1,
        version=1,
        lease=lease,
    )
    answer = client.put(key, b"2", prev_kv=True)
    assert answer == PutResponse(header=header(start + 2), prev_kv=pair)


def test_a_value_may_be_empty(client: Client, key: bytes) -> None:
    client.put(key, b"1")
    client.put(key, b"")
    assert client.range(key).kvs[0].value == b""


def test_ignore_value_keeps_the_value_and_detaches_the_lease(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, b"kept", lease=lease)
    client.put(key, ignore_value=True)
    pair = client.range(key).kvs[0]
    assert (pair.value, pair.lease, pair.version) == (b"kept", 0, 2)
    assert client.time_to_live(lease, keys=True).keys == []


def test_ignore_value_takes_a_lease_that_is_given(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, b"kept")
    client.put(key, lease=lease, ignore_value=True)
    pair = client.range(key).kvs[0]
    assert (pair.value, pair.lease) == (b"kept", lease)
    assert client.time_to_live(lease, keys=True).keys == [key]


def test_ignore_lease_keeps_the_lease(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    client.put(key, b"1", lease=lease)
    client.put(key, b"2", ignore_lease=True)
    pair = client.range(key).kvs[0]
    assert (pair.value, pair.lease) == (b"2", lease)
    assert client.time_to_live(lease, keys=True).keys == [key]


def test_ignoring_both_changes_revisions_only(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    first = client.put(key, b"1", lease=lease).header.revision
    client.put(key, ignore_value=True, ignore_lease=True)
    assert client.range(key).kvs[0] == KeyValue(
        key=key,
        value=b"1",
        create_revision=first,
        mod_revision=first + 1,
        version=2,
        lease=lease,
    )


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        ({"key": b""}, StatusCode.INVALID_ARGUMENT, KEY_MISSING),
        ({"value": b"v", "ignore_value": True}, StatusCode.INVALID_ARGUMENT, VALUE_GIVEN),
        ({"lease": 1, "ignore_lease": True}, StatusCode.INVALID_ARGUMENT, LEASE_GIVEN),
        ({"value": b"v", "lease": UNKNOWN_LEASE}, StatusCode.NOT_FOUND, LEASE_NOT_FOUND),
        ({"lease": -UNKNOWN_LEASE}, StatusCode.NOT_FOUND, LEASE_NOT_FOUND),
        ({"ignore_value": True}, StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND),
        ({"value": b"v", "ignore_lease": True}, StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND),
    ],
    ids=str,
)
def test_a_put_that_is_refused_changes_nothing(
    client: Client, key: bytes, asked: dict[str, Any], code: StatusCode, text: str
) -> None:
    start = client.revision()
    with fails(code, text):
        client.put(**({"key": key} | asked))
    assert client.range(key) == RangeResponse(header=header(start))


def test_checks_are_made_in_order(client: Client, key: bytes) -> None:
    """Each request has all the faults that are left; they are taken away one by one."""
    faults: dict[str, Any] = {"value": b"v", "lease": UNKNOWN_LEASE}
    ignore: dict[str, Any] = {"ignore_value": True, "ignore_lease": True}
    with fails(StatusCode.INVALID_ARGUMENT, KEY_MISSING):
        client.put(b"", **faults, **ignore)
    with fails(StatusCode.INVALID_ARGUMENT, VALUE_GIVEN):
        client.put(key, **faults, **ignore)
    with fails(StatusCode.INVALID_ARGUMENT, LEASE_GIVEN):
        client.put(key, lease=UNKNOWN_LEASE, **ignore)
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.put(key, lease=UNKNOWN_LEASE, ignore_value=True)
    with fails(StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND):
        client.put(key, ignore_value=True)


@pytest.mark.parametrize("tail", [b"\x00", b"a\x00b", b"\x00\x00", b"\xff\xfe", b"x" * 5000])
def test_a_key_is_any_bytes(client: Client, key: bytes, tail: bytes) -> None:
    client.put(key + tail, tail)
    assert [(pair.key, pair.value) for pair in client.range(key + tail).kvs] == [(key + tail, tail)]
    assert client.range(key).count == 0
