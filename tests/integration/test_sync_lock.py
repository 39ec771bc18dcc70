"""Locks for blocking code: threads, forks, interrupts and the end of the interpreter."""

import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import pytest

import leasehold
import leasehold.sync
from leasehold import LockDenied, LockLost, NotHeld
from leasehold.sync.loop_thread import LoopThread
from leasehold.testing import LocalServer
from tests.support.scripts import printed_by, run_script, until

THREADS = 20
ROUNDS = 25
PROMPTLY_S = 20.0
"""Longer than a starved thread waits for its turn: a caller who waits for others never ends."""

CONNECT = """
import os, signal, sys, threading, time
import leasehold, leasehold.sync
client = leasehold.sync.connect(sys.argv[1], name="program")
lock = client.lock("x")
"""


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:", name="here") as client:
        yield client


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def observer(server: LocalServer) -> Iterator[leasehold.sync.Client]:
    """Somebody who sees what others leave behind."""
    with leasehold.sync.connect(server.endpoint, name="observer") as observer:
        yield observer


@pytest.fixture
def hurry() -> Iterator[None]:
    """Have threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_line(client: leasehold.sync.Client, name: str) -> int:
    """Count who is in the line of a lock."""
    return client.kv.range(f"{name}/", prefix=True).total


def nothing_is_left(client: leasehold.sync.Client) -> bool:
    return not client.leases() and not in_line(client, "x")


# In the caller's own thread.


def test_a_cached_lock_is_acquired_and_released_in_the_callers_thread(
    client: leasehold.sync.Client,
) -> None:
    lock = client.lock("x")
    with lock as first:
        pass
    gc.collect()  # finalizers of what others have forgotten ask the loop

    def refuse(*_args: Any, **_named: Any) -> None:
        pytest.fail("the loop was asked")

    with patch.object(LoopThread, "run", refuse), patch.object(LoopThread, "post", refuse):
        for count in range(2, 2_500):
            with lock as guard:
                guard.check()
                assert guard.is_held
                assert guard.remaining > 0.0
                assert guard.token == (int(first.token), count)
        guard = lock.acquire()
        guard.release()
        lock.acquire()
        lock.release()


def test_a_cached_lock_needs_no_message(server: LocalServer) -> None:
    with server.wire() as wire, leasehold.sync.connect(wire.endpoint, session_ttl=60.0) as client:
        lock = client.lock("x")
        with lock:
            pass
        wire.cut()
        for _ in range(100):
            with lock as guard:
                guard.check()
        wire.mend()


# Acquiring it again.


def test_a_guard_acquires_its_lock_again_and_both_are_to_be_released(
    client: leasehold.sync.Client,
) -> None:
    outer = client.lock("x").acquire()
    inner = outer.again()
    assert inner.token == outer.token
    outer.release()
    inner.check()
    with pytest.raises(LockDenied):
        client.lock("x").acquire(timeout=0)
    inner.release()
    with pytest.raises(NotHeld):
        inner.again()
    with client.lock("x", timeout=0) as outer, outer.again():
        pass


def test_a_guard_of_another_recipe_cannot_be_acquired_again(client: leasehold.sync.Client) -> None:
    with client.rwlock("x").read() as guard, pytest.raises(TypeError, match=r"not a client\.lock"):
        guard.again()


# Threads.


class Counter:
    """Something that is read and written, with a pause between."""

    def __init__(self) -> None:
        self.value = 0

    def add_one(self) -> None:
        seen = self.value
        time.sleep(0.0001)
        self.value = seen + 1


def count_in_threads(locks: Sequence[leasehold.sync.Lock | None]) -> int:
    """Have many threads count, with locks or without."""
    counter, together = Counter(), threading.Barrier(THREADS)
    if locks[0] is not None:
        locks[0].acquire().release()  # it is idle when they begin

    def work(number: int) -> None:
        lock = locks[number % len(locks)]
        together.wait(30.0)
        for _ in range(ROUNDS):
            if lock is None:
                counter.add_one()
            else:
                with lock as guard:
                    counter.add_one()
                    guard.check()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))
    return counter.value


@pytest.mark.usefixtures("hurry")
def test_threads_exclude_each_other_through_one_handle(client: leasehold.sync.Client) -> None:
    assert count_in_threads([client.lock("x")]) == THREADS * ROUNDS
    assert client.count_acquisitions("x").counts == {"x": THREADS * ROUNDS + 1}


@pytest.mark.usefixtures("hurry")
def test_threads_exclude_each_other_through_one_client(client: leasehold.sync.Client) -> None:
    locks = [client.lock("x") for _ in range(THREADS)]
    assert count_in_threads(locks) == THREADS * ROUNDS


@pytest.mark.usefixtures("hurry")
def test_threads_exclude_each_other_through_two_clients(server: LocalServer) -> None:
    with (
        leasehold.sync.connect(server.endpoint) as one,
        leasehold.sync.connect(server.endpoint) as two,
    ):
        assert count_in_threads([one.lock("x"), two.lock("x")]) == THREADS * ROUNDS
        assert one.count_acquisitions("x").counts == {"x": THREADS * ROUNDS + 1}


def test_without_locks_threads_do_not_exclude_each_other() -> None:
    assert count_in_threads([None]) < THREADS * ROUNDS


@pytest.mark.usefixtures("hurry")
def test_threads_that_only_ask_are_answered_at_once(client: leasehold.sync.Client) -> None:
    counter, together = Counter(), threading.Barrier(THREADS)
    client.lock("x").acquire().release()

    def work(_number: int) -> tuple[int, float]:
        lock, granted, longest_s = client.lock("x", timeout=0), 0, 0.0
        together.wait(30.0)
        for _ in range(ROUNDS):
            began = time.monotonic()
            try:
                with lock:
                    longest_s = max(longest_s, time.monotonic() - began)
                    counter.add_one()
                    granted += 1
            except LockDenied:
                longest_s = max(longest_s, time.monotonic() - began)
        return granted, longest_s

    with ThreadPoolExecutor(THREADS) as threads:
        done = list(threads.map(work, range(THREADS)))
    assert sum(granted for granted, _ in done) == counter.value > 0
    assert max(longest_s for _, longest_s in done) < PROMPTLY_S, "it waits for nobody"


def test_a_guard_may_be_released_in_another_thread(server: LocalServer) -> None:
    with (
        leasehold.sync.connect(server.endpoint) as one,
        leasehold.sync.connect(server.endpoint) as two,
        ThreadPoolExecutor(1) as threads,
    ):
        for is_cached in (True, False):
            guard = one.lock("x", cache=is_cached).acquire()
            with pytest.raises(LockDenied):
                two.lock("x").acquire(timeout=0)
            threads.submit(guard.release).result()
            with pytest.raises(NotHeld):
                guard.release()
            with two.lock("x", timeout=30.0):
                pass


def test_a_guard_is_released_once_by_however_many_threads(client: leasehold.sync.Client) -> None:
    together = threading.Barrier(THREADS)

    def release(guard: leasehold.sync.Guard) -> bool:
        together.wait(30.0)
        try:
            guard.release()
        except NotHeld:
            return False
        return True

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(ROUNDS):
            guard = client.lock("x").acquire()
            assert sum(threads.map(release, [guard] * THREADS)) == 1
            with client.lock("x", timeout=0), pytest.raises(LockDenied):
                client.lock("x").acquire(timeout=0)


def test_a_lost_lock_is_told_by_the_first_check_in_any_thread(server: LocalServer) -> None:
    with leasehold.sync.connect(server.endpoint, session_ttl=2.0) as client:
        guard = client.lock("x").acquire()
        with server.frozen():
            assert guard.lost.wait(30.0)
            with ThreadPoolExecutor(1) as threads, pytest.raises(LockLost):
                threads.submit(guard.check).result()
        with pytest.raises(LockLost):
            guard.release()


# Interrupts.


@pytest.mark.parametrize("how", ["lock.acquire()", "lock.__enter__()", "lock.acquire(timeout=30)"])
def test_an_interrupt_while_waiting_leaves_nothing(
    server: LocalServer, observer: leasehold.sync.Client, how: str
) -> None:
    with observer.lock("x"):
        said = printed_by(
            CONNECT
            + f"""
