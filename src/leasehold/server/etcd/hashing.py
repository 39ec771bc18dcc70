"""Hashes of keys and leases, for whoever wants to know whether two stores have the same.

The values are not those of etcd: they are made of other bytes. Equal content gives equal hashes,
before and after a restart, a compaction or a backup.
"""

from collections.abc import Generator
from itertools import islice
from struct import Struct
from typing import Final
from zlib import crc32

from leasehold.core.keyspace import FROM_KEY, Item, Keyspace
from leasehold.core.ranges import Wanted, look_up, together
from leasehold.engine.lease_record import LeaseRecord
from leasehold.wire.encode import varint

AT_ONCE: Final = 64
"""Keys looked at between two pauses; their old values are in memory together."""

PAUSE_BYTES: Final = 256 * 1024
"""So much is hashed between two pauses: values may be long."""

NO_KEYS: Final = crc32(b"keys")
_LEASE: Final = Struct("<qd")

Hashing = Generator[Wanted, list[Item], int]


def hash_keys(keyspace: Keyspace, revision: int) -> Hashing:
    """Hash the keys as they were at a revision, in slices, with all that is known of them."""
    found = NO_KEYS
    hashed_bytes = 0
    last: bytes | None = None
    while names := list(islice(keyspace.all_names(b"\0", FROM_KEY, last), AT_ONCE)):
        last = names[-1]
        here, wanted = look_up(keyspace, names, revision)
        for encoded, *_ in together(here, (yield wanted)):
            found = crc32(encoded, crc32(varint(len(encoded)), found))
            hashed_bytes += len(encoded)
            if hashed_bytes >= PAUSE_BYTES:
                hashed_bytes = 0
                yield []
    return found


def hash_lease(record: LeaseRecord, _left_s: float) -> int:
    """Hash a lease: what is known of it that does not change with time."""
    return crc32(_LEASE.pack(record.id, record.ttl_s))


def hash_together(keys: int, leases: list[int], compacted: int) -> int:
    """Make one hash of those of keys and leases, whatever the order of the leases."""
    return crc32(b"%d %d %d" % (keys, sum(leases), compacted))
