"""Old values, read from the journal: what some revisions have put to some keys.

A value is in the batch that has its revision, or in the table of pairs once that batch was folded.
Batches are decoded whole, and a range asks for many values of one batch in a row, so the last batch
stays decoded. Commits wait while values are read, so reading stops after `VALUES_S`.
"""

from pathlib import Path
from time import monotonic
from typing import Final

import apsw

from leasehold.core.keyspace import Item
from leasehold.engine import folding, records
from leasehold.engine.batch_index import BatchIndex
from leasehold.engine.journal_rows import damage, read_row
from leasehold.errors import DamagedJournal

VALUES_S: Final = 0.005
"""How long the journal reads old values before a commit has its turn."""

VALUES_AT_ONCE: Final = 16
"""Old values that are read between two looks at the clock."""

Wanted = list[tuple[bytes, int]]
"""Keys, and the revisions that have put them."""


class OldValues:
    """Reads old values of one journal."""

    def __init__(self, path: Path, index: BatchIndex) -> None:
        self._path = path
        self._index = index
        self._decoded: tuple[int, dict[tuple[bytes, int], Item]] | None = None
        """The batch that was read last: its id, and what it has put."""

    def read(self, connection: apsw.Connection, wanted: Wanted, base_revision: int) -> list[Item]:
        """Return a beginning of what is wanted, at least one; up to `base_revision` from pairs."""
        found: list[Item] = []
        end = monotonic() + VALUES_S
        for start in range(0, len(wanted), VALUES_AT_ONCE):
            found += self._some(connection, wanted[start : start + VALUES_AT_ONCE], base_revision)
            if monotonic() >= end:
                break
        return found

    def _some(self, connection: apsw.Connection, wanted: Wanted, base_revision: int) -> list[Item]:
        in_batches: dict[int, set[tuple[bytes, int]]] = {}
        found: list[Item] = []
        for key, revision in wanted:
            batch_id = self._index.find(revision)
            if revision > base_revision and batch_id is not None:
                in_batches.setdefault(batch_id, set()).add((key, revision))
            elif (item := folding.read_pair(connection, key)) is not None and item[2] == revision:
                found.append(item)
        for batch_id, these in in_batches.items():
            puts = self._puts_of(connection, batch_id)
            found += [puts[each] for each in these if each in puts]
        if len(found) != len(wanted):
            missing = {*wanted} - {(item[5], item[2]) for item in found}
            raise DamagedJournal(damage(self._path, f"old values are gone: {missing}"))
        return found

    def _puts_of(self, connection: apsw.Connection, batch_id: int) -> dict[tuple[bytes, int], Item]:
        if self._decoded is None or self._decoded[0] != batch_id:
            changes = records.decode(read_row(connection, self._path, batch_id).changes)
            items = [record.item for record in changes if isinstance(record, records.Put)]
            self._decoded = batch_id, {(item[5], item[2]): item for item in items}
        return self._decoded[1]
