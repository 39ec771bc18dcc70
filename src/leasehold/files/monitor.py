"""The monitor: closes the files of holders whose leases have ended, and retries recoveries.

The hard limit is the expiry of the holder's lease: the engine deletes the key of the holder, and
the files that it had open stay behind in `open/<holder id>/`. The monitor watches these keys. It
looks through all open files when it starts, when its watch was interrupted, and from time to time,
holder by holder: so it also finds holders that ended while no monitor ran.

A pass begins every two seconds, with the lease that has ended first, and is limited to a number of
files. A file that cannot be recovered now is recorded in `recovery/`, and tried again later from
there; it delays no other file. If that cannot be recorded, such as on an engine without space, the
file is found again by a later pass, and the monitor itself remembers how long to wait.

Several monitors may run: every step of a recovery is conditional, so they need no election. They
begin at random places, to meet rarely.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.engine.interface import prefix_end
from leasehold.errors import Closed, LeaseholdError
from leasehold.files.file_keys import (
    HOLDERS,
    OPEN_FILES,
    RECOVERIES,
    UndecodableValue,
    decode_recovery,
    holder_key,
    id_in,
    opened_by,
    worker_key,
)
from leasehold.files.lease_manager import LeaseManager
from leasehold.files.namespace import Namespace
from leasehold.files.recovery import RETRIES_S, Recoverer, wait_ms
from leasehold.files.state import FileRecord, FileState

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 2.0
"""The time between two passes."""

RESCAN_S: Final = 60.0
"""The time between two looks at all holders."""

FILES_PER_PASS: Final = 1_000
"""Files that one pass recovers."""

FILE_S: Final = 10.0
"""How long a pass waits for one file; its recovery continues after that."""

MAX_RUNNING: Final = 64
"""Recoveries under way, such as of files on stores that hang: then no others begin."""

MAX_FAILED: Final = 10_000
"""Files whose failures are remembered: if there are so many, no others are tried."""

CONCURRENT_RECOVERIES: Final = 16
"""Files that are recovered at the same time."""

LIMIT_PASSES: Final = 0.25
"""The limits of the leases in the manager, whose time is the number of the pass.

