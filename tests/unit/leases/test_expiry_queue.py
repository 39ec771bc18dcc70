"""The lazy heap: what it costs, what it keeps, and that no deadline is lost."""

import itertools
import random

import pytest

from leasehold.basics.durations import NEVER
from leasehold.leases.expiry_queue import REBUILD_STEP, STALE_SLACK, Deadline, ExpiryQueue


class Bench:
    """A table of deadlines with its queue."""

    def __init__(self) -> None:
        self.table: dict[int, Deadline] = {}
        self.queue: ExpiryQueue[int, Deadline] = ExpiryQueue(self.table)

    def add(self, key: int, deadline: float) -> Deadline:
        item = self.table[key] = Deadline(deadline)
        self.queue.schedule(key, item)
        return item

    def drop(self, key: int) -> None:
        self.queue.discard(self.table.pop(key))

    def move(self, key: int, deadline: float) -> None:
        item = self.table[key]
        earlier = deadline < item.deadline
        item.deadline = deadline
        if earlier:
            self.queue.schedule(key, item)

    def pop(self, now: float, budget: int = 10**9) -> list[int]:
        keys = [key for key, _ in self.queue.pop_due(now, budget)]
        for key in keys:
            del self.table[key]
        return keys

    def stale_is_bounded(self) -> bool:
        return self.queue.stale <= len(self.table) + STALE_SLACK


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_empty_queue_has_nothing_due_and_no_next_time(bench: Bench) -> None:
    assert bench.pop(1e300) == []
    assert bench.queue.next_at() == NEVER


def test_items_come_out_at_their_deadline_earliest_first(bench: Bench) -> None:
    for key, deadline in enumerate([5.0, 1.0, 3.0]):
        bench.add(key, deadline)
    assert bench.pop(0.999) == []
    assert bench.pop(3.0) == [1, 2]
    assert bench.pop(100.0) == [0]
    assert len(bench.queue) == 0


def test_the_earliest_end_is_known(bench: Bench) -> None:
    bench.add(1, 5.0)
    assert bench.queue.next_at() == 5.0
    bench.add(2, 2.0)
    assert bench.queue.next_at() == 2.0
    bench.drop(2)
    assert bench.queue.next_at() == 5.0


def test_a_queue_that_is_filled_at_once_is_as_good_as_one_that_was_filled_bit_by_bit(
    bench: Bench,
) -> None:
    deadlines = [*random.Random(1).choices(range(50), k=200), NEVER]
    other = Bench()
    for key, deadline in enumerate(deadlines):
        bench.table[key] = Deadline(deadline)
        other.add(key, deadline)
    bench.queue.schedule_all()
    assert (len(bench.queue), bench.queue.stale) == (200, 0)
    assert bench.queue.next_at() == other.queue.next_at()
    for each in (bench, other):
        each.move(7, 0.5)
        each.drop(8)
        each.add(500, 1.0)
    for now in range(51):
        assert bench.pop(now) == other.pop(now)
    assert list(bench.table) == [200]


def test_extending_touches_only_the_item(bench: Bench) -> None:
    bench.add(1, 5.0)
    for deadline in range(6, 1000):
        bench.move(1, float(deadline))
    assert len(bench.queue) == 1
    assert bench.queue.stale == 0


def test_an_extended_item_does_not_come_out_at_its_old_deadline(bench: Bench) -> None:
    bench.add(1, 5.0)
    bench.move(1, 9.0)
    assert bench.pop(5.0) == []
    assert bench.queue.next_at() == 9.0
    assert bench.pop(8.9) == []
    assert bench.pop(9.0) == [1]


def test_the_next_time_may_be_early_but_is_never_late(bench: Bench) -> None:
    bench.add(1, 5.0)
    bench.move(1, 9.0)
    assert bench.queue.next_at() <= 9.0


def test_shortening_pushes_an_entry_and_the_item_comes_out_once(bench: Bench) -> None:
    bench.add(1, 9.0)
    bench.move(1, 5.0)
    assert (len(bench.queue), bench.queue.stale) == (2, 1)
    assert bench.pop(5.0) == [1]
    assert bench.pop(100.0) == []
    assert len(bench.queue) == 0


def test_an_item_without_end_is_not_queued(bench: Bench) -> None:
    bench.add(1, NEVER)
    assert len(bench.queue) == 0
    assert bench.queue.next_at() == NEVER
    bench.move(1, 5.0)
    assert bench.pop(5.0) == [1]


def test_an_item_that_loses_its_end_leaves_the_queue_when_it_comes_up(bench: Bench) -> None:
    bench.add(1, 5.0)
    bench.move(1, NEVER)
    assert bench.pop(5.0) == []
    assert len(bench.queue) == 0
    bench.move(1, 7.0)
    assert bench.pop(7.0) == [1]


