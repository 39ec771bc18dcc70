"""Watch subscriptions: who is told what, and by how many watches. In virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from leasehold.engine import interface
from leasehold.engine.values import Event
from leasehold.errors import CallRefused, Closed, Compacted, LeaseholdError
from leasehold.keyspace.operations import Put
from leasehold.locks import watch_subscriptions as module
from leasehold.locks.shared_watch import (
    COOL_MAX_S,
    COOL_S,
    GROUP_FROM,
    FailedPrefixes,
    WatchSubscription,
    places_above,
)
from leasehold.locks.watch_subscriptions import OTHERS_MIN, WINDOW_S, WatchSubscriptions
from leasehold.testing import run_virtual
from tests.support.held_watches import HeldEngine, held_engine, settled

MANY = GROUP_FROM + 4
NOISE = 5 * MANY + OTHERS_MIN
"""More changes of others than a group of so many puts up with."""


class Stage:
    """An engine, feeds on it, and what subscribers were told."""

    def __init__(self, engine: HeldEngine) -> None:
        self.engine = engine
        self.feeds = WatchSubscriptions(engine)
        self.told: dict[bytes, list[Event]] = {}
        self.gaps: dict[bytes, LeaseholdError] = {}
        self.subscriptions: dict[bytes, WatchSubscription] = {}

    async def put(self, *keys: bytes) -> int:
        return (await self.engine.txn([], [Put(key, b"", 0) for key in keys])).revision

    def subscribe(self, prefix: bytes, start: int) -> WatchSubscription:
        told = self.told.setdefault(prefix, [])

        def miss(error: LeaseholdError) -> None:
            assert prefix not in self.gaps
            self.gaps[prefix] = error

        subscription = self.feeds.subscribe(prefix, start, told.append, miss)
        self.subscriptions[prefix] = subscription
        return subscription

    async def crowd(self, start: int, count: int = MANY, first: int = 0) -> None:
        """Subscribe to many of `jobs/`."""
        for number in range(first, first + count):
            self.subscribe(job(number), start)
        await settled()

    async def one_by_one(self, count: int = MANY) -> None:
        """Subscribe to many of `jobs/`, each with a start of its own, as they would in life."""
        for number in range(count):
            self.subscribe(job(number), await self.put(job(number) + b"first"))
            await settled()

    async def noise(self, count: int = NOISE, key: bytes = b"jobs/else/k") -> None:
        for _ in range(count):
            await self.put(key)
        await settled()

    def revisions(self, prefix: bytes) -> list[int]:
        return [event.revision for event in self.told[prefix]]


def job(number: int) -> bytes:
    return b"jobs/%d/" % number


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with held_engine() as engine:
            stage = Stage(engine)
            await scene(stage)
            await stage.feeds.close()
            assert engine.open == []

    run_virtual(main)


@pytest.fixture
def _short_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have watches that are not read fall behind soon."""
    monkeypatch.setattr(interface, "MAX_QUEUED", 2)


# What is told.


def test_a_subscriber_gets_each_change_of_its_prefix_from_its_start_on() -> None:
    async def scene(stage: Stage) -> None:
        await stage.put(b"a/1")
        start = await stage.put(b"a/2")
        stage.subscribe(b"a/", start)
        await stage.put(b"a/3", b"a/b/4", b"b/5")
        await stage.put(b"a")
        await stage.engine.delete(b"a/2")
        await settled()
        told = [(each.revision, each.key, each.is_delete) for each in stage.told[b"a/"]]
        assert told == [
            (start, b"a/2", False),
            (start + 1, b"a/3", False),
            (start + 1, b"a/b/4", False),
            (start + 3, b"a/2", True),
        ]

    play(scene)


def test_nested_prefixes_and_the_same_one_twice_are_each_told_in_a_group() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        stage.subscribe(b"jobs/1/sub/", 1)
        again = list[Event]()
        stage.feeds.subscribe(b"jobs/1/", 1, again.append, again.append)  # type: ignore[arg-type]
        await settled()
        assert stage.engine.open_keys == [b"jobs/"]
        first = await stage.put(b"jobs/1/k", b"jobs/1/sub/k", b"jobs/1")
        await settled()
        assert stage.revisions(b"jobs/1/") == [first, first]
        assert [each.key for each in again] == [b"jobs/1/k", b"jobs/1/sub/k"]
        assert stage.revisions(b"jobs/1/sub/") == [first]
        assert stage.revisions(b"jobs/2/") == []

    play(scene)


