"""The discovery services that a client uses: that of its server, and others from the registry.

The services of a cluster are items of the registries that they have joined, with the type
`leasehold.DiscoveryService`. One of another cluster gets a connection of its own, which is closed
with the service, or with the client.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.discovery.client import RemoteDiscovery
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts
from leasehold.errors import CallRefused, NoSuchObject
from leasehold.events.callback_dispatch import Callbacks
from leasehold.events.client import Mailbox
from leasehold.grpc.channel import Channel
from leasehold.registry.client import Registry
from leasehold.registry.codecs import service_template
from leasehold.registry.own_services import DISCOVERY, SERVICES, service_id
from leasehold.registry.state import Item


class DiscoveryServices:
    """The discovery services of a client."""

    def __init__(
        self,
        engine: Engine,
        patience: CallTimeouts,
        registry: Registry,
        callbacks: Callable[[], Callbacks],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._engine = engine
        self._patience = patience
        self._registry = registry
        self._callbacks = callbacks
        self._clock = clock
        self._own: RemoteDiscovery | None = None
        self._others: dict[RemoteEngine, Callable[[], Awaitable[None]]] = {}
        """Connections to services of other clusters, and the functions that close them."""

    def own(self) -> RemoteDiscovery:
        """Return the service of the connected server. `CallRefused`: there is no server."""
        self._patience.check()
        if self._own is None:
            self._own = RemoteDiscovery(self._engine, self._patience, self._callbacks, self._clock)
        return self._own

    async def find(self, service: str | None) -> RemoteDiscovery:
        """Return the service with this id; without one, the server's own one or any other.

        `NoSuchObject`: the registry has no such service. `CallRefused`: it has no usable endpoint.
        """
        self._patience.check()
        own = service_id(self._engine.cluster_id, DISCOVERY)
        any_service = service_template(types=[SERVICES[DISCOVERY]])
        found = await self._registry.lookup(replace(any_service, id=service or own))
        if found is None and service is None:
            found = await self._registry.lookup(any_service)
        if found is None:
            raise NoSuchObject("registry", service or SERVICES[DISCOVERY])
        is_served = isinstance(self._engine, RemoteEngine) and self._engine.server.is_leasehold
        return self.own() if found.id == own and is_served else await self._connect(found)

    async def _connect(self, item: Item) -> RemoteDiscovery:
        like = self._engine.channel if isinstance(self._engine, RemoteEngine) else None
        try:
            channel = Channel(item.endpoint, tls=None if like is None else like.tls)
        except ValueError as error:
            raise CallRefused(f"discovery service {item.id} cannot be called: {error}") from None
        engine = RemoteEngine(channel, clock=self._clock)
        patience = CallTimeouts(engine, self._patience.timeout_s)
        create = partial(Mailbox.create, channel, clock=self._clock)
        callbacks = Callbacks(create, clock=self._clock)

        async def close() -> None:
            self._others.pop(engine, None)
            try:
                await callbacks.close()
            finally:
                await engine.close()
                patience.close()

        try:
            await patience.wait(engine.start(), None)
        except BaseException:
            await close()
            raise
        self._others[engine] = close
        return RemoteDiscovery(engine, patience, lambda: callbacks, self._clock, on_close=close)

    async def close(self) -> None:
        """Close the connections to other services."""
        for close in list(self._others.values()):
            await close()
