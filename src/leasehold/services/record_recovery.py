"""Recovery after a write of a record that had no answer.

The record's own key is rewritten until there is an answer: that begins another epoch, so earlier
writes cannot be executed any more. Then the state of the record is read again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Generic, TypeVar

from leasehold.basics.backoff import Backoff
from leasehold.errors import ConnectionLost, LeaseholdError, NoSuchObject, ShardLost
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.record_removal import RecordRemoval
from leasehold.services.record_storage import RecordStorage
from leasehold.sessions.session import OVER, RETRIES

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RecordRecovery(Generic[T]):
    """The recoveries of one service, in the background."""

    def __init__(
        self,
        storage: RecordStorage,
        removal: RecordRemoval,
        random: Random,
        rewrite: Callable[[LeasedRecord[T]], Awaitable[None]],
        gone: Callable[[LeasedRecord[T]], None],
        reload: Callable[[LeasedRecord[T], Mapping[bytes, bytes]], None],
    ) -> None:
        """`rewrite` writes the own key of a record, `reload` takes its plain keys."""
        self._storage = storage
        self._removal = removal
        self._random = random
        self._rewrite = rewrite
        self._gone = gone
        self._reload = reload

    def begin(self, record: LeasedRecord[T], *, reads: bool = True) -> asyncio.Task[None]:
        """Make sure that earlier writes are not executed late; then read the state again."""
        task = self._removal.start(self._begin_epoch(record, reads=reads))
        if reads:
            record.recovery = task
        return task

    async def _begin_epoch(self, record: LeasedRecord[T], *, reads: bool) -> None:
        backoff = Backoff(RETRIES, self._random)
        try:
            while not record.is_over:
                try:
                    async with record.key_lock:
                        await self._rewrite(record)
                    if reads:
                        self._reload(record, await self._read_rows(record))
                except NoSuchObject:
                    self._gone(record)
                except (LeaseholdError, OSError) as error:
                    if isinstance(error, (ShardLost, *OVER)):
                        return
                    logger.warning(
                        "whether a write of %r was executed is not known yet: %s", record, error
                    )
                    await asyncio.sleep(backoff.next_s())
                    continue
                return
        finally:
            record.recovery = None

    async def _read_rows(self, record: LeasedRecord[T]) -> dict[bytes, bytes]:
        below = record.key + b"/"
        pages = self._storage.pages(below, record.check)
        return {pair.key[len(below) :]: pair.value async for pair in pages}


def in_doubt(record: LeasedRecord[T]) -> LeaseholdError:
    """Return the error of a write that had no answer, after its recovery."""
    if record.is_ended:
        return NoSuchObject(record.service, record.id)
    return ConnectionLost(f"a write of {record.id} had no answer")
