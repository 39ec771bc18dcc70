"""Announcements of the registrar on the network.

Each server of a cluster announces its own endpoints, and every change of the groups by any of them,
for which it watches their key. A registrar whose groups were never set is not announced; one whose
groups were set to none is. A server that listens on loopback only cannot announce anything, and
does not watch the key while there are no groups.
"""

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING, Final

from leasehold.basics.addresses import is_local
from leasehold.basics.backoff import Backoff, exponential
from leasehold.registry.own_services import registrar_id
from leasehold.registry.registrar_groups import REGISTRAR_KEY, MemberGroups, RegistrarGroups
from leasehold.server.engine_services import ServiceHost

if TYPE_CHECKING:
    from leasehold.discovery.announcements import Announcer

logger = logging.getLogger(__name__)

RETRIES: Final = exponential(0.5, 30.0)


class RegistrarAnnouncements:
    """Announces the registrar from its first groups on, until the server stops."""

    def __init__(self, host: ServiceHost, registrar: RegistrarGroups) -> None:
        self._host = host
        self._registrar = registrar
        self._announcer: Announcer | None = None
        self._following: asyncio.Task[None] | None = None

    def begin(self, groups: MemberGroups) -> None:
        """Follow the groups, if there may be something to announce; else do nothing."""
        if self._following is None and (groups.number or self._is_reachable()):
            self._following = asyncio.get_running_loop().create_task(self._follow())

    def _is_reachable(self) -> bool:
        """Return whether other machines can reach the server."""
        advertise = self._host.settings.advertise
        addresses = self._host.bound if advertise is None else (advertise,)
        return not all(map(is_local, addresses))

    async def _follow(self) -> None:
        """Announce the groups, and each change of them by any server."""
        backoff = Backoff(RETRIES, Random())  # noqa: S311  spreads retries
        announced, is_made = 0, False
        while True:
            try:
                async with self._host.engine.watch(REGISTRAR_KEY) as watch:
                    while True:
                        number = (await self._registrar.get()).number
                        if number and not is_made:
                            self._announcer, is_made = self._made(), True
                        if number != announced and self._announcer is not None:
                            await self._announcer.announce(number)
                        announced = number
                        backoff.reset()
                        await anext(watch)
            except Exception as error:  # noqa: BLE001  also of the multicast DNS library
                logger.warning("the groups of the registrar cannot be announced: %r", error)
                await asyncio.sleep(backoff.next_s())

    def _made(self) -> "Announcer | None":
        host = self._host
        try:
            # It is optional, and takes a while to import.
            from leasehold.discovery.announcements import (  # noqa: PLC0415
                Announcer,
                announced_endpoints,
            )
        except ImportError:
            logger.error(
                "the registrar is not announced: the package zeroconf is missing; install "
                "leasehold[discovery]"
            )
            return None
        endpoints = announced_endpoints(host.bound, host.settings.advertise, is_tls=host.is_tls)
        if not endpoints:
            logger.warning("the registrar is not announced: the server listens on loopback only")
            return None
        logger.info("the registrar is announced at %s", ", ".join(endpoints))
        ttl_s = host.settings.services.announcement_ttl_s
        return Announcer(registrar_id(host.engine.cluster_id), endpoints, ttl_s)

    async def close(self) -> None:
        """Send a goodbye."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._announcer is not None:
            try:
                await self._announcer.close()
            except Exception as error:  # noqa: BLE001  the server stops in any case
                logger.warning("the end of the registrar cannot be announced: %r", error)
