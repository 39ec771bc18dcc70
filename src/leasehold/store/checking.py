"""Checking: is a data directory or a backup intact? The check changes no byte of it.

Checked are the header, SQLite's own structures, every checksum, and whether the rows can be
replayed and are consistent: batches and revisions follow each other, the tables contain nothing
newer than recorded, and every key that belongs to a lease belongs to one that exists.

SQLite changes a directory if it opens it normally. If there is no log, it is opened as immutable;
then SQLite makes no log and no locks. If there is a log, SQLite needs the file exclusively, as the
journal does, and is kept from moving the log into the database on close.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import apsw

from leasehold.basics.callbacks import ignore
from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import DamagedJournal, DirectoryInUse, ForeignJournal, StorageError
from leasehold.journal import records
from leasehold.journal.data_dir import LOCK_NAME, PID_DIGITS
from leasehold.journal.database_file import read_header, refuse_if_open
from leasehold.journal.folding import StoredLease
from leasehold.journal.journal import FILE_NAME
from leasehold.journal.journal_format import Identity, Progress, check_header, read_version
from leasehold.journal.journal_rows import (
    BatchIndex,
    BatchRow,
    damage,
    read_identity,
    read_list,
    read_notes,
    replay_journal,
    told_as_ours,
)
from leasehold.journal.remaining_terms import Entry, Remaining
from leasehold.keyspace.keyspace import Item, Keyspace, PairCodec
from leasehold.store.backup_file import OnProgress, backup_digest
from leasehold.store.replay import Replay
from leasehold.wire.codec import key_value

MAX_COMPLAINTS: Final = 3
"""How many of SQLite's complaints are reported."""


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a journal that is intact."""

    path: Path
    format: int
    identity: Identity
    revision: int
    compacted: int
    """The oldest revision that can be read; less than 1 if nothing was ever compacted."""
    keys: int
    leases: int
    size_bytes: int
    backup_time_us: int | None = None
    """When a backup was made, in microseconds since the epoch; None if it is not recorded."""


def check(path: Path, on_progress: OnProgress | None = None) -> Report:
    """Check a data directory that no process has open, or a backup; raise `StorageError`."""
    try:
        if path.is_dir():
            return check_directory(path)
        if path.exists():
            return check_backup(path, on_progress)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    raise StorageError(f"{path} does not exist: name a data directory or a backup")


def check_directory(directory: Path) -> Report:
    """Check a data directory that no process has open."""
    with reading(directory) as connection:
        size_bytes = sum(file.stat().st_size for file in directory.glob(f"{FILE_NAME}*"))
        return examine(connection, directory / FILE_NAME, size_bytes)


def check_backup(path: Path, on_progress: OnProgress | None = None) -> Report:
    """Check a backup."""
    _check_kind(path)
    time_us = backup_digest(path, on_progress or ignore)
    with opened_to_read(path) as connection:
        found = examine(connection, path, path.stat().st_size)
    return replace(found, backup_time_us=time_us)


def _check_kind(path: Path) -> None:
    try:
        check_header(path, read_header(path))
    except ForeignJournal as error:
        what, _, advice = str(error).rpartition(": ")
        if "release" not in advice:  # else it is ours, and the advice is good
            advice = "name a file that `leasehold backup` has made"
        raise ForeignJournal(f"{what}: {advice}") from None


# Reading without changing anything.


@contextlib.contextmanager
def reading(directory: Path) -> Iterator[apsw.Connection]:
    """Read a data directory that no process has open. It is locked meanwhile."""
    path = directory / FILE_NAME
    if not directory.exists():
        raise StorageError(f"{directory} does not exist: name a data directory")
    if not path.is_file():
        raise StorageError(f"{directory} is not a data directory: it has no {FILE_NAME}")
    with _locked(directory):
        check_header(path, read_header(path))
        stray = path.with_name(f"{FILE_NAME}-journal")
        if stray.exists():
            raise DamagedJournal(
                damage(path, f"{stray.name} next to it was written by another program")
            )
        log = path.with_name(f"{FILE_NAME}-wal")
        has_log = log.exists() and log.stat().st_size > 0
        with _opened_with_log(path) if has_log else opened_to_read(path) as connection:
            yield connection


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # perhaps a copy that was never opened
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(_in_use(directory, os.pread(fd, PID_DIGITS, 0))) from None
        yield
    finally:
        os.close(fd)


def _in_use(directory: Path, found: bytes) -> str:
    pid = found.strip().decode("ascii", "replace")
    holder = f"process {pid}" if pid.isdigit() else "another process"
    return (
        f"{directory} is in use by {holder}: make a backup with `leasehold backup` and use that, "
        "or stop the process first"
    )


@contextlib.contextmanager
def opened_to_read(path: Path) -> Iterator[apsw.Connection]:
    """Open a journal that has no log and does not change; files beside it are ignored."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    refuse_if_open(path)
    with told_as_ours(path):
        connection = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
        try:
            yield connection
        finally:
            connection.close(force=True)


@contextlib.contextmanager
def _opened_with_log(path: Path) -> Iterator[apsw.Connection]:
    with told_as_ours(path):
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(path.absolute().as_uri(), flags=flags)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA query_only=ON")
            yield connection
        finally:
            connection.close(force=True)


# Contents.


