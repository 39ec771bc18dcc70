"""Grant, Revoke, TimeToLive, expiry, and which lease a key belongs to."""

import time

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import Event, KeyValue
from leasehold.wire.rpc_pb2 import (
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseTimeToLiveResponse,
    RangeResponse,
)
from tests.conformance.client import (
    LEASE_NOT_FOUND,
    Client,
    Granter,
    before_its_end,
    fails,
    header,
    prefix_end,
    put_op,
    watch_one,
)

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
MIN_TTL_S = 2
MAX_TTL_S = 9_000_000_000
TOO_LARGE = "etcdserver: too large lease TTL"
EXISTS = "etcdserver: lease already exists"


@pytest.mark.parametrize("lease", [1, 77, MAX_INT64, -1, MIN_INT64])
def test_a_grant_takes_the_id_that_is_given(client: Client, grant: Granter, lease: int) -> None:
    start = client.revision()
    answer = client.grant(60, lease)
    assert answer == LeaseGrantResponse(header=header(start), ID=lease, TTL=60)
    assert client.time_to_live(lease).grantedTTL == 60
    assert client.revoke(lease) == LeaseRevokeResponse(header=header(start))


def test_a_grant_without_an_id_chooses_one(client: Client, grant: Granter) -> None:
    leases = {grant() for _ in range(20)}
    assert len(leases) == 20
    assert all(0 < lease <= MAX_INT64 for lease in leases)


def test_an_id_that_exists_is_refused(client: Client, grant: Granter) -> None:
    lease = grant(60, 4711)
    with fails(StatusCode.FAILED_PRECONDITION, EXISTS):
        client.grant(30, lease)
    assert client.time_to_live(lease).grantedTTL == 60


def test_an_id_may_be_used_again_after_its_end(client: Client, grant: Granter) -> None:
    client.revoke(grant(60, 4712))
    assert grant(30, 4712) == 4712
    assert client.time_to_live(4712).grantedTTL == 30


@pytest.mark.parametrize("asked", [MIN_INT64, -1, 0, 1, MIN_TTL_S])
def test_a_short_ttl_is_raised_to_the_minimum(client: Client, grant: Granter, asked: int) -> None:
    def attempt() -> None:
        answer = client.grant(asked)
        assert answer.TTL == MIN_TTL_S
        assert client.time_to_live(answer.ID).grantedTTL == MIN_TTL_S
        client.revoke(answer.ID)

    before_its_end(MIN_TTL_S, attempt)


def test_the_longest_ttl_is_granted_and_no_longer(client: Client, grant: Granter) -> None:
    assert client.time_to_live(grant(MAX_TTL_S)).grantedTTL == MAX_TTL_S
    for ttl_s in (MAX_TTL_S + 1, MAX_INT64):
        with fails(StatusCode.OUT_OF_RANGE, TOO_LARGE):
            client.grant(ttl_s)


def test_a_ttl_that_is_too_large_is_seen_before_an_id_that_exists(
    client: Client, grant: Granter
) -> None:
    lease = grant()
    with fails(StatusCode.OUT_OF_RANGE, TOO_LARGE):
        client.grant(MAX_TTL_S + 1, lease)
    with fails(StatusCode.FAILED_PRECONDITION, EXISTS):
        client.grant(0, lease)


