"""Errors of calls: from an exception of a handler to a status, and from a status to an exception.

A server turns the exception of a handler into the status that its caller receives
(`as_rpc_error`). A client turns the status of a server into an exception that tells whether the
call was executed (`as_ours`). A Leasehold server sends its errors as structured details, beside the
status and its text. For other servers `is_refusal` is the only place that decides this from a
status and a text. Texts of our own are not parsed.

The details are those of gRPC's richer error model: the trailer `grpc-status-details-bin` has a
`google.rpc.Status`, which repeats status and text, with one `google.rpc.ErrorInfo`:

    domain      "leasehold.v1"
    reason      the error, such as "LEASE_FULL"; see `_TABLE`
    metadata    its fields, by name; all values are text

Numbers are decimal, keys are base64, durations are in seconds, or "FOREVER" or "ANY". The
field `not_executed` is "true" if the call has certainly changed nothing, "false" if its outcome is
unknown; without it the status decides.

Rules that let old and new versions work together: reasons and fields are added, never changed. A
receiver ignores fields and reasons that it does not have; of an unknown reason it uses
`not_executed`, and the status as without details. A field that is absent has a default, or the
value that the receiver knows from its request. etcd sends no details.

The size is bounded, because many clients accept only 8 KiB of trailers: texts are cut, longer keys
are left out, and a status with a long text has no details.

Errors about objects of the server's own process (`Closed`, `JournalFailed`) have no row: a client
would take them for errors of its own objects. They are sent as status and text.
"""

import base64
import binascii
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from leasehold.basics.durations import ANY, FOREVER
from leasehold.errors import (
    STATUS_IS_DEFINITE,
    CallFailed,
    CallRefused,
    Closed,
    Compacted,
    DuplicateKey,
    EmptyKey,
    EndReason,
    FutureRevision,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    NoSpace,
    NoSuchObject,
    PermissionDenied,
    ShardLost,
    Status,
    TooBusy,
    TooLarge,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
    UnsupportedOperation,
)
from leasehold.grpc.protocol import ErrorDetail, RpcError
from leasehold.http2.inbound import BufferFull
from leasehold.wire import status_pb2 as pb

TRAILER: Final = b"grpc-status-details-bin"
DOMAIN: Final = "leasehold.v1"
TYPE_URL: Final = "type.googleapis.com/google.rpc.ErrorInfo"

MAX_FIELD_BYTES: Final = 512
"""Longer texts are cut, longer keys are left out."""
MAX_MESSAGE_BYTES: Final = 1024
"""A status with a longer text has no details."""

NOT_EXECUTED: Final = "not_executed"
_YES: Final = "true"
_NO: Final = "false"


class _Field(NamedTuple):
    """An attribute of an error, which is also the name of its constructor's argument."""

    name: str
    encode: Callable[[object], str | None]
    """Returns None for a value that is left out."""
    decode: Callable[[str], object]
    """Raises ValueError for a text that is not a value."""
    default: object


class _ErrorRow(NamedTuple):
    reason: str
    kind: type[LeaseholdError]
    fields: tuple[_Field, ...] = ()
    is_text: bool = False
    """Whether the only argument of the constructor is the text of the error."""


def _number(name: str) -> _Field:
    return _Field(name, _encode_number, int, 0)


def _encode_number(value: object) -> str | None:
    return str(value) if isinstance(value, int) else None  # a landlord's cookie may be anything


def _key(name: str) -> _Field:
    return _Field(name, _encode_key, _decode_key, b"")


def _encode_key(value: object) -> str | None:
    if not isinstance(value, bytes) or len(value) > MAX_FIELD_BYTES:
        return None
    return base64.b64encode(value).decode()


