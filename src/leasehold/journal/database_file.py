"""The database file of a journal: its lock, and the one way to open it without SQLite.

SQLite protects a database with POSIX record locks. Such a lock belongs to a process and an inode:
closing any descriptor of the file, in any thread and under any name, drops it. Another program then
opens the database, considers itself the last user, and deletes the log when it closes; everything
that is acknowledged afterwards is lost in a crash.

Two rules prevent that:

- On Linux the lock is an *open file description lock*, which belongs to one descriptor and ends
  with it, so other descriptors of the file do not matter. It covers the bytes that SQLite locks,
  and SQLite itself then runs without locks (`UNLOCKED_VFS`). Where the system has no such locks,
  and where a VFS is given, SQLite locks the file as usual.
- While SQLite has a database open, this process opens it in no other way. The inodes of open
  databases are registered here, and every function that reads a journal or a backup from a path
  calls `refuse_if_open` first.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import BinaryIO, Final

from leasehold.errors import DirectoryInUse

UNLOCKED_VFS: Final = "unix-none"
"""SQLite's VFS without locks."""

LOCKED_FROM: Final = 0x40000000
LOCKED_BYTES: Final = 512
"""The bytes that SQLite locks: `PENDING_BYTE`, `RESERVED_BYTE` and the shared range."""

SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
"""The command that sets an open file description lock; None where there are none."""

HEADER_BYTES: Final = 100
"""The length of SQLite's header, at the beginning of the first page."""

_pack_lock: Final = struct.Struct("@hhqqi4x").pack  # struct flock, used on Linux only
_IS_LOCKED: Final = frozenset({errno.EAGAIN, errno.EACCES})
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})

_holders: Final[dict[tuple[int, int], "DatabaseLock"]] = {}
"""The databases that this process has open, by device and inode."""


class DatabaseLock:
    """Holds a database file from before SQLite opens it until after SQLite has closed it."""

    def __init__(self, path: Path, *, sqlite_locks: bool = False) -> None:
        """Register and lock the file; with `sqlite_locks`, leave the lock to SQLite.

        Raise `DirectoryInUse` if another program, or this process, has the database open.
        """
        self.path = path
        self._fd: int | None = None
        self._inode = _inode_of(path)
        holder = _holders.setdefault(self._inode, self)
        if holder is not self:
            raise _in_use(path, holder)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not sqlite_locks and _lock(path, fd):
                    self._fd = fd
                self.header = os.pread(fd, HEADER_BYTES, 0)
            finally:
                if self._fd is None:
                    os.close(fd)  # now: while SQLite has the file open it would be too late
        except BaseException:
            self.release()
            raise

    @property
    def vfs(self) -> str | None:
        """The VFS with which SQLite has to open the file; None for its default, which locks."""
        return None if self._fd is None else UNLOCKED_VFS

    def release(self) -> None:
        """Release the file, after SQLite has closed it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if _holders.get(self._inode) is self:
            del _holders[self._inode]


def refuse_if_open(path: Path) -> None:
    """Raise `DirectoryInUse` for a database that this process has open, under whichever name."""
    holder = _holders.get(_inode_of(path))
    if holder is not None:
        raise _in_use(path, holder)


def open_to_read(path: Path) -> BinaryIO:
    """Open a journal or a backup to read its bytes, unless this process has it open."""
    refuse_if_open(path)
    return path.open("rb")


def read_header(path: Path) -> bytes:
    """Read the header of a journal or a backup, unless this process has it open."""
    with open_to_read(path) as file:
        return file.read(HEADER_BYTES)


def _inode_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _in_use(path: Path, holder: DatabaseLock) -> DirectoryInUse:
    return DirectoryInUse(
        f"{path} is open in this process, as {holder.path}: make a backup with the engine that has "
        "it, or close that engine first"
    )


def _lock(path: Path, fd: int) -> bool:
    """Lock the file; return False if the system, or its file system, has no such locks."""
    if SET_LOCK is None:
        return False
    lock = _pack_lock(fcntl.F_WRLCK, os.SEEK_SET, LOCKED_FROM, LOCKED_BYTES, 0)
    try:
        fcntl.fcntl(fd, SET_LOCK, lock)
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            return False
        if error.errno in _IS_LOCKED:
            raise DirectoryInUse(
                f"{path} is locked by another program: end that program, then start again"
            ) from error
        raise
    return True
