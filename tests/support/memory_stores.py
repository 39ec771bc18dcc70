"""Replica stores in memory, in virtual time, that a test can disturb.

    stores = MemoryStores(host.clock)
    files = Files(engine, keeper, "a", clock=host.clock, open_store=stores.open)
    stores.fail("/a", times=1, methods=("append",))
    stores.hang("mem://b")
    stores.corrupt("/a", name)
    stores.unmount("/a")

Stores of paths append to objects, those of URLs such as `mem://a` do not. A store stays when it is
closed: another one that is opened with the same URL has its objects.
"""

import asyncio
import builtins
import errno
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Final

from leasehold.clock import Clock
from leasehold.errors import Closed, UnsupportedOperation
from leasehold.files.replica_store import ReplicaStore, StoredObject
from leasehold.files.threaded_store import OWNER, check_owner

METHODS: Final = ("append", "put", "read", "size", "list", "delete")
"""The calls of a store that can fail."""

WRITES: Final = ("append", "put")


class _Trouble:
    """Calls that fail or hang, `times` of them; None for all."""

    def __init__(self, methods: Collection[str], times: int | None, *, hangs: bool) -> None:
        unknown = set(methods) - set(METHODS)
        assert not unknown, f"a store has no method {unknown}"
        self.methods = frozenset(methods)
        self.times = times
        self.hangs = hangs

    def meets(self, method: str) -> bool:
        """Count a call; return whether it is disturbed."""
        if method not in self.methods or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class MemoryStores:
    """All stores of a simulation, by their URLs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        """The objects of each store; a test may change them."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each method of each store was called: by URL and name."""
        self.delay_s = 0.0
        """How long each call takes."""
        self._written_at: dict[tuple[str, str], float] = {}
        self._troubles: defaultdict[str, list[_Trouble]] = defaultdict(list)
        self._unmounted: dict[str, dict[str, bytes]] = {}

    def open(self, store_id: str, url: str) -> ReplicaStore:
        """Open a store, as `open_store` does."""
        if not url.startswith("/") and "://" not in url:
            raise ValueError(f"store {store_id!r} needs an absolute path or a URL, got {url!r}")
        return MemoryStore(self, store_id, url)

    # Disturbances.

    def fail(self, url: str, times: int | None = None, methods: Collection[str] = METHODS) -> None:
        """Let calls fail, without any effect: the next `times`, or all until `heal`."""
        self._troubles[url].append(_Trouble(methods, times, hangs=False))

    def hang(self, url: str, times: int | None = None, methods: Collection[str] = METHODS) -> None:
        """Let calls wait without an end and without any effect, as `fail` does."""
        self._troubles[url].append(_Trouble(methods, times, hangs=True))

    def heal(self, url: str) -> None:
        """End the disturbances of a store. Calls that hang stay so."""
        self._troubles.pop(url, None)

    def unmount(self, url: str) -> None:
        """Take the disk away: an empty directory is left."""
        self._unmounted[url] = self.objects.pop(url)

    def mount(self, url: str) -> None:
        """Bring the disk back; what was written meanwhile is hidden."""
        self.objects[url] = self._unmounted.pop(url)

    def corrupt(self, url: str, name: str, place: int = 0) -> None:
        """Change one byte of an object."""
        data = bytearray(self.objects[url][name])
        data[place] ^= 0xFF
        self.objects[url][name] = bytes(data)

    def shorten(self, url: str, name: str, length: int) -> None:
        """Cut an object to its first bytes."""
        self.objects[url][name] = self.objects[url][name][:length]

    def add(self, url: str, name: str, data: bytes = b"", *, age_s: float = 0.0) -> None:
        """Add an object of any age."""
        self.objects[url][name] = data
        self._written_at[url, name] = self._clock.monotonic() - age_s

    # For the stores.

    async def begin(self, url: str, method: str) -> None:
        """Begin a call of a store."""
        self.calls[url, method] += 1
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        for trouble in self._troubles.get(url, ()):
            if trouble.meets(method):
                if trouble.hangs:
                    await asyncio.get_running_loop().create_future()
                raise OSError(errno.EIO, f"{method} fails", url)

    def write(self, url: str, name: str, data: bytes) -> None:
        """Write an object as of now."""
        self.objects[url][name] = data
        self._written_at[url, name] = self._clock.monotonic()

    def age_s(self, url: str, name: str) -> float:
        """Return the age of an object; 0 for one whose time is not known."""
        now = self._clock.monotonic()
        return now - self._written_at.get((url, name), now)


class MemoryStore:
    """One store, as one client has opened it."""

    def __init__(self, stores: MemoryStores, store_id: str, url: str) -> None:
        self.id = store_id
        self.url = url
        self.keyspace = ""
        self.appends = url.startswith("/")
        self._stores = stores
        self._is_closed = False

    async def append(self, name: str, offset: int, data: bytes, *, sync: bool = True) -> None:
        """Write data at an offset of an object; offset 0 creates it."""
        del sync  # memory is durable enough
        if not self.appends:
            raise UnsupportedOperation(f"store {self.id!r} cannot append to objects")
        objects = await self._begin("append")
        if name != OWNER:
            self._check_owner(objects)
        before = objects.get(name)
        if not offset and before is not None:
            raise FileExistsError(errno.EEXIST, "the object exists", name)
        before = before or b""
        if len(before) < offset:
            raise OSError(errno.EINVAL, f"the object has {len(before)} bytes, not {offset}", name)
        made = before[:offset] + data + before[offset + len(data) :]
        self._stores.write(self.url, name, made)

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole object."""
        objects = await self._begin("put")
        if name != OWNER:
            self._check_owner(objects)
        self._stores.write(self.url, name, data)

    async def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes from `start`, fewer at the end."""
        objects = await self._begin("read")
        if name not in objects:
            self._check_owner(objects)
            raise FileNotFoundError(errno.ENOENT, "the object is missing", name)
        return objects[name][start : start + length]

    async def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""
        objects = await self._begin("size")
        if name in objects:
            return len(objects[name])
        if name != OWNER:
            self._check_owner(objects)
        return None

    async def list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        """Return the objects with names greater than `after`, in order, `limit` at most."""
        objects = await self._begin("list")
        self._check_owner(objects)
        names = sorted(name for name in objects if name > after and name != OWNER)[:limit]
        return [
            StoredObject(name, len(objects[name]), self._stores.age_s(self.url, name))
            for name in names
        ]

    async def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        objects = await self._begin("delete")
        self._check_owner(objects)
        objects.pop(name, None)

    async def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

    async def _begin(self, method: str) -> dict[str, bytes]:
        if self._is_closed:
            raise Closed(f"store {self.id!r} was closed")
        await self._stores.begin(self.url, method)
        return self._stores.objects[self.url]

    def _check_owner(self, objects: dict[str, bytes]) -> None:
        if self.keyspace:
            check_owner(self.url, objects.get(OWNER, b"").decode(), self.keyspace)
