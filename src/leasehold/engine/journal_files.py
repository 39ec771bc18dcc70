"""The files of a journal: how they begin, and what is done before SQLite opens them."""

import os
from pathlib import Path
from typing import Final

import apsw

from leasehold.engine.data_dir import FILE_NAME, DataDirectory
from leasehold.engine.journal_format import empty_journal
from leasehold.engine.journal_rows import told_as_ours
from leasehold.errors import DamagedJournal

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
                f"{path} is gone but {log.name} is still there, with changes that belong to it: "
                "put the file back, or remove the log as well to begin with nothing"
            )
    directory.write_whole(FILE_NAME, empty_journal())


def is_log_left(path: Path) -> bool:
    """Say whether there is a log: a journal that was closed has none."""
    return path.with_name(FILE_NAME + LOG_SUFFIXES[0]).exists()


def settle_log(path: Path, vfs: str | None) -> None:
    """Write a log that was left behind once more, and sync it.

    After a failed sync it may be that what is read from the log is not on disk, and that no later
    sync would put it there: the system takes it for written. What is to be built upon it would be
    lost with it.
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
    """Give the log its length at once, in zeros, which SQLite takes for the end of the log."""
    log = path.with_name(FILE_NAME + LOG_SUFFIXES[0])
    missing = log_bytes - log.stat().st_size if log.exists() else 0
    if missing > 0:
        with log.open("ab") as file:
            file.write(bytes(missing))
            file.flush()
            os.fsync(file.fileno())