def test_a_change_costs_only_those_whom_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = list[bytes]()
    event_received = WatchSubscription.event_received

    def counted(self: WatchSubscription, *args: Any) -> None:
        heard.append(self.prefix)
        event_received(self, *args)

    monkeypatch.setattr(WatchSubscription, "event_received", counted)

    async def scene(stage: Stage) -> None:
        await stage.crowd(1, 500)
        await stage.put(b"jobs/7/k")
        await stage.put(b"jobs/7/" + b"/" * 100_000)  # and its slashes cost nothing either
        await settled()
        assert heard == [b"jobs/7/"] * 2

    play(scene)


def test_a_subscriber_that_raises_is_told_what_comes_next(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "leasehold.locks.shared_watch")

    async def scene(stage: Stage) -> None:
        told = list[Event]()

        def fail(event: Event) -> None:
            told.append(event)
            raise ValueError("a defect")

        stage.feeds.subscribe(b"a/", 1, fail, lambda _: None)
        stage.subscribe(b"a/", 1)
        await stage.put(b"a/1")
        await stage.put(b"a/2")
        await settled()
        assert len(told) == len(stage.told[b"a/"]) == 2

    play(scene)


def test_a_subscriber_may_cancel_and_subscribe_when_it_is_told() -> None:
    async def scene(stage: Stage) -> None:
        told = list[bytes]()

        def once(event: Event) -> None:
            told.append(event.key)
            subscription.cancel()
            subscription.cancel()
            stage.subscribe(b"a/", event.revision)

        subscription = stage.feeds.subscribe(b"a/", 1, once, lambda _: None)
        await stage.put(b"a/1", b"a/2")
        await stage.put(b"a/3")
        await settled()
        assert told == [b"a/1"]
        assert [each.key for each in stage.told[b"a/"]] == [b"a/1", b"a/2", b"a/3"]
        assert len(stage.engine.open) == 1

    play(scene)


def test_a_subscriber_may_cancel_others_of_the_same_prefix_when_it_is_told() -> None:
    async def scene(stage: Stage) -> None:
        told = list[bytes]()
        subscriptions = list[WatchSubscription]()

        def leave(event: Event) -> None:
            told.append(event.key)
            for subscription in subscriptions:
                subscription.cancel()

        def fail(error: LeaseholdError) -> None:
            raise AssertionError(error)

        await stage.crowd(1)
        for _ in range(3):
            subscriptions.append(stage.feeds.subscribe(job(1), 1, leave, fail))
        await settled()
        await stage.put(b"jobs/1/k", b"jobs/1/l")
        await settled()
        assert told == [b"jobs/1/k"]
        assert len(stage.told[job(1)]) == 2
        assert not stage.gaps

    play(scene)


def test_nothing_is_told_after_a_cancel_and_the_last_takes_the_watch_along() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        await stage.put(b"jobs/1/k")
        for number in range(MANY):
            stage.subscriptions[job(number)].cancel()
        await settled()
        assert stage.engine.open == []
        assert not any(stage.told.values())
        assert not stage.gaps
        await stage.crowd(1)  # and begins anew
        assert stage.engine.open_keys == [b"jobs/"]

    play(scene)


# Groups.


def test_few_below_a_place_have_a_watch_each() -> None:
    async def scene(stage: Stage) -> None:
        await stage.one_by_one(GROUP_FROM)
        assert stage.engine.open_keys == sorted(map(job, range(GROUP_FROM)))

    play(scene)


def test_many_below_a_place_share_one_watch_and_none_of_their_own_is_made() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1, 1_000)
        assert [watch.key for watch in stage.engine.made] == [b"jobs/"]

    play(scene)


