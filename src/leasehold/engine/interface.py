"""`Engine`: the interface of a keyspace with leases, on which everything else is built.

Keys and values are bytes. A range is one key (`end` empty), `[key, end)`, or all keys from `key` on
(`end` is `FROM_KEY`); `prefix_end` returns the end of the range of all keys with a prefix.
Revisions count changes of the whole keyspace; terms are in seconds.

Results are durable, as far as the engine is: they will not be undone.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Self

from leasehold.basics.callbacks import ignore
from leasehold.basics.event_loop import OwnerLoop
from leasehold.engine.values import (
    DeleteResult,
    Events,
    Features,
    LeaseInfo,
    Limits,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import HistoryLost, LeaseholdError, fresh
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.keyspace.operations import Compare, SortBy, Step


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else FROM_KEY


class Watch(ABC):
    """The changes of a range, in order, in whole revisions: an async iterator of `Events`.

    No event is lost or repeated, however slowly it is read. It ends with `Compacted` if its next
    revision was compacted before it was read, and otherwise only with the engine's end.
    """

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Events]:
        """Iterate over the changes from now on."""

    @abstractmethod
    async def __anext__(self) -> Events:
        """Wait for the next revision that concerns this watch."""

    patience_s: float | None = None
    """The timeout of `ready` in `async with`; None for no timeout."""

    async def ready(self) -> None:  # noqa: B027  an engine in this process always is
        """Wait until all further changes will be returned; `async with` does that on entry."""

    @abstractmethod
    def request_progress(self) -> None:
        """Request `Events` without events, to be returned after everything before them."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the watch."""

    async def __aenter__(self) -> Self:
        limit = asyncio.timeout(self.patience_s)
        try:
            async with limit:
                await self.ready()
        except BaseException as error:
            self.cancel()
            if isinstance(error, TimeoutError) and limit.expired():
                raise TimeoutError(
                    f"the server has not confirmed the watch after {self.patience_s:g} s"
                ) from error
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.cancel()


MAX_QUEUED: Final = 1_000
"""Revisions that wait to be read in a watch; further ones are read again from the history."""

MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024
"""The limit of their size. A single revision may be larger."""


class QueuedWatch(Watch):
    """A watch with a queue of revisions that its one reader has not taken yet."""

    __slots__ = ("_failure", "_owner", "_queue", "_queued_bytes", "_reader")

    def __init__(self) -> None:
        self._queue: deque[Any] = deque()
        self._queued_bytes = 0
        self._owner = OwnerLoop("watch")
        self._reader: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    @property
    def has_room(self) -> bool:
        """Whether it has room for more."""
        is_short = len(self._queue) < MAX_QUEUED // 2
        return is_short and self._queued_bytes < MAX_QUEUED_BYTES // 2

    @property
    def is_full(self) -> bool:
        """Whether it takes no more for now."""
        return len(self._queue) >= MAX_QUEUED or self._queued_bytes >= MAX_QUEUED_BYTES

    @property
    def _is_readable(self) -> bool:
        return bool(self._queue)

    def __aiter__(self) -> AsyncIterator[Events]:
        return self

    async def __anext__(self) -> Events:
        self._check_owner()
        if self._reader is not None:
            raise RuntimeError("a watch can have only one reader; create another watch")
        while not self._is_readable:
            if self._failure is not None and not self._queue:
                raise fresh(self._failure)
            self._reader = asyncio.get_running_loop().create_future()
            self._begin_to_wait()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._take_next()

    def _check_owner(self) -> None:
        if self._failure is None:
            self._owner.check()

    def _begin_to_wait(self) -> None:
        """Arrange for the reader to be woken."""

    @abstractmethod
    def _take_next(self) -> Events:
        """Take the first revision from the queue."""


