"""`UntilPolicy`: never beyond the grantor's own planned end, which runs on real time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    DurationPolicy,
    FixedPolicy,
    Landlord,
    LeaseDenied,
    LoadPolicy,
    UnknownLease,
    UntilPolicy,
    lazy,
)
from leasehold.testing import Simulation, VirtualClock

INNER = DurationPolicy(FOREVER, 30.0)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def _in(clock: VirtualClock, seconds: float) -> datetime:
    return datetime.fromtimestamp(clock.wall() + seconds, UTC)


def _landlord(clock: VirtualClock, policy: UntilPolicy) -> Landlord[str]:
    return Landlord(policy, expiry=lazy(), clock=clock)


@pytest.mark.parametrize(
    ("requested", "granted"),
    [(10.0, 10.0), (100.0, 100.0), (101.0, 100.0), (FOREVER, 100.0), (ANY, 30.0)],
)
def test_nothing_is_granted_beyond_the_grantors_own_end(
    clock: VirtualClock, requested: Any, granted: float
) -> None:
    landlord = _landlord(clock, UntilPolicy(_in(clock, 100.0), INNER, clock=clock))
    lease = landlord.grant("resource", requested)
    assert lease.remaining == pytest.approx(granted)
    assert landlord.renew(lease.cookie, requested) == pytest.approx(granted)


def test_even_a_fixed_policy_stays_within_the_end(clock: VirtualClock) -> None:
    landlord = _landlord(clock, UntilPolicy(_in(clock, 100.0), FixedPolicy(300.0), clock=clock))
    assert landlord.grant("resource").remaining == pytest.approx(100.0)


@pytest.mark.parametrize("late", [0.0, 1.0, 1e6])
def test_everything_is_denied_from_the_end_on(clock: VirtualClock, late: float) -> None:
    policy = UntilPolicy(_in(clock, 100.0), INNER, clock=clock)
    landlord = _landlord(clock, policy)
    clock.advance(100.0 + late)
    with pytest.raises(LeaseDenied, match="this grantor closed at 2025-06-15"):
        landlord.grant("resource", 1.0)
    assert len(landlord) == 0


def test_leases_are_over_from_the_end_on(clock: VirtualClock) -> None:
    landlord = _landlord(clock, UntilPolicy(_in(clock, 100.0), INNER, clock=clock))
    lease = landlord.grant("resource", 100.0)
    clock.advance(100.0)
    with pytest.raises(UnknownLease, match="expired"):
        landlord.renew(lease.cookie, 10.0)


def test_the_end_runs_on_real_time_through_suspend_while_lease_time_stands_still(
    clock: VirtualClock,
) -> None:
    landlord = _landlord(clock, UntilPolicy(_in(clock, 100.0), INNER, clock=clock))
    lease = landlord.grant("resource", 60.0)
    clock.suspend(70.0)
    assert landlord.resource(lease.cookie).remaining == 60.0
    assert landlord.renew(lease.cookie, ANY) == pytest.approx(30.0)  # what is left of the end
    clock.suspend(30.0)
    with pytest.raises(UnknownLease, match="expired"):
        landlord.resource(lease.cookie)


def test_a_jump_of_the_wall_clock_moves_nothing(clock: VirtualClock) -> None:
    policy = UntilPolicy(_in(clock, 100.0), INNER, clock=clock)
    clock.jump_wall(1e6)
    assert policy.bound_s() == pytest.approx(100.0)
    clock.jump_wall(-2e6)
    assert policy.bound_s() == pytest.approx(100.0)


def test_a_request_for_less_gets_exactly_what_it_asked_for(clock: VirtualClock) -> None:
    landlord = _landlord(clock, UntilPolicy(_in(clock, 100.0), INNER, clock=clock))
    lease = landlord.grant("resource", 80.0)
    assert landlord.renew(lease.cookie, 20.0) == 20.0


def test_an_end_of_forever_bounds_nothing(clock: VirtualClock) -> None:
    landlord = _landlord(clock, UntilPolicy(FOREVER, INNER, clock=clock))
    lease = landlord.grant("resource", FOREVER)
    assert lease.remaining is FOREVER
    clock.advance(1e9)
    assert landlord.renew(lease.cookie, FOREVER) is FOREVER


def test_of_two_ends_the_nearer_one_counts(clock: VirtualClock) -> None:
    inner = UntilPolicy(_in(clock, 50.0), INNER, clock=clock)
    for outer_end in (_in(clock, 100.0), FOREVER):
        assert UntilPolicy(outer_end, inner, clock=clock).bound_s() == pytest.approx(50.0)
    outer = UntilPolicy(_in(clock, 20.0), inner, clock=clock)
    assert outer.bound_s() == pytest.approx(20.0)


def test_the_inner_policy_learns_of_the_landlords(clock: VirtualClock) -> None:
    inner = LoadPolicy(1.0, 1.0, FOREVER)
    landlord = _landlord(clock, UntilPolicy(FOREVER, inner, clock=clock))
    landlord.grant("one")
    landlord.grant("two")
    assert inner.live == 2


def test_the_inner_policy_may_deny(clock: VirtualClock) -> None:
    class Full(DurationPolicy):
        def grant(self, _leased: object, _requested: object, _now: float) -> float:
            raise LeaseDenied("full")

    landlord = _landlord(clock, UntilPolicy(FOREVER, Full(1.0, 1.0), clock=clock))
    with pytest.raises(LeaseDenied, match="full"):
        landlord.grant("resource", 1.0)


@pytest.mark.parametrize("bad", [None, ANY, 100.0, timedelta(1)])
def test_what_is_no_end_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(TypeError, match="end must be an aware datetime or FOREVER"):
        UntilPolicy(bad, INNER)


def test_a_naive_end_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        UntilPolicy(datetime(2025, 6, 15), INNER)  # noqa: DTZ001


@pytest.mark.parametrize("bad", [None, DurationPolicy, 5.0])
def test_what_is_no_inner_policy_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(TypeError, match="policy must be a LeasePolicy object"):
        UntilPolicy(FOREVER, bad)


def test_it_shows_its_settings() -> None:
    assert repr(UntilPolicy(FOREVER, FixedPolicy(5.0))) == "UntilPolicy(FOREVER, FixedPolicy(5.0))"


def test_a_grant_that_was_never_answered_ends_with_the_grantor_by_itself() -> None:
    ended: list[str] = []
    with Simulation(1) as sim:
        host = sim.host("grantor")
        end = datetime.fromtimestamp(host.clock.wall() + 2.0, UTC)
        policy = UntilPolicy(end, INNER, clock=host.clock)
        landlord: Landlord[str] = Landlord(
            policy, on_ended=lambda resource, _: ended.append(resource), clock=host.clock
        )
        host.call(landlord.grant, "resource", 1.0, pending=True)
        sim.run_for(1.9)
        assert ended == []
        sim.run_for(0.2)
        assert ended == ["resource"]
