"""Group commit: batches go to disk one after the other, and a batch is whatever has come meanwhile.

Theory of operation. The first change that is applied asks for a flush at the next turn of the event
loop; by then everything that was waiting in the sockets is in the open batch too. A flush writes
the batch *inline* or hands it to *the thread*, and while one is under way the next one collects.

Inline, a commit costs what it costs, and the loop stands still for so long. In the thread the loop
goes on, which is what matters when the disk is slow, and the price is the way there and back: two
wake-ups, and a thread that fights the loop for the interpreter each time it comes back from SQLite.
`Pace` chooses by what commits cost lately.

Beside commits there are *chores*: whatever else needs the journal, such as reading old values, or
folding old batches. They run in the thread too, one after each commit at most, so neither keeps the
other waiting for long.

A commit that fails is the end: memory is ahead of the disk and must not be shown. `on_failure` is
told once, and nothing is committed or released any more. The same goes for an error while answers
are let out: it is not known any more who was told what.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from leasehold.core.callback import ignore
from leasehold.core.histogram import Histogram
from leasehold.engine.batch import Batch
from leasehold.engine.journal import Journal
from leasehold.engine.store import Store
from leasehold.errors import Closed, JournalFailed, TooBusy

T = TypeVar("T")

INLINE_S: Final = 0.001
"""A commit that takes longer than this should not hold the event loop up."""

STALL_S: Final = 0.005
"""A commit that takes longer than this must not do so twice."""

RECENT: Final = 8
"""How many commits the choice looks back on, at first."""

MAX_PATIENCE: Final = 1024
"""How many commits stay in the thread after the disk has stalled again and again."""

MAX_INLINE_BYTES: Final = 256 * 1024
MAX_INLINE_CHANGES: Final = 5_000
"""What is more than either is written in the thread, however fast the disk is."""

MAX_CHORES: Final = 1_000
"""Chores that may wait for their turn; further ones are refused."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop may keep the interpreter from the thread (`sys.setswitchinterval`)."""

COMMIT_BOUNDS_S: Final = tuple(0.0001 * 2**power for power in range(16))
"""From a tenth of a millisecond to three seconds: how the costs of commits are counted."""

_CROSSINGS_S: Final = 3 * SWITCH_INTERVAL_S


