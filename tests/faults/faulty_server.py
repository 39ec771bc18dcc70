"""The server with a fault built in. Run by the fault tests.

    python faulty_server.py FAULT serve ...

Slow disks are for tests of what the server does then. The others are seeded bugs: the tests that
are to find such bugs are run against them, and must fail.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import apsw

from leasehold.cli import main
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.routes import Answer, DeferredAnswer, Pieces
from leasehold.journal import journal
from leasehold.keyspace.keyspace import Change
from leasehold.keyspace.watchers import Watcher
from leasehold.leases.lease_clock import LeaseClock
from leasehold.server import app
from leasehold.server.etcd import watch
from leasehold.server.etcd.kv import KVService
from leasehold.store import committer, runtime, store, store_leases, watch_catch_up
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.transactions import RevisionWriter

SYNC_S: Final = 0.05
LONG_SYNC_S: Final = 0.5
"""Much longer than clients take to ask for what is on its way to the disk, on any machine."""
VFS_NAME: Final = "slow-disk"
SKIPPED: Final = 7
BATCHES_LATE: Final = 64
FORGOTTEN_S: Final = 0.01
LOOK_S: Final = 0.01

_close_whole = store.Store._close
_restore_whole = store_leases.StoreLeases.restore


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

    sync_s = SYNC_S

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync, slowly."""
        time.sleep(self.sync_s)  # this is the fault
        super().xSync(flags)


class VerySlowDisk(SlowDisk):
    """A disk on which each sync takes very long."""

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file."""
        return VerySlowFile("", name, flags)


class VerySlowFile(SlowFile):
    """A file on it."""

    sync_s = LONG_SYNC_S


class BatchTooLate(journal.Journal):
    """A seeded bug: a batch is written when 64 others have come, and acknowledged before.

    So a kill loses the last put that was acknowledged, however fast or slow the clients and the
    disk are. With one batch late, that would depend on what happens to be in the last one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._late: list[tuple[int, int, bytes]] = []

    def append(self, first_revision: int, last_revision: int, changes: bytes) -> None:
        """Write the oldest batch, if enough have come since."""
        self._late.append((first_revision, last_revision, changes))
        if len(self._late) > BATCHES_LATE:
            super().append(*self._late.pop(0))


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


class StallingDisk(SlowDisk):
    """A slow disk on which no sync ends while a file named `stall` is beside the data."""

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file."""
        return StallingFile("", name, flags)


class StallingFile(SlowFile):
    """A file on it."""

    def __init__(self, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(base, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._stall = None if path is None else Path(path).parent.with_name("stall")

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync, as soon as the disk does."""
        self.wait()
        super().xSync(flags)

    def wait(self) -> None:
        """Wait until the disk goes on."""
        while self._stall is not None and self._stall.exists():
            time.sleep(LOOK_S)


class HiccupingDisk(StallingDisk):
    """A disk that is fast, except that no sync ends while there is the file named `stall`."""

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file."""
        return HiccupingFile("", name, flags)


class HiccupingFile(StallingFile):
    """A file on it."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync: in memory is enough for what is tested here."""
        self.wait()


class OpenGate(DurabilityGate):
    """A seeded bug: answers and events leave before what they tell is on disk."""

    __slots__ = ()

    def __init__(self, refusal: str = "") -> None:
        super().__init__(refusal)
        self.released = sys.maxsize

    def release(self, position: int) -> None:
        """Hold nothing, and so let nothing go."""


def _told_at_once(
    read: Callable[[KVService, Any], Answer | Pieces | DeferredAnswer],
) -> Callable[[KVService, Any], Answer | Pieces | DeferredAnswer]:
    """A seeded bug: what is read is told before it is on disk."""

    def read_and_tell(service: KVService, request: Any) -> Answer | Pieces | DeferredAnswer:
        answer = read(service, request)
        if isinstance(answer, Pieces):
            return Pieces(answer.pieces)
        return (answer[0], 0) if isinstance(answer, tuple) else answer

    return read_and_tell


def _send_early(
    stream: watch.WatchStream, watch_id: int, revision: int, fields: bytes, _position: int
) -> None:
    """A seeded bug: events leave before they are on disk."""
    header = stream._context.header(revision)
    stream.server_stream.send_message(header + watch._watch_id(watch_id) + fields, 0)
    asyncio.get_running_loop().call_soon(stream.server_stream.flush)


