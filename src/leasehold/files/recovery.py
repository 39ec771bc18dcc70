"""Lease recovery: closing a file whose writer is gone, without losing flushed bytes.

A recovery begins with one transaction: the record gets the state RECOVERING and a new stamp, and
the file leaves its holder. From then on the former writer can record nothing. A key under a lease
of the process that recovers the file, the *worker*, shows that it is being done: if that key is
gone, any other process may begin again, with another stamp.

Then the replicas of the last block are read, up to its flushed length. Those with the flushed
checksums are copied to objects of the new stamp; the old ones are left alone, for readers, and
because the former writer may still have them open. The last transaction publishes the copies and
closes the file, if the record is as it was.

The closed file has exactly the bytes that were flushed. Others do not count, even if all replicas
have them: no checksum was recorded for them, and they may have been written after the file was
taken from its writer.

If the flushed bytes are in no replica, nor in several together, the file stays locked, and is tried
again later.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from leasehold.basics.backoff import Schedule
from leasehold.engine.values import KeyValue
from leasehold.errors import Closed, FileDamaged, LeaseholdError, TooFewReplicas, UnknownLease
from leasehold.files.file_keys import (
    CONFIG,
    Recovery,
    Trash,
    block_key,
    block_trash_key,
    decode_block,
    decode_record,
    encode_block,
    encode_record,
    encode_recovery,
    encode_trash,
    open_key,
    record_key,
    recovery_key,
    repair_key,
    worker_key,
)
from leasehold.files.known_config import KnownConfig, is_current
from leasehold.files.namespace import (
    MAX_CONFLICTS,
    FoundFile,
    Namespace,
    absent,
    conflicted,
    unchanged,
)
from leasehold.files.replica_check import ReplicaHealth, check_replica
from leasehold.files.replica_io import StoreFailed, Stores
from leasehold.files.state import (
    CHUNK_BYTES,
    Block,
    FileRecord,
    FilesConfig,
    FileState,
    Replica,
    object_name,
)
from leasehold.files.writer import needs_repair
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Step, Target
from leasehold.sessions.kept_lease import KeptLease
from leasehold.sessions.lease_keeper import Keeper

logger = logging.getLogger(__name__)

WORKER_TTL_S: Final = 10.0
"""The TTL of the lease of a process that recovers files."""

RETRIES_S: Final[Schedule] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The waits after failures; the last one repeats."""

MAX_WAIT_MS: Final = round(RETRIES_S[-1] * 1000)
"""The longest time between two attempts to recover a file."""

MAX_ERROR: Final = 500
"""Characters of an error that are recorded."""


def wait_ms(recovery: Recovery, now_ms: int) -> int:
    """Return how long to wait before a recovery that has failed is tried again; 0 for now."""
    left_ms = recovery.retry_ms - now_ms
    return left_ms if 0 < left_ms <= MAX_WAIT_MS else 0  # a longer one is of a clock that is ahead


