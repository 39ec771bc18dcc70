"""Members of renewal sets: the requested durations, the batches, and the ways out of a set."""

from collections.abc import Iterator

import pytest

from leasehold import ANY, FOREVER
from leasehold.errors import UnknownLease
from leasehold.renewal.references import LeaseReference
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


# Requested durations.


def test_the_renew_duration_is_requested_at_each_renewal(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), FOREVER, 12.0)
    stage.add(set_id, stage.place.lease("b"), FOREVER, FOREVER)
    stage.pass_time(100.0)
    assert len(stage.place.requests("a")) > 5
    assert set(stage.place.requests("a")) == {12.0}
    assert set(stage.place.requests("b")) == {FOREVER}


def test_less_is_requested_if_the_desired_end_is_nearer(stage: Stage) -> None:
    set_id = stage.create()
    added_at = stage.now
    stage.add(set_id, stage.place.lease("a"), 70.0, 25.0)
    stage.add(set_id, stage.place.lease("b"), 70.0, FOREVER)
    stage.pass_time(100.0)
    for name, most_s in (("a", 25.0), ("b", 1e9)):
        for at, requested in zip(stage.place.times(name), stage.place.requests(name), strict=True):
            left_s = added_at + 70.0 - at
            assert requested == pytest.approx(min(most_s, left_s), abs=0.05)


def test_any_stays_any(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), FOREVER, ANY)
    stage.pass_time(40.0)
    stage.crash()
    stage.pass_time(40.0)
    assert len(stage.place.requests("a")) >= 3
    assert set(stage.place.requests("a")) == {ANY}


def test_a_lease_is_renewed_in_time_for_as_long_as_it_is_wanted(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), 1000.0)
    for _ in range(99):
        stage.pass_time(10.0)
        assert stage.place.is_alive("a")


