"""Answers with very many items, encoded in steps: between any two of them it is others' turn.

Each generator gives the pieces of an answer without its header. They give the very bytes that
`ranges`, `txns` and `lease` give at once for answers with few items.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from leasehold.core.keyspace import Item
from leasehold.core.ops import Deleted, Found, Outcome
from leasehold.core.ordering import in_order
from leasehold.core.ranges import SLICE, pausing
from leasehold.engine.transactions import Steps
from leasehold.server.etcd.ranges import encode_pairs, encode_totals
from leasehold.server.etcd.txns import (
    encode_step,
    encode_succeeded,
    inner_header,
    steps_taken,
)
from leasehold.wire.encode import field, varint
from leasehold.wire.rpc_pb2 import RequestOp, TxnRequest

T = TypeVar("T")
_LENGTH_DELIMITED = 2


def found_steps(found: Found, *, keys_only: bool) -> Steps[list[bytes]]:
    """Encode what a range has found."""

    def encode(items: Sequence[Item]) -> bytes:
        return encode_pairs(items, keys_only=keys_only)

    pieces = yield from _in_slices(found.items, encode)
    return [*pieces, encode_totals(found)]


def deleted_steps(deleted: Deleted, *, with_previous: bool) -> Steps[list[bytes]]:
    """Encode what a delete has deleted."""
    if not deleted.previous:
        return []
    count = b"\x10" + varint(len(deleted.previous))
    if not with_previous:
        return [count]
    return [count, *(yield from _in_slices(deleted.previous, _previous))]


def _previous(items: Sequence[Item]) -> bytes:
    return b"".join([field(3, item[0]) for item in items])


def outcome_steps(outcome: Outcome, request: TxnRequest) -> Steps[list[bytes]]:
    """Encode what a transaction has done."""
    pieces = [encode_succeeded(outcome)]
    for result, operation in steps_taken(outcome, request):
        pieces += _within(3, (yield from _step_steps(result, operation)))
        yield []
    return pieces


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
    """Encode the keys of a lease, in order, behind what else is said of it."""
    ordered = yield from pausing(in_order(names, bytes, SLICE))
    return [head, *(yield from _in_slices(ordered, _keys))]


def _keys(names: Sequence[bytes]) -> bytes:
    return b"".join([field(5, name) for name in names])


def leases_steps(listing: Steps[list[tuple[float, bytes]]]) -> Steps[list[bytes]]:
    """Put together a list of leases, each of them encoded already."""
    listed = yield from listing
    return (yield from _in_slices(listed, _leases))


def _leases(listed: Sequence[tuple[float, bytes]]) -> bytes:
    return b"".join([encoded for _, encoded in listed])


def _in_slices(items: Sequence[T], encode: Callable[[Sequence[T]], bytes]) -> Steps[list[bytes]]:
    pieces: list[bytes] = []
    for start in range(0, len(items), SLICE):
        pieces.append(encode(items[start : start + SLICE]))
        yield []
    return pieces


def _within(number: int, pieces: list[bytes]) -> list[bytes]:
    """Make a field of some pieces."""
    length = sum(map(len, pieces))
    return [varint(number << 3 | _LENGTH_DELIMITED) + varint(length), *pieces]
