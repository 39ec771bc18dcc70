"""The received data of a connection: flow control, and what no handler has taken yet.

Each stream has a window, and the connection has one for all streams. Received bytes are credited
when they are worth a frame; but bytes that wait for a handler are credited only when it has taken
them, so that the client waits too. For the window of the connection this applies only if very much
waits: a slow handler must not stop the others.

Incomplete messages, incomplete header blocks and large request headers are counted as they arrive.
A connection may hold `max_buffered_bytes`, and all connections of a server together `SHARES` times
as much; more is refused (`BufferFull`). Small messages are counted, but never refused: whatever a
few clients do with large ones, others can renew. The number of small ones is limited instead.
When too many small messages are incomplete, the one that has been incomplete for longest is
dropped: clients that mean to complete a message do so within moments.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol

from leasehold.http2 import frames
from leasehold.http2.frames import ConnectionFailed, ErrorCode, Setting, StreamFailed
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import Outbound, S
from leasehold.http2.stream import StreamPool

STREAM_WINDOW: Final = 4 * 1024 * 1024
"""The window of a stream: more than the largest message of a request."""

CONNECTION_WINDOW: Final = 16 * 1024 * 1024

CREDIT_BYTES: Final = CONNECTION_WINDOW // 2
"""How much is received on all streams before it is credited."""

STREAM_CREDIT_BYTES: Final = STREAM_WINDOW // 2

SHARES: Final = 8
"""No connection may take more than one of this many equal shares, of the bytes as of the number of
incomplete small messages, which is at most that of its streams."""

SMALL_BYTES: Final = 4096
"""A message that has this much or less so far is never refused. A renewal has 11 bytes."""

TOO_MANY: Final = "too many messages are incomplete, and this one was incomplete for longest"

_TOO_MUCH: Final = "too much received data is incomplete or waits for a handler; send less"


class BufferFull(Exception):
    """More received data than a connection may hold: it is refused, and was not counted."""

    def __init__(self) -> None:
        super().__init__(_TOO_MUCH)


def greeting(limits: ConnectionLimits, settings: dict[Setting, int]) -> bytes:
    """Return the first frames of either side: these settings, and those that concern input."""
    ours = {
        Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
    }
    grown = frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
    return frames.settings({**settings, **ours}) + grown


class Incomplete(Protocol):
    """A call or a request whose message has arrived in part."""

    def give_up(self) -> None:
        """End the call: its message has been incomplete for longest, and there are too many."""
        ...


class ReceiveAccount:
    """The data that connections with these limits hold: bytes, and incomplete small messages."""

    __slots__ = ("_max_bytes", "_max_small", "_small", "pool", "used_bytes")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._max_bytes = SHARES * limits.max_buffered_bytes
        self._max_small = SHARES * limits.max_streams
        self._small: dict[Incomplete, None] = {}
        """In the order in which their messages began."""
        self.used_bytes = 0
        self.pool = StreamPool(limits)
        """The streams that the connections share."""

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is held than allowed."""
        return self.used_bytes > self._max_bytes

    @property
    def small_messages(self) -> int:
        """How many small messages are incomplete."""
        return len(self._small)

    def track(self, call: Incomplete, held_bytes: int, *, is_new: bool) -> None:
        """Note how much a call holds of an incomplete message, and whether that has just begun."""
        small = self._small
        if is_new or held_bytes > SMALL_BYTES:
            small.pop(call, None)
        if is_new and 0 < held_bytes <= SMALL_BYTES:
            small[call] = None
            if len(small) > self._max_small:
                first = next(iter(small))
                del small[first]
                first.give_up()

    def forget(self, call: Incomplete) -> None:
        """Note that a call holds nothing of a message any more."""
        self._small.pop(call, None)


