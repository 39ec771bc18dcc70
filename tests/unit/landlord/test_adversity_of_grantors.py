"""What callbacks, policies and overload may do to a landlord without breaking a promise."""

import asyncio
import logging
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from leasehold import (
    DurationPolicy,
    EndReason,
    ExpiryStrategy,
    FixedPolicy,
    Landlord,
    Lease,
    LeasePolicy,
    LoadPolicy,
    UnknownLease,
    UntilPolicy,
    exact,
    lazy,
    per_lease,
    polling,
)
from leasehold.basics.durations import Duration, Requested
from leasehold.leases.policies import Leased
from leasehold.testing import Faults, Simulation, VirtualClock, current_host, run_virtual

WITH_TIMERS: list[ExpiryStrategy] = [exact(), per_lease(), polling(0.05)]
with_timers = pytest.mark.parametrize("expiry", WITH_TIMERS, ids=lambda each: type(each).__name__)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@with_timers
@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_a_loop_that_stalls_again_and_again_still_ends_leases(
    expiry: ExpiryStrategy, every: int
) -> None:
    async def main() -> None:
        host = current_host()
        landlord: Landlord[str] = Landlord(FixedPolicy(2.0), clock=host.clock, expiry=expiry)
        landlord.grant("desk")
        for turn in range(200):
            host.stall(0.27 if turn % every == 0 else 0.001)
            await asyncio.sleep(0)
        assert len(landlord) == 0

    run_virtual(main)


@with_timers
def test_calls_from_one_long_callback_do_not_hide_its_stall(expiry: ExpiryStrategy) -> None:
    with Simulation(1) as sim:
        server, holder = sim.host("server"), sim.host("holder")
        network = sim.network(Faults(delay=(0.001, 0.002)))
        landlord: Landlord[str] = Landlord(FixedPolicy(3.0), clock=server.clock, expiry=expiry)
        lease = server.call(landlord.grant, "desk")
        network.serve(server, "renew", landlord.renew)

        async def keep() -> None:
            while True:
                await asyncio.sleep(1.0)
                await network.call(holder, server, "renew", lease.cookie)

        async def busy() -> None:
            for _ in range(400):  # twenty seconds in one turn of the loop
                server.stall(0.05)
                landlord.resource(lease.cookie)

        holder.start(keep)
        sim.run_for(5.0)
        server.start(busy)
        sim.run_for(40.0)
        assert len(landlord) == 1
        assert landlord.lag_s > 15.0


@with_timers
@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, ValueError])
def test_an_owner_that_raises_anything_stops_no_other(
    expiry: ExpiryStrategy, error: type[BaseException]
) -> None:
    async def main() -> None:
        told: list[int] = []

        def owner(number: int, _reason: EndReason) -> None:
            told.append(number)
            raise error

        clock = current_host().clock
        landlord: Landlord[int] = Landlord(
            DurationPolicy(60, 60), on_ended=owner, expiry=expiry, clock=clock
        )
        for number in range(6):
            landlord.grant(number, 1.0 + number // 2)
        await asyncio.sleep(10.0)
        assert sorted(told) == list(range(6))

    run_virtual(main)


@pytest.mark.parametrize("expiry", [exact(), polling(0.05)], ids=repr)
def test_slow_owners_do_not_hold_the_loop(expiry: ExpiryStrategy) -> None:
    async def main() -> None:
        host, told = current_host(), list[int]()

        def slow(number: int, _reason: EndReason) -> None:
            told.append(number)
            host.stall(0.004)

        landlord: Landlord[int] = Landlord(
            FixedPolicy(1.0), on_ended=slow, expiry=expiry, clock=host.clock
        )
        for number in range(300):
            landlord.grant(number)
        longest_s, seen_at = 0.0, host.clock.monotonic()
        while len(told) < 300:
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, host.clock.monotonic() - seen_at)
            seen_at = host.clock.monotonic()
        assert longest_s < 0.05
        assert len(set(told)) == 300

    run_virtual(main)


def test_owners_of_leases_that_have_ended_are_told_when_the_landlord_closes() -> None:
    clock, told = VirtualClock(), list[int]()

    def slow(number: int, _reason: EndReason) -> None:
        told.append(number)
        clock.advance(1.0)

    landlord: Landlord[int] = Landlord(
        FixedPolicy(10.0), on_ended=slow, expiry=lazy(), clock=clock, cookies=count().__next__
    )
    for number in range(5):
        landlord.grant(number)
    landlord.cancel_all(range(5))
    landlord.close()
    assert told == list(range(5))


@with_timers
def test_at_closing_time_all_leases_end_whatever_a_stall_did_to_lease_time(
    expiry: ExpiryStrategy,
) -> None:
    with Simulation(1) as sim:
        host, ended = sim.host("office"), list[float]()
        start = host.clock.boottime()
        closing = datetime.fromtimestamp(host.clock.wall() + 200.0, UTC)
        policy = UntilPolicy(closing, DurationPolicy(1000, 1000), clock=host.clock)
        landlord: Landlord[int] = Landlord(
            policy,
            clock=host.clock,
            expiry=expiry,
            on_ended=lambda _r, _w: ended.append(host.clock.boottime() - start),
        )
        for number in range(300):
            host.call(landlord.grant, number)
        sim.run_for(10.0)
        host.stop(100.0)
        sim.run_for(300.0)
        assert len(ended) == 300
        assert min(ended) >= 200.0
        assert max(ended) <= 200.6