class Pace:
    """Decides where the next commit is to be done, by what the last ones cost.

    In the thread part of the cost is waiting for the interpreter, which is not the disk's fault; so
    there the fastest of the recent commits counts, less what the crossings may have cost. Inline
    the cost is what it is: one stall, or a second slow commit among the recent, is enough to leave.
    Each time that happens it takes twice as many commits in the thread to come back, until as many
    went well inline.

    A client that is alone is another matter: nobody else is kept waiting, and the way to the thread
    and back would be a good part of the time that it waits itself. There only a disk counts that is
    slow most of the time.
    """

    __slots__ = ("_lately_s", "_patience", "_since", "is_inline")

    def __init__(self) -> None:
        self.is_inline = False
        self._patience = RECENT
        self._since = 0  # commits since the last move
        self._lately_s: deque[float] = deque(maxlen=RECENT)

    def goes_inline(self, *, is_alone: bool) -> bool:
        """Say where the next commit is to be done."""
        if is_alone and len(self._lately_s) == RECENT:
            return sorted(self._lately_s)[RECENT // 2] < STALL_S
        return self.is_inline

    def note(self, cost_s: float) -> None:
        """Take what the last commit cost, where it was to be done."""
        self._lately_s.append(cost_s)
        self._since += 1
        if self.is_inline:
            self._note_inline(cost_s)
        elif self._since >= self._patience and min(self._lately_s) < INLINE_S + _CROSSINGS_S:
            self._move()

    def _note_inline(self, cost_s: float) -> None:
        if self._since >= self._patience:
            self._patience = RECENT
        slow = sum(cost > INLINE_S for cost in list(self._lately_s)[-self._since :])
        if cost_s > STALL_S or (cost_s > INLINE_S and slow > 1):
            self._patience = min(2 * self._patience, MAX_PATIENCE)
            self._move()

    def _move(self) -> None:
        self.is_inline = not self.is_inline
        self._since = 0


class Committer:
    """Writes the batches of a store to its journal."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
        *,
        is_alone: Callable[[], bool] = bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin, on the running event loop. `is_alone` tells whether there is but one client."""
        self.pace = Pace()
        self.costs_s = Histogram(COMMIT_BOUNDS_S)
        """What commits cost, each with its sync."""
        self._store = store
        self._journal = journal
        self._on_failure = on_failure
        self._is_alone = is_alone
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._chores: deque[tuple[Callable[[Journal], Any], asyncio.Future[Any]]] = deque()
        self._chore_was_last = False
        self._thread = threading.Thread(target=self._run, name="leasehold-commit", daemon=True)
        self._is_busy = False
        self._failed = False
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        store.on_pending = self._ask
        self._thread.start()

    def do(self, chore: Callable[[Journal], T], *, is_ours: bool = False) -> asyncio.Future[T]:
        """Have something done with the journal, in the thread, between two commits.

        What the engine does by itself `is_ours`, and is not refused when callers are.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        if self._is_closed or self._failed:
            done.set_exception(Closed("the engine was closed, or has failed"))
        elif len(self._chores) >= MAX_CHORES and not is_ours:
            done.set_exception(TooBusy(f"{MAX_CHORES} readers of old values wait for the disk"))
        else:
            self._chores.append((chore, done))
            if not self._is_busy:
                self._ask()
        return done

    async def close(self) -> None:
        """Write what is left, and stop. Nothing may be applied to the store any more."""
        self._is_closed = True
        self._give_up_chores(Closed("the engine was closed"))
        self._flush()
        while self._is_busy and not self._failed:
            await self._idle.wait()
        self._store.on_pending = ignore
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)

    def _ask(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._is_busy or self._failed:
            return
        if self._chores and not self._chore_was_last:
            self._begin_chore()
            return
        self._chore_was_last = False
        batch = self._store.take_batch()
        if batch is not None:
            inline = self.pace.goes_inline(is_alone=self._is_alone())
            is_small = len(batch.changes) < MAX_INLINE_CHANGES and batch.octets < MAX_INLINE_BYTES
            if not (inline and is_small) or self._journal.wants_checkpoint:
                self._hand_over(lambda: self._commit(batch))
                return
            self._commit_inline(batch)
        if self._chores and not self._is_busy:
            self._begin_chore()

    def _begin_chore(self) -> None:
        self._chore_was_last = True
        chore, done = self._chores.popleft()
        self._hand_over(lambda: self._do(chore, done))

    def _hand_over(self, work: Callable[[], None]) -> None:
        """Have the thread do something."""
        self._is_busy = True
        self._idle.clear()
        self._work.put(work)

    def _commit_inline(self, batch: Batch) -> None:
        try:
            cost_s = self._append(batch)
        except Exception as error:  # noqa: BLE001  whatever it is, it was not committed
            self._fail(error)
            return
        self._committed(cost_s)

    def _append(self, batch: Batch) -> float:
        changes = b"".join(batch.changes)
        began = self._clock()
        self._journal.append(batch.first_revision, batch.last_revision, changes)
        return self._clock() - began

    def _committed(self, cost_s: float) -> None:
        try:
            self._store.measure(self._journal.used_bytes)
            self._store.committed()
        except Exception as error:  # noqa: BLE001  who has been told what is not known any more
            self._fail(error)
        self._loop.call_soon(self._note, cost_s)  # once the answers have left

    def _note(self, cost_s: float) -> None:
        self.pace.note(cost_s)
        self.costs_s.observe(cost_s)

    def _give_up_chores(self, error: Exception) -> None:
        chores, self._chores = self._chores, deque()
        for _, done in chores:
            if not done.done():
                done.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        self._give_up_chores(JournalFailed(f"the engine has stopped: {error}"))
        self._idle.set()
        self._on_failure(error)

    # In the thread.

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  whatever it is, it was not committed
                self._tell(self._fail, error)
                return

    def _commit(self, batch: Batch) -> None:
        cost_s = self._append(batch)
        if self._journal.wants_checkpoint:  # the answers need not wait for it
            self._tell(self._committed, cost_s)
            self._journal.checkpoint()
            self._tell(self._thread_is_free)
        else:
            self._tell(self._committed_and_free, cost_s)

    def _do(self, chore: Callable[[Journal], Any], done: asyncio.Future[Any]) -> None:
        try:
            result = chore(self._journal)
        except Exception as error:
            self._tell(self._chore_failed, done, error)
            if self._journal.has_failed:
                raise
        else:
            self._tell(self._chore_done, done, result)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *args)

    # Told by the thread.

    def _committed_and_free(self, cost_s: float) -> None:
        self._committed(cost_s)
        self._thread_is_free()

    def _chore_done(self, done: asyncio.Future[Any], result: object) -> None:
        if not done.done():
            done.set_result(result)
        self._store.measure(self._journal.used_bytes)
        self._thread_is_free()

    def _chore_failed(self, done: asyncio.Future[Any], error: Exception) -> None:
        if not done.done():
            done.set_exception(error)
        if not self._journal.has_failed:
            self._thread_is_free()

    def _thread_is_free(self) -> None:
        self._is_busy = False
        self._idle.set()
        self._flush()  # what came while there was a checkpoint
