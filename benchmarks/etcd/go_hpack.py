"""Header blocks as Go's client encodes them.

Theory of operation. The encoder in `golang.org/x/net/http2/hpack` looks a field up in the static
table, then in the dynamic one. Found with its value: one index. Otherwise the field is sent as a
literal and put into the dynamic table, whatever it is; its name by index if a table has the name
(the static table first, and of several entries the newest), its strings Huffman-coded where that is
shorter. Entries fall out at the other end when the table grows beyond its size. So a field that is
different in every call, such as `grpc-timeout`, pushes the constant ones out again and again, and
each time they are sent anew. What is larger than the table does not go into it, and is marked so:
all fields, if the server wants no table. Both sides must keep the same table: encode every block,
in order, once.
"""

from collections import deque
from collections.abc import Iterable

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

Field = tuple[bytes, bytes]

TABLE_SIZE = 4096
"""Bytes of a dynamic table by default."""

ENTRY_OVERHEAD = 32
"""What an entry counts for in addition to its two strings."""

_STATIC: tuple[Field, ...] = tuple((bytes(n), bytes(v)) for n, v in HeaderTable.STATIC_TABLE)
_STATIC_FIELDS = {field: at for at, field in reversed(list(enumerate(_STATIC, start=1)))}
_STATIC_NAMES = {name: at for at, (name, _) in enumerate(_STATIC, start=1)}
_FIRST_DYNAMIC = len(_STATIC) + 1

_INDEXED = (0x80, 7)
_LITERAL = (0x40, 6)
_UNINDEXED = (0x00, 4)
_HUFFMAN = (0x80, 7)
_PLAIN = (0x00, 7)
_RESIZE = (0x20, 5)


def integer(value: int, form: tuple[int, int]) -> bytes:
    """An integer after its prefix bits: RFC 7541, 5.1."""
    lead, bits = form
    most = (1 << bits) - 1
    if value < most:
        return bytes((lead | value,))
    out = bytearray((lead | most,))
    value -= most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: bytes) -> bytes:
    """A string, Huffman-coded if that is shorter."""
    code = bits = 0
    for byte in value:
        length = REQUEST_CODES_LENGTH[byte]
        code = code << length | REQUEST_CODES[byte]
        bits += length
    padding = -bits % 8
    size = (bits + padding) // 8
    if size >= len(value):
        return integer(len(value), _PLAIN) + value
    return integer(size, _HUFFMAN) + (code << padding | (1 << padding) - 1).to_bytes(size, "big")


_INDEXES = [integer(at, _INDEXED) for at in range(_FIRST_DYNAMIC + TABLE_SIZE // ENTRY_OVERHEAD)]
"""Every index that there can be, encoded."""


class GoEncoder:
    """The sending side of one connection."""

    def __init__(self, table_size: int = TABLE_SIZE) -> None:
        self.table_size = min(table_size, TABLE_SIZE)
        self._entries: deque[Field] = deque()
        self._size = 0
        self._added = 0
        self._fields: dict[Field, int] = {}
        self._names: dict[bytes, int] = {}
        self._strings: dict[bytes, bytes] = {}
        self._resized = self.table_size != TABLE_SIZE

    def encode(self, fields: Iterable[Field]) -> bytes:
        """Encode one block, and move the table on."""
        out = []
        if self._resized:
            out.append(integer(self.table_size, _RESIZE))
            self._resized = False
        for field in fields:
            at = _STATIC_FIELDS.get(field)
            if at is None:
                ticket = self._fields.get(field)
                if ticket is None:
                    out.append(self._literal(field))
                    continue
                at = self._index(ticket)
            out.append(_INDEXES[at])
        return b"".join(out)

    def _literal(self, field: Field) -> bytes:
        name, value = field
        at = _STATIC_NAMES.get(name)
        if at is None:
            ticket = self._names.get(name)
            at = 0 if ticket is None else self._index(ticket)
        fits = len(name) + len(value) + ENTRY_OVERHEAD <= self.table_size
        lead = integer(at, _LITERAL if fits else _UNINDEXED)
        if fits:
            self._add(field)
        return lead + (b"" if at else self._string(name)) + self._string(value)

    def _string(self, value: bytes) -> bytes:
        coded = self._strings.get(value)
        if coded is None:
            coded = self._strings[value] = string(value)
        return coded

    def _index(self, ticket: int) -> int:
        return _FIRST_DYNAMIC + self._added - ticket

    def _add(self, field: Field) -> None:
        self._added += 1
        self._fields[field] = self._names[field[0]] = self._added
        self._entries.append(field)
        self._size += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
        while self._size > self.table_size:
            self._evict()

    def _evict(self) -> None:
        ticket = self._added - len(self._entries) + 1
        name, value = field = self._entries.popleft()
        self._size -= len(name) + len(value) + ENTRY_OVERHEAD
        if self._fields[field] == ticket:
            del self._fields[field]
        if self._names[name] == ticket:
            del self._names[name]
