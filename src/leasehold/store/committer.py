"""Group commit: batches go to disk one after the other; a batch is all that was applied meanwhile.

Theory of operation. The first change that is applied schedules a flush for the next turn of the
event loop; by then everything that was waiting in the sockets is in the open batch too. A flush
hands the batch to *the thread*, and while that commits it the next batch collects. No commit runs
on the event loop: a disk that stalls must not delay renewals.

The way to the thread and back costs two wake-ups of the loop. So, while the disk is fast and the
loop is otherwise idle, the loop waits for the thread, for `WAIT_S` at most, and completes the
commit itself. If the thread is not done by then, the loop continues, and the thread calls it back.
`Handover` decides which of the two it is; `CommitPatience` decides whether to wait; `Wakeup` is how
one thread wakes the other.

Beside commits there are *chores*: everything else that needs the journal, such as reading old
values, or folding old batches. They run in the thread too, one after each commit at most, so
neither delays the other for long.

A commit that fails is final: memory is ahead of the disk and must not be shown. `on_failure` is
called once, and nothing is committed or released any more. The same holds for an error while
answers are released: it is unknown by then which callers have received theirs.
"""

import asyncio
import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Final, TypeVar

from leasehold.basics.callbacks import ignore
from leasehold.basics.histogram import Histogram
from leasehold.errors import Closed, JournalFailed, TooBusy
from leasehold.journal.journal import Journal
from leasehold.store.store import Store
from leasehold.store.undurable_changes import Batch

T = TypeVar("T")

WAIT_S: Final = 0.001
"""The maximum time for which the event loop waits for a commit."""

MIN_SKIPPED: Final = 8
MAX_SKIPPED: Final = 1024
"""The number of fast commits required, after one that was not done within `WAIT_S`, before the loop
waits again: doubled each time, and reduced again while commits are in time."""

MAX_CHORES: Final = 1_000
"""Chores that may be queued; further ones are refused."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop may keep the GIL from the thread (`sys.setswitchinterval`)."""

COMMIT_BOUNDS_S: Final = tuple(0.0001 * 2**power for power in range(16))
"""Histogram bounds of the durations of commits, from a tenth of a millisecond to three seconds."""

_CONTENDED_S: Final = 3 * SWITCH_INTERVAL_S
"""How much longer a commit may take while the loop does not wait, as both need the GIL."""


class CommitPatience:
    """Decides whether the loop waits for the next commit, by whether the last ones were in time."""

    __slots__ = ("_penalty", "_skipped")

    def __init__(self) -> None:
        self._penalty = MIN_SKIPPED
        self._skipped = MIN_SKIPPED
        """Fast commits that are still required."""

    @property
    def waits(self) -> bool:
        """Whether the loop may wait for the next commit."""
        return not self._skipped

    def waited(self, *, in_time: bool) -> None:
        """Record whether a commit was done while the loop waited for it."""
        if in_time:
            self._penalty = max(MIN_SKIPPED, self._penalty - 1)
        else:
            self._skipped = self._penalty
            self._penalty = min(2 * self._penalty, MAX_SKIPPED)

    def note(self, cost_s: float) -> None:
        """Record the duration of a commit that the loop did not wait for."""
        if self._skipped and cost_s < WAIT_S + _CONTENDED_S:
            self._skipped -= 1


