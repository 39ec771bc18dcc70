"""Messages in their shortest form, read without protobuf.

A message that is no longer than its key and value need, with lengths of one octet, can be read by
looking at five octets, and a grant of a short term by looking at two. That is what almost every
client sends almost always. Whatever looks any different is None here, and for protobuf to read.
"""

from typing import Final

_KEY: Final = 0x0A  # field 1, length-delimited
_VALUE: Final = 0x12  # field 2, length-delimited
_TTL: Final = 0x08  # field 1, a number
_HEAD: Final = 2  # tag and length, or tag and number
_SHORT: Final = 128


def short_key(message: bytes) -> bytes | None:
    """Read a message that has field 1 and nothing else."""
    size = len(message) - _HEAD
    if 0 < size < _SHORT and message[0] == _KEY and message[1] == size:
        return message[_HEAD:]
    return None


def short_pair(message: bytes) -> tuple[bytes, bytes] | None:
    """Read a message that has field 1 and then field 2, neither of them empty, and nothing else."""
    size = len(message)
    if size <= _HEAD or message[0] != _KEY:
        return None
    key_bytes = message[1]
    value_at = key_bytes + _HEAD + _HEAD
    if (
        0 < key_bytes < _SHORT
        and 0 < size - value_at < _SHORT
        and message[value_at - _HEAD] == _VALUE
        and message[value_at - 1] == size - value_at
    ):
        return message[_HEAD : value_at - _HEAD], message[value_at:]
    return None


def short_lease(message: bytes) -> tuple[int, int] | None:
    """Read a grant that names no lease, and a term of 1 to 127 seconds: 0 and the term."""
    if len(message) == _HEAD and message[0] == _TTL and 0 < message[1] < _SHORT:
        return 0, message[1]
    return None
