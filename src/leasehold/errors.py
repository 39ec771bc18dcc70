"""All errors of Leasehold, and the one table of which errors are final.

    LeaseholdError
    ├── UnknownLease       NOT_FOUND            no such lease; `reason` is why, if known
    ├── NoSuchObject       NOT_FOUND            a leased object of a service has ended
    ├── ShardLost          UNAVAILABLE          no server serves this shard now; retry
    ├── LeaseExists        FAILED_PRECONDITION  a lease with this id already exists
    ├── LeaseLost          FAILED_PRECONDITION  a holder cannot rely on its lease any more
    │   ├── SessionExpired FAILED_PRECONDITION  the lease of all locks of a client is over
    │   └── LockLost       FAILED_PRECONDITION  a lock was lost before it was released
    ├── LockDenied         ABORTED              the lock is held; `holder` is its holder
    │                                           (also a builtin TimeoutError)
    ├── NotHeld            FAILED_PRECONDITION  a lock to be released is not held
    ├── StaleToken         FAILED_PRECONDITION  a resource has seen a higher fencing token
    ├── LeaseFull          RESOURCE_EXHAUSTED   a lease has the maximum number of keys
    ├── UnknownKey         INVALID_ARGUMENT     no such key, so nothing to keep of it
    ├── EmptyKey           INVALID_ARGUMENT     a key is empty
    ├── DuplicateKey       INVALID_ARGUMENT     a transaction changes a key twice
    ├── TooManyOperations  INVALID_ARGUMENT     a transaction has too many operations
    ├── TooLarge           INVALID_ARGUMENT     a request or its answer exceeds a size limit
    │                                           (also a builtin ValueError)
    ├── Compacted          OUT_OF_RANGE         compacted; `revision` is the oldest available
    ├── FutureRevision     OUT_OF_RANGE         the revision is in the future
    ├── NoSpace            RESOURCE_EXHAUSTED   the size quota is exhausted; deletes still work
    ├── TooBusy            RESOURCE_EXHAUSTED   too much waits for the disk; retry later
    ├── HistoryLost        DATA_LOSS            not the same keyspace as before
    │   └── ClusterMismatch DATA_LOSS           endpoints of a client belong to different clusters
    ├── Unhealthy          ABORTED              the holder's health check failed: no renewal
    ├── LeaseDenied        FAILED_PRECONDITION  the grantor's policy refused
    ├── UnsupportedOperation FAILED_PRECONDITION an operation that this object does not have
    ├── LeaseBatchError    UNKNOWN              some leases of a batch failed, each with an error
    ├── Closed             FAILED_PRECONDITION  this landlord, manager or engine was closed
    ├── Forked             FAILED_PRECONDITION  this engine belongs to the parent process
    ├── ConnectFailed      UNAVAILABLE          no connection: nothing was sent or executed
    │                                           (also a builtin ConnectionError)
    ├── ConnectionLost     UNAVAILABLE          no answer: the outcome of the call is unknown
    │                                           (also a builtin ConnectionError)
    ├── CallRefused        FAILED_PRECONDITION  a server refused, for a reason without a class here
    ├── CallFailed         UNKNOWN              a server failed: the outcome of the call is unknown
    ├── PermissionDenied   PERMISSION_DENIED    the operator of the server does not allow it
    ├── RemoteError        UNKNOWN              an error of another process, without a class here
    ├── LeaseUnmarshalError FAILED_PRECONDITION some leases of a renewal set cannot be decoded
    ├── LookupUnmarshalError FAILED_PRECONDITION some registrars cannot be decoded
    ├── FilesError         UNKNOWN              a single-writer file; `path` is its path
    │   ├── FileNotFound   NOT_FOUND            no such file (also a builtin FileNotFoundError)
    │   ├── FileExists     ALREADY_EXISTS       it exists already (also a builtin FileExistsError)
    │   ├── NotADirectory  FAILED_PRECONDITION  a file, not a directory (also NotADirectoryError)
    │   ├── IsADirectory   FAILED_PRECONDITION  a directory, not a file (also IsADirectoryError)
    │   ├── DirectoryNotEmpty FAILED_PRECONDITION a directory to be removed has entries
    │   ├── FileAlreadyOpen ABORTED             another writer has it open; `holder` is its holder
    │   ├── RecoveryInProgress ABORTED          its lease is being recovered; retry later
    │   ├── LeaseExpired   FAILED_PRECONDITION  the writer's lease was lost or taken over
    │   ├── TooFewReplicas UNAVAILABLE          too few replica stores can be written
    │   └── FileDamaged    DATA_LOSS            no replica has the flushed data
    └── StorageError       INTERNAL             the data directory cannot be used
        ├── DirectoryInUse UNAVAILABLE          another process uses it
        ├── ForeignJournal FAILED_PRECONDITION  the file is not ours, or of a newer format
        ├── DamagedJournal DATA_LOSS            the content differs from what was written
        └── JournalFailed  UNAVAILABLE          a write failed: its outcome is unknown

A bad argument is not in the tree: `TypeError` for a wrong type (None included), `ValueError` for a
wrong value, both raised before anything changed.

An error is *definite* if a retry will not help, and *indefinite* if a retry may succeed.
`is_definite` decides, for our errors by their gRPC status, for others by their type.

Whether a call was executed is another question. `LeaseholdError.not_executed` is True if it
certainly was not; for every other error, `TimeoutError` and `OSError` included, the outcome is
unknown.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from errno import EEXIST, EISDIR, ENOENT, ENOTDIR
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar, cast

from leasehold.basics.lease_ids import shown_lease

E = TypeVar("E", bound=BaseException)


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
    """Why a lease does not exist (any more), as far as its grantor has recorded it."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class LeaseholdError(Exception):
    """Base of all errors of Leasehold except those for bad arguments."""

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
                    f"lease {shown_lease(self.lease)} does not exist (it may have ended long ago)"
                )
            case _:
                return f"lease {shown_lease(self.lease)} has ended: {self.reason}"


