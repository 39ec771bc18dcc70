"""Long messages in parts: each part is a message, too, and all together are the whole."""

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {_FIXED64: 8, 5: 4}


def cut(message: bytes, part_bytes: int) -> Iterator[bytes]:
    """Cut a message between fields, into parts of about this size; a field is never cut."""
    start = at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, at = _varint(message, at)
            at += length
        elif kind == _VARINT:
            _, at = _varint(message, at)
        else:
            at += _FIXED_BYTES[kind]
        if at - start >= part_bytes:
            yield message[start:at]
            start = at
    if start < len(message):
        yield message[start:]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = message[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
