"""Backups: a copy of a journal as of one moment, made while it is in use.

Theory of operation. Only the process that has a directory open can read it, so that process makes
the copy; others ask it to (`store.control_socket`). SQLite copies page by page. Pages that the same
connection changes meanwhile are changed in the copy as well. So the copy is as of the moment at
which its last page was copied, and contains everything acknowledged before. The pages are copied in
the thread that also commits, some milliseconds at a time, with commits in between. A slice takes
longer if more was appended since the last slice than it would copy. So every slice leaves less to
do, and the copy terminates.

Slow work happens in other threads: the copy is synced from time to time and at the end, so that
commits do not have to wait until all of it is written. A full disk fails the backup, not the
journal: the copy ends, and commits continue.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import apsw

from leasehold.basics.callbacks import ignore
from leasehold.clock import SYSTEM_CLOCK
from leasehold.errors import Closed, StorageError, TooBusy
from leasehold.journal.database_file import UNLOCKED_VFS
from leasehold.journal.journal_format import PAGE_BYTES
from leasehold.store.backup_file import (
    BackupDraft,
    OnProgress,
    UnlinkedFile,
    remove_leftovers,
    time_block,
)
from leasehold.store.checking import opened_to_read, reading, revision_of
from leasehold.store.committer import Committer
from leasehold.store.slices import SLICE_S

T = TypeVar("T")

MAX_BACKUPS: Final = 4
"""Backups of one engine that may be made at the same time."""

MAX_SNAPSHOTS: Final = 8
"""Copies beside the journal that may exist at the same time, until they are stored elsewhere.

They are counted apart from backups: a backup must not have to wait for slow readers of snapshots.
"""

MAX_SNAPSHOTS_MADE: Final = 1
"""How many of them may be in the making; the others wait. So each sees how much space is free."""

PAGES_PER_STEP: Final = 32
SYNC_BYTES: Final = 16 * 1024 * 1024
"""How many bytes are copied between two syncs of the copy."""


class Backup(NamedTuple):
    """A finished backup."""

    path: Path
    revision: int
    """It contains everything acknowledged up to this revision, and nothing of later ones."""
    size_bytes: int


class Copy:
    """Copies a journal into a file, in slices. Calls come one at a time, from any thread."""

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
            # After any failure the file is thrown away; and it is synced elsewhere.
            self._target.execute("PRAGMA journal_mode=OFF")
            self._target.execute("PRAGMA synchronous=OFF")
            self._backup = source(self._target)
        except apsw.Error as error:
            raise _failed(error) from error

    def go_on(self) -> bool:
        """Copy some pages; return True if there are more."""
        assert self._backup is not None, "it was not begun, or is over"
        until = time.perf_counter() + SLICE_S
        try:
            while not self._backup.step(PAGES_PER_STEP):
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
        """Release everything; also possible in the middle of a copy."""
        if self._backup is not None:
            with suppress(apsw.Error):  # it was raised before
                self._backup.finish()
            self._backup = None
        if self._target is not None:
            self._target.close(force=True)
            self._target = None


def _failed(error: apsw.Error) -> StorageError:
    # For an error within a copy SQLite sets the code only, and the text "not an error".
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
        """Make a backup; it is on disk when this returns. A failed backup leaves no file."""
        target = _place(path, self._directory)
        if self._backups >= MAX_BACKUPS:
            raise TooBusy(f"{MAX_BACKUPS} backups are being made already; wait for one of them")
        draft = BackupDraft(target, force=force)
        self._backups += 1
        try:
            await _in_thread(draft.begin)
            await self._copy(draft, on_progress or ignore)
            return await _in_thread(lambda: _finished(draft))
        finally:
            self._backups -= 1
            await _in_thread(draft.discard)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[UnlinkedFile]:
        """Make a copy that the caller stores elsewhere, without a checksum at its end.

        It is beside the journal, and is removed when the block ends.
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
    async def _nameless(self) -> AsyncIterator[UnlinkedFile]:
        needed_bytes = await self._committer().do(lambda journal: journal.size_bytes)
        file = UnlinkedFile(self._directory, needed_bytes)
        try:
            await _in_thread(file.begin)
            yield file
        finally:
            await _in_thread(file.close)

    async def close(self) -> None:
        """Abort all copies that are under way, before the committer is closed."""
        self._is_closed = True
        await asyncio.gather(*self._under_way)

    async def _copy(
        self,
        draft: BackupDraft | UnlinkedFile,
        on_progress: OnProgress,
        on_begun: Callable[[], None] = ignore,
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
            # As a chore, because a chore that has begun continues even if its caller stops waiting.
            try:
                await asyncio.shield(do(lambda _: copy.close()))
            except Closed:
                copy.close()
            finally:
                self._under_way.discard(over)
                over.set_result(None)

    async def _copy_slices(
        self, draft: BackupDraft | UnlinkedFile, copy: Copy, on_progress: OnProgress
    ) -> None:
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
    """Make a backup of a directory that no process has open; the directory is not changed."""
    target = _place(path, directory)
    with reading(directory) as connection:
        draft = BackupDraft(target, force=force)
        try:
            draft.begin()
            _copy_all(connection, draft, on_progress or ignore)
            return _finished(draft)
        finally:
            draft.discard()


def _copy_all(source: apsw.Connection, draft: BackupDraft, on_progress: OnProgress) -> None:
    copy = Copy(draft.path)
    try:
        copy.begin(lambda target: target.backup("main", source, "main"))
        while copy.go_on():
            on_progress(copy.done_bytes, copy.total_bytes)
        on_progress(copy.done_bytes, copy.total_bytes)
    finally:
        copy.close()


def _finished(draft: BackupDraft) -> Backup:
    with opened_to_read(draft.path) as connection:
        revision = revision_of(connection, draft.path)
    return Backup(draft.target, revision, draft.finish(_now_us()))


def _now_us() -> int:
    return int(SYSTEM_CLOCK.wall() * 1_000_000)


def _place(path: str | PathLike[str], directory: Path | None) -> Path:
    """Return the path of a backup; not in the directory itself: the journal might be replaced."""
    target = Path(path).absolute()
    with suppress(OSError, ValueError):  # `BackupDraft` will raise it
        if directory is not None and target.parent.samefile(directory):
            raise StorageError(
                f"{target} is within the data directory {directory}: a backup belongs elsewhere, "
                "best on another disk"
            )
    return target


async def _in_thread(work: Callable[[], T]) -> T:
    """Call `work` in another thread and wait until it returns, even if this is cancelled."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        if not job.cancelled():
            job.exception()  # retrieved, so that asyncio does not log it
        raise
