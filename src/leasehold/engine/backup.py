"""Backups: a copy of a journal as of one moment, made while it is in use.

Theory of operation. Only the process that has a directory can read it, so it makes the copy itself
(others ask it to: `engine.control`). SQLite copies page by page; the pages that are changed
meanwhile by the same connection it changes in the copy as well, so the copy is as of the moment at
which it has its last page, and everything that was acknowledged before is in it. The pages are
copied in the thread that also commits, some milliseconds at a time, with commits in between. A
slice is longer than that if more was appended since the last one than it would copy: so every slice
leaves less to do, and there is an end.

What is slow happens in other threads: from time to time, and in the end, what was copied is synced,
so that commits do not have to wait for all of it to be written. A disk that is full is the backup's
problem and not the journal's: the copy ends, and commits go on.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import apsw

from leasehold.clock import SYSTEM_CLOCK
from leasehold.core.callback import ignore
from leasehold.engine.backup_file import Draft, OnProgress, time_block
from leasehold.engine.checking import opened_to_read, reading, revision_of
from leasehold.engine.committer import Committer
from leasehold.engine.database_file import UNLOCKED_VFS
from leasehold.engine.journal_format import PAGE_BYTES
from leasehold.engine.nameless_file import NamelessFile, remove_leftovers
from leasehold.engine.slices import SLICE_S
from leasehold.errors import Closed, StorageError, TooBusy

T = TypeVar("T")

MAX_BACKUPS: Final = 4
"""Backups of one engine that may be made at the same time."""

MAX_SNAPSHOTS: Final = 8
"""Copies beside the journal that may be there at the same time, until somebody has them elsewhere.

