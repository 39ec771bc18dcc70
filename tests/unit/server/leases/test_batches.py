"""`leasehold.v1.Leases`: Grant, RenewAll and RevokeAll, each rule by itself."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any

import pytest

from leasehold.errors import Status
from leasehold.leases.policies import MAX_TERM_MS, Policies, TermPolicy, find_policy
from leasehold.server.leases.request_checks import MAX_HOLDER_BYTES
from leasehold.server.leases.service import MAX_BATCH
from leasehold.wire import leases_pb2 as pb
from leasehold.wire import rpc_pb2 as rpc
from tests.support.v1 import Office, answer_of, in_office, in_office_with, refusal, turns

POLICIES: Policies = {
    "short": TermPolicy(minimum_ms=100, maximum_ms=5_000, default_ms=1_000),
    "long": TermPolicy(minimum_ms=60_000, maximum_ms=3_600_000, default_ms=300_000),
}


# Grant


@in_office
async def test_a_lease_may_be_as_short_as_a_millisecond_and_ends_with_it(office: Office) -> None:
    granted = await office.grant(ttl_ms=1)
    assert granted.ttl_ms == 1
    assert granted.id
    await office.settled()
    await asyncio.sleep(0.01)
    assert not len(office.store.leases)


@in_office
async def test_an_id_may_be_chosen_and_not_twice(office: Office) -> None:
    assert (await office.grant(id=7)).id == 7
    assert (await office.grant(id=-7)).id == -7
    error = await refusal(office.grant(id=7))
    assert error.status is Status.FAILED_PRECONDITION
    assert error.message.startswith("lease 0000000000000007 already exists; use another id")


@pytest.mark.parametrize(
    ("policy", "wanted", "granted"),
    [
        ("", 1, 1),
        ("", -1, 60_000),
        ("", -2, MAX_TERM_MS),
        ("default", 2**63 - 1, MAX_TERM_MS),
        ("short", 1, 100),
        ("short", 101, 101),
        ("short", 5_001, 5_000),
        ("short", -1, 1_000),
        ("short", -2, 5_000),
        ("long", 1, 60_000),
    ],
)
def test_a_term_beyond_a_policy_is_brought_within_and_the_answer_carries_the_real_one(
    policy: str, wanted: int, granted: int
) -> None:
    @in_office_with(policies=POLICIES)
    async def run(office: Office) -> None:
        answer = await office.grant(ttl_ms=wanted, policy=policy)
        assert answer.ttl_ms == granted
        assert office.store.leases.current(answer.id).ttl_s == granted / 1000.0

    run()


@pytest.mark.parametrize("ttl_ms", [0, -3, -(2**63)])
def test_a_lease_of_no_length_is_refused(ttl_ms: int) -> None:
    @in_office
    async def run(office: Office) -> None:
        error = await refusal(office.grant(ttl_ms=ttl_ms))
        assert error.status is Status.INVALID_ARGUMENT
        assert "ttl_ms must be at least" in error.message

    run()


@in_office_with(policies=POLICIES)
async def test_an_unknown_policy_is_refused_with_the_names_of_those_there_are(
    office: Office,
) -> None:
    error = await refusal(office.grant(policy="lang"))
    assert error.status is Status.INVALID_ARGUMENT
    assert error.message == "unknown policy 'lang'; this server has default, long, short"


def test_an_error_does_not_list_thousands_of_policies() -> None:
    many = {f"p{n:04}": TermPolicy() for n in range(3000)}
    with pytest.raises(ValueError, match=r"this server has default, p0000, .*p0018 and 2981 more$"):
        find_policy(many, "other")


def test_an_operator_may_have_another_default() -> None:
    mine = TermPolicy(maximum_ms=100, default_ms=100)
    assert find_policy({"default": mine}, "") is mine
    assert find_policy({"default": mine}, "default") is mine
    assert find_policy({"other": mine}, "").default_ms == 60_000


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        ({"minimum_ms": 0}, ValueError),
        ({"maximum_ms": MAX_TERM_MS + 1}, ValueError),
        ({"minimum_ms": 70_000}, ValueError),
        ({"maximum_ms": 50_000}, ValueError),
        ({"default_ms": 1.0}, TypeError),
        ({"default_ms": True}, TypeError),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(
    terms: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error, match="_ms"):
        TermPolicy(**terms)


@in_office
async def test_the_name_of_a_holder_is_limited(office: Office) -> None:
    longest = "ä" * (MAX_HOLDER_BYTES // 2)
    lease = (await office.grant(holder=longest)).id
    assert office.store.leases.current(lease).holder == longest
    error = await refusal(office.grant(holder=longest + "a"))
    assert error.status is Status.INVALID_ARGUMENT
    assert error.message == "holder must have at most 256 bytes, got 257"


@in_office
async def test_a_server_leases_no_resources(office: Office) -> None:
    error = await refusal(office.grant(resource="printer"))
    assert error.status is Status.INVALID_ARGUMENT


@in_office_with(by_hand=True)
async def test_a_grant_is_answered_when_it_is_on_disk(office: Office) -> None:
    _, position = await office.call("Grant", pb.GrantRequest(ttl_ms=1, id=7))
    assert position == office.store.durable + 1
    error = await refusal(office.grant(id=7))
    assert error.position == position


# What etcd's API shows of such leases


@in_office
async def test_etcd_shows_whole_seconds_and_one_at_least(office: Office) -> None:
    for ttl_ms, shown in ((1, 1), (999, 1), (1_000, 1), (1_999, 1), (2_000, 2), (9_500, 9)):
        lease = (await office.grant(ttl_ms=ttl_ms)).id
        request = rpc.LeaseKeepAliveRequest(ID=lease).SerializeToString()
        answer, _ = await answer_of(office.lease.keep_alive(request))
        renewed = rpc.LeaseKeepAliveResponse.FromString(answer)
        assert shown == renewed.TTL
        ask = rpc.LeaseTimeToLiveRequest(ID=lease).SerializeToString()
        answer, _ = await answer_of(office.lease.time_to_live(ask))
        live = rpc.LeaseTimeToLiveResponse.FromString(answer)
        assert (live.TTL, live.grantedTTL) == (ttl_ms // 1000, shown)


# RenewAll


@in_office
async def test_all_leases_get_their_full_terms_again(office: Office) -> None:
    office.grant_many(range(1, 11), 10.0)
    await office.settled()
    await asyncio.sleep(6.0)
    answer = await office.renew_all(*range(1, 11))
    assert (answer.ttl_ms, list(answer.others), list(answer.unknown)) == (10_000, [], [])
    await asyncio.sleep(9.0)
    assert len(office.store.leases) == 10
    await asyncio.sleep(2.0)
    assert not len(office.store.leases)


@in_office
async def test_the_answer_is_one_term_and_the_exceptions_by_their_places(office: Office) -> None:
    office.grant_many(range(1, 6), 10.0)
    office.grant_many(range(6, 8), 20.0)
    office.grant_many(range(8, 9), 0.5)
    await office.settled()
    await office.revoke_all(2)
    await asyncio.sleep(1.0)  # and 8 has expired
    answer = await office.renew_all(1, 2, 6, 8, 3, 99, 7)
    assert answer.ttl_ms == 10_000
    assert dict(zip(answer.others, answer.others_ttl_ms, strict=True)) == {2: 20_000, 6: 20_000}
    unknown = dict(zip(answer.unknown, answer.unknown_reasons, strict=True))
    assert unknown == {1: pb.REVOKED, 3: pb.EXPIRED, 5: pb.UNKNOWN}


@in_office
async def test_the_most_frequent_term_is_the_common_one(office: Office) -> None:
    office.grant_many(range(1, 3), 10.0)
    office.grant_many(range(3, 100), 20.0)
    answer = await office.renew_all(*range(1, 101))
    assert answer.ttl_ms == 20_000
    assert dict(zip(answer.others, answer.others_ttl_ms, strict=True)) == {0: 10_000, 1: 10_000}
    assert list(answer.unknown) == [99]


@in_office
async def test_fifty_thousand_renewals_are_a_short_answer(office: Office) -> None:
    leases = range(1, MAX_BATCH + 1)
    office.grant_many(leases)
    await office.settled()
    answer, position = await office.call("RenewAll", pb.RenewAllRequest(ids=leases))
    assert len(answer) < 64
    assert position == 0, "renewals wait for no disk"
    assert office.store.leases.tally.renewed == MAX_BATCH


@in_office
async def test_one_message_has_fifty_thousand_leases_at_most(office: Office) -> None:
    too_many = range(1, MAX_BATCH + 2)
    for call in (office.renew_all(*too_many), office.revoke_all(*too_many)):
        error = await refusal(call)
        assert error.status is Status.INVALID_ARGUMENT
        assert error.message == "ids must have at most 50,000 leases, got 50,001"


@in_office
async def test_an_empty_batch_is_answered(office: Office) -> None:
    assert not (await office.renew_all()).others
    assert not (await office.revoke_all()).unknown


@in_office
async def test_others_have_their_turn_during_a_long_batch(office: Office) -> None:
    office.grant_many(range(1, 20_001))
    await office.settled()
    office.store.leases.monotonic = count().__next__  # a long time goes by with each look
    calls: list[Coroutine[Any, Any, pb.RenewAllResponse | pb.RevokeAllResponse]] = [
        office.renew_all(*range(1, 20_001)),
        office.revoke_all(*range(1, 1_001)),
    ]
    for call in calls:
        calling = asyncio.get_running_loop().create_task(call)
        turns_of_others = 0
        while not calling.done():
            await asyncio.sleep(0)
            turns_of_others += 1
        assert turns_of_others >= 20
        assert not (await calling).unknown


@in_office
async def test_a_batch_asks_for_no_terms_that_it_would_not_get(office: Office) -> None:
    office.grant_many(range(1, 3))
    for ttl_ms in (-1, -2, 5_000):
        assert (await office.renew_all(1, 2, ttl_ms=ttl_ms)).ttl_ms == 60_000
    for wrong in ({"ttl_ms": 0}, {"ttls_ms": [0, 1]}, {"ttls_ms": [1]}, {"cookies": [b"a"]}):
        error = await refusal(office.renew_all(1, 2, **wrong))
        assert error.status is Status.INVALID_ARGUMENT


@in_office_with(by_hand=True)
async def test_an_answer_about_a_lease_that_is_not_on_disk_waits_for_it(office: Office) -> None:
    office.grant_many(range(1, 3))
    office.commit()
    for batch in ([1], [1, 2]):
        _, position = await office.call("RenewAll", pb.RenewAllRequest(ids=batch))
        assert position == 0
    office.grant_many(range(3, 4))
    open_position = office.store.durable + 1
    for batch in ([3], [1, 3], [3, 99]):
        _, position = await office.call("RenewAll", pb.RenewAllRequest(ids=batch))
        assert position == open_position
    office.commit()
    _, position = await office.call("RenewAll", pb.RenewAllRequest(ids=[1, 2, 3]))
    assert position == 0


@in_office_with(by_hand=True)
async def test_those_that_have_ended_keep_no_batch_from_its_answer(office: Office) -> None:
    """However slow the disk is: who renews in time must learn of it in time."""
    office.grant_many(range(1, 4))
    office.commit()
    await office.revoke_all(2)
    for batch in ([2], [1, 2, 3], [2, 99]):
        body, position = await office.call("RenewAll", pb.RenewAllRequest(ids=batch))
        assert position == 0
        assert batch.index(2) in pb.RenewAllResponse.FromString(body).unknown
    office.grant_many(range(4, 5))
    _, position = await office.call("RenewAll", pb.RenewAllRequest(ids=[1, 2, 4]))
    assert position == office.store.durable + 1, "one of the live ones is not on disk"


@in_office
async def test_terms_are_from_a_millisecond_on(office: Office) -> None:
    office.grant_many(range(1, 3))
    for wrong in ({"ttl_ms": -3}, {"ttls_ms": [1, -9]}):
        error = await refusal(office.renew_all(1, 2, **wrong))
        assert error.status is Status.INVALID_ARGUMENT
        assert "at least 1 ms, or -1 (any) or -2 (no end), got -" in error.message


# RevokeAll


@in_office
async def test_leases_go_with_their_keys(office: Office) -> None:
    office.grant_many(range(1, 4))
    for lease in (1, 2, 3):
        office.put(b"k%d" % lease, lease)
    before = office.store.revision
    answer = await office.revoke_all(1, 99, 3, 1)
    assert list(answer.unknown) == [1, 3]
    assert list(answer.unknown_reasons) == [pb.UNKNOWN, pb.REVOKED]
    assert answer.header.revision == office.store.revision == before + 2
    assert [item[5] for item in office.store.keyspace.range(b"k", b"l")] == [b"k2"]


@in_office
async def test_a_lease_of_very_many_keys_is_gone_when_it_is_answered(office: Office) -> None:
    office.grant_many(range(1, 4))
    for number in range(3_000):
        office.put(b"k%d" % number, 2)
    revoking = asyncio.get_running_loop().create_task(office.revoke_all(1, 2, 3, 2))
    await turns(1)
    renewed = await office.renew_all(2, 4)
    answer = await revoking
    assert list(answer.unknown) == [3]
    assert list(renewed.unknown) in ([1], [0, 1])
    assert not office.store.keyspace.range(b"k", b"l")
    assert not len(office.store.leases)


@in_office_with(by_hand=True)
async def test_a_revocation_is_answered_when_it_is_on_disk(office: Office) -> None:
    office.grant_many(range(1, 4))
    office.commit()
    _, position = await office.call("RevokeAll", pb.RevokeAllRequest(ids=[1, 2]))
    assert position == office.store.durable + 1
    _, position = await office.call("RevokeAll", pb.RevokeAllRequest(ids=[1]))
    assert position == office.store.durable + 1, "that it is gone is not on disk yet"
