"""The collector: removes what was deleted or replaced, in passes of limited work.

It has three tasks:

- *Unlinked directories.* Deleting a tree unlinks its root only. The collector unlinks the entries
  below it, so that writers lose their files and the data of all files waits to be deleted.
- *Unlinked files and replaced blocks.* Their objects stay for `FilesConfig.keep_s`, for readers
  that have opened the file before. Then they are deleted from the stores, and after them the keys.
  The trash entry of a file or directory stays for `LATE_S` at least: transactions that make one
  compare it, so that a late copy of one does not make it again.
- *Orphans.* A writer or a recovery that has failed leaves objects that no block names. They are
  found by listing the stores. An object is an orphan if it is older than
  `FilesConfig.orphan_s`, and if neither a block nor a trash entry names it. Objects whose stamp is
  the current one of a file that is open or being recovered may still be named, and objects with
  greater stamps are those of writers that this process has not seen yet: both are left alone.
  An object in each store names the keyspace that it belongs to: in a store of another keyspace, or
  of one that was restored from a backup, nothing is deleted until an operator claims it.

Several collectors may run: deletes can be repeated, and changes of keys are conditional. A store
that fails delays no other one: the objects that it still has stay recorded for a later pass.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue
from leasehold.files import state
from leasehold.files.file_keys import (
    OPEN_FILES,
    TRASH,
    Trash,
    UndecodableValue,
    block_key,
    blocks_of,
    decode_block,
    decode_record,
    decode_trash,
    encode_block,
    encode_trash,
    entries_of,
    id_in,
    record_key,
    recovery_key,
    repair_key,
    repairs_of,
    trash_key,
    trash_of_block,
    worker_key,
)
from leasehold.files.namespace import (
    READS,
    Chain,
    FoundFile,
    Link,
    Namespace,
    absent,
    entry_is,
    exists,
    link_of,
    unchanged,
)
from leasehold.files.replica_io import STORE_S, StoreFailed, Stores, together
from leasehold.files.replica_store import ReplicaStore, StoredObject
from leasehold.files.state import (
    Block,
    FileRecord,
    FilesConfig,
    FileState,
    ObjectName,
    Replica,
    parse_object,
)
from leasehold.files.tree_changes import TreeChanges
from leasehold.keyspace.operations import Delete, Put, Range, Step

logger = logging.getLogger(__name__)

ENTRIES_PER_PASS: Final = 500
"""Trash entries that one pass looks at."""

CHILDREN_PER_PASS: Final = 500
"""Entries of an unlinked directory that one pass unlinks."""

BLOCKS_PER_PASS: Final = 100
"""Blocks of an unlinked file whose objects one pass deletes."""

LISTED_PER_PASS: Final = 1_000
"""Objects of a store that one pass lists, to find orphans."""

ROUND_S: Final = 3_600.0
"""The time between two looks at all objects of a store."""

HANGING_S: Final = 600.0
"""How long nothing is deleted in a store that has not answered: each call holds up a pass."""

CONCURRENT_CHANGES: Final = 16
"""Changes that are made at the same time."""


class _Round:
    """A look at all objects of one store."""

    def __init__(self) -> None:
        self.after = ""
        """The last object that was listed; empty at the beginning."""
        self.begins_at = 0.0


@dataclass(frozen=True)
class CollectReport:
    """The totals of one call of `Files.collect`."""

    unlinked: int
    """Files and directories below deleted directories."""
    objects: int
    """Objects that were deleted from stores."""
    bytes_waiting: int
    """Bytes of deleted and replaced data that are kept for a while."""


class Collector:
    """Removes deleted and replaced data, in one process."""

    def __init__(
        self,
        namespace: Namespace,
        stores: Stores,
        config: Callable[[], Awaitable[FilesConfig]],
    ) -> None:
        self._ns = namespace
        self._stores = stores
        self._config = config
        self._tree = TreeChanges(namespace)
        self._turns = asyncio.Semaphore(CONCURRENT_CHANGES)
        self._next_entry = TRASH
        self._next_blocks: dict[str, bytes] = {}
        """Unlinked files of which some blocks were looked at, and the next block of each."""
        self._has_new_entries = False
        self._failing: set[str] = set()
        """Stores that are not called in this pass: it may not use them, or they have failed."""
        self._hanging: dict[str, float] = {}
        """Stores that have not answered a delete, and until when they are left alone."""
        self._rounds: dict[str, _Round] = {}
        self.unlinked = 0
        """Entries below deleted directories that were unlinked."""
        self.collected = 0
        """Objects that were deleted."""
        self.orphans = 0
        """Those of them that no key has named."""

    async def make_pass(self) -> bool:
        """Remove some of what can be removed; return whether there is more."""
        config = await self._config()
        self._stores.configure(config)
        now = self._ns.clock.monotonic()
        self._hanging = {each: until for each, until in self._hanging.items() if now < until}
        self._failing = {each.id for each in config.stores if not self._stores.may_use(each.url)}
        self._failing |= self._hanging.keys()
        are_entries_left = await self._empty_trash(config)
        are_objects_left = await self._find_orphans(config)
        return are_entries_left or are_objects_left

    async def bytes_waiting(self) -> int:
        """Return the bytes in all stores that wait to be deleted, except for those of orphans."""
        total = 0
        async for pairs in self._ns.pages(TRASH):
            for pair in pairs:
                try:
                    trash = decode_trash(pair.value)
                except UndecodableValue:
                    continue
                total += trash.length * len(trash.replicas)
                file_id = id_in(pair.key, TRASH)
                if not trash.is_directory and "/" not in file_id:
                    total += await self._stored_bytes(file_id)
        return total

    async def _stored_bytes(self, file_id: str) -> int:
        total = 0
        async for pairs in self._ns.pages(blocks_of(file_id)):
            for pair in pairs:
                try:
                    block = decode_block(pair.value)
                except UndecodableValue:
                    continue
                total += block.length * len(block.replicas)
        return total

    # Trash entries.

    async def _empty_trash(self, config: FilesConfig) -> bool:
        """Work through one page of entries; return whether there is more to do now."""
        end = prefix_end(TRASH)
        found = await self._ns.range(self._next_entry, end, limit=ENTRIES_PER_PASS)
        unfinished: list[bytes] = []

        async def empty(pair: KeyValue) -> None:
            async with self._turns:
                if await self._empty(pair, config):
                    unfinished.append(pair.key)

        await asyncio.gather(*map(empty, found.pairs))
        if unfinished:
            self._next_entry = min(unfinished)
            return True
        if found.more:
            self._next_entry = found.pairs[-1].key + b"\0"
            return True
        # Unlinked directories have become entries anywhere, also where this round has been.
        self._next_entry = TRASH
        is_left, self._has_new_entries = self._has_new_entries, False
        return is_left

    async def _empty(self, pair: KeyValue, config: FilesConfig) -> bool:
        """Do what is to be done for one entry; return whether a part of it can be done now."""
        try:
            trash = decode_trash(pair.value)
        except UndecodableValue as error:
            shown = pair.key.decode(errors="replace")
            logger.error("the data of deleted file %r is not deleted: %s", shown, error)
            return False
        file_id, _, replaced = id_in(pair.key, TRASH).partition("/")
        if trash.is_directory:
            return await self._unlink_children(file_id, pair, trash)
        if not 0 < trash.since_ms <= self._ns.now_ms:
            # The clocks of clients are not trusted, nor one that was ahead: readers may need it.
            trash = replace(trash, since_ms=self._ns.now_ms)
            written = Put(pair.key, encode_trash(trash))
            done = await self._ns.txn([unchanged(pair.key, pair.mod_revision)], [written])
            return done.succeeded and not config.keep_s
        if trash.since_ms + config.keep_s * 1000 > self._ns.now_ms:
            return False
        if replaced:
            await self._delete_replaced(file_id, replaced, pair, trash, config)
            return False
        return await self._delete_file(file_id, pair, trash, config)

    # Unlinked directories.

    async def _unlink_children(self, directory: str, pair: KeyValue, trash: Trash) -> bool:
        prefix = entries_of(directory)
        end = prefix_end(prefix)
        page = await self._ns.range(prefix, end, limit=CHILDREN_PER_PASS)
        links = [
            link_of(directory, pair.key[len(prefix) :].decode(errors="replace"), pair.value)
            for pair in page.pairs
        ]
        unlinked = 0
        for first in range(0, len(links), READS):
            some = links[first : first + READS]
            done = await self._ns.txn([], [Range(record_key(link.id)) for link in some])
            for link, result in zip(some, done.results, strict=True):
                record = result.pairs[0] if result.pairs else None
                unlinked += await self._unlink(link, record)
        if page.more or unlinked < len(links):
            return bool(unlinked)
        # A writer or rename compares the entries up to the root, so none comes in between.
        emptied = replace(trash, is_directory=False)
        await self._ns.txn(
            [absent(prefix, end), unchanged(pair.key, pair.mod_revision)],
            [Delete(record_key(directory)), Put(pair.key, encode_trash(emptied))],
        )
        return False

    async def _unlink(self, link: Link, stored: KeyValue | None) -> bool:
        """Unlink one entry, and end the lease of its writer; return whether it was done."""
        record = FileRecord(link.parent, link.name, link.is_directory)
        revision = 0 if stored is None else stored.mod_revision
        left: list[Step] = []
        if stored is not None:
            try:
                record = decode_record(stored.value)
            except UndecodableValue as error:
                logger.error(
                    "file %r (%s) is deleted, although its record cannot be decoded: %s",
                    link.name,
                    link.id,
                    error,
                )
                left = [Delete(recovery_key(link.id)), Delete(worker_key(link.id))]
                left += [Delete(key) for key in await self._open_keys(link.id)]
        found = FoundFile(Chain((link,)), record, revision, 0)
        entry = entry_is(link)
        done = await self._ns.txn(
            [entry, unchanged(record_key(link.id), revision)],
            [Delete(entry.key), *self._tree.unlink_steps(found), *left],
        )
        self.unlinked += done.succeeded
        self._has_new_entries |= done.succeeded and link.is_directory
        return done.succeeded

    async def _open_keys(self, file_id: str) -> list[bytes]:
        """Return the keys under which holders have a file open, when its record has no holder."""
        end = b"/" + file_id.encode()
        return [
            pair.key
            async for pairs in self._ns.pages(OPEN_FILES)
            for pair in pairs
            if pair.key.endswith(end)
        ]

    # Data.

    async def _delete_file(
        self, file_id: str, entry: KeyValue, trash: Trash, config: FilesConfig
    ) -> bool:
        """Delete objects of an unlinked file, and the keys of their blocks."""
        prefix = blocks_of(file_id)
        end = prefix_end(prefix)
        after = self._next_blocks.get(file_id, prefix)
        page = await self._ns.range(after, end, limit=BLOCKS_PER_PASS)
        for pair in page.pairs:
            await self._delete_block(file_id, pair, config)
        if page.more:
            self._next_blocks[file_id] = page.pairs[-1].key + b"\0"
            return True
        self._next_blocks.pop(file_id, None)
        if trash.since_ms + state.LATE_S * 1000 > self._ns.now_ms:
            return False
        repairs = repairs_of(file_id)
        await self._ns.txn(
            [absent(prefix, end), absent(record_key(file_id))],
            [Delete(entry.key), Delete(repairs, prefix_end(repairs))],
        )
        return False

    async def _delete_block(self, file_id: str, pair: KeyValue, config: FilesConfig) -> None:
        try:
            block = decode_block(pair.value)
        except UndecodableValue as error:  # its objects are found as orphans
            logger.error("objects of a block of file %s are deleted later: %s", file_id, error)
            block = Block(0)
        left = await self._delete_replicas(block.replicas, config)
        step: Step
        if not left:
            step = Delete(pair.key)
        elif left != block.replicas:
            step = Put(pair.key, encode_block(replace(block, replicas=left)))
        else:
            return
        # A block that a repair has changed meanwhile has other replicas: they are next.
        await self._ns.txn([unchanged(pair.key, pair.mod_revision)], [step])

    async def _delete_replaced(
        self, file_id: str, replaced: str, pair: KeyValue, trash: Trash, config: FilesConfig
    ) -> None:
        """Delete the objects that were replaced by others of the same block."""
        number = replaced.partition("-")[0]
        if not number.isdecimal():
            shown = pair.key.decode(errors="replace")
            logger.error("replaced data is not deleted: key %r has no block number", shown)
            return
        if (await self._ns.range(repair_key(file_id, int(number)))).pairs:
            return  # the block has too few replicas: those that it had before may be needed
        stored = await self._ns.range(block_key(file_id, int(number)))
        try:
            used = _named(stored.pairs, ())
        except UndecodableValue as error:
            logger.error("replaced data of file %s is not deleted: %s", file_id, error)
            return
        unused = [
            each
            for each in trash.replicas
            if not used.intersection((each.store, name) for name in each.objects())
        ]
        left = await self._delete_replicas(unused, config)
        if not left:
            step: Step = Delete(pair.key)
        elif left != trash.replicas:
            step = Put(pair.key, encode_trash(replace(trash, replicas=left)))
        else:
            return
        await self._ns.txn([unchanged(pair.key, pair.mod_revision)], [step])

    async def _delete_replicas(
        self, replicas: Iterable[Replica], config: FilesConfig
    ) -> tuple[Replica, ...]:
        """Delete replicas; return those whose stores have failed.

        A store that is not configured any more counts as empty. If it is added again, its objects
        are orphans.
        """
        configured = {store.id for store in config.stores}
        left: list[Replica] = []
        for replica in replicas:
            if replica.store not in configured:
                continue
            deletes = (partial(self._delete, replica.store, name) for name in replica.objects())
            if not all(await together(deletes)):
                left.append(replica)
        return tuple(left)

    async def _delete(self, store: str, name: str) -> bool:
        """Delete an object; return whether it is gone."""
        if store in self._failing:
            return False
        begun = self._ns.clock.monotonic()
        try:
            await self._stores.delete(store, name)
        except StoreFailed as error:
            if store not in self._failing:
                logger.warning("objects cannot be deleted now: %s", error)
            self._failing.add(store)
            if (now := self._ns.clock.monotonic()) >= begun + STORE_S:
                self._hanging[store] = now + HANGING_S
            return False
        self.collected += 1
        return True

    # Orphans.

    async def _find_orphans(self, config: FilesConfig) -> bool:
        """Look at one page of each store; return whether there are more to look at now."""
        configured = {store.id for store in config.stores}
        for store in self._rounds.keys() - configured:
            del self._rounds[store]
        looks = (self._look_at(store, config) for store in sorted(configured))
        return any(await asyncio.gather(*looks))

    async def _look_at(self, store: str, config: FilesConfig) -> bool:
        this = self._rounds.setdefault(store, _Round())
        now = self._ns.clock.monotonic()
        if store in self._failing or (not this.after and now < this.begins_at):
            return False

        async def listed(each: ReplicaStore) -> Sequence[StoredObject]:
            return await each.list(this.after, LISTED_PER_PASS)

        try:
            page = await self._stores.call(store, listed)
        except StoreFailed as error:
            logger.warning("a store cannot be searched for unreferenced objects now: %s", error)
            this.begins_at = now + ROUND_S
            return False
        for each in page:
            parsed = parse_object(each.name)  # None if it was not made here
            if parsed is None or each.age_s <= config.orphan_s:
                continue
            if await self._is_orphan(store, each.name, parsed) and (
                not await self._is_fenced(parsed) or await self._is_orphan(store, each.name, parsed)
            ):
                self.orphans += await self._delete(store, each.name)
        if len(page) == LISTED_PER_PASS:
            this.after = page[-1].name
            return True
        this.after, this.begins_at = "", now + ROUND_S
        return False

    async def _is_fenced(self, parsed: ObjectName) -> bool:
        """Return whether a repair of a block may have begun; then it can record nothing any more.

        A repairer may be about to name an object that it has copied long ago.
        """
        key = repair_key(parsed.file, parsed.number)
        return (await self._ns.txn([exists(key)], [Put(key, b"")])).succeeded

    async def _is_orphan(self, store: str, name: str, parsed: ObjectName) -> bool:
        """Return whether no key names an object, and none can come to name it."""
        replaced = trash_of_block(parsed.file, parsed.number)
        reads = [
            Range(record_key(parsed.file)),
            Range(block_key(parsed.file, parsed.number)),
            Range(trash_key(parsed.file)),
            Range(replaced, prefix_end(replaced)),
        ]
        record, block, trash, entries = (
            result.pairs for result in (await self._ns.txn([], reads)).results
        )
        try:
            if (store, name) in _named(block, entries):
                return False
            if not record:
                return not trash  # otherwise it is next, once the trash entry is gone
            return _is_superseded(decode_record(record[0].value), parsed.stamp)
        except UndecodableValue as error:
            logger.error("objects of file %s are not deleted: %s", parsed.file, error)
            return False


def _is_superseded(record: FileRecord, stamp: int) -> bool:
    """Return whether no writer or recovery of a file can name objects of a stamp any more."""
    match record.state:
        case FileState.CLOSED:
            return stamp <= record.stamp
        case FileState.OPEN | FileState.RECOVERING:
            return stamp < record.stamp


def _named(blocks: Sequence[KeyValue], entries: Sequence[KeyValue]) -> set[tuple[str, str]]:
    """Return the objects that blocks and trash entries name: stores and names."""
    replicas = [
        *(each for pair in blocks for each in decode_block(pair.value).replicas),
        *(each for pair in entries for each in decode_trash(pair.value).replicas),
    ]
    return {(each.store, name) for each in replicas for name in each.objects()}
