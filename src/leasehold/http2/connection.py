"""One side of an HTTP/2 connection (RFC 9113), without I/O: the common part of server and client.

Theory of operation. `receive` takes input in pieces of any size, and handles each complete frame as
it goes. Output collects in `Outbound`, and is sent in one piece at the end of `receive`, or when
`flush` is called.

A stream is in `_streams` from its beginning until its last frame was sent, it was reset by either
side, or the connection ended. `ClosedStreams` records the ids that are not there.

A rule broken on a stream resets the stream (`StreamFailed`); one that concerns the whole connection
ends it with a GOAWAY (`ConnectionFailed`), after which nothing is read any more.

The differences between servers and clients are in their subclasses: `_body` gets the bytes of DATA
frames, `_block` gets whole header blocks.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Generic

from leasehold.http2 import frames
from leasehold.http2.frames import (
    HEAD,
    HEAD_BYTES,
    STREAM_ID_MASK,
    ConnectionFailed,
    ErrorCode,
    Setting,
    StreamFailed,
)
from leasehold.http2.hpack import Field, HeaderDecoder, HeaderError, HeaderListTooLarge
from leasehold.http2.inbound import CREDIT_BYTES, BlockAssembly, Inbound
from leasehold.http2.limits import ConnectionLimits, TokenBuckets
from leasehold.http2.outbound import Outbound, S
from leasehold.http2.stream import ClosedStreams

logger = logging.getLogger(__name__)

PING_BYTES: Final = 8

FRESH_S: Final = 1.0
"""A peer that cancels a call later than this after its start may do so without a limit."""

ACTIVE_BYTES: Final = 16
"""For each such number of bytes that a peer reads it may send one more frame without content."""

_LARGEST_FRAME: Final = frames.MIN_MAX_FRAME_BYTES << 8 | 0xFF


class Http2(Generic[S]):
    """One HTTP/2 connection with one peer. `now` is a monotonic clock."""

    def __init__(
        self,
        outbound: Outbound[S],
        limits: ConnectionLimits,
        now: Callable[[], float],
        greeting: bytes,
    ) -> None:
        self.limits = limits
        self.report: Callable[[str], None] = _report
        """Logs an error of the connection; the text follows its name."""
        self.is_closing = False
        """Whether the connection is to be closed once the output is written."""
        self.is_pinged = False
        """Whether a ping of ours is not answered yet."""
        self._read_at = 0.0
        """When data was last received."""
        self.activity = 0
        """How often data was received."""
        self._now = now
        self._outbound = outbound
        self._outbound.put_frame(greeting)
        self._decoder = HeaderDecoder(max_list_bytes=limits.max_header_list_bytes)
        self._streams: dict[int, S] = {}
        self._closed = ClosedStreams()
        self._last_id = 0
        """The highest stream id that the peer has used."""
        self._tail = b""
        self._has_settings = False
        self._assembly: BlockAssembly | None = None
        self._fault: StreamFailed | None = None
        """The error of a request whose header block is not decoded yet."""
        self._taken_at_ping = -1
        self._active = 0
        self._spend = TokenBuckets(now).spend
        self._inbound = inbound = Inbound(outbound, limits)
        self.has_unsent = outbound.has_unsent
        self.buffer, self.defer, self.credit = inbound.buffer, inbound.defer, inbound.credit
        self._rare_frames: dict[int, Callable[[int, int, bytes], None]] = {
            frames.PRIORITY: self._priority,
            frames.RST_STREAM: self._rst_stream,
            frames.SETTINGS: self._settings,
            frames.PUSH_PROMISE: self._push_promise,
            frames.PING: self._ping,
            frames.GOAWAY: self._goaway,
            frames.WINDOW_UPDATE: self._window_update,
            frames.CONTINUATION: self._continuation,
        }

    # Implemented by servers and clients.

    @abstractmethod
    def _body(self, stream: S, flags: int, payload: bytes, frame_bytes: int) -> None:
        """Take the payload of a DATA frame; with its padding it had `frame_bytes`."""

    @abstractmethod
    def _begin_block(self, stream_id: int) -> None:
        """Check whether a stream may have a header block now."""

    @abstractmethod
    def _block(self, stream_id: int, flags: int, fields: tuple[Field, ...]) -> None:
        """Take the fields of a whole header block."""

    @abstractmethod
    def _settings_received(self, name: int, value: int) -> None:
        """Take a setting that concerns only this side."""

    def _heard_settings(self) -> None:
        """Called when the peer has acknowledged our settings."""

    @abstractmethod
    def _goaway_received(self, last_id: int, code: int, why: bytes) -> None:
        """Called for a GOAWAY; the peer has not begun with streams above `last_id`."""

    @abstractmethod
    def _was_used(self, stream_id: int) -> bool:
        """Return whether a stream of this id was ever begun, by the side that may do so."""

    # Frames.

    def receive(self, data: bytes) -> None:
        """Handle the input after the preface, and send the answers that are ready."""
        self.activity += 1
        self._read_at = self._now()
        try:
            if not self.is_closing:
                self._read(self._tail + data if self._tail else data)
        except ConnectionFailed as failed:
            self.close(failed.code, failed.why)
        self.flush()

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        unpack = HEAD.unpack_from
        while end - at >= HEAD_BYTES:
            word, flags, stream_id = unpack(data, at)
            if word > _LARGEST_FRAME:
                raise ConnectionFailed(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"frame must have at most {frames.MIN_MAX_FRAME_BYTES} bytes, got {word >> 8}",
                )
            start = at + HEAD_BYTES
            following = start + (word >> 8)
            if following > end:
                break
            at = following
            kind = word & 0xFF
            stream_id &= STREAM_ID_MASK
            try:
                if self._assembly is not None and kind != frames.CONTINUATION:
                    raise ConnectionFailed(
                        ErrorCode.PROTOCOL_ERROR,
                        "expected CONTINUATION: the header block is not complete",
                    )
                if kind == frames.DATA:
                    self._data(flags, stream_id, data[start:following])
                elif kind == frames.HEADERS:
                    self._headers(flags, stream_id, data[start:following])
                else:
                    self._rare(kind, flags, stream_id, data[start:following])
            except StreamFailed as failed:
                self.reset(stream_id, failed)
        self._tail = data[at:]

    def _rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._has_settings and kind != frames.SETTINGS:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
        take = self._rare_frames.get(kind)
        if take is None:  # unknown types are to be ignored
            self._spend_idle()
        else:
            take(flags, stream_id, payload)

    def _spend_idle(self) -> None:
        """Charge for a frame that carries nothing; calls and answers that are read earn some."""
        begun = self._last_id - self._closed.skipped
        active = begun + self._outbound.taken_bytes // ACTIVE_BYTES
        self._spend(self.limits.idle_frames, "frames that carry nothing", active - self._active)
        self._active = active

    # Frames of the connection.

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        _check_on_connection(stream_id, "SETTINGS")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFailed(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"SETTINGS with ACK must be empty, got {len(payload)} bytes",
                )
            if not self._has_settings:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
            self._spend(self.limits.settings, "SETTINGS frames")
            self._heard_settings()
            return
        self._spend(self.limits.settings, "SETTINGS frames")
        for name, value in frames.parse_settings(payload).items():
            if name == Setting.INITIAL_WINDOW_SIZE:
                self._outbound.set_initial_window(value, list(self._streams.values()))
            elif name == Setting.MAX_FRAME_SIZE:
                self._outbound.set_max_frame(value)
            else:
                self._settings_received(name, value)
        self._has_settings = True
        self._outbound.put_frame(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        _check_on_connection(stream_id, "PING")
        if len(payload) != PING_BYTES:
            raise ConnectionFailed(
                ErrorCode.FRAME_SIZE_ERROR,
                f"PING payload must have {PING_BYTES} bytes, got {len(payload)}",
            )
        taken_bytes = self._outbound.taken_bytes
        if taken_bytes == self._taken_at_ping:
            self._spend(self.limits.pings, "PING frames")
        self._taken_at_ping = taken_bytes
        if flags & frames.ACK:
            self.is_pinged = False
        else:
            self._outbound.put_frame(frames.frame(frames.PING, frames.ACK, 0, payload))

    def ping(self) -> None:
        """Send a ping: `is_pinged` is set until it is answered."""
        self.is_pinged = True
        self._outbound.put_frame(frames.frame(frames.PING, 0, 0, bytes(PING_BYTES)))
        self.flush()

    def _goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        _check_on_connection(stream_id, "GOAWAY")
        self._spend_idle()
        self._goaway_received(*frames.parse_goaway(payload))

    def _push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE is not allowed")

    # Frames of a stream.

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        increment = frames.word_of(payload, "WINDOW_UPDATE") & frames.MAX_WINDOW
        self._spend_idle()
        if not stream_id:
            self._outbound.grow(increment)
            return
        self._check_used(stream_id, "WINDOW_UPDATE")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._outbound.grow_stream(stream, increment)

    def _priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PRIORITY must not be on stream 0")
        self._spend_idle()
        try:
            frames.check_priority(stream_id, payload)
        except StreamFailed as failed:
            if self._was_used(stream_id):
                raise
            raise ConnectionFailed(failed.code, failed.why) from None

    def _rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        code = frames.word_of(payload, "RST_STREAM")
        self._check_used(stream_id, "RST_STREAM")
        self._closed.end_there(stream_id)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._spend_idle()
            return
        # The others have an answer, as many successful calls that end, or have waited long for one.
        if not stream.has_head and self._read_at - stream.began < FRESH_S:
            self._spend(self.limits.resets, "calls that are cancelled early")
        self._was_reset(stream, code)

    def _was_reset(self, stream: S, code: int) -> None:
        """Called when the peer has reset a stream."""
        self.forget(stream)

    def _check_used(self, stream_id: int, what: str) -> None:
        if not self._was_used(stream_id):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"{what} on idle stream {stream_id}")

    # Headers.

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.PRIORITISED):
            if flags & frames.PRIORITISED and frames.depends_on_itself(stream_id, payload, flags):
                self._fault = frames.own_dependency()  # raised once the block is decoded
            payload = frames.without_padding(payload, flags, prioritised=True)
        self._begin_block(stream_id)
        if flags & frames.END_HEADERS:
            self._whole_block(stream_id, flags, payload)
        else:
            self._assembly = BlockAssembly(
                stream_id, flags, self.limits, self.buffer, self._read_at
            )
            self._assembly.add(payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        assembly = self._assembly
        if assembly is None:
            raise ConnectionFailed(
                ErrorCode.PROTOCOL_ERROR,
                "CONTINUATION without an incomplete header block before it",
            )
        assembly.proceed(stream_id, payload)
        if flags & frames.END_HEADERS:
            self._assembly = None
            assembly.release()
            self._whole_block(stream_id, assembly.flags, assembly.whole())

    def drop_overdue(self, now: float) -> None:
        """Close the connection if a header block takes too long to arrive completely."""
        assembly, message_s = self._assembly, self.limits.message_s
        if assembly is not None and now - assembly.began >= message_s:
            why = f"a header block did not arrive completely within {message_s:g} s"
            self.close(ErrorCode.ENHANCE_YOUR_CALM, why)
            self.flush()

    def undecodable(self, error: HeaderError | HeaderListTooLarge) -> Exception:
        """Return the error for stream or connection of a block that cannot be decoded or used."""
        if isinstance(error, HeaderListTooLarge):
            return StreamFailed(ErrorCode.ENHANCE_YOUR_CALM, str(error))
        return ConnectionFailed(ErrorCode.COMPRESSION_ERROR, str(error))

    def _whole_block(self, stream_id: int, flags: int, block: bytes) -> None:
        try:
            fields = self._decoder.decode(block)
        except (HeaderError, HeaderListTooLarge) as error:
            self._fault = None  # it is lost anyway, and does not concern the next one
            raise self.undecodable(error) from error
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        self._block(stream_id, flags, fields)

    # Data.

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        frame_bytes = len(payload)
        inbound = self._inbound
        inbound.owed += frame_bytes
        if inbound.owed > CREDIT_BYTES:
            inbound.check_window()
        stream = self._streams.get(stream_id)
        if stream is None:
            self._data_of_closed(flags, stream_id)
            return
        if stream.remote_done:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")
        if flags & frames.PADDED:
            payload = frames.without_padding(payload, flags)
        if not payload and not flags & frames.END_STREAM:
            self._spend(self.limits.empty_data, "empty DATA frames")
        self._body(stream, flags, payload, frame_bytes)

    def _data_of_closed(self, flags: int, stream_id: int) -> None:
        self._check_used(stream_id, "DATA")
        if not self._closed.ended_here(stream_id):
            self._check_not_skipped(stream_id, "DATA")
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")
        self._spend_idle()
        if flags & frames.END_STREAM:
            self._closed.end_there(stream_id)

    def _check_not_skipped(self, stream_id: int, what: str) -> None:
        if self._closed.was_skipped(stream_id):
            raise ConnectionFailed(
                ErrorCode.PROTOCOL_ERROR,
                f"{what} on stream {stream_id}, which was closed implicitly",
            )

    def pay_for_unpacking(self, excess_bytes: int) -> None:
        """Charge for messages whose compression ratio is above the fair one."""
        what = "bytes in messages that are packed tightly"
        self._spend(self.limits.unpacked, what, amount=excess_bytes)

    # Output.

    def flush(self) -> None:
        """Hand on the output that can be sent now."""
        self._outbound.flush()

    def pause(self) -> None:
        """Send no more messages for now: the transport's buffer is full."""
        self._outbound.is_paused = True

    def resume(self) -> None:
        """Send messages again."""
        self._outbound.is_paused = False
        self.flush()

    @property
    def unsent_bytes(self) -> int:
        """The bytes of output that wait for the peer."""
        return self._outbound.unsent_bytes

    @property
    def taken_bytes(self) -> int:
        """The total bytes of output that the peer's windows have let through."""
        return self._outbound.taken_bytes

    @property
    def put_bytes(self) -> int:
        """The total bytes of output that were handed on."""
        return self._outbound.put_bytes

    @property
    def has_greeted(self) -> bool:
        """Whether the peer has sent its first SETTINGS."""
        return self._has_settings

    @property
    def begun(self) -> int:
        """A number that changes whenever the peer begins a stream."""
        return self._last_id

    @property
    def has_streams(self) -> bool:
        """Whether there is any stream."""
        return bool(self._streams)

    def reset(self, stream_id: int, failed: StreamFailed) -> None:
        """Reset a stream on which the peer broke a rule, or that is not needed any more."""
        logger.debug("stream %d is reset: %s (%s)", stream_id, failed.why, failed.code.name)
        self._outbound.put_frame(frames.rst_stream(stream_id, failed.code))
        stream = self._streams.get(stream_id)
        if stream is None or not stream.remote_done:
            self._closed.end_here(stream_id)
        if stream is not None:
            self.forget(stream)
        if failed.code == ErrorCode.REFUSED_STREAM:
            self._spend(self.limits.refusals, "calls that had to be refused")
        else:
            self._spend(self.limits.resets, "streams that had to be reset")

    def forget(self, stream: S) -> None:
        """Remove a stream."""
        if self._streams.pop(stream.id, None) is None:
            return  # it was removed while others were
        self._outbound.forget(stream)
        stream.is_over = True
        stream.over()

    # Closing.

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY; the owner closes the connection once this is written."""
        if self.is_closing:
            return
        if code != ErrorCode.NO_ERROR:
            self.report(f"is closed: {why} ({code.name})")
            self._outbound.flush()
            self.forget_all()  # else they could fill the memory until the peer is gone
        self.is_closing = True
        self._outbound.put_frame(frames.goaway(self._last_taken, code, why))

    @property
    def _last_taken(self) -> int:
        """The last stream of the peer that may have been handled."""
        return self._last_id

    def lost(self) -> None:
        """Remove every stream: the connection is gone."""
        self.is_closing = True
        self.forget_all()

    def forget_all(self) -> None:
        """Remove every stream, and an incomplete header block."""
        if self._assembly is not None:
            self._assembly.release()
            self._assembly = None
        for stream in list(self._streams.values()):
            self.forget(stream)


def _report(what: str) -> None:
    logger.warning("connection %s", what)


def _check_on_connection(stream_id: int, what: str) -> None:
    if stream_id:
        raise ConnectionFailed(
            ErrorCode.PROTOCOL_ERROR, f"{what} must be on stream 0, not {stream_id}"
        )
