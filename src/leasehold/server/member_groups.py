"""The groups of the registrar: two methods of `leasehold.v1.Admin`.

The groups are kept in a key, which all servers of a cluster share. `announcing` announces them.
"""

import asyncio
from collections.abc import Iterable, Mapping

from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Method
from leasehold.registry.registrar_groups import MemberGroups, RegistrarGroups
from leasehold.registry.state import check_groups
from leasehold.server.administration import SERVICE
from leasehold.server.announcing import RegistrarAnnouncements
from leasehold.server.engine_services import ServiceHost
from leasehold.server.leases.service_leases import ServiceLeases
from leasehold.server.pages import Exposition
from leasehold.services.forwarding import completed, methods_of
from leasehold.wire import admin_pb2 as pb


class MemberGroupsService:
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

    def leases(self) -> Iterable[ServiceLeases]:
        """Return nothing: it grants none."""
        return ()

    def metrics(self, out: Exposition) -> None:
        """Add nothing."""

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
