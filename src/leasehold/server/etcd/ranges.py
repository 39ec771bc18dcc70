"""The options of etcd's Range: limits, filters, orders, and what is left out of the answer."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from leasehold.core.keyspace import Item, Keyspace
from leasehold.engine.records import value_of
from leasehold.server.etcd.desk import invalid
from leasehold.wire.encode import key_value
from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import RangeRequest


class Chosen(NamedTuple):
    """What a Range answers with."""

    pairs: list[bytes]
    more: bool
    total: int
    """How many keys are in the range, whatever was filtered out or cut off."""


_SORT_KEYS: Final[dict[int, Callable[[Item], Any]]] = {
    RangeRequest.KEY: lambda item: KeyValue.FromString(item[0]).key,
    RangeRequest.VERSION: itemgetter(3),
    RangeRequest.CREATE: itemgetter(1),
    RangeRequest.MOD: itemgetter(2),
    RangeRequest.VALUE: value_of,
}


def select(request: RangeRequest, keyspace: Keyspace) -> Chosen:
    """Choose what a request asks for."""
    if request.sort_target not in _SORT_KEYS:
        raise invalid("invalid sort option")
    items = keyspace.range(request.key, request.range_end)
    total = len(items)
    if request.count_only:
        return Chosen([], more=False, total=total)
    items = _sorted(request, [item for item in items if _passes(request, item)])
    more = 0 < request.limit < len(items)
    if more:
        items = items[: request.limit]
    pairs = [_without_value(item) if request.keys_only else item[0] for item in items]
    return Chosen(pairs, more, total)


def _passes(request: RangeRequest, item: Item) -> bool:
    _, created, modified, _, _ = item
    return (
        (not request.min_mod_revision or modified >= request.min_mod_revision)
        and (not request.max_mod_revision or modified <= request.max_mod_revision)
        and (not request.min_create_revision or created >= request.min_create_revision)
        and (not request.max_create_revision or created <= request.max_create_revision)
    )


def _sorted(request: RangeRequest, items: list[Item]) -> list[Item]:
    """Put items in order; another target than the key without an order means ascending."""
    order, target = request.sort_order, request.sort_target
    if target == RangeRequest.KEY and order != RangeRequest.DESCEND:
        return items  # they are in the order of their keys
    reverse = order == RangeRequest.DESCEND
    return sorted(items, key=_SORT_KEYS[target], reverse=reverse)


def _without_value(item: Item) -> bytes:
    encoded, created, modified, version, lease = item
    return key_value(KeyValue.FromString(encoded).key, created, modified, version, b"", lease)
