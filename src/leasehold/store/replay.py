"""Replay of a journal: how a store is restored at a start."""

from collections.abc import Iterator
from itertools import islice

from leasehold.basics.durations import NEVER
from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import DamagedJournal
from leasehold.journal import records
from leasehold.journal.folding import StoredLease
from leasehold.journal.journal_format import Progress
from leasehold.journal.journal_rows import BatchRow
from leasehold.journal.records import GRANTED, LeaseChange, read_lease_row
from leasehold.journal.remaining_terms import Entry, Remaining
from leasehold.keyspace.keyspace import Item, Keyspace
from leasehold.store.lease_record import LeaseRecord


class Replay:
    """Fills a keyspace from a journal, and collects its leases."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.leases: dict[int, LeaseRecord] = {}
        self.left_s: dict[int, float] = {}
        """The remaining term of each lease at this start."""
        self.listed: list[Entry] = []
        """The leases that this start lists, because they were not renewed since a crash."""
        self.is_finished = False
        self._remaining: Remaining | None = None
        self._batch = 0

    def expect(self, remaining: Remaining | None) -> None:
        """Take the list of remaining terms: it holds up to the next record of a lease."""
        assert not self.is_finished, "a store is restored from one journal, before it starts"
        self._remaining = remaining

    def load_folded(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Load the folded keys and leases."""
        for lease in leases:
            self.leases[lease.id] = LeaseRecord(*lease)
        self.keyspace.load(self._attached(items))
        self.keyspace.revision = progress.base_revision
        self.keyspace.compacted = progress.compacted
        self._batch = progress.folded
        remaining = self._remaining
        if remaining is not None and remaining.header.batches <= self._batch:
            self._apply(remaining)

    def _attached(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            if item[4]:
                self._lease(item[4]).attach(item[5])
            yield item

    def _lease(self, lease: int) -> LeaseRecord:
        if lease not in self.leases:
            raise DamagedJournal(
                f"a key belongs to lease {shown_lease(lease)}, which does not exist"
            )
        return self.leases[lease]

    def restore(self, row: BatchRow, skipped: int) -> None:
        """Apply the changes of a row again, except the first `skipped` ones."""
        try:
            changes = None if skipped else read_lease_row(row.changes)
            if changes is None:
                for record in islice(records.decode(row.changes), skipped, None):
                    self._redo(record)
            else:
                self._redo_leases(changes)
            self._batch += 1
            if self._remaining is not None and self._remaining.header.batches == self._batch:
                self._apply(self._remaining)
            # The skipped changes may have been the last ones of a key.
            self.keyspace.revision = max(self.keyspace.revision, row.last_revision)
        except KeyError as error:
            raise DamagedJournal(
                f"the changes of revisions {row.first_revision} to {row.last_revision} do not "
                "follow from those before them"
            ) from error

    def _apply(self, remaining: Remaining) -> None:
        """Apply the list of a start to the leases; that of a clean stop is for `unrenewed`."""
        if remaining.header.is_clean:
            return
        for lease, left_s in remaining.entries:
            record = self.leases.get(lease)
            if record is not None and lease not in remaining.renewed:
                record.promised_s = max(0.0, left_s - remaining.header.elapsed_s)

    def unrenewed(self) -> list[Entry]:
        """Return the leases that this start lists: see `journal.remaining_terms`.

        Called after everything was read.
        """
        self.left_s = {record.id: record.promised_s for record in self.leases.values()}
        if self._remaining is not None and self._remaining.header.is_clean:
            listed = self._remaining.entries
            self.left_s.update(entry for entry in listed if entry[0] in self.left_s)
        self.listed = self._unrenewed()
        return self.listed

    def _unrenewed(self) -> list[Entry]:
        """Return the leases with an end; after a clean stop, only those not renewed before it."""
        if self._remaining is not None and self._remaining.header.is_clean:
            header, listed = self._remaining.header, self._remaining.entries
            renewed = {lease for lease, _ in listed[header.unrenewed :]}
        else:
            renewed = set()
        return [each for each in self.left_s.items() if each[0] not in renewed and each[1] != NEVER]

    def _redo(self, record: records.Record) -> None:
        match record:
            case records.PutRecord(item):
                self._put(item)
            case records.DeletedRecord(key, revision):
                self._detach(key, self.keyspace.restore_deleted(key, revision)[4])
            case records.GrantedRecord(lease, ttl_s, holder):
                self.leases[lease] = LeaseRecord(lease, ttl_s, holder=holder)
            case records.PromisedRecord(lease, promised_s):
                self.leases[lease].promised_s = promised_s
            case records.EndedRecord(lease):
                del self.leases[lease]
            case records.CompactedRecord(revision):
                self.keyspace.compacted = revision
            case records.JumpedRecord(revision):
                self.keyspace.revision = revision

    def _redo_leases(self, changes: Iterator[LeaseChange]) -> None:
        leases = self.leases
        for kind, encoded_id, lease, seconds in changes:
            if kind == GRANTED:
                leases[lease] = LeaseRecord(lease, seconds, encoded_id=encoded_id)
            else:
                leases[lease].promised_s = seconds

    def _put(self, item: Item) -> None:
        previous = self.keyspace.restore(item)
        if previous is not None and previous[4] != item[4]:
            self._detach(item[5], previous[4])
        if item[4]:
            self.leases[item[4]].attach(item[5])

    def _detach(self, key: bytes, lease: int) -> None:
        if lease in self.leases:
            self.leases[lease].detach(key)

    def finish(self) -> None:
        """Make the keyspace ready for use."""
        self.keyspace.complete()
        self.is_finished = True

    def clear(self) -> None:
        """Free the memory of a replay that is finished."""
        self.leases, self.left_s, self.listed, self._remaining = {}, {}, [], None
