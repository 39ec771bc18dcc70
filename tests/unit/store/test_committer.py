"""Group commit: what goes together, where it is done, and what happens when it fails."""

import asyncio
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from leasehold.errors import JournalFailed
from leasehold.store import committer as committers
from leasehold.store.committer import (
    MAX_SKIPPED,
    MIN_SKIPPED,
    WAIT_S,
    CommitPatience,
    Handover,
    Wakeup,
)
from tests.support.committer_bench import DEADLINE_S, Bench, FakeJournal, with_bench


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


LONG_S = 5.0
"""Longer than a commit of these tests takes, however busy the machine is."""


@pytest.fixture
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "WAIT_S", LONG_S)


@pytest.mark.usefixtures("long_wait")
def test_no_commit_is_made_on_the_event_loop() -> None:
    @with_bench
    async def run(bench: Bench) -> None:
        for _ in range(5 * MIN_SKIPPED):
            await bench.put_and_idle()
        assert bench.committer.patience.waits
        assert set(bench.journal.threads) == {"leasehold-commit"}

    run()


@pytest.mark.usefixtures("long_wait")
def test_the_loop_waits_for_a_fast_disk_while_it_has_nothing_else_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(CommitPatience, "waited", lambda _, *, in_time: waited.append(in_time))

    @with_bench
    async def run(bench: Bench) -> None:
        await bench.until_it_waits()
        assert waited == []
        await bench.put_and_idle()
        assert waited == [True]

    run()


@pytest.mark.usefixtures("long_wait")
def test_the_loop_does_not_wait_while_it_has_something_else_to_do() -> None:
    @with_bench
    async def run(bench: Bench) -> None:
        await bench.until_it_waits()
        bench.journal.gate = gate = threading.Event()
        bench.put()
        asyncio.get_running_loop().call_soon(bench.committer._flush)
        asyncio.get_running_loop().call_soon(gate.set)  # behind the flush: the commit needs it
        await bench.until(lambda: len(bench.durable) == len(bench.journal.rows))

    run()


@with_bench
async def test_a_commit_that_stalls_does_not_stop_the_loop(bench: Bench) -> None:
    await bench.until_it_waits()
    bench.journal.gate = threading.Event()
    position = bench.put()
    await asyncio.sleep(WAIT_S)  # the loop is idle, so it waits for the commit
    for _ in range(100):
        await asyncio.sleep(0)  # the loop goes on, and nothing is released
    assert bench.store.durable < position
    assert not bench.committer.patience.waits
    bench.journal.gate.set()
    await bench.until(lambda: bench.store.durable == position)
    assert bench.durable == sorted(set(bench.durable))


@with_bench
async def test_a_checkpoint_is_made_after_the_answers_left(bench: Bench) -> None:
    await bench.until_it_waits()
    bench.journal.wants_checkpoint = True
    await bench.put_and_wait()
    await bench.until(lambda: bool(bench.journal.checkpoints))
    await bench.put_and_wait()
    assert bench.durable == list(range(1, len(bench.durable) + 1))


@with_bench
async def test_it_is_known_how_long_a_change_waits_for_the_disk(bench: Bench) -> None:
    assert bench.committer.outstanding_s == 0
    bench.journal.gate = threading.Event()
    position = bench.put()
    bench.now += 7.0
    assert bench.committer.outstanding_s == 7.0
    await bench.until(bench.journal.entered.is_set)
    bench.now += 4.0
    assert bench.committer.outstanding_s == 11.0
    bench.journal.gate.set()
    await bench.until(lambda: bench.store.durable == position)
    assert bench.committer.outstanding_s == 0


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


@with_bench
async def test_closing_closes_the_pipes(bench: Bench) -> None:
    pipes = bench.committer._thread_wakeup, bench.committer._loop_wakeup
    assert all(pipe._reader >= 0 <= pipe._writer for pipe in pipes)
    await bench.put_and_wait()
    await bench.committer.close()
    assert all(pipe._reader == -1 == pipe._writer for pipe in pipes)


@pytest.mark.usefixtures("long_wait")
@pytest.mark.parametrize("waits", [False, True])
def test_after_a_failure_nothing_is_committed_or_released(waits: bool) -> None:
    @with_bench
    async def run(bench: Bench) -> None:
        await bench.put_and_wait()
        if waits:
            await bench.until_it_waits()
            await bench.put_and_idle()
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


# Whether to wait.


def commits_until_it_waits(patience: CommitPatience, cost_s: float = WAIT_S / 2) -> int:
    for number in range(10 * MAX_SKIPPED):
        if patience.waits:
            return number
        patience.note(cost_s)
    raise AssertionError("it never waits")


def test_a_slow_disk_is_not_waited_for() -> None:
    patience = CommitPatience()
    for _ in range(10 * MAX_SKIPPED):
        patience.note(WAIT_S * 10)
        assert not patience.waits


def test_a_thread_that_has_to_fight_for_the_interpreter_is_not_taken_for_a_slow_disk() -> None:
    assert commits_until_it_waits(CommitPatience(), WAIT_S * 2) == MIN_SKIPPED