def revision_of(connection: apsw.Connection, path: Path) -> int:
    """Return the last revision of a journal."""
    _, progress = read_identity(connection, path)
    last = connection.execute("SELECT last_revision FROM batch ORDER BY id DESC LIMIT 1").get
    return progress.base_revision if last is None else int(last)


def examine(connection: apsw.Connection, path: Path, size_bytes: int) -> Report:
    """Check an open journal, and return its contents."""
    _check_structure(connection, path)
    identity, progress = read_identity(connection, path)
    notes = read_notes(connection, path)
    survey = Survey()
    try:
        survey.expect(read_list(notes, identity.term, path))
        replay_journal(connection, path, progress, survey, BatchIndex())
        survey.finish()
        _check_folded(connection, progress.folded)
    except DamagedJournal as error:
        if str(path) in str(error):
            raise
        raise DamagedJournal(damage(path, str(error))) from error
    keyspace = survey.replay.keyspace
    return Report(
        path=path,
        format=read_version(connection),
        identity=identity,
        revision=keyspace.revision,
        compacted=keyspace.compacted,
        keys=len(keyspace),
        leases=len(survey.replay.leases),
        size_bytes=size_bytes,
    )


def _check_structure(connection: apsw.Connection, path: Path) -> None:
    rows = connection.execute(f"PRAGMA integrity_check({MAX_COMPLAINTS})").fetchall()
    if rows != [("ok",)]:
        complaints = "; ".join(str(line) for (line,) in rows)
        raise DamagedJournal(damage(path, " ".join(complaints.split())))


def _check_folded(connection: apsw.Connection, folded: int) -> None:
    """Look for batches that should be gone: one of the folded ones may remain."""
    left = connection.execute("SELECT id FROM batch WHERE id <= ?", (folded,)).fetchall()
    if len(left) > 1:
        raise DamagedJournal(
            f"row {left[0][0]} should have been deleted when rows up to {folded} were folded"
        )


class Survey:
    """Replays everything, and checks at each step whether it is consistent."""

    def __init__(self) -> None:
        self.replay = Replay(Keyspace(PairCodec(key_value, records.value_of)))
        self._revision = 0
        """The revision of the last row."""
        self._newest = 0
        """The last revision in the tables."""
        self._compacted = 0
        """The compaction that the tables were folded for."""

    def expect(self, remaining: Remaining | None) -> None:
        """Take the list of remaining terms."""
        self.replay.expect(remaining)

    def unrenewed(self) -> list[Entry]:
        """Return an empty list: a check writes nothing."""
        return []

    def load_folded(
        self, items: Iterator[Item], leases: Iterator[StoredLease], progress: Progress
    ) -> None:
        """Check the folded keys and leases."""
        self.replay.load_folded(self._seen(items), leases, progress)
        self._revision = progress.base_revision
        self._compacted = progress.compacted
        if not progress.folded_changes:
            self._check_newest()

    def _seen(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            _, create_revision, mod_revision, version, _, key = item
            if not 0 < create_revision <= mod_revision or version < 1:
                raise DamagedJournal(
                    f"key {key!r} has an impossible version or revision: version {version}, "
                    f"created at revision {create_revision}, modified at {mod_revision}"
                )
            self._newest = max(self._newest, mod_revision)
            yield item

    def _check_newest(self) -> None:
        if self._newest > self._revision:
            raise DamagedJournal(
                f"a key is at revision {self._newest}, but the folded rows end at revision "
                f"{self._revision}"
            )

    def restore(self, row: BatchRow, skipped: int) -> None:
        """Check a row."""
        first, last = row.first_revision, row.last_revision
        if first != self._revision + 1 or last < self._revision:
            raise DamagedJournal(
                f"a row has revisions {first} to {last}, but the row before it ends at revision "
                f"{self._revision}"
            )
        self._check_revisions(row)
        self.replay.restore(row, skipped)
        self.replay.keyspace.revision = self._revision = last
        if skipped:
            self._check_newest()

    def _check_revisions(self, row: BatchRow) -> None:
        revision = self._revision
        for record in records.decode(row.changes):
            changed = revision
            match record:
                case records.PutRecord(item):
                    changed = item[2]
                case records.DeletedRecord(_, changed) | records.JumpedRecord(changed):
                    pass
                case records.CompactedRecord(compacted) if compacted > row.last_revision:
                    raise DamagedJournal(
                        f"revision {compacted} was compacted before it was written"
                    )
            if not revision <= changed <= row.last_revision:
                raise DamagedJournal(
                    f"a row of revisions {row.first_revision} to {row.last_revision} has a change "
                    f"at revision {changed} that follows one at revision {revision}"
                )
            revision = changed

    def finish(self) -> None:
        """Check the result."""
        self.replay.finish()
        keyspace, leases = self.replay.keyspace, self.replay.leases
        compacted = max(self._compacted, keyspace.compacted)
        if compacted > keyspace.revision:
            raise DamagedJournal(
                f"compacted revision {compacted} is higher than the current revision "
                f"{keyspace.revision}"
            )
        for item in keyspace.range(b"", b"\0"):
            if item[4] and item[4] not in leases:
                shown = shown_lease(item[4])
                raise DamagedJournal(f"key {item[5]!r} belongs to lease {shown}, which has ended")
