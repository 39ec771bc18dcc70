"""The lease table: the rules that hold for every lease, whatever its policy and its strategy."""

import math
from datetime import timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    DurationPolicy,
    EndReason,
    FixedPolicy,
    LeaseClock,
    LeaseDenied,
    LeasePolicy,
    UnknownLease,
)
from leasehold.basics.durations import NEVER
from leasehold.leases.lease_clock import GRACE_S
from leasehold.leases.lease_table import RECHECK_S, REMEMBERED_ENDS, LeasedResource, LeaseTable


class Shop:
    """A table with a clock that a test moves."""

    def __init__(self, policy: LeasePolicy | None = None) -> None:
        self.clock = LeaseClock(0.0)
        self.placed: list[object] = []
        self.table: LeaseTable[str] = LeaseTable(
            policy or DurationPolicy(FOREVER, 30.0), self.clock, self._on_placed
        )
        self.monotonic = 0.0

    def _on_placed(self, leased: LeasedResource[str]) -> None:
        self.placed.append(leased.cookie)

    def grant(self, cookie: object, requested: Any = 10.0, *, pending: bool = False) -> Any:
        return self.table.grant(cookie, f"resource of {cookie}", requested, pending=pending)[1]

    def wait(self, seconds: float) -> None:
        """Let lease time pass with a clock that is read all the while."""
        self.monotonic += seconds
        self.clock.elapse(self.monotonic)

    def stall(self, seconds: float) -> None:
        """Let the clock go unread."""
        self.monotonic += seconds
        self.clock.advance(self.monotonic)

    def end_of(self, cookie: str) -> Any:
        return self.table.current(cookie).end

    def ended(self) -> list[tuple[object, EndReason]]:
        return [(ended.leased.cookie, ended.reason) for ended in self.table.ended]


class Scripted(LeasePolicy):
    """Answers what a test says."""

    def __init__(self, answer: Any = 10.0) -> None:
        self.answer = answer
        self.current = True
        self.asked: list[tuple[object, object, object, float]] = []

    def grant(self, leased: Any, requested: Any, now: float) -> Any:
        self.asked.append((leased.cookie, leased.resource, requested, now))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Moody(DurationPolicy):
    """Decides by itself whether a lease is current."""

    def __init__(self) -> None:
        super().__init__(FOREVER, 30.0)
        self.verdict: bool | Exception | None = None

    def is_current(self, leased: Any, now: float) -> bool:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return super().is_current(leased, now) if self.verdict is None else self.verdict


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_grant_begins_a_term_now(shop: Shop) -> None:
    shop.wait(5.0)
    assert shop.grant("a") == 10.0
    leased = shop.table.current("a")
    assert (leased.resource, leased.end, leased.term_s) == ("resource of a", 15.0, 10.0)
    assert "a" in shop.table
    assert [each.cookie for each in shop.table] == ["a"]


@pytest.mark.parametrize("requested", [0.5, 10.0, 1e300, ANY, FOREVER])
def test_a_grant_is_never_longer_than_asked(requested: Any) -> None:
    shop = Shop(DurationPolicy(60.0, 30.0))
    granted = shop.grant("a", requested)
    assert granted <= (requested if isinstance(requested, float) else 60.0)


def test_now_plus_forever_is_forever_in_the_table(shop: Shop) -> None:
    shop.wait(1e9)
    assert shop.grant("a", FOREVER) is FOREVER
    assert shop.end_of("a") is FOREVER
    shop.wait(1e300)
    assert not shop.table.expire(100)
    assert shop.end_of("a") is FOREVER
    assert shop.table.next_at() == NEVER


def test_a_grant_of_nothing_is_refused_and_changes_nothing(shop: Shop) -> None:
    with pytest.raises(ValueError, match="duration must be more than zero"):
        shop.grant("a", 0.0)
    assert len(shop.table) == 0


def test_a_cookie_names_one_live_lease(shop: Shop) -> None:
    shop.grant("a", 10.0)
    with pytest.raises(ValueError, match="cookie 'a' is already used by a live lease"):
        shop.grant("a", 99.0)
    assert shop.end_of("a") == 10.0


def test_a_cookie_is_free_again_once_its_lease_is_due_whether_or_not_somebody_looked(
    shop: Shop,
) -> None:
    shop.grant("a", 10.0)
    shop.wait(10.0)
    shop.grant("a", 10.0)
    assert shop.end_of("a") == 20.0
    assert shop.ended() == [("a", EndReason.EXPIRED)]


