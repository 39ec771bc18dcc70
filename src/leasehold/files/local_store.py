"""A replica store in a local directory, or in one of a mounted network file system.

Object `3f/3f2c-0-5` is the file of that path below the directory. Symbolic links below it are not
followed. The directory `3f` is created by the first write; the store's own is created together with
the object that names its owner, and never again.

A write is durable when it returns: the data is synced, then the directory that has the name. A
directory is synced into its parent before it is used: once by each process, because the process
that created it may not have done so yet. That of the store is synced before its owner is written.

Each change reads the status of the owner's object, through the same descriptor of the store's
directory as the change itself. So a disk that is unmounted or exchanged at any time is noticed.
"""

import builtins
import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from leasehold.files.threaded_store import (
    CLOCK_NAME,
    MAX_OWNER_BYTES,
    OWNER,
    StoredObject,
    ThreadedStore,
    check_owner,
    is_listed,
)
from leasehold.journal.data_dir import (
    DIRECTORY_MODE,
    FILE_MODE,
    FULL_SYNC,
    make_directory,
    sync_file,
    write_all,
)

TEMPORARY_PREFIX: Final = ".tmp-"
"""Names of files that are not complete yet."""

TEMPORARY_KEEP_S: Final = 86_400.0
"""The age at which a temporary file is removed: a process that ended has left it."""

