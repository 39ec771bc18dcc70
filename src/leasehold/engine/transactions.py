"""Transactions on a store: checked before anything is changed, then done step by step."""

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, TypeVar

from leasehold.core import txn as txns
from leasehold.core.keyspace import FROM_KEY, Item, Keyspace
from leasehold.core.ops import Compare, Delete, Deleted, Found, Outcome, Put, Range, Target, Txn
from leasehold.core.ordering import in_order
from leasehold.core.ranges import LONG, SLICE, Wanted, pausing, read_now, scan
from leasehold.engine import records
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.leases import Leases
from leasehold.engine.writing import Writing
from leasehold.errors import Compacted, FutureRevision, UnknownKey

T = TypeVar("T")

VALUE_BYTES: Final = 4 * 1024
"""A value that is compared counts as one key for each so many octets: it is decoded for that."""

VALUE_WEIGHT: Final = 16
"""What each key of a range counts whose values are compared; their sizes are not known."""

Steps = Generator[Wanted, list[Item], T]
"""An operation in steps: yields what it needs from the history, mostly nothing, and is sent it."""


class Transactions:
    """Knows what a transaction touches, whether it can be done, and does it.

    `check_room` refuses to make the data any larger.
    """

    def __init__(self, keyspace: Keyspace, leases: Leases, check_room: Callable[[], None]) -> None:
        self._keyspace = keyspace
        self._leases = leases
        self._check_room = check_room

    def check_revision(self, revision: int) -> None:
        """Refuse a revision that is forgotten, or has yet to come."""
        if revision > self._keyspace.revision:
            raise FutureRevision(revision, self._keyspace.revision)
        if revision < self._keyspace.compacted:
            raise Compacted(revision, self._keyspace.compacted)

    def touched(self, step: Delete | Range | Put | Compare | Txn) -> int:
        """Count what an operation may touch, whichever branches it takes; enough is enough."""
        if isinstance(step, Put):
            return 1
        if isinstance(step, Txn):
            return self._touched_by(step)
        if isinstance(step, Range) and step.revision > 0:
            return LONG + 1  # it may have to be looked up on disk
        touched = self._keyspace.count(step.key, step.end)
        if isinstance(step, Compare) and step.target == Target.VALUE:
            return touched * VALUE_WEIGHT if step.end else self._octets(step.key) // VALUE_BYTES
        return touched

    def _touched_by(self, txn: Txn) -> int:
        """Count each operation as at least one key: an operation on no key takes time as well."""
        touched = 1
        for step in (*txn.compares, *txn.success, *txn.failure):
            touched += 1 if type(step) is Put else max(1, self.touched(step))
            if touched > LONG:
                break
        return touched

    def _octets(self, key: bytes) -> int:
        item = self._keyspace.get(key)
        return 0 if item is None else len(item[0])

    def kept(self, op: Put) -> tuple[bytes, int]:
        """What a key is to be set to if it keeps something of what it has."""
        previous = self._keyspace.get(op.key)
        if previous is None:
            raise UnknownKey(op.key)
        value = records.value_of(previous) if op.value is None else op.value
        return value, previous[4] if op.lease is None else op.lease

    def prepare(self, txn: Txn) -> Steps[tuple[txns.Branch, Writing]]:
        """Decide on the branches, and refuse what would fail half-way."""
        branch = yield from pausing(txns.decide(txn, self._keyspace))
        used = yield from self._check(branch)
        return branch, Writing(self._keyspace, self._leases, used)

    def _check(self, branch: txns.Branch) -> Steps[dict[int, LeaseRecord]]:
        """Refuse what would fail half-way, before anything is changed; return the leases used."""
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
        return used

    def carry_out(self, branch: txns.Branch, writing: Writing) -> Steps[list[Any]]:
        """Do what was prepared; nothing of it can be refused any more."""
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
                results.append((yield from self._range_steps(step, writing)))
                yield []
            else:
                inner = yield from self.carry_out(step, writing)
                results.append(Outcome(step.succeeded, inner, writing.shown_revision))
                yield []
        return results

    def read_steps(self, txn: Txn, revision: int) -> Steps[Outcome]:
        """Execute a transaction that changes nothing at a revision, while others change keys."""
        succeeded = True
        for compare in txn.compares:
            query = Range(compare.key, compare.end)
            found = yield from scan(self._keyspace, query, revision)
            items: list[Item | None] = [*found.items] or [None]
            succeeded = all(txns.compares(compare, item, self._keyspace) for item in items)
            if not succeeded:
                break
        results: list[Any] = []
        for step in txn.success if succeeded else txn.failure:
            if isinstance(step, Txn):
                results.append((yield from self.read_steps(step, revision)))
            else:
                assert isinstance(step, Range)
                results.append((yield from self._read_range(step, revision)))
            yield []
        return Outcome(succeeded, results, revision)

    def _read_range(self, query: Range, revision: int) -> Steps[Found]:
        at = query.revision if query.revision > 0 else revision
        if query.revision:  # etcd refuses negative ones, too, once there was a compaction
            self.check_revision(query.revision)
        keyspace, found = self._keyspace, None
        if at == keyspace.revision == keyspace.newest:
            found = read_now(keyspace, query)
        if found is None:
            found = yield from scan(keyspace, query, at)
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

    def _range_steps(self, query: Range, writing: Writing) -> Steps[Found]:
        """Read within a transaction, which sees what it has done itself, if it reads what is now.

        What is found is said to be of the transaction's revision, as in etcd.
        """
        shown = writing.shown_revision
        found = read_now(self._keyspace, query) if query.revision <= 0 else None
        if found is None:
            revision = query.revision if query.revision > 0 else shown
            found = yield from scan(self._keyspace, query, revision)
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
    deletes = yield from pausing(in_order(deletes, itemgetter(0), SLICE))
    puts = yield from pausing(in_order(puts, itemgetter(0), SLICE))
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
