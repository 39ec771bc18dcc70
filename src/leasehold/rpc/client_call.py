"""A call of gRPC at the client: how the answer comes in, and how it can end.

Theory of operation. A call ends once: with the trailers of the server, or with a failure. What is
known then about the server having begun with it decides whether it may be made again:

    NotProcessed      the server has not begun with it, or never heard of it
    ConnectionLost    nobody knows
    RpcError          the server says so, or it is for us to say: too late, cancelled

`UnaryCall` is for one message and one answer, with a future; `StreamingCall` for any number of
them, with a queue.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, Protocol

from leasehold.errors import ConnectionLost, Status
from leasehold.rpc.answer_block import AnswerBlock
from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.grpc import MessageReader, RpcError, framed
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.metadata import Metadata
from leasehold.rpc.streams import Stream

MAX_UNSENT_BYTES: Final = 256 * 1024
"""What a streaming call may have said and not sent; beyond it `send` waits."""


class NotProcessed(RpcError):
    """A call that the server has not begun with: it can be made again without harm."""

    def __init__(self, why: str) -> None:
        super().__init__(Status.UNAVAILABLE, f"not executed: {why}")


Failure = RpcError | ConnectionLost


class CallCarrier(Protocol):
    """The connection that a call is on, as the call sees it."""

    def cancel(self, call: "ClientCall", code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Take a call back."""
        ...

    def has_unsent(self, call: "ClientCall", octets: int) -> None:
        """Learn that a call has so much more to send, or its end."""
        ...

    def buffer(self, octets: int) -> None:
        """Count what came in and nobody has taken; refuse it if that is too much."""
        ...

    def credit(self, call: "ClientCall") -> None:
        """Tell the server that it may send more on a stream, if it is worth a frame."""
        ...

    def flush_soon(self) -> None:
        """Send what was put out, together with what else is put out in this turn of the loop."""
        ...


class ClientCall(Stream):
    """A call; its kinds say what becomes of messages and of the end."""

    __slots__ = (
        "carrier",
        "fields",
        "head",
        "local_done",
        "max_message_bytes",
        "reader",
    )

    _buffered_bytes = 0

    def __init__(self, fields: Fields, max_message_bytes: int) -> None:
        self.start(0, 0)  # until it has begun
        self.fields = fields
        """The head of the request."""
        self.max_message_bytes = max_message_bytes
        self.carrier: CallCarrier | None = None
        """The connection, as soon as the call is given to one."""
        self.head: AnswerBlock | None = None
        """The head of the answer."""
        self.local_done = False
        """Whether all was sent that there is to say."""
        self.reader: MessageReader | None = None

    def answered(self, head: AnswerBlock) -> None:
        """Take the head of the answer."""
        self.head = head

    def feed(self, payload: bytes) -> None:
        """Take octets of the answer."""
        if self.reader is None:
            assert self.head is not None
            self.reader = MessageReader(self.max_message_bytes, self.head.encoding)
        before = self.reader.buffered_bytes
        messages = self.reader.feed(payload)
        self._buffer(self.reader.buffered_bytes - before)
        for message in messages:
            self.hear(message)

    def _buffer(self, octets: int) -> None:
        assert self.carrier is not None
        self.carrier.buffer(octets)
        self._buffered_bytes += octets

    def over(self) -> None:
        """Learn that the stream is gone."""
        if self._buffered_bytes:
            self._buffer(-self._buffered_bytes)

    def cancel(self) -> None:
        """Take the call back, if it is not over."""
        if self.carrier is not None and not self.is_over:
            self.carrier.cancel(self)

    def remote_ended(self) -> None:
        """Learn that the server has ended its side; `ended` says how."""

    def hear(self, message: bytes) -> None:
        """Take a message."""
        raise NotImplementedError

    def ended(self, trailers: AnswerBlock) -> None:
        """Take the end of the answer."""
        raise NotImplementedError

    def failed(self, failure: Failure) -> None:
        """Learn that there will be no (further) answer."""
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

    def hear(self, message: bytes) -> None:
        """Take the answer."""
        if self._answer is not None:
            raise RpcError(Status.INTERNAL, "the server has answered a unary call twice")
        self._answer = message

    def ended(self, trailers: AnswerBlock) -> None:
        """Take the end of the answer."""
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
        """Learn that there will be no answer."""
        if not self.future.done():
            self.future.set_exception(failure)