def test_a_cookie_that_is_used_again_is_unknown_no_longer(shop: Shop) -> None:
    shop.grant("a")
    shop.table.cancel("a")
    shop.grant("a", 20.0)
    assert shop.end_of("a") == 20.0
    shop.wait(20.0)
    with pytest.raises(UnknownLease, match="expired"):
        shop.table.current("a")


def test_a_renewal_is_a_new_duration_from_now_not_added_to_the_old_one(shop: Shop) -> None:
    shop.grant("a", 10.0)
    shop.wait(4.0)
    assert shop.table.renew("a", 10.0) == 10.0
    assert shop.end_of("a") == 14.0


@pytest.mark.parametrize(
    ("requested", "granted", "end"),
    [
        (ANY, 90.0, 100.0),  # the default would end earlier: keeps the end
        (FOREVER, 90.0, 100.0),  # beyond the current end: keeps it, though above the maximum
        (95.0, 90.0, 100.0),
        (90.0, 90.0, 100.0),
        (89.0, 89.0, 99.0),  # a shorter one was asked for
        (5.0, 5.0, 15.0),
        (60.0, 60.0, 70.0),
    ],
)
def test_a_renewal_never_ends_earlier_than_the_current_end_unless_a_shorter_one_was_asked_for(
    requested: Any, granted: float, end: float
) -> None:
    policy = Scripted(100.0)
    shop = Shop(policy)
    shop.grant("a")
    shop.wait(10.0)
    shop.table.policy = DurationPolicy(60.0, 30.0)
    assert shop.table.renew("a", requested) == granted
    assert shop.end_of("a") == end


@pytest.mark.parametrize("requested", [ANY, FOREVER])
def test_a_lease_without_end_keeps_having_none(shop: Shop, requested: Any) -> None:
    shop.grant("a", FOREVER)
    assert shop.table.renew("a", requested) is FOREVER
    assert shop.end_of("a") is FOREVER


def test_a_lease_without_end_gets_one_if_asked_for(shop: Shop) -> None:
    shop.grant("a", FOREVER)
    shop.placed.clear()
    assert shop.table.renew("a", 10.0) == 10.0
    assert (shop.end_of("a"), shop.table.next_at(), shop.placed) == (10.0, 10.0, ["a"])
    shop.wait(10.0)
    shop.table.expire(10)
    assert shop.ended() == [("a", EndReason.EXPIRED)]


def test_a_policy_that_gives_less_than_asked_cannot_cut_below_what_was_asked(shop: Shop) -> None:
    policy = Scripted(100.0)
    shop = Shop(policy)
    shop.grant("a")
    policy.answer = 5.0
    assert shop.table.renew("a", 40.0) == 40.0
    assert shop.end_of("a") == 40.0


def test_a_fixed_policy_gives_its_length_even_where_less_is_asked() -> None:
    shop = Shop(FixedPolicy(10.0))
    shop.grant("a", ANY)
    shop.wait(4.0)
    assert shop.table.renew("a", 1.0) == 10.0
    assert shop.end_of("a") == 14.0


def test_a_renewal_of_zero_ends_the_lease_now(shop: Shop) -> None:
    shop.grant("a")
    assert shop.table.renew("a", 0.0) == 0.0
    assert shop.ended() == [("a", EndReason.CANCELLED)]
    with pytest.raises(UnknownLease, match="cancelled"):
        shop.table.renew("a", 10.0)


@pytest.mark.parametrize("failure", [LeaseDenied("full"), KeyError("bug"), ConnectionError()])
def test_if_a_renewal_fails_the_lease_keeps_the_end_it_had(failure: Exception) -> None:
    policy = Scripted(10.0)
    shop = Shop(policy)
    shop.grant("a")
    shop.wait(3.0)
    policy.answer = failure
    with pytest.raises(type(failure)):
        shop.table.renew("a", 50.0)
    assert shop.end_of("a") == 10.0


@pytest.mark.parametrize("answer", [0.0, -1.0, math.nan, math.inf, None, ANY, "5"])
def test_a_policy_that_answers_no_length_of_time_changes_nothing(answer: Any) -> None:
    policy = Scripted(10.0)
    shop = Shop(policy)
    shop.grant("a")
    policy.answer = answer
    for call in (lambda: shop.grant("b", 7.0), lambda: shop.table.renew("a", 7.0)):
        with pytest.raises((TypeError, ValueError), match="the granted duration") as caught:
            call()
        assert "for a request of 7.0" in caught.value.__notes__[0]
    assert len(shop.table) == 1
    assert shop.end_of("a") == 10.0


