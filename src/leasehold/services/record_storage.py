"""The keys of leased records: their names and values, and writes that are never executed late.

A record has its own key, `leasehold/<service>/<shard>/<id>`, under a lease of the engine, and plain
keys below it, `<its key>/<suffix>`, which have no lease. Every write compares the mod revision of
the record's key, the *epoch*, and the fence of its shard. A write without an answer may be executed
later, as long as the epoch has not changed: so the record's key is rewritten after it, until there
is an answer. A rewrite compares the epoch as well, so of two rewrites the earlier one cannot undo
the later one; it is repeated with the epoch that was found.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from leasehold.basics.backoff import Backoff
from leasehold.basics.durations import NEVER, WIRE_FOREVER_MS
from leasehold.engine.arguments import ttl_of
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue, Limits, TxnResult
from leasehold.errors import (
    LeaseholdError,
    NoSuchObject,
    ShardLost,
    TooLarge,
    UnknownLease,
    is_definite,
)
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Step, Target
from leasehold.services.shards import ShardOwnership
from leasehold.sessions.lease_keeper import LOST_S, MAX_ID, end_one
from leasehold.sessions.session import OVER, RETRIES
from leasehold.wire import services_pb2 as pb

logger = logging.getLogger(__name__)

NET_S: Final = 5.0
"""How much longer than its record the lease of a record's key lasts."""

SURPLUS: Final = 2.0
"""A lease whose TTL is longer than needed by this factor is replaced at the next renewal."""

CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

KEYS_PER_PAGE: Final = 500
"""Keys that are read by one call; fewer if their values are too large for one answer."""

KEYS_PER_PASS: Final = 100
"""Plain keys of an ended record that are deleted by one call."""

PASS_PAUSE_S: Final = 0.05
"""The pause after each pass, so that collecting does not delay other calls."""

R = TypeVar("R", bound="StoredRecord")

_ID: Final = re.compile(r"[0-9a-f]{32}")


def is_id(text: str) -> bool:
    """Return whether a text may be the id of a record: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def service_prefix(service: str) -> bytes:
    """Return the prefix of all keys of a service."""
    return b"leasehold/%s/" % service.encode()


def shard_prefix(service: str, shard: int) -> bytes:
    """Return the prefix of all keys of a shard of a service."""
    return service_prefix(service) + b"%02x/" % shard


def split_key(key: bytes, service: str) -> tuple[str, bytes | None] | None:
    """Return the id of a record, and the suffix of a plain key; None for a foreign key.

    The suffix of the record's own key is None.
    """
    _shard, _, rest = key[len(service_prefix(service)) :].partition(b"/")
    text, slash, suffix = rest.partition(b"/")
    record_id = text.decode(errors="replace")
    if not is_id(record_id):
        return None
    return record_id, suffix if slash else None


def ttl_for(term_s: float, limits: Limits) -> float:
    """Return the TTL of the lease of a record's key, within the limits of the engine."""
    if term_s + NET_S >= limits.max_ttl:
        return limits.max_ttl
    return min(limits.max_ttl, ttl_of(ttl_of(term_s, limits) + NET_S, limits))


class StoredEnd(NamedTuple):
    """The value of a record's key, in seconds; `NEVER` for no end."""

    end_wall_s: float
    term_s: float
    lease_ttl_s: float
    term_number: int

    def encode(self) -> bytes:
        """Return the value."""
        return pb.LeasedRecord(
            end_ms=_to_ms(self.end_wall_s),
            term_ms=_to_ms(self.term_s),
            lease_ttl_ms=_to_ms(self.lease_ttl_s),
            term_number=self.term_number,
        ).SerializeToString()

    @classmethod
    def decode(cls, value: bytes) -> "StoredEnd":
        """Return the contents of a value; one that cannot be decoded has ended."""
        try:
            record = pb.LeasedRecord.FromString(value)
        except DecodeError:
            return cls(0.0, 0.0, 0.0, 0)
        return cls(
            _from_ms(record.end_ms),
            _from_ms(record.term_ms),
            _from_ms(record.lease_ttl_ms),
            record.term_number,
        )


