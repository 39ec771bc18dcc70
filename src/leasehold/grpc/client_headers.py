"""The header blocks of a client: requests, checked and cached, and the answers to them.

The fields of a request are always in the same order, and a timeout is rounded, so that the header
block of one call repeats another's. An answer has headers, trailers, or both in one block.
"""

import sys
from typing import Final

from leasehold.errors import Status
from leasehold.grpc.call_context import Metadata, decode_metadata, encode_metadata, format_timeout
from leasehold.grpc.error_details import TRAILER, decode_details
from leasehold.grpc.protocol import GZIP, IDENTITY, RpcError, percent_decoded
from leasehold.http2.header_encoder import Fields
from leasehold.http2.header_fields import check_answer_trailers, check_response
from leasehold.http2.hpack import Field

MAX_HEADS: Final = 1024
"""Headers that are cached for one endpoint; above it the cache is cleared."""

MIN_TIMEOUT_S: Final = 1e-9

_EXAMPLE: Final = "/package.Service/Method"
_PATH_AT: Final = 2


class RequestHeads:
    """The headers of the requests to one endpoint."""

    __slots__ = ("_before_path", "_behind_path", "_last", "_memo", "_metadata")

    def __init__(
        self, scheme: bytes, authority: bytes, user_agent: bytes, metadata: Fields = ()
    ) -> None:
        self._before_path: Fields = ((b":method", b"POST"), (b":scheme", scheme))
        self._behind_path: Fields = (
            (b":authority", authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", user_agent),
            (b"grpc-accept-encoding", b"identity,gzip"),
        )
        self._metadata = metadata
        self._memo: dict[tuple[object, ...], Fields] = {}
        """By what is sent: timeouts that are nearly the same have the same headers."""
        self._last: tuple[float | None, bytes | None] = (None, None)
        """The timeout of the last call, and its text: the next call often has the same."""

    def get(self, path: str, timeout_s: float | None, metadata: Metadata | None) -> Fields:
        """Return the headers of a call; raise `TypeError` or `ValueError` if they are invalid."""
        last, text = self._last
        if timeout_s is not last:
            check_timeout(timeout_s)
            text = None if timeout_s is None else format_timeout(max(timeout_s, MIN_TIMEOUT_S))
            self._last = (timeout_s, text)
        try:
            fields = self._memo.get((path, text, metadata))
        except TypeError:  # an argument without a hash, which cannot be valid
            fields = None
        return self._make(path, text, metadata) if fields is None else fields

    def _make(self, path: str, text: bytes | None, metadata: Metadata | None) -> Fields:
        check_path(path)
        timed: Fields = () if text is None else ((b"grpc-timeout", text),)
        fields = (
            *self._before_path,
            (b":path", path.encode()),
            *self._behind_path,
            *timed,
            *self._metadata,
            *(() if metadata is None else encode_metadata(metadata)),
        )
        if len(self._memo) >= MAX_HEADS:
            self._memo.clear()
        self._memo[(path, text, metadata)] = fields
        return fields


def path_of(fields: Fields) -> str:
    """Return the path of the method from the headers of a call."""
    return fields[_PATH_AT][1].decode()


def check_path(path: str) -> None:
    """Raise if this is not the path of a method."""
    if not isinstance(path, str):
        raise TypeError(f"the path of a method must be a str such as {_EXAMPLE!r}, not {path!r}")
    if not path.startswith("/") or not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"the path of a method must look like {_EXAMPLE!r}, got {path!r}")


def check_timeout(timeout_s: float | None) -> None:
    """Raise if this is not a timeout."""
    if timeout_s is None:
        return
    if not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, not {timeout_s!r}")
    if not 0 < timeout_s <= sys.float_info.max:
        raise ValueError(f"timeout must be more than 0 s and finite, or None, got {timeout_s!r}")


# Answers.

_INFORMATIONAL: Final = range(100, 200)
_OK: Final = 200
_USUAL: Final = frozenset((b":status", b"content-type", b"grpc-status", b"grpc-message"))
_BY_HTTP_STATUS: Final = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}


class AnswerBlock:
    """A parsed block, cached for all blocks with the same fields; `status` if it has one."""

    __slots__ = ("_fields", "encoding", "http_status", "message", "status")

    def __init__(self, fields: tuple[Field, ...], *, is_head: bool) -> None:
        self._fields = fields
        values = {field.name: field.value for field in fields}
        self.http_status = _OK
        self.encoding = values.get(b"grpc-encoding", IDENTITY)
        self.message = percent_decoded(values.get(b"grpc-message", b""))
        if is_head:
            self.http_status = check_response(fields)
        else:
            check_answer_trailers(fields)
        self.status = self._status(values)

    def _status(self, values: dict[bytes, bytes]) -> Status | None:
        status = values.get(b"grpc-status")
        if status is not None:
            try:
                return Status(int(status))
            except ValueError:
                self.message = f"the server ended the call with status {status!r}: {self.message}"
                return Status.UNKNOWN
        if self.is_informational or b":status" not in values:
            return None
        content_type = values.get(b"content-type", b"")
        if self.http_status == _OK and content_type.startswith(b"application/grpc"):
            if self.encoding not in (IDENTITY, GZIP):
                self.message = (
                    f"the answer is compressed in a way not known here: {self.encoding!r}"
                )
                return Status.INTERNAL
            return None
        self.message = (
            f"not a response of gRPC: HTTP status {self.http_status}, content type "
            f"{content_type.decode(errors='replace')!r}"
        )
        return _BY_HTTP_STATUS.get(self.http_status, Status.UNKNOWN)

    @property
    def is_informational(self) -> bool:
        """Whether the final headers of the answer are still to come."""
        return self.http_status in _INFORMATIONAL

    @property
    def metadata(self) -> Metadata:
        """The metadata of the answer."""
        return decode_metadata(self._fields)

    def error(self) -> RpcError | None:
        """Return the error in the trailers; None if the call succeeded."""
        if self.status == Status.OK:
            return None
        if self.status is None:
            return RpcError(Status.INTERNAL, "the server ended the call without a status")
        metadata = tuple(
            [(each.name, each.value) for each in self._fields if each.name not in _USUAL]
        )
        details = dict(metadata).get(TRAILER)
        detail = None if details is None else decode_details(details)
        return RpcError(self.status, self.message, metadata=metadata, detail=detail)
