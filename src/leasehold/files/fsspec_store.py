"""A replica store in any file system that fsspec has: S3, SFTP, HDFS and others, by URL.

Object `3f/3f2c-0-5` has that path below the path of the URL. Objects cannot be appended to. `put`
is atomic and durable as far as the file system makes it so: object stores do, and for others the
length and checksum that are recorded for an object tell whether it is complete.

The file system is imported and connected by the first call, in a thread. Implementations that use
an event loop may be shared by threads; of others, each thread has an instance. Listings are not
cached, because other processes write to the same store.

Settings such as credentials and endpoints are those of fsspec: its configuration directory, or
variables of the environment, such as `FSSPEC_S3_ENDPOINT_URL`.
"""

import builtins
import contextlib
import errno
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from leasehold.errors import Closed
from leasehold.files.threaded_store import (
    CLOCK_NAME,
    MAX_OWNER_BYTES,
    OWNER,
    StoredObject,
    ThreadedStore,
    check_owner,
    is_listed,
    split_name,
)

T = TypeVar("T")

OWNER_CHECK_S: Final = 60.0
"""How long the owner of a store is used before it is read again."""

MODIFIED_KEYS: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""Where file systems have the modification time; the last one is for those that only create."""


class FsspecStore(ThreadedStore):
    """A store in a file system of fsspec."""

    appends: bool = False

    def __init__(self, store_id: str, url: str) -> None:
        super().__init__(store_id, url)
        self._connecting = threading.Lock()
        self._shared: tuple[Any, str] | None = None
        self._own = threading.local()
        self._owner_read_at: float | None = None
        """When the owner was read, and was the right one."""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await super()._in_thread(partial(self._with_os_errors, work))

    def _with_os_errors(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (OSError, Closed):
            raise
        except Exception as error:
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error

    def _check_owner(self) -> None:
        at_s, now_s = self._owner_read_at, time.monotonic()
        if not self.keyspace or (at_s is not None and now_s < at_s + OWNER_CHECK_S):
            return
        owner = b""
        with contextlib.suppress(FileNotFoundError):
            owner = self._read(*split_name(OWNER), 0, MAX_OWNER_BYTES)
        check_owner(self.url, owner.decode(errors="replace"), self.keyspace)
        self._owner_read_at = now_s

    def _write_at(self, directory: str, leaf: str, offset: int, data: bytes, *, sync: bool) -> None:
        raise NotImplementedError  # `appends` is false

    def _replace(self, directory: str, leaf: str, data: bytes) -> None:
        if is_owner := f"{directory}/{leaf}" == OWNER:
            self._owner_read_at = None
        else:
            self._check_owner()
        fs, root = self._connected()
        path = f"{root}/{directory}/{leaf}"
        try:
            fs.pipe_file(path, data)
        except FileNotFoundError:
            try:
                # Without parents of the root: a missing bucket is an error, not to be created.
                for each in (*([root] if is_owner else []), f"{root}/{directory}"):
                    with contextlib.suppress(FileExistsError):
                        fs.mkdir(each, create_parents=False)
                fs.pipe_file(path, data)
            except FileNotFoundError as error:
                # Another class than that of a missing object: the store cannot be used.
                raise OSError(errno.ENXIO, f"{self.url} does not exist: {error}") from error

    def _read(self, directory: str, leaf: str, start: int, length: int) -> bytes:
        fs, root = self._connected()
        path = f"{root}/{directory}/{leaf}"
        if length:
            try:
                return bytes(fs.cat_file(path, start=start, end=start + length))
            except Exception as error:
                if not _refuses_range(error):
                    raise
                size_bytes = self._size(directory, leaf)
                if size_bytes is not None and start < size_bytes:
                    raise
        if self._size(directory, leaf) is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{directory}/{leaf}")
        return b""

    def _size(self, directory: str, leaf: str) -> int | None:
        fs, root = self._connected()
        try:
            info = fs.info(f"{root}/{directory}/{leaf}")
        except FileNotFoundError:
            return None
        return None if info["type"] == "directory" else int(info["size"])

    def _list_directories(self) -> list[str]:
        fs, root = self._connected()
        return [_last_part(each) for each in fs.ls(root, detail=True) if _is_directory(each)]

    def _list_objects(
        self, directory: str, after: str, limit: int, now_s: float
    ) -> builtins.list[StoredObject]:
        fs, root = self._connected()
        objects = {
            f"{directory}/{_last_part(each)}": each
            for each in fs.ls(f"{root}/{directory}", detail=True)
            if not _is_directory(each)
        }
        names = sorted(name for name in objects if is_listed(name, after))
        return [
            StoredObject(name, int(objects[name]["size"]), _age_s(fs, objects[name], now_s))
            for name in names[:limit]
        ]

    def _delete(self, directory: str, leaf: str) -> None:
        self._check_owner()
        fs, root = self._connected()
        fs.rm_file(f"{root}/{directory}/{leaf}")

    def _probe_clock(self) -> float:
        return self._with_os_errors(self._touch_clock)

    def _touch_clock(self) -> float:
        fs, root = self._connected()
        path = f"{root}/{CLOCK_NAME}"
        fs.pipe_file(path, b"")
        modified_s = _modified_s(fs, fs.info(path))
        if modified_s is None:
            raise OSError(errno.ENOTSUP, "the file system has no modification times")
        return modified_s

    def _connected(self) -> tuple[Any, str]:
        """Return the file system, without cached listings, and the path of the root."""
        connection = self._shared or getattr(self._own, "connection", None)
        if connection is None:
            with self._connecting:
                self._check_open()
                connection = self._shared or self._connect()
                if connection[0].async_impl:
                    self._shared = connection
                else:
                    self._own.connection = connection
        connection[0].invalidate_cache()
        return connection

    def _connect(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs  # noqa: PLC0415  an extra

        fs, root = url_to_fs(self.url, skip_instance_cache=True)
        # Not by an option: SFTP would pass it on to its connection, which refuses it.
        fs.dircache.use_listings_cache = False
        return fs, root.rstrip("/")

    def _disconnect(self) -> None:
        def drop() -> None:
            with self._connecting:
                self._shared = None
                self._own = threading.local()

        # In a thread: on an event loop, s3fs would close its session on the wrong one.
        with contextlib.suppress(RuntimeError):  # the interpreter is exiting
            self._workers.submit(drop)


def check_protocol(url: str, protocol: str) -> None:
    """Raise ValueError if fsspec, or its package for the protocol, is not installed."""
    try:
        from fsspec.registry import known_implementations, registry  # noqa: PLC0415  an extra
    except ImportError:
        raise ValueError(
            f"store {url!r} needs the package fsspec: pip install leasehold[files]"
        ) from None
    if protocol in registry:
        return
    known = known_implementations.get(protocol)
    if known is None:
        raise ValueError(
            f"store {url!r} has the unknown protocol {protocol!r}: use a path, or a URL of a "
            "file system that fsspec supports, such as s3://bucket/path"
        )
    package = re.split("[.:]", known["class"])[0]
    if find_spec(package) is None:
        raise ValueError(
            f"store {url!r} needs the package {package} for {protocol}://: "
            f"pip install leasehold[files] {package}"
        )


def _last_part(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _is_directory(entry: Mapping[str, Any]) -> bool:
    return bool(entry["type"] == "directory")


def _refuses_range(error: Exception) -> bool:
    """Return whether an error may mean that an object ends before the range that was asked for."""
    if isinstance(error, OSError) and error.errno == errno.EINVAL:
        return True
    codes = [getattr(error, name, None) for name in ("code", "status", "status_code")]
    return HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE in codes


def _age_s(fs: Any, entry: Mapping[str, Any], now_s: float) -> float:
    modified_s = _modified_s(fs, entry)
    return 0.0 if modified_s is None else max(0.0, now_s - modified_s)


def _modified_s(fs: Any, entry: Mapping[str, Any]) -> float | None:
    """Return the modification time in seconds since the epoch; None if it is unknown."""
    for key in MODIFIED_KEYS:
        seconds = _seconds(entry.get(key))
        if seconds is not None:
            return seconds
    try:
        return _seconds(fs.modified(entry["name"]))
    except (NotImplementedError, OSError):
        return None


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return float(value) if isinstance(value, int | float) else None
