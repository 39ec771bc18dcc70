"""What may happen to a lease, and how that is told: encoded once, for all who are told."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from leasehold.core.duration import to_wire_ms
from leasehold.engine.lease_record import LeaseRecord
from leasehold.wire.encode import field, varint

MAX_EVENT_KEYS: Final = 100
"""Keys that an event names; it says how many there were in any case."""

MAX_EVENT_KEY_BYTES: Final = 64 * 1024
"""And what their names have together."""


class Kind(IntEnum):
    """What has happened; the numbers are those of our wire."""

    GRANTED = 0
    RENEWED = 1
    EXPIRED = 2
    REVOKED = 3


def encode(kind: Kind, record: LeaseRecord, revision: int, keys: Sequence[bytes] = ()) -> bytes:
    """Encode an event as a field of a `WatchLeasesResponse`; the keys are those that went."""
    parts = [b"\x08" + varint(kind) if kind else b"", b"\x10", record.encoded_id]
    if record.holder:
        parts.append(field(3, record.holder.encode()))
    parts += [b"\x20", varint(to_wire_ms(record.ttl_s))]
    if keys:
        parts += [field(5, key) for key in _named(keys)]
        parts += [b"\x30", varint(len(keys))]
    parts += [b"\x38", varint(revision)]
    return field(4, b"".join(parts))


def _named(keys: Sequence[bytes]) -> Iterator[bytes]:
    octets = 0
    for key in keys[:MAX_EVENT_KEYS]:
        octets += len(key)
        if octets > MAX_EVENT_KEY_BYTES:
            return
        yield key
