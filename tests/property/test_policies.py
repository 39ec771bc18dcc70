"""The laws of each policy, through a lazy landlord, and `can_batch` as an equivalence relation."""

import gc
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    Duration,
    DurationLike,
    Requested,
    duration_of,
    seconds_of,
)
from leasehold.errors import LeaseDenied, UnknownLease
from leasehold.landlord.landlord import Landlord
from leasehold.leases.expiry_strategies import lazy
from leasehold.leases.lease import Lease
from leasehold.leases.policies import DurationPolicy, FixedPolicy, LeasePolicy, LoadPolicy
from leasehold.leases.until_policy import UntilPolicy
from leasehold.testing import VirtualClock
from tests.property.support import effort, finite, naive_seconds, ordinary, positive

EPS = 1e-6
REL = 1e-12
"""Of very long terms floats have less."""

lengths = finite | st.just(FOREVER)


@dataclass
class Seen:
    """What a policy is shown of a lease."""

    cookie: object = "cookie"
    resource: object = "resource"
    end: Duration = 0.0


def house(policy: LeasePolicy, clock: VirtualClock | None = None) -> Landlord[object]:
    return Landlord(policy, expiry=lazy(), clock=clock or VirtualClock())


def asked_s(duration: DurationLike) -> float:
    """What may not be exceeded; nothing, if the choice is left or no end is asked for."""
    requested = naive_seconds(duration)
    return requested if isinstance(requested, float) else NEVER


# DurationPolicy


@given(lengths, lengths, positive)
def test_duration_policy_grants_the_least_of_asked_and_maximum(
    maximum: Duration, default: Duration, duration: DurationLike
) -> None:
    policy = DurationPolicy(maximum, default)
    wanted = seconds_of(default) if duration is ANY else asked_s(duration)
    lease = house(policy).grant("thing", duration)
    assert lease.term == duration_of(min(wanted, seconds_of(maximum)))


@given(lengths, lengths, positive, positive, st.sampled_from([0.0, 0.001, 0.4, 3.0]), lengths)
@example(10.0, 1.0, 10.0, ANY, 1.0, 0.5)
@example(10.0, 1.0, FOREVER, 5.0, 1.0, 2.0)
def test_duration_policy_on_renewal(
    maximum: Duration,
    default: Duration,
    first: DurationLike,
    second: DurationLike,
    wait_s: float,
    later_maximum: Duration,
) -> None:
    """The spec's sentence about renewals that would end before the current end, case by case."""
    clock = VirtualClock()
    landlord = house(DurationPolicy(maximum, default), clock)
    cookie = landlord.grant("thing", first).cookie
    term_s = seconds_of(landlord.resource(cookie).remaining)
    assume(term_s > wait_s + EPS)
    later = DurationPolicy(later_maximum, default)
    landlord.policy = later  # the maximum was lowered: leases longer than it exist
    clock.advance(wait_s)
    left_s = term_s - wait_s
    answer_s = seconds_of(landlord.renew(cookie, second))

    wanted_s = seconds_of(default) if second is ANY else asked_s(second)
    policy_s = min(wanted_s, seconds_of(later_maximum))
    if policy_s >= left_s:
        expected_s = policy_s
    elif second is ANY or asked_s(second) >= left_s:
        expected_s = left_s  # keeps the current end
    else:
        expected_s = asked_s(second)  # exactly what it asked for
    assert answer_s == pytest.approx(expected_s, rel=1e-9, abs=1e-9)
    assert seconds_of(landlord.resource(cookie).remaining) == pytest.approx(answer_s, abs=1e-9)


# FixedPolicy


@given(lengths, st.lists(positive, min_size=1, max_size=5), ordinary)
def test_fixed_policy_always_grants_the_same(
    fixed: Duration, durations: list[DurationLike], wait_s: float
) -> None:
    clock = VirtualClock()
    landlord = house(FixedPolicy(fixed), clock)
    lease = landlord.grant("thing", durations[0])
    assert lease.term == fixed
    clock.advance(min(wait_s, seconds_of(fixed) / 2))
    for duration in durations:
        # A shorter request never gets less than the fixed length, nor does a longer one get more.
        assert landlord.renew(lease.cookie, duration) == pytest.approx(fixed)


