"""`Lease`: the holder's end, equality, and what each outcome of a request does to it."""

import asyncio
import math
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    ConnectionLost,
    DurationPolicy,
    EndReason,
    Landlord,
    Lease,
    LeaseDenied,
    UnknownLease,
    lazy,
)
from leasehold.leases import lease_codec
from leasehold.testing import VirtualClock, current_host, run_virtual


class ScriptedLease(Lease):
    """A lease whose grantor answers what a test says, after as long as it says."""

    def __init__(
        self,
        granted: Any = 10.0,
        *,
        clock: Any,
        answer: Any = 10.0,
        names: tuple[Hashable, Hashable] = ("grantor", "cookie"),
        margin: float = 0.0,
        sent_at: float | None = None,
    ) -> None:
        super().__init__(granted, clock=clock, margin=margin, sent_at=sent_at)
        self.answer = answer
        self.takes_s = 0.0
        self.asked: list[object] = []
        self._names = names

    @property
    def grantor(self) -> Hashable:
        return self._names[0]

    @property
    def cookie(self) -> Hashable:
        return self._names[1]

    async def ask_renew(self, requested: object) -> Any:
        self.asked.append(requested)
        await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def ask_cancel(self) -> None:
        await self.ask_renew("cancel")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def run(coroutine: Any) -> Any:
    """Run a coroutine that waits for nothing."""
    return asyncio.run(coroutine)


def test_lease_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Lease(10.0)  # type: ignore[abstract]


@pytest.mark.parametrize("granted", [10, 10.0, timedelta(seconds=10)])
def test_a_lease_begins_with_the_term_that_was_granted(clock: VirtualClock, granted: Any) -> None:
    lease = ScriptedLease(granted, clock=clock)
    assert (lease.term, lease.remaining) == (10.0, 10.0)
    assert lease.expires_at == datetime.fromtimestamp(clock.wall() + 10.0, UTC)


def test_a_lease_that_never_ends_says_so_everywhere(clock: VirtualClock) -> None:
    lease = ScriptedLease(FOREVER, clock=clock)
    clock.advance(1e9)
    assert lease.term is FOREVER
    assert lease.remaining is FOREVER
    assert lease.expires_at is FOREVER
    assert repr(lease) == "<ScriptedLease 'cookie' of 'grantor', no end>"


def test_a_term_counts_from_when_it_was_sent_for(clock: VirtualClock) -> None:
    clock.advance(100.0)
    assert ScriptedLease(10.0, clock=clock, sent_at=97.0).remaining == 7.0


@pytest.mark.parametrize(
    ("granted", "kind"),
    [
        (None, TypeError),
        (True, TypeError),
        ("10", TypeError),
        (ANY, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
    ],
)
def test_a_lease_of_no_length_of_time_is_refused(
    clock: VirtualClock, granted: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="the granted duration must "):
        ScriptedLease(granted, clock=clock)


def test_the_holders_time_runs_through_suspend(clock: VirtualClock) -> None:
    lease = ScriptedLease(10.0, clock=clock)
    clock.suspend(4.0)
    assert lease.remaining == 6.0


def test_a_jump_of_the_wall_clock_changes_nothing_that_remains(clock: VirtualClock) -> None:
    lease = ScriptedLease(10.0, clock=clock)
    clock.jump_wall(1e6)
    assert lease.remaining == 10.0
    assert lease.expires_at == datetime.fromtimestamp(clock.wall() + 10.0, UTC)


def test_what_remains_is_zero_from_the_end_on(clock: VirtualClock) -> None:
    lease = ScriptedLease(10.0, clock=clock)
    clock.advance(10.0)
    assert lease.remaining == 0.0
    clock.advance(100.0)
    assert lease.remaining == 0.0


@pytest.mark.parametrize(
    ("duration", "requested"),
    [(ANY, ANY), (FOREVER, FOREVER), (5, 5.0), (timedelta(minutes=1), 60.0), (0, 0.0)],
)
def test_a_renewal_asks_the_grantor_for_the_duration(
    clock: VirtualClock, duration: Any, requested: Any
) -> None:
    lease = ScriptedLease(clock=clock, answer=7.0)
    assert run(lease.renew(duration)) == 7.0
    assert lease.asked == [requested]
    assert (lease.remaining, lease.term) == (7.0, 7.0)


def test_a_renewal_leaves_the_choice_to_the_grantor_unless_told_otherwise(
    clock: VirtualClock,
) -> None:
    lease = ScriptedLease(clock=clock)
    run(lease.renew())
    assert lease.asked == [ANY]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (None, TypeError),
        (True, TypeError),
        ("5", TypeError),
        (-1.0, ValueError),
        (-1e308, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
    ],
)
def test_a_bad_duration_is_refused_before_any_call_is_made(
    clock: VirtualClock, bad: Any, kind: type[Exception]
) -> None:
    lease = ScriptedLease(clock=clock)
    with pytest.raises(kind, match=r"^duration must "):
        run(lease.renew(bad))
    assert lease.asked == []
    assert lease.remaining == 10.0


