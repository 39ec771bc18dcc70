"""Members whose references the service cannot use: they are kept until their recorded ends."""

from collections.abc import Iterator

import pytest

from leasehold.basics.endpoint_list import EndpointList
from leasehold.engine.interface import Engine
from leasehold.renewal import stored
from leasehold.renewal.grantors import Credentials
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.state import Member, terms_of
from leasehold.wire import renewal_pb2 as pb
from tests.support.renewal_stage import FAILURE, Stage

ANYWHERE = EndpointList(["*"])


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(credentials={"key": Credentials(ANYWHERE)}) as stage:
        yield stage


def with_credentials(stage: Stage, *, remaining: float = 30.0) -> tuple[str, LeaseReference]:
    """Make a set with a member that needs credentials, and one that does not."""
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    reference = stage.place.lease("a", 1000.0, credentials="key")
    stage.add(set_id, reference, remaining=remaining)
    stage.add(set_id, stage.place.lease("b"))
    return set_id, reference


def test_a_member_whose_credentials_are_not_configured_any_more_is_kept(stage: Stage) -> None:
    set_id, _ = with_credentials(stage, remaining=100.0)
    end = stage.member(set_id, "a").end
    del stage.options["credentials"]
    stage.crash(down_s=10.0)
    stage.pass_time(60.0)
    assert stage.members(set_id) == ["a", "b"]
    assert stage.member(set_id, "a").end == pytest.approx(end, abs=0.05), "its stored end"
    assert stage.place.times("a") == []
    assert stage.place.is_alive("b"), "others are not affected"
    assert stage.inbox.events("l") == []


def test_it_leaves_at_its_recorded_end_with_an_event_that_carries_the_bytes(
    stage: Stage,
) -> None:
    set_id, reference = with_credentials(stage, remaining=100.0)
    end = stage.now + 100.0
    del stage.options["credentials"]
    stage.crash(down_s=10.0)
    stage.pass_time(120.0)
    assert stage.members(set_id) == ["b"]
    assert stage.inbox.times("l") == pytest.approx([end], abs=0.1)
    (failure,) = stage.inbox.failures("l")
    assert failure.reference == reference.encode()
    assert failure.end_ms / 1000.0 == pytest.approx(stage.wall(end), abs=0.1)
    assert failure.error.class_name == "CallFailed"
    assert "credentials 'key'" in failure.error.message


def test_it_leaves_immediately_if_its_recorded_end_has_passed(stage: Stage) -> None:
    set_id, reference = with_credentials(stage, remaining=30.0)
    del stage.options["credentials"]
    stage.crash(down_s=40.0)
    at = stage.now
    stage.pass_time(1.0)
    assert "a" not in stage.members(set_id)
    found = [each for each in stage.inbox.failures("l") if each.reference == reference.encode()]
    assert len(found) == 1
    assert stage.inbox.times("l")[0] == pytest.approx(at, abs=0.1)


def test_it_is_tried_again_after_a_restart_with_the_credentials(stage: Stage) -> None:
    set_id, _ = with_credentials(stage, remaining=100.0)
    credentials = stage.options.pop("credentials")
    stage.crash(down_s=10.0)
    stage.pass_time(10.0)
    stage.options["credentials"] = credentials
    stage.crash()
    at = stage.now
    stage.pass_time(60.0)
    assert stage.place.times("a")[0] == pytest.approx(at, abs=0.1)
    assert stage.members(set_id) == ["a", "b"]
    assert stage.inbox.events("l") == []


def test_a_member_at_an_endpoint_that_is_not_allowed_any_more_is_kept(stage: Stage) -> None:
    set_id, _ = with_credentials(stage, remaining=100.0)
    stage.options["allowed"] = EndpointList(["elsewhere:1"])
    stage.crash()
    calls = len(stage.place.calls_made)
    stage.pass_time(20.0)
    assert stage.members(set_id) == ["a", "b"]
    assert len(stage.place.calls_made) == calls, "it is not renewed there"


def test_it_can_be_removed_and_its_durations_replaced(stage: Stage) -> None:
    set_id, reference = with_credentials(stage, remaining=100.0)
    del stage.options["credentials"]
    stage.crash()
    plain = LeaseReference("landlord", "a", endpoints=("landlord:1",))
    stage.add(set_id, plain, 50.0)
    found = stage.remove(set_id, plain)
    assert found is not None
    assert found.reference == reference.encode()
    assert stage.members(set_id) == ["b"]
    stage.pass_time(200.0)
    assert stage.inbox.events("l") == []


# References of a later version.


def later_version(stage: Stage, set_id: str, remaining: float) -> bytes:
    """Store a member of a kind that this version does not know."""
    data = pb.LeaseReference(grantor="x", id=7).SerializeToString() + b"\x08\x63"
    terms = terms_of(1000.0, 30.0, stage.wall(stage.now))
    assert terms is not None
    member = Member("ab" * 16, data, terms, stage.wall(stage.now + remaining), 30.0, 99)
    key = stage.service.find(set_id).record.key + b"/" + stored.member_suffix(member.digest)

    async def put(engine: Engine) -> None:
        await engine.put(key, stored.member_value(member))

    stage.run(put, stage.engine)
    with pytest.raises(ValueError, match="kind"):
        LeaseReference.decode(data)
    return data


def test_a_member_of_an_unknown_kind_is_kept_and_leaves_at_its_recorded_end(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    data = later_version(stage, set_id, 60.0)
    end = stage.now + 60.0
    stage.crash()
    stage.pass_time(50.0)
    (member,) = stage.service.members_after(set_id, 0, 10)
    assert member.reference == data
    assert member.end == pytest.approx(stage.wall(end), abs=0.1)
    stage.crash()
    stage.pass_time(20.0)
    assert stage.service.members_after(set_id, 0, 10) == []
    (failure,) = stage.inbox.failures("l")
    assert failure.reference == data
    assert failure.error.class_name == "CallFailed"
    assert stage.inbox.times("l") == pytest.approx([end], abs=0.1)


def test_a_member_of_an_unknown_kind_leaves_at_its_desired_end_without_an_event(
    stage: Stage,
) -> None:
    set_id = stage.create(7200.0)
    stage.listen(set_id, FAILURE, "l")
    later_version(stage, set_id, 5000.0)
    stage.crash()
    stage.pass_time(1001.0)
    assert stage.service.members_after(set_id, 0, 10) == []
    assert stage.inbox.events("l") == []
