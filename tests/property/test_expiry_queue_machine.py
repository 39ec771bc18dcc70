"""`ExpiryQueue` against a dict of deadlines that is searched from end to end."""

from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.basics.durations import NEVER
from leasehold.leases.expiry_queue import (
    NEXT_LOOKS,
    REBUILD_STEP,
    STALE_SLACK,
    Deadline,
    ExpiryQueue,
)
from tests.property.support import effort

T = TypeVar("T")

LOOKS_PER_OPERATION: Final = REBUILD_STEP + 1
"""Entries that one operation may look at: its own, and one step of a rebuild."""

LAST: Final = 1e300


class CountingTable(dict[int, Deadline]):
    """The table behind a queue, which counts the looks at it."""

    looks = 0

    def get(self, key: int, default: Any = None, /) -> Any:
        self.looks += 1
        return super().get(key, default)


class NaiveQueue:
    """A queue and its model, one operation at a time, with the bounds checked after each."""

    def __init__(self) -> None:
        self.table = CountingTable()
        self.queue: ExpiryQueue[int, Deadline] = ExpiryQueue(self.table)
        self.model: dict[int, float] = {}
        self.next_key = 0
        self.rebuilds = 0

    def add(self, deadline: float) -> None:
        key, self.next_key = self.next_key, self.next_key + 1
        self.table[key] = Deadline(deadline)
        self.model[key] = deadline
        self.bounded(lambda: self.queue.schedule(key, self.table[key]))

    def move(self, key: int, deadline: float) -> None:
        """Move a deadline; later ones need not be told, and are not."""
        item = self.table[key]
        self.model[key] = item.deadline = deadline
        if deadline < item.queued_at:
            self.bounded(lambda: self.queue.schedule(key, item))

    def drop(self, key: int) -> None:
        del self.model[key]
        item = self.table.pop(key)
        self.bounded(lambda: self.queue.discard(item))

    def one_pass(self, now: float, budget: int) -> set[int]:
        """Take out what is due; it leaves the table, as a lease does that ends."""
        popped = self.bounded(lambda: self.queue.pop_due(now, budget), budget * LOOKS_PER_OPERATION)
        assert len(popped) <= budget
        for key, item in popped:
            assert item is self.table[key]
            assert self.model[key] <= now
            assert item.queued_at == NEVER
            self.drop(key)
        return {key for key, _ in popped}

    def all_due(self, now: float, budget: int) -> None:
        """Take passes until no more is due: exactly the due ones must have come, once each."""
        due = {key for key, deadline in self.model.items() if deadline <= now}
        popped: set[int] = set()
        while self.earliest() <= now:
            popped |= self.one_pass(now, budget)
        assert popped == due

    def earliest(self) -> float:
        at = self.bounded(self.queue.next_at, NEXT_LOOKS)
        assert at <= min(self.model.values(), default=NEVER)
        return at

    def bounded(self, operation: Callable[[], T], allowed: int = LOOKS_PER_OPERATION) -> T:
        looks, rebuilding = self.table.looks, bool(self.queue._old)
        result = operation()
        assert self.table.looks - looks <= allowed, "more work than one operation may be"
        self.rebuilds += bool(self.queue._old) and not rebuilding
        self.check_stale()
        return result

    def check_stale(self) -> None:
        live = self.queue._live
        assert len(self.queue) == live + self.queue.stale
        assert 0 <= self.queue.stale <= live + STALE_SLACK, "stale entries pile up"

    def check_places(self) -> None:
        queued = [item for item in self.table.values() if item.queued_at != NEVER]
        assert len(queued) == self.queue._live
        assert all(item.queued_at <= item.deadline for item in self.table.values())
        entries = {(at, ticket) for at, ticket, _ in self.queue._heap + self.queue._old}
        assert {(item.queued_at, item.ticket) for item in queued} <= entries


deadlines = st.floats(0.0, 1000.0) | st.sampled_from([0.0, 1.0, 2.0, 500.0, 1e9, NEVER])
populations = st.sampled_from([1, 2, 30, 200, 1000])
randoms = st.integers(0, 2**32).map(Random)
budgets = st.sampled_from([1, 7, 16, 256])


