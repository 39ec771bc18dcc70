"""The discovery service on the wire: `leasehold.v1.Discovery`.

A call for a registration of another server is passed on to that server (`services.forwarding`). The
lease of a registration is renewed and cancelled with `leasehold.v1.Leases`, like every lease of a
service.
"""

from collections.abc import Iterable
from typing import Any, Final

from leasehold.basics.durations import check_positive, from_wire_ms, to_wire_ms
from leasehold.discovery.discovery_messages import found_message, groups_in, groups_message
from leasehold.discovery.live_registration import Interests, LiveRegistration, StoredListener
from leasehold.discovery.locators import InterestChange, groups_of, locators_of
from leasehold.discovery.service import DiscoveryService
from leasehold.events.listeners import CallbackPolicy, target_message, target_of
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Method
from leasehold.services.forwarding import Forwarder, RequestHandler, methods_of
from leasehold.wire import discovery_pb2 as pb

SERVICE: Final = "leasehold.v1.Discovery"

REGISTRARS_PER_PAGE: Final = 1_000
BYTES_PER_PAGE: Final = 1024 * 1024
LISTED_PER_PAGE: Final = 1_000

_CHANGES: Final = {
    pb.ADD_INTEREST: InterestChange.ADD,
    pb.SET_INTEREST: InterestChange.SET,
    pb.REMOVE_INTEREST: InterestChange.REMOVE,
}


class DiscoveryRpc:
    """The methods of `leasehold.v1.Discovery`."""

    def __init__(
        self, service: DiscoveryService, forwarder: Forwarder, callbacks: CallbackPolicy
    ) -> None:
        self._service = service
        self._forwarder = forwarder
        self._callbacks = callbacks

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        on_registrations: dict[str, tuple[type[Any], RequestHandler]] = {
            "Show": (pb.ShowDiscoveryRequest, self.show),
            "Registrars": (pb.RegistrarsRequest, self.registrars),
            "ChangeGroups": (pb.ChangeGroupsRequest, self.change_groups),
            "ChangeLocators": (pb.ChangeLocatorsRequest, self.change_locators),
            "Discard": (pb.DiscardRequest, self.discard),
        }
        calls = self._forwarder
        handlers = {
            name: calls.at_owner(kind, "registration", calls.to_end(handler))
            for name, (kind, handler) in on_registrations.items()
        }
        handlers["Register"] = calls.anywhere(calls.to_end(self.register))
        handlers["List"] = self.list_all
        return methods_of(SERVICE, handlers)

    async def register(self, message: bytes, context: CallContext) -> bytes:
        """Make a registration."""
        request = parse(pb.RegisterDiscoveryRequest.FromString, message)
        requested = check_positive(from_wire_ms(request.ttl_ms), "ttl_ms")
        if not request.HasField("listener") or not request.listener.id:
            raise ValueError("listener must have an id")
        target = self._callbacks.check(
            target_of(request.listener), self._forwarder.client_address(context)
        )
        interests = Interests(
            groups_of(groups_in(request.groups)), locators_of(list(request.locators))
        )
        listener = StoredListener(target, request.handback)
        registration, granted = await self._service.register(interests, listener, requested)
        return pb.RegisterDiscoveryResponse(
            id=registration, ttl_ms=to_wire_ms(granted), grantor=self._service.records.grantor
        ).SerializeToString()

    async def show(self, request: pb.ShowDiscoveryRequest, _context: CallContext) -> bytes:
        """Return the state of a registration."""
        return self._info(self._service.find(request.registration)).SerializeToString()

    def _info(self, live: LiveRegistration) -> pb.DiscoveryInfo:
        return pb.DiscoveryInfo(
            id=live.record.id,
            remaining_ms=to_wire_ms(live.record.remaining),
            grantor=self._service.records.grantor,
            groups=groups_message(live.interests.groups),
            locators=map(str, live.interests.locators),
            registrars=len(live.interests.found),
            number=live.queue.number,
            listener=target_message(live.listener.target),
            undelivered=len(live.queue),
            last_error=live.queue.last_error,
        )

    async def registrars(self, request: pb.RegistrarsRequest, _context: CallContext) -> bytes:
        """Return a page of the registrars of a registration, in the order of their ids."""
        live = self._service.find(request.registration)
        answer, size_bytes = pb.RegistrarsResponse(), 0
        found = sorted(self._service.registrars_of(live), key=lambda each: each.id)
        for registrar in found:
            if registrar.id <= request.after:
                continue
            is_large = size_bytes > BYTES_PER_PAGE
            if len(answer.registrars) >= REGISTRARS_PER_PAGE or is_large:
                answer.next = answer.registrars[-1].id
                break
            answer.registrars.append(found_message(registrar))
            size_bytes += answer.registrars[-1].ByteSize()
        return answer.SerializeToString()

    async def change_groups(self, request: pb.ChangeGroupsRequest, _context: CallContext) -> bytes:
        """Change the wanted groups of a registration."""
        change, groups = _change_of(request.change), groups_of(groups_in(request.groups))
        if groups is None and change is not InterestChange.SET:
            raise ValueError("all groups can only be set, neither added nor removed")
        await self._service.change_groups(request.registration, change, groups)
        return pb.ChangeGroupsResponse().SerializeToString()

    async def change_locators(
        self, request: pb.ChangeLocatorsRequest, _context: CallContext
    ) -> bytes:
        """Change the wanted locators of a registration."""
        locators = locators_of(list(request.locators))
        change = _change_of(request.change)
        await self._service.change_locators(request.registration, change, locators)
        return pb.ChangeLocatorsResponse().SerializeToString()

    async def discard(self, request: pb.DiscardRequest, _context: CallContext) -> bytes:
        """Drop a registrar from a registration."""
        if not request.registrar:
            raise ValueError("registrar must not be empty: give the id of a registrar")
        await self._service.discard(request.registration, request.registrar)
        return pb.DiscardResponse().SerializeToString()

    async def list_all(self, message: bytes, context: CallContext) -> bytes:
        """Return a page of the registrations of all servers, in the order of their ids."""
        request = parse(pb.ListDiscoveriesRequest.FromString, message)
        self._forwarder.check_operator(context, "registrations of the discovery service")
        own = (
            self._info(record.state)
            for record in self._service.records
            if record.id > request.after and record.state is not None
        )

        def others(answer: bytes) -> Iterable[pb.DiscoveryInfo]:
            return pb.ListDiscoveriesResponse.FromString(answer).registrations

        found = await self._forwarder.listed(message, context, own, others)
        page = pb.ListDiscoveriesResponse()
        size_bytes = 0
        for info in found:
            size_bytes += info.ByteSize()
            is_large = size_bytes > BYTES_PER_PAGE and page.registrations
            if len(page.registrations) >= LISTED_PER_PAGE or is_large:
                page.next = page.registrations[-1].id
                break
            page.registrations.append(info)
        return page.SerializeToString()


def _change_of(change: "pb.InterestChange") -> InterestChange:
    if change not in _CHANGES:
        raise ValueError(
            f"change must be ADD_INTEREST, SET_INTEREST or REMOVE_INTEREST, got {change}"
        )
    return _CHANGES[change]
