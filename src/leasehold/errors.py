"""Every error of Leasehold, and the one table that says which errors are final.

    LeaseholdError
    ├── UnknownLease       NOT_FOUND            no such lease here; `reason` says why, if known
    ├── LeaseExists        FAILED_PRECONDITION  a lease of this id is there already
    ├── LeaseLost          FAILED_PRECONDITION  a holder can rely on its lease no longer
    │   ├── SessionExpired FAILED_PRECONDITION  the lease that all locks of a client are under
    │   └── LockLost       FAILED_PRECONDITION  a lock was lost before it was released
    ├── LockDenied         ABORTED              somebody else has it; `holder` says who
    │                                           (also a builtin TimeoutError)
    ├── NotHeld            FAILED_PRECONDITION  what is to be released is not held
    ├── StaleToken         FAILED_PRECONDITION  a resource has seen a higher fencing token
    ├── LeaseFull          RESOURCE_EXHAUSTED   a lease has as many keys as it may have
    ├── UnknownKey         INVALID_ARGUMENT     no such key, and nothing to keep of it
    ├── EmptyKey           INVALID_ARGUMENT     a key has no name
    ├── DuplicateKey       INVALID_ARGUMENT     a transaction changes a key twice
    ├── TooManyOperations  INVALID_ARGUMENT     a transaction is too long
    ├── TooLarge           INVALID_ARGUMENT     a request or its answer exceeds a size limit
    │                                           (also a builtin ValueError)
    ├── Compacted          OUT_OF_RANGE         that revision is forgotten; `revision` is the oldest
    ├── FutureRevision     OUT_OF_RANGE         that revision has yet to come
    ├── NoSpace            RESOURCE_EXHAUSTED   the size quota is used up; deletes still work
    ├── TooBusy            RESOURCE_EXHAUSTED   too much waits for the disk; try again
    ├── HistoryLost        DATA_LOSS            not the keyspace that was there before
    │   └── ClusterMismatch DATA_LOSS           endpoints of a client belong to different clusters
    ├── Unhealthy          ABORTED              a holder's own check says no: no renewal
    ├── LeaseDenied        FAILED_PRECONDITION  the grantor's policy says no
    ├── LeaseBatchError    UNKNOWN              some leases of a batch failed, each with an error
    ├── Closed             FAILED_PRECONDITION  this landlord, manager or engine was closed
    ├── Forked             FAILED_PRECONDITION  this engine belongs to the parent process
    ├── ConnectFailed      UNAVAILABLE          no connection: nothing was sent, nothing is done
    │                                           (also a builtin ConnectionError)
    ├── ConnectionLost     UNAVAILABLE          no answer: what became of the call is unknown
    │                                           (also a builtin ConnectionError)
    ├── CallRefused        FAILED_PRECONDITION  a server says no, for a reason that has no name here
    ├── CallFailed         UNKNOWN              a server could not do it: what became of the call is
    │                                           unknown
    └── StorageError       INTERNAL             the data directory cannot be used
        ├── DirectoryInUse UNAVAILABLE          another process has it
        ├── ForeignJournal FAILED_PRECONDITION  what is there is not ours, or of a newer format
        ├── DamagedJournal DATA_LOSS            what is there is not what was written
        └── JournalFailed  UNAVAILABLE          a write failed: what became of it is unknown

A bad argument is not in the tree: `TypeError` for a wrong type (None included), `ValueError` for a
wrong value, both raised before anything changed.

An error is *definite* if asking again will not help, and *indefinite* if it says nothing about the
future. `is_definite` decides, for our errors by their gRPC status, for others by their type.

Whether a call was executed is another question. `LeaseholdError.not_executed` is True if it
certainly was not; for every other error, `TimeoutError` and `OSError` included, the outcome is
unknown.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from leasehold.lease_ids import shown_lease


class Status(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class EndReason(StrEnum):
    """Why a lease is not there (any more), as far as its grantor knows."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class LeaseholdError(Exception):
    """Base of all errors that Leasehold raises for other reasons than a bad argument."""

    status: ClassVar[Status] = Status.UNKNOWN

    not_executed: bool = False
    """True if the call that raised this has certainly changed nothing, and never will.

    Otherwise the call may have been executed, or may still be."""


class UnknownLease(LeaseholdError):
    """The grantor has no such lease: it expired, was cancelled, or never existed there."""

    status = Status.NOT_FOUND
    not_executed = True

    def __init__(self, lease: object, reason: EndReason = EndReason.UNKNOWN) -> None:
        super().__init__(lease, reason)
        self.lease = lease
        self.reason = reason

    def __str__(self) -> str:
        match self.reason:
            case EndReason.UNKNOWN:
                return (
                    f"no lease {shown_lease(self.lease)} is known here (it never was, or ended "
                    "long ago)"
                )
            case _:
                return f"lease {shown_lease(self.lease)} is over: {self.reason}"


