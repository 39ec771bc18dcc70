"""The one thread of all blocking clients of a process, which runs an event loop.

The first client starts it. It ends at interpreter exit, after closing all clients and joins that
the program has left open, which ends their leases. A forked child process has no such thread,
although it has the objects of its parent: those raise `Forked`. The next `connect` starts a thread
for the child.
"""

import asyncio
import atexit
import logging
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Final, NoReturn, TypeVar

from leasehold.basics.fork_hooks import call_in_child
from leasehold.basics.workers import WorkerExecutor, WorkerPool
from leasehold.client.client import Client
from leasehold.discovery.join import Join
from leasehold.errors import Closed, Forked
from leasehold.sync.blocking_call import BlockingCall, LossScope, open_scopes

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often a waiting caller checks whether the thread is alive."""

EXIT_S: Final = 5.0
"""How long closing everything may take at interpreter exit."""

LEFT_S: Final = 1.0
"""How long the remaining tasks may take after that."""

MAX_CALLBACKS: Final = 32
"""Callbacks of leases that run at the same time; others wait for one of them."""

MAX_CHECKS: Final = 256
"""Checks of `while_healthy`, and blocking work of engines: files, and name resolution."""


class LoopThread:
    """An event loop in a separate thread, and the means to run calls on it."""

    def __init__(self) -> None:
        self.open_objects: set[Client | Join] = set()
        """They are closed at interpreter exit, which ends their leases; for the loop only."""
        self.callbacks = WorkerPool("leasehold callback", MAX_CALLBACKS)
        self.is_ending = False
        """Whether the interpreter is exiting."""
        self._opened_by = os.getpid()
        self._is_forked = False
        self._is_over = False  # `is_alive` of a thread stays wrong once it was interrupted
        self._loop = _new_loop()
        self._loop.set_default_executor(WorkerExecutor("leasehold aside", MAX_CHECKS))
        self._finishing: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="leasehold loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._is_over = True
            self._loop.close()

    # Calls.

    def check(self) -> None:
        """Raise if a call would hang, or comes too late: every call does this first."""
        self.check_process()
        if get_ident() == self._thread.ident:
            raise RuntimeError(
                "a blocking call in the thread of leasehold's event loop would deadlock: make it "
                "in another thread"
            )
        if self.is_ending or self._is_over:
            self._refuse_at_end()

    def check_process(self) -> None:
        """Raise in a child of the process of this thread."""
        if self._is_forked:
            raise Forked(self._opened_by)

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process, which has no such thread."""
        return self._is_forked

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        undo: Callable[[T], Awaitable[object]] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and wait for it.

        If the caller is interrupted, the coroutine is cancelled or, if it is done already, undone.
        """
        self.check()
        call = BlockingCall(work, undo)
        try:
            if scopes := open_scopes():
                self._wait_in(list(scopes), call)
            else:
                self._wait(call)
            return self._outcome(call)
        except BaseException:
            if not call.has_failed:
                self.post(call.stop)
            raise

    def _wait_in(self, scopes: Sequence[LossScope], call: BlockingCall[Any]) -> None:
        """Wait in blocks that end with their leases."""
        try:
            for scope in scopes:
                scope.waits_for(call)
                scope.raise_loss()
            self._wait(call)
        finally:
            for scope in scopes:
                scope.waits_for(None)
        if call.is_cancelled:
            for scope in scopes:
                scope.raise_loss()

    def run_to_end(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a cleanup, and wait for it. It continues if the caller is interrupted."""
        self.check()
        call = BlockingCall(work)
        try:
            self._wait(call)
        except BaseException:
            self.post(call.start)  # if that was not reached
            raise
        return self._outcome(call)

    def _wait(self, call: BlockingCall[Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(call.start)
        except RuntimeError:  # it was closed at this very moment
            self._refuse_at_end()
        while not call.is_done(LOOK_S):
            self.check_process()  # a signal handler may have forked
            if self._is_over:
                self._refuse_at_end()

    def _outcome(self, call: BlockingCall[T]) -> T:
        if self.is_ending and call.has_failed:
            self._end_daemon()
        return call.outcome()

    def _refuse_at_end(self) -> NoReturn:
        self._end_daemon()
        raise Closed("the interpreter is shutting down, and leasehold.sync was closed")

    def _end_daemon(self) -> None:
        """End the caller's thread silently if it is a daemon: the interpreter is exiting."""
        if self.is_ending and threading.current_thread().daemon:
            raise SystemExit

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Schedule a call on the loop, if that still runs."""
        if not self._is_forked and not self._is_over:
            try:
                self._loop.call_soon_threadsafe(callback, *args)
            except RuntimeError:  # it was closed at this very moment
                return

    # Closing.

    def abandon(self) -> None:
        """Make it unusable in a child process, without an effect on the parent."""
        self._is_forked = True

    def close(self) -> None:
        """Close all open clients, and end the thread. For interpreter exit."""
        if self._is_forked or self.is_ending:
            return
        self.is_ending = True
        self.post(self._begin_to_finish)
        self._thread.join(EXIT_S + 2 * LEFT_S)

    def _begin_to_finish(self) -> None:
        self._finishing = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        try:
            await self._close_open_objects()
            await self._cancel_the_rest()
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()

    async def _close_open_objects(self) -> None:
        closing = (each.close() for each in list(self.open_objects))
        try:
            async with asyncio.timeout(EXIT_S):
                outcomes = await asyncio.gather(*closing, return_exceptions=True)
        except TimeoutError:
            logger.warning(
                "not all clients were closed within %g s; their leases will expire", EXIT_S
            )
            return
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                logger.warning("a client was not closed: %s", outcome)

    async def _cancel_the_rest(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=LEFT_S)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop if that is installed, else a loop of asyncio."""
    try:
        import uvloop  # noqa: PLC0415  it does not exist on every platform
    except ImportError:
        return asyncio.new_event_loop()

    class Loop(uvloop.Loop):
        """A uvloop that starts no threads in libuv.

        uvloop resolves hosts in such threads, also numeric ones. libuv waits for them when the
        process ends; in a forked child, which does not have them, it crashes instead.
        """

        async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> list[tuple[Any, ...]]:
            """Resolve a host in a thread of ours; a numeric one without a thread."""
            numeric = {**hints, "flags": hints.get("flags", 0) | socket.AI_NUMERICHOST}
            try:
                return list(socket.getaddrinfo(host, port, **numeric))
            except socket.gaierror:
                resolve = partial(socket.getaddrinfo, host, port, **hints)
                return list(await self.run_in_executor(None, resolve))

    return Loop()


class _Process:
    """The thread of this process, if it was started."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may run at any time
        self._thread: LoopThread | None = None
        self._of_parents: list[LoopThread] = []
        """Never freed: the resources of their loops are shared with the parent, and must not be
        closed here."""

    def thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
                _call_at_exit(self._thread.close)
            return self._thread

    def forked(self) -> None:
        self._lock = threading.RLock()  # another thread may have held it
        if self._thread is not None:
            self._thread.abandon()
            self._of_parents.append(self._thread)
            self._thread = None


def _call_at_exit(close: Callable[[], None]) -> None:
    atexit.register(close)
    process, util = sys.modules.get("multiprocessing.process"), "multiprocessing.util"
    if process is not None and process.parent_process() is not None and util in sys.modules:
        # A child that `multiprocessing` has forked ends without the callbacks of atexit.
        sys.modules[util].Finalize(None, close, exitpriority=0)


_process = _Process()
loop_thread = _process.thread
"""Return the thread of this process; the first call starts it."""

call_in_child(_process, _Process.forked)
