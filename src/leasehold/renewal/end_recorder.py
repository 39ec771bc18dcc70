"""Writes the ends of members whose stored ends have passed, a bounded number at a time.

Renewals move the ends of members in memory only: a write for each would cost more than the renewal.
After a restart a stored end is a lower bound, which decides the order of the first renewals.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Final

from leasehold.clock import Clock
from leasehold.keyspace.operations import Step
from leasehold.renewal.live_set import LiveSet
from leasehold.renewal.state import Member
from leasehold.services.leased_record import LeasedRecord

logger = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""How often to look for stored ends that have passed."""

MAX_ENDS: Final = 500
"""Ends that are written at most, each time."""

MAX_IN_TXN: Final = 100
MAX_TXN_BYTES: Final = 256 * 1024
"""References in one transaction."""


class EndRecorder:
    """Writes the ends of the members of all sets in turn."""

    def __init__(
        self,
        records: Iterable[LeasedRecord[LiveSet]],
        locked: Callable[[LiveSet], AbstractAsyncContextManager[None]],
        write: Callable[[LiveSet, Sequence[Step]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`locked` holds the lock of a set, `write` writes its keys."""
        self._records = records
        self._locked = locked
        self._write = write
        self._clock = clock

    async def run(self) -> None:
        """Write ends for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            left = MAX_ENDS
            for live in [record.state for record in self._records]:
                left -= await self._record_some(live, left)
                if left <= 0:  # the next set has its turn after a pause
                    await asyncio.sleep(EVERY_S)
                    left = MAX_ENDS

    async def _record_some(self, live: LiveSet, limit: int) -> int:
        """Write the oldest ends of a set that have passed and are not the present ones."""
        wall, clock = self._clock.wall(), self._clock
        passed = [each for each in live.state.members.values() if each.end <= wall]
        passed.sort(key=lambda member: member.end)
        renewed = (each for each in passed if live.current(each, clock).end > wall)
        stale = list(islice(renewed, limit))  # a set may have 100,000 members
        try:
            for part in _parts(stale):
                async with self._locked(live):
                    left = [each for each in part if live.state.members.get(each.digest) is each]
                    steps = [live.put_member(live.current(each, clock)) for each in left]
                    if steps:
                        await self._write(live, steps)
                    for member in left:
                        live.record_end(member, clock)
        except Exception as error:  # noqa: BLE001  the other sets must not suffer
            logger.info("set %s: ends of members are not stored: %r", live.record.id, error)
        return len(stale)


def _parts(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Divide members into those of one transaction."""
    part: list[Member] = []
    size_bytes = 0
    for member in members:
        size_bytes += len(member.reference)
        if part and (len(part) >= MAX_IN_TXN or size_bytes > MAX_TXN_BYTES):
            yield part
            part, size_bytes = [], len(member.reference)
        part.append(member)
    if part:
        yield part
