"""A checker for histories: is there an order of all operations that explains every answer?

    history = History()
    ...  # clients, in threads, and faults
    with history.call("writer 1", b"key", Put(b"value")) as call:
        answer = calls.put(b"key", b"value")
        call.returned(Written(answer.header.revision))
    ...
    assert (violation := check(history)) is None, violation

A key that something else than a client may delete (a lease that ends) needs an operation for that:
a `Delete` without an answer, invoked as early as it may happen.
"""

from tests.support.linearizability.actions import (
    Action,
    Ask,
    Cas,
    Compare,
    Delete,
    Deleted,
    Get,
    Header,
    ModIs,
    Put,
    Read,
    ValueIs,
    VersionIs,
    Written,
)
from tests.support.linearizability.checker import KeyViolation, check
from tests.support.linearizability.history import Call, History, Operation
from tests.support.linearizability.leases import (
    LeaseEvent,
    LeaseHistory,
    LeaseViolation,
    Restart,
    Stall,
    check_latest_end,
    check_lease,
)
from tests.support.linearizability.models import ABSENT, KeyState, Span
from tests.support.linearizability.revisions import RevisionViolation, check_revisions
from tests.support.linearizability.search import STEPS_MAX, SearchTooLong
from tests.support.linearizability.violation import Violation

__all__ = [
    "ABSENT",
    "STEPS_MAX",
    "Action",
    "Ask",
    "Call",
    "Cas",
    "Compare",
    "Delete",
    "Deleted",
    "Get",
    "Header",
    "History",
    "KeyState",
    "KeyViolation",
    "LeaseEvent",
    "LeaseHistory",
    "LeaseViolation",
    "ModIs",
    "Operation",
    "Put",
    "Read",
    "Restart",
    "RevisionViolation",
    "SearchTooLong",
    "Span",
    "Stall",
    "ValueIs",
    "VersionIs",
    "Violation",
    "Written",
    "check",
    "check_latest_end",
    "check_lease",
    "check_revisions",
]
