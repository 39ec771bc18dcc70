"""A histogram counts each observation once, by the first bound that it does not exceed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.basics.histogram import Histogram


@given(st.lists(st.floats(-10, 10)), st.lists(st.floats(-9, 9), min_size=1, unique=True))
def test_each_bound_counts_what_does_not_exceed_it(
    values: list[float], bounds: list[float]
) -> None:
    histogram = Histogram(sorted(bounds))
    for value in values:
        histogram.observe(value)
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))
    expected = [sum(value <= bound for value in values) for bound in sorted(bounds)]
    assert histogram.cumulative() == [*expected, len(values)]


def test_bounds_must_grow() -> None:
    with pytest.raises(AssertionError, match="must grow"):
        Histogram((1.0, 1.0))
