"""A signal handler may raise an exception at any point of a block: what was held is released."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import leasehold.sync
from leasehold import LockDenied
from leasehold.testing import LocalServer
from tests.support.interrupts import Interruption
from tests.support.scripts import until

SESSION_TTL_S = 60.0
"""Longer than a test waits: nothing is released by its end."""

SOON_S = 20.0
"""How long another client waits at most: it gets the lock immediately, also on a busy machine."""

SIGNALS_S = 600.0
"""How long the program with real signals may take: a round takes a second at most, and a wait."""

MANY = 10_000
"""More instructions than a block has."""

Client = leasehold.sync.Client


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LocalServer) -> Iterator[Client]:
    with leasehold.sync.connect(server.endpoint, session_ttl=SESSION_TTL_S, name="us") as client:
        yield client


@pytest.fixture(scope="module")
def other(server: LocalServer) -> Iterator[Client]:
    with leasehold.sync.connect(server.endpoint, session_ttl=SESSION_TTL_S, name="them") as other:
        yield other


def interrupted_everywhere(
    work: Callable[[], object], check: Callable[[str], object], *, is_in_cycle: bool = False
) -> int:
    """Interrupt `work` at each of its instructions, with a check after each time."""
    for number in range(1, MANY):
        interruption = Interruption(number, is_in_cycle=is_in_cycle)
        if not interruption(work):
            return number
        if is_in_cycle:
            gc.collect()
        check(f"interrupted in {interruption.where}")
    pytest.fail("the block has too many instructions")


def block_of(enter: Callable[[], Any]) -> Callable[[], None]:
    def block() -> None:
        with enter():
            pass

    return block


def block_with_guard(enter: Callable[[], Any]) -> Callable[[], None]:
    def block() -> None:
        with enter() as guard:
            guard.check()

    return block


@pytest.mark.parametrize(
    ("options", "is_kept", "block"),
    [
        pytest.param({}, False, block_of, id="new handle"),
        pytest.param({}, True, block_with_guard, id="same handle"),
        pytest.param({"cache": False}, True, block_of, id="not cached"),
        pytest.param({"reentrant": True}, True, block_of, id="reentrant"),
        pytest.param({"cancel_on_loss": True}, False, block_with_guard, id="cancelled"),
    ],
)
def test_a_lock_is_free_after_an_exception_at_any_point_of_its_block(
    client: Client,
    other: Client,
    options: dict[str, Any],
    is_kept: bool,
    block: Callable[..., Any],
) -> None:
    kept = client.lock("x", **options)

    def is_free(where: str) -> None:
        try:
            other.lock("x", timeout=SOON_S, cache=False).acquire().release()
            kept.acquire(timeout=SOON_S).release()
        except LockDenied as denied:
            pytest.fail(f"{where}: {denied}")

    enter = (lambda: kept) if is_kept else (lambda: client.lock("x", **options))
    assert interrupted_everywhere(block(enter), is_free) > 100


@pytest.mark.parametrize("is_kept", [False, True], ids=["new handle", "same handle"])
def test_a_lock_is_free_if_the_program_keeps_exceptions_and_guards(
    client: Client, other: Client, is_kept: bool
) -> None:
    kept = client.lock("x")
    guards: dict[str, Any] = {}

    def block() -> None:
        with kept if is_kept else client.lock("x") as guards["kept"]:
            pass

    def is_free(where: str) -> None:
        try:
            kept.acquire(timeout=SOON_S).release()
        except LockDenied as denied:
            pytest.fail(f"{where}: {denied}")

    gc.collect()
    gc.freeze()  # so that collecting takes less time; to unfreeze would thaw all tests as well
    assert interrupted_everywhere(block, is_free, is_in_cycle=True) > 100
    other.lock("x", timeout=SOON_S, cache=False).acquire().release()


def test_a_handle_may_be_entered_and_left_by_its_methods(client: Client, other: Client) -> None:
    lock = client.lock("x")
    for _ in range(3):
        guard = lock.__enter__()
        leave = lock.__exit__
        gc.collect()
        guard.check()
        with pytest.raises(LockDenied):
            other.lock("x").acquire(timeout=0)
        guard.check()
        leave(None, None, None)
        assert not guard.is_held
    other.lock("x", timeout=SOON_S, cache=False).acquire().release()


def test_a_reentrant_lock_that_is_left_by_an_exception_is_held_by_the_outer_block(
    client: Client, other: Client
) -> None:
    lock = client.lock("x", reentrant=True)
    with lock as outer:
        number = 1
        while Interruption(number)(block_of(lambda: lock)):
            outer.check()
            number += 1
        assert number > 100
        with pytest.raises(LockDenied):
            other.lock("x").acquire(timeout=0)
    other.lock("x", timeout=SOON_S, cache=False).acquire().release()


Acquire = Callable[[Client], Any]

OTHERS: dict[str, Acquire] = {
    "semaphore": lambda client: client.semaphore("y", 1, timeout=SOON_S),
    "write": lambda client: client.rwlock("y").write(timeout=SOON_S),
    "leadership": lambda client: client.election("y").campaign("me", timeout=SOON_S),
    "acquired lock": lambda client: client.lock("y", timeout=SOON_S).acquire(),
}


@pytest.mark.parametrize("recipe", OTHERS)
def test_what_a_block_holds_is_free_after_an_exception_at_any_point_of_its_end(
    client: Client, other: Client, recipe: str
) -> None:
    acquire = OTHERS[recipe]
    guards: list[Any] = []

    def block() -> None:
        with acquire(client) as guard:
            guards.append(guard)

    for number in range(1, MANY):
        interruption = Interruption(number, begin=("_leave",))
        is_interrupted = interruption(block)
        try:
            with acquire(other):
                pass
        except LockDenied as denied:
            pytest.fail(f"interrupted in {interruption.where}: {denied}")
        assert not guards[-1].is_held
        if not is_interrupted:
            assert number > 30
            return


def test_a_lease_is_ended_after_an_exception_at_any_point_of_the_end_of_its_block(
    client: Client, other: Client
) -> None:
    left = {info.id for info in other.leases()}
    leases: list[leasehold.sync.HeldLease] = []

    def block() -> None:
        with client.lease(60) as lease:
            leases.append(lease)

    for number in range(1, MANY):
        is_interrupted = Interruption(number, begin=("_leave",))(block)
        until(lambda: leases[-1].id not in {info.id for info in other.leases()})
        if not is_interrupted:
            assert number > 30
            break
    assert {info.id for info in other.leases()} <= left


def test_a_stack_of_blocks_releases_what_it_holds(client: Client, other: Client) -> None:
    lock = client.lock("x")
    Interruption(20)(block_of(lambda: lock))
    with ExitStack() as stack:
        guard = stack.enter_context(lock)
        stack.enter_context(client.semaphore("y", 1))
        guard.check()
        gc.collect()
        with pytest.raises(LockDenied):
            other.lock("x").acquire(timeout=0)
        guard.check()
    other.lock("x", timeout=SOON_S, cache=False).acquire().release()
    other.semaphore("y", 1, timeout=SOON_S).acquire().release()


@pytest.mark.parametrize("is_kept", [False, True], ids=["new handle", "same handle"])
def test_a_generator_that_is_collected_holds_the_lock_until_its_block_ends(
    client: Client, is_kept: bool
) -> None:
    """The collector closes the generator: the end of its block is still protected."""
    kept = client.lock("x")
    held_at_the_end: list[bool] = []

    def work(_cycle: list[object], guards: list[Any]) -> Iterator[None]:
        with kept if is_kept else client.lock("x") as guard:
            guards.append(guard)
            try:
                yield
            finally:
                time.sleep(0.05)  # enough for the loop's thread to release what it was told to
                held_at_the_end.append(guard.is_held)

    cycle: list[object] = []
    guards: list[Any] = []
    generator = work(cycle, guards)
    cycle.append(generator)
    next(generator)
    del cycle, generator
    gc.collect()
    assert held_at_the_end == [True]
    assert not guards[0].is_held
    with kept, pytest.raises(LockDenied):
        client.lock("x").acquire(timeout=0)


ROUNDS = 300

SIGNALS = """
import signal, sys, time
import leasehold.sync

