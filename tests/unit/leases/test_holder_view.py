"""The holder's view of one lease: until when may it be trusted?"""

from typing import Any

import pytest

from leasehold import ANY, FOREVER
from leasehold.basics.durations import NEVER
from leasehold.leases.holder_view import Holding


def test_the_holder_counts_from_when_it_sent_the_request() -> None:
    holding = Holding(100.0, 10.0)
    send = holding.send(10.0, 105.0)
    holding.answered(send, 10.0)  # whenever the answer comes
    assert holding.end == 115.0


@pytest.mark.parametrize(
    ("now", "remaining"), [(100.0, 10.0), (109.5, 0.5), (110.0, 0.0), (500.0, 0.0)]
)
def test_what_remains_is_never_less_than_zero(now: float, remaining: float) -> None:
    assert Holding(100.0, 10.0).remaining_s(now) == remaining


def test_a_lease_without_end_has_none() -> None:
    holding = Holding(100.0, FOREVER)
    assert (holding.end, holding.term_s, holding.remaining_s(1e300)) == (NEVER, NEVER, NEVER)
    holding = Holding(100.0, 10.0)
    holding.answered(holding.send(FOREVER, 101.0), FOREVER)
    assert holding.end == NEVER


def test_a_renewal_is_a_new_duration_from_the_send_not_added_to_the_old_one() -> None:
    holding = Holding(100.0, 10.0)
    holding.answered(holding.send(10.0, 101.0), 10.0)
    assert (holding.end, holding.term_s) == (111.0, 10.0)


@pytest.mark.parametrize("requested", [ANY, FOREVER, 10.0, 1e300])
@pytest.mark.parametrize("definite", [True, False])
def test_a_failed_request_for_no_less_leaves_the_end_as_it_was(
    requested: Any, definite: bool
) -> None:
    holding = Holding(100.0, 10.0)
    send = holding.send(requested, 104.0)
    assert holding.end == 110.0
    holding.failed(send, definite=definite)
    assert (holding.end, holding.term_s) == (110.0, 10.0)


def test_a_request_for_less_holds_the_view_down_from_its_send_on() -> None:
    holding = Holding(100.0, 60.0)
    holding.send(5.0, 110.0)
    assert holding.end == 115.0
    assert holding.remaining_s(112.0) == 3.0


def test_a_definite_failure_of_a_request_for_less_lifts_the_view_again() -> None:
    holding = Holding(100.0, 60.0)
    holding.failed(holding.send(5.0, 110.0), definite=True)
    assert holding.end == 160.0


def test_an_indefinite_failure_of_a_request_for_less_leaves_the_view_down() -> None:
    holding = Holding(100.0, 60.0)
    holding.failed(holding.send(5.0, 110.0), definite=False)
    assert holding.end == 115.0


def test_a_request_to_end_now_holds_the_view_down_to_now() -> None:
    holding = Holding(100.0, FOREVER)
    holding.send(0.0, 110.0)
    assert holding.remaining_s(110.0) == 0.0


def test_a_grantor_that_gives_more_than_the_shorter_term_asked_for_is_believed() -> None:
    holding = Holding(100.0, 60.0)
    holding.answered(holding.send(5.0, 110.0), 30.0)
    assert holding.end == 140.0


def test_the_lowest_of_several_requests_for_less_counts() -> None:
    holding = Holding(100.0, 60.0)
    first, second = holding.send(20.0, 110.0), holding.send(5.0, 111.0)
    assert holding.end == 116.0
    holding.failed(second, definite=True)
    assert holding.end == 130.0
    holding.failed(first, definite=True)
    assert holding.end == 160.0


def test_an_answer_is_credited_only_if_no_later_send_was_credited_before() -> None:
    holding = Holding(100.0, 10.0)
    early, late = holding.send(30.0, 101.0), holding.send(10.0, 103.0)
    holding.answered(late, 10.0)
    holding.answered(early, 30.0)
    assert (holding.end, holding.term_s) == (113.0, 10.0)


