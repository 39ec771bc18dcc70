"""`Files`: files with one writer at a time, on any engine."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, Literal, overload

from leasehold.basics.durations import check_seconds
from leasehold.basics.event_loop import is_cancelled
from leasehold.basics.pending import Pending
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.interface import Engine
from leasehold.errors import Closed, FileExists, FileNotFound, LeaseholdError
from leasehold.files.collector import Collector, CollectReport
from leasehold.files.file_keys import OPEN_FILES, TRASH, UndecodableValue, decode_trash, id_in
from leasehold.files.fsck import Finding, check_files
from leasehold.files.holder import FileHolder, HolderInfo, LiveHolder, OpenFileInfo
from leasehold.files.known_config import KnownConfig
from leasehold.files.namespace import (
    MAX_CONFLICTS,
    FileInfo,
    FoundFile,
    Namespace,
    conflicted,
)
from leasehold.files.opening import RECOVER_WAIT_S, Opener, Replace, holder_state, with_holder
from leasehold.files.reader import FileReader
from leasehold.files.recovery import Recoverer, wait_ms
from leasehold.files.repairer import Repairer, RepairReport
from leasehold.files.replica_io import DuplicateStore, OpenStore, StoreFailed, Stores
from leasehold.files.replica_store import normal_url, open_store
from leasehold.files.state import (
    FilesConfig,
    FileState,
    new_path_parts,
    path_parts,
    store_id,
)
from leasehold.files.tree_changes import TreeChanges
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper

logger = logging.getLogger(__name__)

CHECK_STORE_S: Final = 5.0
"""The timeout of one store in `check_stores`."""

CLOSE_S: Final = 5.0
"""How long closing the client waits for each open file, and for calls without an answer."""

ReadMode = Literal["rb"]
WriteMode = Literal["xb", "ab", "wb"]


class Files:
    """Files that have one writer at a time, and whose flushed bytes survive it. See `Client.files`.

    async with client.files.open("logs/a", "ab") as file:
        await file.write(b"a line")
        await file.flush()
    """

    def __init__(
        self,
        engine: Engine,
        keeper: Keeper,
        name: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        open_store: OpenStore = open_store,
        allowed: frozenset[str] | None = None,
    ) -> None:
        """`name` is part of the id of its holder; `allowed` are the URLs of stores, None for all.

        A simulation passes `open_store`.
        """
        random = random or keeper.random
        self.namespace = Namespace(engine, clock, random)
        self.stores = Stores(open_store, engine, clock, random, allowed=allowed)
        self.tree = TreeChanges(self.namespace)
        self.known_config = KnownConfig(self.namespace)
        self.recoverer = Recoverer(self.namespace, self.stores, self.known_config, keeper)
        self.holder = FileHolder(self.namespace, self.known_config, name, self._finish)
        self.opener = Opener(
            self.namespace, self.tree, self.holder, self.stores, self.recoverer, self.known_config
        )
        self._open_store = open_store
        self._tasks: set[asyncio.Task[Any]] = set()

    # Configuration.

    async def config(self) -> FilesConfig:
        """Return the configuration of the keyspace, which may be some seconds old."""
        return await self.known_config()

    async def _config_of(self, stores: AbstractSet[str]) -> FilesConfig:
        """Return the configuration; it is read again if one of some stores is not in it."""
        config = await self.known_config()
        if not stores <= config.staying | config.leaving:
            config = await self.known_config.read()
        return config

    async def configure(
        self,
        *,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        drop: Iterable[str] = (),
        replicas: int | None = None,
        min_replicas: int | None = None,
        soft_limit: float | timedelta | None = None,
        hard_limit: float | timedelta | None = None,
        keep: float | timedelta | None = None,
        block_bytes: int | None = None,
    ) -> FilesConfig:
        """Change the configuration of the keyspace, for all clients; return the new one.

        `add` and `remove` are URLs of replica stores: directories, or any URL of `fsspec`. A store
        that is added is created if it is missing. If that fails, or it belongs to another keyspace,
        it is added nevertheless, since other hosts may be able to use it: a warning is logged, and
        `failed_stores` returns the reason. A store that is removed is not used for new blocks. It
        stays in the configuration, and is read, until a server has copied its blocks to other
        stores; adding it again keeps it. `drop` removes stores immediately: blocks with no other
        replica cannot be read then. The others are the number of replicas, and of those that a
        flush needs (0 for a majority); the limits of leases; how long replaced data stays for
        readers; and the size of a block.
        """
        changes: dict[str, Any] = {
            "replicas": replicas,
            "min_replicas": min_replicas,
            "soft_limit_s": None if soft_limit is None else check_seconds(soft_limit, "soft_limit"),
            "hard_limit_s": None if hard_limit is None else check_seconds(hard_limit, "hard_limit"),
            "keep_s": 0.0 if keep in (0, timedelta()) else keep and check_seconds(keep, "keep"),
            "block_bytes": block_bytes,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        for name, urls in (("add", add), ("remove", remove), ("drop", drop)):
            if isinstance(urls, str):
                raise TypeError(f"{name} must be a list of URLs, not a str")
        added = list(dict.fromkeys(map(normal_url, add)))
        removed, dropped = set(map(normal_url, remove)), set(map(normal_url, drop))
        if twice := (set(added) & (removed | dropped)) | (removed & dropped):
            raise ValueError(
                f"store {min(twice)} is in two of add, remove and drop: name it in one of them"
            )
        for url in added:
            store = self._open_store(store_id(url), url)  # ValueError if it cannot be used
            await store.close()

        def change(config: FilesConfig) -> FilesConfig:
            if unknown := (removed | dropped) - {store.url for store in config.stores}:
                raise _not_configured(min(unknown))
            return replace(config, stores=config.stores_after(added, removed, dropped), **given)

        before = await self.known_config.read()
        change(before)  # raises ValueError before anything is created
        known = {store.url for store in before.stores}
        if added and not before.keyspace:
            keyspace = self.namespace.new_id()
            before = await self.known_config.update(
                lambda config: replace(config, keyspace=config.keyspace or keyspace)
            )
        # Only a new store is created: the disk of one that has been in use may not be mounted.
        self.stores.configure(replace(before, stores=before.stores_after(added, removed, dropped)))
        await asyncio.gather(*(self._try_store(url, is_new=url not in known) for url in added))
        return await self.known_config.update(change)

    async def _try_store(self, url: str, *, is_new: bool) -> None:
        try:
            await self.stores.check_owner(store_id(url), adopt=is_new)
        except DuplicateStore as error:
            raise ValueError(str(error)) from error
        except StoreFailed as error:
            logger.warning("%s", error)

    async def check_stores(self) -> dict[str, str]:
        """Try all replica stores; return the URLs of those that cannot be used, and the reasons."""
        config = await self.config()
        self.stores.configure(config)
        checks = (self.stores.problem(store.id, CHECK_STORE_S) for store in config.stores)
        problems = zip(config.stores, await asyncio.gather(*checks), strict=True)
        return {store.url: why for store, why in problems if why}

    def failed_stores(self) -> dict[str, str]:
        """Return the URLs of replica stores that have failed in this client, and the reasons.

        Nothing is tried: stores that were not used yet, or have worked since, are not among them.
        """
        config = self.known_config.last or FilesConfig()
        failures = {store.url: self.stores.failure(store.id) for store in config.stores}
        return {url: why for url, why in failures.items() if why}

    async def claim_store(self, url: str) -> None:
        """Let a replica store belong to this keyspace, such as after a restore from a backup.

        It is created if it is missing. Objects in it that this keyspace does not name will be
        deleted. Raises `ValueError` for a store that is not configured, and `OSError` if it cannot
        be written.
        """
        url, config = normal_url(url), await self.config()
        if url not in {store.url for store in config.stores}:
            raise _not_configured(url)
        self.stores.configure(config)
        try:
            await self.stores.claim(store_id(url))
        except StoreFailed as error:
            raise OSError(str(error)) from error

    # Opening.

    @overload
    def open(self, path: str, mode: ReadMode = "rb") -> Pending[FileReader]: ...

    @overload
    def open(self, path: str, mode: WriteMode) -> Pending[FileWriter]: ...

    def open(
        self, path: str, mode: ReadMode | WriteMode = "rb"
    ) -> Pending[FileReader] | Pending[FileWriter]:
        """Open a file: to be awaited, or entered with `async with`.

        `rb` reads what was flushed until now. `xb` creates the file, `ab` appends, and creates it
        if it is missing, `wb` replaces one that is closed. Raises `FileNotFound`, `FileExists`,
        `FileAlreadyOpen`, which names the holder, and `RecoveryInProgress`.
        """
        match mode:
            case "rb":
                return Pending(partial(self._read, path), "files.open()")
            case "xb":
                return self._writer(partial(self._create, path, Replace.NONE), path, new_path_parts)
            case "wb":
                return self._writer(
                    partial(self._create, path, Replace.CLOSED), path, new_path_parts
                )
            case "ab":
                return self._writer(partial(self._append_or_create, path), path)
        raise ValueError(f"mode must be 'rb', 'xb', 'ab' or 'wb', got {mode!r}")

    def create(self, path: str, *, overwrite: bool = False) -> Pending[FileWriter]:
        """Create a file, with its directories: to be awaited, or entered with `async with`.

        With `overwrite` an existing file is replaced, even if it is open: its writer loses it.
        Otherwise raises `FileExists`, or `FileAlreadyOpen`.
        """
        which = Replace.ANY if overwrite else Replace.NONE
        return self._writer(partial(self._create, path, which), path, new_path_parts)

    def append(self, path: str) -> Pending[FileWriter]:
        """Open an existing file at its end: to be awaited, or entered with `async with`.

        Raises `FileNotFound`, `FileAlreadyOpen`, `RecoveryInProgress`.
        """
        return self._writer(partial(self._append, path), path)

    def _writer(
        self,
        open_file: Callable[[LiveHolder], Coroutine[Any, Any, FileWriter]],
        path: str,
        check: Callable[[str], object] = path_parts,
    ) -> Pending[FileWriter]:
        check(path)

        async def make() -> FileWriter:
            opening = with_holder(self.holder, open_file, path)
            task = asyncio.get_running_loop().create_task(opening)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled() and not is_cancelled():
                    raise Closed("the client was closed while a file was opened") from None
                task.add_done_callback(self._drop)
                raise

        return Pending(make, "files.open()")

    def _drop(self, opening: "asyncio.Task[FileWriter]") -> None:
        """Close a file that was opened for a caller that was cancelled."""
        if opening.cancelled() or opening.exception() is not None:
            return
        task = asyncio.get_running_loop().create_task(_abort(opening.result()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _made(self, live: LiveHolder, found: FoundFile) -> FileWriter:
        return FileWriter(self.namespace, self.stores, self.known_config, self.holder, live, found)

    async def _create(self, path: str, which: Replace, live: LiveHolder) -> FileWriter:
        return self._made(live, await self.opener.create(live, path, which))

    async def _append(self, path: str, live: LiveHolder) -> FileWriter:
        return self._made(live, await self.opener.append(live, path))

    async def _append_or_create(self, path: str, live: LiveHolder) -> FileWriter:
        for _ in range(MAX_CONFLICTS):
            with suppress(FileNotFound):
                return await self._append(path, live)
            with suppress(FileExists):  # another client was first
                return await self._create(path, Replace.NONE, live)
        raise conflicted(repr(path), "created and deleted by other clients")

    async def _read(self, path: str) -> FileReader:
        async def load() -> FileReader:
            found = await self.namespace.find_file(path)
            reader = FileReader(self.namespace, self.stores, self._config_of, found)
            await reader.load(found.record, found.read_at)
            return reader

        return await self.namespace.consistent(load)

    # The tree.

    async def stat(self, path: str) -> FileInfo:
        """Return size, state and holder of a file or directory. Raises `FileNotFound`."""
        return await self.namespace.stat(path)

    def list(self, path: str = "") -> AsyncGenerator[FileInfo]:
        """Iterate over a directory in the order of its names, as it is now; a file as itself.

        If the history of keys is compacted meanwhile, the rest is as of later: each name is still
        listed at most once, and none that stays is missed. Raises `FileNotFound`.
        """
        return self.namespace.entries(path)

    async def make_directory(self, path: str) -> None:
        """Create a directory, with those above it, unless it exists. Raises `NotADirectory`."""
        await self.tree.make_directories(new_path_parts(path))

    async def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename a file or directory. Files below it that are open stay open.

        Raises `FileExists`, unless `overwrite`: then a file, or an empty directory, is replaced.
        After `TimeoutError` or `ConnectionLost` it may have been renamed. It will not be renamed
        later: this is prevented as soon as the engine answers.
        """
        await self.tree.rename(source, target, overwrite=overwrite)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or directory; a writer that has it open loses it.

        A directory with entries needs `recursive`, or raises `DirectoryNotEmpty`. After
        `TimeoutError` it may have been deleted. It will not be deleted later: this is prevented as
        soon as the engine answers.
        """
        file_id = await self.tree.delete(path, recursive=recursive)
        self.holder.unlinked(file_id, "the file was deleted")

    # Leases.

    async def recover(self, path: str, *, accept_loss: bool = False) -> bool:
        """Close an open file, even if its holder is alive; return whether it is closed now.

        False means that the recovery is in progress: ask again. Raises `FileNotFound`, also for a
        directory. If no replica has the flushed data, the file stays locked; `accept_loss` closes
        it with what there is.
        """
        found = await self._file(path)
        if found.record.state == FileState.CLOSED:
            return True
        if accept_loss:
            await self.known_config.read()  # bytes in a store that was just added are not lost
        done = await self.recoverer.recover(found, accept_loss=accept_loss, wait_s=RECOVER_WAIT_S)
        return done or await self.is_closed(path)

    async def is_closed(self, path: str) -> bool:
        """Return whether no writer has a file open. Raises `FileNotFound`."""
        return (await self._file(path)).record.state == FileState.CLOSED

    async def recovery_error(self, path: str) -> str:
        """Return why the last attempt to recover a file has failed; empty if none has."""
        return (await self.namespace.recovery((await self._file(path)).id)).last_error

    async def _finish(self, file_id: str, holder: str) -> bool:
        """Recover a file if a holder has it open; return True once that holder has it not open."""
        found = await self.namespace.find_id(file_id)
        if self.holder.is_in_use(file_id):
            return False
        if found is None or found.record.state == FileState.CLOSED:
            return True
        if found.record.state == FileState.OPEN and found.record.holder != holder:
            return True
        if wait_ms(await self.namespace.recovery(file_id), self.namespace.now_ms):
            return False
        return await self.recoverer.recover(found, wait_s=RECOVER_WAIT_S)

    async def _file(self, path: str) -> FoundFile:
        found = await self.namespace.find(path)
        if found.record.is_directory:
            raise FileNotFound(path, "is a directory, not a file")
        return found

    async def open_files(self, under: str = "") -> AsyncGenerator[OpenFileInfo]:
        """Iterate over the files that are open for writing, at or below a path.

        Each is listed as it is when it is read: one that is opened or closed meanwhile may be
        listed or not. Raises `FileNotFound` if there is no such path.
        """
        parts = path_parts(under)
        await self.namespace.find(under)
        elapsed: tuple[str, float | None] = ("", None)
        async for pairs in self.namespace.pages(OPEN_FILES):
            for pair in pairs:
                holder, _, file_id = id_in(pair.key, OPEN_FILES).partition("/")
                chain = await self.namespace.chain_of(file_id)
                if chain is None or path_parts(chain.path)[: len(parts)] != parts:
                    continue
                if elapsed[0] != holder:
                    elapsed = (holder, await self._elapsed_s(holder))
                yield OpenFileInfo(chain.path, file_id, holder, elapsed[1])

    async def _elapsed_s(self, holder: str) -> float | None:
        state = await holder_state(self.namespace, holder)
        return None if state is None else state.elapsed_s

    async def holders(self) -> Sequence[HolderInfo]:
        """Return the holders of open files, and how many files each has open."""
        if await self._has_deleted_trees():  # their files have keys until the collector's pass
            counts = Counter([each.holder async for each in self.open_files()])
        else:
            counts = Counter[str]()
            async for pairs in self.namespace.pages(OPEN_FILES):
                counts.update(id_in(pair.key, OPEN_FILES).partition("/")[0] for pair in pairs)
        return [
            HolderInfo(holder, count, await self._elapsed_s(holder))
            for holder, count in counts.items()
        ]

    async def _has_deleted_trees(self) -> bool:
        async for pairs in self.namespace.pages(TRASH):
            for pair in pairs:
                with suppress(UndecodableValue):
                    if decode_trash(pair.value).is_directory:
                        return True
        return False

    # Upkeep.

    def fsck(self, under: str = "", *, deep: bool = False) -> AsyncGenerator[Finding]:
        """Check files at or below a path: iterate over findings, the last one is a summary.

        The sizes of all replicas are compared; with `deep` all bytes are read, and their checksums
        compared. Raises `FileNotFound`.
        """
        return check_files(self.namespace, self.stores, self.known_config, under, deep=deep)

    async def repair(self, under: str = "", *, verify: bool = False) -> RepairReport:
        """Copy blocks at or below a path that have too few replicas, and replace bad replicas.

        Missing and short replicas are found; with `verify` all bytes are read, and damaged ones are
        found, too. Raises `FileNotFound`.
        """
        repairer = Repairer(self.namespace, self.stores, self.known_config)
        return await repairer.repair_path(under, verify=verify)

    async def collect(self) -> CollectReport:
        """Remove deleted and replaced data that is not kept for readers any more, and orphans.

        A server with stores does it in the background.
        """
        collector = Collector(self.namespace, self.stores, self.known_config)
        while await collector.make_pass():
            pass
        return CollectReport(
            collector.unlinked, collector.collected, await collector.bytes_waiting()
        )

    async def close(self) -> None:
        """Close all open files at their flushed length, and end the holder's lease."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        aborts = [_abort(file) for file in list(self.holder.files.values())]
        await asyncio.gather(*aborts, return_exceptions=True)
        await self.tree.close(CLOSE_S)
        await self.recoverer.close()
        await self.holder.close()
        await self.stores.close()


async def _abort(file: Any) -> None:
    error = Closed("the client was closed, or opening the file was cancelled")
    with suppress(LeaseholdError, OSError):
        async with asyncio.timeout(CLOSE_S):
            await file.__aexit__(Closed, error, None)


def _not_configured(url: str) -> ValueError:
    return ValueError(f"store {url} is not configured: `leasehold files stores` lists the stores")