MAX_SHOWN_ID: Final = 64
"""Characters of an id that an error shows."""


class NoSuchObject(LeaseholdError):
    """A service has no such object: its lease has ended, or it never existed.

    `service` is the name of the service, such as `renewal`, and `id` that of the object. This does
    not mean that the service is gone.
    """

    status = Status.NOT_FOUND
    not_executed = True

    def __init__(self, service: str, id: str) -> None:  # noqa: A002  the name of the attribute
        super().__init__(service, id)
        self.service = service
        self.id = id

    def __str__(self) -> str:
        shown = self.id if len(self.id) <= MAX_SHOWN_ID else self.id[:MAX_SHOWN_ID] + "..."
        return f"service {self.service} has no object {shown!r} (its lease may have ended)"


class ShardLost(LeaseholdError):
    """The server does not serve this shard, the part of a service's objects that is needed here.

    Another server is about to take it over, or it is still being loaded. A later retry helps.
    """

    status = Status.UNAVAILABLE
    not_executed = True

    def __init__(self, shard: int, why: str) -> None:
        super().__init__(shard, why)
        self.shard = shard
        self.why = why

    def __str__(self) -> str:
        return f"shard {self.shard:02x} is not served here: {self.why}"


class LeaseExists(LeaseholdError):
    """A lease was to be granted with the id of a live lease."""

    status = Status.FAILED_PRECONDITION
    not_executed = True

    def __init__(self, lease: int) -> None:
        super().__init__(lease)
        self.lease = lease

    def __str__(self) -> str:
        return (
            f"lease {shown_lease(self.lease)} already exists; use another id, or 0 to let the "
            "server choose one"
        )


