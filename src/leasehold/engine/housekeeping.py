"""What an engine does by itself: compaction, checkpoints of leases, the keys of large leases.

One task each, all in slices:

- *long ends*: the keys of leases that ended with very many of them;
- *forgetting*: after a compaction, the index of the past in memory is trimmed and old batches on
  disk are folded, up to the oldest revision that is being read. Batches with changes of leases
  alone move no revision, so they are also folded when there are many of them, but never beyond the
  compacted revision;
- *rounds*: every few seconds, automatic compaction, and checkpoints of long leases.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from leasehold.core.callback import ignore
from leasehold.core.keyspace import NEVER_COMPACTED
from leasehold.core.ops import Compact
from leasehold.engine.committer import Committer
from leasehold.engine.journal import Journal
from leasehold.engine.slices import Load, Slicer
from leasehold.engine.store import Store
from leasehold.errors import Closed, LeaseholdError

logger = logging.getLogger(__name__)

ROUND_S: Final = 5.0
"""How often it is looked whether something is to be compacted or checkpointed."""

CHECKPOINTS_AT_ONCE: Final = 250

SAMPLES: Final = 512
"""How many times of the past are remembered with their revisions, to compact by age."""


@dataclass(frozen=True, slots=True)
class AutoCompaction:
    """How much history is kept: what is older than `age`, or beyond `revisions`, is compacted.

    Either may be None; both None means that history is kept until somebody compacts it.
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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._forgotten = NEVER_COMPACTED
        self.turn = asyncio.Lock()
        """Held by whoever does something in steps, so that the next one waits for its turn."""
        store.on_long_end = self.end_leases
        store.on_foldable = self.forget

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._begin("rounds", self._rounds)
        self.forget()  # what a compaction before the restart had left over

    async def close(self) -> None:
        """Stop; what is half done goes on after the next start."""
        self._store.on_foldable = ignore
        for name, task in list(self._tasks.items()):
            if name != "ends":
                task.cancel()
        await asyncio.gather(*list(self._tasks.values()), return_exceptions=True)
        self._tasks.clear()  # those that were cancelled before they began

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
        """Wait until nothing is under way in steps."""
        while self._store.is_busy:
            self._idle.clear()
            await self._idle.wait()

    def now_idle(self) -> None:
        """Let those go on who wait for that."""
        if not self._store.is_busy:
            self._idle.set()

    def end_leases(self) -> None:
        """Take the keys of leases that ended with too many of them to go at once."""
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
        """Make space: after a compaction, or when much can be folded."""
        self._begin("forgetting", self._forget)

    async def forgotten(self) -> None:
        """Wait until the space is made."""
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
        """The revision before which nobody reads any more, and never will after a restart."""
        return min([self._store.durable_compacted, *self._store.pins])

    # Rounds.

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            self._store.leases.enter()
            if not self._store.is_busy:
                self._compact()
            slicer = Slicer(self._monotonic)
            while self._store.leases.checkpoint(CHECKPOINTS_AT_ONCE):
                await slicer.pause()
                self._store.leases.enter()
            if self._forgettable() > self._forgotten:
                self.forget()

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

    def _too_old(self) -> int:
        """The last revision that is older than history is to be."""
        age, found = self._compaction.age, 0
        while self._samples and age is not None and self._samples[0][0] <= self._monotonic() - age:
            found = self._samples.popleft()[1]
        return found

    def _too_many(self) -> int:
        """The revision up to which there are more than history is to have, if it is worth it."""
        revisions, store = self._compaction.revisions, self._store
        if revisions is None or store.revision - store.keyspace.compacted < revisions * 1.1:
            return 0
        return store.revision - revisions
