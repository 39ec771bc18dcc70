"""The discovery service on the wire: arguments, pages and ends, in virtual time."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from leasehold.discovery import rpc
from leasehold.discovery.locators import Locator
from leasehold.discovery.rpc import DiscoveryRpc
from leasehold.errors import NoSuchObject, PermissionDenied, UnsupportedOperation
from leasehold.events.listeners import CallbackPolicy
from leasehold.grpc.call_context import CallContext
from leasehold.services.forwarding import Forwarder
from leasehold.wire import discovery_pb2 as pb
from leasehold.wire.services_pb2 import ListenerTarget
from tests.support.discovery_stage import DiscoveryStage

CONTEXT = cast(CallContext, None)
LISTENER = ListenerTarget(endpoint="10.0.0.1:80", id="l")


class Wire:
    """Calls the methods of a service, without a network."""

    def __init__(self, stage: DiscoveryStage) -> None:
        self.stage = stage
        forwarder = Forwarder(stage.shards)
        forwarder.client_address = lambda context: "10.0.0.1:5000"  # type: ignore[method-assign]
        self.rpc = DiscoveryRpc(stage.service, forwarder, CallbackPolicy())

    def ask(self, name: str, request: Any) -> bytes:
        if name in (
            "register",
            "list_all",
        ):  # the others are called at the owner, and decoded there
            request = request.SerializeToString()
        answer = self.stage.run(getattr(self.rpc, name), request, CONTEXT)
        assert isinstance(answer, bytes)
        return answer

    def register(self, **fields: Any) -> pb.RegisterDiscoveryResponse:
        given: dict[str, Any] = {"listener": LISTENER, "ttl_ms": 60_000} | fields
        request = pb.RegisterDiscoveryRequest(**given)
        return pb.RegisterDiscoveryResponse.FromString(self.ask("register", request))

    def show(self, registration: str) -> pb.DiscoveryInfo:
        request = pb.ShowDiscoveryRequest(registration=registration)
        return pb.DiscoveryInfo.FromString(self.ask("show", request))

    def registrars(self, registration: str, after: str = "") -> pb.RegistrarsResponse:
        request = pb.RegistrarsRequest(registration=registration, after=after)
        return pb.RegistrarsResponse.FromString(self.ask("registrars", request))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with DiscoveryStage() as stage:
        yield Wire(stage)


def test_a_registration_has_its_interests_its_listener_and_its_lease(wire: Wire) -> None:
    made = wire.register(
        groups=pb.GroupNames(names=["b", "a", "b"]),
        locators=["leasehold://R", "leasehold://r:2379"],
        handback=b"h",
    )
    assert (made.ttl_ms, made.grantor) == (60_000, wire.stage.service.records.grantor)
    info = wire.show(made.id)
    assert list(info.groups.names) == ["a", "b"]
    assert list(info.locators) == ["leasehold://r:2379"]
    assert info.listener == LISTENER
    assert (info.id, info.grantor) == (made.id, made.grantor)
    assert 59_000 < info.remaining_ms <= 60_000
    assert (info.registrars, info.number, info.undelivered, info.last_error) == (0, 0, 0, "")


def test_absent_groups_are_none_and_all_are_all(wire: Wire) -> None:
    none, everything = wire.register(), wire.register(groups=pb.GroupNames(all=True))
    assert not wire.show(none.id).groups.all
    assert list(wire.show(none.id).groups.names) == []
    assert wire.show(everything.id).groups.all


@pytest.mark.parametrize("listener", [None, ListenerTarget(endpoint="10.0.0.1:80")])
def test_no_listener_is_refused(wire: Wire, listener: ListenerTarget | None) -> None:
    with pytest.raises(ValueError, match="listener must have an id"):
        wire.register(listener=listener)
    assert wire.stage.stored() == {}


def test_an_endpoint_at_another_address_than_the_connection_is_refused(wire: Wire) -> None:
    with pytest.raises(PermissionDenied, match="--callbacks"):
        wire.register(listener=ListenerTarget(endpoint="10.0.0.2:80", id="l"))


@pytest.mark.parametrize("ttl_ms", [0, -3])
def test_a_registration_without_a_term_is_refused(wire: Wire, ttl_ms: int) -> None:
    with pytest.raises(ValueError, match="ttl_ms"):
        wire.register(ttl_ms=ttl_ms)
    assert wire.stage.stored() == {}


def test_any_term_is_the_default_and_the_longest_is_the_maximum(wire: Wire) -> None:
    assert wire.register(ttl_ms=-1).ttl_ms == 3_600_000
    assert wire.register(ttl_ms=-2).ttl_ms == 7_200_000


@pytest.mark.parametrize("locator", ["", "r", "http://r", "leasehold://r:0", "leasehold://r:99999"])
def test_a_malformed_locator_is_refused(wire: Wire, locator: str) -> None:
    with pytest.raises(ValueError, match="locator"):
        wire.register(locators=[locator])
    registration = wire.register(locators=["leasehold://r"]).id
    for change in (pb.ADD_INTEREST, pb.SET_INTEREST, pb.REMOVE_INTEREST):
        request = pb.ChangeLocatorsRequest(
            registration=registration, change=change, locators=[locator]
        )
        with pytest.raises(ValueError, match="locator"):
            wire.ask("change_locators", request)
    assert list(wire.show(registration).locators) == ["leasehold://r:2379"]


def test_groups_are_added_set_and_removed(wire: Wire) -> None:
    registration = wire.register(groups=pb.GroupNames(names=["a"])).id

    def change(kind: "pb.InterestChange", *names: str) -> list[str]:
        request = pb.ChangeGroupsRequest(
            registration=registration, change=kind, groups=pb.GroupNames(names=names)
        )
        wire.ask("change_groups", request)
        return list(wire.show(registration).groups.names)

    assert change(pb.ADD_INTEREST, "b", "c", "b") == ["a", "b", "c"]
    assert change(pb.REMOVE_INTEREST, "a", "unknown") == ["b", "c"]
    assert change(pb.SET_INTEREST, "", "x") == ["", "x"]
    assert change(pb.SET_INTEREST) == []


def test_locators_are_added_set_and_removed_by_equality(wire: Wire) -> None:
    registration = wire.register(locators=["leasehold://r"]).id

    def change(kind: "pb.InterestChange", *locators: str) -> list[str]:
        request = pb.ChangeLocatorsRequest(
            registration=registration, change=kind, locators=locators
        )
        wire.ask("change_locators", request)
        return list(wire.show(registration).locators)

    assert change(pb.ADD_INTEREST, "leasehold://R:2379", "leasehold://s") == [
        "leasehold://r:2379",
        "leasehold://s:2379",
    ]
    assert change(pb.REMOVE_INTEREST, "leasehold://R", "leasehold://unknown") == [
        "leasehold://s:2379"
    ]
    assert change(pb.SET_INTEREST, "leasehold://t:7") == ["leasehold://t:7"]
    assert change(pb.SET_INTEREST) == []


@pytest.mark.parametrize("change", [pb.ADD_INTEREST, pb.REMOVE_INTEREST])
def test_all_groups_can_only_be_set(wire: Wire, change: "pb.InterestChange") -> None:
    named = wire.register(groups=pb.GroupNames(names=["a"])).id
    everything = wire.register(groups=pb.GroupNames(all=True)).id
    every = pb.GroupNames(all=True)
    with pytest.raises(ValueError, match="all groups can only be set"):
        wire.ask(
            "change_groups",
            pb.ChangeGroupsRequest(registration=named, change=change, groups=every),
        )
    some = pb.GroupNames(names=["a"])
    with pytest.raises(UnsupportedOperation):
        wire.ask(
            "change_groups",
            pb.ChangeGroupsRequest(registration=everything, change=change, groups=some),
        )
    assert list(wire.show(named).groups.names) == ["a"]
    assert wire.show(everything).groups.all


def test_a_change_that_does_not_exist_is_refused(wire: Wire) -> None:
    registration = wire.register().id
    change = cast(Any, 7)
    with pytest.raises(ValueError, match="change must be"):
        wire.ask("change_groups", pb.ChangeGroupsRequest(registration=registration, change=change))
    with pytest.raises(ValueError, match="change must be"):
        wire.ask(
            "change_locators", pb.ChangeLocatorsRequest(registration=registration, change=change)
        )


def test_a_discard_of_no_registrar_is_refused_and_of_an_unknown_one_ignored(wire: Wire) -> None:
    wire.stage.network.add("R")
    registration = wire.register(groups=pb.GroupNames(names=["a"])).id
    wire.stage.pass_time()
    with pytest.raises(ValueError, match="registrar must not be empty"):
        wire.ask("discard", pb.DiscardRequest(registration=registration))
    wire.ask("discard", pb.DiscardRequest(registration=registration, registrar="unknown"))
    assert [each.id for each in wire.registrars(registration).registrars] == ["R"]
    wire.ask("discard", pb.DiscardRequest(registration=registration, registrar="R"))
    assert not wire.registrars(registration).registrars


@pytest.mark.parametrize("limit", ["REGISTRARS_PER_PAGE", "BYTES_PER_PAGE"])
def test_registrars_come_in_pages_each_once_in_the_order_of_their_ids(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(rpc, limit, 2)
    for name in "TSRVU":
        wire.stage.network.add(name, "a b")
    registration = wire.register(groups=pb.GroupNames(names=["a"])).id
    wire.stage.pass_time()
    assert wire.show(registration).registrars == 5
    found: list[pb.FoundRegistrar] = []
    pages, after = 0, ""
    while True:
        page = wire.registrars(registration, after)
        assert 1 <= len(page.registrars) <= 2
        found += page.registrars
        pages, after = pages + 1, page.next
        if not after:
            break
    assert [each.id for each in found] == list("RSTUV")
    assert all(list(each.groups) == ["a", "b"] for each in found)
    assert pages == (3 if limit == "REGISTRARS_PER_PAGE" else 5)


def test_the_snapshot_is_fresh(wire: Wire) -> None:
    registration = wire.register(groups=pb.GroupNames(names=["a"])).id
    for present in (["R"], ["R", "S"]):
        wire.stage.network.add(present[-1])
        wire.stage.pass_time()
        assert [each.id for each in wire.registrars(registration).registrars] == present
    wire.stage.network.stop("R")
    wire.stage.pass_time()
    assert [each.id for each in wire.registrars(registration).registrars] == ["S"]


def test_the_number_and_the_undelivered_events_are_shown(wire: Wire) -> None:
    wire.stage.inbox.errors["l"] = ConnectionError("broken")
    registration = wire.register(groups=pb.GroupNames(names=["a"])).id
    wire.stage.network.add("R")
    wire.stage.pass_time()
    info = wire.show(registration)
    assert (info.number, info.undelivered, info.registrars) == (1, 1, 1)
    assert "broken" in info.last_error


def test_a_registration_that_has_ended_answers_no_such_object_to_everything(wire: Wire) -> None:
    registration = wire.register(ttl_ms=1000, locators=["leasehold://r"]).id
    wire.stage.pass_time(2.0)
    requests: dict[str, Any] = {
        "show": pb.ShowDiscoveryRequest(registration=registration),
        "registrars": pb.RegistrarsRequest(registration=registration),
        "change_groups": pb.ChangeGroupsRequest(registration=registration),
        "change_locators": pb.ChangeLocatorsRequest(registration=registration),
        "discard": pb.DiscardRequest(registration=registration, registrar="R"),
    }
    for name, request in requests.items():
        with pytest.raises(NoSuchObject):
            wire.ask(name, request)


def test_all_methods_are_served(wire: Wire) -> None:
    names = {path.rpartition("/")[2] for path in wire.rpc.methods()}
    service = pb.DESCRIPTOR.services_by_name["Discovery"]
    assert names == {method.name for method in service.methods}


def test_a_locator_with_tls_replaces_the_one_without(wire: Wire) -> None:
    registration = wire.register(locators=["leasehold://r", "leaseholds://r"]).id
    assert list(wire.show(registration).locators) == ["leaseholds://r:2379"]
    assert wire.stage.live(registration).interests.locators == (Locator("r"),)
