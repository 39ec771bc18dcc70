"""The server without a data directory: its state is keys in an etcd cluster.

It serves the services on an engine, and of `leasehold.v1.Leases` grants, renewals and revocations.
It reports the id of the cluster as its own. Several such servers may run on one cluster.

A server that does not reach the cluster when it starts fails. One that loses the cluster later
continues: it reports that it is unhealthy, and calls fail or wait until the cluster answers again.
It stops if the cluster turns out to be another one.
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from random import Random
from typing import Final, Self

from leasehold.basics.addresses import Address
from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.histogram import Histogram
from leasehold.engine.remote.remote_engine import RemoteEngine, lease_channel
from leasehold.errors import Closed, ConnectFailed, HistoryLost, LeaseholdError
from leasehold.grpc.call_context import Interceptor
from leasehold.grpc.health import SERVER, HealthService, ServingStatus
from leasehold.grpc.http_handlers import Pages, Reply
from leasehold.grpc.reflection import ReflectionService, services_of
from leasehold.grpc.routes import Method, Methods, intercept
from leasehold.http2.limits import ConnectionLimits
from leasehold.server.engine_services import (
    EngineServices,
    MakeServices,
    ServiceHost,
)
from leasehold.server.etcd.not_served import StatusService, refused_methods
from leasehold.server.gateway.gateway import Gateway
from leasehold.server.gateway.web_access import WebAccess
from leasehold.server.leases.engine_leases import EngineLeasesService
from leasehold.server.pages import (
    METRICS_CONTENT_TYPE,
    CallMetrics,
    Exposition,
    HealthPage,
    show_network,
    show_process,
)
from leasehold.server.settings import RemoteEndpoints, Settings
from leasehold.server.standard_services import standard_services
from leasehold.serving.grpc_server import STOPPED, GrpcServer
from leasehold.wire.codec import ResponseHeaderEncoder
from leasehold.wire.pool import POOL

logger = logging.getLogger(__name__)

START_S: Final = 10.0
"""How long a start waits for the cluster."""

PROBE_S: Final = 2
"""The pause between two probes of the cluster."""

PROBE_TIMEOUT_S: Final = 3
"""After that a probe has failed, and another member is tried."""

RETRIES: Final = exponential(0.1, 1.0)
"""The pauses between attempts to connect at the start."""

LATENCIES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class ClusterProbe:
    """Asks the cluster for its revision repeatedly: a read that needs a majority of its members."""

    def __init__(self, engine: RemoteEngine, cluster: str, unhealthy_after_s: float) -> None:
        self._engine = engine
        self._cluster = cluster
        self._unhealthy_after_s = unhealthy_after_s
        self._failing_since: float | None = None
        """When the first of the probes that have no answer was sent."""
        self.latency_s = Histogram(LATENCIES_S)
        self.failures = 0
        self.last_error = ""
        """Why the last probe has failed."""
        self.revision = 0
        """The last revision that was seen."""

    async def probe(self) -> None:
        """Probe once. Raises `LeaseholdError` if the engine is of no use any more."""
        began = time.monotonic()
        if self._failing_since is None:
            self._failing_since = began
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                found = await self._engine.range(b"\0", count_only=True)
        except (LeaseholdError, TimeoutError, OSError) as error:
            self._engine.check()
            self.failures += 1
            self.last_error = str(error) or "no answer; a majority of its members may be down"
            return
        self._failing_since = None
        self.last_error = ""
        self.latency_s.observe(time.monotonic() - began)
        self.revision = max(self.revision, found.revision)

    @property
    def silent_s(self) -> float:
        """How long the cluster has not answered; 0 if it has answered the last probe."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    def trouble(self) -> str:
        """Return why the server does not work; empty if it does."""
        silent_s = self.silent_s
        if silent_s < self._unhealthy_after_s:
            return ""
        why = self._engine.trouble or self.last_error or "the connection is open"
        return f"{self._cluster} has not answered for {silent_s:.1f} s: {why}"


