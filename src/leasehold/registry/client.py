"""`client.registry`: services are registered, found and watched from here.

    item = service_item(types=["web"], endpoint="10.0.0.7:8080")
    registration = await client.registry.register(item, 30)
    found = await client.registry.lookup(service_template(types=["web"]), 100)

The calls go to the registrar, which every Leasehold server of a cluster is. On a bare etcd cluster,
or on an engine in this process, the client reads and writes the keys of items
(`leasehold.registry.scanning_registrar`); there are no events then, because no server sends them.
"""

# ruff: noqa: ASYNC109  timeouts are passed on

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

from google.protobuf.message import DecodeError, Message

from leasehold.basics.durations import ANY, DurationLike, check_positive, to_wire_ms
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.errors import CallRefused, Compacted, Status
from leasehold.events.callback_dispatch import (
    Callbacks,
    EventRegistration,
    Listener,
    check_handback,
    target_of,
)
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.grpc.protocol import RpcError
from leasehold.landlord.remote_landlord import RemoteLease
from leasehold.leases.lease import Lease
from leasehold.registry.codecs import (
    AttributesLike,
    all_attributes,
    attributes_of,
    check_health,
    check_several,
)
from leasehold.registry.event_registration import KIND
from leasehold.registry.item_watch import ObservedChange, decoded_item, watch_items
from leasehold.registry.messages import item_message, item_of, set_message, template_message
from leasehold.registry.remote_registrar import RemoteRegistrar
from leasehold.registry.scanning_registrar import ScanningRegistrar
from leasehold.registry.state import (
    ALL_TRANSITIONS,
    Health,
    Item,
    Template,
    Transition,
    modify_attributes,
)
from leasehold.sessions.held_lease import HeldLease, number_of
from leasehold.wire import registry_pb2 as pb
from leasehold.wire import services_pb2

MAX_RESTARTS: Final = 3
"""How often a lookup begins again because its revision was compacted between two pages."""

MAX_PASSING: Final = 1_000_000
"""The largest number of items that `passing` reads."""

M = TypeVar("M", bound=Message)


class LookupResult(NamedTuple):
    """The result of a lookup."""

    items: list[Item | None]
    """At most the requested number, sorted by id; None for one that cannot be decoded."""
    total: int
    """The number of all matches."""
    revision: int
    """The revision at which they matched."""


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """An item has begun or ceased to match a template, or has changed."""

    source: str
    """The id of the registration for events."""
    number: int
    """Rises by 1. A gap means that events were lost: look up again."""
    handback: bytes
    """The bytes that were given with the registration."""
    transition: Transition | None
    """None in a resync event."""
    id: str
    """The id of the item; empty in a resync event."""
    item: Item | None
    """Its new state; None if it is gone, or if it cannot be decoded."""

    @property
    def is_resync(self) -> bool:
        """Whether events were lost before this one: the listener has to look up again."""
        return self.transition is None


EventListener: TypeAlias = Callable[[ServiceEvent], Awaitable[object] | object]
"""A plain function or a coroutine function that receives events of the registry."""


