"""Sees every change of the files' keys in order, all stores, and all that writers were told.

- Flushed bytes stay: the content of a file only grows, and only by flushes. It is the bytes of its
  writers, one after the other, of each a prefix of its stream that has all that was acknowledged.
- A replica that a block lists has the bytes of the block, durably, with its checksums.
- The stamp of a file only rises: with each opening, each recovery, each change of its stores.
- A flush is executed for a holder whose key exists, in a file that is not unlinked.
- A file is taken over by others only past the soft limit. A deleted file does not come back, and
  no file is opened by a call that is over. A holder id is used once.
- A reader sees a prefix that has at least all bytes that were flushed when it was opened.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from leasehold.engine.values import Event, KeyValue
from leasehold.files.file_keys import (
    BLOCKS,
    DIRENTS,
    OPEN_FILES,
    RECORDS,
    RECOVERIES,
    WORKERS,
    block_key,
    decode_block,
    decode_record,
    dirent_key,
    holder_key,
    id_in,
)
from leasehold.files.state import (
    ROOT,
    Block,
    Checksums,
    FileRecord,
    FilesConfig,
    FileState,
    Replica,
    parse_object,
)
from leasehold.testing import Simulation
from tests.simulation.files_history import Epoch, FileHistory, Session
from tests.simulation.files_stores import Disk
from tests.simulation.oracle import Violation

GAP_WINDOW_S: Final = 20.0
"""How long before a take-over its caller may have looked at the holder's lease."""

DRIFT: Final = 0.97
"""What a limit is at least in true time, whatever the drift of clocks."""


