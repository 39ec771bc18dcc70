"""Single-writer files, simulated: flushed bytes stay, in order, whatever happens."""

import pytest

from leasehold.testing import SimulationError, seeds
from tests.simulation import files_races as races
from tests.simulation import files_scenarios as scenarios
from tests.simulation import files_upkeep as upkeep
from tests.simulation.files_bugs import FILES_BUGS
from tests.simulation.files_upkeep_bugs import UPKEEP_BUGS
from tests.simulation.oracle import Violation
from tests.simulation.seeded_bugs import SeededBug

SEEDS_TO_TRY = 20


@pytest.mark.parametrize("seed", seeds(2))
def test_flushed_bytes_survive_any_storm(seed: int) -> None:
    world = scenarios.storms(seed)
    assert world.oracle.counts["flushes"] > 5


@pytest.mark.parametrize("seed", seeds(2))
def test_no_writer_loses_its_file_in_peace(seed: int) -> None:
    world = scenarios.peace(seed)
    assert world.oracle.counts["acked flush"] > 10


@pytest.mark.parametrize("seed", seeds(2))
def test_stores_that_fail_cost_no_flushed_byte(seed: int) -> None:
    world = scenarios.bad_stores(seed)
    assert world.oracle.counts["replaced stores"]


@pytest.mark.parametrize("seed", seeds(1))
def test_a_writer_that_wakes_up_changes_no_file_that_others_have_taken(seed: int) -> None:
    world = scenarios.woken(seed)
    assert world.oracle.counts["recoveries"]


@pytest.mark.parametrize("seed", seeds(2))
def test_requests_that_are_executed_late_bring_no_file_back(seed: int) -> None:
    world = scenarios.stragglers(seed)
    assert world.server.straggled


@pytest.mark.parametrize("seed", seeds(1))
def test_a_call_without_an_answer_is_executed_once(seed: int) -> None:
    world = scenarios.lost_answers(seed)
    assert world.oracle.counts["flushes"] > 5


@pytest.mark.parametrize("seed", seeds(1))
def test_files_outlive_crashes_of_writers_recoverers_and_the_server(seed: int) -> None:
    world = scenarios.crashes(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(2))
def test_the_monitor_closes_all_files_of_writers_that_are_gone(seed: int) -> None:
    world = scenarios.abandoned(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(1))
def test_damaged_replicas_are_not_read(seed: int) -> None:
    world = scenarios.damage(seed)
    assert any(disk.damaged for disk in world.disks)
    assert world.oracle.counts["reads"] > 10


@pytest.mark.parametrize("seed", seeds(2))
def test_a_loss_of_power_costs_no_flushed_byte(seed: int) -> None:
    world = scenarios.power_loss(seed)
    assert all(disk.crashes for disk in world.disks)


# A few clients that meet at the worst moment.


@pytest.mark.parametrize("seed", seeds(4))
def test_a_stopped_writer_is_fenced(seed: int) -> None:
    world = races.taken(seed)
    assert world.oracle.counts["acked flush"]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_recovery_that_was_overtaken_publishes_nothing(seed: int) -> None:
    world = races.two_recoveries(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_monitor_that_starts_late_closes_files_and_leaves_those_of_live_holders(
    seed: int,
) -> None:
    world = races.unattended(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_flush_without_an_answer_succeeds(seed: int) -> None:
    world = races.unanswered(seed)
    assert world.oracle.counts["acked flush"] > 5


@pytest.mark.parametrize("seed", seeds(4))
def test_a_writer_does_not_go_on_in_a_file_that_was_recovered_after_its_flush(seed: int) -> None:
    world = races.overtaken(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(4))
def test_bytes_that_were_not_flushed_are_not_recovered(seed: int) -> None:
    world = races.torn(seed)
    assert world.oracle.counts["recovered"]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_create_is_not_executed_after_its_call_is_over(seed: int) -> None:
    world = races.late_creates(seed)
    assert world.server.straggled


# Servers that delete and repair.


@pytest.mark.parametrize("seed", seeds(2))
def test_replaced_objects_are_deleted_when_their_time_has_come(seed: int) -> None:
    world = upkeep.tidy(seed)
    assert world.oracle.counts["deleted objects"] > 10


@pytest.mark.parametrize("seed", seeds(2))
def test_no_object_of_a_file_is_deleted_in_a_storm(seed: int) -> None:
    world = upkeep.storms(seed)
    assert world.oracle.counts["deleted objects"]


@pytest.mark.parametrize("seed", seeds(1))
def test_servers_that_crash_leave_nothing_behind(seed: int) -> None:
    world = upkeep.crashes(seed)
    assert world.oracle.counts["deleted objects"]


@pytest.mark.parametrize("seed", seeds(2))
def test_all_blocks_are_repaired_after_stores_have_failed(seed: int) -> None:
    world = upkeep.bad_stores(seed)
    assert world.oracle.counts["replaced stores"]


@pytest.mark.parametrize("seed", seeds(1))
def test_requests_of_servers_that_are_executed_late_do_no_harm(seed: int) -> None:
    world = upkeep.late(seed)
    assert world.server.straggled


@pytest.mark.parametrize("seed", seeds(1))
def test_repairs_of_a_slow_server_name_no_deleted_object(seed: int) -> None:
    world = upkeep.slow_repairs(seed)
    assert world.oracle.counts["deleted objects"]


@pytest.mark.parametrize("seed", seeds(2))
def test_objects_that_look_old_are_not_deleted_while_they_may_be_named(seed: int) -> None:
    world = upkeep.wrong_ages(seed)
    assert world.oracle.counts["flushes"] > 5


@pytest.mark.parametrize("seed", seeds(1))
def test_damaged_replicas_are_replaced(seed: int) -> None:
    world = upkeep.damage(seed)
    assert any(disk.damaged for disk in world.disks)


@pytest.mark.parametrize("seed", seeds(1))
def test_blocks_are_not_copied_from_damaged_replicas(seed: int) -> None:
    world = upkeep.damaged_sources(seed)
    assert any(disk.damaged for disk in world.disks)


@pytest.mark.parametrize("seed", seeds(2))
def test_a_store_that_has_left_can_be_emptied(seed: int) -> None:
    world = upkeep.removals(seed)
    assert world.oracle.counts["removed stores"]


@pytest.mark.parametrize("seed", seeds(2))
def test_processes_may_be_late_to_know_that_a_store_is_removed(seed: int) -> None:
    world = upkeep.outdated(seed)
    assert world.oracle.counts["removed stores"]


# The simulation itself.


def test_a_run_can_be_replayed() -> None:
    first, second = (scenarios.storms(3, minutes=0.2).sim.digest() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("bug", [*FILES_BUGS, *UPKEEP_BUGS], ids=lambda bug: bug.name)
def test_seeded_bug_of_files_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except Violation:
            return
        except SimulationError as error:  # such as a violation in a task
            if isinstance(error.__cause__, TypeError | AttributeError):
                raise  # the bug does not fit the shipped code any more
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
