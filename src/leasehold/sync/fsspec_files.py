"""`leased://HOST:PORT/PATH`: single-writer files for all programs that open files with fsspec.

    pandas.read_csv("leased://127.0.0.1:2379/tables/prices.csv")

File systems with the same address share one client in a process. A forked child connects again.
Errors are the builtin ones where Python has them: `FileNotFoundError`, `FileExistsError` and so on.
`FileAlreadyOpen`, `RecoveryInProgress` and `LeaseExpired` have no builtin equivalent.
"""

import errno
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractFileSystem

from leasehold.errors import DirectoryNotEmpty
from leasehold.files.namespace import FileInfo
from leasehold.sync.fsspec_writers import (
    BufferedFileWriter,
    CompressedFileWriter,
    TextFileWriter,
)
from leasehold.sync.generated.client import Client
from leasehold.sync.generated.connecting import connect
from leasehold.sync.generated.reader import FileReader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PROTOCOL: Final = "leased"

READ_BYTES: Final = 256 * 1024
"""Bytes that a reader keeps for small reads."""

COPY_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a copy reads together."""

_clients: dict[tuple[int, str], Client] = {}
"""The clients by process and address. The thread of the loop closes them at interpreter exit.

Those of a parent process stay here: they must not be collected in a child.
"""


def _client_of(endpoint: str) -> Client:
    key = (os.getpid(), endpoint)
    if (client := _clients.get(key)) is not None:
        return client
    made = connect(endpoint or None)
    if (client := _clients.setdefault(key, made)) is not made:
        made.close()  # another thread came first
    return client


class LeasedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Single-writer files as a file system of fsspec.

    `endpoint` is the address of a server, or several of one cluster; by default the value of
    `LEASEHOLD_ENDPOINTS`. A blocking `client` may be given instead, which its owner closes.
    """

    protocol = PROTOCOL
    cachable = False
    """fsspec would keep an instance for each thread, and each would have a client of its own."""

    def __init__(
        self, endpoint: str | None = None, *, client: Client | None = None, **options: Any
    ) -> None:
        """`options` are those of all file systems of fsspec."""
        super().__init__(**options)
        if client is not None and endpoint is not None:
            raise ValueError("endpoint and client were both given: give one of them")
        self._endpoint = endpoint or ""
        self._given = client

    @property
    def client(self) -> Client:
        """The client, which is connected at the first use in each process."""
        return _client_of(self._endpoint) if self._given is None else self._given

    # URLs.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return the path in a URL; other paths are those of files already."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        if path.startswith(f"{PROTOCOL}://"):
            path = path.removeprefix(f"{PROTOCOL}://").partition("/")[2]
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        """Return the endpoint of a URL."""
        host = path.removeprefix(f"{PROTOCOL}://").partition("/")[0]
        return {"endpoint": host} if path.startswith(f"{PROTOCOL}://") and host else {}

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        return f"{PROTOCOL}://{self._endpoint}/{self._strip_protocol(name)}"

    # Opening.

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **options: Any,
    ) -> Any:
        """Open a file. Without `b` in the mode it is one of text."""
        binary = mode if "b" in mode else f"{mode.replace('t', '')}b"
        compression = get_compression(path, compression)
        if "r" in mode:
            file = super().open(path, binary, block_size, cache_options, compression, **options)
        else:
            file = super().open(path, binary, block_size, cache_options, **options)
            if compression is not None:
                file = CompressedFileWriter(file, compr[compression](file, mode=binary[0]))
        if "b" in mode:
            return file
        if isinstance(file, BufferedFileWriter | CompressedFileWriter):
            return TextFileWriter(file, encoding, errors, newline, write_through=True)
        return io.TextIOWrapper(file, encoding, errors, newline)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **_options: Any,
    ) -> "BufferedFileReader | BufferedFileWriter":
        if not autocommit:
            raise NotImplementedError("files are visible when they are flushed: no transactions")
        match mode:
            case "rb":
                return BufferedFileReader(self.client.files.open(path))
            case "wb" | "ab" | "xb":
                return BufferedFileWriter(self.client.files.open(path, mode))
        raise ValueError(f"mode must be 'rb', 'wb', 'ab' or 'xb', got {mode!r}")

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: Any
    ) -> bytes:
        """Return the bytes of a file, or a range of them; negative numbers count from its end."""
        with self.client.files.open(self._strip_protocol(path)) as file:
            first, last, _ = slice(start, end).indices(file.size)
            file.seek(first)
            return file.read(max(0, last - first))

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """Copy a file, or create a directory for the copy of one."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        files = self.client.files
        if files.stat(source).is_directory:
            files.make_directory(target)
            return
        with files.open(source) as reader, files.open(target, "wb") as writer:
            while data := reader.read(COPY_BYTES):
                writer.write(data)

    # The tree.

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """Return size, type, times and state of a path. Raises `FileNotFoundError`."""
        name = self._strip_protocol(path)
        return _as_dict(self.client.files.stat(name))

    def exists(self, path: str, **_options: Any) -> bool:
        """Return whether there is a file or directory with this path; invalid ones do not exist."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            self.info(path)
            return True
        return False

    def isdir(self, path: str) -> bool:
        """Return whether there is a directory with this path; invalid ones do not exist."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            return bool(self.info(path)["type"] == "directory")
        return False

    def ls(self, path: str, detail: bool = True, **_options: Any) -> Sequence[Any]:
        """List a directory; a file is listed as itself. Raises `FileNotFoundError`."""
        listed = self.client.files.list(self._strip_protocol(path))
        return [_as_dict(each) if detail else each.path for each in listed]

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Create a directory. Raises `FileExistsError`."""
        name = self._strip_protocol(path)
        parent = self._parent(name)
        if not create_parents and parent:
            self.info(parent)
        self.makedirs(name)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory, with those above it. Raises `FileExistsError` unless `exist_ok`."""
        name = self._strip_protocol(path)
        if not exist_ok and self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.client.files.make_directory(name)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        *,
        overwrite: bool = False,
        **_options: Any,
    ) -> None:
        """Rename a file or a directory with all below it. Raises `FileExistsError`.

        With `overwrite` a file, or an empty directory, is replaced.
        """
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self.client.files.rename(source, target, overwrite=overwrite)

    def rm_file(self, path: str) -> None:
        """Delete a file."""
        self._delete(path)

    def _rm(self, path: str) -> None:
        self._delete(path)

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""
        if self.info(path)["type"] != "directory":
            name = self._strip_protocol(path)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        self._delete(path)

    def rm(
        self,
        path: str | Iterable[str],
        recursive: bool = False,
        maxdepth: int | None = None,
    ) -> None:
        """Delete files, and with `recursive` directories with all below them."""
        is_whole = recursive and maxdepth is None
        names = self.expand_path(path, recursive=recursive and not is_whole, maxdepth=maxdepth)
        for name in reversed(names):  # entries below a directory first
            self._delete(name, recursive=is_whole)

    def _delete(self, path: str, *, recursive: bool = False) -> None:
        name = self._strip_protocol(path)
        try:
            self.client.files.delete(name, recursive=recursive)
        except DirectoryNotEmpty as error:
            why = os.strerror(errno.ENOTEMPTY)
            raise OSError(errno.ENOTEMPTY, why, name) from error

    def created(self, path: str) -> datetime:
        """Return when a file or directory was created."""
        time: datetime = self.info(path)["created"]
        return time

    def modified(self, path: str) -> datetime:
        """Return when a file was last closed, or a block of it was completed."""
        time: datetime = self.info(path)["mtime"]
        return time


def _as_dict(info: FileInfo) -> dict[str, Any]:
    return {
        "name": info.path,
        "size": info.size_bytes,
        "type": "directory" if info.is_directory else "file",
        "created": _time(info.created_ms),
        "mtime": _time(info.modified_ms),
        "state": info.state.name.lower(),
        "holder": info.holder,
    }


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


class _RawReader(io.RawIOBase):
    """A reader as Python's buffers need it."""

    def __init__(self, file: FileReader) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._file.read()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


class BufferedFileReader(io.BufferedReader):
    """A file that is open for reading."""

    def __init__(self, file: FileReader) -> None:
        """It closes the file."""
        super().__init__(_RawReader(file), READ_BYTES)
        self.path = file.path
        self.size = file.size
        """The length of the file, in bytes."""
