"""Where locks and elections are known to differ from etcd's, as docs/server.md says, on both sides.

Whoever makes one of them equal learns it here, and takes it out of the table.
"""

import grpc
import pytest

from leasehold.wire import election_pb2 as epb
from tests.conformance.client import Client, Granter, fails
from tests.conformance.locks import EXPIRED, NOT_LEADER, Locks, code_of, until

UNKNOWN = grpc.StatusCode.UNKNOWN


@pytest.fixture
def is_real(request: pytest.FixtureRequest) -> bool:
    """Whether this is real etcd."""
    kind: str = request.node.callspec.params["shared"]
    return kind == "real"


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


def test_a_waiter_whose_lease_has_ended_is_told_at_once(
    locks: Locks, client: Client, grant: Granter, key: bytes, is_real: bool
) -> None:
    owner, lease = locks.lock(key, grant()), grant()
    waiting = locks.begin_lock(key, lease)
    locks.waiting(key, 2)
    client.revoke(lease)
    if is_real:
        client.put(key, b"something else happens meanwhile")
        assert not waiting.is_done
        locks.unlock(owner.key)
    assert code_of(waiting) == (UNKNOWN, EXPIRED)


def test_a_candidate_whose_lease_has_ended_does_not_lead(
    locks: Locks, client: Client, grant: Granter, key: bytes, is_real: bool
) -> None:
    first, lease = locks.campaign(key, grant()).leader, grant()
    waiting = locks.begin_campaign(key, lease)
    locks.waiting(key, 2)
    client.revoke(lease)
    if is_real:
        locks.resign(first)
        leader = waiting.answer().leader
        with fails(UNKNOWN, NOT_LEADER):
            locks.proclaim(leader, b"but I was told so")
    else:
        assert code_of(waiting) == (UNKNOWN, NOT_LEADER)


def test_a_lease_that_was_granted_for_a_call_goes_with_it(
    locks: Locks, client: Client, grant: Granter, key: bytes, is_real: bool
) -> None:
    locks.lock(key, grant())
    waiting = locks.begin_lock(key)
    lease = locks.waiting(key, 2)[1].lease
    waiting.cancel()
    locks.waiting(key, 1)
    if is_real:
        assert client.time_to_live(lease).TTL > 0
        client.revoke(lease)
    else:
        assert client.time_to_live(lease).TTL == -1


def test_a_resign_and_a_proclaim_that_fails_grant_no_lease(
    locks: Locks, client: Client, key: bytes, is_real: bool
) -> None:
    before = {lease.ID for lease in client.leases().leases}
    nobody = epb.LeaderKey(key=key, rev=1)
    locks.resign(nobody)
    with fails(UNKNOWN, NOT_LEADER):
        locks.proclaim(nobody, b"")
    granted = {lease.ID for lease in client.leases().leases} - before
    for lease in granted:
        client.revoke(lease)
    assert len(granted) == (2 if is_real else 0)


def test_a_call_keeps_its_place_if_another_one_for_the_same_lease_is_given_up(
    locks: Locks, client: Client, grant: Granter, key: bytes, is_real: bool
) -> None:
    first, lease = locks.campaign(key, grant()).leader, grant()
    given_up = locks.begin_campaign(key, lease, b"given up")
    own = locks.waiting(key, 2)[1].key
    stays = locks.begin_campaign(key, lease, b"stays")
    until(lambda: client.range(own).kvs[0].value == b"stays", "second call")
    given_up.cancel()
    if is_real:
        until(lambda: client.range(own).count == 0, "key that is gone")
    locks.resign(first)
    assert stays.answer().leader.key == own
    assert client.range(own).count == (0 if is_real else 1)
