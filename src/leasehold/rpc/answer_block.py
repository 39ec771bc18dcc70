"""What a header block of an answer says: its head, its trailers, or both in one."""

from typing import Final

from leasehold.errors import Status
from leasehold.rpc.fields import check_answer_trailers, check_response
from leasehold.rpc.grpc import GZIP, IDENTITY, RpcError, percent_decoded
from leasehold.rpc.hpack import Field
from leasehold.rpc.metadata import Metadata, decode_metadata

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
    """The same for all blocks with the same fields, so it is made once; `status` if it has one."""

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
        said = values.get(b"grpc-status")
        if said is not None:
            try:
                return Status(int(said))
            except ValueError:
                self.message = f"the server ended the call with status {said!r}: {self.message}"
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
            f"this is no answer of gRPC: HTTP status {self.http_status}, content type "
            f"{content_type.decode(errors='replace')!r}"
        )
        return _BY_HTTP_STATUS.get(self.http_status, Status.UNKNOWN)

    @property
    def is_informational(self) -> bool:
        """Whether the head of the answer has yet to come."""
        return self.http_status in _INFORMATIONAL

    @property
    def metadata(self) -> Metadata:
        """What the server says besides its messages."""
        return decode_metadata(self._fields)

    def error(self) -> RpcError | None:
        """The error that the trailers tell of; None if all went well."""
        if self.status == Status.OK:
            return None
        if self.status is None:
            return RpcError(Status.INTERNAL, "the server ended the call without a status")
        said = tuple([(each.name, each.value) for each in self._fields if each.name not in _USUAL])
        return RpcError(self.status, self.message, metadata=said)
