"""Administration of the services of a server: `leasehold.v1.Admin`.

The methods for member groups are in `member_groups`.

Each server follows the keys of `admin.config`, and applies every change by any server of its
cluster: it joins registrars, and bounds the leases that it grants. An engine in this process has
one server, which follows the keys from the first change on: used as an etcd and nothing else, it
has no watch.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from leasehold.admin.config import (
    ADMIN,
    ServiceConfig,
    attributes_change,
    check_service,
    config_change,
    config_of,
    locator_texts,
)
from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.durations import Duration, to_wire_ms
from leasehold.basics.endpoint_list import EndpointList
from leasehold.discovery.discovery_messages import groups_message
from leasehold.discovery.locators import check_allowed, locators_of
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue
from leasehold.errors import Compacted, LeaseholdError
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Method
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.messages import set_message
from leasehold.registry.own_services import SERVICES, service_attributes, service_id
from leasehold.server.engine_services import EngineService, ServiceHost
from leasehold.server.joining import ServiceJoins
from leasehold.server.pages import Exposition
from leasehold.services.forwarding import completed, methods_of
from leasehold.services.shared_value import CALL_S, SharedValue, Stored
from leasehold.sessions.session import OVER
from leasehold.wire import admin_pb2 as pb

logger = logging.getLogger(__name__)

SERVICE: Final = "leasehold.v1.Admin"
RETRIES: Final = exponential(0.5, 30.0)


class _Service:
    """A service, as far as it is administered."""

    def __init__(self, host: ServiceHost, service: str, policies: Sequence[DurationPolicy]) -> None:
        self.name = service
        self.id = service_id(host.engine.cluster_id, service)
        self.config: SharedValue[ServiceConfig] = config_of(host.engine, service)
        self.attributes = service_attributes(host.engine, service)
        self.applied = Stored(ServiceConfig(), 0)
        self._policies = [(policy, policy.maximum) for policy in policies]
        """With the bounds of the settings."""

    def bound(self, config: ServiceConfig) -> Duration:
        """Return the longest term of the leases that it grants."""
        _, default = self._policies[0]
        return default if config.lease_bound is None else config.lease_bound

    def set_bound(self, bound: Duration | None) -> None:
        """Bound the leases that it grants, or as in the settings; longer ones keep their ends."""
        for policy, default in self._policies:
            policy.maximum = default if bound is None else bound


class AdministrationService(EngineService):
    """Changes the configuration of services, and applies it."""

    def __init__(
        self,
        host: ServiceHost,
        joins: ServiceJoins,
        bounded: Mapping[str, Sequence[DurationPolicy]],
    ) -> None:
        """`bounded` has the policies of the leases that each service grants."""
        self._engine = host.engine
        self._allowed = EndpointList(host.settings.services.discover_at)
        self._joins = joins
        self._services = {name: _Service(host, name, bounded[name]) for name in SERVICES}
        self._following: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[Any]] = set()

    def methods(self) -> Mapping[str, Method]:
        """The methods, by path."""
        return methods_of(SERVICE, {"Show": self._show, "Change": self._change})

    def metrics(self, out: Exposition) -> None:
        """Add the number of registrations to a scrape."""
        out.gauge(
            "leasehold_service_registrations",
            "Registrations of this server's own services at other registrars.",
            self._joins.registrations,
        )

    # Calls.

    async def _show(self, message: bytes, _context: CallContext) -> bytes:
        request = parse(pb.ShowServicesRequest.FromString, message)
        names = [check_service(request.service)] if request.service else list(SERVICES)
        shown = [await self._shown(self._services[name]) for name in names]
        return pb.ShowServicesResponse(services=shown).SerializeToString()

    async def _change(self, message: bytes, _context: CallContext) -> bytes:
        request = parse(pb.ChangeServiceRequest.FromString, message)
        service = self._services[check_service(request.service)]
        return await completed(self._changed(service, request), self._running)

    async def _changed(self, service: _Service, request: pb.ChangeServiceRequest) -> bytes:
        if request.WhichOneof("part") == "attributes":
            await service.attributes.update(attributes_change(request))
        else:
            for locator in locators_of(request.locators.locators):
                check_allowed(self._allowed, locator)
            self._apply(service, await service.config.update(config_change(request)))
            self._begin_following()
        return (await self._shown(service)).SerializeToString()

    async def _shown(self, service: _Service) -> pb.AdministeredService:
        config = (await service.config.read()).value
        attributes = (await service.attributes.read()).value
        return pb.AdministeredService(
            service=service.name,
            id=service.id,
            type=SERVICES[service.name],
            groups=groups_message(config.groups),
            locators=locator_texts(config.locators),
            attributes=map(set_message, attributes),
            lease_bound_ms=to_wire_ms(service.bound(config)),
            is_default_bound=config.lease_bound is None,
        )

    # Applying.

    async def start(self) -> None:
        """Apply the configuration, and follow its changes."""
        if not isinstance(self._engine, EmbeddedEngine):
            self._begin_following()
            return
        await self._read_all()
        if any(service.applied.revision for service in self._services.values()):
            self._begin_following()

    def _begin_following(self) -> None:
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Apply each change by any server."""
        backoff = Backoff(RETRIES, Random())  # noqa: S311  spreads retries
        while True:
            try:
                revision = await self._read_all()
                watch = self._engine.watch(ADMIN, prefix_end(ADMIN), start=revision + 1)
                async with watch:
                    backoff.reset()
                    async for found in watch:
                        for event in found.events:
                            self._take(event.key, event.pair, found.revision)
            except OVER:
                return
            except Compacted:
                continue
            except (LeaseholdError, OSError) as error:
                logger.warning("changes of administrators are not applied yet: %s", error)
            except Exception:
                logger.exception("changes of administrators are not applied yet")
            await asyncio.sleep(backoff.next_s())

    async def _read_all(self) -> int:
        async with time_limit(CALL_S, self._engine):
            found = await self._engine.range(ADMIN, prefix_end(ADMIN))
        pairs = {pair.key: pair for pair in found.pairs}
        for service in self._services.values():
            key = service.config.key
            self._take(key, pairs.get(key), found.revision)
        return found.revision

    def _take(self, key: bytes, pair: KeyValue | None, revision: int) -> None:
        """Apply the state of a key; without a pair it was deleted at the revision, or before."""
        service = self._services.get(key.removeprefix(ADMIN).decode(errors="replace"))
        if service is None:
            return
        stored = service.config.of(() if pair is None else (pair,))
        if pair is None and service.applied.revision:
            stored = stored._replace(revision=revision)
        self._apply(service, stored)

    def _apply(self, service: _Service, stored: Stored[ServiceConfig]) -> None:
        if stored.revision > service.applied.revision:  # not one that was read before
            service.applied = stored
            service.set_bound(stored.value.lease_bound)
            self._joins.configure(service.name, stored.value)

    async def close(self) -> None:
        """Leave all registrars."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._joins.close()
