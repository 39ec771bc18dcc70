"""The server with a fault built in. Run by the fault tests.

    python faulty_server.py FAULT serve ...

Slow disks are for tests of what the server does then. The others are seeded bugs: the tests that
are to find such bugs are run against them, and must fail.
"""

import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest import mock

import apsw

from leasehold.cli import main
from leasehold.core.lease_clock import LeaseClock
from leasehold.engine import committer, journal
from leasehold.server import app

SYNC_S: Final = 0.05
VFS_NAME: Final = "slow-disk"


class SlowDisk(apsw.VFS):
    """A disk on which each sync takes its time."""

    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file."""
        return SlowFile("", name, flags)


class SlowFile(apsw.VFSFile):
    """A file on it."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync, slowly."""
        time.sleep(SYNC_S)  # this is the fault
        super().xSync(flags)


class BatchTooLate(journal.Journal):
    """A seeded bug: a batch is written when the next one comes, and acknowledged before."""

    _late: tuple[int, int, bytes] | None = None

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        """Write the batch before this one."""
        if self._late is not None:
            super().append(*self._late)
        self._late = (first_revision, last_revision, changes)


class SinkingDisk(SlowDisk):
    """A disk that takes no more from the moment on that SIGUSR1 comes in."""

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file."""
        return SinkingFile("", name, flags)


class SinkingFile(apsw.VFSFile):
    """A file on it."""

    has_sunk = False

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write, or say that the disk is full."""
        if self.has_sunk:
            raise apsw.FullError("this disk is full, by design of the test")
        super().xWrite(data, offset)


class AlwaysInline(committer.Pace):
    """A seeded bug: the event loop waits for every commit, however long it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_inline = True

    def note(self, cost_s: float) -> None:
        """Learn nothing."""


def _serve_from(disk: SlowDisk) -> SlowDisk:
    server = partial(app.LeaseholdServer, vfs=VFS_NAME)
    mock.patch.object(app, "LeaseholdServer", server).start()
    return disk


def _slow_disk() -> SlowDisk:
    return _serve_from(SlowDisk())


def _sinking_disk() -> SlowDisk:
    signal.signal(signal.SIGUSR1, lambda *_: setattr(SinkingFile, "has_sunk", True))
    return _serve_from(SinkingDisk())


def _slow_disk_inline() -> SlowDisk:
    mock.patch.object(committer, "Pace", AlwaysInline).start()
    return _slow_disk()


def _batch_too_late() -> None:
    mock.patch.object(app, "Journal", BatchTooLate).start()


def _standstill_counts() -> None:
    mock.patch.object(LeaseClock, "advance", LeaseClock.elapse).start()


FAULTS: Final[dict[str, Callable[[], Any]]] = {
    "slow-disk": _slow_disk,
    "slow-disk-inline": _slow_disk_inline,
    "sinking-disk": _sinking_disk,
    "batch-too-late": _batch_too_late,
    "standstill-counts": _standstill_counts,
}

if __name__ == "__main__":
    fault = FAULTS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