class LeaseLost(LeaseholdError):
    """A holder cannot rely on its lease any more: its end has passed, or it ended early."""

    status = Status.FAILED_PRECONDITION

    def __init__(self, lease: object, why: str) -> None:
        super().__init__(lease, why)
        self.lease = lease
        self.why = why

    def __str__(self) -> str:
        return f"lease {shown_lease(self.lease)} is lost: {self.why}"


class SessionExpired(LeaseLost):
    """The session is over: the one lease of all locks of a client, and of its waiters.

    A waiter has lost its place in the queue, and may try again.
    """

    status = Status.FAILED_PRECONDITION

    def __str__(self) -> str:
        return f"the session (lease {shown_lease(self.lease)}) is over: {self.why}"


class LockLost(LeaseLost):
    """A lock or similar was lost: it may have another holder by now.

    `name` is its name; `lease` is the lease of its session.
    """

    status = Status.FAILED_PRECONDITION

    def __init__(self, name: str, lease: object, why: str) -> None:
        super().__init__(lease, why)
        self.args = (name, lease, why)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} is lost: {self.why}"


class LockDenied(LeaseholdError, TimeoutError):
    """A lock is held by another guard, and was not released within the timeout.

    `holder` names the client that holds it, if that is known; `is_own` is True if that is the
    client that made the request.
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
            who += " (this client, through another guard)"
        if not self.waited_s:
            return f"{self.name!r} is held by {who}"
        return f"{self.name!r} is still held by {who} after {self.waited_s:.3g} s"


class NotHeld(LeaseholdError):
    """A lock to be released is not held: it never was, or was released before."""

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
            f"{self.resource} refused token {self.token}: it has already seen the higher token "
            f"{self.seen}, so another holder has acquired the lock since; discard this write, "
            "acquire the lock again and start over from the current state"
        )


class LeaseFull(LeaseholdError):
    """A lease has the maximum number of keys, or their names are too long in total."""

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True

    def __init__(self, lease: int, max_keys: int, max_bytes: int) -> None:
        super().__init__(lease, max_keys, max_bytes)
        self.lease = lease
        self.max_keys = max_keys
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return (
            f"lease {shown_lease(self.lease)} has the maximum number of keys: {self.max_keys}, "
            f"with names of {self.max_bytes} bytes in total; use several leases"
        )


class UnknownKey(LeaseholdError):
    """A key was to keep its value or its lease, and does not exist."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"key {self.key!r} does not exist, so it has no value or lease to keep"


class EmptyKey(LeaseholdError):
    """A key is empty."""

    status = Status.INVALID_ARGUMENT
    not_executed = True

    def __str__(self) -> str:
        return "key must not be empty"


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
            f"transaction has {self.operations} conditions or operations; at most {self.maximum} "
            "are allowed here, including nested ones"
        )


class TooLarge(LeaseholdError, ValueError):
    """A request, or the answer to it, is larger than the limit given in the message.

    `not_executed` is False if a server has sent an answer that the client does not accept.
    """

    status = Status.INVALID_ARGUMENT
    not_executed = True


class Compacted(LeaseholdError):
    """The requested revision was compacted.

    `revision` is the oldest that can be read; 0 if an etcd server did not report it.
    """

    status = Status.OUT_OF_RANGE
    not_executed = True

    def __init__(self, asked_for: int, revision: int) -> None:
        super().__init__(asked_for, revision)
        self.asked_for = asked_for
        self.revision = revision

    def __str__(self) -> str:
        detail = f"; the oldest available revision is {self.revision}" if self.revision else ""
        return f"revision {self.asked_for} was compacted{detail}"


class FutureRevision(LeaseholdError):
    """The requested revision is in the future.

    `revision` is the current one; 0 if an etcd server did not report it.
    """

    status = Status.OUT_OF_RANGE
    not_executed = True

    def __init__(self, asked_for: int, revision: int) -> None:
        super().__init__(asked_for, revision)
        self.asked_for = asked_for
        self.revision = revision

    def __str__(self) -> str:
        detail = f"; the current revision is {self.revision}" if self.revision else ""
        return f"revision {self.asked_for} is in the future{detail}"


