"""A request on an HTTP/2 connection that is not a gRPC call: its body, and its answer."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from leasehold.basics.event_loop import EventLoop
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import (
    MAX_BODY_BYTES,
    HttpRequest,
    PendingResponse,
    Reply,
    date_field,
    handle_safely,
    plain,
)
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import WebHead
from leasehold.grpc.server_output import AnsweringStream
from leasehold.http2.header_encoder import Fields
from leasehold.http2.inbound import TOO_MANY, BufferFull

if TYPE_CHECKING:
    from leasehold.grpc.server_connection import ServerConnection

MAX_OWN_BYTES: Final = 256 * 1024
"""An answer in pieces has room for more while fewer bytes than this are unsent."""

_HEAD: Final = b"HEAD"


class WebRequest(AnsweringStream):
    """A request, from its first byte to the last of its answer."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_fields",
        "_held_bytes",
        "_method",
        "_refusal",
        "_target",
        "carrier",
        "pending",
    )

    is_grpc = False
    _is_cramped = False
    """Whether the handler found no room."""
    _added: Fields = ()
    """Header fields that every answer gets, in lower case."""

    def __init__(
        self, carrier: "ServerConnection", stream_id: int, head: WebHead, window: int, began: float
    ) -> None:
        self.start(stream_id, window, began)
        self.carrier = carrier
        self.pending: PendingResponse | None = None
        self._held_bytes = 0
        """The bytes that are counted as received: the body, and a large head."""
        self._method = head.method
        self._target = head.target
        self._fields = head.fields
        self._body = bytearray()
        self._body_bytes = 0
        self._refusal = head.refusal

    # Called for frames of the client.

    def open(self, head_bytes: int, *, is_complete: bool) -> None:
        """Begin a request; a large head counts as part of it until the body is complete."""
        if not is_complete:
            self._hold(head_bytes, is_new=True)

    def feed(self, payload: bytes) -> None:
        """Take bytes of a body; a refusal is sent at its end, when the client reads it."""
        self._body_bytes += len(payload)
        if self._refusal is not None:
            return
        if self._body_bytes > MAX_BODY_BYTES:
            self._drop()
            self._refusal = self.carrier.web.too_large(self._body_bytes)
        elif self._hold(len(payload)):
            self._body += payload

    def _hold(self, size_bytes: int, *, is_new: bool = False) -> bool:
        """Count received bytes of an incomplete request; return False if it is refused."""
        held_bytes = self._held_bytes + size_bytes
        try:
            self.carrier.buffer(size_bytes, held_bytes)
        except BufferFull as full:
            self._drop()
            self._refusal = plain(HTTPStatus.SERVICE_UNAVAILABLE, str(full))
            return False
        self._held_bytes = held_bytes
        self.carrier.account.track(self, max(1, held_bytes), is_new=is_new)
        return True

    def drop_overdue(self, now: float) -> None:
        """Refuse the request if its body takes too long to arrive completely."""
        limits = self.carrier.limits
        patience_s = limits.message_s + self._body_bytes / limits.min_bytes_per_s
        if not self.remote_done and not self._is_done and now - self.began >= patience_s:
            self._refuse(plain(HTTPStatus.REQUEST_TIMEOUT))

    def give_up(self) -> None:
        """Refuse the request: its body has been incomplete for longest, and there are too many."""
        self._refuse(plain(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY))
        self.carrier.flush_soon()

    def _refuse(self, refusal: Reply) -> None:
        self._drop()
        self._refusal = self._refusal or refusal
        self.reply(self._refusal)

    def _drop(self) -> None:
        """Drop the received part of the request."""
        self._fields, self._body = (), bytearray()
        self.carrier.buffer(-self._held_bytes)
        self._held_bytes = 0
        self.carrier.account.forget(self)

    def remote_ended(self) -> None:
        """Pass the request to the handler."""
        self.remote_done = True
        fields = [(field.name, field.value) for field in self._fields]
        request = HttpRequest(self._method, self._target, fields, bytes(self._body))
        self._drop()
        self._held_bytes = len(request.body)  # until the handler has taken it
        self.carrier.buffer(self._held_bytes, 0)
        refusal = self._refusal or self.carrier.web_refusal()
        if refusal is not None:
            self.reply(refusal)
            return
        pending = handle_safely(self.carrier.web, request, self)
        if not self._is_done:
            self.pending = pending

    # Called by the handler.

    @property
    def gate(self) -> DurabilityGate:
        """The gate for answers that are not on disk yet."""
        return self.carrier.gate

    @property
    def loop(self) -> EventLoop:
        """The event loop."""
        return self.carrier.loop

    def add_fields(self, fields: Fields) -> None:
        """Add header fields to the answer."""
        self._added = (*self._added, *[(name.lower(), value) for name, value in fields])

    @property
    def connection(self) -> object:
        """The connection of the request."""
        return self.carrier

    @property
    def peer(self) -> Peer:
        """The client."""
        return self.carrier.peer

    def reply(self, reply: Reply) -> None:
        """Send the whole answer."""
        if self._is_done or self.head_fields is not None:
            return
        self.head_fields = (
            (b":status", b"%d" % reply.status),
            *([(b"content-type", reply.content_type.encode())] if reply.content_type else []),
            *[(name.lower(), value) for name, value in reply.fields],
            *self._added,
            (b"date", date_field()[1]),
            (b"content-length", b"%d" % len(reply.body)),
        )
        self._append(b"" if self._method == _HEAD else reply.body)
        self._end()

    @property
    def _is_done(self) -> bool:
        return self.is_over or self.ending is not None

    def begin(self, status: HTTPStatus, fields: Fields) -> None:
        """Begin an answer in pieces."""
        if not self._is_done and self.head_fields is None:
            self.is_events = True
            lowered = [(name.lower(), value) for name, value in fields]
            self.head_fields = (
                (b":status", b"%d" % status),
                *lowered,
                *self._added,
                (b"date", date_field()[1]),
            )

    def write(self, data: bytes) -> None:
        """Send a piece."""
        if not self._is_done:
            self._append(data)

    def _append(self, data: bytes) -> None:
        if self.unsent is None:
            self.unsent = bytearray()
        self.unsent.extend(data)
        self.carrier.has_unsent(self, len(data))

    def finish(self) -> None:
        """End an answer in pieces."""
        if not self._is_done:
            self._end()

    def _end(self) -> None:
        self._drop()
        self.pending = None
        self.ending = b""
        self.carrier.has_unsent(self, 0)

    @property
    def has_room(self) -> bool:
        """Whether the client has room for output."""
        if self.unsent is not None and len(self.unsent) >= MAX_OWN_BYTES:
            self._is_cramped = True
            return False
        return self.carrier.has_event_room

    def body_taken(self) -> None:
        """Note that the body is not needed any more."""
        self._drop()

    def held(self, size_bytes: int) -> None:
        """Count bytes that wait for the gate, and are to be sent here."""
        self.carrier.held_event_bytes += size_bytes

    def flush(self) -> None:
        """Flush the output."""
        self.carrier.flush()

    def flush_soon(self) -> None:
        """Flush the output, together with other output of this turn of the loop."""
        self.carrier.flush_soon()

    # Called by the connection.

    def sent(self) -> None:
        """Called when some of the output was sent."""
        if self._is_cramped and len(self.unsent or b"") < MAX_OWN_BYTES // 2:
            self._is_cramped = False
            self.relieve()

    def relieve(self) -> None:
        """Called when the peer has room for events again."""
        if self.pending is not None:
            self.pending.relieved()

    @property
    def ends_by_itself(self) -> bool:
        """Whether a server that is closed should wait for the end of the request."""
        return self.pending is None or self.pending.ends_by_itself

    def dismiss(self, error: RpcError) -> None:
        """End with this error if no answer was begun, otherwise without it."""
        if self.pending is not None:
            self.pending.dismissed(error)

    def over(self) -> None:
        """Called when the stream is over."""
        self._drop()
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.gone()
