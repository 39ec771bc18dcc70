"""Transactions on a store: checked before anything is changed, then done step by step."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from leasehold.core import txn as txns
from leasehold.core.keyspace import Item, Keyspace, covers
from leasehold.core.ops import Compare, Delete, Deleted, Found, Outcome, Put, Range, Txn
from leasehold.core.ranges import LONG, Wanted, pausing, read_now, scan
from leasehold.engine import records
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.leases import Leases
from leasehold.engine.writing import Writing
from leasehold.errors import Compacted, FutureRevision, UnknownKey

T = TypeVar("T")

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
        return self._keyspace.count(step.key, step.end)

    def _touched_by(self, txn: Txn) -> int:
        touched = 0
        for step in (*txn.compares, *txn.success, *txn.failure):
            touched += 1 if type(step) is Put else self.touched(step)
            if touched > LONG:
                break
        return touched

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
        return branch, Writing(self._keyspace, self._leases, self._check(branch))

    def _check(self, branch: txns.Branch) -> dict[int, LeaseRecord]:
        """Refuse what would fail half-way, before anything is changed; return the leases used."""
        used: dict[int, LeaseRecord] = {}
        added: dict[int, set[bytes]] = {}
        steps = list(branch.flat())
        for step in steps:
            if isinstance(step, Put):
                self._check_room()
                if _keeps(step):
                    self.kept(step)
                if step.lease:
                    used[step.lease] = self._leases.current(step.lease)
                    added.setdefault(step.lease, set()).add(step.key)
        for step in steps:
            if isinstance(step, Range) and step.revision:
                self.check_revision(step.revision)
        for lease, keys in added.items():
            used[lease].check_room_for(keys, self._leases.max_keys)
        _check_deleted(steps)
        return used

    def carry_out(self, branch: txns.Branch, writing: Writing) -> Steps[list[Any]]:
        """Do what was prepared; nothing of it can be refused any more."""
        results: list[Any] = []
        for step in branch.steps:
            if isinstance(step, Put):
                value, lease = step.value, step.lease
                if value is None or lease is None:
                    value, lease = self.kept(step)
                results.append((writing.revision, writing.put(step.key, value, lease)))
            elif isinstance(step, Delete):
                previous = yield from writing.delete(step)
                results.append(Deleted(writing.shown_revision, previous))
            elif isinstance(step, Range):
                results.append((yield from self._range_steps(step, writing)))
            else:
                inner = yield from self.carry_out(step, writing)
                results.append(Outcome(step.succeeded, inner, writing.shown_revision))
        return results

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


def _check_deleted(steps: list[Put | Delete | Range]) -> None:
    """Refuse to keep what will have been deleted before. This would be the end of an etcd."""
    deletes: list[Delete] = []
    for step in steps:
        if isinstance(step, Delete):
            deletes.append(step)
        elif isinstance(step, Put):
            is_gone = any(covers(each.key, each.end, step.key) for each in deletes)
            if is_gone and _keeps(step):
                raise UnknownKey(step.key)
