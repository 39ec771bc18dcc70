"""The runtime of a store: journal, commits, housekeeping, and the waiters for the disk.

It has two users: the engine in this process, and the services of the server, which call the store
directly because a coroutine for each request would cost more than the request.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from leasehold.basics.event_loop import OwnerLoop
from leasehold.basics.fork_hooks import call_in_child
from leasehold.basics.histogram import Histogram
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import Closed, Forked, JournalFailed, LeaseholdError
from leasehold.journal.journal import Journal
from leasehold.keyspace.operations import Delete, Txn
from leasehold.keyspace.ranges import finish
from leasehold.keyspace.watchers import Watcher
from leasehold.store.backup import Backups
from leasehold.store.committer import Committer
from leasehold.store.control_socket import Control
from leasehold.store.housekeeping import AutoCompaction, Housekeeping
from leasehold.store.slices import Slicer, StoreReader
from leasehold.store.store import DEFAULT_QUOTA_BYTES, Store
from leasehold.store.undurable_changes import DurabilityWaiters
from leasehold.store.watch_catch_up import CatchUp

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_DONE: Final = object()

CALLS_PER_TURN: Final = 64
"""Calls that need not wait are answered without a turn of the loop, at most this many in a row."""


class Runtime:
    """A store that is kept on disk, or in memory only if `directory` is None.

    The constructor reads the journal, which takes time in proportion to its length; `start` needs
    an event loop.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
        compaction: AutoCompaction | None = None,
        keys_per_lease: int | None = None,
        vfs: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.failure: BaseException | None = None
        self.failure_callbacks: list[Callable[[LeaseholdError], None]] = []
        """Called once, in this order, if the store has failed."""
        self._opened_by = os.getpid()
        self._is_closed = False
        self._is_forked = False
        self._calls = 0
        self.owner = OwnerLoop("engine")
        self._committer: Committer | None = None
        self._long: set[asyncio.Task[Any]] = set()
        self._directory = directory
        self.store = Store(clock, quota_bytes=quota_bytes)
        if keys_per_lease is not None:
            self.store.leases.max_keys = keys_per_lease
        self.journal = Journal(directory, replay=self.store.replay, vfs=vfs)
        self.store.complete()
        self.store.measure(self.journal.used_bytes)
        self.store.on_torn = self.fail
        self.reader = StoreReader(self.store, self._get_committer)
        self.waiting = DurabilityWaiters(self.store)
        self.housekeeping = Housekeeping(
            self.store, self._get_committer, self.reader.load, compaction or AutoCompaction()
        )
        self._catch_up = CatchUp(self.store, self._get_committer, self.reader.load)
        self.catch_up = self.store.watchers.on_behind = self._catch_up.wake
        self.until_durable = self.waiting.until_durable
        self.backups = Backups(directory, self._get_committer)
        self._control = Control(directory, self.backups)
        call_in_child(self, Runtime.abandon)

    def start(self) -> None:
        """Begin, on the running event loop."""
        self.owner = OwnerLoop("engine")  # it may have been made in a thread without a loop
        self.store.start()
        self._committer = Committer(self.store, self.journal, self.fail)
        self.housekeeping.start()
        self._control.start()

    @property
    def commit_costs_s(self) -> Histogram:
        """How long commits took, including the sync."""
        return self._get_committer().costs_s

    @property
    def outstanding_s(self) -> float:
        """How long the oldest change that is not on disk has been waiting; 0 if there is none."""
        return 0.0 if self._committer is None else self._committer.outstanding_s

    def _get_committer(self) -> Committer:
        assert self._committer is not None, "it was not started"
        return self._committer

    # Stopping.

    async def stop(self) -> None:
        """Refuse further calls, commit the remaining changes, and answer the waiting calls."""
        self._is_closed = True
        await self._control.close()
        await self.backups.close()
        self._catch_up.close()
        if self.failure is None:
            await asyncio.gather(*self._long, return_exceptions=True)
        await self.housekeeping.close()
        self.store.leases.close()
        if self._committer is not None:
            with contextlib.suppress(LeaseholdError):  # it has failed, and was logged
                await self._mark_clean(self._committer)
            await self._committer.close()
        elif not self._is_forked:
            with contextlib.suppress(LeaseholdError):
                self.discard()
        self.waiting.give_up(Closed("the engine was closed"))

    async def _mark_clean(self, committer: Committer) -> None:
        """Write the remaining terms of leases and the mark of a clean stop, as the last change."""
        if self.failure is not None or self._directory is None:
            return
        await self.until_durable(self.store.position)
        slicer = Slicer(self.store.leases.monotonic)
        entries, unrenewed = await slicer.run(self.store.leases.remaining(), self.reader.load)
        steps = self.journal.note_remaining(entries, unrenewed)
        while await committer.do(lambda _: next(steps, _DONE) is not _DONE, is_ours=True):
            continue

    def discard(self) -> None:
        """Leave a journal that was read, but never served, as clean as it was found."""
        for _ in self.journal.note_remaining(*finish(self.store.leases.remaining())):
            continue

    def fail(self, error: BaseException) -> None:
        """Stop: memory is ahead of the disk, and must not be shown."""
        if self.failure is not None:
            return
        self.failure = error
        logger.critical("a commit failed, so the engine stops: %s", error)
        self.store.leases.close()
        failed = self._failed()
        self.waiting.give_up(failed)
        for callback in self.failure_callbacks:
            callback(failed)

    def _failed(self) -> LeaseholdError:
        return JournalFailed(f"the engine has stopped: {self.failure}")

    def abandon(self) -> None:
        """Disable this in a child process; the parent is not affected."""
        self._is_forked = True
        self._control.abandon()
        if self._committer is not None:
            self._committer.abandon()
        self.journal.abandon()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that opened it."""
        return self._is_forked

    def check(self) -> None:
        """Refuse to work in a child process, and after the end."""
        if self._is_forked:
            raise Forked(self._opened_by)
        if self.failure is not None:
            raise self._failed() from self.failure
        if self._is_closed or self._committer is None:
            raise Closed("the engine was closed" if self._is_closed else "it was not started yet")

    def check_call(self) -> None:
        """Refuse a call in a child process, after the end, and in another event loop."""
        self.check()
        self.owner.check()

    # Calls.

    async def breathe(self) -> None:
        """Yield to the event loop once in a while, also if no call ever has to wait."""
        self.check_call()
        self._calls += 1
        if not self._calls % CALLS_PER_TURN:
            await asyncio.sleep(0)
            self.check()

    async def enter(self) -> None:
        """Enter a call that reads or changes keys; every such call begins with this."""
        await self.breathe()
        while self.store.is_busy:
            await self.housekeeping.until_idle()
            self.check()
        self.store.leases.enter()

    async def in_steps(self, op: Delete | Txn) -> tuple[Any, int]:
        """Apply a long operation in slices. It continues even if its caller stops waiting."""
        task = asyncio.get_running_loop().create_task(self._in_steps(op))
        self._long.add(task)
        task.add_done_callback(self._long.discard)
        return await asyncio.shield(task)

    async def _in_steps(self, op: Delete | Txn) -> tuple[Any, int]:
        while True:
            await self.housekeeping.until_idle()
            async with self.housekeeping.turn:
                if not self.store.is_busy:  # else a large lease has ended meanwhile
                    return await self._take_steps(op)

    async def _take_steps(self, op: Delete | Txn) -> tuple[Any, int]:
        slicer = Slicer(self.store.leases.monotonic)
        try:
            # A read that is refused half-way would leave the operation half done.
            return await slicer.run(self.store.steps(op), self.reader.load_always)
        finally:
            self.housekeeping.now_idle()

    def do(self, chore: Callable[[Journal], _T]) -> asyncio.Future[_T]:
        """Call `chore` with the journal, in its thread, between two commits."""
        return self._get_committer().do(chore)

    def follow(self, watch: Watcher, start: int) -> None:
        """Begin to notify a watch, from a revision on, or from now on for 0."""
        if 0 < start <= self.store.revision:
            self.store.watchers.fall_behind(watch, start)
            self.catch_up()
        else:
            self.store.watchers.join(watch)
