"""The discovery service, simulated: each registration has what it wants, and every event."""

import pytest

from leasehold.testing import SimulationError, seeds
from tests.simulation import discovery_scenarios as scenarios
from tests.simulation.discovery_bugs import DISCOVERY_BUGS
from tests.simulation.oracle import Violation
from tests.simulation.seeded_bugs import SeededBug

SEEDS_TO_TRY = 16


@pytest.mark.parametrize("seed", seeds(4))
def test_registrations_have_what_they_want_after_any_storm(seed: int) -> None:
    world = scenarios.storm(seed)
    assert world.oracle.stored > 20
    assert world.counts["checked"] > 2


@pytest.mark.parametrize("seed", seeds(2))
def test_no_registrar_is_announced_twice_or_missing_because_of_restarts(seed: int) -> None:
    world = scenarios.restarts(seed)
    assert world.server.starts > 10
    assert world.oracle.received_events > 10


@pytest.mark.parametrize("seed", seeds(2))
def test_interests_that_change_all_the_time_find_what_they_want(seed: int) -> None:
    world = scenarios.interests(seed)
    assert world.counts["groups"] + world.counts["locators"] > 100


@pytest.mark.parametrize("seed", seeds(2))
def test_a_registrar_that_leaves_the_groups_is_kept_where_a_locator_covers_it(seed: int) -> None:
    world = scenarios.both_ways(seed)
    assert world.oracle.received_events > 0


@pytest.mark.parametrize("seed", seeds(2))
def test_nothing_is_missed_while_a_change_is_stored(seed: int) -> None:
    world = scenarios.slow_writes(seed)
    assert world.counts["groups"] + world.counts["locators"] > 40


@pytest.mark.parametrize("seed", seeds(2))
def test_registrars_that_answer_late_after_a_restart_are_found_for_new_registrations(
    seed: int,
) -> None:
    world = scenarios.newcomers(seed)
    assert world.counts["registrations"] > 5


@pytest.mark.parametrize("seed", seeds(2))
def test_registrars_that_regroup_or_are_replaced_are_kept_as_long_as_they_are_covered(
    seed: int,
) -> None:
    world = scenarios.patient(seed)
    assert world.oracle.stored
    assert world.counts["checked"] > 2


@pytest.mark.parametrize("seed", seeds(2))
def test_discarded_registrars_return_after_their_wait(seed: int) -> None:
    world = scenarios.discards(seed)
    assert world.counts["discard"] > 10


@pytest.mark.parametrize("seed", seeds(2))
def test_requests_that_are_executed_late_change_nothing(seed: int) -> None:
    world = scenarios.stragglers(seed)
    assert world.keyspace is not None
    assert world.keyspace.straggled


def test_a_run_can_be_replayed() -> None:
    first, second = (scenarios.storm(3, minutes=0.5).sim.digest() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("bug", DISCOVERY_BUGS, ids=lambda bug: bug.name)
def test_seeded_bug_of_the_discovery_service_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except (Violation, SimulationError):  # of the oracle, or an error that was not handled
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
