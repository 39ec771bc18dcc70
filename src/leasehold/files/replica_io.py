"""Blocks on replica stores: writing, reading with checksums, copying.

A store that fails, or does not answer within `STORE_S`, raises `StoreFailed`; the caller continues
with the others. Readers check every chunk, and read the next replica if one is missing or damaged.
"""

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeVar

from leasehold.clock import Clock
from leasehold.engine.interface import Engine
from leasehold.errors import FileDamaged, LeaseholdError
from leasehold.files.replica_store import ReplicaStore
from leasehold.files.state import (
    CHUNK_BYTES,
    Block,
    Checksums,
    FilesConfig,
    Replica,
    chunk_checksum,
    piece_name,
)
from leasehold.files.threaded_store import MAX_OWNER_BYTES, OWNER, check_owner

logger = logging.getLogger(__name__)

T = TypeVar("T")

STORE_S: Final = 30.0
"""The timeout of one call to a store."""

FAILED_S: Final = 60.0
"""How long a store that has failed is not used for new blocks, if there are others."""

ADOPT_S: Final = 1.0
"""How long another keyspace that adds the same new store may take to write its owner."""

COPY_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read and written together while a block is copied."""

CONCURRENT_PIECES: Final = 8
"""Pieces of a replica that are read or deleted at the same time."""

OpenStore = Callable[[str, str], ReplicaStore]
"""Opens a store, by its id and URL."""

MISSING: Final = "00/missing"
"""The name of an object that no store has."""

MAX_NAMED: Final = 3
"""Stores whose failures an error message names."""

MAX_REASON_CHARS: Final = 500
"""The length of a reason in it."""


class StoreFailed(Exception):
    """A replica store has failed, or does not have the expected data."""


class DuplicateStore(StoreFailed):
    """A replica store is the same directory as another store of the configuration."""


class Stores:
    """The replica stores of one process."""

    def __init__(
        self,
        open_store: OpenStore,
        engine: Engine,
        clock: Clock,
        random: Random,
        *,
        allowed: frozenset[str] | None = None,
    ) -> None:
        """`allowed` are the URLs that may be used; None for all."""
        self._open_store = open_store
        self._engine = engine
        self._clock = clock
        self._random = random
        self._allowed = allowed
        self._stores: dict[str, ReplicaStore] = {}
        self._errors: dict[str, str] = {}
        """Why stores of the configuration cannot be opened."""
        self._failures: dict[str, tuple[float, str]] = {}
        """When and why stores have failed that have not worked since."""
        self._urls: dict[str, str] = {}
        self._configured: set[str] = set()
        self._keyspace = ""

    def configure(self, config: FilesConfig) -> None:
        """Open the stores of a configuration that are not open yet."""
        # A restore from a backup keeps the id in the configuration, and etcd keeps the other one
        # in a cluster that is made again with the same members.
        self._keyspace = f"{self._engine.cluster_id:016x}-{config.keyspace}"
        self._configured = {entry.id for entry in config.stores}
        for entry in config.stores:
            self._urls[entry.id] = entry.url
            if entry.id in self._stores and self._stores[entry.id].url == entry.url:
                continue
            if not self.may_use(entry.url):
                if entry.id not in self._errors:
                    logger.warning(
                        "store %s is not in --file-stores of this server: this server neither "
                        "reads it nor copies blocks to it",
                        entry.url,
                    )
                self._errors[entry.id] = "it is not in --file-stores of this server"
                continue
            try:
                store = self._open_store(entry.id, entry.url)
                store.keyspace = self._owner(entry.id)
                self._stores[entry.id] = store
                self._errors.pop(entry.id, None)
            except (ValueError, OSError) as error:
                self._errors[entry.id] = str(error)

    def may_use(self, url: str) -> bool:
        """Return whether a store is one of those that may be used."""
        return self._allowed is None or url in self._allowed

    async def close(self) -> None:
        """Close all stores."""
        stores, self._stores = list(self._stores.values()), {}
        for store in stores:
            await store.close()

    def choose(self, config: FilesConfig, avoid: Iterable[str] = ()) -> list[str]:
        """Return the stores for a new block, in random order.

        Stores that have failed are used only if there are too few others.
        """
        chosen = self.healthy(config, avoid)
        if len(chosen) < config.needed:
            chosen = self.spare(config, avoid)
        return chosen[: config.replicas]

    def healthy(self, config: FilesConfig, used: Iterable[str]) -> list[str]:
        """Return the other stores that have not failed, in random order."""
        return [each for each in self.spare(config, used) if not self._has_failed(each)]

    def spare(self, config: FilesConfig, used: Iterable[str]) -> list[str]:
        """Return the stores for further replicas of a block, those that have failed last."""
        avoided = config.leaving.union(used)
        ids = [each.id for each in config.stores if each.id not in avoided]
        usable = [store_id for store_id in ids if store_id in self._stores]
        self._random.shuffle(usable)
        return sorted(usable, key=self._has_failed)

    def _has_failed(self, store_id: str) -> bool:
        failure = self._failures.get(store_id)
        return failure is not None and self._clock.monotonic() < failure[0] + FAILED_S

    def failure(self, store_id: str) -> str:
        """Return why a store cannot be used, or has failed; empty if neither is known."""
        return self._errors.get(store_id) or self._failures.get(store_id, (0.0, ""))[1]

    def failures(self, store_ids: Iterable[str]) -> str:
        """Return which of some stores have failed and why, as the end of a message."""
        failed = [each for each in store_ids if self.failure(each)]
        named = [self.described(each, self.failure(each)) for each in failed[:MAX_NAMED]]
        if len(failed) > MAX_NAMED:
            named.append(f"and {len(failed) - MAX_NAMED} more")
        return "".join(f"; {each}" for each in named)

    def described(self, store_id: str, why: str) -> str:
        """Return a sentence about a store, with its URL."""
        if len(why) > MAX_REASON_CHARS:
            why = f"{why[:MAX_REASON_CHARS]}..."
        return f"store {self._urls.get(store_id, store_id)}: {why}"

    def appends(self, store_id: str) -> bool:
        """Return whether a store appends to objects; False for one that is not open."""
        store = self._stores.get(store_id)
        return store is not None and store.appends

    async def call(self, store_id: str, use: Callable[[ReplicaStore], Awaitable[T]]) -> T:
        """Call a store. Raises `StoreFailed`."""
        store = self._stores.get(store_id)
        if store is None:
            why = self._errors.get(store_id, "it was removed from the configuration")
            raise StoreFailed(self.described(store_id, why))
        try:
            async with asyncio.timeout(STORE_S):
                result = await use(store)
        except FileNotFoundError as error:  # an object: the store itself works
            raise StoreFailed(self.described(store_id, _reason(error, store.url))) from error
        except (OSError, LeaseholdError, ValueError) as error:
            why = _reason(error, store.url) or f"no answer within {STORE_S:g} s"
            self._failures[store_id] = (self._clock.monotonic(), why)
            raise StoreFailed(self.described(store_id, why)) from error
        self._failures.pop(store_id, None)
        return result

    # Owners.

    def _owner(self, store_id: str) -> str:
        """Return the owner of a store: with its id, so that a directory is not two stores."""
        return f"{self._keyspace}-{store_id}"

    async def check_owner(self, store_id: str, *, adopt: bool = False) -> None:
        """Raise `StoreFailed` if a store does not belong to this keyspace.

        `DuplicateStore` if it belongs to another store of the configuration. With `adopt` a store
        that belongs to none is created if it is missing, and belongs to this keyspace from now on.
        """

        async def check(store: ReplicaStore) -> None:
            owner = await _owner(store)
            self._check_duplicate(store_id, owner)
            if adopt and not owner:
                owner = await _adopted(store, self._owner(store_id))
            elif not owner:
                await store.size(MISSING)  # raises the reason if all of the store is missing
            check_owner(store.url, owner, self._owner(store_id))

        await self.call(store_id, check)

    async def problem(self, store_id: str, within_s: float = STORE_S) -> str:
        """Try a store; return why it cannot be used, or nothing."""
        try:
            async with asyncio.timeout(within_s):
                await self.check_owner(store_id)
        except StoreFailed as error:
            return str(error).removeprefix(self.described(store_id, ""))
        except TimeoutError:
            return f"no answer within {within_s:g} s"
        return ""

    def _check_duplicate(self, store_id: str, owner: str) -> None:
        owning, _, other = owner.rpartition("-")
        if owning == self._keyspace and other != store_id and other in self._configured:
            why = f"it is the same directory as store {self._urls[other]}: use another directory"
            raise DuplicateStore(self.described(store_id, why))

    async def claim(self, store_id: str) -> None:
        """Let a store belong to this keyspace, whatever it has belonged to before.

        Raises `DuplicateStore` if it belongs to another store of the configuration.
        """
        self._check_duplicate(store_id, await self.call(store_id, _owner))
        await self.call(store_id, lambda store: store.put(OWNER, self._owner(store_id).encode()))
        await self.check_owner(store_id)

    # Writing.

    async def extend(self, replica: Replica, length: int, data: bytes) -> Replica:
        """Write bytes after the first `length` of a replica, durably; return it with them."""

        async def write(store: ReplicaStore) -> Replica:
            if store.appends:
                await store.append(replica.name, length, data)
                return replica
            await store.put(piece_name(replica.name, len(replica.pieces)), data)
            return Replica(replica.store, replica.name, (*replica.pieces, len(data)))

        return await self.call(replica.store, write)

    async def copy(self, block: Block, sources: Sequence[Replica], target: Replica) -> Replica:
        """Copy a block to a new replica, with checks; return the replica."""
        copied = 0
        while copied < block.length:
            data = await self.read(block, copied, COPY_BYTES, sources)
            target = await self.extend(target, copied, data)
            copied += len(data)
        return target

    async def delete(self, store_id: str, name: str) -> None:
        """Delete an object."""
        await self.call(store_id, lambda store: store.delete(name))

    # Reading.

    async def read(
        self, block: Block, start: int, length: int, replicas: Sequence[Replica] = ()
    ) -> bytes:
        """Read bytes of a block from `start`, a multiple of `CHUNK_BYTES`, in whole chunks.

        Each chunk may come from another replica. Those before one that is in none of them are
        returned without it. Raises `StoreFailed` if that is the first one.
        """
        assert start % CHUNK_BYTES == 0, "chunks are read as a whole"
        chunks = max(1, -(-length // CHUNK_BYTES))
        length = min(chunks * CHUNK_BYTES, block.length - start)
        errors: list[str] = []
        for replica in replicas or self._by_health(block.replicas):
            try:
                data = await self.read_replica(replica, start, length)
                if why := _difference(block, start, data, length):
                    raise StoreFailed(self.described(replica.store, why))
            except StoreFailed as error:
                errors.append(str(error))
            else:
                return data
        if length <= CHUNK_BYTES:
            raise StoreFailed("; ".join(errors) or "the block has no replica")
        found = bytearray(await self.read(block, start, CHUNK_BYTES, replicas))
        with suppress(StoreFailed):
            while len(found) < length:
                found += await self.read(block, start + len(found), CHUNK_BYTES, replicas)
        return bytes(found)

    async def intact_bytes(self, block: Block, replicas: Sequence[Replica]) -> int:
        """Return how many bytes of a block, from its start, some replicas have together."""
        length = 0
        with suppress(StoreFailed):
            while replicas and length < block.length:
                length += len(await self.read(block, length, COPY_BYTES, replicas))
        return length

    def _by_health(self, replicas: Sequence[Replica]) -> Sequence[Replica]:
        return sorted(replicas, key=lambda replica: self._has_failed(replica.store))

    async def read_replica(self, replica: Replica, start: int, length: int) -> bytes:
        """Read bytes of one replica, without checks; fewer at its end."""
        if not replica.pieces:
            return await self._read(replica.store, replica.name, start, length)
        parts: list[Callable[[], Awaitable[bytes]]] = []
        offset, end = 0, start + length
        for number, size in enumerate(replica.pieces):
            first, last = max(start, offset), min(end, offset + size)
            if first < last:
                name = piece_name(replica.name, number)
                parts.append(partial(self._read, replica.store, name, first - offset, last - first))
            offset += size
        return b"".join(await together(parts))

    async def _read(self, store_id: str, name: str, start: int, length: int) -> bytes:
        return await self.call(store_id, lambda store: store.read(name, start, length))

    async def size(self, store_id: str, name: str) -> int | None:
        """Return the size of an object; None if it is missing."""
        return await self.call(store_id, lambda store: store.size(name))

    async def sizes(self, replica: Replica) -> list[int | None]:
        """Return the sizes of the objects of a replica; None for those that are missing."""
        return await together(partial(self.size, replica.store, name) for name in replica.objects())

    async def checksums(self, replica: Replica, checks: Checksums, length: int) -> None:
        """Add the bytes of a replica up to `length` to checksums. Raises `StoreFailed`."""
        while checks.length < length:
            wanted = min(COPY_BYTES, length - checks.length)
            data = await self.read_replica(replica, checks.length, wanted)
            if not data:
                why = f"{replica.name} has {checks.length} bytes, expected {length}"
                raise StoreFailed(self.described(replica.store, why))
            checks.add(data)


async def together(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results of calls, `CONCURRENT_PIECES` at the same time, if none fails."""
    turns = asyncio.Semaphore(CONCURRENT_PIECES)

    async def make(call: Callable[[], Awaitable[T]]) -> T:
        async with turns:
            return await call()

    tasks = [asyncio.ensure_future(make(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _owner(store: ReplicaStore) -> str:
    """Return the keyspace that a store belongs to; empty for none."""
    if await store.size(OWNER) is None:
        return ""
    return (await store.read(OWNER, 0, MAX_OWNER_BYTES)).decode(errors="replace")


async def _adopted(store: ReplicaStore, owner: str) -> str:
    """Write the owner of a store that has none; return it, or that of another keyspace.

    Two keyspaces may do so together. In a store that can append, only one of them can create the
    object. In other stores the last one that writes it wins: each reads it again after the time
    that the other one may take to write it.
    """
    if store.appends:
        try:
            await store.append(OWNER, 0, owner.encode())
            return owner
        except FileExistsError:
            await asyncio.sleep(ADOPT_S)  # it may not be written yet
            if found := await _owner(store):
                return found
            # The process that has created it was killed before it had written it.
    await store.put(OWNER, owner.encode())
    await asyncio.sleep(ADOPT_S)
    return await _owner(store)


def _reason(error: Exception, url: str) -> str:
    """Return the text of an error of a store, without the number that the system gives it."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    is_named = error.filename is None or str(error.filename) == url
    return error.strerror if is_named else f"{error.strerror}: {error.filename}"


def _difference(block: Block, start: int, data: bytes, length: int) -> str:
    """Return how bytes that were read differ from the checksums of their chunks, if they do."""
    if len(data) != length:
        return f"{len(data)} bytes at {start}, expected {length}"
    view = memoryview(data)
    for first in range(0, length, CHUNK_BYTES):
        number = (start + first) // CHUNK_BYTES
        if zlib.crc32(view[first : first + CHUNK_BYTES]) != chunk_checksum(block, number):
            return f"the checksum at {start + first} differs"
    return ""


def damaged(path: str, error: StoreFailed) -> FileDamaged:
    """Return the error of a read that no replica can answer."""
    return FileDamaged(path, f"no replica has the data: {error}")