@pytest.mark.parametrize(
    ("answer", "granted"), [(5, 5.0), (timedelta(seconds=5), 5.0), (5.0, 5.0), (FOREVER, FOREVER)]
)
def test_what_was_granted_is_said_in_float_seconds_however_the_policy_says_it(
    answer: Any, granted: Any
) -> None:
    shop = Shop(Scripted(answer))
    for said in (shop.grant("a"), shop.table.renew("a", ANY)):
        assert said == granted
        assert type(said) is type(granted)


def test_a_denial_says_which_lease_and_what_was_asked_for() -> None:
    policy = Scripted(10.0)
    shop = Shop(policy)
    shop.grant("a")
    policy.answer = LeaseDenied("full")
    with pytest.raises(LeaseDenied) as caught:
        shop.table.renew("a", 50.0)
    assert (caught.value.lease, caught.value.requested) == ("a", 50.0)


def test_a_policy_is_shown_the_lease_the_request_and_lease_time() -> None:
    policy = Scripted(10.0)
    shop = Shop(policy)
    shop.wait(2.0)
    shop.grant("a", 7.0)
    shop.wait(1.0)
    shop.table.renew("a", ANY)
    assert policy.asked == [("a", "resource of a", 7.0, 2.0), ("a", "resource of a", ANY, 3.0)]


def test_a_lease_is_alive_until_its_deadline_and_refused_at_once_from_then_on(shop: Shop) -> None:
    shop.grant("a", 10.0)
    shop.wait(9.999)
    assert shop.end_of("a") == 10.0
    shop.wait(0.001)
    with pytest.raises(UnknownLease) as caught:
        shop.table.current("a")
    assert (caught.value.lease, caught.value.reason) == ("a", EndReason.EXPIRED)


@pytest.mark.parametrize("verb", ["renew", "cancel", "current", "answer"])
@pytest.mark.parametrize("reason", EndReason)
def test_every_call_on_a_lease_that_is_not_there_says_why_as_far_as_known(
    shop: Shop, verb: str, reason: EndReason
) -> None:
    if reason is not EndReason.UNKNOWN:
        shop.grant("a", 10.0)
    if reason is EndReason.CANCELLED:
        shop.table.cancel("a")
    shop.wait(10.0)
    for _ in range(2):
        with pytest.raises(UnknownLease) as caught:
            getattr(shop.table, verb)("a", *([5.0] if verb == "renew" else []))
        assert (caught.value.lease, caught.value.reason) == ("a", reason)


def test_the_reason_is_remembered_for_a_bounded_number_of_leases(shop: Shop) -> None:
    for number in range(REMEMBERED_ENDS + 1):
        shop.grant(number)
        shop.table.cancel(number)
    for cookie, reason in ((0, EndReason.UNKNOWN), (1, EndReason.CANCELLED)):
        with pytest.raises(UnknownLease) as caught:
            shop.table.current(cookie)
        assert caught.value.reason is reason


@pytest.mark.parametrize("verb", ["renew", "cancel", "current", "answer"])
def test_none_is_no_cookie(shop: Shop, verb: str) -> None:
    with pytest.raises(TypeError, match="cookie must not be None"):
        getattr(shop.table, verb)(None, *([5.0] if verb == "renew" else []))


def test_none_is_no_cookie_to_grant_either(shop: Shop) -> None:
    with pytest.raises(TypeError, match="cookie must not be None"):
        shop.grant(None)
    assert len(shop.table) == 0


def test_cancelling_is_as_if_it_expired_now(shop: Shop) -> None:
    shop.grant("a")
    shop.table.cancel("a")
    assert shop.ended() == [("a", EndReason.CANCELLED)]
    assert "a" not in shop.table


def test_a_lease_that_ended_leaves_nothing_behind(shop: Shop) -> None:
    for number in range(2000):
        shop.grant(number, 10.0)
    for number in range(1000):
        shop.table.cancel(number)
    shop.wait(10.0)
    while shop.table.expire(100):
        pass
    assert len(shop.table.ended) == 2000
    assert (len(shop.table), len(shop.table._leases)) == (0, 0)
    assert len(shop.table._remembered) == REMEMBERED_ENDS
    assert shop.table.next_at() == NEVER
    assert len(shop.table._queue) == 0


def test_the_expiry_step_is_bounded_and_says_whether_more_may_be_due(shop: Shop) -> None:
    for number in range(10):
        shop.grant(number, 10.0)
    shop.wait(10.0)
    assert shop.table.expire(4)
    assert len(shop.table) == 6
    assert not shop.table.expire(6)
    assert len(shop.table) == 0


def test_each_lease_ends_once_with_its_lateness(shop: Shop) -> None:
    shop.grant("a", 10.0)
    shop.wait(12.5)
    shop.table.expire(10)
    shop.table.expire(10)
    [ended] = shop.table.ended
    assert (ended.leased.cookie, ended.reason, ended.lateness_s) == ("a", EndReason.EXPIRED, 2.5)


