"""Locks and elections of the etcd API: what waits, what is told when, and what is left behind."""

import asyncio
from typing import Any

import pytest

from leasehold.keyspace.operations import Delete, Revoke
from leasehold.wire import election_pb2 as epb
from tests.support.lock_shop import Caller, Shop, error_of, in_shop

EXPIRED = "mutex: session is expired"


@in_shop
async def test_a_lock_is_answered_when_its_key_is_on_disk(shop: Shop) -> None:
    call = shop.lock(b"l", 1)
    assert call.position == shop.store.durable + 1
    shop.commit()
    again = shop.lock(b"l", 1)
    assert (again.answer.key, again.position) == (call.answer.key, 0)
    assert again.answer.header.revision == call.answer.header.revision


@in_shop
async def test_a_lock_again_waits_for_the_key_that_is_not_on_disk_yet(shop: Shop) -> None:
    shop.lock(b"l", 1)
    assert shop.lock(b"l", 1).position == shop.store.durable + 1


@in_shop
async def test_a_waiter_is_told_when_the_delete_before_it_is_on_disk(shop: Shop) -> None:
    shop.lock(b"l", 1)
    waiting = shop.lock(b"l", 2)
    shop.commit()
    assert waiting.is_waiting
    shop.unlock(b"l/1")
    assert waiting.position == shop.store.durable + 1
    assert waiting.answer.header.revision == shop.store.revision


@in_shop
async def test_a_lost_key_is_told_when_that_is_on_disk(shop: Shop) -> None:
    shop.lock(b"l", 1)
    waiting = shop.lock(b"l", 2)
    shop.commit()
    shop.apply(Revoke(2))
    assert waiting.error is not None
    assert waiting.position == shop.store.durable + 1


@in_shop
async def test_no_leader_is_told_when_the_last_ones_end_is_on_disk(shop: Shop) -> None:
    shop.campaign(b"e", 1)
    shop.commit()
    shop.apply(Delete(b"e/1"))
    request = epb.LeaderRequest(name=b"e").SerializeToString()
    with pytest.raises(Exception, match="no leader") as refused:
        shop.elections.leader(request)
    assert refused.value.position == shop.store.durable + 1  # type: ignore[attr-defined]


@in_shop
async def test_a_waiter_whose_lease_ends_is_told_at_once(shop: Shop) -> None:
    """etcd tells it when its turn comes, which may be never."""
    shop.grant(9, ttl_s=5.0)
    shop.commit()
    shop.lock(b"l", 1)
    waiting = shop.lock(b"l", 9)
    await asyncio.sleep(4.9)
    assert waiting.is_waiting
    await asyncio.sleep(0.2)
    assert error_of(waiting) == EXPIRED


@in_shop
async def test_a_candidate_whose_lease_ends_is_told_at_once(shop: Shop) -> None:
    """etcd tells it, when its turn would have come, that it leads."""
    shop.campaign(b"e", 1)
    waiting = shop.campaign(b"e", 2)
    shop.apply(Revoke(2))
    assert error_of(waiting) == "election: not leader"


@in_shop
async def test_a_release_tells_the_next_one_only(shop: Shop) -> None:
    callers = [shop.lock(b"l", 1), shop.lock(b"l", 2), shop.lock(b"l", 3), shop.lock(b"l", 4)]
    shop.apply(Delete(b"l/3"))
    assert [each.is_waiting for each in callers] == [False, True, False, True]
    assert error_of(callers[2]) == EXPIRED
    shop.unlock(b"l/1")
    assert [each.is_waiting for each in callers] == [False, False, False, True]
    shop.unlock(b"l/2")
    assert callers[3].answer.key == b"l/4"


@in_shop
async def test_who_gives_up_in_the_middle_wakes_nobody(shop: Shop) -> None:
    callers = [shop.lock(b"l", 1), shop.lock(b"l", 2), shop.lock(b"l", 3)]
    callers[1].go()
    await shop.quiet()
    assert shop.store.keyspace.get(b"l/2") is None
    assert callers[2].is_waiting
    shop.unlock(b"l/1")
    assert callers[2].answer.key == b"l/3"


@in_shop
async def test_several_keys_that_go_together_wake_the_one_behind_them(shop: Shop) -> None:
    callers = [shop.lock(b"l", lease) for lease in (1, 2, 3, 4)]
    shop.apply(Delete(b"l/1", b"l/3"))
    assert error_of(callers[1]) == EXPIRED
    assert callers[2].answer.key == b"l/3"
    assert callers[3].is_waiting


