"""Background work of an engine: compaction, checkpoints of leases, the keys of large leases.

One task each, all in slices:

- *long ends*: the keys of leases that ended with very many of them;
- *forgetting*: after a compaction, the index of the past in memory is trimmed and old batches on
  disk are folded, up to the oldest revision that is being read. Batches with changes of leases
  alone move no revision, so they are also folded when there are many of them, but never beyond the
  compacted revision;
- *ageing*: after a crash, how long leases have gone unrenewed is noted;
- *rounds*: every few seconds, automatic compaction, and checkpoints of long leases.
"""

import asyncio
import contextlib
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from leasehold.basics.callbacks import ignore
from leasehold.errors import Closed, LeaseholdError
from leasehold.journal.journal import Journal
from leasehold.keyspace.keyspace import NEVER_COMPACTED
from leasehold.keyspace.operations import Compact
from leasehold.store.committer import Committer
from leasehold.store.slices import Load, Slicer
from leasehold.store.store import Store

logger = logging.getLogger(__name__)

ROUND_S: Final = 5.0
"""The interval between two checks for compactions and checkpoints that are due."""

AGE_NOTED_S: Final = 1.0
"""The minimum interval between two notes of how long leases have gone unrenewed since a crash.

A crash loses no more of it than this, or a part of `AGE_NOTED_PARTS`, whichever is more.
"""

AGE_NOTED_PARTS: Final = 32

CHECKPOINTS_PER_SLICE: Final = 250

SAMPLES: Final = 512
"""How many past times are kept with their revisions, to compact by age."""

SAVES: Final = 64
"""How often they are written to the journal within that age: a crash loses no more of it."""

HISTORY_NOTE: Final = "history-ages"
"""The name of the note: pairs of an age in seconds and the revision that was current then.

Ages count while the engine runs, not by the wall clock, so downtime shortens no history.
"""

_sample: Final = struct.Struct("<dq")


@dataclass(frozen=True, slots=True)
class AutoCompaction:
    """How much history is kept: revisions older than `age`, or beyond `revisions`, are compacted.

    Either may be None; if both are, history is kept until a client compacts it.
    """

    age: float | None = 3600.0
    """Seconds."""
    revisions: int | None = 1_000_000

    def __post_init__(self) -> None:
        if self.age is not None and not self.age > 0:
            raise ValueError(f"age must be more than 0 seconds, or None; not {self.age!r}")
        if self.revisions is not None and self.revisions < 1:
            raise ValueError(f"revisions must be at least 1, or None; not {self.revisions!r}")