def _to_ms(seconds: float) -> int:
    return WIRE_FOREVER_MS if seconds == NEVER else round(seconds * 1000.0)


def _from_ms(milliseconds: int) -> float:
    return NEVER if milliseconds == WIRE_FOREVER_MS else milliseconds / 1000.0


class RecordRows(NamedTuple):
    """All keys of one record, as they were read."""

    id: str
    own: KeyValue | None
    """The record's own key; None if it is gone."""
    plain: dict[bytes, bytes]
    """The values of the plain keys, by suffix."""


class StoredRecord:
    """A record as it is stored: its key, the lease of the key, and the epoch."""

    def __init__(self, service: str, record_id: str, ownership: ShardOwnership) -> None:
        self.service = service
        self.id = record_id
        self.shard = ownership.number
        self.ownership = ownership
        self.key = shard_prefix(service, ownership.number) + record_id.encode()
        self.lease = 0
        """The lease of its key, at the engine."""
        self.lease_ttl_s = 0.0
        self.term_number = 0
        """Rises with each renewal."""
        self.former_leases: set[int] = set()
        """Leases that its key may still be under, until a rewrite is answered."""
        self.epoch = 0
        self.is_ended = False
        self.key_lock = asyncio.Lock()
        """Held while the record's own key is rewritten."""

    def read(self, own: KeyValue) -> StoredEnd:
        """Take the values of the record's own key, and return its end."""
        end = StoredEnd.decode(own.value)
        self.lease, self.lease_ttl_s, self.epoch = own.lease, end.lease_ttl_s, own.mod_revision
        self.term_number = end.term_number
        return end

    def check(self) -> None:
        """Raise `NoSuchObject` if the record has ended, `ShardLost` if it is not served here."""
        if self.is_ended:
            raise NoSuchObject(self.service, self.id)
        self.ownership.check()

    @property
    def _epoch_compare(self) -> Compare:
        return Compare(self.key, Target.MOD_REVISION, Relation.EQUAL, self.epoch)

    @property
    def fence(self) -> list[Compare]:
        """The condition of the shard, if it has one."""
        return [] if self.ownership.fence is None else [self.ownership.fence]

    @property
    def conditions(self) -> list[Compare]:
        """The conditions of every write."""
        return [self._epoch_compare, *self.fence]

    @property
    def reads(self) -> list[Step]:
        """Steps that read the values of these conditions."""
        return [Range(compare.key) for compare in self.conditions]

    def refused(self, done: TxnResult, epoch: int) -> bool:
        """Record the values that were found instead; return True if the conditions did hold.

        `epoch` is the one that was compared: another call may have begun a later one since.
        Raises `ShardLost` and `NoSuchObject`.
        """
        fence = self.ownership.fence
        if fence is not None:
            owners = done.results[1].pairs
            if not owners or owners[0].create_revision != fence.operand:
                self.ownership.found_lost()
                raise ShardLost(self.shard, "another server has taken it over")
        pairs = done.results[0].pairs
        if not pairs:
            raise NoSuchObject(self.service, self.id)
        found: int = pairs[0].mod_revision
        self.epoch = max(self.epoch, found)
        return found == epoch


