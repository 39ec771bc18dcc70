"""What a server says instead of an answer, as the error that an engine in this process raises."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.core.ops import Put, Range, Step, Txn
from leasehold.errors import (
    Compacted,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    NoSpace,
    Status,
    TooLarge,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError

_PREFIX: Final = "etcdserver: "

_USELESS: Final = ("no leader", "server stopped")
"""What a member of a cluster says that has lost the others, or is about to end."""

_OVERDUE: Final = "request timed out"
"""How one begins that may have lost the others; one that is alone is just slow."""

# What a Leasehold server says in its own services: the texts of `errors`.
_SHOWN: Final = "[0-9a-f]{16}|-[0-9a-f]{15,16}"
_SHOWN_LEASE: Final = re.compile(_SHOWN)
"""A lease id as `shown_lease` formats it."""
_LEASE: Final = f"({_SHOWN}|-?[0-9]{{1,19}})"
"""Pattern of a lease id; earlier servers sent it in decimal."""
_EXISTS: Final = re.compile(f"lease {_LEASE} is there already")
_FULL: Final = re.compile(
    rf"lease {_LEASE} has all the keys it may have: at most (\d+), with names of (\d+) bytes"
)
_NO_SPACE: Final = re.compile(r"([\d,]+) bytes are in use, and the quota is ([\d,]+)")
_CAPPED: Final = "the quota was used up, and the alarm that this has raised"
_DENIED: Final = re.compile(r"a (?:grant|term)\b.* was denied: (.*)", re.DOTALL)


class About(NamedTuple):
    """What a call was about, as far as its refusal would tell."""

    key: bytes = b""
    lease: int = 0
    revision: int = 0
    operations: int = 0
    max_operations: int = 0


NOTHING: Final = About()


def refusal_of(error: RpcError, about: About = NOTHING, request_bytes: int = 0) -> Exception:
    """Turn the status of a server into an error of ours.

    `request_bytes` is the size of the request, or 0 if that is not known.
    """
    text = error.message.removeprefix(_PREFIX)
    named = _named(text, about)
    if named is not None:
        return named
    return _worded(error.status, text) or as_ours(error, request_bytes)


def _worded(status: Status, text: str) -> LeaseholdError | None:
    """Read the words of our own server."""
    if status is Status.RESOURCE_EXHAUSTED:
        if full := _FULL.match(text):
            return LeaseFull(_lease_of(full[1]), int(full[2]), int(full[3]))
        if text.startswith(_CAPPED):
            return NoSpace(0, 0)
        if used := _NO_SPACE.match(text):
            return NoSpace(*(int(number.replace(",", "")) for number in used.groups()))
    if status is Status.FAILED_PRECONDITION:
        if exists := _EXISTS.match(text):
            return LeaseExists(_lease_of(exists[1]))
        if denied := _DENIED.match(text):
            return LeaseDenied(denied[1])
    return None


def _lease_of(text: str) -> int:
    """Parse a lease id that `_LEASE` matches; a decimal one of 16 digits is taken for `_SHOWN`."""
    return int(text, 16 if _SHOWN_LEASE.fullmatch(text) else 10)


def _named(text: str, about: About) -> Exception | None:
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


def about_txn(txn: Txn) -> About:
    """Say what a transaction is about: of each kind, the first thing that may not be there."""
    steps = list(_steps((*txn.success, *txn.failure)))
    puts = [step for step in steps if isinstance(step, Put)]
    kept = (put.key for put in puts if put.value is None or put.lease is None)
    leases = (put.lease for put in puts if put.lease)
    revisions = (step.revision for step in steps if isinstance(step, Range) and step.revision)
    return About(next(kept, b""), next(leases, 0), next(revisions, 0))


def _steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Txn):
            yield from _steps((*step.success, *step.failure))
        else:
            yield step


def is_useless(error: BaseException, *, has_others: bool) -> bool:
    """Say whether a server can do nothing for us at present: another, if there is one, may."""
    if not isinstance(error, RpcError) or error.status is not Status.UNAVAILABLE:
        return False
    text = error.message.removeprefix(_PREFIX)
    return text in _USELESS or (has_others and text.startswith(_OVERDUE))
