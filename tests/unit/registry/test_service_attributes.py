"""Attributes of the services of a server: on their items in the registry, and in its events."""

import pytest

from leasehold.clock import SYSTEM_CLOCK
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.time_limits import CallTimeouts
from leasehold.registry import service as registry_service
from leasehold.registry.messages import item_key, template_message
from leasehold.registry.own_services import (
    RENEWAL,
    SERVICES,
    own_items,
    registrar_id,
    service_attributes,
    service_id,
)
from leasehold.registry.scanning_registrar import ScanningRegistrar
from leasehold.registry.state import (
    EVERYTHING,
    MAX_SETS,
    AttributeSet,
    Item,
    ServiceType,
    Template,
    attribute_set,
)
from leasehold.wire import registry_pb2 as pb
from tests.support.registry_stage import A, B, RegistryStage, about, web, without_progress

NORTH = about(area="north")
IN_THE_NORTH = Template(attributes=(NORTH,))
IN, OUT, STILL = "NOMATCH_MATCH", "MATCH_NOMATCH", "MATCH_MATCH"


def setting(stage: RegistryStage, *sets: AttributeSet, service: str = RENEWAL) -> None:
    stage.run(service_attributes(stage.engine, service).update, lambda _: sets)


def renewal_of(stage: RegistryStage) -> str:
    return service_id(stage.engine.cluster_id, RENEWAL)


@pytest.mark.parametrize("is_trusted", [True, False], ids=["progress", "no progress"])
def test_a_service_is_found_by_an_attribute_that_was_set(
    monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    if not is_trusted:
        without_progress(monkeypatch)
    with RegistryStage() as stage:
        assert stage.ids(IN_THE_NORTH) == []
        setting(stage, NORTH)
        (found,) = stage.found(IN_THE_NORTH)
        type_name = SERVICES[RENEWAL]
        assert found == Item(renewal_of(stage), (ServiceType(type_name),), (NORTH,))
        assert stage.lookup(EVERYTHING).total == len(SERVICES)
        setting(stage)
        assert stage.ids(IN_THE_NORTH) == []
        assert stage.lookup(EVERYTHING).total == len(SERVICES)


def test_the_attributes_are_there_after_a_restart() -> None:
    with RegistryStage() as stage:
        setting(stage, NORTH)
        stage.crash()
        assert stage.ids(IN_THE_NORTH) == [renewal_of(stage)]


def test_a_change_of_attributes_is_one_event_with_the_right_transition() -> None:
    with RegistryStage() as stage:
        stage.listen("l", IN_THE_NORTH)
        setting(stage, NORTH)
        setting(stage, NORTH, about(floor=1))
        stage.register(web(A, area="north"))
        setting(stage)
        renewal = renewal_of(stage)
        assert stage.told() == [
            (1, IN, renewal),
            (2, STILL, renewal),
            (3, IN, A),
            (4, OUT, renewal),
        ]


def test_changes_while_a_server_was_down_are_events_after_its_start() -> None:
    with RegistryStage() as stage:
        setting(stage, NORTH)
        stage.listen("l", IN_THE_NORTH)
        stage.pass_time(10.0)
        stage.run(stage.close)
        setting(stage)
        setting(stage, NORTH, service="registrar")
        stage.crash()
        registrar = registrar_id(stage.engine.cluster_id)
        assert stage.told() == [(1, OUT, renewal_of(stage)), (2, IN, registrar)]


def test_the_first_attributes_of_a_service_that_matched_before_are_a_change_of_it() -> None:
    with RegistryStage() as stage:
        stage.listen("l", Template(types=(ServiceType(SERVICES[RENEWAL]),)))
        stage.pass_time(10.0)
        stage.run(stage.close)
        setting(stage, NORTH)
        stage.crash()
        assert stage.told() == [(1, STILL, renewal_of(stage))]


def test_changes_that_were_compacted_are_found_when_the_items_are_read_again() -> None:
    with RegistryStage() as stage:
        setting(stage, NORTH)
        assert stage.ids(IN_THE_NORTH) == [renewal_of(stage)]
        feed = stage.service.feed
        stage.run(stage.engine.delete, item_key(renewal_of(stage)))
        stage.run(feed._load)
        assert stage.ids(IN_THE_NORTH) == []
        assert feed.items == 0


def test_later_pages_have_the_attributes_of_their_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_service, "PAGE_ITEMS", 1)
    with RegistryStage() as stage:
        for service in SERVICES:
            setting(stage, NORTH, service=service)
        page = stage.lookup(IN_THE_NORTH)
        for service in SERVICES:
            setting(stage, service=service)
        assert stage.ids(IN_THE_NORTH) == []
        stage.service._snapshots.clear()
        further = stage.service.further
        rest = stage.run(further, IN_THE_NORTH, 1000, page.next, page.revision)
        assert (page.total, rest.total) == (len(SERVICES), len(SERVICES))


def test_a_key_of_another_program_changes_neither_the_types_nor_the_endpoint() -> None:
    with RegistryStage() as stage:
        stage.run(stage.engine.put, item_key(renewal_of(stage)), b"\xff")
        cluster = stage.engine.cluster_id
        assert stage.found(Template(renewal_of(stage))) == [own_items(cluster)[renewal_of(stage)]]


def test_more_attribute_sets_than_an_item_may_have_are_refused() -> None:
    with RegistryStage() as stage:
        sets = [attribute_set("n", {"n": number}) for number in range(MAX_SETS + 1)]
        with pytest.raises(ValueError, match="at most 256 attribute sets, got 257"):
            setting(stage, *sets)
        assert stage.stored() == []


def scanned(stage: RegistryStage) -> pb.LookupResponse:
    """Return all items as a client without a registrar finds them."""

    async def scan() -> pb.LookupResponse:
        timeouts = CallTimeouts(stage.engine, 10.0)
        scanning = ScanningRegistrar(stage.engine, timeouts, SYSTEM_CLOCK)
        request = pb.LookupRequest(template=template_message(EVERYTHING), limit=10)
        return await scanning.call("Lookup", request, pb.LookupResponse)

    return stage.run(scan)


def test_a_client_without_a_registrar_does_not_find_the_services_of_servers() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        setting(stage, NORTH)
        assert scanned(stage).total == 1


def test_a_client_without_a_registrar_does_not_find_items_whose_leases_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RegistryStage() as stage:
        ended = {stage.register(web(A)).lease}
        stage.register(web(B))
        monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: lease in ended)
        assert len(stage.stored()) == 2
        found = scanned(stage)
        assert (found.total, [data[2:38].decode() for data in found.items]) == (1, [B])
