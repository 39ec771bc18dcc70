"""`FileWriter`: the one writer of a file.

Written bytes wait in memory. A flush sends them to all stores of the current block, durably, and
then records the new length and checksums of the block in one transaction, which is the
acknowledgement. The transaction compares the holder's key, the record, the block and all entries up
to the root. So it fails once the file was taken over, deleted or replaced, and what this writer has
written to stores since then is in no block.

If a store fails, the block is sealed at its flushed length with the replicas that are left, the
stamp rises, and the unflushed bytes go to a new block on other stores; all this is recorded before
the next acknowledgement, so that the failed store can never decide the length.

Calls are executed one after the other, each to its end even if its caller is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from leasehold.basics.event_loop import post
from leasehold.errors import (
    Closed,
    FileNotFound,
    LeaseExpired,
    RecoveryInProgress,
    TooFewReplicas,
)
from leasehold.files.file_keys import (
    Trash,
    block_key,
    block_trash_key,
    decode_block,
    decode_record,
    encode_block,
    encode_record,
    encode_trash,
    open_key,
    record_key,
    repair_key,
)
from leasehold.files.held_file import HeldFile, WriterTxn
from leasehold.files.holder import FileHolder, LiveHolder
from leasehold.files.known_config import KnownConfig
from leasehold.files.namespace import FoundFile, Namespace
from leasehold.files.replica_io import StoreFailed, Stores
from leasehold.files.state import (
    Block,
    Checksums,
    FileRecord,
    FilesConfig,
    FileState,
    Replica,
    object_name,
)
from leasehold.keyspace.operations import Delete, Put, Range, Step

T = TypeVar("T")

MAX_UNFLUSHED_BYTES: Final = 4 * 1024 * 1024
"""Written bytes in memory after which a flush follows."""

MAX_PIECES: Final = 200
"""Objects of a block in a store that cannot append: then the block is sealed."""


class FileWriter:
    """A file that is open for writing: at its end, by one writer at a time."""

    _is_closed = True  # for the finalizer, until it is initialized

    def __init__(
        self,
        namespace: Namespace,
        stores: Stores,
        config: KnownConfig,
        holder: FileHolder,
        live: LiveHolder,
        found: FoundFile,
    ) -> None:
        """Made by `Files`. `found` is the file, open for `live`."""
        self._ns = namespace
        self._loop = asyncio.get_running_loop()
        self._stores = stores
        self._config = config
        self._holder = holder
        self._file = HeldFile(namespace, config, holder, self, live, found)
        self.id = found.id
        """The id of the file, which renaming does not change."""
        self._buffer = bytearray()
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_finished = False
        """Whether the file itself was closed."""
        self._is_closing = False
        self._is_closed = False
        self._begin_block()
        holder.opened(self.id, self)

    def _begin_block(self) -> None:
        record = self._file.record
        self._block = Block(record.stamp)
        self._file.begin_block()
        self._checks = Checksums()
        name = object_name(self.id, record.blocks, record.stamp, self._ns.new_tag())
        self._replicas = tuple(Replica(store, name) for store in record.pipeline)
        self._is_sent = False
        """Whether bytes were sent to the objects of the block that are not recorded."""

    @property
    def path(self) -> str:
        """The path of the file, as of the last call that has read it."""
        return self._file.path

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def tell(self) -> int:
        """Return the length of the file, with the bytes that are not flushed."""
        return self.flushed + len(self._buffer)

    @property
    def flushed(self) -> int:
        """The flushed bytes of the file: they survive the writer."""
        return self._file.record.length + self._block.length

    def lost(self, why: str) -> None:
        """Record that the lease is lost. Called by the holder."""
        self._file.lost(why)

    def unlinked(self, why: str) -> None:
        """Record that the file was deleted or replaced. Called by the holder."""
        self._file.unlinked(why)

    # Calls.

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes, and return their number.

        They are kept in memory until `flush`, which is done here if they become too many. If that
        fails, the bytes taken so far are kept, and must not be written again: `tell` has increased
        by their number.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        self._check_open()
        view = memoryview(data).cast("B")
        for first in range(0, len(view), MAX_UNFLUSHED_BYTES):
            self._check_open()
            self._buffer += view[first : first + MAX_UNFLUSHED_BYTES]
            if len(self._buffer) >= MAX_UNFLUSHED_BYTES:
                await self._complete(self._flush)
        return len(view)

    async def flush(self) -> None:
        """Make all written bytes durable in all replicas, and visible to readers.

        Raises `LeaseExpired` or `FileNotFound` if another client has taken over, deleted or
        replaced the file, `RecoveryInProgress` while that happens, and `TooFewReplicas` if too few
        stores can be written: then the bytes are kept, and a later call tries again.
        """
        self._check_open()
        await self._complete(self._flush)

    async def verify(self) -> None:
        """Check whether this writer still has the file; nothing is written. Raises as `flush`."""
        if not self._is_closed:
            await self._complete(self._verify)

    async def _verify(self) -> None:
        self._file.check()
        await self._file.settle(self._use_other_names)
        if not self._is_finished:
            await self._file.verify()

    async def close(self) -> None:
        """Flush, and give the file up. Raises the errors of `flush`.

        A file that was recovered meanwhile counts as closed if it has all written bytes.
        """
        if not self._is_closed:
            await self._complete(self._close)

    async def abort(self) -> None:
        """Close the file without the bytes that are not flushed.

        If that fails, the writer cannot be used any more, and the file is closed later.
        """
        if not self._is_closed:
            try:
                await self._complete(self._abort)
            except BaseException:
                self._abandon()
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await (self.close() if exc is None else self.abort())
        except BaseException:
            self._abandon()
            raise

    def __del__(self) -> None:
        if not self._is_closed and not self._file.is_lost and self._ns.engine.is_open:
            post(self._loop, self._holder.forgotten, self.id, self.path)

    def _abandon(self) -> None:
        """Leave the file to a recovery, which keeps its flushed bytes."""
        if not self._is_closed:
            self._file.lost("closing the file failed")
            self._is_closed = True
            self._holder.abandon(self.id, self)

    def _check_open(self) -> None:
        if self._is_closed or self._is_closing:
            raise Closed(f"{self.path!r} was closed")

    async def _complete(self, work: Callable[[], Awaitable[T]]) -> T:
        """Execute a call to its end, after the calls before it."""

        async def in_turn() -> T:
            async with self._turn:
                return await work()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have been cancelled

    async def _abort(self) -> None:
        if self._is_closed:
            return
        self._buffer.clear()
        # If the file is lost, its flushed bytes are kept by a recovery, or it was deleted.
        with suppress(LeaseExpired, FileNotFound, RecoveryInProgress):
            self._file.check()
            await self._file.settle(self._use_other_names)
            if not self._is_finished:
                await self._config.with_current(self._finish)
        self._set_closed()

    async def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closing = True  # nothing may be written while the last bytes are flushed
        try:
            self._file.check()
            await self._flush(is_last=True)
        except LeaseExpired:
            if not await self._is_complete():
                raise
        finally:
            self._is_closing = False
        self._set_closed()

    def _set_closed(self) -> None:
        self._is_closed = True
        self._buffer.clear()
        self._holder.forget(self.id, self)

    async def _is_complete(self) -> bool:
        """Return whether the file was closed with all bytes of this writer, by whomever.

        It may have been opened again since: its further blocks are those of others.
        """
        number = self._file.record.blocks
        reads = [Range(record_key(self.id)), Range(block_key(self.id, number))]
        stored, last = (each.pairs for each in (await self._ns.txn([], reads)).results)
        checks = self._checks.copy()
        checks.add(self._buffer)
        if not stored:
            return False
        record = decode_record(stored[0].value)
        is_closed = record.state == FileState.CLOSED or record.holder != self._file.live.id
        if not is_closed or record.blocks < number + bool(checks.length):
            return False
        if not checks.length:
            return True
        block = decode_block(last[0].value) if last else Block(0)
        return (block.length, block.checksums) == (checks.length, checks.value())

    # Flushing.

    async def _flush(self, *, is_last: bool = False) -> None:
        self._file.check()
        await self._file.settle(self._use_other_names)
        if self._is_finished:
            if self._buffer:
                raise Closed(f"{self.path!r} was closed by an earlier call that had no answer")
            return
        if not self._buffer and not is_last:
            await self._file.verify()
        failed: set[str] = set()
        while self._buffer:
            await self._config.with_current(partial(self._flush_piece, failed, is_last=is_last))
        if is_last and not self._is_finished:
            await self._config.with_current(self._finish)
        elif not is_last:
            await self._holder.renew()

    async def _flush_piece(self, failed: set[str], config: FilesConfig, *, is_last: bool) -> None:
        """Flush bytes up to the end of the current block, or begin another block if stores fail.

        `failed` are the stores that have failed during this flush: they are not used again in it.
        """
        self._stores.configure(config)
        # A replica in a store that is being removed is kept: the repairer gives it up.
        failed |= set(self._file.record.pipeline) - config.staying - config.leaving
        if self._must_replace_stores(config):
            await self._replace_stores(failed, config)
        data = bytes(self._buffer[: max(1, config.block_bytes - self._block.length)])
        replicas = await self._send(data, failed)
        if replicas is None:
            await self._replace_stores(failed, config)
            return
        ends = is_last and len(data) == len(self._buffer)
        await self._record_flush(data, replicas, config, is_last=ends)

    def _must_replace_stores(self, config: FilesConfig) -> bool:
        """Return whether the next bytes need a new block, perhaps in other stores.

        Calls of an attempt that has failed may still be under way, so its objects are not written
        again. Stores that were removed, or are to be, are left. A change of the configuration may
        need more stores than the current block has.
        """
        pipeline = self._file.record.pipeline
        is_valid = config.staying.issuperset(pipeline) and len(pipeline) >= config.needed
        return self._is_sent or not is_valid

    async def _send(self, data: bytes, failed: set[str]) -> tuple[Replica, ...] | None:
        """Write bytes to all replicas of the current block; None if a store has failed."""
        self._is_sent = True
        results = await asyncio.gather(
            *(self._stores.extend(each, self._block.length, data) for each in self._replicas),
            return_exceptions=True,
        )
        replicas: list[Replica] = []
        for before, result in zip(self._replicas, results, strict=True):
            if isinstance(result, Replica):
                replicas.append(result)
            elif isinstance(result, StoreFailed):
                failed.add(before.store)
            else:
                raise result
        if len(replicas) == len(self._replicas) > 0:
            return tuple(replicas)
        return None

    async def _replace_stores(self, failed: set[str], config: FilesConfig) -> None:
        """Seal the block without the stores that have failed, and begin another one."""
        pipeline = self._new_pipeline(config, failed)
        replicas = self._block.replicas
        left = tuple(each for each in replicas if each.store not in failed)
        if len(left) < config.needed:
            # Flushed bytes keep as many replicas as their flush has needed: a store that has failed
            # may return, and the repairer checks them.
            left = replicas
        left_out = tuple(each for each in replicas if each not in left)
        op = self._ns.new_id()
        sealed = replace(self._block, replicas=left, op=op)

        def steps(record: FileRecord) -> list[Step]:
            number = record.blocks
            record = replace(record, stamp=record.stamp + 1, pipeline=pipeline, op=op)
            if not sealed.length:
                return [Put(record_key(self.id), encode_record(record))]
            made = self._seal(record, sealed, config, is_checked=not failed)
            if left_out:  # readers that have opened the file before may need them
                trash = Trash(replicas=left_out, length=sealed.length)
                made.append(Put(block_trash_key(self.id, number, op), encode_trash(trash)))
            return made

        await self._file.commit(steps, WriterTxn(op, self._begin_block), config=config)

    def _new_pipeline(self, config: FilesConfig, failed: Iterable[str] = ()) -> tuple[str, ...]:
        """Choose the stores of another block. Raises `TooFewReplicas`."""
        pipeline = tuple(self._stores.choose(config, avoid=failed))
        needed = config.needed
        if len(pipeline) < needed:
            others = [each.id for each in config.stores if each.id not in pipeline]
            raise TooFewReplicas(
                self.path,
                f"not enough replica stores: a flush needs {needed}, {len(pipeline)} usable"
                f"{self._stores.failures(others)}",
            )
        return pipeline

    def _seal(
        self, record: FileRecord, block: Block, config: FilesConfig, *, is_checked: bool = True
    ) -> list[Step]:
        """Return the steps that seal the current block.

        If a store has failed, `is_checked` is False, and the repairer looks at the replicas.
        """
        number = record.blocks
        record = replace(record, blocks=number + 1, length=record.length + block.length)
        steps: list[Step] = [
            Put(block_key(self.id, number), encode_block(block)),
            Put(record_key(self.id), encode_record(record)),
        ]
        if not is_checked or needs_repair(block, config):
            steps.append(Put(repair_key(self.id, number), b""))
        return steps

    async def _record_flush(
        self, data: bytes, replicas: tuple[Replica, ...], config: FilesConfig, *, is_last: bool
    ) -> None:
        """Record bytes that all replicas have; this is the acknowledgement."""
        op = self._ns.new_id()
        checks = self._checks.copy()
        checks.add(data)
        block = Block(self._file.record.stamp, checks.length, checks.value(), replicas, op)
        # A store that is being removed is left with the next flush.
        is_full = checks.length >= config.block_bytes or any(
            len(each.pieces) >= MAX_PIECES for each in replicas
        )

        pipeline = self._new_pipeline(config) if is_full and not is_last else ()

        def steps(record: FileRecord) -> list[Step]:
            if is_last:
                record = record.closed(self._ns.now_ms, op)
                return [*self._seal(record, block, config), self._delete_open()]
            if is_full:
                now_ms = self._ns.now_ms
                record = replace(record, pipeline=pipeline, modified_ms=now_ms, op=op)
                return self._seal(record, block, config)
            return [Put(block_key(self.id, record.blocks), encode_block(block))]

        def applied() -> None:
            del self._buffer[: len(data)]
            self._is_finished |= is_last
            if is_last or is_full:
                self._begin_block()
            else:
                self._block, self._replicas, self._checks = block, replicas, checks
                self._is_sent = False

        renewal = None if is_last else asyncio.ensure_future(self._holder.renew())
        try:
            await self._file.commit(steps, WriterTxn(op, applied), config=config)
        finally:
            if renewal is not None:
                await renewal

    async def _finish(self, config: FilesConfig) -> None:
        """Close the file at its flushed length."""
        op = self._ns.new_id()
        sealed = replace(self._block, op=op)

        def steps(record: FileRecord) -> list[Step]:
            record = record.closed(self._ns.now_ms, op)
            if sealed.length:
                return [*self._seal(record, sealed, config), self._delete_open()]
            return [Put(record_key(self.id), encode_record(record)), self._delete_open()]

        def applied() -> None:
            self._is_finished = True
            self._begin_block()

        await self._file.commit(steps, WriterTxn(op, applied), config=config)

    def _use_other_names(self) -> None:
        if not self._block.length:  # the objects of the block may exist already
            self._begin_block()
        else:  # its objects have the stamp before, which a collector may consider superseded
            self._is_sent = True

    def _delete_open(self) -> Step:
        return Delete(open_key(self._file.live.id, self.id))


def needs_repair(block: Block, config: FilesConfig) -> bool:
    """Return whether a sealed block has too few replicas, or too many pieces."""
    is_short = len({each.store for each in block.replicas} & config.staying) < config.wanted
    return is_short or any(len(each.pieces) >= MAX_PIECES for each in block.replicas)