def test_answers_in_order_are_credited_one_after_the_other() -> None:
    holding = Holding(100.0, 10.0)
    early, late = holding.send(30.0, 101.0), holding.send(60.0, 103.0)
    holding.answered(early, 30.0)
    assert holding.end == 131.0
    holding.answered(late, 60.0)
    assert holding.end == 163.0


def test_an_overtaken_request_for_less_still_holds_the_end_down() -> None:
    holding = Holding(100.0, 60.0)
    shorter, later = holding.send(5.0, 110.0), holding.send(ANY, 111.0)
    holding.answered(later, 60.0)
    assert holding.end == 115.0  # the shorter one may yet be, or have been, the last to be done
    holding.answered(shorter, 5.0)
    assert holding.end == 115.0


def test_what_is_over_is_trusted_no_longer() -> None:
    holding = Holding(100.0, FOREVER)
    holding.end_at(105.0)
    assert holding.end == 105.0
    holding.end_at(120.0)
    assert holding.end == 105.0


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5, 0.999])
def test_a_fraction_of_each_term_is_not_relied_on(margin: float) -> None:
    holding = Holding(100.0, 10.0, margin)
    assert holding.end == pytest.approx(110.0 - 10.0 * margin)
    holding.answered(holding.send(20.0, 105.0), 20.0)
    assert holding.end == pytest.approx(125.0 - 20.0 * margin)
    assert holding.term_s == 20.0  # the term is what was granted


def test_a_fraction_of_forever_is_nothing() -> None:
    assert Holding(100.0, FOREVER, 0.1).end == NEVER


@pytest.mark.parametrize("margin", [0.1, 0.5])
def test_a_fraction_of_a_shorter_term_that_was_asked_for_is_not_relied_on_either(
    margin: float,
) -> None:
    holding = Holding(100.0, 60.0, margin)
    send = holding.send(10.0, 105.0)
    assert holding.end == pytest.approx(115.0 - 10.0 * margin)
    holding.failed(send, definite=False)
    assert holding.end == pytest.approx(115.0 - 10.0 * margin)


@pytest.mark.parametrize("margin", [-0.1, 1.0, 2.0, float("nan")])
def test_a_margin_that_is_no_fraction_is_refused_by_value(margin: float) -> None:
    with pytest.raises(ValueError, match=f"margin must be a fraction .*, got {margin}"):
        Holding(100.0, 10.0, margin)


def test_the_answer_to_a_later_request_lifts_what_a_lost_one_held_down() -> None:
    holding = Holding(100.0, 60.0)
    holding.failed(holding.send(5.0, 110.0), definite=False)
    assert holding.end == 115.0
    holding.answered(holding.send(60.0, 112.0), 60.0)
    assert holding.end == 172.0


def test_the_answer_to_an_earlier_request_lifts_nothing_that_a_lost_one_held_down() -> None:
    holding = Holding(100.0, 60.0)
    earlier, lost = holding.send(60.0, 109.0), holding.send(5.0, 110.0)
    holding.failed(lost, definite=False)
    holding.answered(earlier, 60.0)
    assert holding.end == 115.0


def test_a_request_that_is_not_settled_holds_down_what_an_earlier_answer_promises() -> None:
    holding = Holding(100.0, 10.0)
    longer, shorter = holding.send(600.0, 101.0), holding.send(30.0, 102.0)
    holding.answered(longer, 600.0)
    assert holding.end == 132.0  # the second may have shortened what the first was given
    holding.failed(shorter, definite=True)
    assert holding.end == 701.0


def test_once_the_lease_is_not_known_no_answer_to_an_earlier_request_revives_it() -> None:
    holding = Holding(100.0, 60.0)
    earlier, unknown = holding.send(60.0, 110.0), holding.send(60.0, 111.0)
    holding.failed(unknown, definite=True)
    holding.end_at(112.0)
    holding.answered(earlier, 60.0)
    assert holding.end == 112.0