def _decode_key(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _encode_text(value: object) -> str:
    data = str(value).encode(errors="replace")
    return data[:MAX_FIELD_BYTES].decode(errors="ignore")


def _text(name: str) -> _Field:
    return _Field(name, _encode_text, str, "")


def _encode_duration(value: object) -> str | None:
    if value is ANY or value is FOREVER:
        return str(value)
    return repr(float(value)) if isinstance(value, int | float) else None


def _decode_duration(text: str) -> object:
    sentinels: dict[str, object] = {str(ANY): ANY, str(FOREVER): FOREVER}
    return sentinels.get(text) or float(text)


_LEASE: Final = _number("lease")
_REASON: Final = _Field("reason", _encode_text, EndReason, EndReason.UNKNOWN)
_WHY: Final = _text("why")
_REQUESTED: Final = _Field("requested", _encode_duration, _decode_duration, None)
_TEXT: Final = _Field("text", _encode_text, str, None)

_TABLE: Final = (
    _ErrorRow("UNKNOWN_LEASE", UnknownLease, (_LEASE, _REASON)),
    _ErrorRow("NO_SUCH_OBJECT", NoSuchObject, (_text("service"), _text("id"))),
    _ErrorRow("SHARD_LOST", ShardLost, (_number("shard"), _WHY)),
    _ErrorRow("LEASE_EXISTS", LeaseExists, (_LEASE,)),
    _ErrorRow("LEASE_FULL", LeaseFull, (_LEASE, _number("max_keys"), _number("max_bytes"))),
    _ErrorRow("LEASE_DENIED", LeaseDenied, (_WHY, _LEASE._replace(default=None), _REQUESTED)),
    _ErrorRow("UNKNOWN_KEY", UnknownKey, (_key("key"),)),
    _ErrorRow("EMPTY_KEY", EmptyKey),
    _ErrorRow("DUPLICATE_KEY", DuplicateKey, (_key("key"),)),
    _ErrorRow(
        "TOO_MANY_OPERATIONS", TooManyOperations, (_number("operations"), _number("maximum"))
    ),
    _ErrorRow("TOO_LARGE", TooLarge, (_TEXT,), is_text=True),
    _ErrorRow("COMPACTED", Compacted, (_number("asked_for"), _number("revision"))),
    _ErrorRow("FUTURE_REVISION", FutureRevision, (_number("asked_for"), _number("revision"))),
    _ErrorRow("NO_SPACE", NoSpace, (_number("used_bytes"), _number("quota_bytes"))),
    _ErrorRow("TOO_BUSY", TooBusy, (_TEXT,), is_text=True),
    _ErrorRow("PERMISSION_DENIED", PermissionDenied, (_TEXT,), is_text=True),
    _ErrorRow("UNSUPPORTED_OPERATION", UnsupportedOperation, (_TEXT,), is_text=True),
)
_BY_KIND: Final = {row.kind: row for row in _TABLE}
_BY_REASON: Final = {row.reason: row for row in _TABLE}

REFUSED: Final = ErrorDetail("REFUSED", {NOT_EXECUTED: _YES})
"""A call that was not executed, for a reason without a row: the status and its text have it."""
BUSY: Final = ErrorDetail("TOO_BUSY", {NOT_EXECUTED: _YES})
ANSWER_TOO_LARGE: Final = ErrorDetail("TOO_LARGE", {NOT_EXECUTED: _NO})
"""These two have no text but that of the status."""


def detail_of(error: LeaseholdError, *, is_whole_call: bool) -> ErrorDetail | None:
    """Return the details of an error; None if it has no row.

    `is_whole_call` is False if the call may have changed something before a part of it raised the
    error: then `not_executed` is left out.
    """
    row = _BY_KIND.get(type(error))
    if row is None:
        return None
    fields = {NOT_EXECUTED: _YES if error.not_executed else _NO} if is_whole_call else {}
    for field in row.fields:
        value = str(error) if row.is_text else getattr(error, field.name)
        encoded = None if value is None else field.encode(value)
        if encoded is not None:
            fields[field.name] = encoded
    return ErrorDetail(row.reason, fields)


def error_of_detail(
    detail: ErrorDetail, message: str, known: Mapping[str, object]
) -> LeaseholdError | None:
    """Return the error that has these details; None if the reason is not in the table.

    `message` is the text of the status. `known` has values for absent fields, by name.
    """
    row = _BY_REASON.get(detail.reason)
    if row is None:
        return None
    values = dict(_values(row, detail.fields, known))
    return row.kind(values["text"] or message) if row.is_text else row.kind(**values)


def _values(
    row: _ErrorRow, fields: Mapping[str, str], known: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    for field in row.fields:
        value = known.get(field.name, field.default)
        text = fields.get(field.name)
        if text is not None:
            with suppress(ValueError):  # what this version cannot read counts as absent
                value = field.decode(text)
        yield field.name, value


def certainty_of(detail: ErrorDetail | None) -> bool | None:
    """Return whether the call was certainly not executed; None if the details do not have it."""
    if detail is None:
        return None
    return {_YES: True, _NO: False}.get(detail.fields.get(NOT_EXECUTED, ""))


def without_certainty(detail: ErrorDetail | None) -> ErrorDetail | None:
    """Return details without `not_executed`: another part of the call may have been executed."""
    if detail is None:
        return None
    fields = {name: text for name, text in detail.fields.items() if name != NOT_EXECUTED}
    return ErrorDetail(detail.reason, fields)


def encode_details(error: RpcError) -> bytes | None:
    """Return the value of the trailer, in base64; None if the error has no details to send."""
    detail = error.detail
    if detail is None or len(error.message.encode(errors="replace")) > MAX_MESSAGE_BYTES:
        return None
    info = pb.ErrorInfo(reason=detail.reason, domain=DOMAIN, metadata=detail.fields)
    status = pb.Status(
        code=error.status,
        message=error.message.encode(errors="replace").decode(),
        details=[pb.Any(type_url=TYPE_URL, value=info.SerializeToString(deterministic=True))],
    )
    return base64.b64encode(status.SerializeToString()).rstrip(b"=")


def decode_details(value: bytes) -> ErrorDetail | None:
    """Return the details in the value of a trailer; None if it has none of Leasehold."""
    try:
        data = base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
        for each in pb.Status.FromString(data).details:
            if each.type_url.endswith("/google.rpc.ErrorInfo"):
                info = pb.ErrorInfo.FromString(each.value)
                if info.domain == DOMAIN:
                    return ErrorDetail(info.reason, dict(info.metadata))
    except (binascii.Error, DecodeError):
        pass  # a proxy may have added anything; the status and its text are there
    return None


logger = logging.getLogger(__name__)

_EXHAUSTED: Final = re.compile(
    r"(?:etcdserver: )?(?:too many requests|mvcc: database space exceeded)$"
)
"""etcd's texts of RESOURCE_EXHAUSTED that are sent before a call is executed. gRPC uses the same
status for an answer that is too long, and for streams that a server resets: then the call may have
been executed."""

_LARGER: Final = re.compile(r"larger than max \(.* vs\. (\d+)\)$")
"""gRPC's text for a message above a limit. Servers send it for a request, before it is executed,
and proxies for an answer: if the request is within the limit, it was not the message that is too
large."""

_AFTERWARDS: Final = frozenset({Status.DATA_LOSS})
"""Definite statuses that do not tell whether the call was executed."""

_NOTHING_KNOWN: Final[Mapping[str, object]] = MappingProxyType({})


def as_rpc_error(error: BaseException, path: str) -> RpcError:
    """Return the error for the caller; the text of an unexpected exception is only logged."""
    if isinstance(error, Closed):  # during a call, which may be executed or not
        return RpcError(Status.UNAVAILABLE, f"leasehold: {error}")
    if isinstance(error, LeaseholdError):
        detail = detail_of(error, is_whole_call=False)
        return RpcError(error.status, f"leasehold: {error}", detail=detail)
    if isinstance(error, RpcError):
        return error
    if isinstance(error, BufferFull):
        return RpcError(Status.RESOURCE_EXHAUSTED, str(error))
    logger.error("the handler of %s failed", path, exc_info=error)
    return RpcError(Status.INTERNAL, "internal error; see the server's log")


def is_refusal(error: RpcError, request_bytes: int = 0) -> bool:
    """Return whether a call was certainly not executed; otherwise its outcome is unknown.

    `request_bytes` is the size of the request, or 0 if that is not known.
    """
    certainty = certainty_of(error.detail)
    if certainty is not None:
        return certainty
    if error.status is Status.RESOURCE_EXHAUSTED:
        if larger := _LARGER.search(error.message):
            return request_bytes > int(larger[1])
        return _EXHAUSTED.match(error.message) is not None
    return STATUS_IS_DEFINITE.get(error.status, False) and error.status not in _AFTERWARDS


def as_ours(
    error: RpcError, request_bytes: int = 0, known: Mapping[str, object] = _NOTHING_KNOWN
) -> Exception:
    """Turn a status into the error of its details; else definite or indefinite as the status is.

    `known` has values for fields that the details lack, by name. Without details the exception is
    `TooLarge` for RESOURCE_EXHAUSTED only if it is certain which message was too large: that error
    is definite.
    """
    if error.status is Status.DEADLINE_EXCEEDED:
        return TimeoutError(error.message)
    not_executed = is_refusal(error, request_bytes)
    ours: LeaseholdError | None = None
    if error.detail is not None:
        ours = error_of_detail(error.detail, error.message, known)
    if ours is None:
        ours = _by_status(error, not_executed=not_executed)
    ours.not_executed = not_executed
    return ours


def _by_status(error: RpcError, *, not_executed: bool) -> LeaseholdError:
    is_larger = _LARGER.search(error.message) is not None
    if is_larger and not_executed:
        return TooLarge(error.message)
    if error.status is Status.RESOURCE_EXHAUSTED and not is_larger:
        return TooBusy(error.message)
    if STATUS_IS_DEFINITE.get(error.status, False):
        return CallRefused(str(error))
    return CallFailed(str(error))
