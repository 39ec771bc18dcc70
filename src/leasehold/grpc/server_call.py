"""A gRPC call at the server: its received messages and its output.

Theory of operation. The server's side of a call goes through three states, each of which implies
the one before:

    is_ending   a handler has ended the call; nothing more is received or sent, but earlier messages
                may still wait for the gate
    ending      the gate has released the end; it is sent after `unsent`
    is_over     the last frame was sent, or the stream was reset, or the connection is gone; nothing
                more of it is sent

A call has a timer only if it has a timeout and may take a while: one that is answered immediately
is not late, and one whose answer waits for the disk is cancelled by its client.
"""

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.event_loop import LoopTimer
from leasehold.basics.rope import Rope
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, DoneCallback, call_interceptor, parse_timeout
from leasehold.grpc.coroutine_handlers import DeferredAnswers
from leasehold.grpc.durability_gate import Deliver
from leasehold.grpc.error_details import as_rpc_error
from leasehold.grpc.protocol import PREFIX, PREFIX_BYTES, MessageReader, RpcError, packed
from leasehold.grpc.routes import NO_HANDLER, DeferredAnswer, Head, LongRead, Pieces, StreamHandler
from leasehold.grpc.server_output import AnsweringStream, failed_trailers, ok_trailers
from leasehold.http2.frames import ErrorCode
from leasehold.http2.header_encoder import Fields
from leasehold.http2.inbound import TOO_MANY, BufferFull

if TYPE_CHECKING:
    from leasehold.grpc.server_connection import ServerConnection

logger = logging.getLogger(__name__)

MAX_OWN_BYTES: Final = 256 * 1024
"""A stream has room of its own while fewer bytes than this are unsent."""


