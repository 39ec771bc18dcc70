"""The registry on the wire: `leasehold.v1.Registry`.

Any server of a cluster executes any call. The leases of items, and of registrations for events, are
renewed and cancelled with `leasehold.v1.Leases`, all in one batch.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import WIRE_FOREVER_MS, Requested, from_wire_ms, to_wire_ms
from leasehold.errors import Status
from leasehold.events.listeners import CallbackPolicy, target_of
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.error_details import REFUSED
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Method
from leasehold.leases.lease import Outcome
from leasehold.registry.event_registration import EventRequest, transitions_of
from leasehold.registry.index import STEP
from leasehold.registry.item_events import ItemEvents
from leasehold.registry.messages import browsed, change_of, check_item_id, item_of, template_of
from leasehold.registry.own_services import registrar_id
from leasehold.registry.service import Page, RegistryService
from leasehold.registry.state import Template
from leasehold.registry.storage import ItemStorage, cookie_of, is_item_cookie
from leasehold.registry.watch_streams import ItemWatches
from leasehold.services.forwarding import Forwarder, Handler, methods_of
from leasehold.services.record_leases import RecordLeases
from leasehold.wire import registry_pb2 as pb

SERVICE: Final = "leasehold.v1.Registry"

MAX_FOUND: Final = 100_000
"""Names or values in one answer to `Browse`."""


class RegistryLeases:
    """The leases of items and of registrations for events, which have one grantor."""

    def __init__(self, storage: ItemStorage, records: RecordLeases) -> None:
        self._storage = storage
        self._records = records

    @property
    def grantor(self) -> str:
        """The name of the grantor."""
        return self._records.grantor

    async def renew_all(
        self,
        wants: Sequence[tuple[Hashable, Requested]],
        check: Callable[[Hashable], object] = ignore,
    ) -> Sequence[Outcome]:
        """Renew each lease for the requested term, or end it for 0.0; return the outcomes."""
        outcomes: list[Outcome] = [0.0] * len(wants)
        is_item = [is_item_cookie(cookie) for cookie, _ in wants]

        async def renew(grantor: ItemStorage | RecordLeases, *, of_items: bool) -> None:
            places = [place for place, each in enumerate(is_item) if each is of_items]
            if places:
                found = await grantor.renew_all([wants[place] for place in places], check)
                for place, outcome in zip(places, found, strict=True):
                    outcomes[place] = outcome

        await asyncio.gather(
            renew(self._storage, of_items=True), renew(self._records, of_items=False)
        )
        return outcomes


class RegistryRpc:
    """The methods of `leasehold.v1.Registry`."""

    def __init__(
        self,
        service: RegistryService,
        events: ItemEvents,
        forwarder: Forwarder,
        callbacks: CallbackPolicy,
        endpoints: Callable[[], Sequence[str]],
    ) -> None:
        """`endpoints` returns where the servers of the cluster are reached."""
        self._service = service
        self._events = events
        self._grantor = events.records.grantor
        self._forwarder = forwarder
        self._callbacks = callbacks
        self._endpoints = endpoints
        self.watches = ItemWatches(service)

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        calls = self._forwarder
        handlers: dict[str, Handler] = {
            "Describe": self.describe,
            "Register": calls.to_end(self.register),
            "Lookup": self.lookup,
            "Change": calls.to_end(self.change),
            "Browse": self.browse,
            "Notify": calls.anywhere(calls.to_end(self.notify)),
        }
        return {**methods_of(SERVICE, handlers), f"/{SERVICE}/Watch": self.watches.method()}

    async def describe(self, message: bytes, _context: CallContext) -> bytes:
        """Return the registrar's id, groups and endpoints."""
        parse(pb.DescribeRequest.FromString, message)
        groups = await self._service.registrar.get()
        cluster = self._service.storage.engine.cluster_id
        return pb.RegistrarInfo(
            id=registrar_id(cluster),
            groups=groups.names,
            groups_number=groups.number,
            endpoints=self._endpoints(),
            cluster=f"{cluster:016x}",
        ).SerializeToString()

    async def register(self, message: bytes, _context: CallContext) -> bytes:
        """Register an item."""
        request = parse(pb.RegisterRequest.FromString, message)
        if not request.HasField("item"):
            raise ValueError("item must be given")
        if request.lease < 0:
            raise ValueError(f"lease must be the id of a lease, or 0, got {request.lease}")
        item = item_of(request.item)
        requested = 0.0 if request.lease else requested_of(request.ttl_ms)
        version = await self._service.register(item, requested, request.lease)
        ttl_s = version.ttl_s
        return pb.RegisterResponse(
            id=version.item.id,
            registration=version.registration,
            ttl_ms=to_wire_ms(self._service.storage.term_of(ttl_s)) if ttl_s else 0,
            grantor=self._grantor,
            cookie=cookie_of(version),
        ).SerializeToString()

    async def lookup(self, message: bytes, _context: CallContext) -> bytes:
        """Return items that match a template."""
        request = parse(pb.LookupRequest.FromString, message)
        template = _template_of(request)
        if request.one:
            page = await self._service.one(template, passing=request.passing, stale=request.stale)
        elif request.after:
            page = await self._service.further(
                template, request.limit, request.after, request.revision, passing=request.passing
            )
        else:
            page = await self._service.lookup(
                template, request.limit, passing=request.passing, stale=request.stale
            )
        return _page_message(page)

    async def change(self, message: bytes, _context: CallContext) -> bytes:
        """Change the attributes or the health of an item."""
        request = parse(pb.ChangeRequest.FromString, message)
        change = change_of(request)
        self._service.feed.begin()
        cookie = f"{check_item_id(request.id)}.{request.registration}"
        await self._service.storage.change(cookie, change)
        return pb.ChangeResponse().SerializeToString()

    async def notify(self, message: bytes, context: CallContext) -> bytes:
        """Register a listener for the changes of items that match a template."""
        request = parse(pb.RequestEventsRequest.FromString, message)
        template, requested = _template_of(request), requested_of(request.ttl_ms)
        if not request.HasField("listener") or not request.listener.id:
            raise ValueError("listener must have an id")
        target = self._callbacks.check(
            target_of(request.listener), self._forwarder.client_address(context)
        )
        transitions = transitions_of(request.transitions)
        asked = EventRequest(template, transitions, target, request.handback)
        registration, granted = await self._events.notify(asked, requested)
        return pb.RequestEventsResponse(
            id=registration, ttl_ms=to_wire_ms(granted), grantor=self._grantor
        ).SerializeToString()

    async def browse(self, message: bytes, _context: CallContext) -> bytes:
        """Return types, attribute kinds or field values of the items that match a template."""
        request = parse(pb.BrowseRequest.FromString, message)
        template = _template_of(request)
        try:
            found = await self._browse(request, template)
        except IndexError as error:
            raise RpcError(Status.OUT_OF_RANGE, str(error), detail=REFUSED) from None
        except AttributeError as error:
            raise RpcError(Status.NOT_FOUND, str(error), detail=REFUSED) from None
        if len(found) > MAX_FOUND:
            raise ValueError(
                f"{len(found):,} names or values are too many for one answer, at most "
                f"{MAX_FOUND:,}: use a narrower template"
            )
        return pb.BrowseResponse(found=sorted(found)).SerializeToString()

    async def _browse(self, request: pb.BrowseRequest, template: Template) -> set[str]:
        """Browse the matching items in slices; the result is the union over the items."""
        versions = await self._service.matching(template)
        found = set(browsed(request, [], template))
        missing: AttributeError | None = None
        slicer = self._service.slicer()
        for first in range(0, len(versions), STEP):
            items = [version.item for version in versions[first : first + STEP]]
            try:
                found.update(browsed(request, items, template))
            except AttributeError as error:  # others may have the field
                missing = error
            await slicer.pause()
        if missing is not None and not found:
            raise missing
        return found


def _template_of(
    request: pb.LookupRequest | pb.BrowseRequest | pb.WatchItemsRequest | pb.RequestEventsRequest,
) -> Template:
    if not request.HasField("template"):
        raise ValueError("template must be given; an empty one matches everything")
    return template_of(request.template)


def requested_of(ttl_ms: int) -> Requested:
    """Return the requested term of a message; ValueError if it is none."""
    if ttl_ms == 0 or ttl_ms < WIRE_FOREVER_MS:
        raise ValueError(f"ttl_ms must be at least 1, or -1 (any) or -2 (no end), got {ttl_ms}")
    return from_wire_ms(ttl_ms)


def _page_message(page: Page) -> bytes:
    return pb.LookupResponse(
        items=page.items, total=page.total, revision=page.revision, next=page.next
    ).SerializeToString()
