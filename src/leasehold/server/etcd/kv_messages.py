"""Messages of etcd's KV service: requests to operations of the store, and results to answers.

Transactions in their usual short form are parsed without protobuf (`short_txn`). Long answers are
made by `long_answers`, of the same bytes.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final

from leasehold.errors import TooManyOperations
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Deleted,
    Found,
    Outcome,
    Put,
    Range,
    Relation,
    SortBy,
    Step,
    Target,
    Txn,
)
from leasehold.keyspace.ranges import finish
from leasehold.keyspace.transaction_rules import MAX_OPERATIONS, check_key
from leasehold.server.etcd.service_context import invalid
from leasehold.wire.codec import field, key_value, number, short_key, short_put, varint
from leasehold.wire.rpc_pb2 import Compare as WireCompare
from leasehold.wire.rpc_pb2 import (
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
)

_SORT_BY: Final[frozenset[int]] = frozenset(SortBy)

_OPERANDS: Final = ("version", "create_revision", "mod_revision", "value", "lease")
"""The fields of the operands, in the order of the targets."""
_NEVER: Final = Compare(b"\0", Target.VERSION, Relation.LESS, 0)
"""A condition that never holds."""

_FAILED: Final = [b"\x1a%c\x12%c\x0a%c\x18" % (size + 5, size + 3, size + 1) for size in range(11)]
"""The bytes before the revision in the answer to a put, by the bytes of the revision."""
_SUCCEEDED: Final = [b"\x10\x01" + start for start in _FAILED]

_TARGETS: Final[dict[int, Target]] = {target.value: target for target in Target}
_RELATIONS: Final[dict[int, Relation]] = {relation.value: relation for relation in Relation}

_COMPARE, _SUCCESS, _FAILURE = 0x0A, 0x12, 0x1A
"""The fields of a transaction."""
_RANGE, _PUT, _DELETE = 0x0A, 0x12, 0x1A
"""The fields of an operation."""
_RESULT, _TARGET, _KEY = 0x08, 0x10, 0x1A
"""The fields of a condition; the operands follow in the order of the targets."""
_SHORT_OPERANDS: Final = b"\x20\x28\x30\x3a\x40"
_SHORT_TARGETS: Final = tuple(Target)
_SHORT_RELATIONS: Final = tuple(Relation)
_VALUE, _MAX_TARGET, _MAX_RELATION = int(Target.VALUE), max(Target), max(Relation)

_HEAD: Final = 2  # tag and length, or tag and number
_SHORT: Final = 128
_LEAST: Final = 5  # bytes of a condition: a key of one byte, and a number of one
_MAX_BYTES: Final = MAX_OPERATIONS * (_HEAD + _LEAST)
"""A message of this size has no room for more conditions or operations than are allowed."""


def query_of(request: RangeRequest) -> Range:
    """Convert a request; options that etcd ignores are ignored here, too."""
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
    """Return the keys that were found, each encoded separately."""
    if keys_only:
        return [_without_value(item) for item in items]
    return [item[0] for item in items]


def encode_totals(found: Found) -> bytes:
    """Encode the fields after the keys."""
    more = b"\x18\x01" if found.more else b""
    return more + b"\x20" + varint(found.total) if found.total else more


def encode(found: Found, *, keys_only: bool) -> bytes:
    """Encode everything but the header."""
    return encode_pairs(found.items, keys_only=keys_only) + encode_totals(found)


def _without_value(item: Item) -> bytes:
    _, created, modified, version, lease, key = item
    return key_value(key, created, modified, version, b"", lease)


def read_txn(request: TxnRequest) -> Txn:
    """Convert a transaction; refuse an invalid one, with checks in the order of etcd."""
    return finish(read_txn_steps(request))


def read_txn_steps(
    request: TxnRequest, max_operations: int = MAX_OPERATIONS
) -> Generator[None, None, Txn]:
    """Do the same as `read_txn`, with a pause after each nested transaction."""
    size = max(len(request.compare), len(request.success), len(request.failure))
    if size > max_operations:
        raise TooManyOperations(size, max_operations)
    compares: list[Compare] = []
    for compare in request.compare:
        check_key(compare.key)
        compares += _compares_of(compare)
    branches: list[list[Step]] = [[], []]
    for branch, operations in zip(branches, (request.success, request.failure), strict=True):
        for each in operations:
            step = _step_of(each)
            if step is None:
                inner = yield from read_txn_steps(each.request_txn, max_operations - size)
                branch.append(inner)
                yield
            else:
                branch.append(step)
    return Txn(compares, *branches)


def _compares_of(compare: WireCompare) -> list[Compare]:
    """Convert a condition. One that etcd does not support is always true, or always false."""
    target, relation = _TARGETS.get(compare.target), _RELATIONS.get(compare.result)
    if target is None:
        holds = relation is None or relation == Relation.EQUAL
        return [] if holds else [_NEVER]
    if relation is None:
        is_there = Compare(compare.key, Target.VERSION, Relation.GREATER, 0, compare.range_end)
        return [is_there] if target == Target.VALUE else []
    operand = getattr(compare, _OPERANDS[target])
    return [Compare(compare.key, target, relation, operand, compare.range_end)]


def _step_of(operation: RequestOp) -> Put | Range | Delete | None:
    """Convert an operation; None for a nested transaction."""
    match operation.WhichOneof("request"):
        case "request_put":
            put = operation.request_put
            check_put(put)
            return put_of(put)
        case "request_range":
            query = operation.request_range
            check_key(query.key)
            return query_of(query)
        case "request_delete_range":
            delete = operation.request_delete_range
            check_key(delete.key)
            return delete_of(delete)
        case "request_txn":
            return None
    raise invalid("key not found")  # etcd's text for an operation that is not set


def check_put(request: PutRequest) -> None:
    """Refuse a put that contradicts itself."""
    check_key(request.key)
    if request.ignore_value and request.value:
        raise invalid("value is provided")
    if request.ignore_lease and request.lease:
        raise invalid("lease is provided")


def put_of(request: PutRequest) -> Put:
    """Convert a put."""
    return Put(
        request.key,
        None if request.ignore_value else request.value,
        None if request.ignore_lease else request.lease,
        request.prev_kv,
    )


def delete_of(request: DeleteRangeRequest) -> Delete:
    """Convert a delete."""
    return Delete(request.key, request.range_end, request.prev_kv)


def as_of(outcome: Outcome, revision: int) -> Outcome:
    """Return the results of reads as of another revision, at which they are the same."""
    results = [found._replace(revision=revision) for found in outcome.results]
    return Outcome(outcome.succeeded, results, revision)


# Answers. The header of a nested answer has the revision only.


def encode_outcome(outcome: Outcome, request: TxnRequest) -> bytes:
    """Encode everything but the header."""
    answers = [field(3, encode_step(*each)) for each in steps_taken(outcome, request)]
    return encode_succeeded(outcome) + b"".join(answers)


def encode_one_put(outcome: Outcome) -> bytes:
    """The same for a transaction that resulted in one put, without the previous pair."""
    number = varint(outcome.revision)
    starts = _SUCCEEDED if outcome.succeeded else _FAILED
    return starts[len(number)] + number


def encode_succeeded(outcome: Outcome) -> bytes:
    """Encode which branch was taken."""
    return b"\x10\x01" if outcome.succeeded else b""


def steps_taken(outcome: Outcome, request: TxnRequest) -> Iterable[tuple[Any, RequestOp]]:
    """Return each result with its operation."""
    operations = request.success if outcome.succeeded else request.failure
    return zip(outcome.results, operations, strict=True)


def encode_step(result: Any, operation: RequestOp) -> bytes:
    """Encode the answer to one operation, in its field."""
    match result:
        case Outcome():
            inner = field(1, b"") + encode_outcome(result, operation.request_txn)
            return field(4, inner)
        case Deleted():
            with_previous = operation.request_delete_range.prev_kv
            header = inner_header(result.revision)
            return field(3, header + encode_deleted(result, with_previous=with_previous))
        case Found():
            keys_only = operation.request_range.keys_only
            return field(1, inner_header(result.revision) + encode(result, keys_only=keys_only))
    revision, previous = result
    answer = inner_header(revision)
    if previous is not None and operation.request_put.prev_kv:
        answer += field(2, previous[0])
    return field(2, answer)


def encode_deleted(deleted: Deleted, *, with_previous: bool) -> bytes:
    """Encode everything but the header."""
    if not deleted.previous:
        return b""
    count = b"\x10" + varint(len(deleted.previous))
    if not with_previous:
        return count
    return count + b"".join([field(3, item[0]) for item in deleted.previous])


def inner_header(revision: int) -> bytes:
    """Encode the header of a nested answer: it has the revision only."""
    return field(1, b"\x18" + varint(revision))


def short_txn(message: bytes) -> Txn | None:
    """Parse a transaction that changes something if its conditions hold."""
    size = len(message)
    if size > _MAX_BYTES:
        return None
    compares: list[Compare] = []
    success: list[Step] = []
    failure: list[Step] = []
    at = 0
    while at < size - 1:
        tag, length = message[at], message[at + 1]
        at += _HEAD + length
        if length >= _SHORT or at > size:
            return None
        part = message[at - length : at]
        if tag == _COMPARE:
            compare = _compare_of(part)
            if compare is None:
                return None
            compares.append(compare)
            continue
        step = _short_step(part)
        if tag == _SUCCESS and step is not None and type(step) is not Range:
            success.append(step)
        elif tag == _FAILURE and step is not None:
            failure.append(step)
        else:
            return None
    return Txn(compares, success, failure) if success and at == size else None


def _compare_of(part: bytes) -> Compare | None:
    """Parse a condition whose operand is of the right type."""
    size = len(part)
    if size < _LEAST:
        return None
    relation = target = at = 0
    if part[0] == _RESULT:
        relation, at = part[1], _HEAD
    if part[at] == _TARGET:
        target, at = part[at + 1], at + _HEAD
    if at + _LEAST > size or part[at] != _KEY or relation > _MAX_RELATION:
        return None
    key_at = at + _HEAD
    key_end = key_at + part[at + 1]
    if not key_at < key_end < size - 1 or target > _MAX_TARGET:
        return None
    if part[key_end] != _SHORT_OPERANDS[target]:
        return None
    operand: bytes | int | None
    if target != _VALUE:
        operand = number(part[key_end + 1 :])
    else:
        operand = part[key_end + _HEAD :] if part[key_end + 1] == size - key_end - _HEAD else None
    if operand is None:
        return None
    return Compare(
        part[key_at:key_end], _SHORT_TARGETS[target], _SHORT_RELATIONS[relation], operand
    )


def _short_step(part: bytes) -> Put | Delete | Range | None:
    """Parse an operation on a single key, without options."""
    if len(part) <= _HEAD or part[1] != len(part) - _HEAD:
        return None
    kind, body = part[0], part[_HEAD:]
    if kind == _PUT:
        put = short_put(body)
        return None if put is None else Put(*put)
    key = short_key(body)
    if key is None or kind not in (_RANGE, _DELETE):
        return None
    return Range(key) if kind == _RANGE else Delete(key)
