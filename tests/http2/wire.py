"""Frames of HTTP/2 (RFC 9113, 4 and 6): their numbers, how they are written, how they are read.

Nothing here is shared with the server under test, and nothing is checked: a peer that tests must
be able to write what no honest peer would.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD_BYTES: Final = 9
RESERVED_BIT: Final = 1 << 31
MAX_WINDOW: Final = (1 << 31) - 1
DEFAULT_WINDOW: Final = (1 << 16) - 1
DEFAULT_MAX_FRAME_BYTES: Final = 1 << 14
PRIORITY_BYTES: Final = 5
PING_BYTES: Final = 8
GOAWAY_BYTES: Final = 8
WORD_BYTES: Final = 4
SETTING_BYTES: Final = 6

LISTED_MAX: Final = 20
"""How many frames a message names."""

# Flags.
ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITISED: Final = 0x20


class Kind(IntEnum):
    """The types of frames."""

    DATA = 0x0
    HEADERS = 0x1
    PRIORITY = 0x2
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


FLAGS_OF: Final = {
    Kind.DATA: END_STREAM | PADDED,
    Kind.HEADERS: END_STREAM | END_HEADERS | PADDED | PRIORITISED,
    Kind.PRIORITY: 0,
    Kind.RST_STREAM: 0,
    Kind.SETTINGS: ACK,
    Kind.PUSH_PROMISE: END_HEADERS | PADDED,
    Kind.PING: ACK,
    Kind.GOAWAY: 0,
    Kind.WINDOW_UPDATE: 0,
    Kind.CONTINUATION: END_HEADERS,
}
"""The flags that each type of frame defines."""


class Setting(IntEnum):
    """The names of settings."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class Code(IntEnum):
    """The error codes."""

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


@dataclass(frozen=True)
class Frame:
    """One frame, as it stands on the wire."""

    kind: int
    flags: int
    stream_id: int
    """All 32 bits, with the reserved one."""
    payload: bytes

    def has(self, flag: int) -> bool:
        """Whether a flag is set."""
        return bool(self.flags & flag)

    def is_a(self, kind: Kind, stream_id: int | None = None) -> bool:
        """Whether this is a frame of that type, on that stream if one is given."""
        return self.kind == kind and stream_id in (None, self.stream_id)

    @property
    def word(self) -> int:
        """The 32 bits of an RST_STREAM or WINDOW_UPDATE."""
        return int.from_bytes(self.payload[:WORD_BYTES], "big")

    @property
    def code(self) -> int:
        """The error code of an RST_STREAM or GOAWAY."""
        at = WORD_BYTES if self.kind == Kind.GOAWAY else 0
        return int.from_bytes(self.payload[at : at + WORD_BYTES], "big")

    @property
    def settings(self) -> list[tuple[int, int]]:
        """The names and values of a SETTINGS frame."""
        return list(_SETTING.iter_unpack(self.payload))

    @property
    def content(self) -> bytes:
        """The payload of DATA or HEADERS without padding and priority."""
        start, end = 0, len(self.payload)
        if self.has(PADDED):
            start, end = 1, end - self.payload[0]
        if self.kind == Kind.HEADERS and self.has(PRIORITISED):
            start += PRIORITY_BYTES
        assert start <= end, f"more padding than payload in {self}"
        return self.payload[start:end]

    def __str__(self) -> str:
        name = Kind(self.kind).name if self.kind in FLAGS_OF else f"type {self.kind:#x}"
        text = f"{name}(stream {self.stream_id}, flags {self.flags:#x}, {len(self.payload)} bytes"
        if self.kind in (Kind.RST_STREAM, Kind.GOAWAY):
            text += f", {code_name(self.code)}"
        if self.kind == Kind.GOAWAY:
            text += f", {self.payload[GOAWAY_BYTES:]!r}"
        return text + ")"


def code_name(code: int) -> str:
    """The name of an error code, also of one that nobody knows."""
    return Code(code).name if code in list(Code) else f"code {code:#x}"


def named(value: object) -> str:
    """What a parameter of a test is called: numbers that have a name, by it."""
    return value.name if isinstance(value, IntEnum) else str(value)


