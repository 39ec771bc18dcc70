"""What a server says instead of an answer, as the error that an engine in this process raises."""

import re
from typing import Final, NamedTuple

from leasehold.errors import (
    Compacted,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    NoSpace,
    Status,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError

NO_LEADER: Final = "etcdserver: no leader"
_PREFIX: Final = "etcdserver: "
_FULL: Final = re.compile(
    r"lease (-?\d+) has all the keys it may have: at most (\d+), with names of (\d+) bytes"
)


class About(NamedTuple):
    """What a call was about, as far as its refusal would tell."""

    key: bytes = b""
    lease: int = 0
    revision: int = 0
    operations: int = 0
    max_operations: int = 0


NOTHING: Final = About()


def refusal_of(error: RpcError, about: About = NOTHING) -> Exception:
    """Turn what a server said into an error of ours."""
    text = error.message.removeprefix(_PREFIX)
    named = _named(text, about)
    if named is not None:
        return named
    if error.status is Status.RESOURCE_EXHAUSTED and (full := _FULL.search(text)):
        lease, max_keys, max_bytes = map(int, full.groups())
        return LeaseFull(lease, max_keys, max_bytes)
    return as_ours(error)


def _named(text: str, about: About) -> LeaseholdError | None:
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
    return None


def is_leaderless(error: BaseException) -> bool:
    """Say whether a member of a cluster has refused, because it knows of no leader: ask another."""
    return isinstance(error, RpcError) and error.message == NO_LEADER
