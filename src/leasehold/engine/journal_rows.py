"""Reading a journal: every row checked, and all of it handed on in order."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import apsw

from leasehold.core.keyspace import Item
from leasehold.engine import folding
from leasehold.engine.batch_index import BatchIndex
from leasehold.engine.data_dir import ADVICE
from leasehold.engine.folding import StoredLease
from leasehold.engine.journal_format import (
    READ_IDENTITY,
    Identity,
    Progress,
    is_whole,
    unpack_identity,
)
from leasehold.engine.remaining import Entry, Remaining
from leasehold.errors import DamagedJournal, DirectoryInUse, StorageError

ROWS_PER_READ: Final = 256
"""Rows are read in slices, so that no open query stands in the way of a checkpoint."""

_READ: Final = (
    "SELECT id, first_revision, last_revision, changes, checksum"
    " FROM batch WHERE id > ? ORDER BY id LIMIT ?"
)
_READ_ONE: Final = "SELECT first_revision, last_revision, changes, checksum FROM batch WHERE id = ?"


class Row(NamedTuple):
    """A batch of changes, as it was appended."""

    first_revision: int
    last_revision: int
    changes: bytes


class Heir(Protocol):
    """Receives what is in a journal when it is opened."""

    def expect(self, remaining: Remaining | None) -> None:
        """Take the list of what leases have left, if one is valid; called first."""
        ...

    def unrenewed(self) -> list[Entry]:
        """Return, after everything was read, the leases that this start lists."""
        ...

    def inherit(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Take the keys and leases that were folded; comes first."""
        ...

    def restore(self, row: Row, skipped: int) -> None:
        """Take the next batch, but for its first changes, which are folded in already."""
        ...


def read_identity(connection: apsw.Connection, path: Path) -> tuple[Identity, Progress]:
    """Give who a journal is, and how far it has come."""
    found = connection.execute(READ_IDENTITY).fetchall()
    known = unpack_identity(found[0]) if len(found) == 1 else None
    if known is None:
        raise DamagedJournal(damage(path, "its identity has the wrong checksum"))
    return known


def hand_on(
    connection: apsw.Connection,
    path: Path,
    progress: Progress,
    heir: Heir | None,
    index: BatchIndex,
) -> int:
    """Read all there is, checking it; give it to the heir, and return the number of batches."""
    try:
        return _hand_on(connection, path, progress, heir or _Nobody(), index)
    except DamagedJournal as error:
        if str(path) in str(error):
            raise
        raise DamagedJournal(damage(path, str(error))) from error


def _hand_on(
    connection: apsw.Connection, path: Path, progress: Progress, heir: Heir, index: BatchIndex
) -> int:
    kept: Any = connection.execute("SELECT min(id) FROM batch").get
    if kept is not None and kept <= progress.folded:
        row = read_row(connection, path, kept)
        index.add(kept, row.first_revision, row.last_revision)
    heir.inherit(folding.read_pairs(connection), folding.read_leases(connection), progress)
    batches, skipped = progress.folded, progress.folded_changes
    for row in read_rows(connection, path, progress.folded):
        batches += 1
        index.add(batches, row.first_revision, row.last_revision)
        heir.restore(row, skipped)
        skipped = 0
    if batches < progress.batches:
        missing = f"row {batches + 1} is missing, and all up to row {progress.batches}"
        raise DamagedJournal(damage(path, missing))
    return batches


class _Nobody:
    """An heir that has everything read, and keeps nothing."""

    def expect(self, remaining: Remaining | None) -> None:
        """Keep nothing."""

    def unrenewed(self) -> list[Entry]:
        """Keep nothing."""
        return []

    def inherit(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Look at everything."""
        for _ in items:
            continue
        for _ in leases:
            continue

    def restore(self, row: Row, skipped: int) -> None:
        """Keep nothing."""


def read_rows(connection: apsw.Connection, path: Path, folded: int) -> Iterator[Row]:
    last_id = folded
    while True:
        found: list[Any] = connection.execute(_READ, (last_id, ROWS_PER_READ)).fetchall()
        for row_id, first_revision, last_revision, changes, checksum in found:
            if row_id != last_id + 1:
                raise DamagedJournal(damage(path, f"row {last_id + 1} is missing"))
            if not is_whole(first_revision, last_revision, changes, checksum):
                which = f"row {row_id} (revision {first_revision}) has the wrong checksum"
                raise DamagedJournal(damage(path, which))
            yield Row(first_revision, last_revision, changes)
            last_id = row_id
        if len(found) < ROWS_PER_READ:
            return


def read_row(connection: apsw.Connection, path: Path, batch_id: int) -> Row:
    """Give one batch, checked."""
    found: list[Any] = connection.execute(_READ_ONE, (batch_id,)).fetchall()
    if not found or not is_whole(*found[0]):
        raise DamagedJournal(damage(path, f"row {batch_id} is gone or damaged"))
    return Row(*found[0][:3])


def damage(path: Path, what: str) -> str:
    return (
        f"{path} is damaged: {what}. It was left as it is: "
        "restore a backup into a new directory (`leasehold restore`), or begin with an empty one"
    )


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Commit what the block writes; after an error the caller must give the connection up.

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
