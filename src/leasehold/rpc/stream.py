"""One call on a connection: what has come in, and what has yet to go out.

What a stream sends is put into `unsent` and leaves when its connection is flushed, in as few DATA
frames as the peer's windows allow: many small messages share one frame. The block that ends the
call follows when `unsent` is empty.
"""

from typing import TYPE_CHECKING

from leasehold.rpc.answers import failed_trailers
from leasehold.rpc.grpc import PREFIX, MessageReader, RpcError
from leasehold.rpc.routes import Head, Listener

if TYPE_CHECKING:
    from leasehold.rpc.connection import Connection


class Stream:
    """A call, at the server."""

    __slots__ = (
        "connection",
        "ending",
        "exchanges",
        "has_head",
        "head",
        "held_until",
        "id",
        "is_over",
        "listener",
        "reader",
        "remote_done",
        "replenish",
        "unsent",
        "window",
    )

    def __init__(self, connection: "Connection", stream_id: int, head: Head, window: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.head = head
        self.window = window
        """How many octets of DATA the peer takes on this stream."""
        self.replenish = 0
        """How many octets of DATA came in that the peer was not told it may send again."""
        self.exchanges = 0
        self.held_until = 0
        self.unsent: bytearray | None = None
        self.ending: bytes | None = None
        """The trailers of a call that is to end: empty for OK, else what `failed_trailers` made."""
        self.has_head = False
        self.is_over = False
        self.remote_done = False
        self.reader: MessageReader | None = None
        self.listener: Listener | None = None

    # What a handler does.

    def say(self, message: bytes, position: int) -> None:
        """Send a message, after all that was said before, once `position` is released."""
        gate = self.connection.gate
        if position < self.held_until:
            position = self.held_until
        if position <= gate.released:
            self.put(message)
        else:
            self.held_until = position
            gate.hold(position, self.put, message)

    def end(self, error: RpcError | None = None) -> None:
        """End the call, after all that was said before."""
        trailers = failed_trailers(error) if error is not None else b""
        gate = self.connection.gate
        position = max(self.held_until, error.position if error is not None else 0)
        if position <= gate.released:
            self.put_end(trailers)
        else:
            self.held_until = position
            gate.hold(position, self.put_end, trailers)

    # What the gate does, at once or later.

    def put(self, message: bytes) -> "Connection":
        """Put a message into the output."""
        if self.unsent is None:
            self.unsent = bytearray()
        if not self.is_over:
            self.unsent += PREFIX.pack(0, len(message))
            self.unsent += message
            self.connection.has_unsent(self, len(message))
        return self.connection

    def put_end(self, trailers: bytes) -> "Connection":
        """Put the end of the call into the output: no trailers for OK."""
        if not self.is_over and self.ending is None:
            self.ending = trailers
            self.connection.has_unsent(self, 0)
        return self.connection

    def answer(self, message: bytes) -> "Connection":
        """Put the one answer of a unary call, and its end, into the output."""
        self.connection.answer(self, message)
        return self.connection

    def over(self) -> None:
        """Learn that the stream is gone: nothing of it leaves any more."""
        self.is_over = True
        self.unsent = None
        if self.listener is not None:
            self.listener.gone()