@pytest.mark.parametrize("requested", [10.0, FOREVER])
def test_a_lease_that_was_cancelled_is_not_late(shop: Shop, requested: Any) -> None:
    shop.grant("a", requested)
    shop.table.cancel("a")
    assert shop.table.ended[0].lateness_s == 0.0


def test_nothing_ends_in_a_turn_in_which_a_gap_was_cut(shop: Shop) -> None:
    shop.grant("a", 0.2)
    shop.stall(0.5)
    assert not shop.table.expire(10)
    assert shop.table.current("a").cookie == "a"
    assert shop.table.renew("a", 0.2) == 0.2  # a renewal that waited in the socket


def test_after_the_poll_that_follows_a_short_cut_a_lease_ends(shop: Shop) -> None:
    shop.grant("a", 0.2)
    shop.stall(0.5)
    shop.clock.polled(shop.clock.cuts)
    shop.table.expire(10)
    assert shop.ended() == [("a", EndReason.EXPIRED)]


@pytest.mark.parametrize(("term", "grace"), [(0.2, 0.2), (3.0, 3.0), (60.0, GRACE_S)])
@pytest.mark.parametrize("looks", [True, False])
def test_after_a_long_cut_no_lease_ends_for_the_shorter_of_its_term_and_five_seconds(
    shop: Shop, term: float, grace: float, looks: bool
) -> None:
    shop.grant("a", term)
    shop.wait(term - 0.01)
    shop.stall(20.0)
    shop.clock.polled(shop.clock.cuts)
    cut_at = shop.clock.now
    while shop.clock.now < cut_at + grace - 0.06:
        shop.wait(0.05)
        shop.table.expire(10)
        if looks:
            assert shop.table.current("a").cookie == "a"
        assert not shop.table.ended
    shop.wait(0.06 + RECHECK_S)
    shop.table.expire(10)
    assert shop.ended() == [("a", EndReason.EXPIRED)]


def test_a_lease_whose_end_lies_beyond_the_grace_keeps_its_end(shop: Shop) -> None:
    shop.grant("a", 60.0)
    shop.stall(20.0)
    shop.clock.polled(shop.clock.cuts)
    assert shop.end_of("a") == 60.0


def test_a_term_starts_when_its_grant_is_answered(shop: Shop) -> None:
    assert shop.grant("a", 10.0, pending=True) == 10.0
    assert shop.table.current("a").pending
    shop.wait(100.0)
    assert not shop.table.expire(10)
    shop.table.answer("a")
    assert (shop.end_of("a"), shop.table.current("a").pending) == (110.0, False)
    shop.wait(10.0)
    shop.table.expire(10)
    assert shop.ended() == [("a", EndReason.EXPIRED)]


def test_answering_twice_is_a_mistake_that_changes_nothing(shop: Shop) -> None:
    shop.grant("a", 10.0)
    shop.wait(3.0)
    with pytest.raises(ValueError, match="lease 'a' is not pending: its term has already begun"):
        shop.table.answer("a")
    assert shop.end_of("a") == 10.0


def test_a_pending_lease_without_end_can_be_answered(shop: Shop) -> None:
    shop.grant("a", FOREVER, pending=True)
    shop.table.answer("a")
    assert shop.end_of("a") is FOREVER


@pytest.mark.parametrize(("requested", "end"), [(5.0, 55.0), (20.0, 70.0), (ANY, 80.0)])
def test_renewing_a_pending_lease_answers_it(shop: Shop, requested: Any, end: float) -> None:
    shop.grant("a", 10.0, pending=True)
    shop.wait(50.0)
    shop.table.renew("a", requested)
    assert shop.end_of("a") == end
    assert not shop.table.current("a").pending


def test_a_pending_lease_can_be_cancelled(shop: Shop) -> None:
    shop.grant("a", 10.0, pending=True)
    shop.table.cancel("a")
    assert shop.ended() == [("a", EndReason.CANCELLED)]


def test_a_grant_that_never_reached_its_holder_is_undone_without_a_trace(shop: Shop) -> None:
    leased, _ = shop.table.grant("a", "resource", 10.0)
    shop.table.take_back(leased)
    assert (len(shop.table), list(shop.table.ended), shop.table.next_at()) == (0, [], NEVER)
    with pytest.raises(UnknownLease) as caught:
        shop.table.current("a")
    assert caught.value.reason is EndReason.UNKNOWN


