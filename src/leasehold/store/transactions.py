"""Transactions on a store: checked before anything is changed, then done step by step.

`RevisionWriter` has the changes of one revision while they are being made.
"""

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from leasehold.errors import Compacted, FutureRevision, UnknownKey
from leasehold.journal import records
from leasehold.keyspace import transaction_rules as txns
from leasehold.keyspace.answer_size import OPERATION_BYTES, AnswerBound, AnswerSize
from leasehold.keyspace.keyspace import FROM_KEY, Change, Item, Keyspace
from leasehold.keyspace.operations import (
    Compare,
    Delete,
    Deleted,
    Found,
    Outcome,
    Put,
    Range,
    Target,
    Txn,
)
from leasehold.keyspace.ranges import (
    LONG,
    SLICE,
    Steps,
    Wanted,
    pausing,
    read_now,
    scan,
    sort_steps,
)
from leasehold.keyspace.recent_changes import changes_bytes
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.store_leases import StoreLeases


class RevisionWriter:
    """Collects the changes of keys by a transaction, a delete or the end of a lease."""

    __slots__ = (
        "_before",
        "_indexed",
        "_keyspace",
        "_leases",
        "_used",
        "changes",
        "keys",
        "past",
        "records",
        "rekeyed",
        "revision",
        "size_bytes",
    )

    def __init__(
        self,
        keyspace: Keyspace,
        leases: StoreLeases,
        used: dict[int, LeaseRecord] | None = None,
        past: dict[int, Found] | None = None,
    ) -> None:
        self._keyspace = keyspace
        self._leases = leases
        self._used = used or {}
        """Leases that keys are put under. If one ends meanwhile, its keys are deleted later."""
        self.past = past or {}
        """The results of ranges of earlier revisions, by the `id` of the range."""
        self.revision = keyspace.revision + 1
        """The revision of all changes, if there are any."""
        self.changes: list[Change] = []
        self.keys: list[bytes] = []
        self.size_bytes = 0
        self.records: list[bytes] = []
        self.rekeyed: set[int] = set()
        self._before: dict[bytes, Item | None] = {}
        """The keys before this revision: those of the first `_indexed` changes."""
        self._indexed = 0

    @property
    def shown_revision(self) -> int:
        """The revision after the changes made so far."""
        return self.revision if self.changes else self.revision - 1

    def put(self, key: bytes, value: bytes, lease: int) -> Item | None:
        """Set a key, and return its previous item."""
        change = self._keyspace.put(key, value, lease, self.revision)
        assert change.item is not None
        previous = change.previous
        if previous is None or previous[4] != lease:
            if previous is not None:
                self._detach(key, previous[4])
            if lease:
                self._used[lease].attach(key)
                self.rekeyed.add(lease)
        self._take(change)
        self.records.append(records.put(change.item[0]))
        return previous

    def _detach(self, key: bytes, lease: int) -> None:
        if lease:
            self._leases.detach(key, lease)
            self.rekeyed.add(lease)

    def delete(self, op: Delete) -> Generator[Wanted, list[Item], list[Item]]:
        """Delete a key or a range, with pauses; return the deleted items."""
        gone: list[Item] = []
        while names := list(islice(self._keyspace.names(op.key, op.end), SLICE)):
            for name in names:
                item = self._delete(name)
                self._detach(name, item[4])
                gone.append(item)
            if len(names) < SLICE:
                break
            yield []
        return gone

    def _delete(self, name: bytes) -> Item:
        change = self._keyspace.delete(name, self.revision)
        previous = change.previous
        assert previous is not None
        self._take(change)
        self.records.append(records.deleted(name, self.revision))
        return previous

    def _take(self, change: Change) -> None:
        """Add a change; the previous pair that watches send is the one before this revision."""
        if change.previous is not None and change.previous[2] == self.revision:
            for each in self.changes[self._indexed :]:
                self._before.setdefault(each.key, each.previous)
            self._indexed = len(self.changes)
            change.previous = self._before[change.key]
        self.changes.append(change)
        self.keys.append(change.key)
        self.size_bytes += changes_bytes((change,))

    def end(self, record: LeaseRecord) -> Generator[Wanted, list[Item], None]:
        """Delete the keys of a lease that has ended, in order, with pauses.

        If it ended during an operation in steps, that may have taken some of its keys.
        """
        names = yield from sort_steps(list(record.keys), bytes)
        for start in range(0, len(names), SLICE):
            if start:
                yield []
            for name in names[start : start + SLICE]:
                item = self._keyspace.get(name)
                if item is not None and item[4] == record.id:
                    self._delete(name)
        self.records.append(records.ended(record.encoded_id))


