"""Worker threads, for work that may block: callbacks of users, files, name resolution.

They are daemons, unlike those of `ThreadPoolExecutor`: work that hangs must not keep the
interpreter from exiting, and an engine that is closed at exit still needs one.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

IDLE_S: Final = 10.0
"""How long an idle thread waits for a job before it ends. The last one stays until `close`."""


class WorkerPool:
    """Up to `limit` threads, started when they are needed; further jobs wait for one of them."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._queue: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        """The number of waiting threads, less the jobs that are in the queue for them."""
        self._lock = threading.Lock()
        self._count = 0
        self._lasting = 1

    def submit(self, job: Callable[[], object]) -> None:
        """Run a job in one of the threads."""
        self._queue.put(job)
        if not self._idle.acquire(blocking=False):
            self._add_thread()

    def close(self) -> None:
        """Let the last thread end as well when it is idle. A later job starts one again."""
        self._lasting = 0

    def _add_thread(self) -> None:
        with self._lock:
            if self._count >= self._limit:
                return
            self._count += 1
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:  # the interpreter is exiting, and starts no more threads
            with self._lock:
                self._count -= 1
                if not self._count:
                    raise

    def _work(self) -> None:
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                found = self._wait()
                if found is None:
                    return
                job = found
            try:
                job()
            except BaseException:  # sys.exit as well: it would end a thread that other jobs need
                logger.exception("a job in a worker thread has failed")
            del job

    def _wait(self) -> Callable[[], object] | None:
        """Wait for a job; None if there was none for long, and this thread need not stay."""
        self._idle.release()
        while True:
            try:
                return self._queue.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    # The caller that has taken the permit puts a job into the queue, or has done
                    # so.
                    if self._count > self._lasting and self._idle.acquire(blocking=False):
                        self._count -= 1
                        return None


class WorkerExecutor(ThreadPoolExecutor):
    """`WorkerPool` as an executor for event loops."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(limit, name)  # which starts no thread until `submit` is called
        self._own = WorkerPool(name, limit)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a job; the future completes when it is done."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  the caller that waits for it gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._own.submit(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the threads end with the process."""


class SerialExecutor:
    """Runs jobs one at a time and in order, in any of the threads."""

    __slots__ = ("_is_busy", "_jobs", "_lock", "_workers")

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers
        self._jobs: deque[Callable[[], Any]] = deque()
        self._lock = threading.Lock()
        self._is_busy = False

    def submit(self, job: Callable[[], object]) -> None:
        """Run a job after those submitted before."""
        with self._lock:
            self._jobs.append(job)
            if self._is_busy:
                return
            self._is_busy = True
        self._workers.submit(self._next)

    def _next(self) -> None:
        job = self._jobs.popleft()
        try:
            job()
        finally:
            with self._lock:
                self._is_busy = bool(self._jobs)
                goes_on = self._is_busy
            if goes_on:
                self._workers.submit(self._next)