class FilesOracle:
    """Watches all files, from outside."""

    def __init__(self, sim: Simulation, disks: Sequence[Disk], config: FilesConfig) -> None:
        self.sim = sim
        self.disks = {disk.id: disk for disk in disks}
        self.soft_limit_s = config.soft_limit_s
        self.keep_s = config.keep_s
        self.recovers_freely = False
        """Whether clients ask for recoveries whatever the limits."""
        self.takes_nothing_over = False
        """Whether no file may be taken over: all holders renew."""
        self.pairs: dict[bytes, KeyValue] = {}
        self.files: dict[str, FileHistory] = {}
        self.renewals: dict[int, list[float]] = {}
        """When each lease was granted and renewed, in time for which the server has served."""
        self._fresh: set[int] = set()
        """Leases that a restart has renewed, and their holders not since."""
        self._down_s = 0.0
        self._down_at = 0.0
        self.openings: Counter[str] = Counter()
        """How many calls that open a file for writing may be executed, by the names of holders."""
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._sessions = 0
        self._holders: dict[str, int] = {}
        self.revision = 0

    def fail(self, why: str) -> None:
        """End the run with a violation."""
        self.violations.append(why)
        self.sim.record(f"VIOLATION {why}")

        def say() -> None:
            raise Violation(why)

        self.sim.after(0.0, say)

    # Leases.

    @property
    def _served_s(self) -> float:
        return self.sim.now - self._down_s

    def renewed(self, lease: int) -> None:
        """Record that a lease was granted or renewed."""
        self._fresh.discard(lease)
        self._renew(lease)

    def _renew(self, lease: int) -> None:
        times = self.renewals.setdefault(lease, [])
        times.append(self._served_s)
        del times[:-50]

    def stopped(self) -> None:
        """Record that the server does not serve: the time of leases stands still."""
        self._down_at = self.sim.now

    def restarted(self) -> None:
        """Record that leases are fresh.

        Several restarts together give one further term to a lease whose holder is gone.
        """
        self._down_s += self.sim.now - self._down_at
        for lease in self.renewals.keys() - self._fresh:
            self._renew(lease)
        self._fresh.update(self.renewals)

    def _longest_gap_s(self, lease: int) -> float:
        times = [*self.renewals.get(lease, [0.0]), self._served_s]
        since = self._served_s - GAP_WINDOW_S
        gaps = [(b - a) for a, b in pairwise(times) if b >= since]
        return max(gaps, default=0.0)

    # Keys.

    def changed(self, events: Sequence[Event]) -> None:
        """Apply the changes of one revision, or of several in order."""
        by_revision: dict[int, list[Event]] = {}
        for event in events:
            by_revision.setdefault(event.revision, []).append(event)
        for revision in sorted(by_revision):
            self.revision = revision
            self._apply(by_revision[revision])

    def _apply(self, events: list[Event]) -> None:
        before: dict[str, FileRecord | None] = {}

        def touch(file_id: str) -> None:
            history = self.files.get(file_id)
            before.setdefault(file_id, None if history is None else history.record)

        for event in events:
            key = event.key
            if event.pair is None:
                self.pairs.pop(key, None)
            else:
                self.pairs[key] = event.pair
            if key.startswith(RECORDS):
                file_id = id_in(key, RECORDS)
                touch(file_id)
                self._record_changed(file_id, event.pair)
            elif key.startswith(BLOCKS):
                file_id, _, number = id_in(key, BLOCKS).partition("/")
                touch(file_id)
                self._block_changed(file_id, int(number), event.pair)
        for file_id, record in before.items():
            history = self.files.get(file_id)
            if history is not None and history.record is not None:
                self._check(history, record)

    def _record_changed(self, file_id: str, pair: KeyValue | None) -> None:
        history = self.files.setdefault(file_id, FileHistory(file_id))
        if pair is None:
            history.is_deleted = True
            history.record = None
            self._end_epoch(history)
            return
        if history.is_deleted:
            self.fail(f"{file_id} was deleted, and has come back")
        history.record = decode_record(pair.value)

    def _block_changed(self, file_id: str, number: int, pair: KeyValue | None) -> None:
        history = self.files.setdefault(file_id, FileHistory(file_id))
        if pair is None:
            history.blocks.pop(number, None)
            history.parts.pop(number, None)
            return
        block = decode_block(pair.value)
        history.blocks[number] = block
        if not history.is_deleted:  # otherwise its replicas are being deleted
            history.parts[number] = self.stored_bytes(file_id, number, block)

    def stored_bytes(self, file_id: str, number: int, block: Block) -> bytes:
        """Return the bytes of a block, which all its replicas must have."""
        what = f"block {number} of {file_id}"
        if not block.replicas:
            self.fail(f"{what} has no replica")
        good = b""
        for replica in block.replicas:
            if self.is_damaged(replica):
                continue
            data = self.replica_bytes(replica)[: block.length]
            checks = Checksums()
            checks.add(data)
            if len(data) != block.length or checks.value() != block.checksums:
                self.fail(
                    f"{what} has {block.length} bytes, and not in its replica in {replica.store}"
                    f" ({replica.name}, {len(data)} bytes are durable)"
                )
            elif good and data != good:
                self.fail(f"{what}: its replicas differ")
            else:
                good = data
        return good

    def is_damaged(self, replica: Replica) -> bool:
        """Return whether a fault has changed a replica."""
        damaged = self.disks[replica.store].damaged
        return any(name in damaged for name in replica.objects())

    def replica_bytes(self, replica: Replica) -> bytes:
        """Return the durable bytes of a replica."""
        disk = self.disks[replica.store]
        if disk.appends:
            return disk.durable_bytes(replica.name)
        pieces = [disk.durable_bytes(name) for name in replica.objects()]
        if tuple(map(len, pieces)) != replica.pieces:
            self.fail(f"{replica} has pieces of {list(map(len, pieces))} bytes")
        return b"".join(pieces)

    # Files.

    def _check(self, history: FileHistory, before: FileRecord | None) -> None:
        """Check a file after a change of its record or its blocks."""
        record = history.record
        assert record is not None
        if record.is_directory:
            return
        self._check_transition(history, before, record)
        is_open = record.state != FileState.CLOSED
        numbers = range(record.blocks + is_open)
        content = b"".join(history.parts.get(number, b"") for number in numbers)
        sealed = sum(
            history.blocks[number].length
            for number in range(record.blocks)
            if number in history.blocks
        )
        if sealed != record.length:
            self.fail(f"{history.id} has {record.length} bytes, its sealed blocks {sealed}")
        if not content.startswith(history.content):
            self.fail(
                f"{history.id}: flushed bytes are lost: {len(history.content)} bytes were there, "
                f"now {len(content)} with {content[:200]!r}"
            )
        grows = len(content) > len(history.content)
        history.content = content
        if grows and before is not None and before.state == FileState.RECOVERING:
            self.fail(f"{history.id}: a recovery has added bytes that were not flushed")
        if grows and record.state == FileState.OPEN:
            self._check_writer(history, record)
        if grows and before is not None and before.state == FileState.OPEN:
            self.counts["flushes"] += 1
        if record.state == FileState.CLOSED:
            self._end_epoch(history)

    def _check_transition(
        self, history: FileHistory, before: FileRecord | None, record: FileRecord
    ) -> None:
        what = f"{history.id}, stamp {record.stamp}"
        if before is None:
            if record.state != FileState.OPEN:
                self.fail(f"{what}: it was created as {record.state.name}")
            self._begin_epoch(history, record)
            self.counts["creates"] += 1
            return
        if record == before:
            return  # a flush, or a repair
        if record.stamp < before.stamp:
            self.fail(f"{what}: its stamp was {before.stamp}")
        rises = record.stamp > before.stamp
        match before.state, record.state:
            case FileState.CLOSED, FileState.OPEN:
                self.counts["appends"] += 1
                self._begin_epoch(history, record)
                if not rises:
                    self.fail(f"{what}: it was opened with the stamp of its former writer")
            case FileState.OPEN, FileState.OPEN:
                if (before.holder, before.holder_revision) != (
                    record.holder,
                    record.holder_revision,
                ):
                    self.fail(f"{what}: {record.holder} has taken the place of {before.holder}")
                if before.pipeline != record.pipeline and before.blocks == record.blocks:
                    self.counts["replaced stores"] += 1
                    if not rises:
                        self.fail(f"{what}: other stores with the same stamp")
            case FileState.OPEN, FileState.RECOVERING:
                self.counts["recoveries"] += 1
                if not rises:
                    self.fail(f"{what}: it is recovered with the stamp of its writer")
                self._check_limit(what, before)
            case FileState.RECOVERING, FileState.CLOSED:
                self.counts["recovered"] += 1
                self._check_published(history, before, record)
            case FileState.OPEN, FileState.CLOSED:
                self.counts["closes"] += 1
            case (FileState.RECOVERING, FileState.RECOVERING):
                if not rises and before.parent == record.parent and before.name == record.name:
                    self.fail(f"{what}: a further recovery has the stamp of the one before")
            case (FileState.CLOSED, FileState.CLOSED):
                self.counts["renames"] += 1
            case _:
                self.fail(f"{what}: {before.state.name} has become {record.state.name}")

    def _check_limit(self, what: str, before: FileRecord) -> None:
        """Check that a file was taken from its holder past the soft limit."""
        held = self.pairs.get(holder_key(before.holder))
        if held is None or held.create_revision != before.holder_revision:
            return
        if self.takes_nothing_over:
            self.fail(f"{what}: it was taken from {before.holder}, which renews")
        elif not self.recovers_freely:
            gap_s = self._longest_gap_s(held.lease)
            if gap_s <= self.soft_limit_s * DRIFT:
                self.fail(f"{what}: taken from {before.holder} {gap_s:.3f} s after a renewal")

    def _check_published(
        self, history: FileHistory, before: FileRecord, record: FileRecord
    ) -> None:
        """Check that a recovered block is in new objects."""
        if record.blocks == before.blocks:
            return
        for replica in history.blocks[before.blocks].replicas:
            name = parse_object(replica.name)
            if name is None or name.stamp != record.stamp:
                self.fail(f"{history.id}: recovered in {replica.name}, stamp {record.stamp}")

    def _check_writer(self, history: FileHistory, record: FileRecord) -> None:
        """Check that bytes were flushed by a holder that lives, to a file that can be found."""
        held = self.pairs.get(holder_key(record.holder))
        if held is None or held.create_revision != record.holder_revision:
            self.fail(f"{history.id}: flushed by {record.holder}, whose lease has ended")
        if not self.is_linked(history.id):
            self.fail(f"{history.id}: flushed by {record.holder}, after it was unlinked")

    def is_linked(self, file_id: str, *, is_directory: bool = False) -> bool:
        """Return whether entries lead from the root to a file."""
        each, flag = file_id, b"d" if is_directory else b"f"
        while each != ROOT:
            history = self.files.get(each)
            record = None if history is None else history.record
            if record is None:
                return False
            entry = self.pairs.get(dirent_key(record.parent, record.name))
            if entry is None or entry.value != flag + each.encode():
                return False
            each, flag = record.parent, b"d"
        return True

    # Writers.

    def _begin_epoch(self, history: FileHistory, record: FileRecord) -> None:
        history.epochs.append(Epoch(record.stamp, record.holder, len(history.content)))
        revision = self._holders.setdefault(record.holder, record.holder_revision)
        if revision != record.holder_revision:
            self.fail(f"the holder id {record.holder} was used for two leases")
        if not self.openings[record.holder.rpartition("-")[0]]:
            self.fail(f"{history.id} was opened for {record.holder}, by a call that was over")

    def _end_epoch(self, history: FileHistory) -> None:
        if history.epochs and history.epochs[-1].end is None:
            history.epochs[-1].end = len(history.content)
            self._check_epoch(history, history.epochs[-1])

    def session(self, host: str) -> Session:
        """Return the stream of a new writer."""
        self._sessions += 1
        return Session(self._sessions, host)

    def opened(self, session: Session, file_id: str, stamp: int, base: int) -> None:
        """Record that a writer has a file."""
        self.sim.record(f"{session.number} has {file_id} with stamp {stamp}", session.host)
        history = self.files.get(file_id)
        if history is None:
            self.fail(f"{session.number} has {file_id}, which does not exist")
            return
        for epoch in history.epochs:
            if epoch.stamp == stamp:
                break
        else:
            self.fail(f"{session.number} has {file_id} with stamp {stamp}, which was not recorded")
            return
        if epoch.session is not None:
            self.fail(f"{file_id}: two writers have stamp {stamp}")
        if epoch.base != base:
            self.fail(f"{file_id} had {epoch.base} bytes, its writer begins at {base}")
        epoch.session = session

    def acked(self, session: Session, file_id: str, length: int, what: str) -> None:
        """Record that bytes were acknowledged to a writer."""
        self.counts[f"acked {what}"] += 1
        session.acked = max(session.acked, length)
        for epoch in self.files[file_id].epochs:
            if epoch.session is session:
                self._check_epoch(self.files[file_id], epoch)

    def _check_epoch(self, history: FileHistory, epoch: Epoch) -> None:
        """Check the bytes of a file that were written by one writer."""
        part = history.content[epoch.base : epoch.end]
        session = epoch.session
        if session is None:
            return  # its writer does not know yet, or has crashed; checked at the end
        if not session.stream.startswith(part):
            self.fail(
                f"{history.id}: {part[-200:]!r} is not what {session.number} has written:"
                f" {bytes(session.stream[-200:])!r}"
            )
        if len(part) < session.acked:
            self.fail(
                f"{history.id}: {session.acked} bytes were acknowledged to {session.number}, "
                f"{len(part)} are there"
            )

    # Readers.

    def lengths(self) -> dict[str, int]:
        """Return the flushed length of each file."""
        return {file_id: len(history.content) for file_id, history in self.files.items()}

    def read(self, file_id: str, data: bytes, at_least: int, *, is_all: bool = False) -> None:
        """Check what a reader has read."""
        self.counts["reads"] += 1
        content = self.files[file_id].content
        if not content.startswith(data) or (is_all and data != content):
            self.fail(f"{file_id}: a reader has {data[-200:]!r}, there is {content[-200:]!r}")
        if len(data) < at_least:
            self.fail(f"{file_id}: a reader has {len(data)} bytes, {at_least} were flushed before")

    # The end.

    def open_files(self) -> list[str]:
        """Return the files that can be found and are not closed."""
        return [
            file_id
            for file_id, history in self.files.items()
            if history.record is not None
            and not history.record.is_directory
            and history.record.state != FileState.CLOSED
            and self.is_linked(file_id)
        ]

    def check_end(self) -> None:
        """Check all files, when no writer is left and everything has calmed down."""
        for history in self.files.values():
            record = history.record
            for epoch in history.epochs:
                self._check_epoch(history, epoch)
                if epoch.session is None and epoch.end is not None and epoch.end > epoch.base:
                    self.fail(f"{history.id}: bytes of stamp {epoch.stamp} have no writer")
            if record is None or record.is_directory or not self.is_linked(history.id):
                continue
            for number in range(record.blocks):
                if block_key(history.id, number) not in self.pairs:
                    self.fail(f"{history.id} has no block {number}")
                self.stored_bytes(history.id, number, history.blocks[number])
        self._check_keys()
        if self.violations:
            raise Violation(self.violations[0])

    def _check_keys(self) -> None:
        for key, pair in self.pairs.items():
            if key.startswith(DIRENTS):
                found = self.files.get(pair.value[1:].decode())
                if found is None or found.record is None:
                    self.fail(f"the entry {key!r} leads to no record")
            for prefix in (OPEN_FILES, RECOVERIES, WORKERS):
                if not key.startswith(prefix):
                    continue
                file_id = id_in(key, prefix).rpartition("/")[2]
                if self.is_linked(file_id):
                    self.fail(f"the key {key!r} is left")
            if key.startswith(RECORDS):
                record = decode_record(pair.value)
                entry = self.pairs.get(dirent_key(record.parent, record.name))
                is_unlinked = self._is_in_trash(id_in(key, RECORDS))
                if not is_unlinked and (entry is None or entry.value[1:] != key[len(RECORDS) :]):
                    self.fail(f"{key!r} is neither linked nor in the trash")

    def _is_in_trash(self, file_id: str) -> bool:
        return b"leasehold/files/trash/" + file_id.encode() in self.pairs
