"""A call of gRPC at the server: what has come in, and what has yet to go out.

Theory of operation. The server's side of a call goes through three states, each of which implies
the one before:

    is_ending   a handler has ended the call; nothing more is heard or said, but what was said may
                still wait for the gate
    ending      the gate has let the end through; it is sent behind what is `unsent`
    is_over     the last frame is out, or the stream was reset, or the connection is gone; nothing
                of it leaves any more

A call has an alarm only if it has a time and may take a while: one that is answered at once is not
late, and one whose answer waits for the disk is given up by its client.
"""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from leasehold.errors import Status
from leasehold.rpc.answers import AnsweringStream, failed_trailers, ok_trailers
from leasehold.rpc.carrier import Carrier
from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.gate import Deliver
from leasehold.rpc.grpc import PREFIX, PREFIX_BYTES, MessageReader, RpcError, packed
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.host import Alarm
from leasehold.rpc.laters import Laters
from leasehold.rpc.metadata import Metadata
from leasehold.rpc.raised import as_rpc_error
from leasehold.rpc.receive_account import TOO_MANY
from leasehold.rpc.rope import Rope
from leasehold.rpc.routes import NOBODY, Head, Later, Listener, LongRead, Pieces
from leasehold.rpc.timeouts import parse_timeout

logger = logging.getLogger(__name__)

LATER_BYTES: Final = 4096
"""What an answer that takes a while costs on a stream, until it is there: a task, for one."""

MAX_OWN_BYTES: Final = 256 * 1024
"""What a stream may have said and not sent, for it to have room of its own."""