The engine has ended these leases, so they are past their limits in the pass that loads them.
"""

WATCH_RETRIES: Final = exponential(0.5, 30.0)
"""The waits before the watch of holders begins again."""


@dataclass
class _Failures:
    """Failures to recover a file that are not recorded in `recovery/`."""

    backoff: Backoff
    retry_at: float = 0.0


class Monitor:
    """Closes files at the hard limit, in one process."""

    def __init__(
        self, namespace: Namespace, recoverer: Recoverer, *, interval_s: float = INTERVAL_S
    ) -> None:
        self._ns = namespace
        self._recoverer = recoverer
        self._interval_s = interval_s
        self._ended: LeaseManager[str] = LeaseManager(
            soft_limit_s=LIMIT_PASSES, hard_limit_s=LIMIT_PASSES, on_error=logger.error
        )
        self._pending: dict[str, bytes] = {}
        """Holders that have ended, in that order, with the key from which their files are read."""
        self._rescan_at = 0.0
        self._next_recovery = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._trying: dict[str, asyncio.Task[None]] = {}
        """Files under way; a pass does not wait for slow ones."""
        self._failed: dict[str, _Failures] = {}
        self.passes = 0

    @property
    def waiting(self) -> int:
        """Files of ended holders that are known and not recovered yet."""
        return self._ended.count

    def start(self) -> None:
        """Begin to watch and to make passes."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._run())]

    async def close(self) -> None:
        """Stop. A pass under way is left to other monitors."""
        tasks = [*self._tasks, *self._trying.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []

    async def _watch(self) -> None:
        """Collect holders whose keys are deleted."""
        backoff = Backoff(WATCH_RETRIES, self._ns.random)
        while True:
            with suppress(LeaseholdError, OSError):
                watch = self._ns.engine.watch(HOLDERS, prefix_end(HOLDERS), puts=False)
                async with watch:
                    self._rescan_at = 0.0  # holders may have ended before
                    async for events in watch:
                        backoff.reset()
                        for event in events.events:
                            self._add(id_in(event.key, HOLDERS))
            self._ns.engine.check()
            await asyncio.sleep(backoff.next_s())

    def _add(self, holder: str) -> None:
        self._pending.setdefault(holder, opened_by(holder))

    async def _run(self) -> None:
        while True:
            is_work_left = False
            try:
                is_work_left = await self.make_pass()
            except Closed:
                return
            except (LeaseholdError, OSError) as error:
                logger.warning("the check of open files failed, and is repeated: %s", error)
            except Exception:
                logger.exception("the check of open files failed, and is repeated")
            await asyncio.sleep(0 if is_work_left else self._interval_s)

    # A pass.

    async def make_pass(self) -> bool:
        """Recover some files; return whether there are more to be recovered now."""
        self.passes += 1
        now = self._ns.clock.monotonic()
        if now >= self._rescan_at:
            self._rescan_at = now + RESCAN_S
            # One that was not found again since is not to be recovered any more.
            for file_id in [
                each
                for each, failures in self._failed.items()
                if failures.retry_at + 2 * RESCAN_S < now
            ]:
                del self._failed[file_id]
            await self._find_ended()
        await self._load()
        due: list[str] = []

        def release(_holder: str, file_id: str) -> None:
            due.append(file_id)

        monotonic = self._ns.clock.monotonic
        is_left = self._ended.check(self.passes + 2 * LIMIT_PASSES, release, elapsed=monotonic)
        due += await self._due_recoveries()
        await self._recover(dict.fromkeys(due))
        return is_left or bool(self._pending)

    async def _find_ended(self) -> None:
        """Find the holders that have files but no key: one read for each holder, not each file."""
        after, end = OPEN_FILES, prefix_end(OPEN_FILES)
        while True:
            found = await self._ns.range(after, end, limit=1)
            if not found.pairs:
                return
            holder = id_in(found.pairs[0].key, OPEN_FILES).partition("/")[0]
            if not (await self._ns.range(holder_key(holder))).pairs:
                self._add(holder)
            after = prefix_end(opened_by(holder))

    async def _load(self) -> None:
        """Take files of the holders that ended first into the manager, a limited number."""
        room = FILES_PER_PASS - self._ended.count
        for holder in list(self._pending):
            if room <= 0:
                return
            prefix, after = opened_by(holder), self._pending[holder]
            found = await self._ns.range(after, prefix_end(prefix), limit=room)
            if found.pairs and after == prefix:
                logger.info(
                    "the lease of file holder %s has ended, with open files: %d",
                    holder,
                    found.total,
                )
            for pair in found.pairs:
                file_id = id_in(pair.key, prefix)
                before = self._ended.by_file(file_id)
                if before is not None and before.holder != holder:
                    self._ended.remove(before.holder, file_id)  # it has had another holder since
                self._ended.add(holder, file_id, self.passes)
            room -= len(found.pairs)
            if found.more:
                self._pending[holder] = found.pairs[-1].key + b"\0"
            else:
                del self._pending[holder]

    async def _due_recoveries(self) -> list[str]:
        """Return files whose recovery failed before, or whose worker is gone, a limited number."""
        after = self._next_recovery or RECOVERIES + self._ns.new_id().encode()
        end = prefix_end(RECOVERIES)
        found = await self._ns.range(after, end, limit=FILES_PER_PASS)
        if not found.pairs and after != RECOVERIES:
            found = await self._ns.range(RECOVERIES, end, limit=FILES_PER_PASS)
        self._next_recovery = found.pairs[-1].key + b"\0" if found.more else RECOVERIES
        now_ms = self._ns.now_ms
        due: list[str] = []
        for pair in found.pairs:
            file_id = id_in(pair.key, RECOVERIES)
            with suppress(UndecodableValue):
                if wait_ms(decode_recovery(pair.value), now_ms):
                    continue
            worker = (await self._ns.range(worker_key(file_id))).pairs
            if not worker or self._recoverer.is_left_over(worker[0]):
                due.append(file_id)
        return due

    async def _recover(self, file_ids: Iterable[str]) -> None:
        turns = asyncio.Semaphore(CONCURRENT_RECOVERIES)

        async def recover(file_id: str) -> None:
            async with turns:
                if not self._may_try(file_id):
                    return  # it is found again by a later pass
                task = asyncio.get_running_loop().create_task(self._try(file_id))
                self._trying[file_id] = task
                task.add_done_callback(lambda _: self._trying.pop(file_id, None))
                await asyncio.wait([task], timeout=FILE_S)

        await asyncio.gather(*map(recover, file_ids))

    def _may_try(self, file_id: str) -> bool:
        if file_id in self._trying or len(self._trying) >= MAX_RUNNING:
            return False
        if (failures := self._failed.get(file_id)) is None:
            return len(self._failed) < MAX_FAILED
        return failures.retry_at <= self._ns.clock.monotonic()

    async def _try(self, file_id: str) -> None:
        """Recover a file if it is abandoned; after an error it is left alone for a while."""
        try:
            found = await self._ns.find_id(file_id)
            if found is not None and await self._is_abandoned(found.record):
                await self._recoverer.recover(found)
        except (LeaseholdError, OSError) as error:
            logger.error("file %s cannot be recovered now: %s", file_id, error)
        except Exception:  # one bad file must not stop the others
            logger.exception("file %s cannot be recovered now", file_id)
        else:
            self._failed.pop(file_id, None)
            return
        failures = self._failed.setdefault(file_id, _Failures(Backoff(RETRIES_S, self._ns.random)))
        failures.retry_at = self._ns.clock.monotonic() + failures.backoff.next_s()

    async def _is_abandoned(self, record: FileRecord) -> bool:
        """Return whether a file is to be recovered: it may have had another holder since."""
        if record.state != FileState.OPEN:
            return record.state == FileState.RECOVERING
        holder = await self._ns.range(holder_key(record.holder))
        return not holder.pairs or holder.pairs[0].create_revision != record.holder_revision
