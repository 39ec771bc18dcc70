"""What a store gives, as an engine gives it."""

from typing import Any

from leasehold.core.ops import Deleted, Found, Outcome
from leasehold.engine.lazily import Lazily
from leasehold.engine.values import (
    DeleteResult,
    KeyValue,
    PutResult,
    RangeResult,
    TxnResult,
    pair_or_none,
)


def delete_result(deleted: Deleted) -> DeleteResult:
    """Give what a delete did."""
    return DeleteResult(deleted.revision, Lazily(KeyValue, deleted.previous))


def range_result(found: Found) -> RangeResult:
    """Give what a range found."""
    return RangeResult(found.revision, Lazily(KeyValue, found.items), found.total, found.more)


def txn_result(outcome: Outcome) -> TxnResult:
    """Give what a transaction did."""
    results = [_step_result(result) for result in outcome.results]
    return TxnResult(outcome.revision, outcome.succeeded, results)


def _step_result(result: Any) -> PutResult | DeleteResult | RangeResult | TxnResult:
    match result:
        case Outcome():
            return txn_result(result)
        case Deleted():
            return delete_result(result)
        case Found():
            return range_result(result)
        case (int(revision), previous):
            return PutResult(revision, pair_or_none(previous))
    raise AssertionError(f"no step gives {result!r}")
