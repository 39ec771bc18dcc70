"""`Watch` for blocking code: an iterator of what happens, which another thread may end.

One trip to the loop fetches all that is there, up to a limit. It lies here until it is read: who is
interrupted while waiting for it, or waits no longer, finds it later.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, Self

from leasehold.core.duration import check_seconds
from leasehold.engine import interface
from leasehold.engine.values import Events
from leasehold.errors import Closed, LeaseholdError
from leasehold.sync.loop_thread import LoopThread

FETCHED_AT_ONCE: Final = 64
"""Revisions that one trip to the loop brings; the others wait there."""


class Watch:
    """The changes of a range, in order, in whole revisions: an iterator of `Events`.

    Nothing is lost or told twice, however slowly it is read. The iteration ends if the watch is
    cancelled, and raises `Compacted` or `HistoryLost` if it cannot go on.
    """

    __slots__ = ("__weakref__", "_fetched", "_is_cancelled", "_thread", "_watch")

    def __init__(self, thread: LoopThread, watch: interface.Watch) -> None:
        self._thread = thread
        self._watch = watch
        self._fetched: deque[Events] = deque()
        self._is_cancelled = False

    def __iter__(self) -> Iterator[Events]:
        """Iterate over what happens from now on."""
        return self

    def __next__(self) -> Events:
        """Wait for the next revision that concerns this watch."""
        try:
            return self.next()
        except Closed:
            if self._is_cancelled or self._thread.is_ending:
                raise StopIteration from None
            raise

    def next(self, *, timeout: float | timedelta | None = None) -> Events:
        """Wait for the next revision; `TimeoutError` if that takes longer than `timeout`.

        Then nothing is lost: it is told by the next call. `Closed` once the watch is cancelled.
        """
        limit_s = None if timeout is None else check_seconds(timeout, "timeout")
        self._thread.check_process()
        while (events := self._read()) is None:
            self._thread.run(lambda: self._fetch(limit_s))
        return events

    def _read(self) -> Events | None:
        """Take the next of what was fetched; another thread may take it first."""
        try:
            return self._fetched.popleft()
        except IndexError:
            return None

    async def _fetch(self, limit_s: float | None) -> None:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                self._keep(await self._watch.__anext__())
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"no event within {limit_s:g} s") from error
            raise
        while len(self._fetched) < FETCHED_AT_ONCE and self._take():
            pass

    def _take(self) -> bool:
        """Take what can be had without waiting."""
        asking = self._watch.__anext__()
        try:
            asking.send(None)
        except StopIteration as found:
            self._keep(found.value)
            return True
        except LeaseholdError:
            return False  # it is told when all that came before was read
        finally:
            asking.close()
        return False

    def _keep(self, events: Events) -> None:
        if not self._is_cancelled:
            self._fetched.append(events)

    def ready(self) -> None:
        """Wait until whatever happens next is told; it is, once there is a watch."""
        self._thread.run(self._watch.ready)

    def request_progress(self) -> None:
        """Have `Events` without events told, once everything before them was."""
        self._thread.check()
        self._thread.post(self._watch.request_progress)

    def cancel(self) -> None:
        """Watch no longer: whichever thread iterates is at the end. Nothing in a forked child."""
        self._is_cancelled = True
        self._fetched.clear()
        self._thread.post(self._watch.cancel)

    close = cancel

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        # A loop that was left by `break` has nobody to cancel its watch.
        if hasattr(self, "_watch") and not self._is_cancelled:
            self.cancel()


def begin_watch(thread: LoopThread, make: Callable[[], interface.Watch]) -> Watch:
    """Begin a watch, and wait until the server has it: for as long as its patience lasts."""

    async def begin() -> interface.Watch:
        return await make().__aenter__()

    async def undo(watch: interface.Watch) -> None:
        watch.cancel()

    return Watch(thread, thread.run(begin, undo=undo))