class ClusterServer:
    """One process and one port on an etcd cluster. `start_on` connects, and then serves."""

    def __init__(
        self,
        settings: Settings,
        *,
        interceptor: Interceptor | None = None,
        make_services: MakeServices = standard_services,
    ) -> None:
        """Make a server; the arguments are those of `LeaseholdServer`.

        Raises `OSError` or `ValueError` if the TLS files for the cluster cannot be used.
        """
        assert settings.engine is not None, "the settings have no engine"
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        """Set when the server must stop. If it cannot continue, `failure` is the reason."""
        self.is_closed = False
        self._member = secrets.randbits(63) | 1
        """The id of this server, chosen at each start."""
        self.health = HealthService()
        self.engine = engine_at(settings.engine)
        self.engine.on_history_lost = self._fail
        self._cluster = f"the etcd cluster at {', '.join(settings.engine.endpoints)}"
        self._settings = settings
        self._interceptor = interceptor
        self._make_services = make_services
        self._host = ServiceHost(self.engine, settings, peer_tls=settings.peer_tls())
        self._probe = ClusterProbe(self.engine, self._cluster, settings.unhealthy_after_s)
        self._health_page = HealthPage(lambda _: self._trouble())
        self._access = WebAccess(settings.cors, settings.host_whitelist)
        self._probing: asyncio.Task[None] | None = None
        self._server: GrpcServer | None = None
        self._refusal = ""
        """Why the last attempt to connect has failed, until there is a connection."""

    # Starting.

    async def start_on(
        self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None
    ) -> list[Address]:
        """Connect to the cluster, and serve on several addresses; return the bound addresses.

        Raises `ConnectFailed` if the cluster does not answer within `START_S`, and `Closed` if
        `stopped` is set meanwhile.
        """
        await self._connect()
        server = self._server = self._assemble()
        await server.bind(addresses, tls)
        bound = server.addresses
        self._access.listens_on(addresses, bound, is_tls=tls is not None)
        self._host.listens_on(bound, is_tls=tls is not None)
        await server.start()
        self._probing = asyncio.get_running_loop().create_task(self._keep_probing())
        await self._services.start()
        return bound

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        starting = loop.create_task(self._start_engine())
        stopping = loop.create_task(self.stopped.wait())
        tasks = (starting, stopping)
        await asyncio.wait(tasks, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        trouble = self.engine.trouble or self._refusal  # as long as there is no connection
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if starting.cancelled():
            if self.stopped.is_set():
                raise Closed("the server was stopped before it had reached the cluster")
            why = trouble or self._probe.last_error or "it accepts connections only"
            raise ConnectFailed(f"{self._cluster} has not answered within {START_S:g} s: {why}")
        starting.result()

    async def _start_engine(self) -> None:
        backoff = Backoff(RETRIES, Random())  # noqa: S311  spreads retries
        while True:
            try:
                await self.engine.start()
                self._refusal = ""
                break
            except ConnectFailed as error:  # it may be starting, too
                self._refusal = str(error)
                await asyncio.sleep(backoff.next_s())
        if inner := self.engine.server.engine:
            raise ConnectFailed(
                f"{self.engine.address} is a Leasehold server, whose own engine is {inner}: "
                f"use --engine {inner}"
            )
        while not self._probe.latency_s.count:  # a member without a leader answers only some calls
            await self._probe.probe()

    def _assemble(self) -> GrpcServer:
        settings = self._settings
        self._services = EngineServices(self._make_services(self._host))
        methods = self._methods(ResponseHeaderEncoder(self.engine.cluster_id, self._member, 0))
        if self._interceptor is not None:
            methods = intercept(methods, self._interceptor)
        self._calls = CallMetrics(methods, POOL)
        pages: Pages = {"/metrics": self._metrics}
        called_as_json = methods if settings.has_gateway else None
        return GrpcServer(
            methods,
            web=Gateway(called_as_json, POOL, pages, self._health_page.page, self._access),
            limits=ConnectionLimits(max_streams=settings.max_streams),
        )

    def _methods(self, headers: ResponseHeaderEncoder) -> Methods:
        assert self._settings.engine is not None
        self._leases = EngineLeasesService(
            self.engine,
            self._settings.policies,
            self._services.grantors,
            headers.encode,
            self._cluster,
        )
        status = StatusService(
            f"etcd://{','.join(self._settings.engine.endpoints)}",
            self.engine.server.version,
            self._member,
            headers.encode,
            lambda: self._probe.revision,
            self._trouble,
        )
        served: dict[str, Method] = {
            **status.methods(),
            **self._leases.methods(),
            **self._services.methods(),
        }
        self._names = (SERVER, *services_of(served))
        self._set_health(ServingStatus.SERVING)
        described = {**served, **self.health.methods()}
        return {
            **refused_methods(self._cluster),
            **described,
            **ReflectionService(POOL, services_of(described)).methods(),
        }

    # Health.

    def _trouble(self) -> str:
        return self._probe.trouble() if self.failure is None else str(self.failure)

    def _set_health(self, status: ServingStatus) -> None:
        for name in self._names:
            self.health.set(name, status)

    async def _keep_probing(self) -> None:
        was_well = True
        while True:
            with suppress(LeaseholdError):  # the engine has reported it
                await self._probe.probe()
            is_well = not self._trouble()
            if is_well != was_well:
                was_well = is_well
                self._set_health(ServingStatus.SERVING if is_well else ServingStatus.NOT_SERVING)
                if is_well:
                    logger.info("%s answers again", self._cluster)
                else:
                    logger.error("%s", self._trouble())
            await asyncio.sleep(PROBE_S)

    def _fail(self, error: HistoryLost) -> None:
        """Stop: this is another keyspace, and everything in memory is about the former one."""
        self.failure = error
        logger.critical("the server stops: %s", error)
        if self._server is not None:
            self._server.cut_off()
        self.stopped.set()

    def _metrics(self) -> Reply:
        assert self._server is not None
        out = Exposition()
        version = [({"server_version": self.engine.server.version}, 1)]
        out.family("etcd_server_version", "gauge", "The version of the etcd cluster.", version)
        server = [({"server_id": f"{self._member:x}"}, 1)]
        out.family("etcd_server_id", "gauge", "The id of this server, in hexadecimal.", server)
        well = not self._trouble()
        out.gauge("etcd_server_has_leader", "Whether it serves: the cluster answers.", well)
        self._health_page.show(out)
        what = "How long the cluster took to answer a read, in seconds."
        out.histogram("leasehold_engine_latency_seconds", what, self._probe.latency_s)
        what = "Probes that the cluster has not answered in time."
        out.counter("leasehold_engine_failures_total", what, self._probe.failures)
        what = "How long the cluster has not answered, in seconds; 0 if it does."
        out.gauge("leasehold_engine_silent_seconds", what, self._probe.silent_s)
        leases = self._leases
        prefix = "etcd_debugging_lease_"
        out.counter(f"{prefix}granted_total", "Leases granted by this server.", leases.granted)
        out.counter(f"{prefix}renewed_total", "Renewals by this server.", leases.renewed)
        out.counter(f"{prefix}revoked_total", "Leases revoked by this server.", leases.revoked)
        show_network(out, self._server)
        self._calls.show(out)
        self._services.show(out)
        show_process(out)
        return Reply(HTTPStatus.OK, METRICS_CONTENT_TYPE, out.encode())

    # Running and stopping.

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another certificate for new connections."""
        assert self._server is not None
        self._server.replace_tls(tls)

    async def close(self) -> None:
        """Accept no more calls, answer those under way, close the services, and disconnect."""
        self.health.shut_down()
        if self._server is not None:
            await self._server.stop_taking()
            await self._services.close()
            await self._server.part(STOPPED)
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await self.engine.close()
        self.is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def engine_at(place: RemoteEndpoints) -> RemoteEngine:
    """Return an engine at these endpoints, not started. Raises `OSError` or `ValueError`."""
    return RemoteEngine(lease_channel(place.endpoints, place.tls()))
