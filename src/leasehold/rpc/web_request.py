"""A request on an HTTP/2 connection that is no gRPC call: its body, and its answer."""

from http import HTTPStatus
from typing import Final, Protocol

from leasehold.rpc.answers import AnsweringStream
from leasehold.rpc.gate import Flushable, Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.host import Host
from leasehold.rpc.limits import Limits
from leasehold.rpc.pages import Reply, date_field, plain
from leasehold.rpc.receive_account import TOO_MANY, ReceiveAccount
from leasehold.rpc.routes import WebHead
from leasehold.rpc.web import MAX_BODY_BYTES, Ask, Visitor, Web, handle_safely

MAX_OWN_BYTES: Final = 256 * 1024
"""What an answer in pieces may have that was not sent, for it to have room for more."""

_HEAD: Final = b"HEAD"


class WebCarrier(Flushable, Protocol):
    """The connection that a request is on, as the request sees it."""

    gate: Gate
    limits: Limits
    host: Host
    account: ReceiveAccount
    held_event_bytes: int
    """What waits for the gate, and nobody has asked for right now."""

    @property
    def web(self) -> Web:
        """What answers requests."""
        ...

    @property
    def has_event_room(self) -> bool:
        """Whether the peer takes its events; if not, streams are told when it does."""
        ...

    def web_refusal(self) -> Reply | None:
        """Say why no request is answered now, if none is."""
        ...

    def buffer(self, octets: int, held_bytes: int = ...) -> None:
        """Count what came in and nobody has taken; refuse it if that is too much."""
        ...

    def flush_soon(self) -> None:
        """Send what was put out, together with what else is in this turn of the loop."""
        ...

    def has_unsent(self, stream: "WebRequest", octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        ...


class WebRequest(AnsweringStream):
    """A request, from its first octet to the last of its answer."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_fields",
        "_held_bytes",
        "_method",
        "_refusal",
        "_target",
        "carrier",
        "visitor",
    )

    is_grpc = False
    _is_cramped = False
    """Whether the handler was told that there is no room."""
    _added: Fields = ()
    """Header fields that the answer gets in any case, in lower case."""

    def __init__(
        self, carrier: WebCarrier, stream_id: int, head: WebHead, window: int, began: float
    ) -> None:
        self.start(stream_id, window, began)
        self.carrier = carrier
        self.visitor: Visitor | None = None
        self._held_bytes = 0
        """What is counted as received: the body, and a large head."""
        self._method = head.method
        self._target = head.target
        self._fields = head.fields
        self._body = bytearray()
        self._body_bytes = 0
        self._refusal = head.refusal

    # What the client does.

    def open(self, head_bytes: int, *, is_complete: bool) -> None:
        """Begin a request; a large head counts as part of it while the body has yet to come."""
        if not is_complete:
            self._hold(head_bytes, is_new=True)

    def feed(self, payload: bytes) -> None:
        """Take octets of a body; what is refused is so at its end, when the client listens."""
        self._body_bytes += len(payload)
        if self._refusal is not None:
            return
        if self._body_bytes > MAX_BODY_BYTES:
            self._drop()
            self._refusal = self.carrier.web.too_large(self._body_bytes)
        elif self._hold(len(payload)):
            self._body += payload

    def _hold(self, octets: int, *, is_new: bool = False) -> bool:
        """Count what came in of an incomplete request; False if it is refused."""
        held_bytes = self._held_bytes + octets
        try:
            self.carrier.buffer(octets, held_bytes)
        except RpcError as error:
            self._drop()
            self._refusal = plain(HTTPStatus.SERVICE_UNAVAILABLE, error.message)
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
        """Forget what came in of the request."""
        self._fields, self._body = (), bytearray()
        self.carrier.buffer(-self._held_bytes)
        self._held_bytes = 0
        self.carrier.account.forget(self)

    def remote_ended(self) -> None:
        """Have the request answered."""
        self.remote_done = True
        fields = [(field.name, field.value) for field in self._fields]
        ask = Ask(self._method, self._target, fields, bytes(self._body))
        self._drop()
        self._held_bytes = len(ask.body)  # until the handler has taken it
        self.carrier.buffer(self._held_bytes, 0)
        refusal = self._refusal or self.carrier.web_refusal()
        if refusal is not None:
            self.reply(refusal)
            return
        visitor = handle_safely(self.carrier.web, ask, self)
        if not self._is_done:
            self.visitor = visitor

    # What its handler does.

    @property
    def gate(self) -> Gate:
        """What holds back answers that are not on disk."""
        return self.carrier.gate

    @property
    def host(self) -> Host:
        """The event loop."""
        return self.carrier.host

    def add_fields(self, fields: Fields) -> None:
        """Send these header fields as well, whatever the answer is."""
        self._added = (*self._added, *[(name.lower(), value) for name, value in fields])

    @property
    def connection(self) -> object:
        """The connection that the request came on."""
        return self.carrier

    def reply(self, reply: Reply) -> None:
        """Answer, all at once."""
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
        """Begin an answer that comes in pieces."""
        if not self._is_done and self.head_fields is None:
            self.is_events = True
            lowered = [(name.lower(), value) for name, value in fields]
            self.head_fields = (
                (b":status", b"%d" % status),
                *lowered,
                *self._added,
                (b"date", date_field()[1]),
            )

    def write(self, octets: bytes) -> None:
        """Send a piece."""
        if not self._is_done:
            self._append(octets)

    def _append(self, octets: bytes) -> None:
        if self.unsent is None:
            self.unsent = bytearray()
        self.unsent.extend(octets)
        self.carrier.has_unsent(self, len(octets))

    def finish(self) -> None:
        """End an answer that came in pieces."""
        if not self._is_done:
            self._end()

    def _end(self) -> None:
        self._drop()
        self.visitor = None
        self.ending = b""
        self.carrier.has_unsent(self, 0)

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is sent."""
        if self.unsent is not None and len(self.unsent) >= MAX_OWN_BYTES:
            self._is_cramped = True
            return False
        return self.carrier.has_event_room

    def body_taken(self) -> None:
        """Note that the body is not needed any more."""
        self._drop()

    def held(self, octets: int) -> None:
        """Count what waits for the gate, and is to be sent here."""
        self.carrier.held_event_bytes += octets

    def flush(self) -> None:
        """Hand on what was sent."""
        self.carrier.flush()

    def flush_soon(self) -> None:
        """Hand on what was sent, with what else is sent in this turn of the loop."""
        self.carrier.flush_soon()

    # What happens to it.

    def sent(self) -> None:
        """Learn that some of what was sent has left."""
        if self._is_cramped and len(self.unsent or b"") < MAX_OWN_BYTES // 2:
            self._is_cramped = False
            self.relieve()

    def relieve(self) -> None:
        """Learn that the peer takes events again."""
        if self.visitor is not None:
            self.visitor.relieved()

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is worth waiting for the end of the request before a server is closed."""
        return self.visitor is None or self.visitor.ends_by_itself

    def dismiss(self, error: RpcError) -> None:
        """End with this error, if nothing was said yet, or end at least."""
        if self.visitor is not None:
            self.visitor.dismissed(error)

    def over(self) -> None:
        """Learn that the stream is gone."""
        self._drop()
        visitor, self.visitor = self.visitor, None
        if visitor is not None:
            visitor.gone()
