"""Restoring: a new data directory from a backup, as another cluster that is far ahead.

Revisions that were given out after the backup must not be given out again: a client may hold one of
them as a fencing token, or as the position of a watch. That includes the revisions of an earlier
restore of the same backup, of which the backup has no record. So the new directory has other ids,
everything before its revision is compacted, and that revision is the largest of

- the wall clock, in microseconds since the epoch,
- the revision that the caller names (`above`),
- if the backup's revision was ahead of the wall clock when the backup was made: that revision +
  10^9 + the microseconds that have passed since.

The wall clock grows by a million a second, which is faster than a server gives revisions out. So a
cluster that was behind the clock stays behind it, and a later restore is ahead of an earlier one,
whichever backups they are of, as long as the clock is not set back in between. Only `above` takes
a cluster ahead of the clock; the third rule is for backups of such a cluster. A clock that is
certainly wrong is refused unless `above` is given.

The directory is locked all the time, and has a journal when everything is on disk, or never.
"""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import apsw

from leasehold.basics.callbacks import ignore
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import StorageError
from leasehold.journal import records
from leasehold.journal.data_dir import FILE_MODE, LOCK_NAME, DataDirectory, sync_file
from leasehold.journal.journal import FILE_NAME
from leasehold.journal.journal_format import (
    FULL_SYNCS,
    WRITE_IDENTITY,
    batch_checksum,
    new_identity,
    pack_identity,
)
from leasehold.journal.journal_rows import forget_notes, read_identity, told_as_ours
from leasehold.store.backup_file import OnProgress, backup_digest, told_of
from leasehold.store.checking import Report, check_backup, examine, opened_to_read

REVISIONS_AHEAD: Final = 10**9
"""More than can have been given out between a backup and the day on which it was needed."""

MAX_RESTORED_REVISION: Final = 2**53 - 10**12
"""Clients that read JSON numbers as floats are exact below 2^53; a trillion revisions may follow.

The wall clock gets there in the year 2255.
"""

EARLIEST_US: Final = 1_767_225_600_000_000
"""The beginning of 2026, in microseconds: every backup is newer, also one without a time in it."""

_DRAFT_NAME: Final = f"{FILE_NAME}.new"
_MAY_BE_THERE: Final = frozenset({LOCK_NAME, _DRAFT_NAME, f"{_DRAFT_NAME}-wal", "lost+found"})
"""Files that are ignored: those of a restore that was killed, and of a new disk."""


def restore(
    backup: Path,
    directory: Path,
    on_progress: OnProgress | None = None,
    *,
    above: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Report:
    """Make a data directory from a backup, which is checked first; return the directory's contents.

    The directory must be empty or not exist. Every revision that the restored directory gives out
    is higher than `above`. Raise `StorageError` if the wall clock is behind the backup's time and
    `above` is None. The backup is opened for reading only.
    """
    if above is not None and not 0 <= above <= MAX_RESTORED_REVISION:
        raise ValueError(f"above must be from 0 to {MAX_RESTORED_REVISION}, got {above}")
    tell = on_progress or ignore
    _check_empty(directory)
    try:
        found = check_backup(backup, lambda done, of: tell(done, 2 * of))
    except OSError as error:
        raise StorageError(f"{backup} cannot be read: {error.strerror or error}") from error
    revision = _restored_revision(backup, found, int(clock.wall() * 1_000_000), above)
    with told_of(directory):
        data = DataDirectory(directory)
        try:
            _check_empty(directory)
            draft = directory / _DRAFT_NAME
            try:
                _copy(backup, draft, lambda done, of: tell(of + done, 2 * of))
                _move_ahead(draft, found, revision)
                report = _checked(draft, revision)
            except BaseException:
                for file in directory.glob(f"{_DRAFT_NAME}*"):
                    file.unlink()
                raise
            draft.replace(directory / FILE_NAME)
            data.sync()
        finally:
            data.close()
    return report


def _restored_revision(backup: Path, found: Report, now_us: int, above: int | None) -> int:
    made_us = max(found.backup_time_us or 0, EARLIEST_US)
    if not made_us <= now_us <= MAX_RESTORED_REVISION:
        if above is None:
            raise StorageError(
                f"{backup} was made at {_shown(made_us)} or later, but the clock of this machine "
                f"shows {_shown(now_us)}: set the clock, or give the highest revision that any "
                "client may have seen (--above REVISION)"
            )
        now_us = made_us  # a wrong clock is ignored
    revision = max(now_us, above or 0)
    if found.revision >= made_us:
        revision = max(revision, found.revision + REVISIONS_AHEAD + now_us - made_us)
    if revision > MAX_RESTORED_REVISION:
        raise StorageError(
            f"restored revision must be at most {MAX_RESTORED_REVISION}, but would be {revision}, "
            f"since {backup} is at revision {found.revision}"
        )
    return revision


def _shown(time_us: int) -> str:
    try:
        at = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} µs after the epoch"
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _check_empty(directory: Path) -> None:
    if not os.path.lexists(directory):
        return
    if not directory.is_dir():
        raise StorageError(
            f"{directory} is not a directory: name a directory that does not exist yet"
        )
    others = sorted({file.name for file in directory.iterdir()} - _MAY_BE_THERE)
    if others:
        raise StorageError(
            f"{directory} is not empty (it has {others[0]}): name a directory that does not exist "
            "yet, or move this one away"
        )


def _copy(backup: Path, draft: Path, on_progress: OnProgress) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    draft.with_name(f"{draft.name}-wal").unlink(missing_ok=True)
    fd = os.open(draft, flags, FILE_MODE)
    try:
        backup_digest(backup, on_progress, into=fd)
        sync_file(fd)
    finally:
        os.close(fd)


def _checked(draft: Path, revision: int) -> Report:
    """Check the new journal before it is renamed."""
    with opened_to_read(draft) as connection:
        report = examine(connection, draft, draft.stat().st_size)
    if (report.revision, report.compacted) != (revision, revision):
        raise StorageError(
            f"{draft} is at revision {report.revision} instead of {revision}: this is a bug in "
            "Leasehold, and nothing was restored"
        )
    return replace(report, path=draft.with_name(FILE_NAME))


def _move_ahead(draft: Path, found: Report, last: int) -> None:
    """Turn a journal into that of another cluster, at the revision `last`."""
    first = found.revision + 1
    changes = records.jumped(last) + records.compacted(last)
    with told_as_ours(draft):
        connection = apsw.Connection(
            draft.absolute().as_uri(), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        )
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(FULL_SYNCS)
            identity, progress = read_identity(connection, draft)
            ids = new_identity()
            identity = identity._replace(cluster_id=ids.cluster_id, member_id=ids.member_id)
            last_id = connection.execute("SELECT max(id) FROM batch").get or 0
            batches = max(last_id, progress.folded)  # of the folded ones, an older one may be left
            row = (batches + 1, first, last, changes, batch_checksum(first, last, changes))
            with connection:
                forget_notes(connection)
                connection.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", row)
                progress = progress._replace(batches=batches + 1)
                connection.execute(WRITE_IDENTITY, pack_identity(identity, progress))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
