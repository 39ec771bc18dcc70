"""The services of a server at other registrars: `ServiceJoins`.

A service joins the registrars of the groups, and at the locators, of its configuration
(`admin.config`), with the id and the attributes that it has in its own registrar. That one is never
joined: it has the service without a registration.

All servers of a cluster follow the configuration, and one joins for a service: the owner of the
shard of the service's id. Two would replace each other's registrations repeatedly. A server
that has lost the shard leaves its registrations as they are, and the next owner replaces them: for
other clients the service does not disappear. A server that stops cancels them.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from leasehold.admin.config import ServiceConfig
from leasehold.basics.backoff import Backoff, exponential
from leasehold.errors import LeaseholdError
from leasehold.registry.item_feed import IndexChange, ItemFeed
from leasehold.registry.own_services import SERVICES, registrar_id, service_id
from leasehold.registry.state import Item
from leasehold.server.engine_services import ServiceHost
from leasehold.services.shards import ShardOwnership, Shards

if TYPE_CHECKING:
    from leasehold.discovery.join import Join

logger = logging.getLogger(__name__)

RETRIES: Final = exponential(0.5, 30.0)

MakeJoin = Callable[[ServiceHost, Item], "Join"]


def make_join(host: ServiceHost, item: Item) -> "Join":
    """Return the join of a service, which has neither groups nor locators yet."""
    # It takes a while to import, and few servers need it.
    from leasehold.discovery.join import Join  # noqa: PLC0415

    return Join(item, excluded={registrar_id(host.engine.cluster_id)}, tls=host.peer_tls)


class ServiceJoins:
    """The joins of all services of a server. A `ShardListener`."""

    def __init__(
        self, host: ServiceHost, shards: Shards, feed: ItemFeed, make: MakeJoin = make_join
    ) -> None:
        self._shards = shards
        cluster = host.engine.cluster_id
        self._services: Mapping[str, _ServiceJoin] = {
            service: _ServiceJoin(service, service_id(cluster, service), host, shards, feed, make)
            for service in SERVICES
        }
        feed.listeners.append(self._changed)

    @property
    def registrations(self) -> int:
        """How many registrations this server has at other registrars, of all services."""
        return sum(each.registrations for each in self._services.values())

    def configure(self, service: str, config: ServiceConfig) -> None:
        """Use a configuration of a service from now on."""
        self._services[service].configure(config)

    def _changed(self, change: IndexChange) -> None:
        for each in self._services.values():
            if each.item_id == change.id:
                each.adapt()

    async def shard_gained(self, ownership: ShardOwnership) -> None:
        """Join for the services of a shard."""
        for each in self._services.values():
            if self._shards.shard_of(each.item_id) == ownership.number:
                each.adapt()

    def shard_lost(self, ownership: ShardOwnership) -> None:
        """Leave the services of a shard to its next owner."""
        for each in self._services.values():
            if self._shards.shard_of(each.item_id) == ownership.number:
                each.lost()

    async def close(self) -> None:
        """Cancel all registrations."""
        await asyncio.gather(*[each.close() for each in self._services.values()])


class _ServiceJoin:
    """The join of one service, if this server has one."""

    def __init__(
        self,
        service: str,
        item_id: str,
        host: ServiceHost,
        shards: Shards,
        feed: ItemFeed,
        make: MakeJoin,
    ) -> None:
        self.item_id = item_id
        self._service = service
        self._host = host
        self._shards = shards
        self._feed = feed
        self._make = make
        self._config = ServiceConfig()
        self._join: Join | None = None
        self._running: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._aborting: set[asyncio.Task[None]] = set()
        self._is_zeroconf_missing = False

    @property
    def registrations(self) -> int:
        """At how many registrars this server has registered the service."""
        return 0 if self._join is None else len(self._join.registrars())

    def configure(self, config: ServiceConfig) -> None:
        """Use a configuration from now on."""
        self._config = config
        self.adapt()

    def adapt(self) -> None:
        """Bring the join up to date soon: with the settings, the shard and the attributes."""
        self._news.set()
        if self._running is None and self._config.is_joining:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def lost(self) -> None:
        """Stop, and cancel nothing: another server joins for the service."""
        join, self._join = self._join, None
        if join is not None:
            task = asyncio.get_running_loop().create_task(join.abort())
            self._aborting.add(task)
            task.add_done_callback(self._aborting.discard)

    async def _run(self) -> None:
        backoff = Backoff(RETRIES, Random())  # noqa: S311  spreads retries
        while True:
            self._news.clear()
            try:
                await self._bring_up_to_date()
            except (LeaseholdError, OSError) as error:
                logger.warning("service %s does not join registrars yet: %s", self._service, error)
            except Exception:
                logger.exception("service %s does not join registrars yet", self._service)
            else:
                backoff.reset()
                await self._news.wait()
                continue
            await asyncio.sleep(backoff.next_s())

    @property
    def _is_wanted(self) -> bool:
        is_owner = self._shards.owned(self._shards.shard_of(self.item_id)) is not None
        return is_owner and self._config.is_joining

    async def _bring_up_to_date(self) -> None:
        if self._is_wanted:
            await self._feed.ready()
        version = self._feed.index.get(self.item_id)
        if not self._is_wanted or version is None:  # also if that has changed meanwhile
            join, self._join = self._join, None
            if join is not None:
                await join.close()
            return
        if self._join is None:
            self._join = self._make(self._host, version.item)
        elif self._join.item.attributes != version.item.attributes:
            self._join.set_attributes(version.item.attributes)
        self._discover(self._join)

    def _discover(self, join: "Join") -> None:
        discovery, config = join.discovery, self._config
        discovery.set_locators(config.locators)
        try:
            discovery.set_groups(config.groups)
        except ImportError:
            if not self._is_zeroconf_missing:
                self._is_zeroconf_missing = True
                logger.error(
                    "service %s joins no groups, only locators: the package zeroconf is missing; "
                    "install leasehold[discovery]",
                    self._service,
                )

    async def close(self) -> None:
        """Cancel all registrations."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        join, self._join = self._join, None
        if join is not None:
            await join.close()
        if self._aborting:
            await asyncio.wait(self._aborting)