def test_watches_of_their_own_are_given_up_for_that_of_the_group() -> None:
    async def scene(stage: Stage) -> None:
        await stage.one_by_one()
        assert stage.engine.open_keys == [b"jobs/"]
        last = await stage.put(*(job(number) + b"k" for number in range(MANY)))
        await settled()
        for number in range(MANY):
            assert stage.revisions(job(number)) == [2 + number, last]

    play(scene)


def test_who_comes_later_joins_a_group_without_a_watch() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        start = await stage.put(b"else") + 1
        made = len(stage.engine.made)
        stage.subscribe(b"jobs/later/", start)
        await settled()
        assert len(stage.engine.made) == made
        await stage.put(b"jobs/later/k")
        await settled()
        assert stage.revisions(b"jobs/later/") == [start]

    play(scene)


def test_who_is_behind_a_group_has_a_watch_until_it_is_not() -> None:
    async def scene(stage: Stage) -> None:
        start = await stage.put(b"jobs/later/k")
        await stage.crowd(1)
        await stage.put(b"jobs/1/k")
        await settled()
        stage.engine.hold()
        stage.subscribe(b"jobs/later/", start)
        await settled()
        assert stage.engine.open_keys == [b"jobs/", b"jobs/later/"]
        for _ in range(3):
            await stage.put(b"jobs/later/k")
        stage.engine.free()
        await settled()
        assert stage.engine.open_keys == [b"jobs/"]
        assert stage.revisions(b"jobs/later/") == [start, start + 2, start + 3, start + 4]

    play(scene)


