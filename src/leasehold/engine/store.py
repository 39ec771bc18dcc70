"""The store: keys and leases in memory, and what has yet to go to disk.

Theory of operation. `apply` changes memory at once and puts the change into the *open batch*.
Somebody else (`engine.committer`) takes the open batch, writes it to the journal, and says when it
is there. So memory runs ahead of the disk, by two batches at most: one under way and one open.

Nobody may see what is not on disk. `apply` returns, with its result, the *position* that must be
durable before the result is shown: the number of the batch that has the change. (A revision would
not do: a grant must be on disk as well, and does not move the revision.) For what is only read:

- keys and leases that neither batch has touched are as they were at `durable_revision`, and may be
  shown at once, at that revision;
- everything else is at `revision`, and may be shown when `position` is durable.

Renewals change memory only. After a restart a lease has its full term again, so that no promise is
cut short.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.keyspace import Change, Item, Keyspace
from leasehold.core.ops import Grant, Op, Put, Revoke
from leasehold.core.watchers import Watchers
from leasehold.engine import records
from leasehold.engine.batch import MAX_BATCH_BYTES, Batch
from leasehold.engine.journal import Row
from leasehold.engine.leases import LeaseRecord, Leases
from leasehold.errors import UnknownKey
from leasehold.wire.encode import key_value

T = TypeVar("T")


class Store:
    """A keyspace with leases; synchronous, for one thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.keyspace = Keyspace(key_value)
        self.leases = Leases(self._lease_ended, clock)
        self.watchers = Watchers()
        self.durable = 0
        """The position up to which everything is on disk."""
        self.durable_revision = self.keyspace.revision
        self.on_durable: Callable[[int], None] = _ignore
        """Called with each new value of `durable`."""
        self.on_pending: Callable[[], None] = _ignore
        """Called when there is something to be committed, and nothing is under way."""
        self._restored: dict[int, LeaseRecord] = {}
        self._under_way: Batch | None = None
        self._open = Batch(1, self.revision + 1)
        self._open_bytes = 0
        self._appliers: dict[type, Callable[[Any], Any]] = {
            Put: self._put,
            Grant: self._grant,
            Revoke: self._revoke,
        }

    # What is there.

    @property
    def revision(self) -> int:
        """The revision of what is in memory."""
        return self.keyspace.revision

    @property
    def position(self) -> int:
        """What must be durable before what is in memory now may be shown."""
        if self._open.changes:
            return self._open.number
        return self.durable if self._under_way is None else self._under_way.number

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing further should be applied."""
        return self._open_bytes >= MAX_BATCH_BYTES

    def is_durable(self, key: bytes) -> bool:
        """Say whether a key is, in memory, as it is on disk."""
        return key not in self._open.keys and (
            self._under_way is None or key not in self._under_way.keys
        )

    def is_range_durable(self, key: bytes, end: bytes) -> bool:
        """Say whether a range is, in memory, as it is on disk."""
        return not self._open.touches(key, end) and (
            self._under_way is None or not self._under_way.touches(key, end)
        )

    def lease_position(self, lease: int) -> int:
        """What must be durable before it may be told whether there is this lease."""
        if lease in self._open.leases:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.leases:
            return self._under_way.number
        return 0

    def keys_position(self, lease: int) -> int:
        """What must be durable before it may be told which keys a lease has."""
        if lease in self._open.rekeyed:
            return self._open.number
        if self._under_way is not None and lease in self._under_way.rekeyed:
            return self._under_way.number
        return 0

    # What changes it.

    def apply(self, op: Op[T]) -> tuple[T, int]:
        """Change memory at once; return the result, and the position that it is durable at."""
        return self._appliers[type(op)](op), self._open.number

    def _put(self, op: Put) -> tuple[int, Item | None]:
        key, value, lease = op.key, op.value, op.lease
        record = self.leases.current(lease) if lease else None
        if record is not None:
            record.check_room(key)
        previous = self.keyspace.get(key)
        if value is None or lease is None:
            if previous is None:
                raise UnknownKey(key)
            if value is None:
                value = records.value_of(previous)
            if lease is None:
                lease = previous[4]
        item = self.keyspace.put(key, value, lease)
        batch = self._open
        if previous is not None and previous[4] != lease and previous[4]:
            self.leases.detach(key, previous[4])
            batch.rekeyed.add(previous[4])
        if record is not None:
            record.attach(key)
            batch.rekeyed.add(record.id)
        batch.keys.add(key)
        self._record(records.put(item[0]))
        if self.watchers:
            self.watchers.publish((Change(key, item[2], item, previous),), batch.number)
        return item[2], previous

    def _grant(self, op: Grant) -> tuple[int, bytes]:
        leased = self.leases.grant(op.lease, op.ttl_s)
        record = leased.resource
        self._open.granted.append(leased)
        self._open.leases.add(record.id)
        self._record(records.granted(record))
        return record.id, record.encoded_id

    def _revoke(self, op: Revoke) -> int:
        self.leases.revoke(op.lease)
        return self.revision

    def _lease_ended(self, record: LeaseRecord) -> None:
        """Take a lease's keys with it, all at one revision."""
        batch = self._open
        batch.leases.add(record.id)
        changes = self.keyspace.delete(list(record.keys))
        batch.keys.update(record.keys)
        self._record(
            b"".join([records.deleted(change.key, change.revision) for change in changes])
            + records.ended(record.id)
        )
        if changes and self.watchers:
            self.watchers.publish(changes, batch.number)

    def _record(self, encoded: bytes) -> None:
        batch = self._open
        if not batch.changes and self._under_way is None:
            self.on_pending()
        batch.changes.append(encoded)
        self._open_bytes += len(encoded)

    # How it gets to disk.

    def take_batch(self) -> Batch | None:
        """Close the open batch and return it, if there is anything in it."""
        assert self._under_way is None, "one batch is under way"
        batch = self._open
        if not batch.changes:
            return None
        batch.last_revision = self.revision
        self._under_way = batch
        self._open = Batch(batch.number + 1, self.revision + 1)
        self._open_bytes = 0
        return batch

    def committed(self) -> None:
        """Learn that the batch under way is on disk."""
        batch = self._under_way
        assert batch is not None, "no batch is under way"
        self._under_way = None
        self.leases.enter()
        self.leases.answered(batch.granted)
        self.durable = batch.number
        self.durable_revision = batch.last_revision
        self.on_durable(batch.number)
        if self._open.changes:
            self.on_pending()

    # How it comes back.

    def restore(self, row: Row) -> None:
        """Take one row of a journal; all of them, in order, before `start`."""
        records.replay(row, self.keyspace, self._restored)

    def start(self) -> None:
        """Begin to serve, on the running event loop: restored leases begin a full term now."""
        self.leases.start(self._restored.values())
        self._restored = {}
        self.durable_revision = self.revision
        self._open = Batch(1, self.revision + 1)


def _ignore(*_: object) -> None:
    return
