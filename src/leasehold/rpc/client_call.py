"""A call of gRPC at the client: how the answer comes in, and how it can end.

Theory of operation. A call ends once: with the trailers of the server, or with a failure. What is
known then about the server having begun with it decides whether it may be made again:

    NotProcessed      the server has not begun with it, or never heard of it
    ConnectionLost    nobody knows
    RpcError          the server says so, or it is for us to say: too late, cancelled

`UnaryCall` is for one message and one answer, with a future; `streaming_call` has the kind for any
number of them, with a queue.
"""

import asyncio
from typing import Protocol

from leasehold.errors import ConnectionLost, Status
from leasehold.rpc.answer_block import AnswerBlock
from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.grpc import MessageReader, RpcError, answer_too_large
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.streams import Stream


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

    packs = False
    """Whether long messages are compressed; `fields` then say so."""
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
            self.reader = MessageReader(
                self.max_message_bytes, self.head.encoding, answer_too_large
            )
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
