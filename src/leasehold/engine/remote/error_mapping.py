"""Maps the status of a server to the error that an engine in this process raises.

A Leasehold server sends the error as structured details (`grpc.error_details`). An etcd sends a
status and a text; texts that have an error of ours are matched here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.errors import (
    Compacted,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    LeaseExists,
    NoSpace,
    Status,
    TooLarge,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.keyspace.operations import Put, Range, Step, Txn

_PREFIX: Final = "etcdserver: "

_USELESS: Final = ("no leader", "server stopped")
"""Messages of a member of a cluster that has lost the others, or is about to stop."""

_OVERDUE: Final = "request timed out"
"""The start of the message of one that may have lost the others; a single one is just slow."""


class CallArguments(NamedTuple):
    """The arguments of a call, as far as the error for its refusal needs them."""

    key: bytes = b""
    lease: int = 0
    revision: int = 0
    operations: int = 0
    max_operations: int = 0

    def fields(self) -> dict[str, object]:
        """Return the arguments that are not empty, by the names of the errors' fields."""
        names = ("key", "lease", "asked_for", "operations", "maximum")
        return {name: value for name, value in zip(names, self, strict=True) if value}


NOTHING: Final = CallArguments()


def refusal_of(
    error: RpcError, about: CallArguments = NOTHING, request_bytes: int = 0
) -> Exception:
    """Return the error of ours for the status of a server: by its details, or by etcd's text.

    `request_bytes` is the size of the request, or 0 if that is not known.
    """
    if error.detail is None:
        named = _named(error.message.removeprefix(_PREFIX), about)
        if named is not None:
            return named
    return as_ours(error, request_bytes, about.fields())


def _named(text: str, about: CallArguments) -> Exception | None:
    match text:
        case "requested lease not found":
            return UnknownLease(about.lease)
        case "lease already exists":
            return LeaseExists(about.lease)
        case "key not found":
            return UnknownKey(about.key)
        case "key is not provided":
            return EmptyKey()
        case "duplicate key given in txn request":
            return DuplicateKey(about.key)
        case "too many operations in txn request":
            return TooManyOperations(about.operations, about.max_operations)
        case "mvcc: required revision has been compacted":
            return Compacted(about.revision, 0)
        case "mvcc: required revision is a future revision":
            return FutureRevision(about.revision, 0)
        case "mvcc: database space exceeded":
            return NoSpace(0, 0)
        case "request is too large":
            return TooLarge("request is larger than the server accepts; divide it into several")
    return None


def about_txn(txn: Txn) -> CallArguments:
    """Return the subject of a transaction: of each kind, the first thing that may not exist."""
    steps = list(_steps((*txn.success, *txn.failure)))
    puts = [step for step in steps if isinstance(step, Put)]
    kept = (put.key for put in puts if put.value is None or put.lease is None)
    leases = (put.lease for put in puts if put.lease)
    revisions = (step.revision for step in steps if isinstance(step, Range) and step.revision)
    return CallArguments(next(kept, b""), next(leases, 0), next(revisions, 0))


def _steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Txn):
            yield from _steps((*step.success, *step.failure))
        else:
            yield step


def is_useless(error: BaseException, *, has_others: bool) -> bool:
    """Return whether a server is of no use at present: another, if there is one, may be."""
    if not isinstance(error, RpcError) or error.status is not Status.UNAVAILABLE:
        return False
    text = error.message.removeprefix(_PREFIX)
    return text in _USELESS or (has_others and text.startswith(_OVERDUE))
