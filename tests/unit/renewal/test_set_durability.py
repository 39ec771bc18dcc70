"""Renewal sets after a crash of the service: their restored state, and the first renewals."""

from collections.abc import Iterator

import pytest

from leasehold import FOREVER
from leasehold.basics.durations import NEVER
from leasehold.errors import NoSuchObject, TooBusy
from leasehold.renewal.end_recorder import EVERY_S, MAX_ENDS
from leasehold.renewal.stored import members_of
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def stored_ends(stage: Stage, set_id: str) -> list[float]:
    rows = {suffix[1:]: value for suffix, value in stage.stored(set_id, b"/m/").items()}
    return [member.end for member in members_of(rows)]


# Restored state.


def test_sets_members_and_durations_survive_a_crash(stage: Stage) -> None:
    one, two = stage.create(), stage.create()
    stage.add(one, stage.place.lease("a"), 500.0, 25.0)
    stage.add(one, stage.place.lease("b"), FOREVER, FOREVER)
    stage.add(two, stage.place.lease("c"))
    desired_end = stage.member(one, "a").terms.desired_end
    stage.crash(1.0)
    assert stage.members(one) == ["a", "b"]
    assert stage.members(two) == ["c"]
    terms = stage.member(one, "a").terms
    assert terms.desired_end == pytest.approx(desired_end, abs=0.001)
    assert terms.renew == 25.0
    assert stage.member(one, "b").terms == (NEVER, FOREVER)


