"""etcd's Txn: its messages as our operations, and what was done as its answer."""

from collections.abc import Generator, Iterable
from typing import Any, Final

from leasehold.core.ops import (
    Compare,
    Delete,
    Deleted,
    Found,
    Outcome,
    Put,
    Range,
    Relation,
    Step,
    Target,
    Txn,
)
from leasehold.core.txn import MAX_OPERATIONS, check_key
from leasehold.engine.slices import at_once
from leasehold.errors import TooManyOperations
from leasehold.server.etcd.desk import invalid
from leasehold.server.etcd.ranges import encode, query_of
from leasehold.wire.encode import field, varint
from leasehold.wire.rpc_pb2 import Compare as WireCompare
from leasehold.wire.rpc_pb2 import DeleteRangeRequest, PutRequest, RequestOp, TxnRequest

_OPERANDS: Final = ("version", "create_revision", "mod_revision", "value", "lease")
"""The fields that have what is compared with, in the order of the targets."""
_NEVER: Final = Compare(b"\0", Target.VERSION, Relation.LESS, 0)
"""A condition that never holds."""

_FAILED: Final = [b"\x1a%c\x12%c\x0a%c\x18" % (size + 5, size + 3, size + 1) for size in range(11)]
"""What is before the revision in the answer to a put, by the octets of the revision."""
_SUCCEEDED: Final = [b"\x10\x01" + start for start in _FAILED]

_TARGETS: Final[dict[int, Target]] = {target.value: target for target in Target}
_RELATIONS: Final[dict[int, Relation]] = {relation.value: relation for relation in Relation}


def read_txn(request: TxnRequest) -> Txn:
    """Read a transaction; refuse what is invalid, in the order in which etcd does."""
    return at_once(read_txn_steps(request))


def read_txn_steps(
    request: TxnRequest, max_operations: int = MAX_OPERATIONS
) -> Generator[None, None, Txn]:
    """Do what `read_txn` does, with a pause after each nested transaction."""
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
    """Read a condition. What etcd does not know either holds, or does not, without a look."""
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
    """Read an operation; None for a nested transaction."""
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
    raise invalid("key not found")  # etcd's words for an operation that is none


def check_put(request: PutRequest) -> None:
    """Refuse a put that contradicts itself."""
    check_key(request.key)
    if request.ignore_value and request.value:
        raise invalid("value is provided")
    if request.ignore_lease and request.lease:
        raise invalid("lease is provided")


def put_of(request: PutRequest) -> Put:
    """Read a put."""
    return Put(
        request.key,
        None if request.ignore_value else request.value,
        None if request.ignore_lease else request.lease,
        request.prev_kv,
    )


def delete_of(request: DeleteRangeRequest) -> Delete:
    """Read a delete."""
    return Delete(request.key, request.range_end, request.prev_kv)


def as_of(outcome: Outcome, revision: int) -> Outcome:
    """Give what only reads have found as of another revision, at which all of it is the same."""
    results = [found._replace(revision=revision) for found in outcome.results]
    return Outcome(outcome.succeeded, results, revision)


# Answers. The header of an answer within another one has the revision only.


def encode_outcome(outcome: Outcome, request: TxnRequest) -> bytes:
    """Encode everything but the header."""
    answers = [field(3, encode_step(*each)) for each in steps_taken(outcome, request)]
    return encode_succeeded(outcome) + b"".join(answers)


def encode_one_put(outcome: Outcome) -> bytes:
    """The same for a transaction that came to one put, without what the key was before."""
    number = varint(outcome.revision)
    starts = _SUCCEEDED if outcome.succeeded else _FAILED
    return starts[len(number)] + number


def encode_succeeded(outcome: Outcome) -> bytes:
    """Encode which branch was taken."""
    return b"\x10\x01" if outcome.succeeded else b""


def steps_taken(outcome: Outcome, request: TxnRequest) -> Iterable[tuple[Any, RequestOp]]:
    """Give each result with the operation that it is of."""
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
    """Encode the header of an answer within another one: it has the revision only."""
    return field(1, b"\x18" + varint(revision))