class Wakeup:
    """Wakes a thread that waits, by a byte in a pipe.

    `os.write` releases the GIL before the other thread wakes up. `Lock.release` and
    `SimpleQueue.put` keep it, so the other thread wakes up only to sleep again until it gets the
    GIL, which doubles the cost of a handover. The kernel also prefers the writer's processor for
    the reader of a pipe, as the writer is about to wait.
    """

    __slots__ = ("_poll", "_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def set(self) -> None:
        """Wake the other thread, now or when it waits. Does nothing after `close`."""
        if self._writer >= 0:
            os.write(self._writer, b"\0")

    def wait(self) -> None:
        """Wait until the next `set` that no wait has returned for."""
        os.read(self._reader, 1)

    def wait_for(self, timeout_s: float) -> bool:
        """Wait, rounded up to milliseconds; return False on timeout."""
        if not self._poll.poll(timeout_s * 1e3):
            return False
        self.wait()
        return True

    def close(self) -> None:
        """Close the pipe; no thread may be waiting for it."""
        if self._writer >= 0:
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1


class Handover:
    """One commit on its way to the thread and back: completed once, by the loop or by a callback.

    The loop makes it, and waits for it or does not. The thread calls `done` and, if that returns
    False, calls the loop back: the loop has not waited, or no longer does.
    """

    __slots__ = ("_is_done", "_is_waiting", "_mutex", "_wakeup", "cost_s", "error", "goes_on")

    def __init__(self, wakeup: Wakeup, *, is_waiting: bool) -> None:
        self.cost_s = 0.0
        self.error: BaseException | None = None
        self.goes_on = False
        """Whether the thread continues with a checkpoint when the batch is on disk."""
        self._is_done = False
        self._is_waiting = is_waiting
        self._mutex = threading.Lock()
        self._wakeup = wakeup

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is done; return True if the caller must complete it, not a callback."""
        # `set` may be from an earlier handover, if an exception of a signal handler ended its wait.
        if self._wakeup.wait_for(timeout_s) and self._is_done:
            return True
        is_done = self.stop_waiting()
        if is_done:  # just now, so `set` has been called or is about to be
            self._wakeup.wait()
        return is_done

    def stop_waiting(self) -> bool:
        """Leave it to a callback; return True if it is done: then the thread does not call back."""
        with self._mutex:
            self._is_waiting = False
            return self._is_done

    def done(self) -> bool:
        """Mark it as done, in the thread; return True if the loop waits and will complete it."""
        with self._mutex:
            self._is_done = True
            is_waiting = self._is_waiting
        if is_waiting:
            self._wakeup.set()
        return is_waiting


class Committer:
    """Writes the batches of a store to its journal."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin, on the running event loop."""
        self.patience = CommitPatience()
        self.costs_s = Histogram(COMMIT_BOUNDS_S)
        """How long commits took, including the sync."""
        self._store = store
        self._journal = journal
        self._on_failure = on_failure
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ready: Sized = getattr(self._loop, "_ready", ())
        """Callbacks that are ready to run, for event loops that expose them."""
        self._pending_since: float | None = None
        self._work: deque[Callable[[], None] | None] = deque()
        self._thread_wakeup = Wakeup()
        self._loop_wakeup = Wakeup()
        self._chores: deque[tuple[Callable[[Journal], Any], asyncio.Future[Any]]] = deque()
        self._chore_was_last = False
        self._thread = threading.Thread(target=self._run, name="leasehold-commit", daemon=True)
        self._is_busy = False
        self._failed = False
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        store.on_pending = self._pended
        self._thread.start()

    @property
    def outstanding_s(self) -> float:
        """How long the oldest change that is not on disk has been waiting; 0 if there is none."""
        return 0.0 if self._pending_since is None else self._clock() - self._pending_since

    def do(self, chore: Callable[[Journal], T], *, is_ours: bool = False) -> asyncio.Future[T]:
        """Call `chore` with the journal, in the thread, between two commits.

        Chores of the engine's own (`is_ours`) are not refused when those of callers are.
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
        """Commit the remaining batches, and stop. Nothing may be applied to the store then."""
        self._is_closed = True
        self._give_up_chores(Closed("the engine was closed"))
        self._flush()
        while self._is_busy and not self._failed:
            await self._idle.wait()
        self._store.on_pending = ignore
        self._give_work(None)
        await asyncio.to_thread(self._thread.join)
        self._thread_wakeup.close()
        self._loop_wakeup.close()

    def abandon(self) -> None:
        """Leave the thread alone, in a child process: it belongs to the parent."""
        self._thread_wakeup.close()
        self._loop_wakeup.close()

    def _pended(self) -> None:
        self._pending_since = self._clock()
        self._ask()

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
            self._commit(batch)
        if self._chores and not self._is_busy:
            self._begin_chore()

    def _commit(self, batch: Batch) -> None:
        """Have the thread commit a batch; wait for it if that is likely to be short."""
        is_waiting = self.patience.waits and not self._ready
        handover = Handover(self._loop_wakeup, is_waiting=is_waiting)
        self._hand_over(lambda: self._write(batch, handover))
        if is_waiting:
            try:
                in_time = handover.wait(WAIT_S)
            except BaseException:  # of a signal handler: the commit is completed anyway
                if handover.stop_waiting():
                    self._loop.call_soon(self._called_back, handover)
                raise
            self.patience.waited(in_time=in_time)
            if in_time:
                self._complete(handover)

    def _begin_chore(self) -> None:
        self._chore_was_last = True
        chore, done = self._chores.popleft()
        self._hand_over(lambda: self._do(chore, done))

    def _hand_over(self, work: Callable[[], None]) -> None:
        """Have the thread call `work`."""
        self._is_busy = True
        self._idle.clear()
        self._give_work(work)

    def _give_work(self, work: Callable[[], None] | None) -> None:
        self._work.append(work)
        self._thread_wakeup.set()

    def _complete(self, handover: Handover) -> None:
        """Complete a commit that succeeded or failed; the thread may continue with a checkpoint."""
        if handover.error is not None:
            self._fail(handover.error)
            return
        if not handover.goes_on:
            self._is_busy = False
            self._idle.set()
        self._committed(handover.cost_s)

    def _committed(self, cost_s: float) -> None:
        self._pending_since = None
        try:
            self._store.measure(self._journal.used_bytes)
            self._store.committed()
        except Exception as error:  # noqa: BLE001  unknown which clients were answered
            self._fail(error)
        self._loop.call_soon(self._note, cost_s)  # after the answers were sent

    def _note(self, cost_s: float) -> None:
        self.patience.note(cost_s)
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
        while True:
            self._thread_wakeup.wait()
            work = self._work.popleft()
            if work is None:
                return
            try:
                work()
            except Exception as error:  # noqa: BLE001  after any failure it is not committed
                self._tell(self._fail, error)
                return

    def _write(self, batch: Batch, handover: Handover) -> None:
        try:
            changes = b"".join(batch.changes)
            began = self._clock()
            self._journal.append(batch.first_revision, batch.last_revision, changes)
            handover.cost_s = self._clock() - began
            handover.goes_on = self._journal.wants_checkpoint
        except Exception as error:  # noqa: BLE001  after any failure it is not committed
            handover.error = error
        if not handover.done():
            self._tell(self._called_back, handover)
        if handover.goes_on:  # the answers need not wait for it
            self._journal.checkpoint()
            self._tell(self._thread_is_free)

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
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *args)

    # Called back by the thread.

    def _called_back(self, handover: Handover) -> None:
        self._complete(handover)
        if not self._is_busy:
            self._flush()

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
        self._flush()  # changes made during the checkpoint