def test_a_lease_that_outlives_its_desired_end_is_not_renewed_but_stays_a_member(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a", 600.0), 60.0, remaining=600.0)
    stage.pass_time(59.0)
    assert stage.members(set_id) == ["a"]
    stage.pass_time(2.0)
    assert stage.members(set_id) == []
    assert stage.place.calls_made == []
    assert stage.inbox.events("l") == []


def test_a_lease_without_a_known_end_is_renewed_immediately(stage: Stage) -> None:
    set_id = stage.create()
    at = stage.now
    stage.add(set_id, stage.place.lease("a"), remaining=None)
    stage.pass_time(1.0)
    assert stage.place.times("a") == pytest.approx([at], abs=0.05)
    assert stage.member(set_id, "a").end == pytest.approx(stage.wall(at + 30.0), abs=0.05)


# Batches.


def test_leases_of_several_sets_with_the_same_endpoint_share_a_call(stage: Stage) -> None:
    one, two = stage.create(), stage.create()
    for set_id, names in ((one, "ab"), (two, "cd")):
        for name in names:
            stage.add(set_id, stage.place.lease(name))
    stage.pass_time(29.0)
    assert stage.place.batches() == [["a", "b", "c", "d"]]


def test_one_lease_in_two_sets_is_renewed_for_each(stage: Stage) -> None:
    for _ in range(2):
        stage.add(stage.create(), stage.place.lease("a"))
    stage.pass_time(29.0)
    assert stage.place.batches() == [["a", "a"]]


def test_leases_with_other_endpoints_do_not_share_a_call(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.add(set_id, stage.place.lease("b", at="landlord:2"))
    stage.pass_time(29.0)
    assert sorted(stage.place.batches()) == [["a"], ["b"]]


def test_isolated_sets_do_not_share_a_call() -> None:
    with Stage(isolate_sets=True) as stage:
        one, two = stage.create(), stage.create()
        for set_id, names in ((one, "ab"), (two, "cd")):
            for name in names:
                stage.add(set_id, stage.place.lease(name))
        stage.pass_time(29.0)
        assert sorted(stage.place.batches()) == [["a", "b"], ["c", "d"]]


def test_leases_of_a_batch_that_fails_definitely_are_renewed_one_by_one(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    for name in "abc":
        stage.add(set_id, stage.place.lease(name))
    stage.place.batch_error = REFUSED
    stage.place.errors["b"] = REFUSED
    stage.pass_time(29.0)
    assert stage.place.batches()[0] == ["a", "b", "c"]
    assert sorted(stage.place.batches()[1:]) == [["a"], ["b"], ["c"]]
    assert stage.members(set_id) == ["a", "c"]
    assert stage.inbox.failed("l") == ["b"]
    assert stage.place.is_alive("a")


# The five ways out of a set.


def test_a_lease_leaves_when_the_set_ends_without_an_event(stage: Stage) -> None:
    set_id = stage.create(60.0)
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.pass_time(200.0)
    assert max(stage.place.times("a")) < 60.0
    assert not stage.place.is_alive("a")
    assert stage.inbox.events("l") == []


def test_a_lease_leaves_when_it_is_removed_without_an_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.pass_time(10.0)
    assert stage.remove(set_id, LeaseReference("landlord", "a")) is not None
    assert stage.members(set_id) == []
    assert not stage.stored(set_id, b"/m/")
    stage.pass_time(100.0)
    assert stage.place.calls_made == []
    assert stage.inbox.events("l") == []


def test_a_lease_leaves_at_its_desired_end_without_an_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    at = stage.now
    stage.add(set_id, stage.place.lease("a"), 100.0)
    stage.pass_time(99.9)
    assert stage.members(set_id) == ["a"]
    assert stage.place.is_alive("a")
    stage.pass_time(0.2)
    assert stage.members(set_id) == []
    assert not stage.stored(set_id, b"/m/")
    stage.pass_time(60.0)
    assert max(stage.place.times("a")) < at + 100.0
    assert stage.inbox.events("l") == []


def test_a_lease_leaves_when_its_actual_end_passes_with_an_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    at = stage.now
    stage.place.error = LOST
    stage.add(set_id, stage.place.lease("a"), 1000.0)
    stage.pass_time(29.9)
    assert stage.members(set_id) == ["a"]
    assert len(stage.place.times("a")) > 1, "an indefinite failure is retried"
    stage.pass_time(0.2)
    assert stage.members(set_id) == []
    assert stage.inbox.failed("l") == ["a"]
    assert stage.inbox.times("l") == pytest.approx([at + 30.0], abs=0.05)
    tried = len(stage.place.times("a"))
    stage.pass_time(100.0)
    assert len(stage.place.times("a")) == tried, "an expired lease is not asked for"


def test_a_lease_leaves_when_a_renewal_fails_definitely_with_an_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.errors["a"] = REFUSED
    stage.pass_time(29.0)
    (at,) = stage.place.times("a")
    assert stage.members(set_id) == []
    assert stage.inbox.failed("l") == ["a"]
    assert stage.inbox.times("l") == pytest.approx([at], abs=0.05)
    stage.pass_time(100.0)
    assert len(stage.place.times("a")) == 1


def test_a_lease_that_was_cancelled_without_being_removed_is_a_failure(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.ends["a"] = 0.0
    stage.pass_time(29.0)
    assert stage.members(set_id) == []
    (failure,) = stage.inbox.failures("l")
    assert failure.error.class_name == UnknownLease.__name__


def test_indefinite_failures_are_retried_until_one_succeeds(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = LOST
    stage.pass_time(29.0)
    stage.place.error = None
    stage.pass_time(100.0)
    assert stage.place.is_alive("a")
    assert stage.members(set_id) == ["a"]
    assert stage.inbox.events("l") == []


def test_the_actual_end_counts_from_when_the_last_successful_renewal_was_sent(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.delay_s = 1.0
    stage.pass_time(28.0)
    (sent_at,) = stage.place.times("a")
    stage.place.error = LOST
    stage.pass_time(60.0)
    assert stage.inbox.times("l") == pytest.approx([sent_at + 30.0], abs=0.05)


# remove and leases.


def test_remove_returns_the_lease_with_its_latest_end(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.pass_time(60.0)
    last = stage.place.times("a")[-1]
    found = stage.remove(set_id, LeaseReference("landlord", "a"))
    assert found is not None
    assert LeaseReference.decode(found.reference) == LeaseReference("landlord", "a")
    assert LeaseReference.decode(found.reference).endpoints == ("landlord:1",)
    assert found.end == pytest.approx(stage.wall(last + 30.0), abs=0.05)
    assert found.term_s == 30.0


def test_remove_returns_none_for_a_lease_that_is_not_a_member(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    assert stage.remove(set_id, stage.place.lease("b")) is None
    assert stage.remove(set_id, stage.place.lease("a")) is not None
    assert stage.remove(set_id, stage.place.lease("a")) is None


def test_remove_is_not_held_up_by_a_renewal_in_flight(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.delay_s = 3.0
    stage.sim.run_until(lambda: stage.place.calls_made, within=60.0)
    before = stage.now
    found = stage.remove(set_id, stage.place.lease("a"))
    assert stage.now - before < 0.1
    assert found is not None
    assert stage.members(set_id) == []
    stage.pass_time(100.0)
    assert len(stage.place.calls_made) == 1
    assert stage.members(set_id) == []
    assert stage.inbox.events("l") == []


def test_a_lease_that_is_added_again_during_a_renewal_in_flight_is_kept(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.place.delay_s = 3.0
    stage.sim.run_until(lambda: stage.place.calls_made, within=60.0)
    stage.remove(set_id, stage.place.lease("a"))
    stage.add(set_id, stage.place.lease("a"))
    stage.place.delay_s = 0.0
    stage.pass_time(300.0)
    assert stage.members(set_id) == ["a"]
    assert stage.place.is_alive("a")


def test_members_are_in_the_order_in_which_they_were_added_also_after_a_restart(
    stage: Stage,
) -> None:
    set_id, names = stage.create(), [f"lease {number}" for number in range(20)]
    for name in names[:-1]:
        stage.add(set_id, stage.place.lease(name))
    stage.crash()
    stage.add(set_id, stage.place.lease(names[-1]))
    assert stage.members(set_id) == names


def test_members_have_the_last_recorded_ends_in_the_order_in_which_they_were_added(
    stage: Stage,
) -> None:
    set_id = stage.create()
    for name in "cab":
        stage.add(set_id, stage.place.lease(name))
    stage.pass_time(60.0)
    assert stage.members(set_id) == ["c", "a", "b"]
    last = stage.place.times("a")[-1]
    assert stage.member(set_id, "a").end == pytest.approx(stage.wall(last + 30.0), abs=0.05)
    page = stage.service.members_after(set_id, 0, 2)
    rest = stage.service.members_after(set_id, page[-1].order, 2)
    cookies = [LeaseReference.decode(each.reference).cookie for each in [*page, *rest]]
    assert cookies == ["c", "a", "b"]


# Isolation.


def test_a_failing_landlord_does_not_affect_other_sets(stage: Stage) -> None:
    good, bad = stage.create(), stage.create()
    stage.listen(good, FAILURE, "good")
    stage.listen(bad, FAILURE, "bad")
    for number in range(5):
        stage.add(good, stage.place.lease(f"good{number}"))
        stage.add(bad, stage.place.lease(f"bad{number}"))
    for number in range(5):
        stage.place.errors[f"bad{number}"] = LOST if number % 2 else REFUSED
    stage.pass_time(100.0)
    assert len(stage.members(good)) == 5
    assert stage.members(bad) == []
    assert len(stage.inbox.events("bad")) == 5
    assert stage.inbox.events("good") == []
    assert all(stage.place.is_alive(f"good{number}") for number in range(5))


def test_a_set_that_ends_does_not_affect_another_set_of_the_same_batch(stage: Stage) -> None:
    short, long = stage.create(40.0), stage.create()
    stage.add(short, stage.place.lease("a"))
    stage.add(long, stage.place.lease("b"))
    stage.pass_time(200.0)
    assert not stage.place.is_alive("a")
    assert stage.place.is_alive("b")
    assert stage.members(long) == ["b"]
