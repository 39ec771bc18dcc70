"""The engine in this process: `Engine` on a store."""

import asyncio
import weakref
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from leasehold.basics.pending import Pending
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.arguments import (
    check_lease,
    check_put,
    check_query,
    check_revision,
    check_size,
    check_txn,
    check_watch,
    key_of,
    size_of,
    ttl_of,
)
from leasehold.engine.embedded_watch import EmbeddedWatch
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.values import (
    EXACT_EXPIRY,
    LEASE_LISTING,
    RENEW_ALL,
    DeleteResult,
    Features,
    LazySequence,
    LeaseInfo,
    Limits,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
    delete_result,
    pair_or_none,
    range_result,
    txn_result,
)
from leasehold.errors import Closed, LeaseholdError, UnknownLease
from leasehold.keyspace import transaction_rules as txns
from leasehold.keyspace.operations import (
    Compact,
    Compare,
    Delete,
    Grant,
    Op,
    Put,
    Range,
    Revoke,
    SortBy,
    Step,
    Txn,
)
from leasehold.keyspace.ranges import sort_steps
from leasehold.store.backup import Backup
from leasehold.store.backup_file import OnProgress
from leasehold.store.housekeeping import AutoCompaction
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.runtime import Runtime
from leasehold.store.slices import Slicer
from leasehold.store.store import DEFAULT_QUOTA_BYTES

RENEWALS_PER_SLICE: Final = 250

T = TypeVar("T")

MEMORY: Final = "memory:"
"""The path of an engine that is kept in memory only."""


