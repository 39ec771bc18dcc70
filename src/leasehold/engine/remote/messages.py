"""What an engine is asked for as etcd's messages, and their answers as what an engine gives."""

from collections.abc import Sequence
from typing import Any, Final, cast

from leasehold.core.ops import Compare, Delete, Put, Range, SortBy, Step, Target, Txn
from leasehold.engine.lazily import Lazily
from leasehold.engine.records import item_of
from leasehold.engine.remote.plain import OnlyPair
from leasehold.engine.values import (
    DeleteResult,
    Event,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
)
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb

_OPERANDS: Final = ("version", "create_revision", "mod_revision", "value", "lease")
"""The fields that have what is compared with, in the order of the targets."""

# Requests.


def range_request(query: Range) -> pb.RangeRequest:
    """Ask for keys."""
    request = pb.RangeRequest(
        key=query.key,
        range_end=query.end,
        revision=query.revision,
        limit=query.limit,
        count_only=query.count_only,
        min_mod_revision=query.min_mod_revision,
        max_mod_revision=query.max_mod_revision,
        min_create_revision=query.min_create_revision,
        max_create_revision=query.max_create_revision,
    )
    if query.descending or query.sort_by != SortBy.KEY:
        descend, ascend = pb.RangeRequest.DESCEND, pb.RangeRequest.ASCEND
        request.sort_order = descend if query.descending else ascend
        request.sort_target = cast(pb.RangeRequest.SortTarget, int(query.sort_by))
    return request


def put_request(put: Put) -> pb.PutRequest:
    """Ask for a key to be set."""
    return pb.PutRequest(
        key=put.key,
        value=put.value or b"",
        lease=put.lease or 0,
        prev_kv=True,
        ignore_value=put.value is None,
        ignore_lease=put.lease is None,
    )


def delete_request(delete: Delete) -> pb.DeleteRangeRequest:
    """Ask for keys to be deleted."""
    return pb.DeleteRangeRequest(key=delete.key, range_end=delete.end, prev_kv=True)


def txn_request(txn: Txn) -> pb.TxnRequest:
    """Ask for a transaction."""
    return pb.TxnRequest(
        compare=map(_compare, txn.compares),
        success=map(_operation, txn.success),
        failure=map(_operation, txn.failure),
    )


def pad(request: pb.TxnRequest) -> None:
    """Have etcd take a transaction for one that writes, with one of nothing at its end."""
    for branch in (request.success, request.failure):
        branch.add().request_txn.SetInParent()


def _compare(compare: Compare) -> pb.Compare:
    target = Target(compare.target)
    request = pb.Compare(
        key=compare.key,
        range_end=compare.end,
        target=cast(pb.Compare.CompareTarget, int(target)),
        result=cast(pb.Compare.CompareResult, int(compare.relation)),
    )
    setattr(request, _OPERANDS[target], compare.operand)
    return request


def _operation(step: Step) -> pb.RequestOp:
    match step:
        case Put():
            return pb.RequestOp(request_put=put_request(step))
        case Delete():
            return pb.RequestOp(request_delete_range=delete_request(step))
        case Range():
            return pb.RequestOp(request_range=range_request(step))
        case Txn():
            return pb.RequestOp(request_txn=txn_request(step))


# Answers.


def pair_of(pair: kv_pb2.KeyValue) -> KeyValue:
    """Give a key as it was."""
    return KeyValue(item_of(pair.SerializeToString(), pair))


def _pairs(found: Sequence[kv_pb2.KeyValue]) -> Sequence[KeyValue]:
    made = found[:]
    return Lazily(OnlyPair if len(made) == 1 else pair_of, made)


def range_result(answer: pb.RangeResponse) -> RangeResult:
    """Give what a range found."""
    revision, pairs = answer.header.revision, _pairs(answer.kvs)
    return RangeResult(revision, pairs, answer.count, answer.more)


def put_result(answer: pb.PutResponse) -> PutResult:
    """Give what a put did."""
    previous = OnlyPair(answer.prev_kv) if answer.HasField("prev_kv") else None
    return PutResult(answer.header.revision, previous)


def delete_result(answer: pb.DeleteRangeResponse) -> DeleteResult:
    """Give what a delete did."""
    return DeleteResult(answer.header.revision, _pairs(answer.prev_kvs))


def txn_result(answer: pb.TxnResponse) -> TxnResult:
    """Give what a transaction did."""
    return _txn_result(answer, answer.header.revision)


def _txn_result(answer: pb.TxnResponse, revision: int) -> TxnResult:
    results = [_step_result(each, revision) for each in answer.responses]
    return TxnResult(revision, answer.succeeded, results)


def _step_result(answer: pb.ResponseOp, revision: int) -> Any:
    match answer.WhichOneof("response"):
        case "response_put":
            return put_result(answer.response_put)
        case "response_delete_range":
            return delete_result(answer.response_delete_range)
        case "response_range":
            return range_result(answer.response_range)
        case "response_txn":  # its header is empty
            return _txn_result(answer.response_txn, revision)
    raise ValueError("an operation of the transaction has no answer")


def event_of(event: kv_pb2.Event) -> Event:
    """Give what happened to a key."""
    pair = event.kv
    is_delete = event.type == kv_pb2.Event.DELETE
    previous = pair_of(event.prev_kv) if event.HasField("prev_kv") else None
    return Event(pair.key, pair.mod_revision, None if is_delete else pair_of(pair), previous)
