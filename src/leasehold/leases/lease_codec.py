"""A lease as bytes: its grantor, its cookie there, and its end.

Two forms. *Duration* holds the time that remains, to be counted again on arrival: for transport,
since it does not depend on two clocks that agree. *Absolute* holds the wall-clock end: for storage,
where the time in between must count.

Layout, big-endian: `LH`, version, form, end as a double (infinity for a lease that never ends),
then grantor and cookie, each as a tag, a 32-bit length and its bytes. A checksum is at the end,
since stored leases come back from disks that we do not control.
"""

import math
import struct
import zlib
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, NamedTuple

from leasehold.basics.durations import NEVER

MAGIC: Final = b"LH"
VERSION: Final = 1
MAX_LEASE_BYTES: Final = 64 * 1024

MAX_INT_BYTES: Final = 256
"""Python refuses to print much larger numbers, and a lease that cannot be named is useless."""

_HEADER: Final = struct.Struct(">2sBBd")
_FIELD: Final = struct.Struct(">cI")
_CHECKSUM: Final = struct.Struct(">I")


class EncodedEnd(IntEnum):
    """The meaning of the end in the bytes."""

    DURATION = 1
    ABSOLUTE = 2


class EncodedLease(NamedTuple):
    """The parts of an encoded lease. `end_s` is `NEVER` for a lease that does not end.

    Names may be bytes, str or int; a landlord's own kinds of cookie cannot be encoded.
    """

    form: EncodedEnd
    end_s: float
    grantor: Hashable
    cookie: Hashable


def encode(record: EncodedLease) -> bytes:
    """Encode a record."""
    body = (
        _HEADER.pack(MAGIC, VERSION, record.form, record.end_s)
        + _encode_name(record.grantor, "grantor")
        + _encode_name(record.cookie, "cookie")
    )
    data = body + _CHECKSUM.pack(zlib.crc32(body))
    if len(data) > MAX_LEASE_BYTES:
        raise ValueError(
            f"encoded lease must have at most {MAX_LEASE_BYTES} bytes, got {len(data)}"
        )
    return data


def decode(data: bytes) -> EncodedLease:
    """Decode a record; raise ValueError for bytes that `encode` cannot have made."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"encoded lease must be bytes, not {type(data).__name__}")
    data = bytes(data)
    if len(data) > MAX_LEASE_BYTES:
        raise ValueError(
            f"encoded lease must have at most {MAX_LEASE_BYTES} bytes, got {len(data)}"
        )
    if len(data) < _HEADER.size + _CHECKSUM.size or data[:2] != MAGIC:
        raise ValueError("not an encoded lease: too short, or wrong first bytes")
    if data[2] != VERSION:
        raise ValueError(f"encoded lease must have version {VERSION}, got {data[2]}")
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if _CHECKSUM.unpack(checksum)[0] != zlib.crc32(body):
        raise ValueError("damaged encoded lease: its checksum is wrong")
    _, _, form, end_s = _HEADER.unpack_from(body)
    if form not in EncodedEnd.__members__.values():
        raise ValueError(f"damaged encoded lease: form of its end must be 1 or 2, got {form}")
    if math.isnan(end_s) or end_s == -NEVER:
        raise ValueError(f"damaged encoded lease: its end must be a time or inf, got {end_s}")
    grantor, at = _decode_name(body, _HEADER.size)
    cookie, at = _decode_name(body, at)
    if at != len(body):
        raise ValueError(f"damaged encoded lease: {len(body) - at} extra bytes at its end")
    return EncodedLease(EncodedEnd(form), end_s, grantor, cookie)


def name_to_bytes(name: Hashable) -> bytes:
    """Encode the name of a lease, for a receiver that has its grantor's name."""
    return _encode_name(name, "cookie")


def name_from_bytes(data: bytes) -> bytes | str | int:
    """Decode a name; raise ValueError for bytes that `name_to_bytes` cannot have made."""
    name, at = _decode_name(data, 0)
    if at != len(data):
        raise ValueError(f"encoded lease name has {len(data) - at} extra bytes at its end")
    return name


def _encode_name(name: Hashable, what: str) -> bytes:
    match name:
        case bytes():
            tag, data = b"b", name
        case str():
            tag, data = b"s", name.encode()
        case int() if type(name) is int:
            tag, data = b"i", _int_bytes(name)
        case _:
            raise TypeError(f"{what} must be bytes, str or int to be encoded, not {name!r}")
    return _FIELD.pack(tag, len(data)) + data


def _int_bytes(number: int) -> bytes:
    size = number.bit_length() // 8 + 1
    if size > MAX_INT_BYTES:
        raise ValueError(
            f"number in an encoded lease must have at most {MAX_INT_BYTES} bytes, got {size}"
        )
    return number.to_bytes(size, signed=True)


def _decode_name(body: bytes, at: int) -> tuple[bytes | str | int, int]:
    if at + _FIELD.size > len(body):
        raise ValueError("encoded lease is truncated")
    tag, length = _FIELD.unpack_from(body, at)
    start = at + _FIELD.size
    data = body[start : start + length]
    if len(data) != length:
        raise ValueError("encoded lease is truncated")
    match tag:
        case b"b":
            return data, start + length
        case b"s":
            return data.decode(), start + length
        case b"i":
            number = int.from_bytes(data, signed=True)
            if _int_bytes(number) != data:
                raise ValueError("encoded lease contains a number that is not in its shortest form")
            return number, start + length
    raise ValueError(f"encoded lease contains a field of unknown kind {tag!r}")
