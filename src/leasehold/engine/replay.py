"""What a journal says, done again: how a store gets back what it had."""

from collections.abc import Iterator
from itertools import islice

from leasehold.core.duration import NEVER
from leasehold.core.keyspace import Item, Keyspace
from leasehold.engine import records
from leasehold.engine.folding import StoredLease
from leasehold.engine.journal_format import Progress
from leasehold.engine.journal_rows import Row
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.lease_rows import GRANTED, LeaseChange, read_lease_row
from leasehold.engine.remaining import Entry, Remaining
from leasehold.errors import DamagedJournal
from leasehold.lease_ids import shown_lease


class Replay:
    """Fills a keyspace from a journal, and collects its leases."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.leases: dict[int, LeaseRecord] = {}
        self._remaining: Remaining | None = None
        self._batch = 0

    def expect(self, remaining: Remaining | None) -> None:
        """Take the list of what leases have left: it counts up to the next record of a lease."""
        self._remaining = remaining

    def inherit(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Take what was folded."""
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
            raise DamagedJournal(f"a key belongs to lease {shown_lease(lease)}, which is not there")
        return self.leases[lease]

    def restore(self, row: Row, skipped: int) -> None:
        """Do again what a row says was done, but for its first changes."""
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
            # The changes that were skipped may have been the last ones of a key.
            self.keyspace.revision = max(self.keyspace.revision, row.last_revision)
        except KeyError as error:
            raise DamagedJournal(
                f"the changes of revisions {row.first_revision} to {row.last_revision} do not "
                "follow from those before them"
            ) from error

    def _apply(self, remaining: Remaining) -> None:
        """Let leases have what a start's list says; a clean stop's list is for `remaining_s`."""
        if remaining.header.is_clean:
            return
        for lease, left_s in remaining.entries:
            record = self.leases.get(lease)
            if record is not None and lease not in remaining.renewed:
                record.promised_s = max(0.0, left_s - remaining.header.elapsed_s)

    def remaining_s(self) -> dict[int, float]:
        """Return what each lease has left at this start, after everything was read."""
        left_s = {record.id: record.promised_s for record in self.leases.values()}
        if self._remaining is not None and self._remaining.header.is_clean:
            listed = self._remaining.entries
            left_s.update(entry for entry in listed if entry[0] in left_s)
        return left_s

    def unrenewed(self, left_s: dict[int, float]) -> list[Entry]:
        """Return the leases that this start lists, with what they have left.

        After a clean stop those that were listed before; else all, but for those that never end.
        """
        if self._remaining is not None and self._remaining.header.is_clean:
            header, listed = self._remaining.header, self._remaining.entries
            renewed = {lease for lease, _ in listed[header.unrenewed :]}
        else:
            renewed = set()
        return [each for each in left_s.items() if each[0] not in renewed and each[1] != NEVER]

    def _redo(self, record: records.Record) -> None:
        match record:
            case records.Put(item):
                self._put(item)
            case records.Deleted(key, revision):
                self._detach(key, self.keyspace.restore_deleted(key, revision)[4])
            case records.Granted(lease, ttl_s, holder):
                self.leases[lease] = LeaseRecord(lease, ttl_s, holder=holder)
            case records.Promised(lease, promised_s):
                self.leases[lease].promised_s = promised_s
            case records.Ended(lease):
                del self.leases[lease]
            case records.Compacted(revision):
                self.keyspace.compacted = revision
            case records.Jumped(revision):
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
        """Make the keyspace ready to be used."""
        self.keyspace.complete()
