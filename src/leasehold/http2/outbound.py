"""The output of a connection: frames in order, as far as the peer's windows allow.

Theory of operation. `_out` is the output that can be sent now, and `flush` hands it on in one
piece; if that is much, the rest has to wait for another turn of the event loop (`flush_soon`). A
stream with output is in one of three places, so that no frame of the peer makes us look at all of
them:

    _ready     it may send: the next flush handles it
    _starved   the window of the connection is used up; the next flush takes from here as long as
               there is some
    nowhere    its own window is used up: `grow_stream` makes it ready again

The end of a stream needs no window, but it is sent after the last byte of the stream.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from leasehold.basics.rope import Rope
from leasehold.http2 import frames
from leasehold.http2.frames import MAX_WINDOW, ConnectionFailed, ErrorCode, StreamFailed
from leasehold.http2.stream import Http2Stream

SHARE_BYTES: Final = 64 * 1024
"""How much a stream may send before the next one has its turn."""

HAND_ON_BYTES: Final = 1024 * 1024
"""How much is handed on in one piece, in about a millisecond: then other connections have their
turn, and the transport may pause."""

_NO_INCREMENT: Final = "WINDOW_UPDATE increment must be at least 1, got 0"
_WINDOW_TOO_LARGE: Final = f"flow-control window must be at most {MAX_WINDOW} bytes"

S = TypeVar("S", bound=Http2Stream)


class Outbound(Generic[S]):
    """The output of one connection."""

    __slots__ = (
        "_flush_soon",
        "_granted",
        "_max_frame_bytes",
        "_out",
        "_ready",
        "_starved",
        "_transmit",
        "_window",
        "initial_window",
        "is_paused",
        "put_bytes",
        "unsent_bytes",
        "unsent_event_bytes",
    )

    def __init__(self, transmit: Callable[[bytes], None], flush_soon: Callable[[], None]) -> None:
        self._transmit = transmit
        self._flush_soon = flush_soon
        self._out: list[bytes] = []
        self._ready: dict[S, None] = {}
        self._starved: dict[S, None] = {}
        self.put_bytes = 0
        """The total bytes of output that were handed on."""
        self.unsent_bytes = 0
        self.unsent_event_bytes = 0
        """The part of it that is events, which the peer has not requested one by one."""
        self.is_paused = False
        """Whether the transport is paused: then messages wait here, however large the windows."""
        self._window = frames.DEFAULT_WINDOW
        self._granted = frames.DEFAULT_WINDOW
        self.initial_window = frames.DEFAULT_WINDOW
        """The initial window of a new stream."""
        self._max_frame_bytes = frames.MIN_MAX_FRAME_BYTES

    # Implemented by servers and clients.

    @abstractmethod
    def put_start(self, stream: S) -> None:
        """Add the frames before the first DATA frame of a stream."""

    @abstractmethod
    def put_end(self, stream: S, ending: bytes) -> None:
        """Add the frames after the last DATA frame of a stream."""

    # Limits of the peer.

    @property
    def taken_bytes(self) -> int:
        """The total bytes of DATA that were sent."""
        return self._granted - self._window

    def set_initial_window(self, window: int, streams: list[S]) -> None:
        """Set the initial window of streams, and adjust the windows of open ones."""
        grown = window - self.initial_window
        self.initial_window = window
        for stream in streams:
            stream.window += grown
            if stream.window > MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_TOO_LARGE)
            if grown > 0 and stream.unsent:
                self._enqueue(stream)

    def set_max_frame(self, payload_bytes: int) -> None:
        """Set the size of the largest frame; none is larger than a stream's share."""
        self._max_frame_bytes = min(payload_bytes, SHARE_BYTES)

    def grow(self, increment: int) -> None:
        """Increase the window of the connection."""
        if not increment:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, _NO_INCREMENT)
        self._window += increment
        self._granted += increment
        if self._window > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_TOO_LARGE)

    def grow_stream(self, stream: S, increment: int) -> None:
        """Increase the window of one stream."""
        if not increment:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, _NO_INCREMENT)
        stream.window += increment
        if stream.window > MAX_WINDOW:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR, _WINDOW_TOO_LARGE)
        if stream.unsent:
            self._enqueue(stream)

    # Adding output.

    def put_frame(self, encoded: bytes) -> None:
        """Send a frame that is not subject to flow control."""
        self._out.append(encoded)

    def has_unsent(self, stream: S, size_bytes: int) -> None:
        """Note that a stream has this many more bytes to send, or its end."""
        self.unsent_bytes += size_bytes
        if stream.is_events:
            self.unsent_event_bytes += size_bytes
        if not stream.is_queued:
            stream.is_queued = True
            self._ready[stream] = None

    def _enqueue(self, stream: S) -> None:
        if not stream.is_queued:
            stream.is_queued = True
            self._ready[stream] = None

    def _count(self, stream: S, size_bytes: int) -> None:
        self.unsent_bytes += size_bytes
        if stream.is_events:
            self.unsent_event_bytes += size_bytes

    def forget(self, stream: S) -> None:
        """Send nothing more of a stream."""
        if stream.unsent:
            self._count(stream, -len(stream.unsent))
            stream.unsent = None
        if stream.is_queued:
            stream.is_queued = False
            self._ready.pop(stream, None)
            self._starved.pop(stream, None)

    def flush(self) -> None:
        """Hand on the output that can be sent now; if it is too much, schedule another flush."""
        put_bytes = 0
        while (self._ready or (self._starved and self._window > 0)) and not self.is_paused:
            # First the streams that have waited for the window of the connection.
            queue = self._starved if self._starved and self._window > 0 else self._ready
            stream = next(iter(queue))
            del queue[stream]
            stream.is_queued = False
            put_bytes += self._send(stream)
            if put_bytes >= HAND_ON_BYTES:
                self._flush_soon()
                break
        if self._out:
            self._hand_on()

    def _hand_on(self) -> None:
        out, self._out = b"".join(self._out), []
        self.put_bytes += len(out)
        self._transmit(out)

    def _send(self, stream: S) -> int:
        """Send a share of a stream, and its end after the last one; return the share's size."""
        if stream.unsent and not stream.has_head:
            self.put_start(stream)
        put_bytes = 0
        while stream.unsent:
            room = min(self._window, stream.window, self._max_frame_bytes)
            if room <= 0 or put_bytes >= SHARE_BYTES:
                self._wait(stream)
                stream.sent()
                return put_bytes
            put_bytes += self._put_data(stream, stream.unsent, room)
        if stream.ending is not None:
            self.put_end(stream, stream.ending)
        else:
            stream.sent()
        return put_bytes

    def _wait(self, stream: S) -> None:
        """Put a stream that has more output where it belongs."""
        if stream.window > 0:
            stream.is_queued = True
            (self._ready if self._window > 0 else self._starved)[stream] = None

    def _put_data(self, stream: S, unsent: bytearray | Rope, room: int) -> int:
        if type(unsent) is Rope:
            payload = unsent.take(room)
        else:
            payload = bytes(unsent[:room])
            del unsent[:room]
        length = len(payload)
        self._window -= length
        stream.window -= length
        self._count(stream, -length)
        self._out += (frames.HEAD.pack(length << 8 | frames.DATA, 0, stream.id), payload)
        return length

    def put_headers(self, stream: S, block: bytes, flags: int) -> None:
        """Send a header block, in as many frames as needed."""
        stream.has_head = True
        size = self._max_frame_bytes
        kind = frames.HEADERS
        for start in range(0, len(block), size):
            if start + size >= len(block):
                flags |= frames.END_HEADERS
            piece = block[start : start + size]
            self._out.append(frames.frame(kind, flags, stream.id, piece))
            kind, flags = frames.CONTINUATION, 0


class DeferredFlush:
    """One flush for all output of a connection in a turn of the event loop."""

    __slots__ = ("_call_soon", "_flush", "_is_due")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], flush: Callable[[], None]
    ) -> None:
        self._call_soon = call_soon
        self._flush = flush
        self._is_due = False

    def schedule(self) -> None:
        """Flush together with other output of this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._flush()
