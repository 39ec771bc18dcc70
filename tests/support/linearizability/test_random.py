"""The checker on random histories, against what a simulation did and what brute force finds."""

import os
import random
from collections import Counter
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.support import DEEP, PROFILE, effort
from tests.support.linearizability import Operation, check
from tests.support.linearizability.naive import is_linearizable
from tests.support.linearizability.simulated import Setting, Simulation, corrupted

TINY: Final = 6
"""So many operations are few enough for all their permutations."""
SEEDS: Final = 800
EACH_VERDICT: Final = 200

randoms = st.randoms(use_true_random=False)
seeds = st.integers(0, 2**32)


def searching(examples: int) -> settings:
    """Settings that do not depend on which other tests are run."""
    return settings(
        effort(examples),
        deadline=None,
        derandomize=os.environ.get(PROFILE) != DEEP,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def honest_setting(rng: random.Random) -> Setting:
    return Setting(
        clients=rng.randint(1, 6),
        calls=rng.randint(1, 12),
        keys=rng.randint(1, 3),
        values=rng.choice([None, 2, 5]),
        lost=rng.choice([0.0, 0.1, 0.3]),
        hidden=rng.choice([0.0, 0.2]),
        deletes=rng.random() < 0.7,
        elsewhere=rng.choice([0, 3]),
    )


def tiny_history(rng: random.Random) -> list[Operation]:
    """A history of one key, which may be in order or not."""
    setting = Setting(
        clients=rng.randint(2, 3),
        calls=rng.randint(2, 3),
        values=rng.choice([None, 2]),
        lost=rng.choice([0.0, 0.3, 0.6]),
        hidden=rng.choice([0.0, 0.3, 0.6, 1.0]),
        elsewhere=rng.choice([0, 2]),
        stale=rng.choice([0.0, 0.5]),
        undone=rng.choice([0, 0, 1, 2]),
        revisions_survive=rng.random() < 0.5,
    )
    operations = Simulation(rng, setting).run()[:TINY]
    for _ in range(rng.choice([0, 0, 1, 2])):
        operations = corrupted(rng, operations)
    return operations


@searching(150)
@given(seeds)
def test_what_an_atomic_store_does_is_always_accepted(seed: int) -> None:
    rng = random.Random(seed)
    operations = Simulation(rng, honest_setting(rng)).run()
    assert (violation := check(operations)) is None, violation


@searching(300)
@given(randoms)
def test_the_checker_and_brute_force_agree(rng: random.Random) -> None:
    operations = tiny_history(rng)
    assert (check(operations) is None) == is_linearizable(operations), operations


def test_they_agree_that_many_histories_are_good_and_many_are_bad() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(SEEDS):
        operations = tiny_history(random.Random(seed))
        is_good = is_linearizable(operations)
        assert (check(operations) is None) == is_good, seed
        verdicts[is_good] += 1
    assert min(verdicts[True], verdicts[False]) > EACH_VERDICT, verdicts


@searching(150)
@given(seeds, st.integers(1, 5), st.booleans())
def test_a_write_that_was_acknowledged_and_then_dropped_is_always_found(
    seed: int, undone: int, revisions_survive: bool
) -> None:
    # Without deletes and lost answers, the last version is the number of acknowledged writes.
    setting = Setting(
        clients=5,
        calls=8,
        keys=2,
        deletes=False,
        undone=undone,
        revisions_survive=revisions_survive,
    )
    simulation = Simulation(random.Random(seed), setting)
    simulation.run()
    simulation.read_all()
    assert (check(simulation.operations) is not None) == bool(simulation.undone)


@searching(150)
@given(seeds, st.sampled_from([0.0, 0.1]))
def test_a_read_that_is_older_than_an_acknowledged_write_is_always_found(
    seed: int, lost: float
) -> None:
    setting = Setting(clients=5, calls=8, keys=2, lost=lost, stale=0.05)
    simulation = Simulation(random.Random(seed), setting)
    simulation.run()
    if simulation.outdated:
        assert check(simulation.operations) is not None