VALUE_BYTES: Final = 4 * 1024
"""A value that is compared counts as one key per this many bytes, since it is decoded for that."""

VALUE_WEIGHT: Final = 16
"""The weight of each key of a range whose values are compared; their sizes are unknown."""


class Transactions:
    """Estimates, checks and executes transactions.

    `check_room` refuses to make the data any larger.
    """

    def __init__(
        self, keyspace: Keyspace, leases: StoreLeases, check_room: Callable[[], None]
    ) -> None:
        self._keyspace = keyspace
        self._leases = leases
        self._check_room = check_room
        self.max_answer_bytes: int | None = None
        """The size above which an answer is refused; a server sets it."""

    def check_revision(self, revision: int) -> None:
        """Refuse a revision that is compacted, or in the future."""
        if revision > self._keyspace.revision:
            raise FutureRevision(revision, self._keyspace.revision)
        if revision < self._keyspace.compacted:
            raise Compacted(revision, self._keyspace.compacted)

    def touched(self, step: Delete | Range | Put | Compare | Txn) -> int:
        """Count the keys an operation may touch in any branch; stop when it is long."""
        if isinstance(step, Put):
            return 1
        if isinstance(step, Txn):
            return self._touched_by(step)
        if isinstance(step, Range) and step.revision > 0:
            return LONG + 1  # it may have to be looked up on disk
        touched = self._keyspace.count(step.key, step.end)
        if isinstance(step, Compare) and step.target == Target.VALUE:
            return touched * VALUE_WEIGHT if step.end else self._data(step.key) // VALUE_BYTES
        return touched

    def _touched_by(self, txn: Txn) -> int:
        """Count each operation as at least one key: an operation on no key takes time as well."""
        touched = 1
        for step in (*txn.compares, *txn.success, *txn.failure):
            touched += 1 if type(step) is Put else max(1, self.touched(step))
            if touched > LONG:
                break
        return touched

    def has_long_answer(self, txn: Txn) -> bool:
        """Return whether the answer may contain very many keys, whichever branches are taken."""
        return self._shown_by(txn) > LONG

    def _shown_by(self, txn: Txn) -> int:
        shown = 1
        for step in (*txn.success, *txn.failure):
            if isinstance(step, Txn):
                shown += self._shown_by(step)
            elif isinstance(step, Range) or step.prev_kv:
                shown += max(1, self.touched(step))
            if shown > LONG:
                break
        return shown

    def _data(self, key: bytes) -> int:
        item = self._keyspace.get(key)
        return 0 if item is None else len(item[0])

    def kept(self, op: Put) -> tuple[bytes, int]:
        """Return the value and lease for a put that keeps one of the key's present ones."""
        previous = self._keyspace.get(op.key)
        if previous is None:
            raise UnknownKey(op.key)
        value = records.value_of(previous) if op.value is None else op.value
        return value, previous[4] if op.lease is None else op.lease

    def prepare(self, txn: Txn) -> Steps[tuple[txns.Branch, RevisionWriter]]:
        """Decide on the branches, and refuse operations that would fail half-way."""
        branch = yield from pausing(txns.decide(txn, self._keyspace))
        return branch, (yield from self._check(branch))

    def check_delete(self, delete: Delete) -> Steps[None]:
        """Refuse a delete whose answer would be too large, before anything is changed."""
        size = AnswerSize(self.max_answer_bytes)
        yield from AnswerBound(self._keyspace, size).add([delete], [delete])

    def _check(self, branch: txns.Branch) -> Steps[RevisionWriter]:
        """Refuse operations that would fail half-way, before anything is changed."""
        used: dict[int, LeaseRecord] = {}
        added: dict[int, set[bytes]] = {}
        ranges: list[Range] = []
        changes: list[Put | Delete] = []
        keeps = False
        for count, step in enumerate(branch.flat(), 1):
            if isinstance(step, Put):
                self._check_room()
                if _keeps(step):
                    self.kept(step)
                    keeps = True
                if step.lease:
                    used[step.lease] = self._leases.current(step.lease)
                    added.setdefault(step.lease, set()).add(step.key)
                changes.append(step)
            elif isinstance(step, Range):
                ranges.append(step)
            else:
                changes.append(step)
            if count % SLICE == 0:
                yield []
        for step in ranges:
            if step.revision:
                self.check_revision(step.revision)
        for lease, keys in added.items():
            used[lease].check_room_for(keys, self._leases.max_keys)
        if keeps:
            yield from _check_deleted(changes)
        shown = [step for step in changes if step.prev_kv]
        past = None
        if ranges or shown:
            past = yield from self._check_answer([*shown, *ranges], changes)
        return RevisionWriter(self._keyspace, self._leases, used, past)

    def _check_answer(
        self, shown: list[Put | Delete | Range], changes: list[Put | Delete]
    ) -> Steps[dict[int, Found]]:
        """Refuse a transaction whose answer may be too large, before anything is changed.

        `shown` are the operations whose answers contain keys. Ranges of an earlier revision are
        read here; return what they found, by `id`.
        """
        size = AnswerSize(self.max_answer_bytes)
        current: list[Put | Delete | Range] = []
        past: dict[int, Found] = {}
        for step in shown:
            if isinstance(step, Range) and step.revision > 0:
                found = yield from scan(self._keyspace, step, step.revision, size.check)
                yield from size.add_items(found.items, keys_only=step.keys_only)
                past[id(step)] = found
            else:
                current.append(step)
        if current:
            yield from AnswerBound(self._keyspace, size).add(current, changes)
        return past

    def carry_out(self, branch: txns.Branch, writing: RevisionWriter) -> Steps[list[Any]]:
        """Execute a prepared transaction; nothing of it can be refused any more."""
        results: list[Any] = []
        for count, step in enumerate(branch.steps, 1):
            if count % SLICE == 0:
                yield []
            if isinstance(step, Put):
                value, lease = step.value, step.lease
                if value is None or lease is None:
                    value, lease = self.kept(step)
                results.append((writing.revision, writing.put(step.key, value, lease)))
            elif isinstance(step, Delete):
                previous = yield from writing.delete(step)
                results.append(Deleted(writing.shown_revision, previous))
                yield []
            elif isinstance(step, Range):
                results.append((yield from self._range_within(step, writing)))
                yield []
            else:
                inner = yield from self.carry_out(step, writing)
                results.append(Outcome(step.succeeded, inner, writing.shown_revision))
                yield []
        return results

    def read_steps(self, txn: Txn, revision: int, size: AnswerSize | None = None) -> Steps[Outcome]:
        """Execute a transaction that changes nothing at a revision, while others change keys.

        Raises `TooLarge` as soon as what was found exceeds the limit; `size` counts the ranges of
        the transaction that this one is nested in.
        """
        size = size or AnswerSize(self.max_answer_bytes)
        size.add(OPERATION_BYTES)
        succeeded = True
        for compare in txn.compares:
            query = Range(compare.key, compare.end)
            found = yield from scan(self._keyspace, query, revision, size.check)
            items: list[Item | None] = [*found.items] or [None]
            succeeded = all(txns.compares(compare, item, self._keyspace) for item in items)
            if not succeeded:
                break
        results: list[Any] = []
        for step in txn.success if succeeded else txn.failure:
            if isinstance(step, Txn):
                results.append((yield from self.read_steps(step, revision, size)))
            else:
                assert isinstance(step, Range)
                found = yield from self._read_range(step, revision, size)
                yield from size.add_items(found.items, keys_only=step.keys_only)
                results.append(found)
            yield []
        return Outcome(succeeded, results, revision)

    def range_steps(self, query: Range, revision: int) -> Steps[Found]:
        """Read a range at a revision; raise `TooLarge` if its answer exceeds the limit."""
        size = AnswerSize(self.max_answer_bytes)
        found = yield from scan(self._keyspace, query, revision, size.check)
        yield from size.add_items(found.items, keys_only=query.keys_only)
        return found

    def _read_range(self, query: Range, revision: int, size: AnswerSize) -> Steps[Found]:
        at = query.revision if query.revision > 0 else revision
        if query.revision:  # etcd refuses negative ones, too, once there was a compaction
            self.check_revision(query.revision)
        keyspace, found = self._keyspace, None
        if at == keyspace.revision == keyspace.newest:
            found = read_now(keyspace, query)
        if found is None:
            found = yield from scan(keyspace, query, at, size.check)
        return found._replace(revision=revision)

    def oldest_read(self, txn: Txn) -> int:
        """Return the oldest revision that the ranges of a transaction ask for and can be read."""
        oldest = self._keyspace.revision
        for step in (*txn.success, *txn.failure):
            if isinstance(step, Txn):
                oldest = min(oldest, self.oldest_read(step))
            elif isinstance(step, Range) and step.revision > 0:
                oldest = min(oldest, step.revision)
        return max(oldest, self._keyspace.compacted)

    def _range_within(self, query: Range, writing: RevisionWriter) -> Steps[Found]:
        """Read within a transaction; reads of the current revision see its own changes.

        Ranges of an earlier revision were read before. All results carry the transaction's
        revision, as in etcd.
        """
        shown = writing.shown_revision
        found = writing.past.get(id(query)) or read_now(self._keyspace, query)
        if found is None:
            found = yield from scan(self._keyspace, query, shown)
        return found._replace(revision=shown)


