"""The server, put together: journal, store, committer, services, one port."""

import asyncio
import gc
import logging
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, Self

from leasehold.engine.committer import SWITCH_INTERVAL_S
from leasehold.engine.runtime import Runtime
from leasehold.errors import LeaseholdError
from leasehold.rpc.addresses import Address, TcpAddress
from leasehold.rpc.gate import Gate
from leasehold.rpc.health import SERVER, Health, ServingStatus
from leasehold.rpc.limits import Limits
from leasehold.rpc.pages import Pages
from leasehold.rpc.reflection import Reflection, services_of
from leasehold.rpc.routes import Method, Methods
from leasehold.rpc.serving import Server
from leasehold.server.etcd.alarms import Alarms
from leasehold.server.etcd.auth import Auth
from leasehold.server.etcd.cluster import Cluster, client_urls
from leasehold.server.etcd.desk import STOPPED, TOO_MANY, Desk
from leasehold.server.etcd.election import Election
from leasehold.server.etcd.kv import KV
from leasehold.server.etcd.lease import Lease
from leasehold.server.etcd.lock import Lock
from leasehold.server.etcd.maintenance import Maintenance
from leasehold.server.etcd.watch import Watch
from leasehold.server.gateway.access import WebAccess
from leasehold.server.gateway.gateway import Gateway
from leasehold.server.health_page import HealthPage
from leasehold.server.leases.service import Leases
from leasehold.server.metrics.calls import Calls
from leasehold.server.metrics.page import Metrics
from leasehold.server.settings import Settings
from leasehold.wire.pool import POOL

logger = logging.getLogger(__name__)

DRAIN_S: Final = 10.0
"""How long closing waits for the disk."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Rarely: almost nothing here is in cycles, and a collection is a pause."""


class Service(Protocol):
    """Some methods that belong together."""

    def methods(self) -> dict[str, Method]:
        """The methods, by path."""
        ...


class LeaseholdServer:
    """One process, one data directory, one port.

    Opening reads the journal, which takes as long as it is long. `start` needs an event loop.
    """

    def __init__(self, settings: Settings | Path, *, vfs: str | None = None) -> None:
        """Open the directory; a path alone stands for settings that say nothing else."""
        if not isinstance(settings, Settings):
            settings = Settings(directory=settings)
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        """Set when the server is to end. If it cannot go on, `failure` says why."""
        self._is_started = False
        self.is_closed = False
        """Whether it has ended in good order, with a clean journal."""
        self.runtime = Runtime(
            settings.directory,
            quota_bytes=settings.quota_bytes,
            compaction=settings.compaction,
            keys_per_lease=settings.keys_per_lease,
            vfs=vfs,
        )
        self.store = self.runtime.store
        self.health = Health()
        self._gate = Gate(TOO_MANY)
        self.runtime.waiting.on_durable = self._gate.release
        self.runtime.on_failure = self._fail
        methods = self._methods(settings)
        health = HealthPage(
            self._alarms,
            lambda: self.failure,
            lambda: self.runtime.outstanding_s,
            settings.unhealthy_after_s,
        )
        pages: Pages = {"/metrics": lambda: self._metrics.page()}  # noqa: PLW0108
        self._access = WebAccess(settings.cors, settings.host_whitelist)
        called_as_json = methods if settings.has_gateway else None
        self._server = Server(
            methods,
            web=Gateway(called_as_json, POOL, pages, health.page, self._access),
            gate=self._gate,
            enter=self.store.leases.enter,
            limits=Limits(max_streams=settings.max_streams),
        )
        calls = Calls(methods, POOL)
        self._metrics = Metrics(self.runtime, self._gate, self._server, calls, health)

    def _methods(self, settings: Settings) -> Methods:
        desk = self._desk = Desk(self.runtime, self._gate, self.runtime.journal.identity)
        self._alarms, self._cluster = Alarms(desk), Cluster(desk)
        etcd: dict[str, Method] = {}
        services: tuple[Service, ...] = (
            KV(desk),
            Lease(desk, settings.min_ttl_s),
            Watch(desk),
            Lock(desk),
            Election(desk),
            self._cluster,
            Maintenance(desk, self._alarms),
            Auth(desk),
            Leases(desk, settings.policies),
        )
        for service in services:
            etcd.update(service.methods())
        for name in (SERVER, *services_of(etcd)):
            self.health.set(name, ServingStatus.SERVING)
        described = {**etcd, **self.health.methods()}
        return {**described, **Reflection(POOL, services_of(described)).methods()}

    async def start(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which the system chooses for 0."""
        bound, *_ = await self.start_on([TcpAddress(host, port)])
        assert isinstance(bound, TcpAddress)
        return bound.port

    async def start_on(
        self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None
    ) -> list[Address]:
        """Begin to serve on several addresses, all with TLS or none; return what was bound."""
        await self._server.bind(addresses, tls)
        bound = self._server.addresses
        self._cluster.client_urls = client_urls(bound, is_tls=tls is not None)
        self._access.listens_on(addresses, bound, is_tls=tls is not None)
        if not self._is_started:
            self._is_started = True
            self.runtime.start()
        return await self._server.start()

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another certificate for the next connections."""
        self._server.replace_tls(tls)

    async def leave(self) -> None:
        """Be out of reach, with all connections cut, until `start` is called again.

        Keys are kept, and leases run on.
        """
        await self._server.leave()

    def hang_up(self) -> None:
        """Cut all connections. Whoever comes again is let in."""
        self._server.hang_up()

    async def close(self) -> None:
        """Take no more calls, write what is left, answer it, and leave a clean journal.

        Whoever has not taken its answers after a while goes without, and a disk that has not
        taken the rest after `DRAIN_S` is left to the next start.
        """
        self.health.shut_down()
        await self._server.stop_taking()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.runtime.stop()
        except TimeoutError:
            logger.error("the disk has not taken the last changes within %g s", DRAIN_S)
            self._server.cut_off()
            return
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
    """Make this process a server: for programs that do nothing else, once they have started."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # what start-up made is not garbage, and need not be looked at, now or later
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
