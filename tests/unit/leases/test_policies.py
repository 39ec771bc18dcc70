"""Policies: what each one answers, for numbers and for both sentinels."""

import gc
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    DurationPolicy,
    FixedPolicy,
    LeaseClock,
    LeaseDenied,
    LeasePolicy,
    LoadPolicy,
)
from leasehold.leases.lease_table import LeaseTable
from leasehold.leases.policies import check_granted, check_policy


@dataclass
class Shown:
    """What a policy sees of a lease."""

    end: Any = 0.0
    cookie: Any = "cookie"
    resource: Any = "resource"


SHOWN = Shown()


class Crowd:
    """Stands for the live leases of a landlord."""

    def __init__(self, live: int) -> None:
        self.live = live

    def __len__(self) -> int:
        return self.live


class Plain(LeasePolicy):
    """The least that a policy must have."""

    def grant(self, _leased: object, _requested: object, _now: float) -> float:
        return 7.0


@pytest.mark.parametrize(
    ("maximum", "default", "requested", "granted"),
    [
        (60.0, 30.0, ANY, 30.0),
        (60.0, 90.0, ANY, 60.0),
        (60.0, FOREVER, ANY, 60.0),
        (FOREVER, 30.0, ANY, 30.0),
        (FOREVER, FOREVER, ANY, FOREVER),
        (60.0, 30.0, 10.0, 10.0),
        (60.0, 30.0, 60.0, 60.0),
        (60.0, 30.0, 60.1, 60.0),
        (60.0, 30.0, 1e308, 60.0),
        (60.0, 30.0, FOREVER, 60.0),
        (FOREVER, 30.0, 1e308, 1e308),
        (FOREVER, 30.0, FOREVER, FOREVER),
        (timedelta(minutes=1), timedelta(seconds=30), FOREVER, 60.0),
        (timedelta(minutes=1), timedelta(seconds=30), ANY, 30.0),
        (60.0, 30.0, 5, 5),  # a policy that wraps this one may ask in whole seconds
        (60.0, 30.0, 100, 60.0),
    ],
)
def test_a_duration_policy_grants_what_is_asked_up_to_its_maximum_and_its_default_for_any(
    maximum: Any, default: Any, requested: Any, granted: Any
) -> None:
    policy = DurationPolicy(maximum, default)
    assert policy.grant(SHOWN, requested, 0.0) == granted
    assert policy.renew(SHOWN, requested, 0.0) == granted


def test_the_maximum_of_a_duration_policy_can_be_set_and_bounds_its_default() -> None:
    policy = DurationPolicy(60.0, 30.0)
    policy.maximum = 10.0
    granted = [policy.grant(SHOWN, requested, 0.0) for requested in (5.0, 20.0, FOREVER, ANY)]
    assert granted == [5.0, 10.0, 10.0, 10.0]
    policy.maximum = FOREVER
    granted = [policy.grant(SHOWN, requested, 0.0) for requested in (100.0, FOREVER, ANY)]
    assert granted == [100.0, FOREVER, 30.0]
    with pytest.raises(ValueError, match="maximum"):
        policy.maximum = 0.0
    assert policy.maximum is FOREVER


@pytest.mark.parametrize("requested", [ANY, FOREVER, 0.001, 10.0, 1e308])
@pytest.mark.parametrize("duration", [10.0, 0.5, FOREVER, timedelta(seconds=3)])
def test_a_fixed_policy_grants_always_the_same_whatever_is_asked(
    duration: Any, requested: Any
) -> None:
    policy = FixedPolicy(duration)
    same = 3.0 if isinstance(duration, timedelta) else duration
    assert policy.grant(SHOWN, requested, 0.0) == same
    assert policy.renew(SHOWN, requested, 5.0) == same


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda bad: DurationPolicy(bad, 1.0), "maximum"),
        (lambda bad: DurationPolicy(1.0, bad), "default"),
        (FixedPolicy, "duration"),
        (lambda bad: LoadPolicy(bad, 1.0, 2.0), "budget_per_s"),
        (lambda bad: LoadPolicy(1.0, bad, 2.0), "minimum"),
        (lambda bad: LoadPolicy(1.0, 1.0, bad), "maximum"),
    ],
)
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (ANY, ValueError),
        (None, TypeError),
        (True, TypeError),
        ("10", TypeError),
    ],
)
def test_a_policy_refuses_a_length_that_is_not_one_by_name(
    make: Any, name: str, bad: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=f"^{name} "):
        make(bad)


@pytest.mark.parametrize("name", ["budget_per_s", "minimum"])
def test_a_load_policy_needs_a_finite_budget_and_minimum(name: str) -> None:
    settings: dict[str, Any] = {"budget_per_s": 1.0, "minimum": 1.0, "maximum": FOREVER}
    with pytest.raises(ValueError, match=f"{name} must be finite; FOREVER is not allowed"):
        LoadPolicy(**settings | {name: FOREVER})


def test_a_load_policy_refuses_a_maximum_below_its_minimum() -> None:
    with pytest.raises(ValueError, match=r"maximum \(5.0\) must not be less than minimum \(10\)"):
        LoadPolicy(1.0, 10, 5.0)