class ServerCall(AnsweringStream):
    """A call of gRPC, at the server."""

    __slots__ = (
        "carrier",
        "exchanges",
        "head",
        "is_ending",
        "listener",
        "reader",
        "timeout",
    )

    exchanges: int
    """How many messages came in."""
    is_ending: bool
    """Whether the call has come to its end, though that may still wait for the gate."""
    timeout: bytes | None
    """How long the call may take, until an alarm is set for it."""

    _alarm: Alarm | None = None
    _timeout_s: float | None = None
    _is_cramped = False
    """Whether the listener was told that it has no room of its own."""
    failure: Status | None = None
    """What the call ends with, if not with OK."""
    held_until = 0
    """The position that must be released before all is sent that was said so far."""
    _head_bytes = 0
    """The part of the connection's received data that is the head of this call."""
    laters: "Laters | None" = None
    """What finds out answers that take a while."""

    def __init__(
        self,
        carrier: Carrier,
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
        self.listener: Listener | None = None
        # What `start` sets, without the price of calling it: one for each call.
        self.id = stream_id
        self.began = began
        self.window = window
        self.replenish = 0
        self.unsent = self.ending = None
        self.has_head = self.is_queued = self.is_events = self.remote_done = self.is_over = False

    # What the client does.

    def open(self) -> None:
        """Begin a call that has its own handler, or no handler."""
        head = self.head
        if head.error is not None:  # it is stored, and so it must not be raised
            self.end(head.error)
            return
        try:
            if head.counted_bytes:
                self.carrier.buffer(head.counted_bytes)
                self._head_bytes = head.counted_bytes
            assert head.subscription is not None
            self.set_alarm()
            self.is_events = not head.waits_for_room
            self.listener = head.subscription(self)
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            self.fail(error)

    def set_alarm(self) -> None:
        """End the call in time, if it has one; a call that may take a while needs that."""
        timeout_s = self.timeout_s
        self.timeout = None
        if timeout_s is not None and self._alarm is None:
            self._alarm = self.carrier.host.call_later(timeout_s, self._too_late)

    def goes_on(self) -> None:
        """Learn that the client has more to say after a message."""
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
        if self.unsent and not self.is_over:  # the client does not take what would come before
            self.carrier.drop(self)
            self.carrier.flush()

    @property
    def connection(self) -> object:
        """The same object for all streams of one connection."""
        return self.carrier

    @property
    def metadata(self) -> Metadata:
        """What the caller says besides its messages."""
        return self.head.metadata

    def feed(self, payload: bytes) -> None:
        """Take octets, and have the messages handled that are complete."""
        if self.is_ending:  # nobody listens any more, and nothing may pile up
            return
        reader = self.reader
        if reader is None:
            max_bytes = self.carrier.limits.max_message_bytes
            reader = self.reader = MessageReader(max_bytes, self.head.encoding)
        before = reader.buffered_bytes
        try:
            messages = reader.feed(payload)
            held_bytes = reader.buffered_bytes
            is_new = bool(messages) or not before
            if held_bytes and is_new:
                reader.since = self.carrier.host.now()
            self.carrier.buffer(held_bytes - before, held_bytes)
            self.carrier.account.track(self, held_bytes, is_new=is_new)
        except RpcError as error:
            self._drop_reader(before)
            self.end(error)
            messages = []
        if reader.excess_bytes:
            self.carrier.pay_for_unpacking(reader.excess_bytes)
            reader.excess_bytes = 0
        for message in messages:
            self.hear(message)

    def drop_overdue(self, now: float) -> None:
        """End the call if its request takes too long; the time of a unary one starts with its head.

        A streaming call may stay open without a message.
        """
        reader, limits = self.reader, self.carrier.limits
        if self.is_ending:
            return
        if reader is None or not reader.buffered_bytes:
            is_waiting = self.head.is_unary and not self.remote_done and not self.laters
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
        """Forget an incomplete message, of which so much was counted."""
        self.reader = None
        self.carrier.buffer(-counted_bytes)
        self.carrier.account.forget(self)

    def hear(self, message: bytes) -> None:
        """Have one message handled."""
        if self.is_ending:
            return
        self.exchanges += 1
        try:
            self._handle(message)
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            self.fail(error)

    def _handle(self, message: bytes) -> None:
        if self.listener is not None:
            self.listener.heard(message)
        elif self.head.call is not None:
            if self.head.is_unary and self.exchanges > 1:
                raise RpcError(Status.INTERNAL, "a second message in a unary call")
            self.carrier.check_room()
            answer = self.head.call(message)
            if isinstance(answer, tuple):
                self.say(*answer)
            else:
                self.answer_at_length(answer)

    def remote_ended(self) -> None:
        """Learn that the client has ended its side."""
        self.remote_done = True
        if self.is_over or self.is_ending or self.laters:
            return
        if self.reader is not None and not self.reader.is_between_messages:
            self.end(RpcError(Status.INTERNAL, "the stream ended within a message"))
        elif self.listener is not None:
            try:
                self.listener.ended()
            except Exception as error:  # noqa: BLE001  every failure is somebody's answer
                self.fail(error)
        elif self.head.is_unary and self.exchanges == 0:
            self.end(RpcError(Status.INTERNAL, "a unary call without a message"))
        else:
            self.end()

    def answer_at_length(self, answer: Pieces | Later) -> None:
        """Say a long answer, or what a handler will find out; end the call if the client has."""
        if isinstance(answer, Pieces):
            self._say_pieces(answer)
            if self.remote_done:
                self.end()
            return
        if not isinstance(answer, Coroutine | LongRead):
            raise TypeError(
                f"a handler returns a message and its position, or a coroutine, not {answer!r}"
            )
        if self.laters is None:
            self.laters = Laters(self)
        try:
            self.set_alarm()
            self.laters.begin(answer, 0 if self.head.is_unary else LATER_BYTES)
        except RpcError:
            if isinstance(answer, Coroutine):
                answer.close()
            raise

    @property
    def unsent_bytes(self) -> int:
        """How much of what was said has not left."""
        return len(self.unsent or b"")

    def reset(self) -> None:
        """Give the call up, with all that was not sent."""
        if not self.is_over:
            self.carrier.drop(self, ErrorCode.ENHANCE_YOUR_CALM)
            self.carrier.flush()

    def say_accepted(self, message: bytes | Rope, position: int) -> None:
        """Send the answer to a call that was executed once `position` is released."""
        gate = self.carrier.gate
        put: Deliver[Any] = self._put_rope if isinstance(message, Rope) else self.put
        if position <= gate.released:
            put(message)
        else:
            gate.hold_answer(position, put, message)
            self.held_until = max(self.held_until, position)

    # What a handler does.

    def answer_and_end(self, message: bytes, position: int) -> None:
        """Send the only answer of a call that was executed once `position` is released; end it."""
        self.say_accepted(message, position)
        self.end()

    def send_head(self, metadata: Fields) -> None:
        """Say something before the first message."""
        if self.has_head or self.unsent:
            raise ValueError("the head of the answer was sent already, with the first message")
        self.head_fields = (*(self.head_fields or ()), *metadata)
        if not self.is_over:
            self.carrier.start(self)

    def defer(self, octets: int) -> None:
        """Have the client send no more than its window, until this much is taken."""
        self.carrier.defer(octets)
        self.deferred += octets

    def taken(self, octets: int) -> None:
        """Let the client send again what was deferred."""
        if not self.is_over:
            self.deferred -= octets
            self.carrier.defer(-octets)
            self.carrier.credit(self)

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is said."""
        return self.carrier.has_event_room and self.carrier.gate.has_event_room(self)

    @property
    def has_own_room(self) -> bool:
        """Whether the client takes what is said on this stream."""
        if self.unsent is not None and len(self.unsent) >= MAX_OWN_BYTES:
            self._is_cramped = True
            return False
        return self.carrier.has_room_for(self)

    def sent(self) -> None:
        """Learn that some of what was said has left."""
        if self._is_cramped and len(self.unsent or b"") < MAX_OWN_BYTES // 2:
            self._is_cramped = False
            self.relieve()

    def flush(self) -> None:
        """Send what was said."""
        self.carrier.flush()

    def flush_soon(self) -> None:
        """Send what was said, with what others say in this turn of the loop."""
        self.carrier.flush_soon()

    def fail(self, error: BaseException) -> None:
        """End the call with what a handler raised."""
        self.end(as_rpc_error(error, self.head.path))

    def say(self, message: bytes, position: int) -> None:
        """Send a message once `position` is released.

        So what is about the same thing keeps its order: what is known of it later never has a
        position before what was known earlier. One message that waits holds up no other.
        """
        gate = self.carrier.gate
        if position <= gate.released:
            self.put(message)
            return
        if self.listener is None:
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
        """End the call, after all that was said before; only the first end counts."""
        if self.is_ending:
            return
        self.is_ending = True
        if self.head.waits_for_room and self.listener is not None:
            self._tell_gone(self.listener)  # whoever has ended it: nothing more can be said
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

    # What is done at once, or by the gate when it is time.

    def put(self, message: bytes) -> Carrier:
        """Put a message into the output."""
        if not self.is_over and self.ending is None:
            if self.head.takes_gzip:
                self.append(packed(message))
            else:
                self.append(PREFIX.pack(0, len(message)) + message)
        return self.carrier

    def _put_rope(self, message: Rope) -> Carrier:
        """Put a long message into the output, without a copy of it."""
        if not self.is_over and self.ending is None:
            unsent = self.unsent
            if not isinstance(unsent, Rope):
                unsent = Rope([bytes(unsent)] if unsent else ())
            unsent.extend(PREFIX.pack(0, len(message)))
            unsent.add(message)
            self.unsent = unsent
            self.carrier.has_unsent(self, PREFIX_BYTES + len(message))
        return self.carrier

    def append(self, octets: bytes) -> None:
        """Put octets of messages into the output."""
        if self.unsent is None:
            self.unsent = bytearray()
        self.unsent.extend(octets)
        self.carrier.has_unsent(self, len(octets))

    def _put_event(self, message: bytes) -> Carrier:
        self.carrier.held_event_bytes -= len(message)
        return self.put(message)

    def put_end(self, trailers: bytes) -> Carrier:
        """Put the end of the call into the output: no trailers for OK."""
        if not self.is_over and self.ending is None:
            self.ending = trailers
            self.carrier.has_unsent(self, 0)
        return self.carrier

    def put_answer(self, message: bytes) -> Carrier:
        """Put the one answer of a call, and its end, into the output."""
        if not self.is_over:
            self.carrier.answer(self, message)
        return self.carrier

    def over(self) -> None:
        """Learn that the stream is gone: nothing of it leaves any more."""
        self._count_end()
        if self._alarm is not None:
            self._alarm.cancel()
        if self.reader is not None:
            self._drop_reader(self.reader.buffered_bytes)
        if self._head_bytes:
            self.carrier.buffer(-self._head_bytes)
        if self.deferred:
            self.carrier.defer(-self.deferred)
        if self.laters is not None:
            self.laters.cancel()
        if self.listener is not None:
            self.carrier.gate.forget(self)
            self._tell_gone(self.listener)
            self.listener = NOBODY  # they know each other, and the collector comes rarely

    def _count_end(self) -> None:
        tally = self.head.tally
        if self.ending is None:  # nobody here has ended it
            tally.failed(Status.CANCELLED)
        elif self.failure is not None:
            tally.failed(self.failure)
        tally.ended += 1

    def _tell_gone(self, listener: Listener) -> None:
        try:
            listener.gone()
        except Exception:
            logger.exception("the handler of %s failed when its stream was gone", self.head.path)

    def relieve(self) -> None:
        """Learn that the peer takes events again."""
        if self.listener is not None and not self.is_ending:
            try:
                self.listener.relieved()
            except Exception as error:  # noqa: BLE001  every failure is somebody's answer
                self.fail(error)
