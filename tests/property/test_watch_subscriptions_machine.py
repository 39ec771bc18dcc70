"""Each subscriber gets the changes of its prefix from its start on, in order, each once.

Subscriptions come and go in a random history, with watches that lag behind each other, and with
groups that form, are refused, are too late, and are split all the time. What each was told must be
what a naive subscriber would have noted down. It may end early only with what it needs next being
compacted, or with a watch on just its prefix being refused.
"""

import asyncio
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.engine import interface
from leasehold.engine.values import Event
from leasehold.errors import CallRefused, Compacted, LeaseholdError
from leasehold.keyspace.operations import Delete, Put
from leasehold.locks import shared_watch, watch_subscriptions
from leasehold.locks.shared_watch import WatchSubscription
from leasehold.testing import run_virtual
from tests.support.held_watches import HeldEngine, held_engine, settled

PREFIXES = (b"a/", b"a/b/", b"a/b/c/", b"a/d/", b"a/e/", b"f-1/", b"f-2/", b"f-3/", b"g/h/")
KEYS = (*(prefix + b"k" for prefix in PREFIXES), b"a/b", b"a/b/c/x/y", b"a/x/k", b"f-x", b"z", b"/")
GROUPS = (b"a/", b"a/b/", b"f-", b"\0")
HABITS = ("hears", "hears", "raises", "cancels itself", "cancels the first", "subscribes", "again")
COOL_S = 10.0

