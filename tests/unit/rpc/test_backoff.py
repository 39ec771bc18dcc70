"""The pauses between attempts."""

from collections import Counter
from random import Random

import pytest

from leasehold.rpc.backoff import BASE_S, FACTOR, MAX_S, Backoff


class Longest(Random):
    """Chance that gives the longest pause."""

    def uniform(self, _a: float, b: float) -> float:
        return b


def test_pauses_grow_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(Longest())
    pauses = [backoff.next_s() for _ in range(20)]
    assert pauses[:3] == pytest.approx([BASE_S, BASE_S * FACTOR, BASE_S * FACTOR**2])
    assert pauses[-5:] == [MAX_S] * 5
    assert pauses == sorted(pauses)


def test_after_a_reset_they_begin_anew() -> None:
    backoff = Backoff(Longest())
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == pytest.approx(BASE_S)


def test_clients_that_begin_together_are_spread_over_the_whole_pause() -> None:
    pauses = [Backoff(Random(seed)).next_s() for seed in range(500)]
    assert 0.0 <= min(pauses) < BASE_S * 0.05
    assert BASE_S * 0.95 < max(pauses) <= BASE_S
    tenths = Counter(int(10 * pause / BASE_S) for pause in pauses)
    assert min(tenths[tenth] for tenth in range(10)) > 20


def test_the_same_seed_gives_the_same_pauses() -> None:
    one, other = Backoff(Random(7)), Backoff(Random(7))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


def test_other_bounds_can_be_had() -> None:
    backoff = Backoff(Longest(), 0.01, 0.02)
    assert [backoff.next_s() for _ in range(4)] == pytest.approx([0.01, 0.016, 0.02, 0.02])
