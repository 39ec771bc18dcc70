"""Locks and elections of the etcd API: limits, long lines, and operations in steps."""

import asyncio
from typing import Any, NoReturn

import pytest

from leasehold.errors import TooBusy
from leasehold.keyspace.operations import Delete, Put
from leasehold.server.etcd import name_queues
from leasehold.server.etcd.queued_calls import QueuedCall
from tests.property.store_kit import make_limits_small
from tests.support.lock_shop import Caller, Shop, error_of, in_shop

EXPIRED = "mutex: session is expired"


def refuses(call: Caller[Any], limit: int) -> None:
    assert str(limit) in error_of(call)


def test_no_more_callers_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_queues, "MAX_CALLERS", 1)

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


def test_names_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_queues, "MAX_NAME_BYTES", 3)

    @in_shop
    async def run(shop: Shop) -> None:
        assert shop.lock(b"long", 1).answer.key == b"long/1", "nobody has to wait"
        refuses(shop.lock(b"long", 2), 3)
        refuses(shop.observe(b"long"), 3)
        assert shop.lock(b"abc", 1).answer.key == b"abc/1"
        assert shop.lock(b"abc", 2).is_waiting

    run()


def test_no_more_keys_stand_in_line_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_queues, "MAX_QUEUED_KEYS", 3)

    @in_shop
    async def run(shop: Shop) -> None:
        for number in range(4):
            shop.apply(Put(b"long/%d" % number, b""))
        refuses(shop.lock(b"long", 1), 3)
        shop.apply(Put(b"short/1", b""))
        assert shop.lock(b"short", 2).is_waiting

    run()


def test_very_many_who_are_out_are_told_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_queues, "LONG", 3)

    @in_shop
    async def run(shop: Shop) -> None:
        shop.grant(*range(11, 20))
        callers = [shop.lock(b"l", lease) for lease in range(11, 20)]
        shop.commit()
        shop.apply(Delete(b"l/", b"l0"))
        waiting = callers[1:]
        assert all(caller.is_waiting for caller in waiting), "they are told a little later"
        waiting[3].go()
        await shop.quiet()
        assert [error_of(caller) for caller in waiting] == [EXPIRED] * len(waiting)
        assert {caller.position for caller in waiting} == {shop.store.durable + 1}
        for caller in callers:
            caller.go()
        await shop.quiet()
        shop.check_nothing_is_left()

    run()


# More than a thousand keys, and operations in steps.


@pytest.fixture
def all_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three keys be many."""
    make_limits_small(monkeypatch)


@pytest.mark.usefixtures("all_is_long")
def test_a_lock_that_is_claimed_anew_while_its_lease_goes_with_very_many_keys() -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        owner, waiting = shop.lock(b"l", 1), shop.lock(b"l")
        assert owner.answer.key == b"l/1"
        (lease,) = {each.resource.id for each in shop.store.leases.table} - {1, 2, 3, 4}
        for number in range(5):
            shop.apply(Put(b"many/%d" % number, b"", lease))
        shop.commit()
        waiting.go()
        again = shop.lock(b"l", lease)
        assert again.is_waiting, "the lease is about to go"
        await shop.quiet()
        assert "requested lease not found" in error_of(again)
        behind = shop.lock(b"l", 2)
        assert behind.is_waiting
        shop.unlock(b"l/1")
        assert behind.answer.key == b"l/2", "nobody stands before it"

    run()


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
        while not shop.store.is_busy:  # noqa: ASYNC110  there is no event to await
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
    told: list[QueuedCall] = []
    is_first = QueuedCall.is_first

    def count(self: QueuedCall, revision: int, position: int) -> None:
        told.append(self)
        is_first(self, revision, position)

    monkeypatch.setattr(QueuedCall, "is_first", count)

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
    monkeypatch.setattr("leasehold.store.slices.SLICE_S", 0.0)

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