class NoSpace(LeaseholdError):
    """The size quota is exhausted. Deletes, compaction, revokes and renewals still work."""

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True

    def __init__(self, used_bytes: int, quota_bytes: int) -> None:
        super().__init__(used_bytes, quota_bytes)
        self.used_bytes = used_bytes
        self.quota_bytes = quota_bytes

    def __str__(self) -> str:
        if not self.quota_bytes:  # reported by a server, without numbers
            return (
                "the quota of the server is exhausted: delete keys and compact the history, or "
                "raise the quota; then disarm the alarm, such as with `etcdctl alarm disarm`"
            )
        if self.used_bytes <= self.quota_bytes:
            return (
                "the NOSPACE alarm is still raised, although there is space again: disarm it, such "
                "as with `etcdctl alarm disarm`"
            )
        return (
            f"the quota is exhausted: {self.used_bytes:,} of {self.quota_bytes:,} bytes are used; "
            "delete keys, compact the history, or raise the quota"
        )


class TooBusy(LeaseholdError):
    """Too much waits for the disk to accept anything further; a later retry helps.

    A server that has run out of another resource raises the same error: see `not_executed`.
    """

    status = Status.RESOURCE_EXHAUSTED
    not_executed = True


class HistoryLost(LeaseholdError):
    """The server has another keyspace than before: another cluster, or an older state.

    Earlier revisions, leases and watches are not valid there. Connect again to start over.
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
    """A lease was not renewed, because the health check of its holder has failed."""

    status = Status.ABORTED


class UnsupportedOperation(LeaseholdError):
    """The object does not have this operation in its present state. Nothing was changed.

    Such as adding a group where all groups are wanted.
    """

    status = Status.FAILED_PRECONDITION
    not_executed = True


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
    """The landlord, renewal manager or engine was closed, and accepts no more calls."""

    status = Status.FAILED_PRECONDITION


class Forked(LeaseholdError):
    """An engine was used in a child of the process that opened it."""

    status = Status.FAILED_PRECONDITION

    def __init__(self, opened_by: int) -> None:
        super().__init__(opened_by)
        self.opened_by = opened_by

    def __str__(self) -> str:
        return (
            f"this engine was opened in process {self.opened_by}: open another one "
            "after the fork, or start children with the `spawn` method"
        )


class ConnectFailed(LeaseholdError, ConnectionError):
    """No connection was made; the message has the address and the reason. No request was sent.

    So the request was *not executed*: a retry, there or elsewhere, cannot execute it twice.
    """

    status = Status.UNAVAILABLE
    not_executed = True

    is_refused: bool = False
    """True if every endpoint refused the connection: no process listens there."""


class ConnectionLost(LeaseholdError, ConnectionError):
    """No answer was received. The grantor may or may not have executed the request."""

    status = Status.UNAVAILABLE


class CallRefused(LeaseholdError):
    """A server refused a call, with the status and the reason given in the message.

    A retry will not help: the server does not have the method, or does not accept the request.
    """

    status = Status.FAILED_PRECONDITION
    not_executed = True


class CallFailed(LeaseholdError):
    """A server failed in a call, with the status and the reason given in the message.

    The request may or may not have been executed, and a retry may help.
    """

    status = Status.UNKNOWN


class PermissionDenied(LeaseholdError):
    """The configuration of a server does not allow the call; the message has the option."""

    status = Status.PERMISSION_DENIED
    not_executed = True


class RemoteError(LeaseholdError):
    """An error of another process, whose class this version does not have.

    `class_name`, `remote_status` and `message` are those of the error.
    """

    status = Status.UNKNOWN

    def __init__(self, class_name: str, remote_status: int, message: str) -> None:
        super().__init__(class_name, remote_status, message)
        self.class_name = class_name
        self.remote_status = remote_status
        self.message = message

    def __str__(self) -> str:
        return f"{self.class_name}: {self.message}" if self.class_name else self.message


def _check_pairs(marshalled: Sequence[bytes], exceptions: Sequence[BaseException]) -> None:
    if len(marshalled) != len(exceptions):
        raise ValueError(
            "marshalled and exceptions must have the same length, got "
            f"{len(marshalled)} and {len(exceptions)}"
        )


class LeaseUnmarshalError(LeaseholdError):
    """Some members of a renewal set cannot be decoded here.

    `leases` has the others. `marshalled` has the bytes of each that cannot be decoded, and
    `exceptions` the reasons, in the same order.
    """

    status = Status.FAILED_PRECONDITION

    def __init__(
        self,
        leases: Sequence[Any],
        marshalled: Sequence[bytes],
        exceptions: Sequence[BaseException],
    ) -> None:
        _check_pairs(marshalled, exceptions)
        super().__init__(leases, marshalled, exceptions)
        self.leases = list(leases)
        self.marshalled = list(marshalled)
        self.exceptions = list(exceptions)

    def __str__(self) -> str:
        first = f"; the first: {self.exceptions[0]}" if self.exceptions else ""
        return f"{len(self.marshalled)} leases of the set cannot be decoded{first}"


class LookupUnmarshalError(LeaseholdError):
    """Some registrars cannot be decoded here.

    `registrars` has the others. `marshalled` has the bytes of each that cannot be decoded, and
    `exceptions` the reasons, in the same order. `message` is a text of the caller, or None.
    """

    status = Status.FAILED_PRECONDITION

    def __init__(
        self,
        registrars: Sequence[Any],
        marshalled: Sequence[bytes],
        exceptions: Sequence[BaseException],
        message: str | None = None,
    ) -> None:
        _check_pairs(marshalled, exceptions)
        super().__init__(registrars, marshalled, exceptions, message)
        self.registrars = list(registrars)
        self.marshalled = list(marshalled)
        self.exceptions = list(exceptions)
        self.message = message

    def __str__(self) -> str:
        first = f"; the first: {self.exceptions[0]}" if self.exceptions else ""
        text = f"{len(self.marshalled)} registrars cannot be decoded{first}"
        return text if self.message is None else f"{self.message}: {text}"


class FilesError(LeaseholdError):
    """Base of the errors of single-writer files. `path` is the path of the file or directory."""

    status = Status.UNKNOWN

    def __init__(self, path: str, why: str = "") -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    _text: ClassVar[str] = "the operation failed"

    def __str__(self) -> str:
        return f"{self.path!r}: {self.why or self._text}"


class FileNotFound(FilesError, FileNotFoundError):
    """There is no such file or directory, or it was deleted or replaced while it was open."""

    status = Status.NOT_FOUND
    _text = "no such file or directory"
    errno = ENOENT
    strerror = _text


class FileExists(FilesError, FileExistsError):
    """A file or directory with this path exists already."""

    status = Status.ALREADY_EXISTS
    _text = "the path exists already"
    errno = EEXIST
    strerror = _text


class NotADirectory(FilesError, NotADirectoryError):
    """A path that must name a directory, or goes through one, names a file."""

    status = Status.FAILED_PRECONDITION
    _text = "is a file, not a directory"
    errno = ENOTDIR
    strerror = _text


class IsADirectory(FilesError, IsADirectoryError):
    """A path that must name a file names a directory."""

    status = Status.FAILED_PRECONDITION
    _text = "is a directory, not a file"
    errno = EISDIR
    strerror = _text


class DirectoryNotEmpty(FilesError):
    """A directory to be deleted or replaced has entries."""

    status = Status.FAILED_PRECONDITION
    _text = "the directory is not empty; use recursive=True to delete it with its contents"


class FileAlreadyOpen(FilesError):
    """Another writer has the file open, and its lease is valid.

    `holder` is the id of its holder; `is_own` is True if that is the client that made the call.
    """

    status = Status.ABORTED

    def __init__(self, path: str, holder: str, is_own: bool = False) -> None:
        super().__init__(path, "")
        self.args = (path, holder, is_own)
        self.holder = holder
        self.is_own = is_own

    def __str__(self) -> str:
        who = "this client" if self.is_own else self.holder
        return f"{self.path!r} is already open for writing by {who}"


class RecoveryInProgress(FilesError):
    """The lease of a file is being recovered: the file will be closed. Retry later.

    `is_own` is True if the client that made the call recovers it: if that client is closed before
    the end, the next one begins again.
    """

    status = Status.ABORTED
    _text = "a lease recovery is in progress; retry later"

    def __init__(self, path: str, why: str = "", is_own: bool = False) -> None:
        super().__init__(path, why)
        self.args = (path, why, is_own)
        self.is_own = is_own


class LeaseExpired(FilesError):
    """A writer has lost the lease of its file. Data that it has not flushed may be lost."""

    status = Status.FAILED_PRECONDITION
    _text = "the writer's lease has expired"


class TooFewReplicas(FilesError):
    """Fewer replica stores than a flush needs can be written. The file stays open; retry later."""

    status = Status.UNAVAILABLE
    _text = "too few replica stores can be written"


class FileDamaged(FilesError):
    """No replica has the flushed data with its checksums, or a key of the file is damaged."""

    status = Status.DATA_LOSS
    _text = "no replica has the flushed data"


class StorageError(LeaseholdError):
    """The data directory cannot be used; the message has the reason and the remedy."""

    status = Status.INTERNAL


class DirectoryInUse(StorageError):
    """Another process uses the data directory."""

    status = Status.UNAVAILABLE


class ForeignJournal(StorageError):
    """The file is not a journal, belongs to another program, or has a newer format."""

    status = Status.FAILED_PRECONDITION


class DamagedJournal(StorageError):
    """The journal differs from what was written. It was left unchanged."""

    status = Status.DATA_LOSS


class JournalFailed(StorageError):
    """The journal could not be written, and accepts no writes until it is opened again.

    The data of the failed write may or may not be there then.
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
"""Which statuses are final. OK is not an error and not included."""

