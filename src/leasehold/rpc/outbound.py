"""What goes out on a connection: frames in order, as far as the peer's windows allow.

Theory of operation. `_out` is what can be sent now, and `flush` hands it on in one piece; if that
is much, the rest has to wait for another turn of the event loop (`flush_soon`). A stream with
something to send is in one of three places, so that no frame of the peer makes us look at all
of them:

    _ready     it may send: it is looked at by the next flush
    _starved   the window of the connection is used up; the next flush takes from here as long as
               there is some
    nowhere    its own window is used up: `grow_stream` makes it ready again

A stream's end needs no window, but it comes behind the last octet of the stream.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from leasehold.rpc import frames
from leasehold.rpc.frames import MAX_WINDOW, ConnectionFailed, ErrorCode, StreamFailed
from leasehold.rpc.rope import Rope
from leasehold.rpc.streams import Stream

SHARE_BYTES: Final = 64 * 1024
"""What a stream may send before it is another's turn."""

HAND_ON_BYTES: Final = 1024 * 1024
"""What is handed on at once, in about a millisecond: then it is the turn of other connections, and
the transport may say that it has enough."""

S = TypeVar("S", bound=Stream)


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
        """Output that was ever handed on."""
        self.unsent_bytes = 0
        self.unsent_event_bytes = 0
        """The part of it that nobody has asked for right now."""
        self.is_paused = False
        """Whether the transport has enough: then messages wait here, however wide the windows."""
        self._window = frames.DEFAULT_WINDOW
        self._granted = frames.DEFAULT_WINDOW
        self.initial_window = frames.DEFAULT_WINDOW
        """The window that a new stream begins with."""
        self._max_frame_bytes = frames.MIN_MAX_FRAME_BYTES

    # What each side does in its own way.

    @abstractmethod
    def put_start(self, stream: S) -> None:
        """Put out what comes before the first DATA frame of a stream."""

    @abstractmethod
    def put_end(self, stream: S, ending: bytes) -> None:
        """Put out what comes behind the last DATA frame of a stream."""

    # What the peer allows.

    @property
    def taken_bytes(self) -> int:
        """How many octets of DATA were ever sent."""
        return self._granted - self._window

    def set_initial_window(self, window: int, streams: list[S]) -> None:
        """Take the window that streams begin with, and move those that there are."""
        grown = window - self.initial_window
        self.initial_window = window
        for stream in streams:
            stream.window += grown
            if stream.window > MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")
            if grown > 0 and stream.unsent:
                self._enqueue(stream)

    def set_max_frame(self, payload_bytes: int) -> None:
        """Take the size of the largest frame; none is larger than a stream's share."""
        self._max_frame_bytes = min(payload_bytes, SHARE_BYTES)

    def grow(self, increment: int) -> None:
        """Let the peer take so much more on all streams together."""
        if not increment:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        self._window += increment
        self._granted += increment
        if self._window > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")

    def grow_stream(self, stream: S, increment: int) -> None:
        """Let the peer take so much more on one stream."""
        if not increment:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        stream.window += increment
        if stream.window > MAX_WINDOW:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")
        if stream.unsent:
            self._enqueue(stream)

    # What is to be sent.

    def put_frame(self, encoded: bytes) -> None:
        """Send a frame that no window holds back."""
        self._out.append(encoded)

    def has_unsent(self, stream: S, octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        self.unsent_bytes += octets
        if stream.is_events:
            self.unsent_event_bytes += octets
        if not stream.is_queued:
            stream.is_queued = True
            self._ready[stream] = None

    def _enqueue(self, stream: S) -> None:
        if not stream.is_queued:
            stream.is_queued = True
            self._ready[stream] = None

    def _count(self, stream: S, octets: int) -> None:
        self.unsent_bytes += octets
        if stream.is_events:
            self.unsent_event_bytes += octets

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
        """Hand on what can be sent now; if that is too much, have the rest flushed soon."""
        put_bytes = 0
        while (self._ready or (self._starved and self._window > 0)) and not self.is_paused:
            # Those first who have waited for the window that is there now.
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
        """Put out a share of a stream, and its end behind the last; give the share's size."""
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
        """Put a stream that has more where it belongs."""
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
        """Send a header block, in as many frames as it takes."""
        stream.has_head = True
        size = self._max_frame_bytes
        kind = frames.HEADERS
        for start in range(0, len(block), size):
            if start + size >= len(block):
                flags |= frames.END_HEADERS
            piece = block[start : start + size]
            self._out.append(frames.frame(kind, flags, stream.id, piece))
            kind, flags = frames.CONTINUATION, 0
