"""The repairer: gives blocks the replicas that they should have.

A sealed block that was written while a store had failed has too few replicas, and one in a store
that cannot append may have very many pieces. Both are recorded in `repair/`. The repairer works
through these keys in the background, from a random place on, at a limited rate; `repair` checks and
repairs all blocks of a file or tree without that limit.

New replicas are copied from others with all checksums compared, to objects with names of their own,
and are recorded in one transaction on condition that block and configuration are as they were. If
they are not, the copies are orphans, which the collector finds. Replicas that are missing, short or
damaged are replaced; a block never loses a replica without another one that was compared
completely. A replica in a store that is being removed is given up when the block has all its
replicas in other stores, and these were compared completely.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from leasehold.engine.interface import prefix_end
from leasehold.files.file_keys import (
    CONFIG,
    REPAIRS,
    Trash,
    UndecodableValue,
    block_key,
    block_trash_key,
    blocks_of,
    decode_block,
    decode_record,
    decode_trash,
    encode_block,
    encode_trash,
    id_in,
    record_key,
    repair_key,
    trash_of_block,
)
from leasehold.files.known_config import ConfigChanged, KnownConfig, is_current
from leasehold.files.namespace import Namespace, absent, exists, unchanged
from leasehold.files.replica_check import (
    CheckedReplica,
    ReplicaHealth,
    check_replica,
    walk_tree,
)
from leasehold.files.replica_io import COPY_BYTES, StoreFailed, Stores
from leasehold.files.state import Block, FileRecord, FilesConfig, Replica, object_name
from leasehold.files.store_changes import StoreChanges
from leasehold.files.writer import MAX_PIECES
from leasehold.keyspace.operations import Delete, Put, Range, Step

logger = logging.getLogger(__name__)

RATE_BYTES_PER_S: Final = 16 * 1024 * 1024
"""Bytes that are copied per second in the background."""

BLOCKS_PER_PASS: Final = 100
"""Blocks that one pass looks at."""

MAX_ATTEMPTS: Final = 3
"""How often a block is tried that others change meanwhile, such as another repairer."""

MAX_ERRORS: Final = 20
"""Errors that a report lists."""


@dataclass
class RepairReport:
    """Totals of one call of `Files.repair`, or of a pass in the background."""

    files: int = 0
    blocks: int = 0
    """Sealed blocks that were looked at."""
    copied: int = 0
    """Replicas that were added."""
    merged: int = 0
    """Replicas with too many pieces that were replaced."""
    dropped: int = 0
    """Replicas that were missing, short or damaged and are not listed any more."""
    incomplete: int = 0
    """Blocks that could not be repaired completely. They are tried again in the background."""
    copied_bytes: int = 0
    errors: list[str] = field(default_factory=list)
    """The first errors."""
    more_errors: int = 0
    """How many are not listed."""

    def add_error(self, where: str, why: str) -> None:
        """Add an error, unless there are too many. A reason is listed once."""
        if len(self.errors) >= MAX_ERRORS:
            self.more_errors += 1
        else:
            is_listed = any(each.endswith(f": {why}") for each in self.errors)
            self.errors.append(f"{where}, for the same reason" if is_listed else f"{where}: {why}")


class _StoredBlock(NamedTuple):
    """A sealed block, as it was read."""

    file: str
    number: int
    record: FileRecord
    block: Block
    revision: int
    """The mod revision of the block's key."""
    recorded: int
    """That of the key that records it for repair; 0 if there was none."""
    path: str
    """The path of the file; its name if the path is not known."""

    @property
    def key(self) -> bytes:
        return block_key(self.file, self.number)

    def __str__(self) -> str:
        return f"block {self.number} of {self.path!r} ({self.file})"


class _Plan(NamedTuple):
    """The replicas of a block, by what is done with them."""

    good: list[Replica]
    """In stores that stay."""
    sources: list[Replica]
    """All that can be copied: also those in stores that are being removed.

    If none is good, the bad ones and those that were replaced, provided that each byte is in one
    of them.
    """
    unknown: list[Replica]
    """Their stores do not answer. They count, and are looked at again later."""
    bad: list[Replica]
    removed: list[Replica]
    """Their stores are not configured any more."""
    leaving: list[Replica]
    """Their stores are being removed."""
    merge: list[Replica]
    """Those of `good` that have too many pieces."""
    missing: int
    """Replicas that are to be added."""
    whys: str
    """The faults of the others."""

    @property
    def is_complete(self) -> bool:
        return not (self.missing or self.bad or self.merge or self.leaving)