def test_an_item_can_be_queued_for_another_time_than_its_deadline(bench: Bench) -> None:
    item = bench.table[1] = Deadline(5.0)
    bench.queue.schedule(1, item, 8.0)
    assert bench.queue.next_at() == 8.0
    assert bench.pop(7.9) == []
    assert bench.pop(8.0) == [1]


def test_a_key_that_is_used_again_does_not_inherit_the_old_entry(bench: Bench) -> None:
    bench.add(1, 5.0)
    bench.drop(1)
    bench.add(1, 9.0)
    assert bench.pop(5.0) == []
    assert bench.pop(9.0) == [1]


def test_discarding_twice_is_as_good_as_once(bench: Bench) -> None:
    item = bench.add(1, 5.0)
    bench.add(2, 6.0)
    bench.drop(1)
    bench.queue.discard(item)
    assert bench.queue.stale == 1
    assert bench.pop(10.0) == [2]


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_pass_is_bounded_in_work(bench: Bench, budget: int) -> None:
    for key in range(10):
        bench.add(key, 1.0)
    assert len(bench.pop(2.0, budget)) == budget
    assert len(bench.table) == 10 - budget


def test_stale_and_early_entries_count_as_work_too(bench: Bench) -> None:
    for key in range(10):
        bench.add(key, 1.0)
    for key in range(9):
        bench.move(key, 50.0)
    bench.move(9, 1.5)
    assert bench.pop(2.0, 9) == []
    assert bench.pop(2.0, 1) == [9]


def test_a_million_grants_and_cancels_at_long_terms_leave_memory_flat(bench: Bench) -> None:
    for key in range(1000):
        bench.add(key, 1e9)
    for key in range(1000, 101_000):  # a tenth of a million shows it as well
        bench.add(key, 1e9)
        bench.drop(key)
        assert len(bench.queue) <= 2 * len(bench.table) + STALE_SLACK
        assert bench.stale_is_bounded()


@pytest.mark.parametrize("live", [0, 1, 10, 1000])
def test_stale_entries_never_exceed_the_live_ones_plus_a_constant_when_shortening(
    bench: Bench, live: int
) -> None:
    for key in range(live):
        bench.add(key, 1e9)
    for turn in range(5000 if live else 0):
        bench.move(turn % live, 1e9 - turn - 1)
        assert bench.stale_is_bounded()
    assert len(bench.table) == live


@pytest.mark.parametrize("live", [100, 1000, 5000])
def test_stale_entries_never_exceed_the_live_ones_plus_a_constant_when_all_leave(
    bench: Bench, live: int
) -> None:
    for key in range(live):
        bench.add(key, 1e9 + key)
    for key in range(live):
        bench.drop(key)
        assert bench.stale_is_bounded()


@pytest.mark.parametrize("budget", [1, 16, 256])
def test_stale_entries_never_exceed_the_live_ones_plus_a_constant_when_the_live_ones_expire(
    bench: Bench, budget: int
) -> None:
    for key in range(2000):
        bench.add(key, 1.0)
    for key in range(2000, 2900):
        bench.add(key, 1e9)
    for key in range(2000, 2900):
        bench.drop(key)
    while bench.pop(2.0, budget):
        assert bench.stale_is_bounded()
    assert not bench.table


def test_a_rebuild_is_never_done_in_one_go(bench: Bench) -> None:
    for key in range(10_000):
        bench.add(key, 1e9)
    lengths = [len(bench.queue)]
    for key in range(10_000):
        bench.drop(key)
        lengths.append(len(bench.queue))
    steps = [before - after for before, after in itertools.pairwise(lengths)]
    assert 0 < max(steps) <= REBUILD_STEP


@pytest.mark.parametrize("seed", range(10))
def test_no_deadline_is_lost_early_or_doubled_whatever_happens(seed: int) -> None:
    chance, bench, now, made = random.Random(seed), Bench(), 0.0, 0
    for _ in range(5000):
        match chance.randrange(6):
            case 0 | 1:
                made += 1
                bench.add(made, now + chance.choice([1.0, 50.0, 1000.0, NEVER]))
            case 2 if bench.table:
                bench.drop(chance.choice(list(bench.table)))
            case 3 | 4 if bench.table:
                key = chance.choice(list(bench.table))
                bench.move(key, now + chance.choice([0.5, 10.0, 500.0, NEVER]))
            case _:
                now += chance.random()
                due = {key for key, item in bench.table.items() if item.deadline <= now}
                assert set(bench.pop(now)) == due
        earliest = min((item.deadline for item in bench.table.values()), default=NEVER)
        assert bench.queue.next_at() <= earliest
        assert bench.stale_is_bounded()
