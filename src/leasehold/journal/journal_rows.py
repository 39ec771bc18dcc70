"""Reading a journal: its rows, each of which is checked, old values in them, and notes.

At a start all rows are passed to a `ReplayTarget`, in order. Later on, single revisions and old
values are read, in the batch that has the revision (`BatchIndex`).

Notes are small facts about a server that belong to no revision, such as its alarms. A journal has a
table for them from the first note on. An older release without notes ignores that table, so they do
not change the format of a journal.
"""

import contextlib
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

import apsw

from leasehold.errors import DamagedJournal, DirectoryInUse, StorageError
from leasehold.journal import folding, records
from leasehold.journal.data_dir import ADVICE
from leasehold.journal.folding import StoredLease
from leasehold.journal.journal_format import (
    READ_IDENTITY,
    Identity,
    Progress,
    is_whole,
    unpack_identity,
)
from leasehold.journal.remaining_terms import NAME, Entry, Header, Remaining, parts, read_remaining
from leasehold.keyspace.keyspace import Item

ROWS_PER_READ: Final = 256
"""Rows are read in slices, so that no open query blocks a checkpoint."""

_READ: Final = (
    "SELECT id, first_revision, last_revision, changes, checksum"
    " FROM batch WHERE id > ? ORDER BY id LIMIT ?"
)
_READ_ONE: Final = "SELECT first_revision, last_revision, changes, checksum FROM batch WHERE id = ?"
_READ_LAST_REVISION: Final = "SELECT last_revision FROM batch WHERE id = ?"

VALUES_S: Final = 0.005
"""How long the journal reads old values before a commit has its turn."""

VALUES_PER_CLOCK_READ: Final = 16
"""Old values that are read between two readings of the clock."""

Wanted = list[tuple[bytes, int]]
"""Keys, and the revisions that have put them."""


class BatchRow(NamedTuple):
    """A batch of changes, as it was appended."""

    first_revision: int
    last_revision: int
    changes: bytes


class BatchIndex:
    """Finds the batch of a revision.

    In memory, since an index on disk would be written each time: sixteen bytes for each batch that
    has changed a key.
    """

    __slots__ = ("_first_revisions", "_ids")

    def __init__(self) -> None:
        self._first_revisions = array("q")
        self._ids = array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, batch_id: int, first_revision: int, last_revision: int) -> None:
        """Add the next batch."""
        if first_revision <= last_revision:
            self._first_revisions.append(first_revision)
            self._ids.append(batch_id)

    def find(self, revision: int) -> int | None:
        """Return the id of the batch that has a revision, or would have it if it existed."""
        place = bisect_right(self._first_revisions, revision)
        return self._ids[place - 1] if place else None

    def folded(self, batch_id: int) -> None:
        """Remove the batches up to this one, except the last of them."""
        gone = max(0, bisect_right(self._ids, batch_id) - 1)
        del self._first_revisions[:gone], self._ids[:gone]