def test_a_revoke_deletes_all_keys_in_one_revision(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    for name in (b"b", b"a", b"c"):
        client.put(key + name, lease=lease)
    client.put(key + b"other")
    start = client.revision()
    assert client.revoke(lease) == LeaseRevokeResponse(header=header(start + 1))
    left = client.range(key, prefix_end(key))
    assert [pair.key for pair in left.kvs] == [key + b"other"]
    assert left.header.revision == start + 1


def test_a_key_that_comes_back_begins_anew(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    client.put(key, b"1", lease=lease)
    client.put(key, b"2", lease=lease)
    client.revoke(lease)
    revision = client.put(key, b"3").header.revision
    assert client.range(key).kvs == [
        KeyValue(key=key, value=b"3", create_revision=revision, mod_revision=revision, version=1)
    ]


@pytest.mark.parametrize("lease", [0, 404_404, -404_404])
def test_an_unknown_lease_cannot_be_revoked(client: Client, lease: int) -> None:
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.revoke(lease)


def test_a_lease_is_revoked_once(client: Client, grant: Granter) -> None:
    lease = grant()
    client.revoke(lease)
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.revoke(lease)


def test_the_time_to_live_is_whole_seconds_truncated(client: Client, grant: Granter) -> None:
    lease, start = grant(100), client.revision()
    answer = client.time_to_live(lease)
    assert 80 < answer.TTL < 100
    answer.ClearField("TTL")
    assert answer == LeaseTimeToLiveResponse(header=header(start), ID=lease, grantedTTL=100)


def test_the_time_to_live_has_the_keys_if_asked_for(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    for name in (b"b", b"a\x00"):
        client.put(key + name, lease=lease)
    assert sorted(client.time_to_live(lease, keys=True).keys) == [key + b"a\x00", key + b"b"]
    assert client.time_to_live(lease).keys == []


@pytest.mark.parametrize("lease", [0, 404_404, -404_404])
@pytest.mark.parametrize("keys", [False, True])
def test_the_time_to_live_of_a_missing_lease_is_minus_one(
    client: Client, lease: int, keys: bool
) -> None:
    expected = LeaseTimeToLiveResponse(header=header(client.revision()), ID=lease, TTL=-1)
    assert client.time_to_live(lease, keys=keys) == expected


def test_a_put_without_a_lease_detaches_the_key(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    client.put(key, lease=lease)
    client.put(key)
    assert client.time_to_live(lease, keys=True).keys == []
    start = client.revision()
    assert client.revoke(lease).header.revision == start
    assert client.range(key).count == 1


def test_a_put_with_another_lease_moves_the_key(client: Client, key: bytes, grant: Granter) -> None:
    old, new = grant(), grant()
    client.put(key, lease=old)
    client.put(key, lease=new)
    assert client.time_to_live(old, keys=True).keys == []
    assert client.time_to_live(new, keys=True).keys == [key]
    client.revoke(old)
    assert client.range(key).kvs[0].lease == new
    client.revoke(new)
    assert client.range(key).count == 0


def test_a_put_with_the_same_lease_keeps_it(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    client.put(key, lease=lease)
    client.put(key, lease=lease)
    assert client.time_to_live(lease, keys=True).keys == [key]


def test_a_negative_lease_keeps_keys(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant(60, -4713)
    client.put(key, lease=lease)
    assert client.range(key).kvs[0].lease == -4713
    client.revoke(lease)
    assert client.range(key).count == 0


def test_expiry_deletes_all_keys_in_one_revision_and_not_before_its_time(
    client: Client, key: bytes, grant: Granter
) -> None:
    began, lease, start = 0.0, 0, 0

    def begin() -> None:
        nonlocal began, lease, start
        began = time.monotonic()
        lease = grant(MIN_TTL_S)
        puts = [put_op(key + name, b"v", lease=lease) for name in (b"a", b"b")]
        start = client.txn(success=puts).header.revision

    with client.watch() as watch:
        for name in (b"a", b"b"):
            watch.send(watch_one(key + name, prev_kv=True))
            assert watch.receive().created
        before_its_end(MIN_TTL_S, begin)
        assert [watch.receive().events[0].type for _ in "ab"] == [Event.PUT, Event.PUT]
        answers = sorted((watch.receive() for _ in "ab"), key=lambda answer: answer.watch_id)
        assert time.monotonic() - began >= MIN_TTL_S
    for answer, name in zip(answers, (b"a", b"b"), strict=True):
        assert answer.header == header(start + 1)
        assert [event.type for event in answer.events] == [Event.DELETE]
        assert answer.events[0].kv == KeyValue(key=key + name, mod_revision=start + 1)
        assert answer.events[0].prev_kv.lease == lease
    assert client.range(key, prefix_end(key)) == RangeResponse(header=header(start + 1))
    assert client.time_to_live(lease).TTL == -1
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.put(key, lease=lease)
