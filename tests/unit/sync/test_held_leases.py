"""Leases for blocking code: what holders are told, in which thread, and when."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import leasehold
import leasehold.sync
from leasehold.basics.lease_ids import shown_lease
from leasehold.sync.loop_thread import MAX_CALLBACKS, loop_thread
from tests.support.scripts import until

WITHIN_S = 30.0
KEPT_TTL_S = 9.0
"""Renewed every 3 s; a process that stands still for 5 s does not lose it."""
CHECKED_TTL_S = 1.0
TRIES_MAX = 10


@pytest.fixture
def client() -> Iterator[leasehold.sync.Client]:
    with leasehold.sync.open("memory:") as client:
        yield client


class Stuck:
    """The loop's thread, which does nothing while it is stuck."""

    def __init__(self) -> None:
        self._gate = threading.Event()

    def begin(self) -> None:
        began = threading.Event()

        def be_stuck() -> None:
            began.set()
            self._gate.wait(WITHIN_S)

        loop_thread().post(be_stuck)
        assert began.wait(WITHIN_S)

    def end(self) -> None:
        self._gate.set()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.end()


def _end_behind_its_back(client: leasehold.sync.Client, lease: leasehold.sync.HeldLease) -> None:
    """Have it lost now, whatever its TTL: revoke it, and renew it.

    Another thread does it: in a block with `cancel_on_loss` these calls could raise the loss.
    """
    ending = _begin_to_end(client, lease)
    ending.join(WITHIN_S)
    assert not ending.is_alive()


def _begin_to_end(
    client: leasehold.sync.Client, lease: leasehold.sync.HeldLease
) -> threading.Thread:
    def end() -> None:
        client.revoke(lease.id)
        with pytest.raises((leasehold.LeaseLost, leasehold.UnknownLease)):
            lease.renew()

    ending = threading.Thread(target=end)
    ending.start()
    return ending


def _is_renewed(client: leasehold.sync.Client, lease: leasehold.sync.HeldLease) -> None:
    left_s = [client.lease_info(lease).remaining]

    def is_more() -> bool:
        left_s.append(client.lease_info(lease).remaining)
        return left_s[-1] > left_s[-2]

    until(is_more)


# By the clock.


def test_a_lease_says_that_it_is_lost_while_the_loop_is_stuck(
    client: leasehold.sync.Client, stuck: Stuck
) -> None:
    with client.lease(2) as lease:
        stuck.begin()
        began = time.monotonic()
        assert lease.lost.wait(WITHIN_S)
        assert time.monotonic() - began < WITHIN_S / 2
        assert lease.lost
        assert lease.lost.is_set()
        assert lease.remaining == 0.0
        assert not lease.is_held
        with pytest.raises(leasehold.LeaseLost):
            lease.check()
        stuck.end()


def test_a_lease_is_answered_without_the_loop(client: leasehold.sync.Client, stuck: Stuck) -> None:
    lease = client.lease(60)
    stuck.begin()
    assert lease.id
    assert lease.is_held
    assert not lease.is_ended
    assert 0.0 < float(str(lease.remaining)) <= 60.0
    assert lease.term == 60.0
    assert not lease.lost.wait(0.001)
    assert not lease.jeopardy.wait(timedelta(milliseconds=1))
    assert not lease.jeopardy
    assert shown_lease(lease.id) in repr(lease)
    lease.check()
    stuck.end()


def test_a_lease_is_kept_while_its_holder_does_something_else(
    client: leasehold.sync.Client,
) -> None:
    with client.lease(KEPT_TTL_S) as lease:
        _is_renewed(client, lease)
        lease.check()


# Signals and callbacks.


def test_who_waits_for_a_loss_is_told(client: leasehold.sync.Client) -> None:
    lease = client.lease(60)
    with ThreadPoolExecutor(4) as threads:
        waits = [threads.submit(lease.lost.wait, WITHIN_S) for _ in range(4)]
        _end_behind_its_back(client, lease)
        assert [wait.result(WITHIN_S) for wait in waits] == [True] * 4


def test_who_waits_for_a_loss_is_told_if_the_lease_is_ended(
    client: leasehold.sync.Client,
) -> None:
    lease = client.lease(60)
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(lease.lost.wait)
        lease.end()
        assert wait.result(WITHIN_S) is False
    assert not lease.lost


