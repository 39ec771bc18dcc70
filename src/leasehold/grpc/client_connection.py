"""The client's side of one HTTP/2 connection, with gRPC calls on it; it does no I/O.

Theory of operation. `begin` starts a call immediately, or queues it until the server has room for
it (`MAX_CONCURRENT_STREAMS`). The server's GOAWAY ends the calls that it has not begun with, lets
the others finish, and makes the connection unusable for new ones (`is_draining`).

For every call that was begun, `ended` or `failed` is called, once.

The usual call is one short message. If the windows have room for it, it takes the fast path: two
frames in one piece (`ClientOutput.request`), and the stream is never queued.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import Final

from leasehold.errors import ConnectionLost, Status, fresh
from leasehold.grpc.client_call import ClientCall, Failure, NotProcessed
from leasehold.grpc.client_headers import AnswerBlock
from leasehold.grpc.error_details import BUSY
from leasehold.grpc.protocol import (
    COMPRESS_FROM_BYTES,
    PREFIX,
    PREFIX_BYTES,
    RpcError,
    compress,
    framed,
)
from leasehold.http2 import frames
from leasehold.http2.connection import Http2
from leasehold.http2.frames import PREFACE, ConnectionFailed, ErrorCode, Setting, StreamFailed
from leasehold.http2.header_encoder import HeaderEncoder
from leasehold.http2.header_fields import malformed
from leasehold.http2.hpack import Field, HeaderListTooLarge
from leasehold.http2.inbound import BufferFull, greeting
from leasehold.http2.limits import GIB, MIB, ConnectionLimits, Rate
from leasehold.http2.outbound import Outbound
from leasehold.http2.stream import MAX_ENDED_HERE

logger = logging.getLogger(__name__)

CLIENT_LIMITS: Final = ConnectionLimits(
    max_message_bytes=256 * MIB,
    max_buffered_bytes=GIB,
    resets=Rate(100_000, 100_000.0),  # each was a call of ours
    idle_frames=Rate(100_000, 100_000.0),  # frames for calls that we have cancelled
)
"""The limits of a client for frames of its server."""

MAX_PENDING: Final = 10_000
"""Calls that may wait until the server has room for them; more are refused."""

MAX_BLOCKS: Final = 256
"""Different header blocks of answers cached for one connection."""

ASSUMED_LIST_BYTES: Final = 64 * 1024
"""The limit for the header fields of a call, until the server has sent its own."""

LAST_STREAM_ID: Final = (1 << 30) - 1
"""Above it a connection takes no new calls: stream ids run out soon."""

Memo = dict[tuple[Field, ...], AnswerBlock]

MAX_SHOWN_BYTES: Final = 200
"""How much of a server's text is quoted in an error."""

_BY_CODE: Final[dict[int, Status]] = {
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}

_MESSAGE: Final = Struct(">IBIBI")  # the headers of the DATA frame and of the message


