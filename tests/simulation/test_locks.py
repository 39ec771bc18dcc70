"""Locks, simulated: one holder at a time, whatever happens, and nothing is left behind."""

from collections.abc import Callable

import pytest

from leasehold.testing import SimulationError, seeds
from tests.simulation import lock_scenarios as scenarios
from tests.simulation.lock_bugs import LOCK_BUGS
from tests.simulation.lock_scenarios import BUSY
from tests.simulation.lock_world import LockWorld
from tests.simulation.oracle import Violation
from tests.simulation.seeded_bugs import SeededBug

SEEDS_TO_TRY = 30

# With faults.


@pytest.mark.parametrize("seed", seeds(2))
def test_a_lock_has_one_holder_in_any_storm(seed: int) -> None:
    world = scenarios.storms(seed)
    assert sum(world.oracle.grants.values()) > 50


def test_twenty_clients_share_locks_in_a_storm() -> None:
    world = scenarios.storms(0, minutes=0.3, processes=20, foreigners=2)
    assert all(process.got for process in world.ours)


@pytest.mark.parametrize("seed", seeds(2))
def test_who_was_stopped_relies_on_nothing(seed: int) -> None:
    world = scenarios.stalls(seed)
    assert sum(process.lost for process in world.processes), "nobody was stopped for long enough"


@pytest.mark.parametrize("seed", seeds(2))
def test_what_was_given_up_does_not_come_back_to_life(seed: int) -> None:
    world = scenarios.stragglers(seed)
    assert world.server.straggled
    assert world.cancelled


@pytest.mark.parametrize("seed", seeds(4))
def test_calls_without_answers_leave_no_orphan(seed: int) -> None:
    world = scenarios.orphans(seed)
    assert world.server.straggled


@pytest.mark.parametrize("seed", seeds(2))
def test_cancellation_at_any_await_leaves_no_orphan(seed: int) -> None:
    world = scenarios.lost_answers(seed)
    assert world.cancelled


@pytest.mark.parametrize("seed", seeds(2))
def test_locks_outlive_crashes_of_the_server_and_not_of_their_holders(seed: int) -> None:
    scenarios.crashes(seed)


@pytest.mark.parametrize("seed", seeds(2))
def test_tokens_rise_over_a_restored_server(seed: int) -> None:
    scenarios.restored(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_lost_history_ends_every_guard(seed: int) -> None:
    scenarios.replaced(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_partition_shorter_than_the_lease_costs_nobody_anything(seed: int) -> None:
    scenarios.short_outages(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_longer_partition_costs_that_client_its_locks_and_nobody_else(seed: int) -> None:
    scenarios.long_partition(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_an_old_session_is_in_nobodys_way(seed: int) -> None:
    scenarios.server_stall(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_who_wakes_up_with_an_old_lock_contends_again(seed: int) -> None:
    scenarios.woken(seed)


# Without.


@pytest.mark.parametrize("seed", seeds(3))
def test_counts_sum_to_the_grants(seed: int) -> None:
    world = scenarios.quiet(seed)
    assert sum(world.oracle.grants.values()) > 50


@pytest.mark.parametrize("seed", seeds(10))
def test_counts_that_are_kept_are_exact(seed: int) -> None:
    world = scenarios.counted(seed)
    assert sum(world.oracle.grants.values()) > 50


@pytest.mark.parametrize("seed", seeds(3))
def test_who_only_asks_or_gives_up_costs_nobody_anything(seed: int) -> None:
    world = scenarios.fickle(seed)
    assert sum(process.denied for process in world.processes)


@pytest.mark.parametrize("seed", seeds(5))
def test_waiters_are_served_in_order_and_soon(seed: int) -> None:
    scenarios.in_order(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_locks_of_nested_names_do_not_see_each_other(seed: int) -> None:
    scenarios.nested_names(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_key_that_was_deleted_sets_lost_at_once(seed: int) -> None:
    scenarios.deleted_by_hand(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_marks_for_others_do_not_count(seed: int) -> None:
    scenarios.late_mark(seed)


# That all this shows something.


def _must_lose_updates(run: Callable[[int], LockWorld]) -> None:
    violation = None
    for seed in range(SEEDS_TO_TRY):
        try:
            run(seed)
        except Violation as error:
            violation = error
            break
    assert "an update is lost" in str(violation)


def test_without_locks_updates_are_lost() -> None:
    def run(seed: int) -> LockWorld:
        return scenarios.storms(seed, is_locked=False, is_fenced=False, habits=BUSY)

    _must_lose_updates(run)


def test_without_fencing_updates_are_lost() -> None:
    def run(seed: int) -> LockWorld:
        return scenarios.stalls(seed, is_fenced=False)

    _must_lose_updates(run)


def test_a_seed_can_be_replayed() -> None:
    first, second = (scenarios.storms(5, minutes=0.1).sim.digest() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("bug", LOCK_BUGS, ids=lambda bug: bug.name)
def test_seeded_bug_of_a_lock_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except (Violation, SimulationError):  # of the oracle, or an error that was not handled
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
