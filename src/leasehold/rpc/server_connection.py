"""The server's side of one HTTP/2 connection, with gRPC calls on it; it does no I/O.

Theory of operation. Handlers are plain functions, called as soon as a message is complete: no task
is made for a call. What they answer leaves at the end of `receive`, or when the gate has released
what waited for the disk.

The usual call is a HEADERS frame, and a DATA frame that has one whole message and ends the stream.
It takes the short way: one look into the memo of request heads, one call, one answer of known
shape.

A connection is closed in good order in three steps: `drain` asks the client to make no new calls,
`stop_taking` refuses those that come nevertheless (the client knows that nothing was done, and may
make them elsewhere), and `dismiss` ends what is left.
"""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from leasehold.errors import Status
from leasehold.rpc import frames
from leasehold.rpc.answers import AnsweringStream, Answers
from leasehold.rpc.fields import check_trailers, malformed
from leasehold.rpc.frames import ConnectionFailed, ErrorCode, Setting, StreamFailed
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import GZIP, PREFIX, PREFIX_BYTES, RpcError
from leasehold.rpc.host import Host, LoopHost
from leasehold.rpc.hpack import Field, HeaderError, HeaderListTooLarge
from leasehold.rpc.http2 import Http2
from leasehold.rpc.inbound import (
    CONNECTION_WINDOW,
    CREDIT_BYTES,
    STREAM_CREDIT_BYTES,
    STREAM_WINDOW,
)
from leasehold.rpc.late_flush import LateFlush
from leasehold.rpc.limits import Limits
from leasehold.rpc.outbound import HAND_ON_BYTES
from leasehold.rpc.pages import Reply, plain
from leasehold.rpc.read_slots import NOT_TAKEN
from leasehold.rpc.receive_account import ReceiveAccount
from leasehold.rpc.routes import Head, Methods, resolve
from leasehold.rpc.server_call import ServerCall
from leasehold.rpc.static_table import ENTRY_OVERHEAD_BYTES
from leasehold.rpc.timeouts import is_timeout
from leasehold.rpc.web import PagesOnly, Web
from leasehold.rpc.web_request import WebRequest

logger = logging.getLogger(__name__)

TABLE_BYTES: Final = 0
"""Of the table that clients may fill with fields: blocks without one repeat, timeouts aside."""

MAX_HEADS: Final = 64
"""Different request heads remembered for one connection: one for each method, say."""

MAX_HEAD_FIELDS: Final = 20
MAX_HEAD_BYTES: Final = 1024
"""The fields of a request whose head is cached. Larger ones count as received if they are kept."""

_GZIPPED: Final = ((b"grpc-encoding", GZIP),)


