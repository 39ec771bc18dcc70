"""etcd's Election service: who leads, what it says, and who looks on."""

import grpc
import pytest

from leasehold.wire import election_pb2 as epb
from tests.conformance.client import (
    CALL_S,
    LEASE_NOT_FOUND,
    Client,
    Granter,
    fails,
    header,
    put_op,
)
from tests.conformance.locks import NO_LEADER, NOT_LEADER, OWN_CONNECTION, Locks, Observing, until

UNKNOWN = grpc.StatusCode.UNKNOWN
NO_KEY = "etcdserver: key is not provided"
NO_FIELD = '"leader" field must be provided'
SESSION_S = 60


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


def test_the_only_candidate_leads(locks: Locks, client: Client, grant: Granter, key: bytes) -> None:
    lease, start = grant(), client.revision()
    answer = locks.campaign(key, lease, b"me")
    own = b"%b/%x" % (key, lease)
    assert answer.header == header(start + 1)
    assert answer.leader == epb.LeaderKey(name=key, key=own, rev=start + 1, lease=lease)
    [pair] = client.range(own).kvs
    assert (pair.value, pair.lease) == (b"me", lease)


def test_the_key_of_a_negative_lease_has_its_sign(locks: Locks, grant: Granter, key: bytes) -> None:
    assert locks.campaign(key, grant(lease=-0x1F)).leader.key == key + b"/-1f"


def test_the_empty_name_is_a_name(locks: Locks, grant: Granter) -> None:
    lease = grant()
    leader = locks.campaign(b"", lease).leader
    assert (leader.name, leader.key) == (b"", b"/%x" % lease)
    locks.resign(leader)


def test_a_candidate_without_a_lease_gets_one_of_sixty_seconds(
    locks: Locks, client: Client, key: bytes
) -> None:
    leader = locks.campaign(key).leader
    left = client.time_to_live(leader.lease)
    client.revoke(leader.lease)
    assert left.grantedTTL == SESSION_S
    assert leader.key == b"%b/%x" % (key, leader.lease)


def test_campaign_with_a_lease_that_is_not_there_is_refused(
    locks: Locks, client: Client, key: bytes
) -> None:
    start = client.revision()
    with fails(UNKNOWN, LEASE_NOT_FOUND):
        locks.campaign(key, 0x1F)
    assert client.revision() == start


