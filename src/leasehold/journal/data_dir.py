"""A data directory: durable once created, and used by one process at a time.

The lock is `flock` on a file of its own, `LOCK`, with the process id of its holder in it. It ends
with the process, however that ends, so a file that was left behind has no effect.
"""

import contextlib
import errno
import fcntl
import logging
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from leasehold.errors import DirectoryInUse, ForeignJournal

logger = logging.getLogger(__name__)

LOCK_NAME: Final = "LOCK"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
PID_DIGITS: Final = 20
"""A process id is padded to this width, so that it covers that of the last holder, however long."""

FILE_NAME: Final = "leasehold.db"
"""The journal. A directory that has one is ours."""

ADVICE: Final = "; check that the disk works, is writable and has free space, then start again"
FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""The command that syncs a file through the cache of the drive; only macOS has and needs it."""

_OF_ETCD: Final = ("snap", "wal")
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.ENODEV})
_NO_PLACE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EROFS})
"""Errors of a path at which no directory can be created, such as one below /proc."""
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM})


class DataDirectory:
    """A directory that is locked by this process until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _refuse_data_of_etcd(path)
        make_directory(path)
        _warn_if_open_to_others(path)
        self._lock: int | None = _lock(path)

    def write_whole(self, name: str, content: bytes) -> None:
        """Create a file that exists with all its content, or not at all, even after a power cut.

        It is written under another name, and renamed when all of it is on disk.
        """
        draft = self.path / f"{name}.new"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(fd, content)
            sync_file(fd)
        finally:
            os.close(fd)
        draft.replace(self.path / name)
        self.sync()

    def sync(self) -> None:
        """Sync the names of the files to disk."""
        sync_directory(self.path)

    def close(self) -> None:
        """Release the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _refuse_data_of_etcd(path: Path) -> None:
    """Refuse a directory with data of etcd, which its owner would miss here."""
    if os.path.lexists(path / FILE_NAME):
        return
    for each in (path, path / "member"):
        if all((each / name).is_dir() for name in _OF_ETCD):
            raise ForeignJournal(
                f"{path} contains data of etcd, which Leasehold cannot read: use another "
                "directory, and copy the keys from the running etcd with `etcdctl make-mirror`"
            )


def why_unusable(path: Path, error: OSError) -> str:
    """Describe why a data directory cannot be used, and what to do about it."""
    what = f"{path} cannot be used as data directory: "
    if path.is_file():
        return f"{what}it is a file: name a directory; `leasehold restore` makes one from a backup"
    if error.errno in _DENIED:
        name = error.filename or path
        return (
            f"{what}{_user(os.geteuid())} may not write {name}{_owned(path)}: "
            "change its owner (chown), or name another directory"
        )
    if error.errno in _NO_PLACE and not path.exists():
        return f"{what}it cannot be created ({error.strerror}): name a path on a writable disk"
    return f"{what}{error.strerror or error}{ADVICE}"


def _owned(path: Path) -> str:
    """Return the owner of the directory, or of the nearest existing one above it."""
    for each in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            return f" ({each} belongs to {_user(each.stat().st_uid)})"
    return ""


def _user(number: int) -> str:
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:  # for example in a container
        return f"the user {number}"


def make_directory(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(DIRECTORY_MODE, exist_ok=True)
        sync_directory(each.parent)
    if not missing:  # its creator may not have synced it; it need not be ours to sync
        with contextlib.suppress(PermissionError):
            sync_directory(path.absolute().parent)


def _warn_if_open_to_others(directory: Path) -> None:
    """Warn about a directory, or a database in it, that other users may use.

    The mode is not changed: it may have been chosen, and files in the directory are created for its
    owner only. Still, a directory that others may write is not safe: they can replace the database.
    """
    for path, mode in ((directory, DIRECTORY_MODE), (directory / FILE_NAME, FILE_MODE)):
        with contextlib.suppress(FileNotFoundError):
            found = stat.S_IMODE(path.stat().st_mode)
            if found & ~mode & 0o077:
                logger.warning(
                    "%s can be accessed by other users (its mode is %04o): run chmod %04o %s",
                    path,
                    found,
                    mode,
                    path,
                )


def _lock(directory: Path) -> int:
    fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(_in_use(directory, os.pread(fd, PID_DIGITS, 0))) from None
        write_all(fd, f"{os.getpid():<{PID_DIGITS}}\n".encode())
    except BaseException:
        os.close(fd)
        raise
    return fd


def _in_use(directory: Path, found: bytes) -> str:
    pid = found.strip().decode("ascii", "replace")
    if pid == str(os.getpid()):
        return f"{directory} is already open in this process: close it before opening it again"
    holder = f"process {pid}" if pid.isdigit() else "another process"
    return (
        f"{directory} is in use by {holder}: stop that process first, or choose another directory"
    )


def write_all(fd: int, content: bytes) -> None:
    """Write everything, with as many calls as that takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync_file(fd: int) -> None:
    """Sync the content of a file to disk, through the cache of the drive as well.

    On macOS `fsync` leaves it in that cache, where a power cut destroys it; `F_FULLFSYNC` does not.
    Some file systems there do not support it.
    """
    if FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, FULL_SYNC)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise  # a plain sync after a failed one might report a success
        else:
            return
    os.fsync(fd)


def sync_directory(path: Path) -> None:
    """Sync the names of the files in a directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)
