"""Threads for callbacks: daemons, as many as needed up to a limit, in order where it counts."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from leasehold.basics import workers
from leasehold.basics.workers import SerialExecutor, WorkerExecutor, WorkerPool
from tests.support.scripts import until

WITHIN_S = 30.0


def _started(jobs: WorkerPool, count: int, gate: threading.Event) -> list[threading.Thread]:
    """Begin jobs that wait for a gate; give the threads that they are in."""
    seen: list[threading.Thread] = []
    began = threading.Semaphore(0)

    def job() -> None:
        seen.append(threading.current_thread())
        began.release()
        gate.wait(WITHIN_S)

    for _ in range(count):
        jobs.submit(job)
    for _ in range(count):
        assert began.acquire(timeout=WITHIN_S)
    return seen


def _do(jobs: WorkerPool) -> threading.Thread:
    """Have something done; give the thread that did it, which is idle soon."""
    found: list[threading.Thread] = []
    done = threading.Event()

    def job() -> None:
        found.append(threading.current_thread())
        done.set()

    jobs.submit(job)
    assert done.wait(WITHIN_S)
    return found[0]


def test_a_job_that_hangs_does_not_hold_up_others() -> None:
    gate = threading.Event()
    threads = _started(WorkerPool("job", 3), 3, gate)
    gate.set()
    assert len(set(threads)) == 3
    assert all(thread.daemon for thread in threads)


def test_what_is_beyond_the_limit_waits_for_a_thread() -> None:
    gate, last = threading.Event(), threading.Event()
    jobs = WorkerPool("job", 2)
    _started(jobs, 2, gate)
    jobs.submit(last.set)
    assert not last.is_set()
    gate.set()
    assert last.wait(WITHIN_S)


def test_an_idle_thread_is_used_again() -> None:
    jobs = WorkerPool("job", 100)
    threads = set()
    for _ in range(100):
        threads.add(_do(jobs))
    assert len(threads) < 100


def test_threads_that_have_been_idle_for_long_end_but_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.05)
    gate = threading.Event()
    jobs = WorkerPool("job", 5)
    threads = _started(jobs, 5, gate)
    gate.set()
    until(lambda: sum(each.is_alive() for each in threads) == 1)
    (last,) = (each for each in threads if each.is_alive())
    last.join(5 * workers.IDLE_S)
    assert _do(jobs) is last


def test_no_thread_stays_after_a_close_and_a_later_job_starts_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.05)
    jobs = WorkerPool("job", 1)
    first = _do(jobs)
    jobs.close()
    until(lambda: not first.is_alive())
    second = _do(jobs)
    assert second is not first
    until(lambda: not second.is_alive())


def test_a_job_that_fails_does_not_end_its_thread() -> None:
    def fail() -> None:
        raise ValueError("it was to fail")

    jobs = WorkerPool("job", 1)
    first = _do(jobs)
    jobs.submit(fail)
    assert _do(jobs) is first


def test_a_serial_executor_runs_one_job_at_a_time_and_in_order() -> None:
    executor = SerialExecutor(WorkerPool("job", 10))
    order: list[int] = []
    running = threading.Lock()
    done = threading.Event()

    def job(number: int) -> None:
        assert running.acquire(blocking=False)
        order.append(number)
        running.release()
        if number == 199:
            done.set()

    for number in range(200):
        executor.submit(partial(job, number))
    assert done.wait(WITHIN_S)
    assert order == list(range(200))


def test_a_job_that_fails_does_not_end_its_executor() -> None:
    def fail() -> None:
        raise ValueError("it was to fail")

    executor = SerialExecutor(WorkerPool("job", 1))
    done = threading.Event()
    executor.submit(fail)
    executor.submit(done.set)
    assert done.wait(WITHIN_S)


@pytest.mark.parametrize("ends", [False, True])
def test_an_executor_tells_what_became_of_a_job(ends: bool) -> None:
    def job(text: str, *, is_fine: bool) -> str:
        if not is_fine:
            raise ValueError(text)
        return text

    future = WorkerExecutor("job", 1).submit(job, "well", is_fine=ends)
    if ends:
        assert future.result(WITHIN_S) == "well"
    else:
        assert isinstance(future.exception(WITHIN_S), ValueError)


def test_no_more_threads_can_be_started_when_the_interpreter_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = WorkerPool("job", 2)
    first = _do(jobs)
    gate, done = threading.Event(), threading.Event()
    jobs.submit(partial(gate.wait, WITHIN_S))

    def refuse(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        jobs.submit(done.set)
        with pytest.raises(RuntimeError):
            WorkerPool("job", 1).submit(_nothing())
    gate.set()
    assert done.wait(WITHIN_S)
    assert first.is_alive()


def _nothing() -> Callable[[], object]:
    return lambda: None
