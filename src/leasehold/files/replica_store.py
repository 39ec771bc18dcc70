"""Replica stores: they keep the bytes of files, as objects with names.

A store is a local directory, or any file system of fsspec, given by a path or URL. Readers and
recovery rely on nothing that a store cannot do: objects that were written by one process are never
modified by another, and names are not reused.
"""

import builtins
import re
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from leasehold.files.fsspec_store import FsspecStore, check_protocol
from leasehold.files.local_store import LocalStore
from leasehold.files.threaded_store import STORE_THREADS, StoredObject

__all__ = [
    "STORE_THREADS",
    "FsspecStore",
    "LocalStore",
    "ReplicaStore",
    "StoredObject",
    "open_store",
]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LOCAL: Final = frozenset({"file", "local"})


class ReplicaStore(Protocol):
    """A store of objects. A simulation has its own.

    An object name is a directory and a name of the characters 0-9, a-z, '-' and '.', such as
    `3f/3f2c-0-5`; others raise ValueError. A call that fails raises OSError, and Closed after
    `close`. Timeouts are those of the caller. A call that was cancelled may still be performed.
    """

    id: str
    url: str
    keyspace: str
    """The keyspace that it must belong to; empty if that is not checked.

    If its object `00/owner` does not name this one, calls that change objects or do not find one
    raise OSError, except for creating or putting that object.
    """
    appends: bool
    """Whether objects can be appended to; otherwise `append` raises UnsupportedOperation."""

    async def append(self, name: str, offset: int, data: bytes, *, sync: bool = True) -> None:
        """Write data at an offset of an object; offset 0 creates it.

        Raises FileExistsError if an object to create exists, and OSError, with nothing written, if
        the object is shorter than the offset. With `sync`, all of the object is durable when the
        call returns.
        """

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole object, in place of the one that is there; atomic, durable on return."""

    async def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes from `start`, fewer at the end. Raises FileNotFoundError."""
        ...

    async def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""

    async def list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        """Return the objects with names greater than `after`, in order, `limit` at most."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object, if it exists."""

    async def close(self) -> None:
        """Refuse further calls, and those that have not begun."""


def normal_url(url: str) -> str:
    """Return the one form of a URL or local path that names a store. Raises ValueError.

    Two forms of one directory would be two stores, each without the objects of the other one.
    """
    if not isinstance(url, str):
        raise TypeError(f"the URL of a store must be a str, not {type(url).__name__}")
    if "," in url:
        raise ValueError(f"store {url!r} must not contain a comma: add one store at a time")
    match = _URL.fullmatch(url)
    if match is not None and match[1].lower() not in _LOCAL:
        return url.rstrip("/") if match[2].strip("/") else url  # `open_store` refuses it
    path = str(_local_path(url, url if match is None else _path_of_file_url(url, match[2])))
    if ".." in path.split("/"):
        raise ValueError(f"store {url!r} must be a path without '..'")
    return "/" + path.lstrip("/")


def open_store(store_id: str, url: str) -> ReplicaStore:
    """Return the store of a URL or local path. Nothing is created or connected yet.

    Its directory is created together with `00/owner`. Raises ValueError if the URL cannot be used:
    it is empty, a relative path, or of a protocol that is unknown or whose package is missing.
    """
    match = _URL.fullmatch(url)
    if match is None:
        return LocalStore(store_id, url, _local_path(url, url))
    protocol, rest = match[1].lower(), match[2]
    if protocol in _LOCAL:
        return LocalStore(store_id, url, _local_path(url, _path_of_file_url(url, rest)))
    if not rest.strip("/"):
        raise ValueError(f"store {url!r} needs a path after {protocol}://")
    if "::" in url:
        raise ValueError(
            f"store {url!r} must be a plain URL, not a chain with '::': a cache would hide "
            "objects that other processes write"
        )
    if urlsplit(url).password is not None:
        raise ValueError(
            "the URL of a store must not contain a password, because all clients can read it: use "
            f"the settings of the file system for {protocol}://"
        )
    check_protocol(url, protocol)
    return FsspecStore(store_id, url)


def _local_path(url: str, path: str) -> Path:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(
            f"store {url!r} must be an absolute path, or a URL such as s3://bucket/path"
        )
    return Path(path)


def _path_of_file_url(url: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost"):
        raise ValueError(
            f"store {url!r} must be a file URL without a host, such as file:///srv/store, "
            f"got the host {host!r}"
        )
    return unquote(slash + path)
