"""Encoding of header blocks (RFC 7541), for peers whose calls are alike.

Theory of operation. A field that will come again is put into the peer's dynamic table the first
time, and is one or two bytes from then on. The table is filled until it is full; nothing is ever
evicted, so its fields stay, and only their indices move while others are added. A field that does
not fit is sent as a literal each time. Nothing is Huffman-coded: it would cost more than it saves.

*The memo* holds blocks that were encoded since the table last changed: the same fields are the same
bytes.

A peer that wants another size than the default 4096 bytes gets an empty table and literals only.
"""

import sys
from collections.abc import Iterable
from typing import Final

from leasehold.http2.hpack import DEFAULT_TABLE_BYTES, HeaderListTooLarge
from leasehold.http2.hpack_tables import ENTRY_OVERHEAD_BYTES, STATIC_TABLE

MAX_MEMO: Final = 256
"""Blocks that are cached; above it the cache is cleared."""

Pair = tuple[bytes, bytes]
Fields = tuple[Pair, ...]

_STATIC_COUNT: Final = len(STATIC_TABLE)
_INDEXED: Final = 0x80
_INCREMENTAL: Final = 0x40
_UNINDEXED: Final = 0x00
_NEVER_INDEXED: Final = 0x10
_EMPTY_TABLE: Final = b"\x20"
_PAIRS: Final = {
    (field.name, field.value): index for index, field in reversed([*enumerate(STATIC_TABLE, 1)])
}
_NAMES: Final = {field.name: index for index, field in reversed([*enumerate(STATIC_TABLE, 1)])}
_SECRET: Final = frozenset((b"authorization", b"token", b"cookie", b"proxy-authorization"))
"""Fields that no intermediary may put into a table (RFC 7541, section 7.1)."""


def integer(number: int, prefix: int, pattern: int) -> bytes:
    """Encode an integer, the first `prefix` bits of it after a pattern."""
    limit = (1 << prefix) - 1
    if number < limit:
        return bytes((pattern | number,))
    data = bytearray((pattern | limit,))
    number -= limit
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def string(value: bytes) -> bytes:
    """Encode a string, without Huffman coding."""
    return integer(len(value), 7, 0) + value


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a field that is not added to the table."""
    pattern = _NEVER_INDEXED if name in _SECRET else _UNINDEXED
    index = _NAMES.get(name, 0)
    head = integer(index, 4, pattern)
    return head + string(value) if index else head + string(name) + string(value)


def literals(fields: Iterable[Pair]) -> bytes:
    """Encode fields that are not added to the table."""
    return b"".join([literal(name, value) for name, value in fields])


class HeaderEncoder:
    """Encodes the header blocks of one connection, in the order in which they are sent."""

    __slots__ = ("_left_bytes", "_memo", "_prefix", "_table", "max_list_bytes")

    def __init__(self) -> None:
        self.max_list_bytes = sys.maxsize
        """The largest header list that the peer accepts."""
        self._table: dict[Pair, int] = {}  # to the number of the field, counted from 0
        self._left_bytes = DEFAULT_TABLE_BYTES
        self._memo: dict[Fields, bytes] = {}
        self._prefix = b""

    def set_table_size(self, table_bytes: int) -> None:
        """Set the peer's limit for the table that we fill."""
        if table_bytes < DEFAULT_TABLE_BYTES and self._left_bytes >= 0:
            self._left_bytes = -1
            self._table.clear()
            self._memo.clear()
            self._prefix = _EMPTY_TABLE

    def encode(self, fields: Fields) -> bytes:
        """Encode a block; send it before the next one is encoded.

        Raises `HeaderListTooLarge` if the peer would not accept it; nothing has changed then.
        """
        known = self._memo.get(fields)
        if known is not None:
            return known
        list_bytes = sum([len(n) + len(v) + ENTRY_OVERHEAD_BYTES for n, v in fields])
        if list_bytes > self.max_list_bytes:
            raise HeaderListTooLarge(
                f"the peer accepts at most {self.max_list_bytes} bytes of header fields, "
                f"got {list_bytes}"
            )
        table_count = len(self._table)
        parts = [self.take_prefix()]
        for name, value in fields:
            parts.append(self._field(name, value))
        block = b"".join(parts)
        if len(self._table) == table_count and not parts[0]:
            if len(self._memo) >= MAX_MEMO:
                self._memo.clear()
            self._memo[fields] = block
        return block

    def forget(self) -> None:
        """Clear the cache of encoded blocks."""
        self._memo.clear()

    def take_prefix(self) -> bytes:
        """Return the prefix of the next block, also for a block that is encoded elsewhere."""
        prefix, self._prefix = self._prefix, b""
        return prefix

    def _field(self, name: bytes, value: bytes) -> bytes:
        pair = (name, value)
        index = _PAIRS.get(pair)
        if index is None:
            number = self._table.get(pair)
            if number is None:
                return self._new(name, value)
            index = _STATIC_COUNT + len(self._table) - number
        return integer(index, 7, _INDEXED)

    def _new(self, name: bytes, value: bytes) -> bytes:
        """Encode a field that is in no table, and add it to the table if there is room."""
        size_bytes = len(name) + len(value) + ENTRY_OVERHEAD_BYTES
        if size_bytes > self._left_bytes or name in _SECRET:
            return literal(name, value)
        self._left_bytes -= size_bytes
        self._table[(name, value)] = len(self._table)
        self._memo.clear()
        index = _NAMES.get(name, 0)
        head = integer(index, 6, _INCREMENTAL)
        return head + string(value) if index else head + string(name) + string(value)
