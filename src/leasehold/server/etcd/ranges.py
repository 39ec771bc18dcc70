"""etcd's Range: its options as ours, and what was found as its answer."""

from collections.abc import Sequence
from typing import Final

from leasehold.core.keyspace import Item
from leasehold.core.ops import Found, Range, SortBy
from leasehold.server.etcd.desk import invalid
from leasehold.wire.encode import field, key_value, varint
from leasehold.wire.rpc_pb2 import RangeRequest

_SORT_BY: Final[frozenset[int]] = frozenset(SortBy)


def query_of(request: RangeRequest) -> Range:
    """Read what a request asks for; what makes no difference to etcd makes none here."""
    if request.sort_target not in _SORT_BY:
        raise invalid("invalid sort option")
    is_known = RangeRequest.NONE <= request.sort_order <= RangeRequest.DESCEND
    query = Range(
        request.key,
        request.range_end,
        request.revision,
        max(0, request.limit),
        SortBy(request.sort_target) if is_known else SortBy.KEY,
        request.sort_order == RangeRequest.DESCEND,
        request.count_only,
        min_mod_revision=request.min_mod_revision,
        max_mod_revision=request.max_mod_revision,
        min_create_revision=request.min_create_revision,
        max_create_revision=request.max_create_revision,
        keys_only=request.keys_only,
    )
    has_no_order = request.sort_order == RangeRequest.NONE and query.sort_by != SortBy.KEY
    query.sorts_page = has_no_order and query.limit > 0 and not query.is_filtered
    return query


def encode_pairs(items: Sequence[Item], *, keys_only: bool) -> bytes:
    """Encode the keys that were found."""
    return b"".join([field(2, pair) for pair in pairs_of(items, keys_only=keys_only)])


def pairs_of(items: Sequence[Item], *, keys_only: bool) -> list[bytes]:
    """Give the keys that were found, each encoded for itself."""
    if keys_only:
        return [_without_value(item) for item in items]
    return [item[0] for item in items]


def encode_totals(found: Found) -> bytes:
    """Encode what comes behind the keys."""
    more = b"\x18\x01" if found.more else b""
    return more + b"\x20" + varint(found.total) if found.total else more


def encode(found: Found, *, keys_only: bool) -> bytes:
    """Encode everything but the header."""
    return encode_pairs(found.items, keys_only=keys_only) + encode_totals(found)


def _without_value(item: Item) -> bytes:
    _, created, modified, version, lease, key = item
    return key_value(key, created, modified, version, b"", lease)
