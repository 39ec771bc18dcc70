"""The groups of the registrar: two methods of `leasehold.v1.Admin`, and its announcements.

The groups are kept in a key, which all servers of a cluster share. Each server announces its own
endpoints on the network, and every change of the groups by any of them, for which it watches the
key. A registrar whose groups were never set is not announced; one whose groups were set to none is.
A server that listens on loopback only cannot announce anything, and does not watch the key while
there are no groups.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from leasehold.basics.addresses import is_local
from leasehold.basics.backoff import Backoff, exponential
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Method
from leasehold.registry.own_services import registrar_id
from leasehold.registry.registrar_groups import REGISTRAR_KEY, MemberGroups, RegistrarGroups
from leasehold.registry.state import check_groups
from leasehold.server.administration import SERVICE
from leasehold.server.engine_services import EngineService, ServiceHost
from leasehold.services.forwarding import completed, methods_of
from leasehold.wire import admin_pb2 as pb

if TYPE_CHECKING:
    from leasehold.discovery.announcements import Announcer

logger = logging.getLogger(__name__)

RETRIES: Final = exponential(0.5, 30.0)


class MemberGroupsService(EngineService):
    """Returns and changes the groups of the registrar, and has it announced."""

    def __init__(self, host: ServiceHost) -> None:
        self._of_settings = host.settings.services.groups
        self._registrar = RegistrarGroups(host.engine)
        self._announcements = RegistrarAnnouncements(host, self._registrar)
        self._running: set[asyncio.Task[bytes]] = set()

    def methods(self) -> Mapping[str, Method]:
        """The methods, by path."""
        handlers = {"MemberGroups": self._get, "ChangeMemberGroups": self._change}
        return methods_of(SERVICE, handlers)

    async def start(self) -> None:
        """Set the groups of the settings, and announce the registrar if groups were ever set."""
        if self._of_settings:
            await self._registrar.set(self._of_settings)
        self._announcements.begin(await self._registrar.get())

    async def _get(self, message: bytes, _context: CallContext) -> bytes:
        parse(pb.MemberGroupsRequest.FromString, message)
        return _encoded(await self._registrar.get())

    async def _change(self, message: bytes, _context: CallContext) -> bytes:
        request = parse(pb.ChangeMemberGroupsRequest.FromString, message)
        check_groups(request.groups)
        if request.change not in pb.ChangeMemberGroupsRequest.Change.values():
            raise ValueError(f"change must be ADD, SET or REMOVE, got {request.change}")
        return await completed(self._changed(request), self._running)

    async def _changed(self, request: pb.ChangeMemberGroupsRequest) -> bytes:
        given = set(request.groups)

        def change(groups: tuple[str, ...]) -> Iterable[str]:
            match request.change:
                case pb.ChangeMemberGroupsRequest.ADD:
                    return given.union(groups)
                case pb.ChangeMemberGroupsRequest.REMOVE:
                    return set(groups) - given
            return given

        groups = await self._registrar.update(change)
        self._announcements.begin(groups)
        return _encoded(groups)

    async def close(self) -> None:
        """Withdraw the announcement."""
        await self._announcements.close()


def _encoded(groups: MemberGroups) -> bytes:
    return pb.MemberGroupsResponse(
        groups=groups.names, groups_number=groups.number
    ).SerializeToString()


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
