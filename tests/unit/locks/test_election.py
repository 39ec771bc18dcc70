"""Elections: one leader, what it proclaims, and those who observe it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold import CallRefused, Closed, Compacted, HistoryLost, LockDenied, LockLost, NotHeld
from leasehold.basics.pending import Pending
from leasehold.locks.election import Leader, Leadership
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play


async def elected(pending: Pending[Leadership]) -> Leadership:
    return await pending


def campaign(client: Participant, value: str) -> "asyncio.Task[Leadership]":
    return asyncio.ensure_future(elected(client.election("boss").campaign(value)))


class Observer:
    """Writes down what it observes."""

    def __init__(self, client: Participant) -> None:
        self.seen: list[Leader] = []
        self.pause_s = 0.0
        self.task = asyncio.ensure_future(self._observe(client))

    @property
    def values(self) -> list[str]:
        return [leader.text for leader in self.seen]

    async def _observe(self, client: Participant) -> None:
        async for leader in client.election("boss").observe():
            self.seen.append(leader)
            await asyncio.sleep(self.pause_s)


@asynccontextmanager
async def observing(client: Participant) -> AsyncIterator[Observer]:
    observer = Observer(client)
    yield observer
    observer.task.cancel()
    await asyncio.wait([observer.task])


def test_the_layout_is_that_of_etcd() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with client.election("boss").campaign("host-1") as leadership:
            [pair] = world.pairs()
            assert pair.key == leadership.key == b"boss/%x" % pair.lease
            assert pair.value == leadership.value == b"host-1"
            leader = await client.election("boss").leader()
            assert leader == Leader(b"host-1", pair.key, pair.lease, leadership.token)
            assert int(leadership.token) == pair.create_revision

    play(scene)


def test_the_first_leads_and_the_next_follows_when_it_resigns() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        assert await b.election("boss").leader() is None
        first = await campaign(a, "a")
        waiting = campaign(b, "b")
        await world.until(lambda: len(world.pairs()) == 2)
        leader = await b.election("boss").leader()
        assert leader is not None
        assert leader.text == "a"
        assert not waiting.done()
        first.resign()
        second = await waiting
        assert second.token > first.token
        with pytest.raises(NotHeld):
            first.resign()
        with pytest.raises(NotHeld):
            await first.proclaim("still me")
        second.resign()

    play(scene)


def test_campaigns_of_one_client_go_one_after_the_other() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        first = await campaign(client, "1")
        waits = [campaign(client, str(number)) for number in range(2, 6)]
        await asyncio.sleep(1.0)
        assert [pair.value for pair in world.pairs()] == [b"1"]
        with pytest.raises(LockDenied):
            await client.election("boss").campaign("0", timeout=0)
        with pytest.raises(LockDenied) as denied:
            await client.election("boss").campaign("0", timeout=1)
        assert denied.value.holder == "me"
        waits[1].cancel()
        await asyncio.sleep(0.1)
        assert len(client._recipes._tasks) == 4, "who has given up does not wait on"
        first.resign()
        order: list[str] = []
        async with asyncio.timeout(10.0):
            for wait in (waits[0], waits[2], waits[3]):
                leadership = await wait
                order.append(leadership.value.decode())
                await asyncio.sleep(0.1)
                assert [pair.value for pair in world.pairs()] == [leadership.value]
                leadership.resign()
        assert order == ["2", "4", "5"]
        await world.until(lambda: not client._recipes._turns)

    play(scene)


def test_a_campaign_that_comes_while_another_is_over_waits_for_those_before_it() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        first = await campaign(client, "1")
        second = campaign(client, "2")
        await asyncio.sleep(1.0)
        first.resign()
        thirds = []
        for number in range(40):  # all along until the second leads
            thirds.append(campaign(client, f"3.{number}"))
            await asyncio.sleep(0.0005)
        (await second).resign()
        for third in thirds:
            (await third).resign()

    play(scene)


def test_a_leader_that_has_lost_it_proclaims_nothing() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        leadership = await campaign(client, "1")
        client.engine.is_deaf = True
        await world.engine.delete(leadership.key)
        other = await world.engine.put(leadership.key, b"of another")
        with pytest.raises(LockLost):
            await leadership.proclaim("2")
        [pair] = world.pairs()
        assert (pair.value, pair.mod_revision) == (b"of another", other.revision)
        assert leadership.lost
        await world.engine.delete(leadership.key)

    play(scene)


@pytest.mark.parametrize("fault", LOSSES)
def test_what_is_proclaimed_is_there_whatever_is_lost(fault: Fault) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with client.election("boss").campaign("0") as leadership:
            for number in range(1, 5):
                client.engine.trouble_with("txn", 1, fault)
                await leadership.proclaim(str(number))
                assert [pair.value for pair in world.pairs()] == [b"%d" % number]
            client.engine.trouble_with("txn", 1, fault)
            await asyncio.gather(*(leadership.proclaim(str(each)) for each in range(9)))
            await asyncio.sleep(10.0)
            assert [pair.value for pair in world.pairs()] == [b"8"] == [leadership.value]

    play(scene)


def test_an_observer_sees_each_change_beginning_with_the_leader_there_is() -> None:
    async def scene(world: World) -> None:
        a, b, c = (world.client(name) for name in "abc")
        first = await campaign(a, "a")
        async with observing(c) as observer:
            await world.until(lambda: observer.values == ["a"])
            waiting = campaign(b, "b")
            await world.until(lambda: len(world.pairs()) == 2)
            await asyncio.sleep(1.0)
            assert observer.values == ["a"], "a candidate is no leader"
            await first.proclaim("a2")
            await first.proclaim("a2")  # said again
            first.resign()
            second = await waiting
            await second.proclaim("b2")
            second.resign()
            await asyncio.sleep(5.0)
            third = await campaign(a, "a3")
            await world.until(lambda: observer.values[-1] == "a3")
            assert observer.values == ["a", "a2", "a2", "b", "b2", "a3"]
            tokens = [leader.token for leader in observer.seen]
            assert tokens == sorted(tokens)
            third.resign()

    play(scene)


def test_a_slow_observer_misses_nothing() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with observing(b) as observer:
            observer.pause_s = 1.0
            async with a.election("boss").campaign("0") as leadership:
                for number in range(1, 30):
                    await leadership.proclaim(str(number))
            await asyncio.sleep(60.0)
            assert observer.values == [str(number) for number in range(30)]

    play(scene)


def test_an_observer_survives_a_compaction_and_never_misses_the_last() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        async with observing(b) as observer:
            leadership = await campaign(a, "0")
            await world.until(lambda: observer.values == ["0"])
            b.engine.is_deaf = True
            await leadership.proclaim("missed")
            await leadership.proclaim("last")
            await asyncio.sleep(1.0)
            b.engine.is_deaf = False
            for fault in (Fault.REQUEST_LOST, Fault.ANSWER_LOST):
                b.engine.trouble_with("range", 1, fault)
                b.engine.break_watches(Compacted(1, 2))
                await asyncio.sleep(1.0)
            assert observer.values == ["0", "last"]
            await leadership.proclaim("more")
            await world.until(lambda: observer.values == ["0", "last", "more"])
            leadership.resign()

    play(scene)


@pytest.mark.parametrize("error", [HistoryLost("another cluster"), Closed("the engine was closed")])
def test_an_observer_ends_with_the_history_or_the_client(error: Any) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with observing(client) as observer:
            await asyncio.sleep(1.0)
            client.engine.break_watches(error)
            with pytest.raises(type(error)):
                await observer.task

    play(scene)


def test_keys_of_others_are_no_candidates() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        for key in (b"boss/rwlock/1.2.read", b"boss/a/b", b"boss/", b"boss/xyz", b"boss/0a"):
            await world.engine.put(key, b"other")
        async with observing(client) as observer:
            assert await client.election("boss").leader() is None
            async with client.election("boss").campaign("me", timeout=0):
                await asyncio.sleep(1.0)
            await asyncio.sleep(1.0)
            assert observer.values == ["me"]
        await world.engine.delete(b"boss/", b"boss0")

    play(scene)


def test_a_lock_of_the_same_name_is_refused_in_one_client() -> None:
    """Both would be the same key: etcd has one layout for the two."""

    async def scene(world: World) -> None:
        client = world.client("me")
        async with client.lock("boss") as guard:
            with pytest.raises(ValueError, match="choose another name"):
                await client.election("boss").campaign("me")
            guard.check()

    play(scene)


@pytest.mark.parametrize("value", [None, 7])
def test_what_is_no_text_and_no_bytes_is_not_proclaimed(value: Any) -> None:
    async def scene(world: World) -> None:
        election = world.client("me").election("boss")
        with pytest.raises(TypeError, match="value"):
            election.campaign(value)
        async with election.campaign(b"\xff") as leadership:
            with pytest.raises(TypeError, match="value"):
                await leadership.proclaim(value)

    play(scene)


def test_a_lock_of_the_same_name_leaves_the_key_of_this_clients_election_alone() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.election("chief").campaign("me") as leadership:
            with pytest.raises(CallRefused, match="'chief' is already used by this client"):
                await a.lock("chief").acquire()
            with pytest.raises(CallRefused):
                await a.lock("chief").acquire(timeout=0)
            leadership.check()
            assert [pair.value for pair in world.pairs(b"chief/")] == [b"me"]

    play(scene)


@pytest.mark.parametrize("fault", LOSSES)
def test_a_campaign_of_unknown_outcome_takes_no_lock_of_the_same_name(fault: Fault) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("chief") as guard:
            a.engine.trouble_with("txn", 1, fault)
            with pytest.raises(ValueError, match="choose another name"):
                await a.election("chief").campaign("me")
            await asyncio.sleep(5.0)
            guard.check()
            assert [pair.key for pair in world.pairs(b"chief/")] == [guard.key]

    play(scene)


def test_a_campaign_given_up_in_doubt_deletes_no_lock_of_the_same_name() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("chief") as guard:
            a.engine.trouble_with("txn", 1, Fault.REQUEST_LOST)
            a.engine.trouble_with("txn", 3, Fault.REFUSED)  # when it looks
            with pytest.raises(CallRefused):
                await a.election("chief").campaign("me")
            await asyncio.sleep(5.0)
            guard.check()

    play(scene)
