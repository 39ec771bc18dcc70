"""Rows of a journal that have only grants and promises in them, read at once.

Where there are very many leases there are very many such rows, and a start would take most of its
time to have a message made of each change. Here a pattern takes a row apart, and protobuf and
`struct` read all ids and all terms of it with one call each. Whatever is not exactly what
`records.granted` and `records.promised` write is left to `records.decode`.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from leasehold.engine.records import DOUBLE_BYTES
from leasehold.wire.encode import field
from leasehold.wire.journal_pb2 import Ids

_MAX_ID_BYTES: Final = 9
"""Ids of ten bytes are negative, and nobody has such."""

_GRANTED: Final = b"\x1a"
_PROMISED: Final = b"\x2a"

_CHANGE: Final = re.compile(
    rb"(\x0a.[\x1a\x2a].\x08)"
    rb"([\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f])"  # an id, in as few bytes as it can have
    rb"\x11(.{8})",
    re.DOTALL,
)
_AROUND_ID: Final = 6 + DOUBLE_BYTES


def _head(kind: bytes, id_bytes: int) -> bytes:
    inner = id_bytes + 2 + DOUBLE_BYTES
    return b"\x0a%c%b%c\x08" % (inner + 2, kind, inner)


_GRANT_HEADS: Final = {_head(_GRANTED, length): length for length in range(1, _MAX_ID_BYTES + 1)}
_HEADS: Final = {
    *_GRANT_HEADS.items(),
    *((_head(_PROMISED, length), length) for length in range(1, _MAX_ID_BYTES + 1)),
}

LeaseChange = tuple[bool, bytes, int, float]
"""Whether it is a grant, else a promise; the id, encoded and as a number; the seconds."""


def read_lease_row(changes: bytes) -> Iterator[LeaseChange] | None:
    """Read a row that has nothing but grants, without holders, and promises; None if it is not."""
    if _CHANGE.match(changes) is None:
        return None
    heads, ids, terms = zip(*_CHANGE.findall(changes), strict=True)
    encoded_ids = b"".join(ids)
    if len(encoded_ids) + len(ids) * _AROUND_ID != len(changes):
        return None  # there is something between them
    if not {*zip(heads, map(len, ids), strict=True)} <= _HEADS:
        return None  # they are not as long as they say
    numbers = Ids.FromString(field(1, encoded_ids)).ids
    seconds = struct.unpack(f"<{len(ids)}d", b"".join(terms))
    return zip(map(_GRANT_HEADS.__contains__, heads), ids, numbers, seconds, strict=True)
