"""The holder: one lease for all files that a client has open for writing.

The lease lasts as long as the hard limit. A checker looks at it every second while files are open,
and renews it when half of the soft limit has passed; opening a file and flushing renew it, too. So
the cost does not depend on the number of files. A renewal that fails is tried again at the next
look. Past the hard limit, or when the lease is gone, all open files are lost; the client stays
usable, and its next file gets a new holder. From time to time the checker also looks whether others
have taken all files: then the lease is given up.

A file may be left open without a writer: opening it had no answer, or closing it failed. The
checker recovers such files, so that the lease of the others does not keep them open.

A holder id is used for one lease only. The key of the holder is rewritten after a create of unknown
outcome: a create compares its mod revision, so the request cannot be executed later.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from leasehold.basics.forgotten import warn_forgotten
from leasehold.engine.interface import prefix_end
from leasehold.engine.time_limits import time_limit
from leasehold.errors import (
    FileNotFound,
    LeaseExists,
    LeaseExpired,
    LeaseholdError,
    UnknownLease,
)
from leasehold.files.file_keys import holder_key, holder_value, opened_by
from leasehold.files.namespace import CALL_S, Namespace
from leasehold.files.state import FilesConfig
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target
from leasehold.sessions.lease_keeper import LOST_S, MAX_ID, end_one

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""How often the checker looks."""

RENEW_AT: Final = 0.5
"""The part of the soft limit after which the checker renews."""

RENEW_PAUSE_S: Final = 1.0
"""Flushes and opens do not renew a lease again before this time, or a tenth of the soft limit."""

TAKEN_S: Final = 300.0
"""How often the checker, when it renews, looks whether others have taken all files."""

FINISH_S: Final = 5.0
"""How often a file that was left open without a writer is looked at."""

REVOKE_S: Final = 2.0
"""How long revoking the lease after the last close is tried."""


class OpenedFile(Protocol):
    """A file that is open for writing; `FileWriter` is one, and imports this module."""

    def lost(self, why: str) -> None:
        """Record that the lease is lost: no further call can succeed."""
        ...

    def unlinked(self, why: str) -> None:
        """Record that the file was deleted or replaced: no further call can succeed."""
        ...

    async def verify(self) -> None:
        """Raise `LeaseExpired` or `FileNotFound` if the writer has lost the file."""
        ...


@dataclass(frozen=True)
class OpenFileInfo:
    """A file that a holder has open for writing."""

    path: str
    id: str
    holder: str
    elapsed_s: float | None
    """Seconds since the last renewal of the lease, at least; None if the lease has ended."""


@dataclass(frozen=True)
class HolderInfo:
    """A holder, and how many files it has open."""

    holder: str
    files: int
    elapsed_s: float | None
    """Since it has renewed its lease, at least; None if the lease has ended."""


@dataclass
class LiveHolder:
    """A holder with a lease."""

    id: str
    lease: int
    revision: int
    """The create revision of its key."""
    epoch: int
    """The mod revision of its key."""
    hard_limit_s: float
    soft_limit_s: float
    renewed_at: float
    """When the last successful renewal was sent, by the clock that runs through suspend."""
    tried_at: float = 0.0
    """When the last renewal was sent, answered or not."""
    looked_at: float = 0.0
    """When the checker has looked whether others have taken all files."""

    def is_live(self) -> Compare:
        """Return the condition that its key exists."""
        key = holder_key(self.id)
        return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, self.revision)

    def is_current(self) -> Compare:
        """Return the condition that its key was not rewritten."""
        return Compare(holder_key(self.id), Target.MOD_REVISION, Relation.EQUAL, self.epoch)


