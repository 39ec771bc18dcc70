"""`HeldFile`: a file that a holder has open, and the transactions of its one writer.

Each transaction compares the holder's key, the record, the current block and all entries up to the
root, and, unless it is independent of the stores, the configuration. If it fails, the file was
renamed, and it is repeated; or it was taken over, deleted or replaced, and the writer has lost it;
or the configuration was changed, and the writer makes another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import ref

from leasehold.engine.values import KeyValue, TxnResult
from leasehold.errors import FileNotFound, LeaseExpired, RecoveryInProgress, fresh
from leasehold.files.file_keys import (
    CONFIG,
    block_key,
    decode_block,
    decode_record,
    encode_record,
    holder_key,
    record_key,
)
from leasehold.files.holder import FileHolder, LiveHolder, OpenedFile
from leasehold.files.known_config import ConfigChanged, KnownConfig, is_current
from leasehold.files.namespace import (
    MAX_CONFLICTS,
    FoundFile,
    Namespace,
    conflicted,
    unchanged,
)
from leasehold.files.state import FileRecord, FilesConfig, FileState
from leasehold.keyspace.operations import Put, Range, Step


class _Found(NamedTuple):
    """The keys as read by a failed transaction."""

    record: KeyValue | None
    block: KeyValue | None
    holder: KeyValue | None


class WriterTxn(NamedTuple):
    """A transaction of a writer, of which it may not get the outcome."""

    op: str
    applied: Callable[[], None]
    """To be called if it was executed."""
    record: FileRecord | None = None
    """The record that it writes, if it does."""


class HeldFile:
    """The state of a file that is open for writing, as its writer has last written it."""

    def __init__(
        self,
        namespace: Namespace,
        config: KnownConfig,
        holder: FileHolder,
        writer: OpenedFile,
        live: LiveHolder,
        found: FoundFile,
    ) -> None:
        self._ns = namespace
        self._config = config
        self._holder = holder
        self._writer = ref(writer)
        self.live = live
        self.id = found.id
        self.record = found.record
        self._chain = found.chain
        self._revision = found.revision
        self._block_revision = 0
        self._unanswered: WriterTxn | None = None
        self._lost: LeaseExpired | FileNotFound | None = None

    @property
    def path(self) -> str:
        """The path, as of the last transaction that has read it."""
        return self._chain.path

    def lost(self, why: str) -> None:
        """Record that the lease is lost."""
        if self._lost is None:
            self._lost = LeaseExpired(self.path, f"the writer's lease is lost: {why}")

    def unlinked(self, why: str) -> None:
        """Record that the file was deleted or replaced."""
        if self._lost is None:
            self._lost = FileNotFound(self.path, why)

    @property
    def is_lost(self) -> bool:
        """Whether the file is lost for this writer."""
        return self._lost is not None

    def check(self) -> None:
        """Raise if the file is lost for this writer."""
        if self._lost is not None:
            raise fresh(self._lost)

    def begin_block(self) -> None:
        """Begin a block that has no key yet."""
        self._block_revision = 0

    async def settle(self, applied: Callable[[], None]) -> None:
        """After a transaction without an answer: raise the stamp, so that it cannot follow later.

        `applied` is called if the stamp was raised, and not if the earlier transaction turns out to
        have been executed: then that one is taken over.
        """
        earlier = self._unanswered
        if earlier is None:
            return
        op = f"{earlier.op}-settled"  # the same in each attempt, so that none is mistaken

        def steps(record: FileRecord) -> list[Step]:
            record = replace(record, stamp=record.stamp + 1, op=op)
            return [Put(record_key(self.id), encode_record(record))]

        await self.commit(steps, WriterTxn(op, applied), earlier=earlier)
        self._unanswered = None

    async def verify(self) -> None:
        """Raise if this writer has lost the file; nothing is written."""
        await self.commit(lambda _record: [], WriterTxn(self._ns.new_id(), lambda: None))

    async def commit(
        self,
        steps: Callable[[FileRecord], list[Step]],
        txn: WriterTxn,
        *,
        config: FilesConfig | None = None,
        earlier: WriterTxn | None = None,
    ) -> None:
        """Execute a transaction of the writer, and take over what it has written.

        If `earlier`, of unknown outcome, turns out to have been executed, that is taken over
        instead. `config` is the configuration that the steps were made with: if there is another
        one, `ConfigChanged` is raised, and the transaction is not executed later either.
        """
        record, block = record_key(self.id), block_key(self.id, self.record.blocks)
        reads = [Range(key) for key in (record, block, holder_key(self.live.id), CONFIG)]
        txn = txn._replace(record=_record_in(steps(self.record), record))
        before, self._unanswered = self._unanswered, earlier or txn  # until there is a result
        for _ in range(MAX_CONFLICTS):
            compares = [
                self.live.is_live(),
                unchanged(record, self._revision),
                unchanged(block, self._block_revision),
                *self._chain.compares(),
            ]
            if config is not None:
                compares.append(is_current(config))
            made = steps(self.record)
            done = await self._ns.txn(compares, made, reads)
            if done.succeeded:
                self._written(made, record, block, done.revision)
                self._unanswered = before
                txn.applied()
                return
            found = _found(done)
            for each in filter(None, (txn, earlier)):
                if self._has_executed(found, each):
                    self._unanswered = before
                    each.applied()
                    return
            await self._look_again(found)
            if config is not None:
                try:
                    self._config.check(config, done.results[-1].pairs)
                except ConfigChanged:
                    self._unanswered = before  # the transaction is not executed later either
                    raise
        raise conflicted(repr(self.path), "renamed by other clients")

    def _written(self, steps: Sequence[Step], record: bytes, block: bytes, revision: int) -> None:
        for step in steps:
            if isinstance(step, Put) and step.value is not None:
                if step.key == record:
                    self.record, self._revision = decode_record(step.value), revision
                elif step.key == block:
                    self._block_revision = revision

    def _has_executed(self, found: _Found, txn: WriterTxn) -> bool:
        """Return whether a transaction was executed, and take over what it has written."""
        record = None if found.record is None else decode_record(found.record.value)
        block_op = "" if found.block is None else decode_block(found.block.value).op
        if record is None or found.record is None or txn.op not in (record.op, block_op):
            return False
        stamp = (txn.record or self.record).stamp
        is_own = self._is_own(record) and record.state == FileState.OPEN and record.stamp == stamp
        if record.op == txn.op or is_own:
            self.record, self._revision = record, found.record.mod_revision
        elif txn.record is not None:
            # Others have the file since. Their record must not become that of this writer: its
            # next transaction compares the revision before, fails, and finds out.
            self.record = txn.record
        if found.block is not None:
            self._block_revision = found.block.mod_revision
        return True

    def _is_own(self, record: FileRecord) -> bool:
        return (record.holder, record.holder_revision) == (self.live.id, self.live.revision)

    async def _look_again(self, found: _Found) -> None:
        """Read where the file is now. Raises the error if this writer has lost it."""
        if found.record is None:
            raise self._ended_by(FileNotFound(self.path, "the file was deleted or replaced"))
        record = decode_record(found.record.value)
        is_own = self._is_own(record)
        if is_own and record.state == FileState.RECOVERING:
            raise RecoveryInProgress(self.path)
        if not is_own or record.state != FileState.OPEN or record.stamp != self.record.stamp:
            if is_own and record.state == FileState.OPEN:
                # Opened again for this holder by a request whose answer was lost: without a writer.
                self._holder.abandon(self.id, self._writer())
            raise self._ended_by(LeaseExpired(self.path, "the file was taken over"))
        if found.holder is None or found.holder.create_revision != self.live.revision:
            self._holder.gone(self.live)
            raise self._ended_by(LeaseExpired(self.path))
        chain = await self._ns.chain_of(self.id)
        if chain is None:
            raise self._ended_by(FileNotFound(self.path, "the file was deleted"))
        self._chain, self.record, self._revision = chain, record, found.record.mod_revision

    def _ended_by(self, error: LeaseExpired | FileNotFound) -> LeaseExpired | FileNotFound:
        """Record that the file is lost for this writer."""
        self._lost = fresh(error)
        self._holder.forget(self.id, self._writer())
        return error


def _found(done: TxnResult) -> _Found:
    return _Found(*(result.pairs[0] if result.pairs else None for result in done.results[:3]))


def _record_in(steps: Sequence[Step], key: bytes) -> FileRecord | None:
    """Return the record that steps write; None if they write none."""
    for step in steps:
        if isinstance(step, Put) and step.key == key and step.value is not None:
            return decode_record(step.value)
    return None
