"""`Admin`: administration of a server's own services, by a client."""

# ruff: noqa: ASYNC109  timeouts are passed on

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from google.protobuf.message import Message

from leasehold.admin.config import bound_ms, locator_texts
from leasehold.basics.durations import Duration, DurationLike, from_wire_ms
from leasehold.discovery.discovery_messages import groups_in, groups_message
from leasehold.discovery.locators import Locator, LocatorLike, locators_of, names_of
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.errors import CallFailed, CallRefused
from leasehold.events.client import call_service
from leasehold.registry.codecs import AttributesLike, attributes_of
from leasehold.registry.messages import set_message, sets_of
from leasehold.registry.registrar_groups import MemberGroups
from leasehold.registry.state import AttributeSet
from leasehold.wire import admin_pb2 as pb
from leasehold.wire import registry_pb2
from leasehold.wire.admin_pb2 import ChangeServiceRequest as Change

_PATH: Final = "/leasehold.v1.Admin/"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class AdministeredService:
    """A service of a server, and its configuration."""

    name: str
    """Such as `registrar` or `renewal`."""
    id: str
    """Of its item in the registry."""
    type: str
    groups: tuple[str, ...] | None
    """The groups whose registrars it joins, sorted; None for all groups."""
    locators: tuple[Locator, ...]
    """The locators of registrars that it joins."""
    attributes: tuple[AttributeSet, ...]
    lease_bound: Duration
    """The longest term of the leases that it grants."""
    is_default_bound: bool
    """Whether the bound is that of the server's settings."""


