"""Restoring: a new data directory from a backup, as another cluster that is far ahead.

What came after the backup is lost, and its revisions must not be given out again: somebody may hold
a fencing token, or a place in a watch, of one of them. So the new directory has other ids, and its
revision is a billion higher and compacted: what anybody remembers is refused as too old, and every
revision from now on is higher than all that there were.

The directory is locked all the time, and has a journal when everything is on disk, or never.
"""

import os
from pathlib import Path
from typing import Final

import apsw

from leasehold.core.callback import ignore
from leasehold.engine import records
from leasehold.engine.backup_file import OnProgress, backup_digest, told_of
from leasehold.engine.checking import Report, check_backup
from leasehold.engine.data_dir import FILE_MODE, LOCK_NAME, DataDirectory
from leasehold.engine.journal import FILE_NAME
from leasehold.engine.journal_format import (
    WRITE_IDENTITY,
    batch_checksum,
    new_identity,
    pack_identity,
)
from leasehold.engine.journal_rows import read_identity, told_as_ours
from leasehold.engine.notes import forget_notes
from leasehold.errors import StorageError

REVISIONS_AHEAD: Final = 10**9
"""More than can have been given out between a backup and the day on which it was needed."""

_DRAFT_NAME: Final = f"{FILE_NAME}.new"
_MAY_BE_THERE: Final = frozenset({LOCK_NAME, _DRAFT_NAME, f"{_DRAFT_NAME}-wal", "lost+found"})
"""What does not count: what a restore that was killed has left, and what a new disk has."""


def restore(backup: Path, directory: Path, on_progress: OnProgress | None = None) -> Report:
    """Make a data directory of a backup, which is checked first; return what is in the directory.

    The directory must not be there, or be empty.
    """
    tell = on_progress or ignore
    _check_empty(directory)
    try:
        found = check_backup(backup, lambda done, of: tell(done, 2 * of))
    except OSError as error:
        raise StorageError(f"{backup} cannot be read: {error.strerror or error}") from error
    with told_of(directory):
        data = DataDirectory(directory)
        try:
            _check_empty(directory)
            draft = directory / _DRAFT_NAME
            try:
                _copy(backup, draft, lambda done, of: tell(of + done, 2 * of))
                report = _move_ahead(draft, found)
            except BaseException:
                for file in directory.glob(f"{_DRAFT_NAME}*"):
                    file.unlink()
                raise
            draft.replace(directory / FILE_NAME)
            data.sync()
        finally:
            data.close()
    return report


def _check_empty(directory: Path) -> None:
    if not os.path.lexists(directory):
        return
    if not directory.is_dir():
        raise StorageError(f"{directory} is not a directory: name one that is not there yet")
    others = sorted({file.name for file in directory.iterdir()} - _MAY_BE_THERE)
    if others:
        raise StorageError(
            f"{directory} is not empty (it has {others[0]}): name a directory that is not there "
            "yet, or move this one away"
        )


def _copy(backup: Path, draft: Path, on_progress: OnProgress) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    draft.with_name(f"{draft.name}-wal").unlink(missing_ok=True)
    fd = os.open(draft, flags, FILE_MODE)
    try:
        backup_digest(backup, on_progress, into=fd)
        os.fsync(fd)
    finally:
        os.close(fd)


def _move_ahead(draft: Path, found: Report) -> Report:
    """Make a journal one of another cluster, at a much higher revision."""
    first, last = found.revision + 1, found.revision + REVISIONS_AHEAD
    changes = records.jumped(last) + records.compacted(last)
    with told_as_ours(draft):
        connection = apsw.Connection(
            draft.absolute().as_uri(), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        )
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            identity, progress = read_identity(connection, draft)
            ids = new_identity()
            identity = identity._replace(cluster_id=ids.cluster_id, member_id=ids.member_id)
            batches = connection.execute("SELECT max(id) FROM batch").get or progress.folded
            row = (batches + 1, first, last, changes, batch_checksum(first, last, changes))
            with connection:
                forget_notes(connection)
                connection.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", row)
                progress = progress._replace(batches=batches + 1)
                connection.execute(WRITE_IDENTITY, pack_identity(identity, progress))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    return Report(
        path=draft.with_name(FILE_NAME),
        format=found.format,
        identity=identity,
        revision=last,
        compacted=last,
        keys=found.keys,
        leases=found.leases,
        size_bytes=draft.stat().st_size,
    )
