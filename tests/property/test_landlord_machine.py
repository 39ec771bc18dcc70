"""`Landlord`, with each expiry strategy, against the naive landlord, in virtual time."""

import gc
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from leasehold.basics.durations import (
    NEVER,
    Duration,
    DurationLike,
    Requested,
    duration_of,
    seconds_of,
)
from leasehold.errors import EndReason, LeaseDenied, UnknownLease
from leasehold.landlord.landlord import Landlord, LeaseView
from leasehold.landlord.landlord_lease import BatchResult
from leasehold.leases.expiry_queue import STALE_SLACK
from leasehold.leases.expiry_strategies import ExpiryStrategy, exact, lazy, per_lease, polling
from leasehold.leases.lease import Outcome
from leasehold.leases.lease_table import RECHECK_S
from leasehold.leases.policies import (
    DurationPolicy,
    FixedPolicy,
    Leased,
    LeasePolicy,
    LoadPolicy,
)
from leasehold.leases.until_policy import UntilPolicy
from leasehold.testing import Simulation
from tests.property.naive_landlord import (
    EPS,
    REMEMBERED,
    NaiveLandlord,
    NaiveLease,
    NaivePolicy,
    Range,
)
from tests.property.support import bad_durations, effort, naive_seconds, positive

T = TypeVar("T")

MAX_STEP_S: Final = 0.25
LONG_CUT_S: Final = 1.0
POLL_S: Final = 0.7
LONGEST_S: Final = 2.0**24
"""How far time goes: from here on, adding the shortest term (1 ns) to a float does not change it.

Such a lease ends in the call that grants or renews it, before its model has it.
"""


class Resource:
    """Something to lease. Its owner may be one that raises."""

    def __init__(self, cookie: int, raises: bool) -> None:
        self.cookie = cookie
        self.raises = raises


@dataclass(frozen=True)
class Stall:
    """A time in which the grantor does not run."""

    cut_s: float
    begun: list[float]
    """Lease time in each house when it begins."""
    certain: list[bool]
    """Whether a house must cut it: a lease of it can end."""


@dataclass
class Arrival:
    """A renewal that comes in during a stall, and what becomes of it."""

    house: int
    lease: NaiveLease
    duration: DurationLike
    outcomes: list[Outcome] = field(default_factory=list)


