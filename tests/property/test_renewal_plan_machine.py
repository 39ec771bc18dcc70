"""`RenewalPlan` against a list of leases that is searched from end to end, in virtual time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.basics.durations import ANY, FOREVER, NEVER, Requested
from leasehold.errors import ConnectionLost, LeaseDenied, UnknownLease
from leasehold.leases import expiry_queue, renewal_plan
from leasehold.leases.renewal_plan import (
    Departure,
    NoticeKind,
    RenewalCall,
    RenewalPlan,
    Terms,
    View,
)
from leasehold.leases.renewal_times import MIN_INTERVAL_S, RENEWAL_FLOOR, RETRY_FLOOR, BatchTiming
from tests.property.support import effort

EPS: Final = 1e-6
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
MAX_STEPS: Final = 10_000
"""Steps without time passing, or in one run: more is a tight loop."""


def naive_lead(left: float, rtt: float) -> float:
    """How long before its end a lease is renewed: the spec's sentence."""
    table = [(2 * rtt, rtt), (8 * rtt, left / 2), (7 * DAY_S, left / 8), (14 * DAY_S, DAY_S)]
    return next((lead for limit, lead in table if left <= limit), 3 * DAY_S)


def naive_retry(left: float, rtt: float) -> float:
    """How long after an indefinite failure a lease is tried again: the spec's sentence."""
    table = [
        (rtt, 0.0),
        (3 * rtt, rtt),
        (HOUR_S, left / 3),
        (DAY_S, HOUR_S / 2),
        (7 * DAY_S, 3 * HOUR_S),
    ]
    return next((delay for limit, delay in table if left <= limit), 8 * HOUR_S)


@dataclass(eq=False)
class NaiveManaged:
    """A lease as the model manages it. `due` and `batchable`: `NEVER` if it waits for nothing."""

    lease: int
    key: str
    terms: Terms
    sent_at: float
    due: float = NEVER
    batchable: float = NEVER
    error: BaseException | None = None
    first_due: float = NEVER
    touched_at: float | None = None
    """When somebody else renewed it; when the plan finds out is its own affair."""

    @property
    def touched(self) -> bool:
        return self.touched_at is not None


durations = st.sampled_from([0.003, 0.05, 0.5, 1.5, 5.0, 10.0, 30.0, 300.0, 4000.0, 2 * DAY_S])
wanted: st.SearchStrategy[Requested] = st.sampled_from([FOREVER, 1.0, 20.0, 500.0])
keys = st.sampled_from(["one", "other"])
picks = st.integers(0, 20)
steps = st.sampled_from([0.0, 0.001, 0.1, 0.7, 1.0, 3.0, 10.0, 60.0, 1000.0, 9000.0])
latencies = st.sampled_from([0.0, 0.02, 0.4, 3.0, NEVER])
all_fates = st.lists(
    st.sampled_from(["granted", "granted", "granted", "kept", "capped", "lost", "denied"]),
    min_size=1,
    max_size=5,
)
INDEFINITE: Final = ConnectionLost("no answer")
DEFINITE: Final = LeaseDenied("no more")


