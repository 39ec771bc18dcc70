"""The server's side of one HTTP/1.1 connection; it does no I/O.

Theory of operation. A connection repeats these states:

    head     receiving the request line and fields of the next request
    body     receiving its body, which is complete before it is handled
    answer   a handler has it: it may have answered already, or take hours

Data received behind a request waits until it is answered, so answers are sent in the order of their
requests even if a client pipelines them; and if that is much, nothing more is read (`throttle`).
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from leasehold.basics.event_loop import EventLoop, RunningLoop
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import HttpHandler, HttpRequest, Reply, handle_safely, plain
from leasehold.grpc.protocol import RpcError
from leasehold.http1.http1_messages import (
    BARE_LINE_END,
    HEAD_END,
    MAX_HEAD_BYTES,
    BodyTooLarge,
    ChunkedBody,
    Http1Answer,
    NotHttp,
    RequestHead,
    RequestRefused,
    SizedBody,
    body_of,
    parse_head,
)
from leasehold.http2.inbound import SMALL_BYTES, ReceiveAccount
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import DeferredFlush

MAX_PIPELINED: Final = 100
"""Requests answered per `receive`; with more pipelined ones the connection is closed."""

MAX_AHEAD_BYTES: Final = 64 * 1024
"""How much may be received behind a request that is not answered; then nothing more is read."""

_TOO_MUCH: Final = "the server has too many requests that are not complete; try again"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_UNREAD: Final = RequestHead(b"", b"", [], 0, False, False, False)
"""The head of a request that could not be read."""


def _ignore(_: bool) -> None:
    """Do nothing: keep reading."""


class Http1Connection:
    """One HTTP/1.1 connection with one client. `transmit` is called with the output.

    `throttle` is called with True to stop reading, and with False to resume.
    """

    is_pinged = False

    def __init__(
        self,
        web: HttpHandler,
        transmit: Callable[[bytes], None],
        *,
        gate: DurabilityGate | None = None,
        limits: ConnectionLimits | None = None,
        loop: EventLoop | None = None,
        throttle: Callable[[bool], None] = _ignore,
        account: ReceiveAccount | None = None,
        peer: Peer | None = None,
    ) -> None:
        self.gate = DurabilityGate() if gate is None else gate  # an empty gate is false
        self.loop = loop or RunningLoop()
        self.peer = peer or Peer()
        self.flush_soon = DeferredFlush(self.loop.call_soon, self.flush).schedule
        self._web = web
        self._transmit = transmit
        self._throttle = throttle
        limits = limits or ConnectionLimits()
        self._max_event_bytes = limits.max_event_bytes
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._head: RequestHead | None = None
        self._body: SizedBody | ChunkedBody | None = None
        self._answer: Http1Answer | None = None
        """Set while a handler has a request."""
        self._in_one_go = 0
        self._held_bytes = 0
        self._account = account or ReceiveAccount(limits)
        self._charged_bytes = 0
        """The bytes that this connection holds of the account."""
        self._handled_bytes = 0
        """The bytes of the body of the request that is being answered, until it is taken."""
        self._is_paused = self._is_cramped = self._is_throttled = False
        self._is_parting = False
        self.is_closing = False
        """Whether the connection is to be closed once the output is written."""
        self.lingers = False
        """Whether the client may still be sending when that happens."""
        self.activity = 0
        """How often data was received."""
        self.begun = 0
        """How many requests were received completely."""
        self.put_bytes = 0
        self.unsent_bytes = self.taken_bytes = 0

    # Used by the watchdog.

    @property
    def has_greeted(self) -> bool:
        """Whether no request was received in part."""
        return self._answer is not None or not (self._buffer or self._head)

    @property
    def has_streams(self) -> bool:
        """Whether a request is being answered."""
        return self._answer is not None

    @property
    def is_receiving(self) -> bool:
        """Whether a request was received in part."""
        return not self.has_greeted

    def drop_overdue(self, now: float) -> None:
        """Do nothing: `ConnectionLimits.first_bytes_s` is for a whole request."""

    def forget_memos(self) -> None:
        """Do nothing: there are no caches."""

    def drop_stalled(self) -> bool:
        """Return False: there is one answer at a time."""
        return False

    def ping(self) -> None:
        """Do nothing: there are no pings."""

    # Input.

    def receive(self, data: bytes) -> None:
        """Take received data, and handle the requests that are complete."""
        self.activity += 1
        self._buffer += data
        self._advance()

    def _advance(self) -> None:
        self._in_one_go = 0
        while not self.is_closing and self._answer is None:
            try:
                if self._head is None and not self._take_head():
                    break
                assert self._body is not None
                if not self._body.take(self._buffer):
                    break
            except NotHttp:
                self._hang_up()
            except RequestRefused as refused:
                self._refuse(plain(refused.status, refused.why))
            except BodyTooLarge as error:
                self._refuse(self._web.too_large(error.body_bytes))
            else:
                self._handle()
        self._charge()
        self._set_throttle(is_enough=len(self._buffer) > MAX_AHEAD_BYTES and self.has_streams)
        self.flush()

    def _charge(self) -> None:
        """Count received bytes of an incomplete request; refuse it above the limit."""
        held_bytes = len(self._buffer) + self._handled_bytes
        held_bytes += 0 if self._body is None else len(self._body.data)
        self._account.used_bytes += held_bytes - self._charged_bytes
        is_more, self._charged_bytes = held_bytes > self._charged_bytes, held_bytes
        if is_more and held_bytes > SMALL_BYTES and self._account.is_overdrawn and self._head:
            self._refuse(plain(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MUCH))
            self._charge()

    def _take_head(self) -> bool:
        """Parse the head of the next request; return False if it is incomplete."""
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # as after the body of an old client's request
            del buffer[:2]
        if not buffer or buffer == b"\r":
            return False
        if not buffer[:1].isalpha():
            raise NotHttp  # no method begins like this
        end = buffer.find(HEAD_END, 0, MAX_HEAD_BYTES + len(HEAD_END))
        if BARE_LINE_END.search(buffer, 0, MAX_HEAD_BYTES if end < 0 else end):
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "lines of the request head must end with CR LF"
            )
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES + len(HEAD_END):
                raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        head = parse_head(bytes(buffer[:end]))
        del buffer[: end + len(HEAD_END)]
        self._head, self._body = head, body_of(head.length)
        if head.wants_continue and head.length != 0 and not buffer:
            self._out.append(_CONTINUE)
        return True

    def _handle(self) -> None:
        head, body = self._head, self._body
        assert head is not None
        assert body is not None
        self._head = self._body = None
        self.begun += 1
        self._in_one_go += 1
        answer = self._answer = Http1Answer(self, head)
        request = HttpRequest(head.method, head.target, head.fields, bytes(body.data))
        self._handled_bytes = len(request.body)
        pending = handle_safely(self._web, request, answer)
        if not answer.is_over:
            answer.pending = pending

    def _hang_up(self) -> None:
        """Close without an answer: the client does not speak HTTP."""
        self.is_closing = True
        self._out.append(b"")

    def _refuse(self, reply: Reply) -> None:
        """Answer a request that was not read completely, and read nothing more."""
        self.lingers = True
        self._buffer.clear()
        Http1Answer(self, self._head or _UNREAD._replace(keeps_alive=False)).reply(reply)
        self._head = self._body = None
        self.is_closing = True

    def _set_throttle(self, *, is_enough: bool) -> None:
        if is_enough != self._is_throttled:
            self._is_throttled = is_enough
            self._throttle(is_enough)

    # Output.

    @property
    def takes_more(self) -> bool:
        """Whether there may be another request after this one."""
        return self._in_one_go < MAX_PIPELINED and not (self._is_parting or self.lingers)

    def put(self, data: bytes) -> None:
        self._out.append(data)

    def answered(self, *, keeps_alive: bool) -> None:
        """Called when the answer is complete; continues with data that was received meanwhile."""
        self.is_closing = self.is_closing or not keeps_alive
        self.body_taken()
        if self._answer is not None:
            self._answer = None
            self._is_cramped = False
            if self._buffer:
                self.loop.call_soon(self._go_on)
            else:
                self._set_throttle(is_enough=False)

    def _go_on(self) -> None:
        if self._answer is None and not self.is_closing:
            self._advance()

    def body_taken(self) -> None:
        """Note that the body of the request is not needed any more."""
        self._account.used_bytes -= self._handled_bytes
        self._charged_bytes -= self._handled_bytes
        self._handled_bytes = 0

    def held(self, size_bytes: int) -> None:
        """Count bytes that wait for the gate."""
        self._held_bytes += size_bytes

    @property
    def has_room(self) -> bool:
        """Whether the client has room; if not, `PendingResponse.relieved` is called when it has."""
        has_room = not self._is_paused and self._held_bytes < self._max_event_bytes
        self._is_cramped = self._is_cramped or not has_room
        return not self._is_cramped

    def flush(self) -> None:
        """Hand the output to the transport."""
        self._relieve()
        if self._out:
            out, self._out = b"".join(self._out), []
            self.put_bytes += len(out)
            self._transmit(out)

    def _relieve(self) -> None:
        if (
            self._is_cramped
            and not self._is_paused
            and self._held_bytes <= self._max_event_bytes // 2
            and self._answer is not None
            and self._answer.pending is not None
        ):
            self._is_cramped = False
            self._answer.pending.relieved()

    def pause(self) -> None:
        """Called when the transport's buffer is full."""
        self._is_paused = True

    def resume(self) -> None:
        """Called when the transport's buffer has room again."""
        self._is_paused = False
        self.flush()

    # Closing.

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is under way, except one without `ends_by_itself`."""
        answer = self._answer
        return answer is None or (answer.pending is not None and not answer.pending.ends_by_itself)

    def drain(self) -> None:
        """Accept no request after the one that is being answered."""
        self._is_parting = True

    def dismiss(self, error: RpcError) -> None:
        """End the current answer with this error, and then the connection."""
        self._is_parting = True
        if self._answer is not None and self._answer.pending is not None:
            self._answer.pending.dismissed(error)
        self.is_closing = True
        self._out.append(b"")
        self.flush()

    def lost(self) -> None:
        """Drop the current answer: the connection is gone."""
        self.is_closing = True
        self._account.used_bytes -= self._charged_bytes
        self._charged_bytes = self._handled_bytes = 0
        answer, self._answer = self._answer, None
        if answer is not None:
            pending, answer.pending = answer.pending, None
            answer.is_over = True
            if pending is not None:
                pending.gone()