class StreamingCall(ClientCall):
    """Any number of messages both ways; `async for` goes through the answers."""

    __slots__ = ("_failure", "_is_ended", "_messages", "_reading", "_trailers", "_writing")

    def __init__(self, fields: Fields, max_message_bytes: int) -> None:
        super().__init__(fields, max_message_bytes)
        self._messages: deque[bytes] = deque()
        self._failure: Failure | None = None
        self._trailers: AnswerBlock | None = None
        self._is_ended = False
        """Whether we have ended our side."""
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    # What a caller does.

    async def send(self, message: bytes) -> None:
        """Say something; wait if the server does not take what was said before."""
        self._check_sending()
        if self.unsent is None:
            self.unsent = bytearray()
        octets = framed(message)
        self.unsent += octets
        self._has_unsent(len(octets))
        while self._is_cramped():
            if self._writing is not None:
                raise RuntimeError("another task is sending on this call; one at a time")
            self._writing = asyncio.get_running_loop().create_future()
            try:
                await self._writing
            finally:
                self._writing = None
            self._check_sending()

    def _is_cramped(self) -> bool:
        return self.unsent is not None and len(self.unsent) > MAX_UNSENT_BYTES

    def _check_sending(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.is_over:
            raise RpcError(Status.CANCELLED, "the call is over: the server has ended it")
        if self._is_ended:
            raise ValueError("send after end: this side of the call was ended")

    def end(self) -> None:
        """Say that nothing more will be said."""
        if not self._is_ended:
            self._is_ended = True
            self.ending = b""
            if not self.is_over:
                self._has_unsent(0)

    def _has_unsent(self, octets: int) -> None:
        assert self.carrier is not None, "the call has begun"
        self.carrier.has_unsent(self, octets)
        self.carrier.flush_soon()

    async def receive(self) -> bytes | None:
        """Give the next message; None if the server has ended the call, and all went well."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            if self._trailers is not None:
                return None
            await self._wait()
        message = self._messages.popleft()
        if not self.is_over:
            assert self.carrier is not None
            self.deferred -= len(message)
            self._buffer(-len(message))
            owed = self.replenish
            self.carrier.credit(self)
            if self.replenish != owed:  # else the server would wait for it, and nothing come in
                self.carrier.flush_soon()
        return message

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Go through the answers."""
        return self

    async def __anext__(self) -> bytes:
        """Give the next message."""
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def metadata(self) -> Metadata:
        """What the server says before its first message."""
        while self.head is None:
            if self._failure is not None:
                raise self._failure
            if self._trailers is not None:
                return ()
            await self._wait()
        return self.head.metadata

    @property
    def trailing_metadata(self) -> Metadata:
        """What the server says behind its last message; empty until then."""
        return () if self._trailers is None else self._trailers.metadata

    async def _wait(self) -> None:
        """Wait until something has come in."""
        if self._reading is not None:
            raise RuntimeError("another task is waiting for this call; one at a time")
        self._reading = asyncio.get_running_loop().create_future()
        try:
            await self._reading
        finally:
            self._reading = None

    # What happens to it.

    def answered(self, head: AnswerBlock) -> None:
        """Take the head of the answer."""
        super().answered(head)
        _wake(self._reading)

    def hear(self, message: bytes) -> None:
        """Take a message."""
        self.deferred += len(message)
        self._buffer(len(message))
        self._messages.append(message)
        _wake(self._reading)

    def sent(self) -> None:
        """Learn that some of what was said has left."""
        if self.unsent is None or len(self.unsent) <= MAX_UNSENT_BYTES // 2:
            _wake(self._writing)

    def ended(self, trailers: AnswerBlock) -> None:
        """Take the end of the answer."""
        self._trailers = trailers
        self._failure = self._failure or trailers.error()
        self._wake_all()

    def failed(self, failure: Failure) -> None:
        """Learn that there will be no further answer."""
        if self._trailers is None and self._failure is None:
            self._failure = failure
        self._wake_all()

    def _wake_all(self) -> None:
        _wake(self._reading)
        _wake(self._writing)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