def in_line():
    return client.kv.range("x/", prefix=True).total

def interrupt():
    while in_line() < 2:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    {how}
except KeyboardInterrupt:
    print("interrupted")
while in_line() > 1:
    time.sleep(0.001)
try:
    lock.release()
except leasehold.NotHeld:
    print("not held")
""",
            server.endpoint,
        )
    assert said == "interrupted\nnot held\n"
    with observer.lock("x", timeout=0):
        pass


def test_interrupts_at_any_moment_leave_nothing(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
other = leasehold.sync.connect(sys.argv[1], name="other")
main, is_over = threading.main_thread(), threading.Event()

def interrupt():
    for n in range(200):
        time.sleep(0.0007 * (n % 7))
        if armed.is_set():
            armed.clear()
            os.kill(os.getpid(), signal.SIGINT)
    is_over.set()

armed = threading.Event()
thread = threading.Thread(target=interrupt)
thread.start()
interrupts = inside = 0
is_done = False
while not is_done:
    try:
        while not is_over.is_set():
            try:
                with other.lock("x"):
                    pass
            except KeyboardInterrupt:
                interrupts += 1
            try:
                armed.set()
                with lock as guard:
                    guard.check()
            except KeyboardInterrupt:
                interrupts += 1
            armed.clear()
        thread.join()
        is_done = True
    except KeyboardInterrupt:  # one that was on its way when the block ended
        interrupts += 1
print(interrupts > 0)
with other.lock("x", timeout=30), client.lock("y"):
    pass
""",
        server.endpoint,
    )
    assert said == "True\n"
    until(lambda: nothing_is_left(observer) or in_line(observer, "x") <= 1)
    with observer.lock("x", timeout=0):
        pass


# Children.