def test_a_stall_just_before_closing_time_gives_no_grace_beyond_it() -> None:
    with Simulation(1) as sim:
        host = sim.host("office")
        closing = datetime.fromtimestamp(host.clock.wall() + 10.0, UTC)
        policy = UntilPolicy(closing, FixedPolicy(60.0), clock=host.clock)
        landlord: Landlord[str] = Landlord(policy, clock=host.clock)
        lease = host.call(landlord.grant, "desk")
        sim.run_for(5.0)
        host.stop(5.5)
        sim.run_for(5.5)
        with pytest.raises(UnknownLease):
            host.call(landlord.resource, lease.cookie)


def test_what_a_policy_answers_is_held_to_its_own_bound() -> None:
    class Bounded(FixedPolicy):
        def bound_s(self) -> float:
            return 5.0

    landlord: Landlord[str] = Landlord(Bounded(60.0), expiry=lazy(), clock=VirtualClock())
    lease = landlord.grant("desk")
    assert lease.term == 5.0
    assert landlord.renew(lease.cookie) == 5.0


class Meddling(DurationPolicy):
    """Cancels the lease that it is asked about, through the landlord."""

    landlord: Landlord[str]

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        self.landlord.cancel(leased.cookie)
        return super().renew(leased, requested, now)


def test_a_policy_that_ends_the_lease_it_is_asked_about_leaves_the_table_in_order() -> None:
    policy = Meddling(60.0, 30.0)
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(policy, expiry=lazy(), clock=clock)
    policy.landlord = landlord
    lease = landlord.grant("desk", 5.0)
    landlord.grant("other", 5.0)
    with pytest.raises(UnknownLease) as caught:
        landlord.renew(lease.cookie, 20.0)
    assert caught.value.reason is EndReason.CANCELLED
    assert len(landlord) == 1
    clock.advance(6.0)
    assert landlord.now == pytest.approx(6.0)
    assert len(landlord) == 0


def test_a_factory_that_cancels_and_then_raises_shows_its_own_error() -> None:
    def factory(landlord: Landlord[str], cookie: Any, _granted: Duration, _sent_at: float) -> Lease:
        landlord.cancel(cookie)
        raise KeyError("mine")

    landlord: Landlord[str] = Landlord(
        FixedPolicy(5.0), expiry=lazy(), clock=VirtualClock(), lease_factory=factory
    )
    with pytest.raises(KeyError, match="mine"):
        landlord.grant("desk")
    assert len(landlord) == 0


def test_a_factory_that_makes_no_lease_is_refused_and_leaves_nothing() -> None:
    def factory(*_args: object) -> Any:
        return None

    landlord: Landlord[str] = Landlord(
        FixedPolicy(5.0), expiry=lazy(), clock=VirtualClock(), lease_factory=factory
    )
    with pytest.raises(TypeError, match="lease_factory must return a Lease, not None"):
        landlord.grant("desk")
    assert len(landlord) == 0


def test_an_owner_that_would_have_to_be_awaited_is_refused() -> None:
    class Owner:
        async def __call__(self, resource: str, reason: EndReason) -> None: ...

    with pytest.raises(TypeError, match="on_ended must be a plain function"):
        Landlord(FixedPolicy(5.0), on_ended=Owner())


def test_a_policy_that_raises_anything_once_loses_no_lease() -> None:
    class Moody(DurationPolicy):
        failed = False

        def is_current(self, leased: Leased[Any], now: float) -> bool:
            due = not super().is_current(leased, now)
            if due and not self.failed:
                self.failed = True
                raise asyncio.CancelledError
            return not due

    clock = VirtualClock()
    landlord: Landlord[int] = Landlord(Moody(60.0, 30.0), expiry=lazy(), clock=clock)
    for number in range(10):
        landlord.grant(number, 1.0)
    clock.advance(2.0)
    with pytest.raises(asyncio.CancelledError):
        landlord.now  # noqa: B018  it runs the expiry step
    clock.advance(1.0)
    assert landlord.now > 0.0
    assert len(landlord) == 0


def test_a_closed_landlord_counts_no_more_in_a_load_policy() -> None:
    policy = LoadPolicy(1.0, 1.0, 1000.0)
    landlords: list[Landlord[int]] = [
        Landlord(policy, expiry=lazy(), clock=VirtualClock()) for _ in range(2)
    ]
    for number in range(100):
        landlords[0].grant(number)
    landlords[0].close()
    assert landlords[1].grant(0).term == 1.0


def test_a_term_counts_from_before_the_policy_was_asked() -> None:
    clock = VirtualClock()

    class Slow(LeasePolicy):
        def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
            clock.advance(2.0)
            return 10.0

    landlord: Landlord[str] = Landlord(Slow(), expiry=lazy(), clock=clock)
    assert landlord.grant("desk").remaining == 8.0


def test_a_landlord_is_not_lent_to_a_second_loop_while_its_own_is_running() -> None:
    async def main() -> None:
        landlord: Landlord[str] = Landlord(FixedPolicy(60.0))
        landlord.grant("desk")

        async def elsewhere() -> None:
            landlord.grant("other")

        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert len(landlord) == 1
        landlord.close()

    asyncio.run(main())