class Admin:
    """The configuration of the services of a server, such as `registrar` and `renewal`.

    It is stored, and holds for all servers of the cluster. Each call that changes the configuration
    of a service returns all of it. `ValueError`, or `CallRefused` by the server: an argument is not
    valid, and nothing was changed.
    """

    def __init__(self, engine: Engine, patience: CallTimeouts) -> None:
        self._engine = engine
        self._patience = patience

    async def services(self, *, timeout: Timeout = None) -> list[AdministeredService]:
        """Return all services."""
        return await self._show("", timeout)

    async def service(self, name: str, *, timeout: Timeout = None) -> AdministeredService:
        """Return one service."""
        if not name:
            raise ValueError("name of a service must not be empty")
        (service,) = await self._show(name, timeout)
        return service

    # Groups and locators that a service joins.

    async def add_groups(
        self, service: str, groups: Iterable[str], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Have a service join the registrars of further groups.

        Raises `UnsupportedOperation` if it joins all groups.
        """
        message = groups_message(names_of(groups))
        return await self._change(Change(service=service, operation="ADD", groups=message), timeout)

    async def set_groups(
        self, service: str, groups: Iterable[str] | None, *, timeout: Timeout = None
    ) -> AdministeredService:
        """Replace the groups whose registrars a service joins; None for all, empty for none."""
        message = groups_message(groups)
        return await self._change(Change(service=service, operation="SET", groups=message), timeout)

    async def remove_groups(
        self, service: str, groups: Iterable[str], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Have a service leave the registrars of groups.

        Raises `UnsupportedOperation` if it joins all groups.
        """
        message = groups_message(names_of(groups))
        return await self._change(
            Change(service=service, operation="REMOVE", groups=message), timeout
        )

    async def add_locators(
        self, service: str, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Have a service join the registrars at further locators."""
        message = pb.JoinedLocators(locators=locator_texts(locators))
        return await self._change(
            Change(service=service, operation="ADD", locators=message), timeout
        )

    async def set_locators(
        self, service: str, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Replace the locators of registrars that a service joins."""
        message = pb.JoinedLocators(locators=locator_texts(locators))
        return await self._change(
            Change(service=service, operation="SET", locators=message), timeout
        )

    async def remove_locators(
        self, service: str, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Have a service leave the registrars at locators."""
        message = pb.JoinedLocators(locators=locator_texts(locators))
        return await self._change(
            Change(service=service, operation="REMOVE", locators=message), timeout
        )

    # Attributes of a service.

    async def add_attributes(
        self, service: str, attributes: Iterable[AttributesLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Add attribute sets to the item of a service, at all registrars."""
        return await self._change(
            Change(service=service, operation="ADD", attributes=_sets(attributes)), timeout
        )

    async def set_attributes(
        self, service: str, attributes: Iterable[AttributesLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Replace all attribute sets of the item of a service, at all registrars."""
        return await self._change(
            Change(service=service, operation="SET", attributes=_sets(attributes)), timeout
        )

    async def remove_attributes(
        self, service: str, templates: Iterable[AttributesLike], *, timeout: Timeout = None
    ) -> AdministeredService:
        """Remove the attribute sets that match one of the templates, at all registrars."""
        sets = _sets(templates)
        return await self._change(
            Change(service=service, operation="REMOVE", attributes=sets), timeout
        )

    # Leases.

    async def set_lease_bound(
        self, service: str, bound: DurationLike | None, *, timeout: Timeout = None
    ) -> AdministeredService:
        """Set the longest term of the leases that a service grants from now on.

        None restores the bound of the server's settings. Leases that are longer already keep their
        ends.
        """
        return await self._change(Change(service=service, lease_bound_ms=bound_ms(bound)), timeout)

    # Groups of the registrar itself.

    async def member_groups(self, *, timeout: Timeout = None) -> MemberGroups:
        """Return the groups that the registrar is a member of, by which clients find it."""
        answer = await self._call(
            "MemberGroups", pb.MemberGroupsRequest(), pb.MemberGroupsResponse, timeout
        )
        return MemberGroups(tuple(answer.groups), answer.groups_number)

    async def add_member_groups(
        self, groups: Iterable[str], *, timeout: Timeout = None
    ) -> MemberGroups:
        """Add the registrar to groups, and return all its groups."""
        return await self._change_members("ADD", groups, timeout)

    async def set_member_groups(
        self, groups: Iterable[str], *, timeout: Timeout = None
    ) -> MemberGroups:
        """Replace the groups of the registrar, and return them."""
        return await self._change_members("SET", groups, timeout)

    async def remove_member_groups(
        self, groups: Iterable[str], *, timeout: Timeout = None
    ) -> MemberGroups:
        """Remove the registrar from groups, and return the remaining ones."""
        return await self._change_members("REMOVE", groups, timeout)

    # Calls.

    async def _show(self, service: str, timeout: Timeout) -> list[AdministeredService]:
        request = pb.ShowServicesRequest(service=service)
        answer = await self._call("Show", request, pb.ShowServicesResponse, timeout)
        return [_service_of(each) for each in answer.services]

    async def _change(self, request: Change, timeout: Timeout) -> AdministeredService:
        return _service_of(await self._call("Change", request, pb.AdministeredService, timeout))

    async def _change_members(
        self,
        change: str,
        groups: Iterable[str],
        timeout: Timeout,
    ) -> MemberGroups:
        request = pb.ChangeMemberGroupsRequest(change=change, groups=names_of(groups))
        answer = await self._call("ChangeMemberGroups", request, pb.MemberGroupsResponse, timeout)
        return MemberGroups(tuple(answer.groups), answer.groups_number)

    async def _call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        timeout: Timeout,
    ) -> M:
        engine = self._engine
        if not isinstance(engine, RemoteEngine) or not engine.server.is_leasehold:
            raise CallRefused(
                "administration requires a Leasehold server: connect to one with leasehold.connect"
            )
        is_read = method in {"Show", "MemberGroups"}
        sending = call_service(engine.channel, _PATH + method, request, kind, idempotent=is_read)
        return await self._patience.wait(sending, timeout)


def _sets(attributes: Iterable[AttributesLike]) -> registry_pb2.AttributeSets:
    message = registry_pb2.AttributeSets(
        sets=[set_message(attributes_of(each)) for each in attributes]
    )
    sets_of(message.sets)  # raises as the server would
    return message


def _service_of(message: pb.AdministeredService) -> AdministeredService:
    try:
        groups = groups_in(message.groups)
        return AdministeredService(
            message.service,
            message.id,
            message.type,
            None if groups is None else tuple(sorted(groups)),
            locators_of(message.locators),
            sets_of(message.attributes),
            cast("Duration", from_wire_ms(message.lease_bound_ms)),
            message.is_default_bound,
        )
    except ValueError as error:
        raise CallFailed(f"invalid answer from the server: {error}") from error
