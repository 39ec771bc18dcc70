"""What keeps a store going: journal, commits, housekeeping, and those who wait for the disk.

Two stand on it: the engine in this process, and the services of the server, which call the store
directly because a coroutine for each request would cost more than the request.
"""

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.callback import ignore
from leasehold.core.histogram import Histogram
from leasehold.core.ops import Delete, Txn
from leasehold.core.watchers import Watcher
from leasehold.engine.backup import Backups
from leasehold.engine.catching_up import CatchUp
from leasehold.engine.committer import Committer
from leasehold.engine.control import Control
from leasehold.engine.housekeeping import AutoCompaction, Housekeeping
from leasehold.engine.journal import Journal
from leasehold.engine.reading import Reader
from leasehold.engine.slices import Slicer
from leasehold.engine.store import DEFAULT_QUOTA_BYTES, Store
from leasehold.engine.waiting import Waiting
from leasehold.errors import Closed, Forked, JournalFailed, LeaseholdError
from leasehold.owner_loop import OwnerLoop

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_DONE: Final = object()

CALLS_AT_ONCE: Final = 64
"""Calls that need not wait for anything are answered without a turn of the loop, but no more."""


class Runtime:
    """A store that is kept on disk, or for `directory` None nowhere.

    Making one reads the journal, which takes as long as it is long; `start` needs an event loop.
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
        self.on_failure: Callable[[LeaseholdError], None] = ignore
        """Told once, if it cannot go on."""
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
        self.journal = Journal(directory, heir=self.store, vfs=vfs)
        self.store.complete()
        self.store.measure(self.journal.used_bytes)
        self.store.on_torn = self.fail
        self.reader = Reader(self.store, self._get_committer)
        self.waiting = Waiting(self.store)
        self.housekeeping = Housekeeping(
            self.store, self._get_committer, self.reader.load, compaction or AutoCompaction()
        )
        self._catch_up = CatchUp(self.store, self._get_committer, self.reader.load)
        self.catch_up = self.store.watchers.on_behind = self._catch_up.wake
        self.until_durable = self.waiting.until_durable
        self.backups = Backups(directory, self._get_committer)
        self._control = Control(directory, self.backups)
        _runtimes.add(self)

    def start(self) -> None:
        """Begin, on the running event loop."""
        self.owner = OwnerLoop("engine")  # it may have been made in a thread without a loop
        self.store.start()
        self._committer = Committer(self.store, self.journal, self.fail)
        self.housekeeping.start()
        self._control.start()

    @property
    def commit_costs_s(self) -> Histogram:
        """What commits took so far, each with its sync."""
        return self._get_committer().costs_s

    @property
    def outstanding_s(self) -> float:
        """How long the oldest change that is not on disk has waited for it; 0 if there is none."""
        return 0.0 if self._committer is None else self._committer.outstanding_s

    def _get_committer(self) -> Committer:
        assert self._committer is not None, "it was not started"
        return self._committer

    # How it ends.

    async def stop(self) -> None:
        """Take no more calls, write what is left, and answer those who wait for it."""
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
        """Write what leases have left, after everything else, and the mark of a clean stop."""
        if self.failure is not None or self._directory is None:
            return
        await self.until_durable(self.store.position)
        slicer = Slicer(self.store.leases.monotonic)
        entries, unrenewed = await slicer.run(self.store.leases.remaining(), self.reader.load)
        steps = self.journal.note_remaining(entries, unrenewed)
        while await committer.do(lambda _: next(steps, _DONE) is not _DONE, is_ours=True):
            continue

    def discard(self) -> None:
        """Leave a journal that was read, and never served, as clean as it was found."""
        steps = self.store.leases.remaining()
        try:
            while True:
                next(steps)
        except StopIteration as done:
            for _ in self.journal.note_remaining(*done.value):
                continue

    def fail(self, error: BaseException) -> None:
        """Stop: memory is ahead of the disk, and must not be shown to anybody."""
        if self.failure is not None:
            return
        self.failure = error
        logger.critical("a commit failed, and everything stops: %s", error)
        self.store.leases.close()
        failed = self._failed()
        self.waiting.give_up(failed)
        self.on_failure(failed)

    def _failed(self) -> LeaseholdError:
        return JournalFailed(f"the engine has stopped: {self.failure}")

    def abandon(self) -> None:
        """Be of no use in a child process; what the parent has stays as it is."""
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

    # How calls go.

    async def breathe(self) -> None:
        """Let others have a turn once in a while, also if nobody here ever has to wait."""
        self.check_call()
        self._calls += 1
        if not self._calls % CALLS_AT_ONCE:
            await asyncio.sleep(0)
            self.check()

    async def enter(self) -> None:
        """What comes first in each call that reads or changes keys."""
        await self.breathe()
        while self.store.is_busy:
            await self.housekeeping.until_idle()
            self.check()
        self.store.leases.enter()

    async def in_steps(self, op: Delete | Txn) -> tuple[Any, int]:
        """Apply a long operation in slices. It goes on even if nobody waits for it any more."""
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
        """Have something done with the journal, in its thread, between two commits."""
        return self._get_committer().do(chore)

    def follow(self, watch: Watcher, start: int) -> None:
        """Begin to tell a watch, from a revision on or (0) from now on."""
        if 0 < start <= self.store.revision:
            self.store.watchers.fall_behind(watch, start)
            self.catch_up()
        else:
            self.store.watchers.join(watch)


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _abandon_all() -> None:
    for runtime in list(_runtimes):
        with contextlib.suppress(Exception):
            runtime.abandon()


os.register_at_fork(after_in_child=_abandon_all)
