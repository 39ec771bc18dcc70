"""What the rows of a journal say: changes as bytes, and back.

A row has the fields of a `leasehold.journal.Changes` message one after the other, so a batch is
encoded by joining what its changes were encoded to. A put is the `KeyValue` that ranges and watches
send: one encoding for all of them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from leasehold.core.keyspace import Item
from leasehold.errors import DamagedJournal
from leasehold.wire import journal_pb2, kv_pb2
from leasehold.wire.encode import field, varint

_DOUBLE: Final = Struct("<d")
DOUBLE_BYTES: Final = _DOUBLE.size
_TERM_BYTES: Final = 2 + DOUBLE_BYTES  # two tags and the term


# Changes as bytes.


def put(encoded_pair: bytes) -> bytes:
    """Record that a key was put."""
    size = len(encoded_pair)
    return (_PUT_HEADS[size] if size < _MANY else _put_head(size)) + encoded_pair


def _put_head(size: int) -> bytes:
    length = varint(size)
    return b"\x0a%b\x0a%b" % (varint(len(length) + size + 1), length)


_MANY: Final = 1024
_PUT_HEADS: Final = [_put_head(size) for size in range(_MANY)]


def deleted(key: bytes, revision: int) -> bytes:
    """Record that a key was deleted."""
    key_length, number = varint(len(key)), varint(revision)
    inner = len(key_length) + len(key) + len(number) + 2
    length = varint(inner)
    outer = varint(len(length) + inner + 1)
    return b"\x0a%b\x12%b\x0a%b%b\x10%b" % (outer, length, key_length, key, number)


def granted(encoded_lease: bytes, ttl_s: float, holder: str = "") -> bytes:
    """Record that a lease was granted."""
    if not holder:
        return _of_lease(b"\x1a", encoded_lease, ttl_s)
    term = b"\x08%b\x11%b" % (encoded_lease, _DOUBLE.pack(ttl_s))
    return field(1, field(3, term + field(3, holder.encode())))


def promised(encoded_lease: bytes, promised_s: float) -> bytes:
    """Record how long a lease has to run at least, counted from the next start."""
    return _of_lease(b"\x2a", encoded_lease, promised_s)


def _of_lease(tag: bytes, encoded_lease: bytes, seconds: float) -> bytes:
    inner = len(encoded_lease) + _TERM_BYTES
    return b"\x0a%b%b%b\x08%b\x11%b" % (
        varint(inner + 2),  # an inner length is one octet
        tag,
        varint(inner),
        encoded_lease,
        _DOUBLE.pack(seconds),
    )


def ended(encoded_lease: bytes) -> bytes:
    """Record that a lease ended; its keys were recorded as deleted before."""
    inner = len(encoded_lease) + 1
    return b"\x0a%b\x22%b\x08%b" % (varint(inner + 2), varint(inner), encoded_lease)


def compacted(revision: int) -> bytes:
    """Record that nothing before a revision can be read any more."""
    return field(1, field(6, b"\x08" + varint(revision)))


def jumped(revision: int) -> bytes:
    """Record that the next change comes after this revision, however far that is."""
    return field(1, field(7, b"\x08" + varint(revision)))


# And back.


class Put(NamedTuple):
    """A key was put."""

    item: Item


class Deleted(NamedTuple):
    """A key was deleted."""

    key: bytes
    revision: int


class Granted(NamedTuple):
    """A lease was granted."""

    lease: int
    ttl_s: float
    holder: str = ""


class Ended(NamedTuple):
    """A lease ended."""

    lease: int


class Promised(NamedTuple):
    """A lease has to run for so long, at least."""

    lease: int
    promised_s: float


class Compacted(NamedTuple):
    """Nothing before this can be read."""

    revision: int


class Jumped(NamedTuple):
    """The next change comes after this."""

    revision: int


Record = Put | Deleted | Granted | Ended | Promised | Compacted | Jumped


def decode(changes: bytes) -> Iterator[Record]:
    """Read what a row says."""
    try:
        found = journal_pb2.Changes.FromString(changes).changes
    except DecodeError as error:
        raise DamagedJournal(f"a row cannot be read ({error})") from error
    for change in found:
        what = change.WhichOneof("what")
        if what == "put":
            pair = change.put
            yield Put(item_of(pair.SerializeToString(), pair))
        elif what == "deleted":
            yield Deleted(change.deleted.key, change.deleted.revision)
        else:
            yield _rare(change, what)


def _rare(change: journal_pb2.Change, what: str | None) -> Record:
    match what:
        case "granted":
            return Granted(change.granted.id, change.granted.ttl_s, change.granted.holder)
        case "ended":
            return Ended(change.ended.id)
        case "promised":
            return Promised(change.promised.id, change.promised.promised_s)
        case "compacted":
            return Compacted(change.compacted.revision)
        case "jumped":
            return Jumped(change.jumped.revision)
    raise DamagedJournal(
        "a row has a change of a kind that this version of Leasehold does not know; open it with "
        "the version that wrote it"
    )


def item_of(encoded: bytes, pair: kv_pb2.KeyValue) -> Item:
    """Make an item of a pair, given in both forms."""
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
_HEADS: Final = 7  # the tags of key, numbers and value, and two lengths of one octet
_SHORT: Final = 128
_OCTETS: Final = [-1, *((bits + 6) // 7 for bits in range(1, 65))]
"""How long a number is, by its bits. One that is 0 is left out with its tag."""


def value_of(item: Item) -> bytes:
    """Read a key's value.

    It is behind the key and three numbers, so most can be had without protobuf.
    """
    encoded, created, modified, version, _, key = item
    at = (
        _HEADS
        + len(key)
        + _OCTETS[created.bit_length()]
        + _OCTETS[modified.bit_length()]
        + _OCTETS[version.bit_length()]
    )
    if at < len(encoded) and encoded[at - 2] == _VALUE and len(key) < _SHORT > encoded[at - 1]:
        return encoded[at : at + encoded[at - 1]]
    return _parse_pair(encoded).value
