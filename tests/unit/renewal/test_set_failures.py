"""Renewal failure events: their contents, their order, and how they are stored."""

from collections.abc import Iterator

import pytest

from leasehold import FOREVER
from leasehold.errors import ConnectionLost, LeaseDenied, Status, TooBusy
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.service import RenewalLimits
from leasehold.renewal.state import FAILURES_PER_TRANSACTION
from leasehold.renewal.stored import MAX_ERROR_TEXT
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def test_a_failure_carries_the_lease_as_it_was_added(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l", b"back")
    reference = stage.place.lease("a", at="landlord:7")
    stage.add(set_id, reference)
    stage.place.error = LOST
    stage.pass_time(40.0)
    (event,), (failure,) = stage.inbox.events("l"), stage.inbox.failures("l")
    assert (event.source, event.kind, event.number, event.handback) == (set_id, 2, 1, b"back")
    assert event.service == stage.service.records.grantor
    assert failure.reference == reference.encode()


def test_a_failure_carries_the_last_recorded_end(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.add(set_id, stage.place.lease("b"))
    stage.pass_time(60.0)
    last = stage.place.times("a")[-1]
    stage.place.errors["a"] = LOST
    stage.place.errors["b"] = REFUSED
    stage.pass_time(60.0)
    assert stage.inbox.failed("l") == ["b", "a"]
    for failure in stage.inbox.failures("l"):
        end_s = failure.end_ms / 1000.0
        assert end_s == pytest.approx(stage.wall(last + 30.0), abs=0.05)


def test_a_failure_carries_the_class_and_status_and_message_of_the_last_error(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    for name in "abc":
        stage.add(set_id, stage.place.lease(name))
    stage.place.errors["a"] = REFUSED
    stage.place.errors["b"] = TooBusy("first")
    stage.place.errors["c"] = RuntimeError("x" * 1500)
    stage.pass_time(29.0)
    stage.place.errors["b"] = LOST
    stage.pass_time(2.0)
    found = dict(zip(stage.inbox.failed("l"), stage.inbox.failures("l"), strict=True))
    assert found["a"].error.class_name == LeaseDenied.__name__
    assert found["a"].error.status == Status.FAILED_PRECONDITION
    assert found["a"].error.message == str(REFUSED)
    assert found["b"].error.class_name == ConnectionLost.__name__
    assert found["b"].error.message == str(LOST)
    assert found["c"].error.class_name == "RuntimeError"
    assert found["c"].error.status == Status.UNKNOWN
    assert found["c"].error.message == "x" * MAX_ERROR_TEXT


def test_a_failure_has_no_error_if_there_was_none_since_the_last_success(stage: Stage) -> None:
    """The host sleeps through the end of the lease: no renewal is tried."""
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = LOST
    stage.pass_time(27.5)
    stage.place.error = None
    stage.pass_time(10.0)
    assert stage.place.is_alive("a")
    stage.host.suspend(60.0)
    stage.pass_time(70.0)
    (failure,) = stage.inbox.failures("l")
    assert not failure.HasField("error")


def test_a_lease_has_left_the_set_when_its_failure_arrives(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = REFUSED
    stage.sim.run_until(lambda: stage.inbox.attempts, within=60.0)
    assert stage.members(set_id) == []
    assert not stage.stored(set_id, b"/m/")


def test_a_lease_that_failed_can_be_added_again(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = REFUSED
    stage.sim.run_until(lambda: not stage.members(set_id), within=60.0)
    stage.place.error = None
    stage.add(set_id, stage.place.lease("a"))  # its departure is written first
    stage.pass_time(100.0)
    assert stage.members(set_id) == ["a"]
    assert stage.inbox.failed("l") == ["a"]
    stage.crash()
    assert stage.members(set_id) == ["a"]


def test_failures_arrive_in_the_order_in_which_the_leases_left(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    names = [f"n{number:03}" for number in range(100)]
    for place, name in enumerate(names):
        stage.add(set_id, stage.place.lease(name, 30.0 + place), remaining=30.0 + place)
    stage.place.error = LOST
    stage.pass_time(300.0)
    assert stage.inbox.failed("l") == names
    assert stage.inbox.numbers("l") == list(range(1, 101))


def test_forty_failures_share_a_transaction(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    for number in range(100):
        stage.add(set_id, stage.place.lease(f"n{number}"))
    stage.inbox.errors["l"] = LOST
    stage.pass_time(15.0)
    before = stage.faulty.calls.count("txn")
    stage.place.error = REFUSED
    stage.pass_time(9.0)
    assert stage.members(set_id) == []
    assert stage.service.find(set_id).queues[FAILURE].number == 100
    assert FAILURES_PER_TRANSACTION == 40
    assert stage.faulty.calls.count("txn") - before <= 4, "3 with failures, 1 with other work"
    assert len(stage.stored(set_id, b"/e/2/")) == 100


def test_a_landlords_death_does_not_overflow_the_queue() -> None:
    with Stage(limits=RenewalLimits(members=50)) as stage:
        set_id = stage.create()
        stage.listen(set_id, FAILURE, "l")
        stage.inbox.errors["l"] = LOST
        for number in range(50):
            stage.add(set_id, stage.place.lease(f"n{number}"))
        stage.place.error = REFUSED
        stage.pass_time(40.0)
        del stage.inbox.errors["l"]
        stage.pass_time(100.0)
        assert stage.inbox.numbers("l") == list(range(1, 51))


def test_an_overflow_shows_as_a_gap_in_the_numbers() -> None:
    with Stage(limits=RenewalLimits(members=3)) as stage:
        set_id = stage.create()
        stage.listen(set_id, FAILURE, "l")
        stage.inbox.errors["l"] = LOST
        for number in range(5):
            stage.add(set_id, stage.place.lease(f"n{number}"), remaining=0.0)
        assert len(stage.stored(set_id, b"/e/2/")) == 3
        stage.crash()
        del stage.inbox.errors["l"]
        stage.pass_time(100.0)
        stage.add(set_id, stage.place.lease("last"), remaining=0.0)
        stage.pass_time(1.0)
        assert stage.inbox.numbers("l") == [1, 2, 3, 6]
        assert stage.inbox.failed("l") == ["n0", "n1", "n2", "last"]


def test_a_queue_beyond_a_lowered_limit_keeps_its_stored_events() -> None:
    with Stage(limits=RenewalLimits(members=5)) as stage:
        set_id = stage.create()
        stage.listen(set_id, FAILURE, "l")
        stage.inbox.errors["l"] = LOST
        for number in range(5):
            stage.add(set_id, stage.place.lease(f"n{number}"), remaining=0.0)
        stage.limits = RenewalLimits(members=4)
        stage.crash()
        for name in "wxyz":
            stage.add(set_id, stage.place.lease(name))
        stage.place.error = REFUSED
        stage.pass_time(40.0)
        assert len(stage.stored(set_id, b"/e/2/")) == 5
        stage.crash()
        del stage.inbox.errors["l"]
        stage.pass_time(100.0)
        assert stage.inbox.numbers("l") == [1, 2, 3, 4, 5]
        assert stage.service.find(set_id).queues[FAILURE].number == 9


def test_a_failure_of_a_lease_of_several_sets_is_sent_for_each_set(stage: Stage) -> None:
    sets = [stage.create() for _ in range(2)]
    for number, set_id in enumerate(sets):
        stage.listen(set_id, FAILURE, f"l{number}")
        stage.add(set_id, stage.place.lease("a"), FOREVER)
    stage.place.error = REFUSED
    stage.pass_time(40.0)
    for number, set_id in enumerate(sets):
        (event,) = stage.inbox.events(f"l{number}")
        assert event.source == set_id


def test_a_failure_at_the_actual_end_names_the_reference_of_the_member(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    reference = LeaseReference("landlord", b"\x00\xff", endpoints=("landlord:1",))
    stage.place.error = LOST
    stage.add(set_id, reference)
    stage.pass_time(40.0)
    (failure,) = stage.inbox.failures("l")
    assert LeaseReference.decode(failure.reference).cookie == b"\x00\xff"
