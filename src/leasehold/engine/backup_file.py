"""A backup as a file: a whole journal, the time at which it was made, and a SHA-256 of all that.

The checksums within a journal are those of its rows; they say nothing about the bytes in between,
and nothing about a file that was cut short. The one at the end does, so every byte that is not as
it was written is found. It is where etcd has that of its snapshots, too.

The time is in a block of its own (`time_block`). Backups of older releases do not have that block.

A backup is written under another name, locked, and gets its own when all of it is on disk. What a
process that was killed has left under that other name is written over by the next one.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from leasehold.engine.data_dir import FILE_MODE, sync_directory, write_all
from leasehold.engine.database_file import open_to_read
from leasehold.engine.journal_format import PAGE_BYTES
from leasehold.errors import DamagedJournal, StorageError

DIGEST_BYTES: Final = 32
CHUNK_BYTES: Final = 1024 * 1024
_DRAFT_SUFFIX: Final = ".leasehold-partial"
_BLOCK_BYTES: Final = 512
_MAGIC: Final = b"leasehold backup time\0\0\0"
_time_block: Final = struct.Struct(f"<{len(_MAGIC)}sq{_BLOCK_BYTES - len(_MAGIC) - 8}x")

OnProgress = Callable[[int, int], None]
"""Told how many bytes are done, and of how many."""


def time_block(time_us: int) -> bytes:
    """Write the block that follows the pages of a backup: when it was made, by the wall clock."""
    return _time_block.pack(_MAGIC, time_us)


def _time_of(block: bytes) -> int | None:
    if len(block) != _BLOCK_BYTES:
        return None
    magic, time_us = _time_block.unpack(block)
    return int(time_us) if magic == _MAGIC else None


class Draft:
    """A backup that is being written."""

    def __init__(self, target: Path, *, force: bool = False) -> None:
        """Do nothing yet: `begin` comes next, and `discard` in any case last."""
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
        """Put on disk what has been written so far."""
        with told_of(self.target):
            os.fsync(self._opened)

    def finish(self, time_us: int) -> int:
        """Write the time and the checksum, and give the file its name; return its length."""
        with told_of(self.target):
            fd = self._opened
            length = os.fstat(fd).st_size
            length += os.pwrite(fd, time_block(time_us), length)
            digest = hashlib.sha256()
            for chunk in _chunks(fd, length):
                digest.update(chunk)
            os.pwrite(fd, digest.digest(), length)
            os.fsync(fd)
            self._check_target()
            self.path.replace(self.target)
            sync_directory(self.target.parent)
            self._close()
            return length + DIGEST_BYTES

    def discard(self) -> None:
        """Leave nothing; does nothing to a backup that is finished."""
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
                f"{self.target} is there already: choose another name, or say that it may be "
                "replaced (--force)"
            )


def draft_path(target: Path) -> Path:
    """Say what a backup is called while it is written."""
    return target.with_name(target.name + _DRAFT_SUFFIX)


def remove_leftover(target: Path) -> None:
    """Remove what a process that has ended left of a backup; nobody's who still writes it."""
    with contextlib.suppress(OSError, StorageError):
        draft = draft_path(target)
        if draft.exists():
            fd = _lock(draft)
            draft.unlink()
            os.close(fd)


def _lock(path: Path) -> int:
    """Open and lock a draft, which is created if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:  # perhaps of a database that this process has open
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
        os.close(fd)  # it was removed, or got its name, before it was ours


def backup_digest(path: Path, on_progress: OnProgress, into: int | None = None) -> int | None:
    """Read a backup, and refuse it if one byte is not as it was written.

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
                f"{path} is damaged: its checksum is not that of its content. It was left as it "
                "is: use another backup"
            )
        return _time_of(os.pread(file.fileno(), length - pages_bytes, pages_bytes))


def _chunks(fd: int, length: int) -> Iterator[bytes]:
    at = 0
    while at < length and (chunk := os.pread(fd, min(CHUNK_BYTES, length - at), at)):
        at += len(chunk)
        yield chunk


@contextlib.contextmanager
def told_of(target: Path) -> Iterator[None]:
    """Tell errors of the system as ours, with the name of the file that was to be written."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: there is a zero byte in the name
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