class RecordStorage:
    """The calls that one service makes to its engine."""

    def __init__(self, engine: Engine, service: str, random: Random) -> None:
        self.engine = engine
        self._service = service
        self._random = random

    async def ask(
        self,
        compares: Sequence[Compare],
        success: Sequence[Step],
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Make a call with a time limit."""
        async with time_limit(CALL_S, self.engine):
            return await self.engine.txn(compares, success, failure)

    # Leases.

    async def grant(self, ttl_s: float, in_doubt: Callable[[int], object]) -> int:
        """Grant a lease; `in_doubt` is called with one that may be granted without an answer."""
        lease = self._random.randint(1, MAX_ID)
        try:
            async with time_limit(CALL_S, self.engine):
                await self.engine.grant(ttl_s, lease=lease)
        except BaseException as error:
            if not was_not_executed(error):
                in_doubt(lease)
            raise
        return lease

    async def renew(self, record: StoredRecord) -> None:
        """Begin a new term of the lease of a record's key. Raises `NoSuchObject`."""
        try:
            async with time_limit(CALL_S, self.engine):
                await self.engine.renew(record.lease)
        except UnknownLease:
            raise NoSuchObject(self._service, record.id) from None

    async def revoke(self, lease: int, *, may_come: bool = False) -> bool:
        """Revoke a lease, with retries; return whether it is over."""
        return await end_one(self.engine, lease, LOST_S, self._random, may_come=may_come)

    # Writing.

    async def create(self, record: StoredRecord, value: bytes, steps: Sequence[Step]) -> None:
        """Write the key of a new record, with the first plain keys. Raises `ShardLost`.

        If there is no answer, it can be executed until the lease of the key is revoked.
        """
        is_new = Compare(record.key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        put = Put(record.key, value, record.lease)
        done = await self.ask([is_new, *record.fence], [put, *steps])
        if not done.succeeded:
            record.ownership.found_lost()
            raise ShardLost(record.shard, "another server has taken it over")
        record.epoch = done.revision

    async def write(
        self, record: StoredRecord, success: Sequence[Step], compares: Sequence[Compare]
    ) -> TxnResult:
        """Execute a transaction if the record is served here; again if the epoch has changed.

        If `compares` do not hold, the result has not `succeeded`, and no results.
        """
        backoff = Backoff(RETRIES, self._random)
        while True:
            record.check()
            epoch = record.epoch
            done = await self.ask([*record.conditions, *compares], success, record.reads)
            if done.succeeded:
                return done
            if record.refused(done, epoch):
                return TxnResult(done.revision, succeeded=False, results=[])
            await self._wait_for_newer(record, epoch, backoff)

    async def write_together(self, records: Sequence[StoredRecord], steps: Sequence[Step]) -> bool:
        """Execute a transaction if all records are served here; return whether they are.

        False also if one of their epochs has changed.
        """
        by_key = {compare.key: compare for each in records for compare in each.conditions}
        return (await self.ask(list(by_key.values()), steps)).succeeded

    async def rewrite(self, record: StoredRecord, value: Callable[[], bytes]) -> None:
        """Write a record's own key, until there is an answer; that begins another epoch.

        It is repeated while the record is served here, unless the first attempt was refused. Raises
        `NoSuchObject`.
        """
        backoff = Backoff(RETRIES, self._random)
        is_in_doubt = False
        while True:
            record.check()
            put, epoch = Put(record.key, value(), record.lease), record.epoch
            try:
                done = await self.ask(record.conditions, [put], record.reads)
            except UnknownLease:
                raise NoSuchObject(self._service, record.id) from None
            except (LeaseholdError, OSError) as error:
                if is_definite(error) or (was_not_executed(error) and not is_in_doubt):
                    raise
                is_in_doubt = True
                await asyncio.sleep(backoff.next_s())
                continue
            if done.succeeded:
                record.epoch = done.revision
                return
            record.refused(done, epoch)
            await self._wait_for_newer(record, epoch, backoff)

    async def _wait_for_newer(self, record: StoredRecord, epoch: int, backoff: Backoff) -> None:
        """Wait if a write of this epoch was refused, and an older one was found.

        A member of an etcd cluster that has skipped a transaction (etcd's issue 13766) refuses all
        writes until the record has another epoch there, or another member answers.
        """
        if record.epoch == epoch:
            await asyncio.sleep(backoff.next_s())

    # Reading.

    async def pages(self, prefix: bytes, check: Callable[[], object]) -> AsyncIterator[KeyValue]:
        """Read all keys with a prefix in order, in pages, each at the latest revision.

        Indefinite errors are retried as long as `check` does not raise.
        """
        start, end, limit = prefix, prefix_end(prefix), KEYS_PER_PAGE
        backoff = Backoff(RETRIES, self._random)
        while True:
            check()
            try:
                async with time_limit(CALL_S, self.engine):
                    page = await self.engine.range(start, end, limit=limit)
            except TooLarge:
                if limit == 1:
                    raise
                limit //= 2
                continue
            except (LeaseholdError, OSError) as error:
                if is_definite(error):
                    raise
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            check()
            for pair in page.pairs:
                yield pair
            if not page.more:
                return
            start = page.pairs[-1].key + b"\0"

    async def has_rows(self, ownership: ShardOwnership) -> bool:
        """Return whether a shard has any keys."""
        prefix = shard_prefix(self._service, ownership.number)
        async for _ in self.pages(prefix, ownership.check):
            return True
        return False

    async def rows_of_shard(self, ownership: ShardOwnership) -> AsyncIterator[RecordRows]:
        """Read the keys of all records of a shard, one record after the other."""
        rows = RecordRows("", None, {})
        prefix = shard_prefix(self._service, ownership.number)
        async for pair in self.pages(prefix, ownership.check):
            record_id, suffix = split_key(pair.key, self._service) or ("", b"")
            if record_id != rows.id:  # the own key of a record comes before its plain keys
                if rows.id:
                    yield rows
                rows = RecordRows(record_id, pair if suffix is None else None, {})
            if suffix is not None:
                rows.plain[suffix] = pair.value
        if rows.id:
            yield rows

    async def watch_deletes(self) -> AsyncIterator[tuple[int, list[bytes]] | None]:
        """Watch the keys of the service, until the engine is closed.

        Gives the revision and the keys of each delete; None once all further deletes will be given,
        and again after some may have been missed.
        """
        prefix = service_prefix(self._service)
        backoff = Backoff(RETRIES, self._random)
        while True:
            try:
                async with self.engine.watch(prefix, prefix_end(prefix), puts=False) as watch:
                    yield None
                    backoff.reset()
                    async for revision, events in watch:
                        yield revision, [event.key for event in events]
            except OVER:
                return
            except (LeaseholdError, OSError) as error:
                logger.info("the watch of %s has ended, and is made again: %s", prefix, error)
            await asyncio.sleep(backoff.next_s())

    # Collecting.

    async def collect(self, key: bytes) -> None:
        """Delete the plain keys of a record whose own key is gone, in bounded passes."""
        below = key + b"/"
        is_gone = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        look = Range(below, prefix_end(below), limit=KEYS_PER_PASS, keys_only=True)
        while True:
            found = (await self.ask([is_gone], [look])).results
            if not found or not found[0].pairs:
                return  # the record exists, or nothing is left
            pairs = found[0].pairs
            await self.ask([is_gone], [Delete(pairs[0].key, pairs[-1].key + b"\0")])
            if not found[0].more:
                return
            await asyncio.sleep(PASS_PAUSE_S)

    async def missing(self, records: Sequence[R]) -> list[R]:
        """Return those records whose own keys do not exist."""
        gone: list[R] = []
        size = self.engine.limits.txn_operations
        for first in range(0, len(records), size):
            some = records[first : first + size]
            steps: list[Step] = [Range(record.key, count_only=True) for record in some]
            done = await self.ask([], steps)
            found = zip(some, done.results, strict=True)
            gone += [record for record, result in found if not result.total]
        return gone


def was_not_executed(error: BaseException) -> bool:
    """Return whether the call that raised this has certainly changed nothing."""
    return isinstance(error, LeaseholdError) and error.not_executed


def is_refused(error: BaseException) -> bool:
    """Return whether a write was not executed; one with wrong arguments is not even sent."""
    return was_not_executed(error) or isinstance(error, (*OVER, ValueError, TypeError))