class ReplayTarget(Protocol):
    """Receives the contents of a journal when it is opened: implemented in `store/`, above."""

    def expect(self, remaining: Remaining | None) -> None:
        """Take the list of remaining terms, if one is valid; called first."""
        ...

    def unrenewed(self) -> list[Entry]:
        """Return, after everything was read, the leases that this start lists."""
        ...

    def load_folded(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Take the keys and leases that were folded; called before `restore`."""
        ...

    def restore(self, row: BatchRow, skipped: int) -> None:
        """Take the next batch, except its first `skipped` changes, which are folded in already."""
        ...


def read_identity(connection: apsw.Connection, path: Path) -> tuple[Identity, Progress]:
    """Return the identity and the progress of a journal."""
    found = connection.execute(READ_IDENTITY).fetchall()
    known = unpack_identity(found[0]) if len(found) == 1 else None
    if known is None:
        raise DamagedJournal(damage(path, "its identity has the wrong checksum"))
    return known


def replay_journal(
    connection: apsw.Connection,
    path: Path,
    progress: Progress,
    target: ReplayTarget,
    index: BatchIndex,
) -> int:
    """Read and check everything; pass it to the target, and return the number of batches."""
    try:
        return _replay_journal(connection, path, progress, target, index)
    except DamagedJournal as error:
        if str(path) in str(error):
            raise
        raise DamagedJournal(damage(path, str(error))) from error


def _replay_journal(
    connection: apsw.Connection,
    path: Path,
    progress: Progress,
    target: ReplayTarget,
    index: BatchIndex,
) -> int:
    kept: Any = connection.execute("SELECT min(id) FROM batch").get
    if kept is not None and kept <= progress.folded:
        row = read_row(connection, path, kept)
        index.add(kept, row.first_revision, row.last_revision)
    target.load_folded(folding.read_pairs(connection), folding.read_leases(connection), progress)
    batches, skipped = progress.folded, progress.folded_changes
    for row in read_rows(connection, path, progress.folded):
        batches += 1
        index.add(batches, row.first_revision, row.last_revision)
        target.restore(row, skipped)
        skipped = 0
    if batches < progress.batches:
        missing = f"rows {batches + 1} to {progress.batches} are missing"
        raise DamagedJournal(damage(path, missing))
    return batches


class NullReplay:
    """A target that keeps nothing: the journal is only read and checked."""

    def expect(self, remaining: Remaining | None) -> None:
        """Do nothing."""

    def unrenewed(self) -> list[Entry]:
        """Return an empty list."""
        return []

    def load_folded(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Read everything."""
        for _ in items:
            continue
        for _ in leases:
            continue

    def restore(self, row: BatchRow, skipped: int) -> None:
        """Do nothing."""


def read_rows(connection: apsw.Connection, path: Path, folded: int) -> Iterator[BatchRow]:
    last_id = folded
    while True:
        found: list[Any] = connection.execute(_READ, (last_id, ROWS_PER_READ)).fetchall()
        for row_id, first_revision, last_revision, changes, checksum in found:
            if row_id != last_id + 1:
                raise DamagedJournal(damage(path, f"row {last_id + 1} is missing"))
            if not is_whole(first_revision, last_revision, changes, checksum):
                which = f"row {row_id} (revision {first_revision}) has the wrong checksum"
                raise DamagedJournal(damage(path, which))
            yield BatchRow(first_revision, last_revision, changes)
            last_id = row_id
        if len(found) < ROWS_PER_READ:
            return


def read_row(connection: apsw.Connection, path: Path, batch_id: int) -> BatchRow:
    """Return one batch, checked."""
    found: list[Any] = connection.execute(_READ_ONE, (batch_id,)).fetchall()
    if not found or not is_whole(*found[0]):
        raise DamagedJournal(damage(path, f"row {batch_id} is gone or damaged"))
    return BatchRow(*found[0][:3])


def last_revision_of(connection: apsw.Connection, path: Path, batch_id: int) -> int:
    """Return the last revision of one batch, without reading its changes."""
    found: list[Any] = connection.execute(_READ_LAST_REVISION, (batch_id,)).fetchall()
    if not found or not isinstance(found[0][0], int):
        raise DamagedJournal(damage(path, f"row {batch_id} is gone or damaged"))
    return found[0][0]


def damage(path: Path, what: str) -> str:
    return (
        f"{path} is damaged: {what}. The file was not changed: "
        "restore a backup into a new directory (`leasehold restore`), or begin with an empty one"
    )


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Commit the writes of the block; after an error the caller must discard the connection.

    A connection of apsw as a context manager would replace an error of the disk by one of its own:
    SQLite has rolled back by then, and there is no savepoint left to return to.
    """
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("COMMIT")


@contextlib.contextmanager
def told_as_ours(path: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise DamagedJournal(damage(path, str(error))) from error
    except apsw.BusyError as error:
        raise DirectoryInUse(
            f"{path} is locked by another program ({error}): end it, then start again"
        ) from error
    except apsw.Error as error:
        raise StorageError(f"{path} cannot be used: {error}{ADVICE}") from error


class OldValues:
    """Reads old values: those that some revisions have put to some keys.

    A value is in the batch that has its revision, or in the table of pairs once that batch was
    folded. Batches are decoded whole, and a range needs many values of one batch in a row, so the
    last batch stays decoded. Commits wait while values are read, so reading stops after `VALUES_S`.
    """

    def __init__(self, path: Path, index: BatchIndex) -> None:
        self._path = path
        self._index = index
        self._decoded: tuple[int, dict[tuple[bytes, int], Item]] | None = None
        """The batch that was read last: its id, and its items."""

    def read(self, connection: apsw.Connection, wanted: Wanted, base_revision: int) -> list[Item]:
        """Return the first of the wanted values, at least one; up to `base_revision` from pairs."""
        found: list[Item] = []
        end = monotonic() + VALUES_S
        for start in range(0, len(wanted), VALUES_PER_CLOCK_READ):
            found += self._some(
                connection, wanted[start : start + VALUES_PER_CLOCK_READ], base_revision
            )
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
            items = [record.item for record in changes if isinstance(record, records.PutRecord)]
            self._decoded = batch_id, {(item[5], item[2]): item for item in items}
        return self._decoded[1]


_IS_THERE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'note'"
_MAKE: Final = """
    CREATE TABLE IF NOT EXISTS note (
        name TEXT PRIMARY KEY,
        value BLOB NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
"""


def read_notes(connection: apsw.Connection, path: Path) -> dict[str, bytes]:
    """Return all notes by name, each checked."""
    if connection.execute(_IS_THERE).get is None:
        return {}
    found: list[Any] = connection.execute("SELECT name, value, checksum FROM note").fetchall()
    for name, value, checksum in found:
        if not isinstance(value, bytes) or _checksum(str(name), value) != checksum:
            raise DamagedJournal(damage(path, f"the note {name!r} has the wrong checksum"))
    return {name: value for name, value, _ in found}


def read_list(notes: dict[str, bytes], term: int, path: Path) -> Remaining | None:
    """Return the valid list of remaining terms, if there is one: see `journal.remaining_terms`."""
    try:
        return read_remaining(notes, term)
    except DamagedJournal as error:
        raise DamagedJournal(damage(path, str(error))) from error


def write_note(connection: apsw.Connection, name: str, value: bytes) -> None:
    """Write a note, replacing the last one of this name; it is on disk when this returns."""
    with connection:
        write_notes(connection, [(name, value)])


def write_notes(connection: apsw.Connection, notes: Iterable[tuple[str, bytes]]) -> None:
    """Write several notes, within a transaction of the caller."""
    for name, value in notes:
        connection.execute(_MAKE)
        row = (name, value, _checksum(name, value))
        connection.execute("REPLACE INTO note VALUES (?, ?, ?)", row)


def delete_notes(connection: apsw.Connection, name: str) -> None:
    """Delete a note and those below it (`name/...`), within a transaction of the caller."""
    if connection.execute(_IS_THERE).get is not None:
        query = "DELETE FROM note WHERE name = ? OR name GLOB ?"
        connection.execute(query, (name, f"{name}/*"))


def begin_list(
    connection: apsw.Connection, entries: list[Entry], term: int, batches: int
) -> Header | None:
    """Replace any list, and a clean mark, by a start's list of unrenewed leases.

    With no entries there is no list. Within a transaction of the caller.
    """
    header = Header(False, term, batches, len(entries), len(entries)) if entries else None
    delete_notes(connection, NAME)
    write_notes(connection, parts(entries, is_clean=False))
    if header is not None:
        write_notes(connection, [(NAME, header.pack())])
    return header


def forget_notes(connection: apsw.Connection) -> None:
    """Delete all notes: the journal becomes that of another cluster."""
    connection.execute("DROP TABLE IF EXISTS note")


def _checksum(name: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(name.encode(errors="replace")))