def test_a_loss_is_told_in_a_thread_of_its_own_with_the_lease_of_its_holder(
    client: leasehold.sync.Client,
) -> None:
    told: list[tuple[leasehold.sync.HeldLease, BaseException | None, object]] = []
    done = threading.Event()

    def on_loss(lease: leasehold.sync.HeldLease, error: BaseException | None) -> None:
        client.kv.put("lost", "yes")  # which may block
        told.append((lease, error, threading.current_thread().name))
        done.set()

    lease = client.lease(60, on_loss=on_loss)
    _end_behind_its_back(client, lease)
    assert done.wait(WITHIN_S)
    assert told[0][0] is lease
    assert isinstance(told[0][1], leasehold.UnknownLease)
    assert told[0][2] == "leasehold callback"
    with pytest.raises(leasehold.LeaseLost):
        client.kv.put("a", "b", lease=lease)


def test_a_callback_that_hangs_delays_no_renewal_and_no_other_callback(
    client: leasehold.sync.Client,
) -> None:
    gate, other = threading.Event(), threading.Event()
    with client.lease(KEPT_TTL_S) as kept:
        hangs = client.lease(60, on_loss=lambda *_: gate.wait(WITHIN_S))
        told = client.lease(60, on_loss=lambda *_: other.set())
        _end_behind_its_back(client, hangs)
        assert hangs.lost.wait(WITHIN_S)
        _end_behind_its_back(client, told)
        assert other.wait(WITHIN_S)
        _is_renewed(client, kept)
        gate.set()