def _keeps(put: Put) -> bool:
    return put.value is None or put.lease is None


def _check_deleted(changes: list[Put | Delete]) -> Steps[None]:
    """Refuse a put that keeps the value or lease of a key that was deleted before it.

    (This request makes etcd panic.) Goes through the keys in order; `earlier` has the deletes that
    start at or before the key, the first in the transaction on top. One that ends before the key
    is dropped when it comes to the top: it cannot cover a later key either.
    """
    deletes: list[tuple[bytes, bytes | None, int]] = []
    puts: list[tuple[bytes, int]] = []
    for place, step in enumerate(changes):
        if isinstance(step, Delete):
            stop = step.end or step.key + b"\0"
            deletes.append((step.key, None if stop == FROM_KEY else stop, place))
        elif _keeps(step):
            puts.append((step.key, place))
    deletes = yield from sort_steps(deletes, itemgetter(0))
    puts = yield from sort_steps(puts, itemgetter(0))
    earlier: list[tuple[int, bytes | None]] = []
    taken = 0
    for count, (key, place) in enumerate(puts, 1):
        while taken < len(deletes) and deletes[taken][0] <= key:
            heappush(earlier, (deletes[taken][2], deletes[taken][1]))
            taken += 1
            if taken % SLICE == 0:
                yield []
        while earlier and (end := earlier[0][1]) is not None and end <= key:
            heappop(earlier)
        if earlier and earlier[0][0] < place:
            raise UnknownKey(key)
        if count % SLICE == 0:
            yield []