def test_each_commit_that_is_late_makes_the_next_wait_rarer_up_to_a_limit() -> None:
    patience = CommitPatience()
    stays = []
    for _ in range(12):
        stays.append(commits_until_it_waits(patience))
        patience.waited(in_time=False)
    assert stays[1:4] == [MIN_SKIPPED, 2 * MIN_SKIPPED, 4 * MIN_SKIPPED]
    assert stays[-1] == MAX_SKIPPED
    commits_until_it_waits(patience)
    for _ in range(MAX_SKIPPED):
        patience.waited(in_time=True)
    patience.waited(in_time=False)
    assert commits_until_it_waits(patience) == MIN_SKIPPED


# A commit is completed once.


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    assert not made.wait_for(0.0), "a byte was left for the next handover"
    made.close()


def test_a_commit_that_is_done_before_the_loop_waits_is_completed_by_the_loop(
    wakeup: Wakeup,
) -> None:
    handover = Handover(wakeup, is_waiting=True)
    assert handover.done()
    assert handover.wait(0.0)


def test_a_commit_that_is_late_is_completed_by_the_callback(wakeup: Wakeup) -> None:
    handover = Handover(wakeup, is_waiting=True)
    assert not handover.wait(0.0)
    assert not handover.done()


def test_a_commit_that_nobody_waits_for_is_completed_by_the_callback(wakeup: Wakeup) -> None:
    assert not Handover(wakeup, is_waiting=False).done()


def test_a_commit_that_is_done_just_when_the_wait_ends_is_completed_by_the_loop() -> None:
    told: list[bool] = []

    class JustDone(Wakeup):
        def wait_for(self, timeout_s: float) -> bool:
            told.append(handover.done())
            return False

    wakeup = JustDone()
    handover = Handover(wakeup, is_waiting=True)
    assert handover.wait(1.0)
    assert told == [True]
    assert not Wakeup.wait_for(wakeup, 0.0)
    wakeup.close()


def test_a_wakeup_of_an_earlier_handover_is_not_taken_for_the_end_of_a_commit(
    wakeup: Wakeup,
) -> None:
    wakeup.set()
    handover = Handover(wakeup, is_waiting=True)
    assert not handover.wait(1.0)
    assert not handover.done()


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_commit_is_completed_if_a_signal_handler_raises_while_the_loop_waits(
    monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    @with_bench
    async def run(bench: Bench) -> None:
        await bench.until_it_waits()
        bench.journal.gate = gate = threading.Event()
        loop = asyncio.get_running_loop()
        raised = loop.create_future()
        loop.set_exception_handler(lambda _loop, context: raised.set_result(context["exception"]))

        def interrupted(wakeup: Wakeup, _timeout_s: float) -> bool:
            if is_done:
                gate.set()
                wakeup.wait()
            raise InterruptedError

        with monkeypatch.context() as patched:
            patched.setattr(Wakeup, "wait_for", interrupted)
            position = bench.put()
            async with asyncio.timeout(DEADLINE_S):
                assert isinstance(await raised, InterruptedError)
        gate.set()
        await bench.until(lambda: bench.store.durable >= position)
        assert bench.durable.count(position) == 1

    run()


def test_a_commit_is_completed_once_however_wait_and_end_fall(wakeup: Wakeup) -> None:
    random = Random(16)
    by_loop = 0
    for _ in range(500):
        handover = Handover(wakeup, is_waiting=True)
        told: list[bool] = []
        begun = threading.Barrier(2)

        def commit(
            handover: Handover = handover,
            told: list[bool] = told,
            begun: threading.Barrier = begun,
            spins: int = random.randrange(3_000),
        ) -> None:
            begun.wait()
            for _ in range(spins):
                pass
            told.append(handover.done())

        thread = threading.Thread(target=commit)
        thread.start()
        begun.wait()
        is_ours = handover.wait(random.random() * 0.0001)
        thread.join()
        assert told == [is_ours]
        by_loop += is_ours
    assert told


@pytest.mark.parametrize("seed", range(20))
def test_every_batch_is_released_once_in_order_and_a_failure_is_told_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that take shorter and longer than the wait; the last one may fail."""
    random = Random(seed)
    monkeypatch.setattr(committers, "WAIT_S", 0.0002)
    monkeypatch.setattr(committers, "MIN_SKIPPED", 0)
    fails = bool(seed % 2)

    class UnevenJournal(FakeJournal):
        def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
            time.sleep(random.choice((0.0, 0.0, 0.0001, 0.0002, 0.0003, 0.001)))
            self.wants_checkpoint = random.random() < 0.2
            super().append(first_revision, last_revision, changes)

    async def main() -> None:
        bench = Bench(UnevenJournal())
        for _ in range(50):
            position = bench.put(random.randrange(1, 4))
            if random.random() < 0.7:
                await bench.put_and_idle()
        await bench.until(lambda: bench.store.durable >= position)
        assert bench.durable == list(range(1, len(bench.durable) + 1))
        assert len(bench.journal.rows) == len(bench.durable)
        if fails:
            bench.journal.failure = JournalFailed("no space")
            bench.put()
            await bench.until(lambda: bool(bench.failures))
        async with asyncio.timeout(DEADLINE_S):
            await bench.committer.close()
        assert len(bench.failures) == fails
        assert bench.durable == list(range(1, len(bench.durable) + 1))

    asyncio.run(main())
