"""gRPC on HTTP/2: messages in DATA frames, a status in the trailers.

A message has a prefix of five bytes: the compressed flag, and four bytes of length. A call ends
with a block of trailers that carries `grpc-status` and, percent-encoded, `grpc-message`. A call
that fails before it has answered anything has one block only.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote_to_bytes

from google.protobuf.message import DecodeError, Message

from leasehold.errors import Status

PREFIX: Final = Struct(">BI")
PREFIX_BYTES: Final = PREFIX.size

IDENTITY: Final = b"identity"
GZIP: Final = b"gzip"
GZIPPED: Final = ((b"grpc-encoding", GZIP),)
"""The header field of compressed messages."""
GZIP_LEVEL: Final = 1
"""The cheapest: CPU time is the scarcest resource of a server."""

FAIR_RATIO: Final = 16
"""A message that decompresses to more than this times its length costs us far more than its
sender."""

QUEUED_BYTES: Final = 64
"""The cost of a queued message besides its bytes."""

COMPRESS_FROM_BYTES: Final = 1024
"""Shorter messages are not worth compressing."""

_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS

M = TypeVar("M", bound=Message)


class ErrorDetail(NamedTuple):
    """The structured part of an error: see `grpc.error_details`."""

    reason: str
    fields: Mapping[str, str]


class RpcError(Exception):
    """A call that ends with another status than OK.

    `position` must be released (see `grpc.durability_gate`) before the error may be sent.
    `metadata` are further fields of the trailers, and `detail` is the structured part of the error.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        position: int = 0,
        metadata: tuple[tuple[bytes, bytes], ...] = (),
        detail: ErrorDetail | None = None,
    ) -> None:
        super().__init__(status, message)
        _check_error(status, message, metadata)
        self.status = status
        self.message = message
        self.position = position
        self.metadata = metadata
        self.detail = detail
        self.encoded: bytes | None = None
        """The encoded trailers, once they were made."""

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"


def _check_error(status: object, message: object, metadata: object) -> None:
    """Raise if trailers cannot carry these values: when the error is made, not when it is sent."""
    if not isinstance(status, Status) or status == Status.OK:
        raise ValueError(f"status of an error must be a gRPC status other than OK, not {status!r}")
    if not isinstance(message, str):
        raise TypeError(f"message of an error must be a str, not {message!r}")
    if not isinstance(metadata, tuple) or not all(
        isinstance(part, bytes) for pair in metadata for part in pair
    ):
        raise TypeError(
            f"metadata must be fields as encode_metadata returns them, got {metadata!r}"
        )


def framed(message: bytes) -> bytes:
    """Return a message with its prefix."""
    return PREFIX.pack(0, len(message)) + message


def too_large(message_bytes: int | str, max_bytes: int) -> RpcError:
    """Return the refusal of a request, with the text of Go's gRPC, for which users search."""
    return RpcError(
        Status.RESOURCE_EXHAUSTED,
        f"grpc: received message larger than max ({message_bytes} vs. {max_bytes})",
    )


def percent_encoded(message: str) -> bytes:
    """Encode a status message: everything but printable ASCII, and the percent sign, as bytes.

    Spaces at both ends are encoded too: no field of HTTP/2 may begin or end with one.
    """
    encoded = quote(message, safe=_PLAIN, errors="replace")
    if encoded[:1] == " ":
        encoded = "%20" + encoded[1:]
    if encoded[-1:] == " ":
        encoded = encoded[:-1] + "%20"
    return encoded.encode()


def percent_decoded(message: bytes) -> str:
    """Decode a status message, as far as possible."""
    return unquote_to_bytes(message).decode(errors="replace")


class MessageReader:
    """Splits the bytes of a stream into messages; input may come in pieces of any size."""

    __slots__ = ("_buffer", "_encoding", "_max_bytes", "_too_large", "excess_bytes", "since")

    def __init__(
        self,
        max_bytes: int,
        encoding: bytes = IDENTITY,
        too_large: Callable[[int | str, int], RpcError] = too_large,
    ) -> None:
        self._too_large = too_large
        self._buffer = bytearray()
        self._max_bytes = max_bytes
        self._encoding = encoding
        self.since = 0.0
        """When the incomplete message began; set by the caller of `feed`."""
        self.excess_bytes = 0
        """How many bytes were decompressed beyond `FAIR_RATIO`."""

    @property
    def is_between_messages(self) -> bool:
        """Whether no part of a further message was received."""
        return not self._buffer

    @property
    def buffered_bytes(self) -> int:
        """The received bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, payload: bytes) -> list[bytes]:
        """Take received bytes; return the messages that are complete."""
        self._buffer += payload
        messages = []
        start = 0
        while len(self._buffer) - start >= PREFIX_BYTES:
            compressed, length = PREFIX.unpack_from(self._buffer, start)
            if length > self._max_bytes:
                raise self._too_large(length, self._max_bytes)
            if compressed > 1:
                raise RpcError(
                    Status.INTERNAL, f"grpc: compressed flag must be 0 or 1, got {compressed}"
                )
            end = start + PREFIX_BYTES + length
            if len(self._buffer) < end:
                break
            message = bytes(self._buffer[start + PREFIX_BYTES : end])
            messages.append(self._plain(message) if compressed else message)
            start = end
        del self._buffer[:start]
        return messages

    def _plain(self, message: bytes) -> bytes:
        if self._encoding != GZIP:
            raise RpcError(
                Status.INTERNAL, "grpc: compressed flag set with identity or empty encoding"
            )
        try:
            plain = decompress(message, self._max_bytes, self._too_large)
        except RpcError:
            self.excess_bytes += self._max_bytes  # it may have been as much
            raise
        self.excess_bytes += max(0, len(plain) - FAIR_RATIO * len(message))
        return plain


def compress(message: bytes) -> bytes:
    """Return a message with its prefix, compressed."""
    packed = gzip.compress(message, GZIP_LEVEL, mtime=0)
    return PREFIX.pack(1, len(packed)) + packed


def packed(message: bytes) -> bytes:
    """Return a message with its prefix, compressed if that is worth it."""
    return compress(message) if len(message) >= COMPRESS_FROM_BYTES else framed(message)


def decompress(
    message: bytes,
    max_bytes: int,
    too_large: Callable[[int | str, int], RpcError] = too_large,
) -> bytes:
    """Decompress a message, up to the limit, whatever length it claims."""
    unpacking = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain = unpacking.decompress(message, max_bytes + 1)
    except zlib.error as error:
        raise RpcError(
            Status.INTERNAL, f"grpc: failed to decompress the message: {error}"
        ) from None
    if len(plain) > max_bytes:
        raise too_large("unpacked more", max_bytes)
    if not unpacking.eof or unpacking.unused_data:
        why = "data after its end" if unpacking.eof else "it is truncated"
        raise RpcError(Status.INTERNAL, f"grpc: failed to decompress the message: {why}")
    return plain


def parse(parser: Callable[[bytes], M], message: bytes, *, is_streamed: bool = False) -> M:
    """Parse a protobuf message; refuse an invalid one with Go's text for calls or for streams."""
    try:
        return parser(message)
    except DecodeError as error:
        what = "grpc: error unmarshalling request:"
        if is_streamed:
            what = "grpc: failed to unmarshal the received message"
        raise RpcError(Status.INTERNAL, f"{what} {error}") from error


_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
