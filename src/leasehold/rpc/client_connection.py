"""The client's side of one HTTP/2 connection, with gRPC calls on it; it does no I/O.

Theory of operation. A call is `begin`-begun at once, or waits here until the server has room for it
(`MAX_CONCURRENT_STREAMS`). The server's GOAWAY ends the calls that it has not begun with, lets the
others come to their end, and makes the connection useless for new ones (`is_draining`).

Every call that was begun is told its end, once: `ended` or `failed`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from leasehold.errors import ConnectionLost, Status
from leasehold.rpc import frames
from leasehold.rpc.answer_block import AnswerBlock
from leasehold.rpc.client_call import ClientCall, Failure, NotProcessed
from leasehold.rpc.closed_streams import MAX_ENDED_HERE
from leasehold.rpc.fields import malformed
from leasehold.rpc.frames import PREFACE, ConnectionFailed, ErrorCode, Setting, StreamFailed
from leasehold.rpc.grpc import PREFIX, PREFIX_BYTES, RpcError
from leasehold.rpc.hpack import Field, HeaderListTooLarge
from leasehold.rpc.http2 import Http2
from leasehold.rpc.inbound import CONNECTION_WINDOW, STREAM_WINDOW
from leasehold.rpc.limits import GIB, MIB, Limits, Rate
from leasehold.rpc.requests import Requests
from leasehold.stored_errors import fresh

logger = logging.getLogger(__name__)

CLIENT_LIMITS: Final = Limits(
    max_message_bytes=256 * MIB,
    max_buffered_bytes=GIB,
    resets=Rate(100_000, 100_000.0),  # each was a call of ours
    idle_frames=Rate(100_000, 100_000.0),  # what comes for calls that we have taken back
)
"""What a client suffers from its server."""

MAX_PENDING: Final = 10_000
"""Calls that wait until the server has room for them; more are refused."""

MAX_BLOCKS: Final = 256
"""Different header blocks of answers remembered for one connection."""

ASSUMED_LIST_BYTES: Final = 64 * 1024
"""The header fields of a call, for a server that has not said how many it takes."""

LAST_STREAM_ID: Final = (1 << 30) - 1
"""Beyond it a connection takes no new calls: there are no numbers left soon."""

Memo = dict[tuple[Field, ...], AnswerBlock]

MAX_SHOWN_BYTES: Final = 200
"""How much of the words of a server is repeated."""

_BY_CODE: Final[dict[int, Status]] = {
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


class ClientConnection(Http2[ClientCall]):
    """Speaks HTTP/2 and gRPC with one server. `on_change` is called when `is_ready` may change."""

    _outbound: Requests

    def __init__(
        self,
        transmit: Callable[[bytes], None],
        now: Callable[[], float],
        *,
        limits: Limits = CLIENT_LIMITS,
        schedule_flush: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(Requests(transmit, schedule_flush), limits, now, _greeting(limits))
        self._outbound.set_max_list(ASSUMED_LIST_BYTES)
        self.is_draining = False
        """Whether the server takes no new calls."""
        self.why = ""
        """Why it takes none, or was closed, if anybody has said so."""
        self.flush_soon = schedule_flush
        self.has_unsent = self._has_unsent
        self._on_change = on_change
        self._next_id = 1
        self._max_streams = frames.MAX_WINDOW  # unless the server sets a limit
        self._pending: OrderedDict[ClientCall, bytes | None] = OrderedDict()
        self._cancelled = 0
        """How many calls were taken back, and the highest number of them."""
        self._last_cancelled = 0
        self._heads: Memo = {}
        self._trailers: Memo = {}

    @property
    def is_ready(self) -> bool:
        """Whether new calls can be made here."""
        return self._has_settings and not (self.is_draining or self.is_closing)

    @property
    def has_streams(self) -> bool:
        """Whether there is any call, also one that waits until the server has room."""
        return bool(self._streams or self._pending)

    # Calls.

    def begin(self, call: ClientCall, message: bytes | None = None) -> None:
        """Make a call, with its only message if it has no more; as soon as there is room."""
        assert self.is_ready, "a call on a connection that takes none"
        call.carrier = self
        if len(self._streams) < self._max_streams and not self._pending:
            self._start(call, message)
        elif len(self._pending) < MAX_PENDING:
            self._pending[call] = message
        else:
            why = f"{MAX_PENDING} calls wait for a server that takes {self._max_streams} at a time"
            call.failed(RpcError(Status.RESOURCE_EXHAUSTED, why))
            return
        self.flush_soon()

    def _start(self, call: ClientCall, message: bytes | None) -> None:
        try:
            block = self._outbound.encode(call)
        except HeaderListTooLarge as error:
            call.is_over = True
            call.failed(RpcError(Status.RESOURCE_EXHAUSTED, f"too much metadata: {error}"))
            return
        call.id = stream_id = self._next_id
        self._next_id += 2
        call.window = self._outbound.initial_window
        self._streams[stream_id] = call
        if message is not None:
            self._outbound.request(call, block, message)
        else:
            self._outbound.put_headers(call, block, 0)
            if call.unsent or call.ending is not None:  # said while it waited
                self._outbound.has_unsent(call, len(call.unsent or b""))
        if stream_id >= LAST_STREAM_ID:
            self._drain()

    def _has_unsent(self, stream: ClientCall, octets: int) -> None:
        if stream.id:  # else it has yet to begin, and `_start` looks at what it has
            self._outbound.has_unsent(stream, octets)

    def cancel(self, call: ClientCall, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Take a call back: nothing of it is left here, and the server is told."""
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
        """Have nothing more to do with a call."""
        super().forget(stream)
        if self._pending:
            self.flush_soon()

    def flush(self) -> None:
        """Hand on what can be sent now, with the calls that there is room for.

        They begin here and not as soon as another has ended: when many are given up at once, those
        that wait are too, and would only be begun to be taken back.
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
            self._block_of_nobody(stream_id)
        elif call.head is None:
            self._head(call, flags, fields)
        elif not flags & frames.END_STREAM:
            raise malformed("a second HEADERS frame")
        else:
            self._ended(call, self._remembered(self._trailers, fields, is_head=False))

    def _block_of_nobody(self, stream_id: int) -> None:
        is_forgotten = self._cancelled > MAX_ENDED_HERE and stream_id <= self._last_cancelled
        if not (is_forgotten or self._closed.ended_here(stream_id)):
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}")
        self._spend_idle()

    def _head(self, call: ClientCall, flags: int, fields: tuple[Field, ...]) -> None:
        head = self._remembered(self._heads, fields, is_head=True)
        if flags & frames.END_STREAM:
            if head.is_informational:
                raise malformed("an answer that ends before it begins")
            self._ended(call, head)
        elif head.status is not None:  # no gRPC, or one that has failed and goes on
            self.cancel(call)
            call.failed(head.error() or RpcError(Status.INTERNAL, "a status before the end"))
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
            raise malformed("DATA before the head of the answer")
        try:
            if (
                stream.reader is None
                and len(payload) >= PREFIX_BYTES
                and PREFIX.unpack_from(payload) == (0, len(payload) - PREFIX_BYTES)
                and len(payload) <= stream.max_message_bytes
            ):
                stream.hear(payload[PREFIX_BYTES:])
            else:
                stream.feed(payload)
        except RpcError as error:
            self.cancel(stream)
            stream.failed(error)
            return
        if flags & frames.END_STREAM:
            stream.remote_done = True
            self._finish(stream)
            why = "the server ended the call without a status"
            stream.failed(RpcError(Status.INTERNAL, why))
        else:
            self._inbound.count(stream, frame_bytes)

    def _ended(self, call: ClientCall, trailers: AnswerBlock) -> None:
        """Take the end of an answer."""
        call.remote_done = True
        if call.reader is not None and not call.reader.is_between_messages:
            self._finish(call)
            call.failed(RpcError(Status.INTERNAL, "the answer ended within a message"))
            return
        self._finish(call)
        call.ended(trailers)

    def _finish(self, call: ClientCall) -> None:
        """Forget a call that the server has ended, and our side too if it was not."""
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
        """Reset a call whose server broke a rule."""
        call = self._streams.get(stream_id)
        try:
            super().reset(stream_id, failed)
        finally:  # too many resets are the end of the connection
            if call is not None:
                call.failed(RpcError(Status.INTERNAL, f"{_BROKEN}: {failed.why}"))

    def _told_settings(self, name: int, value: int) -> None:
        if name == Setting.HEADER_TABLE_SIZE:
            self._outbound.set_table_size(value)
        elif name == Setting.MAX_CONCURRENT_STREAMS:
            self._max_streams = value
        elif name == Setting.MAX_HEADER_LIST_SIZE:
            self._outbound.set_max_list(value)
        elif name == Setting.ENABLE_PUSH and value:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a server cannot allow to push")

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        is_first = not self._has_settings
        super()._settings(flags, stream_id, payload)
        if is_first:
            self._on_change()
        self._start_pending()

    def _told_goaway(self, last_id: int, code: int, why: bytes) -> None:
        text = why[:MAX_SHOWN_BYTES].decode(errors="replace")
        if code != ErrorCode.NO_ERROR and not self.is_draining:
            logger.warning("the server sent GOAWAY: %r (code %d)", text, code)
        said = self.why = f"the server sent GOAWAY{f': {text}' if text else ''}"
        self._drain()
        for call in [call for call in self._streams.values() if call.id > last_id]:
            self.forget(call)
            call.failed(NotProcessed(said) if call.head is None else ConnectionLost(said))

    def _drain(self) -> None:
        """Make no new calls here."""
        if not self.is_draining:
            self.is_draining = True
            pending, self._pending = self._pending, OrderedDict()
            for call in pending:
                call.is_over = True
                call.failed(NotProcessed("the connection accepts no new calls"))
            self._on_change()

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Say good-bye, and fail what is under way."""
        if not self.is_closing:
            calls = list(self._streams.values())
            if code != ErrorCode.NO_ERROR:
                self.why = f"{_BROKEN}: {why}"
            self._drain()
            super().close(code, why)
            self._fail(calls, ConnectionLost(self.why or why or "the connection was closed"))

    def dismiss(self, failure: Failure) -> None:
        """End every call with this failure, and say good-bye."""
        pending, self._pending = self._pending, OrderedDict()
        for call in pending:
            call.is_over = True
        self._fail([*self._streams.values(), *pending], failure)
        self.close()

    def lost(self, why: str = "the connection was lost") -> None:
        """Learn that the connection is gone, and every call on it."""
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


_CODES: Final = frozenset(ErrorCode)
_BROKEN: Final = "the server broke a rule of HTTP/2"


def _greeting(limits: Limits) -> bytes:
    return (
        PREFACE
        + frames.settings(
            {
                Setting.ENABLE_PUSH: 0,
                Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
            }
        )
        + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
    )