class ServerCall(AnsweringStream):
    """A gRPC call, at the server."""

    __slots__ = (
        "carrier",
        "exchanges",
        "handler",
        "head",
        "is_ending",
        "reader",
        "timeout",
    )

    exchanges: int
    """How many messages were received."""
    is_ending: bool
    """Whether the call has ended, though the end may still wait for the gate."""
    timeout: bytes | None
    """How long the call may take, until a timer is set for it."""

    _alarm: LoopTimer | None = None
    _timeout_s: float | None = None
    _is_cramped = False
    """Whether the handler found no room of its own."""
    failure: Status | None = None
    """The status of the call, if it is not OK."""
    held_until = 0
    """The position that must be released before all earlier messages are sent."""
    _head_bytes = 0
    """The part of the connection's received data that is the headers of this call."""
    deferred_answers: "DeferredAnswers | None" = None
    """The pending answers of this call."""
    _done_callback: DoneCallback | None = None

    def __init__(
        self,
        carrier: "ServerConnection",
        stream_id: int,
        head: Head,
        window: int,
        timeout: bytes | None,
        began: float,
    ) -> None:
        self.carrier = carrier
        self.head = head
        self.timeout = timeout
        self.exchanges = 0
        self.is_ending = False
        self.reader: MessageReader | None = None
        self.handler: StreamHandler | None = None
        # The same as `start`, inlined: it is run for each call.
        self.id = stream_id
        self.began = began
        self.window = window
        self.replenish = 0
        self.unsent = self.ending = None
        self.has_head = self.is_queued = self.is_events = self.remote_done = self.is_over = False

    # Called for frames of the client.

    def open(self) -> None:
        """Begin a call that is intercepted, has a handler of its own, or no handler."""
        head = self.head
        if head.error is not None:  # it is cached, and so it must not be raised
            self.end(head.error)
            return
        try:
            if head.counted_bytes:
                self.carrier.buffer(head.counted_bytes)
                self._head_bytes = head.counted_bytes
            if head.interceptor is not None:
                self._done_callback = call_interceptor(head.interceptor, self.context)
                if self._done_callback is not None:
                    self.reader = self._make_reader()  # so it does not end on the fast path
            if head.subscription is not None:
                self.set_alarm()
                self.is_events = not head.waits_for_room
                self.handler = head.subscription(self)
        except Exception as error:  # noqa: BLE001  every failure is sent to the client
            self.fail(error)

    def set_alarm(self) -> None:
        """Set a timer for the timeout, if there is one; for a call that may take a while."""
        timeout_s = self.timeout_s
        self.timeout = None
        if timeout_s is not None and self._alarm is None:
            self._alarm = self.carrier.loop.call_later(timeout_s, self._too_late)

    def goes_on(self) -> None:
        """Called when the client sends more after a message."""
        try:
            self.set_alarm()
        except RpcError as error:
            self.timeout = None
            self.end(error)

    @property
    def timeout_s(self) -> float | None:
        """How long the call may take."""
        if self.timeout is not None:
            try:
                self._timeout_s = parse_timeout(self.timeout)
            except ValueError as error:
                raise RpcError(Status.INTERNAL, str(error)) from None
        return self._timeout_s

    def _too_late(self) -> None:
        self.end(RpcError(Status.DEADLINE_EXCEEDED, "context deadline exceeded"))
        self.carrier.flush()
        if self.unsent and not self.is_over:  # the client does not read earlier output
            self.carrier.drop(self)
            self.carrier.flush()

    @property
    def connection(self) -> object:
        """The same object for all streams of one connection."""
        return self.carrier

    @property
    def context(self) -> CallContext:
        """The context of the call, made when it is needed."""
        head = self.head
        return CallContext(head.path, head.metadata, self.carrier.peer, self.timeout_s, self.began)

    def feed(self, payload: bytes) -> None:
        """Take received bytes, and handle the messages that are complete."""
        if self.is_ending:  # there is no handler any more, and nothing may pile up
            return
        reader = self.reader
        if reader is None:
            reader = self.reader = self._make_reader()
        before = reader.buffered_bytes
        try:
            messages = reader.feed(payload)
            held_bytes = reader.buffered_bytes
            is_new = bool(messages) or not before
            if held_bytes and is_new:
                reader.since = self.carrier.loop.now()
            self.carrier.buffer(held_bytes - before, held_bytes)
            self.carrier.account.track(self, held_bytes, is_new=is_new)
        except (RpcError, BufferFull) as error:
            self._drop_reader(before)
            self.fail(error)
            messages = []
        if reader.excess_bytes:
            self.carrier.pay_for_unpacking(reader.excess_bytes)
            reader.excess_bytes = 0
        for message in messages:
            self.message_received(message)

    def _make_reader(self) -> MessageReader:
        return MessageReader(self.carrier.limits.max_message_bytes, self.head.encoding)

    def drop_overdue(self, now: float) -> None:
        """End the call if its request takes too long; for a unary call, from its headers on.

        A streaming call may stay open without a message.
        """
        reader, limits = self.reader, self.carrier.limits
        if self.is_ending:
            return
        if reader is None or not reader.buffered_bytes:
            is_waiting = self.head.is_unary and not self.remote_done and not self.deferred_answers
            if is_waiting and now - self.began >= limits.message_s:
                why = f"the message of a unary call did not arrive within {limits.message_s:g} s"
                self.end(None if self.exchanges else RpcError(Status.DEADLINE_EXCEEDED, why))
            return
        held_bytes = reader.buffered_bytes
        if now - reader.since < limits.message_s + held_bytes / limits.min_bytes_per_s:
            return
        self._drop_reader(held_bytes)
        why = f"a message did not arrive completely: {held_bytes} bytes came in"
        self.end(RpcError(Status.DEADLINE_EXCEEDED, f"{why} {now - reader.since:.0f} s"))

    def give_up(self) -> None:
        """End the call: its message has been incomplete for longest, and there are too many."""
        if self.reader is not None:
            self._drop_reader(self.reader.buffered_bytes)
        self.end(RpcError(Status.RESOURCE_EXHAUSTED, TOO_MANY))
        self.carrier.flush_soon()

    def _drop_reader(self, counted_bytes: int) -> None:
        """Drop an incomplete message, of which so many bytes were counted."""
        self.reader = None
        self.carrier.buffer(-counted_bytes)
        self.carrier.account.forget(self)

    def message_received(self, message: bytes) -> None:
        """Handle one message."""
        if self.is_ending:
            return
        self.exchanges += 1
        try:
            self._handle(message)
        except Exception as error:  # noqa: BLE001  every failure is sent to the client
            self.fail(error)

    def _handle(self, message: bytes) -> None:
        if self.handler is not None:
            self.handler.message_received(message)
        elif self.head.call is not None:
            if self.head.is_unary and self.exchanges > 1:
                raise RpcError(Status.INTERNAL, "unary calls have one request, got two")
            self.carrier.check_room()
            call = self.head.call
            answer = call(message, self.context) if self.head.reads_context else call(message)
            if isinstance(answer, tuple):
                self.send_message(*answer)
            else:
                self.answer_at_length(answer, len(message))

    def remote_ended(self) -> None:
        """Called when the client has ended its side."""
        self.remote_done = True
        if self.is_over or self.is_ending or self.deferred_answers:
            return
        if self.reader is not None and not self.reader.is_between_messages:
            self.end(RpcError(Status.INTERNAL, "the stream ended within a message"))
        elif self.handler is not None:
            try:
                self.handler.ended()
            except Exception as error:  # noqa: BLE001  every failure is sent to the client
                self.fail(error)
        elif self.head.is_unary and self.exchanges == 0:
            self.end(RpcError(Status.INTERNAL, "unary calls have one request, got none"))
        else:
            self.end()

    def answer_at_length(self, answer: Pieces | DeferredAnswer, message_bytes: int) -> None:
        """Send a long or pending answer; end the call if the client has ended its side.

        The message counts as received until then: the handler may keep it while it waits.
        """
        if isinstance(answer, Pieces):
            self._say_pieces(answer)
            if self.remote_done:
                self.end()
            return
        if not isinstance(answer, Coroutine | LongRead):
            raise TypeError(
                f"a handler must return a message and its position, or a coroutine, not {answer!r}"
            )
        if self.deferred_answers is None:
            self.deferred_answers = DeferredAnswers(self)
        self.deferred_answers.begin(answer, message_bytes)

    @property
    def unsent_bytes(self) -> int:
        """The bytes of output that were not sent."""
        return len(self.unsent or b"")

    def reset(self) -> None:
        """Reset the call, and drop its unsent output."""
        if not self.is_over:
            self.carrier.drop(self, ErrorCode.ENHANCE_YOUR_CALM)
            self.carrier.flush()

    def say_accepted(self, message: bytes | Rope, position: int) -> None:
        """Send the answer to an executed call once `position` is released."""
        gate = self.carrier.gate
        put: Deliver[Any] = self._put_rope if isinstance(message, Rope) else self.put
        if position <= gate.released:
            put(message)
        else:
            gate.hold_answer(position, put, message)
            self.held_until = max(self.held_until, position)

    # Called by the handler.

    def answer_and_end(self, message: bytes, position: int) -> None:
        """Send the only answer of an executed call once `position` is released; end the call."""
        self.say_accepted(message, position)
        self.end()

    def send_head(self, metadata: Fields) -> None:
        """Send metadata before the first message."""
        if self.has_head or self.unsent:
            raise ValueError("response headers were already sent with the first message")
        self.head_fields = (*(self.head_fields or ()), *metadata)
        if not self.is_over:
            self.carrier.start(self)

    def defer(self, size_bytes: int, *, may_refuse: bool = True) -> None:
        """Let the client send no more than its window, until this much is taken."""
        self.carrier.defer(size_bytes, may_refuse=may_refuse)
        self.deferred += size_bytes

    def taken(self, size_bytes: int) -> None:
        """Credit the client for bytes that were deferred."""
        if not self.is_over:
            self.deferred -= size_bytes
            self.carrier.defer(-size_bytes)
            self.carrier.credit(self)

    @property
    def has_room(self) -> bool:
        """Whether the client has room for messages."""
        return self.carrier.has_event_room and self.carrier.gate.has_event_room(self)

    @property
    def has_own_room(self) -> bool:
        """Whether the client has room for messages on this stream."""
        if self.unsent is not None and len(self.unsent) >= MAX_OWN_BYTES:
            self._is_cramped = True
            return False
        return self.carrier.has_room_for(self)

    def sent(self) -> None:
        """Called when some of the output was sent."""
        if self._is_cramped and len(self.unsent or b"") < MAX_OWN_BYTES // 2:
            self._is_cramped = False
            self.relieve()

    def flush(self) -> None:
        """Send queued messages."""
        self.carrier.flush()

    def flush_soon(self) -> None:
        """Flush queued messages, together with other output of this turn of the loop."""
        self.carrier.flush_soon()

    def fail(self, error: BaseException) -> None:
        """End the call with an exception of its handler."""
        self.end(as_rpc_error(error, self.head.path))

    def send_message(self, message: bytes, position: int) -> None:
        """Send a message once `position` is released.

        So messages about the same object keep their order: a later state never has a lower position
        than an earlier one. One message that waits does not delay others.
        """
        gate = self.carrier.gate
        if position <= gate.released:
            self.put(message)
            return
        if self.handler is None:
            self.head.hold(gate, position, self.put, message)
        else:
            self.carrier.held_event_bytes += len(message)
            gate.hold_event(position, self._put_event, message)
        if position > self.held_until:
            self.held_until = position

    def _say_pieces(self, answer: Pieces) -> None:
        """Send a long answer once its position is released."""
        gate, message = self.carrier.gate, Rope(answer.pieces)
        if answer.position <= gate.released:
            self._put_rope(message)
            return
        self.head.hold(gate, answer.position, self._put_rope, message)
        self.held_until = max(self.held_until, answer.position)

    def end(self, error: RpcError | None = None, metadata: Fields = ()) -> None:
        """End the call, after all earlier messages; only the first end counts."""
        if self.is_ending:
            return
        self.is_ending = True
        if self.head.waits_for_room and self.handler is not None:
            self._tell_gone(self.handler)  # for any end: nothing more can be sent
        trailers, position = ok_trailers(metadata) if metadata else b"", self.held_until
        if error is not None:
            self.failure = error.status
            trailers, position = failed_trailers(error), max(position, error.position)
        gate = self.carrier.gate
        if position <= gate.released:
            self.put_end(trailers)
        else:
            self.held_until = position
            gate.hold_event(position, self.put_end, trailers)

    # Called directly, or by the gate when the position is released.

    def put(self, message: bytes) -> "ServerConnection":
        """Add a message to the output."""
        if not self.is_over and self.ending is None:
            if self.head.takes_gzip:
                self.append(packed(message))
            else:
                self.append(PREFIX.pack(0, len(message)) + message)
        return self.carrier

    def _put_rope(self, message: Rope) -> "ServerConnection":
        """Add a long message to the output, without copying it."""
        if not self.is_over and self.ending is None:
            unsent = self.unsent
            if not isinstance(unsent, Rope):
                unsent = Rope([bytes(unsent)] if unsent else ())
            unsent.extend(PREFIX.pack(0, len(message)))
            unsent.add(message)
            self.unsent = unsent
            self.carrier.has_unsent(self, PREFIX_BYTES + len(message))
        return self.carrier

    def append(self, data: bytes) -> None:
        """Add bytes of messages to the output."""
        if self.unsent is None:
            self.unsent = bytearray()
        self.unsent.extend(data)
        self.carrier.has_unsent(self, len(data))

    def _put_event(self, message: bytes) -> "ServerConnection":
        self.carrier.held_event_bytes -= len(message)
        return self.put(message)

    def put_end(self, trailers: bytes) -> "ServerConnection":
        """Add the end of the call to the output: no trailers for OK."""
        if not self.is_over and self.ending is None:
            self.ending = trailers
            self.carrier.has_unsent(self, 0)
        return self.carrier

    def put_answer(self, message: bytes) -> "ServerConnection":
        """Add the only answer of a call, and its end, to the output."""
        if not self.is_over:
            self.carrier.answer(self, message)
        return self.carrier

    def over(self) -> None:
        """Called when the stream is over: nothing more of it is sent."""
        status = self._count_end()
        if self._alarm is not None:
            self._alarm.cancel()
        if self.reader is not None:
            self._drop_reader(self.reader.buffered_bytes)
        if self._head_bytes:
            self.carrier.buffer(-self._head_bytes)
        if self.deferred:
            self.carrier.defer(-self.deferred)
        if self.deferred_answers is not None:
            self.deferred_answers.cancel()
        if self.handler is not None:
            self.carrier.gate.forget(self)
            self._tell_gone(self.handler)
            self.handler = NO_HANDLER  # breaks a reference cycle: the collector runs rarely
        if self._done_callback is not None:
            self._done_callback(status)

    def _count_end(self) -> Status:
        was_ended_here = self.ending is not None
        status = (self.failure or Status.OK) if was_ended_here else Status.CANCELLED
        if status:
            self.head.counts.failed(status)
        self.head.counts.ended += 1
        return status

    def _tell_gone(self, handler: StreamHandler) -> None:
        try:
            handler.gone()
        except Exception:
            logger.exception("the handler of %s failed when its stream was gone", self.head.path)

    def relieve(self) -> None:
        """Called when the peer has room for events again."""
        if self.handler is not None and not self.is_ending:
            try:
                self.handler.relieved()
            except Exception as error:  # noqa: BLE001  every failure is sent to the client
                self.fail(error)
