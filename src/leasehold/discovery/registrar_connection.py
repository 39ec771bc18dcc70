"""`ConnectedRegistrar`: the connection of a join to one registrar.

A join uses it, and what it registers there, through the protocols below, which simulations
implement as well.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, Self

from leasehold.basics.durations import DurationLike
from leasehold.discovery.announced import Registrar
from leasehold.engine.remote.remote_engine import RemoteEngine, lease_channel
from leasehold.engine.time_limits import CallTimeouts
from leasehold.errors import CallRefused, ClusterMismatch
from leasehold.events.callback_dispatch import Callbacks
from leasehold.leases.lease import Lease
from leasehold.registry.client import Registry
from leasehold.registry.codecs import AttributesLike
from leasehold.registry.state import Health, Item

CALL_S: Final = 5.0
"""The timeout of connecting, and of each call."""


class JoinedRegistration(Protocol):
    """A registration: `registry.client.Registration`, or that of a simulation."""

    id: str
    lease: Lease | None

    async def add_attributes(self, attributes: Iterable[AttributesLike]) -> None: ...
    async def set_attributes(self, attributes: Iterable[AttributesLike]) -> None: ...
    async def modify_attributes(
        self, templates: Sequence[AttributesLike], updates: Sequence[AttributesLike | None]
    ) -> None: ...
    async def set_health(self, health: Health) -> None: ...
    async def cancel(self) -> None: ...


class RegistrarConnection(Protocol):
    """A connection to a registrar: `ConnectedRegistrar`, or that of a simulation."""

    async def register(self, item: Item, duration: DurationLike) -> JoinedRegistration: ...
    async def close(self) -> None: ...


class ConnectedRegistrar:
    """A connection to a registrar, which is not used for anything else."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._registry = Registry(engine, CallTimeouts(engine, CALL_S), _no_callbacks)

    @classmethod
    async def open(cls, registrar: Registrar, tls: ssl.SSLContext | None) -> Self:
        """Connect to any endpoint of a registrar. Raises `ClusterMismatch` if it is another one."""
        engine = RemoteEngine(lease_channel(registrar.endpoints, tls))
        try:
            async with asyncio.timeout(CALL_S):
                await engine.start()
            if registrar.cluster not in ("", f"{engine.cluster_id:016x}"):
                places = (registrar.endpoints[0], str(engine.address))
                clusters = (int(registrar.cluster, 16), engine.cluster_id)
                raise ClusterMismatch(places, clusters)
        except BaseException:
            await engine.close()
            raise
        return cls(engine)

    async def register(self, item: Item, duration: DurationLike) -> JoinedRegistration:
        """Register a service."""
        return await self._registry.register(item, duration)

    async def close(self) -> None:
        """Disconnect."""
        await self._engine.close()


def _no_callbacks() -> Callbacks:
    raise CallRefused(
        "the connection of a Join sends no events of the registry: use `Client.registry`"
    )
