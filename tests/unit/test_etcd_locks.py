"""Locks and elections of the etcd API: what waits, what is told when, and what is left behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from leasehold.core.ops import Delete, Put, Revoke
from leasehold.engine import runtime as runtimes
from leasehold.errors import Status, TooBusy
from leasehold.server.etcd import lines
from leasehold.server.etcd.claims import Claim
from leasehold.testing import run_virtual
from leasehold.wire import election_pb2 as epb
from tests.property.engine_kit import HandCommitter
from tests.property.store_kit import make_limits_small
from tests.support.lock_shop import Caller, Shop

EXPIRED = "mutex: session is expired"


@pytest.fixture(autouse=True)
def _disk_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "Committer", HandCommitter)


def in_shop(test: Callable[[Shop], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        shop = Shop()
        shop.grant(1, 2, 3, 4)
        shop.commit()
        await test(shop)
        await shop.quiet()

    def run() -> None:
        run_virtual(main)

    run.__name__ = test.__name__
    return run


def error_of(call: Caller[Any]) -> str:
    assert call.error is not None
    assert call.error.status is Status.UNKNOWN
    return call.error.message


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


def refuses(call: Caller[Any], limit: int) -> None:
    assert str(limit) in error_of(call)


def test_no_more_callers_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_CALLERS", 1)

    @in_shop
    async def run(shop: Shop) -> None:
        shop.lock(b"l", 1)
        waiting = shop.lock(b"l", 2)
        before, revision = len(shop.store.leases), shop.store.revision
        refuses(shop.lock(b"l", 3), 1)
        refuses(shop.lock(b"l"), 1)
        assert (len(shop.store.leases), shop.store.revision) == (before, revision)
        assert shop.lock(b"free", 3).answer.key == b"free/3"
        assert shop.lock(b"free", 3).answer.key == b"free/3", "who has it is not kept from it"
        waiting.go()
        await shop.quiet()
        assert shop.lock(b"l", 3).is_waiting
        assert shop.campaign(b"l", 4).is_waiting, "elections count by themselves"
        refuses(shop.observe(b"e"), 1)

    run()


def test_no_more_keys_stand_in_line_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_IN_LINE", 3)

    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(4):
            shop.apply(Put(b"long/%d" % number, b""))
        refuses(shop.lock(b"long", 1), 3)
        shop.apply(Put(b"short/1", b""))
        assert shop.lock(b"short", 2).is_waiting

    run()


# More than a thousand keys, and operations in steps.


@pytest.fixture
def all_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three keys be many."""
    make_limits_small(monkeypatch)


@pytest.mark.usefixtures("all_is_long")
def test_a_long_line_is_read_while_it_changes() -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(8):
            shop.apply(Put(b"l/%c" % (97 + number), b""))
        observer, waiting, lost = shop.observe(b"l"), shop.lock(b"l", 2), shop.lock(b"l", 3)
        shop.apply(Delete(b"l/a"))
        await asyncio.sleep(0)
        shop.apply(Delete(b"l/b"))
        shop.apply(Delete(b"l/3"))
        shop.apply(Put(b"l/x", b""))
        await shop.quiet()
        assert [answer.kv.key for answer, _ in observer.said] == [b"l/c"]
        assert waiting.is_waiting
        assert error_of(lost) == EXPIRED
        for number in range(2, 8):
            assert waiting.is_waiting
            shop.apply(Delete(b"l/%c" % (97 + number)))
        assert waiting.answer.key == b"l/2"
        behind = shop.lock(b"l", 4)
        shop.unlock(b"l/2")
        assert behind.is_waiting, "this one came before"
        shop.unlock(b"l/x")
        assert behind.answer.key == b"l/4"

    run()


@pytest.mark.usefixtures("all_is_long")
def test_who_gives_up_while_a_long_line_is_read_leaves_nothing() -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(8):
            shop.apply(Put(b"l/%c" % (97 + number), b""))
        waiting = shop.lock(b"l", 2)
        waiting.go()
        await shop.quiet()
        assert shop.store.keyspace.get(b"l/2") is None
        await shop.quiet()
        shop.check_nothing_is_left()

    run()