class Registry:
    """Services that are found while they live, by their types and attributes."""

    def __init__(
        self,
        engine: Engine,
        patience: CallTimeouts,
        callbacks: Callable[[], Callbacks],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`callbacks` returns those of the client; `CallRefused` if there is no server."""
        self._engine = engine
        self._patience = patience
        self._callbacks = callbacks
        self.clock = clock
        self._registrar: RemoteRegistrar | ScanningRegistrar | None = None

    @property
    def _calls(self) -> RemoteRegistrar | ScanningRegistrar:
        if self._registrar is None:
            engine = self._engine
            if isinstance(engine, RemoteEngine) and engine.server.is_leasehold:
                self._registrar = RemoteRegistrar(engine, self._patience, self.clock)
            else:
                self._registrar = ScanningRegistrar(engine, self._patience, self.clock)
        return self._registrar

    # Registering.

    async def register(
        self,
        item: Item,
        duration: DurationLike = ANY,
        *,
        lease: HeldLease | int | None = None,
        timeout: Timeout = None,
    ) -> "Registration":
        """Register an item for `duration`, or less if the server has a lower limit.

        An item with its id is replaced, and the lease of that one ends. Without an id, an item with
        an equal descriptor is replaced and its id used, or the registrar chooses one. `lease` is an
        existing lease of this cluster: the item ends with it, and is not leased for a duration.
        Raises `UnknownLease` if that has ended.

        After a connection error the item may be registered; to register it again is safe.
        """
        if not isinstance(item, Item):
            raise TypeError(f"item must be an Item, as service_item returns it, not {item!r}")
        requested = check_positive(duration)
        if lease is not None and requested is not ANY:
            raise ValueError("duration must not be given with lease: the item ends with the lease")
        number = 0 if lease is None else number_of(lease)
        request = pb.RegisterRequest(
            item=item_message(item), ttl_ms=to_wire_ms(requested), lease=number
        )
        item_of(request.item)  # raises what the registrar would refuse
        sent_at = self.clock.boottime()
        answer = await self._calls.call(
            "Register", request, pb.RegisterResponse, timeout, known={"lease": number}
        )
        own = self._calls.lease(
            answer.grantor, answer.cookie, 0 if number else answer.ttl_ms, sent_at
        )
        given = lease if isinstance(lease, HeldLease) else None
        return Registration(self, answer.id, answer.registration, own, given if number else own)

    async def change(
        self, item_id: str, registration: str, change: Mapping[str, Any], timeout: Timeout
    ) -> None:
        """Change an item; for `Registration`."""
        request = pb.ChangeRequest(id=item_id, registration=registration, **change)
        known = {"lease": f"{item_id}.{registration}"}
        await self._calls.call("Change", request, pb.ChangeResponse, timeout, known=known)

    # Looking up.

    @overload
    async def lookup(
        self, template: Template, *, stale: bool = False, timeout: Timeout = None
    ) -> Item | None: ...
    @overload
    async def lookup(
        self, template: Template, max: int, *, stale: bool = False, timeout: Timeout = None
    ) -> LookupResult: ...

    async def lookup(
        self,
        template: Template,
        max: int | None = None,  # noqa: A002
        *,
        stale: bool = False,
        timeout: Timeout = None,
    ) -> Item | LookupResult | None:
        """Return one matching item at random, or None; with `max`, at most so many, and the total.

        Every registration that was answered before this call counts, at any server; with `stale`
        only those that the server has received, which costs less. A `max` of 0 returns the total
        only. `timeout` is for each page of an answer.
        """
        request = pb.LookupRequest(template=_message_of(template), stale=stale)
        if max is None:
            return await self._one(request, timeout)
        if isinstance(max, bool) or not isinstance(max, int):
            raise TypeError(f"max must be an int, not {max!r}")
        if max < 0:
            raise ValueError(f"max must not be negative, got {max}")
        if max >= 2**63:
            raise ValueError(f"max must be below 2**63, got {max}")
        return await self._pages(request, max, timeout)

    async def passing(self, template: Template, *, timeout: Timeout = None) -> list[Item]:
        """Return all matching items whose health is PASSING and that can be decoded."""
        request = pb.LookupRequest(template=_message_of(template), passing=True)
        found = await self._pages(request, MAX_PASSING, timeout)
        return [item for item in found.items if item is not None]

    async def one_passing(self, template: Template, *, timeout: Timeout = None) -> Item | None:
        """Return one of these, chosen at random by the server, or None."""
        request = pb.LookupRequest(template=_message_of(template), passing=True)
        return await self._one(request, timeout)

    async def _one(self, request: pb.LookupRequest, timeout: Timeout) -> Item | None:
        request.one = True
        answer = await self._calls.call("Lookup", request, pb.LookupResponse, timeout)
        return decoded_item(answer.items[0]) if answer.items else None

    async def _pages(self, request: pb.LookupRequest, limit: int, timeout: Timeout) -> LookupResult:
        for attempt in range(MAX_RESTARTS):
            try:
                return await self._pages_once(request, limit, timeout)
            except Compacted:
                if attempt == MAX_RESTARTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def _pages_once(
        self, request: pb.LookupRequest, limit: int, timeout: Timeout
    ) -> LookupResult:
        request.after, request.revision, request.limit = "", 0, limit
        items: list[Item | None] = []
        while True:
            page = await self._calls.call("Lookup", request, pb.LookupResponse, timeout)
            items += map(decoded_item, page.items)
            if not request.after:
                total = page.total
            if not page.next or len(items) >= limit:
                return LookupResult(items[:limit], total, page.revision)
            request.after, request.revision = page.next, page.revision
            request.limit = limit - len(items)

    def watch(self, template: Template) -> AsyncGenerator[ObservedChange, None]:
        """Iterate over the matching items, and then over their changes.

        It continues after a lost connection: changes in between are found by comparing. Several
        changes of one item may be one then.
        """
        _message_of(template)
        return self.watched(template, passing=False)

    def watched(self, template: Template, *, passing: bool) -> AsyncGenerator[ObservedChange, None]:
        """Like `watch`; with `passing`, an item whose health is not PASSING does not match."""
        return watch_items(
            lambda: self._calls.updates(template, passing=passing), template, passing
        )

    # Browsing.

    async def types(
        self, template: Template, prefix: str = "", *, timeout: Timeout = None
    ) -> list[str]:
        """Return the most specific types of the matching items, sorted.

        Types of the template and their bases are left out, and names without the prefix.
        """
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, not {prefix!r}")
        request = pb.BrowseRequest(template=_message_of(template), prefix=prefix)
        request.subject = pb.BrowseRequest.TYPES
        return await self._browse(request, timeout)

    async def attribute_kinds(self, template: Template, *, timeout: Timeout = None) -> list[str]:
        """Return the kinds of the attribute sets that match none of the template's, sorted."""
        request = pb.BrowseRequest(template=_message_of(template))
        request.subject = pb.BrowseRequest.ATTRIBUTE_KINDS
        return await self._browse(request, timeout)

    async def field_values(
        self, template: Template, index: int, field: str, *, timeout: Timeout = None
    ) -> list[Any]:
        """Return the distinct values of a field of the matching items.

        `index` is that of an attribute set of the template: only sets that match it count. Raises
        IndexError if there is no such set, and AttributeError if no matching set has the field.
        """
        message = _message_of(template)
        if not isinstance(field, str):
            raise TypeError(f"field must be a str, not {field!r}")
        if not isinstance(index, int):
            raise TypeError(f"index must be an int, not {index!r}")
        if not 0 <= index < len(template.attributes):
            raise IndexError(
                "index must be below the number of attribute sets of the template, "
                f"{len(template.attributes)}, got {index}"
            )
        request = pb.BrowseRequest(template=message, index=index, field=field)
        request.subject = pb.BrowseRequest.FIELD_VALUES
        try:
            found = await self._browse(request, timeout)
        except CallRefused as error:
            cause = error.__cause__
            if isinstance(cause, RpcError) and cause.status is Status.NOT_FOUND:
                raise AttributeError(cause.message) from None
            raise
        return [json.loads(text) for text in found]

    async def _browse(self, request: pb.BrowseRequest, timeout: Timeout) -> list[str]:
        answer = await self._calls.call("Browse", request, pb.BrowseResponse, timeout)
        return list(answer.found)

    # Events.

    async def notify(
        self,
        template: Template,
        transitions: Transition | Iterable[Transition],
        listener: EventListener | Listener,
        handback: bytes = b"",
        duration: DurationLike = ANY,
        *,
        timeout: Timeout = None,
    ) -> EventRegistration[str, RemoteLease]:
        """Send an event to `listener` for each transition of an item, as long as the lease lasts.

        `listener` is a function of this process, called with a `ServiceEvent` while this client is
        open; or a mailbox, or a listener that any process serves. `handback` is returned with each
        event. The lease is renewed by its owner, such as a renewal manager.
        """
        wanted = _transitions(transitions)
        request = pb.RequestEventsRequest(
            template=_message_of(template),
            transitions=wanted,
            handback=check_handback(handback),
            ttl_ms=to_wire_ms(check_positive(duration)),
        )
        if callable(listener):
            return await self._call_back(request, listener, timeout)
        return await self._request_events(request, target_of(listener), timeout)

    async def _call_back(
        self, request: pb.RequestEventsRequest, listener: EventListener, timeout: Timeout
    ) -> EventRegistration[str, RemoteLease]:
        callbacks = self._callbacks()
        target = await callbacks.target()
        with callbacks.registering():
            made = await self._request_events(request, target, timeout)
            key = made.lease.grantor, made.source, made.kind
            callbacks.set(key, lambda event: listener(self.event(event)))
        return made

    async def _request_events(
        self, request: pb.RequestEventsRequest, target: EventTarget, timeout: Timeout
    ) -> EventRegistration[str, RemoteLease]:
        if isinstance(self._calls, ScanningRegistrar):
            raise CallRefused(
                "events of the registry require a Leasehold server: use `watch` on an etcd cluster"
            )
        request.listener.CopyFrom(
            services_pb2.ListenerTarget(endpoint=target.endpoint, id=target.id)
        )
        sent_at = self.clock.boottime()
        answer = await self._calls.call("Notify", request, pb.RequestEventsResponse, timeout)
        lease = self._calls.lease(answer.grantor, answer.id, answer.ttl_ms, sent_at)
        return EventRegistration(answer.id, KIND, lease, answer.number)

    def event(self, event: RemoteEvent) -> ServiceEvent:
        """Return an event of the registry out of one from a mailbox or a served listener.

        Raises ValueError if it is an event of another service.
        """
        if event.service.rpartition("/")[2] != "registry":
            raise ValueError(f"event must come from the registry, not from {event.service}")
        try:
            payload = pb.ItemEvent.FromString(event.payload)
        except DecodeError as error:
            raise ValueError(f"event {event.number} cannot be decoded: {error}") from None
        found = Transition(payload.transition) if payload.transition else None
        item = decoded_item(payload.item) if payload.item else None
        return ServiceEvent(event.source, event.number, event.handback, found, payload.id, item)

    async def close(self) -> None:
        """Stop work in the background; for the client."""
        if self._registrar is not None:
            await self._registrar.close()


class Registration:
    """An item that is registered, until its lease ends.

    After that, or when the item was registered again, every change raises `UnknownLease`.
    """

    __slots__ = ("_own", "_registration", "_registry", "id", "lease")

    def __init__(
        self, registry: Registry, item_id: str, registration: str, own: Lease, lease: Lease | None
    ) -> None:
        self._registry = registry
        self._registration = registration
        self._own = own
        self.id = item_id
        """The id of the item."""
        self.lease = lease
        """The lease that the item ends with. None if that was given by its number."""

    async def add_attributes(
        self, attributes: Iterable[AttributesLike], *, timeout: Timeout = None
    ) -> None:
        """Add attribute sets; those that the item has are not added again."""
        await self._change({"add": pb.AttributeSets(sets=_sets(attributes))}, timeout)

    async def set_attributes(
        self, attributes: Iterable[AttributesLike], *, timeout: Timeout = None
    ) -> None:
        """Replace all attribute sets."""
        await self._change({"set": pb.AttributeSets(sets=_sets(attributes))}, timeout)

    async def modify_attributes(
        self,
        templates: Sequence[AttributesLike],
        updates: Sequence[AttributesLike | None],
        *,
        timeout: Timeout = None,
    ) -> None:
        """Update the attribute sets that match templates, each with the update of its template.

        All templates are compared with the sets as they were before. Fields that an update lacks
        stay as they are; an update of None deletes the sets. Raises ValueError if the lengths
        differ, or if an update is neither of the kind of its template nor of a base of it.
        """
        wanted = [attributes_of(each) for each in check_several(templates, "templates")]
        given = check_several(updates, "updates")
        new = [None if each is None else attributes_of(each) for each in given]
        modify_attributes(Item(""), wanted, new)  # raises what the registrar would refuse
        message = pb.AttributeUpdates(
            updates=[
                pb.AttributeUpdate(
                    template=set_message(template),
                    update=None if update is None else set_message(update),
                )
                for template, update in zip(wanted, new, strict=True)
            ]
        )
        await self._change({"modify": message}, timeout)

    async def set_health(self, health: Health, *, timeout: Timeout = None) -> None:
        """Set the health of the service: only PASSING ones are found for use."""
        await self._change({"health": check_health(health).name}, timeout)

    async def cancel(self) -> None:
        """Remove the item now. A lease that was given with it stays. Raises `UnknownLease`."""
        await self._own.cancel()

    async def _change(self, change: Mapping[str, Any], timeout: Timeout) -> None:
        await self._registry.change(self.id, self._registration, change, timeout)

    def __repr__(self) -> str:
        return f"<Registration of item {self.id}>"


def _sets(attributes: Iterable[AttributesLike]) -> list[pb.AttributeSet]:
    return list(map(set_message, all_attributes(attributes)))


def _message_of(template: Template) -> pb.ItemTemplate:
    if not isinstance(template, Template):
        raise TypeError(
            f"template must be a Template, as service_template returns it, not {template!r}"
        )
    return template_message(template)


def _transitions(transitions: Transition | Iterable[Transition]) -> Transition:
    given: Any = [transitions] if isinstance(transitions, Transition) else transitions
    if not isinstance(given, Iterable) or not all(isinstance(each, int) for each in given):
        raise TypeError(f"transitions must be a Transition or a set of them, not {given!r}")
    chosen = reduce(or_, map(Transition, given), Transition(0))
    if not chosen or int(chosen) & ~int(ALL_TRANSITIONS):
        raise ValueError(f"transitions must be one or more of Transition, got {transitions!r}")
    return chosen
