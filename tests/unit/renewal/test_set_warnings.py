"""Expiration warnings of renewal sets: exactly when they are sent, and to which listener."""

from collections.abc import Iterator

import pytest

from leasehold import FOREVER
from leasehold.errors import ConnectionLost, NoSuchObject, PermissionDenied
from leasehold.renewal.service import RenewalLimits
from tests.support.faulty_engine import Fault
from tests.support.renewal_stage import LOST, WARNING, Stage

SOON = 0.05
"""How late a warning may be: two transactions on the simulated disk."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def test_the_warning_is_sent_min_warning_before_the_end(stage: Stage) -> None:
    set_id = stage.create(100.0)
    at = stage.now
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    stage.pass_time(69.9 - (stage.now - at))
    assert stage.inbox.events("w") == []
    stage.pass_time(100.0)
    assert stage.inbox.times("w") == pytest.approx([at + 70.0], abs=SOON)


def test_the_warning_carries_the_end_of_the_set_at_the_time_of_the_event(stage: Stage) -> None:
    set_id = stage.create(100.0)
    at = stage.now
    stage.listen(set_id, WARNING, "w", b"back", min_warning_s=30.0)
    stage.pass_time(80.0)
    (event,) = stage.inbox.events("w")
    (warning,) = stage.inbox.warnings("w")
    assert (event.source, event.kind, event.number, event.handback) == (set_id, 1, 1, b"back")
    assert event.service == stage.service.records.grantor
    assert warning.remaining_ms == pytest.approx(30_000, abs=1000 * SOON)
    assert warning.end_ms == pytest.approx(1000 * stage.wall(at + 100.0), abs=1000 * SOON)


def test_the_warning_is_sent_immediately_if_less_remains(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.pass_time(50.0)
    at = stage.now
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.pass_time(1.0)
    assert stage.inbox.times("w") == pytest.approx([at], abs=SOON)
    assert stage.inbox.warnings("w")[0].remaining_ms == pytest.approx(50_000, abs=1000 * SOON)


def test_one_warning_is_sent_for_each_term(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    stage.pass_time(95.0)
    assert len(stage.inbox.events("w")) == 1


def test_another_warning_is_sent_for_each_new_term(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    ends = []
    for _ in range(3):
        stage.pass_time(80.0)
        stage.renew_set(set_id, 100.0)
        ends.append(stage.now + 100.0)
    stage.pass_time(80.0)
    assert stage.inbox.numbers("w") == [1, 2, 3, 4]
    assert stage.inbox.times("w")[1:] == pytest.approx([end - 30.0 for end in ends], abs=SOON)


def test_a_renewal_while_less_than_min_warning_remains_sends_another_warning(
    stage: Stage,
) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=1000.0)
    stage.pass_time(10.0)
    stage.renew_set(set_id, 100.0)
    at = stage.now
    stage.pass_time(10.0)
    assert stage.inbox.numbers("w") == [1, 2]
    assert stage.inbox.times("w")[1] == pytest.approx(at, abs=SOON)


def test_renewing_the_set_to_a_longer_term_moves_the_warning(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    stage.pass_time(60.0)
    stage.renew_set(set_id, 500.0)
    at = stage.now
    stage.pass_time(600.0)
    assert stage.inbox.times("w") == pytest.approx([at + 470.0], abs=SOON)


def test_renewing_the_set_to_a_shorter_term_moves_the_warning(stage: Stage) -> None:
    set_id = stage.create(500.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    stage.pass_time(10.0)
    stage.renew_set(set_id, 60.0)
    at = stage.now
    stage.pass_time(600.0)
    assert stage.inbox.times("w") == pytest.approx([at + 30.0], abs=SOON)


def test_a_warning_time_of_zero_sends_nothing_before_the_end(stage: Stage) -> None:
    set_id = stage.create(60.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=0.0)
    stage.pass_time(59.0)
    assert stage.inbox.events("w") == []
    stage.pass_time(10.0)
    with pytest.raises(NoSuchObject):
        stage.service.find(set_id)


def test_a_set_without_an_end_sends_no_warning() -> None:
    with Stage(limits=RenewalLimits(max_term=FOREVER)) as stage:
        set_id = stage.create(FOREVER)
        stage.listen(set_id, WARNING, "w", min_warning_s=1e12)
        stage.pass_time(1000.0)
        assert stage.inbox.events("w") == []
        stage.renew_set(set_id, 100.0)
        stage.pass_time(1.0)
        assert stage.inbox.numbers("w") == [1]


# Listeners.


def test_a_new_listener_is_told_even_if_its_predecessor_was(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "v", min_warning_s=60.0)
    stage.pass_time(50.0)
    assert stage.inbox.numbers("v") == [1]
    at = stage.now
    assert stage.listen(set_id, WARNING, "w", min_warning_s=60.0) == 1
    stage.pass_time(20.0)
    assert stage.inbox.numbers("w") == [2]
    assert stage.inbox.times("w") == pytest.approx([at], abs=SOON)
    assert stage.inbox.numbers("v") == [1]


def test_a_new_listener_moves_the_warning_to_its_own_time(stage: Stage) -> None:
    set_id = stage.create(100.0)
    at = stage.now
    stage.listen(set_id, WARNING, "v", min_warning_s=60.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=20.0)
    stage.pass_time(95.0)
    assert stage.inbox.events("v") == []
    assert stage.inbox.times("w") == pytest.approx([at + 80.0], abs=SOON)


def test_no_warning_is_sent_once_the_listener_is_cleared(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.clear(set_id, WARNING)
    stage.pass_time(95.0)
    assert stage.inbox.events("w") == []


# Restarts.


def test_a_warning_that_fell_due_while_the_service_was_down_is_sent_immediately(
    stage: Stage,
) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.pass_time(30.0)
    stage.crash(down_s=40.0)
    at = stage.now
    stage.pass_time(1.0)
    assert stage.inbox.times("w") == pytest.approx([at], abs=SOON)
    assert stage.inbox.warnings("w")[0].remaining_ms == pytest.approx(30_000, abs=100)


def test_a_warning_that_fell_due_while_the_service_was_down_is_not_sent_after_the_end(
    stage: Stage,
) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.crash(down_s=101.0)
    stage.pass_time(100.0)
    assert stage.inbox.events("w") == []
    with pytest.raises(NoSuchObject):
        stage.service.find(set_id)


def test_a_warning_is_sent_in_time_after_a_restart(stage: Stage) -> None:
    set_id = stage.create(100.0)
    at = stage.now
    stage.listen(set_id, WARNING, "w", min_warning_s=20.0)
    stage.crash(down_s=20.0)
    stage.pass_time(70.0)
    assert stage.inbox.times("w") == pytest.approx([at + 80.0], abs=SOON)


def test_a_warning_that_was_sent_is_not_sent_again_after_a_restart(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.pass_time(50.0)
    stage.crash()
    stage.pass_time(30.0)
    assert stage.inbox.numbers("w") == [1]
    stage.renew_set(set_id, 70.0)
    stage.pass_time(30.0)
    assert stage.inbox.numbers("w") == [1, 2]


# Failures of the engine.


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES])
def test_a_warning_is_sent_once_if_the_engine_does_not_answer(stage: Stage, fault: Fault) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.faulty.trouble_with("txn", 1, fault)
    stage.pass_time(95.0)
    assert set(stage.inbox.numbers("w")) == {1}
    assert len({event.payload for event in stage.inbox.events("w")}) == 1
    assert stage.listen(set_id, WARNING, "v", min_warning_s=60.0) == 1


def test_no_number_is_used_twice_if_the_engine_does_not_answer(stage: Stage) -> None:
    """The first warning has no answer; another one is sent before it would be written again."""
    set_id = stage.create(100.0)
    stage.inbox.errors["w"] = LOST
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.faulty.trouble_with("txn", 1, Fault.ANSWER_LOST)
    stage.sim.run_until(lambda: "txn" in stage.faulty.calls[-1:] and stage.now > 40.0, within=60.0)
    stage.pass_time(0.02)
    stage.renew_set(set_id, 50.0)
    stage.pass_time(30.0)
    numbers = stage.service.find(set_id).queues[WARNING].number
    stage.crash()
    assert stage.service.find(set_id).queues[WARNING].number == numbers == 2


# Clocks.


def test_a_warning_is_not_moved_by_a_jump_of_the_wall_clock(stage: Stage) -> None:
    set_id = stage.create(100.0)
    at = stage.now
    stage.listen(set_id, WARNING, "w", min_warning_s=30.0)
    stage.host.jump_wall(3600.0)
    stage.pass_time(95.0)
    assert stage.inbox.times("w") == pytest.approx([at + 70.0], abs=SOON)


# Renewals of the set that fail: the cause is repaired in `services.leased_records`.


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, PermissionDenied("no")])
def test_a_failed_renewal_of_the_set_begins_no_new_term(
    stage: Stage, fault: Fault | BaseException
) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.pass_time(50.0)
    stage.faulty.trouble_with("renew", 1, fault)
    with pytest.raises((ConnectionLost, PermissionDenied)):
        stage.renew_set(set_id, 100.0)
    stage.pass_time(5.0)
    stage.crash()
    stage.pass_time(5.0)
    assert stage.inbox.numbers("w") == [1]


def test_a_warning_that_falls_due_during_a_renewal_that_fails_is_sent(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, WARNING, "w", min_warning_s=60.0)
    stage.pass_time(39.0)
    stage.faulty.delay_s = 3.0
    stage.faulty.trouble_with("renew", 1, PermissionDenied("no"))
    with pytest.raises(PermissionDenied):
        stage.renew_set(set_id, 100.0)
    stage.faulty.delay_s = 0.0
    stage.pass_time(20.0)
    assert stage.inbox.numbers("w") == [1]
