"""Group commit: what goes together, where it is done, and what happens when it fails."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leasehold.core.ops import Put
from leasehold.engine.committer import (
    INLINE_S,
    MAX_PATIENCE,
    RECENT,
    STALL_S,
    Committer,
    Pace,
)
from leasehold.engine.store import Store
from leasehold.errors import JournalFailed

DEADLINE_S = 10.0


class FakeJournal:
    """A journal in memory. Appends wait for `gate` and raise `failure`, if there is one."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, bytes]] = []
        self.threads: list[str] = []
        self.checkpoints: list[int] = []
        self.wants_checkpoint = False
        self.used_bytes = 0
        self.has_failed = False
        self.gate: threading.Event | None = None
        self.failure: Exception | None = None
        self.entered = threading.Event()

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure
        self.rows.append((first_revision, last_revision, changes))
        self.threads.append(threading.current_thread().name)

    def checkpoint(self) -> None:
        self.checkpoints.append(len(self.rows))
        self.wants_checkpoint = False


class Bench:
    """A store and its committer, on a fake journal and a clock that says what commits cost."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.start()
        self.journal = FakeJournal()
        self.failures: list[BaseException] = []
        self.now = 0.0
        self.cost_s = 0.0
        self.durable: list[int] = []
        self.store.on_durable = self.durable.append
        journal: Any = self.journal
        self.is_alone = False
        self.committer = Committer(
            self.store,
            journal,
            self.failures.append,
            is_alone=lambda: self.is_alone,
            clock=self.clock,
        )

    def clock(self) -> float:
        self.now += self.cost_s
        return self.now

    def put(self, count: int = 1) -> int:
        for _ in range(count):
            _, position = self.store.apply(Put(b"key", b"value"))
        return position

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  what it waits for sets no event
                await asyncio.sleep(0)

    async def put_and_wait(self) -> None:
        position = self.put()
        await self.until(lambda: self.store.durable >= position)

    @property
    def place(self) -> str:
        return "thread" if self.journal.threads[-1] == "leasehold-commit" else "inline"


def with_bench(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        bench = Bench()
        await test(bench)
        if not bench.failures:
            await bench.committer.close()

    def run() -> None:
        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@with_bench
async def test_what_comes_in_one_turn_is_one_batch(bench: Bench) -> None:
    position = bench.put(100)
    assert bench.journal.rows == []
    await bench.until(lambda: bench.store.durable == position)
    assert [(first, last) for first, last, _ in bench.journal.rows] == [(2, 101)]


@with_bench
async def test_what_comes_while_a_batch_is_under_way_is_the_next_batch(bench: Bench) -> None:
    bench.journal.gate = threading.Event()
    first = bench.put()
    await bench.until(bench.journal.entered.is_set)
    second = bench.put(50)
    assert second == first + 1
    assert bench.store.durable < first
    bench.journal.gate.set()
    await bench.until(lambda: bench.store.durable == second)
    assert [row[:2] for row in bench.journal.rows] == [(2, 2), (3, 52)]
    assert bench.durable == [first, second]


@with_bench
async def test_the_first_commits_are_in_the_thread(bench: Bench) -> None:
    bench.cost_s = INLINE_S / 10
    for _ in range(RECENT):
        await bench.put_and_wait()
        assert bench.place == "thread"


@with_bench
async def test_fast_commits_move_inline_and_slow_ones_back(bench: Bench) -> None:
    bench.cost_s = INLINE_S / 10
    for _ in range(RECENT + 1):
        await bench.put_and_wait()
    assert bench.place == "inline"
    bench.cost_s = INLINE_S * 50
    await bench.put_and_wait()
    for _ in range(3 * RECENT):
        await bench.put_and_wait()
        assert bench.place == "thread"


@with_bench
async def test_a_client_that_is_alone_is_served_inline_unless_the_disk_is_slow_most_of_the_time(
    bench: Bench,
) -> None:
    bench.is_alone = True
    bench.cost_s = INLINE_S * 2
    for _ in range(RECENT):
        await bench.put_and_wait()
    for cost_s in (INLINE_S * 2, STALL_S * 50, INLINE_S * 2, STALL_S * 3, INLINE_S * 2):
        bench.cost_s = cost_s
        await bench.put_and_wait()
        assert bench.place == "inline"
    bench.is_alone = False
    await bench.put_and_wait()
    assert bench.place == "thread"
    bench.is_alone = True
    bench.cost_s = STALL_S * 2
    for _ in range(RECENT):
        await bench.put_and_wait()
    await bench.put_and_wait()
    assert bench.place == "thread"


@with_bench
async def test_an_inline_commit_is_durable_before_the_next_turn(bench: Bench) -> None:
    bench.cost_s = INLINE_S / 10
    for _ in range(RECENT):
        await bench.put_and_wait()
    position = bench.put()
    await asyncio.sleep(0)
    assert bench.store.durable == position


@with_bench
async def test_a_checkpoint_is_made_in_the_thread_after_the_answers_left(bench: Bench) -> None:
    bench.cost_s = INLINE_S / 10
    for _ in range(RECENT):
        await bench.put_and_wait()
    bench.journal.wants_checkpoint = True
    await bench.put_and_wait()
    assert bench.place == "thread"
    await bench.until(lambda: bool(bench.journal.checkpoints))
    await bench.put_and_wait()
    assert bench.place == "inline"


@with_bench
async def test_closing_writes_what_is_left(bench: Bench) -> None:
    bench.journal.gate = threading.Event()
    bench.put()
    await bench.until(bench.journal.entered.is_set)
    position = bench.put()
    closing = asyncio.ensure_future(bench.committer.close())
    await asyncio.sleep(0)
    bench.journal.gate.set()
    async with asyncio.timeout(DEADLINE_S):
        await closing
    assert bench.store.durable == position


@pytest.mark.parametrize("inline", [False, True])
def test_after_a_failure_nothing_is_committed_or_released(inline: bool) -> None:
    @with_bench
    async def run(bench: Bench) -> None:
        bench.cost_s = INLINE_S / 10
        for _ in range(RECENT + 1 if inline else 1):
            await bench.put_and_wait()
        durable, rows = bench.store.durable, len(bench.journal.rows)
        bench.journal.failure = JournalFailed("no space")
        bench.put()
        await bench.until(lambda: bool(bench.failures))
        bench.journal.failure = None
        bench.put()
        for _ in range(10):
            await asyncio.sleep(0)
        assert bench.failures == [bench.failures[0]]
        assert isinstance(bench.failures[0], JournalFailed)
        assert bench.store.durable == durable
        assert len(bench.journal.rows) == rows
        async with asyncio.timeout(DEADLINE_S):
            await bench.committer.close()

    run()


def test_the_pace_forgives_the_thread_its_wait_for_the_interpreter() -> None:
    pace = Pace()
    for cost_s in (INLINE_S * 9, INLINE_S * 9, INLINE_S / 2, *[INLINE_S * 5] * 5):
        assert not pace.is_inline
        pace.note(cost_s)
    assert pace.is_inline


def inline_pace() -> Pace:
    pace = Pace()
    for _ in range(RECENT):
        pace.note(INLINE_S / 2)
    assert pace.is_inline
    return pace


def commits_until(pace: Pace, place: bool, cost_s: float) -> int:
    """How many commits of this cost it takes until they are done inline, or not."""
    for commits in range(10_000):
        if pace.is_inline is place:
            return commits
        pace.note(cost_s)
    raise AssertionError("never")


def test_one_slow_commit_among_fast_ones_does_not_move_the_pace() -> None:
    pace = inline_pace()
    for _ in range(5):
        pace.note(INLINE_S * 2)
        assert pace.is_inline
        for _ in range(RECENT):
            pace.note(INLINE_S / 2)
    pace.note(INLINE_S * 2)
    pace.note(INLINE_S * 2)
    assert not pace.is_inline


def test_one_stall_moves_the_pace() -> None:
    pace = inline_pace()
    pace.note(STALL_S * 2)
    assert not pace.is_inline


def test_a_disk_that_stalls_again_and_again_stays_in_the_thread_for_longer() -> None:
    pace = inline_pace()
    stays = []
    for _ in range(20):
        pace.note(STALL_S * 2)
        stays.append(commits_until(pace, True, INLINE_S / 2))
    assert stays[:4] == [2 * RECENT, 4 * RECENT, 8 * RECENT, 16 * RECENT]
    assert stays[-1] == MAX_PATIENCE


def test_patience_comes_back_with_commits_that_go_well() -> None:
    pace = inline_pace()
    for _ in range(4):
        pace.note(STALL_S * 2)
        stay = commits_until(pace, True, INLINE_S / 2)
    for _ in range(stay):
        pace.note(INLINE_S / 2)
    pace.note(STALL_S * 2)
    assert commits_until(pace, True, INLINE_S / 2) == 2 * RECENT
