"""Arguments of calls on renewal sets: those that are refused, and the meaning of the others."""

from collections.abc import Iterator

import pytest

from leasehold import ANY, FOREVER
from leasehold.basics.durations import NEVER, Requested
from leasehold.basics.endpoint_list import EndpointList
from leasehold.errors import NoSuchObject, PermissionDenied, TooBusy
from leasehold.events.state import EventTarget
from leasehold.renewal.references import MAX_REFERENCE_BYTES, LeaseReference
from leasehold.renewal.service import RenewalLimits
from tests.support.renewal_stage import FAILURE, WARNING, Stage

UNKNOWN_SET = "0" * 32


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


# create_set.


@pytest.mark.parametrize("duration", [0.0, -1.0, float("-inf"), float("nan")])
def test_create_set_refuses_a_duration_that_is_not_positive(stage: Stage, duration: float) -> None:
    with pytest.raises(ValueError, match="duration"):
        stage.create(duration)
    assert len(stage.service.records) == 0


def test_create_set_grants_at_most_the_requested_duration(stage: Stage) -> None:
    assert stage.run(stage.service.create_set, 0.5)[1] == 0.5
    assert stage.run(stage.service.create_set, 7200.0)[1] == 7200.0


def test_create_set_grants_at_most_two_hours_by_default(stage: Stage) -> None:
    assert stage.run(stage.service.create_set, 1e9)[1] == 7200.0
    assert stage.run(stage.service.create_set, FOREVER)[1] == 7200.0


def test_create_set_grants_one_hour_for_any_by_default(stage: Stage) -> None:
    assert stage.run(stage.service.create_set, ANY)[1] == 3600.0


def test_both_terms_are_configurable_up_to_forever() -> None:
    with Stage(limits=RenewalLimits(max_term=FOREVER, default_term=FOREVER)) as stage:
        assert stage.run(stage.service.create_set, FOREVER)[1] is FOREVER
        assert stage.run(stage.service.create_set, ANY)[1] is FOREVER


def test_every_call_creates_a_new_set(stage: Stage) -> None:
    ids = {stage.create() for _ in range(5)}
    assert len(ids) == 5
    assert all(len(each) == 32 for each in ids)


def test_a_set_that_does_not_exist_answers_no_such_object_to_everything(stage: Stage) -> None:
    lease = stage.place.lease("a")
    for call in (
        lambda: stage.add(UNKNOWN_SET, lease),
        lambda: stage.add(UNKNOWN_SET, lease, desired=-1.0),
        lambda: stage.remove(UNKNOWN_SET, lease),
        lambda: stage.members(UNKNOWN_SET),
        lambda: stage.listen(UNKNOWN_SET, FAILURE, "l"),
        lambda: stage.clear(UNKNOWN_SET, FAILURE),
        lambda: stage.service.find(UNKNOWN_SET),
    ):
        with pytest.raises(NoSuchObject):
            call()


# renew_for: durations.


@pytest.mark.parametrize("renew", [0.0, -1.0, float("nan")])
def test_renew_for_refuses_a_renew_duration_that_is_not_positive(
    stage: Stage, renew: float
) -> None:
    set_id = stage.create()
    with pytest.raises(ValueError, match="renew_duration must be more than zero"):
        stage.add(set_id, stage.place.lease("a"), renew=renew)
    assert stage.members(set_id) == []


@pytest.mark.parametrize("desired", [60.0, 1e300, ANY, 0.0, -1.0])
def test_renew_for_refuses_a_renew_duration_of_any_unless_the_desired_one_is_forever(
    stage: Stage, desired: Requested
) -> None:
    set_id = stage.create()
    with pytest.raises(ValueError, match="may be ANY only with a desired duration of FOREVER"):
        stage.add(set_id, stage.place.lease("a"), desired, ANY)
    assert stage.members(set_id) == []


def test_renew_for_accepts_a_renew_duration_of_any_with_forever(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), FOREVER, ANY)
    stage.pass_time(60.0)
    assert set(stage.place.requests("a")) == {ANY}


NOT_WANTED = [0.0, -0.001, -60.0, -1e300, float("-inf"), ANY]


