"""Decoding of header blocks (RFC 7541): the hottest part of the path of a request.

Theory of operation. Both ends of a connection keep the same table of recent fields, and most of a
block refers to it by index. Every block must therefore be decoded to its end, in the order of
arrival, even when its fields are not needed any more; and after a block that cannot be decoded the
tables differ, so the connection is lost (`HeaderError`).

*The table* is one list: the dynamic entries, oldest first, and behind them the static ones
backwards. So index `i` of the RFC is `table[-i]` for both kinds, an index too high raises
`IndexError` without a check, a new entry is inserted before the static ones, and the oldest is
`table[0]`.

*The memo* holds blocks seen since the table last changed, with their fields: such a block can only
mean the same again. A client whose calls are alike costs one lookup per call. It stores nothing
that a peer marked as never to be indexed.

*The timeout.* Go's client sends another `grpc-timeout` with each call. It is returned apart from
the fields, so that the tuple of the others is the same objects in the same order from call to call,
and the caller may cache its result for it (with a limit: entries are evicted, and then come again
as new objects).

*No table.* A peer that has emptied its table for good, as our servers ask theirs to, sends blocks
that mean the same in any order. Then blocks that differ only in their timeout are found as well: by
the bytes before and behind it. With a table each timeout would be added to it, and move all other
entries to another index: no two blocks would be alike.

*Limits.* The memory a block can cost is bounded by its length: a reference costs a pointer, a
literal at most 8/5 of its bytes. The connection limits the length of a block. Whether the fields
together are over the limit for header lists is known at the end: after `HeaderListTooLarge` the
table is correct, so only the request is lost.

Names and values may be any bytes here; the connection checks them against HTTP's rules.
"""

from typing import Final

from leasehold.http2.hpack_tables import (
    ENTRY_OVERHEAD_BYTES,
    KNOWN_NAMES,
    STATIC_TABLE,
    TIMEOUT_NAME,
    Field,
    HuffmanError,
    decode_huffman,
)

__all__ = [
    "DEFAULT_TABLE_BYTES",
    "MAX_FIELDS",
    "MAX_HEADER_LIST_BYTES",
    "Field",
    "HeaderDecoder",
    "HeaderError",
    "HeaderListTooLarge",
]

MAX_HEADER_LIST_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 100
"""Fields of a list: one byte can refer to a field, and each of them is checked and copied."""
MAX_SIZE_UPDATES: Final = 2
"""Table size updates in a block: the smallest size since the last block, and the one in force."""
DEFAULT_TABLE_BYTES: Final = 4096
MAX_INTEGER_BYTES: Final = 5
"""How many bytes may follow an integer's prefix: enough for 32 bits, too few to be a burden."""

MAX_MEMO_BLOCKS: Final = 64
MAX_MEMO_BLOCK_BYTES: Final = 512
MAX_MEMO_FIELDS: Final = 32
"""Fields of a block that is cached: one byte can refer to a field, and costs eight of memory."""

MAX_KNOWN_TIMEOUT_BYTES: Final = 16
"""The encoded timeout in a block that is cached apart from its timeout; gRPC allows nine bytes."""

_STATIC_COUNT: Final = len(STATIC_TABLE)
_STATIC_BACKWARDS: Final = STATIC_TABLE[::-1]
_LARGEST_STATIC_BYTES: Final = max(
    len(field.name) + len(field.value) + ENTRY_OVERHEAD_BYTES for field in STATIC_TABLE
)
_TIMEOUT_BASE_BYTES: Final = len(TIMEOUT_NAME) + ENTRY_OVERHEAD_BYTES

# The first byte of each representation (section 6): a pattern in the high bits, a prefix below.
_INDEXED: Final = 0x80
_INDEXED_PREFIX: Final = 0x7F
_INCREMENTAL: Final = 0x40
_INCREMENTAL_PREFIX: Final = 0x3F
_SIZE_UPDATE: Final = 0x20
_SIZE_UPDATE_PREFIX: Final = 0x1F
_NEVER_INDEXED: Final = 0x10
_UNINDEXED_PREFIX: Final = 0x0F
_HUFFMAN: Final = 0x80
_LENGTH_PREFIX: Final = 0x7F


