"""Leases over a faulty link, for hours of virtual time, under the eyes of an oracle."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold import ExpiryStrategy, exact, lazy, per_lease, polling
from leasehold.testing import seeds
from tests.simulation import keepalive, scenarios
from tests.simulation.world import World

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", seeds(1))
def test_of_1000_leases_none_lapses_while_its_landlord_answers(seed: int) -> None:
    world = scenarios.calm(seed, leases=1000, minutes=120)
    calls, renewals = len(world.oracle.batches), sum(world.oracle.batches)
    assert renewals > sum(250 * 120 * 60 / term for term in world.setting.terms), "hardly renewed"
    assert renewals > 50 * calls, "renewals are not batched"


@pytest.mark.parametrize("seed", seeds(1))
def test_1000_leases_in_a_storm_end_loudly_late_and_once(seed: int) -> None:
    world = scenarios.stormy(seed, leases=1000, minutes=120)
    assert world.oracle.lapses(), "a storm that cost nobody a lease shows nothing"


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.hurried,
        scenarios.refused,
        scenarios.turnover,
        scenarios.stormy,
        scenarios.brink,
        scenarios.stall,
        keepalive.keep_alive,
    ],
)
def test_scenario(scenario: Callable[[int], World], seed: int) -> None:
    world = scenario(seed)
    assert world.oracle.grants == len(world.oracle.ends) > 0


@pytest.mark.parametrize("expiry", [exact(), lazy(), per_lease(), polling(0.5)], ids=repr)
@pytest.mark.parametrize("seed", seeds(2))
def test_every_expiry_strategy_keeps_its_promises(expiry: ExpiryStrategy, seed: int) -> None:
    world = scenarios.calm(seed, expiry=expiry)
    assert world.oracle.grants == len(world.oracle.ends) > 0


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_a_seed_replays_exactly_in_another_process(hash_seed: str) -> None:
    here = scenarios.stormy(3, minutes=20).sim.digest()
    code = (
        "from tests.simulation.scenarios import stormy; print(stormy(3, minutes=20).sim.digest())"
    )
    there = subprocess.run(  # noqa: S603  our own interpreter, our own code
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here