KEY = st.sampled_from(KEYS)
SMALL = st.integers(0, 5)
CHANGES = st.one_of(
    st.tuples(st.just("put"), st.lists(KEY, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("put"), st.lists(KEY, min_size=1, max_size=1)),
    st.tuples(st.just("delete"), st.sampled_from(PREFIXES)),
    st.tuples(st.just("noise"), st.sampled_from([b"a/b/x/k", b"a/x/k", b"f-x/k", b"z"]), SMALL),
)
SUBSCRIBING = st.one_of(
    st.tuples(
        st.just("subscribe"), st.sampled_from(PREFIXES), st.integers(0, 8), st.sampled_from(HABITS)
    ),
    st.tuples(
        st.just("subscribe_many"),
        st.lists(st.sampled_from(PREFIXES), min_size=2, max_size=5),
        st.integers(1, 5),
    ),
    st.tuples(st.just("subscribe_ahead"), st.sampled_from(PREFIXES), st.integers(1, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
)
ADVERSITY = st.one_of(
    st.tuples(st.just("compact"), SMALL),
    st.tuples(st.just("hold")),
    st.tuples(st.just("lag"), st.lists(KEY, min_size=2, max_size=4), SMALL),
    st.tuples(st.just("free")),
    st.tuples(st.just("let"), st.integers(0, 8), st.integers(1, 3)),
    st.tuples(st.just("let"), st.integers(0, 8), st.integers(1, 3)),
    st.tuples(st.just("refuse"), st.sampled_from(GROUPS)),
    st.tuples(st.just("turns"), st.integers(1, 5)),
    st.tuples(st.just("wait")),
    st.tuples(st.just("drain")),
)
STEPS = st.lists(st.one_of(CHANGES, SUBSCRIBING, ADVERSITY), min_size=10, max_size=80)
LIMITS: dict[Any, dict[str, float]] = {
    watch_subscriptions: {
        "GROUP_FROM": 2,
        "WHOLE_FROM": 5,
        "MAX_ALONE": 7,
        "REPLAYED_EACH": 1,
        "OTHERS_EACH": 1,
        "OTHERS_MIN": 2,
        "OTHERS_SHARE": 0.5,
    },
    shared_watch: {"LEVELS": 2, "COOL_S": COOL_S, "COOL_MAX_S": 4 * COOL_S, "MAX_COOLING": 3},
    interface: {"MAX_QUEUED": 2},
}


class Subscriber:
    """Notes down what it is told, and does something of its own then."""

    def __init__(self, history: "History", prefix: bytes, start: int, habit: str) -> None:
        self.history = history
        self.prefix = prefix
        self.start = start
        self.habit = habit
        self.told: list[Event] = []
        self.gap: LeaseholdError | None = None
        self.is_cancelled = False
        self.subscription: WatchSubscription = history.feeds.subscribe(
            prefix, start, self.hear, self.miss
        )

    def hear(self, event: Event) -> None:
        assert self.gap is None
        assert not self.is_cancelled
        self.told.append(event)
        if self.habit == "raises":
            raise ValueError("a defect of the subscriber")
        if self.habit == "cancels itself":
            self.cancel()
        elif self.habit == "cancels the first":
            self.history.subscribers[0].cancel()
        elif self.habit == "subscribes" and len(self.told) < 3:
            self.history.join(self.prefix, event.revision, "hears")

    def miss(self, error: LeaseholdError) -> None:
        assert self.gap is None
        assert not self.is_cancelled
        self.gap = error
        if isinstance(error, Compacted):
            assert self.subscription.next_revision < error.revision <= self.history.compacted
        else:
            assert isinstance(error, CallRefused)
            assert self.prefix in self.history.engine.refused
        if self.habit == "again":
            self.history.join(self.prefix, self.history.revision + 1, "hears")

    def cancel(self) -> None:
        self.is_cancelled = True
        self.subscription.cancel()
        self.subscription.cancel()

    @property
    def is_live(self) -> bool:
        return not self.is_cancelled and self.gap is None

    def check(self, happened: list[tuple[int, bytes, bool]], *, wholly: bool) -> None:
        told = [(event.revision, event.key, event.is_delete) for event in self.told]
        due = [
            each for each in happened if each[0] >= self.start and each[1].startswith(self.prefix)
        ]
        assert told == due[: len(told)]
        if wholly and self.is_live:
            assert told == due


class History:
    """The keyspace and the feeds, and beside them what has happened."""

    def __init__(self, engine: HeldEngine) -> None:
        self.engine = engine
        self.feeds = watch_subscriptions.WatchSubscriptions(engine)
        self.subscribers: list[Subscriber] = []
        self.happened: list[tuple[int, bytes, bool]] = []
        self.keys: set[bytes] = set()
        self.revision = 1
        self.compacted = 0
        self.is_odd = False
        """Whether somebody begins in the future: who then comes into a group stays alone besides,
        until its next change."""

    async def put(self, keys: list[bytes]) -> None:
        self.revision = (await self.engine.txn([], [Put(key, b"", 0) for key in keys])).revision
        self.happened += [(self.revision, key, False) for key in keys]
        self.keys.update(keys)

    async def noise(self, key: bytes, count: int) -> None:
        for _ in range(2 * count):
            await self.put([key])

    async def lag(self, keys: list[bytes], ago: int) -> None:
        """Have watches fall behind, and what they have to tell next compacted."""
        await settled()
        self.engine.hold()
        for _ in range(2):
            for key in keys:
                await self.put([key])
        await self.compact(ago)

    async def delete(self, prefix: bytes) -> None:
        gone = sorted(key for key in self.keys if key.startswith(prefix))
        end = leasehold_end(prefix)
        self.revision = (await self.engine.txn([], [Delete(prefix, end)])).revision
        self.happened += [(self.revision, key, True) for key in gone]
        self.keys.difference_update(gone)

    def join(self, prefix: bytes, start: int, habit: str) -> None:
        self.subscribers.append(Subscriber(self, prefix, max(start, 1), habit))

    async def subscribe(self, prefix: bytes, ago: int, habit: str) -> None:
        self.join(prefix, self.revision + 1 - ago, habit)

    async def subscribe_many(self, prefixes: list[bytes], ago: int) -> None:
        for number, prefix in enumerate(prefixes):
            self.join(prefix, self.revision + 1 - ago + number % 2, "hears")

    async def subscribe_ahead(self, prefix: bytes, by: int) -> None:
        self.is_odd = True
        self.join(prefix, self.revision + 1 + by, "hears")

    async def cancel(self, number: int) -> None:
        for subscriber in self.subscribers[number : number + 1]:
            subscriber.cancel()

    async def compact(self, ago: int) -> None:
        revision = self.revision - ago
        if revision > max(self.compacted, 1):
            self.compacted = revision
            await self.engine.compact(revision)

    async def hold(self) -> None:
        self.engine.hold()

    async def free(self) -> None:
        self.engine.free()

    async def let(self, number: int, revisions: int) -> None:
        for watch in self.engine.open[number : number + 1]:
            watch.let(revisions)

    async def refuse(self, place: bytes) -> None:
        self.engine.refused ^= {place}

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def wait(self) -> None:
        await asyncio.sleep(COOL_S)

    async def drain(self) -> None:
        """Let everything come to rest: then all was told, and no watch is left over."""
        holds = self.engine.holds
        self.engine.free()
        await settled()
        self.check(wholly=True)
        live = [each.subscription for each in self.subscribers if each.is_live]
        assert all(each.home is not None for each in live)
        if holds:
            self.engine.hold()
        if not self.is_odd:
            self.check_watches(live)

    def check_watches(self, live: list[WatchSubscription]) -> None:
        assert all(each.target is None for each in live)
        homes = {each.home for each in live}
        assert len(self.engine.open) == len(homes) == len(self.feeds._watches)
        groups = set(self.feeds._groups.values())
        assert groups <= homes
        alone = {each for each in live if each.home not in groups}
        assert set(self.feeds._alone.get(b"", ())) == alone

    def check(self, *, wholly: bool = False) -> None:
        for subscriber in self.subscribers:
            subscriber.check(self.happened, wholly=wholly)


def leasehold_end(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes((prefix[-1] + 1,))


async def live_through(steps: list[tuple[Any, ...]]) -> None:
    async with held_engine() as engine:
        history = History(engine)
        for name, *arguments in steps:
            await getattr(history, name)(*arguments)
            history.check()
        await history.drain()
        told = sum(len(each.told) for each in history.subscribers)
        await history.feeds.close()
        await history.put([*KEYS])
        await settled()
        assert not engine.open
        assert told == sum(len(each.told) for each in history.subscribers)


@given(STEPS)
@settings(max_examples=100)
def test_every_subscriber_gets_the_changes_of_its_prefix_in_order_and_once(
    steps: list[tuple[Any, ...]],
) -> None:
    with ExitStack() as stack:
        for module, limits in LIMITS.items():
            for name, limit in limits.items():
                stack.enter_context(patch.object(module, name, limit))
        run_virtual(live_through, steps)
