"""The whole table of leads and retries, at and around each boundary."""

import math
from collections.abc import Callable, Iterator

import pytest

from leasehold.leases.renewal_times import (
    DAY_S,
    HOUR_S,
    MIN_INTERVAL_S,
    WEEK_S,
    SessionTiming,
    lead_s,
    renew_at,
    retry_at,
    retry_delay_s,
)

RTTS = [0.05, 1.0, 10.0]


def _below(seconds: float) -> float:
    return math.nextafter(seconds, 0.0)


def _above(seconds: float) -> float:
    return math.nextafter(seconds, math.inf)


def _leads() -> Iterator[tuple[float, float, float]]:
    for rtt in RTTS:
        for left in (0.0, rtt / 2, rtt, _below(2 * rtt), 2 * rtt):
            yield rtt, left, rtt
        for left in (_above(2 * rtt), 5 * rtt, 8 * rtt):
            yield rtt, left, left / 2
        for left in (_above(8 * rtt), HOUR_S, DAY_S, _below(WEEK_S), WEEK_S):
            yield rtt, left, left / 8
        for left in (_above(WEEK_S), 10 * DAY_S, 14 * DAY_S):
            yield rtt, left, DAY_S
        for left in (_above(14 * DAY_S), 365 * DAY_S, 1e300, math.inf):
            yield rtt, left, 3 * DAY_S


def _retries() -> Iterator[tuple[float, float, float]]:
    for rtt in RTTS:
        for left in (0.0, rtt / 2, rtt):
            yield rtt, left, 0.0
        for left in (_above(rtt), 2 * rtt, 3 * rtt):
            yield rtt, left, rtt
        for left in (_above(3 * rtt), 60.0, HOUR_S):
            yield rtt, left, left / 3
        for left in (_above(HOUR_S), DAY_S / 2, DAY_S):
            yield rtt, left, HOUR_S / 2
        for left in (_above(DAY_S), 3 * DAY_S, WEEK_S):
            yield rtt, left, 3 * HOUR_S
        for left in (_above(WEEK_S), 365 * DAY_S, math.inf):
            yield rtt, left, 8 * HOUR_S


@pytest.mark.parametrize(("rtt", "left", "lead"), list(_leads()))
def test_the_lead_of_a_renewal_follows_the_table(rtt: float, left: float, lead: float) -> None:
    assert lead_s(left, rtt) == lead


@pytest.mark.parametrize(("rtt", "left", "delay"), list(_retries()))
def test_the_delay_of_a_retry_follows_the_table(rtt: float, left: float, delay: float) -> None:
    assert retry_delay_s(left, rtt) == delay


@pytest.mark.parametrize(
    ("term", "due_after"),
    [(10.0, 8.75), (8.0, 4.0), (4.0, 2.0), (2.0, 1.0), (300.0, 262.5), (30 * DAY_S, 27 * DAY_S)],
)
def test_a_renewal_is_due_its_lead_before_the_end(term: float, due_after: float) -> None:
    assert renew_at(100.0, 100.0, 100.0 + term, 1.0) == pytest.approx(100.0 + due_after)


@pytest.mark.parametrize("term", [0.01, 0.5, 1.0, 1.2])
def test_a_lease_shorter_than_the_round_trip_is_not_renewed_in_the_first_third_of_its_term(
    term: float,
) -> None:
    assert renew_at(100.0, 100.0, 100.0 + term, 1.0) == pytest.approx(
        max(100.0 + term - 1.0, 100.0 + max(term / 3, MIN_INTERVAL_S))
    )


def _count_sends(renew: Callable[[float, float], float], term: float) -> int:
    """Count the renewals in ten seconds of a lease that is granted `term` each time, at once."""
    sent_at, sends = 0.0, 0
    while (sent_at := renew(sent_at, sent_at + term)) < 10.0:
        sends += 1
    return sends


@pytest.mark.parametrize("term", [1e-9, 0.001, 0.01, 0.1, 1.0])
def test_a_lease_shorter_than_the_round_trip_never_spins(term: float) -> None:
    sends = _count_sends(lambda sent_at, end: renew_at(sent_at, sent_at, end, 1.0), term)
    assert sends <= 10.0 / max(MIN_INTERVAL_S, term / 3) + 1


@pytest.mark.parametrize("term", [1e-9, 0.01, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("left", [0.0, 0.001, 0.5, 1.0])
def test_a_retry_at_once_is_subject_to_a_floor(term: float, left: float) -> None:
    floor = max(MIN_INTERVAL_S, min(1.0, term) / 10)
    now = 100.0  # it failed in the instant in which it was sent
    assert retry_at(now, now, now + left, term, 1.0) == pytest.approx(now + floor)


def test_a_retry_counts_from_the_failure_and_its_floor_from_the_send() -> None:
    assert retry_at(105.0, 100.0, 135.0, 60.0, 1.0) == pytest.approx(115.0)
    assert retry_at(105.0, 100.0, 105.5, 60.0, 1.0) == 105.0


def test_neither_time_is_ever_in_the_way_of_a_lease_without_end() -> None:
    assert renew_at(0.0, 0.0, math.inf, 1.0) == math.inf
    assert retry_at(0.0, 0.0, math.inf, math.inf, 1.0) == 8 * HOUR_S


# Sessions.

SESSION = SessionTiming()


@pytest.mark.parametrize("term_s", [0.2, 1.0, 9.0, 60.0, 3600.0])
def test_a_session_is_renewed_after_a_third_of_its_term_and_goes_along_after_a_quarter(
    term_s: float,
) -> None:
    when = SESSION.renew(105.0, 100.0, 100.0 + term_s, term_s)
    assert when.due_at == pytest.approx(100.0 + term_s / 3)
    assert when.batchable_at == pytest.approx(100.0 + term_s / 4)


def test_two_renewals_of_a_session_are_never_closer_than_the_floor() -> None:
    when = SESSION.renew(100.0, 100.0, 100.001, 0.001)
    assert when.due_at == when.batchable_at == 100.0 + MIN_INTERVAL_S


@pytest.mark.parametrize(
    ("term_s", "wait_s"), [(0.2, 0.05), (1.0, 0.05), (2.0, 0.1), (9.0, 0.45), (60.0, 3.0)]
)
def test_a_session_tries_again_after_a_twentieth_or_50_ms(term_s: float, wait_s: float) -> None:
    when = SESSION.retry(100.0, 100.0, 200.0, term_s)
    assert when.due_at == pytest.approx(100.0 + wait_s)
    assert when.batchable_at == pytest.approx(100.0 + wait_s / 2)


def test_an_attempt_that_took_longer_than_the_wait_is_followed_by_the_next_at_once() -> None:
    assert SESSION.retry(107.0, 100.0, 200.0, 9.0) == (107.0, 107.0)


@pytest.mark.parametrize(("left_s", "call_timeout_s"), [(0.01, 0.05), (0.1, 0.05), (6.0, 3.0)])
def test_a_session_waits_for_an_answer_for_half_of_what_is_left(
    left_s: float, call_timeout_s: float
) -> None:
    assert SESSION.call_timeout_s(left_s) == pytest.approx(call_timeout_s)