# LoadPolicy


@given(
    budget=st.floats(0.1, 1000.0),
    minimum=st.floats(0.01, 10.0),
    spread=st.floats(1.0, 1e4) | st.just(NEVER),
    tenants=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    leaving=st.sets(st.integers(0, 59)),
    asked=positive,
)
@effort(200)
def test_load_policy_keeps_to_its_budget(
    budget: float,
    minimum: float,
    spread: float,
    tenants: list[int],
    leaving: set[int],
    asked: DurationLike,
) -> None:
    """All leases of all landlords, each renewed once a term, need at most the budget."""
    maximum_s = minimum * spread
    policy = LoadPolicy(budget, minimum, duration_of(maximum_s))
    houses = [house(policy) for _ in range(3)]
    leases = [(houses[who], houses[who].grant("thing", asked)) for who in tenants]
    for live, (_, lease) in enumerate(leases, start=1):
        expected_s = min(max(minimum, live / budget), maximum_s)
        assert lease.term == pytest.approx(expected_s)
    for index in leaving:
        if index < len(leases):
            leases[index][0].cancel(leases[index][1].cookie)
    stayed = [each for index, each in enumerate(leases) if index not in leaving]
    assert policy.live == len(stayed)
    terms_s = [policy.term_s(policy.live) for _ in stayed]
    assert all(minimum <= term_s <= maximum_s for term_s in terms_s)
    for landlord, lease in stayed:
        answer_s = seconds_of(landlord.renew(lease.cookie, ANY))
        assert answer_s >= terms_s[0] - EPS  # or longer: nothing is shortened unasked
    if len(stayed) / budget <= maximum_s:
        assert sum(1 / term_s for term_s in terms_s) <= budget * (1 + 1e-9)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_load_policy_terms_grow_with_the_load(one: int, other: int) -> None:
    policy = LoadPolicy(10.0, 300.0, 7 * 24 * 3600.0)
    few, many = sorted((one, other))
    assert policy.term_s(few) <= policy.term_s(many)
    assert (policy.term_s(many) > 300.0) == (many > 3000)


def test_load_policy_forgets_a_landlord_that_is_gone() -> None:
    policy = LoadPolicy(1.0, 1.0, 100.0)
    landlord = house(policy)
    landlord.grant("thing")
    assert policy.live == 1
    del landlord
    gc.collect()
    assert policy.live == 0


# UntilPolicy

NOW = datetime.fromtimestamp(VirtualClock().wall(), UTC)


@given(
    inner_term=lengths,
    until_s=st.floats(0.001, 100.0),
    duration=positive,
    wait_s=st.floats(0.0, 150.0),
    asleep_s=st.just(0.0) | st.floats(0.0, 150.0),
    second=positive,
    pending=st.booleans(),
)
@example(FOREVER, 20.0, FOREVER, 0.0, 10.0, 15.0, False)
@example(FOREVER, 20.0, FOREVER, 10.0, 0.0, ANY, True)
@effort(300)
def test_until_policy_never_goes_beyond_its_end(
    inner_term: Duration,
    until_s: float,
    duration: DurationLike,
    wait_s: float,
    asleep_s: float,
    second: DurationLike,
    pending: bool,
) -> None:
    """Its end is in real time: it comes nearer while lease time stands still."""
    clock = VirtualClock()
    inner = DurationPolicy(inner_term, 5.0)
    policy = UntilPolicy(NOW + timedelta(seconds=until_s), inner, clock=clock)
    landlord = house(policy, clock)
    lease = landlord.grant("thing", duration, pending=pending)
    term_s = seconds_of(lease.term)
    wanted_s = 5.0 if duration is ANY else asked_s(duration)
    assert term_s == pytest.approx(min(wanted_s, seconds_of(inner_term), until_s), abs=1e-5)
    clock.advance(wait_s)
    clock.suspend(asleep_s)
    left_s = until_s - wait_s - asleep_s
    assume(abs(left_s) > 1e-4)
    if left_s < 0:
        with pytest.raises(LeaseDenied):
            landlord.grant("other", second)
        with pytest.raises(UnknownLease):
            landlord.renew(lease.cookie, second)
        return
    assert seconds_of(landlord.grant("other", second).term) <= left_s + 1e-5
    if pending:
        landlord.answer(lease.cookie)
        assert seconds_of(landlord.resource(lease.cookie).remaining) <= left_s + 1e-5
    elif term_s <= wait_s + EPS:
        return
    answer_s = seconds_of(landlord.renew(lease.cookie, second))
    assert answer_s <= left_s + 1e-5
    assert seconds_of(landlord.resource(lease.cookie).remaining) == pytest.approx(answer_s)


