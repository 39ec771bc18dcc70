"""Messages of HTTP/1.1: the head and the body of a request, and the answer to it.

A body has a known length, or is in chunks. It takes its bytes from the front of the connection's
buffer, and leaves the rest. An ambiguous head is refused: see RFC 9112, 11.2. An answer is sent in
one piece, or in chunks over time.
"""

import re
from http import HTTPMethod, HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold.basics.event_loop import EventLoop
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import MAX_BODY_BYTES, PendingResponse, Reply, date_field
from leasehold.http1.authority import parse_authority
from leasehold.http2.header_encoder import Fields
from leasehold.http2.hpack import MAX_FIELDS

MAX_HEAD_BYTES: Final = 8 * 1024
"""The request line and header fields of one request, or the trailers behind a body in chunks."""

HEAD_END: Final = b"\r\n\r\n"
BARE_LINE_END: Final = re.compile(rb"(?<!\r)\n")
"""Some implementations take it for the end of a line, and others do not."""

MAX_CHUNK_LINE_BYTES: Final = 256
"""The line before a chunk: eight digits, and extensions, which are ignored."""

MAX_CHUNKS: Final = 65_536
"""Chunks of one body: 64 bytes each for the largest body."""


class RequestRefused(Exception):
    """A request that is refused; the connection ends with it."""

    def __init__(self, status: HTTPStatus, why: str = "") -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why


class NotHttp(Exception):
    """The client does not speak HTTP."""


class RequestHead(NamedTuple):
    """The head of a request."""

    method: bytes
    target: bytes
    fields: list[tuple[bytes, bytes]]
    """Names in lower case, values without the spaces around them."""
    length: int | None
    """The length of the body; None if it is in chunks."""
    is_old: bool
    """Whether the client speaks HTTP/1.0, and so no chunks."""
    keeps_alive: bool
    wants_continue: bool
    """Whether the client waits for `100 Continue` before it sends the body."""


def parse_head(head: bytes) -> RequestHead:
    """Parse a head, without the empty line at its end."""
    line, _, rest = head.partition(b"\r\n")
    parts = line.split(b" ")
    if parts[0] not in _METHODS and not parts[-1].startswith(b"HTTP/"):
        raise NotHttp
    if len(parts) != _PARTS or parts[2] not in _VERSIONS or not _TOKEN.fullmatch(parts[0]):
        raise RequestRefused(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    if not _TARGET.fullmatch(target) and (target, method) != (b"*", b"OPTIONS"):
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, "the request target must be a path without control characters"
        )
    is_old = version == b"HTTP/1.0"
    fields = parse_fields(rest)
    _check_host(fields, is_old=is_old)
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:  # its host overrides the field's (RFC 9112, 3.2.2)
        fields = [field for field in fields if field[0] != b"host"]
        fields.append((b"host", absolute[1]))
        _check_host(fields, is_old=is_old)
    options = _options(fields, b"connection")
    keeps_alive = b"keep-alive" in options if is_old else b"close" not in options
    expected = _options(fields, b"expect")
    if expected not in ([], [b"100-continue"]):
        raise RequestRefused(HTTPStatus.EXPECTATION_FAILED)
    return RequestHead(
        method,
        _ABSOLUTE.sub(b"", target) or b"/",
        fields,
        _length(fields, is_old=is_old),
        is_old,
        keeps_alive and not (is_old and b"close" in options),
        bool(expected) and not is_old,
    )


def parse_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Parse header fields, or trailers."""
    fields = []
    if lines.count(b"\r\n") >= MAX_FIELDS:
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    for line in lines.split(b"\r\n") if lines else ():
        match = _FIELD.fullmatch(line)
        if match is None:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "malformed header field")
        fields.append((match[1].lower(), match[2].strip(b" \t")))
    return fields


def _check_host(fields: list[tuple[bytes, bytes]], *, is_old: bool) -> None:
    """Refuse a request without `Host`, with several, and with one that is malformed."""
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or not (hosts or is_old):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "a request must have exactly one Host field")
    try:
        for host in hosts:
            parse_authority(host.decode("ascii"))
    except ValueError:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "malformed Host field") from None


def _options(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the elements of a list that may be spread over several fields."""
    values = [value.lower() for each, value in fields if each == name]
    return [option for value in values for part in value.split(b",") if (option := part.strip())]


