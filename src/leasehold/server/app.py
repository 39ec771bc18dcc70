"""The assembled server: journal, store, committer, services, one port."""

import asyncio
import gc
import logging
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, Self

from leasehold.basics.addresses import Address, TcpAddress
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.values import Limits
from leasehold.errors import LeaseholdError
from leasehold.grpc.call_context import Interceptor
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.health import SERVER, HealthService, ServingStatus
from leasehold.grpc.http_handlers import Pages
from leasehold.grpc.reflection import ReflectionService, services_of
from leasehold.grpc.routes import Method, Methods, intercept
from leasehold.http2.limits import ConnectionLimits
from leasehold.server.engine_services import (
    EngineServices,
    MakeServices,
    ServiceHost,
)
from leasehold.server.etcd.alarms import Alarms
from leasehold.server.etcd.cluster import AuthService, ClusterService, client_urls
from leasehold.server.etcd.kv import KVService
from leasehold.server.etcd.lease import LeaseService
from leasehold.server.etcd.lock_and_election import ElectionService, LockService
from leasehold.server.etcd.maintenance import MaintenanceService
from leasehold.server.etcd.service_context import STOPPED, TOO_MANY, ServiceContext
from leasehold.server.etcd.watch import WatchService
from leasehold.server.gateway.gateway import Gateway
from leasehold.server.gateway.web_access import WebAccess
from leasehold.server.leases.service import LeasesService
from leasehold.server.pages import CallMetrics, HealthPage, MetricsPage, StoreHealth
from leasehold.server.settings import Settings
from leasehold.server.standard_services import standard_services
from leasehold.serving.grpc_server import GrpcServer
from leasehold.store.committer import SWITCH_INTERVAL_S
from leasehold.store.runtime import Runtime
from leasehold.wire.pool import POOL

logger = logging.getLogger(__name__)

DRAIN_S: Final = 10.0
"""How long closing waits for the disk."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""High: almost no objects here are in cycles, and a collection is a pause."""


class GrpcService(Protocol):
    """A service: methods that belong together."""

    def methods(self) -> dict[str, Method]:
        """The methods, by path."""
        ...


class LeaseholdServer:
    """One process, one data directory, one port.

    Opening reads the journal, in time proportional to its length. `start` needs an event loop.
    """

    def __init__(
        self,
        settings: Settings | Path,
        *,
        vfs: str | None = None,
        interceptor: Interceptor | None = None,
        make_services: MakeServices = standard_services,
    ) -> None:
        """Open the directory; a path stands for default settings with that directory.

        `interceptor` is called with the context of every call, over gRPC and as JSON. It raises an
        error to refuse the call, and may return a function that is called when the call is over.
        `make_services` returns the services that run on the server's engine.
        """
        if not isinstance(settings, Settings):
            settings = Settings(directory=settings)
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        """Set when the server must stop. If it cannot continue, `failure` is the reason."""
        self._is_started = False
        self.is_closed = False
        """Whether it has stopped cleanly, with a clean journal."""
        self.runtime = Runtime(
            settings.directory,
            quota_bytes=settings.quota_bytes,
            compaction=settings.compaction,
            keys_per_lease=settings.keys_per_lease,
            vfs=vfs,
        )
        self.store = self.runtime.store
        self.health = HealthService()
        self._gate = DurabilityGate(TOO_MANY)
        self.runtime.waiting.on_durable = self._gate.release
        self.engine = EmbeddedEngine.on(
            self.runtime, Limits(keys_per_lease=settings.keys_per_lease)
        )
        """The server's own keyspace, for services in this process."""
        self.runtime.failure_callbacks.append(self._fail)
        self._host = ServiceHost(self.engine, settings, peer_tls=settings.peer_tls())
        self._services = EngineServices(make_services(self._host))
        methods = self._methods(settings)
        if interceptor is not None:
            methods = intercept(methods, interceptor)
        health = HealthPage(
            StoreHealth(
                self._alarms,
                lambda: self.failure,
                lambda: self.runtime.outstanding_s,
                settings.unhealthy_after_s,
            ).reason
        )
        pages: Pages = {"/metrics": lambda: self._metrics.page()}  # noqa: PLW0108
        self._access = WebAccess(settings.cors, settings.host_whitelist)
        called_as_json = methods if settings.has_gateway else None
        self._server = GrpcServer(
            methods,
            web=Gateway(called_as_json, POOL, pages, health.page, self._access),
            gate=self._gate,
            enter=self.store.leases.enter,
            limits=ConnectionLimits(max_streams=settings.max_streams),
        )
        calls = CallMetrics(methods, POOL)
        self._metrics = MetricsPage(
            self.runtime, self._gate, self._server, calls, health, self._services.show
        )

    def _methods(self, settings: Settings) -> Methods:
        context = self._context = ServiceContext(
            self.runtime, self._gate, self.runtime.journal.identity
        )
        self._alarms, self._cluster = Alarms(context), ClusterService(context)
        etcd: dict[str, Method] = {}
        services: tuple[GrpcService, ...] = (
            KVService(context),
            LeaseService(context, settings.min_ttl_s),
            WatchService(context),
            LockService(context),
            ElectionService(context),
            self._cluster,
            MaintenanceService(context, self._alarms),
            AuthService(context),
            LeasesService(context, settings.policies, self._services.grantors),
            self._services,
        )
        for service in services:
            etcd.update(service.methods())
        for name in (SERVER, *services_of(etcd)):
            self.health.set(name, ServingStatus.SERVING)
        described = {**etcd, **self.health.methods()}
        return {**described, **ReflectionService(POOL, services_of(described)).methods()}

    async def start(self, host: str, port: int) -> int:
        """Start serving; return the port, which the system chooses for 0."""
        bound, *_ = await self.start_on([TcpAddress(host, port)])
        assert isinstance(bound, TcpAddress)
        return bound.port

    async def start_on(
        self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None
    ) -> list[Address]:
        """Start serving on several addresses, all with TLS or none; return the bound addresses."""
        await self._server.bind(addresses, tls)
        bound = self._server.addresses
        self._cluster.client_urls = client_urls(bound, is_tls=tls is not None)
        self._access.listens_on(addresses, bound, is_tls=tls is not None)
        if self._is_started:
            return await self._server.start()
        self._is_started = True
        self._host.listens_on(bound, is_tls=tls is not None)
        self.runtime.start()
        bound = await self._server.start()
        await self._services.start()
        return bound

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another certificate for new connections."""
        self._server.replace_tls(tls)

    async def leave(self) -> None:
        """Close all connections and listeners, until `start` is called again.

        Keys are kept, and leases keep running.
        """
        await self._server.leave()

    def hang_up(self) -> None:
        """Close all connections. New ones are accepted."""
        self._server.hang_up()

    async def close(self) -> None:
        """Accept no more calls, write and answer the pending ones, and leave a clean journal.

        Clients that do not read their answers for a while do not get them. If the disk has not
        taken the rest after `DRAIN_S`, the next start handles it.
        """
        self.health.shut_down()
        await self._server.stop_taking()
        await self._services.close()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.runtime.stop()
        except TimeoutError:
            logger.error("the last changes were not written to disk within %g s", DRAIN_S)
            self._server.cut_off()
            return
        await self.engine.close()
        await self._server.part(STOPPED)
        self.runtime.journal.close()
        self.is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _fail(self, error: LeaseholdError) -> None:
        self.failure = self.runtime.failure
        self._server.cut_off()
        self.stopped.set()


def tune_interpreter() -> None:
    """Tune the garbage collector for a process that only serves, after start-up."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # objects made at start-up are not garbage, and need not be examined
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
