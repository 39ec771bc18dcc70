"""What counts as the same answer: everything but what etcd does not define.

- the order of those that are equal in what they are sorted by, and of the keys of a lease;
- how many seconds are left of a term, and the ids that a server chooses;
- the details of why bytes are no message;
- what was before a revision that was compacted meanwhile, and what the compacted revision deleted:
  etcd looks both up when it gets around to telling a lagging watch, and finds them or not.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.kv_pb2 import Event, KeyValue
from tests.conformance.random_calls import LEASES

NO_MESSAGE: Final = "grpc: error unmarshalling request:"
SHOWN_CHARS: Final = 1_500
_SORTED_BY: Final = {
    pb.RangeRequest.VERSION: "version",
    pb.RangeRequest.CREATE: "create_revision",
    pb.RangeRequest.MOD: "mod_revision",
}


class Refusal(NamedTuple):
    """An error: its code, and its text."""

    code: str
    text: str


def comparable(request: Any, answer: Any) -> Any:
    """Give an answer without what is not defined."""
    if isinstance(answer, Refusal):
        is_broken = answer.text.startswith(NO_MESSAGE)
        return Refusal(answer.code, NO_MESSAGE) if is_broken else answer
    if isinstance(answer, pb.RangeResponse):
        _order_equals(answer.kvs, request)
    elif isinstance(answer, pb.TxnResponse):
        _order_equals_within(answer, request)
    elif isinstance(answer, pb.LeaseTimeToLiveResponse):
        answer.keys[:] = sorted(answer.keys)
        answer.TTL = min(answer.TTL, 0)
    elif isinstance(answer, pb.LeaseGrantResponse) and not request.ID:
        assert answer.ID > 0, "chosen by the server"
        answer.ID = 0
    elif isinstance(answer, pb.LeaseLeasesResponse):
        known = [lease for lease in answer.leases if lease.ID in LEASES]
        del answer.leases[:]
        answer.leases.extend(known)
    return answer


def _order_equals(kvs: Any, request: pb.RangeRequest) -> None:
    """Put those in the order of their keys that the request has no order for."""
    field = _SORTED_BY.get(request.sort_target)
    if field is None:
        return
    groups = groupby(kvs, key=lambda kv: getattr(kv, field))
    ordered: list[KeyValue] = [
        kv for _, group in groups for kv in sorted(group, key=lambda kv: kv.key)
    ]
    del kvs[:]
    kvs.extend(ordered)


def _order_equals_within(answer: pb.TxnResponse, request: pb.TxnRequest) -> None:
    steps = request.success if answer.succeeded else request.failure
    for step, response in zip(steps, answer.responses, strict=True):
        if step.HasField("request_range"):
            _order_equals(response.response_range.kvs, step.request_range)
        elif step.HasField("request_txn"):
            _order_equals_within(response.response_txn, step.request_txn)


def comparable_events(events: Iterable[Event], compacted: set[int]) -> list[Event]:
    """Give events without what is not defined if these revisions were compacted meanwhile."""
    last = max(compacted, default=0)
    kept: list[Event] = []
    for event in events:
        revision = event.kv.mod_revision
        if event.type == Event.DELETE and revision in compacted:
            continue
        if revision <= last:
            event = Event(type=event.type, kv=event.kv)  # noqa: PLW2901  the same, less
        kept.append(event)
    return kept


def text_of(what: Any) -> str:
    """Show anything in one line."""
    if isinstance(what, Message):
        shown = MessageToString(what, as_one_line=True)
    elif isinstance(what, list):
        shown = f"[{', '.join(text_of(each) for each in what)}]"
    else:
        shown = str(what)
    return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]} ..."
