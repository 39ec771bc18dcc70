"""The end of a renewal set: nothing more is sent, and its keys are collected."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from leasehold.errors import NoSuchObject, UnknownLease
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, WARNING, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def full_set(stage: Stage, duration: float = 60.0) -> str:
    set_id = stage.create(duration)
    stage.listen(set_id, FAILURE, "l")
    stage.listen(set_id, WARNING, "w", min_warning_s=10.0)
    stage.inbox.errors["l"] = LOST
    stage.add(set_id, stage.place.lease("gone"), remaining=0.0)
    for name in "abc":
        stage.add(set_id, stage.place.lease(name))
    return set_id


def check_ended(stage: Stage, set_id: str) -> None:
    lease = stage.place.lease("a")
    for call in (
        lambda: stage.service.find(set_id),
        lambda: stage.add(set_id, lease),
        lambda: stage.remove(set_id, lease),
        lambda: stage.members(set_id),
        lambda: stage.listen(set_id, FAILURE, "x"),
        lambda: stage.clear(set_id, FAILURE),
    ):
        with pytest.raises(NoSuchObject):
            call()
    with pytest.raises(UnknownLease):
        stage.renew_set(set_id, 60.0)


def test_not_one_more_renewal_goes_out_after_the_end(stage: Stage) -> None:
    set_id = full_set(stage)
    stage.pass_time(300.0)
    assert max(stage.place.times("a")) < 60.0
    assert len(stage.service.renewals) == 0
    check_ended(stage, set_id)


def test_not_one_more_renewal_goes_out_after_the_set_was_cancelled(stage: Stage) -> None:
    set_id = full_set(stage)
    stage.pass_time(10.0)
    stage.run(stage.service.records.cancel, set_id)
    at = stage.now
    stage.pass_time(300.0)
    assert all(time <= at for time in stage.place.times("a"))
    check_ended(stage, set_id)


def test_a_renewal_that_is_queued_does_not_go_out_after_the_end(stage: Stage) -> None:
    """Leases of a batch that failed are renewed one by one, some at a time, beyond the end."""
    set_id = stage.create(27.0)
    stage.place.batch_error = REFUSED
    for number in range(40):
        stage.add(set_id, stage.place.lease(f"n{number}"))
    stage.place.delay_s = 1.1
    stage.pass_time(100.0)
    times = [at for at, _ in stage.place.calls_made]
    assert len(times) > 8
    assert max(times) < 27.0


def test_client_leases_are_left_alone_at_the_end(stage: Stage) -> None:
    set_id = stage.create(20.0)
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a", 100.0), remaining=100.0)
    stage.pass_time(50.0)
    assert stage.place.is_alive("a")
    assert stage.inbox.events("l") == []


def test_events_are_not_sent_after_the_end(stage: Stage) -> None:
    set_id = full_set(stage)
    stage.pass_time(61.0)
    attempts = len(stage.inbox.attempts)
    stage.inbox.errors.clear()
    stage.pass_time(1000.0)
    assert len(stage.inbox.attempts) == attempts
    check_ended(stage, set_id)


def test_the_keys_of_an_ended_set_are_collected(stage: Stage) -> None:
    set_id = full_set(stage)
    assert len(stage.stored(set_id)) == 7, "own key, members, registrations, an event"
    stage.pass_time(62.0)
    assert stage.stored(set_id) == {}


def test_many_keys_of_an_ended_set_are_collected_in_bounded_passes(stage: Stage) -> None:
    set_id = stage.create(60.0)
    for number in range(250):
        stage.add(set_id, stage.place.lease(f"n{number}", 1000.0), remaining=1000.0)
    stage.run(stage.service.records.cancel, set_id)
    seen = set()

    def is_empty() -> bool:
        seen.add(len(stage.stored(set_id)))
        return not stage.stored(set_id)

    stage.sim.run_until(is_empty, within=60.0)
    counts = sorted(seen, reverse=True)
    assert all(before - after <= 100 for before, after in pairwise(counts))


def test_a_set_whose_key_is_deleted_by_others_has_ended(stage: Stage) -> None:
    set_id = full_set(stage)
    stage.run(stage.engine.delete, stage.service.find(set_id).record.key)
    at = stage.now
    stage.pass_time(100.0)
    check_ended(stage, set_id)
    assert all(time <= at + 0.1 for time in stage.place.times("a"))
    assert stage.stored(set_id) == {}


def test_renewing_a_set_keeps_it_alive(stage: Stage) -> None:
    set_id = stage.create(60.0)
    stage.add(set_id, stage.place.lease("a"))
    for _ in range(5):
        stage.pass_time(50.0)
        assert stage.renew_set(set_id, 60.0) == 60.0
    assert stage.place.is_alive("a")
    assert stage.members(set_id) == ["a"]


def test_a_set_that_is_renewed_while_it_is_restarted_lives_until_its_new_end(
    stage: Stage,
) -> None:
    set_id = stage.create(60.0)
    stage.pass_time(50.0)
    stage.renew_set(set_id, 60.0)
    at = stage.now
    stage.crash(down_s=20.0)
    stage.pass_time(39.0)
    stage.service.find(set_id)
    stage.pass_time(at + 60.5 - stage.now)
    check_ended(stage, set_id)