server, is_kept = sys.argv[1], sys.argv[2] == "same handle"
rounds, ttl_s, soon_s = map(float, sys.argv[3:])


class Interrupted(BaseException):
    pass


def interrupt(_number, _frame):
    raise Interrupted


signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
connect = leasehold.sync.connect
with connect(server, session_ttl=ttl_s) as client, connect(server, session_ttl=ttl_s) as other:
    kept = client.lock("z")
    for number in range(int(rounds)):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + number % 97 * 1e-6)
            give_up_at = time.monotonic() + 1.0
            # Python swallows an exception in a finalizer: then there is none here.
            while time.monotonic() < give_up_at:
                with kept if is_kept else client.lock("z"):
                    pass
        except Interrupted:
            interrupted += 1
        kept.acquire(timeout=soon_s).release()
        if number % 10 == 0:
            other.lock("z", timeout=soon_s, cache=False).acquire().release()
print(interrupted)
"""


@pytest.mark.parametrize("handle", ["new handle", "same handle"])
def test_a_lock_is_free_after_exceptions_of_a_real_signal_handler(
    server: LocalServer, handle: str
) -> None:
    """In a process of its own, without coverage: the exception could keep coverage's own lock."""
    environment = {name: text for name, text in os.environ.items() if "COV" not in name}
    arguments = (server.endpoint, handle, str(ROUNDS), str(SESSION_TTL_S), str(SOON_S))
    run = subprocess.run(  # noqa: S603  our own lines
        [sys.executable, "-c", SIGNALS, *arguments],
        capture_output=True,
        text=True,
        timeout=SIGNALS_S,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > ROUNDS / 2