class Repairer:
    """Repairs blocks, in one process."""

    def __init__(
        self,
        namespace: Namespace,
        stores: Stores,
        config: KnownConfig,
    ) -> None:
        self._ns = namespace
        self._stores = stores
        self._config = config
        self._start = self._place = self._end = b""
        """Where the round began, its next key (empty between two rounds), and where it ends."""
        self._is_second_half = False
        self._changes = StoreChanges(namespace)
        self.repaired = 0
        """Blocks that were changed."""

    # In the background.

    async def make_pass(self, limit: int = BLOCKS_PER_PASS) -> bool:
        """Repair some of the recorded blocks; return whether there is more to do now."""
        is_scan_left = await self._changes.make_pass()
        return await self._repair_recorded(limit) or is_scan_left

    async def _repair_recorded(self, limit: int) -> bool:
        if not self._place:
            self._place = self._start = REPAIRS + self._ns.new_id().encode()
            self._end, self._is_second_half = prefix_end(REPAIRS), False
        found = await self._ns.range(self._place, self._end, limit=limit)
        report = RepairReport()
        for pair in found.pairs:
            file_id, _, number = id_in(pair.key, REPAIRS).partition("/")
            self._place = pair.key + b"\0"
            if not number.isdecimal():
                continue
            begun, before = self._ns.clock.monotonic(), report.copied_bytes
            await self._repair_block(file_id, int(number), report, verify=False)
            needed_s = (report.copied_bytes - before) / RATE_BYTES_PER_S
            await asyncio.sleep(max(0.0, begun + needed_s - self._ns.clock.monotonic()))
        for error in report.errors:
            logger.warning("%s", error)
        if report.more_errors:
            logger.warning("%d more errors of the repair were not logged", report.more_errors)
        if found.more:
            return True
        if self._is_second_half:
            self._place = b""
            return False
        self._place, self._end, self._is_second_half = REPAIRS, self._start, True
        return True

    # For operators.

    async def repair_path(self, under: str = "", *, verify: bool = False) -> RepairReport:
        """Check and repair a file, or all files below a directory. Raises `FileNotFound`.

        Sizes are checked; with `verify` all bytes are read, and their checksums compared.
        """
        report = RepairReport()
        async for path, link, _ in walk_tree(self._ns, under):
            if not link.is_directory:
                await self._repair_file(link.id, report, verify=verify, path=path)
                await self._add_locked(link.id, report, path)
        return report

    async def _add_locked(self, file_id: str, report: RepairReport, path: str) -> None:
        """Add the error of a recovery that has failed: the last block of that file is skipped."""
        recovery = await self._ns.recovery(file_id)
        if recovery.is_locked:
            report.add_error(f"{path!r} is locked", recovery.last_error)

    async def repair(self, file_id: str, *, verify: bool = False) -> RepairReport:
        """Check and repair one file, as `repair_path` does."""
        report = RepairReport()
        await self._repair_file(file_id, report, verify=verify)
        return report

    async def _repair_file(
        self, file_id: str, report: RepairReport, *, verify: bool, path: str = ""
    ) -> None:
        report.files += 1
        prefix = blocks_of(file_id)
        async for pairs in self._ns.pages(prefix, BLOCKS_PER_PASS):
            for pair in pairs:
                number = id_in(pair.key, prefix)
                if number.isdecimal():
                    await self._repair_block(file_id, int(number), report, verify=verify, path=path)

    # One block.

    async def _repair_block(
        self, file_id: str, number: int, report: RepairReport, *, verify: bool, path: str = ""
    ) -> None:
        report.blocks += 1
        for _ in range(MAX_ATTEMPTS):
            with suppress(ConfigChanged):
                if await self._try(file_id, number, report, verify=verify, path=path):
                    return
        report.incomplete += 1
        report.add_error(f"block {number} of {path or file_id!r}", "it is changed by others")

    async def _try(
        self, file_id: str, number: int, report: RepairReport, *, verify: bool, path: str
    ) -> bool:
        """Repair a block, as far as possible now; return False if others have changed it."""
        try:
            stored = await self._read(file_id, number, path)
        except UndecodableValue as error:
            report.incomplete += 1
            report.add_error(f"block {number} of {path!r} ({file_id})", str(error))
            return True
        if stored is None:
            report.blocks -= 1
            return True
        config = await self._config()
        self._stores.configure(config)
        plan = await self._plan(stored, config, verify=verify)
        if plan.bad and not plan.missing and not verify:
            # Nothing is copied, so the good ones are compared before a bad one is given up.
            verify = True
            plan = await self._plan(stored, config, verify=True)
        if plan.is_complete and (plan.good or not plan.unknown):
            await self._set_recorded(stored, config, is_recorded=bool(plan.unknown))
            return True
        if not path:
            stored = stored._replace(path=await self._path(stored))
        if not plan.sources:
            report.incomplete += 1
            whys = plan.whys or "its stores were removed from the configuration"
            report.add_error(f"{stored} cannot be read", whys)
            return True
        return await self._carry_out(stored, plan, config, report, verify=verify)

    async def _read(self, file_id: str, number: int, path: str) -> _StoredBlock | None:
        """Return a sealed block; None if there is none."""
        keys = (record_key(file_id), block_key(file_id, number))
        reads = [Range(key) for key in (*keys, repair_key(file_id, number))]
        done = await self._ns.txn([], reads)
        records, blocks, repairs = (result.pairs for result in done.results)
        if not records or not blocks:
            compares = [
                unchanged(key, pairs[0].mod_revision if pairs else 0)
                for key, pairs in zip(keys, (records, blocks), strict=True)
            ]
            await self._ns.txn(compares, [Delete(repair_key(file_id, number))])
            return None
        record = decode_record(records[0].value)
        if number >= record.blocks:  # its writer, or its recovery, may change it
            return None
        block = decode_block(blocks[0].value)
        path = path or record.name
        recorded = repairs[0].mod_revision if repairs else 0
        revision = blocks[0].mod_revision
        return _StoredBlock(file_id, number, record, block, revision, recorded, path)

    async def _path(self, stored: _StoredBlock) -> str:
        with suppress(UndecodableValue):
            if (chain := await self._ns.chain_of(stored.file)) is not None:
                return chain.path
        return stored.path

    async def _plan(self, stored: _StoredBlock, config: FilesConfig, *, verify: bool) -> _Plan:
        block = stored.block
        staying, leaving = config.staying, config.leaving
        given_up = [each for each in block.replicas if each.store in leaving]
        everywhere: Sequence[CheckedReplica] = await asyncio.gather(
            *(
                check_replica(self._stores, block, each, deep=verify or bool(given_up))
                for each in block.replicas
                if each.store in staying | leaving
            )
        )
        checked = [each for each in everywhere if each.replica.store in staying]
        good = [each.replica for each in checked if each.health is ReplicaHealth.GOOD]
        unknown = [each.replica for each in checked if each.health is ReplicaHealth.UNREACHABLE]
        sources = [each.replica for each in everywhere if each.health is ReplicaHealth.GOOD]
        if not sources:  # the bad ones, and those before a recovery, may have all bytes together
            others = [each.replica for each in everywhere if each.is_bad]
            others += await self._replaced(stored)
            if await self._stores.intact_bytes(block, others) == block.length:
                sources = others
        pieces = -(-block.length // COPY_BYTES)
        return _Plan(
            good,
            sources,
            unknown,
            [each.replica for each in checked if each.is_bad],
            [each for each in block.replicas if each.store not in staying | leaving],
            given_up,
            [each for each in good if len(each.pieces) >= max(MAX_PIECES, pieces + 1)],
            max(0, config.wanted - len(good) - len(unknown)),
            "; ".join(each.why for each in everywhere if each.why),
        )

    async def _replaced(self, stored: _StoredBlock) -> list[Replica]:
        """Return the replicas that a block has had: they stay while it is recorded for repair."""
        prefix = trash_of_block(stored.file, stored.number)
        found = await self._ns.range(prefix, prefix_end(prefix))
        replicas: list[Replica] = []
        for pair in found.pairs:
            with suppress(UndecodableValue):
                replicas += decode_trash(pair.value).replicas
        return replicas

    async def _carry_out(
        self,
        stored: _StoredBlock,
        plan: _Plan,
        config: FilesConfig,
        report: RepairReport,
        *,
        verify: bool,
    ) -> bool:
        if (begun := await self._begin(stored)) is None:
            return False
        merged: dict[Replica, Replica] = {}
        for each in plan.merge:
            if copy := await self._copy(stored, plan.sources, each.store, report):
                merged[each] = copy
        added: list[Replica] = []
        used = [each.store for each in (*plan.good, *plan.unknown)]
        for store in self._stores.spare(config, used):
            if len(added) == plan.missing:
                break
            if copy := await self._copy(stored, plan.sources, store, report):
                added.append(copy)
        # Whether the bytes of one that stays were compared.
        is_sure = bool(((verify or plan.leaving) and plan.good) or merged or added)
        dropped = plan.bad if is_sure else []
        has_others = is_sure and len(added) == plan.missing and not plan.unknown
        left = plan.leaving if has_others else []
        gone = {*merged, *dropped, *left, *(plan.removed if is_sure else ())}
        kept = [each for each in stored.block.replicas if each not in gone]
        is_complete = (
            len(added) == plan.missing
            and len(merged) == len(plan.merge)
            and (dropped, left, plan.unknown) == (plan.bad, plan.leaving, [])
        )
        replicas = (*kept, *merged.values(), *added)
        replaced = [*merged, *dropped, *left]
        if not await self._publish(
            stored, begun, replicas, replaced, config=config, is_complete=is_complete
        ):
            return False
        report.incomplete += not is_complete
        self.repaired += bool(gone or added)
        report.copied += len(added)
        report.merged += len(merged)
        report.dropped += len(dropped)
        return True

    async def _set_recorded(
        self, stored: _StoredBlock, config: FilesConfig, *, is_recorded: bool
    ) -> None:
        """Have a block looked at again later, or not any more.

        Unless others have changed or recorded it since it was read.
        """
        key = repair_key(stored.file, stored.number)
        if bool(stored.recorded) == is_recorded:
            return
        step = Put(key, b"") if is_recorded else Delete(key)
        compares = [
            unchanged(stored.key, stored.revision),
            unchanged(key, stored.recorded),
            is_current(config),
        ]
        done = await self._ns.txn(compares, [step], [Range(CONFIG)])
        if not done.succeeded:
            self._config.check(config, done.results[0].pairs)

    async def _begin(self, stored: _StoredBlock) -> int | None:
        """Return the revision of the key that records a block for repair; None to look again.

        A collector that deletes old objects without a name, such as the copies of a repairer that
        was stopped, writes that key before. So these copies cannot get a name any more. Repairers
        do not write it: the first one that publishes its copies wins.
        """
        key = repair_key(stored.file, stored.number)
        compares = [
            exists(record_key(stored.file)),
            unchanged(stored.key, stored.revision),
            absent(key),
        ]
        done = await self._ns.txn(compares, [Put(key, b"")], [Range(key)])
        if done.succeeded:
            return done.revision
        pairs = done.results[0].pairs
        return pairs[0].mod_revision if pairs else None

    async def _copy(
        self, stored: _StoredBlock, sources: list[Replica], store: str, report: RepairReport
    ) -> Replica | None:
        """Copy a block to new objects of a store; None if that is not possible now."""
        tag = self._ns.new_tag()
        name = object_name(stored.file, stored.number, stored.block.stamp, tag)
        try:
            copy = await self._stores.copy(stored.block, sources, Replica(store, name))
        except StoreFailed as error:
            report.add_error(f"{stored} cannot be copied", str(error))
            return None
        report.copied_bytes += stored.block.length
        return copy

    async def _publish(
        self,
        stored: _StoredBlock,
        begun: int,
        replicas: Sequence[Replica],
        replaced: Sequence[Replica],
        *,
        config: FilesConfig,
        is_complete: bool,
    ) -> bool:
        """Record the replicas of a block, if it is as it was; return whether it was done."""
        op = self._ns.new_id()
        repair = repair_key(stored.file, stored.number)
        steps: list[Step] = [Delete(repair) if is_complete else Put(repair, b"")]
        if tuple(replicas) != stored.block.replicas:
            changed = replace(stored.block, replicas=tuple(replicas), op=op)
            steps.append(Put(stored.key, encode_block(changed)))
        if replaced:
            trash = Trash(replicas=tuple(replaced), length=stored.block.length)
            key = block_trash_key(stored.file, stored.number, op)
            steps.append(Put(key, encode_trash(trash)))
        compares = [
            exists(record_key(stored.file)),
            unchanged(stored.key, stored.revision),
            unchanged(repair, begun),
            is_current(config),
        ]
        done = await self._ns.txn(compares, steps, [Range(stored.key), Range(CONFIG)])
        if done.succeeded:
            return True
        pairs, configs = (result.pairs for result in done.results)
        self._config.check(config, configs)
        return bool(pairs) and decode_block(pairs[0].value).op == op  # the answer was lost
