"""`RenewalSet`: a client's handle of a set of leases that the renewal service keeps alive.

A set outlives its client: it ends with its lease, or when it is destroyed. Any client that has the
id of a set may use it.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.basics.durations import (
    FOREVER,
    WIRE_FOREVER_MS,
    Duration,
    DurationLike,
    Requested,
    to_wire_ms,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.engine.remote.remote_engine import RemoteEngine
from leasehold.engine.time_limits import CallTimeouts, Timeout
from leasehold.errors import (
    CallRefused,
    LeaseUnmarshalError,
    NoSuchObject,
    UnknownLease,
)
from leasehold.events.callback_dispatch import (
    Callbacks,
    EventRegistration,
    Key,
    Listener,
    check_handback,
    target_of,
)
from leasehold.events.client import Mailbox, call_service
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease, granted_lease
from leasehold.leases.lease import Lease, Outcome
from leasehold.renewal.arguments import desired_ms, min_warning_ms, renew_ms
from leasehold.renewal.grantors import Grantors
from leasehold.renewal.references import LeaseReference, identity_of, reference_of
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure, error_of
from leasehold.sessions.held_lease import HeldLease
from leasehold.wire import renewal_pb2 as pb
from leasehold.wire import services_pb2

_PATH: Final = "/leasehold.v1.Renewal/"
_UNKNOWN_MS: Final = -1

M = TypeVar("M", bound=Message)


class ListenerInfo(NamedTuple):
    """The listener for one kind of event of a set."""

    kind: int
    number: int
    """The number of the last event."""
    endpoint: str
    id: str
    """Empty if there is no listener."""
    undelivered: int
    last_error: str


@dataclass(frozen=True, slots=True)
class SetInfo:
    """The state of a renewal set."""

    id: str
    remaining: Duration
    members: int
    listeners: tuple[ListenerInfo, ...]
    last_error: str
    """Of the last renewal of any member that has failed; empty if there was none."""


class RenewalCalls:
    """The renewal service of the server that a client is connected to."""

    def __init__(self, engine: Engine, patience: CallTimeouts, clock: Clock = SYSTEM_CLOCK) -> None:
        """Use the connection of an engine. `CallRefused`: it is in this process, without a server.

        The calls have the timeouts of the client.
        """
        if not isinstance(engine, RemoteEngine):
            raise CallRefused(
                "renewal sets require a server: connect to one with leasehold.connect"
            )
        self.channel = engine.channel
        self._patience = patience
        self.clock = clock
        self.landlord = RemoteLandlord(engine.channel, clock=clock)
        self.grantors = Grantors(
            engine,
            renew_own=self._renew_own,
            cancel_own=self._cancel_own,
            is_client=True,
            clock=clock,
        )
        self.callbacks = Callbacks(partial(Mailbox.create, self.channel, clock=clock), clock=clock)

    async def create(self, duration: Requested, timeout: Timeout = None) -> "RenewalSet":  # noqa: ASYNC109
        """Create a set. After a connection error there may be one that ends with its lease."""
        request = pb.CreateSetRequest(ttl_ms=to_wire_ms(duration))
        sent_at = self.clock.boottime()
        answer = await self.call("CreateSet", request, pb.CreateSetResponse, timeout=timeout)
        lease = granted_lease(self.landlord, answer.grantor, answer.id, answer.ttl_ms, sent_at)
        return RenewalSet(self, lease)

    async def find(self, set_id: str, timeout: Timeout = None) -> "RenewalSet":  # noqa: ASYNC109
        """Return a handle of an existing set."""
        sent_at = self.clock.boottime()
        answer = await self.show(set_id, timeout)
        remaining = _duration(answer.remaining_ms)
        return RenewalSet(self, self.set_lease(answer.grantor, set_id, remaining, sent_at))

    async def show(self, set_id: str, timeout: Timeout) -> pb.SetInfo:  # noqa: ASYNC109
        """Return the state of a set."""
        request = pb.ShowSetRequest(set=set_id)
        return await self.call("ShowSet", request, pb.SetInfo, timeout=timeout, again=True)

    async def sets(self) -> list[SetInfo]:
        """Return the state of all sets; of one whose server did not answer, id and error."""
        found: list[SetInfo] = []
        request = pb.ListSetsRequest()
        while True:
            page = await self.call("ListSets", request, pb.ListSetsResponse, again=True)
            found += map(info_of, page.sets)
            if not page.next:
                return found
            request.after = page.next

    async def call(
        self,
        method: str,
        request: Message,
        kind: type[M],
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
        again: bool = False,
    ) -> M:
        """Make a call; only with `again` it is repeated where it may have been executed."""
        sending = call_service(self.channel, _PATH + method, request, kind, idempotent=again)
        return await self._patience.wait(sending, timeout)

    def lease_of(self, member: pb.SetMember) -> Lease:
        """Return a member of a set as a lease; ValueError if it cannot be decoded here."""
        reference = LeaseReference.decode(member.reference)
        term = _duration(member.term_ms)
        return self.grantors.lease_of(reference, _duration(member.remaining_ms), term)

    def event(self, event: RemoteEvent) -> "RenewalSetEvent":
        """Return an event of a set, such as one from a mailbox. ValueError: it is another event."""
        lease = self.set_lease(event.service, event.source, 0.0, self.clock.boottime())
        source = RenewalSet(self, lease)
        match event.kind:
            case pb.EXPIRATION_WARNING:
                return ExpirationWarning(source, event, partial(self._warned_lease, event))
            case pb.RENEWAL_FAILURE:
                return RenewalFailure(
                    source, event, partial(self._failed_lease, event), partial(_error_of, event)
                )
        raise ValueError(
            f"event kind must be 1 (expiration warning) or 2 (renewal failure), got {event.kind}"
        )

    def _warned_lease(self, event: RemoteEvent) -> Lease:
        payload = _payload(pb.WarningPayload, event)
        remaining = max(0.0, min(payload.remaining_ms, payload.end_ms - self._wall_ms()) / 1000)
        return self.set_lease(event.service, event.source, remaining, self.clock.boottime())

    def _failed_lease(self, event: RemoteEvent) -> Lease:
        payload = _payload(pb.FailurePayload, event)
        reference = LeaseReference.decode(payload.reference)
        return self.grantors.lease_of(reference, (payload.end_ms - self._wall_ms()) / 1000)

    def _wall_ms(self) -> float:
        return self.clock.wall() * 1000

    async def called_back(
        self, source: "RenewalSet", kind: int, callback: "SetCallback[Any]"
    ) -> EventTarget:
        """Return a target whose events are passed to a function of this process."""
        target = await self.callbacks.target()
        key = source.lease.grantor, source.id, kind
        self.callbacks.set(key, lambda event: callback(self.event(event)))
        return target

    def set_lease(
        self, grantor: str, set_id: str, granted: Duration, sent_at: float
    ) -> RemoteLease:
        """Return the lease of a set."""
        return RemoteLease(self.landlord, grantor, set_id, granted, sent_at)

    async def close(self) -> None:
        """Stop calling callbacks, and close the connections of leases that were returned."""
        await self.callbacks.close()
        await self.grantors.close()

    async def _renew_own(
        self, grantor: str, wants: Sequence[tuple[Hashable, Requested]], _check: object
    ) -> Sequence[Outcome]:
        now = self.clock.boottime()
        return await self.landlord.renew_all(
            [
                (RemoteLease(self.landlord, grantor, cookie, 0.0, now), requested)
                for cookie, requested in wants
            ]
        )

    async def _cancel_own(self, grantor: str, cookies: Sequence[Hashable]) -> Sequence[Outcome]:
        now = self.clock.boottime()
        leases = [RemoteLease(self.landlord, grantor, cookie, 0.0, now) for cookie in cookies]
        return await self.landlord.cancel_all(leases)


Warned: TypeAlias = ExpirationWarning["RenewalSet", Lease]
Failed: TypeAlias = RenewalFailure["RenewalSet", Lease]
RenewalSetEvent: TypeAlias = Warned | Failed

E = TypeVar("E")
SetCallback: TypeAlias = Callable[[E], Awaitable[object] | object]
"""A plain function or a coroutine function that receives events of a set."""


class RenewalSet:
    """A set of leases that the renewal service keeps alive while their holders are absent.

    Made by `client.renewal_set`. Two handles of one set are equal. After the set has ended, every
    call raises `NoSuchObject`.
    """

    __slots__ = ("_service", "id", "lease")

    def __init__(self, service: RenewalCalls, lease: RemoteLease) -> None:
        self._service = service
        self.id = str(lease.cookie)
        """Its id, with which any client finds it again."""
        self.lease = lease
        """Its lease: the set ends with it. It is renewed by its owner, not automatically."""

    async def renew_for(
        self,
        lease: HeldLease | Lease | LeaseReference,
        desired_duration: DurationLike,
        renew_duration: DurationLike = FOREVER,
        *,
        endpoints: Iterable[str] | str | None = None,
        credentials: str = "",
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> None:
        """Keep `lease` alive for `desired_duration`, requesting `renew_duration` at a time.

        A lease that is in the set gets these durations in the place of its earlier ones. With a
        desired duration of zero or less it is not kept: one that is in the set leaves it.
        `renew_duration` may be ANY only if the desired duration is FOREVER.

        `endpoints` are addresses of the grantor, for the renewal service; by default those that
        this client uses. `credentials` is the name of an entry in the configuration of the server.
        Raises ValueError for a lease that has no reference, such as one of a class of your own.
        """
        reference = reference_of(lease, endpoints=endpoints, credentials=credentials)
        request = pb.RenewForRequest(
            set=self.id,
            reference=reference.encode(),
            remaining_ms=_UNKNOWN_MS,
            desired_ms=desired_ms(desired_duration),
            renew_ms=renew_ms(renew_duration, desired_duration),
        )
        if isinstance(lease, Lease):
            request.remaining_ms = to_wire_ms(lease.remaining)
            request.term_ms = to_wire_ms(lease.term)
        await self._service.call("RenewFor", request, pb.RenewForResponse, timeout=timeout)

    async def remove(
        self,
        lease: HeldLease | Lease | LeaseReference,
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Lease | None:
        """Remove a lease, which is not cancelled; return it with its latest end.

        None if it is not in the set.
        """
        request = pb.RemoveRequest(set=self.id, reference=identity_of(lease).encode())
        answer = await self._service.call("Remove", request, pb.RemoveResponse, timeout=timeout)
        return self._service.lease_of(answer.member) if answer.HasField("member") else None

    async def leases(self, *, timeout: Timeout = None) -> list[Lease]:  # noqa: ASYNC109
        """Return all leases of the set, with their ends as last recorded.

        Raises `LeaseUnmarshalError`, which has the others, if some cannot be decoded here.
        """
        leases: list[Lease] = []
        marshalled: list[bytes] = []
        exceptions: list[BaseException] = []
        request = pb.MembersRequest(set=self.id)
        while True:
            page = await self._service.call(
                "Members", request, pb.MembersResponse, timeout=timeout, again=True
            )
            for member in page.members:
                try:
                    leases.append(self._service.lease_of(member))
                except ValueError as error:
                    marshalled.append(member.reference)
                    exceptions.append(error)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        if marshalled:
            raise LeaseUnmarshalError(leases, marshalled, exceptions)
        return leases

    async def set_warning_listener(
        self,
        listener: SetCallback[Warned] | Listener,
        min_warning: float | timedelta,
        handback: bytes = b"",
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> EventRegistration["RenewalSet", RemoteLease]:
        """Send a warning to `listener`, `min_warning` seconds before the lease of the set ends.

        `listener` is a function of this process, called with an `ExpirationWarning` while this
        client is open; or a mailbox, or a listener that any process serves. It replaces the
        listener for warnings that there was. `handback` is returned with each event.
        """
        warning_ms = min_warning_ms(min_warning)
        kind = pb.EXPIRATION_WARNING
        return await self._set_listener(listener, kind, handback, timeout, warning_ms)

    async def set_failure_listener(
        self,
        listener: SetCallback[Failed] | Listener,
        handback: bytes = b"",
        *,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> EventRegistration["RenewalSet", RemoteLease]:
        """Send an event to `listener` when a lease could not be kept alive, and has left the set.

        `listener` is as for warnings; a function is called with a `RenewalFailure`. It
        replaces the listener for failures that there was. `handback` is returned with each event.
        """
        return await self._set_listener(listener, pb.RENEWAL_FAILURE, handback, timeout)

    async def clear_warning_listener(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """Remove the listener for warnings, if there is one, and the events not yet sent to it."""
        await self._clear_listener(pb.EXPIRATION_WARNING, timeout)

    async def clear_failure_listener(self, *, timeout: Timeout = None) -> None:  # noqa: ASYNC109
        """Remove the listener for failures, if there is one, and the events not yet sent to it."""
        await self._clear_listener(pb.RENEWAL_FAILURE, timeout)

    async def _set_listener(
        self,
        listener: SetCallback[Any] | Listener,
        kind: "pb.SetEventKind",
        handback: bytes,
        timeout: Timeout,  # noqa: ASYNC109
        warning_ms: int = 0,
    ) -> EventRegistration["RenewalSet", RemoteLease]:
        check_handback(handback)
        if callable(listener):
            target = await self._service.called_back(self, kind, listener)
        else:
            target = target_of(listener)
        request = pb.SetListenerRequest(
            set=self.id,
            kind=kind,
            listener=services_pb2.ListenerTarget(endpoint=target.endpoint, id=target.id),
            handback=handback,
            min_warning_ms=warning_ms,
        )
        sent_at = self._service.clock.boottime()
        answer = await self._service.call(
            "SetListener", request, pb.SetListenerResponse, timeout=timeout
        )
        if not callable(listener):
            self._service.callbacks.clear(self._registration(kind))
        remaining = _duration(answer.remaining_ms)
        lease = self._service.set_lease(self.lease.grantor, self.id, remaining, sent_at)
        return EventRegistration(self, kind, lease, answer.number)

    async def _clear_listener(self, kind: "pb.SetEventKind", timeout: Timeout) -> None:  # noqa: ASYNC109
        request = pb.ClearListenerRequest(set=self.id, kind=kind)
        await self._service.call(
            "ClearListener", request, pb.ClearListenerResponse, timeout=timeout, again=True
        )
        self._service.callbacks.clear(self._registration(kind))

    def _registration(self, kind: int) -> Key:
        return self.lease.grantor, self.id, kind

    async def info(self, *, timeout: Timeout = None) -> SetInfo:  # noqa: ASYNC109
        """Return the state of the set."""
        return info_of(await self._service.show(self.id, timeout))

    async def destroy(self) -> None:
        """End the set now; its leases are left alone. Raises `NoSuchObject` if it has ended."""
        try:
            await self.lease.cancel()
        except UnknownLease:
            raise NoSuchObject("renewal", self.id) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing: the set lives until its lease ends."""

    def __eq__(self, other: object) -> bool:
        return self.lease == other.lease if isinstance(other, RenewalSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.lease)

    def __repr__(self) -> str:
        return f"<RenewalSet {self.id} of {self.lease.grantor}>"


def info_of(found: pb.SetInfo) -> SetInfo:
    """Return the state of a set out of its message."""
    listeners = tuple(
        ListenerInfo(
            each.kind,
            each.number,
            each.listener.endpoint,
            each.listener.id,
            each.undelivered,
            each.last_error,
        )
        for each in found.listeners
    )
    remaining = _duration(found.remaining_ms)
    return SetInfo(found.id, remaining, found.members, listeners, found.last_error)


def _payload(kind: type[M], event: RemoteEvent) -> M:
    try:
        return kind.FromString(event.payload)
    except DecodeError as error:
        raise ValueError(f"event {event.number} cannot be decoded: {error}") from None


def _error_of(event: RemoteEvent) -> Exception | None:
    return error_of(_payload(pb.FailurePayload, event))


def _duration(milliseconds: int) -> Duration:
    """Return a length of time from the wire; an end that has passed is negative."""
    return FOREVER if milliseconds == WIRE_FOREVER_MS else milliseconds / 1000
