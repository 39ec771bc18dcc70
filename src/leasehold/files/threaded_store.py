"""The common part of replica stores: names, the owner, calls in threads, and the store's clock.

Every call of a store blocks, so it runs in one of the store's threads. Each store has threads of
its own: a store that hangs does not delay another one. The threads are daemons, so it does not keep
the process from exiting either.

A store is changed only while its object `00/owner` names the right keyspace. The directory of a
disk that is not mounted does not have that object, and fails as a disk does that is broken: also
for reads, which would otherwise report that its objects are lost.

Cancelling a call is safe. One that waits for a thread is not performed; one that a thread performs
is not interrupted, and its result is dropped.
"""

import asyncio
import builtins
import contextlib
import errno
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from leasehold.basics.fork_hooks import call_in_child
from leasehold.basics.workers import WorkerPool
from leasehold.errors import Closed, UnsupportedOperation

T = TypeVar("T")

STORE_THREADS: Final = 8
"""Calls that a store performs at the same time."""

MAX_WAITING_CALLS: Final = 1_000
"""Calls of a store that wait for a thread; further ones fail with EBUSY."""

CLOCK_CHECK_S: Final = 600.0
"""How long a reading of the store's clock is used, with the time that has passed here since."""

CLOCK_NAME: Final = ".clock"
"""The object whose modification time is the time of the store. It is not listed."""

OWNER: Final = "00/owner"
"""The object that names the keyspace to which a store belongs. It is not listed."""

MAX_OWNER_BYTES: Final = 64
"""Bytes of that object that are read."""

_PART: Final = r"(?!\.)(?:(?!\.\.)[0-9a-z.-])+"
_NAME: Final = re.compile(f"{_PART}/{_PART}")
_DIRECTORY: Final = re.compile(_PART)


class StoredObject(NamedTuple):
    """An object in a listing."""

    name: str
    size_bytes: int
    age_s: float
    """Time since the last modification, by the store's clock; never negative, 0 if unknown."""


def is_object_name(name: str) -> bool:
    """Return whether this is the name of an object: a directory and a name, such as `3f/3f2c-0-5`.

    Names with other characters, `..`, or a leading dot in a part are not.
    """
    return _NAME.fullmatch(name) is not None


def is_listed(name: str, after: str) -> bool:
    """Return whether a listing that begins after a name has an object."""
    return name > after and name != OWNER and is_object_name(name)


def split_name(name: str) -> tuple[str, str]:
    """Return the directory of an object, and its name there. Raises ValueError for a bad name."""
    if not is_object_name(name):
        raise ValueError(
            "object name must be a directory and a name of the characters 0-9, a-z, '-' and '.', "
            f"such as '3f/3f2c-0-5', got {name!r}"
        )
    directory, _, leaf = name.partition("/")
    return directory, leaf


def check_owner(url: str, owner: str, keyspace: str) -> None:
    """Raise OSError unless a store, whose owner is empty if it has none, belongs to a keyspace."""
    if owner == keyspace:
        return
    claim = f"`leasehold files stores --claim {url}`"
    if not owner:
        raise OSError(
            errno.ENXIO,
            f"it belongs to no keyspace, because it has no object {OWNER}: mount its disk if it is "
            f"not mounted; if this is a new store, run {claim}",
        )
    owning, _, store = owner.rpartition("-")
    if owning and owning == keyspace.rpartition("-")[0]:
        raise OSError(
            errno.ENXIO,
            f"it belongs to store {store} of this keyspace: use another directory; if that store "
            f"has been removed, run {claim}",
        )
    raise OSError(
        errno.ENXIO,
        f"it belongs to another keyspace ({owning or owner}): use another directory; if that "
        f"keyspace no longer uses it, run {claim}, after which its data will be deleted",
    )


def directories_after(directories: Iterable[str], after: str) -> list[str]:
    """Return the directories that can have names greater than `after`, in order of these names.

    The order is that of the names with the slash, which comes after '-' and '.'. Directories that
    are not of the store, such as `lost+found`, are left out.
    """
    prefixes = sorted(f"{each}/" for each in directories if _DIRECTORY.fullmatch(each))
    return [each[:-1] for each in prefixes if each >= after or after.startswith(each)]


