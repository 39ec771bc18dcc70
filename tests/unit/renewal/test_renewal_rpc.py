"""The renewal service on the wire: times, pages and arguments, in virtual time."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from leasehold.basics.durations import FOREVER
from leasehold.errors import NoSuchObject, PermissionDenied
from leasehold.events.listeners import CallbackPolicy
from leasehold.grpc.call_context import CallContext
from leasehold.renewal import rpc
from leasehold.renewal.rpc import RenewalRpc
from leasehold.services.forwarding import Forwarder
from leasehold.wire import renewal_pb2 as pb
from leasehold.wire.services_pb2 import ListenerTarget
from tests.support.renewal_stage import Stage

CONTEXT = cast(CallContext, None)
NEVER_MS = -2


class Wire:
    """Calls the methods of a service, without a network."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        forwarder = Forwarder(stage.shards)
        forwarder.client_address = lambda context: "10.0.0.1:5000"  # type: ignore[method-assign]
        self.rpc = RenewalRpc(stage.service, forwarder, CallbackPolicy(), stage.host.clock)

    def ask(self, name: str, request: Any) -> bytes:
        if name in (
            "create_set",
            "list_sets",
        ):  # the others are called at the owner, and decoded there
            request = request.SerializeToString()
        answer = self.stage.run(getattr(self.rpc, name), request, CONTEXT)
        assert isinstance(answer, bytes)
        return answer

    def add(self, set_id: str, name: str, **times: int) -> None:
        fields = {"remaining_ms": 30_000, "term_ms": 30_000, "desired_ms": -2, "renew_ms": -2}
        reference = self.stage.place.lease(name).encode()
        self.ask("renew_for", pb.RenewForRequest(set=set_id, reference=reference, **fields | times))

    def members(self, set_id: str, token: bytes = b"") -> pb.MembersResponse:
        request = pb.MembersRequest(set=set_id, page_token=token)
        return pb.MembersResponse.FromString(self.ask("members", request))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Stage() as stage:
        yield Wire(stage)


@pytest.mark.parametrize("remaining_ms", [0, -3, -5_000, -(2**63)])
def test_a_lease_whose_end_has_passed_is_not_taken_for_one_without_end(
    wire: Wire, remaining_ms: int
) -> None:
    set_id = wire.stage.create()
    wire.add(set_id, "a", remaining_ms=remaining_ms)
    assert wire.stage.members(set_id) == []


def test_a_lease_without_end_is_a_member(wire: Wire) -> None:
    set_id = wire.stage.create()
    wire.add(set_id, "a", remaining_ms=NEVER_MS, term_ms=NEVER_MS)
    (member,) = wire.members(set_id).members
    assert (member.remaining_ms, member.term_ms) == (NEVER_MS, NEVER_MS)


def test_an_end_that_has_just_passed_is_sent_as_zero(wire: Wire) -> None:
    set_id = wire.stage.create()
    wire.add(set_id, "a")
    (member,) = wire.stage.service.members_after(set_id, 0, 1)
    member.end = wire.stage.host.clock.wall() - 0.002
    sent = wire.rpc._member(member)
    assert sent.remaining_ms == 0


@pytest.mark.parametrize("desired_ms", [0, -1, -3, -(2**63)])
def test_a_desired_duration_of_zero_or_less_is_not_refused(wire: Wire, desired_ms: int) -> None:
    set_id = wire.stage.create()
    wire.add(set_id, "a")
    wire.add(set_id, "a", desired_ms=desired_ms)
    assert wire.stage.members(set_id) == []


@pytest.mark.parametrize("renew_ms", [0, -3, -(2**63)])
def test_a_renew_duration_that_is_not_one_is_refused(wire: Wire, renew_ms: int) -> None:
    set_id = wire.stage.create()
    with pytest.raises(ValueError, match="renew_ms must be"):
        wire.add(set_id, "a", renew_ms=renew_ms)
    assert wire.stage.members(set_id) == []


def test_members_come_in_pages_in_the_order_in_which_they_were_added(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "MEMBERS_PER_PAGE", 2)
    set_id = wire.stage.create()
    names = ["e", "d", "c", "b", "a"]
    for name in names:
        wire.add(set_id, name)
    sizes, token, found = [], b"", []
    while True:
        page = wire.members(set_id, token)
        sizes.append(len(page.members))
        found += [each.reference for each in page.members]
        token = page.next_page_token
        if not token:
            break
    assert sizes == [2, 2, 1]
    assert found == [wire.stage.place.lease(name).encode() for name in names]


@pytest.mark.parametrize("ttl_ms", [0, -3])
def test_a_set_without_a_term_is_refused(wire: Wire, ttl_ms: int) -> None:
    with pytest.raises(ValueError, match="ttl_ms"):
        wire.ask("create_set", pb.CreateSetRequest(ttl_ms=ttl_ms))


def test_a_set_with_any_term_gets_the_default_and_a_longer_one_the_maximum(wire: Wire) -> None:
    limits = wire.stage.limits
    for ttl_ms, granted in ((-1, limits.default_term), (NEVER_MS, limits.max_term)):
        answer = wire.ask("create_set", pb.CreateSetRequest(ttl_ms=ttl_ms))
        assert granted is not FOREVER
        assert pb.CreateSetResponse.FromString(answer).ttl_ms == granted * 1000


def test_a_kind_of_event_that_does_not_exist_is_refused(wire: Wire) -> None:
    set_id = wire.stage.create()
    for kind in (0, 3):
        with pytest.raises(ValueError, match="kind must be"):
            wire.ask("clear_listener", pb.ClearListenerRequest(set=set_id, kind=cast(Any, kind)))


def test_no_listener_is_refused(wire: Wire) -> None:
    set_id = wire.stage.create()
    for listener in (None, ListenerTarget(endpoint="10.0.0.1:1")):
        request = pb.SetListenerRequest(set=set_id, kind="RENEWAL_FAILURE", listener=listener)
        with pytest.raises(ValueError, match="listener must have an id"):
            wire.ask("set_listener", request)


def test_an_endpoint_at_another_address_than_the_connection_is_refused(wire: Wire) -> None:
    set_id = wire.stage.create()
    target = ListenerTarget(endpoint="10.0.0.2:80", id="x")
    request = pb.SetListenerRequest(set=set_id, kind="RENEWAL_FAILURE", listener=target)
    with pytest.raises(PermissionDenied, match="--callbacks"):
        wire.ask("set_listener", request)
    request.listener.endpoint = "10.0.0.1:80"
    wire.ask("set_listener", request)


def test_a_set_that_has_ended_answers_no_such_object_to_everything(wire: Wire) -> None:
    set_id = wire.stage.create(1.0)
    reference = wire.stage.place.lease("a").encode()
    target = ListenerTarget(id="x")
    wire.stage.pass_time(2.0)
    requests: dict[str, Any] = {
        "show_set": pb.ShowSetRequest(set=set_id),
        "renew_for": pb.RenewForRequest(set=set_id, reference=reference, desired_ms=1, renew_ms=1),
        "remove": pb.RemoveRequest(set=set_id, reference=reference),
        "members": pb.MembersRequest(set=set_id),
        "set_listener": pb.SetListenerRequest(set=set_id, kind="RENEWAL_FAILURE", listener=target),
        "clear_listener": pb.ClearListenerRequest(set=set_id, kind="RENEWAL_FAILURE"),
    }
    for name, request in requests.items():
        with pytest.raises(NoSuchObject):
            wire.ask(name, request)