class EmbeddedEngine(Engine):
    """A keyspace with leases in this process, durable in a directory, or in memory only.

    The constructor reads the journal, which takes time in proportion to its length; `start` needs
    an event loop.
    """

    features = Features(frozenset({EXACT_EXPIRY, RENEW_ALL, LEASE_LISTING}))

    def __init__(
        self,
        directory: Path | None,
        *,
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
        compaction: AutoCompaction | None = None,
        limits: Limits = Limits(),  # noqa: B008  it is immutable
        vfs: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        runtime = Runtime(
            directory, quota_bytes=quota_bytes, compaction=compaction, vfs=vfs, clock=clock
        )
        self._attach(runtime, limits, is_owner=True)

    @classmethod
    def on(cls, runtime: Runtime, limits: Limits = Limits()) -> Self:  # noqa: B008  immutable
        """Return an engine on the runtime of a server, which starts and stops the runtime.

        `close` only ends the watches of the engine; it is for after the end of the runtime, which
        refuses further calls.
        """
        engine = cls.__new__(cls)
        engine._attach(runtime, limits, is_owner=False)  # noqa: SLF001  its own
        return engine

    def _attach(self, runtime: Runtime, limits: Limits, *, is_owner: bool) -> None:
        self.limits = limits
        self._runtime = runtime
        self._is_owner = is_owner
        self._store = runtime.store
        self._until_durable = runtime.until_durable
        self._watches: weakref.WeakSet[EmbeddedWatch] = weakref.WeakSet()
        runtime.failure_callbacks.append(self._end_watches)
        self._closing: asyncio.Future[None] | None = None

    @property
    def cluster_id(self) -> int:
        """The id of this keyspace, which is stored in its directory."""
        return self._runtime.journal.identity.cluster_id

    def check(self) -> None:
        """Raise the error that every call would."""
        self._runtime.check()

    def start(self) -> None:
        """Begin to serve, on the running event loop."""
        self._runtime.start()

    async def close(self) -> None:
        """Refuse further calls, commit the remaining changes, and leave a clean journal.

        Further callers wait for the same end; it continues if they stop waiting.
        """
        if self._runtime.is_forked:
            return
        self._runtime.owner.check()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._is_owner:
            await self._runtime.stop()
        self._end_watches(Closed("the engine was closed"))
        if self._is_owner:
            await asyncio.to_thread(self._runtime.journal.close)

    def discard(self) -> None:
        """Close an engine that was never started."""
        self._runtime.discard()
        self._runtime.journal.close()

    async def backup(
        self,
        path: str | PathLike[str],
        on_progress: OnProgress | None = None,
        *,
        force: bool = False,
    ) -> Backup:
        """Copy everything into a file, for `leasehold restore`; other calls continue."""
        self._runtime.check_call()
        return await self._runtime.backups.make(path, on_progress, force=force)

    def _end_watches(self, error: LeaseholdError) -> None:
        for watch in list(self._watches):
            watch.fail(error)

    async def _apply(self, op: Op[T]) -> T:
        await self._runtime.enter()
        self._runtime.waiting.check_room()
        try:
            result, position = await self._applied(op)
        except LeaseholdError:
            await self._until_durable(self._store.position)  # a refusal reveals something, too
            raise
        await self._until_durable(position)
        return result

    async def _applied(self, op: Op[T]) -> tuple[T, int]:
        if isinstance(op, Delete | Txn) and self._store.is_long(op):
            if isinstance(op, Txn) and txns.only_reads(op):
                return await self._runtime.reader.read_txn(op)  # type: ignore[return-value]
            return await self._runtime.in_steps(op)
        return self._store.apply(op)

    # Keys.

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
        """Read keys, all at one revision."""
        query = Range(
            key,
            end,
            revision,
            limit,
            SortBy(sort_by),
            descending,
            count_only,
            min_mod_revision=min_mod_revision,
            max_mod_revision=max_mod_revision,
            min_create_revision=min_create_revision,
            max_create_revision=max_create_revision,
        )
        await self._runtime.enter()
        reader = self._runtime.reader
        try:
            read = self._store.read(check_query(query))
        except LeaseholdError:
            await self._until_durable(self._store.position)
            raise
        found, position = await reader.scan(query) if read is None else read
        await self._until_durable(position)
        return range_result(found)

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        """Set a key."""
        put = Put(key, value, lease)
        check_put(put)
        check_size(size_of(put), self.limits)
        revision, previous = await self._apply(put)
        return PutResult(revision, pair_or_none(previous))

    async def delete(self, key: bytes, end: bytes = b"", *, previous: bool = False) -> DeleteResult:
        """Delete keys, all at one revision."""
        delete = Delete(key_of(key, end), end, previous)
        return delete_result(delete, await self._apply(delete))

    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Execute `success` if all conditions hold, else `failure`, everything at one revision."""
        txn = Txn(compares, success, failure)
        check_txn(txn)
        txns.check(txn, self.limits.txn_operations)
        check_size(size_of(txn), self.limits)
        return txn_result(txn, await self._apply(txn))

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        """Compact the history before `revision`."""
        check_revision(revision)
        now = await self._apply(Compact(revision))
        self._runtime.housekeeping.forget()
        if wait:
            await self._runtime.housekeeping.forgotten()
        return now

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
        """Watch keys from a revision on, or with 0 from now on."""
        self._runtime.check_call()
        check_watch(key, end, start)
        watch = EmbeddedWatch(
            self._runtime, key, end, start=start, previous=previous, puts=puts, deletes=deletes
        )
        self._watches.add(watch)
        self._runtime.follow(watch, start)
        return watch

    # Leases.

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Grant a lease."""
        check_lease(lease)
        ttl = ttl_of(ttl, self.limits)
        granted, _ = await self._apply(Grant(lease, ttl))
        return LeaseInfo(granted, ttl, ttl, None, 0)

    async def renew(self, lease: int) -> float:
        """Begin a new full term, and return its length."""
        check_lease(lease)
        await self._runtime.breathe()
        self._store.leases.enter()
        ttl_s, position = self._renew(lease)
        await self._until_durable(position)
        if isinstance(ttl_s, UnknownLease):
            raise ttl_s
        return ttl_s

    def _renew(self, lease: int) -> tuple[float | UnknownLease, int]:
        """Renew; the error for a lease that has ended need not wait: its holder stops."""
        try:
            return self._store.leases.renew(lease).ttl_s, self._store.lease_position(lease)
        except UnknownLease as error:
            return error, 0

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        """Renew any number of leases independently."""
        self._runtime.check_call()
        terms: dict[int, float] = {}
        failures: dict[int, Exception] = {}
        slicer, last = Slicer(self._store.leases.monotonic), 0
        self._store.leases.enter()
        for count, lease in enumerate(leases, 1):
            check_lease(lease)
            outcome, position = self._renew(lease)
            last = max(last, position)
            if isinstance(outcome, UnknownLease):
                failures[lease] = outcome
            else:
                terms[lease] = outcome
            if count % RENEWALS_PER_SLICE == 0:
                await slicer.pause()
                self._runtime.check()
                self._store.leases.enter()
        await self._until_durable(last)
        return Renewed(terms, failures)

    async def revoke(self, lease: int) -> int:
        """End a lease, and delete its keys."""
        check_lease(lease)
        await self._runtime.enter()
        try:
            revision, position = self._store.apply(Revoke(lease))
        except UnknownLease:
            await self._until_durable(self._store.lease_position(lease))
            raise
        if self._store.is_busy:
            await self._runtime.housekeeping.until_idle()
            revision, position = self._store.revision, self._store.position
        await self._until_durable(position)
        return revision

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Return how long a lease has to run, and its keys."""
        check_lease(lease)
        await self._runtime.enter()
        store = self._store
        try:
            record = store.leases.current(lease)
        except UnknownLease:
            await self._until_durable(store.lease_position(lease))
            raise
        position = store.lease_position(lease)
        if store.keys_position(lease):
            position = store.position
        remaining_s, names = store.leases.remaining_s(lease), list(record.keys)
        await self._until_durable(position)
        ordered = await self._sorted(names) if keys else None
        return LeaseInfo(lease, record.ttl_s, remaining_s, ordered, len(names))

    async def _sorted(self, names: list[bytes]) -> tuple[bytes, ...]:
        slicer = Slicer(self._store.leases.monotonic)
        steps = sort_steps(names, bytes)
        return tuple(await slicer.run(steps, self._runtime.reader.load))

    def has_ended(self, lease: int) -> bool:
        """Return whether a lease has ended in lease time; 0 is no lease."""
        if not lease:
            return False
        self._store.leases.enter()
        return not self._store.leases.is_live(lease)

    async def leases(self) -> Sequence[LeaseInfo]:
        """Return the leases, sorted by their ends."""
        await self._runtime.enter()
        position = self._store.position
        slicer = Slicer(self._store.leases.monotonic)
        found = await slicer.run(self._store.leases.listed(_row), self._runtime.reader.load)
        await self._until_durable(position)
        return LazySequence(_info, found)


def _info(listed: tuple[float, tuple[int, float, float, None, int]]) -> LeaseInfo:
    return LeaseInfo(*listed[1])


def _row(record: LeaseRecord, left_s: float) -> tuple[int, float, float, None, int]:
    return record.id, record.ttl_s, left_s, None, len(record.keys)


async def _open(directory: Path | None, **options: Any) -> EmbeddedEngine:
    # In a thread, because a long journal takes seconds to be read.
    made = asyncio.ensure_future(asyncio.to_thread(EmbeddedEngine, directory, **options))
    try:
        engine = await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(_let_go)
        raise
    engine.start()
    return engine


def _let_go(made: "asyncio.Future[EmbeddedEngine]") -> None:
    """Close the engine of a caller that stopped waiting, to release its directory."""
    if not made.cancelled() and made.exception() is None:
        made.result().discard()


def directory_of(path: str | PathLike[str]) -> Path | None:
    """Check the path of a data directory; None for `"memory:"`."""
    if path == MEMORY:
        return None
    text = fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be a str or a path of text, got {path!r}")
    if not text:
        raise ValueError('path is empty; use "." for the current directory')
    if text.strip().casefold() == MEMORY:
        raise ValueError(
            f"{text!r} is not a directory name: write {MEMORY!r} for an in-memory store, "
            f"or {'./' + text!r} for a directory of that name"
        )
    return Path(text)


def open_engine(
    path: str | PathLike[str],
    *,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    compaction: AutoCompaction | None = None,
) -> Pending[EmbeddedEngine]:
    """Open an engine in this process: keys and leases, durable in the directory `path`.

    The directory is created if it does not exist; `"memory:"` keeps nothing on disk. To be awaited,
    or used as an async context manager, which closes it in the end:

        async with leasehold.open_engine("./data") as engine:
            await engine.put(b"greeting", b"hello")

    A directory is used by one process at a time: another one gets `DirectoryInUse`. `quota_bytes`
    limits the data, `compaction` how much history is kept.
    """
    if quota_bytes < 1:
        raise ValueError(f"quota_bytes must be at least 1, got {quota_bytes}")
    directory = directory_of(path)
    return Pending(lambda: _open(directory, quota_bytes=quota_bytes, compaction=compaction))
