"""`client.discovery_service`: registrars are found by a server, for clients that cannot do so.

    service = client.discovery_service
    registration = await service.register(["payments"], listener=print)
    await registration.registrars()

`client.find_discovery_service` is for services of other clusters (`discovery.service_lookup`).

A registration outlives its client: it ends with its lease. Any client that has the id of a
registration may use it.
"""

# ruff: noqa: ASYNC109  timeouts are passed on

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias, TypeVar

from google.protobuf.message import Message

from leasehold.basics.durations import (
    ANY,
    Duration,
    DurationLike,
    check_positive,
    from_wire_ms,
    to_wire_ms,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery_messages import KIND, groups_in, groups_message
from leasehold.discovery.locators import Locator, LocatorLike, groups_of, locators_of, names_of
from leasehold.discovery.registrar_events import MarshalledRegistrars, RegistrarEvent
from leasehold.discovery.state import NO_GROUPS, Groups
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.errors import CallRefused, NoSuchObject, UnknownLease
from leasehold.events.callback_dispatch import (
    Callbacks,
    EventRegistration,
    Listener,
    check_handback,
    target_of,
)
from leasehold.events.client import Mailbox, call_service
from leasehold.events.listeners import target_message
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease, granted_lease
from leasehold.wire import discovery_pb2 as pb

_PATH: Final = "/leasehold.v1.Discovery/"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class DiscoveryInfo:
    """The state of a registration of the discovery service."""

    id: str
    remaining: Duration
    groups: tuple[str, ...] | None
    """The wanted groups, sorted; None for all."""
    locators: tuple[Locator, ...]
    registrars: int
    """The number of registrars that are found."""
    number: int
    """The number of the last event."""
    listener: EventTarget
    undelivered: int
    last_error: str
    """The error of the last delivery; empty if it was successful."""


class RemoteDiscovery:
    """The discovery service of a server. Two references to one service are equal."""

    def __init__(
        self,
        engine: Engine,
        patience: CallTimeouts,
        callbacks: Callable[[], Callbacks],
        clock: Clock = SYSTEM_CLOCK,
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`callbacks` returns those of the client. `CallRefused`: there is no server.

        `on_close` closes the connection, if it is for this service only.
        """
        if not isinstance(engine, RemoteEngine):
            raise CallRefused(
                "the discovery service requires a server: connect to one with leasehold.connect"
            )
        self.id = f"{engine.cluster_id:016x}/discovery"
        """Identifies the service."""
        self._channel = engine.channel
        self._patience = patience
        self._callbacks = callbacks
        self._clock = clock
        self._on_close = on_close
        self._landlord = RemoteLandlord(engine.channel, clock=clock)

    async def register(
        self,
        groups: Iterable[str] | None = NO_GROUPS,
        locators: Iterable[LocatorLike] | None = None,
        *,
        listener: "RegistrarListener | Listener",
        handback: bytes = b"",
        duration: DurationLike = ANY,
        timeout: Timeout = None,
    ) -> "DiscoveryRegistration":
        """Have registrars of groups and at locators found, and reported to `listener`.

        `groups` of None stands for all groups, an empty list for none. `listener` is a function of
        this process, called with a `RegistrarEvent` while this client is open; or a mailbox, or a
        listener that any process serves. `handback` is returned with each event. The registration
        is leased for `duration`, or less if the server has a lower limit; the lease is renewed by
        its owner, such as a renewal manager or a renewal set. A mailbox has to be one of the
        cluster of this service; raises ValueError if it is not.

        Every call makes another registration. After a connection error there may be one that ends
        with its lease.
        """
        request = pb.RegisterDiscoveryRequest(
            groups=groups_message(groups_of(groups)),
            locators=map(str, locators_of(() if locators is None else locators)),
            handback=check_handback(handback),
            ttl_ms=to_wire_ms(check_positive(duration)),
        )
        if not callable(listener):
            self._check_cluster(listener)
            return await self._register(request, target_of(listener), timeout)
        callbacks, callback = self._callbacks(), listener
        target = await callbacks.target()
        with callbacks.registering():
            made = await self._register(request, target, timeout)
            key = made.lease.grantor, made.id, KIND
            callbacks.set(key, lambda event: callback(self.event(event)))
        return made

    def _check_cluster(self, listener: object) -> None:
        """Refuse a mailbox of another cluster, which this service does not find."""
        if isinstance(listener, Mailbox):
            cluster, own = (
                each.partition("/")[0] for each in (str(listener.lease.grantor), self.id)
            )
            if cluster != own:
                raise ValueError(
                    f"listener must be a mailbox of cluster {own}, that of the discovery service, "
                    f"not of cluster {cluster}"
                )

    async def _register(
        self, request: pb.RegisterDiscoveryRequest, target: EventTarget, timeout: Timeout
    ) -> "DiscoveryRegistration":
        request.listener.CopyFrom(target_message(target))
        sent_at = self._clock.boottime()
        answer = await self.call("Register", request, pb.RegisterDiscoveryResponse, timeout)
        lease = granted_lease(self._landlord, answer.grantor, answer.id, answer.ttl_ms, sent_at)
        return DiscoveryRegistration(self, lease, 0)

    async def registration(
        self,
        id: str,  # noqa: A002  the name of the attribute
        *,
        timeout: Timeout = None,
    ) -> "DiscoveryRegistration":
        """Return a registration that exists, of any client. Raises `NoSuchObject` if it ended."""
        sent_at = self._clock.boottime()
        found = await self.show(id, timeout)
        remaining = _duration(found.remaining_ms)
        lease = RemoteLease(self._landlord, found.grantor, found.id, remaining, sent_at)
        return DiscoveryRegistration(self, lease, found.number)

    async def registrations(self) -> list[DiscoveryInfo]:
        """Return the state of all registrations of the cluster, for its operator."""
        found: list[DiscoveryInfo] = []
        request = pb.ListDiscoveriesRequest()
        while True:
            page = await self.call("List", request, pb.ListDiscoveriesResponse)
            found += map(info_of, page.registrations)
            if not page.next:
                return found
            request.after = page.next

    def event(self, event: RemoteEvent) -> "RegistrarEvent[DiscoveryRegistration]":
        """Return an event of the service out of one from a mailbox or a served listener.

        Raises ValueError if it is an event of another service.
        """
        if event.service.rpartition("/")[2] != "discovery":
            raise ValueError(
                f"event must come from the discovery service, not from {event.service}"
            )
        now = self._clock.boottime()
        lease = RemoteLease(self._landlord, event.service, event.source, 0.0, now)
        return RegistrarEvent.of(DiscoveryRegistration(self, lease, event.number), event)

    async def show(self, registration: str, timeout: Timeout) -> pb.DiscoveryInfo:
        """Return the state of a registration; for `DiscoveryRegistration`."""
        request = pb.ShowDiscoveryRequest(registration=registration)
        return await self.call("Show", request, pb.DiscoveryInfo, timeout)

    async def call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        timeout: Timeout = None,
    ) -> M:
        """Make a call, which is never repeated where it may have been executed."""
        sending = call_service(self._channel, _PATH + method, request, kind)
        return await self._patience.wait(sending, timeout)

    async def close(self) -> None:
        """Close the connection, if it is for this service only. Registrations stay."""
        if self._on_close is not None:
            await self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, RemoteDiscovery) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<RemoteDiscovery {self.id}>"


class DiscoveryRegistration:
    """Registrars that a server finds on behalf of a client, until the lease ends.

    Two handles of one registration are equal. After its end, every remote call raises
    `NoSuchObject`.
    """

    __slots__ = ("_number", "_service", "id", "lease")

    def __init__(self, service: RemoteDiscovery, lease: RemoteLease, number: int) -> None:
        self._service = service
        self._number = number
        self.id = str(lease.cookie)
        """Its id, with which any client finds it again."""
        self.lease = lease
        """Its lease, for discovery and events. It is renewed by its owner, not automatically."""

    @property
    def event_registration(self) -> "EventRegistration[DiscoveryRegistration, RemoteLease]":
        """The source of the events, their kind, the lease, and the number of the last event.

        The number is that of the time at which this handle was made.
        """
        return EventRegistration(self, KIND, self.lease, self._number)

    async def registrars(self, *, timeout: Timeout = None) -> list[Registrar]:
        """Return the registrars that are found now, each once.

        Raises `LookupUnmarshalError`, which has the others, if some cannot be decoded here.
        """
        found: list[pb.FoundRegistrar] = []
        request = pb.RegistrarsRequest(registration=self.id)
        while True:
            page = await self._service.call("Registrars", request, pb.RegistrarsResponse, timeout)
            found += page.registrars
            if not page.next:
                return MarshalledRegistrars(found).registrars()
            request.after = page.next

    async def groups(self, *, timeout: Timeout = None) -> list[str] | None:
        """Return the wanted groups, sorted; None for all groups."""
        groups = groups_in((await self._service.show(self.id, timeout)).groups)
        return None if groups is None else sorted(groups)

    async def locators(self, *, timeout: Timeout = None) -> list[Locator]:
        """Return the wanted locators."""
        found = await self._service.show(self.id, timeout)
        return [Locator.parse(each) for each in found.locators]

    async def add_groups(self, groups: Iterable[str], *, timeout: Timeout = None) -> None:
        """Add wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        await self._change_groups(pb.ADD_INTEREST, names_of(groups), timeout)

    async def set_groups(self, groups: Iterable[str] | None, *, timeout: Timeout = None) -> None:
        """Replace the wanted groups; None for all, empty for none."""
        await self._change_groups(pb.SET_INTEREST, groups_of(groups), timeout)

    async def remove_groups(self, groups: Iterable[str], *, timeout: Timeout = None) -> None:
        """Remove wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        await self._change_groups(pb.REMOVE_INTEREST, names_of(groups), timeout)

    async def add_locators(
        self, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> None:
        """Add wanted locators."""
        await self._change_locators(pb.ADD_INTEREST, locators, timeout)

    async def set_locators(
        self, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> None:
        """Replace the wanted locators."""
        await self._change_locators(pb.SET_INTEREST, locators, timeout)

    async def remove_locators(
        self, locators: Iterable[LocatorLike], *, timeout: Timeout = None
    ) -> None:
        """Remove wanted locators."""
        await self._change_locators(pb.REMOVE_INTEREST, locators, timeout)

    async def discard(self, registrar: Registrar, *, timeout: Timeout = None) -> None:
        """Drop a registrar that does not work; one that is not found is ignored.

        When this returns, `registrars` does not have it. It is looked for again after a wait.
        """
        if not isinstance(registrar, Registrar):
            raise TypeError(f"registrar must be a Registrar, not {registrar!r}")
        request = pb.DiscardRequest(registration=self.id, registrar=registrar.id)
        await self._service.call("Discard", request, pb.DiscardResponse, timeout)

    async def info(self, *, timeout: Timeout = None) -> DiscoveryInfo:
        """Return the state of the registration."""
        return info_of(await self._service.show(self.id, timeout))

    async def cancel(self) -> None:
        """End the registration now. Raises `NoSuchObject` if it has ended."""
        try:
            await self.lease.cancel()
        except UnknownLease:
            raise NoSuchObject("discovery", self.id) from None

    async def _change_groups(
        self, change: "pb.InterestChange", groups: Groups, timeout: Timeout
    ) -> None:
        request = pb.ChangeGroupsRequest(
            registration=self.id, change=change, groups=groups_message(groups)
        )
        await self._service.call("ChangeGroups", request, pb.ChangeGroupsResponse, timeout)

    async def _change_locators(
        self, change: "pb.InterestChange", locators: Iterable[LocatorLike], timeout: Timeout
    ) -> None:
        request = pb.ChangeLocatorsRequest(
            registration=self.id, change=change, locators=map(str, locators_of(locators))
        )
        await self._service.call("ChangeLocators", request, pb.ChangeLocatorsResponse, timeout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DiscoveryRegistration):
            return NotImplemented
        return self.lease == other.lease

    def __hash__(self) -> int:
        return hash(self.lease)

    def __repr__(self) -> str:
        return f"<DiscoveryRegistration {self.id} of {self.lease.grantor}>"


RegistrarListener: TypeAlias = Callable[
    [RegistrarEvent[DiscoveryRegistration]], Awaitable[object] | object
]
"""A plain function or a coroutine function that receives events of the service."""


def info_of(found: pb.DiscoveryInfo) -> DiscoveryInfo:
    """Return the state of a registration out of its message."""
    groups = groups_in(found.groups)
    return DiscoveryInfo(
        found.id,
        _duration(found.remaining_ms),
        None if groups is None else tuple(sorted(groups)),
        tuple(map(Locator.parse, found.locators)),
        found.registrars,
        found.number,
        EventTarget(found.listener.endpoint, found.listener.id),
        found.undelivered,
        found.last_error,
    )


def _duration(remaining_ms: int) -> Duration:
    duration = from_wire_ms(max(-2, remaining_ms))
    return 0.0 if duration is ANY else duration
