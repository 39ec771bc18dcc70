"""The configuration of services: where it is stored, and how all servers apply it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold.admin.config import ADMIN, ServiceConfig
from leasehold.basics.addresses import TcpAddress
from leasehold.basics.durations import ANY, FOREVER
from leasehold.engine.interface import prefix_end
from leasehold.errors import PermissionDenied, UnsupportedOperation
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.messages import set_message
from leasehold.registry.own_services import REGISTRAR, RENEWAL, SERVICES, service_id
from leasehold.registry.state import MAX_SETS, AttributeSet, attribute_set
from leasehold.server import administration
from leasehold.server.administration import AdministrationService
from leasehold.server.engine_services import ServiceHost
from leasehold.server.settings import ServiceSettings, Settings
from leasehold.wire import admin_pb2 as pb
from leasehold.wire import discovery_pb2
from leasehold.wire.registry_pb2 import AttributeSets
from tests.support.fake_network import virtually
from tests.support.held_watches import HeldEngine, held_engine, settled

LOOPBACK = TcpAddress("127.0.0.1", 2379)
EVERYWHERE = b"\0", b"\0"
DEFAULTS = ServiceSettings()


class Joins:
    """Records the configurations that are to be used."""

    def __init__(self) -> None:
        self.configured: list[tuple[str, ServiceConfig]] = []
        self.is_closed = False

    def configure(self, service: str, config: ServiceConfig) -> None:
        self.configured.append((service, config))

    async def close(self) -> None:
        self.is_closed = True


class Server:
    """The administration of one server."""

    def __init__(self, engine: HeldEngine, services: ServiceSettings) -> None:
        settings = Settings(directory=None, services=services)
        host = ServiceHost(engine, settings, bound=[LOOPBACK])
        self.joins = Joins()
        self.policies = {name: DurationPolicy(3600.0, 60.0) for name in SERVICES}
        bounded = {name: [policy] for name, policy in self.policies.items()}
        self.service = AdministrationService(host, self.joins, bounded)  # type: ignore[arg-type]

    async def show(self, service: str = "") -> list[pb.AdministeredService]:
        request = pb.ShowServicesRequest(service=service).SerializeToString()
        context: Any = None
        answer = await self.service._show(request, context)
        return list(pb.ShowServicesResponse.FromString(answer).services)

    async def change(
        self, service: str = RENEWAL, operation: str = "SET", **part: Any
    ) -> pb.AdministeredService:
        request = pb.ChangeServiceRequest(service=service, operation=operation, **part)
        context: Any = None
        answer = await self.service._change(request.SerializeToString(), context)
        return pb.AdministeredService.FromString(answer)


@asynccontextmanager
async def serving(
    engine: HeldEngine, services: ServiceSettings = DEFAULTS
) -> AsyncIterator[Server]:
    server = Server(engine, services)
    await server.service.start()
    try:
        yield server
    finally:
        await server.service.close()


@pytest.fixture
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine count as one that several servers share."""
    monkeypatch.setattr(administration, "EmbeddedEngine", ())


def sets(*given: AttributeSet) -> AttributeSets:
    return AttributeSets(sets=map(set_message, given))


@virtually
async def test_a_server_that_nothing_was_set_for_writes_no_key_and_watches_nothing() -> None:
    async with held_engine() as engine, serving(engine) as server:
        shown = await server.show()
        await settled()
        assert [each.service for each in shown] == list(SERVICES)
        assert [each.lease_bound_ms for each in shown] == [3_600_000] * len(SERVICES)
        assert all(each.is_default_bound for each in shown)
        assert (await engine.range(*EVERYWHERE)).pairs == []
        assert engine.made == []
        assert server.joins.configured == []


@pytest.mark.usefixtures("on_a_cluster")
@virtually
async def test_a_change_at_one_server_reaches_the_others_of_its_cluster() -> None:
    async with held_engine() as engine, serving(engine) as one, serving(engine) as other:
        await settled()
        groups = discovery_pb2.GroupNames(names=["a"])
        await one.change(groups=groups)
        await one.change(REGISTRAR, lease_bound_ms=5000)
        await settled()
        assert (RENEWAL, ServiceConfig(frozenset("a"))) in other.joins.configured
        assert other.policies[REGISTRAR].maximum == 5.0
        assert other.policies[RENEWAL].maximum == 3600.0
        assert [each.SerializeToString() for each in await one.show()] == [
            each.SerializeToString() for each in await other.show()
        ]


@pytest.mark.usefixtures("on_a_cluster")
@virtually
async def test_a_change_during_a_failure_of_the_watch_is_applied_later() -> None:
    async with held_engine() as engine:
        engine.refused = {ADMIN}
        async with serving(engine) as one, serving(engine) as other:
            await settled()
            await one.change(lease_bound_ms=5000)
            engine.refused = set()
            await asyncio.sleep(100)
            assert other.policies[RENEWAL].maximum == 5.0


@virtually
async def test_what_was_set_is_applied_after_a_restart_before_the_server_is_used() -> None:
    async with held_engine() as engine:
        async with serving(engine) as server:
            await server.change(locators=pb.JoinedLocators(locators=["leasehold://a"]))
            await server.change(lease_bound_ms=5000)
            await server.change(attributes=sets(attribute_set("Location", {"floor": 3})))
        assert server.joins.is_closed
        server = Server(engine, DEFAULTS)
        await server.service.start()
        ((service, config),) = server.joins.configured
        assert (service, str(config.locators[0])) == (RENEWAL, "leasehold://a:2379")
        assert server.policies[RENEWAL].maximum == 5.0
        (shown,) = await server.show(RENEWAL)
        assert [each.kind for each in shown.attributes] == ["Location"]
        assert shown.id == service_id(engine.cluster_id, RENEWAL)
        await settled()
        assert engine.open_keys == [ADMIN]
        await server.service.close()


