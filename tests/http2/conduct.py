"""The rules that every frame of a server must keep, whatever a test is about.

`Conduct` is told what the peer sends and given what the server sends. It knows how far the windows
of the peer are open, which of its settings hold, and what has happened on each stream; a frame of
the server that breaks a rule fails the test at once, with the section of RFC 9113 that says so.

A setting of the peer holds from the server's acknowledgement on (6.5.3). A stream's window is the
initial window, and what was granted, less what was received: a new initial window moves all streams
at once (6.9.2), also below zero.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import hpack

from tests.http2 import wire
from tests.http2.blocks import Field, Fields
from tests.http2.wire import Frame, Kind, Setting

CONNECTION_SPECIFIC: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_ALWAYS_ON_A_STREAM: Final = (Kind.DATA, Kind.HEADERS, Kind.PRIORITY, Kind.RST_STREAM)
_NEVER_ON_A_STREAM: Final = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)


@dataclass
class Answer:
    """What came back on one stream."""

    fields: Fields = field(default_factory=list)
    body: bytes = b""
    trailers: Fields = field(default_factory=list)
    is_ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        """The status of HTTP; zero while there is none."""
        return int(dict(self.fields).get(b":status", b"0"))


class Conduct:
    """Holds the frames of one connection's server against the rules, and collects its answers."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.server_settings: dict[int, int] = {}
        self.last_opened = 0
        """The highest stream on which the peer has sent HEADERS."""
        self.send_windows: dict[int, int] = {0: wire.DEFAULT_WINDOW}
        """How much more the server has allowed, beyond its initial window for streams."""
        self._unacknowledged: deque[list[tuple[int, int]]] = deque()
        self._initial_window = wire.DEFAULT_WINDOW
        self._max_frame_bytes = wire.DEFAULT_MAX_FRAME_BYTES
        self._windows: dict[int, int] = {0: wire.DEFAULT_WINDOW}
        self._decoder = hpack.Decoder(max_header_list_size=1 << 20)
        self._has_greeted = False
        self._block: bytes | None = None
        self._block_of: Frame

    def window(self, stream_id: int) -> int:
        """How much DATA the server may still send; zero names the connection."""
        initial = self._initial_window if stream_id else 0
        return initial + self._windows.get(stream_id, 0)

    def send_window(self, stream_id: int) -> int:
        """How much DATA the peer may still send on a stream."""
        named = Setting.INITIAL_WINDOW_SIZE
        initial = self.server_settings.get(named, wire.DEFAULT_WINDOW)
        return min(initial + self.send_windows.get(stream_id, 0), self.send_windows[0])

    # What the peer sends.

    def sent(self, frame: Frame) -> None:
        """Learn what the peer sends; what is wrong with a frame leaves it without effect here."""
        stream_id = frame.stream_id & wire.MAX_WINDOW
        if frame.kind == Kind.HEADERS:
            self.last_opened = max(self.last_opened, stream_id)
        elif frame.kind == Kind.DATA:
            self._count(self.send_windows, stream_id, -len(frame.payload))
        elif frame.kind == Kind.WINDOW_UPDATE and len(frame.payload) == wire.WORD_BYTES:
            increment = frame.word & wire.MAX_WINDOW
            self._windows[stream_id] = self._windows.get(stream_id, 0) + increment
        elif frame.kind == Kind.SETTINGS and not frame.has(wire.ACK) and is_in_sixes(frame):
            self._unacknowledged.append(frame.settings)

    # What the server sends.

    def received(self, frame: Frame) -> None:
        """Hold a frame of the server against the rules, and take it in."""
        self._check_shape(frame)
        self._check_place(frame)
        match frame.kind:
            case Kind.DATA:
                self._data(frame)
            case Kind.HEADERS | Kind.CONTINUATION:
                self._headers(frame)
            case Kind.SETTINGS:
                self._settings(frame)
            case Kind.WINDOW_UPDATE:
                self._window_update(frame)
            case Kind.RST_STREAM:
                assert len(frame.payload) == wire.WORD_BYTES, f"6.4: {frame}"
                self._answer(frame).reset = frame.code
            case Kind.PING:
                assert len(frame.payload) == wire.PING_BYTES, f"6.7: {frame}"
            case Kind.GOAWAY:
                assert len(frame.payload) >= wire.GOAWAY_BYTES, f"6.8: {frame}"
            case Kind.PUSH_PROMISE:
                raise AssertionError(f"nobody asked for a push: {frame}")

    def _check_shape(self, frame: Frame) -> None:
        assert self._has_greeted or (frame.kind == Kind.SETTINGS and not frame.has(wire.ACK)), (
            f"3.4: the server must begin with SETTINGS, not with {frame}"
        )
        self._has_greeted = True
        limit = self._max_frame_bytes
        assert len(frame.payload) <= limit, f"4.2: more than {limit} bytes: {frame}"
        assert not frame.stream_id & wire.RESERVED_BIT, f"4.1: the reserved bit is set: {frame}"
        if frame.kind in wire.FLAGS_OF:
            undefined = frame.flags & ~wire.FLAGS_OF[Kind(frame.kind)]
            assert not undefined, f"4.1: undefined flags are set: {frame}"

    def _check_place(self, frame: Frame) -> None:
        if self._block is not None:
            assert frame.is_a(Kind.CONTINUATION, self._block_of.stream_id), (
                f"6.10: within a header block: {frame}"
            )
        else:
            assert frame.kind != Kind.CONTINUATION, f"6.10: it continues nothing: {frame}"
        if frame.kind in _NEVER_ON_A_STREAM:
            assert frame.stream_id == 0, f"6.5, 6.7, 6.8: on a stream: {frame}"
        if frame.kind in _ALWAYS_ON_A_STREAM:
            assert frame.stream_id, f"6.1 to 6.4: on no stream: {frame}"
        if frame.stream_id and frame.kind != Kind.PRIORITY:
            is_known = frame.stream_id & 1 and frame.stream_id <= self.last_opened
            assert is_known, f"5.1: on an idle stream: {frame}"

    def _answer(self, frame: Frame) -> Answer:
        return self.answers.setdefault(frame.stream_id, Answer())

    def _data(self, frame: Frame) -> None:
        answer = self._answer(frame)
        assert answer.status, f"8.1: DATA before HEADERS: {frame}"
        assert not answer.is_ended, f"5.1: DATA after the end of the stream: {frame}"
        assert answer.reset is None, f"5.1: DATA after RST_STREAM: {frame}"
        length = len(frame.payload)
        for where in (frame.stream_id, 0):
            room = self.window(where)
            # No room is needed for no bytes (6.9.1), even where the window is below zero.
            assert not length or length <= room, f"6.9.1: window {where} has {room} left: {frame}"
        self._count(self._windows, frame.stream_id, -length)
        answer.body += frame.content
        answer.is_ended = frame.has(wire.END_STREAM)

    @staticmethod
    def _count(windows: dict[int, int], stream_id: int, size_bytes: int) -> None:
        for where in {stream_id, 0}:
            windows[where] = windows.get(where, 0) + size_bytes

    def _headers(self, frame: Frame) -> None:
        if frame.kind == Kind.HEADERS:
            self._block_of, self._block = frame, frame.content
        else:
            assert self._block is not None
            self._block += frame.payload
        if not frame.has(wire.END_HEADERS):
            return
        block, self._block = self._block, None
        try:
            decoded = self._decoder.decode(block, raw=True)
        except hpack.HPACKError as error:
            raise AssertionError(f"4.3: {error!r} in {block.hex(' ')} of {frame}") from error
        self._fields(self._block_of, [(bytes(name), bytes(value)) for name, value in decoded])

    def _fields(self, frame: Frame, fields: Fields) -> None:
        answer = self._answer(frame)
        assert not answer.is_ended, f"5.1: HEADERS after the end of the stream: {frame}"
        assert answer.reset is None, f"5.1: HEADERS after RST_STREAM: {frame}"
        for one in fields:
            _check_field(one)
        ends = frame.has(wire.END_STREAM)
        pseudo = [name for name, _ in fields if name.startswith(b":")]
        if answer.status >= 200:
            assert not pseudo, f"8.1: {pseudo} in trailers"
            assert ends, f"8.1: trailers do not end the stream: {frame}"
            answer.trailers = fields
        else:
            assert pseudo == [b":status"], f"8.3.2: {pseudo} in an answer"
            assert fields[0][0] == b":status", f"8.3: a field before :status: {fields}"
            answer.fields = fields
            assert answer.status >= 200 or not ends, f"8.1: it ends with an interim answer: {frame}"
        answer.is_ended = ends

    def _settings(self, frame: Frame) -> None:
        if not frame.has(wire.ACK):
            assert is_in_sixes(frame), f"6.5: {frame}"
            self.server_settings.update(frame.settings)
            assert self.server_settings.get(Setting.ENABLE_PUSH, 0) == 0, "8.4: a server's push"
            return
        assert not frame.payload, f"6.5: an acknowledgement with values: {frame}"
        assert self._unacknowledged, "6.5.3: more SETTINGS are acknowledged than were sent"
        for name, value in self._unacknowledged.popleft():
            if name == Setting.INITIAL_WINDOW_SIZE:
                self._initial_window = value
            elif name == Setting.MAX_FRAME_SIZE:
                self._max_frame_bytes = value
            elif name == Setting.HEADER_TABLE_SIZE:
                self._decoder.max_allowed_table_size = value

    def _window_update(self, frame: Frame) -> None:
        assert len(frame.payload) == wire.WORD_BYTES, f"6.9: {frame}"
        assert 0 < frame.word <= wire.MAX_WINDOW, f"6.9: an increment of {frame.word}: {frame}"
        windows = self.send_windows
        windows[frame.stream_id] = windows.get(frame.stream_id, 0) + frame.word
        assert windows[frame.stream_id] <= wire.MAX_WINDOW, f"6.9.1: a window too large: {frame}"


def is_in_sixes(frame: Frame) -> bool:
    """Whether SETTINGS have the length of whole settings."""
    return len(frame.payload) % wire.SETTING_BYTES == 0


def _check_field(one: Field) -> None:
    name, value = one
    bad_name = any(byte <= 0x20 or byte >= 0x7F for byte in name) or b":" in name[1:]
    assert name, "8.2.1: a field without a name"
    assert not bad_name, f"8.2.1: the name of {one}"
    assert name == name.lower(), f"8.2: an upper case name: {one}"
    assert not set(value) & {0x00, 0x0A, 0x0D}, f"8.2.1: the value of {one}"
    assert value == value.strip(b" \t"), f"8.2.1: space around the value of {one}"
    assert name not in CONNECTION_SPECIFIC, f"8.2.2: {one} is of the connection"