@pytest.mark.parametrize("desired", NOT_WANTED)
def test_a_desired_duration_of_zero_or_less_drops_the_lease_without_an_event(
    stage: Stage, desired: Requested
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"), desired)
    assert stage.members(set_id) == []
    stage.pass_time(100.0)
    assert stage.place.calls_made == []
    assert stage.inbox.events("l") == []
    assert not stage.stored(set_id, b"/m/")


@pytest.mark.parametrize("desired", NOT_WANTED)
def test_a_desired_duration_of_zero_or_less_removes_a_member_without_an_event(
    stage: Stage, desired: Requested
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.add(set_id, stage.place.lease("a"), desired)
    assert stage.members(set_id) == []
    stage.pass_time(100.0)
    assert stage.place.calls_made == []
    assert stage.inbox.events("l") == []
    assert not stage.stored(set_id, b"/m/")


@pytest.mark.parametrize("desired", [0.0, -60.0, ANY])
def test_an_expired_lease_that_is_not_wanted_makes_no_event(
    stage: Stage, desired: Requested
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"), desired, remaining=0.0)
    stage.pass_time(10.0)
    assert stage.members(set_id) == []
    assert stage.inbox.events("l") == []


def test_an_expired_lease_is_dropped_with_a_failure_event_without_an_error(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    at = stage.now
    stage.add(set_id, stage.place.lease("a"), 60.0, remaining=0.0)
    assert stage.members(set_id) == []
    stage.pass_time(100.0)
    assert stage.inbox.failed("l") == ["a"]
    (failure,) = stage.inbox.failures("l")
    assert not failure.HasField("error")
    assert failure.end_ms / 1000.0 == pytest.approx(stage.wall(at), abs=0.1)
    assert stage.inbox.times("l") == pytest.approx([at], abs=0.1)
    assert stage.place.calls_made == [], "an expired lease is not asked for"
    assert not stage.stored(set_id, b"/m/")


@pytest.mark.parametrize("desired", [1e12, 9.2e15, 1e300])
def test_the_desired_end_saturates_at_forever(stage: Stage, desired: float) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), desired)
    assert stage.member(set_id, "a").terms.desired_end == NEVER
    stage.crash()
    assert stage.member(set_id, "a").terms.desired_end == NEVER
    stage.pass_time(100.0)
    assert stage.place.is_alive("a")


def test_the_end_of_a_lease_saturates_at_forever(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), remaining=(2**63 - 1) / 1000.0)
    stage.add(set_id, stage.place.lease("b"), remaining=FOREVER)
    stage.crash()
    assert stage.members(set_id) == ["a", "b"]
    assert stage.member(set_id, "a").end == stage.member(set_id, "b").end == NEVER


def test_adding_an_equal_lease_again_only_replaces_its_durations(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"), FOREVER, 20.0)
    stage.add(set_id, stage.place.lease("b"))
    before = stage.member(set_id, "a")
    end, term_s, order = before.end, before.term_s, before.order
    elsewhere = LeaseReference("landlord", "a", endpoints=("landlord:2",))
    stage.add(set_id, elsewhere, 100.0, 7.0, remaining=5.0)
    after = stage.member(set_id, "a")
    assert stage.members(set_id) == ["a", "b"]
    assert after.end == pytest.approx(end, abs=1e-3)
    assert (after.term_s, after.order) == (term_s, order)
    assert LeaseReference.decode(after.reference).endpoints == ("landlord:1",)
    assert after.terms.renew == 7.0
    stage.pass_time(60.0)
    assert set(stage.place.requests("a")) == {7.0}
    stage.pass_time(60.0)
    assert stage.members(set_id) == ["b"], "its new desired end has come"


def test_a_lease_that_is_added_again_keeps_its_new_durations_over_a_crash(stage: Stage) -> None:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a"))
    stage.add(set_id, stage.place.lease("a"), 40.0, 7.0)
    stage.crash()
    assert stage.member(set_id, "a").terms.renew == 7.0
    stage.pass_time(50.0)
    assert stage.members(set_id) == []


def test_a_lease_may_be_in_several_sets(stage: Stage) -> None:
    one, two = stage.create(), stage.create()
    stage.add(one, stage.place.lease("a"))
    stage.add(two, stage.place.lease("a"))
    assert stage.members(one) == stage.members(two) == ["a"]
    stage.remove(one, stage.place.lease("a"))
    assert (stage.members(one), stage.members(two)) == ([], ["a"])
    stage.pass_time(100.0)
    assert stage.place.is_alive("a")


# renew_for: which leases.


def own_lease(stage: Stage, set_id: str) -> LeaseReference:
    return LeaseReference(stage.service.records.grantor, set_id)


def test_a_lease_of_the_same_service_is_refused_while_it_is_current(stage: Stage) -> None:
    set_id, other = stage.create(), stage.create()
    for named in (set_id, other):
        for at in ((), ("localhost:2379",), ("elsewhere:1",)):
            reference = LeaseReference(stage.service.records.grantor, named, endpoints=at)
            for remaining in (60.0, FOREVER, None):
                with pytest.raises(ValueError, match="not by the service that granted it"):
                    stage.add(set_id, reference, remaining=remaining)
    assert stage.members(set_id) == []


def test_a_lease_of_the_same_service_that_has_expired_is_a_failure(stage: Stage) -> None:
    set_id, other = stage.create(), stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.run(stage.service.records.cancel, other)
    stage.add(set_id, own_lease(stage, other), remaining=0.0)
    stage.pass_time(10.0)
    assert stage.inbox.failed("l") == [other]
    assert stage.members(set_id) == []


def test_a_lease_of_the_same_service_cannot_be_kept_by_calling_it_expired(stage: Stage) -> None:
    set_id = stage.create(60.0)
    stage.add(set_id, own_lease(stage, set_id), remaining=0.0)
    assert stage.members(set_id) == []
    stage.pass_time(61.0)
    with pytest.raises(NoSuchObject):
        stage.service.find(set_id)


def test_a_lease_at_an_endpoint_that_is_not_on_the_list_is_refused() -> None:
    with Stage(allowed=EndpointList(["landlord:1"])) as stage:
        set_id = stage.create()
        stage.add(set_id, stage.place.lease("a"))
        with pytest.raises(PermissionDenied):
            stage.add(set_id, stage.place.lease("b", at="landlord:2"))
        assert stage.members(set_id) == ["a"]


def test_bytes_that_are_not_a_reference_are_refused(stage: Stage) -> None:
    set_id = stage.create()
    for data in (b"", b"\xff\xff", b"\x08\x63\x12\x01x"):
        with pytest.raises(ValueError, match="reference"):
            stage.run(stage.service.renew_for, set_id, data, 30.0, 30.0, FOREVER, FOREVER)
        with pytest.raises(ValueError, match="reference"):
            stage.run(stage.service.remove, set_id, data)


# Listeners.


def test_a_negative_warning_time_is_refused(stage: Stage) -> None:
    set_id = stage.create()
    for min_warning_s in (-0.001, float("nan")):
        with pytest.raises(ValueError, match="min_warning"):
            stage.listen(set_id, WARNING, "w", min_warning_s=min_warning_s)
    assert stage.service.find(set_id).queues[WARNING].target is None


def test_a_warning_time_of_zero_is_accepted(stage: Stage) -> None:
    set_id = stage.create(60.0)
    assert stage.listen(set_id, WARNING, "w", min_warning_s=0.0) == 0


# Limits.


def test_the_number_of_members_is_limited() -> None:
    with Stage(limits=RenewalLimits(members=2)) as stage:
        set_id = stage.create()
        stage.add(set_id, stage.place.lease("a"))
        stage.add(set_id, stage.place.lease("b"))
        with pytest.raises(TooBusy, match="has 2 leases already, the maximum"):
            stage.add(set_id, stage.place.lease("c"))
        assert stage.members(set_id) == ["a", "b"]
        stage.add(set_id, stage.place.lease("a"), 10.0)  # it is a member
        stage.add(set_id, stage.place.lease("d"), -1.0)  # it is not wanted
        stage.remove(set_id, stage.place.lease("b"))
        stage.add(set_id, stage.place.lease("c"))
        stage.add(stage.create(), stage.place.lease("b"))  # the limit is for each set


def test_the_number_of_sets_is_limited() -> None:
    with Stage(limits=RenewalLimits(sets=2)) as stage:
        first = stage.create()
        stage.create()
        with pytest.raises(TooBusy, match="2"):
            stage.create()
        stage.run(stage.service.records.cancel, first)
        stage.create()


def test_the_size_of_a_handback_is_limited(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l", b"x" * 65536)
    with pytest.raises(ValueError, match="handback must have at most 65,536 bytes, got 65,537"):
        stage.listen(set_id, FAILURE, "m", b"x" * 65537)
    assert stage.service.find(set_id).queues[FAILURE].target == EventTarget("listener:1", "l")


def test_the_size_of_a_reference_is_limited(stage: Stage) -> None:
    set_id = stage.create()
    too_long = b"\x08\x01" + b"x" * MAX_REFERENCE_BYTES
    with pytest.raises(ValueError, match=f"at most {MAX_REFERENCE_BYTES:,} bytes"):
        stage.run(stage.service.renew_for, set_id, too_long, 30.0, 30.0, FOREVER, FOREVER)
    assert stage.members(set_id) == []
