"""The changes in the rows of a journal: encoding and decoding.

A row has the fields of a `leasehold.journal.Changes` message one after the other, so a batch is
encoded by joining its encoded changes. A put is the `KeyValue` that ranges and watches send: one
encoding for all of them.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from leasehold.errors import DamagedJournal
from leasehold.keyspace.keyspace import Item
from leasehold.wire import journal_pb2, kv_pb2
from leasehold.wire.codec import field, varint

_DOUBLE: Final = struct.Struct("<d")
DOUBLE_BYTES: Final = _DOUBLE.size
_TERM_BYTES: Final = 2 + DOUBLE_BYTES  # two tags and the term


# Encoding.


def put(encoded_pair: bytes) -> bytes:
    """Encode that a key was put."""
    size = len(encoded_pair)
    return (_PUT_HEADS[size] if size < _MANY else _put_head(size)) + encoded_pair


def _put_head(size: int) -> bytes:
    length = varint(size)
    return b"\x0a%b\x0a%b" % (varint(len(length) + size + 1), length)


_MANY: Final = 1024
_PUT_HEADS: Final = [_put_head(size) for size in range(_MANY)]


def deleted(key: bytes, revision: int) -> bytes:
    """Encode that a key was deleted."""
    key_length, number = varint(len(key)), varint(revision)
    inner = len(key_length) + len(key) + len(number) + 2
    length = varint(inner)
    outer = varint(len(length) + inner + 1)
    return b"\x0a%b\x12%b\x0a%b%b\x10%b" % (outer, length, key_length, key, number)


def granted(encoded_lease: bytes, ttl_s: float, holder: str = "") -> bytes:
    """Encode that a lease was granted."""
    if not holder:
        return _of_lease(b"\x1a", encoded_lease, ttl_s)
    term = b"\x08%b\x11%b" % (encoded_lease, _DOUBLE.pack(ttl_s))
    return field(1, field(3, term + field(3, holder.encode())))


def promised(encoded_lease: bytes, promised_s: float) -> bytes:
    """Encode how long a lease has to run at least, counted from the next start."""
    return _of_lease(b"\x2a", encoded_lease, promised_s)


def _of_lease(tag: bytes, encoded_lease: bytes, seconds: float) -> bytes:
    inner = len(encoded_lease) + _TERM_BYTES
    return b"\x0a%b%b%b\x08%b\x11%b" % (
        varint(inner + 2),  # an inner length is one byte
        tag,
        varint(inner),
        encoded_lease,
        _DOUBLE.pack(seconds),
    )


def ended(encoded_lease: bytes) -> bytes:
    """Encode that a lease ended; its keys were recorded as deleted before."""
    inner = len(encoded_lease) + 1
    return b"\x0a%b\x22%b\x08%b" % (varint(inner + 2), varint(inner), encoded_lease)


def compacted(revision: int) -> bytes:
    """Encode that nothing before a revision can be read any more."""
    return field(1, field(6, b"\x08" + varint(revision)))


def jumped(revision: int) -> bytes:
    """Encode that the next change comes after this revision, however far that is."""
    return field(1, field(7, b"\x08" + varint(revision)))


# Decoding.


class PutRecord(NamedTuple):
    """A key was put."""

    item: Item


class DeletedRecord(NamedTuple):
    """A key was deleted."""

    key: bytes
    revision: int


class GrantedRecord(NamedTuple):
    """A lease was granted."""

    lease: int
    ttl_s: float
    holder: str = ""


class EndedRecord(NamedTuple):
    """A lease ended."""

    lease: int


class PromisedRecord(NamedTuple):
    """A lease has to run at least this long."""

    lease: int
    promised_s: float


class CompactedRecord(NamedTuple):
    """Nothing before this can be read."""

    revision: int


class JumpedRecord(NamedTuple):
    """The next change comes after this."""

    revision: int


Record = (
    PutRecord
    | DeletedRecord
    | GrantedRecord
    | EndedRecord
    | PromisedRecord
    | CompactedRecord
    | JumpedRecord
)


def decode(changes: bytes) -> Iterator[Record]:
    """Decode the changes of a row."""
    try:
        found = journal_pb2.Changes.FromString(changes).changes
    except DecodeError as error:
        raise DamagedJournal(f"a row cannot be read ({error})") from error
    for change in found:
        what = change.WhichOneof("what")
        if what == "put":
            pair = change.put
            yield PutRecord(item_of(pair.SerializeToString(), pair))
        elif what == "deleted":
            yield DeletedRecord(change.deleted.key, change.deleted.revision)
        else:
            yield _rare(change, what)


def _rare(change: journal_pb2.Change, what: str | None) -> Record:
    match what:
        case "granted":
            return GrantedRecord(change.granted.id, change.granted.ttl_s, change.granted.holder)
        case "ended":
            return EndedRecord(change.ended.id)
        case "promised":
            return PromisedRecord(change.promised.id, change.promised.promised_s)
        case "compacted":
            return CompactedRecord(change.compacted.revision)
        case "jumped":
            return JumpedRecord(change.jumped.revision)
    raise DamagedJournal(
        "a row has a change of a kind unknown to this version of Leasehold; open it with "
        "the version that wrote it"
    )


# Decoding whole rows of grants and promises.


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

# The encoded lengths of a change, and of the grant or promise in it, by the length of its id.
_OUTER: Final = bytes((length + 4 + DOUBLE_BYTES) % 256 for length in range(256))
_INNER: Final = bytes((length + 2 + DOUBLE_BYTES) % 256 for length in range(256))

LeaseChange = tuple[int, bytes, int, float]
"""`GRANTED` or `PROMISED`; the id, encoded and as a number; the seconds."""


def read_lease_row(changes: bytes) -> Iterator[LeaseChange] | None:
    """Decode a row that has only grants, without holders, and promises; None for any other row.

    With very many leases there are very many such rows, and a start would take most of its time to
    make a message of each change. Here a regular expression splits a row, and protobuf and `struct`
    decode all ids and all terms of it with one call each. Anything that is not exactly what
    `granted` and `promised` write is left to `decode`.
    """
    if _CHANGE.match(changes) is None:
        return None
    found_heads, ids, terms = zip(*_CHANGE.findall(changes), strict=True)
    heads, encoded_ids = b"".join(found_heads), b"".join(ids)
    if len(encoded_ids) + len(ids) * _BYTES_BUT_ID != len(changes):
        return None  # there are other bytes between them
    lengths = bytes(map(len, ids))
    says_outer, kinds, says_inner = (heads[at::_HEAD_BYTES] for at in (1, 2, 3))
    if says_outer != lengths.translate(_OUTER) or says_inner != lengths.translate(_INNER):
        return None
    numbers = journal_pb2.Ids.FromString(field(1, encoded_ids)).ids
    seconds = struct.unpack(f"<{len(ids)}d", b"".join(terms))
    return zip(kinds, ids, numbers, seconds, strict=True)


# Pairs.


def item_of(encoded: bytes, pair: kv_pb2.KeyValue) -> Item:
    """Return the item of a pair, given in both forms."""
    return (
        encoded,
        pair.create_revision,
        pair.mod_revision,
        pair.version,
        pair.lease,
        pair.key,
    )


_parse_pair: Final = kv_pb2.KeyValue.FromString
_VALUE: Final = 0x2A  # field 5, length-delimited
_HEADS: Final = 7  # the tags of key, numbers and value, and two lengths of one byte
_SHORT: Final = 128
_VARINT_BYTES: Final = [-1, *((bits + 6) // 7 for bits in range(1, 65))]
"""The encoded length of a number, by its bits. One that is 0 is left out with its tag."""


def value_of(item: Item) -> bytes:
    """Return a key's value.

    It follows the key and three numbers, so most can be read without protobuf.
    """
    encoded, created, modified, version, _, key = item
    at = (
        _HEADS
        + len(key)
        + _VARINT_BYTES[created.bit_length()]
        + _VARINT_BYTES[modified.bit_length()]
        + _VARINT_BYTES[version.bit_length()]
    )
    if at < len(encoded) and encoded[at - 2] == _VALUE and len(key) < _SHORT > encoded[at - 1]:
        return encoded[at : at + encoded[at - 1]]
    return _parse_pair(encoded).value
