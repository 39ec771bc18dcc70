"""Shared locks, semaphores, barriers and elections for threads."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import pytest

import leasehold.sync
from leasehold import LockDenied, LockLost, NotHeld
from leasehold.sync.guard import Guard

WITHIN_S: Final = 60.0
FREE_WITHIN_S: Final = 8.0
"""Shorter than the TTL of a session: what is free by then was released."""


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:", name="me") as opened:
        yield opened


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def keys(client: leasehold.sync.Client, prefix: str) -> list[bytes]:
    return [pair.key for pair in client.kv.range(prefix, prefix=True).pairs]


def until(condition: Callable[[], object]) -> None:
    """Wait for something that nobody tells of."""
    for _ in range(int(WITHIN_S / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not come to that")


def test_readers_share_and_a_writer_is_alone(
    client: leasehold.sync.Client, threads: ThreadPoolExecutor
) -> None:
    lock = client.rwlock("config")
    with lock.read() as one, lock.read(timeout=0) as two:
        assert one.token < two.token
        with pytest.raises(LockDenied) as denied:
            lock.write(timeout=0)
        assert denied.value.holder == "me"
        writing = threads.submit(lock.write)
        until(lambda: len(keys(client, "config/")) == 3)
        assert not writing.done()
    with writing.result(WITHIN_S) as guard:
        guard.check()
    with pytest.raises(NotHeld):
        guard.release()
    until(lambda: not keys(client, "config/"))


def test_a_handle_of_a_semaphore_may_be_shared_by_threads(
    client: leasehold.sync.Client, threads: ThreadPoolExecutor
) -> None:
    semaphore = client.semaphore("pool", limit=3)
    inside = threading.Semaphore(3)

    def work(_number: int) -> None:
        with semaphore as guard:
            assert inside.acquire(blocking=False), "too many are in"
            guard.check()
            inside.release()
        assert not guard.is_held

    assert len(list(threads.map(work, range(40)))) == 40
    with semaphore.acquire(), pytest.raises(ValueError, match="limit=3 by me"):
        client.semaphore("pool", limit=4).acquire()


def test_all_threads_pass_a_barrier_with_one_token(
    client: leasehold.sync.Client, threads: ThreadPoolExecutor
) -> None:
    barrier = client.barrier("start", parties=5)
    assert (barrier.name, barrier.parties) == ("start", 5)
    waits = [threads.submit(barrier.wait) for _ in range(5)]
    assert len({wait.result(WITHIN_S) for wait in waits}) == 1
    with pytest.raises(TimeoutError):
        barrier.wait(timeout=0)


def test_an_election_is_observed_until_another_thread_ends_that(
    client: leasehold.sync.Client, threads: ThreadPoolExecutor
) -> None:
    election = client.election("boss")
    observing = election.observe()
    seen: list[str] = []

    def observe() -> None:
        for leader in observing:
            seen.append(leader.text)  # noqa: PERF401  it is read meanwhile

    ending = threads.submit(observe)
    with election.campaign("one") as leadership:
        leader = election.leader()
        assert leader is not None
        assert (leader.text, leader.token) == ("one", leadership.token)
        leadership.proclaim("two")
        assert leadership.value == b"two"
        with election.observe() as other:
            assert other.next(timeout=WITHIN_S).text == "two"
            with pytest.raises(TimeoutError, match="no change of the leader within"):
                other.next(timeout=0.01)
            leadership.proclaim("three")
            assert next(other).text == "three"
        until(lambda: seen[-1:] == ["three"])  # a thread that is late sees the last leader only
        leadership.resign()
    until(lambda: election.leader() is None)
    observing.cancel()
    ending.result(WITHIN_S)
    assert seen[-1] == "three"
    assert list(observing) == []


@pytest.mark.parametrize("kind", ["read", "semaphore", "election"])
def test_the_loss_is_told_in_a_thread_and_ends_the_block(
    client: leasehold.sync.Client, kind: str
) -> None:
    told: list[tuple[Guard, bool]] = []
    is_told = threading.Event()

    def on_loss(guard: Guard, _error: BaseException | None) -> None:
        told.append((guard, threading.current_thread() is threading.main_thread()))
        is_told.set()

    options: dict[str, Any] = {"on_loss": on_loss, "cancel_on_loss": True}

    def acquire() -> Guard:
        if kind == "read":
            return client.rwlock("x").read(**options)
        if kind == "semaphore":
            return client.semaphore("x", 2, **options).acquire()
        return client.election("x").campaign("me", **options)

    def block() -> None:
        with acquire() as guard:
            client.kv.delete(guard.key)
            assert guard.lost.wait(WITHIN_S)
            assert is_told.wait(WITHIN_S)
            assert told == [(guard, False)]
            client.kv.get("anything")
            pytest.fail("the call went through")

    with pytest.raises(LockLost, match="'x' is lost"):
        block()
    client.kv.get("anything")


def test_who_waits_for_the_loss_of_what_is_released_waits_in_vain(
    client: leasehold.sync.Client, threads: ThreadPoolExecutor
) -> None:
    guard = client.rwlock("x").write()
    assert 0.0 < guard.remaining <= 10.0
    assert not guard.jeopardy
    waiting = threads.submit(guard.lost.wait)
    guard.release()
    assert waiting.result(WITHIN_S) is False
    assert "not held" in repr(guard)


def test_wrong_arguments_are_refused(client: leasehold.sync.Client) -> None:
    nothing: Any = None

    async def later(_guard: Guard, _error: BaseException | None) -> None: ...

    for call in (
        lambda: client.rwlock(nothing),
        lambda: client.barrier("x", nothing),
        lambda: client.election("x").campaign(nothing),
        lambda: client.rwlock("x").read(on_loss=later),
        lambda: client.rwlock("x").write(on_loss=later),
        lambda: client.semaphore("x", 1, on_loss=later),
        lambda: client.election("x").campaign("me", on_loss=later),
    ):
        with pytest.raises(TypeError):
            call()


class Interrupt:
    """A Ctrl-C at the n-th line that this thread executes in some modules."""

    def __init__(self, at: int, modules: tuple[str, ...]) -> None:
        self._left = at
        self._modules = modules
        self._lines: dict[FrameType, int] = {}
        self.where = ""

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *exc_info: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        is_ours = frame.f_globals["__name__"] in self._modules
        if is_ours and event == "line" and not self._is_out_of_reach(frame):
            self._left -= 1
            if not self._left:
                sys.settrace(None)
                self.where = f"{frame.f_globals['__name__']}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace if is_ours or "leasehold" in frame.f_globals["__name__"] else None

    def _is_out_of_reach(self, frame: FrameType) -> bool:
        """Whether a block is not begun or left yet, or a lock just taken out of the cache."""
        lines = self._lines[frame] = self._lines.get(frame, 0) + 1
        before_it = {"__enter__": 2, "__exit__": 3, "acquire": 2, "_acquire": 1_000}
        return lines <= before_it.get(frame.f_code.co_name, 0)


BLOCKS: Final[dict[str, Callable[[leasehold.sync.Client, float], Any]]] = {
    "lock": lambda client, wait_s: client.lock("x", timeout=wait_s),
    "guard of a lock": lambda client, wait_s: client.lock("x").acquire(timeout=wait_s),
    "semaphore": lambda client, wait_s: client.semaphore("x", limit=1, timeout=wait_s),
    "guard of a semaphore": lambda client, wait_s: client.semaphore("x", 1).acquire(wait_s),
    "guard of a writer": lambda client, wait_s: client.rwlock("x").write(wait_s),
    "leadership": lambda client, wait_s: client.election("x").campaign("me", wait_s),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_an_interrupt_at_any_line_of_a_guard_leaves_nothing(
    client: leasehold.sync.Client, kind: str
) -> None:
    names = ("guard", "lock", "generated.semaphore")
    modules = tuple(f"leasehold.sync.{name}" for name in names)
    for at in itertools.count(1):
        interrupt = Interrupt(at, modules)
        with suppress(KeyboardInterrupt), interrupt, BLOCKS[kind](client, WITHIN_S):
            pass
        if not interrupt.where:
            break
        try:
            with BLOCKS[kind](client, FREE_WITHIN_S):
                pass
        except LockDenied:
            pytest.fail(f"after an interrupt at {interrupt.where} it is held for ever")
    assert at > 10