# What holds for all of them


policies: st.SearchStrategy[LeasePolicy] = st.one_of(
    st.builds(DurationPolicy, lengths, lengths),
    st.builds(FixedPolicy, lengths),
    st.builds(
        lambda budget, minimum, times: LoadPolicy(budget, minimum, minimum * times),
        st.floats(0.1, 100.0),
        st.floats(0.01, 10.0),
        st.floats(1.0, 100.0),
    ),
)


@given(policies, positive, st.lists(st.tuples(st.floats(0.0, 0.9), positive), max_size=6))
@effort(200)
def test_a_renewal_never_shortens_unless_that_was_asked_for(
    policy: LeasePolicy, first: DurationLike, renewals: Sequence[tuple[float, DurationLike]]
) -> None:
    clock = VirtualClock()
    landlord = house(policy, clock)
    cookie = landlord.grant("thing", first).cookie
    for wait, duration in renewals:
        left_s = seconds_of(landlord.resource(cookie).remaining)
        step_s = wait * min(left_s, 100.0)
        clock.advance(step_s)
        if left_s - step_s <= EPS:
            return
        answer_s = seconds_of(landlord.renew(cookie, duration))
        left_s -= step_s
        least_s = min(left_s, asked_s(duration))
        assert answer_s >= least_s or answer_s == pytest.approx(least_s, abs=EPS, rel=REL)
        remaining_s = seconds_of(landlord.resource(cookie).remaining)
        assert remaining_s == pytest.approx(answer_s, abs=EPS, rel=REL)


@given(policies, st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_is_current_until_the_end_and_not_from_it_on(
    policy: LeasePolicy, end: float, now: float
) -> None:
    assert policy.is_current(Seen(end=end), now) == (now < end)
    assert policy.is_current(Seen(end=FOREVER), now)


# Batches


class KeyedLease(Lease):
    """A lease whose landlord is a plain key."""

    def __init__(self, key: object, cookie: int) -> None:
        super().__init__(1.0, clock=VirtualClock())
        self.key = key
        self._cookie = cookie

    @property
    def grantor(self) -> Hashable:
        return "grantor"

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @property
    def batch_key(self) -> object:
        return self.key

    async def ask_renew(self, requested: Requested) -> Duration:
        raise NotImplementedError

    async def ask_cancel(self) -> None:
        raise NotImplementedError


class LoneLease(KeyedLease):
    """A lease of a kind that says nothing about batches."""

    batch_key = Lease.batch_key


LANDLORDS = [house(FixedPolicy(1.0)) for _ in range(3)]
leases = st.one_of(
    st.sampled_from(LANDLORDS).map(lambda landlord: landlord.grant("thing")),
    st.builds(KeyedLease, st.integers(0, 2) | st.floats(0, 2), st.integers(0, 2)),
    st.builds(LoneLease, st.none(), st.integers(0, 2)),
)


@given(st.lists(leases, min_size=1, max_size=8))
def test_can_batch_is_an_equivalence_relation(many: list[Lease]) -> None:
    for lease in many:
        assert lease.can_batch(lease)
        assert not lease.can_batch("not a lease")
        assert not lease.can_batch(None)
    for one, other in itertools.product(many, repeat=2):
        assert one.can_batch(other) == other.can_batch(one)
    for one, other, third in itertools.product(many, repeat=3):
        if one.can_batch(other) and other.can_batch(third):
            assert one.can_batch(third)
