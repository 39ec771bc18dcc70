"""The journal: batches of changes, on disk when `append` returns, in order when read back.

Theory of operation. The journal is a SQLite database in WAL mode that one connection uses
exclusively (`locking_mode=EXCLUSIVE`, so there is no shared memory, and any VFS will do). A batch
is one row, added by one statement: one write to the log, one sync, and few crossings of the GIL,
which are expensive for a commit in a thread beside a busy event loop.

    open    the header is checked, every row is checked and passed on, then the term is raised by
            one. That commit also syncs what a killed process had written and not synced:
            everything that was passed on is on disk, and may be shown.
    append  writes to the log (`leasehold.db-wal`).
    fold    turns old batches into rows of keys and leases (`journal.folding`), a bit at a time.
    checkpoint  moves the contents of the log into the database, after recording the number of
            batches. Only on request: it would stall the commit in which it happened. The log has
            its full length from the start and is overwritten, because a sync that makes no file
            longer writes the data and nothing else.
    close   checkpoints, and removes the log.

The journal is checked for damage before anything is written, and nothing is repaired: a journal
that is refused is left as it was found. Only damage within the log itself is not detected: for
SQLite the log ends at the first frame that does not fit.

After a failed write the state of the disk is unknown: the kernel may have dropped what it could not
write, and would report the next sync as a success. So the journal refuses everything from then on;
opening it again determines its state.

A journal without a directory is a SQLite database in memory: the same in every respect, except that
it is not kept.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import apsw

from leasehold.errors import Closed, DamagedJournal, JournalFailed, StorageError
from leasehold.journal import folding, journal_files, records, remaining_terms
from leasehold.journal.data_dir import ADVICE, FILE_NAME, DataDirectory, why_unusable
from leasehold.journal.database_file import DatabaseLock
from leasehold.journal.folding import Unfolded
from leasehold.journal.journal_format import (
    FORMAT_VERSION,
    FULL_SYNCS,
    PAGE_BYTES,
    WRITE_IDENTITY,
    Identity,
    Progress,
    batch_checksum,
    bring_up_to_date,
    check_header,
    make_tables,
    pack_identity,
)
from leasehold.journal.journal_rows import (
    BatchIndex,
    BatchRow,
    NullReplay,
    OldValues,
    ReplayTarget,
    Wanted,
    begin_list,
    damage,
    last_revision_of,
    read_identity,
    read_list,
    read_notes,
    read_row,
    read_rows,
    replay_journal,
    told_as_ours,
    transaction,
    write_note,
    write_notes,
)
from leasehold.journal.remaining_terms import Entry
from leasehold.keyspace.keyspace import FIRST_REVISION, Item

__all__ = [
    "CHECKPOINT_PAGES",
    "FILE_NAME",
    "Identity",
    "Journal",
    "Progress",
]

CHECKPOINT_PAGES: Final = 1000
LOG_BYTES: Final = (CHECKPOINT_PAGES + CHECKPOINT_PAGES // 4) * (PAGE_BYTES + 24)
"""The length of the log: the writes between two checkpoints, and some more."""

_APPEND: Final = "INSERT INTO batch VALUES (?, ?, ?, ?, ?)"
CACHE_KIB: Final = 16 * 1024
"""SQLite's page cache: folding writes rows all over the table of keys."""

_IN_MEMORY: Final = Path(":memory:")

MAX_HISTORY_BYTES: Final = 1024 * 1024
"""Changes that are read from the history in one call; at least one batch."""

_T = TypeVar("_T")