def test_at_ten_a_second_five_minute_leases_start_to_grow_above_three_thousand() -> None:
    policy = LoadPolicy(10.0, 300.0, FOREVER)
    assert [policy.term_s(live) for live in (0, 1, 2999, 3000)] == [300.0] * 4
    assert policy.term_s(3001) == pytest.approx(300.1)
    assert policy.term_s(6000) == 600.0


@pytest.mark.parametrize("live", [1, 10, 100, 5000, 10**6])
def test_all_leases_together_need_at_most_the_budget_of_renewals(live: int) -> None:
    policy = LoadPolicy(10.0, 5.0, FOREVER)
    assert live / policy.term_s(live) <= 10.0 * (1 + 1e-12)


def test_a_load_policy_stops_growing_at_its_maximum() -> None:
    policy = LoadPolicy(10.0, 5.0, 60.0)
    assert policy.term_s(10**9) == 60.0


@pytest.mark.parametrize("requested", [ANY, FOREVER, 0.001, 1e308])
def test_a_load_policy_counts_a_grant_among_the_live_leases_whatever_is_asked(
    requested: Any,
) -> None:
    policy, crowd = LoadPolicy(1.0, 1.0, FOREVER), Crowd(9)
    policy.attach(crowd)
    assert policy.grant(SHOWN, requested, 0.0) == 10.0
    assert policy.renew(SHOWN, requested, 0.0) == 9.0


def test_a_load_policy_counts_the_live_leases_of_all_its_landlords() -> None:
    policy = LoadPolicy(1.0, 1.0, FOREVER)
    tables = [LeaseTable[str](policy, LeaseClock(0.0)) for _ in range(3)]
    for number, table in enumerate(tables):
        for lease in range(number + 1):
            table.grant(lease, "resource", ANY)
    assert policy.live == 6
    assert tables[0].grant("new", "resource", ANY)[1] == 7.0
    tables[2].cancel(0)
    assert policy.live == 6


def test_a_landlord_that_attaches_twice_is_counted_once() -> None:
    policy, crowd = LoadPolicy(1.0, 1.0, FOREVER), Crowd(5)
    policy.attach(crowd)
    policy.attach(crowd)
    assert policy.live == 5


def test_two_landlords_of_equal_size_are_both_counted() -> None:
    policy, one, two = LoadPolicy(1.0, 1.0, FOREVER), Crowd(5), Crowd(5)
    policy.attach(one)
    policy.attach(two)
    assert policy.live == 10


def test_a_landlord_that_is_gone_is_not_counted_and_not_kept_alive() -> None:
    policy = LoadPolicy(1.0, 1.0, FOREVER)
    policy.attach(Crowd(5))
    gc.collect()
    assert policy.live == 0


@pytest.mark.parametrize(
    ("end", "now", "current"),
    [(10.0, 9.999, True), (10.0, 10.0, False), (10.0, 11.0, False), (FOREVER, 1e300, True)],
)
def test_a_lease_is_current_until_its_end(end: Any, now: float, current: bool) -> None:
    assert Plain().is_current(Shown(end), now) is current


def test_a_policy_needs_no_more_than_a_grant() -> None:
    policy = Plain()
    assert policy.renew(SHOWN, ANY, 0.0) == 7.0
    assert policy.bound_s() == math.inf
    policy.attach([])
    assert check_policy(policy) is policy


@pytest.mark.parametrize("bad", [None, DurationPolicy, 5.0, "fixed"])
def test_what_is_no_policy_object_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(TypeError, match="policy must be a LeasePolicy object") as caught:
        check_policy(bad)
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    ("granted", "seconds"), [(5, 5.0), (timedelta(seconds=2), 2.0), (FOREVER, math.inf)]
)
def test_a_policy_may_answer_with_any_length_of_time(granted: Any, seconds: float) -> None:
    assert check_granted(Plain(), granted, ANY) == seconds


@pytest.mark.parametrize("granted", [None, True, ANY, 0.0, -1.0, math.nan, math.inf, "5"])
def test_an_answer_that_is_no_length_of_time_is_refused_and_says_whose_it_was(
    granted: Any,
) -> None:
    with pytest.raises((TypeError, ValueError), match="the granted duration") as caught:
        check_granted(FixedPolicy(5.0), granted, 12.0)
    assert caught.value.__notes__ == ["answered by FixedPolicy(5.0) for a request of 12.0"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (DurationPolicy(60, FOREVER), "DurationPolicy(maximum=60.0, default=FOREVER)"),
        (FixedPolicy(5), "FixedPolicy(5.0)"),
        (LoadPolicy(1, 2, 3), "LoadPolicy(1.0, 2.0, 3.0)"),
    ],
)
def test_a_policy_shows_its_settings(policy: LeasePolicy, text: str) -> None:
    assert repr(policy) == text


def test_a_policy_may_deny() -> None:
    class Full(LeasePolicy):
        def grant(self, _leased: object, _requested: object, _now: float) -> float:
            raise LeaseDenied("full")

    table = LeaseTable[str](Full(), LeaseClock(0.0))
    with pytest.raises(LeaseDenied) as caught:
        table.grant("cookie", "resource", 5.0)
    assert (caught.value.why, caught.value.lease, caught.value.requested) == ("full", None, 5.0)
    assert len(table) == 0