class ExpiryQueueMachine(RuleBasedStateMachine):
    """Single operations and bulk ones, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.naive = NaiveQueue()
        self.now = 0.0

    @property
    def model(self) -> dict[int, float]:
        return self.naive.model

    @initialize(count=populations, random=randoms)
    def begin(self, count: int, random: Random) -> None:
        self.add_many(count, random)

    @rule(count=populations, random=randoms)
    def add_many(self, count: int, random: Random) -> None:
        for _ in range(count):
            self.naive.add(self.now + random.choice([random.uniform(0, 100), 1e6, NEVER]))

    @rule(deadline=deadlines)
    def add_one(self, deadline: float) -> None:
        self.naive.add(deadline)

    @precondition(lambda self: self.model)
    @rule(
        fraction=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
        order=st.sampled_from(["random", "earliest first", "latest first"]),
        random=randoms,
    )
    def drop_many(self, fraction: float, order: str, random: Random) -> None:
        keys = sorted(self.model, key=self.model.__getitem__, reverse=order == "latest first")
        if order == "random":
            random.shuffle(keys)
        for key in keys[: int(len(keys) * fraction)]:
            self.naive.drop(key)

    @precondition(lambda self: self.model)
    @rule(random=randoms, deadline=deadlines)
    def move_one(self, random: Random, deadline: float) -> None:
        self.naive.move(random.choice(list(self.model)), deadline)

    @precondition(lambda self: self.model)
    @rule(random=randoms, by=st.sampled_from([-50.0, -1.0, 1.0, 50.0, NEVER]))
    def move_many(self, random: Random, by: float) -> None:
        for key in random.choices(list(self.model), k=len(self.model)):
            self.naive.move(key, max(self.now, self.model[key] + by))

    @precondition(lambda self: self.model)
    @rule(random=randoms)
    def come_and_go(self, random: Random) -> None:
        """Grants and cancels at long terms, over a steady population."""
        for key in list(self.model):
            self.naive.drop(key)
            self.naive.add(self.now + 1e6 + random.random())

    @rule(step=st.sampled_from([0.0, 0.5, 10.0, 100.0, 2000.0]), budget=budgets)
    def pop_one_pass(self, step: float, budget: int) -> None:
        self.now += step
        self.naive.one_pass(self.now, budget)

    @rule(step=st.sampled_from([0.0, 0.5, 10.0, 100.0, 2e6]), budget=budgets)
    def pop_all_due(self, step: float, budget: int) -> None:
        self.now += step
        self.naive.all_due(self.now, budget)

    @rule()
    def ask_for_the_earliest(self) -> None:
        self.naive.earliest()

    @invariant()
    def every_deadline_is_queued_in_time(self) -> None:
        self.naive.check_stale()
        self.naive.check_places()

    def teardown(self) -> None:
        """Whatever was done, each finite deadline comes up once, and no entry is left."""
        self.naive.all_due(LAST, 256)
        assert self.naive.queue._live == 0
        assert self.naive.queue.next_at() == NEVER


TestExpiryQueue = ExpiryQueueMachine.TestCase
TestExpiryQueue.settings = effort(120, steps=30)


def test_rebuilds_happen_and_memory_stays_flat_over_many_grants_and_cancels() -> None:
    naive, random = NaiveQueue(), Random(1)
    for _ in range(1000):
        naive.add(1e6 + random.random())
    for _ in range(20_000):
        naive.drop(next(iter(naive.model)))
        naive.add(1e6 + random.random())
    assert naive.rebuilds > 10
    naive.check_places()


def test_the_earliest_is_found_in_bounded_work_after_a_mass_cancel() -> None:
    naive = NaiveQueue()
    for at in range(3000):
        naive.add(float(at))
    for key in range(900):  # not enough for a rebuild
        naive.drop(key)
    naive.earliest()


def test_stale_entries_go_when_the_live_ones_expire() -> None:
    naive = NaiveQueue()
    for at in range(1000):
        naive.add(float(at))
    for _ in range(500):
        naive.add(1e6)
    for key in range(1000, 1450):
        naive.drop(key)
    naive.all_due(1000.0, 256)
