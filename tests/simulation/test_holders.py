"""Holders of leases, simulated: nobody relies on a lease that the server may have ended."""

import pytest

from leasehold.testing import seeds
from tests.simulation import holders
from tests.simulation.holder_bugs import HOLDER_BUGS
from tests.simulation.oracle import Violation
from tests.simulation.seeded_bugs import SeededBug

SEEDS_TO_TRY = 30


@pytest.mark.parametrize("seed", seeds(4))
def test_who_passes_a_check_has_its_lease(seed: int) -> None:
    world = holders.storms(seed)
    assert sum(holder.passed for holder in world.holders) > 50


@pytest.mark.parametrize("seed", seeds(4))
def test_an_outage_shorter_than_what_is_trusted_costs_no_lease(seed: int) -> None:
    holders.short_outages(seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_late_answers_and_several_requests_at_a_time_are_credited_as_they_should(seed: int) -> None:
    world = holders.late_answers(seed)
    assert world.expired, "nobody was cut off for long enough: this shows nothing"


@pytest.mark.parametrize("seed", seeds(4))
def test_who_gives_up_a_grant_leaves_no_lease(seed: int) -> None:
    holders.hasty(seed)


@pytest.mark.parametrize("bug", HOLDER_BUGS, ids=lambda bug: bug.name)
def test_seeded_bug_of_a_holder_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except Violation:
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
