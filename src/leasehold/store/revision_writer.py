"""The changes of one revision, while they are being made."""

from collections.abc import Generator
from itertools import islice

from leasehold.journal import records
from leasehold.keyspace.keyspace import Change, Item, Keyspace
from leasehold.keyspace.operations import Delete, Found
from leasehold.keyspace.ranges import SLICE, Wanted, sort_steps
from leasehold.keyspace.recent_changes import octets_of
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
        "octets",
        "past",
        "records",
        "rekeyed",
        "revision",
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
        self.octets = 0
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
        self.octets += octets_of((change,))

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
