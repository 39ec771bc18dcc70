"""gRPC on HTTP/2: messages in DATA frames, a status in the trailers.

A message has a prefix of five octets: one that says whether it is compressed, and four of length.
A call ends with a block of trailers that carries `grpc-status` and, percent-encoded,
`grpc-message`. A call that fails before it has answered anything has one block only.
"""

from struct import Struct
from typing import Final
from urllib.parse import quote

from leasehold.errors import Status

PREFIX: Final = Struct(">BI")
PREFIX_BYTES: Final = PREFIX.size

MAX_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""Messages larger than this are refused; etcd has the same limit."""


class RpcError(Exception):
    """A call that ends with another status than OK.

    `position` says what must have been released (see `rpc.gate`) before anybody may know.
    """

    def __init__(self, status: Status, message: str, position: int = 0) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.position = position

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"


def framed(message: bytes) -> bytes:
    """Put the prefix before a message."""
    return PREFIX.pack(0, len(message)) + message


def too_large(message_bytes: int) -> RpcError:
    """Refuse a message in the words of Go's gRPC, which users of etcd have in their logs."""
    return RpcError(
        Status.RESOURCE_EXHAUSTED,
        f"grpc: received message larger than max ({message_bytes} vs. {MAX_MESSAGE_BYTES})",
    )


def percent_encoded(message: str) -> bytes:
    """Encode a status message: what is not printable ASCII, and the percent sign, as octets.

    So are spaces at both ends: no field of HTTP/2 may begin or end with one.
    """
    encoded = quote(message, safe=_PLAIN, errors="replace")
    if encoded[:1] == " ":
        encoded = "%20" + encoded[1:]
    if encoded[-1:] == " ":
        encoded = encoded[:-1] + "%20"
    return encoded.encode()


class MessageReader:
    """Cuts the octets of a stream into messages, however they come in."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_between_messages(self) -> bool:
        """Whether nothing of a further message has come in."""
        return not self._buffer

    def feed(self, payload: bytes) -> list[bytes]:
        """Take what came in; return the messages that are complete."""
        self._buffer += payload
        messages = []
        start = 0
        while len(self._buffer) - start >= PREFIX_BYTES:
            compressed, length = PREFIX.unpack_from(self._buffer, start)
            if length > MAX_MESSAGE_BYTES:
                raise too_large(length)
            if compressed:
                raise RpcError(
                    Status.UNIMPLEMENTED, "compressed messages are not supported; send them plain"
                )
            end = start + PREFIX_BYTES + length
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[start + PREFIX_BYTES : end]))
            start = end
        del self._buffer[:start]
        return messages


_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
