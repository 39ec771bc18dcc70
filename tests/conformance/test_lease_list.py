"""LeaseLeases: all leases there are, those first that end first."""

import pytest

from leasehold.wire.rpc_pb2 import (
    LeaseKeepAliveRequest,
    LeaseLeasesResponse,
    LeaseStatus,
    WatchCreateRequest,
)
from tests.conformance.client import Client, Granter, before_its_end, header, watch_one

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
MIN_TTL_S = 2
MAX_TTL_S = 9_000_000_000


def ids(client: Client) -> list[int]:
    return [lease.ID for lease in client.leases().leases]


def own(client: Client, leases: set[int]) -> list[int]:
    """List these leases only: other tests may have left some."""
    return [lease for lease in ids(client) if lease in leases]


def test_a_list_without_leases_has_a_header(fresh_client: Client) -> None:
    assert fresh_client.leases() == LeaseLeasesResponse(header=header(1))
    fresh_client.put(b"k")
    assert fresh_client.leases() == LeaseLeasesResponse(header=header(2))


def test_the_list_of_one_lease(fresh_client: Client) -> None:
    lease = fresh_client.grant(600).ID
    expected = LeaseLeasesResponse(header=header(1), leases=[LeaseStatus(ID=lease)])
    assert fresh_client.leases() == expected
    fresh_client.put(b"k", lease=lease)
    fresh_client.revoke(lease)
    assert fresh_client.leases() == LeaseLeasesResponse(header=header(3))


def test_leases_are_listed_by_the_time_that_is_left(client: Client, grant: Granter) -> None:
    by_ttl = {ttl_s: grant(ttl_s) for ttl_s in (500, 100, MAX_TTL_S, 300, 86_400)}
    expected = [by_ttl[ttl_s] for ttl_s in sorted(by_ttl)]
    assert own(client, set(expected)) == expected


def test_a_renewal_moves_a_lease_in_the_list(client: Client, grant: Granter) -> None:
    """Leases with one term come in the order of their grants or renewals."""
    first, second, third = (grant(600) for _ in range(3))
    assert own(client, {first, second, third}) == [first, second, third]
    with client.keep_alive() as renewals:
        for lease in (first, second):
            renewals.send(LeaseKeepAliveRequest(ID=lease))
            assert renewals.receive().TTL == 600
    assert own(client, {first, second, third}) == [third, first, second]


@pytest.mark.parametrize("lease", [MIN_INT64, -1, 1, MAX_INT64])
def test_any_id_is_listed(client: Client, grant: Granter, lease: int) -> None:
    grant(600, lease)
    assert lease in ids(client)


def test_a_lease_that_was_revoked_is_not_listed(client: Client, grant: Granter) -> None:
    kept, gone = grant(), grant()
    client.revoke(gone)
    listed = ids(client)
    assert kept in listed
    assert gone not in listed


def test_a_lease_that_expired_is_not_listed(client: Client, key: bytes, grant: Granter) -> None:
    kept, gone = grant(600), 0

    def begin() -> None:
        nonlocal gone
        gone = grant(MIN_TTL_S)
        client.put(key, lease=gone)
        assert own(client, {kept, gone}) == [gone, kept]

    with client.watch() as watch:
        watch.send(watch_one(key, prev_kv=True, filters=[WatchCreateRequest.NOPUT]))
        assert watch.receive().created
        before_its_end(MIN_TTL_S, begin)
        while watch.receive().events[-1].prev_kv.lease != gone:
            pass  # the end of one that was too short for a slow machine
        assert own(client, {kept, gone}) == [kept]


def test_the_list_has_the_current_revision(client: Client, key: bytes, grant: Granter) -> None:
    grant()
    revision = client.put(key).header.revision
    assert client.leases().header == header(revision)


def test_very_many_leases_are_listed_each_once(client: Client, grant: Granter) -> None:
    leases = [grant(600 + number) for number in range(1200)]
    assert own(client, set(leases)) == leases
