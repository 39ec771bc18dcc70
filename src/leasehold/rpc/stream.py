"""One call on a connection: what has come in, and what has yet to go out.

Theory of operation. Each side ends for itself. The client's side is over with `remote_done`. Ours
goes through three states, each of which implies the one before:

    is_ending   a handler has ended the call; nothing more is heard or said, but what was said may
                still wait for the gate
    ending      the gate has let the end through; it is sent behind what is `unsent`
    is_over     the last frame is out, or the stream was reset, or the connection is gone; nothing
                of it leaves any more
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Protocol

from leasehold.errors import LeaseholdError, Status
from leasehold.rpc.answers import failed_trailers
from leasehold.rpc.gate import Flushable, Gate
from leasehold.rpc.grpc import PREFIX, MessageReader, RpcError
from leasehold.rpc.routes import Head, Later, Listener, Pieces

logger = logging.getLogger(__name__)

PUT_AT_ONCE_BYTES: Final = 1024 * 1024
"""How much of a long message is put out before it is another's turn."""


class Carrier(Flushable, Protocol):
    """The connection that a stream is on, as the stream sees it."""

    gate: Gate
    held_event_bytes: int
    """Events that wait for the gate."""

    @property
    def has_event_room(self) -> bool:
        """Whether the peer takes its events; if not, listeners are told when it does."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while."""
        ...

    def check_room(self) -> None:
        """Refuse a call while the peer does not take the answers to those before."""
        ...

    def answer(self, stream: "Stream", message: bytes) -> None:
        """Send the one answer of a call, and its end."""
        ...

    def has_unsent(self, stream: "Stream", octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        ...


class Stream:
    """A call, at the server."""

    __slots__ = (
        "carrier",
        "ending",
        "exchanges",
        "has_head",
        "head",
        "held_until",
        "id",
        "is_ending",
        "is_over",
        "laters",
        "listener",
        "reader",
        "remote_done",
        "replenish",
        "unsent",
        "window",
    )

    def __init__(self, carrier: Carrier, stream_id: int, head: Head, window: int) -> None:
        self.carrier = carrier
        self.id = stream_id
        self.head = head
        self.window = window
        """How many octets of DATA the peer takes on this stream."""
        self.replenish = 0
        """How many octets of DATA came in that the peer was not told it may send again."""
        self.exchanges = 0
        """How many messages came in."""
        self.held_until = 0
        """The position that must be released before all is sent that was said so far."""
        self.unsent: bytearray | None = None
        """Messages, with their prefixes, that have yet to be sent."""
        self.ending: bytes | None = None
        """The trailers of a call that is to end: empty for OK, else what `failed_trailers` made."""
        self.has_head = False
        self.is_ending = False
        """Whether the call has come to its end, though that may still wait for the gate."""
        self.is_over = False
        self.remote_done = False
        self.reader: MessageReader | None = None
        self.listener: Listener | None = None
        self.laters: set[asyncio.Task[None]] = set()
        """What finds out answers that take a while."""

    # What the client does.

    def open(self) -> None:
        """Begin a subscription."""
        assert self.head.subscription is not None
        try:
            self.listener = self.head.subscription(self)
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            self.fail(error)

    def feed(self, payload: bytes) -> None:
        """Take octets, and have the messages handled that are complete."""
        if self.is_ending:  # nobody listens any more, and nothing may pile up
            return
        if self.reader is None:
            self.reader = MessageReader()
        try:
            messages = self.reader.feed(payload)
        except RpcError as error:
            self.end(error)
            return
        for message in messages:
            self.hear(message)

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
                self.answer_later(answer)

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

    def answer_later(self, answer: Later) -> None:
        """Say what a handler will find out, and end the call then if the client has."""
        task = self.carrier.spawn(self._answer(answer))
        self.laters.add(task)
        task.add_done_callback(partial(self._answered, answer))

    async def _answer(self, answer: Later) -> None:
        try:
            result = await answer
            if isinstance(result, Pieces):
                await self._put_pieces(result.pieces)
            elif not self.is_ending:
                self._say_accepted(*result)
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            self.fail(error)

    def _say_accepted(self, message: bytes, position: int) -> None:
        """Say what a call has come to that was let in: it is done, and cannot be refused now."""
        gate = self.carrier.gate
        if position <= gate.released:
            self.put(message)
        else:
            gate.hold_accepted(position, self.put, message)
            self.held_until = max(self.held_until, position)

    async def _put_pieces(self, pieces: list[bytes]) -> None:
        """Put a long message into the output, and let others have their turn in between."""
        put_bytes = 0
        for piece in (PREFIX.pack(0, sum(map(len, pieces))), *pieces):
            if self.is_over or self.ending is not None:
                return
            self._append(piece)
            put_bytes += len(piece)
            if put_bytes >= PUT_AT_ONCE_BYTES:
                put_bytes = 0
                self.carrier.flush()
                await asyncio.sleep(0)

    def _answered(self, answer: Later, task: "asyncio.Task[None]") -> None:
        answer.close()  # if the task was cancelled before it began
        self.laters.discard(task)
        if self.remote_done and not self.laters and not self.is_over:
            self.end()
        self.carrier.flush()

    # What a handler does.

    @property
    def has_room(self) -> bool:
        """Whether the client takes what is said."""
        return self.carrier.has_event_room

    def flush(self) -> None:
        """Send what was said."""
        self.carrier.flush()

    def fail(self, error: Exception) -> None:
        """End the call with what a handler raised."""
        if isinstance(error, LeaseholdError):
            error = RpcError(error.status, f"leasehold: {error}")
        if not isinstance(error, RpcError):
            logger.error("a handler failed", exc_info=error)
            error = RpcError(Status.INTERNAL, "internal error; the server's log says more")
        self.end(error)

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
            gate.hold_answer(position, self.put, message)
        else:
            self.carrier.held_event_bytes += len(message)
            gate.hold_event(position, self._put_event, message)
        if position > self.held_until:
            self.held_until = position

    def end(self, error: RpcError | None = None) -> None:
        """End the call, after all that was said before; only the first end counts."""
        if self.is_ending:
            return
        self.is_ending = True
        trailers, position = b"", self.held_until
        if error is not None:
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
            self._append(PREFIX.pack(0, len(message)) + message)
        return self.carrier

    def _append(self, octets: bytes) -> None:
        if self.unsent is None:
            self.unsent = bytearray()
        self.unsent += octets
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
        self.is_over = True
        self.unsent = None
        for task in self.laters:
            task.cancel()
        if self.listener is not None:
            try:
                self.listener.gone()
            except Exception:
                logger.exception("a handler failed when its stream was gone")

    def relieve(self) -> None:
        """Learn that the peer takes events again."""
        if self.listener is not None and not self.is_ending:
            try:
                self.listener.relieved()
            except Exception as error:  # noqa: BLE001  every failure is somebody's answer
                self.fail(error)