class RenewalPlanMachine(RuleBasedStateMachine):
    """The plan is driven as its manager does it: at each time it asks for, and after stalls."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.leases = 0
        self.views: dict[int, View] = {}
        self.lengths: dict[int, float] = {}  # what each lease is granted for, again and again
        self.keys: dict[int, str] = {}  # whose lease it is
        self.managed: dict[int, NaiveManaged] = {}
        self.flying: dict[int, float] = {}
        self.calls: list[tuple[float, RenewalCall[int]]] = []  # with when it is answered
        self.landings = 0
        self.last_sent: dict[int, tuple[float, float]] = {}
        """When a lease was sent last, and how much later it may be sent again at the earliest."""

    @initialize(
        rtt=st.sampled_from([0.1, 1.0, 10.0]),
        window=st.sampled_from([0.001, 1.0, 300.0]),
        max_calls=st.sampled_from([1, 2, 1000]),
        latency=latencies,
        fates=all_fates,
    )
    def begin(
        self, rtt: float, window: float, max_calls: int, latency: float, fates: list[str]
    ) -> None:
        self.rtt, self.window, self.max_calls = rtt, window, max_calls
        self.change_weather(latency, fates)
        self.plan: RenewalPlan[int] = RenewalPlan(
            lambda lease, _now: self.views[lease], BatchTiming(rtt, window)
        )

    @property
    def capacity(self) -> int:
        return self.max_calls - len(self.calls)

    # What holders do.

    @rule(
        count=st.sampled_from([1, 1, 2, 6]),
        key=keys,
        term=durations,
        spread=st.sampled_from([0.0, 0.01, 0.3]),
        age=st.floats(0.0, 0.9),
        desired=st.just(NEVER) | durations,
        renew=wanted,
        soon=st.sampled_from([None, None, -1.0, 0.0, 0.3, 20.0]),
    )
    def add(
        self,
        count: int,
        key: str,
        term: float,
        spread: float,
        age: float,
        desired: float,
        renew: Requested,
        soon: float | None,
    ) -> None:
        for index in range(count):
            self.leases += 1
            length = term * (1 + spread * index)
            self.lengths[self.leases] = length
            self.views[self.leases] = View(self.now + length * (1 - age), length)
            due_at = None if soon is None else self.now + soon
            self.manage(self.leases, key, Terms(self.now + desired, renew), due_at)

    @precondition(lambda self: self.managed)
    @rule(pick=picks, desired=st.just(NEVER) | durations, renew=wanted)
    def add_again(self, pick: int, desired: float, renew: Requested) -> None:
        known = self.pick(pick)
        self.manage(known.lease, known.key, Terms(self.now + desired, renew))

    @rule(term=durations, key=keys)
    def add_with_any(self, term: float, key: str) -> None:
        self.leases += 1
        self.lengths[self.leases] = term
        self.views[self.leases] = View(self.now + term, term)
        self.manage(self.leases, key, Terms(NEVER, ANY))

    def manage(self, lease: int, key: str, terms: Terms, due_at: float | None = None) -> None:
        known, view = self.managed.get(lease), self.views[lease]
        self.plan.add(lease, key, terms, self.now, key, due_at)
        each = NaiveManaged(lease, key, terms, min(self.now, view.end - view.term_s))
        each.first_due = NEVER if due_at is None else due_at
        if known is not None:
            each.sent_at, each.error = known.sent_at, known.error
            each.first_due = NEVER if known.touched else known.first_due
            each.touched_at = known.touched_at
            if lease in self.last_sent:  # new terms are a new beginning, but for the least interval
                self.last_sent[lease] = (self.last_sent[lease][0], MIN_INTERVAL_S)
        self.managed[lease] = each
        self.keys[lease] = key
        if lease not in self.flying:
            self.expect_renewal(each)

    @precondition(lambda self: self.managed)
    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        lease = self.pick(pick).lease
        assert self.plan.remove(lease) == self.managed.pop(lease).terms
        self.last_sent.pop(lease, None)
        with pytest.raises(UnknownLease):
            self.plan.remove(lease)

    @precondition(lambda self: self.managed)
    @rule(pick=picks, by=durations)
    def renewed_elsewhere(self, pick: int, by: float) -> None:
        each = self.pick(pick)
        end = self.now + by
        if end <= self.views[each.lease].end + 2 * MIN_INTERVAL_S:
            return
        self.views[each.lease] = View(end, by)
        each.touched_at = self.now

    def pick(self, pick: int) -> NaiveManaged:
        everyone = list(self.managed.values())
        return everyone[pick % len(everyone)]

    # What grantors answer.

    @rule(latency=latencies, fates=all_fates)
    def change_weather(self, latency: float, fates: list[str]) -> None:
        """From now on calls take so long, and their leases fare like this, in turn."""
        self.latency, self.fates = latency, fates

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def land_now(self, pick: int) -> None:
        """One of the calls under way is answered at once, whichever it is."""
        self.land(self.calls[pick % len(self.calls)])
        self.drive(self.now)

    def land(self, flight: tuple[float, RenewalCall[int]]) -> None:
        self.calls.remove(flight)
        for lease, _ in flight[1].wants:
            self.landings += 1
            self.land_one(lease, self.fates[self.landings % len(self.fates)])

    def land_one(self, lease: int, fate: str) -> None:
        sent_at, view = self.flying.pop(lease), self.views[lease]
        term = self.lengths[lease]
        error: BaseException | None = None
        match fate:
            case "granted":
                self.views[lease] = View(sent_at + term, term)
            case "kept":
                self.views[lease] = View(view.end, max(0.0, view.end - sent_at))
            case "capped":  # granted, but the holder counts on less than the whole term
                self.views[lease] = View(view.end, max(view.term_s, view.end - sent_at))
            case "lost":
                error = INDEFINITE
            case "denied":
                error = DEFINITE
        departure = self.plan.settled(lease, error, self.now)
        each = self.managed.get(lease)
        if each is None:
            assert departure is None
            return
        each.error, each.sent_at = error, sent_at
        if error is DEFINITE:
            assert departure is not None
            self.depart(departure, {NoticeKind.FAILED})
            return
        assert departure is None
        if error is None or each.touched:
            each.first_due = NEVER
        each.touched_at = None  # the plan looked
        if error is None or self.lasts(each):
            self.expect_renewal(each)
        else:
            self.expect_retry(each)

    # What is to be expected.

    def lasts(self, each: NaiveManaged) -> bool:
        if each.first_due != NEVER and not each.touched:
            return False  # its end is only assumed, until it was renewed
        return self.views[each.lease].end >= each.terms.desired_end - MIN_INTERVAL_S

    def expect_renewal(self, each: NaiveManaged) -> None:
        view = self.views[each.lease]
        each.due = each.batchable = NEVER
        if self.lasts(each):
            return
        floor = max(MIN_INTERVAL_S, (view.end - each.sent_at) * RENEWAL_FLOOR)
        lead = naive_lead(view.end - self.now, self.rtt)
        each.due = max(view.end - lead, each.sent_at + floor)
        batchable = max(each.due - self.window, view.end - view.term_s / 2, each.sent_at + floor)
        each.due = min(each.due, each.first_due)
        each.batchable = min(each.due, batchable)
        if each.lease in self.last_sent and not each.touched:
            self.last_sent[each.lease] = (each.sent_at, floor)

    def expect_retry(self, each: NaiveManaged) -> None:
        view = self.views[each.lease]
        floor = max(MIN_INTERVAL_S, min(self.rtt, view.term_s) * RETRY_FLOOR)
        delay = naive_retry(view.end - self.now, self.rtt)
        each.due = max(self.now + delay, each.sent_at + floor)
        each.batchable = max(self.now + (each.due - self.now) / 2, each.sent_at + floor)
        if each.first_due != NEVER:
            each.first_due = each.due
        self.last_sent[each.lease] = (each.sent_at, floor)

    # Time.

    @rule(seconds=steps)
    def pass_time(self, seconds: float) -> None:
        """Let it run, for no more than a hundred of the shortest terms."""
        shortest = min((self.lengths[lease] for lease in self.managed), default=NEVER)
        self.drive(self.now + min(seconds, 100 * max(shortest, MIN_INTERVAL_S)))

    @rule(seconds=steps)
    def sleep_through(self, seconds: float) -> None:
        """The holder was suspended: everything between comes up at once."""
        self.now += seconds
        self.drive(self.now)

    @rule(seconds=steps)
    def take_one_step(self, seconds: float) -> None:
        """After a stall other tasks may have their turn between two steps."""
        self.now += seconds
        self.step()

    def drive(self, until: float) -> None:
        for _ in range(MAX_STEPS):
            at = self.plan.next_at(self.capacity)
            flight = min(self.calls, key=lambda each: each[0], default=None)
            if min(at, flight[0] if flight else NEVER) > until:
                break
            if flight is not None and flight[0] <= at:
                self.now = max(self.now, flight[0])
                self.land(flight)
            else:
                self.now = max(self.now, at)
                self.step()
        else:
            raise AssertionError("a tight loop")
        self.now = max(self.now, until)
        self.nothing_is_left_undone()

    def step(self) -> None:
        capacity = self.capacity
        step = self.plan.step(self.now, capacity)
        assert len(step.calls) <= capacity
        for departure in step.departures:
            self.depart(departure, self.kinds(self.managed[departure.lease]))
        for call in step.calls:
            self.take_off(call)

    def kinds(self, each: NaiveManaged) -> set[NoticeKind]:
        """Why a lease may leave now: whichever of its desired and its actual end came first."""
        end, desired = self.views[each.lease].end, each.terms.desired_end
        kinds = set()
        if desired <= self.now and (self.lasts(each) or each.touched or end >= desired):
            kinds.add(NoticeKind.EXPIRED)
        if end <= self.now and (not self.lasts(each) or each.touched):
            kinds.add(NoticeKind.FAILED)
        return kinds

    def depart(self, departure: Departure[int], kinds: set[NoticeKind]) -> None:
        each = self.managed.pop(departure.lease)  # once: KeyError if it left before
        assert departure.lease not in self.plan
        assert departure.kind in kinds, f"{departure} of {self.views[each.lease]} at {self.now}"
        assert departure.terms == each.terms
        expected = each.error if departure.kind is NoticeKind.FAILED else None
        assert departure.error is expected
        self.last_sent.pop(departure.lease, None)

    def take_off(self, call: RenewalCall[int]) -> None:
        leases = [lease for lease, _ in call.wants]
        crew = [self.managed[lease] for lease in leases]  # KeyError: renewed after it left
        assert 1 <= len(set(leases)) == len(leases) <= renewal_plan.MAX_BATCH
        assert not self.flying.keys() & set(leases), "two renewals of one lease are outstanding"
        assert len({each.key for each in crew}) == 1
        assert 0.0 < call.timeout_s <= renewal_plan.MAX_CALL_S
        first, *riders = crew
        assert self.due_of(first) <= self.now + EPS, "renewed before it was due"
        for each in riders:
            assert self.batchable_of(each) <= self.now + EPS, "taken along before it was batchable"
        for each, (_, requested) in zip(crew, call.wants, strict=True):
            self.check_request(each, requested)
        assert self.has_room(first.key), "too many calls to one grantor"
        self.check_floors(leases)
        self.check_nobody_missed(first.key, set(leases))
        for each in crew:
            each.due = each.batchable = NEVER
            self.flying[each.lease] = self.now
            self.last_sent[each.lease] = (self.now, MIN_INTERVAL_S)
        self.calls.append((self.now + self.latency, call))

    def due_of(self, each: NaiveManaged) -> float:
        """When a lease is due; at the earliest, if somebody else renewed it."""
        if each.touched_at is None:
            return each.due
        end, rtt = self.views[each.lease].end, self.rtt
        left = end - each.touched_at  # or less, when the plan found out
        planned = end - max(naive_lead(left, rtt), naive_lead(min(left, 8 * rtt), rtt))
        return min(planned, each.first_due)

    def batchable_of(self, each: NaiveManaged) -> float:
        if each.touched_at is None:
            return each.batchable
        due, view = self.due_of(each), self.views[each.lease]
        return min(due, max(due - self.window, view.end - view.term_s / 2))

    def check_request(self, each: NaiveManaged, requested: Requested) -> None:
        """ANY if so configured, else the least of what was configured and what is wanted."""
        if each.terms.renew_duration is ANY:
            assert requested is ANY
            return
        configured = each.terms.renew_duration
        most = configured if isinstance(configured, float) else NEVER
        expected = min(most, each.terms.desired_end - self.now)
        if expected == NEVER:
            assert requested is FOREVER
            return
        assert isinstance(requested, float)
        assert requested == pytest.approx(expected)
        assert requested > 0.0
        end = self.views[each.lease].end
        assumed = each.first_due != NEVER
        assert assumed or end < each.terms.desired_end, "renewed although it lasts long enough"

    def check_floors(self, leases: list[int]) -> None:
        for lease in leases:
            if lease in self.last_sent:
                sent_at, floor = self.last_sent[lease]
                assert self.now >= sent_at + floor - EPS, f"sent at {sent_at}, and {self.now}"

    def check_nobody_missed(self, key: str, taken: set[int]) -> None:
        """All the batchable ones of that landlord go along, those apart that are about to leave."""
        if len(taken) >= renewal_plan.MAX_BATCH:
            return
        for each in self.managed.values():
            if each.key == key and not each.touched and each.lease not in taken | set(self.flying):
                if each.lease in {waiter.lease for waiter in self.waiting_at(key)}:
                    continue
                leaves = min(self.views[each.lease].end, each.terms.desired_end) <= self.now + EPS
                assert leaves or each.batchable > self.now - EPS, f"{each} was not taken along"

    def waiting_at(self, key: str) -> list[Any]:
        """The leases that wait until fewer calls to their grantor are under way."""
        return list(self.plan._limits[key].waiting.values()) if key in self.plan._limits else []

    def nothing_is_left_undone(self) -> None:
        for each in self.managed.values():
            end = each.terms.desired_end
            if not self.lasts(each):
                end = min(end, self.views[each.lease].end)
            assert each.touched or end > self.now - EPS, f"{each} should have left"
            if each.lease not in self.flying and self.capacity and self.has_room(each.key):
                assert each.touched or each.due > self.now - EPS, f"{each} should have gone"

    def has_room(self, key: str) -> bool:
        """Whether one more call to a grantor may be made."""
        calls = [call for _, call in self.calls if self.keys[call.wants[0][0]] == key]
        return len(calls) < renewal_plan.MAX_CALLS_PER_GRANTOR

    @invariant()
    def plan_and_model_hold_the_same(self) -> None:
        if not hasattr(self, "plan"):
            return
        assert sorted(self.plan.leases()) == sorted(self.managed)
        assert len(self.plan) == len(self.managed)
        assert set(self.plan._outstanding) == set(self.flying)

    @invariant()
    def everybody_waits_for_something(self) -> None:
        """A managed lease is outstanding, is to be renewed, lasts, or is about to leave."""
        for lease, managed in getattr(self, "plan", RenewalPlanMachine.none())._managed.items():
            each = self.managed[lease]
            waits = managed.number in self.plan._due_entries
            waits = waits or managed.number in managed.limit.waiting
            assert not (waits and lease in self.flying)
            assert managed.queued_at <= managed.deadline
            if not (waits or lease in self.flying or managed.deadline <= self.now):
                assert self.lasts(each), f"{each} would never be renewed"

    @staticmethod
    def none() -> RenewalPlan[int]:
        return RenewalPlan(lambda _lease, _now: View(0.0, 0.0), BatchTiming(1.0, 1.0))

    @invariant()
    def nothing_is_left_behind(self) -> None:
        if not hasattr(self, "plan"):
            return
        pools = self.plan._pools
        assert set(pools) == {each.key for each in self.managed.values()}
        assert sum(pool.members for pool in pools.values()) == len(self.managed)
        waiting = sum(len(limit.waiting) for limit in self.plan._limits.values())
        marked = sum(len(pool.entries) for pool in pools.values())
        assert marked == len(self.plan._due_entries) + waiting
        for queue, live in ((self.plan._ends, self.managed), (self.plan._dues, self.managed)):
            assert len(queue) <= 2 * len(live) + expiry_queue.STALE_SLACK

    def teardown(self) -> None:
        """With every answer lost from now on, all leases leave in the end."""
        if not hasattr(self, "plan"):
            return
        self.change_weather(0.0, ["lost"])
        while self.calls:
            self.land(self.calls[0])
        for _ in range(200):
            at = self.plan.next_at(self.capacity)
            if at > self.now + 30 * DAY_S:
                break
            self.drive(max(at, self.now))
        for lease in list(self.managed):
            self.plan.remove(lease)
            del self.managed[lease]
        self.nothing_is_left_behind()


class CrampedPlanMachine(RenewalPlanMachine):
    """The same with limits so small that they are met all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, limit in (("STEP_BUDGET", 3), ("MAX_BATCH", 4), ("MAX_CALLS_PER_GRANTOR", 2)):
            self.patch.setattr(renewal_plan, name, limit)

    def check_nobody_missed(self, key: str, taken: set[int]) -> None:
        """A batch counts the entries it looks at, stale ones too: with so few it may be short."""

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()