def test_who_sleeps_is_told_of_what_is_new_or_earlier_and_not_of_what_is_later(shop: Shop) -> None:
    shop.grant("a", 10.0)
    assert shop.placed == ["a"]
    shop.table.renew("a", 50.0)
    assert shop.placed == ["a"]
    shop.table.renew("a", 5.0)
    assert shop.placed == ["a", "a"]


@pytest.mark.parametrize("verb", ["renew", "cancel", "current", "expire"])
def test_the_policys_test_is_the_one_that_reaper_renewal_and_lookup_use(verb: str) -> None:
    policy = Moody()
    shop = Shop(policy)
    shop.grant("a", 10.0)
    shop.wait(10.0)
    policy.verdict = True
    assert not shop.table.expire(10)
    assert shop.table.current("a").cookie == "a"
    policy.verdict = False
    shop.wait(RECHECK_S)
    if verb == "expire":
        shop.table.expire(10)
    else:
        with pytest.raises(UnknownLease, match="expired"):
            getattr(shop.table, verb)("a", *([5.0] if verb == "renew" else []))
    assert shop.ended() == [("a", EndReason.EXPIRED)]


def test_a_policy_can_end_a_lease_before_its_deadline_for_who_looks_at_it() -> None:
    policy = Moody()
    shop = Shop(policy)
    shop.grant("a", 10.0)
    policy.verdict = False
    with pytest.raises(UnknownLease, match="expired"):
        shop.table.renew("a", 5.0)


def test_a_policy_that_raises_in_is_current_ends_no_lease_and_keeps_none_from_ending() -> None:
    policy = Moody()
    shop = Shop(policy)
    for number in range(3):
        shop.grant(number, 10.0)
    shop.wait(10.0)
    policy.verdict = KeyError("bug")
    with pytest.raises(KeyError, match="bug"):
        shop.table.expire(10)
    assert len(shop.table) == 3
    policy.verdict = None
    shop.wait(RECHECK_S)
    shop.table.expire(10)
    assert len(shop.table) == 0


def test_a_live_lease_shows_itself(shop: Shop) -> None:
    shop.grant("a", 10.0)
    assert repr(shop.table.current("a")) == "<LeasedResource 'a': 'resource of a' until 10.0>"


def test_a_term_is_repeated_without_asking_the_policy() -> None:
    shop = Shop(FixedPolicy(10.0))
    shop.grant("a")
    shop.table.policy = FixedPolicy(3.0)
    shop.wait(4.0)
    leased = shop.table.repeat("a")
    assert leased is not None
    assert leased.end == 14.0
    assert shop.placed == ["a"], "a later end wakes nobody"


def test_only_a_lease_that_is_surely_alive_is_repeated() -> None:
    shop = Shop()
    shop.grant("due", 2.0)
    shop.grant("pending", pending=True)
    shop.grant("lasting", FOREVER)
    shop.wait(2.0)
    for cookie in ("due", "pending", "lasting", "nobody"):
        assert shop.table.repeat(cookie) is None
    assert shop.table.current("pending").pending


def test_finding_a_lease_ends_nothing() -> None:
    shop = Shop()
    shop.grant("a", 2.0)
    shop.wait(5.0)
    found = shop.table.find("a")
    assert found is not None
    assert found.cookie == "a"
    assert shop.ended() == []
    assert shop.table.find("b") is None


def test_a_pending_lease_wakes_nobody_until_it_is_answered() -> None:
    shop = Shop()
    shop.grant("a", pending=True)
    assert shop.placed == []
    shop.table.answer("a")
    assert shop.placed == ["a"]


def test_leases_from_before_go_on_with_what_was_left(shop: Shop) -> None:
    shop.wait(5.0)
    shop.table.restore(
        [
            ("a", "A", 10.0, 8.0),
            ("b", "B", 10.0, 3.0),
            ("c", "C", NEVER, NEVER),
            ("d", "D", 9.0, 3.0),
        ]
    )
    assert shop.placed == []
    ends = {leased.cookie: (leased.resource, leased.end, leased.term_s) for leased in shop.table}
    assert ends == {
        "a": ("A", 13.0, 10.0),
        "b": ("B", 8.0, 10.0),
        "c": ("C", FOREVER, NEVER),
        "d": ("D", 8.0, 9.0),
    }
    assert shop.table.next_at() == 8.0
    shop.wait(3.0)
    assert not shop.table.expire(10)
    assert shop.ended() == [("b", EndReason.EXPIRED), ("d", EndReason.EXPIRED)]
    assert shop.table.next_at() == 13.0


def test_no_leases_from_before_wake_nobody(shop: Shop) -> None:
    shop.table.restore([])
    assert (shop.placed, shop.table.next_at()) == ([], NEVER)
