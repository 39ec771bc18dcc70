"""The renewal service on the wire: `leasehold.v1.Renewal`.

A call for a set of another server is passed on to that server (`services.forwarding`). The lease of
a set is renewed and cancelled with `leasehold.v1.Leases`, like every lease of a service.
"""

from typing import Any, Final

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    WIRE_ANY_MS,
    WIRE_FOREVER_MS,
    Duration,
    Requested,
    from_wire_ms,
    to_wire_ms,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.events.listeners import CallbackPolicy, target_message, target_of
from leasehold.events.state import EventQueue
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Method
from leasehold.renewal.live_set import LiveSet
from leasehold.renewal.service import RenewalService
from leasehold.renewal.state import Member, SetEvent
from leasehold.renewal.stored import to_ms
from leasehold.services.forwarding import Forwarder, RequestHandler, methods_of
from leasehold.wire import renewal_pb2 as pb

SERVICE: Final = "leasehold.v1.Renewal"

MEMBERS_PER_PAGE: Final = 1_000
MEMBER_BYTES_PER_PAGE: Final = 1024 * 1024
SETS_PER_PAGE: Final = 1_000


class RenewalRpc:
    """The methods of `leasehold.v1.Renewal`."""

    def __init__(
        self,
        service: RenewalService,
        forwarder: Forwarder,
        callbacks: CallbackPolicy,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._service = service
        self._forwarder = forwarder
        self._callbacks = callbacks
        self._clock = clock

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        on_sets: dict[str, tuple[type[Any], RequestHandler]] = {
            "ShowSet": (pb.ShowSetRequest, self.show_set),
            "RenewFor": (pb.RenewForRequest, self.renew_for),
            "Remove": (pb.RemoveRequest, self.remove),
            "Members": (pb.MembersRequest, self.members),
            "SetListener": (pb.SetListenerRequest, self.set_listener),
            "ClearListener": (pb.ClearListenerRequest, self.clear_listener),
        }
        calls = self._forwarder
        handlers = {
            name: calls.at_owner(kind, "set", calls.to_end(handler))
            for name, (kind, handler) in on_sets.items()
        }
        handlers["CreateSet"] = calls.anywhere(calls.to_end(self.create_set))
        handlers["ListSets"] = self.list_sets
        return methods_of(SERVICE, handlers)

    async def create_set(self, message: bytes, _context: CallContext) -> bytes:
        """Create a set."""
        request = parse(pb.CreateSetRequest.FromString, message)
        requested = _requested_of(request.ttl_ms, "ttl_ms")
        set_id, granted = await self._service.create_set(requested)
        return pb.CreateSetResponse(
            id=set_id, ttl_ms=to_wire_ms(granted), grantor=self._service.records.grantor
        ).SerializeToString()

    async def show_set(self, request: pb.ShowSetRequest, _context: CallContext) -> bytes:
        """Return the state of a set."""
        return self._info(self._service.find(request.set)).SerializeToString()

    def _info(self, live: LiveSet) -> pb.SetInfo:
        return pb.SetInfo(
            id=live.record.id,
            remaining_ms=to_ms(live.record.remaining_s),
            members=len(live.state.members),
            listeners=map(_listener_info, live.queues.values()),
            last_error=live.last_error,
            grantor=self._service.records.grantor,
        )

    async def renew_for(self, request: pb.RenewForRequest, _context: CallContext) -> bytes:
        """Add a lease to a set."""
        await self._service.renew_for(
            request.set,
            request.reference,
            _remaining_of(request.remaining_ms),
            _duration_of_ms(request.term_ms) if request.term_ms else None,
            _desired_of(request.desired_ms),
            _requested_of(request.renew_ms, "renew_ms"),
        )
        return pb.RenewForResponse().SerializeToString()

    async def remove(self, request: pb.RemoveRequest, _context: CallContext) -> bytes:
        """Remove a lease from a set."""
        member = await self._service.remove(request.set, request.reference)
        answer = pb.RemoveResponse()
        if member is not None:
            answer.member.CopyFrom(self._member(member))
        return answer.SerializeToString()

    async def members(self, request: pb.MembersRequest, _context: CallContext) -> bytes:
        """Return some members of a set, in the order in which they were added."""
        after = int.from_bytes(request.page_token)
        answer = pb.MembersResponse()
        size_bytes = 0
        for member in self._service.members_after(request.set, after, MEMBERS_PER_PAGE + 1):
            if len(answer.members) >= MEMBERS_PER_PAGE or size_bytes > MEMBER_BYTES_PER_PAGE:
                answer.next_page_token = after.to_bytes(8)
                break
            answer.members.append(self._member(member))
            size_bytes += len(member.reference)
            after = member.order
        return answer.SerializeToString()

    def _member(self, member: Member) -> pb.SetMember:
        return pb.SetMember(
            reference=member.reference,
            remaining_ms=to_ms(max(0.0, member.end - self._clock.wall())),
            term_ms=to_ms(member.term_s),
        )

    async def set_listener(self, request: pb.SetListenerRequest, context: CallContext) -> bytes:
        """Set the listener for a kind of event."""
        kind = _kind_of(request.kind)
        if not request.HasField("listener") or not request.listener.id:
            raise ValueError("listener must have an id; use ClearListener to remove the listener")
        if request.min_warning_ms < 0:
            raise ValueError(f"min_warning_ms must be at least 0, got {request.min_warning_ms}")
        target = target_of(request.listener)
        target = self._callbacks.check(target, self._forwarder.client_address(context))
        number = await self._service.set_listener(
            request.set, kind, target, request.handback, request.min_warning_ms / 1000.0
        )
        remaining_s = self._service.find(request.set).record.remaining_s
        return pb.SetListenerResponse(
            number=number, remaining_ms=to_ms(remaining_s)
        ).SerializeToString()

    async def clear_listener(
        self, request: pb.ClearListenerRequest, _context: CallContext
    ) -> bytes:
        """Remove the listener for a kind of event."""
        await self._service.clear_listener(request.set, _kind_of(request.kind))
        return pb.ClearListenerResponse().SerializeToString()

    async def list_sets(self, message: bytes, context: CallContext) -> bytes:
        """Return a page of the sets of all servers, in the order of their ids."""
        request = parse(pb.ListSetsRequest.FromString, message)
        self._forwarder.check_operator(context, "renewal sets")
        own = (
            self._info(record.state)
            for record in self._service.records
            if record.id > request.after
        )
        found = await self._forwarder.listed(
            message, context, own, lambda answer: pb.ListSetsResponse.FromString(answer).sets
        )
        page = found[:SETS_PER_PAGE]
        return pb.ListSetsResponse(
            sets=page, next=page[-1].id if len(found) > SETS_PER_PAGE else ""
        ).SerializeToString()


def _listener_info(queue: EventQueue) -> pb.ListenerInfo:
    info = pb.ListenerInfo(
        kind=SetEvent(queue.kind).name,
        number=queue.number,
        undelivered=len(queue),
        last_error=queue.last_error,
    )
    if queue.target is not None:
        info.listener.CopyFrom(target_message(queue.target))
    return info


def _kind_of(kind: int) -> SetEvent:
    try:
        return SetEvent(kind)
    except ValueError:
        raise ValueError(
            f"kind must be EXPIRATION_WARNING or RENEWAL_FAILURE, got {kind}"
        ) from None


def _requested_of(milliseconds: int, name: str) -> Requested:
    if milliseconds == 0 or milliseconds < WIRE_FOREVER_MS:
        raise ValueError(
            f"{name} must be at least 1, or -1 (any) or -2 (no end), got {milliseconds}"
        )
    return from_wire_ms(milliseconds)


def _remaining_of(remaining_ms: int) -> Duration | None:
    """Return how long a lease runs: None if that is not known, 0.0 if it has ended."""
    if remaining_ms == WIRE_ANY_MS:
        return None
    return FOREVER if remaining_ms == WIRE_FOREVER_MS else max(0, remaining_ms) / 1000.0


def _duration_of_ms(milliseconds: int) -> Duration:
    duration = from_wire_ms(milliseconds)
    if duration is ANY:
        raise ValueError(
            "remaining_ms and term_ms must be at least 0, or -2 (no end), not -1 (any)"
        )
    return duration


def _desired_of(desired_ms: int) -> Requested:
    """Return the desired duration; zero for one that is negative, however large."""
    return FOREVER if desired_ms == WIRE_FOREVER_MS else max(0, desired_ms) / 1000.0
