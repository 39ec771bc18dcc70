"""The waits between attempts."""

from collections import Counter
from random import Random

import pytest

from leasehold.basics.backoff import (
    BASE_S,
    FACTOR,
    MAX_S,
    Backoff,
    exponential,
)


class Longest(Random):
    """Chance that gives the longest wait."""

    def uniform(self, _a: float, b: float) -> float:
        return b


def test_exponential_waits_grow_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(exponential(), Longest())
    waits = [backoff.next_s() for _ in range(20)]
    assert waits[:3] == pytest.approx([BASE_S, BASE_S * FACTOR, BASE_S * FACTOR**2])
    assert waits[-5:] == [MAX_S] * 5
    assert waits == sorted(waits)


def test_after_a_reset_the_schedule_begins_again() -> None:
    backoff = Backoff(exponential(), Longest())
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == pytest.approx(BASE_S)


def test_clients_that_begin_together_are_spread_over_the_whole_wait() -> None:
    waits = [Backoff(exponential(), Random(seed)).next_s() for seed in range(500)]
    assert 0.0 <= min(waits) < BASE_S * 0.05
    assert BASE_S * 0.95 < max(waits) <= BASE_S
    tenths = Counter(int(10 * wait / BASE_S) for wait in waits)
    assert min(tenths[tenth] for tenth in range(10)) > 20


def test_the_same_seed_gives_the_same_waits() -> None:
    one, other = Backoff(exponential(), Random(7)), Backoff(exponential(), Random(7))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


def test_the_bounds_of_an_exponential_schedule_are_arguments() -> None:
    backoff = Backoff(exponential(0.01, 0.02), Longest())
    assert [backoff.next_s() for _ in range(4)] == pytest.approx([0.01, 0.016, 0.02, 0.02])


@pytest.mark.parametrize("max_s", [0.0, BASE_S / 2])
def test_no_wait_is_longer_than_a_limit_below_the_first_wait(max_s: float) -> None:
    backoff = Backoff(exponential(max_s=max_s), Longest())
    assert [backoff.next_s() for _ in range(3)] == [max_s] * 3


def test_jitter_only_shortens_the_waits_of_a_schedule_and_the_last_one_repeats() -> None:
    bounds = (1.0, 5.0, 10.0, 60.0, 60.0, 300.0)
    seen = [list[float]() for _ in range(9)]
    for seed in range(200):
        backoff = Backoff(bounds, Random(seed))
        for waits in seen:
            waits.append(backoff.next_s())
    for waits, bound in zip(seen, (*bounds, 300.0, 300.0, 300.0), strict=True):
        assert 0.0 <= min(waits) < 0.05 * bound
        assert 0.95 * bound < max(waits) <= bound
