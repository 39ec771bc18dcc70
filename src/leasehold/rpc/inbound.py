"""What comes in on a connection: the windows that we give, and what nobody has taken yet.

A stream has a window of its own, and all streams have one together. What came in is given back when
it is worth a frame; but what waits for a handler is given back only when that has taken it, so that
the client waits, too. For the window of all that holds only if very much waits: a slow handler is
not to stop the others.
"""

from typing import Final, Generic

from leasehold.errors import Status
from leasehold.rpc import frames
from leasehold.rpc.frames import ConnectionFailed, ErrorCode, StreamFailed
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.limits import Limits
from leasehold.rpc.outbound import Outbound, S
from leasehold.rpc.receive_account import SMALL_BYTES, ReceiveAccount

STREAM_WINDOW: Final = 4 * 1024 * 1024
"""What a peer may send on a stream unasked: more than the largest message of a request."""

CONNECTION_WINDOW: Final = 16 * 1024 * 1024

CREDIT_BYTES: Final = CONNECTION_WINDOW // 2
"""What comes in on all streams before it is given back."""

STREAM_CREDIT_BYTES: Final = STREAM_WINDOW // 2

_TOO_MUCH: Final = "too much at once that is not complete, or that no handler has taken; send less"


class Inbound(Generic[S]):
    """The input of one connection, as far as it is counted."""

    __slots__ = (
        "_deferred_bytes",
        "_max_buffered_bytes",
        "_outbound",
        "account",
        "buffered_bytes",
        "owed",
    )

    def __init__(self, outbound: Outbound[S], limits: Limits) -> None:
        self._outbound = outbound
        self._max_buffered_bytes = limits.max_buffered_bytes
        self.owed = 0
        """Octets of DATA that came in, on all streams, and were not given back."""
        self.buffered_bytes = 0
        """What came in and nobody has taken: messages that are not complete, or that wait."""
        self.account = ReceiveAccount(limits)
        """A server's connections share one."""
        self._deferred_bytes = 0
        """The part of it that is whole messages."""

    # The window of all streams.

    def check_window(self) -> None:
        """Give back what is owed to the peer; end a connection that oversteps the window."""
        if self.owed > CONNECTION_WINDOW:
            raise ConnectionFailed(
                ErrorCode.FLOW_CONTROL_ERROR, f"more than {CONNECTION_WINDOW} octets unasked"
            )
        self._credit_all()

    def _credit_all(self) -> None:
        if self._deferred_bytes <= self._max_buffered_bytes // 2:
            self._outbound.put_frame(frames.window_update(0, self.owed))
            self.owed = 0

    # The window of a stream.

    def count(self, stream: S, frame_bytes: int) -> None:
        """Count what came in on a stream that goes on."""
        stream.replenish += frame_bytes
        if stream.replenish > STREAM_WINDOW:
            raise StreamFailed(
                ErrorCode.FLOW_CONTROL_ERROR, f"more than {STREAM_WINDOW} octets unasked"
            )
        if stream.replenish > STREAM_CREDIT_BYTES:
            self.credit(stream)

    def credit(self, stream: S) -> None:
        """Tell the peer that it may send more on a stream, if it is worth a frame."""
        spare = stream.replenish - stream.deferred
        if spare > STREAM_CREDIT_BYTES and not stream.is_over and not stream.remote_done:
            self._outbound.put_frame(frames.window_update(stream.id, spare))
            stream.replenish -= spare

    # What nobody has taken yet.

    def buffer(self, octets: int, held_bytes: int = SMALL_BYTES + 1) -> None:
        """Count what came in and nobody has taken; refuse it if that is too much.

        `held_bytes` is what is held of this message: a small one is not refused.
        """
        account = self.account
        self.buffered_bytes += octets
        account.used_bytes += octets
        if (
            octets > 0
            and held_bytes > SMALL_BYTES
            and (self.buffered_bytes > self._max_buffered_bytes or account.is_overdrawn)
        ):
            self.buffered_bytes -= octets
            account.used_bytes -= octets
            raise RpcError(Status.RESOURCE_EXHAUSTED, _TOO_MUCH)

    def defer(self, octets: int) -> None:
        """Count whole messages that nobody has taken, or has at last."""
        self.buffer(octets)
        self._deferred_bytes += octets
        if octets < 0 and self.owed > CREDIT_BYTES:
            self._credit_all()
