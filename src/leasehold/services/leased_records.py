"""`LeasedRecords`: objects of a service, each with an id, a lease and keys of its own.

A service keeps the state of a record in plain keys below the record's own key (`record_storage`),
and in memory while this server owns the record's shard. Invariants:

- The end of a record is its own. While a server serves it, its end is in lease time. It is written
  into its key as wall time when it is created or renewed, and after a restart or a take-over the
  wall time decides. The lease of its key ends later: it removes the key only if no server runs.
- A record is stopped before anything else happens at its end, so its service sends nothing more for
  it. Then its key is deleted, by revoking the lease, and then its plain keys, in bounded passes.
- A plain key is written only while the record's key exists, by the owner of the shard.
- A write without an answer was executed before its caller gets the error, or never will be. The
  state in memory is then replaced by what is stored.
- A plain key without its record's key is collected, by the next owner of the shard at the latest.
- A record is in memory only while this server owns its shard.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random, SystemRandom
from typing import Final, Generic, TypeVar

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import (
    NEVER,
    Duration,
    DurationLike,
    check_positive,
    check_requested,
)
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.engine.values import TxnResult
from leasehold.errors import (
    Closed,
    ConnectionLost,
    EndReason,
    LeaseholdError,
    NoSuchObject,
    ShardLost,
    TooBusy,
    UnknownLease,
    fresh,
)
from leasehold.keyspace.operations import Compare, Step
from leasehold.leases.expiry_strategies import exact
from leasehold.leases.lease_clock import LeaseClock
from leasehold.leases.lease_table import LeasedResource, LeaseTable
from leasehold.leases.policies import LeasePolicy
from leasehold.services.leased_record import LeasedRecord, RecordOwner
from leasehold.services.record_recovery import RecordRecovery, in_doubt
from leasehold.services.record_removal import DeletedKeys, RecordRemoval
from leasehold.services.record_storage import (
    SURPLUS,
    RecordRows,
    RecordStorage,
    StoredEnd,
    is_id,
    is_refused,
    shard_prefix,
    ttl_for,
    was_not_executed,
)
from leasehold.services.shards import ShardOwnership, Shards

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RECORDS: Final = 10_000
"""The default limit of the records of a service in one server."""

MAX_DRAWS: Final = 10_000
"""How often an id is drawn until it belongs to a shard of this server."""

RENEW_S: Final = 10.0
"""How long the end of a renewed record may take to be written."""


class LeasedRecords(Generic[T]):
    """The records of one service that this server serves. A `ShardListener`."""

    def __init__(
        self,
        engine: Engine,
        shards: Shards,
        name: str,
        owner: RecordOwner[T],
        policy: LeasePolicy,
        *,
        max_records: int = MAX_RECORDS,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.max_records = max_records
        self.monotonic = clock.monotonic
        self._engine = engine
        self._shards = shards
        self._owner = owner
        self._wall = clock.wall
        self._random = random or SystemRandom()
        self._storage = RecordStorage(engine, name, self._random)
        self._records: dict[str, LeasedRecord[T]] = {}
        self._loaded: dict[int, ShardOwnership] = {}
        self.table: LeaseTable[LeasedRecord[T]] = LeaseTable(
            policy,
            LeaseClock(clock.monotonic()),
            lambda leased: self._reaper.placed(leased),  # noqa: PLW0108  it is made below
        )
        self._reaper = exact().reaper_for(self)
        self._removal = RecordRemoval(self._storage, name, self._random)
        self._recovery = RecordRecovery(
            self._storage, self._removal, self._random, self._rewrite, self._gone, self._reload
        )
        self._deleted = DeletedKeys(
            self._storage, self._removal, self._records, self._gone, self._orphaned
        )
        self._is_closed = False

    @property
    def grantor(self) -> str:
        """The name of the grantor of the records' leases."""
        return f"{self._engine.cluster_id:016x}/{self.name}"

    def _lease_time(self) -> float:
        self._reaper.enter()
        return self.table.clock.now

    def __iter__(self) -> Iterator[LeasedRecord[T]]:
        return iter(list(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    # Calls.

    async def create(
        self, requested: DurationLike, steps: Callable[[bytes], Sequence[Step]] | None = None
    ) -> tuple[LeasedRecord[T], Duration]:
        """Create a record, in a shard of this server; return it and its term.

        `steps` returns further steps of the same transaction, for the key of the record. Raises
        `TooBusy` at the limit of records, and `ShardLost` if this server has no shard. A record
        whose creation had no answer is removed.
        """
        requested = check_positive(requested)
        if len(self.table) >= self.max_records:
            raise TooBusy(f"service {self.name} has {self.max_records:,} objects, the maximum")
        record = self._new_record()
        record.state = self._owner.load(record, {})
        self._reaper.enter()
        self._reaper.prepare()
        record.leased, granted = self.table.grant(record.id, record, requested, pending=True)
        try:
            await self._store_new(record, () if steps is None else steps(record.key))
            record.check()
        except BaseException:
            record.is_ended = True
            self.table.take_back(record.leased)
            if record.lease:
                self._removal.remove(record, is_urgent=False)
            raise
        self._reaper.enter()
        self.table.begin(record.leased)
        self._begin(record)
        return record, granted

    def _new_record(self) -> LeasedRecord[T]:
        if self._is_closed:
            raise Closed(f"service {self.name} was closed")
        for _ in range(MAX_DRAWS if self._loaded else 0):
            record_id = f"{self._random.getrandbits(128):032x}"
            ownership = self._loaded.get(self._shards.shard_of(record_id))
            if ownership is not None and ownership.is_valid:
                return LeasedRecord(self.name, record_id, ownership, self._lease_time)
        raise ShardLost(0, "this server owns no shard at present: retry")

    async def _store_new(self, record: LeasedRecord[T], steps: Sequence[Step]) -> None:
        await self._deleted.watching()
        await self._shards.store_count()
        record.lease_ttl_s = ttl_for(record.leased.term_s, self._engine.limits)
        record.lease = await self._storage.grant(record.lease_ttl_s, self._removal.revoke)
        term_s = record.leased.term_s  # which begins when the creation is answered
        end = StoredEnd(self._wall() + term_s, term_s, record.lease_ttl_s, record.term_number)
        await self._storage.create(record, end.encode(), steps)

    def find(self, record_id: str) -> LeasedRecord[T]:
        """Return a live record.

        Raises `NoSuchObject`, and `ShardLost` if the record is not served here, or not yet.
        """
        if not is_id(record_id):
            raise NoSuchObject(self.name, record_id)
        shard = self._shards.shard_of(record_id)
        ownership = self._shards.owned(shard)
        if ownership is None:
            raise ShardLost(shard, "it belongs to another server, or has no owner at present")
        self._reaper.enter()
        record = self._records.get(record_id)
        if record is None:
            if self._loaded.get(shard) is not ownership:
                raise ShardLost(shard, "it is still being loaded")
            raise NoSuchObject(self.name, record_id)
        try:
            self.table.current(record_id)
        except UnknownLease:
            raise NoSuchObject(self.name, record_id) from None
        finally:
            self._deliver()
        record.check()
        return record

    async def renew(
        self, record_id: str, requested: DurationLike, check: Callable[[], object] = ignore
    ) -> Duration:
        """Begin a new term, and return its length; a term of zero ends the record.

        Raises `UnknownLease`, `ShardLost`, and the `LeaseDenied` of the policy.
        """
        requested = check_requested(requested)
        if requested == 0.0:
            await self.cancel(record_id)
            return 0.0
        record = self._find_lease(record_id)
        async with record.key_lock:
            self._find_lease(record_id)
            check()  # it may have waited
            before = (_, record.stored_deadline) = record.leased.term_s, record.leased.deadline
            granted = self.table.renew(record_id, requested)
            record.is_renewing = True
            try:
                async with asyncio.timeout(RENEW_S):
                    await self._store_end(record)
                record.term_number += 1
            except BaseException as error:
                self._undo_renewal(record, before, error)
                if isinstance(error, NoSuchObject):
                    self._gone(record)
                    raise UnknownLease(record_id, self._reason(record_id)) from None
                if isinstance(error, TimeoutError):
                    raise ConnectionLost(
                        f"the renewal of {record_id} was not stored in time"
                    ) from error
                raise
            finally:
                record.is_renewing, record.stored_deadline = False, NEVER
        if record.is_ended:  # it was cancelled meanwhile
            raise UnknownLease(record_id, self._reason(record_id))
        record.check()
        self._call(self._owner.renewed, record)
        return granted

    def _find_lease(self, record_id: str) -> LeasedRecord[T]:
        try:
            return self.find(record_id)
        except NoSuchObject:
            raise UnknownLease(record_id, self._reason(record_id)) from None

    def _reason(self, record_id: str) -> EndReason:
        try:
            self.table.current(record_id)
        except UnknownLease as error:
            return error.reason
        return EndReason.UNKNOWN

    async def _store_end(self, record: LeasedRecord[T]) -> None:
        """Write the end of a record into its key, under a lease that lasts long enough."""
        ttl_s = ttl_for(record.leased.term_s, self._engine.limits)
        if ttl_s <= record.lease_ttl_s <= SURPLUS * ttl_s:
            await self._storage.renew(record)
        else:
            lease = await self._storage.grant(ttl_s, self._removal.revoke)
            record.former_leases.add(record.lease)
            record.lease, record.lease_ttl_s = lease, ttl_s
        await self._rewrite(record)

    async def _rewrite(self, record: LeasedRecord[T]) -> None:
        """Write the record's own key; its lock is held."""

        def value() -> bytes:
            end_s = self._wall() + max(0.0, record.leased.deadline - self._lease_time())
            term_number = record.term_number + record.is_renewing
            end = StoredEnd(end_s, record.leased.term_s, record.lease_ttl_s, term_number)
            return end.encode()

        await self._storage.rewrite(record, value)
        former, record.former_leases = record.former_leases, set()
        for lease in former:
            self._removal.revoke(lease)

    def _undo_renewal(
        self, record: LeasedRecord[T], before: tuple[float, float], error: BaseException
    ) -> None:
        """Restore the end that is stored; the renewal may still be executed until a rewrite."""
        self._reaper.enter()
        if self.table.find(record.id) is record.leased:
            self.table.move(record.leased, *before)
            if not isinstance(error, NoSuchObject):
                self._call(self._owner.renewed, record)
            if not was_not_executed(error):
                self._recovery.begin(record, reads=False)

    async def cancel(self, record_id: str) -> None:
        """End a record; return when its key is deleted. Raises `UnknownLease`, `ShardLost`."""
        record = self._find_lease(record_id)
        self.table.cancel(record_id)
        if not await asyncio.shield(self._deliver()[record]):
            raise ConnectionLost(f"{record_id} has ended, but its key stays until its lease ends")

    async def write(
        self, record: LeasedRecord[T], success: Sequence[Step], compares: Sequence[Compare] = ()
    ) -> TxnResult:
        """Execute a transaction on the plain keys of a record; the caller holds `record.lock`.

        It has not `succeeded` if `compares` do not hold. Raises `NoSuchObject` or `ShardLost` if
        the record is not served here. After `ConnectionLost` the state of the record was replaced
        by what is stored: the transaction was executed, or never will be.
        """
        if record.recovery is not None:  # that of an earlier caller, which was cancelled
            await asyncio.shield(record.recovery)
            lost = ConnectionLost("an earlier write had no answer: retry this one")
            lost.not_executed = True
            raise lost
        try:
            return await self._storage.write(record, success, compares)
        except NoSuchObject:
            self._gone(record)
            raise
        except BaseException as error:
            if is_refused(error):
                raise
            recovery = self._recovery.begin(record)
            if not isinstance(error, LeaseholdError | OSError):
                raise
            await asyncio.shield(recovery)
            raise in_doubt(record) from error

    async def write_together(
        self, writes: Sequence[tuple[LeasedRecord[T], Sequence[Step]]]
    ) -> list[Exception | None]:
        """Execute the writes of several records in one transaction; return their errors.

        If not all are served here, each is executed for itself, as `write` does.
        """
        records = [record for record, _ in writes]
        if any(record.is_over or record.recovery is not None for record in records):
            return [await self._written(*each) for each in writes]
        steps = [step for _, some in writes for step in some]
        try:
            if await self._storage.write_together(records, steps):
                return [None] * len(writes)
        except BaseException as error:
            if is_refused(error) and isinstance(error, LeaseholdError):
                return [fresh(error) for _ in writes]
            if is_refused(error):
                raise
            recoveries = [self._recovery.begin(record) for record in records]
            if not isinstance(error, LeaseholdError | OSError):
                raise
            await asyncio.shield(asyncio.gather(*recoveries))
            return [in_doubt(record) for record in records]
        return [await self._written(*each) for each in writes]

    async def _written(self, record: LeasedRecord[T], steps: Sequence[Step]) -> Exception | None:
        try:
            await self.write(record, steps)
        except (LeaseholdError, OSError) as error:
            return error
        return None

    def _reload(self, record: LeasedRecord[T], rows: Mapping[bytes, bytes]) -> None:
        if not record.is_ended and record.ownership.is_valid:
            self._call(self._owner.stopped, record, None)
            try:
                record.state = self._owner.load(record, rows)
            except Exception:
                logger.exception("%r cannot be loaded, and is not served", record)
                del self._records[record.id]
                return
            self._call(self._owner.started, record)

    # The life of a record in memory.

    def _begin(self, record: LeasedRecord[T]) -> None:
        self._records[record.id] = record
        self._call(self._owner.started, record)

    def _call(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except Exception:
            logger.exception("a callback of service %s has failed", self.name)

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded. For the reaper."""
        if self._is_closed:
            return False
        try:
            return self.table.expire(budget)
        except Exception:
            logger.exception("the policy of service %s failed in is_current", self.name)
            return False
        finally:
            self._deliver()

    def expire_one(self, leased: LeasedResource[LeasedRecord[T]]) -> bool:
        """Run the expiry step for one record. For the reaper."""
        try:
            return self.table.settle(leased)
        finally:
            self._deliver()

    def _deliver(self) -> "dict[LeasedRecord[T], asyncio.Task[bool]]":
        """Stop the records that have left the table; return the tasks that remove their keys."""
        removals: dict[LeasedRecord[T], asyncio.Task[bool]] = {}
        while self.table.ended:
            leased, reason, _late_s = self.table.ended.popleft()
            record = leased.resource
            if record.is_ended or self._records.pop(record.id, None) is None:
                continue
            if not record.ownership.is_valid:  # the next owner ends it
                self._call(self._owner.stopped, record, None)
                continue
            record.is_ended = True
            self._call(self._owner.stopped, record, reason)
            is_urgent = reason is EndReason.CANCELLED
            removals[record] = self._removal.remove(record, is_urgent=is_urgent)
        return removals

    def _gone(self, record: LeasedRecord[T]) -> None:
        """End a record whose key was deleted by others, or with its lease."""
        if not record.is_ended and self._records.get(record.id) is record:
            self._reaper.enter()
            with suppress(UnknownLease):
                self.table.cancel(record.id)
            self._deliver()

    # Shards.

    async def shard_gained(self, ownership: ShardOwnership) -> None:
        """Load the records of a shard; end those whose wall time has passed."""
        orphans: list[bytes] = []
        if await self._storage.has_rows(ownership):
            await self._deleted.watching()
            async for row in self._storage.rows_of_shard(ownership):
                if not self._load(ownership, row):
                    orphans.append(shard_prefix(self.name, ownership.number) + row.id.encode())  # noqa: PERF401
        self._loaded[ownership.number] = ownership
        for key in orphans:
            self._removal.collect(key)

    def _load(self, ownership: ShardOwnership, rows: RecordRows) -> bool:
        """Load one record from all its keys; return False if they have no record any more."""
        own = rows.own
        if own is None:
            return False
        if self._shards.shard_of(rows.id) != ownership.number or rows.id in self._records:
            return True  # written by another program, or it was loaded before a failure
        record = LeasedRecord[T](self.name, rows.id, ownership, self._lease_time)
        end = record.read(own)
        left_s = end.end_wall_s - self._wall()
        if left_s <= 0.0:
            record.is_ended = True
            self._removal.remove(record, is_urgent=False)
            return True
        try:
            record.state = self._owner.load(record, rows.plain)
        except Exception:
            logger.exception("%r cannot be loaded, and is not served", record)
            return True
        self._reaper.enter()
        record.leased = self.table.place(record.id, record, end.term_s, left_s)
        self._begin(record)
        return True

    def shard_lost(self, ownership: ShardOwnership) -> None:
        """Unload the records of a shard, now; their keys stay."""
        if self._loaded.get(ownership.number) is ownership:
            del self._loaded[ownership.number]
        for record in (each for each in self if each.ownership is ownership):
            del self._records[record.id]
            self.table.take_back(record.leased)
            self._call(self._owner.stopped, record, None)

    def _orphaned(self, record_id: str, key: bytes) -> None:
        if self._shards.owned(self._shards.shard_of(record_id)) is not None:
            self._removal.collect(key)

    async def close(self) -> None:
        """Unload all records, and stop; their keys stay."""
        self._is_closed = True
        self._reaper.close()
        self.table.policy.detach(self.table)
        for ownership in list(self._loaded.values()):
            self.shard_lost(ownership)
        self._deleted.close()
        await self._removal.close()