def _length(fields: list[tuple[bytes, bytes]], *, is_old: bool) -> int | None:
    """Return the length of the body; a head that has it twice is an attempt at smuggling."""
    lengths = {value for name, value in fields if name == b"content-length"}
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if lengths or is_old:
            why = "Transfer-Encoding must not be used with Content-Length or HTTP/1.0"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
        if codings != [b"chunked"]:
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding must be chunked")
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "Content-Length must be one decimal number")
    return int(length)


# Bodies.


class BodyTooLarge(Exception):
    """A body above the limit."""

    def __init__(self, body_bytes: int) -> None:
        super().__init__(body_bytes)
        self.body_bytes = body_bytes


class SizedBody:
    """A body whose length is known."""

    def __init__(self, length: int) -> None:
        if length > MAX_BODY_BYTES:
            raise BodyTooLarge(length)
        self._left = length
        self.data = bytearray()

    def take(self, buffer: bytearray) -> bool:
        """Take the available bytes; return whether the body is complete."""
        piece = buffer[: self._left]
        del buffer[: self._left]
        self.data += piece
        self._left -= len(piece)
        return not self._left


class ChunkedBody:
    """A body in chunks, each after its size, with trailers behind the last."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._left = 0
        """The missing bytes of the current chunk, and of the line end behind it."""
        self._chunks = 0
        self._is_last = False

    def take(self, buffer: bytearray) -> bool:
        """Take the available bytes; return whether the body is complete."""
        at = 0
        try:
            while not self._is_last:
                if self._left:
                    at = self._data(buffer, at)
                    if self._left:
                        return False
                line_end = buffer.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES)
                if line_end < 0:
                    if len(buffer) - at >= MAX_CHUNK_LINE_BYTES:
                        raise RequestRefused(
                            HTTPStatus.BAD_REQUEST,
                            f"chunk size line must have at most {MAX_CHUNK_LINE_BYTES} bytes",
                        )
                    return False
                self._size(bytes(buffer[at:line_end]))
                at = line_end + 2
        finally:
            del buffer[:at]
        return self._trailers(buffer)

    def _data(self, buffer: bytearray, at: int) -> int:
        """Take the available bytes of the current chunk, with the line end behind it."""
        data_bytes = max(0, self._left - 2)
        piece = buffer[at : at + data_bytes]
        self.data += piece
        self._left -= len(piece)
        at += len(piece)
        if self._left <= 2 and len(buffer) - at >= 2:
            if buffer[at : at + 2] != b"\r\n":
                raise RequestRefused(
                    HTTPStatus.BAD_REQUEST, "chunk is longer than its declared size"
                )
            self._left = 0
            at += 2
        return at

    def _size(self, line: bytes) -> None:
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "chunk size must be a hexadecimal number")
        size = int(match[1], 16)
        self._chunks += 1
        if len(self.data) + size > MAX_BODY_BYTES:
            raise BodyTooLarge(len(self.data) + size)
        if self._chunks > MAX_CHUNKS:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"body must have at most {MAX_CHUNKS} chunks"
            )
        self._is_last = not size
        self._left = size + 2 if size else 0

    def _trailers(self, buffer: bytearray) -> bool:
        """Skip the trailers; they must be fields, but are ignored."""
        if buffer.startswith(b"\r\n"):
            del buffer[:2]
            return True
        end = buffer.find(HEAD_END, 0, MAX_HEAD_BYTES + len(HEAD_END))
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES + len(HEAD_END):
                raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        parse_fields(bytes(buffer[:end]))
        del buffer[: end + len(HEAD_END)]
        return True


def body_of(length: int | None) -> SizedBody | ChunkedBody:
    """Return an empty body of this length, or in chunks."""
    return ChunkedBody() if length is None else SizedBody(length)


_PARTS: Final = 3
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
"""Without the spaces around a value: to match them here takes quadratic time, or worse."""
_TARGET: Final = re.compile(
    rb"(?:/|https?://)(?:[^\x00-\x20\x7f%?]|%[0-9A-Fa-f]{2})*(?:\?[^\x00-\x20\x7f]*)?",
    re.IGNORECASE,
)
"""The targets that etcd accepts: bytes from 0x80 on too, and in a query anything after a percent
sign."""
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE: Final = re.compile(rb"\Ahttps?://([^/?]*)", re.IGNORECASE)
_METHODS: Final = frozenset(method.value.encode() for method in HTTPMethod)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


if TYPE_CHECKING:
    from leasehold.http1.http1_connection import Http1Connection


class Http1Answer:
    """The answer to one request; once it is over, calls have no effect."""

    __slots__ = (
        "_added",
        "_connection",
        "_has_begun",
        "_is_head",
        "_is_old",
        "_may_keep_alive",
        "is_over",
        "pending",
    )

    def __init__(self, connection: "Http1Connection", head: RequestHead) -> None:
        self._connection = connection
        self._is_head = head.method == b"HEAD"
        self._is_old = head.is_old
        self._may_keep_alive = head.keeps_alive
        self._added: Fields = ()
        self._has_begun = False
        self.is_over = False
        self.pending: PendingResponse | None = None

    @property
    def gate(self) -> DurabilityGate:
        """The gate for answers that are not on disk yet."""
        return self._connection.gate

    @property
    def loop(self) -> EventLoop:
        """The event loop."""
        return self._connection.loop

    @property
    def connection(self) -> object:
        """The connection of the request."""
        return self._connection

    @property
    def peer(self) -> Peer:
        """The client."""
        return self._connection.peer

    @property
    def has_room(self) -> bool:
        """Whether the client has room for output."""
        return self._connection.has_room

    def add_fields(self, fields: Fields) -> None:
        """Add header fields to the answer."""
        self._added = (*self._added, *fields)

    def reply(self, reply: Reply) -> None:
        """Send the whole answer."""
        if self.is_over or self._has_begun:
            return
        fields = (
            *([(b"Content-Type", reply.content_type.encode())] if reply.content_type else []),
            *reply.fields,
            (b"Content-Length", b"%d" % len(reply.body)),
        )
        keeps_alive = self._may_keep_alive and self._connection.takes_more
        body = b"" if self._is_head else reply.body
        self._put_head(reply.status, fields, keeps_alive=keeps_alive, body=body)
        self._end(keeps_alive=keeps_alive)

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        """Begin an answer in chunks; for an HTTP/1.0 client it ends with the connection."""
        if self.is_over or self._has_begun:
            return
        self._has_begun = True
        if not self._is_old:
            fields = (*fields, (b"Transfer-Encoding", b"chunked"))
        self._put_head(status, fields, keeps_alive=self._keeps_alive)

    @property
    def _keeps_alive(self) -> bool:
        return self._may_keep_alive and not self._is_old

    def _put_head(
        self, status: HTTPStatus, fields: Fields, *, keeps_alive: bool, body: bytes = b""
    ) -> None:
        lines = [b"HTTP/1.1 %d %b" % (status.value, status.phrase.encode())]
        lines += [b"%b: %b" % field for field in (*fields, *self._added, date_field())]
        lines.append(b"Connection: " + (b"keep-alive" if keeps_alive else b"close"))
        self._connection.put(b"\r\n".join((*lines, b"", body)))

    def write(self, data: bytes) -> None:
        """Send a piece."""
        if data and self._has_begun and not self.is_over:
            self._connection.put(data if self._is_old else b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        """End an answer in pieces."""
        if self._has_begun and not self.is_over:
            self._connection.put(b"" if self._is_old else b"0\r\n\r\n")
            self._end(keeps_alive=self._keeps_alive)

    def _end(self, *, keeps_alive: bool) -> None:
        self.is_over = True
        self.pending = None
        self._connection.answered(keeps_alive=keeps_alive)

    def body_taken(self) -> None:
        """Note that the body is not needed any more."""
        if not self.is_over:
            self._connection.body_taken()

    def held(self, size_bytes: int) -> None:
        """Count bytes of this answer that wait for the gate."""
        self._connection.held(size_bytes)

    def flush(self) -> None:
        """Flush the output."""
        self._connection.flush()

    def flush_soon(self) -> None:
        """Flush the output, together with other output of this turn of the loop."""
        self._connection.flush_soon()
