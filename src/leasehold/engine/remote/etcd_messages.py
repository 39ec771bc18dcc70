"""Conversion of an engine's requests to etcd's messages, and of their answers to results.

A get or a put of one key, the two most frequent calls, is written by hand: the same bytes as those
of protobuf, in a fraction of the time that it takes to build a message from Python. The only pair
of an answer is not decoded before it is used.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from leasehold.engine.values import (
    DeleteResult,
    Event,
    KeyValue,
    LazySequence,
    PutResult,
    RangeResult,
    TxnResult,
)
from leasehold.journal.records import item_of
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import Compare, Delete, Put, Range, SortBy, Step, Target, Txn
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.codec import varint

_OPERANDS: Final = ("version", "create_revision", "mod_revision", "value", "lease")
"""The fields of the operands of a comparison, in the order of the targets."""

# Requests.


def get_message(key: bytes) -> bytes:
    """Encode a `RangeRequest` for the latest revision of one key."""
    return b"\x0a%b%b" % (varint(len(key)), key)


def put_message(key: bytes, value: bytes | None, lease: int | None) -> bytes:
    """Encode a `PutRequest` that returns the previous pair; None keeps the key's value or lease."""
    return b"\x0a%b%b%b%b\x20\x01%b%b" % (
        varint(len(key)),
        key,
        b"\x12%b%b" % (varint(len(value)), value) if value else b"",
        b"\x18" + varint(lease) if lease else b"",
        b"\x28\x01" if value is None else b"",
        b"\x30\x01" if lease is None else b"",
    )


class OnlyPair(KeyValue):
    """The only pair of an answer, unpacked when it is needed."""

    __slots__ = ("_pair",)

    def __init__(self, pair: kv_pb2.KeyValue) -> None:
        self._pair = pair

    @property
    def key(self) -> bytes:
        """The key."""
        return self._pair.key

    @property
    def value(self) -> bytes:
        """The value."""
        return self._pair.value

    def __getattr__(self, name: str) -> Item:
        """Make the item, the first time that another attribute is used."""
        if name != "_item":
            raise AttributeError(f"a KeyValue has no {name!r}", name=name, obj=self)
        item = self._item = item_of(self._pair.SerializeToString(), self._pair)
        return item


def range_request(query: Range) -> pb.RangeRequest:
    """Return the request of a range."""
    request = pb.RangeRequest(
        key=query.key,
        range_end=query.end,
        revision=query.revision,
        limit=query.limit,
        keys_only=query.keys_only,
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
    """Return the request of a put."""
    return pb.PutRequest(
        key=put.key,
        value=put.value or b"",
        lease=put.lease or 0,
        prev_kv=True,
        ignore_value=put.value is None,
        ignore_lease=put.lease is None,
    )


def delete_request(delete: Delete) -> pb.DeleteRangeRequest:
    """Return the request of a delete."""
    return pb.DeleteRangeRequest(key=delete.key, range_end=delete.end, prev_kv=delete.prev_kv)


def txn_request(txn: Txn) -> pb.TxnRequest:
    """Return the request of a transaction."""
    return pb.TxnRequest(
        compare=map(_compare, txn.compares),
        success=map(_operation, txn.success),
        failure=map(_operation, txn.failure),
    )


def pad(request: pb.TxnRequest) -> None:
    """Add an empty transaction to each branch, so that etcd takes the transaction for a write."""
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
    """Convert a key."""
    return KeyValue(item_of(pair.SerializeToString(), pair))


def _pairs(found: Sequence[kv_pb2.KeyValue]) -> Sequence[KeyValue]:
    made = found[:]
    return LazySequence(OnlyPair if len(made) == 1 else pair_of, made)


def range_result(answer: pb.RangeResponse) -> RangeResult:
    """Convert the answer to a range."""
    revision, pairs = answer.header.revision, _pairs(answer.kvs)
    return RangeResult(revision, pairs, answer.count, answer.more)


def put_result(answer: pb.PutResponse) -> PutResult:
    """Convert the answer to a put."""
    previous = OnlyPair(answer.prev_kv) if answer.HasField("prev_kv") else None
    return PutResult(answer.header.revision, previous)


def delete_result(answer: pb.DeleteRangeResponse) -> DeleteResult:
    """Convert the answer to a delete."""
    return DeleteResult(answer.header.revision, answer.deleted, _pairs(answer.prev_kvs))


def txn_result(answer: pb.TxnResponse) -> TxnResult:
    """Convert the answer to a transaction."""
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
    """Convert an event."""
    pair = event.kv
    is_delete = event.type == kv_pb2.Event.DELETE
    previous = pair_of(event.prev_kv) if event.HasField("prev_kv") else None
    return Event(pair.key, pair.mod_revision, None if is_delete else pair_of(pair), previous)