@in_shop
async def test_a_key_stays_while_another_call_waits_for_it(shop: Shop) -> None:
    """In etcd, a client that calls again before it has given up loses its place."""
    shop.lock(b"l", 1)
    given_up, again = shop.lock(b"l", 2), shop.lock(b"l", 2)
    given_up.go()
    await shop.quiet()
    assert shop.store.keyspace.get(b"l/2") is not None
    shop.unlock(b"l/1")
    assert again.answer.key == b"l/2"


@in_shop
async def test_who_has_the_lock_keeps_it_when_the_call_is_over(shop: Shop) -> None:
    owner, waiting = shop.lock(b"l", 1), shop.lock(b"l", 2)
    again = shop.lock(b"l", 1)
    owner.go()
    again.go()
    shop.unlock(b"l/1")
    waiting.go()
    await shop.quiet()
    assert shop.store.keyspace.get(b"l/2") is not None


@in_shop
async def test_a_lease_that_was_granted_for_a_waiter_goes_with_it(shop: Shop) -> None:
    """In etcd it stays for a minute."""
    before = len(shop.store.leases)
    shop.lock(b"l", 1)
    waiting = shop.lock(b"l")
    assert len(shop.store.leases) == before + 1
    waiting.go()
    await shop.quiet()
    assert len(shop.store.leases) == before
    assert shop.store.keyspace.count(b"l/", b"l0") == 1


@in_shop
async def test_a_lease_that_was_granted_for_a_waiter_goes_with_its_key(shop: Shop) -> None:
    before = len(shop.store.leases)
    shop.lock(b"l", 1)
    waiting = shop.lock(b"l")
    shop.apply(Delete(b"l/2", b"l0"))
    shop.apply(Delete(b"l/10", b"l/2"))
    assert error_of(waiting) == EXPIRED
    waiting.go()
    await shop.quiet()
    assert len(shop.store.leases) == before


@in_shop
async def test_a_lease_that_was_granted_for_an_owner_stays(shop: Shop) -> None:
    before = len(shop.store.leases)
    shop.lock(b"l").go()
    assert len(shop.store.leases) == before + 1


@in_shop
async def test_proclaim_that_fails_grants_no_lease(shop: Shop) -> None:
    before = len(shop.store.leases)
    leader = epb.LeaderKey(key=b"e/1", rev=99)
    request = epb.ProclaimRequest(leader=leader, value=b"x").SerializeToString()
    with pytest.raises(Exception, match="not leader"):
        shop.elections.proclaim(request)
    resign = epb.ResignRequest(leader=leader).SerializeToString()
    shop.elections.resign(resign)
    assert len(shop.store.leases) == before


@in_shop
async def test_nothing_stays_in_memory_when_all_are_gone(shop: Shop) -> None:
    callers: list[Caller[Any]] = [shop.lock(b"l", lease) for lease in (1, 2, 3)]
    callers += [shop.campaign(b"e", lease) for lease in (1, 2, 3)]
    callers += [shop.observe(b"e"), shop.observe(b"nothing")]
    for call in callers:
        call.go()
    await shop.quiet()
    shop.check_nothing_is_left()


@in_shop
async def test_what_nobody_waits_for_costs_no_memory(shop: Shop) -> None:
    shop.lock(b"l", 1)
    shop.campaign(b"e", 1)
    shop.check_nothing_is_left()


@in_shop
async def test_when_the_server_stops_the_keys_stay(shop: Shop) -> None:
    shop.lock(b"l", 1)
    waiting = [shop.lock(b"l", 2), shop.lock(b"l")]
    await shop.runtime.stop()
    for call in waiting:
        call.go()
    assert shop.store.keyspace.count(b"l/", b"l0") == 3


@in_shop
async def test_an_observer_that_takes_nothing_is_told_the_latest_when_it_does(shop: Shop) -> None:
    shop.campaign(b"e", 1, b"0")
    observer = shop.observe(b"e")
    observer.has_room = False
    for number in range(5):
        shop.campaign(b"e", 1, b"%d" % number)
    assert [answer.kv.value for answer, _ in observer.said] == [b"0"]
    observer.relieve()
    observer.relieve()
    assert [answer.kv.value for answer, _ in observer.said] == [b"0", b"4"]
