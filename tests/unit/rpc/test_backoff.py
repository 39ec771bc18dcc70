"""The pauses between attempts."""

from random import Random

import pytest

from leasehold.rpc.backoff import BASE_S, FACTOR, JITTER, MAX_S, Backoff


class Even(Random):
    """Chance that decides nothing."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_grow_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(Even())
    pauses = [backoff.next_s() for _ in range(20)]
    assert pauses[:3] == pytest.approx([BASE_S, BASE_S * FACTOR, BASE_S * FACTOR**2])
    assert pauses[-5:] == [MAX_S] * 5
    assert pauses == sorted(pauses)


def test_after_a_reset_they_begin_anew() -> None:
    backoff = Backoff(Even())
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == pytest.approx(BASE_S)


def test_chance_moves_a_pause_by_no_more_than_its_part() -> None:
    pauses = [Backoff(Random(seed)).next_s() for seed in range(500)]
    assert BASE_S * (1 - JITTER) <= min(pauses) < BASE_S * 0.85
    assert BASE_S * 1.15 < max(pauses) <= BASE_S * (1 + JITTER)


def test_the_same_seed_gives_the_same_pauses() -> None:
    one, other = Backoff(Random(7)), Backoff(Random(7))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


def test_other_bounds_can_be_had() -> None:
    backoff = Backoff(Even(), 0.01, 0.02)
    assert [backoff.next_s() for _ in range(4)] == pytest.approx([0.01, 0.016, 0.02, 0.02])