class Engine(ABC):
    """A keyspace with leases. For one event loop, and the process that opened it."""

    limits: Limits
    features: Features

    on_history_lost: Callable[[HistoryLost], None] = staticmethod(ignore)
    """Called, once, if this turns out to be another keyspace than before."""

    @property
    def trouble(self) -> str:
        """Why it cannot answer at present, as far as that is known; empty if it can."""
        return ""

    @property
    def is_open(self) -> bool:
        """Whether it accepts calls: not when closed, in a child process, or in another keyspace."""
        try:
            self.check()
        except LeaseholdError:
            return False
        return True

    def give_up_connection(self, why: str) -> None:  # noqa: B027  there may be none
        """Use another connection to the server if there is one: this one does not answer."""

    @property
    @abstractmethod
    def cluster_id(self) -> int:
        """The id of this keyspace, which is different for each keyspace."""

    @abstractmethod
    def check(self) -> None:
        """Raise the error that every call would: `Closed`, `Forked`, or the engine's failure."""

    @abstractmethod
    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        revision: int = 0,
        limit: int = 0,
        sort_by: SortBy = SortBy.KEY,
        descending: bool = False,
        count_only: bool = False,
        min_mod_revision: int = 0,
        max_mod_revision: int = 0,
        min_create_revision: int = 0,
        max_create_revision: int = 0,
    ) -> RangeResult:
        """Read keys, all at one revision: the latest, or an earlier one.

        Filters come first, then the order, then the limit; 0 means no filter or no limit. Raises
        `Compacted` or `FutureRevision` for a revision that is not available.
        """

    @abstractmethod
    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        """Set a key, and attach it to a lease (0 for none).

        A value or lease of None keeps that of the key, which must exist: `UnknownKey` otherwise.
        Raises `UnknownLease`, `LeaseFull`, `NoSpace`.
        """

    @abstractmethod
    async def delete(self, key: bytes, end: bytes = b"", *, previous: bool = False) -> DeleteResult:
        """Delete keys, all at one revision; if there are none the revision stays.

        With `previous` the result contains the deleted keys. Raises `TooLarge` if they are too
        large.
        """

    @abstractmethod
    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Execute `success` if all conditions hold, else `failure`, everything at one revision.

        A step is a `Put`, `Delete`, `Range` or a `Txn` of its own, and its result is that of the
        method of the same name. Raises the errors of those, `DuplicateKey` and `TooManyOperations`;
        then nothing was done.
        """

    @abstractmethod
    async def compact(self, revision: int, *, wait: bool = False) -> int:
        """Compact the history before `revision`; return the current revision.

        Space is freed in the background; with `wait` this returns when that is done. Raises
        `Compacted` if that is done already, and `FutureRevision`.
        """

    @abstractmethod
    def watch(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        start: int = 0,
        previous: bool = False,
        puts: bool = True,
        deletes: bool = True,
    ) -> Watch:
        """Watch keys from a revision on, or with 0 from now on.

        With `previous` each event has the previous value of its key, unless that was compacted.
        """

    @abstractmethod
    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Grant a lease with this id, or with 0 with one that is chosen.

        Its term begins when this returns. Raises `LeaseExists`, and `ValueError` for a term that is
        not between 0 and `limits.max_ttl`.
        """

    @abstractmethod
    async def renew(self, lease: int) -> float:
        """Begin a new full term, and return its length. Raises `UnknownLease`."""

    @abstractmethod
    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        """Renew any number of leases independently."""

    @abstractmethod
    async def revoke(self, lease: int) -> int:
        """End a lease, and delete its keys at one revision, which is returned.

        Raises `UnknownLease`.
        """

    @abstractmethod
    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Return how long a lease has to run, and its keys. Raises `UnknownLease`."""

    def has_ended(self, lease: int) -> bool:
        """Return whether a lease is known to have ended, without a call.

        False if that is not known here: its keys are deleted when it ends.
        """
        del lease
        return False

    @abstractmethod
    async def leases(self) -> Sequence[LeaseInfo]:
        """Return the leases, sorted by their ends."""

    @abstractmethod
    async def close(self) -> None:
        """Close the engine. Calls that wait are answered first; later ones raise `Closed`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
