"""A backup as a file: a whole journal, the time at which it was made, and a SHA-256 of all that.

The checksums within a journal are those of its rows. They do not cover the bytes in between, and do
not detect a truncated file. The checksum at the end does, so every changed byte is found. It is at
the same place as in etcd's snapshots.

The time is in a block of its own (`time_block`). Backups of older releases do not have that block.

A backup is written to a locked file under another name, and renamed when all of it is on disk. A
file left by a killed process is overwritten by the next backup.

A snapshot, which is sent to a reader that stores it elsewhere, is copied into an `UnlinkedFile`. It
has a name only until SQLite has opened it, so nothing is left of it when its user is done, has
exited or was killed.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from leasehold.errors import DamagedJournal, StorageError
from leasehold.journal.data_dir import FILE_MODE, sync_directory, sync_file, write_all
from leasehold.journal.database_file import open_to_read
from leasehold.journal.journal_format import PAGE_BYTES

DIGEST_BYTES: Final = 32
CHUNK_BYTES: Final = 1024 * 1024
_PARTIAL_SUFFIX: Final = ".leasehold-partial"
_BLOCK_BYTES: Final = 512
_MAGIC: Final = b"leasehold backup time\0\0\0"
_time_block: Final = struct.Struct(f"<{len(_MAGIC)}sq{_BLOCK_BYTES - len(_MAGIC) - 8}x")

SPARE_BYTES: Final = 64 * 1024 * 1024
"""The space that a copy leaves free on a disk that is needed for the journal as well."""

_SNAPSHOT_PREFIX: Final = "snapshot-"

OnProgress = Callable[[int, int], None]
"""Called with the number of bytes done and the total."""


def time_block(time_us: int) -> bytes:
    """Return the block that follows the pages of a backup: when it was made, by the wall clock."""
    return _time_block.pack(_MAGIC, time_us)


def _time_of(block: bytes) -> int | None:
    if len(block) != _BLOCK_BYTES:
        return None
    magic, time_us = _time_block.unpack(block)
    return int(time_us) if magic == _MAGIC else None


class BackupDraft:
    """A backup that is being written."""

    def __init__(self, target: Path, *, force: bool = False) -> None:
        """Do nothing yet: call `begin` next, and `discard` last in any case."""
        self.target = target
        self.path = draft_path(target)
        self._force = force
        self._fd: int | None = None

    def begin(self) -> None:
        """Make an empty file, beside the target."""
        with told_of(self.target):
            self._check_target()
            self._fd = _lock(self.path)
            os.ftruncate(self._fd, 0)

    def sync(self) -> None:
        """Sync all writes so far to disk."""
        with told_of(self.target):
            sync_file(self._opened)

    def finish(self, time_us: int) -> int:
        """Write the time and the checksum, and rename the file to its target; return its length."""
        with told_of(self.target):
            fd = self._opened
            length = os.fstat(fd).st_size
            length += os.pwrite(fd, time_block(time_us), length)
            digest = hashlib.sha256()
            for chunk in _chunks(fd, length):
                digest.update(chunk)
            os.pwrite(fd, digest.digest(), length)
            sync_file(fd)
            self._check_target()
            self.path.replace(self.target)
            sync_directory(self.target.parent)
            self._close()
            return length + DIGEST_BYTES

    def discard(self) -> None:
        """Remove the file; does nothing to a backup that is finished."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._close()

    @property
    def _opened(self) -> int:
        assert self._fd is not None, "it was not begun, or is finished"
        return self._fd

    def _close(self) -> None:
        os.close(self._opened)
        self._fd = None

    def _check_target(self) -> None:
        if not os.path.lexists(self.target):
            return
        if not self.target.is_file():
            raise StorageError(f"{self.target} is not a file: choose another name for the backup")
        if not self._force:
            raise StorageError(
                f"{self.target} already exists: choose another name, or replace it (--force)"
            )


def draft_path(target: Path) -> Path:
    """Return the path of a backup while it is being written."""
    return target.with_name(target.name + _PARTIAL_SUFFIX)


def remove_leftover(target: Path) -> None:
    """Remove the draft that an ended process left behind, unless a process is still writing it."""
    with contextlib.suppress(OSError, StorageError):
        draft = draft_path(target)
        if draft.exists():
            fd = _lock(draft)
            draft.unlink()
            os.close(fd)