INDEFINITE_EXCEPTIONS: tuple[type[BaseException], ...] = (OSError, TimeoutError, EOFError)
"""Exceptions of input and output: the next attempt may well succeed."""


def is_definite(error: BaseException) -> bool:
    """Return whether `error` is final (True), or the next attempt may succeed (False).

    An exception that is neither ours nor one of I/O comes from the program itself, and will occur
    again. Other than `Exception`s (a cancelled task, an interrupt) are about the caller. A group is
    as definite as its worst member.
    """
    if isinstance(error, LeaseholdError):
        return STATUS_IS_DEFINITE.get(error.status, False)
    if isinstance(error, BaseExceptionGroup):
        return any(is_definite(each) for each in error.exceptions)
    return isinstance(error, Exception) and not isinstance(error, INDEFINITE_EXCEPTIONS)


def fresh(stored: E) -> E:
    """Return a copy of an error, with its class, arguments, attributes and cause, but no traceback.

    A stored error is never raised itself: `raise fresh(stored)` raises a copy. Each `raise` of an
    exception adds to its traceback, which keeps the frames of every caller alive, so that one that
    is stored and raised again leaks memory with each call; `with_traceback(None)` does not help two
    callers that raise it at the same time. `tests/unit/test_stored_errors.py` enforces the rule.

    The copy is made without `__init__`: the arguments of an error need not be those of its class.
    """
    reduced = cast("tuple[Any, ...]", stored.__reduce__())  # `args` lacks the file of an `OSError`
    copy = type(stored).__new__(type(stored), *reduced[1])
    copy.args = stored.args
    vars(copy).update(vars(stored))
    copy.__cause__ = stored.__cause__
    return copy
