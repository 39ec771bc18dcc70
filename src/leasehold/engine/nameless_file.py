"""A file that nobody finds: a copy on its way to somebody who keeps it elsewhere.

It has a name only until SQLite has opened it, so nothing is left of it when whoever uses it is
done, or gone, or killed.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from leasehold.errors import StorageError

SPARE_BYTES: Final = 64 * 1024 * 1024
"""What a copy leaves free on a disk that is needed for the journal as well."""

_PREFIX: Final = "snapshot-"
_SUFFIX: Final = ".leasehold-partial"


class NamelessFile:
    """An empty file in a directory that has room for so much.

    For None it is where temporary files go. It is there from `begin` on; whoever calls that, also
    if he does not learn how it went, has to close it.
    """

    def __init__(self, directory: Path | None, needed_bytes: int) -> None:
        self.path = Path(tempfile.gettempdir()) if directory is None else directory
        self._needed_bytes = needed_bytes
        self._fd: int | None = None
        self._is_named = False

    def begin(self) -> None:
        """Make the file."""
        place = self.path
        try:
            _check_room(place, self._needed_bytes)
            self._fd, name = tempfile.mkstemp(_SUFFIX, _PREFIX, place)
        except OSError as error:
            raise StorageError(f"no copy can be made in {place}: {error.strerror}") from error
        self.path = Path(name)
        self._is_named = True

    def lose_name(self) -> None:
        """Be found by nobody any more; whoever has opened it goes on."""
        if self._is_named:
            self._is_named = False
            self.path.unlink()

    def sync(self) -> None:
        """Put on disk what has been written so far."""
        os.fsync(self._opened)

    def append(self, content: bytes) -> None:
        """Add some bytes at the end, after SQLite has written its pages."""
        os.pwrite(self._opened, content, self.size_bytes)

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return os.fstat(self._opened).st_size

    def read(self, at: int, count: int) -> bytes:
        """Give so many bytes, or as many as there are."""
        return os.pread(self._opened, count, at)

    @property
    def _opened(self) -> int:
        assert self._fd is not None, "it was not begun, or is gone"
        return self._fd

    def close(self) -> None:
        """Be gone."""
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
            f"a copy of {needed_bytes:,} bytes has to be made in {place} first, where "
            f"{free_bytes:,} are free, and {SPARE_BYTES:,} must stay so: make room there, or use "
            "`leasehold backup` with a path on another disk"
        )


def remove_leftovers(directory: Path) -> None:
    """Remove what is left by a process that was killed in the moment before a name was lost.

    For whoever has just opened the directory: later on, there are names that are still needed.
    """
    for leftover in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            leftover.unlink()
