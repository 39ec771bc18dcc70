"""Services that run on an `Engine`, in both forms of the server.

A server makes its services once it has an engine, serves their methods, starts them when it serves,
and closes them before the engine stops. Services are started in order and closed in reverse order:
a service may use those before it.
"""

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from leasehold.basics.addresses import Address
from leasehold.engine.interface import Engine
from leasehold.errors import LeaseholdError
from leasehold.grpc.routes import Method
from leasehold.server.etcd.cluster import client_urls
from leasehold.server.leases.service_leases import ServiceLeases
from leasehold.server.pages import Exposition
from leasehold.server.settings import Settings

logger = logging.getLogger(__name__)

CLOSE_S: Final = 5
"""How long closing waits for each service."""


@dataclass(slots=True)
class ServiceHost:
    """The parts of a server that its services use."""

    engine: Engine
    settings: Settings
    address: str = ""
    """Where other servers reach this one: as set, or the first address that is listened on."""
    bound: Sequence[Address] = ()
    """The addresses that the server listens on."""
    is_tls: bool = False
    peer_tls: ssl.SSLContext | None = None
    """For calls to other servers; None without TLS."""

    def listens_on(self, bound: Sequence[Address], *, is_tls: bool) -> None:
        """Set the addresses of the server, before its services are started."""
        self.bound, self.is_tls = bound, is_tls
        advertise = self.settings.advertise
        if advertise is None:
            self.address = client_urls(bound[:1], is_tls=is_tls)[0]
        else:
            self.address = str(advertise)


class EngineService(ABC):
    """A service on an engine. By default it has no methods, no leases and no metrics."""

    def methods(self) -> Mapping[str, Method]:
        """The methods, by path."""
        return {}

    def leases(self) -> Iterable[ServiceLeases]:
        """The leases that it grants."""
        return ()

    @abstractmethod
    async def start(self) -> None:
        """Begin to work. The server serves already; calls of the service may come earlier."""

    @abstractmethod
    async def close(self) -> None:
        """Stop. The engine still answers."""

    def metrics(self, out: Exposition) -> None:  # noqa: B027  there may be none
        """Add the metrics of the service to a scrape."""


MakeServices = Callable[[ServiceHost], Sequence[EngineService]]


class EngineServices:
    """The services of one server."""

    def __init__(self, services: Sequence[EngineService]) -> None:
        self._services = tuple(services)
        self._started: list[EngineService] = []
        self.grantors: dict[str, ServiceLeases] = {}
        """The leases of all services, by grantor."""
        for service in self._services:
            for leases in service.leases():
                if leases.grantor in self.grantors:
                    raise ValueError(f"two services have the grantor {leases.grantor!r}")
                self.grantors[leases.grantor] = leases

    def methods(self) -> dict[str, Method]:
        """The methods of all services, by path."""
        return {path: method for each in self._services for path, method in each.methods().items()}

    async def start(self) -> None:
        """Start all services in order."""
        for service in self._services:
            self._started.append(service)  # also one that fails half-way is closed
            await service.start()

    async def close(self) -> None:
        """Close those that were started, the last one first. Failures are logged."""
        while self._started:
            service = self._started.pop()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await service.close()
            except (LeaseholdError, TimeoutError) as error:
                why = str(error) or f"it has taken more than {CLOSE_S:g} s"
                logger.error("%s was not closed cleanly: %s", type(service).__name__, why)
            except Exception:
                logger.exception("%s was not closed cleanly", type(service).__name__)

    def show(self, out: Exposition) -> None:
        """Add the metrics of all services to a scrape."""
        for service in self._services:
            service.metrics(out)