class Housekeeping:
    """The tasks of one engine."""

    def __init__(
        self,
        store: Store,
        committer: Callable[[], Committer],
        load: Load,
        compaction: AutoCompaction,
    ) -> None:
        self._store = store
        self._committer = committer
        self._load = load
        self._compaction = compaction
        self._monotonic = store.leases.monotonic
        self._samples: deque[tuple[float, int]] = deque()
        self._saved_at: float | None = None
        """When the samples were last written or read; None before that."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._forgotten = NEVER_COMPACTED
        self.turn = asyncio.Lock()
        """Held during an operation in steps, so that the next one waits for its turn."""
        store.on_long_end = self.end_leases
        store.on_foldable = self.forget

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._begin("rounds", self._rounds)
        if self._store.leases.unrenewed:
            self._begin("ageing", self._age)
        self.forget()  # the rest of a compaction before the restart

    async def close(self) -> None:
        """Stop; unfinished work is continued after the next start."""
        self._store.on_foldable = ignore
        for name, task in list(self._tasks.items()):
            if name != "ends":
                task.cancel()
        await asyncio.gather(*list(self._tasks.values()), return_exceptions=True)
        self._tasks.clear()  # those that were cancelled before they began
        if self._saved_at is not None:
            with contextlib.suppress(LeaseholdError):  # the engine has failed, and reports that
                await self._save_samples()

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._do(name, work))

    async def _do(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Closed:
            return
        except Exception:
            logger.exception("housekeeping (%s) failed", name)
        finally:
            del self._tasks[name]  # in the same step as its last look: nothing is missed

    # The keys of large leases.

    async def until_idle(self) -> None:
        """Wait until no operation in steps is under way."""
        while self._store.is_busy:
            self._idle.clear()
            await self._idle.wait()

    def now_idle(self) -> None:
        """Wake those that wait in `until_idle`."""
        if not self._store.is_busy:
            self._idle.set()

    def end_leases(self) -> None:
        """Delete the keys of leases that ended with too many of them to be deleted in one step."""
        self._begin("ends", self._end_leases)

    async def _end_leases(self) -> None:
        store, slicer = self._store, Slicer(self._monotonic)
        while store.ends:
            async with self.turn:
                if store.ends:
                    await slicer.run(store.next_end_steps(), self._load)
            await slicer.pause()
        self.now_idle()

    # Forgetting.

    def forget(self) -> None:
        """Free space: after a compaction, or when much can be folded."""
        self._begin("forgetting", self._forget)

    async def forgotten(self) -> None:
        """Wait until the space is freed."""
        task = self._tasks.get("forgetting")
        if task is not None:
            await asyncio.wait([task])

    async def _forget(self) -> None:
        store = self._store
        slicer = Slicer(self._monotonic)
        is_due = True
        while is_due:
            store.foldable_bytes = 0
            until = self._forgettable()
            if until > self._forgotten:
                for count, key in enumerate(store.keyspace.past_names()):
                    store.keyspace.trim(key, until)
                    if not count & 63:
                        await slicer.pause()
            fold = partial(Journal.fold, compacted=until)
            while await self._committer().do(fold, is_ours=True):
                continue
            self._forgotten = until
            is_due = store.is_fold_due or self._forgettable() > until

    def _forgettable(self) -> int:
        """The revision before which there are no readers, and will be none after a restart."""
        return min([self._store.durable_compacted, *self._store.pins])

    # Leases that have not been renewed since a crash: see `journal.remaining_terms`.

    async def _age(self) -> None:
        leases, noted_s = self._store.leases, 0.0
        while leases.unrenewed:
            await asyncio.sleep(max(AGE_NOTED_S, noted_s / AGE_NOTED_PARTS))
            leases.enter()
            noted_s = leases.table.clock.now
            note = partial(Journal.note_elapsed, elapsed_s=noted_s)
            await self._committer().do(note, is_ours=True)
        position = self._store.position
        while self._store.durable < position:  # noqa: ASYNC110  rare, and no caller waits for it
            await asyncio.sleep(AGE_NOTED_S)
        await self._committer().do(Journal.end_list, is_ours=True)

    # Rounds.

    async def _rounds(self) -> None:
        await self._load_samples()
        while True:
            await asyncio.sleep(ROUND_S)
            self._store.leases.enter()
            if not self._store.is_busy:
                self._compact()
            slicer = Slicer(self._monotonic)
            while self._store.leases.checkpoint(CHECKPOINTS_PER_SLICE):
                await slicer.pause()
                self._store.leases.enter()
            if self._forgettable() > self._forgotten:
                self.forget()
            age, since = self._compaction.age, self._saved_at or 0.0
            if age is not None and self._monotonic() - since >= age / SAVES:
                await self._save_samples()

    def _compact(self) -> None:
        store = self._store
        self._sample()
        revision = max(self._too_old(), self._too_many())
        if revision > max(store.keyspace.compacted, 1):
            try:
                store.apply(Compact(revision))
            except LeaseholdError as error:
                logger.warning("history could not be compacted at %d: %s", revision, error)

    def _sample(self) -> None:
        now, age = self._monotonic(), self._compaction.age
        if age is None:
            return
        if not self._samples or now - self._samples[-1][0] >= age / SAMPLES:
            self._samples.append((now, self._store.revision))

    async def _load_samples(self) -> None:
        """Load the ages that the last run has written."""
        noted = await self._committer().do(
            lambda journal: journal.notes.get(HISTORY_NOTE, b""), is_ours=True
        )
        self._saved_at = now = self._monotonic()
        revision = self._store.revision
        if len(noted) % _sample.size == 0:
            found = (each for each in _sample.iter_unpack(noted) if each[1] <= revision)
            self._samples.extend((now - age_s, sampled) for age_s, sampled in found)

    async def _save_samples(self) -> None:
        store, now = self._store, self._monotonic()
        self._saved_at = now
        needed = [
            _sample.pack(now - at, revision)
            for at, revision in self._samples
            if store.durable_compacted < revision <= store.durable_revision
        ]
        if needed:
            noted = b"".join(needed)
            await self._committer().do(
                lambda journal: journal.note(HISTORY_NOTE, noted), is_ours=True
            )

    def _too_old(self) -> int:
        """The last revision that is older than the history to be kept."""
        age, found = self._compaction.age, 0
        while self._samples and age is not None and self._samples[0][0] <= self._monotonic() - age:
            found = self._samples.popleft()[1]
        return found

    def _too_many(self) -> int:
        """The last revision beyond the number to be kept, if compacting is worth it."""
        revisions, store = self._compaction.revisions, self._store
        if revisions is None or store.revision - store.keyspace.compacted < revisions * 1.1:
            return 0
        return store.revision - revisions