class LeaseExists(LeaseholdError):
    """A lease was to be granted under an id that a live lease has."""

    status = Status.FAILED_PRECONDITION
    not_executed = True

    def __init__(self, lease: int) -> None:
        super().__init__(lease)
        self.lease = lease

    def __str__(self) -> str:
        return (
            f"lease {shown_lease(self.lease)} is there already; take another id, or 0 to have one "
            "chosen"
        )


class LeaseLost(LeaseholdError):
    """A holder can rely on its lease no longer: its end has come, or it ended early."""

    status = Status.FAILED_PRECONDITION

    def __init__(self, lease: object, why: str) -> None:
        super().__init__(lease, why)
        self.lease = lease
        self.why = why

    def __str__(self) -> str:
        return f"lease {shown_lease(self.lease)} is lost: {self.why}"


class SessionExpired(LeaseLost):
    """The session is over: the one lease that all locks of a client are under, and its waiters.

    Whoever waited has lost its place in line, and may ask again.
    """

    status = Status.FAILED_PRECONDITION

    def __str__(self) -> str:
        return f"the session (lease {shown_lease(self.lease)}) is over: {self.why}"


class LockLost(LeaseLost):
    """A lock, or a thing like it, was lost: somebody else may have it by now.

    `name` is its name; `lease` the session's that it was under.
    """

    status = Status.FAILED_PRECONDITION

    def __init__(self, name: str, lease: object, why: str) -> None:
        super().__init__(lease, why)
        self.args = (name, lease, why)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} is lost: {self.why}"


class LockDenied(LeaseholdError, TimeoutError):
    """A lock is held by another guard, and was not released in the time allowed for that.

    `holder` names the client that holds it, as far as that is known; `is_own` is True if that is
    the client which has asked.
    """

    status = Status.ABORTED

    def __init__(
        self, name: str, holder: str = "", waited_s: float = 0.0, is_own: bool = False
    ) -> None:
        super().__init__(name, holder, waited_s, is_own)
        self.name = name
        self.holder = holder
        self.waited_s = waited_s
        self.is_own = is_own

    def __str__(self) -> str:
        who = self.holder or "another client"
        if self.is_own:
            who += ", which is this client (by another guard)"
        if not self.waited_s:
            return f"{self.name!r} is held by {who}"
        return f"{self.name!r} is still held by {who} after {self.waited_s:.3g} s"


class NotHeld(LeaseholdError):
    """What is to be released is not held: it never was, or was released before."""

    status = Status.FAILED_PRECONDITION


class StaleToken(LeaseholdError):
    """A fenced resource has refused a token: it has `seen` a higher one. Nothing was changed.

    Both are `Token`s.
    """

    status = Status.FAILED_PRECONDITION

    def __init__(self, token: tuple[int, int], seen: tuple[int, int], resource: str) -> None:
        super().__init__(token, seen, resource)
        self.token = token
        self.seen = seen
        self.resource = resource

    def __str__(self) -> str:
        return (
            f"{self.resource} refuses token {self.token}, since it has seen {self.seen}: somebody "
            "has got the lock later. Drop what was to be written, acquire the lock again, and "
            "begin anew from what is there then"
        )


class LeaseFull(LeaseholdError):
    """A lease has as many keys as it may have, or their names are too long together."""

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True

    def __init__(self, lease: int, max_keys: int, max_bytes: int) -> None:
        super().__init__(lease, max_keys, max_bytes)
        self.lease = lease
        self.max_keys = max_keys
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return (
            f"lease {shown_lease(self.lease)} has all the keys it may have: at most "
            f"{self.max_keys}, with names of {self.max_bytes} bytes together; spread them over "
            "several leases"
        )


class UnknownKey(LeaseholdError):
    """A key was to keep its value or its lease, and is not there."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"key {self.key!r} is not there, so it has no value and no lease to keep"


class EmptyKey(LeaseholdError):
    """A key has no name."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __str__(self) -> str:
        return "a key has at least one byte; this one is empty"


