"""`check_files`: compares the keys of files with what is in the replica stores. Changes nothing.

Files that are open or being recovered are reported too: a file whose writer is gone, or whose
flushed bytes no replica has, is found here.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from leasehold.engine.values import KeyValue
from leasehold.files.collector import Collector
from leasehold.files.file_keys import (
    UndecodableValue,
    block_key,
    blocks_of,
    decode_block,
    decode_record,
    id_in,
)
from leasehold.files.namespace import Namespace
from leasehold.files.opening import holder_state
from leasehold.files.replica_check import ReplicaHealth, VisitedEntry, check_replica, walk_tree
from leasehold.files.replica_io import Stores
from leasehold.files.state import Block, FileRecord, FilesConfig, FileState

BLOCKS_PER_PAGE: Final = 100
"""Blocks that are read together."""

LOOKS: Final = 3
"""How often a block is checked that is changed by others meanwhile."""

MANY_ATTEMPTS: Final = 3
"""Attempts to recover a file that have failed; from here on the file is a problem."""


class FindingKind(StrEnum):
    """The kinds of findings."""

    OPEN = "open"
    """A writer has the file open."""
    RECOVERING = "recovering"
    """The file is being recovered, or that is tried again later."""
    LOCKED = "locked"
    """The recovery has failed because no reachable replica has the flushed bytes."""
    LOST = "lost"
    """A block has no good replica in any configured store."""
    UNDER_REPLICATED = "under-replicated"
    """A block has fewer replicas than it should have."""
    MISSING_REPLICA = "missing replica"
    SHORT_REPLICA = "short replica"
    DAMAGED = "damaged"
    """A replica has other bytes than were flushed, or the key of a block is missing."""
    UNREACHABLE_STORE = "unreachable store"
    """A store cannot be used: its replicas were not checked. The first one has the reason."""
    UNDECODABLE = "undecodable"
    """The value of a key cannot be decoded, or is missing."""
    SUMMARY = "summary"
    """The last finding."""


KINDS: Final = {
    ReplicaHealth.MISSING: FindingKind.MISSING_REPLICA,
    ReplicaHealth.SHORT: FindingKind.SHORT_REPLICA,
    ReplicaHealth.DAMAGED: FindingKind.DAMAGED,
    ReplicaHealth.UNREACHABLE: FindingKind.UNREACHABLE_STORE,
}


@dataclass
class FsckSummary:
    """Counts of everything that was checked."""

    files: int = 0
    directories: int = 0
    blocks: int = 0
    bytes: int = 0
    """The flushed bytes of the files, each once."""
    problems: int = 0
    """Findings other than open files and recoveries that have just begun."""
    bytes_waiting: int = 0
    """Bytes of deleted and replaced data in all stores that the collector has not deleted yet."""


@dataclass(frozen=True)
class Finding:
    """Something about a file that an operator may want to see."""

    kind: FindingKind
    path: str = ""
    id: str = ""
    """The id of the file."""
    block: int | None = None
    """The number of a block, from 0."""
    store: str = ""
    """The id of a store."""
    detail: str = ""
    holder: str = ""
    """Of an open file: its holder."""
    elapsed_s: float | None = None
    """Of an open file: since the holder has renewed; None if its lease has ended."""
    attempts: int = 0
    """Of a recovery: attempts that have failed."""
    summary: FsckSummary | None = None

    @property
    def is_problem(self) -> bool:
        """Whether data is at risk, or cannot be read."""
        if self.kind is FindingKind.RECOVERING:
            return self.attempts >= MANY_ATTEMPTS
        return self.kind not in (FindingKind.OPEN, FindingKind.SUMMARY)


async def check_files(
    namespace: Namespace,
    stores: Stores,
    config: Callable[[], Awaitable[FilesConfig]],
    under: str = "",
    *,
    deep: bool = False,
) -> AsyncGenerator[Finding]:
    """Check a file, or all files below a directory; yield findings, the last one is a summary.

    The sizes of all replicas are compared; with `deep` also the checksums of all bytes. Raises
    `FileNotFound`.
    """
    configured = await config()
    stores.configure(configured)
    check = _Check(namespace, stores, configured, deep=deep)
    failed: set[str] = set()
    async for visited in walk_tree(namespace, under):
        async for finding in check.entry(visited):
            check.summary.problems += finding.is_problem
            if finding.kind is not FindingKind.UNREACHABLE_STORE:
                yield finding
            else:
                yield replace(finding, detail="") if finding.store in failed else finding
                failed.add(finding.store)
    for store in configured.stores:
        if store.id not in failed and (why := await stores.problem(store.id)):
            check.summary.problems += 1
            yield Finding(FindingKind.UNREACHABLE_STORE, store=store.id, detail=why)
    collector = Collector(namespace, stores, config)
    check.summary.bytes_waiting = await collector.bytes_waiting()
    yield Finding(FindingKind.SUMMARY, under, summary=check.summary)


class _Check:
    def __init__(
        self, namespace: Namespace, stores: Stores, config: FilesConfig, *, deep: bool
    ) -> None:
        self._ns = namespace
        self._stores = stores
        self._config = config
        self._configured = config.staying | config.leaving
        self._deep = deep
        self.summary = FsckSummary()

    async def entry(self, visited: VisitedEntry) -> AsyncGenerator[Finding]:
        """Check a file or directory."""
        path, link, stored = visited
        if link.is_directory:
            self.summary.directories += 1
        else:
            self.summary.files += 1
        if stored is None:
            yield Finding(FindingKind.UNDECODABLE, path, link.id, detail="the record is missing")
            return
        try:
            record = decode_record(stored.value)
        except UndecodableValue as error:
            yield Finding(FindingKind.UNDECODABLE, path, link.id, detail=str(error))
            return
        if link.is_directory:
            return
        if record.state != FileState.CLOSED:
            yield await self._state(path, link.id, record)
        async for finding in self._blocks(path, link.id, record):
            yield finding

    async def _state(self, path: str, file_id: str, record: FileRecord) -> Finding:
        if record.state == FileState.OPEN:
            state = await holder_state(self._ns, record.holder, record.holder_revision)
            elapsed_s = None if state is None else state.elapsed_s
            return Finding(
                FindingKind.OPEN, path, file_id, holder=record.holder, elapsed_s=elapsed_s
            )
        progress = await self._ns.recovery(file_id)
        return Finding(
            FindingKind.LOCKED if progress.is_locked else FindingKind.RECOVERING,
            path,
            file_id,
            detail=progress.last_error,
            attempts=progress.attempts,
        )

    # Blocks.

    async def _blocks(self, path: str, file_id: str, record: FileRecord) -> AsyncGenerator[Finding]:
        prefix = blocks_of(file_id)
        sealed = 0
        async for pairs in self._ns.pages(prefix, BLOCKS_PER_PAGE):
            for pair in pairs:
                number = id_in(pair.key, prefix)
                if not number.isdecimal():
                    continue
                sealed += int(number) < record.blocks
                for finding in await self._block(path, file_id, int(number), record, pair):
                    yield finding
        if sealed < record.blocks:
            detail = f"{record.blocks - sealed} of {record.blocks} blocks have no key"
            yield Finding(FindingKind.DAMAGED, path, file_id, detail=detail)

    async def _block(
        self, path: str, file_id: str, number: int, record: FileRecord, stored: KeyValue
    ) -> list[Finding]:
        """Check a block. Findings about one that is changed meanwhile are not reliable."""
        findings: list[Finding] = []
        block = Block(0)
        for _ in range(LOOKS):
            try:
                block = decode_block(stored.value)
            except UndecodableValue as error:
                findings = [
                    Finding(FindingKind.UNDECODABLE, path, file_id, number, detail=str(error))
                ]
            else:
                findings = await self._replicas(path, file_id, number, record, block)
            if not findings:
                break
            again = await self._ns.range(block_key(file_id, number))
            if not again.pairs:
                return []
            if again.pairs[0].mod_revision == stored.mod_revision:
                break
            stored = again.pairs[0]
        self.summary.blocks += 1
        self.summary.bytes += block.length
        return findings

    async def _replicas(
        self, path: str, file_id: str, number: int, record: FileRecord, block: Block
    ) -> list[Finding]:
        replicas = [each for each in block.replicas if each.store in self._configured]
        findings: list[Finding] = []
        staying = [each for each in replicas if each.store in self._config.staying]
        wanted = self._config.wanted
        if number < record.blocks and len(staying) < wanted:
            detail = f"{len(staying)} of {wanted} replicas"
            if leaving := len(replicas) - len(staying):
                detail += f", and {leaving} in stores that are being removed"
            findings.append(
                Finding(FindingKind.UNDER_REPLICATED, path, file_id, number, detail=detail)
            )
        checked = await asyncio.gather(
            *(check_replica(self._stores, block, each, deep=self._deep) for each in replicas)
        )
        healths = {each.health for each in checked}
        is_doubtful = healths.isdisjoint((ReplicaHealth.GOOD, ReplicaHealth.UNREACHABLE))
        if is_doubtful and await self._stores.intact_bytes(block, replicas) < block.length:
            detail = "no good replica: the block cannot be read"
            findings.append(Finding(FindingKind.LOST, path, file_id, number, detail=detail))
        findings += [
            Finding(KINDS[each.health], path, file_id, number, each.replica.store, each.why)
            for each in checked
            if each.health is not ReplicaHealth.GOOD
        ]
        return findings
