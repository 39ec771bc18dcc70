"""The header blocks of answers, encoded.

Every answer of gRPC begins with the same block (`:status: 200`, `content-type: application/grpc`)
and, if all went well, ends with the same one (`grpc-status: 0`). So both fields are put into the
peer's dynamic table the first time (RFC 7541), and are one octet each from then on. Nothing else
ever enters that table, hence their indices are known: the field that went in last is 62.

A peer that wants a smaller table than the default gets plain literals and an empty table.
"""

from typing import Final

from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError, percent_encoded

DEFAULT_TABLE_BYTES: Final = 4096

_OK: Final = b"\x88"  # :status: 200
_LITERAL: Final = b"\x00"
_INDEXED: Final = b"\x40"
_CONTENT_TYPE: Final = b"\x0f\x10"  # the name is entry 31 of the static table
_CONTENT_TYPE_INDEXED: Final = b"\x5f"
_EMPTY_TABLE: Final = b"\x20"
_MAX_SHORT: Final = 126


def _string(value: bytes) -> bytes:
    if len(value) <= _MAX_SHORT:
        return bytes((len(value),)) + value
    rest = len(value) - 127
    octets = bytearray((127,))
    while rest > 127:
        octets.append(rest & 127 | 128)
        rest >>= 7
    octets.append(rest)
    return bytes(octets) + value


_GRPC: Final = _string(b"application/grpc")
_STATUS_0: Final = _string(b"grpc-status") + _string(b"0")

HEAD: Final = b"\x88\xbf"
"""The head of an answer, once both fields are in the peer's table."""
TRAILERS: Final = b"\xbe"
"""The trailers of a call that went well, once both fields are in the peer's table."""


def failed_trailers(error: RpcError) -> bytes:
    """Encode the trailers of a call that failed."""
    block = _LITERAL + _string(b"grpc-status") + _string(b"%d" % error.status)
    if error.message:
        block += _LITERAL + _string(b"grpc-message") + _string(percent_encoded(error.message))
    return block


def http_refusal(http_status: int, why: str) -> bytes:
    """Encode the only header block of an answer to what is no gRPC call."""
    error = RpcError(Status.UNKNOWN, why)
    return b"\x08" + _string(b"%d" % http_status) + _CONTENT_TYPE + _GRPC + failed_trailers(error)


class AnswerBlocks:
    """The blocks for the answers of one connection, in the order in which they are sent."""

    __slots__ = ("_indexes", "_prefix", "is_primed")

    def __init__(self) -> None:
        self._indexes = 0  # how many fields are in the table
        self._prefix = b""
        self.is_primed = False
        """Whether both fields are in the peer's table, so that `HEAD` and `TRAILERS` will do."""

    def set_table_size(self, table_bytes: int) -> None:
        """Take the peer's limit for the table that we fill."""
        if table_bytes < DEFAULT_TABLE_BYTES:
            self._indexes = -1
            self._prefix = _EMPTY_TABLE
            self.is_primed = False

    def head(self) -> bytes:
        """The block before the first message."""
        return self._take_prefix() + self._head()

    def _head(self) -> bytes:
        match self._indexes:
            case 0:
                self._indexes = 1
                return _OK + _CONTENT_TYPE_INDEXED + _GRPC
            case 1:
                return _OK + b"\xbe"
            case 2:
                return HEAD
            case _:
                return _OK + _CONTENT_TYPE + _GRPC

    def trailers(self) -> bytes:
        """The block after the last message of a call that went well; there was a head before."""
        return self._take_prefix() + self._trailers()

    def _trailers(self) -> bytes:
        assert self._indexes != 0, "trailers before any head"
        match self._indexes:
            case 1:
                self._indexes = 2
                self.is_primed = True
                return _INDEXED + _STATUS_0
            case 2:
                return TRAILERS
            case _:
                return _LITERAL + _STATUS_0

    def failed(self, trailers: bytes, *, is_only_block: bool) -> bytes:
        """The block that ends a call which failed; `trailers` is what `failed_trailers` made."""
        head = self.head() if is_only_block else self._take_prefix()
        return head + trailers

    def refused(self, block: bytes) -> bytes:
        """The only block of an answer that is no gRPC; `block` is what `http_refusal` made."""
        return self._take_prefix() + block

    def _take_prefix(self) -> bytes:
        prefix, self._prefix = self._prefix, b""
        return prefix
