"""A signal handler may raise an exception at any point of a block: what was held is released."""

import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import leasehold.sync
from leasehold import LockDenied
from leasehold.testing import LocalServer
from tests.support.interrupts import Interrupted, Interruption
from tests.support.scripts import until

SESSION_TTL_S = 60.0
"""Longer than a test waits: nothing is released by its end."""

SOON_S = 20.0
"""How long another client waits at most: it gets the lock immediately, also on a busy machine."""

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


def interrupted_everywhere(work: Callable[[], object], check: Callable[[str], object]) -> int:
    """Interrupt `work` at each of its instructions, with a check after each time."""
    for number in range(1, MANY):
        interruption = Interruption(number)
        if not interruption(work):
            return number
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

    def leave() -> tuple[Any, Callable[..., object]]:
        """Enter a block as the `with` statement does, and return how it is left."""
        held = acquire(client)
        leave = type(held).__dict__.get("__exit__") or type(held).__mro__[1].__dict__["__exit__"]
        end = leave.__get__(held, type(held))
        return held.__enter__(), end

    for number in range(1, MANY):
        guard, end = leave()
        interruption = Interruption(number, begin=("__call__", "__exit__"))
        is_interrupted = interruption(lambda end=end: end(None, None, None))  # type: ignore[misc]
        del end
        try:
            with acquire(other):
                pass
        except LockDenied as denied:
            pytest.fail(f"interrupted in {interruption.where}: {denied}")
        assert not guard.is_held
        if not is_interrupted:
            assert number > 30
            return


def test_a_lease_is_ended_after_an_exception_at_any_point_of_the_end_of_its_block(
    client: Client, other: Client
) -> None:
    left = {info.id for info in other.leases()}
    for number in range(1, MANY):
        lease = client.lease(60)
        end = leasehold.sync.HeldLease.__dict__["__exit__"].__get__(lease, type(lease))
        lease.__enter__()
        interruption = Interruption(number, begin=("__call__", "__exit__"))
        is_interrupted = interruption(lambda end=end: end(None, None, None))  # type: ignore[misc]
        del end
        until(lambda lease=lease: lease.id not in {info.id for info in other.leases()})  # type: ignore[misc]
        if not is_interrupted:
            break
    assert {info.id for info in other.leases()} <= left


ROUNDS = 300


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_kept", [False, True], ids=["new handle", "same handle"])
def test_a_lock_is_free_after_exceptions_of_a_real_signal_handler(
    client: Client, other: Client, is_kept: bool
) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    kept = client.lock("z")
    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(ROUNDS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + number % 97 * 1e-6)
                give_up_at = time.monotonic() + 1.0
                # Python swallows an exception in a finalizer: then there is none here.
                while time.monotonic() < give_up_at:
                    with kept if is_kept else client.lock("z"):
                        pass
            except Interrupted:
                interrupted += 1
            kept.acquire(timeout=SOON_S).release()
            if number % 10 == 0:
                other.lock("z", timeout=SOON_S, cache=False).acquire().release()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > ROUNDS / 2
