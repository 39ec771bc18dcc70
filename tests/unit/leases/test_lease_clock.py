"""Lease time: what a gap adds, what a cut forbids, and for how long."""

import pytest

from leasehold import LeaseClock
from leasehold.basics.durations import NEVER
from leasehold.leases.lease_clock import GRACE_S, IDLE_TICK_S, LONG_CUT_S, MAX_STEP_S

START = 1000.0


@pytest.fixture
def clock() -> LeaseClock:
    return LeaseClock(START)


def test_the_limits_are_those_of_the_contract() -> None:
    assert (MAX_STEP_S, IDLE_TICK_S, LONG_CUT_S, GRACE_S) == (0.250, 0.100, 1.0, 5.0)


def test_lease_time_begins_at_zero_whatever_the_monotonic_clock_says(clock: LeaseClock) -> None:
    assert (clock.now, clock.lag_s, clock.cuts, clock.may_end) == (0.0, 0.0, 0, True)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 0.100, 0.249, 0.250])
def test_a_gap_up_to_the_step_counts_in_full(clock: LeaseClock, gap: float) -> None:
    assert clock.advance(START + gap) == clock.now == pytest.approx(gap)
    assert (clock.lag_s, clock.cuts, clock.may_end) == (0.0, 0, True)


@pytest.mark.parametrize("gap", [0.250001, 0.5, 10.0, 1e9])
def test_a_longer_gap_adds_a_quarter_second_and_the_rest_is_lag(
    clock: LeaseClock, gap: float
) -> None:
    assert clock.advance(START + gap) == MAX_STEP_S
    assert clock.lag_s == pytest.approx(gap - MAX_STEP_S)
    assert (clock.cuts, clock.may_end) == (1, False)


def test_the_lag_of_all_cuts_adds_up(clock: LeaseClock) -> None:
    for turn in range(1, 5):
        clock.advance(START + turn)
    assert (clock.now, clock.lag_s, clock.cuts) == (1.0, 3.0, 4)


def test_under_overload_lease_time_runs_slower_but_never_stops(clock: LeaseClock) -> None:
    readings = [clock.advance(START + 10.0 * turn) for turn in range(1, 101)]
    assert readings == pytest.approx([MAX_STEP_S * turn for turn in range(1, 101)])


def test_a_reading_that_goes_back_moves_nothing(clock: LeaseClock) -> None:
    before = clock.advance(START + 0.2)
    assert clock.advance(START) == before
    assert clock.advance(START + 0.3) == pytest.approx(0.3)
    assert clock.cuts == 0


def test_nothing_ends_after_a_cut_until_the_sockets_were_polled(clock: LeaseClock) -> None:
    clock.advance(START + 1.0)
    clock.advance(START + 1.1)
    assert not clock.may_end
    clock.polled(clock.cuts)
    assert clock.may_end


def test_a_poll_from_before_a_second_cut_does_not_count(clock: LeaseClock) -> None:
    clock.advance(START + 1.0)
    before = clock.cuts
    clock.advance(START + 2.0)
    clock.polled(before)
    assert not clock.may_end
    clock.polled(clock.cuts)
    assert clock.may_end


def test_a_poll_cannot_be_ahead_of_the_cuts(clock: LeaseClock) -> None:
    with pytest.raises(AssertionError):
        clock.polled(1)


@pytest.mark.parametrize("term_s", [0.5, 4.9, 5.0, 3600.0, float("inf")])
def test_without_a_long_cut_there_is_no_grace(clock: LeaseClock, term_s: float) -> None:
    assert clock.earliest_end(term_s) <= clock.now
    clock.advance(START + MAX_STEP_S + LONG_CUT_S)  # just not more than a second was cut
    assert clock.earliest_end(term_s) <= clock.now


@pytest.mark.parametrize(
    ("term_s", "grace_s"), [(0.5, 0.5), (4.9, 4.9), (5.0, 5.0), (3600.0, 5.0), (float("inf"), 5.0)]
)
def test_after_a_cut_of_more_than_a_second_no_lease_ends_for_the_shorter_of_its_term_and_five(
    clock: LeaseClock, term_s: float, grace_s: float
) -> None:
    clock.advance(START + MAX_STEP_S + LONG_CUT_S + 0.001)
    assert clock.earliest_end(term_s) == pytest.approx(clock.now + grace_s)


def test_the_grace_counts_in_lease_time_from_the_last_long_cut(clock: LeaseClock) -> None:
    clock.advance(START + 10.0)
    clock.advance(START + 20.0)
    assert clock.earliest_end(60.0) == 0.5 + GRACE_S
    clock.advance(START + 20.5)  # a short cut grants no new grace
    assert clock.earliest_end(60.0) == 0.5 + GRACE_S


@pytest.mark.parametrize("gap", [0.0, 0.1, 10.0, 1e9])
def test_time_in_which_nobody_was_kept_waiting_counts_in_full(
    clock: LeaseClock, gap: float
) -> None:
    assert clock.elapse(START + gap) == clock.now == pytest.approx(gap)
    assert (clock.lag_s, clock.cuts, clock.may_end) == (0.0, 0, True)


def test_elapsing_goes_neither_back_nor_counts_twice(clock: LeaseClock) -> None:
    clock.elapse(START + 10.0)
    assert clock.elapse(START + 5.0) == 10.0
    assert clock.advance(START + 10.1) == pytest.approx(10.1)


def test_a_clock_that_was_not_started_stands_still_whatever_readings_it_takes() -> None:
    clock = LeaseClock(NEVER)
    for monotonic in (START, START + 0.1, START + 1e6):
        clock.advance(monotonic)
        clock.elapse(monotonic)
        clock.stand_still(monotonic)
    assert (clock.now, clock.lag_s) == (0.0, 0.0)
    clock.start(START + 2e6)
    assert clock.advance(START + 2e6 + 0.1) == pytest.approx(0.1)


def test_a_clock_is_started_once(clock: LeaseClock) -> None:
    with pytest.raises(AssertionError, match="started before"):
        clock.start(START)
