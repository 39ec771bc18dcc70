"""Messages in their shortest form, read without protobuf.

A message that is no longer than its key and value need, with lengths of one octet, can be read by
looking at five octets, and a grant of a short term by looking at two. That is what almost every
client sends almost always. Whatever looks any different is None here, and for protobuf to read.
"""

from functools import lru_cache
from typing import Final

from leasehold.wire.encode import LONG_VARINTS_MAX

_KEY: Final = 0x0A  # field 1, length-delimited
_VALUE: Final = 0x12  # field 2, length-delimited
_LEASE: Final = 0x18  # field 3, a number
_TTL: Final = 0x08  # field 1, a number
_HEAD: Final = 2  # tag and length, or tag and number
_SHORT: Final = 128
_MAX_OCTETS: Final = 9  # of a number that is not negative


def short_key(message: bytes) -> bytes | None:
    """Read a message that has field 1 and nothing else."""
    size = len(message) - _HEAD
    if 0 < size < _SHORT and message[0] == _KEY and message[1] == size:
        return message[_HEAD:]
    return None


def short_put(message: bytes) -> tuple[bytes, bytes, int] | None:
    """Read a put of a key and a value, neither of them empty, perhaps a lease, and nothing else."""
    size = len(message)
    if size <= _HEAD or message[0] != _KEY:
        return None
    key_bytes = message[1]
    value_at = key_bytes + _HEAD + _HEAD
    if not 0 < key_bytes < _SHORT or value_at >= size or message[value_at - _HEAD] != _VALUE:
        return None
    value_bytes = message[value_at - 1]
    end = value_at + value_bytes
    if not 0 < value_bytes < _SHORT or end > size:
        return None
    if end == size:
        return message[_HEAD : value_at - _HEAD], message[value_at:], 0
    if message[end] != _LEASE or size - end > 1 + _MAX_OCTETS:  # what is longer is not remembered
        return None
    lease = _remembered_number(message[end + 1 :])
    if lease is None:
        return None
    return message[_HEAD : value_at - _HEAD], message[value_at:end], lease


def number(octets: bytes) -> int | None:
    """Read a number, not a negative one, that has all of these octets."""
    if not 0 < len(octets) <= _MAX_OCTETS or octets[-1] >= _SHORT:
        return None
    read = octets[-1]
    for octet in octets[-2::-1]:
        if octet < _SHORT:
            return None
        read = read << 7 | octet & 0x7F
    return read


# Mostly of nine octets, and a lease is named again with each of its keys.
_remembered_number: Final = lru_cache(LONG_VARINTS_MAX)(number)


def short_lease(message: bytes) -> tuple[int, int] | None:
    """Read a grant that names no lease, and a term of 1 to 127 seconds: 0 and the term."""
    if len(message) == _HEAD and message[0] == _TTL and 0 < message[1] < _SHORT:
        return 0, message[1]
    return None
