"""The renewal plan: which leases to renew now, which to give up, and when to look again."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from leasehold import ANY, FOREVER, ConnectionLost, LeaseDenied, NoticeKind, UnknownLease
from leasehold.basics.durations import NEVER
from leasehold.leases.renewal_plan import (
    MAX_BATCH,
    MAX_CALL_S,
    STEP_BUDGET,
    Departure,
    RenewalCall,
    RenewalPlan,
    Step,
    Terms,
    View,
)
from leasehold.leases.renewal_times import BatchTiming

MANY = 1000
"""More calls than any of these tests starts."""


@dataclass(eq=False)
class Holder:
    """A plan, and the ends of its leases as a test sets them."""

    rtt_s: float = 1.0
    batch_window_s: float = 300.0
    now: float = 0.0
    views: dict[str, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan: RenewalPlan[str] = RenewalPlan(
            lambda lease, _now: self.views[lease],
            BatchTiming(self.rtt_s, self.batch_window_s),
        )

    def add(
        self,
        lease: str,
        term: float,
        desired_end: float = NEVER,
        renew_duration: Any = FOREVER,
        *,
        key: object = "landlord",
        age: float = 0.0,
        due_at: float | None = None,
    ) -> None:
        self.views[lease] = View(self.now + term - age, term)
        terms = Terms(desired_end, renew_duration, f"tag of {lease}")
        self.plan.add(lease, key, terms, self.now, due_at=due_at)

    def step(self, now: float, capacity: int = MANY) -> Step[str]:
        self.now = now
        return self.plan.step(now, capacity)

    def sent(self, now: float) -> list[list[tuple[str, Any]]]:
        return [call.wants for call in self.step(now).calls]

    def succeed(self, lease: str, term: float) -> None:
        self.views[lease] = View(self.now + term, term)
        assert self.plan.settled(lease, None, self.now) is None

    def next_at(self) -> float:
        return self.plan.next_at(MANY)


@pytest.fixture
def holder() -> Holder:
    return Holder()


def test_a_lease_is_due_its_lead_before_its_end(holder: Holder) -> None:
    holder.add("a", 80.0)
    assert holder.next_at() == 70.0
    assert holder.sent(69.9) == []
    assert holder.sent(70.0) == [[("a", FOREVER)]]


@pytest.mark.parametrize(
    ("desired_end", "renew_duration", "asked"),
    [
        (NEVER, ANY, ANY),
        (NEVER, FOREVER, FOREVER),
        (NEVER, 30.0, 30.0),
        (100.0, FOREVER, 30.0),
        (100.0, 20.0, 20.0),
        (100.0, 30.0, 30.0),
        (100.0, 40.0, 30.0),
    ],
)
def test_asked_for_is_any_or_the_shorter_of_the_renew_duration_and_what_is_wanted(
    holder: Holder, desired_end: float, renew_duration: Any, asked: Any
) -> None:
    holder.add("a", 80.0, desired_end, renew_duration)
    assert holder.sent(70.0) == [[("a", asked)]]


@pytest.mark.parametrize("desired_end", [50.0, 79.9, 80.0])
def test_a_desired_end_before_the_actual_one_is_never_renewed_and_stays_until_then(
    holder: Holder, desired_end: float
) -> None:
    holder.add("a", 80.0, desired_end)
    assert holder.next_at() == desired_end
    assert holder.step(math.nextafter(desired_end, 0.0)) == Step([], [])
    assert "a" in holder.plan
    [departure] = holder.step(desired_end).departures
    assert departure.kind is NoticeKind.EXPIRED
    assert "a" not in holder.plan


def test_a_lease_without_end_is_left_alone_until_its_desired_end(holder: Holder) -> None:
    holder.add("forever", NEVER)
    assert holder.next_at() == NEVER
    holder.add("a while", NEVER, 100.0)
    assert holder.next_at() == 100.0
    step = holder.step(100.0)
    assert [departure.lease for departure in step.departures] == ["a while"]
    assert step.calls == []


def test_at_the_desired_end_a_lease_leaves_without_an_error(holder: Holder) -> None:
    holder.add("a", 80.0, 100.0)
    holder.step(70.0)
    assert holder.plan.settled("a", ConnectionLost("gone"), 70.0) is None
    holder.views["a"] = View(200.0, 200.0)  # somebody else renewed it
    [departure] = holder.step(100.0).departures
    assert departure == Departure(NoticeKind.EXPIRED, "a", Terms(100.0, FOREVER, "tag of a"), None)


def test_if_the_actual_end_passes_first_a_lease_leaves_as_failed_without_an_attempt(
    holder: Holder,
) -> None:
    holder.add("a", 80.0)
    [departure] = holder.step(80.0).departures
    assert (departure.kind, departure.error) == (NoticeKind.FAILED, None)
    assert len(holder.plan) == 0


def test_if_the_actual_end_passes_first_the_last_error_is_told(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    error = ConnectionLost("gone")
    assert holder.plan.settled("a", error, 70.0) is None
    [departure] = holder.step(80.0).departures
    assert (departure.kind, departure.error) == (NoticeKind.FAILED, error)


def test_if_the_actual_end_passed_first_it_is_a_failure_even_if_nobody_looked_until_later(
    holder: Holder,
) -> None:
    holder.add("a", 80.0, 100.0)
    holder.views["a"] = View(120.0, 80.0)  # what a holder's clock shows of a lease that is over
    [departure] = holder.step(120.0).departures  # the machine slept through both ends
    assert departure.kind is NoticeKind.FAILED


def test_a_success_makes_former_errors_forgotten(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    holder.plan.settled("a", ConnectionLost("gone"), 70.0)
    holder.step(holder.next_at())
    holder.succeed("a", 80.0)
    [departure] = holder.step(holder.now + 80.0).departures
    assert departure.error is None


@pytest.mark.parametrize("error", [LeaseDenied("full"), UnknownLease("a"), KeyError("bug")])
def test_a_definite_error_makes_a_lease_leave_at_once(holder: Holder, error: Exception) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    departure = holder.plan.settled("a", error, 70.5)
    assert departure == Departure(NoticeKind.FAILED, "a", Terms(NEVER, FOREVER, "tag of a"), error)
    assert len(holder.plan) == 0
    assert holder.next_at() == NEVER


@pytest.mark.parametrize("error", [ConnectionLost("gone"), TimeoutError(), EOFError(), OSError()])
def test_an_indefinite_error_is_retried_until_the_actual_end(
    holder: Holder, error: Exception
) -> None:
    holder.add("a", 80.0)
    attempts: list[float] = []
    departures: list[Departure[str]] = []
    while not departures:
        step = holder.step(holder.next_at())
        departures += step.departures
        for call in step.calls:
            attempts.append(holder.now)
            assert call.wants == [("a", FOREVER)]
            assert holder.plan.settled("a", error, holder.now) is None
    assert holder.now == 80.0
    assert (departures[0].kind, departures[0].error) == (NoticeKind.FAILED, error)
    assert attempts[0] == 70.0
    assert attempts[1] == pytest.approx(70.0 + 10.0 / 3)
    assert 5 <= len(attempts) <= 30
    assert attempts[-1] > 79.0


def test_a_renewed_lease_is_due_its_lead_before_its_new_end(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    holder.succeed("a", 40.0)
    assert holder.next_at() <= 105.0
    assert holder.sent(104.9) == []
    assert holder.sent(105.0) == [[("a", FOREVER)]]


def test_a_lease_that_somebody_else_renewed_is_not_renewed_again(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.views["a"] = View(140.0, 80.0)
    assert holder.sent(70.0) == []
    assert holder.next_at() <= 131.25
    assert holder.sent(131.2) == []
    assert holder.sent(131.25) == [[("a", FOREVER)]]


def test_at_most_one_renewal_of_a_lease_is_outstanding(holder: Holder) -> None:
    holder.add("a", 80.0)
    assert len(holder.sent(70.0)) == 1
    for now in (70.0, 75.0, 79.9):
        assert holder.sent(now) == []


@pytest.mark.parametrize("again", ["replaced", "removed and added"])
def test_a_lease_that_is_added_again_while_a_renewal_is_in_flight_waits_for_it(
    holder: Holder, again: str
) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    if again != "replaced":
        holder.plan.remove("a")
    holder.views["a"] = View(80.0, 80.0)
    holder.plan.add("a", "landlord", Terms(NEVER, 30.0), 71.0)
    for now in (75.0, 79.5, 79.999):
        assert holder.sent(now) == []
    holder.succeed("a", 80.0)
    assert holder.sent(152.0) == [[("a", 30.0)]]


def test_an_answer_for_a_lease_that_was_removed_is_of_no_interest(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    holder.plan.remove("a")
    assert holder.plan.settled("a", KeyError("bug"), 71.0) is None
    assert holder.next_at() == NEVER


def test_an_answer_for_a_lease_that_left_meanwhile_is_of_no_interest(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    assert len(holder.step(80.0).departures) == 1
    assert holder.plan.settled("a", None, 81.0) is None


def test_new_terms_replace_the_old_ones(holder: Holder) -> None:
    holder.add("a", 80.0, 200.0, 20.0)
    holder.plan.add("a", "landlord", Terms(300.0, 40.0), 10.0)
    assert len(holder.plan) == 1
    assert holder.plan.terms("a") == Terms(300.0, 40.0)
    assert holder.sent(holder.next_at()) == [[("a", 40.0)]]


@pytest.mark.parametrize("error", [None, ConnectionLost("gone")])
def test_a_desired_end_moved_before_the_actual_one_while_in_flight_means_no_more_renewals(
    holder: Holder, error: Exception | None
) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    holder.plan.add("a", "landlord", Terms(78.0, FOREVER), 70.5)
    assert holder.plan.settled("a", error, 71.0) is None
    for now in (71.0, 72.0, 74.0, 76.0, 77.9):
        assert holder.sent(now) == []
    [departure] = holder.step(78.0).departures
    assert departure.kind is NoticeKind.EXPIRED


def test_new_terms_while_in_flight_do_not_put_off_the_retry(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.step(70.0)
    holder.plan.add("a", "landlord", Terms(NEVER, 40.0), 70.5)
    holder.plan.settled("a", ConnectionLost("gone"), 71.0)
    assert holder.sent(73.9) == []
    assert holder.sent(74.0) == [[("a", 40.0)]]


@pytest.mark.parametrize("verb", ["remove", "terms"])
def test_a_lease_that_is_not_managed_is_unknown(holder: Holder, verb: str) -> None:
    with pytest.raises(UnknownLease) as caught:
        getattr(holder.plan, verb)("a")
    assert caught.value.lease == "a"


def test_a_lease_that_is_removed_leaves_nothing_behind(holder: Holder) -> None:
    for number in range(100):
        holder.add(str(number), 80.0, key=number % 3)
    for number in range(100):
        assert holder.plan.remove(str(number)).tag == f"tag of {number}"
    assert (len(holder.plan), holder.plan.leases(), holder.next_at()) == (0, [], NEVER)
    assert holder.plan._pools == {}
    assert holder.plan._due_entries == {}
    assert holder.step(1000.0) == Step([], [])


def test_one_lease_that_is_due_takes_along_those_of_its_landlord_within_the_window(
    holder: Holder,
) -> None:
    holder.batch_window_s = 100.0
    holder.__post_init__()
    holder.add("due", 800.0)  # at 700
    holder.add("within", 900.0)  # at 787.5
    holder.add("beyond", 1000.0)  # at 875
    holder.add("another landlord's", 801.0, key="other")
    [wants] = holder.sent(700.0)
    assert sorted(lease for lease, _ in wants) == ["due", "within"]


def test_a_lease_in_the_first_half_of_its_term_is_not_taken_along(holder: Holder) -> None:
    holder.add("due", 80.0)  # at 70
    holder.add("young", 150.0)  # half over at 75
    holder.add("old", 139.0)  # half over at 69.5
    [wants] = holder.sent(70.0)
    assert sorted(lease for lease, _ in wants) == ["due", "old"]


def test_each_lease_of_a_batch_has_its_own_request(holder: Holder) -> None:
    holder.add("a", 80.0, 100.0, FOREVER)
    holder.add("b", 81.0, NEVER, ANY)
    holder.add("c", 82.0, NEVER, 25.0)
    [wants] = holder.sent(70.0)
    assert dict(wants) == {"a": 30.0, "b": ANY, "c": 25.0}


def test_what_somebody_else_renewed_is_not_taken_along(holder: Holder) -> None:
    holder.add("due", 80.0)
    holder.add("renewed", 81.0)
    holder.add("wanted no longer", 81.0, 90.0)
    holder.views["renewed"] = View(150.0, 81.0)
    holder.views["wanted no longer"] = View(150.0, 81.0)
    assert holder.sent(70.0) == [[("due", FOREVER)]]
    holder.succeed("due", 80.0)
    [departure] = holder.step(90.0).departures
    assert (departure.lease, departure.kind) == ("wanted no longer", NoticeKind.EXPIRED)


def test_a_lease_that_waits_for_a_retry_is_not_taken_along_before_its_time(
    holder: Holder,
) -> None:
    holder.add("failed", 80.0)
    assert len(holder.sent(70.0)) == 1
    holder.plan.settled("failed", ConnectionLost("gone"), 70.0)  # again at 73.3
    holder.add("due", 1.5)
    assert holder.sent(71.0) == [[("due", FOREVER)]]


@pytest.mark.slow
@pytest.mark.parametrize("leases", [10, 1000])
def test_many_leases_settle_into_one_call_a_term_and_never_drift_into_a_tight_loop(
    leases: int,
) -> None:
    holder = Holder()
    for number in range(leases):
        holder.now = number * 60.0 / leases
        holder.add(str(number), 60.0)
    calls = renewals = 0
    while holder.now < 3600.0:
        step = holder.step(max(holder.next_at(), holder.now))
        assert step.departures == []
        for call in step.calls:
            calls += 1
            renewals += len(call.wants)
            for lease, _ in call.wants:
                holder.succeed(lease, 60.0)
    assert calls <= 3 * 3600 / 30
    assert renewals <= leases * (3600 / 30 + 2)


def test_a_call_waits_a_third_of_what_is_left_but_at_least_a_round_trip_and_at_most_a_minute(
    holder: Holder,
) -> None:
    timeouts: dict[float, float] = {}
    for term in (1.5, 80.0, 800.0, 8000.0):
        holder = Holder()
        holder.add("a", term)
        [call] = holder.step(holder.next_at()).calls
        timeouts[term] = call.timeout_s
    assert timeouts == pytest.approx(
        {1.5: 1.0, 80.0: 10.0 / 3, 800.0: 100.0 / 3, 8000.0: MAX_CALL_S}
    )


def test_a_step_starts_no_more_calls_than_there_is_capacity_for(holder: Holder) -> None:
    for number in range(5):
        holder.add(str(number), 80.0, key=number)
    assert len(holder.step(70.0, 2).calls) == 2
    assert holder.plan.next_at(0) == 80.0
    assert holder.plan.next_at(1) == 70.0
    assert holder.step(70.0, 0).calls == []
    assert len(holder.step(70.0, MANY).calls) == 3


def test_a_step_is_bounded_in_work_and_the_next_one_goes_on(holder: Holder) -> None:
    for number in range(STEP_BUDGET + 10):
        holder.add(str(number), 80.0, 50.0)
    assert len(holder.step(50.0).departures) == STEP_BUDGET
    assert holder.next_at() <= 50.0
    assert len(holder.step(50.0).departures) == 10


def test_a_batch_is_bounded_and_the_next_step_takes_the_rest(holder: Holder) -> None:
    for number in range(MAX_BATCH + 5):
        holder.add(str(number), 80.0)
    calls: list[RenewalCall[str]] = [*holder.step(70.0).calls, *holder.step(70.0).calls]
    assert len(calls) == 2
    assert max(len(call.wants) for call in calls) <= MAX_BATCH
    assert len({lease for call in calls for lease, _ in call.wants}) == MAX_BATCH + 5


def test_a_lease_that_is_already_over_when_added_leaves_at_once(holder: Holder) -> None:
    holder.now = 100.0
    holder.add("a", 0.0)
    assert holder.next_at() <= 100.0
    [departure] = holder.step(100.0).departures
    assert departure.kind is NoticeKind.FAILED


def test_a_lease_that_is_past_its_lead_when_added_is_renewed_at_once(holder: Holder) -> None:
    holder.now = 100.0
    holder.add("a", 80.0, age=75.0)
    assert holder.sent(100.0) == []  # half of what is left must pass: 5 s are a term of their own
    assert holder.sent(102.5) == [[("a", FOREVER)]]


def test_a_desired_end_that_has_passed_leaves_at_once_as_expired(holder: Holder) -> None:
    holder.now = 100.0
    holder.add("a", 80.0, 90.0)
    [departure] = holder.step(100.0).departures
    assert departure.kind is NoticeKind.EXPIRED


@pytest.mark.parametrize("term", [0.001, 0.01, 0.1, 0.5, 1.0])
def test_a_lease_shorter_than_the_round_trip_never_spins(term: float) -> None:
    holder = Holder()
    holder.add("a", term)
    sends = 0
    while holder.now < 1.0:
        step = holder.step(max(holder.next_at(), holder.now))
        for call in step.calls:
            sends += 1
            assert call.wants == [("a", FOREVER)]
            holder.succeed("a", term)
        if step.departures:
            break
    assert sends <= 1.0 / max(0.005, term / 3) + 1


def test_a_lease_that_reaches_its_desired_end_but_for_rounding_is_not_renewed_again(
    holder: Holder,
) -> None:
    holder.add("a", math.nextafter(80.0, 0.0), 80.0)
    assert holder.next_at() == 80.0
    [departure] = holder.step(80.0).departures
    assert departure.kind is NoticeKind.EXPIRED


def test_the_plan_knows_its_leases(holder: Holder) -> None:
    holder.add("a", 80.0)
    holder.add("b", 80.0)
    assert (len(holder.plan), holder.plan.leases()) == (2, ["a", "b"])
    assert "a" in holder.plan
    assert "c" not in holder.plan


def test_a_lease_whose_end_is_only_assumed_is_first_renewed_when_the_caller_says(
    holder: Holder,
) -> None:
    holder.add("a", 80.0, due_at=5.0)
    assert holder.next_at() == 5.0
    assert holder.sent(4.9) == []
    assert holder.sent(5.0) == [[("a", FOREVER)]]
    holder.succeed("a", 80.0)
    assert holder.next_at() == 75.0


def test_a_lease_is_never_due_later_because_of_the_callers_time(holder: Holder) -> None:
    holder.add("a", 80.0, due_at=79.0)
    assert holder.next_at() == 70.0


def test_after_a_restart_leases_are_renewed_in_their_order_those_already_past_first() -> None:
    holder = Holder(batch_window_s=0.001, now=100.0)
    for lease, due_at in (("past 1", 90.0), ("past 2", 90.0), ("next 1", 100.0), ("next 2", 100.0)):
        holder.add(lease, 60.0, due_at=due_at, key=lease)
    sent = [call[0][0] for call in holder.sent(100.0)]
    assert sent == ["past 1", "past 2", "next 1", "next 2"]


def test_after_a_restart_leases_of_one_landlord_go_in_one_batch(holder: Holder) -> None:
    for lease in "abc":
        holder.add(lease, 60.0, due_at=0.0)
    assert holder.sent(0.0) == [[("a", FOREVER), ("b", FOREVER), ("c", FOREVER)]]


def test_new_terms_keep_the_time_of_the_first_renewal_until_it_is_sent(holder: Holder) -> None:
    holder.add("a", 80.0, due_at=5.0)
    holder.plan.add("a", "landlord", Terms(NEVER, 20.0), 0.0)
    assert holder.next_at() == 5.0
    assert holder.sent(5.0) == [[("a", 20.0)]]
    holder.plan.add("a", "landlord", Terms(NEVER, 30.0), 5.0)
    holder.succeed("a", 80.0)
    assert holder.next_at() == 75.0


def test_new_terms_with_a_time_never_make_two_requests_without_an_interval(holder: Holder) -> None:
    holder.add("a", 80.0, due_at=0.0)
    assert holder.sent(0.0) == [[("a", FOREVER)]]
    holder.succeed("a", 80.0)
    holder.plan.add("a", "landlord", Terms(NEVER, 20.0), 0.0, due_at=0.0)
    assert holder.sent(0.0) == []
    assert holder.sent(0.01) == [[("a", 20.0)]]


def test_a_lease_of_unknown_end_is_renewed_although_it_may_last_until_its_desired_end(
    holder: Holder,
) -> None:
    holder.views["a"] = View(30.0, 30.0)  # assumed: it may end earlier
    terms = Terms(20.0, FOREVER, None)
    holder.plan.add("a", "landlord", terms, 0.0, due_at=0.0)
    assert holder.sent(0.0) == [[("a", 20.0)]]
    assert holder.plan.settled("a", ConnectionLost("no answer"), 0.5) is None
    retry_at = holder.next_at()
    assert retry_at < 20.0
    assert holder.sent(retry_at) == [[("a", 20.0 - retry_at)]]
    holder.succeed("a", 30.0)
    assert holder.next_at() == 20.0  # now its end is known
    assert [each.kind for each in holder.step(20.0).departures] == [NoticeKind.EXPIRED]


def test_a_lease_of_unknown_end_leaves_at_its_desired_end_without_an_error(holder: Holder) -> None:
    holder.views["a"] = View(30.0, 30.0)
    holder.plan.add("a", "landlord", Terms(20.0, FOREVER, None), 0.0, due_at=25.0)
    assert [each.kind for each in holder.step(20.0).departures] == [NoticeKind.EXPIRED]


@pytest.mark.parametrize("leaves", ["expired", "removed"])
def test_a_lease_that_leaves_when_it_has_its_turn_passes_it_on(
    monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    monkeypatch.setattr("leasehold.leases.renewal_plan.MAX_CALLS_PER_GRANTOR", 1)
    ends = {"a": 100.0, "b": 5.0, "c": 100.0}
    plan: RenewalPlan[str] = RenewalPlan(
        lambda lease, _now: View(ends[lease], ends[lease]), BatchTiming(1.0, 0.001)
    )
    for lease in ends:
        plan.add(lease, lease, Terms(NEVER, FOREVER), 0.0, "grantor", due_at=0.0)
    assert [call.wants[0][0] for call in plan.step(0.0, 10).calls] == ["a"]
    now = 6.0 if leaves == "expired" else 1.0
    assert plan.settled("a", None, now) is None  # which makes "b" due
    if leaves == "removed":
        plan.remove("b")
    assert [call.wants[0][0] for call in plan.step(now, 10).calls] == ["c"]
