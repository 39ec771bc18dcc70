"""Fast encoders and parsers for the parts of messages that almost every call has.

Encoders return exactly the bytes of protobuf, in a fraction of the time that it takes to build a
message from Python and serialize it. Most of that time goes into varints, so those of up to two
bytes come from a table, and those of up to four are two lookups and one concatenation. The tables
cost about 2 MB and a few milliseconds at import, once per process. The caller must check ranges:
ints are int64, or uint64 where the field says so.

Parsers accept messages in their shortest form. A message with only a key and a value, with lengths
of one byte, can be parsed by checking five bytes, and a grant of a short TTL by checking two.
Almost every request has this form. For any other form the result is None, and protobuf parses it.
"""

from functools import lru_cache
from typing import Final

_TWO: Final = 1 << 14
_FOUR: Final = 1 << 28
_LOW: Final = _TWO - 1
_LOW_FOUR: Final = _FOUR - 1
_HIGH_36: Final = (1 << 36) - 1
_LEAST: Final = -(1 << 63)
_UINT64: Final = 1 << 64

_SINGLE: Final = [bytes((n,)) for n in range(256)]
# `_LAST[n]` is the whole varint of n; `_MORE[n]` two bytes of a longer one, low bits first.
_LAST: Final = [
    *_SINGLE[:128],
    *(_SINGLE[n & 127 | 128] + _SINGLE[n >> 7] for n in range(128, _TWO)),
]
_MORE: Final = [_SINGLE[n & 127 | 128] + _SINGLE[n >> 7 | 128] for n in range(_TWO)]

_LENGTH_DELIMITED: Final = 2
_MAX_VARINT_BYTES: Final = 10

# Long ones are mostly lease ids, and one is encoded several times within a short time: in the
# answer to its grant, with its keys, in the answers to its renewals.
LONG_VARINTS_MAX: Final = 4096

_KEY: Final = 0x0A  # field 1, length-delimited
_VALUE: Final = 0x12  # field 2, length-delimited
_LEASE: Final = 0x18  # field 3, a number
_TTL: Final = 0x08  # field 1, a number
_HEAD: Final = 2  # tag and length, or tag and number
_SHORT: Final = 128
_MAX_NUMBER_BYTES: Final = 9  # of a number that is not negative


def varint(n: int) -> bytes:
    """Encode an int64 or uint64; negative ones take ten bytes."""
    if 0 <= n < _TWO:
        return _LAST[n]
    if 0 <= n < _FOUR:
        return _MORE[n & _LOW] + _LAST[n >> 14]
    return _remembered_varint(n)


def long_varint(n: int) -> bytes:
    """Encode an int64 or uint64 that is most likely long, such as the id of a lease."""
    if 0 <= n < _FOUR:
        return varint(n)
    assert _LEAST <= n < _UINT64, f"{n} does not fit into 64 bits"
    # Arithmetic on a 64-bit int costs several times that on a small one: cut it up first.
    low = n & _LOW_FOUR
    n = n >> 28 & _HIGH_36
    if n < _FOUR:
        return _MORE[low & _LOW] + _MORE[low >> 14] + varint(n)
    high = n & _LOW_FOUR
    return b"".join(
        (_MORE[low & _LOW], _MORE[low >> 14], _MORE[high & _LOW], _MORE[high >> 14], _LAST[n >> 28])
    )


_remembered_varint: Final = lru_cache(LONG_VARINTS_MAX)(long_varint)


def field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field (message, bytes, string), also if it is empty."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(payload)) + payload


@lru_cache(LONG_VARINTS_MAX)
def _lease_field(lease: int) -> bytes:
    """Return field 6 of a pair; cached, because a key is put repeatedly under its lease."""
    return b"\x30" + varint(lease)