class FileHolder:
    """The holder of a client, and the files that it has open."""

    def __init__(
        self,
        namespace: Namespace,
        config: Callable[[], Awaitable[FilesConfig]],
        name: str,
        finish: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        """`finish` recovers a file, by its id, if a holder has it open; True if it has not."""
        self._ns = namespace
        self._config = config
        self._finish = finish
        self._name = name.replace("/", "-")
        self._live: LiveHolder | None = None
        self._making = asyncio.Lock()
        self._opening = 0
        self._checker: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[bool]] = set()
        self.files: WeakValueDictionary[str, OpenedFile] = WeakValueDictionary()
        """The open files, by id. A writer that is forgotten must not keep its file."""
        self._unfinished: dict[str, float] = {}
        """Files that may be open without a writer, and when they are looked at."""
        self._reopening: Counter[str] = Counter()

    @property
    def id(self) -> str:
        """The id of the current holder; empty if no file is open."""
        return "" if self._live is None else self._live.id

    @asynccontextmanager
    async def opening(self) -> AsyncGenerator[LiveHolder]:
        """Provide a live holder, which is not given up while a file is being opened."""
        self._opening += 1
        try:
            yield await self._current()
        finally:
            self._opening -= 1
            self._give_up_if_unused()

    async def _current(self) -> LiveHolder:
        while True:
            async with self._making:
                if self._live is None:
                    self._live = await self._make()
            await self.renew()
            if (live := self._live) is not None:
                return live

    async def _make(self) -> LiveHolder:
        ns, config = self._ns, await self._config()
        lease = ns.random.randint(1, MAX_ID)
        sent_at = ns.clock.boottime()
        holder_id = f"{self._name}-{ns.new_id()}"
        key, value = holder_key(holder_id), holder_value(config.soft_limit_s)

        async def grant() -> None:
            try:
                await ns.engine.grant(config.hard_limit_s, lease=lease)
            except LeaseExists:  # an earlier attempt was executed
                return

        compare = Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)
        try:
            await ns.answered(grant)
            done = await ns.txn([compare], [Put(key, value, lease)], [Range(key)])
        except BaseException:
            self._revoke(lease, LOST_S, may_come=True)
            raise
        created = done.revision if done.succeeded else done.results[0].pairs[0].create_revision
        return LiveHolder(
            holder_id,
            lease,
            created,
            created,
            config.hard_limit_s,
            config.soft_limit_s,
            sent_at,
            looked_at=sent_at,
        )

    async def settle(self, live: LiveHolder) -> bool:
        """Rewrite the key of a holder, so that no earlier create can be executed any more.

        Return False if the holder is gone.
        """
        key = holder_key(live.id)
        steps = [Put(key, holder_value(live.soft_limit_s), live.lease)]
        try:
            done = await self._ns.txn([live.is_live()], steps)
        except UnknownLease:
            done = None
        if done is None or not done.succeeded:
            self.gone(live)
            return False
        live.epoch = done.revision
        return True

    def gone(self, live: LiveHolder) -> None:
        """Record that the key of a holder does not exist any more."""
        if live is self._live:
            self._lose("its lease has ended")

    # Renewing.

    async def renew(self) -> None:
        """Renew the lease, unless that was tried just now. A failure is left to the checker."""
        live = self._live
        if live is None:
            return
        pause_s = min(RENEW_PAUSE_S, live.soft_limit_s / 10)
        # Many files may be opened or flushed together: one message is enough.
        if self._ns.clock.boottime() - max(live.renewed_at, live.tried_at) < pause_s:
            return
        await self._renew(live)

    async def _renew(self, live: LiveHolder) -> None:
        sent_at = live.tried_at = self._ns.clock.boottime()
        try:
            async with time_limit(CALL_S, self._ns.engine):
                await self._ns.engine.renew(live.lease)
        except UnknownLease:
            self.gone(live)
        except (LeaseholdError, OSError) as error:
            logger.warning("the lease of file holder %s was not renewed: %s", live.id, error)
        else:
            live.renewed_at = max(live.renewed_at, sent_at)

    def _lose(self, why: str) -> None:
        self._live = None
        self._unfinished.clear()  # they are recovered like all files of a holder that is gone
        files = list(self.files.values())
        self.files.clear()
        for file in files:
            file.lost(why)

    async def _check(self) -> None:
        """Look every second while files are open."""
        while self.files or self._unfinished:
            await asyncio.sleep(CHECK_S)
            live = self._live
            if live is None:
                continue
            elapsed_s = self._ns.clock.boottime() - live.renewed_at
            if elapsed_s > live.hard_limit_s:
                logger.error(
                    "file holder %s was not renewed for %g s: its files are aborted",
                    live.id,
                    elapsed_s,
                )
                self._lose("its lease was not renewed within the hard limit")
            elif elapsed_s >= live.soft_limit_s * RENEW_AT and self.files:
                await self._renew(live)
                await self._give_up_taken(live)
            await self._finish_files()
        self._checker = None

    async def _give_up_taken(self, live: LiveHolder) -> None:
        """Give up the lease if others have taken all its files, and no writer has asked since.

        The next call of each writer finds out what has happened to its file.
        """
        now = self._ns.clock.boottime()
        if now < live.looked_at + TAKEN_S:
            return
        live.looked_at = now
        files = dict(self.files.items())  # holds them: a writer may be collected in any line
        prefix = opened_by(live.id)
        try:
            found = await self._ns.range(prefix, prefix_end(prefix), limit=1)
        except (LeaseholdError, OSError) as error:
            logger.warning("the open files of holder %s cannot be read: %s", live.id, error)
            return
        if found.pairs or live is not self._live:
            return
        for file_id, file in files.items():  # others may have been opened since
            self.forget(file_id, file)

    async def _finish_files(self) -> None:
        """Recover files that may be open without a writer."""
        now = self._ns.clock.monotonic()
        for file_id in [each for each, at in self._unfinished.items() if at <= now]:
            live = self._live
            if live is None:
                return
            if file_id in self._reopening:
                continue
            self._unfinished[file_id] = now + FINISH_S
            try:
                # After this, no request that was given up can open the file.
                is_live = await self.settle(live)
                if is_live and (writer := self.files.get(file_id)) is not None:
                    await self._check_writer(file_id, writer)
                elif is_live and await self._finish(file_id, live.id):
                    self._unfinished.pop(file_id, None)
            except (LeaseholdError, OSError) as error:
                logger.warning("file %s is not closed yet: %s", file_id, error)

    async def _check_writer(self, file_id: str, writer: OpenedFile) -> None:
        """Let a writer check whether it has its file; otherwise it abandons the file."""
        retry_at = self._unfinished.pop(file_id, 0.0)
        try:
            async with asyncio.timeout(CALL_S):
                await writer.verify()
        except (LeaseExpired, FileNotFound):
            pass  # it knows now
        except (LeaseholdError, OSError):
            self._unfinished.setdefault(file_id, retry_at)
            raise

    # Files.

    def opened(self, file_id: str, file: OpenedFile) -> None:
        """Add an open file; the checker runs while there is one."""
        self.files[file_id] = file
        self._unfinished.pop(file_id, None)
        self._start_checker()

    def _start_checker(self) -> None:
        if self._checker is None:
            self._checker = asyncio.get_running_loop().create_task(self._check())

    def forget(self, file_id: str, file: OpenedFile | None) -> None:
        """Remove a file that was closed or lost, unless it was opened again since.

        The lease is revoked with the last one, in the background. `file` is None for a writer that
        was garbage-collected and revived: it is not among the files any more.
        """
        if file is not None and self.files.get(file_id) is file:
            del self.files[file_id]
        self._give_up_if_unused()

    @contextmanager
    def reopening(self, file_id: str) -> Generator[None]:
        """Do not recover a file while it is being opened again."""
        self._reopening[file_id] += 1
        try:
            yield
        finally:
            self._reopening[file_id] -= 1
            if not self._reopening[file_id]:
                del self._reopening[file_id]

    def is_in_use(self, file_id: str) -> bool:
        """Return whether a file has a writer, or is being opened again."""
        return file_id in self.files or file_id in self._reopening

    def abandon(self, file_id: str, file: OpenedFile | None = None) -> None:
        """Record that a file may be open without a writer: it is recovered.

        `file` is its writer, if there was one. If there is another writer, that one has the file,
        or finds out that it has not.
        """
        if self.files.get(file_id) is file:
            self.files.pop(file_id, None)
        self._unfinished[file_id] = self._ns.clock.monotonic() + FINISH_S
        self._give_up_if_unused()
        if self._unfinished:
            self._start_checker()

    def forgotten(self, file_id: str, path: str) -> None:
        """Report a file whose writer was garbage-collected while it was open, and recover it."""
        if self._live is not None and file_id not in self.files:
            self.abandon(file_id)
            text = f"the writer of {path!r} was garbage-collected without being closed"
            warn_forgotten(text, "the file is recovered at its flushed length")

    def unlinked(self, file_id: str, why: str) -> None:
        """Remove a file that this client has deleted or replaced itself."""
        if file := self.files.pop(file_id, None):
            file.unlinked(why)
            self._give_up_if_unused()

    def _give_up_if_unused(self) -> None:
        if not self.files and not self._opening and self._live is not None:
            live, self._live = self._live, None
            self._unfinished.clear()
            self._revoke(live.lease, REVOKE_S)

    def _revoke(self, lease: int, within_s: float, *, may_come: bool = False) -> None:
        ns = self._ns
        ending = end_one(ns.engine, lease, within_s, ns.random, may_come=may_come)
        task = asyncio.get_running_loop().create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop the checker, and revoke the lease. Files that are still open are recovered."""
        if self._checker is not None:
            self._checker.cancel()
            await asyncio.gather(self._checker, return_exceptions=True)
            self._checker = None
        live = self._live
        self._lose("the client was closed")
        if live is not None:
            self._revoke(live.lease, REVOKE_S)
        if self._ending:
            await asyncio.wait(self._ending, timeout=REVOKE_S)
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
