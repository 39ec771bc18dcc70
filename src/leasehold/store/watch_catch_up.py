"""Watches that are behind: they are sent the history, then join the live ones.

Theory of operation. One task serves all watches that are behind and have room, in turns, a bounded
number of revisions at a time, in slices. The last revisions are in memory
(`keyspace.recent_changes`), older ones are read from the journal. A watch that has received the
current revision joins the live ones in the same step, so that it misses nothing and receives
nothing twice. One whose next revision was compacted is cancelled; nothing else ever cancels a
watch.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from leasehold.errors import Closed, JournalFailed, LeaseholdError
from leasehold.journal import records
from leasehold.journal.journal import Journal
from leasehold.keyspace.keyspace import Change, covers
from leasehold.keyspace.ranges import LONG, SLICE
from leasehold.keyspace.watchers import PatientWatcher, Watcher
from leasehold.store.committer import Committer
from leasehold.store.slices import Load, Slicer
from leasehold.store.store import Store

logger = logging.getLogger(__name__)

REVISIONS_IN_TURN: Final = 500
"""How many revisions a watch is sent before it is another's turn."""

MAX_CHUNKS: Final = 8
"""Pieces of the history that are kept for the next watch that needs them, of a megabyte each."""


class Chunk(NamedTuple):
    """A piece of the history."""

    first: int
    last: int
    revisions: Sequence[tuple[int, list[Change]]]