MAX_READY_DIRECTORIES: Final = 4_096
"""Directories that are remembered as synced; there are 256 for names that start at random."""

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OBJECT_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without O_NONBLOCK, opening a named pipe would wait for the other end."""


class LocalStore(ThreadedStore):
    """A store in a local directory."""

    appends: bool = True

    def __init__(self, store_id: str, url: str, root: Path) -> None:
        super().__init__(store_id, url)
        self._root = root
        self._making = threading.Lock()
        self._ready: set[str] = set()
        """Directories whose entry in the root is durable."""
        self._seen_owner: tuple[int, ...] = ()
        """The file that has named the right owner: device, inode, modification time."""

    def _write_at(self, directory: str, leaf: str, offset: int, data: bytes, *, sync: bool) -> None:
        if offset:
            self._extend(directory, leaf, offset, data, sync=sync)
        else:
            self._create(directory, leaf, data, sync=sync)

    def _create(self, directory: str, leaf: str, data: bytes, *, sync: bool) -> None:
        if is_owner := f"{directory}/{leaf}" == OWNER:
            self._make_root()
        with self._directory_to_write(directory, is_checked=not is_owner) as parent:
            _write_new(parent, leaf, data, _sync_data if sync else None)
            try:
                # Even without `sync`: a later call with it syncs the data only.
                sync_file(parent)
            except BaseException:
                _remove(parent, leaf)
                raise

    def _extend(self, directory: str, leaf: str, offset: int, data: bytes, *, sync: bool) -> None:
        with (
            self._owned_root() as root,
            _directory_in(root, directory) as parent,
            _object(parent, leaf, os.O_WRONLY) as fd,
        ):
            size_bytes = os.fstat(fd).st_size
            if size_bytes < offset:
                raise OSError(
                    errno.EINVAL,
                    f"cannot write at offset {offset}: the object has {size_bytes} bytes",
                    f"{directory}/{leaf}",
                )
            os.lseek(fd, offset, os.SEEK_SET)
            write_all(fd, data)
            if sync:
                _sync_data(fd)

    def _replace(self, directory: str, leaf: str, data: bytes) -> None:
        draft = f"{TEMPORARY_PREFIX}{secrets.token_hex(16)}"
        if is_owner := f"{directory}/{leaf}" == OWNER:
            self._make_root()
        with self._directory_to_write(directory, is_checked=not is_owner) as parent:
            _write_new(parent, draft, data, sync_file)
            try:
                os.replace(draft, leaf, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                _remove(parent, draft)
                raise
            sync_file(parent)

    def _read(self, directory: str, leaf: str, start: int, length: int) -> bytes:
        pieces = []
        with self._directory(directory) as parent, _object(parent, leaf, os.O_RDONLY) as fd:
            rest = min(length, os.fstat(fd).st_size - start)
            while rest > 0 and (piece := os.pread(fd, rest, start)):
                pieces.append(piece)
                start += len(piece)
                rest -= len(piece)
        return b"".join(pieces)

    def _size(self, directory: str, leaf: str) -> int | None:
        try:
            with self._directory(directory) as parent, _object(parent, leaf, os.O_RDONLY) as fd:
                return os.fstat(fd).st_size
        except FileNotFoundError:
            return None

    def _list_directories(self) -> list[str]:
        with os.scandir(self._root) as entries:
            return [each.name for each in entries if each.is_dir(follow_symlinks=False)]

    def _list_objects(
        self, directory: str, after: str, limit: int, now_s: float
    ) -> builtins.list[StoredObject]:
        objects: dict[str, os.DirEntry[str]] = {}
        found: builtins.list[StoredObject] = []
        with self._directory(directory) as parent, os.scandir(parent) as entries:
            for each in entries:
                name = f"{directory}/{each.name}"
                if each.name.startswith(TEMPORARY_PREFIX):
                    _remove_if_old(parent, each, now_s)
                elif is_listed(name, after) and each.is_file(follow_symlinks=False):
                    objects[name] = each
            for name in sorted(objects):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    status = objects[name].stat(follow_symlinks=False)
                    age_s = max(0.0, now_s - status.st_mtime)
                    found.append(StoredObject(name, status.st_size, age_s))
                if len(found) == limit:
                    break
        return found

    def _delete(self, directory: str, leaf: str) -> None:
        with self._owned_root() as root, _directory_in(root, directory) as parent:
            os.unlink(leaf, dir_fd=parent)

    def _probe_clock(self) -> float:
        with _opened(self._root, _DIRECTORY_FLAGS) as root:
            flags = os.O_WRONLY | os.O_CREAT | _OBJECT_FLAGS
            with _opened(CLOCK_NAME, flags, directory=root) as fd:
                os.utime(fd)
                return os.fstat(fd).st_mtime

    # The owner.

    def _check_owner(self) -> None:
        if self.keyspace:
            with self._owned_root():
                pass

    @contextlib.contextmanager
    def _owned_root(self, *, is_checked: bool = True) -> Iterator[int]:
        """Open the root, after a look at the owner."""
        with contextlib.ExitStack() as stack:
            try:
                root = stack.enter_context(_opened(self._root, _DIRECTORY_FLAGS))
            except FileNotFoundError as error:
                if self.keyspace:  # another class than that of a missing object
                    text = "the directory does not exist: is its disk mounted?"
                    raise OSError(errno.ENXIO, text) from error
                raise
            if is_checked and self.keyspace:
                self._check_owner_in(root)
            yield root

    def _check_owner_in(self, root: int) -> None:
        try:
            if _identity(os.stat(OWNER, dir_fd=root, follow_symlinks=False)) == self._seen_owner:
                return
            with _object(root, OWNER, os.O_RDONLY) as fd:
                seen = _identity(os.fstat(fd))
                owner = os.read(fd, MAX_OWNER_BYTES).decode(errors="replace")
        except FileNotFoundError:
            owner, seen = "", ()
        check_owner(self.url, owner, self.keyspace)
        self._ready.clear()  # it may be another disk than before
        self._seen_owner = seen

    def _make_root(self) -> None:
        try:
            make_directory(self._root)
        except FileNotFoundError as error:  # such as below /proc
            # Another class than that of a missing object: the store cannot be used.
            text = f"the directory cannot be created ({error.strerror})"
            raise OSError(errno.ENXIO, text) from error

    # Directories.

    @contextlib.contextmanager
    def _directory(self, directory: str) -> Iterator[int]:
        with (
            _opened(self._root, _DIRECTORY_FLAGS) as root,
            _directory_in(root, directory) as fd,
        ):
            yield fd

    @contextlib.contextmanager
    def _directory_to_write(self, directory: str, *, is_checked: bool = True) -> Iterator[int]:
        """Open a directory; make it first if it is missing."""
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(self._owned_root(is_checked=is_checked))
            self._make_ready(root, directory)
            try:
                fd = stack.enter_context(_directory_in(root, directory))
            except FileNotFoundError:  # it was removed since it was made
                self._ready.clear()
                self._make_ready(root, directory)
                fd = stack.enter_context(_directory_in(root, directory))
            yield fd

    def _make_ready(self, root: int, directory: str) -> None:
        if directory in self._ready:
            return
        with self._making:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, DIRECTORY_MODE, dir_fd=root)
            sync_file(root)
            if len(self._ready) >= MAX_READY_DIRECTORIES:
                self._ready.clear()
            self._ready.add(directory)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _directory_in(root: int, directory: str) -> contextlib.AbstractContextManager[int]:
    return _opened(directory, _DIRECTORY_FLAGS | os.O_NOFOLLOW, directory=root)


@contextlib.contextmanager
def _opened(path: str | Path, flags: int, *, directory: int | None = None) -> Iterator[int]:
    fd = os.open(path, flags, FILE_MODE, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _object(directory: int, leaf: str, flags: int) -> Iterator[int]:
    with _opened(leaf, flags | _OBJECT_FLAGS, directory=directory) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", leaf)
        yield fd


def _write_new(directory: int, leaf: str, data: bytes, sync: Callable[[int], None] | None) -> None:
    """Write a file that must not exist; remove it again on failure."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OBJECT_FLAGS
    with _opened(leaf, flags, directory=directory) as fd:
        try:
            write_all(fd, data)
            if sync is not None:
                sync(fd)
        except BaseException:
            _remove(directory, leaf)
            raise


def _sync_data(fd: int) -> None:
    """Sync the content of a file, without times, where the platform can."""
    if FULL_SYNC is None and hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        sync_file(fd)


def _remove(directory: int, leaf: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(leaf, dir_fd=directory)


def _remove_if_old(directory: int, entry: os.DirEntry[str], now_s: float) -> None:
    with contextlib.suppress(OSError):
        if now_s - entry.stat(follow_symlinks=False).st_mtime > TEMPORARY_KEEP_S:
            os.unlink(entry.name, dir_fd=directory)
