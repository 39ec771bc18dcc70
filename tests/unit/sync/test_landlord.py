"""`leasehold.sync.Landlord`: many threads, hooks without the lock, and lease time in a thread."""

import gc
import logging
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import leasehold
from leasehold import (
    ANY,
    FOREVER,
    Closed,
    DurationPolicy,
    EndReason,
    LeaseDenied,
    LeaseView,
    UnknownLease,
    exact,
    lazy,
    per_lease,
    polling,
)
from leasehold.basics import workers
from leasehold.leases.lease_clock import GRACE_S
from leasehold.sync import Landlord, Lease
from leasehold.testing import VirtualClock

POLICY = DurationPolicy(FOREVER, 30.0)
DEADLINE_S = 30.0


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up_at, "not in time"
        time.sleep(0.002)


class Owner:
    """Hooks that write down their calls."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.threads: set[int] = set()

    def on_granted(self, resource: object, view: LeaseView[Any]) -> None:
        self._event("granted", resource)

    def on_renewed(self, resource: object, view: LeaseView[Any]) -> None:
        self._event("renewed", resource)

    def on_ended(self, resource: object, reason: EndReason) -> None:
        self._event(str(reason), resource)

    def _event(self, event: str, resource: object) -> None:
        self.events.append((event, resource))
        self.threads.add(threading.get_ident())

    def landlord(self, **settings: Any) -> Landlord[Any]:
        hooks = {"on_granted": self.on_granted, "on_renewed": self.on_renewed}
        usual: dict[str, Any] = {"policy": POLICY, **hooks, "on_ended": self.on_ended}
        return Landlord(**usual | settings)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture(name="landlord")
def make_landlord(owner: Owner) -> Iterator[Landlord[Any]]:
    with owner.landlord(cookies=count(1).__next__) as made:
        yield made


def _all_expiry_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "leasehold expiry"}


ExpiryThreads = Callable[[], set[threading.Thread]]


@pytest.fixture(autouse=True)
def expiry_threads() -> Iterator[ExpiryThreads]:
    """The threads of this test's landlords, which must end with the test.

    A landlord's thread ends soon after `close`, so one of an earlier test may still run.
    """
    of_others = _all_expiry_threads()
    yield lambda: _all_expiry_threads() - of_others
    until(lambda: not _all_expiry_threads() - of_others)


def test_a_lease_blocks_where_the_async_one_is_awaited(landlord: Landlord[Any]) -> None:
    lease = landlord.grant("desk", 10.0)
    assert isinstance(lease, Lease)
    assert (lease.grantor, lease.cookie, lease.term) == (landlord.name, 1, 10.0)
    assert lease.renew(20.0) == lease.term == 20.0
    assert 10.0 < float(str(lease.remaining)) <= 20.0  # more than the first term
    assert lease == landlord.lease_from_bytes(lease.to_bytes("duration"))
    assert hash(lease) == hash(landlord.lease_from_bytes(lease.to_bytes("absolute")))
    assert lease.can_batch(landlord.grant("chair"))
    other: Landlord[str] = Landlord(POLICY, expiry=lazy())
    assert not lease.can_batch(other.grant("chair"))
    assert lease.expires_at is not FOREVER
    assert "LandlordLease" in repr(lease)
    lease.cancel()
    assert lease.remaining == 0.0
    with pytest.raises(UnknownLease, match="cancelled"):
        lease.renew()


def test_calls_do_what_they_do_in_one_thread(landlord: Landlord[Any], owner: Owner) -> None:
    landlord.grant("desk", 10.0)
    assert landlord.renew(1) == 30.0
    view = landlord.resource(1)
    assert (view.resource, view.cookie) == ("desk", 1)
    assert landlord.renew_all(iter([(1, 5.0), (9, 5.0)])).outcomes[0] == 5.0
    landlord.grant("chair", pending=True)
    landlord.answer(2)
    assert [cookie for cookie, _ in landlord.cancel_all([1, 2, 9]).failures] == [9]
    assert len(landlord) == 0
    assert landlord.lag_s >= 0.0
    assert landlord.now > 0.0
    until(lambda: len(owner.events) == 6)
    assert owner.events == [
        ("granted", "desk"),
        ("renewed", "desk"),
        ("renewed", "desk"),
        ("granted", "chair"),
        ("cancelled", "desk"),
        ("cancelled", "chair"),
    ]


def test_a_lease_ends_at_its_deadline_without_any_call(
    landlord: Landlord[Any], owner: Owner
) -> None:
    begun = time.monotonic()
    landlord.grant("long", 1000.0)
    landlord.grant("short", 0.2)
    until(lambda: ("expired", "short") in owner.events)
    assert time.monotonic() - begun >= 0.2
    assert len(landlord) == 1


def test_the_thread_runs_while_a_lease_can_end_and_no_longer(
    owner: Owner, expiry_threads: ExpiryThreads
) -> None:
    with owner.landlord() as landlord:
        landlord.grant("for ever", FOREVER)
        until(lambda: not expiry_threads())
        for _ in range(3):
            lease = landlord.grant("desk", 100.0)
            assert len(expiry_threads()) == 1
            landlord.cancel(lease.cookie)
            until(lambda: not expiry_threads())
        landlord.grant("desk", 100.0)
    until(lambda: not expiry_threads())


def test_no_thread_of_a_closed_landlord_stays(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.01)
    before = set(threading.enumerate())
    with owner.landlord() as landlord:
        landlord.grant("desk", 100.0)
        assert set(threading.enumerate()) - before
    until(lambda: not set(threading.enumerate()) - before)


def test_a_landlord_that_is_not_closed_lives_until_its_leases_have_ended(
    owner: Owner, expiry_threads: ExpiryThreads
) -> None:
    landlord = owner.landlord()
    landlord.grant("desk", 0.05)
    forgotten = weakref.ref(landlord)
    del landlord
    gc.collect()
    until(lambda: ("expired", "desk") in owner.events)
    until(lambda: not expiry_threads())
    until(lambda: gc.collect() >= 0 and forgotten() is None)


def test_a_lazy_landlord_has_no_thread_and_ends_leases_in_calls(
    owner: Owner, expiry_threads: ExpiryThreads
) -> None:
    clock = VirtualClock()
    landlord = owner.landlord(expiry=lazy(), clock=clock)
    landlord.grant("desk", 10.0)
    assert not expiry_threads()
    clock.advance(10.0)
    assert landlord.now == 10.0
    until(lambda: ("expired", "desk") in owner.events)


@pytest.mark.parametrize("expiry", [polling(1.0), per_lease(), "exact"])
def test_a_strategy_that_needs_an_event_loop_is_refused(expiry: Any) -> None:
    with pytest.raises(ValueError, match=r"exact\(\) or lazy\(\)"):
        Landlord(POLICY, expiry=expiry)
    Landlord(POLICY, expiry=exact()).close()


def test_many_threads_grant_renew_and_cancel_and_each_resource_ends_once(owner: Owner) -> None:
    """Each thread has leases of its own, and meddles with those of the others."""
    threads, each = 8, 150
    failures: list[BaseException] = []
    cookies: list[Any] = []
    start = threading.Barrier(threads)

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            start.wait(DEADLINE_S)
            for number in range(each):
                lease = landlord.grant((seed, number), draw.choice([0.005, 0.05, 1000.0]))
                cookies.append(lease.cookie)
                for _ in range(3):
                    other = draw.choice(cookies)
                    try:
                        match draw.randrange(4):
                            case 0:
                                landlord.renew(other, draw.choice([0.01, 500.0]))
                            case 1:
                                landlord.cancel(other)
                            case 2:
                                assert landlord.resource(other).cookie == other
                            case _:
                                landlord.renew_all([(other, ANY), (lease.cookie, 0.05)])
                    except UnknownLease:
                        pass
        except BaseException as error:
            failures.append(error)
            raise

    with owner.landlord() as landlord:
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(DEADLINE_S)
        assert not failures
        landlord.cancel_all(cookies)
        until(lambda: len(landlord) == 0)
    events: dict[Any, list[str]] = {}
    for event, resource in owner.events:
        events.setdefault(resource, []).append(event)
    assert len(events) == threads * each
    for happened in events.values():
        assert happened[0] == "granted"
        assert set(happened[1:-1]) <= {"renewed"}
        assert happened[-1] in ("expired", "cancelled")
    assert Counter(event for event, _ in owner.events)["granted"] == threads * each


def test_a_hook_may_wait_for_a_thread_that_calls_the_landlord() -> None:
    """With the lock held, this would deadlock."""
    done = threading.Event()

    def on_ended(_resource: str, _reason: EndReason) -> None:
        other = threading.Thread(target=lambda: landlord.grant("from another thread"))
        other.start()
        other.join(DEADLINE_S)
        assert not other.is_alive()
        lease = landlord.grant("from the hook")
        lease.renew(20.0)
        done.set()

    landlord: Landlord[str] = Landlord(POLICY, on_ended=on_ended)
    landlord.cancel(landlord.grant("desk").cookie)
    assert done.wait(DEADLINE_S)
    assert len(landlord) == 2
    landlord.close()


def test_a_hook_may_take_a_lock_that_a_caller_of_the_landlord_holds() -> None:
    lock = threading.Lock()
    ended: list[str] = []

    def on_ended(resource: str, _reason: EndReason) -> None:
        with lock:
            ended.append(resource)

    landlord: Landlord[str] = Landlord(POLICY, on_ended=on_ended)
    with lock:
        for number in range(10):
            landlord.cancel(landlord.grant(str(number)).cookie)
    until(lambda: len(ended) == 10)
    assert ended == [str(number) for number in range(10)]
    landlord.close()


def test_hooks_run_one_at_a_time_in_order_and_in_another_thread(
    landlord: Landlord[Any], owner: Owner
) -> None:
    for number in range(200):
        landlord.grant(number)
    until(lambda: len(owner.events) == 200)
    assert [resource for _, resource in owner.events] == list(range(200))
    assert threading.get_ident() not in owner.threads


def test_a_hook_that_raises_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []

    def on_granted(resource: str, _view: LeaseView[str]) -> None:
        called.append(resource)
        raise SystemExit if resource == "a" else KeyError(resource)

    with Landlord(POLICY, on_granted=on_granted, name="here") as landlord:
        landlord.grant("a")
        landlord.grant("b")
    assert called == ["a", "b"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["on_granted of landlord 'here' failed"] * 2


def test_leaving_the_block_waits_for_hooks_except_in_a_hook() -> None:
    left: list[str] = []

    def on_ended(_resource: str, _reason: EndReason) -> None:
        time.sleep(0.05)
        landlord.__exit__()
        left.append("hook")

    with Landlord(POLICY, on_ended=on_ended) as landlord:
        landlord.cancel(landlord.grant("desk").cookie)
    assert left == ["hook"]
    with pytest.raises(Closed):
        landlord.grant("desk")


def test_a_policy_may_call_back_and_may_deny() -> None:
    class Few(DurationPolicy):
        def grant(self, *args: Any) -> Any:
            if len(landlord) >= 1 and landlord.resource(1).resource == "desk":
                raise LeaseDenied("one is enough")
            return super().grant(*args)

    landlord: Landlord[str] = Landlord(POLICY, cookies=count(1).__next__)
    landlord.policy = Few(60.0, 60.0)
    assert isinstance(landlord.policy, Few)
    landlord.grant("desk")
    with pytest.raises(LeaseDenied):
        landlord.grant("chair")
    landlord.close()


class Jumpy(VirtualClock):
    """The real time, and what it jumps by: as if the process had been stopped meanwhile."""

    jumped_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.jumped_s


def test_no_lease_ends_while_the_process_was_stopped_nor_right_after_it(owner: Owner) -> None:
    clock = Jumpy()
    with owner.landlord(clock=clock, cookies=count(1).__next__) as landlord:
        landlord.grant("held", 1.0)
        clock.jumped_s = 3600.0
        began = time.monotonic()
        assert landlord.renew(1, 1.0) == 1.0
        assert landlord.lag_s > 3590.0
        until(lambda: ("expired", "held") in owner.events)
        assert time.monotonic() - began >= min(0.9, GRACE_S)


def test_a_short_stall_delays_an_end_by_a_tick_and_the_next_leases_end_as_usual(
    owner: Owner,
) -> None:
    clock = Jumpy()
    with owner.landlord(clock=clock) as landlord:
        landlord.grant("one", 0.3)
        clock.jumped_s = 0.9
        until(lambda: ("expired", "one") in owner.events)
        landlord.grant("two", 0.1)
        until(lambda: ("expired", "two") in owner.events)


def test_it_is_a_grantor_of_the_leases_that_it_makes(landlord: Landlord[Any]) -> None:
    anything: object = landlord
    assert isinstance(anything, leasehold.Grantor)
    assert repr(landlord) == f"<Landlord {landlord.name!r} with 0 leases>"