class Inbound(Generic[S]):
    """The accounting of the input of one connection."""

    __slots__ = (
        "_deferred_bytes",
        "_max_buffered_bytes",
        "_outbound",
        "account",
        "buffered_bytes",
        "owed",
    )

    def __init__(self, outbound: Outbound[S], limits: ConnectionLimits) -> None:
        self._outbound = outbound
        self._max_buffered_bytes = limits.max_buffered_bytes
        self.owed = 0
        """Bytes of DATA that were received, on all streams, and not credited."""
        self.buffered_bytes = 0
        """Received bytes that no handler has taken: messages that are incomplete, or that wait."""
        self.account = ReceiveAccount(limits)
        """Shared by all connections of a server."""
        self._deferred_bytes = 0
        """The part of it that is complete messages."""

    # The window of the connection.

    def check_window(self) -> None:
        """Credit the peer for received bytes; end a connection that exceeds the window."""
        if self.owed > CONNECTION_WINDOW:
            raise ConnectionFailed(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"DATA exceeds the connection's flow-control window of {CONNECTION_WINDOW} bytes",
            )
        self._credit_all()

    def _credit_all(self) -> None:
        if self._deferred_bytes <= self._max_buffered_bytes // 2:
            self._outbound.put_frame(frames.window_update(0, self.owed))
            self.owed = 0

    # The window of a stream.

    def count(self, stream: S, frame_bytes: int) -> None:
        """Count bytes received on a stream that continues."""
        stream.replenish += frame_bytes
        if stream.replenish > STREAM_WINDOW:
            raise StreamFailed(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"DATA exceeds the stream's flow-control window of {STREAM_WINDOW} bytes",
            )
        if stream.replenish > STREAM_CREDIT_BYTES:
            self.credit(stream)

    def credit(self, stream: S) -> None:
        """Send a WINDOW_UPDATE for a stream, if the credit is large enough for a frame."""
        spare = stream.replenish - stream.deferred
        if spare > STREAM_CREDIT_BYTES and not stream.is_over and not stream.remote_done:
            self._outbound.put_frame(frames.window_update(stream.id, spare))
            stream.replenish -= spare

    # Data that no handler has taken.

    def buffer(self, size_bytes: int, held_bytes: int = SMALL_BYTES + 1) -> None:
        """Count received bytes that no handler has taken; refuse them above the limit.

        `held_bytes` is the size of this message so far: a small one is not refused.
        """
        account = self.account
        self.buffered_bytes += size_bytes
        account.used_bytes += size_bytes
        if (
            size_bytes > 0
            and held_bytes > SMALL_BYTES
            and (self.buffered_bytes > self._max_buffered_bytes or account.is_overdrawn)
        ):
            self.buffered_bytes -= size_bytes
            account.used_bytes -= size_bytes
            raise BufferFull

    def defer(self, size_bytes: int, *, may_refuse: bool = True) -> None:
        """Count complete messages that no handler has taken; a negative number when one has."""
        self.buffer(size_bytes, SMALL_BYTES + 1 if may_refuse else 0)
        self._deferred_bytes += size_bytes
        if size_bytes < 0 and self.owed > CREDIT_BYTES:
            self._credit_all()


class BlockAssembly:
    """A header block in several frames: HEADERS, and then CONTINUATIONs (RFC 9113, 6.10).

    Until its end no other frame may be received. Its bytes count as received data.
    """

    __slots__ = ("_block", "_buffer", "_continuations", "_limits", "began", "flags", "stream_id")

    def __init__(
        self,
        stream_id: int,
        flags: int,
        limits: ConnectionLimits,
        buffer: Callable[[int, int], None],
        began: float,
    ) -> None:
        self.stream_id = stream_id
        self.flags = flags
        """The flags of the HEADERS frame."""
        self.began = began
        """When the HEADERS frame was received."""
        self._block = bytearray()
        self._continuations = 0
        self._limits = limits
        self._buffer = buffer

    def proceed(self, stream_id: int, payload: bytes) -> None:
        """Add the payload of a CONTINUATION."""
        if stream_id != self.stream_id:
            raise ConnectionFailed(
                ErrorCode.PROTOCOL_ERROR,
                f"CONTINUATION must be on stream {self.stream_id}, not {stream_id}",
            )
        self._continuations += 1
        limits = self._limits
        if (
            len(self._block) + len(payload) > limits.max_block_bytes
            or self._continuations > limits.max_continuations
        ):
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"header block must have at most {limits.max_block_bytes} bytes and "
                f"{limits.max_continuations} CONTINUATION frames",
            )
        self.add(payload)

    def add(self, payload: bytes) -> None:
        """Add a part of the block, and count it."""
        try:
            self._buffer(len(payload), len(self._block) + len(payload))
        except BufferFull as full:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, str(full)) from None
        self._block += payload

    @property
    def size_bytes(self) -> int:
        """The received bytes of the block."""
        return len(self._block)

    def whole(self) -> bytes:
        """Return the block, once it is complete."""
        return bytes(self._block)

    def release(self) -> None:
        """Count the block no longer: it is complete, or the connection ends."""
        self._buffer(-len(self._block), 0)
