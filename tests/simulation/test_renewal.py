"""The renewal service, simulated: leases are kept, and every event has its number."""

import pytest

from leasehold.testing import SimulationError, seeds
from tests.simulation import renewal_scenarios as scenarios
from tests.simulation.oracle import Violation
from tests.simulation.renewal_bugs import RENEWAL_BUGS
from tests.simulation.seeded_bugs import SeededBug

SEEDS_TO_TRY = 16


@pytest.mark.parametrize("seed", seeds(6))
def test_one_server_keeps_its_promises_in_any_storm(seed: int) -> None:
    world = scenarios.one_server(seed)
    assert world.oracle.sent > 20
    assert world.counts["sets"] > 4


@pytest.mark.parametrize("seed", seeds(4))
def test_several_servers_keep_their_promises_in_any_storm(seed: int) -> None:
    world = scenarios.several_servers(seed)
    assert world.oracle.sent > 20
    assert world.counts["sets"] > 4


@pytest.mark.parametrize("seed", seeds(2))
def test_no_lease_lapses_because_of_restarts(seed: int) -> None:
    world = scenarios.restarts(seed)
    assert world.servers[0].starts > 5
    assert world.oracle.sent > 500


@pytest.mark.parametrize("seed", seeds(2))
def test_events_outlive_crashes_with_their_numbers_and_in_order(seed: int) -> None:
    world = scenarios.eventful(seed)
    assert world.oracle.delivered > 50
    assert world.oracle.repeated, "no event was delivered twice: nothing was tested"


@pytest.mark.parametrize("seed", seeds(3))
def test_requests_that_are_executed_late_change_nothing(seed: int) -> None:
    world = scenarios.stragglers(seed)
    assert world.keyspace is not None
    assert world.keyspace.straggled


@pytest.mark.parametrize("seed", seeds(2))
def test_a_server_that_was_stopped_does_not_interfere_with_its_successor(seed: int) -> None:
    world = scenarios.takeovers(seed)
    assert world.keyspace is not None
    assert world.keyspace.straggled


@pytest.mark.parametrize("seed", seeds(2))
def test_a_full_queue_shows_as_a_gap_in_the_numbers(seed: int) -> None:
    received, number, room = scenarios.overflow(seed)
    assert number > room + 1
    assert received == [*range(1, room + 1), number], "the last one shows how many there were"


def test_a_run_can_be_replayed() -> None:
    first, second = (scenarios.several_servers(3, minutes=0.3).sim.digest() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("bug", RENEWAL_BUGS, ids=lambda bug: bug.name)
def test_seeded_bug_of_the_renewal_service_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except (Violation, SimulationError):  # of the oracle, or an error that was not handled
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