class Recoverer:
    """Recovers files, in one process."""

    def __init__(
        self,
        namespace: Namespace,
        stores: Stores,
        config: KnownConfig,
        keeper: Keeper,
    ) -> None:
        self._ns = namespace
        self._stores = stores
        self._config = config
        self._keeper = keeper
        self._lease: KeptLease | None = None
        self._granting = asyncio.Lock()
        self._users = 0
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._ops: set[str] = set()
        """The operations of recoveries under way, which the values of worker keys name."""
        self._accepting: set[str] = set()
        """Files under way whose loss of data an operator accepts."""
        self.recovered = 0
        self.failed = 0

    async def recover(
        self, found: FoundFile, *, accept_loss: bool = False, wait_s: float | None = None
    ) -> bool:
        """Recover a file that is open or being recovered; return whether it is closed now.

        The work continues if it takes longer than `wait_s`, or the caller is cancelled. False if
        another process does it, or if it must be tried again later.
        """
        if accept_loss:
            self._accepting.add(found.id)
        task = self._running.get(found.id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._recover(found))
            self._running[found.id] = task
            task.add_done_callback(lambda done: self._ended(found.id, done))
        done, _ = await asyncio.wait([task], timeout=wait_s)
        if task.cancelled():
            raise Closed("the client was closed during the recovery of a file")
        return bool(done) and task.result()

    def is_under_way(self, file_id: str) -> bool:
        """Return whether this process recovers a file now."""
        return file_id in self._running

    def _ended(self, file_id: str, task: "asyncio.Task[bool]") -> None:
        self._running.pop(file_id, None)
        self._accepting.discard(file_id)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("recovery of file %s failed: %s", file_id, error)

    async def close(self) -> None:
        """Stop. Recoveries under way are left to other processes."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _recover(self, found: FoundFile) -> bool:
        self._users += 1
        op = self._ns.new_id()
        self._ops.add(op)
        try:
            await self._check_stores(found)
            begun = await self._begin(found, op)
            return begun is not None and await self._run(begun)
        except Exception:
            await self._release(found.id, op)
            raise
        finally:
            self._ops.discard(op)
            self._users -= 1
            if not self._users and self._lease is not None:
                lease, self._lease = self._lease, None
                await self._keeper.end(lease)

    async def _check_stores(self, found: FoundFile) -> None:
        """Raise `TooFewReplicas` if a server may not use the stores of a file: clients may.

        With fewer copies than a flush needs, it would close the file with less than there is, or
        lock it against clients that have access to all of its bytes.
        """
        config = await self._config()
        urls = {store.id: store.url for store in config.stores}
        if all(map(self._stores.may_use, urls.values())):
            return
        stored = await self._ns.range(block_key(found.id, found.record.blocks))
        replicas = decode_block(stored.pairs[0].value).replicas if stored.pairs else ()
        known = [urls[each.store] for each in replicas if each.store in urls]
        others = [url for url in known if not self._stores.may_use(url)]
        if others and len(replicas) - len(others) < min(config.needed, len(replicas)):
            raise TooFewReplicas(
                found.chain.path,
                f"its bytes are in stores that are not in --file-stores of this server: "
                f"{', '.join(others)}; clients can recover it",
            )

    # The first transaction.

    async def _session(self) -> KeptLease:
        async with self._granting:
            if self._lease is None or self._lease.lost:
                self._lease = await self._keeper.grant(WORKER_TTL_S)
            return self._lease

    async def _release(self, file_id: str, op: str) -> None:
        """Delete the worker's key: its lease may last longer, because of other recoveries."""
        key = worker_key(file_id)
        with suppress(LeaseholdError, OSError):
            is_own = Compare(key, Target.VALUE, Relation.EQUAL, op.encode())
            await self._ns.txn([is_own], [Delete(key)])

    def is_left_over(self, worker: KeyValue) -> bool:
        """Return whether a worker's key belongs to this process, but to no recovery under way.

        The request was executed after its recovery had been given up.
        """
        is_own = self._lease is not None and worker.lease == self._lease.id
        return is_own and worker.value.decode() not in self._ops

    async def _begin(self, found: FoundFile, op: str) -> FoundFile | None:
        """Lock the file against its writer; None if another process was first."""
        ns, file_id, record = self._ns, found.id, found.record
        before = await self._ns.recovery(file_id)
        taken = replace(
            record,
            state=FileState.RECOVERING,
            stamp=record.stamp + 1,
            op=op,
        )
        progress = replace(before, path=found.chain.path, begun_ms=before.begun_ms or ns.now_ms)
        lease = await self._session()
        steps: list[Step] = [
            Put(record_key(file_id), encode_record(taken)),
            Delete(open_key(record.holder, file_id)),
            Put(recovery_key(file_id), encode_recovery(progress)),
            Put(worker_key(file_id), op.encode(), lease.id),
        ]
        compares = [unchanged(record_key(file_id), found.revision), absent(worker_key(file_id))]
        reads = [Range(worker_key(file_id)), Range(record_key(file_id))]
        try:
            done = await ns.txn(compares, steps, reads)
        except UnknownLease:
            return None  # the session was lost: it is tried again later
        if done.succeeded:
            revision = done.revision
        else:
            worker = done.results[0].pairs
            if not worker or worker[0].value != op.encode():
                if worker and self.is_left_over(worker[0]):
                    await self._release(file_id, worker[0].value.decode())
                return None
            taken = decode_record(done.results[1].pairs[0].value)  # it may have been renamed
            revision = done.results[1].pairs[0].mod_revision
        logger.info("recovery of %r begins", found.chain.path)
        return found._replace(record=taken, revision=revision)

    # The work.

    async def _run(self, begun: FoundFile) -> bool:
        try:
            is_closed = await self._config.with_current(partial(self._close_file, begun))
        except (StoreFailed, LeaseholdError, OSError) as error:
            self.failed += 1
            logger.error("recovery of %r failed, and is retried later: %s", begun.chain.path, error)
            await self._record_failure(begun, error)
            return False
        self.recovered += is_closed
        return is_closed

    async def _record_failure(self, begun: FoundFile, error: Exception) -> None:
        ns, file_id = self._ns, begun.id
        progress = await self._ns.recovery(file_id)
        if not wait_ms(progress, ns.now_ms):  # clients that ask for it earlier delay no retry
            wait_s = RETRIES_S[min(progress.attempts, len(RETRIES_S) - 1)]
            retry_ms = ns.now_ms + round(wait_s * 1000)
            progress = replace(progress, attempts=progress.attempts + 1, retry_ms=retry_ms)
        progress = replace(
            progress,
            last_error=str(error).removeprefix(f"{begun.chain.path!r}: ")[:MAX_ERROR],
            # Otherwise it is the configuration that is damaged.
            is_locked=isinstance(error, FileDamaged) and error.path == begun.chain.path,
        )
        await self._commit(
            begun,
            lambda _record: [
                Put(recovery_key(file_id), encode_recovery(progress)),
                Delete(worker_key(file_id)),
            ],
        )

    async def _commit(
        self,
        begun: FoundFile,
        steps: Callable[[FileRecord], list[Step]],
        op: str = "",
        config: FilesConfig | None = None,
    ) -> bool:
        """Execute a transaction if this recovery is still the latest one; return whether it was.

        `op` is the operation that it writes into the record, if it does. A rename changes the
        record, too, but not the stamp. `ConfigChanged` is raised if `config` is not the
        configuration any more.
        """
        key = record_key(begun.id)
        conditions = [] if config is None else [is_current(config)]
        record, revision = begun.record, begun.revision
        for _ in range(MAX_CONFLICTS):
            compares = [unchanged(key, revision), *conditions]
            done = await self._ns.txn(compares, steps(record), [Range(key), Range(CONFIG)])
            if done.succeeded:
                return True
            pairs, configs = (result.pairs for result in done.results)
            if not pairs:
                logger.info("recovery of %r ends: the file was deleted", begun.chain.path)
                return False
            record, revision = decode_record(pairs[0].value), pairs[0].mod_revision
            if op and record.op == op:
                return True  # an earlier attempt was executed
            if (record.state, record.stamp) != (FileState.RECOVERING, begun.record.stamp):
                return False  # another recovery has begun
            if config is not None:
                self._config.check(config, configs)
        raise conflicted(repr(begun.chain.path), "renamed by other clients")

    async def _close_file(self, begun: FoundFile, config: FilesConfig) -> bool:
        """Close the file; return False if another recovery has begun, or the file is gone."""
        self._stores.configure(config)
        ns, file_id, number = self._ns, begun.id, begun.record.blocks
        stored = await ns.range(block_key(file_id, number))
        before = decode_block(stored.pairs[0].value) if stored.pairs else Block(begun.record.stamp)
        block = await self._copied(begun, before, config)
        op = ns.new_id()
        published = replace(block, op=op)

        def steps(record: FileRecord) -> list[Step]:
            closed = replace(
                record.closed(ns.now_ms, op),
                blocks=number + bool(block.length),
                length=record.length + block.length,
            )
            made: list[Step] = [
                Put(record_key(file_id), encode_record(closed)),
                Delete(recovery_key(file_id)),
                Delete(worker_key(file_id)),
            ]
            if block.length:
                made.append(Put(block_key(file_id, number), encode_block(published)))
                if needs_repair(published, config):
                    made.append(Put(repair_key(file_id, number), b""))
            elif stored.pairs:
                made.append(Delete(block_key(file_id, number)))
            if stored.pairs:
                trash = Trash(replicas=before.replicas, length=before.length)
                made.append(Put(block_trash_key(file_id, number, op), encode_trash(trash)))
            return made

        if not await self._commit(begun, steps, op, config):
            return False
        length = begun.record.length + block.length
        logger.info("%r was recovered with %d bytes", begun.chain.path, length)
        return True

    async def _copied(self, begun: FoundFile, before: Block, config: FilesConfig) -> Block:
        """Return the flushed bytes of a block in objects of the new stamp; none if it is empty."""
        checked = await asyncio.gather(
            *(check_replica(self._stores, before, each, deep=True) for each in before.replicas)
        )
        for each in checked:
            if each.health is not ReplicaHealth.GOOD:
                logger.warning("a replica is left out of the recovery: %s", each.why)
        block = replace(before, stamp=begun.record.stamp)
        sources = [each.replica for each in checked if each.health is ReplicaHealth.GOOD]
        if not sources:
            sources = [each.replica for each in checked if each.is_bad]
            whys = "; ".join(each.why for each in checked)
            block = await self._intact(begun, block, sources, whys)
        if not block.length:
            return replace(block, replicas=())
        return await self._copy(begun, block, sources, config)

    async def _intact(self, begun: FoundFile, block: Block, bad: list[Replica], whys: str) -> Block:
        """Return what bad replicas of a block have together: each chunk may be in another one.

        Raises `FileDamaged` if that is not all, unless an operator accepts the loss.
        """
        length = await self._stores.intact_bytes(block, bad)
        if length == block.length:
            return block
        if begun.id not in self._accepting:
            raise FileDamaged(begun.chain.path, f"no replica has the flushed data: {whys}")
        logger.error(
            "%r is closed with data loss: %d of %d flushed bytes of its last block are left",
            begun.chain.path,
            length,
            block.length,
        )
        return replace(block, length=length, checksums=block.checksums[: length // CHUNK_BYTES * 4])

    async def _copy(
        self, begun: FoundFile, block: Block, sources: list[Replica], config: FilesConfig
    ) -> Block:
        """Copy a block to new objects in the stores that have it, and in spare ones."""
        record = begun.record
        name = object_name(begun.id, record.blocks, record.stamp, self._ns.new_tag())

        async def copy(source: Replica) -> Replica:
            own_first = [source, *(each for each in sources if each is not source)]
            return await self._stores.copy(block, own_first, Replica(source.store, name))

        own = [each for each in sources if each.store in config.staying]
        results = await asyncio.gather(*map(copy, own), return_exceptions=True)
        copies: list[Replica] = []
        for result in results:
            if isinstance(result, Replica):
                copies.append(result)
            elif isinstance(result, StoreFailed):
                logger.warning("a replica is left out of the recovery: %s", result)
            else:
                raise result
        spares = self._stores.healthy(config, [each.store for each in block.replicas])
        if not copies and not spares:  # beside a bad replica is better than nowhere
            spares = self._stores.healthy(config, ())
        for store in spares[: max(0, config.wanted - len(copies))]:
            # As many copies as possible: the old ones are deleted after a while.
            with suppress(StoreFailed):
                target = Replica(store, name)
                copies.append(await self._stores.copy(block, copies or sources, target))
        if not copies:
            raise StoreFailed("; ".join(map(str, results)) or "no replica can be copied")
        return replace(block, replicas=tuple(copies))