class StoreClock:
    """The present time of a store, by its own clock.

    Clocks of machines differ, and an object that seems older than it is might be deleted too early.
    So the modification times of objects are compared with that of a probe. The clock of this
    machine is used only if the store cannot be probed, such as one that is read-only or full.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: tuple[float, float] | None = None

    def now_s(self, probe: Callable[[], float]) -> float:
        """Return seconds since the epoch; `probe` modifies an object and returns the time of it."""
        with self._lock:
            if self._reading is None or time.monotonic() - self._reading[1] > CLOCK_CHECK_S:
                try:
                    # Read afterwards, so that the result is never ahead of the store.
                    self._reading = probe(), time.monotonic()
                except OSError:
                    if self._reading is None:
                        return time.time()
            probed_s, at_s = self._reading
            return probed_s + time.monotonic() - at_s


class _Call(Generic[T]):
    """A call on its way to a thread and back."""

    __slots__ = ("_done", "_loop", "_work")

    def __init__(self, work: Callable[[], T], done: "asyncio.Future[T]") -> None:
        self._work = work
        self._done = done
        self._loop = done.get_loop()

    def perform(self) -> None:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001  the caller that waits for it gets it
            self.fail(error)
        else:
            self._post(self._done.set_result, result)

    def fail(self, error: BaseException) -> None:
        self._post(self._done.set_exception, error)

    def _post(self, complete: Callable[[Any], None], outcome: object) -> None:
        def complete_unless_cancelled() -> None:
            if not self._done.done():
                complete(outcome)

        with contextlib.suppress(RuntimeError):  # the event loop was closed, and nothing waits
            self._loop.call_soon_threadsafe(complete_unless_cancelled)


class ThreadedStore(ABC):
    """A store whose calls run in threads. Subclasses have the blocking methods.

    The calls are those of `ReplicaStore`. They check their arguments here.
    """

    appends: bool

    def __init__(self, store_id: str, url: str) -> None:
        self.id = store_id
        self.url = url
        self.keyspace = ""
        """The keyspace that it must belong to; empty if that is not checked."""
        self._workers = WorkerPool(f"leasehold store {store_id}", STORE_THREADS)
        self._clock = StoreClock()
        self._lock = threading.Lock()
        self._waiting: deque[_Call[Any]] = deque()
        self._active = 0
        """Threads that perform calls, or are about to."""
        self._why_closed = ""
        self._opened_by = os.getpid()
        call_in_child(self, ThreadedStore._disable)

    async def append(self, name: str, offset: int, data: bytes, *, sync: bool = True) -> None:
        """Write data at an offset of an object; offset 0 creates it."""
        directory, leaf = split_name(name)
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        self._check_open()
        if not self.appends:
            raise UnsupportedOperation(
                f"store {self.id!r} cannot append to objects: put each piece as an object"
            )
        write = partial(self._write_at, directory, leaf, offset, data, sync=sync)
        await self._in_thread(write)

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole object, in place of the one that is there."""
        directory, leaf = split_name(name)
        await self._in_thread(partial(self._replace, directory, leaf, data))

    async def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes from `start`, fewer at the end. Raises FileNotFoundError."""
        directory, leaf = split_name(name)
        if start < 0 or length < 0:
            raise ValueError(f"start and length must not be negative, got {start} and {length}")
        return await self._in_thread(partial(self._read_if_owned, directory, leaf, start, length))

    async def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""
        directory, leaf = split_name(name)
        return await self._in_thread(partial(self._size_if_owned, directory, leaf))

    async def list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        """Return the objects with names greater than `after`, in order, `limit` at most."""
        if limit < 1:
            raise ValueError(f"limit must be positive, got {limit}")
        return await self._in_thread(partial(self._list, after, limit))

    async def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        directory, leaf = split_name(name)
        await self._in_thread(partial(self._delete_if_exists, directory, leaf))

    async def close(self) -> None:
        """Refuse further calls, and those that wait for a thread.

        Calls that a thread performs are not interrupted, and `close` does not wait for them.
        """
        with self._lock:
            if self._why_closed:
                return
            self._why_closed = "was closed"
            waiting = list(self._waiting)
            self._waiting.clear()
        for call in waiting:
            call.fail(self._closed())
        self._disconnect()
        self._workers.close()

    # The blocking methods. Those that change objects check the owner.

    @abstractmethod
    def _check_owner(self) -> None:
        """Raise OSError, other than FileNotFoundError, unless it belongs to the keyspace."""

    @abstractmethod
    def _write_at(
        self, directory: str, leaf: str, offset: int, data: bytes, *, sync: bool
    ) -> None: ...

    @abstractmethod
    def _replace(self, directory: str, leaf: str, data: bytes) -> None:
        """Write a whole object. That of the owner is not checked, and creates the store."""

    @abstractmethod
    def _read(self, directory: str, leaf: str, start: int, length: int) -> bytes: ...

    @abstractmethod
    def _size(self, directory: str, leaf: str) -> int | None: ...

    @abstractmethod
    def _list_directories(self) -> builtins.list[str]:
        """Return the names of the directories in the store, in any order."""

    @abstractmethod
    def _list_objects(
        self, directory: str, after: str, limit: int, now_s: float
    ) -> builtins.list[StoredObject]:
        """Return the objects of a directory, as `list` does. Raises FileNotFoundError."""

    @abstractmethod
    def _delete(self, directory: str, leaf: str) -> None:
        """Delete an object. Raises FileNotFoundError."""

    @abstractmethod
    def _probe_clock(self) -> float:
        """Modify an object that is not listed, and return its modification time."""

    def _disconnect(self) -> None:  # noqa: B027  most stores have no connections
        """Release connections; called once, without waiting for calls that are under way."""

    def _read_if_owned(self, directory: str, leaf: str, start: int, length: int) -> bytes:
        try:
            return self._read(directory, leaf, start, length)
        except FileNotFoundError:
            self._check_owner()  # otherwise the store is missing, not the object
            raise

    def _size_if_owned(self, directory: str, leaf: str) -> int | None:
        size_bytes = self._size(directory, leaf)
        if size_bytes is None and f"{directory}/{leaf}" != OWNER:
            self._check_owner()
        return size_bytes

    def _list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        self._check_owner()
        found: builtins.list[StoredObject] = []
        try:
            directories = self._list_directories()
        except FileNotFoundError:  # nothing was written yet
            return found
        now_s = self._clock.now_s(self._probe_clock)
        for directory in directories_after(directories, after):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found += self._list_objects(directory, after, limit - len(found), now_s)
            if len(found) == limit:
                break
        return found

    def _delete_if_exists(self, directory: str, leaf: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._delete(directory, leaf)

    # Threads.

    def _check_open(self) -> None:
        if self._why_closed:
            raise self._closed()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Call `work` in a thread."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        call = _Call(work, done)
        with self._lock:
            self._check_open()
            if len(self._waiting) >= MAX_WAITING_CALLS:
                raise OSError(
                    errno.EBUSY,
                    f"store {self.id!r} is too slow: {MAX_WAITING_CALLS} calls wait for it",
                )
            self._waiting.append(call)
            if needs_thread := self._active < STORE_THREADS:
                self._active += 1
        if needs_thread:
            self._start_thread(call)
        try:
            return await done
        except asyncio.CancelledError:
            self._withdraw(call)
            raise

    def _start_thread(self, call: _Call[Any]) -> None:
        try:
            self._workers.submit(self._perform_calls)
        except RuntimeError as error:  # the interpreter is exiting, and starts no more threads
            self._withdraw(call)
            with self._lock:
                self._active -= 1
            raise Closed(f"store {self.id!r} cannot be used: {error}") from error

    def _withdraw(self, call: _Call[Any]) -> None:
        with self._lock, contextlib.suppress(ValueError):  # a thread performs it already
            self._waiting.remove(call)

    def _perform_calls(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._active -= 1
                    return
                call = self._waiting.popleft()
            call.perform()
            del call  # and with it the data of a write

    def _closed(self) -> Closed:
        return Closed(f"store {self.id!r} {self._why_closed}")

    def _disable(self) -> None:
        """Disable the copy of a forked child, which has none of the threads."""
        self._lock = threading.Lock()
        self._waiting.clear()
        self._why_closed = (
            f"was opened in process {self._opened_by}: open another one after the fork"
        )