class DuplicateKey(LeaseholdError):
    """A transaction puts a key twice, or puts and deletes it: all of it has one revision."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"key {self.key!r} is changed twice in one transaction; change it once"


class TooManyOperations(LeaseholdError):
    """A transaction has too many conditions or operations."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __init__(self, operations: int, maximum: int) -> None:
        super().__init__(operations, maximum)
        self.operations = operations
        self.maximum = maximum

    def __str__(self) -> str:
        return (
            f"{self.operations} conditions or operations in a transaction; at most "
            f"{self.maximum} are left at this place, nested ones included"
        )


class TooLarge(LeaseholdError, ValueError):
    """A request, or the answer to it, is larger than a limit that the text names.

    `not_executed` is False if a server has sent an answer that the client does not accept.
    """

    status = Status.INVALID_ARGUMENT
    not_executed = True


class Compacted(LeaseholdError):
    """A revision was asked for that is forgotten.

    `revision` is the oldest that can be read; 0 if an etcd did not say.
    """

    status = Status.OUT_OF_RANGE
    not_executed = True

    def __init__(self, asked_for: int, revision: int) -> None:
        super().__init__(asked_for, revision)
        self.asked_for = asked_for
        self.revision = revision

    def __str__(self) -> str:
        said = f"; the oldest that is kept is {self.revision}" if self.revision else ""
        return f"revision {self.asked_for} was compacted{said}"


class FutureRevision(LeaseholdError):
    """A revision was asked for that has yet to come.

    `revision` is the current one; 0 if an etcd did not say.
    """

    status = Status.OUT_OF_RANGE
    not_executed = True

    def __init__(self, asked_for: int, revision: int) -> None:
        super().__init__(asked_for, revision)
        self.asked_for = asked_for
        self.revision = revision

    def __str__(self) -> str:
        said = f"; the current one is {self.revision}" if self.revision else ""
        return f"revision {self.asked_for} is in the future{said}"


class NoSpace(LeaseholdError):
    """The size quota is used up. Deletes, compaction, revokes and renewals go on."""

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True

    def __init__(self, used_bytes: int, quota_bytes: int) -> None:
        super().__init__(used_bytes, quota_bytes)
        self.used_bytes = used_bytes
        self.quota_bytes = quota_bytes

    def __str__(self) -> str:
        if not self.quota_bytes:  # a server has said so, and no more
            return (
                "the server has used up its quota: delete keys and compact the history, or raise "
                "the quota; then switch off the alarm, such as with `etcdctl alarm disarm`"
            )
        if self.used_bytes <= self.quota_bytes:
            return (
                "the quota was used up, and the alarm that this has raised (NOSPACE) is still on: "
                "there is room again, so switch it off, such as with `etcdctl alarm disarm`"
            )
        return (
            f"{self.used_bytes:,} bytes are in use, and the quota is {self.quota_bytes:,}: delete "
            "keys, compact the history, or raise the quota"
        )


class TooBusy(LeaseholdError):
    """So much waits for the disk that nothing further is taken; trying again later helps.

    A server that is out of some other resource says the same: see `not_executed`.
    """

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True


class HistoryLost(LeaseholdError):
    """What answers is not the keyspace that was there before: another cluster, or an older state.

    Revisions, leases and watches of before mean nothing there. Connect again to begin anew.
    """

    status = Status.DATA_LOSS


class ClusterMismatch(HistoryLost):
    """Two endpoints of a client belong to different clusters, and so have separate lock tables.

    `addresses` and `cluster_ids` have those of the first endpoint and of the other one.
    """

    status = Status.DATA_LOSS

    def __init__(self, addresses: tuple[str, str], cluster_ids: tuple[int, int]) -> None:
        super().__init__(addresses, cluster_ids)
        self.addresses = addresses
        self.cluster_ids = cluster_ids

    def __str__(self) -> str:
        (first, other), (its_id, other_id) = self.addresses, self.cluster_ids
        return (
            f"endpoints belong to different clusters: {first} to {its_id:x}, {other} to "
            f"{other_id:x}; list several endpoints only if they are members of one etcd cluster"
        )


class Unhealthy(LeaseholdError):
    """A lease was not renewed, because the check that its holder has asked for has said no."""

    status = Status.ABORTED


class LeaseDenied(LeaseholdError):
    """The grantor's policy refused the grant or the renewal; a current lease keeps its end."""

    status = Status.FAILED_PRECONDITION
    not_executed = True

    def __init__(self, why: str, *, lease: object = None, requested: object = None) -> None:
        super().__init__(why)
        self.why = why
        self.lease = lease
        self.requested = requested

    def __str__(self) -> str:
        asked = "" if self.requested is None else f" of {self.requested!r}"
        which = "a grant" if self.lease is None else f"a term for lease {shown_lease(self.lease)}"
        return f"{which}{asked} was denied: {self.why}"


