"""`Watch` and `Observation` for blocking code: iterators, which another thread may cancel.

Nothing that the loop has fetched is lost if the reader is interrupted or times out: a watch keeps
it until it is read, and an observation returns it again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from datetime import timedelta
from typing import Final, Generic, Self, TypeVar

from leasehold.basics.durations import check_seconds
from leasehold.engine import interface
from leasehold.engine.values import Events
from leasehold.errors import Closed, LeaseholdError
from leasehold.locks import election as on_loop_election
from leasehold.locks.election import Leader
from leasehold.sync.blocking_call import BlockingCall
from leasehold.sync.loop_thread import LoopThread

T = TypeVar("T")

MAX_FETCHED: Final = 64
"""Revisions that one call on the loop fetches; the others wait there."""


class LoopIterator(ABC, Generic[T]):
    """An iterator whose items come from the loop. The iteration ends if it is cancelled."""

    __slots__ = ("__weakref__", "_is_cancelled", "_thread")

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._is_cancelled = False

    def __iter__(self) -> Iterator[T]:
        """Iterate over the changes from now on."""
        return self

    def __next__(self) -> T:
        """Wait for the next change."""
        try:
            return self.next()
        except Closed:
            if self._is_cancelled or self._thread.is_ending:
                raise StopIteration from None
            raise

    @abstractmethod
    def next(self, *, timeout: float | timedelta | None = None) -> T:
        """Wait for the next change; raise `TimeoutError` if that takes longer than `timeout`."""

    @abstractmethod
    def cancel(self) -> None:
        """End all iterations."""

    def __enter__(self) -> Self:
        self._thread.check_process()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()


class Watch(LoopIterator[Events]):
    """The changes of a range, in order, in whole revisions: an iterator of `Events`.

    Nothing is lost or repeated, however slowly it is read. The iteration ends if the watch is
    cancelled, and raises `Compacted` or `HistoryLost` if it cannot continue.
    """

    __slots__ = ("_fetched", "_watch")

    def __init__(self, thread: LoopThread, watch: interface.Watch) -> None:
        super().__init__(thread)
        self._watch = watch
        self._fetched: deque[Events] = deque()

    def __iter__(self) -> Iterator[Events]:
        """Iterate over the changes from now on."""
        self._watch.__aiter__()  # it is not reported then if this loop is left by `break`
        return self

    def next(self, *, timeout: float | timedelta | None = None) -> Events:
        """Wait for the next revision; raise `TimeoutError` if that takes longer than `timeout`.

        Nothing is lost then: the next call returns it. Raises `Closed` once the watch is cancelled.
        """
        limit_s = _limit_s(timeout)
        self._thread.check_process()
        while (events := self._read()) is None:
            self._thread.run(lambda: self._fetch(limit_s))
        return events

    def _read(self) -> Events | None:
        """Return the next fetched revision; None if there is none (any more)."""
        try:
            return self._fetched.popleft()
        except IndexError:
            return None

    async def _fetch(self, limit_s: float | None) -> None:
        """Fetch all revisions that are available, up to a limit, or wait for one."""
        self._keep(await _within(limit_s, self._watch.__anext__(), "event"))
        while len(self._fetched) < MAX_FETCHED and self._fetch_available():
            pass

    def _fetch_available(self) -> bool:
        """Fetch one more revision if it is available without waiting; return whether it was."""
        asking = self._watch.__anext__()
        try:
            asking.send(None)
        except StopIteration as found:
            self._keep(found.value)
            return True
        except LeaseholdError:
            return False  # it is raised when everything before it was read
        finally:
            asking.close()
        return False

    def _keep(self, events: Events) -> None:
        if not self._is_cancelled:
            self._fetched.append(events)

    def ready(self) -> None:
        """Wait until all later changes are delivered; that is so from the start."""
        self._thread.run(self._watch.ready)

    def request_progress(self) -> None:
        """Request `Events` without events, to be delivered after everything before them."""
        self._thread.check()
        self._thread.post(self._watch.request_progress)

    def cancel(self) -> None:
        """Cancel the watch, and end all iterations over it. Does nothing in a forked child."""
        self._is_cancelled = True
        self._fetched.clear()
        self._thread.post(self._watch.cancel)

    close = cancel


def begin_watch(thread: LoopThread, make: Callable[[], interface.Watch]) -> Watch:
    """Start a watch, and wait until the server has it, up to its timeout."""

    async def begin() -> interface.Watch:
        return await make().__aenter__()

    async def undo(watch: interface.Watch) -> None:
        watch.cancel()

    return Watch(thread, thread.run(begin, undo=undo))


class Observation(LoopIterator[Leader]):
    """The leaders of an election, one after the other: an iterator of `Leader`."""

    __slots__ = ("_observation",)

    def __init__(self, thread: LoopThread, observation: on_loop_election.Observation) -> None:
        super().__init__(thread)
        self._observation = observation

    def next(self, *, timeout: float | timedelta | None = None) -> Leader:
        """Wait for the next change, at first for a leader; raise `TimeoutError` after `timeout`.

        Nothing is lost then: the next call returns it. Raises `Closed` once this is cancelled.
        """
        limit_s = _limit_s(timeout)
        return self._thread.run(lambda: self._next(limit_s), undo=self._undo)

    async def _next(self, limit_s: float | None) -> Leader:
        try:
            return await _within(limit_s, anext(self._observation), "change of the leader")
        except StopAsyncIteration:
            raise Closed("this observation was cancelled") from None

    async def _undo(self, _leader: Leader) -> None:
        self._observation.return_again()

    def return_again(self) -> None:
        """Return the last leader again in the next call."""
        self._thread.post(self._observation.return_again)

    def cancel(self) -> None:
        """End the observation, and all iterations over it."""
        self._is_cancelled = True
        self._thread.post(self._observation.cancel)


def listed(thread: LoopThread, source: AsyncGenerator[T]) -> Generator[T]:
    """Iterate over the items of a listing on the loop, which ends."""

    async def fetch() -> list[T]:
        fetched: list[T] = []
        async for item in source:
            fetched.append(item)
            if len(fetched) == MAX_FETCHED:
                break
        return fetched

    try:
        while items := thread.run(fetch):
            yield from items
    finally:  # in any thread, if the iterator is garbage-collected
        thread.post(BlockingCall(source.aclose).start)


def _limit_s(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else check_seconds(timeout, "timeout")


async def _within(limit_s: float | None, item: Awaitable[T], what: str) -> T:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await item
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"no {what} within {limit_s:g} s") from error
        raise
