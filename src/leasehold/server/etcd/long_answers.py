"""Long answers: with very many items, or with large ones.

Each generator returns the pieces of an answer without its header: exactly the bytes that
`kv_messages` and `lease` return in one piece for short answers. With very many items, other work
runs between any two steps; with few, all steps are done `at_once`. A large item is not copied, but
is a separate piece.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import Deleted, Found, Outcome
from leasehold.keyspace.ranges import SLICE, Steps, sort_steps
from leasehold.server.etcd.kv_messages import (
    encode_step,
    encode_succeeded,
    encode_totals,
    inner_header,
    pairs_of,
    steps_taken,
)
from leasehold.wire.codec import field, varint
from leasehold.wire.rpc_pb2 import RequestOp, TxnRequest

LARGE_BYTES: Final = 256 * 1024
"""A larger answer is sent in pieces, however few items it has."""

LARGE_ITEM_BYTES: Final = 4 * 1024
"""A larger item is a separate piece: that costs less than a copy."""

T = TypeVar("T")
_LENGTH_DELIMITED = 2


def found_steps(found: Found, *, keys_only: bool) -> Steps[list[bytes]]:
    """Encode the result of a range."""

    def encode(items: Sequence[Item]) -> list[bytes]:
        return _fields(2, pairs_of(items, keys_only=keys_only))

    pieces = yield from _in_slices(found.items, encode)
    return [*pieces, encode_totals(found)]


def deleted_steps(deleted: Deleted, *, with_previous: bool) -> Steps[list[bytes]]:
    """Encode the result of a delete."""
    if not deleted.previous:
        return []
    count = b"\x10" + varint(len(deleted.previous))
    if not with_previous:
        return [count]
    return [count, *(yield from _in_slices(deleted.previous, _previous))]


def _previous(items: Sequence[Item]) -> list[bytes]:
    return _fields(3, [item[0] for item in items])


def outcome_steps(outcome: Outcome, request: TxnRequest) -> Steps[list[bytes]]:
    """Encode the result of a transaction."""
    pieces: list[bytes] = []
    small = [encode_succeeded(outcome)]
    size = 0
    for result, operation in steps_taken(outcome, request):
        encoded = yield from _step_steps(result, operation)
        length = sum(map(len, encoded))
        small += (_head(3, length), *encoded)
        size += length
        if size >= LARGE_ITEM_BYTES:  # otherwise an answer would have as many pieces as operations
            pieces += _joined(small)
            small.clear()
            size = 0
            yield []
    return [*pieces, *_joined(small)]


def _joined(parts: list[bytes]) -> list[bytes]:
    """Join small parts, and leave large ones as they are."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < LARGE_ITEM_BYTES:
            small.append(part)
        else:
            pieces += (b"".join(small), part)
            small.clear()
    return [*pieces, b"".join(small)]


def _step_steps(result: Any, operation: RequestOp) -> Steps[list[bytes]]:
    match result:
        case Outcome():
            inner = yield from outcome_steps(result, operation.request_txn)
            return _within(4, [field(1, b""), *inner])
        case Deleted():
            with_previous = operation.request_delete_range.prev_kv
            inner = yield from deleted_steps(result, with_previous=with_previous)
            return _within(3, [inner_header(result.revision), *inner])
        case Found():
            keys_only = operation.request_range.keys_only
            inner = yield from found_steps(result, keys_only=keys_only)
            return _within(1, [inner_header(result.revision), *inner])
    return [encode_step(result, operation)]


def keys_steps(head: bytes, names: list[bytes]) -> Steps[list[bytes]]:
    """Encode the keys of a lease, in order, after its other fields."""
    ordered = yield from sort_steps(names, bytes)
    return [head, *(yield from _in_slices(ordered, _keys))]


def _keys(names: Sequence[bytes]) -> list[bytes]:
    return _fields(5, names)


def leases_steps(listing: Steps[list[tuple[float, bytes]]]) -> Steps[list[bytes]]:
    """Assemble a list of leases that are encoded already."""
    listed = yield from listing
    return (yield from _in_slices(listed, _leases))


def _leases(listed: Sequence[tuple[float, bytes]]) -> list[bytes]:
    return [b"".join([encoded for _, encoded in listed])]


def _in_slices(
    items: Sequence[T], encode: Callable[[Sequence[T]], list[bytes]]
) -> Steps[list[bytes]]:
    pieces: list[bytes] = []
    for start in range(0, len(items), SLICE):
        pieces += encode(items[start : start + SLICE])
        yield []
    return pieces


def _fields(number: int, payloads: Sequence[bytes]) -> list[bytes]:
    """Make a field of each payload: small ones are joined into one piece, large ones are not."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for payload in payloads:
        if len(payload) < LARGE_ITEM_BYTES:
            small.append(field(number, payload))
            continue
        small.append(_head(number, len(payload)))
        pieces += (b"".join(small), payload)
        small.clear()
    return [*pieces, b"".join(small)]


def _within(number: int, pieces: list[bytes]) -> list[bytes]:
    """Make a field of several pieces."""
    return [_head(number, sum(map(len, pieces))), *pieces]


def _head(number: int, length: int) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(length)


# Answers with few items.


def is_large(items: Sequence[Item]) -> bool:
    """Return whether these items make a long answer, though they may be few."""
    return sum([len(item[0]) for item in items]) > LARGE_BYTES


def outcome_bytes(outcome: Outcome) -> int:
    """Count the bytes of all items that a transaction has read, replaced or deleted."""
    size_bytes = 0
    for result in outcome.results:
        kind = type(result)
        if kind is tuple:  # a put, as most are
            if result[1] is not None:
                size_bytes += len(result[1][0])
        elif kind is Outcome:
            size_bytes += outcome_bytes(result)
        else:
            items = result.items if kind is Found else result.previous
            size_bytes += sum([len(item[0]) for item in items])
    return size_bytes