class LeaseBatchError(LeaseholdError):
    """Some leases of a batch failed; `failures` maps each of them to its error."""

    status = Status.UNKNOWN

    def __init__(self, failures: Mapping[Any, BaseException]) -> None:
        if not failures:
            raise ValueError("a batch error needs at least one failure")
        self.failures = dict(failures)
        super().__init__(self.failures)

    def __str__(self) -> str:
        lease, error = next(iter(self.failures.items()))
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        return f"{len(self.failures)} of the batch failed; {shown_lease(lease)}: {error}{more}"


class Closed(LeaseholdError):
    """The landlord, renewal manager or engine was closed, and does nothing more."""

    status = Status.FAILED_PRECONDITION


class Forked(LeaseholdError):
    """An engine was used in a child of the process that opened it."""

    status = Status.FAILED_PRECONDITION

    def __init__(self, opened_by: int) -> None:
        super().__init__(opened_by)
        self.opened_by = opened_by

    def __str__(self) -> str:
        return (
            f"this engine was opened by process {self.opened_by}, which still has it: open one "
            "after the fork, or start children with the `spawn` method"
        )


class ConnectFailed(LeaseholdError, ConnectionError):
    """No connection was made; the text says to where, and why. No request was sent.

    So what was asked was *not executed*: to ask again, there or elsewhere, does nothing twice.
    """

    status = Status.UNAVAILABLE
    not_executed = True

    is_refused: bool = False
    """True if every endpoint refused the connection: no process listens there."""


class ConnectionLost(LeaseholdError, ConnectionError):
    """No answer came. The grantor may or may not have done what was asked."""

    status = Status.UNAVAILABLE


class CallRefused(LeaseholdError):
    """A server refused a call, with a status and for a reason that the text says.

    Asking again will not help: it does not know the method, or does not take what was sent.
    """

    status = Status.FAILED_PRECONDITION
    not_executed = True


class CallFailed(LeaseholdError):
    """A server failed in a call, with a status and for a reason that the text says.

    What was asked may or may not have been done, and to ask again may help.
    """

    status = Status.UNKNOWN


class StorageError(LeaseholdError):
    """The data directory cannot be used; the text says why, and what to do about it."""

    status = Status.INTERNAL


class DirectoryInUse(StorageError):
    """Another process has the data directory."""

    status = Status.UNAVAILABLE


class ForeignJournal(StorageError):
    """The file is not a journal, belongs to another program, or has a newer format."""

    status = Status.FAILED_PRECONDITION


class DamagedJournal(StorageError):
    """The journal is not what was written. It was left as it was found."""

    status = Status.DATA_LOSS


class JournalFailed(StorageError):
    """The journal could not be written, and takes no more until it is opened again.

    What was being written may or may not be there then.
    """

    status = Status.UNAVAILABLE


STATUS_IS_DEFINITE: Mapping[Status, bool] = MappingProxyType(
    {
        Status.INVALID_ARGUMENT: True,
        Status.NOT_FOUND: True,
        Status.ALREADY_EXISTS: True,
        Status.FAILED_PRECONDITION: True,
        Status.OUT_OF_RANGE: True,
        Status.UNIMPLEMENTED: True,
        Status.PERMISSION_DENIED: True,
        Status.DATA_LOSS: True,
        Status.UNAVAILABLE: False,
        Status.DEADLINE_EXCEEDED: False,
        Status.RESOURCE_EXHAUSTED: False,
        Status.ABORTED: False,
        Status.CANCELLED: False,
        Status.INTERNAL: False,
        Status.UNKNOWN: False,
        Status.UNAUTHENTICATED: False,
    }
)
"""Which statuses are final. OK is no error and has no place here."""

INDEFINITE_EXCEPTIONS: tuple[type[BaseException], ...] = (OSError, TimeoutError, EOFError)
"""Exceptions of input and output: the next attempt may well succeed."""


def is_definite(error: BaseException) -> bool:
    """Say whether `error` is final (True), or says nothing about the next attempt (False).

    An exception that is neither ours nor one of I/O comes from the program itself, and will come
    again. What is not an `Exception` (a cancelled task, an interrupt) is about the caller. A group
    is as definite as its worst member.
    """
    if isinstance(error, LeaseholdError):
        return STATUS_IS_DEFINITE.get(error.status, False)
    if isinstance(error, BaseExceptionGroup):
        return any(is_definite(each) for each in error.exceptions)
    return isinstance(error, Exception) and not isinstance(error, INDEFINITE_EXCEPTIONS)