class CatchUp:
    """Brings watches up to date."""

    def __init__(self, store: Store, committer: Callable[[], Committer], load: Load) -> None:
        self._store = store
        self._committer = committer
        self._load = load
        self._chunks: OrderedDict[int, Chunk] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Look for watches that are behind and have room."""
        if self._task is None and self._store.watchers.behind:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_report)

    def close(self) -> None:
        """Leave all watches where they are."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._serve()
        finally:
            self._task = None  # in the same step as the last look: no watch is missed
            self._chunks.clear()

    async def _serve(self) -> None:
        slicer = Slicer(self._store.leases.monotonic)
        behind = self._store.watchers.behind
        while ready := [watch for watch in behind if watch.has_room]:
            for watch in ready:
                if watch in behind:
                    await self._advance_or_end(watch, slicer)
                await slicer.pause()

    async def _advance_or_end(self, watch: Watcher, slicer: Slicer) -> None:
        """Send a watch some revisions; if they cannot be read, only this watch ends."""
        try:
            await self._advance(watch, slicer)
        except (Closed, JournalFailed):
            raise  # everything is over
        except Exception as error:
            logger.exception("a watch was cancelled, because it could not catch up")
            self._store.watchers.discard(watch)
            if not isinstance(error, LeaseholdError):
                error = LeaseholdError(f"a watch has failed: {error!r}")
            watch.failed(error)
        watch.settle()

    async def _advance(self, watch: Watcher, slicer: Slicer) -> None:
        """Send a watch some revisions."""
        store = self._store
        self._store.leases.enter()
        if watch.next_revision < store.durable_compacted:
            store.watchers.discard(watch)
            watch.cancelled(store.durable_compacted)
        elif watch.next_revision < store.recent.first <= store.revision + 1:
            await self._tell_from_disk(watch, slicer)
        else:
            await self._tell_from_memory(watch, slicer)

    async def _tell_from_memory(self, watch: Watcher, slicer: Slicer) -> None:
        store = self._store
        until = min(watch.next_revision + REVISIONS_IN_TURN, store.revision + 1)
        while watch.next_revision < until:
            changes = store.recent.at(watch.next_revision)
            assert changes is not None, "the last revisions are in memory"
            if len(changes) > LONG and isinstance(watch, PatientWatcher):
                await self._tell_in_steps(watch, watch.next_revision, changes, slicer)
                return  # memory may have changed meanwhile
            if not self._tell(watch, watch.next_revision, changes):
                return
        if watch.next_revision > store.revision:
            store.watchers.join(watch)
            watch.joined(store.revision, store.position)

    def _tell(self, watch: Watcher, revision: int, changes: Sequence[Change]) -> bool:
        concerned = [each for each in changes if covers(watch.key, watch.end, each.key)]
        if revision <= self._store.keyspace.compacted:  # everything before it is forgotten
            concerned = [Change(each.key, revision, each.item, None) for each in concerned]
        if concerned and not watch.notify(concerned, self._store.position_of(revision)):
            return False
        watch.next_revision = revision + 1
        return True

    async def _tell_in_steps(
        self, watch: PatientWatcher, revision: int, changes: Sequence[Change], slicer: Slicer
    ) -> bool:
        """Send a watch very many changes; return False if it has no room, or has ended."""
        behind, concerned = self._store.watchers.behind, list[Change]()
        is_compacted = revision <= self._store.keyspace.compacted
        for start in range(0, len(changes), SLICE):
            for each in changes[start : start + SLICE]:
                if covers(watch.key, watch.end, each.key):
                    before = None if is_compacted else each.previous
                    concerned.append(Change(each.key, revision, each.item, before))
            await slicer.pause()
        if concerned:
            telling = watch.notify_steps(concerned, self._store.position_of(revision))
            is_told = None
            while is_told is None:
                if watch not in behind:
                    return False
                is_told = _step(telling)
                await slicer.pause()
            if not is_told:
                return False
        watch.next_revision = revision + 1
        return True

    async def _tell_from_disk(self, watch: Watcher, slicer: Slicer) -> None:
        chunk = await self._chunk(watch.next_revision)
        behind, recent = self._store.watchers.behind, self._store.recent
        for revision, changes in chunk.revisions:
            if watch not in behind:
                return
            if revision >= recent.first:  # and nothing lies between
                watch.next_revision = max(watch.next_revision, recent.first)
                return
            if revision < watch.next_revision:
                continue
            if watch.wants_previous:
                changes = await self._with_previous(watch, changes)  # noqa: PLW2901  the same, completed
                if watch not in behind:
                    return
            if len(changes) > LONG and isinstance(watch, PatientWatcher):
                is_told = await self._tell_in_steps(watch, revision, changes, slicer)
            else:
                is_told = self._tell(watch, revision, changes)
            if not is_told:
                return
            await slicer.pause()
        watch.next_revision = max(watch.next_revision, chunk.last + 1)

    async def _chunk(self, revision: int) -> Chunk:
        for chunk in self._chunks.values():
            if chunk.first <= revision <= chunk.last:
                return chunk
        read = partial(_read_chunk, revision=revision)
        chunk = await self._committer().do(read, is_ours=True)
        self._chunks[chunk.first] = chunk
        while len(self._chunks) > MAX_CHUNKS:
            self._chunks.popitem(last=False)
        return chunk

    async def _with_previous(self, watch: Watcher, changes: Sequence[Change]) -> list[Change]:
        """Look up the previous values of the keys of a revision, unless those were compacted."""
        concerned = [each for each in changes if covers(watch.key, watch.end, each.key)]
        keyspace = self._store.keyspace
        wanted: dict[tuple[bytes, int], None] = {}  # a revision may have changed a key twice
        for change in concerned:
            before = keyspace.before(change)
            if before is not None and change.revision > keyspace.compacted:
                wanted[change.key, before] = None
        try:
            loaded = {item[5]: item for item in await self._load([*wanted])} if wanted else {}
        except LeaseholdError:
            if concerned[0].revision > keyspace.compacted:
                raise
            loaded = {}  # compacted meanwhile
        return [
            Change(
                each.key,
                each.revision,
                each.item,
                None if _creates(each) else loaded.get(each.key),
            )
            for each in concerned
        ]


def _step(telling: Generator[None, None, bool]) -> bool | None:
    """Take a step; return the result, or None if there is more to do."""
    try:
        next(telling)
    except StopIteration as done:
        result: bool = done.value
        return result
    return None


def _creates(change: Change) -> bool:
    """Return whether a change has created a key, also one that was deleted in the same revision."""
    return change.item is not None and change.item[3] == 1


def _report(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Closed):
        logger.error("watches cannot catch up", exc_info=error)


def _read_chunk(journal: Journal, revision: int) -> Chunk:
    rows = journal.history(revision)
    changes = [change for row in rows for change in _changes(row.changes)]
    revisions = [
        (number, list(these)) for number, these in groupby(changes, key=attrgetter("revision"))
    ]
    last = max([revision, *(row.last_revision for row in rows)])
    return Chunk(min([revision, *(row.first_revision for row in rows)]), last, revisions)


def _changes(encoded: bytes) -> list[Change]:
    changes = []
    for record in records.decode(encoded):
        if isinstance(record, records.PutRecord):
            changes.append(Change(record.item[5], record.item[2], record.item, None))
        elif isinstance(record, records.DeletedRecord):
            changes.append(Change(record.key, record.revision, None, None))
    return changes
