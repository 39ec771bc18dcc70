"""The few messages of etcd's API that the benchmark speaks, by field number.

Written by hand so that the load does not depend on the code that it measures.
"""

from collections.abc import Iterable, Iterator

KV = "/etcdserverpb.KV/"
LEASE = "/etcdserverpb.Lease/"

PUT = KV + "Put"
TXN = KV + "Txn"
COMPACT = KV + "Compact"
RANGE = KV + "Range"
LEASE_GRANT = LEASE + "LeaseGrant"
LEASE_KEEP_ALIVE = LEASE + "LeaseKeepAlive"
LEASE_TIME_TO_LIVE = LEASE + "LeaseTimeToLive"
LEASE_LEASES = LEASE + "LeaseLeases"
RENEW_ALL = "/leasehold.v1.Leases/RenewAll"
WATCH = "/etcdserverpb.Watch/Watch"

_VARINT, _BYTES = 0, 2
_WORD_BITS = 64
_EQUAL, _VALUE = 0, 3
"""How a transaction compares, and what."""

Value = int | bytes


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; negative ones as 64 bits."""
    value &= (1 << _WORD_BITS) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*values: Value | None) -> bytes:
    """Encode fields 1, 2, ... in order; None, 0 and b"" are left out, as proto3 does."""
    out = bytearray()
    for number, value in enumerate(values, start=1):
        if not value:
            continue
        if isinstance(value, bytes):
            out += varint(number << 3 | _BYTES) + varint(len(value)) + value
        else:
            out += varint(number << 3 | _VARINT) + varint(value)
    return bytes(out)


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Decode the fields of a message, in the order in which they were sent."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        value, position = _read_varint(data, position)
        if key & 7 == _VARINT:
            yield key >> 3, value
        elif key & 7 == _BYTES:
            if position + value > len(data):
                raise ValueError(f"field {key >> 3} ends beyond its message of {len(data)} bytes")
            yield key >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError(f"wire type {key & 7} is not used by the messages read here")


def number(data: bytes, field: int) -> int:
    """The value of a number in a message; 0 if it was not sent."""
    for found, value in fields(data):
        if found == field and isinstance(value, int):
            return value
    return 0


def parts(data: bytes, field: int) -> list[bytes]:
    """All values of a repeated field of messages or bytes."""
    return [value for found, value in fields(data) if found == field and isinstance(value, bytes)]


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _WORD_BITS:
        if position >= len(data):
            raise ValueError(f"a number ends beyond its message of {len(data)} bytes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number of more than ten bytes")


def put_request(key: bytes, value: bytes, lease_id: int = 0) -> bytes:
    """A PutRequest."""
    return message(key, value, lease_id)


def compare_and_put_request(key: bytes, expected: bytes, value: bytes) -> bytes:
    """A TxnRequest: if the key has the expected value, put another one."""
    compare = message(_EQUAL, _VALUE, key, None, None, None, expected)
    return message(compare, message(None, put_request(key, value)))


def range_request(key: bytes, range_end: bytes = b"") -> bytes:
    """A RangeRequest: one key, or all from `key` up to `range_end`."""
    return message(key, range_end)


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that begin with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def key_values(range_response: bytes) -> list[tuple[bytes, int, bytes]]:
    """Key, version and value of each key in a RangeResponse."""
    found = []
    for part in parts(range_response, 2):
        values = dict(fields(part))
        key, value = values.get(1, b""), values.get(5, b"")
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        found.append((key, number(part, 4), value))
    return found


def lease_grant_request(ttl_s: int, lease_id: int = 0) -> bytes:
    """A LeaseGrantRequest; with 0 the server chooses the ID."""
    return message(ttl_s, lease_id)


def lease_request(lease_id: int) -> bytes:
    """A LeaseKeepAliveRequest, LeaseTimeToLiveRequest or LeaseRevokeRequest: they are the same."""
    return message(lease_id)


def renew_all_request(lease_ids: Iterable[int]) -> bytes:
    """A RenewAllRequest of ours: each lease for the term that it was granted for."""
    return message(b"".join(map(varint, lease_ids)))


def lease_id_and_ttl_s(response: bytes) -> tuple[int, int]:
    """ID and TTL of an answer to a grant, a renewal or a question for the time to live."""
    return number(response, 2), number(response, 3)


def leases_of(lease_leases_response: bytes) -> list[int]:
    """The IDs in a LeaseLeasesResponse."""
    return [number(part, 1) for part in parts(lease_leases_response, 2)]