def test_a_child_refuses_and_the_parents_lock_is_untouched(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
idle = client.lock("idle")
idle.acquire().release()
guard = lock.acquire()
uses = {
    "check": guard.check,
    "release": guard.release,
    "release of the handle": lock.release,
    "acquire cached": idle.acquire,
    "enter cached": idle.__enter__,
    "acquire": client.lock("y").acquire,
    "only ask": lambda: client.lock("y").acquire(timeout=0),
    "holder": lock.holder,
    "count": lambda: client.count_acquisitions("x"),
    "another": lambda: client.lock("z"),
    "lost": guard.lost.is_set,
}
child = os.fork()
if not child:
    for name, use in uses.items():
        try:
            use()
        except leasehold.Forked:
            pass
        except leasehold.LockLost as error:
            if name != "check" or not isinstance(error.__cause__, leasehold.Forked):
                print(name, "raises", error)
        else:
            print(name, "works in a child")
    print(guard.is_held, guard.remaining)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
guard.check()
print(client.kv.get(guard.key) is not None)
with idle as again:
    print(again.token.count)
guard.release()
lock.acquire(timeout=0).release()
""",
        server.endpoint,
    )
    assert said == "False 0.0\n3\nTrue\n2\n"
    until(lambda: not in_line(observer, "x"))


def test_a_child_that_leaves_a_block_of_its_parent_releases_nothing(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
with lock as guard:
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        guard.check()
        print(lock.holder().who)
if not child:
    sys.exit(5)
lock.acquire(timeout=0).release()
""",
        server.endpoint,
    )
    assert said == "5\nprogram\n"


def test_a_child_may_have_a_client_of_its_own(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
guard = lock.acquire()
child = os.fork()
if not child:
    with leasehold.sync.connect(sys.argv[1], name="child") as own:
        try:
            own.lock("x").acquire(timeout=0)
        except leasehold.LockDenied as denied:
            print(denied.holder)
        with own.lock("y"):
            pass
    sys.exit(0)
os.waitpid(child, 0)
guard.release()
""",
        server.endpoint,
    )
    assert said == "program\n"


# The end of the interpreter.


@pytest.mark.parametrize(
    "end",
    [
        "lock.acquire()",
        "with lock: sys.exit()",
        "lock.acquire().release()",
        "lock.acquire(); threading.Thread(target=lock.acquire, daemon=True).start()",
    ],
)
def test_the_end_of_the_interpreter_releases_what_is_held(
    server: LocalServer, observer: leasehold.sync.Client, end: str
) -> None:
    assert printed_by(CONNECT + end, server.endpoint) == ""
    assert nothing_is_left(observer)
    with observer.lock("x", timeout=0):
        pass
    observer.close()


def test_an_error_that_nobody_handles_releases_what_is_held(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    run = run_script(CONNECT + "with lock:\n    raise KeyError('mine')", server.endpoint)
    assert run.returncode == 1
    assert run.stderr.endswith("KeyError: 'mine'\n")
    assert run.stderr.count("Traceback") == 1
    assert nothing_is_left(observer)


@pytest.mark.parametrize("recipe", ["lock", "rwlock", "semaphore"])
def test_a_guard_that_is_forgotten_is_reported(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = threading.Event()
    monkeypatch.setattr(warnings, "warn", lambda *_args, **_named: reported.set())
    with leasehold.sync.open("memory:", session_ttl=600.0) as client:
        match recipe:
            case "lock":
                guard = client.lock("x").acquire()
            case "rwlock":
                guard = client.rwlock("x").write()
            case _:
                guard = client.semaphore("x", 1).acquire()
        del guard

        def is_reported() -> bool:
            gc.collect()  # the loop's thread may still refer to the call that returned it
            return reported.is_set()

        until(is_reported)


def test_a_lock_has_one_holder_after_a_generator_was_collected_in_its_block() -> None:
    """Finalizers of all objects of a cycle run: two of them must not give the lock back twice."""
    with leasehold.sync.open("memory:") as client:

        def work(_cycle: list[object]) -> Iterator[None]:
            with client.lock("x"):
                yield

        cycle: list[object] = []
        generator = work(cycle)
        cycle.append(generator)
        next(generator)
        del cycle, generator
        gc.collect()
        with client.lock("x", timeout=30), pytest.raises(LockDenied):
            client.lock("x").acquire(timeout=0)


def test_a_thread_with_the_identifier_of_one_that_has_ended_is_another_thread() -> None:
    with leasehold.sync.open("memory:") as client:
        lock = client.lock("x", reentrant=True)
        idents: list[int] = []
        guards: list[leasehold.sync.Guard] = []

        def acquire() -> None:
            idents.append(threading.get_ident())
            guards.append(lock.acquire())

        def is_denied() -> None:
            idents.append(threading.get_ident())
            with pytest.raises(leasehold.LockDenied):
                lock.acquire(timeout=0)
            denied.append(True)

        denied: list[bool] = []
        _in_a_thread(acquire)
        for _ in range(50):  # Linux gives a new thread the identifier of the last that has ended
            _in_a_thread(is_denied)
        assert len(denied) == 50
        guards[0].release()


def _in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
