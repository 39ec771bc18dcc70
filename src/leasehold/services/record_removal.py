"""Removes the keys of ended records in the background, a bounded number at a time.

The key of a record is deleted by revoking its lease, then its plain keys are deleted in passes.
Both are retried while the engine does not answer. The next owner of the shard collects what is left
then, for example after a crash.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, TypeVar

from leasehold.basics.backoff import Backoff
from leasehold.engine.time_limits import time_limit
from leasehold.errors import LeaseholdError
from leasehold.services.record_storage import RecordStorage, StoredRecord, split_key
from leasehold.sessions.lease_keeper import REVOKE_RETRIES, retry_until_answered

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=StoredRecord)

REMOVALS: Final = 8
"""Records whose keys are removed at the same time; the others wait."""

COLLECT_S: Final = 600.0
"""How long the plain keys of one record may take to be deleted, with all retries."""

CLOSE_S: Final = 2.0
"""How long `close` waits for removals under way."""


class RecordRemoval:
    """The removals of one service, and other work of it in the background."""

    def __init__(self, storage: RecordStorage, service: str, random: Random) -> None:
        self._storage = storage
        self.service = service
        self._random = random
        self._turns = asyncio.Semaphore(REMOVALS)
        self._keys: set[bytes] = set()
        """The keys of the records that are being removed."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def remove(self, record: StoredRecord, *, is_urgent: bool) -> asyncio.Task[bool]:
        """Remove a record that has ended; the result is True once its own key is deleted.

        An urgent one does not wait for its turn, because a caller waits for it.
        """
        self._keys.add(record.key)
        return self.start(self._remove(record, is_urgent=is_urgent))

    async def _remove(self, record: StoredRecord, *, is_urgent: bool) -> bool:
        try:
            if is_urgent:
                is_over = await self._revoke_all(record)
            else:
                async with self._turns:
                    is_over = await self._revoke_all(record)
        except BaseException:
            self._keys.discard(record.key)
            raise
        self.start(self._collect(record.key))
        return is_over

    async def _revoke_all(self, record: StoredRecord) -> bool:
        async with record.key_lock:  # a rewrite under way may move the key to another lease
            leases = {record.lease, *record.former_leases}
        return all([await self._storage.revoke(lease) for lease in leases])

    def collect(self, key: bytes) -> None:
        """Delete the plain keys of a record whose own key is gone, unless that is under way."""
        if key not in self._keys:
            self._keys.add(key)
            self.start(self._collect(key))

    async def _collect(self, key: bytes) -> None:
        try:
            async with self._turns, time_limit(COLLECT_S, self._storage.engine):
                backoff = Backoff(REVOKE_RETRIES, self._random)
                await retry_until_answered(lambda: self._storage.collect(key), backoff)
        except (LeaseholdError, OSError) as error:
            logger.warning("keys below %r are not deleted yet: %s", key, error)
        finally:
            self._keys.discard(key)

    def revoke(self, lease: int) -> None:
        """Revoke a lease that is not needed, or was perhaps granted without an answer."""
        self.start(self._storage.revoke(lease, may_come=True))

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a background task of service %s has failed", self.service, exc_info=error)

    async def close(self) -> None:
        """Wait a while for the tasks, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class DeletedKeys(Generic[R]):
    """Watches for keys of records that are deleted by others, or with their leases."""

    def __init__(
        self,
        storage: RecordStorage,
        removal: RecordRemoval,
        records: Mapping[str, R],
        gone: Callable[[R], None],
        orphaned: Callable[[str, bytes], None],
    ) -> None:
        """Call `gone` with a record whose key is deleted, `orphaned` with one not in `records`."""
        self._storage = storage
        self._removal = removal
        self._name = removal.service
        self._records = records
        self._gone = gone
        self._orphaned = orphaned
        self._is_watching = asyncio.Event()
        """Set while each deleted key is seen: records are loaded only then."""
        self._task: asyncio.Task[None] | None = None

    async def watching(self) -> None:
        """Wait until each deleted key is seen; called before the first record is there.

        A server without records watches nothing.
        """
        if self._task is None:
            self._task = self._removal.start(self._watch())
        await self._is_watching.wait()

    def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        """Watch until the engine is closed."""
        async for deleted in self._storage.watch_deletes():
            if deleted is not None:
                self._see(*deleted)
                continue
            # From now on all are seen, but some may have been missed before.
            self._is_watching.set()
            try:
                missing = await self._storage.missing(list(self._records.values()))
            except (LeaseholdError, OSError) as error:
                logger.warning("deleted records of %s may be noticed late: %s", self._name, error)
                continue
            for record in missing:
                self._gone(record)

    def _see(self, revision: int, keys: Sequence[bytes]) -> None:
        for key in keys:
            split = split_key(key, self._name)
            if split is None or split[1] is not None:
                continue
            record = self._records.get(split[0])
            if record is None:
                self._orphaned(split[0], key)
            elif record.key == key and revision > record.epoch:
                self._gone(record)