def _lock(path: Path) -> int:
    """Open and lock a draft; create it if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:  # may be a database that this process has open
            raise StorageError(f"{path} has another name (a hard link): remove it, then try again")
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), path.stat()):
                    return fd
        except BlockingIOError:
            os.close(fd)
            raise StorageError(
                f"another backup is being written to {path.with_suffix('')}: wait for it, or "
                "choose another name"
            ) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed or renamed before we had the lock


def backup_digest(path: Path, on_progress: OnProgress, into: int | None = None) -> int | None:
    """Read a backup; raise if any byte differs from what was written.

    The pages of the journal are written to the file descriptor `into` on the way. Return the time
    of the backup in microseconds since the epoch; None if it was made by an older release.
    """
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = size - DIGEST_BYTES
        if length <= 0 or size % _BLOCK_BYTES != DIGEST_BYTES:
            raise DamagedJournal(
                f"{path} does not end with a checksum: it was cut short, or is not a backup; use a "
                "file that `leasehold backup` has made"
            )
        pages_bytes = length - length % PAGE_BYTES
        digest = hashlib.sha256()
        done = 0
        for chunk in _chunks(file.fileno(), length):
            digest.update(chunk)
            if into is not None:
                write_all(into, chunk[: max(0, pages_bytes - done)])
            done += len(chunk)
            on_progress(done, length)
        if os.pread(file.fileno(), DIGEST_BYTES, length) != digest.digest():
            raise DamagedJournal(
                f"{path} is damaged: its content does not match its checksum. The file was not "
                "changed: use another backup"
            )
        return _time_of(os.pread(file.fileno(), length - pages_bytes, pages_bytes))


def _chunks(fd: int, length: int) -> Iterator[bytes]:
    at = 0
    while at < length and (chunk := os.pread(fd, min(CHUNK_BYTES, length - at), at)):
        at += len(chunk)
        yield chunk


@contextlib.contextmanager
def told_of(target: Path) -> Iterator[None]:
    """Convert `OSError` and `ValueError` to our errors, with the name of the target file."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise StorageError(f"{target} cannot be written: {_why(error, target)}") from error


def _why(error: OSError | ValueError, target: Path) -> str:
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    why = os.strerror(error.errno)
    if error.errno == errno.ENOENT:
        return f"there is no directory {target.parent}; make it first"
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return f"{why}; make room, or choose another place"
    return f"{why}; choose another place"


class UnlinkedFile:
    """An empty file in a directory with the given free space.

    For None it is in the directory for temporary files. It exists from `begin` on; the caller of
    `begin` has to close it, even if that was interrupted.
    """

    def __init__(self, directory: Path | None, needed_bytes: int) -> None:
        self.path = Path(tempfile.gettempdir()) if directory is None else directory
        self._needed_bytes = needed_bytes
        self._fd: int | None = None
        self._is_named = False

    def begin(self) -> None:
        """Create the file."""
        place = self.path
        try:
            _check_room(place, self._needed_bytes)
            self._fd, name = tempfile.mkstemp(_PARTIAL_SUFFIX, _SNAPSHOT_PREFIX, place)
        except OSError as error:
            raise StorageError(f"no copy can be made in {place}: {error.strerror}") from error
        self.path = Path(name)
        self._is_named = True

    def lose_name(self) -> None:
        """Remove the file's name; those that have it open can continue."""
        if self._is_named:
            self._is_named = False
            self.path.unlink()

    def sync(self) -> None:
        """Sync all writes so far to disk."""
        sync_file(self._opened)

    def append(self, content: bytes) -> None:
        """Append bytes, after SQLite has written its pages."""
        os.pwrite(self._opened, content, self.size_bytes)

    @property
    def size_bytes(self) -> int:
        """The length of the file."""
        return os.fstat(self._opened).st_size

    def read(self, at: int, count: int) -> bytes:
        """Return this many bytes, or as many as there are."""
        return os.pread(self._opened, count, at)

    @property
    def _opened(self) -> int:
        assert self._fd is not None, "it was not begun, or is gone"
        return self._fd

    def close(self) -> None:
        """Close and remove the file."""
        with contextlib.suppress(OSError):
            self.lose_name()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _check_room(place: Path, needed_bytes: int) -> None:
    disk = os.statvfs(place)
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < needed_bytes + SPARE_BYTES:
        raise StorageError(
            f"{place} has not enough space for a copy: {needed_bytes:,} bytes are needed and "
            f"{SPARE_BYTES:,} must stay free, but only {free_bytes:,} are free. Make room there, "
            "or use `leasehold backup` with a path on another disk"
        )


def remove_leftovers(directory: Path) -> None:
    """Remove the files of processes that were killed just before `lose_name`.

    Call it just after opening the directory: later on, there are names that are still needed.
    """
    for leftover in directory.glob(f"{_SNAPSHOT_PREFIX}*{_PARTIAL_SUFFIX}"):
        with contextlib.suppress(OSError):
            leftover.unlink()
