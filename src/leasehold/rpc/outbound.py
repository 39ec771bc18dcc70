"""What goes out on a connection: frames in order, as far as the peer's windows allow.

Theory of operation. `_out` is what can be sent now, and `flush` hands it on in one piece. A stream
with messages is in `_unsent` until they have all left: each flush sends as much of each as its own
window and that of the connection allow. A call ends with its trailers, behind its last message.

The usual answer is one short message. If the windows have room for it, it takes the short way:
three frames of known shape in one piece (`answer`), and the stream never gets into `_unsent`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from leasehold.rpc import answers, frames
from leasehold.rpc.answers import AnswerBlocks
from leasehold.rpc.frames import MAX_WINDOW, ConnectionFailed, ErrorCode, StreamFailed
from leasehold.rpc.grpc import PREFIX_BYTES
from leasehold.rpc.stream import Stream

MAX_UNSENT_BYTES: Final = 16 * 1024 * 1024
"""Output that waits for the peer; beyond it calls are refused, and so is a peer that goes on asking
to be told things. A single answer may be larger."""

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""Events that wait for the peer or for the disk, on one connection; beyond it there is no room for
more until half of them are gone. A single one may be larger."""

SHARE_BYTES: Final = 64 * 1024
"""What a stream may send before it is another's turn."""

_ANSWER: Final = Struct(">5sI2sIBIBI")  # a HEADERS frame, and the heads of DATA frame and message
_TRAILERS: Final = Struct(">5sI1s")
_HEADERS_FRAME: Final = bytes((0, 0, len(answers.HEAD), frames.HEADERS, frames.END_HEADERS))
_TRAILERS_FRAME: Final = bytes(
    (0, 0, len(answers.TRAILERS), frames.HEADERS, frames.END_HEADERS | frames.END_STREAM)
)


class Outbound:
    """The output of one connection. `over` is told of streams that have sent their last frame."""

    __slots__ = (
        "_blocks",
        "_initial_window",
        "_max_frame_bytes",
        "_out",
        "_over",
        "_transmit",
        "_unsent",
        "_window",
        "is_paused",
        "unsent_bytes",
        "unsent_event_bytes",
    )

    def __init__(self, transmit: Callable[[bytes], None], over: Callable[[Stream], None]) -> None:
        self._transmit = transmit
        self._over = over
        self._blocks = AnswerBlocks()
        self._out: list[bytes] = []
        self._unsent: dict[Stream, None] = {}
        self.unsent_bytes = 0
        self.unsent_event_bytes = 0
        """The part of it that nobody has asked for right now."""
        self.is_paused = False
        """Whether the transport has enough: then messages wait here, however wide the windows."""
        self._window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._max_frame_bytes = frames.MIN_MAX_FRAME_BYTES

    # What the peer allows.

    @property
    def initial_window(self) -> int:
        """The window that a new stream begins with."""
        return self._initial_window

    def set_initial_window(self, window: int) -> int:
        """Take the window that streams begin with; return by how much those there are grow."""
        if window > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {window}")
        grown = window - self._initial_window
        self._initial_window = window
        return grown

    def grow_by_settings(self, stream: Stream, grown: int) -> None:
        """Move the window of a stream because that of all has changed; it may become negative."""
        stream.window += grown
        if stream.window > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")

    def set_table_size(self, table_bytes: int) -> None:
        """Take the size of the table that header blocks may fill."""
        self._blocks.set_table_size(table_bytes)

    def set_max_frame(self, payload_bytes: int) -> None:
        """Take the size of the largest frame."""
        if not frames.MIN_MAX_FRAME_BYTES <= payload_bytes <= frames.MAX_MAX_FRAME_BYTES:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE of {payload_bytes}")
        self._max_frame_bytes = payload_bytes

    def grow(self, increment: int) -> None:
        """Let the peer take so much more on all streams together."""
        if not increment:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        self._window += increment
        if self._window > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")

    def grow_stream(self, stream: Stream, increment: int) -> None:
        """Let the peer take so much more on one stream."""
        if not increment:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        stream.window += increment
        if stream.window > MAX_WINDOW:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its limit")

    # What is to be sent.

    def put_frame(self, encoded: bytes) -> None:
        """Send a frame that no window holds back."""
        self._out.append(encoded)

    def answer(self, stream: Stream, message: bytes) -> bool:
        """Send the one answer of a call, and its end, if it can take the short way."""
        length = len(message) + PREFIX_BYTES
        if (
            length > self._window
            or length > stream.window
            or length > frames.MIN_MAX_FRAME_BYTES  # what is longer is to be counted
            or not self._blocks.is_primed
        ):
            return False
        self._window -= length
        stream_id = stream.id
        self._out.append(
            _ANSWER.pack(
                _HEADERS_FRAME,
                stream_id,
                answers.HEAD,
                length << 8,  # and the type of DATA, which is 0
                0,
                stream_id,
                0,
                len(message),
            )
            + message
            + _TRAILERS.pack(_TRAILERS_FRAME, stream_id, answers.TRAILERS)
        )
        return True

    def has_unsent(self, stream: Stream, octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        self._unsent[stream] = None
        self._count(stream, octets)

    def _count(self, stream: Stream, octets: int) -> None:
        self.unsent_bytes += octets
        if stream.listener is not None:
            self.unsent_event_bytes += octets

    def forget(self, stream: Stream) -> None:
        """Send nothing more of a stream."""
        if self._unsent.pop(stream, _MISSING) is not _MISSING and stream.unsent:
            self._count(stream, -len(stream.unsent))

    def refuse(self, stream: Stream, block: bytes) -> None:
        """Send the only block of an answer that is no gRPC."""
        self._put_headers(stream, self._blocks.refused(block), frames.END_STREAM)

    def flush(self) -> None:
        """Hand on what can be sent now."""
        more = bool(self._unsent)
        while more and not self.is_paused:
            shares = [self._send(stream) for stream in list(self._unsent)]
            more = any(shares)
            self._hand_on()
        self._hand_on()

    def _hand_on(self) -> None:
        if self._out:
            out, self._out = b"".join(self._out), []
            self._transmit(out)

    def _send(self, stream: Stream) -> bool:
        """Put out a share of a stream, and its end behind the last; True if there is more to go."""
        unsent = stream.unsent
        share = SHARE_BYTES
        if unsent and not stream.has_head:
            self._put_headers(stream, self._blocks.head(), 0)
        while unsent:
            room = min(self._window, stream.window, self._max_frame_bytes)
            if room <= 0:
                return False
            if share <= 0:
                return True
            self._put_data(stream, unsent, room)
            share -= room
        del self._unsent[stream]
        if stream.ending is not None:
            self._put_headers(stream, self._last_block(stream, stream.ending), frames.END_STREAM)
            if not stream.remote_done:  # the client need not go on sending
                self._out.append(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
            self._over(stream)
        return False

    def _put_data(self, stream: Stream, unsent: bytearray, room: int) -> None:
        payload = bytes(unsent[:room])
        del unsent[:room]
        self._window -= len(payload)
        stream.window -= len(payload)
        self._count(stream, -len(payload))
        self._out.append(frames.frame(frames.DATA, 0, stream.id, payload))

    def _last_block(self, stream: Stream, trailers: bytes) -> bytes:
        if trailers:
            return self._blocks.failed(trailers, is_only_block=not stream.has_head)
        if not stream.has_head:
            self._put_headers(stream, self._blocks.head(), 0)
        return self._blocks.trailers()

    def _put_headers(self, stream: Stream, block: bytes, flags: int) -> None:
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


_MISSING: Final = object()