# Writing.


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Write any frame."""
    head = _HEAD.pack(len(payload) << 8 | kind, flags, stream_id)
    return head + payload


def data(
    stream_id: int, data: bytes = b"", *, ends: bool = False, padding: int | None = None
) -> bytes:
    """Write DATA."""
    flags = END_STREAM if ends else 0
    if padding is not None:
        flags |= PADDED
        data = bytes((padding,)) + data + bytes(padding)
    return frame(Kind.DATA, flags, stream_id, data)


def headers(
    stream_id: int,
    block: bytes,
    *,
    ends: bool = True,
    ends_headers: bool = True,
    padding: int | None = None,
    priority: bytes | None = None,
) -> bytes:
    """Write HEADERS; `ends` is about the stream, `priority` is what `dependency` writes."""
    flags = (END_STREAM if ends else 0) | (END_HEADERS if ends_headers else 0)
    if priority is not None:
        flags |= PRIORITISED
        block = priority + block
    if padding is not None:
        flags |= PADDED
        block = bytes((padding,)) + block + bytes(padding)
    return frame(Kind.HEADERS, flags, stream_id, block)


def continuation(stream_id: int, block: bytes, *, ends_headers: bool = True) -> bytes:
    """Write CONTINUATION."""
    return frame(Kind.CONTINUATION, END_HEADERS if ends_headers else 0, stream_id, block)


def dependency(on: int = 0, weight: int = 255, *, is_exclusive: bool = False) -> bytes:
    """Write the payload of a PRIORITY frame."""
    return word(on | (RESERVED_BIT if is_exclusive else 0)) + bytes((weight,))


def priority(
    stream_id: int, on: int = 0, weight: int = 255, *, is_exclusive: bool = False
) -> bytes:
    """Write PRIORITY."""
    return frame(Kind.PRIORITY, 0, stream_id, dependency(on, weight, is_exclusive=is_exclusive))


def rst_stream(stream_id: int, code: int = Code.CANCEL) -> bytes:
    """Write RST_STREAM."""
    return frame(Kind.RST_STREAM, 0, stream_id, word(code))


def settings(*values: tuple[int, int]) -> bytes:
    """Write SETTINGS."""
    return frame(Kind.SETTINGS, 0, 0, b"".join(_SETTING.pack(*value) for value in values))


def settings_ack() -> bytes:
    """Write the acknowledgement of SETTINGS."""
    return frame(Kind.SETTINGS, ACK, 0)


def ping(data: bytes = b"are you?") -> bytes:
    """Write PING."""
    return frame(Kind.PING, 0, 0, data)


def goaway(last_stream_id: int = 0, code: int = Code.NO_ERROR, why: bytes = b"") -> bytes:
    """Write GOAWAY."""
    return frame(Kind.GOAWAY, 0, 0, word(last_stream_id) + word(code) + why)


def window_update(stream_id: int, increment: int) -> bytes:
    """Write WINDOW_UPDATE."""
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, word(increment))


def word(value: int) -> bytes:
    """Write 32 bits."""
    return value.to_bytes(WORD_BYTES, "big")


# Reading.


def payload_bytes(head: bytes) -> int:
    """The length of the payload that a head announces."""
    return int.from_bytes(head[:3], "big")


def parse(data: bytes) -> Frame:
    """Read one whole frame."""
    length_and_kind, flags, stream_id = _HEAD.unpack_from(data)
    return Frame(length_and_kind & 0xFF, flags, stream_id, data[HEAD_BYTES:])


def split(data: bytes) -> Iterator[Frame]:
    """Read the whole frames at the beginning of bytes; what is cut off is left out."""
    at = 0
    while at + HEAD_BYTES <= len(data):
        end = at + HEAD_BYTES + payload_bytes(data[at : at + HEAD_BYTES])
        if end > len(data):
            return
        yield parse(data[at:end])
        at = end


def listed(frames: Iterable[Frame]) -> str:
    """Frames for a message to whoever reads a failure: the last ones, if they are many."""
    *earlier, last = [*map(str, frames)] or ["nothing"]
    skipped = len(earlier) - LISTED_MAX
    if skipped > 0:
        earlier = [f"({skipped} frames)", *earlier[skipped:]]
    return "; ".join([*earlier, last])


_HEAD: Final = Struct(">IBI")
_SETTING: Final = Struct(">HI")
