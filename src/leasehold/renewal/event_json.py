"""Events of renewal sets, and lease references, as JSON: for commands and their standard input."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import DecodeError

from leasehold.basics.lease_ids import shown_lease
from leasehold.events.state import RemoteEvent
from leasehold.renewal.references import LeaseReference
from leasehold.wire import renewal_pb2 as pb

_MAX_TIME_MS: Final = 253_402_300_799_000  # the year 9999


def payload_as_json(event: RemoteEvent) -> dict[str, Any]:
    """Return the payload of an event as values of JSON; ValueError: it cannot be decoded."""
    try:
        match event.kind:
            case pb.EXPIRATION_WARNING:
                return _warning_as_json(pb.WarningPayload.FromString(event.payload))
            case pb.RENEWAL_FAILURE:
                return _failure_as_json(pb.FailurePayload.FromString(event.payload))
    except DecodeError as error:
        raise ValueError(f"event {event.number} cannot be decoded: {error}") from None
    raise ValueError(
        f"event kind must be 1 (expiration warning) or 2 (renewal failure), got {event.kind}"
    )


def _warning_as_json(payload: pb.WarningPayload) -> dict[str, Any]:
    return {
        "event": "expiration_warning",
        "remaining": payload.remaining_ms / 1000,
        "ends_at": _time_as_json(payload.end_ms),
    }


def _failure_as_json(payload: pb.FailurePayload) -> dict[str, Any]:
    error = None
    if payload.HasField("error"):
        error = {
            "class": payload.error.class_name,
            "status": payload.error.status,
            "message": payload.error.message,
        }
    return {
        "event": "renewal_failure",
        "lease": reference_as_json(payload.reference),
        "ended_at": _time_as_json(payload.end_ms),
        "error": error,
    }


def reference_as_json(data: bytes) -> dict[str, Any]:
    """Return a lease reference as values of JSON; one that cannot be decoded, as its bytes."""
    try:
        reference = LeaseReference.decode(data)
    except ValueError as error:
        return {"reference_base64": b64encode(data).decode(), "undecodable": str(error)}
    shown: dict[str, Any] = {"grantor": reference.grantor}
    match reference.cookie:
        case int(number):
            shown["id"] = shown_lease(number)
        case str(text):
            shown["cookie"] = text
        case bytes(name):
            shown["cookie_base64"] = b64encode(name).decode()
    return shown | {
        "kind": reference.kind.name.lower(),
        "endpoints": list(reference.endpoints),
        "credentials": reference.credentials or None,
    }


def _time_as_json(end_ms: int) -> str | None:
    """Format a time in ISO 8601 and UTC; None if there is no end."""
    if end_ms < 0 or end_ms > _MAX_TIME_MS:
        return None
    moment = datetime.fromtimestamp(end_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
