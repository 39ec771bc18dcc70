"""What is left of a rate."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.http2.limits import ConnectionLimits, Rate, TokenBucket

NOW = 1_000_000.0


def test_a_burst_is_free_and_not_one_more() -> None:
    budget = TokenBucket(Rate(5, 1.0))
    assert [budget.spend(NOW) for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_slow_trickle_is_free_for_ever() -> None:
    budget = TokenBucket(Rate(1, 2.0))
    assert all(budget.spend(NOW + index / 2) for index in range(10_000))


def test_what_was_spent_comes_back_with_time_but_never_more_than_the_burst() -> None:
    budget = TokenBucket(Rate(5, 1.0))
    for _ in range(6):
        budget.spend(NOW)
    assert [budget.spend(NOW + 2) for _ in range(3)] == [True, True, False]
    assert [budget.spend(NOW + 1_000) for _ in range(6)] == [True] * 5 + [False]


def test_what_is_refused_costs_nothing() -> None:
    budget = TokenBucket(Rate(1, 1.0))
    budget.spend(NOW)
    for index in range(100):
        assert not budget.spend(NOW + index / 200)
    assert budget.spend(NOW + 1)


def test_what_is_earned_counts_and_is_not_kept_beyond_the_burst() -> None:
    budget = TokenBucket(Rate(3, 0.0))
    assert all(budget.spend(NOW, earned=1) for _ in range(100))
    budget.spend(NOW, earned=1_000_000)
    assert [budget.spend(NOW) for _ in range(3)] == [True, True, False]


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 20),
    st.floats(0.1, 50),
    st.lists(st.floats(0, 3), min_size=1, max_size=100),
)
def test_in_no_span_of_time_is_more_spent_than_the_rate_allows(
    burst: int, per_s: float, gaps: list[float]
) -> None:
    budget, now = TokenBucket(Rate(burst, per_s)), NOW
    spent: list[float] = []
    for gap in gaps:
        now += gap
        if budget.spend(now):
            spent.append(now)
    for first in range(len(spent)):
        for last in range(first, len(spent)):
            allowed = burst + (spent[last] - spent[first]) * per_s
            assert last - first + 1 <= allowed + 1e-3


def test_limits_cannot_be_changed_behind_the_back_of_a_connection() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConnectionLimits().max_streams = 1  # type: ignore[misc]


def test_every_limit_is_more_than_nothing() -> None:
    for field in dataclasses.fields(ConnectionLimits):
        value = getattr(ConnectionLimits(), field.name)
        assert min(value) > 0 if isinstance(value, Rate) else value > 0


def test_a_message_of_the_largest_kind_fits_into_what_may_be_buffered_and_unsent() -> None:
    limits = ConnectionLimits()
    assert limits.max_message_bytes <= limits.max_buffered_bytes
    assert limits.max_message_bytes <= limits.max_unsent_bytes
    assert limits.max_header_list_bytes <= limits.max_block_bytes
