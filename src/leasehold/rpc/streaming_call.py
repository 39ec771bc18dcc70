"""A call with any number of messages both ways, at the client."""

from collections import deque
from typing import Final

from leasehold.errors import Status
from leasehold.rpc.answer_block import AnswerBlock
from leasehold.rpc.client_call import ClientCall, Failure
from leasehold.rpc.grpc import QUEUED_BYTES, RpcError, framed, packed
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.metadata import Metadata
from leasehold.rpc.receiving import Receiving
from leasehold.rpc.waiter import Waiter
from leasehold.stored_errors import fresh

MAX_UNSENT_BYTES: Final = 256 * 1024
"""What a call may have said and not sent; beyond it `send` waits."""


class StreamingCall(Receiving, ClientCall):
    """Any number of messages both ways; `async for` goes through the answers."""

    __slots__ = ("_failure", "_is_ended", "_messages", "_reading", "_trailers", "_writing")

    def __init__(self, fields: Fields, max_message_bytes: int) -> None:
        super().__init__(fields, max_message_bytes)
        self._messages: deque[bytes] = deque()
        self._failure: Failure | None = None
        self._trailers: AnswerBlock | None = None
        self._is_ended = False
        """Whether we have ended our side."""
        self._reading = Waiter("receiving")
        self._writing = Waiter("sending")

    # What a caller does.

    async def send(self, message: bytes) -> None:
        """Say something; wait if the server does not take what was said before."""
        if not isinstance(message, bytes):
            raise TypeError(f"a message is bytes, not {message!r}")
        self._check_sending()
        if self._is_ended:
            raise ValueError("send after end: this side of the call was ended")
        self._writing.check_free()
        if self.unsent is None:
            self.unsent = bytearray()
        octets = packed(message) if self.packs else framed(message)
        self.unsent.extend(octets)
        self._has_unsent(len(octets))
        while self._is_cramped():
            await self._writing.wait()
            self._check_sending()

    def _is_cramped(self) -> bool:
        return self.unsent is not None and len(self.unsent) > MAX_UNSENT_BYTES

    def _check_sending(self) -> None:
        if self._failure is not None:
            raise fresh(self._failure)
        if self.is_over:
            raise RpcError(Status.CANCELLED, "the call is over: the server has ended it")

    def end(self) -> None:
        """Say that nothing more will be said."""
        if not self._is_ended:
            self._is_ended = True
            self.ending = b""
            if not self.is_over:
                self._has_unsent(0)

    def cancel(self) -> None:
        """Take the call back, if it is not over; whoever waits for it is told."""
        if not self.is_over:
            super().cancel()
            self.failed(RpcError(Status.CANCELLED, "the call was cancelled"))

    def _has_unsent(self, octets: int) -> None:
        assert self.carrier is not None, "the call has begun"
        self.carrier.has_unsent(self, octets)
        self.carrier.flush_soon()

    async def receive(self) -> bytes | None:
        """Give the next message; None if the server has ended the call, and all went well."""
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
            if self.replenish != owed:  # else the server would wait for it, and nothing come in
                self.carrier.flush_soon()
        return message

    async def metadata(self) -> Metadata:
        """What the server says before its first message."""
        while self.head is None:
            if self._failure is not None:
                raise fresh(self._failure)
            if self._trailers is not None:
                return ()
            await self._reading.wait()
        return self.head.metadata

    @property
    def trailing_metadata(self) -> Metadata:
        """What the server says behind its last message; empty until then."""
        return () if self._trailers is None else self._trailers.metadata

    # What happens to it.

    def answered(self, head: AnswerBlock) -> None:
        """Take the head of the answer."""
        super().answered(head)
        self._reading.wake()

    def hear(self, message: bytes) -> None:
        """Take a message."""
        self._buffer(len(message) + QUEUED_BYTES)
        self.deferred += len(message) + QUEUED_BYTES
        self._messages.append(message)
        self._reading.wake()

    def sent(self) -> None:
        """Learn that some of what was said has left."""
        if self.unsent is None or len(self.unsent) <= MAX_UNSENT_BYTES // 2:
            self._writing.wake()

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
        self._reading.wake()
        self._writing.wake()