def test_nothing_lapses_if_the_service_is_killed_again_and_again(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    for name in "abc":
        stage.add(set_id, stage.place.lease(name))
    for _ in range(10):
        stage.pass_time(13.0)
        stage.crash(5.0)
        stage.pass_time(0.5)
        assert all(map(stage.place.is_alive, "abc"))
    assert stage.members(set_id) == ["a", "b", "c"]
    assert stage.inbox.events("l") == []


def test_ended_sets_are_gone_after_a_restart(stage: Stage) -> None:
    ended, cancelled, alive = stage.create(30.0), stage.create(), stage.create()
    for set_id in (ended, cancelled, alive):
        stage.add(set_id, stage.place.lease(set_id, 1000.0), remaining=1000.0)
    stage.run(stage.service.records.cancel, cancelled)
    stage.crash(down_s=31.0)
    stage.pass_time(5.0)
    for set_id in (ended, cancelled):
        with pytest.raises(NoSuchObject):
            stage.service.find(set_id)
        assert not stage.stored(set_id)
        assert stage.place.times(set_id) == []
    assert stage.members(alive) == [alive]


def test_a_desired_end_that_passed_while_the_service_was_down_counts_by_the_wall_clock(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a", 1000.0), 60.0, remaining=50.0)
    stage.add(set_id, stage.place.lease("b", 1000.0), 120.0, remaining=50.0)
    stage.crash(down_s=80.0)
    stage.pass_time(1.0)
    assert stage.members(set_id) == ["b"]
    assert stage.place.times("a") == []
    stage.pass_time(45.0)
    assert stage.members(set_id) == []
    assert stage.inbox.events("l") == []


# Renewals after a restart.


def test_members_are_renewed_immediately_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a", 1000.0), remaining=1000.0)
    stage.crash(1.0)
    at = stage.now
    stage.pass_time(1.0)
    assert stage.place.times("a") == pytest.approx([at], abs=0.05)


def test_members_are_renewed_in_their_order_after_a_restart_those_past_first(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.place.error = LOST
    for name, remaining in (("a", 100.0), ("b", 20.0), ("c", 200.0), ("d", 10.0), ("e", 15.0)):
        stage.add(set_id, stage.place.lease(name, 1000.0), remaining=remaining)
    stage.place.error = None
    stage.place.calls_made.clear()
    stage.crash(down_s=50.0)
    stage.pass_time(1.0)
    assert stage.place.batches() == [["b", "d", "e", "a", "c"]]


def test_members_of_all_sets_that_are_past_come_first_after_a_restart(stage: Stage) -> None:
    sets = [stage.create() for _ in range(5)]
    stage.place.error = LOST
    for number, set_id in enumerate(sets):
        stage.add(set_id, stage.place.lease(f"past{number}", 1000.0), remaining=5.0)
        stage.add(set_id, stage.place.lease(f"later{number}", 1000.0), remaining=100.0)
    stage.place.error = None
    stage.place.calls_made.clear()
    stage.crash(down_s=20.0)
    stage.pass_time(1.0)
    renewed = [name for batch in stage.place.batches() for name in batch]
    assert len(renewed) == 10
    first = stage.place.batches()[0]
    past = [name.startswith("past") for name in first]
    assert past == sorted(past, reverse=True)


def test_a_recorded_end_that_has_passed_does_not_make_a_failure(stage: Stage) -> None:
    """The landlord was asked more than was recorded, or is generous."""
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a", 1000.0), remaining=30.0)
    stage.crash(down_s=100.0)
    stage.pass_time(10.0)
    assert stage.members(set_id) == ["a"]
    assert len(stage.place.times("a")) == 1
    assert stage.inbox.events("l") == []


def test_the_landlords_answer_makes_a_failure_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.crash(down_s=100.0)
    at = stage.now
    stage.pass_time(10.0)
    assert stage.members(set_id) == []
    (failure,) = stage.inbox.failures("l")
    assert failure.error.class_name == "UnknownLease"
    assert stage.inbox.times("l") == pytest.approx([at], abs=0.1)


def test_no_answer_for_one_full_term_makes_a_failure_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    added_at = stage.now
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = LOST
    stage.crash(down_s=100.0)
    at = stage.now
    stage.pass_time(29.0)
    assert stage.members(set_id) == ["a"]
    assert len(stage.place.times("a")) > 1
    stage.pass_time(2.0)
    assert stage.inbox.times("l") == pytest.approx([at + 30.0], abs=0.1)
    (failure,) = stage.inbox.failures("l")
    assert failure.error.class_name == "ConnectionLost"
    end_s = failure.end_ms / 1000.0
    assert end_s == pytest.approx(stage.wall(added_at + 30.0), abs=0.05), "the recorded end"


def test_members_have_their_recorded_ends_until_the_landlord_answers(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a", 1000.0), remaining=40.0)
    end = stage.member(set_id, "a").end
    stage.place.error = LOST
    stage.crash(down_s=30.0)
    stage.pass_time(20.0)
    assert stage.member(set_id, "a").end == pytest.approx(end, abs=0.001)
    assert stored_ends(stage, set_id) == pytest.approx([end], abs=0.001)
    stage.crash(down_s=30.0)
    assert stage.member(set_id, "a").end == pytest.approx(end, abs=0.001)
    stage.place.error = None
    stage.pass_time(20.0)
    at = stage.place.times("a")[-1]
    assert stage.member(set_id, "a").end == pytest.approx(stage.wall(at + 30.0), abs=0.05)
    assert stage.remove(set_id, stage.place.lease("a")) is not None


def test_new_durations_do_not_delay_the_first_renewal_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a", 50.0), remaining=50.0)
    stage.place.error = LOST
    stage.crash(down_s=30.0)
    stage.pass_time(5.0)
    stage.place.error = None
    stage.add(set_id, stage.place.lease("a", 15.0), 1000.0)
    stage.pass_time(10.0)
    assert stage.place.ends["a"] > stage.now
    stage.pass_time(60.0)
    assert stage.place.is_alive("a")


def test_a_definite_failure_that_was_recorded_is_reported_and_not_retried(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = REFUSED
    stage.pass_time(28.0)
    stage.place.error = None
    stage.crash()
    stage.inbox.errors.clear()
    calls = len(stage.place.calls_made)
    stage.pass_time(100.0)
    assert stage.inbox.failed("l") == ["a"]
    assert stage.inbox.failures("l")[0].error.class_name == "LeaseDenied"
    assert stage.members(set_id) == []
    assert len(stage.place.calls_made) == calls


# Recorded ends.


def test_ends_of_members_are_written_lazily(stage: Stage) -> None:
    set_id = stage.create()
    for number in range(20):
        stage.add(set_id, stage.place.lease(f"n{number}"))
    stage.pass_time(1.0)
    before = stage.faulty.calls.count("txn")
    stage.pass_time(300.0)
    assert len(stage.place.times("n0")) >= 10
    assert stage.faulty.calls.count("txn") - before <= 15, "not one for each renewal"
    late_s = stage.wall(stage.now) - min(stored_ends(stage, set_id))
    assert late_s <= EVERY_S + 1.0


def test_ends_are_written_even_if_members_are_listed_all_the_time(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    for _ in range(100):
        stage.pass_time(3.0)
        stage.members(set_id)
    assert stage.wall(stage.now) - stored_ends(stage, set_id)[0] <= EVERY_S + 1.0


def test_an_end_that_could_not_be_written_is_written_later(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.pass_time(29.0)
    stage.faulty.trouble_with("txn", 1, TooBusy("later"))
    stage.pass_time(12.0)
    assert stage.wall(stage.now) - stored_ends(stage, set_id)[0] > 10.0
    stage.pass_time(10.0)
    assert stage.wall(stage.now) - stored_ends(stage, set_id)[0] <= EVERY_S + 1.0


def test_ends_of_all_sets_are_written_in_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.renewal.end_recorder.MAX_ENDS", 10)
    assert MAX_ENDS == 500
    sets = [stage.create() for _ in range(3)]
    for set_id in sets:
        for number in range(20):
            stage.add(set_id, stage.place.lease(f"{set_id}{number}"))
    stage.pass_time(300.0)
    for set_id in sets:
        late_s = stage.wall(stage.now) - min(stored_ends(stage, set_id))
        assert late_s <= 150.0, "60 ends take 6 rounds, and each becomes old after 30 s"


# The wall clock and lease time.


def test_the_end_of_a_set_counts_in_lease_time_while_the_server_runs(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.host.jump_wall(1000.0)
    stage.pass_time(99.0)
    stage.service.find(set_id)
    stage.host.jump_wall(-2000.0)
    stage.pass_time(2.0)
    with pytest.raises(NoSuchObject):
        stage.service.find(set_id)


def test_the_end_of_a_set_counts_by_the_wall_clock_after_a_restart(stage: Stage) -> None:
    early, late = stage.create(100.0), stage.create(200.0)
    stage.host.jump_wall(150.0)
    stage.crash()
    with pytest.raises(NoSuchObject):
        stage.service.find(early)
    assert stage.service.find(late).record.remaining_s == pytest.approx(50.0, abs=0.5)


def test_renewing_the_lease_of_the_engine_does_not_extend_a_set(stage: Stage) -> None:
    set_id = stage.create(20.0)
    record = stage.service.find(set_id).record
    stage.pass_time(15.0)
    stage.run(stage.engine.renew, record.lease)
    stage.pass_time(4.0)
    stage.service.find(set_id)
    stage.pass_time(2.0)
    with pytest.raises(NoSuchObject):
        stage.service.find(set_id)
