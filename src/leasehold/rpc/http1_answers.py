"""The answer to one request of HTTP/1.1: in one go, or in chunks as they come up."""

from http import HTTPStatus
from typing import Protocol

from leasehold.rpc.gate import Flushable, Gate
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.host import Host
from leasehold.rpc.http1_heads import RequestHead
from leasehold.rpc.pages import Reply, date_field
from leasehold.rpc.web import Visitor


class Line(Flushable, Protocol):
    """The connection that an answer is sent on, as the answer sees it."""

    @property
    def gate(self) -> Gate:
        """What holds back answers that are not on disk."""
        ...

    @property
    def host(self) -> Host:
        """The event loop."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is sent."""
        ...

    @property
    def takes_more(self) -> bool:
        """Whether there may be another request after this one."""
        ...

    def put(self, octets: bytes) -> None:
        """Put octets into the output."""
        ...

    def body_taken(self) -> None:
        """Note that the body of the request is not needed any more."""
        ...

    def held(self, octets: int) -> None:
        """Count what waits for the gate."""
        ...

    def flush_soon(self) -> None:
        """Hand on what was put out, with what else is put out in this turn of the loop."""
        ...

    def answered(self, *, keeps_alive: bool) -> None:
        """Learn that the answer is complete."""
        ...


class Http1Answer:
    """The answer to one request; once it is over, nothing that is said has any effect."""

    __slots__ = (
        "_added",
        "_has_begun",
        "_is_head",
        "_is_old",
        "_line",
        "_may_keep_alive",
        "is_over",
        "visitor",
    )

    def __init__(self, line: Line, head: RequestHead) -> None:
        self._line = line
        self._is_head = head.method == b"HEAD"
        self._is_old = head.is_old
        self._may_keep_alive = head.keeps_alive
        self._added: Fields = ()
        self._has_begun = False
        self.is_over = False
        self.visitor: Visitor | None = None

    @property
    def gate(self) -> Gate:
        """What holds back answers that are not on disk."""
        return self._line.gate

    @property
    def host(self) -> Host:
        """The event loop."""
        return self._line.host

    @property
    def connection(self) -> object:
        """The connection that the request came on."""
        return self._line

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is sent."""
        return self._line.has_room

    def add_fields(self, fields: Fields) -> None:
        """Send these header fields as well, whatever the answer is."""
        self._added = (*self._added, *fields)

    def reply(self, reply: Reply) -> None:
        """Answer, all at once."""
        if self.is_over or self._has_begun:
            return
        fields = (
            *([(b"Content-Type", reply.content_type.encode())] if reply.content_type else []),
            *reply.fields,
            (b"Content-Length", b"%d" % len(reply.body)),
        )
        keeps_alive = self._may_keep_alive and self._line.takes_more
        body = b"" if self._is_head else reply.body
        self._put_head(reply.status, fields, keeps_alive=keeps_alive, body=body)
        self._end(keeps_alive=keeps_alive)

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        """Begin an answer in chunks; for an old client its end is that of the connection."""
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
        self._line.put(b"\r\n".join((*lines, b"", body)))

    def write(self, octets: bytes) -> None:
        """Send a piece."""
        if octets and self._has_begun and not self.is_over:
            self._line.put(octets if self._is_old else b"%x\r\n%b\r\n" % (len(octets), octets))

    def finish(self) -> None:
        """End an answer that came in pieces."""
        if self._has_begun and not self.is_over:
            self._line.put(b"" if self._is_old else b"0\r\n\r\n")
            self._end(keeps_alive=self._keeps_alive)

    def _end(self, *, keeps_alive: bool) -> None:
        self.is_over = True
        self.visitor = None
        self._line.answered(keeps_alive=keeps_alive)

    def body_taken(self) -> None:
        """Note that the body is not needed any more."""
        if not self.is_over:
            self._line.body_taken()

    def held(self, octets: int) -> None:
        """Count what waits for the gate, and is to be sent here."""
        self._line.held(octets)

    def flush(self) -> None:
        """Hand on what was sent."""
        self._line.flush()

    def flush_soon(self) -> None:
        """Hand on what was sent, with what else is sent in this turn of the loop."""
        self._line.flush_soon()