def test_a_group_that_comes_too_late_ends_no_watch_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions of those that had nothing to tell are old, and compacted; their watches go on."""
    monkeypatch.setattr(module, "GROUP_FROM", 2)

    async def scene(stage: Stage) -> None:
        await stage.crowd(1, 2)
        await stage.noise(20, b"else")
        await stage.engine.compact(20)
        stage.subscribe(job(2), 4)  # what it needs is compacted indeed
        await settled()
        assert list(stage.gaps) == [job(2)]
        assert stage.engine.open_keys == [job(0), job(1)]
        stage.subscribe(job(3), 5)  # and so is this, but now it is known what is
        await settled()
        assert list(stage.gaps) == [job(2), job(3)]
        assert stage.engine.open_keys == [b"jobs/"]
        stage.subscribe(job(2), 21)
        await settled()
        assert stage.engine.open_keys == [b"jobs/"]
        last = await stage.put(job(0) + b"k", job(1) + b"k", job(2) + b"k")
        await settled()
        assert [stage.revisions(job(number)) for number in range(3)] == [[last]] * 3

    play(scene)


# Noise.


def test_a_group_that_is_told_mostly_of_others_keys_is_split_and_loses_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        first = await stage.put(*(job(number) + b"k" for number in range(MANY)))
        await stage.noise()
        assert stage.engine.open_keys == sorted(map(job, range(MANY)))
        last = await stage.put(*(job(number) + b"k" for number in range(MANY)))
        await settled()
        for number in range(MANY):
            assert stage.revisions(job(number)) == [first, last]

    play(scene)


def test_a_place_that_was_split_is_tried_again_only_after_a_while_and_then_a_longer_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        await stage.noise()
        now = (await stage.put(b"else")) + 1
        await asyncio.sleep(COOL_S * 0.9)
        await stage.crowd(now, 1, MANY)
        assert b"jobs/" not in stage.engine.open_keys
        await asyncio.sleep(COOL_S * 0.2)
        await stage.crowd(now, 1, MANY + 1)
        assert stage.engine.open_keys == [b"jobs/"]
        await stage.noise(2 * NOISE)
        await asyncio.sleep(COOL_S * 1.8)
        now = (await stage.put(b"else")) + 1
        await stage.crowd(now, 1, MANY + 2)
        assert b"jobs/" not in stage.engine.open_keys
        await asyncio.sleep(COOL_S * 0.4)
        await stage.crowd(now, 1, MANY + 3)
        assert stage.engine.open_keys == [b"jobs/"]

    play(scene)


def test_a_noisy_place_makes_no_group_above_it_and_quiet_ones_below_it() -> None:
    async def scene(stage: Stage) -> None:
        for number in range(MANY):
            stage.subscribe(b"jobs/%d/lock/" % number, 1)
            stage.subscribe(b"jobs/deep/%d/" % number, 1)
        await settled()
        assert stage.engine.open_keys == [b"jobs/"]
        await stage.noise(2 * NOISE)
        own = sorted(b"jobs/%d/lock/" % number for number in range(MANY))
        assert stage.engine.open_keys == sorted([*own, b"jobs/deep/"])

    play(scene)


def test_noise_that_is_slow_or_less_than_what_is_ours_is_put_up_with() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        for _ in range(6):
            await stage.noise(NOISE // 3)
            await asyncio.sleep(WINDOW_S + 1)
        assert stage.engine.open_keys == [b"jobs/"]
        for _ in range(NOISE):
            await stage.put(b"jobs/else/k", b"jobs/1/k")
        await settled()
        assert stage.engine.open_keys == [b"jobs/"]

    play(scene)


# Ends.


@pytest.mark.usefixtures("_short_queues")
def test_only_who_needs_what_was_compacted_is_told_of_a_gap() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        await stage.put(b"jobs/1/k")
        await settled()
        stage.engine.hold()
        for _ in range(5):
            last = await stage.put(b"jobs/1/k")
        await stage.engine.compact(last)
        stage.subscribe(b"jobs/ahead/", last)
        await settled()
        stage.engine.free()
        await settled()
        assert sorted(stage.gaps) == sorted(map(job, range(MANY)))
        assert all(isinstance(error, Compacted) for error in stage.gaps.values())
        now = await stage.put(b"jobs/ahead/k", b"jobs/1/k")
        await settled()
        assert stage.revisions(b"jobs/ahead/") == [now]
        assert now not in stage.revisions(b"jobs/1/")

    play(scene)


def test_a_group_that_is_refused_leaves_each_with_its_own_watch() -> None:
    async def scene(stage: Stage) -> None:
        stage.engine.refused.add(b"jobs/")
        await stage.crowd(1)
        assert stage.engine.open_keys == sorted(map(job, range(MANY)))
        await asyncio.sleep(COOL_MAX_S / 2)
        await stage.crowd(1, 1, MANY)
        assert b"jobs/" not in stage.engine.open_keys
        now = await stage.put(*(job(number) + b"k" for number in range(MANY + 1)))
        await settled()
        assert all(stage.revisions(job(number)) == [now] for number in range(MANY + 1))
        assert not stage.gaps

    play(scene)


def test_a_watch_that_is_refused_is_a_gap_and_nothing_is_told_after_it() -> None:
    async def scene(stage: Stage) -> None:
        stage.engine.refused.add(b"a/")
        stage.subscribe(b"a/", 1)
        await stage.put(b"a/k")
        await settled()
        assert isinstance(stage.gaps[b"a/"], CallRefused)
        assert stage.told[b"a/"] == []
        assert stage.engine.open == []

    play(scene)


def test_who_is_cancelled_while_gaps_are_told_is_told_of_none() -> None:
    async def scene(stage: Stage) -> None:
        told = list[int]()
        subscriptions = list[WatchSubscription]()

        def miss(_: LeaseholdError) -> None:
            told.append(1)
            for subscription in subscriptions:
                subscription.cancel()

        for number in range(MANY):
            subscription = stage.feeds.subscribe(job(number), 1, lambda _: None, miss)
            subscriptions.append(subscription)
        await settled()
        await stage.engine.close()
        await settled()
        assert told == [1]

    play(scene)


@pytest.mark.parametrize("count", [2, MANY])
def test_the_end_of_the_engine_is_told_to_everybody(count: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1, count)
        await stage.engine.close()
        await settled()
        assert len(stage.gaps) == count
        assert all(isinstance(error, Closed) for error in stage.gaps.values())
        stage.subscribe(b"later/", 1)
        await settled()
        assert isinstance(stage.gaps[b"later/"], Closed)

    play(scene)


def test_closed_feeds_tell_nothing_and_take_no_subscription() -> None:
    async def scene(stage: Stage) -> None:
        await stage.crowd(1)
        stage.subscribe(b"a/", 1)
        await stage.put(b"jobs/1/k", b"a/k")
        stage.subscribe(b"b/", 1)
        await stage.feeds.close()
        await settled()
        assert not any(stage.told.values())
        assert not stage.gaps
        with pytest.raises(Closed):
            stage.subscribe(b"a/", 1)
        await stage.feeds.close()

    play(scene)


def test_a_watch_that_fails_for_no_known_reason_is_told_as_a_gap(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "leasehold.locks.shared_watch")

    async def scene(stage: Stage) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(stage.engine, "watch", fail)
        stage.subscribe(b"a/", 1)
        await settled()
        assert "ZeroDivisionError" in str(stage.gaps[b"a/"])

    play(scene)


def test_a_bad_prefix_or_start_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        with pytest.raises(ValueError, match="prefix must end with a slash, got b'a'"):
            stage.subscribe(b"a", 1)
        with pytest.raises(ValueError, match="of at least 1, got 0"):
            stage.subscribe(b"a/", 0)

    play(scene)


# Places.


@pytest.mark.parametrize(
    ("prefix", "places"),
    [
        (b"a/b/17/", [b"a/b/", b"a/", b""]),
        (b"a/b/c/d/e/f/", [b"a/b/c/d/e/", b"a/b/c/d/", b"a/b/c/", b"a/b/", b""]),
        (b"lock-17/", [b"lock-", b""]),
        (b"lock.x.17/", [b"lock.x.", b""]),
        (b"lock17/", [b"lock", b""]),
        (b"lock/", [b""]),
        (b"17/", [b""]),
        (b"tenant-1/lock/", [b"tenant-1/", b"tenant-", b""]),
        (b"/", [b""]),
        (b"//", [b"/", b""]),
    ],
)
def test_places_above_a_prefix(prefix: bytes, places: list[bytes]) -> None:
    assert list(places_above(prefix)) == places


def test_flat_names_share_what_is_before_their_numbers() -> None:
    async def scene(stage: Stage) -> None:
        for number in range(MANY):
            stage.subscribe(b"lock-%d/" % number, 1)
        await settled()
        assert stage.engine.open_keys == [b"lock-"]

    play(scene)


def test_names_that_have_nothing_in_common_share_a_watch_only_if_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WHOLE_FROM", 100)
    monkeypatch.setattr(module, "MAX_ALONE", 200)

    async def scene(stage: Stage) -> None:
        names = [b"%c%c/" % pair for pair in _pairs()]
        for name in names[:100]:
            stage.subscribe(name, 1)
        await settled()
        assert len(stage.engine.open) == 100
        stage.subscribe(names[100], 1)
        await settled()
        assert stage.engine.open_keys == [b"\0"]
        await stage.noise(1000, b"else")
        assert len(stage.engine.open) == 101
        now = await stage.put(b"else") + 1
        for name in names[101:210]:  # more than a stream should have, noise or not
            stage.subscribe(name, now)
        await settled()
        assert stage.engine.open_keys == [b"\0"]
        made = len(stage.engine.made)
        await stage.noise(1000, b"else")
        assert len(stage.engine.made) == made
        assert await stage.put(names[0] + b"k") == stage.engine._store.revision
        await settled()
        assert len(stage.told[names[0]]) == 1

    play(scene)


def _pairs() -> Iterator[tuple[int, int]]:
    letters = range(ord("a"), ord("z") + 1)
    return ((one, other) for one in letters for other in letters)


def test_places_that_are_left_alone_are_forgotten_when_there_are_too_many() -> None:
    now = 0.0
    cooling = FailedPrefixes(lambda: now)
    for number in range(2_000):
        cooling.add(b"%d/" % number)
    assert len(cooling._pauses) <= 1_000
    assert b"1999/" in cooling
    assert b"" in cooling
    now = COOL_S * 1.5
    assert b"1999/" not in cooling
    assert b"" in cooling  # noisy again and again
    cooling.add(b"1999/")
    now += COOL_S * 1.5
    assert b"1999/" in cooling
    now += 10 * COOL_MAX_S
    cooling.add(b"1999/")
    now += COOL_S * 1.5
    assert b"1999/" not in cooling