def _close_half(of_store: store.Store, changed: RevisionWriter) -> None:
    """A seeded bug: of a revision that puts several keys, the last put is not written down.

    Only if the key was there before: otherwise the journal itself would find its next delete odd.
    """
    last = changed.changes[-1] if len(changed.changes) > 1 else None
    if last is not None and last.item is not None and last.previous is not None:
        del changed.records[-1]
    _close_whole(of_store, changed)


class SkippingCatchUp(watch_catch_up.CatchUp):
    """A seeded bug: who lags behind is not told of every seventh revision."""

    def _tell(self, watcher: Watcher, revision: int, changes: Sequence[Change]) -> bool:
        if revision % SKIPPED:
            return super()._tell(watcher, revision, changes)
        watcher.next_revision = revision + 1
        return True


class AlwaysWaits(committer.CommitPatience):
    """A seeded bug: the event loop waits for every commit, however long it takes."""

    waits = True


def _restore_short(
    of_store: store_leases.StoreLeases,
    records: Iterable[LeaseRecord],
    left_s: Mapping[int, float],
    unrenewed: Sequence[tuple[int, float]],
) -> None:
    """A seeded bug: a restart forgets for how long a lease was promised."""
    _restore_whole(of_store, records, dict.fromkeys(left_s, FORGOTTEN_S), unrenewed)


def _serve_from(disk: SlowDisk) -> SlowDisk:
    server = partial(app.LeaseholdServer, vfs=VFS_NAME)
    mock.patch.object(app, "LeaseholdServer", server).start()
    return disk


def _slow_disk() -> SlowDisk:
    return _serve_from(SlowDisk())


def _sinking_disk() -> SlowDisk:
    signal.signal(signal.SIGUSR1, lambda *_: setattr(SinkingFile, "has_sunk", True))
    return _serve_from(SinkingDisk())


def _stalling_disk() -> SlowDisk:
    return _serve_from(StallingDisk())


def _hiccuping_disk() -> SlowDisk:
    return _serve_from(HiccupingDisk())


def _slow_disk_inline() -> SlowDisk:
    mock.patch.object(committer, "CommitPatience", AlwaysWaits).start()
    mock.patch.object(committer, "WAIT_S", 3600.0).start()
    return _slow_disk()


def _batch_too_late() -> None:
    mock.patch.object(runtime, "Journal", BatchTooLate).start()


# On a slow disk, a batch waits for the one before it: what is told too early is lost by a kill.


def _answers_before_commit() -> SlowDisk:
    mock.patch.object(app, "DurabilityGate", OpenGate).start()
    return _slow_disk()


def _reads_before_commit() -> SlowDisk:
    mock.patch.object(KVService, "_one", _told_at_once(KVService._one)).start()
    mock.patch.object(KVService, "_any", _told_at_once(KVService._any)).start()
    return _slow_disk()


def _events_before_commit() -> SlowDisk:
    mock.patch.object(watch.WatchStream, "send", _send_early).start()
    return _slow_disk()


def _leases_before_commit() -> SlowDisk:
    # Only two of the clients ask for leases of others. On a merely slow disk and a busy machine,
    # they ask too rarely: the test needed up to 13 kills to find the bug.
    mock.patch.object(store.Store, "lease_position", return_value=0).start()
    return _serve_from(VerySlowDisk())


def _half_a_transaction() -> None:
    mock.patch.object(store.Store, "_close", _close_half).start()


def _watch_skips() -> None:
    mock.patch.object(runtime, "CatchUp", SkippingCatchUp).start()


def _lease_forgets_promise() -> None:
    mock.patch.object(store_leases.StoreLeases, "restore", _restore_short).start()


def _standstill_counts() -> None:
    mock.patch.object(LeaseClock, "advance", LeaseClock.elapse).start()


FAULTS: Final[dict[str, Callable[[], Any]]] = {
    "slow-disk": _slow_disk,
    "slow-disk-inline": _slow_disk_inline,
    "sinking-disk": _sinking_disk,
    "stalling-disk": _stalling_disk,
    "hiccuping-disk": _hiccuping_disk,
    "batch-too-late": _batch_too_late,
    "answers-before-commit": _answers_before_commit,
    "reads-before-commit": _reads_before_commit,
    "events-before-commit": _events_before_commit,
    "leases-before-commit": _leases_before_commit,
    "half-a-transaction": _half_a_transaction,
    "watch-skips": _watch_skips,
    "lease-forgets-promise": _lease_forgets_promise,
    "standstill-counts": _standstill_counts,
}

if __name__ == "__main__":
    fault = FAULTS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
