"""The server's side of one HTTP/2 connection, with gRPC calls on it; it does no I/O.

Theory of operation. `receive` is given whatever came in, in pieces of any size, and calls the
handlers of complete messages as it goes. Handlers are plain functions: no task is made for a call.
What is to be sent collects in `Outbound`, and leaves in one piece: at the end of `receive`, and
when the gate has released what waited for the disk.

A stream is in `_streams` from its HEADERS until its last frame was put out, it was reset by either
side, or the connection ended. A number that is not there and not above `_last_id` belongs to a
stream that is over; frames for it may still be on their way and are ignored.

The usual call is a HEADERS frame, and a DATA frame that has one whole message and ends the stream.
It takes the short way: one look into the memo of request heads, one call, one answer of known
shape.

A rule broken on a stream resets the stream (`StreamFailed`); one that concerns the whole connection
ends it with a GOAWAY (`ConnectionFailed`), after which nothing is read any more.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from leasehold.errors import Status
from leasehold.rpc import frames
from leasehold.rpc.answers import http_refusal
from leasehold.rpc.frames import (
    HEAD,
    HEAD_BYTES,
    STREAM_ID_MASK,
    ConnectionFailed,
    ErrorCode,
    Setting,
    StreamFailed,
)
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import PREFIX, PREFIX_BYTES, RpcError
from leasehold.rpc.hpack import (
    MAX_HEADER_LIST_BYTES,
    Field,
    HeaderDecoder,
    HeaderError,
    HeaderListTooLarge,
)
from leasehold.rpc.outbound import MAX_EVENT_BYTES, MAX_UNSENT_BYTES, Outbound
from leasehold.rpc.routes import Head, Methods, resolve
from leasehold.rpc.stream import Stream

logger = logging.getLogger(__name__)

MAX_STREAMS: Final = 1024
"""Calls under way on one connection; more are refused."""

MAX_BLOCK_BYTES: Final = 64 * 1024
"""The encoded headers of a request, over all CONTINUATION frames."""

MAX_HEADS: Final = 256
"""Different request heads remembered for one connection."""

STREAM_WINDOW: Final = 4 * 1024 * 1024
"""What a peer may send on a stream unasked: more than the largest message."""

CONNECTION_WINDOW: Final = 16 * 1024 * 1024

_LARGEST_FRAME: Final = frames.MIN_MAX_FRAME_BYTES << 8 | 0xFF
_GREETING: Final = frames.settings(
    {
        Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        Setting.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
    }
) + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
_PING_BYTES: Final = 8
_TOO_SLOW: Final = "the answers on this connection are not taken; read them, or open another one"


class Connection:
    """Speaks HTTP/2 and gRPC with one client. `transmit` is given what is to be sent."""

    def __init__(self, methods: Methods, gate: Gate, transmit: Callable[[bytes], None]) -> None:
        self.gate = gate
        self.is_closing = False
        """Whether the connection is to be closed once the output is written."""
        self._methods = methods
        self._decoder = HeaderDecoder()
        self._heads: dict[tuple[Field, ...], Head] = {}
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._tail = b""
        self._has_settings = False
        self._block: bytearray | None = None
        self._block_of = (0, 0)  # stream id and flags of the HEADERS that CONTINUATIONs go on with
        self._replenish = 0
        self._outbound = Outbound(transmit, self._forget)
        self._outbound.put_frame(_GREETING)
        self.held_event_bytes = 0
        """Events that wait for the gate."""
        self._cramped_from: int | None = None
        """How many events waited when there was no room for more any longer."""
        self.has_unsent = self._outbound.has_unsent

    # Frames.

    def receive(self, data: bytes) -> None:
        """Take what came in after the preface, and answer what can be answered at once."""
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
                    f"a frame of {word >> 8} octets; at most {frames.MIN_MAX_FRAME_BYTES}",
                )
            start = at + HEAD_BYTES
            following = start + (word >> 8)
            if following > end:
                break
            at = following
            kind = word & 0xFF
            try:
                if self._block is not None and kind != frames.CONTINUATION:
                    raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "an unfinished header block")
                if kind == frames.DATA:
                    self._data(flags, stream_id & STREAM_ID_MASK, data[start:following])
                elif kind == frames.HEADERS:
                    self._headers(flags, stream_id & STREAM_ID_MASK, data[start:following])
                else:
                    self._rare(kind, flags, stream_id & STREAM_ID_MASK, data[start:following])
            except StreamFailed as failed:
                self._reset(stream_id & STREAM_ID_MASK, failed)
        self._tail = data[at:]

    def _rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frames.WINDOW_UPDATE:
            self._window_update(stream_id, frames.word_of(payload, "WINDOW_UPDATE"))
        elif kind == frames.SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == frames.PING:
            self._ping(flags, stream_id, payload)
        elif kind == frames.RST_STREAM:
            self._rst_stream(stream_id, payload)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, stream_id, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
        # PRIORITY and GOAWAY change nothing here, and unknown types are to be ignored.

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != _PING_BYTES:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} octets")
        if not flags & frames.ACK:
            self._outbound.put_frame(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS: an ACK with values")
            return
        self._has_settings = True
        for name, value in frames.parse_settings(payload):
            if name == Setting.HEADER_TABLE_SIZE:
                self._outbound.set_table_size(value)
            elif name == Setting.INITIAL_WINDOW_SIZE:
                grown = self._outbound.set_initial_window(value)
                for stream in self._streams.values():
                    self._outbound.grow_by_settings(stream, grown)
            elif name == Setting.MAX_FRAME_SIZE:
                self._outbound.set_max_frame(value)
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")
        self._outbound.put_frame(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _window_update(self, stream_id: int, increment: int) -> None:
        increment &= frames.MAX_WINDOW
        if not stream_id:
            self._outbound.grow(increment)
            return
        self._check_not_idle(stream_id, "WINDOW_UPDATE")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._outbound.grow_stream(stream, increment)

    def _rst_stream(self, stream_id: int, payload: bytes) -> None:
        frames.word_of(payload, "RST_STREAM")
        self._check_not_idle(stream_id, "RST_STREAM")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)

    def _check_not_idle(self, stream_id: int, what: str) -> None:
        if stream_id > self._last_id or not stream_id & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"{what} on idle stream {stream_id}")

    # Headers.

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.PRIORITISED):
            payload = frames.without_padding(payload, flags, prioritised=True)
        if stream_id > self._last_id and stream_id & 1:
            self._last_id = stream_id
        elif stream_id not in self._streams:
            code = ErrorCode.STREAM_CLOSED if stream_id & 1 else ErrorCode.PROTOCOL_ERROR
            raise ConnectionFailed(code, f"HEADERS on stream {stream_id}")
        if flags & frames.END_HEADERS:
            self._request(flags, stream_id, payload)
        else:
            self._block = bytearray(payload)
            self._block_of = (stream_id, flags)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None or stream_id != self._block_of[0]:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._block += payload
        if len(self._block) > MAX_BLOCK_BYTES or not payload:
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers of more than {MAX_BLOCK_BYTES} octets, or in empty frames",
            )
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._request(self._block_of[1], stream_id, block)

    def _request(self, flags: int, stream_id: int, block: bytes) -> None:
        """Begin a call, or take the trailers with which a client ends its side of one."""
        try:
            fields = self._decoder.decode(block)
        except HeaderListTooLarge as error:
            raise StreamFailed(ErrorCode.ENHANCE_YOUR_CALM, str(error)) from error
        except HeaderError as error:
            raise ConnectionFailed(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        if stream_id in self._streams:
            self._trailers(flags, self._streams[stream_id])
            return
        head = self._heads.get(fields)
        if head is None:
            head = self._resolve(fields)
        if len(self._streams) >= MAX_STREAMS:
            raise StreamFailed(ErrorCode.REFUSED_STREAM, f"{MAX_STREAMS} streams are open")
        stream = Stream(self, stream_id, head, self._outbound.initial_window)
        self._streams[stream_id] = stream
        if head.call is None:
            self._open(stream)
        if flags & frames.END_STREAM:
            stream.remote_ended()

    def _resolve(self, fields: tuple[Field, ...]) -> Head:
        if not self._has_settings:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a request before any SETTINGS")
        head = resolve(fields, self._methods)
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[fields] = head
        return head

    def _trailers(self, flags: int, stream: Stream) -> None:
        if stream.remote_done:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not flags & frames.END_STREAM:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "a second HEADERS frame")
        stream.remote_ended()

    def _open(self, stream: Stream) -> None:
        """Begin a call whose server speaks by itself, or refuse one that there is not."""
        head = stream.head
        if head.http_refusal is not None:
            self._outbound.refuse(stream, http_refusal(*head.http_refusal))
            self._forget(stream)
        elif head.error is not None:
            stream.end(head.error)
        else:
            stream.open()

    # Messages.

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        self._replenish += length
        if self._replenish > CONNECTION_WINDOW >> 1:
            self._outbound.put_frame(frames.window_update(0, self._replenish))
            self._replenish = 0
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, "DATA")
            return
        if stream.remote_done:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")
        if flags & frames.PADDED:
            payload = frames.without_padding(payload, flags)
        if (
            stream.reader is None
            and len(payload) >= PREFIX_BYTES
            and PREFIX.unpack_from(payload) == (0, len(payload) - PREFIX_BYTES)
            and stream.head.call is not None
        ):
            if flags & frames.END_STREAM and stream.exchanges == 0:
                stream.remote_done = True
                self._exchange_once(stream, payload[PREFIX_BYTES:])
                return
            stream.hear(payload[PREFIX_BYTES:])
        else:
            stream.feed(payload)
        self._fed(stream, flags, length)

    def _exchange_once(self, stream: Stream, message: bytes) -> None:
        """The short way: a call that consists of one message and its answer."""
        assert stream.head.call is not None
        try:
            self.check_room()
            result = stream.head.call(message)
            if not isinstance(result, tuple):
                stream.answer_later(result)
                return
            answer, position = result
            if position > self.gate.released:
                self.gate.hold_answer(position, stream.put_answer, answer)
                return
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            stream.fail(error)
            return
        self.answer(stream, answer)

    def _fed(self, stream: Stream, flags: int, length: int) -> None:
        """The end of the long way: the client's side is over, or may go on."""
        if flags & frames.END_STREAM:
            stream.remote_ended()
            return
        stream.replenish += length
        if stream.replenish > STREAM_WINDOW >> 1 and not stream.is_over:
            self._outbound.put_frame(frames.window_update(stream.id, stream.replenish))
            stream.replenish = 0

    # What goes out.

    def check_room(self) -> None:
        """Refuse a call while the peer does not take the answers to those before."""
        if self._outbound.unsent_bytes > MAX_UNSENT_BYTES:
            raise RpcError(Status.RESOURCE_EXHAUSTED, _TOO_SLOW)

    def answer(self, stream: Stream, message: bytes) -> None:
        """Send the one answer of a call, and its end."""
        if self._outbound.answer(stream, message):
            stream.is_over = True
            del self._streams[stream.id]
        else:
            stream.put(message)
            stream.put_end(b"")

    def flush(self) -> None:
        """Hand on what can be sent now."""
        self._outbound.flush()
        if self.has_event_room or self.is_closing:
            return
        event_bytes = self._event_bytes
        if event_bytes < MAX_EVENT_BYTES // 2:
            self._cramped_from = None
            for stream in list(self._streams.values()):
                stream.relieve()
        elif event_bytes > (self._cramped_from or 0) + MAX_UNSENT_BYTES:
            self.close(ErrorCode.ENHANCE_YOUR_CALM, "the peer does not take what it asks for")
            self._outbound.flush()

    @property
    def _event_bytes(self) -> int:
        return self._outbound.unsent_event_bytes + self.held_event_bytes

    @property
    def has_event_room(self) -> bool:
        """Whether the peer takes its events; if not, listeners are told when it does."""
        if self._cramped_from is None and self._event_bytes >= MAX_EVENT_BYTES:
            self._cramped_from = self._event_bytes
        return self._cramped_from is None

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that takes a while."""
        return asyncio.get_running_loop().create_task(coroutine)

    def pause(self) -> None:
        """Send no more messages for now: the transport has enough."""
        self._outbound.is_paused = True

    def resume(self) -> None:
        """Send messages again."""
        self._outbound.is_paused = False
        self.flush()

    def _reset(self, stream_id: int, failed: StreamFailed) -> None:
        logger.info("stream %d is reset: %s (%s)", stream_id, failed.why, failed.code.name)
        self._outbound.put_frame(frames.rst_stream(stream_id, failed.code))
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._outbound.forget(stream)
        stream.over()

    # How it ends.

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Say good-bye; whoever reads is to close the connection once this is written."""
        if self.is_closing:
            return
        if code != ErrorCode.NO_ERROR:
            logger.warning("connection is closed: %s (%s)", why, code.name)
            self._outbound.flush()
            self._forget_all()  # else they could fill the memory until the peer is gone
        self.is_closing = True
        self._outbound.put_frame(frames.goaway(self._last_id, code, why))

    def dismiss(self, error: RpcError) -> None:
        """End every call with this error, and say good-bye: clients will try again elsewhere."""
        for stream in list(self._streams.values()):
            stream.end(error)
        self._outbound.flush()
        self.close()
        self.flush()

    def lost(self) -> None:
        """Learn that the connection is gone, and every call on it."""
        self.is_closing = True
        self._forget_all()

    def _forget_all(self) -> None:
        for stream in list(self._streams.values()):
            self._forget(stream)
