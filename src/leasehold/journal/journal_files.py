"""The files of a journal: their creation, and the work before SQLite opens them."""

from pathlib import Path
from typing import Final

import apsw

from leasehold.errors import DamagedJournal
from leasehold.journal.data_dir import FILE_NAME, DataDirectory, sync_file
from leasehold.journal.journal_format import empty_journal
from leasehold.journal.journal_rows import told_as_ours

LOG_SUFFIXES: Final = ("-wal", "-journal")
_PIECE_BYTES: Final = 64 * 1024


def make_file(directory: DataDirectory, path: Path) -> None:
    """Create an empty journal if there is none; refuse a log without a database."""
    if path.exists():
        directory.sync()  # the process that created it may have been killed before its own sync
        return
    for suffix in LOG_SUFFIXES:
        log = path.with_name(FILE_NAME + suffix)
        if log.exists():
            raise DamagedJournal(
                f"{path} is missing, but its log {log.name} still has changes: put the file back, "
                "or remove the log too to start empty"
            )
    directory.write_whole(FILE_NAME, empty_journal())


def is_log_left(path: Path) -> bool:
    """Return whether there is a log: a journal that was closed has none."""
    return path.with_name(FILE_NAME + LOG_SUFFIXES[0]).exists()


def settle_log(path: Path, vfs: str | None) -> None:
    """Rewrite a log that was left behind, and sync it.

    After a failed sync the contents read from the log may not be on disk, and no later sync would
    write them: the system takes them for written. Everything based on them would be lost as well.
    """
    log = path.with_name(FILE_NAME + LOG_SUFFIXES[0])
    if not log.exists():
        return
    flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE
    with told_as_ours(path):
        file = apsw.VFSFile(vfs or "", str(log), [flags, 0])
        try:
            for at in range(0, file.xFileSize(), _PIECE_BYTES):
                file.xWrite(file.xRead(min(_PIECE_BYTES, file.xFileSize() - at), at), at)
            file.xSync(apsw.SQLITE_SYNC_FULL)
        finally:
            file.xClose()


def lengthen_log(path: Path, log_bytes: int) -> None:
    """Extend the log to its full length with zeros, which SQLite takes for the end of the log."""
    log = path.with_name(FILE_NAME + LOG_SUFFIXES[0])
    missing = log_bytes - log.stat().st_size if log.exists() else 0
    if missing > 0:
        with log.open("ab") as file:
            file.write(bytes(missing))
            file.flush()
            sync_file(file.fileno())
