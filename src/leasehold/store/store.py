"""The store: keys and leases in memory, and the changes that are not on disk yet.

Theory of operation. `apply` changes memory immediately and puts the change into the *open batch*.
`store.committer` takes the open batch, writes it to the journal, and calls `committed` when it is
on disk. Along with its result `apply` returns the position that must be durable before the result
may be shown: see `store.undurable_changes`.

An operation that touches more than a thousand keys is done in steps (`steps`), between which other
things happen. Meanwhile the store `is_busy`, and no other operation reads or changes keys. Leases
continue: those that end meanwhile wait with their keys in `ends`. All changes of all steps get into
one batch at the end, under one revision.

Renewals change memory only, except in the two cases described in `store.store_leases`.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from leasehold.basics.callbacks import ignore
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import Compacted, EndReason, FutureRevision, LeaseExists, NoSpace
from leasehold.journal import records
from leasehold.keyspace.keyspace import FIRST_REVISION, Item, Keyspace, PairCodec
from leasehold.keyspace.operations import (
    Compact,
    Delete,
    Deleted,
    Found,
    Grant,
    Op,
    Outcome,
    Put,
    Range,
    Revoke,
    Txn,
)
from leasehold.keyspace.ranges import LONG, Steps, finish, read_now, read_past
from leasehold.keyspace.recent_changes import Recent, changes_bytes
from leasehold.keyspace.transaction_rules import choose
from leasehold.keyspace.watchers import Watchers
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.lease_watchers import LeaseWatchers
from leasehold.store.replay import Replay
from leasehold.store.store_leases import StoreLeases
from leasehold.store.transactions import RevisionWriter, Transactions
from leasehold.store.undurable_changes import Batch, UndurableChanges
from leasehold.wire.codec import key_value

T = TypeVar("T")

LEASE_BYTES: Final = 700
"""The approximate memory taken by a lease (measured by `make bench`)."""

DEFAULT_QUOTA_BYTES: Final = 2 * 1024**3
"""The size of the data, in memory or on disk, above which further writes are refused."""


MAX_FOLDABLE_BYTES: Final = 32 * 1024 * 1024
"""Changes of leases alone that may be in the journal before they are folded into its tables.