TestRenewalPlan = RenewalPlanMachine.TestCase
TestRenewalPlan.settings = effort(400, steps=40)
TestCrampedPlan = CrampedPlanMachine.TestCase
TestCrampedPlan.settings = effort(200, steps=40)


class HeapCounter:
    """Counts what is done to heaps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations = 0
        for name in ("heappush", "heappop", "heapreplace"):
            monkeypatch.setattr(expiry_queue, name, self.counting(getattr(heapq, name)))

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.operations += 1
            return function(*args)

        return counted


@pytest.mark.parametrize("landlords", [1, 1000])
def test_heap_operations_per_renewal_do_not_grow_with_the_number_of_leases(
    landlords: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = HeapCounter(monkeypatch)
    costs = [_cost_per_renewal(counter, leases, landlords) for leases in (100, 1000, 5000)]
    assert max(costs) <= 12
    assert costs[-1] <= costs[0] * 1.5 + 1


def _cost_per_renewal(counter: HeapCounter, leases: int, landlords: int) -> float:
    """Keep this many leases of ten seconds alive for a while; count per renewal."""
    views = {lease: View(10.0 + lease / leases, 10.0) for lease in range(leases)}
    plan: RenewalPlan[int] = RenewalPlan(lambda lease, _now: views[lease], BatchTiming(1.0, 0.01))
    for lease in views:
        plan.add(lease, lease % landlords, Terms(NEVER, FOREVER), 0.0)
    counter.operations = renewals = 0
    now = 0.0
    while renewals < 6 * leases:
        now = max(now, plan.next_at(1))
        step = plan.step(now, 256)
        assert not step.departures
        for call in step.calls:
            for lease, _ in call.wants:
                renewals += 1
                views[lease] = View(now + 10.0, 10.0)
                assert plan.settled(lease, None, now) is None
    return counter.operations / renewals


def test_what_somebody_else_saves_after_it_was_given_up_is_renewed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rare in the machines: a stall, more ends than one step looks at, a renewal between two."""
    monkeypatch.setattr(renewal_plan, "STEP_BUDGET", 1)
    views = {1: View(10.0, 10.0), 2: View(10.5, 10.5)}
    plan: RenewalPlan[int] = RenewalPlan(lambda lease, _now: views[lease], BatchTiming(1.0, 1.0))
    for lease in views:
        plan.add(lease, lease, Terms(NEVER, FOREVER), 0.0)
    for _ in range(2):  # the first leaves; the second is due, and about to leave
        assert not plan.step(20.0, 9).calls
        views[2] = View(50.0, 30.0)
    assert plan.leases() == [2]
    assert plan.next_at(9) < 50.0
    assert [call.wants for call in plan.step(49.0, 9).calls] == [[(2, FOREVER)]]


def test_calls_under_way_count_after_all_leases_of_their_grantor_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewal_plan, "MAX_CALLS_PER_GRANTOR", 1)
    plan: RenewalPlan[int] = RenewalPlan(
        lambda _lease, _now: View(10.0, 10.0), BatchTiming(1.0, 1.0)
    )
    plan.add(1, "one", Terms(NEVER, FOREVER), 0.0, grantor="same")
    assert len(plan.step(9.5, 9).calls) == 1
    plan.remove(1)
    plan.add(2, "other", Terms(NEVER, FOREVER), 9.5, grantor="same")
    assert not plan.step(9.5, 9).calls
    plan.settled(1, None, 9.6)
    assert len(plan.step(9.6, 9).calls) == 1
