"""`Engine`: a keyspace with leases, whatever is behind it. Everything stands on this.

Keys and values are bytes. A range is one key (`end` empty), `[key, end)`, or all keys from `key` on
(`end` is `FROM_KEY`); `prefix_end` gives the end of all keys that begin with something. Revisions
count changes of the whole keyspace; terms are in seconds.

What is returned is durable, as far as the engine is: it will not be undone.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from leasehold.core.callback import ignore
from leasehold.core.keyspace import FROM_KEY
from leasehold.core.ops import Compare, SortBy, Step
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
from leasehold.errors import HistoryLost


def prefix_end(prefix: bytes) -> bytes:
    """Give the end of the range of all keys that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else FROM_KEY


class Watch(ABC):
    """The changes of a range, in order, in whole revisions: an async iterator of `Events`.

    Nothing is lost or told twice, however slowly it is read. It ends with `Compacted` if what it
    has to tell next was compacted before it was read, and with nothing else but the engine's end.
    """

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Events]:
        """Iterate over what happens from now on."""

    @abstractmethod
    async def __anext__(self) -> Events:
        """Wait for the next revision that concerns this watch."""

    patience_s: float | None = None
    """How long `async with` waits until it is ready; None for as long as that takes."""

    async def ready(self) -> None:  # noqa: B027  an engine in this process always is
        """Wait until whatever happens next is told; `async with` does that on entry."""

    @abstractmethod
    def request_progress(self) -> None:
        """Have `Events` without events told, once everything before them was."""

    @abstractmethod
    def cancel(self) -> None:
        """Watch no longer."""

    async def __aenter__(self) -> Self:
        limit = asyncio.timeout(self.patience_s)
        try:
            async with limit:
                await self.ready()
        except BaseException as error:
            self.cancel()
            if isinstance(error, TimeoutError) and limit.expired():
                raise TimeoutError(
                    f"the server does not watch after {self.patience_s:g} s: it does not answer"
                ) from error
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.cancel()


class Engine(ABC):
    """A keyspace with leases. For one event loop, and the process that opened it."""

    limits: Limits
    features: Features

    on_history_lost: Callable[[HistoryLost], None] = staticmethod(ignore)
    """Told, once, if this turns out to be another keyspace than it was."""

    @property
    def trouble(self) -> str:
        """What keeps it from answering just now, as far as that is known; empty if nothing does."""
        return ""

    def give_up_connection(self, why: str) -> None:  # noqa: B027  there may be none
        """Take another way to the server if there is one: this one does not answer."""

    @property
    @abstractmethod
    def cluster_id(self) -> int:
        """The name of this keyspace: another one has another."""

    @abstractmethod
    def check(self) -> None:
        """Raise what every call would: `Closed`, `Forked`, or what the engine has failed of."""

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

        Filters come first, then the order, then the limit; 0 is no filter and no limit. Raises
        `Compacted` or `FutureRevision` for a revision that is not there.
        """

    @abstractmethod
    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        """Set a key, and let it end with a lease (0 for none).

        A value or lease of None keeps what the key has, which must be there: `UnknownKey`
        otherwise. Raises `UnknownLease`, `LeaseFull`, `NoSpace`.
        """

    @abstractmethod
    async def delete(self, key: bytes, end: bytes = b"") -> DeleteResult:
        """Delete keys, all at one revision; if there are none the revision stays."""

    @abstractmethod
    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """If all conditions hold do the one, else the other, everything at one revision.

        A step is a `Put`, `Delete`, `Range` or a `Txn` of its own, and its result is what the
        method of the same name gives. Raises what those raise, and `DuplicateKey`,
        `TooManyOperations`; then nothing was done.
        """

    @abstractmethod
    async def compact(self, revision: int, *, wait: bool = False) -> int:
        """Forget what cannot be seen at `revision` or later; return the current revision.

        Space is made in the background; with `wait` this returns when that is done. Raises
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

        Each event has what the key was before if `previous`, as far as that was not compacted.
        """

    @abstractmethod
    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Begin a lease under this id, or with 0 under one that is chosen.

        Its term begins when this returns. Raises `LeaseExists`, and `ValueError` for a term that
        is not between nothing and `limits.max_ttl`.
        """

    @abstractmethod
    async def renew(self, lease: int) -> float:
        """Begin a new full term, and return its length. Raises `UnknownLease`."""

    @abstractmethod
    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        """Renew any number of leases, each for itself."""

    @abstractmethod
    async def revoke(self, lease: int) -> int:
        """End a lease; its keys go at one revision. Returns the revision. Raises `UnknownLease`."""

    @abstractmethod
    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Say how long a lease has to run, and which keys it has. Raises `UnknownLease`."""

    @abstractmethod
    async def leases(self) -> Sequence[LeaseInfo]:
        """List the leases, those first that end first."""

    @abstractmethod
    async def close(self) -> None:
        """Let the engine go. Calls that wait are answered first; later ones raise `Closed`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
