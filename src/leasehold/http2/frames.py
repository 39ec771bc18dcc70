"""HTTP/2 frames (RFC 9113): names for the numbers, and encoding of frames.

A frame is a header of nine bytes and then its payload: 24 bits of length, 8 of type, 8 of flags,
and 31 bits of stream id. Length and type are read as one word, because one number is cheaper than
two: `HEAD.unpack_from(data, at)` returns `(length << 8 | type, flags, stream_id)`.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client with prior knowledge."""
PREFACE_LINE: Final = b"PRI * HTTP/2"
"""A client that begins like this means HTTP/2."""

HEAD: Final = Struct(">IBI")
HEAD_BYTES: Final = HEAD.size

# Types. Plain ints: they are compared for each frame, and access to an enum member is slower.
DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

# Flags.
ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITISED: Final = 0x20

MIN_MAX_FRAME_BYTES: Final = 1 << 14
"""The largest payload that every peer must accept, and the largest that we accept."""
MAX_MAX_FRAME_BYTES: Final = (1 << 24) - 1
DEFAULT_WINDOW: Final = (1 << 16) - 1
MAX_WINDOW: Final = (1 << 31) - 1
STREAM_ID_MASK: Final = (1 << 31) - 1


class Setting(IntEnum):
    """The settings of a connection."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class ErrorCode(IntEnum):
    """Why a stream or a connection was ended."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFailed(Exception):
    """The peer broke a rule that concerns the whole connection: it ends with a GOAWAY."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why

    def __str__(self) -> str:
        return f"{self.code.name}: {self.why}"


class StreamFailed(Exception):
    """The peer broke a rule that concerns one stream: it ends with an RST_STREAM."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Encode a SETTINGS frame."""
    payload = b"".join(_SETTING.pack(name, value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


def parse_settings(payload: bytes) -> dict[int, int]:
    """Parse the payload of a SETTINGS frame.

    Of several values for a setting the last one counts; but for the size of the table the smallest,
    because that has emptied it.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFailed(
            ErrorCode.FRAME_SIZE_ERROR,
            f"SETTINGS payload must be a multiple of {_SETTING.size} bytes, got {len(payload)}",
        )
    values: dict[int, int] = {}
    for name, value in _SETTING.iter_unpack(payload):
        _check_setting(name, value)
        if name == Setting.HEADER_TABLE_SIZE:
            values[name] = min(value, values.get(name, value))
        else:
            values[name] = value
    return values


def _check_setting(name: int, value: int) -> None:
    if name == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
        raise ConnectionFailed(
            ErrorCode.FLOW_CONTROL_ERROR,
            f"INITIAL_WINDOW_SIZE must be at most {MAX_WINDOW}, got {value}",
        )
    if (name == Setting.ENABLE_PUSH and value > 1) or (
        name == Setting.MAX_FRAME_SIZE and not MIN_MAX_FRAME_BYTES <= value <= MAX_MAX_FRAME_BYTES
    ):
        raise ConnectionFailed(
            ErrorCode.PROTOCOL_ERROR, f"invalid value of {Setting(name).name}: {value}"
        )


def window_update(stream_id: int, increment: int) -> bytes:
    """Encode a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """Encode an RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, why: str = "") -> bytes:
    """Encode a GOAWAY frame; `why` is for the log of the peer."""
    return frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream_id, code) + why.encode())


def parse_goaway(payload: bytes) -> tuple[int, int, bytes]:
    """Return the last stream that was begun with, the error code, and the debug data."""
    if len(payload) < _TWO_WORDS.size:
        raise ConnectionFailed(
            ErrorCode.FRAME_SIZE_ERROR,
            f"GOAWAY payload must have at least {_TWO_WORDS.size} bytes, got {len(payload)}",
        )
    last_stream_id, code = _TWO_WORDS.unpack_from(payload)
    return last_stream_id & STREAM_ID_MASK, code, payload[_TWO_WORDS.size :]


def word_of(payload: bytes, what: str) -> int:
    """Parse the 32 bits that are the whole payload of WINDOW_UPDATE and RST_STREAM."""
    if len(payload) != _WORD.size:
        raise ConnectionFailed(
            ErrorCode.FRAME_SIZE_ERROR,
            f"{what} payload must have {_WORD.size} bytes, got {len(payload)}",
        )
    word: int = _WORD.unpack(payload)[0]
    return word


def without_padding(payload: bytes, flags: int, *, prioritised: bool = False) -> bytes:
    """Remove padding, and the deprecated priority, from the payload of DATA and HEADERS."""
    start = 1 if flags & PADDED else 0
    if prioritised and flags & PRIORITISED:
        start += _PRIORITY_BYTES
    if start > len(payload):
        raise ConnectionFailed(
            ErrorCode.FRAME_SIZE_ERROR,
            f"frame must have at least {start} bytes with these flags, got {len(payload)}",
        )
    padding = payload[0] if flags & PADDED else 0
    if start + padding > len(payload):
        raise ConnectionFailed(
            ErrorCode.PROTOCOL_ERROR,
            f"padding must have at most {len(payload) - start} bytes in this frame, got {padding}",
        )
    return payload[start : len(payload) - padding]


def check_priority(stream_id: int, payload: bytes) -> None:
    """Check a PRIORITY frame, which is otherwise ignored."""
    if len(payload) != _PRIORITY_BYTES:
        raise StreamFailed(
            ErrorCode.FRAME_SIZE_ERROR,
            f"PRIORITY payload must have {_PRIORITY_BYTES} bytes, got {len(payload)}",
        )
    if depends_on_itself(stream_id, payload):
        raise own_dependency()


def depends_on_itself(stream_id: int, payload: bytes, flags: int = 0) -> bool:
    """Return whether the priority in HEADERS or PRIORITY makes a stream depend on itself."""
    start = 1 if flags & PADDED else 0
    dependency = int.from_bytes(payload[start : start + _WORD.size], "big")
    return dependency & STREAM_ID_MASK == stream_id


def own_dependency() -> StreamFailed:
    """Return the error for a stream that depends on itself."""
    return StreamFailed(ErrorCode.PROTOCOL_ERROR, "a stream must not depend on itself")


_SETTING: Final = Struct(">HI")
_WORD: Final = Struct(">I")
_TWO_WORDS: Final = Struct(">II")
_PRIORITY_BYTES: Final = 5
