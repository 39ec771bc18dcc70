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

GRANTED: Final = 0x1A
PROMISED: Final = 0x2A

_CHANGE: Final = re.compile(
    rb"(\x0a.[%c%c].\x08)"
    rb"([\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f])"  # an id, in as few bytes as it can have
    rb"\x11(.{8})" % (GRANTED, PROMISED),
    re.DOTALL,
)
_HEAD_BYTES: Final = 5
_BYTES_BUT_ID: Final = _HEAD_BYTES + 1 + DOUBLE_BYTES

# How long a change says it is, and the grant or promise in it, by the length of its id.
_OUTER: Final = bytes((length + 4 + DOUBLE_BYTES) % 256 for length in range(256))
_INNER: Final = bytes((length + 2 + DOUBLE_BYTES) % 256 for length in range(256))

LeaseChange = tuple[int, bytes, int, float]
"""`GRANTED` or `PROMISED`; the id, encoded and as a number; the seconds."""


def read_lease_row(changes: bytes) -> Iterator[LeaseChange] | None:
    """Read a row that has nothing but grants, without holders, and promises; None if it is not."""
    if _CHANGE.match(changes) is None:
        return None
    found_heads, ids, terms = zip(*_CHANGE.findall(changes), strict=True)
    heads, encoded_ids = b"".join(found_heads), b"".join(ids)
    if len(encoded_ids) + len(ids) * _BYTES_BUT_ID != len(changes):
        return None  # there is something between them
    lengths = bytes(map(len, ids))
    says_outer, kinds, says_inner = (heads[at::_HEAD_BYTES] for at in (1, 2, 3))
    if says_outer != lengths.translate(_OUTER) or says_inner != lengths.translate(_INNER):
        return None
    numbers = Ids.FromString(field(1, encoded_ids)).ids
    seconds = struct.unpack(f"<{len(ids)}d", b"".join(terms))
    return zip(kinds, ids, numbers, seconds, strict=True)
