"""The journal: batches of changes, on disk when `append` returns, in order when read back.

Theory of operation. The journal is a SQLite database in WAL mode that one connection has for
itself (`locking_mode=EXCLUSIVE`, so there is no shared memory, and any VFS will do). A batch is one
row, added by one statement: one write to the log, one sync, and few crossings of the GIL, which a
commit in a thread pays for dearly beside a busy event loop.

    open    the header is checked, every row is checked, then the term goes up by one. That commit
            also syncs what a process that was killed had written and not synced: whatever `rows`
            gives is on disk, and may be shown to anybody.
    append  writes to the log (`leasehold.db-wal`).
    checkpoint  moves what is in the log into the database, after a note of how many batches there
            are. Only when it is asked for: it would stall the commit in which it happened. The log
            has its full length from the start and is written over, because a sync that makes no
            file longer writes the data and nothing else.
    close   checkpoints, and removes the log.

Damage is looked for before anything is written, and nothing is repaired: a journal that is refused
is left as it was found. The one thing that stays unseen is damage within the log itself: SQLite
takes the log to end at the first frame that does not fit.

After a failed write nothing is known about the disk: the kernel may have dropped what it could not
write, and would report the next sync as a success. So the journal refuses everything from then on;
opening it again finds out what is there.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import apsw

from leasehold.engine.data_dir import DataDirectory
from leasehold.engine.journal_format import (
    PAGE_BYTES,
    Identity,
    batch_checksum,
    check_header,
    empty_journal,
    is_whole,
    pack_identity,
    unpack_identity,
)
from leasehold.errors import Closed, DamagedJournal, DirectoryInUse, JournalFailed, StorageError

__all__ = ["CHECKPOINT_PAGES", "Identity", "Journal", "Row"]

FILE_NAME: Final = "leasehold.db"
LOG_SUFFIXES: Final = ("-wal", "-journal")
CHECKPOINT_PAGES: Final = 1000
LOG_BYTES: Final = (CHECKPOINT_PAGES + CHECKPOINT_PAGES // 4) * (PAGE_BYTES + 24)
"""The length of the log: what is written between two checkpoints, and some more."""

ROWS_PER_READ: Final = 256
"""Rows are read in slices, so that no open query stands in the way of a checkpoint."""

_APPEND: Final = "INSERT INTO batch VALUES (?, ?, ?, ?, ?)"
_READ: Final = (
    "SELECT id, first_revision, last_revision, changes, checksum"
    " FROM batch WHERE id > ? ORDER BY id LIMIT ?"
)
_READ_IDENTITY: Final = "SELECT cluster_id, member_id, term, batches, checksum FROM identity"
_WRITE_IDENTITY: Final = "REPLACE INTO identity VALUES (1, ?, ?, ?, ?, ?)"

_T = TypeVar("_T")


class Row(NamedTuple):
    """A batch of changes, as it was appended."""

    first_revision: int
    last_revision: int
    changes: bytes


class Journal:
    """The journal in a directory, which is made if it is not there. One process at a time.

    Calls may come from any thread, but only from one at a time.
    """

    synchronous: ClassVar[str] = "FULL"
    checkpoint_pages: ClassVar[int] = CHECKPOINT_PAGES

    def __init__(
        self,
        directory: Path,
        *,
        on_row: Callable[[Row], None] | None = None,
        vfs: str | None = None,
    ) -> None:
        """Open the journal, and check all of it; `on_row` is given each row on the way."""
        self._on_row = on_row
        self._path = directory / FILE_NAME
        self._failure: str | None = None
        self._log_pages = 0
        self._batches = 0
        self._batches_noted = 0
        if vfs is not None and vfs not in apsw.vfs_names():
            raise ValueError(f"there is no vfs {vfs!r}, only {', '.join(apsw.vfs_names())}")
        try:
            self._directory = DataDirectory(directory)
        except OSError as error:
            raise StorageError(f"{directory} cannot be used to keep data: {error}") from error
        try:
            self._make_file()
            self._connection: apsw.Connection | None = self._connect(vfs)
        except BaseException as error:
            self._directory.close()
            if isinstance(error, OSError):
                raise StorageError(f"{self._path} cannot be opened: {error}") from error
            raise

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the log has grown longer than is good for restarts and for the disk."""
        return self._log_pages > self.checkpoint_pages

    def rows(self) -> Iterator[Row]:
        """Give everything appended so far, in order, each row checked.

        Raise `DamagedJournal` at the first row that is not as it was written.
        """
        connection = self._open_connection()
        with _told_as_ours(self._path):
            yield from _read(connection, self._path)

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        """Add a batch; it is on disk when this returns.

        After `JournalFailed` it may or may not be there, and the journal takes no more.
        """
        connection = self._open_connection()
        checksum = batch_checksum(first_revision, last_revision, changes)
        row = (self._batches + 1, first_revision, last_revision, changes, checksum)
        self._must_succeed(lambda: connection.execute(_APPEND, row))
        self._batches += 1
        # Counted here, because to be told by SQLite would be one more crossing of the GIL: the
        # leaf, and a page of overflow for each page's worth of changes. A page of the tree more
        # once in a while makes no difference.
        self._log_pages += 1 + len(changes) // PAGE_BYTES

    def checkpoint(self) -> None:
        """Move what is in the log into the database, and begin the log anew."""
        connection = self._open_connection()
        in_log, moved = self._must_succeed(lambda: self._checkpoint(connection))
        self._log_pages = in_log - moved

    def close(self) -> None:
        """Leave a journal without a log, and let others have the directory.

        A journal that has failed is left as it is.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._failure is None:
                self._must_succeed(lambda: self._checkpoint_and_close(connection))
        finally:
            _abandon(connection)
            self._directory.close()

    def _make_file(self) -> None:
        if self._path.exists():
            check_header(self._path)
            self._directory.sync()  # whoever made it may have been killed before this
            return
        for suffix in LOG_SUFFIXES:
            log = self._path.with_name(FILE_NAME + suffix)
            if log.exists():
                raise DamagedJournal(
                    f"{self._path} is gone but {log.name} is still there, with changes that belong "
                    "to it: put the file back, or remove the log as well to begin with nothing"
                )
        self._directory.write_whole(FILE_NAME, empty_journal())

    def _lengthen_log(self) -> None:
        """Give the log its length at once, in zeros, which SQLite takes for the end of the log."""
        log = self._path.with_name(FILE_NAME + LOG_SUFFIXES[0])
        missing = LOG_BYTES - log.stat().st_size if log.exists() else 0
        if missing > 0:
            with log.open("ab") as file:
                file.write(bytes(missing))
                file.flush()
                os.fsync(file.fileno())

    def _connect(self, vfs: str | None) -> apsw.Connection:
        with _told_as_ours(self._path):
            flags = apsw.SQLITE_OPEN_READWRITE
            connection = apsw.Connection(str(self._path), flags=flags, vfs=vfs)
            try:
                self._configure(connection)
                self.identity = self._take_office(connection)
                noop = apsw.SQLITE_CHECKPOINT_NOOP
                self._log_pages = connection.wal_checkpoint(mode=noop)[0]
                self._lengthen_log()
            except BaseException:
                _abandon(connection)
                raise
        return connection

    def _configure(self, connection: apsw.Connection) -> None:
        # Exclusive before WAL: the other way round SQLite would ask for shared memory.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        mode = connection.execute("PRAGMA journal_mode=WAL").get
        if mode != "wal":
            raise StorageError(f"{self._path} cannot be written with a log (journal mode {mode})")
        connection.execute(f"PRAGMA synchronous={self.synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint=0")

    def _take_office(self, connection: apsw.Connection) -> Identity:
        found = connection.execute(_READ_IDENTITY).fetchall()
        known = unpack_identity(found[0]) if len(found) == 1 else None
        if known is None:
            raise DamagedJournal(_damage(self._path, "its identity has the wrong checksum"))
        identity, noted = known
        for row in _read(connection, self._path):
            self._batches += 1
            if self._on_row is not None:
                self._on_row(row)
        if self._batches < noted:
            missing = f"row {self._batches + 1} is missing, and all up to row {noted}"
            raise DamagedJournal(_damage(self._path, missing))
        identity = identity._replace(term=identity.term + 1)
        self._note_batches(connection, identity)
        return identity

    def _note_batches(self, connection: apsw.Connection, identity: Identity) -> None:
        connection.execute(_WRITE_IDENTITY, pack_identity(identity, self._batches))
        self._batches_noted = self._batches

    def _checkpoint(self, connection: apsw.Connection) -> tuple[int, int]:
        if self._batches != self._batches_noted:
            self._note_batches(connection, self.identity)
        return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpoint_and_close(self, connection: apsw.Connection) -> None:
        self._checkpoint(connection)  # closing would do that too, but not tell if it failed
        connection.close()

    def _open_connection(self) -> apsw.Connection:
        if self._connection is None:
            raise Closed(f"the journal {self._path} was closed")
        if self._failure is not None:
            raise JournalFailed(self._failure)
        return self._connection

    def _must_succeed(self, write: Callable[[], _T]) -> _T:
        try:
            return write()
        except BaseException as error:
            self._failure = (
                f"{self._path} could not be written ({type(error).__name__}: {error}): make sure "
                "that the disk is in order and has space left, then start again"
            )
            if isinstance(error, apsw.Error | OSError):
                raise JournalFailed(self._failure) from error
            raise


def _read(connection: apsw.Connection, path: Path) -> Iterator[Row]:
    last_id = 0
    while True:
        found: list[Any] = connection.execute(_READ, (last_id, ROWS_PER_READ)).fetchall()
        for row_id, first_revision, last_revision, changes, checksum in found:
            if row_id != last_id + 1:
                raise DamagedJournal(_damage(path, f"row {last_id + 1} is missing"))
            if not is_whole(first_revision, last_revision, changes, checksum):
                which = f"row {row_id} (revision {first_revision}) has the wrong checksum"
                raise DamagedJournal(_damage(path, which))
            yield Row(first_revision, last_revision, changes)
            last_id = row_id
        if len(found) < ROWS_PER_READ:
            return


def _damage(path: Path, what: str) -> str:
    return (
        f"{path} is damaged: {what}. It was left as it is: "
        "put a backup in its place, or begin with an empty directory"
    )


@contextlib.contextmanager
def _told_as_ours(path: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise DamagedJournal(_damage(path, str(error))) from error
    except apsw.BusyError as error:
        raise DirectoryInUse(
            f"{path} is locked by another program ({error}): end it, then start again"
        ) from error
    except apsw.Error as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def _abandon(connection: apsw.Connection) -> None:
    """Close without writing anything. Does nothing to a connection that was closed already."""
    with contextlib.suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(force=True)