class MoodyPolicy(LeasePolicy):
    """Any policy, except while it says no to everything."""

    def __init__(self, inner: LeasePolicy, mood: NaivePolicy) -> None:
        self.inner = inner
        self.mood = mood

    def grant(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        if self.mood.denies:
            raise LeaseDenied("not today")
        return self.inner.grant(leased, requested, now)

    def renew(self, leased: Leased[Any], requested: Requested, now: float) -> Duration:
        if self.mood.denies:
            raise LeaseDenied("not today")
        return self.inner.renew(leased, requested, now)

    def is_current(self, leased: Leased[Any], now: float) -> bool:
        return self.inner.is_current(leased, now)

    def bound_s(self) -> float:
        return self.inner.bound_s()

    def attach(self, leases: Any) -> None:
        self.inner.attach(leases)


lengths = st.sampled_from([0.05, 0.3, 1.0, 2.0, 5.0, 8.0, 20.0, 1e6, NEVER])
policies = st.one_of(
    st.builds(NaivePolicy, st.just("duration"), maximum=lengths, default=lengths),
    st.builds(NaivePolicy, st.just("fixed"), default=lengths),
    st.builds(
        NaivePolicy,
        st.just("load"),
        budget=st.sampled_from([0.5, 2.0, 10.0]),
        minimum=st.sampled_from([0.1, 1.0]),
        maximum=st.sampled_from([1.0, 4.0, 60.0]),
    ),
    st.builds(
        NaivePolicy,
        st.just("duration"),
        maximum=lengths,
        default=lengths,
        until=st.sampled_from([2.0, 10.0, 40.0]),
    ),
)
houses = st.integers(0, 1)
picks = st.integers(0, 30)
renewals: st.SearchStrategy[DurationLike] = st.one_of(
    positive, positive, st.sampled_from([0, 0.0, timedelta(0)])
)
strangers: st.SearchStrategy[Any] = st.sampled_from([-1, "nobody", b"", (), None, [1]])
small_steps = st.floats(0.0, 6.0) | st.sampled_from(
    [0.0, 1e-9, 0.001, 0.06, 0.0999, 0.1, 0.11, 0.15, 0.25, 0.3, 1.0, 2.0, 5.0]
)
stalls = st.one_of(
    st.sampled_from([0.1, 0.2, 0.2499]),
    st.sampled_from([0.2501, 0.5, 1.0, 1.2]),
    st.sampled_from([1.26, 2.0, 7.0, 100.0, 1e6]),
)


class LandlordMachine(RuleBasedStateMachine):
    """Two landlords on one host share a policy; each has its model."""

    strategy: ClassVar[ExpiryStrategy]
    late_s: ClassVar[float]
    """How late a step may end a lease without anybody calling; `NEVER` for the lazy landlord."""
    unsettled_s: ClassVar[float] = 0.0
    """How long after a cut that may be later."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Simulation(7)
        self.host = self.sim.host("grantor")
        self.begun_at = self.host.clock.monotonic()
        self.born_at = self.host.clock.boottime()
        self.cookies = 0
        self.resources: dict[int, weakref.ref[Resource]] = {}
        self.lags = [0.0, 0.0]
        self.calm_since = [0.0, 0.0]  # in lease time: a timer may fall into one stall after another
        self.models: list[NaiveLandlord] = []
        self.landlords: list[Landlord[Resource]] = []
        self.churned = False
        self.faults: list[str] = []  # a landlord takes no exception from an owner
        self.in_batch = False
        self.events: dict[int, list[str]] = {}
        """What the hooks were called with, by cookie."""
        self.renewals: dict[int, int] = {}
        """The renewals that have succeeded, by cookie: of every lease that was granted."""

    @initialize(policy=policies)
    def open_houses(self, policy: NaivePolicy) -> None:
        shared = MoodyPolicy(self.make_policy(policy), policy)
        self.policy = policy
        self.models = [NaiveLandlord(policy) for _ in range(2)]
        self.landlords = [
            Landlord(
                shared,
                on_granted=self.hook_of(house, "granted"),
                on_renewed=self.hook_of(house, "renewed"),
                on_ended=self.owner_of(house),
                expiry=self.strategy,
                cookies=self.next_cookie,
                clock=self.host.clock,
            )
            for house in range(2)
        ]

    def make_policy(self, naive: NaivePolicy) -> LeasePolicy:
        if naive.kind == "fixed":
            return FixedPolicy(duration_of(naive.default))
        if naive.kind == "load":
            return LoadPolicy(naive.budget, naive.minimum, duration_of(naive.maximum))
        plain = DurationPolicy(duration_of(naive.maximum), duration_of(naive.default))
        if naive.until == NEVER:
            return plain
        wall = datetime.fromtimestamp(self.host.clock.wall(), UTC)
        return UntilPolicy(wall + timedelta(seconds=naive.until), plain, clock=self.host.clock)

    def next_cookie(self) -> int:
        self.cookies += 1
        return self.cookies

    # Time.

    @property
    def is_lazy(self) -> bool:
        return self.late_s == NEVER

    @property
    def real_now(self) -> float:
        return self.host.clock.boottime() - self.born_at

    def sync(self) -> None:
        """Let the models know what time it is."""
        for model, lag in zip(self.models, self.lags, strict=True):
            model.now = self.host.clock.monotonic() - self.begun_at - lag

    def span(self, seconds: float) -> float:
        """This long, or what is left until `LONGEST_S`; an ordinary span at least."""
        return min(seconds, max(0.9 * LONGEST_S - self.real_now, 150.0))

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self.sync()
        return self.host.call(function, *args, **kwargs)

    def enter(self, landlord: Landlord[Resource]) -> float:
        return self.call(lambda: landlord.now)

    def hook_of(self, house: int, event: str) -> Callable[[Resource, LeaseView[Resource]], None]:
        def hook(resource: Resource, view: LeaseView[Resource]) -> None:
            self.events.setdefault(resource.cookie, []).append(event)
            if view.resource is not resource or view.cookie != resource.cookie:
                self.faults.append(f"{event} {resource.cookie} with another lease: {view.cookie}")
            try:
                now = self.landlords[house].resource(resource.cookie)  # it may be called
            except UnknownLease:
                now = None
            if now != view and not self.in_batch:  # else it may have been renewed twice, or ended
                self.faults.append(f"{event} {resource.cookie}: {view}, and now it is {now}")
            if resource.raises:
                raise RuntimeError("a hook that raises")

        return hook

    def owner_of(self, house: int) -> Callable[[Resource, EndReason], None]:
        def on_ended(resource: Resource, reason: EndReason) -> None:
            landlord, model = self.landlords[house], self.models[house]
            lease = model.leases[resource.cookie]
            if resource.cookie in landlord.table:
                self.faults.append(f"{lease}: its owner was told before it left the table")
            if reason is EndReason.EXPIRED and model.policy.bound(self.real_now) > EPS:
                early_s = model.earliest(lease) - landlord.table.clock.now
                if early_s > EPS or not landlord.table.clock.may_end:
                    self.faults.append(f"{lease} ended {early_s} s early")
                late_s = landlord.table.clock.now - self.due(house, lease)
                if late_s > self.late_s:
                    self.faults.append(f"{lease} ended {late_s} s late")
            if lease.ended is not None:
                self.faults.append(f"{lease} ended again: {reason}")
            model.finish(resource.cookie, reason)
            self.events.setdefault(resource.cookie, []).append("ended")
            if resource.raises:
                raise RuntimeError("an owner that raises")

        return on_ended

    @rule(seconds=small_steps)
    def pass_time(self, seconds: float) -> None:
        self.sim.run_for(seconds)
        self.check_ends()

    @rule(seconds=st.sampled_from([30.0, 120.0, 1e4, 1e7]))
    def pass_much_time(self, seconds: float) -> None:
        """Ticks cost real time, so huge steps are for those who do not tick."""
        can_end = any(lease.end != NEVER for model in self.models for lease in model.live())
        ticks = can_end and not self.is_lazy
        self.sim.run_for(min(seconds, 60.0) if ticks else self.span(seconds))
        self.check_ends()

    @rule(
        seconds=st.lists(stalls, min_size=1, max_size=3),
        waiting=st.lists(st.tuples(houses, picks, positive), max_size=3),
    )
    def stall(self, seconds: list[float], waiting: list[tuple[int, int, DurationLike]]) -> None:
        """The grantor does not run; renewals arrive meanwhile and wait in its sockets."""
        for index, each in enumerate(seconds):
            self.stall_once(self.span(each), waiting if index == 0 else [])
        self.check_ends()

    def stall_once(self, seconds: float, waiting: list[tuple[int, int, DurationLike]]) -> None:
        for landlord in self.landlords:
            self.enter(landlord)  # an entry: the gap is that of the stall
        self.sync()
        stall = Stall(
            cut_s=0.0 if self.is_lazy else max(0.0, seconds - MAX_STEP_S),
            begun=[model.now for model in self.models],
            certain=[any(lease.end != NEVER for lease in model.live()) for model in self.models],
        )
        arrivals = self.choose_arrivals(waiting)
        self.host.call(self.host.stall, seconds)
        for arrival in arrivals:
            self.sim.after(seconds / 2, self.delivery(arrival, stall))
        for house in range(2):
            self.calm_since[house] = stall.begun[house] + min(seconds, MAX_STEP_S)
            if stall.certain[house]:
                self.cut(house, stall)
        self.sync()
        self.sim.run_for(seconds)
        for arrival in arrivals:
            note(f"waited: {arrival}")
            assert arrival.outcomes, "what waited in the sockets was not handled"
        for house in range(2):
            self.check_lag(house, stall)

    def choose_arrivals(self, waiting: list[tuple[int, int, DurationLike]]) -> list[Arrival]:
        """Renewals of leases that are alive when the stall begins, one for each."""
        arrivals: dict[int, Arrival] = {}
        for house, pick, duration in waiting:
            model = self.models[house]
            alive = [each for each in model.live() if model.is_alive(each, self.real_now)]
            if alive:
                lease = alive[pick % len(alive)]
                arrivals[lease.cookie] = Arrival(house, lease, duration)
        return list(arrivals.values())

    def delivery(self, arrival: Arrival, stall: Stall) -> Callable[[], object]:
        """Handle a renewal that came in during a stall: after a cut none comes too late."""

        def handle() -> None:
            house = arrival.house
            if not stall.certain[house]:
                self.enter(self.landlords[house])
                self.check_lag(house, stall)
            in_time = stall.cut_s > 0.0 and self.policy.bound(self.real_now) > EPS
            outcome = self.renew_one(house, arrival.lease.cookie, arrival.duration, in_time=in_time)
            arrival.outcomes.append(outcome)

        return lambda: self.host.deliver(handle)

    def cut(self, house: int, stall: Stall) -> None:
        """Lease time moves on by the longest step, and the rest is lag."""
        if stall.cut_s:
            self.lags[house] += stall.cut_s
        if stall.cut_s > LONG_CUT_S:
            self.models[house].grace_from = stall.begun[house] + MAX_STEP_S

    def check_lag(self, house: int, stall: Stall) -> None:
        """Where no lease could end, a landlord need not have kept time at all."""
        lag = self.landlords[house].lag_s
        if abs(lag - self.lags[house]) > EPS:
            assert not stall.certain[house], f"the lag is {lag}, not {self.lags[house]}"
            self.cut(house, stall)
            assert abs(lag - self.lags[house]) <= EPS
        self.sync()

    def due(self, house: int, lease: NaiveLease) -> float:
        """When a step should end a lease; a stall makes it late, if only by itself."""
        calm_since = self.calm_since[house] + self.unsettled_s
        return max(self.models[house].latest(lease), calm_since)

    def check_ends(self) -> None:
        """What a step must have ended by now, nobody having called, has ended."""
        self.sync()
        if self.is_lazy:
            return
        for house, model in enumerate(self.models):
            for lease in model.live():
                late_s = model.now - self.due(house, lease)
                assert late_s < self.late_s, f"{lease} is {late_s} s late"

    # Calls.

    @rule(house=houses, duration=positive, pending=st.booleans(), raises=st.booleans())
    def grant(self, house: int, duration: DurationLike, pending: bool, raises: bool) -> None:
        landlord, model = self.landlords[house], self.models[house]
        resource = Resource(self.cookies + 1, raises)
        self.sync()
        load = self.load(1)
        before = self.snapshot()
        try:
            lease = self.call(landlord.grant, resource, duration, pending=pending)
        except LeaseDenied:
            assert self.policy.denies or self.policy.bound(self.real_now) <= EPS
            self.unchanged(before)
            return
        assert not self.policy.denies
        assert lease.cookie == resource.cookie
        requested = naive_seconds(duration)
        term = seconds_of(lease.term)
        allowed = [
            self.policy.term(requested, int(n), self.real_now) for n in (load.low, load.high)
        ]
        assert term in Range(*allowed)
        self.never_longer_than_asked(requested, term)
        model.leases[resource.cookie] = NaiveLease(
            resource.cookie, term, NEVER if pending else model.now + term, pending and term != NEVER
        )
        self.resources[resource.cookie] = weakref.ref(resource)
        self.renewals[resource.cookie] = 0

    @rule(
        house=houses,
        seconds=st.lists(st.sampled_from([0.05, 0.1, 0.2, 0.3, 1.0, 2.0, 4.9, 8.0]), max_size=3),
    )
    def grant_some(self, house: int, seconds: list[float]) -> None:
        for each in seconds:
            self.grant(house, each, pending=False, raises=False)

    def never_longer_than_asked(self, requested: Requested, answer: float) -> None:
        if self.policy.kind == "duration" and isinstance(requested, float):
            assert answer in Range(0.0, requested)

    @rule(house=houses, duration=bad_durations | st.sampled_from([0, 0.0, timedelta(0)]))
    def grant_badly(self, house: int, duration: Any) -> None:
        before = self.snapshot()
        try:
            self.call(self.landlords[house].grant, Resource(0, False), duration)
        except (TypeError, ValueError):
            self.unchanged(before)
        else:
            raise AssertionError(f"a grant of {duration!r} went through")

    def pick(self, house: int, pick: int) -> int:
        """Name a lease, one that lives if there is any, an ended one now and then."""
        model = self.models[house]
        live = [lease.cookie for lease in model.live()]
        everyone = list(model.leases)
        if live and pick % 4:
            return live[pick % len(live)]
        return everyone[pick % len(everyone)] if everyone else -1

    @rule(house=houses, pick=picks, duration=renewals)
    def renew(self, house: int, pick: int, duration: DurationLike) -> None:
        self.renew_one(house, self.pick(house, pick), duration)

    def renew_one(
        self, house: int, cookie: int, duration: DurationLike, *, in_time: bool = False
    ) -> Outcome:
        self.sync()
        landlord = self.landlords[house]
        load, before = self.load(0), self.snapshot()
        alive = in_time or self.alive(house, cookie)
        try:
            outcome: Outcome = self.host.call(landlord.renew, cookie, duration)
        except (UnknownLease, LeaseDenied) as error:
            self.unchanged(before)
            outcome = error.with_traceback(None)
        self.judge(house, cookie, naive_seconds(duration), alive, load, outcome)
        return outcome

    def alive(self, house: int, cookie: object) -> bool | None:
        model = self.models[house]
        if not isinstance(cookie, int) or cookie not in model.leases:
            return False
        lease = model.leases[cookie]
        return model.is_alive(lease, self.real_now)

    def unknown(self, house: int, cookie: Any, alive: bool | None, error: UnknownLease) -> None:
        """A lease is not there only if it is over, and the reason is right while remembered."""
        model = self.models[house]
        assert alive is not True, f"{model.leases[cookie]} was still alive"
        assert error.reason in model.reasons(cookie)

    def judge(
        self,
        house: int,
        cookie: Any,
        requested: Requested,
        alive: bool | None,
        load: Range,
        outcome: Outcome,
    ) -> None:
        """Compare what became of one renewal with what may become of it."""
        model = self.models[house]
        if isinstance(outcome, UnknownLease):
            self.unknown(house, cookie, alive, outcome)
            return
        if isinstance(outcome, LeaseDenied):
            assert alive is not False
            assert self.policy.denies or self.policy.bound(self.real_now) <= EPS
            return
        if isinstance(outcome, TypeError):
            assert cookie is None or isinstance(cookie, list)
            return
        assert not isinstance(outcome, BaseException), outcome
        assert alive is not False, "a lease that is over was renewed"
        lease = model.leases[cookie]
        answer = seconds_of(outcome)
        if requested == 0.0:
            assert answer == 0.0
            assert lease.ended is EndReason.CANCELLED
            return
        assert not self.policy.denies
        self.renewals[cookie] += 1
        allowed = model.renewed(lease, requested, load, self.real_now)
        assert answer in allowed, f"{answer} not in {allowed}: {lease}, asked for {requested}"
        self.never_longer_than_asked(requested, answer)
        ends = Range(lease.end, model.latest(lease))
        kept = lease.end != NEVER and model.now + answer in ends
        lease.old_term = max(lease.term, lease.old_term) if kept else 0.0
        lease.term = min(lease.term, answer) if kept else answer
        lease.end, lease.pending = model.now + answer, False

    @rule(house=houses, pick=picks, duration=bad_durations)
    def renew_badly(self, house: int, pick: int, duration: Any) -> None:
        before = self.snapshot()
        cookie = self.pick(house, pick)
        for attempt in (
            lambda: self.landlords[house].renew(cookie, duration),
            lambda: self.landlords[house].renew_all([(cookie, 0.0), (cookie, duration)]),
        ):
            try:
                self.call(attempt)
            except (TypeError, ValueError):
                self.unchanged(before)
            else:
                raise AssertionError(f"a renewal for {duration!r} went through")

    @rule(
        house=houses,
        wants=st.lists(st.tuples(picks | strangers, renewals), max_size=6),
        cancel=st.booleans(),
    )
    def batch(self, house: int, wants: list[tuple[Any, DurationLike]], cancel: bool) -> None:
        """Each entry of a batch does what the same call alone would do."""
        self.sync()
        landlord = self.landlords[house]
        named: list[tuple[Any, DurationLike]] = [
            (self.pick(house, who) if type(who) is int and who >= 0 else who, duration)
            for who, duration in wants
        ]
        alive = {cookie: self.alive(house, cookie) for cookie, _ in named if _is_hashable(cookie)}
        low = self.load(0)
        self.in_batch = True
        if cancel:
            result = self.call(landlord.cancel_all, [cookie for cookie, _ in named])
            named = [(cookie, 0.0) for cookie, _ in named]
        else:
            result = self.call(landlord.renew_all, named)
        self.in_batch = False
        self.judge_batch(house, named, alive, Range(max(0, low.low - len(named)), low.high), result)

    def judge_batch(
        self,
        house: int,
        named: list[tuple[Any, DurationLike]],
        alive: dict[Hashable, bool | None],
        load: Range,
        result: BatchResult,
    ) -> None:
        assert list(result.cookies) == [cookie for cookie, _ in named]
        pairs = zip(named, result.outcomes, strict=True)
        failures = []
        for (cookie, duration), outcome in pairs:
            requested = naive_seconds(duration)
            was_alive = alive.get(cookie) if _is_hashable(cookie) else False
            self.judge(house, cookie, requested, was_alive, load, outcome)
            if isinstance(outcome, BaseException):
                failures.append((cookie, outcome))
            elif requested == 0.0:
                alive[cookie] = False
        assert result.failures == failures

    @rule(house=houses, pick=picks)
    def cancel(self, house: int, pick: int) -> None:
        self.sync()
        cookie = self.pick(house, pick)
        model, alive, before = self.models[house], self.alive(house, cookie), self.snapshot()
        try:
            self.call(self.landlords[house].cancel, cookie)
        except UnknownLease as error:
            self.unknown(house, cookie, alive, error)
            self.unchanged(before)
        else:
            assert alive is not False
            assert model.leases[cookie].ended is EndReason.CANCELLED

    @rule(house=houses, pick=picks)
    def look(self, house: int, pick: int) -> None:
        self.sync()
        cookie = self.pick(house, pick)
        model, alive, before = self.models[house], self.alive(house, cookie), self.snapshot()
        try:
            view = self.call(self.landlords[house].resource, cookie)
        except UnknownLease as error:
            self.unknown(house, cookie, alive, error)
            self.unchanged(before)
            return
        assert alive is not False
        lease = model.leases[cookie]
        assert view.resource is self.resources[cookie]()
        assert view.cookie == cookie
        end, remaining = seconds_of(view.end), seconds_of(view.remaining)
        assert end in Range(lease.end, model.latest(lease))
        if end != NEVER:
            assert remaining in Range(end - model.now, end - model.now)

    @rule(house=houses, pick=picks)
    def answer(self, house: int, pick: int) -> None:
        self.sync()
        model = self.models[house]
        waiting = [lease.cookie for lease in model.live() if lease.pending]
        cookie = waiting[pick % len(waiting)] if waiting and pick % 3 else self.pick(house, pick)
        alive, before = self.alive(house, cookie), self.snapshot()
        try:
            self.call(self.landlords[house].answer, cookie)
        except UnknownLease as error:
            self.unknown(house, cookie, alive, error)
            self.unchanged(before)
        except ValueError:
            assert not model.leases[cookie].pending
            assert model.leases[cookie].end != NEVER
            self.unchanged(before)
        else:
            assert alive is not False
            lease = model.leases[cookie]
            assert lease.pending or lease.end == NEVER
            if lease.pending:
                lease.pending = False
                lease.end = model.now + min(lease.term, self.policy.bound(self.real_now))

    @rule(house=houses, pick=picks, duration=positive)
    def ask_while_the_policy_says_no(self, house: int, pick: int, duration: DurationLike) -> None:
        self.policy.denies = True
        self.grant(house, duration, pending=False, raises=False)
        self.renew_one(house, self.pick(house, pick), duration)
        self.policy.denies = False

    @precondition(lambda self: not self.churned)
    @rule(house=houses, cookie_count=st.sampled_from([100, REMEMBERED + 10]))
    def churn(self, house: int, cookie_count: int) -> None:
        """Many short lives: what is remembered is bounded, and so is the queue."""
        self.churned = True
        if self.policy.bound(self.real_now) > EPS:
            for _ in range(cookie_count):
                self.grant(house, 1e6, pending=False, raises=False)
                if self.cookies in self.models[house].leases:
                    self.call(self.landlords[house].cancel, self.cookies)
                self.queue_is_bounded()

    # What always holds.

    def load(self, more: int) -> Range:
        """How many leases the policy may count: those alive, perhaps some that are overdue."""
        alive = sum(
            model.is_alive(lease, self.real_now) is True
            for model in self.models
            for lease in model.live()
        )
        return Range(alive + more, sum(len(landlord) for landlord in self.landlords) + more)

    def snapshot(self) -> dict[tuple[int, Any], tuple[float, float]]:
        """All that a call could change of each lease."""
        return {
            (house, leased.cookie): (leased.deadline, leased.term_s)
            for house, landlord in enumerate(self.landlords)
            for leased in landlord.table
        }

    def unchanged(self, before: dict[tuple[int, Any], tuple[float, float]]) -> None:
        """A call that failed changed nothing, except that leases that were due may be gone."""
        after = self.snapshot()
        for (house, cookie), (deadline, term) in before.items():
            now, bound = self.landlords[house].table.clock.now, self.policy.bound(self.real_now)
            if deadline > now + EPS and bound > EPS:
                assert after.get((house, cookie)) == (deadline, term), "a failed call did something"

    @invariant()
    def owners_saw_no_fault(self) -> None:
        assert not self.faults, self.faults

    @invariant()
    def each_hook_was_called_once_for_each_event_and_in_order(self) -> None:
        assert self.events.keys() == self.renewals.keys()
        for model in self.models:
            for lease in model.leases.values():
                ended = ["ended"] if lease.ended is not None else []
                renewed = ["renewed"] * self.renewals[lease.cookie]
                assert self.events[lease.cookie] == ["granted", *renewed, *ended]

    @invariant()
    def lease_time_and_lag_add_up(self) -> None:
        self.sync()
        for landlord, model, lag in zip(self.landlords, self.models, self.lags, strict=True):
            now = self.enter(landlord)
            assert abs(now - model.now) <= EPS, f"{now}, not {model.now}"
            assert abs(landlord.lag_s - lag) <= EPS

    @invariant()
    def table_holds_the_live_and_nothing_else(self) -> None:
        for landlord, model in zip(self.landlords, self.models, strict=True):
            assert {leased.cookie for leased in landlord.table} == {
                lease.cookie for lease in model.live()
            }
            assert not landlord.table.ended
            assert not landlord._changes

    @invariant()
    def queue_is_bounded(self) -> None:
        for landlord in self.landlords:
            queue = landlord.table._queue
            assert 0 <= queue.stale <= queue._live + STALE_SLACK
            assert queue._live <= len(landlord)

    @invariant()
    def ended_leases_leave_no_timer_behind(self) -> None:
        timers = sum(not timer.cancelled() for *_, timer in self.host.loop._timers)
        live = sum(len(landlord) for landlord in self.landlords)
        for landlord in self.landlords:
            for leased in getattr(landlord._reaper, "_timers", {}):
                assert leased.cookie in landlord.table
        per_lease_timers = live if isinstance(self.strategy, per_lease) else 0
        assert timers <= (0 if self.is_lazy else len(self.landlords) + per_lease_timers)

    @invariant()
    def ended_leases_keep_no_resource_alive(self) -> None:
        gone = [cookie for m in self.models for cookie in m.ended if cookie in self.resources]
        if any(self.resources[cookie]() is not None for cookie in gone):
            gc.collect()
        for cookie in gone:
            assert self.resources.pop(cookie)() is None

    def teardown(self) -> None:
        try:
            if self.landlords:
                self.end_all()
        finally:
            self.sim.close()

    def end_all(self) -> None:
        """In the end all finite leases end, once, and nothing runs any more."""
        for house, model in enumerate(self.models):
            for lease in model.live():
                if lease.end > model.now + 100.0 and self.alive(house, lease.cookie):
                    self.call(self.landlords[house].cancel, lease.cookie)
        self.sim.run_for(150.0)
        self.check_ends()
        for landlord in self.landlords if self.is_lazy else []:
            while len(landlord):
                before = len(landlord)
                self.enter(landlord)
                assert len(landlord) < before
        assert not any(model.live() for model in self.models)
        assert all(timer.cancelled() for *_, timer in self.host.loop._timers)
        self.ended_leases_keep_no_resource_alive()
        self.owners_saw_no_fault()


def _is_hashable(cookie: object) -> bool:
    return not isinstance(cookie, list)


class ExactMachine(LandlordMachine):
    strategy = exact()
    late_s = 0.001


class PollingMachine(LandlordMachine):
    strategy = polling(POLL_S)
    late_s = POLL_S + 0.101


class PerLeaseMachine(LandlordMachine):
    strategy = per_lease()
    late_s = 0.001
    unsettled_s = RECHECK_S


class LazyMachine(LandlordMachine):
    strategy = lazy()
    late_s = NEVER


TestExact = ExactMachine.TestCase
TestExact.settings = effort(150, steps=50)
TestPolling = PollingMachine.TestCase
TestPolling.settings = effort(150, steps=50)
TestPerLease = PerLeaseMachine.TestCase
TestPerLease.settings = effort(150, steps=50)
TestLazy = LazyMachine.TestCase
TestLazy.settings = effort(150, steps=50)