class HeaderError(Exception):
    """A block that cannot be decoded: a connection error of type COMPRESSION_ERROR."""


class HeaderListTooLarge(Exception):
    """A decoded block has too many or too long fields; the connection can continue.

    Not a `HeaderError`, so that no handler confuses the two.
    """


class HeaderDecoder:
    """Decodes the header blocks of one connection, in the order of their arrival.

    `max_table_bytes` is the SETTINGS_HEADER_TABLE_SIZE that this side has announced. The table
    begins with the protocol's own 4096 bytes or this, whichever is less. A peer may use 4096 bytes
    until it has acknowledged our settings, so announce less by setting `max_table_bytes` then.
    """

    __slots__ = (
        "_dynamic_bytes",
        "_largest_bytes",
        "_limit_bytes",
        "_max_list_bytes",
        "_memo",
        "_table",
        "_timeout_mark",
        "_untimed",
        "max_table_bytes",
        "timeout",
    )

    max_table_bytes: int
    """The largest table that the peer may use. Lower it once the peer has acknowledged that."""

    timeout: bytes | None
    """The last `grpc-timeout` in the block decoded last. No such field is in the tuple."""

    def __init__(
        self,
        max_table_bytes: int = DEFAULT_TABLE_BYTES,
        max_list_bytes: int = MAX_HEADER_LIST_BYTES,
    ) -> None:
        self.timeout = None
        self.max_table_bytes = max_table_bytes
        self._max_list_bytes = max_list_bytes
        self._table = list(_STATIC_BACKWARDS)
        self._dynamic_bytes = 0
        self._limit_bytes = min(max_table_bytes, DEFAULT_TABLE_BYTES)
        self._largest_bytes = _LARGEST_STATIC_BYTES
        self._memo: dict[bytes, tuple[tuple[Field, ...], bytes | None]] = {}
        self._timeout_mark = b""
        """The beginning of a timeout in the blocks of a peer without a table, up to its value."""
        self._untimed: dict[tuple[bytes, bytes], tuple[Field, ...]] = {}
        """By the bytes before and behind the timeout: the other fields."""

    def decode(self, block: bytes) -> tuple[Field, ...]:
        """Return the fields of a whole block, without the timeout, which is then in `timeout`.

        Raises `HeaderError` if the connection is lost, and this decoder with it;
        `HeaderListTooLarge` if only this list is, and the next block can be decoded.
        """
        known = self._memo.get(block)
        if known is not None:
            fields, self.timeout = known
            return fields
        try:
            if self._untimed:
                other = self._decode_timeout(block)
                if other is not None:
                    return other
            return self._decode(block)
        except IndexError:
            raise HeaderError("the header block ends within a field") from None
        except HuffmanError as error:
            raise HeaderError(str(error)) from None

    def _decode_timeout(self, block: bytes) -> tuple[Field, ...] | None:
        """Return the fields of a block that is cached apart from its timeout; None if it is not."""
        at = block.find(self._timeout_mark)  # if that is part of something else, it is not cached
        length_at = at + len(self._timeout_mark)
        if at < 0 or length_at >= len(block):
            return None
        first = block[length_at]
        length = first & _LENGTH_PREFIX
        end = length_at + 1 + length
        fields = self._untimed.get((block[:at], block[end:]))
        if fields is None or length > MAX_KNOWN_TIMEOUT_BYTES or end > len(block):
            return None
        value = block[length_at + 1 : end]
        if first >= _HUFFMAN:
            value = decode_huffman(value)[:MAX_KNOWN_TIMEOUT_BYTES]
        self.timeout = value
        return fields

    def _decode(self, block: bytes) -> tuple[Field, ...]:
        table = self._table
        fields: list[Field] = []
        timeout: bytes | None = None
        timeout_at = timeout_end = timeouts_bytes = 0
        end = len(block)
        position = self._resize(block) if block and block[0] >> 5 == _SIZE_UPDATE >> 5 else 0
        keep = position == 0 and end <= MAX_MEMO_BLOCK_BYTES
        while position < end:
            began = position
            byte = block[position]
            position += 1
            if byte > _INDEXED:
                index = byte - _INDEXED
                if index == _INDEXED_PREFIX:
                    index, position = _integer(block, position, _INDEXED_PREFIX)
                try:
                    field = table[-index]
                except IndexError:
                    raise self._beyond(index) from None
            else:
                field, position = self._literal(block, position, byte)
                if byte >= _INCREMENTAL:
                    keep = keep and not self._limit_bytes
                elif byte >= _NEVER_INDEXED:
                    keep = False
            if field.name is TIMEOUT_NAME:
                timeout, timeout_at, timeout_end = field.value, began, position
                timeouts_bytes += len(timeout) + _TIMEOUT_BASE_BYTES
            else:
                fields.append(field)
        self.timeout = None if timeout is None else timeout[:MAX_KNOWN_TIMEOUT_BYTES]
        if len(fields) > MAX_FIELDS:
            raise HeaderListTooLarge(
                f"header list must have at most {MAX_FIELDS} fields, got {len(fields)}"
            )
        # An upper bound first: it avoids adding up the fields of an ordinary block.
        if len(fields) * self._largest_bytes + timeouts_bytes > self._max_list_bytes:
            self._check_list(fields, timeouts_bytes)
        result = tuple(fields)
        if keep and len(result) <= MAX_MEMO_FIELDS:
            self._remember(block, result)
            if timeout is not None and not self._limit_bytes:
                self._remember_untimed(block, timeout_at, timeout_end, result)
        return result

    def _literal(self, block: bytes, position: int, byte: int) -> tuple[Field, int]:
        """Read the literal field that begins with `byte`; return it and the position behind it."""
        if byte >= _INCREMENTAL:
            index_prefix = _INCREMENTAL_PREFIX
        elif byte < _SIZE_UPDATE:
            index_prefix = _UNINDEXED_PREFIX
        else:
            raise HeaderError("a table size update must come before the fields of its block")
        index = byte & index_prefix
        if index:
            if index == index_prefix:
                index, position = _integer(block, position, index_prefix)
            try:
                name = self._table[-index].name
            except IndexError:
                raise self._beyond(index) from None
        elif byte == _INDEXED:
            raise HeaderError("a field refers to index 0, which has no entry")
        else:
            name, position = _string(block, position)
            name = KNOWN_NAMES.get(name, name)
        value, position = _string(block, position)
        field = Field(name, value)
        size_bytes = len(name) + len(value) + ENTRY_OVERHEAD_BYTES
        if size_bytes > self._largest_bytes:
            self._largest_bytes = size_bytes
        if byte >= _INCREMENTAL and self._limit_bytes:
            if self._memo:
                self._memo.clear()
            dynamic_bytes = self._dynamic_bytes + size_bytes
            if dynamic_bytes > self._limit_bytes:
                dynamic_bytes = self._evict(self._limit_bytes - size_bytes) + size_bytes
            # An entry larger than the table only empties it (section 4.4).
            if dynamic_bytes <= self._limit_bytes:
                self._table.insert(-_STATIC_COUNT, field)
                self._dynamic_bytes = dynamic_bytes
        return field, position

    def _evict(self, limit_bytes: int) -> int:
        """Drop the oldest entries until the rest fits into `limit_bytes`; return its size."""
        table = self._table
        dynamic_bytes = self._dynamic_bytes
        while dynamic_bytes > limit_bytes and len(table) > _STATIC_COUNT:
            oldest = table.pop(0)
            dynamic_bytes -= len(oldest.name) + len(oldest.value) + ENTRY_OVERHEAD_BYTES
        self._dynamic_bytes = dynamic_bytes
        return dynamic_bytes

    def _resize(self, block: bytes) -> int:
        """Apply the table size updates at the start of the block; return the position behind them.

        Sizes up to the protocol's own are tolerated when less was announced, as some encoders
        choose their size without looking at it, and the memory is within the usual bound. Sizes
        that hold no entry are of no use to an encoder, and stay an error (section 6.3).
        """
        position = updates = 0
        while position < len(block) and block[position] >> 5 == _SIZE_UPDATE >> 5:
            updates += 1
            if updates > MAX_SIZE_UPDATES:
                raise HeaderError(
                    f"a block must have at most {MAX_SIZE_UPDATES} table size updates"
                )
            limit_bytes = block[position] & _SIZE_UPDATE_PREFIX
            position += 1
            if limit_bytes == _SIZE_UPDATE_PREFIX:
                limit_bytes, position = _integer(block, position, _SIZE_UPDATE_PREFIX)
            if limit_bytes > self.max_table_bytes and not (
                ENTRY_OVERHEAD_BYTES <= limit_bytes <= DEFAULT_TABLE_BYTES
            ):
                raise HeaderError(
                    f"table size update must be at most {self.max_table_bytes} bytes, "
                    f"got {limit_bytes}"
                )
            self._limit_bytes = limit_bytes
            self._evict(limit_bytes)
        self._memo.clear()
        self._untimed.clear()
        return position

    def _remember(self, block: bytes, fields: tuple[Field, ...]) -> None:
        if len(self._memo) >= MAX_MEMO_BLOCKS:
            self._memo.clear()
        self._memo[block] = (fields, self.timeout)

    def forget(self) -> None:
        """Clear the caches of blocks; the table stays as it is."""
        self._memo.clear()
        self._untimed.clear()

    def _remember_untimed(self, block: bytes, at: int, end: int, fields: tuple[Field, ...]) -> None:
        """Cache a block of a peer without a table, except the timeout from `at` to `end`."""
        before, behind = block[:at], block[end:]
        mark = block[at : at + 2 + (block[at + 1] & _LENGTH_PREFIX)]  # a byte, and the name
        list_bytes = sum(map(_entry_bytes, fields)) + _TIMEOUT_BASE_BYTES
        if list_bytes + 2 * MAX_KNOWN_TIMEOUT_BYTES > self._max_list_bytes:
            return
        if mark != self._timeout_mark or len(self._untimed) >= MAX_MEMO_BLOCKS:
            self._timeout_mark = mark
            self._untimed.clear()
        self._untimed[(before, behind)] = fields

    def _check_list(self, fields: list[Field], timeouts_bytes: int) -> None:
        list_bytes = sum(map(_entry_bytes, fields)) + timeouts_bytes
        if list_bytes > self._max_list_bytes:
            raise HeaderListTooLarge(
                f"header list must have at most {self._max_list_bytes} bytes, got {list_bytes}"
            )

    def _beyond(self, index: int) -> HeaderError:
        return HeaderError(f"a field refers to index {index}, the last entry is {len(self._table)}")


def _entry_bytes(field: Field) -> int:
    """Return the size of a field as the limits count it."""
    return len(field.name) + len(field.value) + ENTRY_OVERHEAD_BYTES


def _integer(block: bytes, position: int, prefix: int) -> tuple[int, int]:
    """Read the rest of an integer whose prefix is full; return it and the position behind it."""
    number = prefix
    for shift in range(0, 7 * MAX_INTEGER_BYTES, 7):
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise HeaderError(f"an integer must have at most {MAX_INTEGER_BYTES} bytes after its prefix")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """Read a string; return it and the position behind it."""
    first = block[position]
    position += 1
    length = first & _LENGTH_PREFIX
    if length == _LENGTH_PREFIX:
        length, position = _integer(block, position, _LENGTH_PREFIX)
    end = position + length
    if end > len(block):
        raise HeaderError(f"a string of {length} bytes goes beyond the end of the header block")
    if first >= _HUFFMAN:
        return decode_huffman(block[position:end]), end
    return block[position:end], end