def test_a_callback_that_fails_harms_nobody(
    client: leasehold.sync.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(lease: object, error: object) -> None:
        raise ValueError("it was to fail")

    lease = client.lease(60, on_loss=fail)
    _end_behind_its_back(client, lease)
    until(lambda: "it was to fail" in caplog.text)


def test_callbacks_that_would_have_to_be_awaited_are_refused(
    client: leasehold.sync.Client,
) -> None:
    async def later(*_: object) -> bool:
        return True

    with pytest.raises(TypeError, match="while_healthy must be a plain function"):
        client.lease(1, while_healthy=later)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_loss must be a plain function"):
        client.lease(1, on_loss=later)
    with pytest.raises(TypeError, match="on_jeopardy must be callable"):
        client.lease(1, on_jeopardy=1)  # type: ignore[arg-type]
    assert client.leases() == []


@pytest.mark.parametrize("timeout", [0.01, timedelta(seconds=0.01)])
def test_a_wait_for_a_loss_has_a_limit(
    client: leasehold.sync.Client, timeout: float | timedelta
) -> None:
    with client.lease(60) as lease:
        assert not lease.lost.wait(timeout)
        with pytest.raises(ValueError, match="timeout"):
            lease.lost.wait(-1)


def test_a_callback_that_ends_its_thread_harms_nobody(client: leasehold.sync.Client) -> None:
    told = threading.Semaphore(0)

    def leave(lease: object, error: object) -> None:
        told.release()
        sys.exit(1)

    for _ in range(MAX_CALLBACKS + 2):
        _end_behind_its_back(client, client.lease(60, on_loss=leave))
    for _ in range(MAX_CALLBACKS + 2):
        assert told.acquire(timeout=WITHIN_S)


# Checks.


def _lost_after_a_check(
    client: leasehold.sync.Client, check: Callable[[], bool]
) -> leasehold.sync.HeldLease:
    """Lose a lease because of its check.

    A process that stands still for longer than the term loses a lease before the first check of it:
    then it takes another lease.
    """
    for _ in range(TRIES_MAX):
        is_checked = threading.Event()

        def noted(is_checked: threading.Event = is_checked) -> bool:
            is_checked.set()
            return check()

        lease = client.lease(CHECKED_TTL_S, while_healthy=noted)
        assert lease.lost.wait(WITHIN_S)
        until(lambda lease=lease: bool(lease._held.lost))  # type: ignore[misc]
        if is_checked.is_set():
            return lease
    pytest.fail("each lease was over before its first check")


def test_a_check_that_ends_its_thread_loses_its_own_lease(client: leasehold.sync.Client) -> None:
    with client.lease(60):
        lease = _lost_after_a_check(client, sys.exit)
        assert "must return a bool" in str(lease.loss())
        assert client.kv.get("a") is None


def test_a_check_that_says_no_ends_the_renewals(client: leasehold.sync.Client) -> None:
    names: set[str] = set()

    def check() -> bool:
        names.add(threading.current_thread().name)
        return False

    _lost_after_a_check(client, check)
    assert names == {"leasehold aside"}


def test_a_check_that_hangs_loses_its_own_lease_and_no_other(
    client: leasehold.sync.Client,
) -> None:
    gate = threading.Event()
    calls = []

    def hang() -> bool:
        calls.append(1)
        return gate.wait(WITHIN_S)

    with client.lease(KEPT_TTL_S, while_healthy=lambda: True) as well:
        _lost_after_a_check(client, hang)
        assert len(calls) == 1
        _is_renewed(client, well)
    gate.set()


# Ends.


def test_the_end_of_a_block_ends_the_lease(client: leasehold.sync.Client) -> None:
    with client.lease(60) as lease:
        client.kv.put("a", "b", lease=lease)
        assert client.lease_info(lease, keys=True).keys == (b"a",)
    assert client.kv.get("a") is None
    assert lease.is_ended
    assert not lease.lost
    lease.end()


def test_a_lease_that_is_over_cannot_be_entered(client: leasehold.sync.Client) -> None:
    lease = client.lease(60)
    lease.end()
    with pytest.raises(leasehold.LeaseLost), lease:
        pytest.fail("it was entered")


def test_a_lease_is_ended_if_entering_it_is_interrupted(
    client: leasehold.sync.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    lease = client.lease(60)
    monkeypatch.setattr(leasehold.sync.HeldLease, "check", interrupt)
    with pytest.raises(KeyboardInterrupt), lease:
        pytest.fail("it was entered")
    until(lambda: client.leases() == [])


def test_a_lease_can_be_kept_that_is_there_already_and_let_be(
    client: leasehold.sync.Client,
) -> None:
    number = client.lease(60)
    number.release()
    with client.keep(number.id) as lease:
        assert lease == number
        assert hash(lease) == hash(number)
        assert lease.renew() == 60.0
        lease.release()
    assert client.lease_info(number.id).remaining > 0
    client.revoke(number.id)
    with pytest.raises(leasehold.UnknownLease):
        client.keep(number.id)


def test_a_lease_goes_into_transactions(client: leasehold.sync.Client) -> None:
    key = leasehold.Key("a")
    with client.lease(60) as lease:
        done = client.kv.txn(key.is_missing()).then(key.put("1", lease=lease)).commit()
        assert done.succeeded
        again = client.kv.txn().when(key.is_missing()).otherwise(key.get()).commit()
        assert not again.succeeded
    assert client.kv.get("a") is None


# Blocks that must not outlast their lease.


def test_a_call_that_waits_is_interrupted_by_the_loss(client: leasehold.sync.Client) -> None:
    def body() -> None:
        with client.lease(60, cancel_on_loss=True) as lease:
            _begin_to_end(client, lease)
            for _ in client.kv.watch("never"):
                pass

    with pytest.raises(leasehold.LeaseLost):
        body()


def test_the_next_call_raises_the_loss_once(client: leasehold.sync.Client) -> None:
    with client.lease(60, cancel_on_loss=True) as lease:
        _end_behind_its_back(client, lease)
        assert lease.lost.wait(WITHIN_S)
        until(lambda: bool(lease._held.lost))
        with pytest.raises(leasehold.LeaseLost):
            client.kv.get("a")
        client.kv.get("a")


def test_the_end_of_a_block_raises_the_loss_if_nothing_else_did(
    client: leasehold.sync.Client,
) -> None:
    def body() -> None:
        with client.lease(60, cancel_on_loss=True) as lease:
            _end_behind_its_back(client, lease)
            assert lease.lost.wait(WITHIN_S)

    with pytest.raises(leasehold.LeaseLost):
        body()


def test_an_error_of_the_block_comes_before_the_loss(client: leasehold.sync.Client) -> None:
    def body() -> None:
        with client.lease(60, cancel_on_loss=True) as lease:
            _end_behind_its_back(client, lease)
            assert lease.lost.wait(WITHIN_S)
            raise KeyError("an error of the block")

    with pytest.raises(KeyError):
        body()


def test_a_loss_does_not_keep_a_block_from_ending_other_leases(
    client: leasehold.sync.Client,
) -> None:
    def body() -> None:
        with client.lease(60, cancel_on_loss=True) as lease, client.lease(60):
            _end_behind_its_back(client, lease)
            assert lease.lost.wait(WITHIN_S)

    with pytest.raises(leasehold.LeaseLost):
        body()
    assert client.leases() == []


def test_a_loss_concerns_the_thread_of_the_block_only(client: leasehold.sync.Client) -> None:
    with ThreadPoolExecutor(1) as threads:

        def body() -> None:
            with client.lease(60, cancel_on_loss=True) as lease:
                _end_behind_its_back(client, lease)
                assert lease.lost.wait(WITHIN_S)
                until(lambda: bool(lease._held.lost))
                assert threads.submit(client.kv.get, "a").result(WITHIN_S) is None

        with pytest.raises(leasehold.LeaseLost):
            body()
