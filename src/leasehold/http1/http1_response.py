"""The answer to one request of HTTP/1.1: in one piece, or in chunks over time."""

from http import HTTPStatus
from typing import TYPE_CHECKING

from leasehold.basics.event_loop import LoopHost
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import Gate
from leasehold.grpc.http_handlers import Reply, Visitor, date_field
from leasehold.http1.http1_request import RequestHead
from leasehold.http2.header_encoder import Fields

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
        "visitor",
    )

    def __init__(self, connection: "Http1Connection", head: RequestHead) -> None:
        self._connection = connection
        self._is_head = head.method == b"HEAD"
        self._is_old = head.is_old
        self._may_keep_alive = head.keeps_alive
        self._added: Fields = ()
        self._has_begun = False
        self.is_over = False
        self.visitor: Visitor | None = None

    @property
    def gate(self) -> Gate:
        """The gate for answers that are not on disk yet."""
        return self._connection.gate

    @property
    def host(self) -> LoopHost:
        """The event loop."""
        return self._connection.host

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

    def write(self, octets: bytes) -> None:
        """Send a piece."""
        if octets and self._has_begun and not self.is_over:
            self._connection.put(
                octets if self._is_old else b"%x\r\n%b\r\n" % (len(octets), octets)
            )

    def finish(self) -> None:
        """End an answer in pieces."""
        if self._has_begun and not self.is_over:
            self._connection.put(b"" if self._is_old else b"0\r\n\r\n")
            self._end(keeps_alive=self._keeps_alive)

    def _end(self, *, keeps_alive: bool) -> None:
        self.is_over = True
        self.visitor = None
        self._connection.answered(keeps_alive=keeps_alive)

    def body_taken(self) -> None:
        """Note that the body is not needed any more."""
        if not self.is_over:
            self._connection.body_taken()

    def held(self, octets: int) -> None:
        """Count bytes of this answer that wait for the gate."""
        self._connection.held(octets)

    def flush(self) -> None:
        """Flush the output."""
        self._connection.flush()

    def flush_soon(self) -> None:
        """Flush the output, together with other output of this turn of the loop."""
        self._connection.flush_soon()