def test_the_holder_counts_from_when_it_sent_not_from_when_the_answer_came() -> None:
    async def main() -> None:
        lease = ScriptedLease(10.0, clock=current_host().clock, answer=20.0)
        lease.takes_s = 3.0
        await asyncio.sleep(1.0)
        await lease.renew(20.0)
        assert lease.remaining == pytest.approx(17.0)

    run_virtual(main)


FAILURES: list[BaseException] = [
    LeaseDenied("full"),
    KeyError("bug"),
    ConnectionLost("gone"),
    TimeoutError(),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
@pytest.mark.parametrize("requested", [ANY, FOREVER, 10.0, 60.0])
def test_if_a_renewal_fails_the_lease_keeps_the_end_it_had(
    clock: VirtualClock, failure: BaseException, requested: Any
) -> None:
    lease = ScriptedLease(10.0, clock=clock, answer=failure)
    clock.advance(4.0)
    with pytest.raises(type(failure)):
        run(lease.renew(requested))
    assert (lease.remaining, lease.term) == (6.0, 10.0)


@pytest.mark.parametrize(
    ("failure", "remaining"),
    [
        (LeaseDenied("full"), 60.0),
        (KeyError("bug"), 5.0),  # in reading the answer, perhaps: it is not the grantor's word
        (ConnectionLost("gone"), 5.0),
        (TimeoutError(), 5.0),
        (asyncio.CancelledError(), 5.0),
    ],
    ids=repr,
)
def test_if_the_outcome_of_a_shorter_renewal_is_unknown_the_holder_counts_on_the_shorter_one(
    clock: VirtualClock, failure: BaseException, remaining: float
) -> None:
    lease = ScriptedLease(60.0, clock=clock, answer=failure)
    with pytest.raises(type(failure)):
        run(lease.renew(5.0))
    assert lease.remaining == remaining


@pytest.mark.parametrize("reason", EndReason)
def test_a_lease_that_its_grantor_does_not_know_is_over(
    clock: VirtualClock, reason: EndReason
) -> None:
    lease = ScriptedLease(60.0, clock=clock, answer=UnknownLease("cookie", reason))
    with pytest.raises(UnknownLease) as caught:
        run(lease.renew())
    assert caught.value.reason is reason
    assert lease.remaining == 0.0


@pytest.mark.parametrize("answer", [None, -1.0, math.nan, ANY, "10"])
def test_an_answer_that_is_no_length_of_time_is_an_error_and_changes_nothing(
    clock: VirtualClock, answer: Any
) -> None:
    lease = ScriptedLease(60.0, clock=clock, answer=answer)
    with pytest.raises((TypeError, ValueError), match="the granted duration must "):
        run(lease.renew())
    assert lease.remaining == 60.0


def test_a_cancelled_lease_is_trusted_no_longer(clock: VirtualClock) -> None:
    lease = ScriptedLease(FOREVER, clock=clock)
    run(lease.cancel())
    assert lease.asked == ["cancel"]
    assert lease.remaining == 0.0


@pytest.mark.parametrize(
    ("failure", "remaining"),
    [
        (ConnectionLost("gone"), 0.0),  # the grantor may have done it
        (asyncio.CancelledError(), 0.0),
        (UnknownLease("cookie", EndReason.EXPIRED), 0.0),
        (KeyError("bug"), 0.0),
        (LeaseDenied("not yours"), 10.0),
    ],
    ids=repr,
)
def test_a_failed_cancel_is_believed_to_have_happened_unless_it_surely_did_not(
    clock: VirtualClock, failure: BaseException, remaining: float
) -> None:
    lease = ScriptedLease(10.0, clock=clock, answer=failure)
    with pytest.raises(type(failure)):
        run(lease.cancel())
    assert lease.remaining == remaining


def test_a_lease_is_not_trusted_while_a_cancel_is_under_way() -> None:
    async def main() -> None:
        lease = ScriptedLease(60.0, clock=current_host().clock)
        lease.takes_s = 5.0
        task = asyncio.create_task(lease.cancel())
        await asyncio.sleep(1.0)
        assert lease.remaining == 0.0
        await task

    run_virtual(main)


@pytest.mark.parametrize(
    ("names", "equal"),
    [
        (("grantor", "cookie"), True),
        (("grantor", "other"), False),
        (("other", "cookie"), False),
        (("cookie", "grantor"), False),
    ],
)
def test_leases_are_equal_if_they_are_the_same_lease_at_the_same_grantor_whatever_their_ends_say(
    clock: VirtualClock, names: tuple[str, str], equal: bool
) -> None:
    one, other = ScriptedLease(5.0, clock=clock), ScriptedLease(FOREVER, clock=clock, names=names)
    assert (one == other) is equal
    assert (one != other) is not equal
    assert (hash(one) == hash(other)) is equal
    assert (len({one, other}) == 1) is equal


def test_a_lease_equals_nothing_but_a_lease(clock: VirtualClock) -> None:
    lease = ScriptedLease(clock=clock)
    assert lease != ("grantor", "cookie")
    assert lease != None  # noqa: E711  the comparison is what is tested


def test_a_lease_of_another_kind_can_be_the_same_lease(clock: VirtualClock) -> None:
    landlord: Landlord[str] = Landlord(
        DurationPolicy(60.0, 30.0), expiry=lazy(), name="here", cookies=lambda: 7, clock=clock
    )
    assert landlord.grant("resource") == ScriptedLease(clock=clock, names=("here", 7))


def test_can_batch_is_an_equivalence_relation(clock: VirtualClock) -> None:
    policy = DurationPolicy(60.0, 30.0)
    landlords = [Landlord[str](policy, expiry=lazy(), clock=clock) for _ in range(2)]
    leases = [landlord.grant("resource") for landlord in landlords for _ in range(3)]
    leases += [ScriptedLease(clock=clock), ScriptedLease(clock=clock, names=("g", "c"))]
    for one in leases:
        assert one.can_batch(one)
        for other in leases:
            assert one.can_batch(other) is other.can_batch(one)
            for third in leases:
                assert not (one.can_batch(other) and other.can_batch(third)) or one.can_batch(third)


def test_leases_batch_with_those_of_the_same_landlord_only(clock: VirtualClock) -> None:
    policy = DurationPolicy(60.0, 30.0)
    one, other = (
        Landlord[str](policy, expiry=lazy(), clock=clock, name="same name") for _ in range(2)
    )
    assert one.grant("a").can_batch(one.grant("b"))
    assert not one.grant("a").can_batch(other.grant("b"))
    assert not one.grant("a").can_batch(ScriptedLease(clock=clock))
    assert not one.grant("a").can_batch("lease")


def test_a_lease_that_says_nothing_about_batches_batches_with_itself_alone(
    clock: VirtualClock,
) -> None:
    lease = ScriptedLease(clock=clock)
    assert lease.can_batch(ScriptedLease(clock=clock))
    assert not lease.can_batch(ScriptedLease(clock=clock, names=("grantor", "other")))


@pytest.mark.parametrize("remaining", [0.0, 12.5, FOREVER])
@pytest.mark.parametrize("form", ["duration", "absolute"])
def test_a_lease_turns_into_bytes_and_back_in_both_forms(
    clock: VirtualClock, form: Any, remaining: Any
) -> None:
    landlord: Landlord[str] = Landlord(
        DurationPolicy(FOREVER, 30.0), expiry=lazy(), name="here", clock=clock
    )
    lease = landlord.grant("resource", 60.0)
    run(lease.renew(remaining))
    again = landlord.lease_from_bytes(lease.to_bytes(form))
    assert again == lease
    assert type(again) is type(lease)
    if remaining is FOREVER:
        assert again.remaining is FOREVER
    else:
        assert again.remaining == pytest.approx(remaining)


@pytest.mark.parametrize(("form", "remaining"), [("duration", 10.0), ("absolute", 4.0)])
def test_the_duration_form_counts_again_on_arrival_and_the_absolute_form_does_not(
    clock: VirtualClock, form: Any, remaining: float
) -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(FOREVER, 30.0), expiry=lazy(), clock=clock)
    data = landlord.grant("resource", 10.0).to_bytes(form)
    clock.advance(6.0)
    assert landlord.lease_from_bytes(data).remaining == pytest.approx(remaining)