@virtually
async def test_the_bound_is_applied_when_its_change_is_answered() -> None:
    async with held_engine() as engine, serving(engine) as server:
        policy, leased = server.policies[RENEWAL], Any
        shown = await server.change(lease_bound_ms=5000)
        assert (shown.lease_bound_ms, shown.is_default_bound) == (5000, False)
        granted = [policy.grant(leased, each, 0.0) for each in (3.0, 10.0, FOREVER, ANY)]  # type: ignore[arg-type]
        assert granted == [3.0, 5.0, 5.0, 5.0]
        shown = await server.change(lease_bound_ms=-2)
        assert shown.lease_bound_ms == -2
        assert policy.grant(leased, FOREVER, 0.0) is FOREVER  # type: ignore[arg-type]
        shown = await server.change(lease_bound_ms=0)
        assert (shown.lease_bound_ms, shown.is_default_bound) == (3_600_000, True)
        assert policy.maximum == 3600.0


@virtually
async def test_what_was_read_before_a_change_does_not_undo_it() -> None:
    async with held_engine() as engine, serving(engine) as server:
        await server.change(lease_bound_ms=9000)
        await settled()
        before = await engine.range(ADMIN, prefix_end(ADMIN))
        await server.change(lease_bound_ms=5000)
        server.service._take(before.pairs[0].key, before.pairs[0], before.revision)
        assert server.policies[RENEWAL].maximum == 5.0


@virtually
async def test_a_key_that_is_deleted_restores_the_defaults() -> None:
    async with held_engine() as engine, serving(engine) as server:
        await server.change(lease_bound_ms=5000)
        await engine.delete(ADMIN + RENEWAL.encode())
        await engine.put(ADMIN + b"unknown", b"")
        await settled()
        assert server.policies[RENEWAL].maximum == 3600.0
        assert server.joins.configured[-1] == (RENEWAL, ServiceConfig())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"service": "x", "lease_bound_ms": 0}, "unknown service 'x'"),
        ({}, "part must be given"),
        ({"lease_bound_ms": 1}, "bound of leases must be from 1"),
        ({"locators": pb.JoinedLocators(locators=["leasehold://a", "b"])}, "'b' is not a locator"),
        ({"groups": discovery_pb2.GroupNames(names=["a", "x" * 257])}, "at most 256 characters"),
        ({"attributes": sets(AttributeSet("a"), AttributeSet(""))}, "kind of an attribute set"),
    ],
)
@virtually
async def test_what_is_refused_changes_nothing(change: dict[str, Any], error: str) -> None:
    async with held_engine() as engine, serving(engine) as server:
        with pytest.raises(ValueError, match=error):
            await server.change(**change)
        assert (await engine.range(*EVERYWHERE)).pairs == []
        assert server.joins.configured == []


@virtually
async def test_a_locator_that_the_operator_does_not_allow_is_refused() -> None:
    services = ServiceSettings(discover_at=("a.example",))
    async with held_engine() as engine, serving(engine, services) as server:
        for locators in (["leasehold://b.example"], ["leasehold://a.example", "leasehold://b"]):
            with pytest.raises(PermissionDenied, match="--discover-at"):
                await server.change(locators=pb.JoinedLocators(locators=locators))
        assert (await engine.range(*EVERYWHERE)).pairs == []
        allowed = pb.JoinedLocators(locators=["leasehold://a.example"])
        assert len((await server.change(locators=allowed)).locators) == 1


@virtually
async def test_adding_to_all_groups_is_unsupported_and_changes_nothing() -> None:
    async with held_engine() as engine, serving(engine) as server:
        shown = await server.change(groups=discovery_pb2.GroupNames(all=True))
        assert (shown.groups.all, list(shown.groups.names)) == (True, [])
        with pytest.raises(UnsupportedOperation):
            await server.change(operation="ADD", groups=discovery_pb2.GroupNames(names=["a"]))
        assert (await server.show(RENEWAL))[0].groups.all


@virtually
async def test_a_locator_is_replaced_by_an_equal_one_with_or_without_tls() -> None:
    async with held_engine() as engine, serving(engine) as server:
        for text in ("leasehold://a:1", "leaseholds://a:1", "leasehold://a:1"):
            shown = await server.change(locators=pb.JoinedLocators(locators=[text]))
            assert list(shown.locators) == [text]
            _, config = server.joins.configured[-1]
            assert [str(locator) for locator in config.locators] == [text]


@virtually
async def test_attribute_sets_are_limited_in_number_also_by_adding() -> None:
    async with held_engine() as engine, serving(engine) as server:
        full = [attribute_set("n", {"n": number}) for number in range(MAX_SETS)]
        await server.change(attributes=sets(*full))
        with pytest.raises(ValueError, match="at most 256 attribute sets, got 257"):
            await server.change(operation="ADD", attributes=sets(AttributeSet("one more")))
        assert len((await server.show(RENEWAL))[0].attributes) == MAX_SETS
