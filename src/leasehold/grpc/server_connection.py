"""The server's side of one HTTP/2 connection, with gRPC calls on it; it does no I/O.

Theory of operation. Handlers are plain functions, called as soon as a message is complete, without
a task for each call. Their answers are sent at the end of `receive`, or when the gate has released
answers that waited for the disk.

The usual call is a HEADERS frame, and a DATA frame that has one whole message and ends the stream.
It takes the fast path: one lookup in the cache of request headers, one call, one answer of known
shape.

A connection is closed gracefully in three steps: `drain` asks the client to make no new calls,
`stop_taking` refuses further calls (the GOAWAY shows the client that they were not executed, and
may be made elsewhere), and `dismiss` ends what is left.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from leasehold.basics.event_loop import EventLoop, RunningLoop
from leasehold.errors import Status
from leasehold.grpc.call_context import Peer, is_timeout
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.error_details import BUSY
from leasehold.grpc.http2_request import WebRequest
from leasehold.grpc.http_handlers import HttpHandler, PagesOnly, Reply, plain
from leasehold.grpc.protocol import GZIPPED, PREFIX, PREFIX_BYTES, RpcError
from leasehold.grpc.read_slots import NOT_TAKEN
from leasehold.grpc.routes import Head, Methods, resolve
from leasehold.grpc.server_call import ServerCall
from leasehold.grpc.server_output import AnsweringStream, Answers
from leasehold.http2 import frames
from leasehold.http2.connection import Http2
from leasehold.http2.frames import ConnectionFailed, ErrorCode, Setting, StreamFailed
from leasehold.http2.header_fields import check_trailers, malformed
from leasehold.http2.hpack import Field, HeaderError, HeaderListTooLarge
from leasehold.http2.hpack_tables import ENTRY_OVERHEAD_BYTES
from leasehold.http2.inbound import CREDIT_BYTES, STREAM_CREDIT_BYTES, ReceiveAccount, greeting
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import HAND_ON_BYTES, DeferredFlush
from leasehold.http2.stream import StreamAllowance

TABLE_BYTES: Final = 0
"""The size of the table that clients may fill: blocks without one repeat, timeouts aside."""
MAX_HEADS: Final = 64
"""Different request headers cached for one connection: one for each method, for example."""

MAX_HEAD_FIELDS: Final = 20
MAX_HEAD_BYTES: Final = 1024
"""The largest request headers that are cached. Larger ones count as received if they are kept."""


class ServerConnection(Http2[AnsweringStream]):
    """One connection of a client. `transmit` is called with the output."""

    _outbound: Answers

    def __init__(
        self,
        methods: Methods,
        gate: DurabilityGate,
        transmit: Callable[[bytes], None],
        *,
        web: HttpHandler | None = None,
        limits: ConnectionLimits | None = None,
        loop: EventLoop | None = None,
        report: Callable[[str], None] | None = None,
        account: ReceiveAccount | None = None,
        peer: Peer | None = None,
    ) -> None:
        limits = limits or ConnectionLimits()
        self.loop = loop or RunningLoop()
        self.flush_soon = DeferredFlush(self.loop.call_soon, self.flush).schedule
        answers = Answers(transmit, self.flush_soon, self._finished)
        settings = {
            Setting.HEADER_TABLE_SIZE: TABLE_BYTES,
            Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
        }
        super().__init__(answers, limits, self.loop.now, greeting(limits, settings))
        self.gate = gate
        self.peer = peer or Peer()
        self.report = report or self.report
        self.account = self._inbound.account = account or self._inbound.account
        self._methods = methods
        self.web = PagesOnly() if web is None else web
        self._heads: dict[tuple[Field, ...], Head] = {}
        self._last_fields: tuple[Field, ...] = ()
        """Of the last call on the fast path; the next one often has the same."""
        self._last_head: Head | None = None
        self._valid_timeout: bytes | None = None  # the same object in blocks that repeat
        self._next_id = 1
        """The lowest stream id that was not used."""
        self._new_id = 0
        """The stream whose first header block was received last; 0 if it was not the first."""
        self._allowance = StreamAllowance(
            limits.max_streams, self.account.pool, answers.put_frame, self.report
        )
        self._max_streams = self._allowance.streams  # 0 once no more are accepted
        self._is_parting = False
        self._stopped_at: int | None = None
        """The last call that was accepted, once no more are."""
        self._max_unsent_bytes = limits.max_unsent_bytes
        self.held_event_bytes = 0
        """The bytes of events that wait for the gate."""
        self._cramped_calls: dict[ServerCall, None] = {}
        """Calls that wait until the peer has read more."""
        self._cramped_from: int | None = None
        """How many bytes of events waited when the room ran out."""

    # Requests.

    def _was_used(self, stream_id: int) -> bool:
        return stream_id <= self._last_id and bool(stream_id & 1)

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take the fast path for the next call, if its headers are cached; else the slow one."""
        if flags != frames.END_HEADERS or stream_id != self._next_id:
            super()._headers(flags, stream_id, payload)
            return
        self._last_id = stream_id
        self._next_id = stream_id + 2
        try:
            fields = self._decoder.decode(payload)
        except (HeaderError, HeaderListTooLarge) as error:
            raise self.undecodable(error) from error
        if fields is self._last_fields:
            head = self._last_head
        else:
            head = self._heads.get(fields)
            if head is not None:
                self._last_fields, self._last_head = fields, head
        if head is None or not head.begins_short or len(self._streams) >= self._max_streams:
            self._request(stream_id, flags, fields)
        else:
            head.counts.begun += 1
            window, timeout = self._outbound.initial_window, self._decoder.timeout
            self._streams[stream_id] = ServerCall(
                self, stream_id, head, window, timeout, self._read_at
            )

    def _begin_block(self, stream_id: int) -> None:
        self._new_id = 0
        if stream_id >= self._next_id and stream_id & 1:
            if stream_id > self._next_id:
                self._closed.skip(range(self._next_id, stream_id, 2))
            self._last_id = self._new_id = stream_id
            self._next_id = stream_id + 2
        elif stream_id not in self._streams and not self._closed.ended_here(stream_id):
            if not stream_id & 1 or self._closed.was_skipped(stream_id):
                why = f"HEADERS on stream {stream_id}, which cannot be opened"
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, why)
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")

    def _block(self, stream_id: int, flags: int, fields: tuple[Field, ...]) -> None:
        if stream_id == self._new_id:
            self._request(stream_id, flags, fields)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._spend_idle()
            if flags & frames.END_STREAM:
                self._closed.end_there(stream_id)
        else:
            self._trailers(stream, flags, fields)

    def _request(self, stream_id: int, flags: int, fields: tuple[Field, ...]) -> None:
        """Begin the request."""
        head = self._heads.get(fields)
        if head is None:
            head = self._resolve(fields)
        if len(self._streams) >= self._max_streams:
            self._max_streams = self._max_streams and self._allowance.grow()
            if (count := len(self._streams)) >= self._max_streams:
                raise StreamFailed(ErrorCode.REFUSED_STREAM, f"{count} streams are open")
        head.counts.begun += 1
        window, began = self._outbound.initial_window, self._read_at
        stream: ServerCall | WebRequest
        if head.web is not None:
            stream = WebRequest(self, stream_id, head.web, window, began)
        else:
            stream = ServerCall(self, stream_id, head, window, self._decoder.timeout, began)
        self._streams[stream_id] = stream
        if not head.begins_short:
            stream.body_left = head.content_length
            if head.takes_gzip:
                stream.head_fields = GZIPPED
            if isinstance(stream, WebRequest):
                stream.open(head.counted_bytes, is_complete=bool(flags & frames.END_STREAM))
            else:
                stream.open()
        if flags & frames.END_STREAM:
            self._remote_ended(stream)

    def _resolve(self, fields: tuple[Field, ...]) -> Head:
        if not self._has_settings:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
        head = resolve(fields, self._methods)
        if self.limits.max_message_bytes < frames.MIN_MAX_FRAME_BYTES:
            head.is_short = head.begins_short = False  # else no message can be too long
        size_bytes = sum(len(f.name) + len(f.value) + ENTRY_OVERHEAD_BYTES for f in fields)
        if len(fields) <= MAX_HEAD_FIELDS and size_bytes <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[fields] = head
        elif head.keeps_fields:
            head.counted_bytes = size_bytes
            head.is_short = False  # the fast path ends a call without releasing them
        return head

    def _trailers(self, stream: AnsweringStream, flags: int, fields: tuple[Field, ...]) -> None:
        if stream.remote_done:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not flags & frames.END_STREAM:
            raise StreamFailed(
                ErrorCode.PROTOCOL_ERROR, "a second HEADERS frame must end the stream"
            )
        check_trailers(fields)
        self._remote_ended(stream)

    def web_refusal(self) -> Reply | None:
        """Refuse a request that is not a gRPC call, while the peer does not read its answers."""
        if self._outbound.unsent_bytes > self._max_unsent_bytes:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, NOT_TAKEN)
        return None

    # Messages.

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take the fast path for a whole message, if it can be handled as it is."""
        stream = self._streams.get(stream_id)
        length = len(payload)
        if (
            type(stream) is not ServerCall
            or not stream.head.is_short
            or stream.reader is not None
            or stream.remote_done
            or flags > frames.END_STREAM
            or length < PREFIX_BYTES
            or PREFIX.unpack_from(payload) != (0, length - PREFIX_BYTES)
        ):
            super()._data(flags, stream_id, payload)
            return
        inbound = self._inbound
        inbound.owed += length
        if inbound.owed > CREDIT_BYTES:
            inbound.check_window()
        if not flags:
            stream.message_received(payload[PREFIX_BYTES:])
            if stream.timeout is not None:
                stream.goes_on()
            stream.replenish += length
            if stream.replenish > STREAM_CREDIT_BYTES:
                inbound.count(stream, 0)
        elif stream.exchanges or stream.is_ending:
            stream.message_received(payload[PREFIX_BYTES:])
            stream.remote_ended()
        else:
            stream.remote_done = True
            self._exchange_once(stream, payload[PREFIX_BYTES:])

    def _body(self, stream: AnsweringStream, flags: int, payload: bytes, frame_bytes: int) -> None:
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0:
                raise malformed("body is longer than its content-length")
        stream.feed(payload)
        if flags & frames.END_STREAM:
            self._remote_ended(stream)
            return
        if isinstance(stream, ServerCall) and stream.timeout is not None:
            stream.goes_on()
        self._inbound.count(stream, frame_bytes)

    def _remote_ended(self, stream: AnsweringStream) -> None:
        if stream.body_left:
            raise malformed("body is shorter than its content-length")
        stream.remote_ended()

    def _exchange_once(self, stream: ServerCall, message: bytes) -> None:
        """The fast path: a call that consists of one message and its answer."""
        call, timeout, outbound = stream.head.call, stream.timeout, self._outbound
        assert call is not None
        try:
            if timeout is not None and timeout is not self._valid_timeout:
                _ = is_timeout(timeout) or stream.timeout_s  # which raises
                self._valid_timeout = timeout
            if outbound.unsent_bytes > self._max_unsent_bytes:
                self.check_room()
            result = call(message)
            if not isinstance(result, tuple):
                stream.answer_at_length(result, len(message))
                return
            answer, position = result
            if position > self.gate.released:
                if not isinstance(answer, bytes):
                    raise TypeError(f"a message must be bytes, not {answer!r}")
                stream.head.hold(self.gate, position, stream.put_answer, answer)
            elif outbound.answer(stream, answer):
                stream.is_over = True
                stream.head.counts.ended += 1
                del self._streams[stream.id]
            else:
                self._answer_long(stream, answer)
        except Exception as error:  # noqa: BLE001  every failure is sent to the client
            stream.fail(error)

    # Settings and GOAWAY of the client.

    def _settings_received(self, name: int, value: int) -> None:
        if name == Setting.HEADER_TABLE_SIZE:
            self._outbound.set_table_size(value)

    def _heard_settings(self) -> None:
        self._decoder.max_table_bytes = TABLE_BYTES

    def _goaway_received(self, last_id: int, code: int, why: bytes) -> None:
        """Do nothing: the client will make no calls, and closes when it has its answers."""

    # Output.

    def check_room(self) -> None:
        """Refuse a call while the peer does not read earlier answers."""
        if self._outbound.unsent_bytes > self._max_unsent_bytes:
            raise RpcError(Status.RESOURCE_EXHAUSTED, NOT_TAKEN, detail=BUSY)

    def has_room_for(self, call: ServerCall) -> bool:
        """Whether the peer has room for output; if not, `relieve` is called when it has."""
        if self._outbound.unsent_bytes < self._max_unsent_bytes:
            return True
        self._cramped_calls[call] = None
        return False

    def drop_stalled(self) -> bool:
        """Reset the streams whose own windows are used up; return False if there are none.

        After INTERNAL_ERROR etcd's Go client resumes a watch; ENHANCE_YOUR_CALM would end it.
        """
        stalled = [each for each in self._streams.values() if each.unsent and not each.is_queued]
        for stream in stalled:
            self.drop(stream, ErrorCode.INTERNAL_ERROR)
        if stalled:
            self.report(f"has {len(stalled)} streams that are reset: the client does not read")
            self.flush()
        return bool(stalled)

    def drop_overdue(self, now: float) -> None:
        """End calls whose request takes too long to arrive completely."""
        super().drop_overdue(now)
        self._max_streams = self._max_streams and self._allowance.shrink(len(self._streams))
        if self._streams:
            for stream in list(self._streams.values()):
                stream.drop_overdue(now)
            self.flush()

    def forget_memos(self) -> None:
        """Clear the cache of request headers: there were no requests for a while."""
        self._heads.clear()
        self._last_fields, self._last_head = (), None
        self._decoder.forget()

    def forget(self, stream: AnsweringStream) -> None:
        """Remove a stream."""
        if self._cramped_calls and isinstance(stream, ServerCall):
            self._cramped_calls.pop(stream, None)
        super().forget(stream)

    def drop(self, stream: AnsweringStream, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Reset a stream: send nothing more of it."""
        self._outbound.put_frame(frames.rst_stream(stream.id, code))
        if not stream.remote_done:
            self._closed.end_here(stream.id)
        self.forget(stream)

    def start(self, stream: AnsweringStream) -> None:
        """Send the headers of an answer immediately."""
        self._outbound.put_start(stream)

    def answer(self, stream: ServerCall, message: bytes) -> None:
        """Send the only answer of a call, and its end."""
        if self._outbound.answer(stream, message):
            stream.is_over = True
            stream.head.counts.ended += 1
            del self._streams[stream.id]
        else:
            self._answer_long(stream, message)

    def _answer_long(self, stream: ServerCall, message: bytes) -> None:
        """Send the only answer of a call, and its end, when the windows allow it."""
        stream.put(message)
        stream.put_end(b"")
        if self._outbound.unsent_bytes >= HAND_ON_BYTES:
            self._outbound.flush()  # else one piece of input could fill the memory

    def _finished(self, stream: AnsweringStream) -> None:
        """Called when a stream has sent its last frame."""
        if not stream.remote_done:
            self._closed.end_here(stream.id)
        self.forget(stream)

    def flush(self) -> None:
        """Hand on the output that can be sent now."""
        self._outbound.flush()
        if self._cramped_calls and self._outbound.unsent_bytes < self._max_unsent_bytes // 2:
            calls, self._cramped_calls = self._cramped_calls, {}
            for call in calls:
                call.relieve()
            self._outbound.flush()
        if self._is_parting and not self._streams and not self.is_closing:
            self.close()
            self._outbound.flush()
        if self.has_event_room or self.is_closing:
            return
        assert self._cramped_from is not None
        event_bytes = self._event_bytes
        if event_bytes < self.limits.max_event_bytes // 2:
            self._cramped_from = None
            for stream in list(self._streams.values()):
                stream.relieve()
            self._outbound.flush()
        elif event_bytes > self._cramped_from + self.limits.max_unsent_bytes:
            self.close(ErrorCode.ENHANCE_YOUR_CALM, "the peer does not read its responses")
            self._outbound.flush()

    @property
    def _event_bytes(self) -> int:
        return self._outbound.unsent_event_bytes + self.held_event_bytes

    @property
    def has_event_room(self) -> bool:
        """Whether the peer has room for its events; if not, handlers are called when it has."""
        if self._cramped_from is None and self._event_bytes >= self.limits.max_event_bytes:
            self._cramped_from = self._event_bytes
        return self._cramped_from is None

    # Closing.

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way, except those without `ends_by_itself`."""
        return not any(map(_has_an_end, self._streams.values()))

    def drain(self) -> None:
        """Ask the client to make no new calls; those that were already sent are accepted."""
        if not self.is_closing:
            self._outbound.put_frame(frames.goaway(frames.MAX_WINDOW, ErrorCode.NO_ERROR))
            self.ping()

    def part(self) -> None:
        """Refuse further calls, and close when the current ones are over."""
        self.stop_taking()
        self._is_parting = True
        self.flush()

    @property
    def is_receiving(self) -> bool:
        """Return False: a request that was received in part is a stream in HTTP/2."""
        return False

    def stop_taking(self) -> None:
        """Refuse further calls, in a way that allows the client to make them elsewhere."""
        self._max_streams = 0
        if not self.is_closing and self._stopped_at is None:
            self._stopped_at = self._last_id
            self._outbound.put_frame(frames.goaway(self._last_id, ErrorCode.NO_ERROR))
            self.flush()

    @property
    def _last_taken(self) -> int:
        return self._last_id if self._stopped_at is None else self._stopped_at

    def lost(self) -> None:
        """End every stream: the connection is gone."""
        super().lost()
        self._allowance.release()

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY; calls received together with its cause are refused."""
        self._max_streams = 0
        super().close(code, why)

    def dismiss(self, error: RpcError) -> None:
        """End every call with this error, and close once the client has read its answers.

        Clients will retry elsewhere.
        """
        self._max_streams = 0
        self._is_parting = True
        for stream in list(self._streams.values()):
            if isinstance(stream, ServerCall):
                stream.end(error)
            elif isinstance(stream, WebRequest):
                stream.dismiss(error)
        self.flush()


def _has_an_end(stream: AnsweringStream) -> bool:
    if isinstance(stream, ServerCall):
        return stream.head.ends_by_itself or stream.is_ending
    return not isinstance(stream, WebRequest) or stream.ends_by_itself
