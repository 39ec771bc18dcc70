"""Header blocks: the fields of requests, and representations of HPACK written by hand.

Peers encode with the library `hpack` where the encoding does not matter. Where it does, a block is
put together from the functions here, whose names are those of RFC 7541, 6.
"""

from typing import Final

Field = tuple[bytes, bytes]
Fields = list[Field]

GET: Final[Fields] = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"localhost"),
]
POST: Final[Fields] = [(b":method", b"POST"), *GET[1:]]

FIRST_DYNAMIC: Final = 62
"""The index of the newest entry of the dynamic table: 61 entries are static."""
ENTRY_OVERHEAD_BYTES: Final = 32
"""What RFC 7541, 4.1 adds to the size of an entry."""
DEFAULT_TABLE_BYTES: Final = 4096
EMPTY_TABLE: Final = b"\x20"
"""A dynamic table size update to zero."""

# Names and fields of the static table (RFC 7541, appendix A), as indices.
AUTHORITY: Final = 1
METHOD_GET: Final = 2
METHOD_POST: Final = 3
PATH: Final = 4
SCHEME_HTTP: Final = 6
USER_AGENT: Final = 58


def with_field(fields: Fields, name: bytes, value: bytes) -> Fields:
    """The fields and one more at the end."""
    return [*fields, (name, value)]


def without(fields: Fields, name: bytes) -> Fields:
    """The fields but those of a name."""
    return [field for field in fields if field[0] != name]


def changed(fields: Fields, name: bytes, value: bytes) -> Fields:
    """The fields, with another value where the name stands."""
    return [(name, value) if field[0] == name else field for field in fields]


def integer(value: int, prefix_bits: int, pattern: int = 0) -> bytes:
    """Write an integer behind the bits of a pattern (5.1)."""
    largest = (1 << prefix_bits) - 1
    if value < largest:
        return bytes((pattern | value,))
    data = bytearray((pattern | largest,))
    rest = value - largest
    while rest >= 0x80:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def string(data: bytes) -> bytes:
    """Write a string as it is (5.2)."""
    return integer(len(data), 7) + data


def huffman(coded: bytes) -> bytes:
    """Write a string that is in Huffman's code already (5.2)."""
    return integer(len(coded), 7, 0x80) + coded


def indexed(index: int) -> bytes:
    """Refer to a whole field (6.1)."""
    return integer(index, 7, 0x80)


def inserting(name: bytes | int, value: bytes) -> bytes:
    """A literal that enters the dynamic table (6.2.1); the name may be an index."""
    return _literal(name, value, 6, 0x40)


def plain(name: bytes | int, value: bytes) -> bytes:
    """A literal that does not enter the dynamic table (6.2.2)."""
    return _literal(name, value, 4, 0x00)


def never_indexed(name: bytes | int, value: bytes) -> bytes:
    """A literal that must never enter a table (6.2.3)."""
    return _literal(name, value, 4, 0x10)


def table_size(size_bytes: int) -> bytes:
    """Change the size of the dynamic table (6.3)."""
    return integer(size_bytes, 5, 0x20)


def _literal(name: bytes | int, value: bytes, prefix_bits: int, pattern: int) -> bytes:
    if isinstance(name, int):
        return integer(name, prefix_bits, pattern) + string(value)
    return bytes((pattern,)) + string(name) + string(value)


def written(fields: Fields) -> bytes:
    """Write fields so that the dynamic table stays as it is."""
    return b"".join(plain(name, value) for name, value in fields)


PLAIN_GET: Final = written(GET)
"""A request that neither uses nor changes the dynamic table."""
