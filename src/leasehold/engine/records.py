"""What the rows of a journal say: changes as bytes, and back.

A row has the fields of a `leasehold.journal.Changes` message one after the other, so a batch is
encoded by joining what its changes were encoded to. A put is the `KeyValue` that ranges and watches
send: one encoding for all of them.
"""

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from leasehold.core.keyspace import Item, Keyspace
from leasehold.engine.journal import Row
from leasehold.engine.leases import LeaseRecord
from leasehold.errors import DamagedJournal
from leasehold.wire import journal_pb2, kv_pb2
from leasehold.wire.encode import field, varint

_DOUBLE: Final = Struct("<d")
_GRANTED_BYTES: Final = 2 + _DOUBLE.size  # two tags and the term


def put(encoded_pair: bytes) -> bytes:
    """Record that a key was put."""
    length = varint(len(encoded_pair))
    inner = len(length) + len(encoded_pair) + 1
    return b"\x0a%b\x0a%b%b" % (varint(inner), length, encoded_pair)


def deleted(key: bytes, revision: int) -> bytes:
    """Record that a key was deleted."""
    return field(1, field(2, field(1, key) + b"\x10" + varint(revision)))


def granted(record: LeaseRecord) -> bytes:
    """Record that a lease was granted."""
    lease = record.encoded_id
    inner = len(lease) + _GRANTED_BYTES
    return b"\x0a%b\x1a%b\x08%b\x11%b" % (
        varint(inner + 2),  # an inner length is one octet
        varint(inner),
        lease,
        _DOUBLE.pack(record.ttl_s),
    )


def ended(lease: int) -> bytes:
    """Record that a lease ended; its keys were recorded as deleted before."""
    return field(1, field(4, b"\x08" + varint(lease)))


def value_of(item: Item) -> bytes:
    """Read a key's value."""
    return kv_pb2.KeyValue.FromString(item[0]).value


def replay(row: Row, keyspace: Keyspace, leases: dict[int, LeaseRecord]) -> None:
    """Do again what a row says was done."""
    try:
        _replay(row, keyspace, leases)
    except (KeyError, DecodeError) as error:
        raise DamagedJournal(
            f"the changes of revisions {row.first_revision} to {row.last_revision} do not follow "
            "from those before them; restore the data directory from a backup"
        ) from error


def _replay(row: Row, keyspace: Keyspace, leases: dict[int, LeaseRecord]) -> None:
    for change in journal_pb2.Changes.FromString(row.changes).changes:
        what = change.WhichOneof("what")
        if what == "put":
            _replay_put(change.put, keyspace, leases)
        elif what == "deleted":
            name, revision = change.deleted.key, change.deleted.revision
            lease = keyspace.restore_deleted(name, revision)[4]
            _detach(name, lease, leases)
        elif what == "granted":
            lease = change.granted.id
            leases[lease] = LeaseRecord(lease, change.granted.ttl_s)
        elif what == "ended":
            del leases[change.ended.id]
        else:
            raise DamagedJournal(
                f"revision {row.first_revision} has a change of a kind that this version of "
                "Leasehold does not know; open it with the version that wrote it"
            )


def _replay_put(pair: kv_pb2.KeyValue, keyspace: Keyspace, leases: dict[int, LeaseRecord]) -> None:
    encoded = pair.SerializeToString()
    item = (encoded, pair.create_revision, pair.mod_revision, pair.version, pair.lease)
    previous = keyspace.restore(pair.key, item)
    if previous is not None and previous[4] != pair.lease:
        _detach(pair.key, previous[4], leases)
    if pair.lease:
        leases[pair.lease].attach(pair.key)


def _detach(key: bytes, lease: int, leases: dict[int, LeaseRecord]) -> None:
    if lease in leases:
        leases[lease].detach(key)