class ClientConnection(Http2[ClientCall]):
    """One connection to a server. `on_change` is called when `is_ready` may change."""

    _outbound: "ClientOutput"

    def __init__(
        self,
        transmit: Callable[[bytes], None],
        now: Callable[[], float],
        *,
        limits: ConnectionLimits = CLIENT_LIMITS,
        schedule_flush: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        first = PREFACE + greeting(limits, {Setting.ENABLE_PUSH: 0})
        super().__init__(ClientOutput(transmit, schedule_flush), limits, now, first)
        self._outbound.set_max_list(ASSUMED_LIST_BYTES)
        self.is_draining = False
        """Whether the server accepts no new calls."""
        self.why = ""
        """Why it accepts none, or was closed, if the reason is known."""
        self.flush_soon = schedule_flush
        self.has_unsent = self._has_unsent
        self._on_change = on_change
        self._next_id = 1
        self._max_streams = frames.MAX_WINDOW  # unless the server sets a limit
        self._pending: OrderedDict[ClientCall, bytes | None] = OrderedDict()
        self._cancelled = 0
        """How many calls were cancelled, and their highest stream id."""
        self._last_cancelled = 0
        self._heads: Memo = {}
        self._trailers: Memo = {}

    @property
    def is_ready(self) -> bool:
        """Whether new calls can be made here."""
        return self._has_settings and not (self.is_draining or self.is_closing)

    @property
    def has_streams(self) -> bool:
        """Whether there is any call, including calls that wait until the server has room."""
        return bool(self._streams or self._pending)

    # Calls.

    def begin(self, call: ClientCall, message: bytes | None = None) -> None:
        """Start a call when there is room, with its only message if it is unary."""
        assert self.is_ready, "a call on a connection that takes none"
        call.carrier = self
        if len(self._streams) < self._max_streams and not self._pending:
            self._start(call, message)
        elif len(self._pending) < MAX_PENDING:
            self._pending[call] = message
        else:
            why = f"{MAX_PENDING} calls wait already; the server allows {self._max_streams} streams"
            call.failed(RpcError(Status.RESOURCE_EXHAUSTED, why, detail=BUSY))
            return
        self.flush_soon()

    def _start(self, call: ClientCall, message: bytes | None) -> None:
        try:
            block = self._outbound.encode(call)
        except HeaderListTooLarge as error:
            call.is_over = True
            why = f"too much metadata: {error}"
            call.failed(RpcError(Status.RESOURCE_EXHAUSTED, why, detail=BUSY))
            return
        call.id = stream_id = self._next_id
        self._next_id += 2
        call.window = self._outbound.initial_window
        self._streams[stream_id] = call
        if message is not None:
            self._outbound.request(call, block, message)
        else:
            self._outbound.put_headers(call, block, 0)
            if call.unsent or call.ending is not None:  # sent while it waited
                self._outbound.has_unsent(call, len(call.unsent or b""))
        if stream_id >= LAST_STREAM_ID:
            self._drain()

    def _has_unsent(self, stream: ClientCall, size_bytes: int) -> None:
        if stream.id:  # else it has not begun, and `_start` looks at its output
            self._outbound.has_unsent(stream, size_bytes)

    def cancel(self, call: ClientCall, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Cancel a call: remove it here, and reset its stream."""
        if not call.id:
            self._pending.pop(call, None)
            call.is_over = True
        elif not call.is_over:
            self._outbound.put_frame(frames.rst_stream(call.id, code))
            self._closed.end_here(call.id)
            self._cancelled += 1
            self._last_cancelled = max(self._last_cancelled, call.id)
            self.forget(call)
            self.flush_soon()

    def _start_pending(self) -> None:
        while self._pending and len(self._streams) < self._max_streams and self.is_ready:
            self._start(*self._pending.popitem(last=False))

    def forget(self, stream: ClientCall) -> None:
        """Remove a call."""
        super().forget(stream)
        if self._pending:
            self.flush_soon()

    def flush(self) -> None:
        """Hand on output that can be sent now, and start queued calls for which there is room.

        Queued calls start here and not when another call ends: when many calls are cancelled
        together, the queued ones are too, and would only be started to be cancelled.
        """
        if self._pending:
            self._start_pending()
        super().flush()

    # Answers.

    def _was_used(self, stream_id: int) -> bool:
        return 0 < stream_id < self._next_id and bool(stream_id & 1)

    def _begin_block(self, stream_id: int) -> None:
        if stream_id not in self._streams:
            self._check_used(stream_id, "HEADERS")

    def _block(self, stream_id: int, flags: int, fields: tuple[Field, ...]) -> None:
        call = self._streams.get(stream_id)
        if call is None:
            self._block_of_closed(stream_id)
        elif call.head is None:
            self._head(call, flags, fields)
        elif not flags & frames.END_STREAM:
            raise malformed("a second HEADERS frame must end the stream")
        else:
            self._ended(call, self._remembered(self._trailers, fields, is_head=False))

    def _block_of_closed(self, stream_id: int) -> None:
        is_forgotten = self._cancelled > MAX_ENDED_HERE and stream_id <= self._last_cancelled
        if not (is_forgotten or self._closed.ended_here(stream_id)):
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")
        self._spend_idle()

    def _head(self, call: ClientCall, flags: int, fields: tuple[Field, ...]) -> None:
        head = self._remembered(self._heads, fields, is_head=True)
        if flags & frames.END_STREAM:
            if head.is_informational:
                raise malformed("an informational response must not end the stream")
            self._ended(call, head)
        elif head.status is not None:  # not gRPC, or a failed call that continues
            self.cancel(call)
            call.failed(
                head.error()
                or RpcError(Status.INTERNAL, "grpc-status must come at the end of the call")
            )
        elif not head.is_informational:
            call.answered(head)

    def _remembered(self, memo: Memo, fields: tuple[Field, ...], *, is_head: bool) -> AnswerBlock:
        block = memo.get(fields)
        if block is None:
            block = AnswerBlock(fields, is_head=is_head)
            if len(memo) >= MAX_BLOCKS:
                memo.clear()
            memo[fields] = block
        return block

    def _body(self, stream: ClientCall, flags: int, payload: bytes, frame_bytes: int) -> None:
        if stream.head is None:
            raise malformed("DATA before the response headers")
        try:
            if (
                stream.reader is None
                and len(payload) >= PREFIX_BYTES
                and PREFIX.unpack_from(payload) == (0, len(payload) - PREFIX_BYTES)
                and len(payload) <= stream.max_message_bytes
            ):
                stream.message_received(payload[PREFIX_BYTES:])
            else:
                stream.feed(payload)
        except RpcError as error:
            self.cancel(stream)
            stream.failed(error)
            return
        except BufferFull as full:
            self.cancel(stream)
            stream.failed(RpcError(Status.RESOURCE_EXHAUSTED, str(full)))
            return
        if flags & frames.END_STREAM:
            stream.remote_done = True
            self._finish(stream)
            why = "the server ended the call without a status"
            stream.failed(RpcError(Status.INTERNAL, why))
        else:
            self._inbound.count(stream, frame_bytes)

    def _ended(self, call: ClientCall, trailers: AnswerBlock) -> None:
        """Handle the trailers of an answer."""
        call.remote_done = True
        if call.reader is not None and not call.reader.is_between_messages:
            self._finish(call)
            call.failed(RpcError(Status.INTERNAL, "the answer ended within a message"))
            return
        self._finish(call)
        call.ended(trailers)

    def _finish(self, call: ClientCall) -> None:
        """Remove a call that the server has ended, and end our side if it is open."""
        if not call.local_done:
            self._outbound.put_frame(frames.rst_stream(call.id, ErrorCode.NO_ERROR))
        self.forget(call)

    # How calls and connections fail.

    def _was_reset(self, stream: ClientCall, code: int) -> None:
        self.forget(stream)
        if code == ErrorCode.REFUSED_STREAM and stream.head is None:
            stream.failed(NotProcessed("the server refused the call (REFUSED_STREAM)"))
        else:
            name = ErrorCode(code).name if code in _CODES else f"code {code}"
            status = _BY_CODE.get(code, Status.INTERNAL)
            stream.failed(RpcError(status, f"the server reset the call ({name})"))

    def reset(self, stream_id: int, failed: StreamFailed) -> None:
        """Reset a call on which the server broke a rule."""
        call = self._streams.get(stream_id)
        try:
            super().reset(stream_id, failed)
        finally:  # too many resets end the connection
            if call is not None:
                call.failed(RpcError(Status.INTERNAL, f"{_BROKEN}: {failed.why}"))

    def _settings_received(self, name: int, value: int) -> None:
        if name == Setting.HEADER_TABLE_SIZE:
            self._outbound.set_table_size(value)
        elif name == Setting.MAX_CONCURRENT_STREAMS:
            self._max_streams = value
        elif name == Setting.MAX_HEADER_LIST_SIZE:
            self._outbound.set_max_list(value)
        elif name == Setting.ENABLE_PUSH and value:
            raise ConnectionFailed(
                ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH of a server must be 0, got {value}"
            )

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        is_first = not self._has_settings
        super()._settings(flags, stream_id, payload)
        if is_first:
            self._on_change()
        self._start_pending()

    def _goaway_received(self, last_id: int, code: int, why: bytes) -> None:
        text = why[:MAX_SHOWN_BYTES].decode(errors="replace")
        if code != ErrorCode.NO_ERROR and not self.is_draining:
            logger.warning("the server sent GOAWAY: %r (code %d)", text, code)
        reason = self.why = f"the server sent GOAWAY{f': {text}' if text else ''}"
        self._drain()
        for call in [call for call in self._streams.values() if call.id > last_id]:
            self.forget(call)
            call.failed(NotProcessed(reason) if call.head is None else ConnectionLost(reason))

    def _drain(self) -> None:
        """Accept no new calls here."""
        if not self.is_draining:
            self.is_draining = True
            pending, self._pending = self._pending, OrderedDict()
            for call in pending:
                call.is_over = True
                call.failed(NotProcessed("the connection accepts no new calls"))
            self._on_change()

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY, and fail the calls under way."""
        if not self.is_closing:
            calls = list(self._streams.values())
            if code != ErrorCode.NO_ERROR:
                self.why = f"{_BROKEN}: {why}"
            self._drain()
            super().close(code, why)
            self._fail(calls, ConnectionLost(self.why or why or "the connection was closed"))

    def dismiss(self, failure: Failure) -> None:
        """End every call with this failure, and send GOAWAY."""
        pending, self._pending = self._pending, OrderedDict()
        for call in pending:
            call.is_over = True
        self._fail([*self._streams.values(), *pending], failure)
        self.close()

    def lost(self, why: str = "the connection was lost") -> None:
        """Fail every call: the connection is gone."""
        calls = list(self._streams.values())
        self.why = self.why or why
        self._drain()
        super().lost()
        self._fail(calls, ConnectionLost(why))

    def _fail(self, calls: list[ClientCall], failure: Failure) -> None:
        for call in calls:
            if not call.is_over:
                self.forget(call)
            call.failed(fresh(failure))


class ClientOutput(Outbound[ClientCall]):
    """The output of a client."""

    __slots__ = ("_encoder",)

    def __init__(self, transmit: Callable[[bytes], None], flush_soon: Callable[[], None]) -> None:
        super().__init__(transmit, flush_soon)
        self._encoder = HeaderEncoder()

    def set_table_size(self, table_bytes: int) -> None:
        """Set the size of the table that header blocks may fill."""
        self._encoder.set_table_size(table_bytes)

    def set_max_list(self, list_bytes: int) -> None:
        """Set the size of the largest header list."""
        self._encoder.max_list_bytes = list_bytes
        self._encoder.forget()

    def encode(self, call: ClientCall) -> bytes:
        """Encode the headers of a call, which must then be sent; may raise `HeaderListTooLarge`."""
        return self._encoder.encode(call.fields)

    def request(self, call: ClientCall, block: bytes, message: bytes) -> None:
        """Send a call that has one message."""
        length = len(message) + PREFIX_BYTES
        limit = frames.MIN_MAX_FRAME_BYTES
        stream_id = call.id
        if call.packs and len(message) >= COMPRESS_FROM_BYTES:
            self._request_long(call, block, compress(message))
            return
        if length > self._window or length > call.window or length > limit or len(block) > limit:
            self._request_long(call, block, framed(message))
            return
        self._window -= length
        call.has_head = call.local_done = True
        self._out.append(
            frames.HEAD.pack(len(block) << 8 | frames.HEADERS, frames.END_HEADERS, stream_id)
            + block
            + _MESSAGE.pack(length << 8, frames.END_STREAM, stream_id, 0, len(message))
            + message
        )

    def _request_long(self, call: ClientCall, block: bytes, data: bytes) -> None:
        """Send a call that has one message, as far as the windows allow."""
        self.put_headers(call, block, 0)
        call.unsent = bytearray(data)
        call.ending = b""
        self.has_unsent(call, len(data))

    def put_start(self, stream: ClientCall) -> None:
        """Do nothing: a call begins with its headers."""

    def put_end(self, stream: ClientCall, ending: bytes) -> None:
        """End our side of a call."""
        if not stream.local_done:
            stream.local_done = True
            self._out.append(frames.frame(frames.DATA, frames.END_STREAM, stream.id))


_CODES: Final = frozenset(ErrorCode)
_BROKEN: Final = "the server broke a rule of HTTP/2"
