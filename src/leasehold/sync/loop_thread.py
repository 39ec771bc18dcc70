"""The one thread that does all the work: an event loop, shared by all sync clients of a process.

It is ended when the interpreter ends, after what the program has left open: clients are closed, and
so their leases ended. A child process that was forked has no such thread, although it has the
objects of its parent: those raise `Forked`.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from threading import get_ident
from typing import Any, Final, NoReturn, TypeVar

from leasehold.client.client import Client
from leasehold.errors import Closed, Forked
from leasehold.sync.bodies import Body, bodies
from leasehold.sync.call import Call
from leasehold.sync.loops import new_loop
from leasehold.sync.workers import Executor, Workers

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often a caller that waits looks whether the thread is there."""

EXIT_S: Final = 5.0
"""How long closing everything may take when the interpreter ends."""

LEFT_S: Final = 1.0
"""And what is still left after that."""

NOTICES_AT_ONCE: Final = 32
"""Callbacks of leases that run at the same time; others wait for one of them."""

CHECKS_AT_ONCE: Final = 256
"""Checks of `while_healthy`, and what engines do aside: files, and names of hosts."""

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, and how others have something done there."""

    def __init__(self) -> None:
        self.clients: set[Client] = set()
        """Those that are open; for the loop only."""
        self.notices = Workers("leasehold callback", NOTICES_AT_ONCE)
        self.is_ending = False
        """Whether the interpreter ends, and so everything here does."""
        self._opened_by = os.getpid()
        self._is_forked = False
        self._is_over = False  # a thread's is_alive is wrong ever after if it is interrupted once
        self._loop = new_loop()
        self._loop.set_default_executor(Executor("leasehold aside", CHECKS_AT_ONCE))
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
        """Raise what every call would: where it could only hang, or comes too late."""
        self.check_process()
        if get_ident() == self._thread.ident:
            raise RuntimeError(
                "a blocking call was made in the thread of leasehold's event loop, where it would "
                "wait for itself: make it in another thread"
            )
        if self.is_ending or self._is_over:
            self._refuse_at_end()

    def check_process(self) -> None:
        """Refuse to work in a child of the process that this thread is in."""
        if self._is_forked:
            raise Forked(self._opened_by)

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process, in which there is no such thread."""
        return self._is_forked

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        undo: Callable[[T], Awaitable[object]] | None = None,
    ) -> T:
        """Have something done on the loop, and wait for it.

        If the caller is interrupted it is cancelled, or if it was done already, undone.
        """
        self.check()
        call = Call(work, undo)
        try:
            if blocks := bodies():
                self._wait_in(list(blocks), call)
            else:
                self._wait(call)
            return self._outcome(call)
        except BaseException:
            if not call.has_failed:
                self.post(call.stop)
            raise

    def _wait_in(self, blocks: Sequence[Body], call: Call[Any]) -> None:
        """Wait in blocks that end with their leases."""
        try:
            for body in blocks:
                body.waits_for(call)
                body.tell()
            self._wait(call)
        finally:
            for body in blocks:
                body.waits_for(None)
        if call.is_cancelled:
            for body in blocks:
                body.tell()

    def run_to_end(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have something let go, and wait for it. It goes on if the caller is interrupted."""
        self.check()
        call = Call(work)
        try:
            self._wait(call)
        except BaseException:
            self.post(call.start)  # if that was not reached
            raise
        return self._outcome(call)

    def _wait(self, call: Call[Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(call.start)
        except RuntimeError:  # it was closed at this very moment
            self._refuse_at_end()
        while not call.is_done(LOOK_S):
            self.check_process()  # a handler of a signal may have forked
            if self._is_over:
                self._refuse_at_end()

    def _outcome(self, call: Call[T]) -> T:
        if self.is_ending and call.has_failed:
            self._end_daemon()
        return call.outcome()

    def _refuse_at_end(self) -> NoReturn:
        self._end_daemon()
        raise Closed("the interpreter is ending, and so has leasehold.sync")

    def _end_daemon(self) -> None:
        """End the caller's thread if it is a daemon: with the interpreter, and without a word."""
        if self.is_ending and threading.current_thread().daemon:
            raise SystemExit

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Have something done on the loop soon, if that is still there."""
        if not self._is_forked and not self._is_over:
            try:
                self._loop.call_soon_threadsafe(callback, *args)
            except RuntimeError:  # it was closed at this very moment
                return

    # The end.

    def abandon(self) -> None:
        """Be of no use in a child process; what the parent has stays as it is."""
        self._is_forked = True

    def close(self) -> None:
        """Close what is open, and end the thread. For the end of the interpreter."""
        if self._is_forked or self.is_ending:
            return
        self.is_ending = True
        self.post(self._begin_to_finish)
        self._thread.join(EXIT_S + 2 * LEFT_S)

    def _begin_to_finish(self) -> None:
        self._finishing = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        try:
            await self._close_clients()
            await self._cancel_the_rest()
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()

    async def _close_clients(self) -> None:
        closing = (client.close() for client in list(self.clients))
        try:
            async with asyncio.timeout(EXIT_S):
                outcomes = await asyncio.gather(*closing, return_exceptions=True)
        except TimeoutError:
            logger.warning("not all was closed within %g s: leases end by themselves", EXIT_S)
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