@pytest.mark.parametrize("skew", [-1000.0, 1000.0])
def test_the_duration_form_is_immune_to_clock_skew(clock: VirtualClock, skew: float) -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(FOREVER, 30.0), expiry=lazy(), clock=clock)
    data = landlord.grant("resource", 10.0).to_bytes("duration")
    clock.jump_wall(skew)
    assert landlord.lease_from_bytes(data).remaining == 10.0


def test_an_absolute_end_that_has_passed_leaves_nothing(clock: VirtualClock) -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(FOREVER, 30.0), expiry=lazy(), clock=clock)
    data = landlord.grant("resource", 10.0).to_bytes("absolute")
    clock.advance(1000.0)
    assert landlord.lease_from_bytes(data).remaining == 0.0


@pytest.mark.parametrize("form", ["ABSOLUTE", "", None, 1])
def test_an_unknown_form_is_refused_by_value(clock: VirtualClock, form: Any) -> None:
    with pytest.raises(ValueError, match=f'form must be "duration" or "absolute", not {form!r}'):
        ScriptedLease(clock=clock).to_bytes(form)


def test_the_bytes_name_grantor_and_cookie(clock: VirtualClock) -> None:
    record = lease_codec.decode(ScriptedLease(12.5, clock=clock).to_bytes("duration"))
    assert record == (lease_codec.EncodedEnd.DURATION, 12.5, "grantor", "cookie")


def test_a_lease_shows_who_granted_it_and_what_is_left(clock: VirtualClock) -> None:
    lease = ScriptedLease(10.0, clock=clock)
    assert repr(lease) == "<ScriptedLease 'cookie' of 'grantor', 10.000 s left>"


def test_the_default_way_to_renew_and_cancel_many_is_one_by_one(clock: VirtualClock) -> None:
    good = ScriptedLease(clock=clock, answer=5.0)
    bad = ScriptedLease(clock=clock, answer=LeaseDenied("full"))
    outcomes = run(good.ask_renew_all([(bad, 1.0), (good, 2.0)]))
    assert [type(outcome) for outcome in outcomes] == [LeaseDenied, float]
    outcomes = run(good.ask_cancel_all([bad, good]))
    assert (type(outcomes[0]), outcomes[1]) == (LeaseDenied, 0.0)
    assert bad.asked == [1.0, "cancel"]
