"""The keys of a renewal set: their names below the set's own key, and their values.

    m/<digest>              a member (`StoredMember`)
    r/<kind>                the registration for a kind of event (`StoredRegistration`)
    e/<kind>/<number>       an event that was not delivered (`StoredEvent`)

The number of the last event is in the registration. It is written in the transaction that queues
the event, so it is never given to two events.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from leasehold.basics.durations import NEVER, WIRE_FOREVER_MS, WIRE_MAX_MS, from_wire_ms, to_wire_ms
from leasehold.errors import LeaseholdError, Status
from leasehold.events.listeners import target_message, target_of
from leasehold.events.state import EventQueue, EventTarget
from leasehold.renewal.state import Member, MemberTerms, SetEvent, WarningState
from leasehold.wire import renewal_pb2, services_pb2

MEMBERS: Final = b"m/"
REGISTRATIONS: Final = b"r/"
EVENTS: Final = b"e/"

MAX_ERROR_TEXT: Final = 1_000
"""Characters of an error's message that are kept."""


def member_suffix(digest: str) -> bytes:
    """Return the name of a member's key."""
    return MEMBERS + digest.encode()


def registration_suffix(kind: SetEvent) -> bytes:
    """Return the name of a registration's key."""
    return REGISTRATIONS + b"%d" % kind


def event_suffix(kind: SetEvent, number: int) -> bytes:
    """Return the name of an event's key; the order of names is that of numbers."""
    return EVENTS + b"%d/%016x" % (kind, number)


def to_ms(seconds: float) -> int:
    """Convert a wall-clock time or a duration to milliseconds; `NEVER` is -2.

    So is a duration that does not fit.
    """
    return WIRE_FOREVER_MS if seconds * 1000.0 >= WIRE_MAX_MS else round(seconds * 1000.0)


def from_ms(milliseconds: int) -> float:
    """Undo `to_ms`."""
    return NEVER if milliseconds == WIRE_FOREVER_MS else milliseconds / 1000.0


# Members.


def member_value(member: Member) -> bytes:
    """Encode a member."""
    return services_pb2.StoredMember(
        reference=member.reference,
        desired_end_ms=to_ms(member.terms.desired_end),
        renew_ms=to_wire_ms(member.terms.renew),
        end_ms=to_ms(member.end),
        term_ms=to_ms(member.term_s),
        order=member.order,
    ).SerializeToString()


def members_of(rows: Mapping[bytes, bytes]) -> Iterable[Member]:
    """Decode the members among the keys of a set."""
    for suffix, value in rows.items():
        if suffix.startswith(MEMBERS):
            stored = services_pb2.StoredMember.FromString(value)
            yield Member(
                suffix.removeprefix(MEMBERS).decode(),
                stored.reference,
                MemberTerms(from_ms(stored.desired_end_ms), from_wire_ms(stored.renew_ms)),
                from_ms(stored.end_ms),
                from_ms(stored.term_ms),
                stored.order,
            )


# Registrations and events.


def registration_value(
    number: int,
    target: EventTarget | None,
    handback: bytes,
    warning: WarningState | None = None,
    dropped: int = 0,
) -> bytes:
    """Encode a registration; events up to `dropped` are not delivered any more."""
    stored = services_pb2.StoredRegistration(number=number, handback=handback, dropped=dropped)
    if target is not None:
        stored.listener.CopyFrom(target_message(target))
    if warning is not None:
        stored.parameter_ms = to_ms(warning.min_warning_s)
        stored.told_term = warning.told_term + 1
    return stored.SerializeToString()


def queue_of(
    rows: Mapping[bytes, bytes], service: str, set_id: str, kind: SetEvent, max_events: int
) -> tuple[EventQueue, WarningState | None]:
    """Decode the queue of a kind of event, and the state of the warning if it is that kind."""
    value = rows.get(registration_suffix(kind))
    if value is None:
        return EventQueue(service, set_id, kind, max_events=max_events), None
    stored = services_pb2.StoredRegistration.FromString(value)
    target = target_of(stored.listener) if stored.HasField("listener") else None
    prefix = EVENTS + b"%d/" % kind
    pending = [
        (number, services_pb2.StoredEvent.FromString(row).payload)
        for suffix, row in rows.items()
        if suffix.startswith(prefix)
        and (number := int(suffix.removeprefix(prefix), 16)) > stored.dropped
    ]
    queue = EventQueue(
        service,
        set_id,
        kind,
        number=stored.number,
        target=target,
        handback=stored.handback,
        pending=pending,
        max_events=max_events,
    )
    if target is None or kind is not SetEvent.EXPIRATION_WARNING:
        return queue, None
    return queue, WarningState(from_ms(stored.parameter_ms), stored.told_term - 1)


def event_value(payload: bytes) -> bytes:
    """Encode an event that is to be delivered."""
    return services_pb2.StoredEvent(payload=payload).SerializeToString()


def shown(error: BaseException) -> str:
    """Return the text of an error, of limited length and as valid UTF-8."""
    return str(error)[:MAX_ERROR_TEXT].encode(errors="replace").decode()


def failure_payload(member: Member, error: BaseException | None) -> bytes:
    """Encode a renewal failure: the lease, and the last error since the last success."""
    payload = renewal_pb2.FailurePayload(reference=member.reference, end_ms=to_ms(member.end))
    if error is not None:
        status = error.status if isinstance(error, LeaseholdError) else Status.UNKNOWN
        payload.error.class_name = type(error).__name__
        payload.error.status = status
        payload.error.message = shown(error)
    return payload.SerializeToString()


def warning_payload(remaining_s: float, end: float) -> bytes:
    """Encode an expiration warning: the set's lease with its end at the time of the event."""
    return renewal_pb2.WarningPayload(
        remaining_ms=to_ms(remaining_s), end_ms=to_ms(end)
    ).SerializeToString()