def key_value(
    key: bytes, create_revision: int, mod_revision: int, version: int, value: bytes, lease: int
) -> bytes:
    """Encode a `mvccpb.KeyValue`, without the fields that are zero or empty."""
    if not (
        0 < create_revision <= mod_revision < _FOUR
        and 0 < version < _TWO
        and 0 < len(key) < _TWO
        and 0 < len(value) < _TWO
    ):
        return _any_key_value(key, create_revision, mod_revision, version, value, lease)
    # The usual case, with `varint` inlined: calling it five times took a third of the time.
    return b"".join(
        (
            b"\x0a",
            _LAST[len(key)],
            key,
            b"\x10",
            _LAST[create_revision]
            if create_revision < _TWO
            else _MORE[create_revision & _LOW] + _LAST[create_revision >> 14],
            b"\x18",
            _LAST[mod_revision]
            if mod_revision < _TWO
            else _MORE[mod_revision & _LOW] + _LAST[mod_revision >> 14],
            b"\x20",
            _LAST[version],
            b"\x2a",
            _LAST[len(value)],
            value,
            _lease_field(lease) if lease else b"",
        )
    )


def _any_key_value(
    key: bytes, create_revision: int, mod_revision: int, version: int, value: bytes, lease: int
) -> bytes:
    return b"".join(
        (
            field(1, key) if key else b"",
            _int_field(b"\x10", create_revision),
            _int_field(b"\x18", mod_revision),
            _int_field(b"\x20", version),
            field(5, value) if value else b"",
            _int_field(b"\x30", lease),
        )
    )


def _int_field(tag: bytes, n: int) -> bytes:
    return tag + varint(n) if n else b""


class ResponseHeaderEncoder:
    """Encodes response headers of one member in one term; caches the last one."""

    __slots__ = ("_after", "_encoded", "_none", "_revision", "_starts")

    def __init__(self, cluster_id: int, member_id: int, term: int) -> None:
        before = _int_field(b"\x08", cluster_id) + _int_field(b"\x10", member_id)
        self._after = _int_field(b"\x20", term)
        # Everything before the revision. The length of the field depends on the revision's only.
        known_bytes = len(before) + 1 + len(self._after)
        self._starts = [
            b"\x0a" + varint(known_bytes + length) + before + b"\x18"
            for length in range(_MAX_VARINT_BYTES + 1)
        ]
        self._revision = 0
        self._encoded = self._none = field(1, before + self._after)

    def encode(self, revision: int) -> bytes:
        """Return field 1 of a response, complete: tag, length and `ResponseHeader`."""
        if revision != self._revision:
            number = varint(revision)
            whole = self._starts[len(number)] + number + self._after
            self._encoded = whole if revision else self._none
            self._revision = revision
        return self._encoded


def short_key(message: bytes) -> bytes | None:
    """Parse a message that has field 1 and nothing else."""
    size = len(message) - _HEAD
    if 0 < size < _SHORT and message[0] == _KEY and message[1] == size:
        return message[_HEAD:]
    return None


def short_put(message: bytes) -> tuple[bytes, bytes, int] | None:
    """Parse a put with a non-empty key and value, perhaps a lease, and nothing else."""
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
    if message[end] != _LEASE or size - end > 1 + _MAX_NUMBER_BYTES:  # a longer one is not cached
        return None
    lease = _remembered_number(message[end + 1 :])
    if lease is None:
        return None
    return message[_HEAD : value_at - _HEAD], message[value_at:end], lease


def number(data: bytes) -> int | None:
    """Parse a non-negative number that has all of these bytes."""
    if not 0 < len(data) <= _MAX_NUMBER_BYTES or data[-1] >= _SHORT:
        return None
    read = data[-1]
    for byte in data[-2::-1]:
        if byte < _SHORT:
            return None
        read = read << 7 | byte & 0x7F
    return read


# Mostly of nine bytes, and the same lease is named with each of its keys.
_remembered_number: Final = lru_cache(LONG_VARINTS_MAX)(number)


def short_lease(message: bytes) -> tuple[int, int] | None:
    """Parse a grant without a lease id and with a TTL of 1 to 127 s; return 0 and the TTL."""
    if len(message) == _HEAD and message[0] == _TTL and 0 < message[1] < _SHORT:
        return 0, message[1]
    return None