Grants and revokes move no revision, so no compaction is due for them. These are some 600,000
changes, which a start reads in a few seconds. Folding costs the commit thread a row for each lease
that is alive by then, so a smaller bound would slow down a burst of grants to no purpose.
"""

FOLDABLE_SHARE: Final = 16
"""At most this fraction of a small quota is left to changes that could be folded."""


class Store(UndurableChanges):
    """A keyspace with leases; synchronous, for one thread."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, quota_bytes: int = DEFAULT_QUOTA_BYTES
    ) -> None:
        self.keyspace = Keyspace(PairCodec(key_value, records.value_of))
        super().__init__(self.keyspace.revision, self.keyspace.compacted)
        self.recent = Recent(self.keyspace.revision + 1)
        self.leases = StoreLeases(self._lease_ended, self._lease_promised, clock)
        self.watchers = Watchers()
        self.lease_watchers = LeaseWatchers(self)
        self.on_pending: Callable[[], None] = ignore
        """Called when there are changes to be committed, and no commit is under way."""
        self.on_long_end: Callable[[], None] = ignore
        """Called when a lease has ended with too many keys to delete in one step: see `ends`."""
        self.is_busy = False
        """Whether an operation in steps is under way, or keys of an ended lease are still to be
        deleted.

        Then no other operation may read or change keys.
        """
        self.on_torn: Callable[[BaseException], None] = ignore
        """Called if an operation failed half-way: then memory is inconsistent."""
        self.ends: deque[LeaseRecord] = deque()
        """Leases that have ended and whose keys are still to be deleted, in order."""
        self._ending: dict[int, EndReason] = {}
        self.pins: Counter[int] = Counter()
        """Revisions that are being read: they must not be forgotten meanwhile."""
        self.quota_bytes = quota_bytes
        self._room_bytes = quota_bytes
        """The limit of `used_bytes`: the quota, or a negative number (`cap`)."""
        self.on_no_space: Callable[[], None] = ignore
        """Called when an operation is refused because the quota is used up."""
        self.foldable_bytes = 0
        """The size of changes committed since the last fold that need not be kept as history.

        Those of leases alone, after everything was compacted, or before there was any key.
        """
        self.on_foldable: Callable[[], None] = ignore
        """Called when `foldable_bytes` exceeds its bound, or a client asks to fold."""
        self._max_foldable_bytes = min(MAX_FOLDABLE_BYTES, quota_bytes // FOLDABLE_SHARE)
        self.used_bytes = 0
        """The size of the data in memory or on disk, whichever is more, as last measured."""
        self.transactions = Transactions(self.keyspace, self.leases, self.check_room)
        self.replay = Replay(self.keyspace)
        """Restores the store from a journal, before `complete`."""
        self._appliers: dict[type, Callable[[Any], Any]] = {
            Put: self._put,
            Grant: self._grant,
            Revoke: self._revoke,
            Compact: self._compact,
            Delete: lambda op: finish(self._delete_steps(op)),
            Txn: self._txn,
        }

    # Reading.

    @property
    def revision(self) -> int:
        """The revision of the data in memory."""
        return self.keyspace.revision

    def read(self, query: Range) -> tuple[Found, int] | None:
        """Read a range in one step; return it and the position that it may be shown at.

        Return None if it is too long, or has to be read from disk: then use a `scan`.
        """
        assert not self.is_busy, "an operation is under way"
        revision = query.revision
        if revision > 0:
            self.transactions.check_revision(revision)
        if 0 < revision < self.revision:
            found = read_past(self.keyspace, query, self.recent)
            return None if found is None else (found, self.position_of(revision))
        found = read_now(self.keyspace, query)
        if found is None:
            return None
        if revision <= self.durable_revision and self.is_range_durable(query.key, query.end):
            return found._replace(revision=self.durable_revision), 0
        return found, self.position

    # Changing.

    def apply(self, op: Op[T]) -> tuple[T, int]:
        """Change memory immediately; return the result and the position at which it is durable.

        An operation that `is_long` may also be applied in this way, but blocks meanwhile.
        """
        assert not self.is_busy or type(op) is Grant, "an operation is under way"
        try:
            result: T = self._appliers[type(op)](op)
        except BaseException as error:
            if type(op) is not Grant:  # it changes no key, and may come between others' steps
                self._look_for_tears(error)
            raise
        return result, self._open.number if self._open.changes else self.position

    def is_long(self, op: Op[Any]) -> bool:
        """Return whether an operation should be done in steps."""
        return isinstance(op, Delete | Txn) and self.transactions.touched(op) > LONG

    def steps(self, op: Delete | Txn) -> Steps[tuple[Any, int]]:
        """Do an operation in steps; return, in the end, the result of `apply`.

        The store is busy from the first step to the last, also if it is given up in between.
        """
        assert not self.is_busy, "an operation is under way"
        self.is_busy = True
        try:
            if isinstance(op, Delete):
                return (yield from self._delete_steps(op)), self.position
            return (yield from self._txn_steps(op)), self.position
        except BaseException as error:
            self._look_for_tears(error)
            raise
        finally:
            self.is_busy = bool(self.ends)

    def _look_for_tears(self, error: BaseException) -> None:
        """Find out whether a failed operation had already changed anything."""
        if self.keyspace.newest > self.keyspace.revision:
            self.on_torn(error)

    def cap(self, *, is_capped: bool) -> None:
        """Refuse to make the data any larger, whatever space is left, until this is called again.

        Deletes, compactions and the ends of leases continue.
        """
        self._room_bytes = -1 if is_capped else self.quota_bytes

    def check_room(self) -> None:
        """Refuse to make the data any larger once the quota is used up."""
        if self.used_bytes > self._room_bytes:
            if self.used_bytes > self.quota_bytes:
                self.on_no_space()
            raise NoSpace(self.used_bytes, self.quota_bytes)

    @property
    def is_fold_due(self) -> bool:
        """Whether enough was committed that can be folded into the tables of the journal."""
        return self.foldable_bytes > self._max_foldable_bytes

    def _put(self, op: Put) -> tuple[int, Item | None]:
        key, value, lease = op.key, op.value, op.lease
        if self.used_bytes > self._room_bytes:
            self.check_room()
        record = self.leases.taker(lease, key) if lease else None
        if value is None or lease is None:
            value, lease = self.transactions.kept(op)
        revision = self.keyspace.revision + 1
        change = self.keyspace.put(key, value, lease, revision)
        batch = self._open
        previous = change.previous
        if previous is not None and previous[4] != lease and previous[4]:
            self.leases.detach(key, previous[4])
            batch.rekeyed.add(previous[4])
        if record is not None:
            record.attach(key)
            batch.rekeyed.add(record.id)
        batch.keys.add(key)
        assert change.item is not None
        encoded = change.item[0]
        self._record(records.put(encoded))
        changes = (change,)
        size_bytes = len(encoded) if previous is None else len(encoded) + len(previous[0])
        self.recent.add(changes, size_bytes)
        if self.watchers.any_live:
            self.watchers.publish(changes, batch.number)
        self.keyspace.revision = revision
        return revision, previous

    def _delete_steps(self, op: Delete) -> Steps[Deleted]:
        if op.prev_kv:
            yield from self.transactions.check_delete(op)
        writing = RevisionWriter(self.keyspace, self.leases)
        previous = yield from writing.delete(op)
        self._close(writing)
        return Deleted(self.revision, previous)

    def _txn(self, op: Txn) -> Outcome:
        chosen = None if self.used_bytes > self._room_bytes else choose(op, self.keyspace)
        if chosen is None:
            return finish(self._txn_steps(op))
        succeeded, put = chosen
        if put is None:
            return Outcome(succeeded, [], self.revision)
        done = self._put(put)
        return Outcome(succeeded, [done], done[0])

    def _txn_steps(self, op: Txn) -> Steps[Outcome]:
        if self.used_bytes > self._room_bytes and _may_put(op):
            self.check_room()
        branch, writing = yield from self.transactions.prepare(op)
        results = yield from self.transactions.carry_out(branch, writing)
        self._close(writing)
        return Outcome(branch.succeeded, results, self.revision)

    def _grant(self, op: Grant) -> tuple[int, bytes]:
        if self.used_bytes > self._room_bytes:
            self.check_room()
        if self.ends and self.is_ending(op.lease):
            raise LeaseExists(op.lease)
        leased = self.leases.grant(op.lease, op.ttl_s, op.holder)
        record = leased.resource
        self._open.granted.append(leased)
        self._open.leases.add(record.id)
        self._record(records.granted(record.encoded_id, record.ttl_s, record.holder))
        if self.lease_watchers.any:
            self.lease_watchers.granted(record, self._open.number)
        return record.id, record.encoded_id

    def _revoke(self, op: Revoke) -> int:
        self.leases.revoke(op.lease)
        return self.revision

    def _compact(self, op: Compact) -> int:
        if op.revision > self.revision:
            raise FutureRevision(op.revision, self.revision)
        if op.revision <= self.keyspace.compacted:
            self.on_foldable()  # the history is gone, but changes of leases may have come since
            raise Compacted(op.revision, self.keyspace.compacted)
        self.keyspace.compacted = op.revision
        self._record(records.compacted(op.revision))
        return self.revision

    # Ends of leases.

    def is_ending(self, lease: int) -> bool:
        """Return whether a lease has ended, but its very many keys are still to be deleted.

        This must not be shown before that, because it is unknown when it will be on disk.
        """
        return lease in self._ending

    def _lease_ended(self, record: LeaseRecord, reason: EndReason) -> None:
        """Delete a lease's keys, all at one revision; very many of them a little later."""
        self._open.leases.add(record.id)
        if self.is_busy or len(record.keys) > LONG:
            self.ends.append(record)
            self._ending[record.id] = reason
            self.is_busy = True
            self.on_long_end()
            return
        try:
            self._end_at_once(record, reason)
        except BaseException as error:
            self._look_for_tears(error)
            raise

    def _end_at_once(self, record: LeaseRecord, reason: EndReason) -> None:
        """Delete a lease's few keys. Very many leases may end together, most with a key or none."""
        batch, keyspace = self._open, self.keyspace
        ended = records.ended(record.encoded_id)
        if not record.keys:
            self._record(ended)
            if self.lease_watchers.any:
                self.lease_watchers.ended(record, reason, (), batch.number)
            return
        revision = keyspace.revision + 1
        names = sorted(record.keys)
        changes = [keyspace.delete(name, revision) for name in names]
        batch.keys.update(record.keys)
        deleted = [records.deleted(change.key, revision) for change in changes]
        self._record(b"".join([*deleted, ended]))
        self.recent.add(changes, changes_bytes(changes))
        if self.watchers.any_live:
            self.watchers.publish(changes, batch.number)
        keyspace.revision = revision
        if self.lease_watchers.any:
            self.lease_watchers.ended(record, reason, names, batch.number)

    def next_end_steps(self) -> Steps[None]:
        """Delete the keys of the next of `ends`, in steps; not while another one is under way."""
        try:
            yield from self._end_steps(self.ends[0])
        except BaseException as error:
            self._look_for_tears(error)
            raise
        del self._ending[self.ends.popleft().id]
        self.is_busy = bool(self.ends)

    def _end_steps(self, record: LeaseRecord) -> Steps[None]:
        writing = RevisionWriter(self.keyspace, self.leases)
        yield from writing.end(record)
        self._open.leases.add(record.id)
        self._close(writing)
        if self.lease_watchers.any:
            reason = self._ending[record.id]
            self.lease_watchers.ended(record, reason, writing.keys, self._open.number)

    def _lease_promised(self, record: LeaseRecord) -> None:
        """Record the minimum time that a lease runs after a restart."""
        self._open.leases.add(record.id)
        self._record(records.promised(record.encoded_id, record.promised_s))

    # Batches.

    def _close(self, writing: RevisionWriter) -> None:
        """Put all changes of one revision into the batch, and notify the watchers."""
        batch = self._open
        if writing.records:
            self._record(b"".join(writing.records))
        changes = writing.changes
        if not changes:
            return
        batch.keys.update(writing.keys)
        batch.rekeyed.update(writing.rekeyed)
        self.recent.add(changes, writing.size_bytes)
        if self.watchers.any_live:
            self.watchers.publish(changes, batch.number)
        self.keyspace.revision = writing.revision

    def _record(self, encoded: bytes) -> None:
        batch = self._open
        if not batch.changes and self._under_way is None:
            self.on_pending()
        batch.changes.append(encoded)
        batch.size_bytes += len(encoded)

    # Commits.

    def take_batch(self) -> Batch | None:
        """Close the open batch and return it; None if it is empty."""
        assert self._under_way is None, "one batch is under way"
        batch = self._open
        if not batch.changes:
            return None
        batch.last_revision = self.revision
        batch.compacted = self.keyspace.compacted
        self._under_way = batch
        self._open = Batch(batch.number + 1, self.revision + 1)
        return batch

    def committed(self) -> None:
        """Mark the batch under way as durable."""
        batch = self._under_way
        assert batch is not None, "no batch is under way"
        self._under_way = None
        self.leases.enter()
        self.leases.answered(batch.granted)
        self.durable = batch.number
        self.durable_revision = batch.last_revision
        self.durable_compacted = batch.compacted
        if self.recent.is_over:
            self.recent.drop(self.durable_revision)
        if batch.last_revision <= batch.compacted or batch.last_revision == FIRST_REVISION:
            self.foldable_bytes += batch.size_bytes
            if self.is_fold_due:
                self.on_foldable()
        self.on_durable(batch.number)
        if self._open.changes:
            self.on_pending()

    def measure(self, disk_bytes: int) -> None:
        """Set the size of the data on disk, to be compared with the quota from now on."""
        memory_bytes = self.keyspace.memory_bytes + LEASE_BYTES * len(self.leases)
        self.used_bytes = max(disk_bytes, memory_bytes)

    # Starting.

    def complete(self) -> None:
        """Do the part of a start that takes long and needs no event loop, after the replay."""
        replay = self.replay
        if not replay.is_finished:
            replay.finish()
            self.leases.restore(replay.leases.values(), replay.left_s, replay.listed)
            replay.clear()

    def start(self) -> None:
        """Begin to serve, on the running event loop: the terms of restored leases begin now.

        Nothing may have changed since the journal was read, or the journal would lack it for ever.
        """
        self.complete()
        touched = self._open.changes or self._open.leases or self._under_way or self.ends
        assert not touched, "something was changed before the start"
        self.leases.start()
        self.recent = Recent(self.revision + 1)
        self.durable_revision = self.revision
        self.durable_compacted = self.keyspace.compacted
        self._open = Batch(1, self.revision + 1)


def _may_put(txn: Txn) -> bool:
    """Return whether a transaction puts anything, whichever branch it takes."""
    return any(isinstance(step, Put) for step in (*txn.success, *txn.failure))