They are apart from backups: whoever makes those must not have to wait for slow readers of these.
"""

MAX_SNAPSHOTS_MADE: Final = 1
"""Of these, how many are being made; the others wait for that. So each sees what room there is."""

PAGES_AT_ONCE: Final = 32
SYNC_BYTES: Final = 16 * 1024 * 1024
"""So much is copied between two syncs of the copy."""


class Backup(NamedTuple):
    """A backup that was made."""

    path: Path
    revision: int
    """It has all that was acknowledged up to this revision, and nothing of later ones."""
    size_bytes: int


class Target(Protocol):
    """A file that a journal is copied into."""

    @property
    def path(self) -> Path:
        """Where it is when the copy begins."""
        ...

    def sync(self) -> None:
        """Put on disk what has been written so far."""
        ...


class Copy:
    """A journal on its way into a file, in slices. Calls come one at a time, from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target: apsw.Connection | None = None
        self._backup: apsw.Backup | None = None
        self._left = sys.maxsize
        self.done_bytes = 0
        self.total_bytes = 0

    def begin(self, source: Callable[[apsw.Connection], apsw.Backup]) -> None:
        """Begin, from a journal's `copy_into`."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        try:
            # Without SQLite's locks: the draft is locked, and not every backup disk supports them.
            self._target = apsw.Connection(self._path.as_uri(), flags=flags, vfs=UNLOCKED_VFS)
            # Whatever goes wrong, the file is thrown away; and it is synced by others.
            self._target.execute("PRAGMA journal_mode=OFF")
            self._target.execute("PRAGMA synchronous=OFF")
            self._backup = source(self._target)
        except apsw.Error as error:
            raise _failed(error) from error

    def go_on(self) -> bool:
        """Copy some pages; True if there are more."""
        assert self._backup is not None, "it was not begun, or is over"
        until = time.perf_counter() + SLICE_S
        try:
            while not self._backup.step(PAGES_AT_ONCE):
                remaining = self._backup.remaining
                if time.perf_counter() >= until and remaining < self._left:
                    break
        except apsw.Error as error:
            raise _failed(error) from error
        self._left = self._backup.remaining
        self.total_bytes = self._backup.page_count * PAGE_BYTES
        self.done_bytes = self.total_bytes - self._left * PAGE_BYTES
        return not self._backup.done

    def close(self) -> None:
        """Be done with it, in the middle too."""
        if self._backup is not None:
            with suppress(apsw.Error):  # it was told before
                self._backup.finish()
            self._backup = None
        if self._target is not None:
            self._target.close(force=True)
            self._target = None


def _failed(error: apsw.Error) -> StorageError:
    # Of what happens within a copy SQLite tells the code only, and as text that it is no error.
    match error:
        case apsw.FullError():
            why = "the disk is full"
        case apsw.IOError():
            why = "the disk could not be written, or that of the data not be read"
        case _:
            why = f"{type(error).__name__}: {error}"
    return StorageError(
        f"the backup was given up: {why}; make sure that there is room for it, then try again"
    )


class Backups:
    """The backups of a running engine."""

    def __init__(self, directory: Path | None, committer: Callable[[], Committer]) -> None:
        self._directory = directory
        self._committer = committer
        self._under_way: set[asyncio.Future[None]] = set()
        self._backups = 0
        self._snapshots = 0
        self._turn = asyncio.Semaphore(MAX_SNAPSHOTS_MADE)
        self._is_closed = False
        if directory is not None:
            remove_leftovers(directory)

    async def make(
        self,
        path: str | PathLike[str],
        on_progress: OnProgress | None = None,
        *,
        force: bool = False,
    ) -> Backup:
        """Make a backup; it is on disk when this returns. If it fails, nothing is left of it."""
        target = _place(path, self._directory)
        if self._backups >= MAX_BACKUPS:
            raise TooBusy(f"{MAX_BACKUPS} backups are being made already; wait for one of them")
        draft = Draft(target, force=force)
        self._backups += 1
        try:
            await _in_thread(draft.begin)
            await self._copy(draft, on_progress or ignore)
            return await _in_thread(lambda: _finished(draft))
        finally:
            self._backups -= 1
            await _in_thread(draft.discard)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[NamelessFile]:
        """Make a copy for somebody who keeps it elsewhere, without a checksum at its end.

        It is beside the journal, and gone when the block ends.
        """
        if self._snapshots >= MAX_SNAPSHOTS:
            raise TooBusy(
                f"{MAX_SNAPSHOTS} snapshots are being made or sent already; wait for one of them, "
                "or use `leasehold backup`"
            )
        self._snapshots += 1
        try:
            async with AsyncExitStack() as stack:
                async with self._turn:
                    file = await stack.enter_async_context(self._nameless())
                    await self._copy(file, ignore, file.lose_name)
                    file.append(time_block(_now_us()))
                yield file
        finally:
            self._snapshots -= 1

    @asynccontextmanager
    async def _nameless(self) -> AsyncIterator[NamelessFile]:
        needed_bytes = await self._committer().do(lambda journal: journal.size_bytes)
        file = NamelessFile(self._directory, needed_bytes)
        try:
            await _in_thread(file.begin)
            yield file
        finally:
            await _in_thread(file.close)

    async def close(self) -> None:
        """Give up all copies that are under way, before the committer is closed."""
        self._is_closed = True
        await asyncio.gather(*self._under_way)

    async def _copy(
        self, draft: Target, on_progress: OnProgress, on_begun: Callable[[], None] = ignore
    ) -> None:
        self._check_open()
        copy = Copy(draft.path)
        over = asyncio.get_running_loop().create_future()
        self._under_way.add(over)
        do = self._committer().do
        try:
            await do(lambda journal: copy.begin(journal.copy_into))
            on_begun()
            await self._copy_slices(draft, copy, on_progress)
        finally:
            # As a chore, because one that was begun goes on even if nobody waits for it.
            try:
                await asyncio.shield(do(lambda _: copy.close()))
            except Closed:
                copy.close()
            finally:
                self._under_way.discard(over)
                over.set_result(None)

    async def _copy_slices(self, draft: Target, copy: Copy, on_progress: OnProgress) -> None:
        synced_bytes = 0
        while await self._committer().do(lambda _: copy.go_on()):
            self._check_open()
            on_progress(copy.done_bytes, copy.total_bytes)
            if copy.done_bytes - synced_bytes >= SYNC_BYTES:
                synced_bytes = copy.done_bytes
                await _in_thread(draft.sync)
        on_progress(copy.done_bytes, copy.total_bytes)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the engine was closed before the backup was made")


def back_up_directory(
    directory: Path,
    path: str | PathLike[str],
    on_progress: OnProgress | None = None,
    *,
    force: bool = False,
) -> Backup:
    """Make a backup of a directory that nobody has open; it is not changed by that."""
    target = _place(path, directory)
    with reading(directory) as connection:
        draft = Draft(target, force=force)
        try:
            draft.begin()
            _copy_all(connection, draft, on_progress or ignore)
            return _finished(draft)
        finally:
            draft.discard()


def _copy_all(source: apsw.Connection, draft: Draft, on_progress: OnProgress) -> None:
    copy = Copy(draft.path)
    try:
        copy.begin(lambda target: target.backup("main", source, "main"))
        while copy.go_on():
            on_progress(copy.done_bytes, copy.total_bytes)
        on_progress(copy.done_bytes, copy.total_bytes)
    finally:
        copy.close()


def _finished(draft: Draft) -> Backup:
    with opened_to_read(draft.path) as connection:
        revision = revision_of(connection, draft.path)
    return Backup(draft.target, revision, draft.finish(_now_us()))


def _now_us() -> int:
    return int(SYSTEM_CLOCK.wall() * 1_000_000)


def _place(path: str | PathLike[str], directory: Path | None) -> Path:
    """Say where a backup goes; not into the directory itself: the journal might be replaced."""
    target = Path(path).absolute()
    with suppress(OSError, ValueError):  # which `Draft` will tell
        if directory is not None and target.parent.samefile(directory):
            raise StorageError(
                f"{target} is within the data directory {directory}: a backup belongs elsewhere, "
                "best on another disk"
            )
    return target


async def _in_thread(work: Callable[[], T]) -> T:
    """Do something in another thread; it is over when this is, also if this was cancelled."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        if not job.cancelled():
            job.exception()  # looked at, so that nobody complains about it
        raise