class ServerConnection(LateFlush, Http2[AnsweringStream]):
    """Speaks HTTP/2 and gRPC with one client. `transmit` is given what is to be sent."""

    _outbound: Answers

    def __init__(
        self,
        methods: Methods,
        gate: Gate,
        transmit: Callable[[bytes], None],
        *,
        web: Web | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        report: Callable[[str], None] | None = None,
        account: ReceiveAccount | None = None,
    ) -> None:
        limits = limits or Limits()
        self.host = host or LoopHost()
        answers = Answers(transmit, self.flush_soon, self._finished)
        super().__init__(answers, limits, self.host.now, _greeting(limits))
        self.gate = gate
        self.report = report or self.report
        self.account = self._inbound.account = account or self._inbound.account
        self._methods = methods
        self.web = PagesOnly() if web is None else web
        self._heads: dict[tuple[Field, ...], Head] = {}
        self._last_fields: tuple[Field, ...] = ()
        """Of the last call that took the short way; often it is the next one's as well."""
        self._last_head: Head | None = None
        self._valid_timeout: bytes | None = None  # the same object in blocks that repeat
        self._next_id = 1
        """The number that comes after the highest one."""
        self._new_id = 0
        """The stream whose first header block came in last; 0 if it was not the first."""
        self._max_streams = limits.max_streams
        self._is_parting = False
        self._stopped_at: int | None = None
        """The last call that was taken, once no more are."""
        self._max_unsent_bytes = limits.max_unsent_bytes
        self.held_event_bytes = 0
        """Events that wait for the gate."""
        self._cramped_calls: dict[ServerCall, None] = {}
        """Those who wait until the peer has taken more."""
        self._cramped_from: int | None = None
        """How many events waited when there was no room for more any longer."""

    # Requests.

    def _was_used(self, stream_id: int) -> bool:
        return stream_id <= self._last_id and bool(stream_id & 1)

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take the short way for the next call, if its head is known; else the long one."""
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
        if head is None or not head.is_short or len(self._streams) >= self._max_streams:
            self._request(stream_id, flags, fields)
        else:
            head.tally.begun += 1
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
                why = f"HEADERS on stream {stream_id}, which cannot begin any more"
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, why)
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}")

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
        """Begin whatever is asked for."""
        head = self._heads.get(fields)
        if head is None:
            head = self._resolve(fields)
        if len(self._streams) >= self._max_streams:
            raise StreamFailed(ErrorCode.REFUSED_STREAM, f"{self._max_streams} streams are open")
        head.tally.begun += 1
        window, began = self._outbound.initial_window, self._read_at
        stream: ServerCall | WebRequest
        if head.web is not None:
            stream = WebRequest(self, stream_id, head.web, window, began)
        else:
            stream = ServerCall(self, stream_id, head, window, self._decoder.timeout, began)
        self._streams[stream_id] = stream
        if not head.is_short:
            stream.body_left = head.content_length
            if head.takes_gzip:
                stream.head_fields = _GZIPPED
            if isinstance(stream, WebRequest):
                stream.open(head.counted_bytes, is_complete=bool(flags & frames.END_STREAM))
            elif head.call is None:
                stream.open()
        if flags & frames.END_STREAM:
            self._remote_ended(stream)

    def _resolve(self, fields: tuple[Field, ...]) -> Head:
        if not self._has_settings:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
        head = resolve(fields, self._methods)
        if self.limits.max_message_bytes < frames.MIN_MAX_FRAME_BYTES:
            head.is_short = False  # else no message in one frame can be too long
        size_bytes = sum(len(f.name) + len(f.value) + ENTRY_OVERHEAD_BYTES for f in fields)
        if len(fields) <= MAX_HEAD_FIELDS and size_bytes <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[fields] = head
        elif head.keeps_fields:
            head.counted_bytes = size_bytes
        return head

    def _trailers(self, stream: AnsweringStream, flags: int, fields: tuple[Field, ...]) -> None:
        if stream.remote_done:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
        if not flags & frames.END_STREAM:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "a second HEADERS frame")
        check_trailers(fields)
        self._remote_ended(stream)

    def web_refusal(self) -> Reply | None:
        """Refuse a request that is no gRPC call, while the peer does not take its answers."""
        if self._outbound.unsent_bytes > self._max_unsent_bytes:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, NOT_TAKEN)
        return None

    # Messages.

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take the short way for a whole message, if it can be handled as it is."""
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
            stream.hear(payload[PREFIX_BYTES:])
            if stream.timeout is not None:
                stream.goes_on()
            stream.replenish += length
            if stream.replenish > STREAM_CREDIT_BYTES:
                inbound.count(stream, 0)
        elif stream.exchanges or stream.is_ending:
            stream.hear(payload[PREFIX_BYTES:])
            stream.remote_ended()
        else:
            stream.remote_done = True
            self._exchange_once(stream, payload[PREFIX_BYTES:])

    def _body(self, stream: AnsweringStream, flags: int, payload: bytes, frame_bytes: int) -> None:
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0:
                raise malformed("a body longer than its content-length")
        stream.feed(payload)
        if flags & frames.END_STREAM:
            self._remote_ended(stream)
            return
        if isinstance(stream, ServerCall) and stream.timeout is not None:
            stream.goes_on()
        self._inbound.count(stream, frame_bytes)

    def _remote_ended(self, stream: AnsweringStream) -> None:
        if stream.body_left:
            raise malformed("a body shorter than its content-length")
        stream.remote_ended()

    def _exchange_once(self, stream: ServerCall, message: bytes) -> None:
        """The short way: a call that consists of one message and its answer."""
        call, timeout, outbound = stream.head.call, stream.timeout, self._outbound
        assert call is not None
        try:
            if timeout is not None and timeout is not self._valid_timeout:
                _ = is_timeout(timeout) or stream.timeout_s  # which refuses it
                self._valid_timeout = timeout
            if outbound.unsent_bytes > self._max_unsent_bytes:
                self.check_room()
            result = call(message)
            if not isinstance(result, tuple):
                stream.answer_at_length(result)
                return
            answer, position = result
            if position > self.gate.released:
                if not isinstance(answer, bytes):
                    raise TypeError(f"a message is bytes, not {answer!r}")
                stream.head.hold(self.gate, position, stream.put_answer, answer)
            elif outbound.answer(stream, answer):
                stream.is_over = True
                stream.head.tally.ended += 1
                del self._streams[stream.id]
            else:
                self._answer_long(stream, answer)
        except Exception as error:  # noqa: BLE001  every failure is somebody's answer
            stream.fail(error)

    # What a client says of itself.

    def _told_settings(self, name: int, value: int) -> None:
        if name == Setting.HEADER_TABLE_SIZE:
            self._outbound.set_table_size(value)

    def _heard_settings(self) -> None:
        self._decoder.max_table_bytes = TABLE_BYTES

    def _told_goaway(self, last_id: int, code: int, why: bytes) -> None:
        """Nothing to do: the client will make no calls, and closes when it has its answers."""

    # What goes out.

    def check_room(self) -> None:
        """Refuse a call while the peer does not take the answers to those before."""
        if self._outbound.unsent_bytes > self._max_unsent_bytes:
            raise RpcError(Status.RESOURCE_EXHAUSTED, NOT_TAKEN)

    def has_room_for(self, call: ServerCall) -> bool:
        """Whether the peer takes what is sent; if not, the call is relieved when it does."""
        if self._outbound.unsent_bytes < self._max_unsent_bytes:
            return True
        self._cramped_calls[call] = None
        return False

    def drop_stalled(self) -> bool:
        """Reset the streams whose own windows are used up; False if there are none.

        After INTERNAL_ERROR etcd's Go client resumes a watch; ENHANCE_YOUR_CALM would end it.
        """
        stalled = [each for each in self._streams.values() if each.unsent and not each.is_queued]
        for stream in stalled:
            self.drop(stream, ErrorCode.INTERNAL_ERROR)
        if stalled:
            self.report(f"has {len(stalled)} streams that are reset: the client takes nothing")
            self.flush()
        return bool(stalled)

    def drop_overdue(self, now: float) -> None:
        """End calls whose request takes too long to arrive completely."""
        if self._streams:
            for stream in list(self._streams.values()):
                stream.drop_overdue(now)
            self.flush()

    def forget_memos(self) -> None:
        """Forget what was remembered of request heads: nothing was asked for a while."""
        self._heads.clear()
        self._last_fields, self._last_head = (), None
        self._decoder.forget()

    def forget(self, stream: AnsweringStream) -> None:
        """Have nothing more to do with a stream."""
        if self._cramped_calls and isinstance(stream, ServerCall):
            self._cramped_calls.pop(stream, None)
        super().forget(stream)

    def drop(self, stream: AnsweringStream, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Send nothing more of a stream, and tell the client so."""
        self._outbound.put_frame(frames.rst_stream(stream.id, code))
        if not stream.remote_done:
            self._closed.end_here(stream.id)
        self.forget(stream)

    def start(self, stream: AnsweringStream) -> None:
        """Send the head of an answer at once."""
        self._outbound.put_start(stream)

    def answer(self, stream: ServerCall, message: bytes) -> None:
        """Send the one answer of a call, and its end."""
        if self._outbound.answer(stream, message):
            stream.is_over = True
            stream.head.tally.ended += 1
            del self._streams[stream.id]
        else:
            self._answer_long(stream, message)

    def _answer_long(self, stream: ServerCall, message: bytes) -> None:
        """Send the one answer of a call, and its end, when the windows allow it."""
        stream.put(message)
        stream.put_end(b"")
        if self._outbound.unsent_bytes >= HAND_ON_BYTES:
            self._outbound.flush()  # else one piece that comes in could fill the memory

    def _finished(self, stream: AnsweringStream) -> None:
        """Learn that a stream has sent its last frame."""
        if not stream.remote_done:
            self._closed.end_here(stream.id)
        self.forget(stream)

    def flush(self) -> None:
        """Hand on what can be sent now."""
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
            self.close(ErrorCode.ENHANCE_YOUR_CALM, "the peer does not take what it asks for")
            self._outbound.flush()

    @property
    def _event_bytes(self) -> int:
        return self._outbound.unsent_event_bytes + self.held_event_bytes

    @property
    def has_event_room(self) -> bool:
        """Whether the peer takes its events; if not, listeners are told when it does."""
        if self._cramped_from is None and self._event_bytes >= self.limits.max_event_bytes:
            self._cramped_from = self._event_bytes
        return self._cramped_from is None

    # How it ends.

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way but those that go on until somebody ends them."""
        return not any(map(_has_an_end, self._streams.values()))

    def drain(self) -> None:
        """Ask the client to make no new calls; those that are on their way are taken."""
        if not self.is_closing:
            self._outbound.put_frame(frames.goaway(frames.MAX_WINDOW, ErrorCode.NO_ERROR))
            self.ping()

    def part(self) -> None:
        """Refuse further calls, and close when those are over that there are."""
        self.stop_taking()
        self._is_parting = True
        self.flush()

    @property
    def is_receiving(self) -> bool:
        """Whether a request has come in in part: of HTTP/2 that is a stream."""
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

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Say good-bye; what came in with the reason for it is refused."""
        self._max_streams = 0
        super().close(code, why)

    def dismiss(self, error: RpcError) -> None:
        """End every call with this error, and close once the client has taken what was said.

        Clients will try again elsewhere.
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


def _greeting(limits: Limits) -> bytes:
    return frames.settings(
        {
            Setting.HEADER_TABLE_SIZE: TABLE_BYTES,
            Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
    ) + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
