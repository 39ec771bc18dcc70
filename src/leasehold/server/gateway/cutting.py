"""Long messages in parts, from front to back, at any depth.

A part has some fields, whole, and is a message itself. A long field is in none: it is announced
(`Long`), and whoever cuts the message takes its octets out of the rope before the next part.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.rpc.rope import Rope

MAX_HEAD_BYTES: Final = 20
"""What comes before the octets of a field at most: two varints."""

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {_FIXED64: 8, 5: 4}


class Long(NamedTuple):
    """A long field, whose octets are next in the rope."""

    number: int
    length: int
    head: bytes
    """What came before them."""


def cut(rope: Rope, size: int, part_bytes: int, field_bytes: int) -> Iterator[bytes | Long]:
    """Cut the message that is next in a rope, and has this size, between fields.

    A part has `part_bytes` at most, and a field of more than `field_bytes` is long.
    """
    assert part_bytes >= field_bytes + MAX_HEAD_BYTES, "a part has room for a field"
    end = len(rope) - size
    while len(rope) > end:
        window = rope.peek(min(part_bytes, len(rope) - end))
        at = _short_fields(window, field_bytes)
        if at:
            rope.skip(at)
            yield window[:at]
        else:
            yield _take_head(rope, window, len(rope) - end)


def _short_fields(window: bytes, field_bytes: int) -> int:
    """Find out how much of this are short fields, whole, before the first that is not."""
    at = whole = 0
    try:
        while at < len(window):
            tag, at = _varint(window, at)
            kind = tag & 7
            if kind == _LENGTH_DELIMITED:
                length, at = _varint(window, at)
                if length > field_bytes:
                    break
                at += length
            elif kind == _VARINT:
                _, at = _varint(window, at)
            elif kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            else:
                raise ValueError(f"this is no message: {kind} is no kind of field")
            if at > len(window):
                break
            whole = at
    except IndexError:  # within a head
        pass
    return whole


def _take_head(rope: Rope, window: bytes, left: int) -> Long:
    try:
        tag, at = _varint(window, 0)
        length, at = _varint(window, at)
    except IndexError:
        raise ValueError("this is no message: it ends within a field") from None
    if tag & 7 != _LENGTH_DELIMITED or at + length > left:
        raise ValueError(f"this is no message: {length} octets in a field, and {left} are left")
    rope.skip(at)
    return Long(tag >> 3, length, window[:at])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = message[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