class Journal:
    """The journal in a directory, which is created if it does not exist. One process at a time.

    Calls may come from any thread, but only from one at a time.
    """

    synchronous: ClassVar[str] = "FULL"
    checkpoint_pages: ClassVar[int] = CHECKPOINT_PAGES

    def __init__(
        self, directory: Path | None, *, replay: ReplayTarget | None = None, vfs: str | None = None
    ) -> None:
        """Open the journal, and check all of it; `replay` receives everything on the way."""
        self._replay = replay or NullReplay()
        self._path = _IN_MEMORY if directory is None else directory / FILE_NAME
        self._failure: str | None = None
        self._lock: DatabaseLock | None = None
        self._log_pages = 0
        self._batches = 0
        self._index = BatchIndex()
        self._unfolded: list[Unfolded] = []
        self._old_values = OldValues(self._path, self._index)
        self._used_bytes = 0
        self._size_bytes = 0
        self.notes: dict[str, bytes] = {}
        """The notes, by name."""
        self.progress = Progress()
        self._list: remaining_terms.Header | None = None
        """The list of leases that have not been renewed since a crash, if there are any."""
        self._listed: set[int] = set()
        """The leases in it, except those with later records that were folded."""
        self.was_left_open = False
        """Whether the last process did not close it."""
        if vfs is not None and vfs not in apsw.vfs_names():
            raise ValueError(f"vfs must be one of {', '.join(apsw.vfs_names())}, not {vfs!r}")
        try:
            self._directory = None if directory is None else DataDirectory(directory)
        except OSError as error:
            assert directory is not None
            raise StorageError(why_unusable(directory, error)) from error
        header_version = FORMAT_VERSION
        try:
            if self._directory is not None:
                journal_files.make_file(self._directory, self._path)
                self._lock = DatabaseLock(self._path, sqlite_locks=vfs is not None)
                header_version = check_header(self._path, self._lock.header)
                self.was_left_open = journal_files.is_log_left(self._path)
                journal_files.settle_log(self._path, vfs)
                vfs = vfs or self._lock.vfs
            self._connection: apsw.Connection | None = self._connect(vfs, header_version)
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise StorageError(
                    f"{self._path} cannot be opened: {error.strerror or error}{ADVICE}"
                ) from error
            raise

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed, so that the journal refuses everything."""
        return self._failure is not None

    @property
    def used_bytes(self) -> int:
        """The approximate disk space in use, without free pages."""
        return self._used_bytes

    @property
    def size_bytes(self) -> int:
        """The approximate length of the file, with free pages."""
        return max(self._size_bytes, self._used_bytes)

    @property
    def index(self) -> int:
        """The total number of batches and starts, for clients that ask for the index of a log."""
        return self._batches + self.identity.term

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the log has grown longer than is good for restarts and for the disk."""
        return self._log_pages > self.checkpoint_pages

    def rows(self) -> Iterator[BatchRow]:
        """Return everything appended so far, in order, each row checked.

        Raise `DamagedJournal` at the first row that is not as it was written.
        """
        connection = self._open_connection()
        with told_as_ours(self._path):
            yield from read_rows(connection, self._path, self.progress.folded)

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        """Append a batch; it is on disk when this returns.

        After `JournalFailed` it may or may not be there, and the journal accepts no more.
        """
        connection = self._open_connection()
        checksum = batch_checksum(first_revision, last_revision, changes)
        row = (self._batches + 1, first_revision, last_revision, changes, checksum)
        self._must_succeed(lambda: connection.execute(_APPEND, row))
        self._batches += 1
        self._index.add(self._batches, first_revision, last_revision)
        self._used_bytes += len(changes)
        # Counted here, because asking SQLite would be one more crossing of the GIL: the leaf, and a
        # page of overflow for each page's worth of changes. A page of the tree more once in a while
        # makes no difference.
        self._log_pages += 1 + len(changes) // PAGE_BYTES

    def checkpoint(self) -> None:
        """Move the contents of the log into the database, and restart the log."""
        connection = self._open_connection()
        in_log, moved = self._must_succeed(lambda: self._checkpoint(connection))
        self._log_pages = in_log - moved
        self._measure(connection)

    def fold(self, compacted: int) -> bool:
        """Fold some batches up to a compacted revision; return True if there is more to do.

        Batches before the first key (`FIRST_REVISION`) have no history and are always folded.
        """
        connection = self._open_connection()
        with told_as_ours(self._path):
            batches = self._next_to_fold(connection, compacted)
        if not batches:
            return False
        self._must_succeed(
            lambda: self._unsynced(lambda: self._fold(connection, batches, compacted))
        )
        self._unfolded = [batch for batch in batches if batch.id > self.progress.folded]
        self._index.folded(self.progress.folded)
        if not self._is_in_memory:
            self._log_pages = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
        self._measure(connection)
        if self.wants_checkpoint:
            self.checkpoint()
        return True

    def shrink(self) -> bool:
        """Return some of the free space to the file system; return True if there is more.

        Not synced, like folding. The file is truncated by the checkpoint that comes last.
        """
        connection = self._open_connection()
        left = self._must_succeed(lambda: self._unsynced(lambda: folding.shrink(connection)))
        if left is None:
            raise DamagedJournal(damage(self._path, "its record of page owners is damaged"))
        if not self._is_in_memory:
            self._log_pages = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
        if not left or self.wants_checkpoint:
            self.checkpoint()
        return left > 0

    def note(self, name: str, value: bytes) -> None:
        """Write a note; it is on disk when this returns."""
        connection = self._open_connection()
        self._must_succeed(lambda: write_note(connection, name, value))
        self.notes = {**self.notes, name: value}

    def note_elapsed(self, elapsed_s: float) -> None:
        """Charge the leases that are listed as unrenewed with the lease time that has passed."""
        if self._list is not None:
            self._list = self._list._replace(elapsed_s=elapsed_s)
            self._note_in_list(remaining_terms.NAME, self._list.pack())

    def end_list(self) -> None:
        """Delete the list: all its leases have been renewed, or have ended, on disk as well."""
        connection = self._open_connection()

        def delete() -> None:
            with transaction(connection):
                begin_list(connection, [], 0, 0)

        self._must_succeed(delete)
        self._list, self._listed = None, set()

    def note_remaining(self, entries: list[Entry], unrenewed: int) -> Iterator[None]:
        """Write the remaining terms of all leases in steps. The last is the mark of a clean stop.

        From then on nothing may be appended.
        """
        for name, value in remaining_terms.parts(entries, is_clean=True):
            self._note_in_list(name, value)
            yield
        term, batches = self.identity.term, self._batches
        header = remaining_terms.Header(True, term, batches, len(entries), unrenewed)
        self._note_in_list(remaining_terms.NAME, header.pack())

    def _note_in_list(self, name: str, value: bytes) -> None:
        connection = self._open_connection()
        self._must_succeed(lambda: write_note(connection, name, value))

    def _next_to_fold(self, connection: apsw.Connection, compacted: int) -> list[Unfolded]:
        """Read the next batches to be folded: a large one, or as many small ones as it takes.

        The changes of later batches are not read: one batch may have many megabytes.
        """
        limit = max(compacted, FIRST_REVISION)
        batches = [batch for batch in self._unfolded if batch.last_revision <= limit]
        changes = sum(len(batch.changes) for batch in batches)
        batch_id = batches[-1].id if batches else self.progress.folded
        while changes < folding.CHANGES_PER_STEP and batch_id < self._batches:
            batch_id += 1
            if last_revision_of(connection, self._path, batch_id) > limit:
                break
            row = read_row(connection, self._path, batch_id)
            decoded = list(records.decode(row.changes))
            batches.append(Unfolded(batch_id, row.first_revision, row.last_revision, decoded))
            changes += len(decoded)
        return batches

    def _unsynced(self, work: Callable[[], _T]) -> _T:
        """Write without a sync: the next commit syncs, and lost work can be done again."""
        connection = self._open_connection()
        connection.execute("PRAGMA synchronous=NORMAL")
        try:
            return work()
        finally:
            connection.execute(f"PRAGMA synchronous={self.synchronous}")

    def _fold(self, connection: apsw.Connection, batches: list[Unfolded], compacted: int) -> None:
        with connection:
            progress = folding.fold(connection, self.progress, batches)
            progress = progress._replace(batches=self._batches, compacted=compacted)
            if self._list is not None:
                since = [each for each in batches if each.id > self._list.batches]
                write_notes(connection, remaining_terms.renewed_notes(since, self._listed))
            connection.execute(WRITE_IDENTITY, pack_identity(self.identity, progress))
        self.progress = progress

    def copy_into(self, target: apsw.Connection) -> apsw.Backup:
        """Begin a copy of everything. Batches appended before its last step are included."""
        return target.backup("main", self._open_connection(), "main")

    # Reading while it is open.

    def history(self, revision: int) -> list[BatchRow]:
        """Return some batches in order, beginning with the one that has a revision."""
        with told_as_ours(self._path):
            return self._history(self._open_connection(), revision)

    def _history(self, connection: apsw.Connection, revision: int) -> list[BatchRow]:
        found: list[BatchRow] = []
        size_bytes = 0
        batch_id = self._index.find(revision) or self.progress.folded + 1
        while batch_id <= self._batches and size_bytes < MAX_HISTORY_BYTES:
            found.append(read_row(connection, self._path, batch_id))
            size_bytes += len(found[-1].changes)
            batch_id = max(batch_id, self.progress.folded) + 1
        return found

    def values(self, wanted: Wanted) -> list[Item]:
        """Return values that some revisions have put to some keys: the first ones, at least one."""
        with told_as_ours(self._path):
            connection = self._open_connection()
            return self._old_values.read(connection, wanted, self.progress.base_revision)

    def close(self) -> None:
        """Close the journal without leaving a log, and release the directory.

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
            self._let_go()

    def abandon(self) -> None:
        """Touch nothing any more, in a child of the process that has it.

        Not even at the end of the child: closing the connection would write the log back.
        """
        self._failure = "this journal belongs to the parent process"
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
        if self._directory is not None:
            self._directory.close()

    @property
    def _is_in_memory(self) -> bool:
        return self._directory is None

    def _connect(self, vfs: str | None, header_version: int) -> apsw.Connection:
        with told_as_ours(self._path):
            flags = apsw.SQLITE_OPEN_READWRITE
            connection = apsw.Connection(str(self._path), flags=flags, vfs=vfs)
            try:
                self._configure(connection)
                self.identity = self._take_office(connection, header_version)
                self._measure(connection)
                if not self._is_in_memory:
                    noop = apsw.SQLITE_CHECKPOINT_NOOP
                    self._log_pages = connection.wal_checkpoint(mode=noop)[0]
                    journal_files.lengthen_log(self._path, LOG_BYTES)
            except BaseException:
                _abandon(connection)
                raise
        return connection

    def _configure(self, connection: apsw.Connection) -> None:
        if self._is_in_memory:
            make_tables(connection)
            return
        # Exclusive before WAL: the other way round SQLite would use shared memory.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        mode = connection.execute("PRAGMA journal_mode=WAL").get
        if mode != "wal":
            raise StorageError(
                f"{self._path} does not support write-ahead logging (journal mode {mode})"
            )
        connection.execute(f"PRAGMA synchronous={self.synchronous}")
        connection.execute(FULL_SYNCS)
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")

    def _take_office(self, connection: apsw.Connection, header_version: int) -> Identity:
        identity, self.progress = read_identity(connection, self._path)
        notes = read_notes(connection, self._path)
        self.notes = {name: notes[name] for name in notes if not remaining_terms.is_ours(name)}
        left = read_list(notes, identity.term, self._path)
        self._replay.expect(left)
        self._batches = replay_journal(
            connection, self._path, self.progress, self._replay, self._index
        )
        if not self._is_in_memory:
            bring_up_to_date(connection, header_version)
        identity = identity._replace(term=identity.term + 1)
        entries = self._replay.unrenewed()
        self._listed = {lease for lease, _ in entries}
        with transaction(connection):
            self._list = begin_list(connection, entries, identity.term, self._batches)
            self._note_batches(connection, identity)
        return identity

    def _note_batches(self, connection: apsw.Connection, identity: Identity) -> None:
        self.progress = self.progress._replace(batches=self._batches)
        connection.execute(WRITE_IDENTITY, pack_identity(identity, self.progress))

    def _measure(self, connection: apsw.Connection) -> None:
        pages = connection.pragma("page_count")
        self._size_bytes = pages * PAGE_BYTES
        self._used_bytes = (pages - connection.pragma("freelist_count")) * PAGE_BYTES

    def _checkpoint(self, connection: apsw.Connection) -> tuple[int, int]:
        if self._batches != self.progress.batches:
            self._note_batches(connection, self.identity)
        if self._is_in_memory:
            return 0, 0
        return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpoint_and_close(self, connection: apsw.Connection) -> None:
        self._checkpoint(connection)  # closing would do that too, but not report a failure
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


def _abandon(connection: apsw.Connection) -> None:
    """Close without writing anything. Does nothing to a connection that was closed already."""
    with contextlib.suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(force=True)