@pytest.mark.usefixtures("all_is_long")
def test_calls_that_come_and_go_during_a_long_delete() -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(8):
            shop.apply(Put(b"l/%c" % (97 + number), b""))
        early = shop.lock(b"l", 1)
        gives_up = shop.lock(b"l", 2)
        await shop.quiet()
        deleting = asyncio.ensure_future(shop.runtime.in_steps(Delete(b"l/a", b"l/z")))
        while not shop.store.is_busy:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)
        gives_up.go()
        late, given_up = shop.lock(b"l", 3), shop.lock(b"l", 4)
        again = shop.lock(b"l", 2)
        given_up.go()
        assert shop.store.is_busy
        await deleting
        assert early.answer.key == b"l/1"
        await shop.quiet()
        kept = [item[5] for item in shop.store.keyspace.range(b"l/", b"l0")]
        assert kept == [b"l/1", b"l/2", b"l/3"]
        shop.unlock(b"l/1")
        assert (late.is_waiting, again.is_waiting) == (False, True), "it was behind the other"
        shop.unlock(b"l/3")
        assert again.answer.key == b"l/2"

    run()


@in_shop
async def test_who_comes_again_after_it_gave_up_is_behind_the_others(shop: Shop) -> None:
    shop.lock(b"l", 1)
    gives_up, stays = shop.lock(b"l", 2), shop.lock(b"l", 3)
    shop.store.is_busy = True
    gives_up.go()
    shop.store.is_busy = False
    again = shop.lock(b"l", 2)
    await shop.quiet()
    shop.unlock(b"l/1")
    assert (stays.is_waiting, again.is_waiting) == (False, True)


@in_shop
async def test_a_key_that_is_another_one_by_now_is_not_withdrawn(shop: Shop) -> None:
    shop.lock(b"l", 1)
    gives_up = shop.lock(b"l", 2)
    shop.store.is_busy = True
    gives_up.go()
    shop.store.is_busy = False
    shop.apply(Delete(b"l/2"))
    shop.apply(Put(b"l/2", b"by hand"))
    await shop.quiet()
    assert shop.store.keyspace.get(b"l/2") is not None


def test_a_release_costs_the_same_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Claim] = []
    is_first = Claim.is_first

    def count(self: Claim, revision: int, position: int) -> None:
        told.append(self)
        is_first(self, revision, position)

    monkeypatch.setattr(Claim, "is_first", count)

    @in_shop
    async def run(shop: Shop) -> None:
        waiters = 1000
        shop.grant(*range(10, 10 + waiters))
        callers = [shop.lock(b"l", lease) for lease in range(10, 10 + waiters)]
        monkeypatch.setattr(shop.store, "read", None)  # nobody looks at all of them again
        for number, call in enumerate(callers):
            assert not call.is_waiting
            assert len(told) == number
            shop.unlock(call.answer.key)
            call.go()
        await shop.quiet()
        shop.check_nothing_is_left()

    run()


@pytest.mark.usefixtures("all_is_long")
def test_a_long_line_that_cannot_be_read_is_read_again_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(8):
            shop.apply(Put(b"l/%c" % (97 + number), b""))

        async def fail(_query: object) -> NoReturn:
            raise TooBusy("the disk is busy")

        with monkeypatch.context() as patch:
            patch.setattr(shop.runtime.reader, "scan", fail)
            callers: list[Caller[Any]] = [shop.lock(b"l", 1), shop.observe(b"l")]
            await shop.quiet()
        late = shop.lock(b"l", 2)
        for call in callers:
            assert "the disk is busy" in error_of(call)
            call.go()
        await shop.quiet()
        assert shop.store.keyspace.get(b"l/1") is None
        shop.apply(Delete(b"l/a", b"l/z"))
        assert late.answer.key == b"l/2"

    run()


def test_a_thousand_who_go_at_once_are_removed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.engine.slices.SLICE_S", 0.0)

    @in_shop
    async def run(shop: Shop) -> None:
        shop.grant(*range(10, 1010))
        callers = [shop.lock(b"l", lease) for lease in range(10, 1010)]
        for call in callers:
            call.go()
        left = shop.store.keyspace.count(b"l/", b"l0")
        assert left == len(callers), "nobody waits while they go"
        while left > 1:
            await asyncio.sleep(0)
            now = shop.store.keyspace.count(b"l/", b"l0")
            assert left - now <= 1
            left = now
        await shop.quiet()
        shop.check_nothing_is_left()

    run()