def test_campaign_again_with_the_same_value_changes_nothing(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    lease = grant()
    first = locks.campaign(key, lease, b"me")
    assert locks.campaign(key, lease, b"me") == first
    assert client.revision() == first.header.revision


def test_campaign_again_with_the_same_lease_proclaims(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    lease = grant()
    first = locks.campaign(key, lease, b"me")
    again = locks.campaign(key, lease, b"me too")
    assert again.leader == first.leader
    assert again.header == first.header, "the revision from before"
    [pair] = client.range(first.leader.key).kvs
    assert (pair.value, pair.mod_revision) == (b"me too", first.header.revision + 1)


def test_campaign_for_a_key_that_is_not_the_leases_deletes_it(
    locks: Locks, client: Client, key: bytes
) -> None:
    own = key + b"/1f"
    client.put(own, b"by hand")
    assert locks.campaign(key, 0x1F, b"by hand").leader.key == own
    with fails(UNKNOWN, LEASE_NOT_FOUND):
        locks.campaign(key, 0x1F, b"another")
    assert client.range(own).count == 0


def test_a_candidate_leads_when_all_before_it_are_gone(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"1")
    waiting = locks.begin_campaign(key, grant(), b"2")
    pair = locks.waiting(key, 2)[1]
    claimed_at = client.revision()
    assert not waiting.is_done
    locks.resign(first.leader)
    answer = waiting.answer()
    assert (answer.leader.key, answer.leader.rev) == (pair.key, pair.create_revision)
    assert answer.header == header(claimed_at), "the revision from before it had to wait"
    assert locks.leader(key).kv.value == b"2"


def test_a_candidate_that_waits_may_proclaim_by_a_second_campaign(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"1")
    lease = grant()
    calls = [locks.begin_campaign(key, lease, b"2")]
    locks.waiting(key, 2)
    calls.append(locks.begin_campaign(key, lease, b"3"))
    until(lambda: locks.waiting(key, 2)[1].value == b"3", "second value")
    locks.resign(first.leader)
    assert calls[0].answer().leader == calls[1].answer().leader


@pytest.mark.parametrize("how", ["cancel", "deadline", "connection"])
def test_a_candidate_that_goes_away_takes_its_key_along(
    locks: Locks, client: Client, grant: Granter, key: bytes, how: str
) -> None:
    first = locks.campaign(key, grant(), b"1")
    other = Client(client.endpoint, OWN_CONNECTION)
    timeout_s = 1.0 if how == "deadline" else CALL_S / 2
    while True:
        waiting = Locks(other).begin_campaign(key, grant(), b"2", timeout_s)
        if locks.is_waiting(waiting, key, 2):
            third = locks.begin_campaign(key, grant(), b"3")
            if locks.is_waiting(waiting, key, 3):
                break
            third.cancel()
        locks.waiting(key, 1)  # it was over before a slow machine has seen all keys
        timeout_s *= 2
        assert timeout_s < CALL_S, "it never stands in line"
    if how == "cancel":
        waiting.cancel()
    if how == "connection":
        other.close()
    assert [pair.value for pair in locks.waiting(key, 2)] == [b"1", b"3"]
    assert not third.is_done
    locks.resign(first.leader)
    third.answer()
    other.close()


def test_a_lock_and_an_election_of_the_same_name_are_one_line(
    locks: Locks, grant: Granter, key: bytes
) -> None:
    lock = locks.lock(key, grant())
    waiting = locks.begin_campaign(key, grant())
    locks.waiting(key, 2)
    assert not waiting.is_done
    locks.unlock(lock.key)
    waiting.answer()


# Leader.


def test_without_candidates_there_is_no_leader(locks: Locks, key: bytes) -> None:
    with fails(UNKNOWN, NO_LEADER):
        locks.leader(key)


def test_the_leader_is_the_oldest_key_under_the_name(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    client.put(key + b"/z", b"by hand")
    client.put(key, b"beside it")
    waiting = locks.begin_campaign(key, grant(), b"2")
    locks.waiting(key, 2)
    revision = client.put(key + b"/z", b"changed").header.revision
    answer = locks.leader(key)
    waiting.cancel()
    assert answer.header == header(revision)
    assert answer.kv == client.range(key + b"/z").kvs[0]
    locks.waiting(key, 1)


# Proclaim.


def test_a_leader_proclaims(locks: Locks, client: Client, grant: Granter, key: bytes) -> None:
    campaign = locks.campaign(key, grant(), b"1")
    answer = locks.proclaim(campaign.leader, b"2")
    assert answer.header == header(campaign.header.revision + 1)
    kv = locks.leader(key).kv
    assert (kv.value, kv.version, kv.lease) == (b"2", 2, campaign.leader.lease)


def test_one_who_does_not_lead_any_more_cannot_proclaim(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leader = locks.campaign(key, grant(), b"1").leader
    client.revoke(leader.lease)
    with fails(UNKNOWN, NOT_LEADER):
        locks.proclaim(leader, b"2")


def test_the_revision_tells_one_leader_from_the_next(
    locks: Locks, grant: Granter, key: bytes
) -> None:
    lease = grant()
    leader = locks.campaign(key, lease, b"1").leader
    locks.resign(leader)
    again = locks.campaign(key, lease, b"2").leader
    assert (again.key, again.rev) == (leader.key, leader.rev + 2)
    with fails(UNKNOWN, NOT_LEADER):
        locks.proclaim(leader, b"3")
    assert locks.leader(key).kv.value == b"2"


def test_a_candidate_that_waits_may_proclaim_as_well(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    locks.campaign(key, grant(), b"1")
    waiting = locks.begin_campaign(key, grant(), b"2")
    pair = locks.waiting(key, 2)[1]
    leader = epb.LeaderKey(key=pair.key, rev=pair.create_revision, lease=pair.lease)
    locks.proclaim(leader, b"3")
    assert locks.waiting(key, 2)[1].value == b"3"
    waiting.cancel()
    locks.waiting(key, 1)


def test_proclaim_needs_the_lease(locks: Locks, client: Client, grant: Granter, key: bytes) -> None:
    leader = locks.campaign(key, grant(), b"1").leader
    leader.lease = 0x1F
    with fails(UNKNOWN, LEASE_NOT_FOUND):
        locks.proclaim(leader, b"2")


def test_proclaim_without_a_lease_moves_the_key_to_one_of_sixty_seconds(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leader = locks.campaign(key, grant(), b"1").leader
    leader.ClearField("lease")
    locks.proclaim(leader, b"2")
    lease = locks.leader(key).kv.lease
    left = client.time_to_live(lease, keys=True)
    client.revoke(lease)
    assert (left.grantedTTL, list(left.keys)) == (SESSION_S, [leader.key])


def test_revision_zero_is_a_key_that_is_not_there(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leader = epb.LeaderKey(key=key + b"/any", lease=grant())
    locks.proclaim(leader, b"1")
    assert client.range(key + b"/any").kvs[0].value == b"1"
    with fails(UNKNOWN, NOT_LEADER):
        locks.proclaim(leader, b"2")


def test_proclaim_must_name_a_leader(locks: Locks, grant: Granter) -> None:
    with fails(UNKNOWN, NO_FIELD):
        locks.proclaim(None, b"1")
    with fails(UNKNOWN, NO_KEY):
        locks.proclaim(epb.LeaderKey(lease=grant()), b"1")


# Resign.


def test_who_resigns_is_out(locks: Locks, client: Client, grant: Granter, key: bytes) -> None:
    campaign = locks.campaign(key, grant(), b"1")
    answer = locks.resign(campaign.leader)
    assert answer.header == header(campaign.header.revision + 1)
    with fails(UNKNOWN, NO_LEADER):
        locks.leader(key)


def test_resign_with_a_wrong_revision_does_nothing(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leader = locks.campaign(key, grant(), b"1").leader
    wrong = epb.LeaderKey(key=leader.key, lease=leader.lease, rev=leader.rev + 1)
    assert locks.resign(wrong).header == header(client.revision())
    assert locks.leader(key).kv.key == leader.key


def test_resign_of_a_key_that_is_gone_is_no_error(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leader = locks.campaign(key, grant(), b"1").leader
    locks.resign(leader)
    assert locks.resign(leader).header == header(client.revision())
    client.revoke(leader.lease)
    assert locks.resign(leader).header == header(client.revision())


def test_resign_must_name_a_leader(locks: Locks, grant: Granter) -> None:
    with fails(UNKNOWN, NO_FIELD):
        locks.resign(None)
    with fails(UNKNOWN, NO_KEY):
        locks.resign(epb.LeaderKey(lease=grant()))


# Observe.


def told(observing: Observing, count: int) -> list[tuple[int, bytes, bytes]]:
    return [observing.next() for _ in range(count)]


def test_an_observer_follows_from_leader_to_leader(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"1")
    waiting = locks.begin_campaign(key, grant(), b"2")
    second = locks.waiting(key, 2)[1].key
    start = client.revision()
    with locks.observe(key) as observing:
        assert observing.next() == (start, first.leader.key, b"1")
        locks.proclaim(first.leader, b"1a")
        assert observing.next() == (start + 1, first.leader.key, b"1a")
        locks.resign(first.leader)
        waiting.answer()
        assert observing.next() == (start + 2, second, b"2")
        client.delete(second)
        third = locks.campaign(key, grant(), b"3")
        assert observing.next() == (start + 4, third.leader.key, b"3")


def test_an_observer_sees_the_first_leader_there_will_be(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    with locks.observe(key) as observing:
        campaign = locks.campaign(key, grant(), b"1")
        found = observing.next()
        assert found == (campaign.header.revision, campaign.leader.key, b"1")


def test_an_observer_is_not_told_of_candidates_that_wait(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"1")
    with locks.observe(key) as observing:
        assert observing.next()[2] == b"1"
        client.put(key + b"/other", b"2")
        client.put(key + b"/other", b"3")
        client.delete(key + b"/other")
        revision = locks.proclaim(first.leader, b"4").header.revision
        assert observing.next() == (revision, first.leader.key, b"4")


def test_an_observer_is_told_each_value_of_a_leader_in_order(
    locks: Locks, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"0")
    with locks.observe(key) as observing:
        observing.next()
        for number in range(50):
            locks.proclaim(first.leader, b"%d" % number)
        seen = told(observing, 50)
    assert [value for _, _, value in seen] == [b"%d" % number for number in range(50)]
    # etcd sends what a watch catches up with in one message, and the header of that message
    # has the newest revision: answers that share a header are in order all the same.
    revisions = [revision for revision, _, _ in seen]
    assert revisions == sorted(revisions)


def test_a_value_that_is_proclaimed_again_is_told_again(
    locks: Locks, grant: Granter, key: bytes
) -> None:
    first = locks.campaign(key, grant(), b"same")
    with locks.observe(key) as observing:
        start, _, _ = observing.next()
        locks.proclaim(first.leader, b"same")
        assert observing.next() == (start + 1, first.leader.key, b"same")


def test_candidates_of_one_transaction_are_led_by_one_of_them(
    locks: Locks, client: Client, key: bytes
) -> None:
    client.txn(success=[put_op(key + b"/a", b"a"), put_op(key + b"/b", b"b")])
    assert locks.leader(key).kv.value in (b"a", b"b")


def test_what_a_candidate_waits_for_does_not_come_after_it_went(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    """A candidate that gave up, and comes again, is behind those who have stayed."""
    first = locks.campaign(key, grant(), b"1")
    lease = grant()
    given_up = locks.begin_campaign(key, lease, b"2")
    locks.waiting(key, 2)
    given_up.cancel()
    locks.waiting(key, 1)
    third = locks.begin_campaign(key, grant(), b"3")
    locks.waiting(key, 2)
    again = locks.begin_campaign(key, lease, b"4")
    locks.waiting(key, 3)
    locks.resign(first.leader)
    leader = third.answer().leader
    assert not again.is_done
    locks.resign(leader)
    assert again.answer().leader.lease == lease
