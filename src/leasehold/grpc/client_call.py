"""A gRPC call at the client: receiving the answer, and the ways in which a call ends.

Theory of operation. A call ends once: with the trailers of the server, or with a failure. The
failure decides whether the call may be retried:

    NotProcessed      the server has not begun with it, or has not received it
    ConnectionLost    unknown
    RpcError          the status of the server, or of this client: deadline exceeded, cancelled

`UnaryCall` is for one message and one answer, with a future; `StreamingCall` is for any number of
them, with a queue.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from leasehold.basics.event_loop import ChangeWaiter
from leasehold.errors import ConnectionLost, Status, fresh
from leasehold.grpc.call_context import Metadata
from leasehold.grpc.client_headers import AnswerBlock
from leasehold.grpc.error_details import ANSWER_TOO_LARGE
from leasehold.grpc.protocol import (
    QUEUED_BYTES,
    MessageReader,
    RpcError,
    framed,
    packed,
)
from leasehold.http2.header_encoder import Fields
from leasehold.http2.stream import Http2Stream

if TYPE_CHECKING:
    from leasehold.grpc.client_connection import ClientConnection

MAX_UNSENT_BYTES: Final = 256 * 1024
"""The output that a streaming call may have unsent; above it `send` waits."""


class NotProcessed(RpcError):
    """A call that the server has not begun with: it can safely be retried."""

    def __init__(self, why: str) -> None:
        super().__init__(Status.UNAVAILABLE, f"not executed: {why}")


Failure = RpcError | ConnectionLost


def answer_too_large(message_bytes: int | str, max_bytes: int) -> RpcError:
    """Return the error of a client that does not accept an answer; the call was executed."""
    return RpcError(
        Status.RESOURCE_EXHAUSTED,
        f"answer larger than this client accepts ({message_bytes} vs. {max_bytes} bytes); "
        "use a limit (pages), or a smaller range",
        detail=ANSWER_TOO_LARGE,
    )


class ClientCall(Http2Stream):
    """A call; subclasses define how messages and the end are handled."""

    __slots__ = (
        "carrier",
        "fields",
        "head",
        "local_done",
        "max_message_bytes",
        "reader",
    )

    packs = False
    """Whether long messages are compressed; `fields` then include the encoding."""
    _buffered_bytes = 0

    def __init__(self, fields: Fields, max_message_bytes: int) -> None:
        self.start(0, 0)  # until it has begun
        self.fields = fields
        """The headers of the request."""
        self.max_message_bytes = max_message_bytes
        self.carrier: ClientConnection | None = None
        """The connection, once the call was given to one."""
        self.head: AnswerBlock | None = None
        """The headers of the answer."""
        self.local_done = False
        """Whether everything was sent, and our side is ended."""
        self.reader: MessageReader | None = None

    def answered(self, head: AnswerBlock) -> None:
        """Called with the headers of the answer."""
        self.head = head

    def feed(self, payload: bytes) -> None:
        """Called with bytes of the answer."""
        if self.reader is None:
            assert self.head is not None
            self.reader = MessageReader(
                self.max_message_bytes, self.head.encoding, answer_too_large
            )
        before = self.reader.buffered_bytes
        messages = self.reader.feed(payload)
        self._buffer(self.reader.buffered_bytes - before)
        for message in messages:
            self.message_received(message)

    def _buffer(self, size_bytes: int) -> None:
        assert self.carrier is not None
        self.carrier.buffer(size_bytes)
        self._buffered_bytes += size_bytes

    def over(self) -> None:
        """Called when the stream is over."""
        if self._buffered_bytes:
            self._buffer(-self._buffered_bytes)

    def cancel(self) -> None:
        """Cancel the call, if it is not over."""
        if self.carrier is not None and not self.is_over:
            self.carrier.cancel(self)

    def remote_ended(self) -> None:
        """Called when the server has ended its side; `ended` gets the trailers."""

    def message_received(self, message: bytes) -> None:
        """Called with a message."""
        raise NotImplementedError

    def ended(self, trailers: AnswerBlock) -> None:
        """Called with the trailers of the response."""
        raise NotImplementedError

    def failed(self, failure: Failure) -> None:
        """Called when there will be no (further) answer."""
        raise NotImplementedError


class UnaryCall(ClientCall):
    """One message, one answer."""

    __slots__ = ("_answer", "future")

    def __init__(
        self, fields: Fields, max_message_bytes: int, future: "asyncio.Future[bytes]"
    ) -> None:
        super().__init__(fields, max_message_bytes)
        self.future = future
        self._answer: bytes | None = None

    def message_received(self, message: bytes) -> None:
        """Called with the answer."""
        if self._answer is not None:
            raise RpcError(Status.INTERNAL, "the server sent a second response to a unary call")
        self._answer = message

    def ended(self, trailers: AnswerBlock) -> None:
        """Called with the trailers of the response."""
        if self.future.done():
            return
        error = trailers.error()
        if error is None and self._answer is None:
            error = RpcError(Status.INTERNAL, "the server has not answered a unary call")
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._answer or b"")

    def failed(self, failure: Failure) -> None:
        """Called when there will be no answer."""
        if not self.future.done():
            self.future.set_exception(failure)


class StreamingCall(ClientCall):
    """Any number of messages both ways; `async for` iterates over the answers."""

    __slots__ = ("_failure", "_is_ended", "_messages", "_reading", "_trailers", "_writing")

    def __init__(self, fields: Fields, max_message_bytes: int) -> None:
        super().__init__(fields, max_message_bytes)
        self._messages: deque[bytes] = deque()
        self._failure: Failure | None = None
        self._trailers: AnswerBlock | None = None
        self._is_ended = False
        """Whether we have ended our side."""
        self._reading = ChangeWaiter("receiving")
        self._writing = ChangeWaiter("sending")

    # Called by the caller.

    async def send(self, message: bytes) -> None:
        """Send a message; wait while the server does not read earlier ones."""
        if not isinstance(message, bytes):
            raise TypeError(f"a message must be bytes, not {message!r}")
        self._check_sending()
        if self._is_ended:
            raise ValueError("cannot send after end() was called")
        self._writing.check_free()
        if self.unsent is None:
            self.unsent = bytearray()
        data = packed(message) if self.packs else framed(message)
        self.unsent.extend(data)
        self._has_unsent(len(data))
        while self._is_cramped():
            await self._writing.wait()
            self._check_sending()

    def _is_cramped(self) -> bool:
        return self.unsent is not None and len(self.unsent) > MAX_UNSENT_BYTES

    def _check_sending(self) -> None:
        if self._failure is not None:
            raise fresh(self._failure)
        if self.is_over:
            raise RpcError(Status.CANCELLED, "cannot send: the server has ended the call")

    def end(self) -> None:
        """End our side of the call."""
        if not self._is_ended:
            self._is_ended = True
            self.ending = b""
            if not self.is_over:
                self._has_unsent(0)

    def cancel(self) -> None:
        """Cancel the call, if it is not over, and wake its waiters."""
        if not self.is_over:
            super().cancel()
            self.failed(RpcError(Status.CANCELLED, "the call was cancelled"))

    def _has_unsent(self, size_bytes: int) -> None:
        assert self.carrier is not None, "the call has begun"
        self.carrier.has_unsent(self, size_bytes)
        self.carrier.flush_soon()

    async def receive(self) -> bytes | None:
        """Return the next message; None if the server has ended the call with OK."""
        while not self._messages:
            if self._failure is not None:
                raise fresh(self._failure)
            if self._trailers is not None:
                return None
            await self._reading.wait()
        message = self._messages.popleft()
        if not self.is_over:
            assert self.carrier is not None
            self.deferred -= len(message) + QUEUED_BYTES
            self._buffer(-len(message) - QUEUED_BYTES)
            owed = self.replenish
            self.carrier.credit(self)
            if self.replenish != owed:  # else the server would wait for it, and send nothing
                self.carrier.flush_soon()
        return message

    def __aiter__(self) -> Self:
        """Iterate over the answers."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next answer."""
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def metadata(self) -> Metadata:
        """Return the metadata that the server sends before its first message."""
        while self.head is None:
            if self._failure is not None:
                raise fresh(self._failure)
            if self._trailers is not None:
                return ()
            await self._reading.wait()
        return self.head.metadata

    @property
    def trailing_metadata(self) -> Metadata:
        """Return the metadata in the server's trailers; empty until they are received."""
        return () if self._trailers is None else self._trailers.metadata

    # Called by the connection.

    def answered(self, head: AnswerBlock) -> None:
        """Called with the headers of the answer."""
        super().answered(head)
        self._reading.wake()

    def message_received(self, message: bytes) -> None:
        """Called with a message."""
        self._buffer(len(message) + QUEUED_BYTES)
        self.deferred += len(message) + QUEUED_BYTES
        self._messages.append(message)
        self._reading.wake()

    def sent(self) -> None:
        """Called when some of the output was sent."""
        if self.unsent is None or len(self.unsent) <= MAX_UNSENT_BYTES // 2:
            self._writing.wake()

    def ended(self, trailers: AnswerBlock) -> None:
        """Called with the trailers of the response."""
        self._trailers = trailers
        self._failure = self._failure or trailers.error()
        self._wake_all()

    def failed(self, failure: Failure) -> None:
        """Called when there will be no further answer."""
        if self._trailers is None and self._failure is None:
            self._failure = failure
        self._wake_all()

    def _wake_all(self) -> None:
        self._reading.wake()
        self._writing.wake()
