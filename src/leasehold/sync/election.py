"""`Election` for blocking code: leaders, and those who observe them."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Self

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.core.duration import check_seconds
from leasehold.errors import Closed
from leasehold.recipes import election as on_loop
from leasehold.recipes import observation
from leasehold.recipes.observation import Leader
from leasehold.sync.guard import Guard, OnLoss, obtain, tell_twin
from leasehold.sync.loop_thread import LoopThread


class Leadership(Guard):
    """What a leader has until it resigns, or has lost it."""

    __slots__ = ()

    @property
    def value(self) -> bytes:
        """What was proclaimed last."""
        return self._leadership.value

    def resign(self) -> None:
        """Let the next one lead, at once; what `release` does."""
        self.release()

    def proclaim(self, value: Octets) -> None:
        """Say something else to whoever observes.

        It is written only while this leadership lasts: else `LockLost`, or `NotHeld` after
        `resign`. Whether it was, is not known if the caller is interrupted.
        """
        self._thread.run(lambda: self._leadership.proclaim(value))

    @property
    def _leadership(self) -> on_loop.Leadership:
        assert isinstance(self._guard, on_loop.Leadership)
        return self._guard


class Observation:
    """The leaders of an election, one after the other: an iterator of `Leader`."""

    __slots__ = ("_is_cancelled", "_observation", "_thread")

    def __init__(self, thread: LoopThread, seen: observation.Observation) -> None:
        self._thread = thread
        self._observation = seen
        self._is_cancelled = False

    def __iter__(self) -> Iterator[Leader]:
        """Iterate over what happens from now on."""
        return self

    def __next__(self) -> Leader:
        """Wait for the next change; at first, for a leader."""
        try:
            return self.next()
        except Closed:
            if self._is_cancelled or self._thread.is_ending:
                raise StopIteration from None
            raise

    def next(self, *, timeout: float | timedelta | None = None) -> Leader:
        """Wait for the next change; `TimeoutError` if that takes longer than `timeout`.

        Then nothing is lost: it is told by the next call. `Closed` once this is cancelled.
        """
        limit_s = None if timeout is None else check_seconds(timeout, "timeout")
        return self._thread.run(lambda: self._next(limit_s), undo=self._take_back)

    async def _next(self, limit_s: float | None) -> Leader:
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await anext(self._observation)
        except StopAsyncIteration:
            raise Closed("this observation was cancelled") from None
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"no change of the leader within {limit_s:g} s") from error
            raise

    async def _take_back(self, _leader: Leader) -> None:
        self._observation.tell_again()

    def tell_again(self) -> None:
        """Have what was told last told again."""
        self._thread.post(self._observation.tell_again)

    def cancel(self) -> None:
        """Observe no longer: whoever iterates is at the end."""
        self._is_cancelled = True
        self._thread.post(self._observation.cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()


class Election:
    """An election of one leader. A handle: it costs nothing until something is asked of it."""

    __slots__ = ("_election", "_thread")

    def __init__(self, thread: LoopThread, election: on_loop.Election) -> None:
        self._thread = thread
        self._election = election

    @property
    def name(self) -> str:
        """What it is called."""
        return self._election.name

    def campaign(
        self,
        value: Octets,
        timeout: Timeout = None,
        *,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> Leadership:
        """Become the leader, and proclaim `value`: to be resigned, or entered with `with`.

        `timeout` is how long to wait for others: None for as long as it takes, 0 only asks;
        `LockDenied` then. `on_loss(leadership, error)` is told if it is lost, in a thread of its
        own; with `cancel_on_loss` the call of this package that the block waits for raises
        `LockLost` then, or else its next one, or its end.
        """
        check_plain_callback(on_loss, "on_loss")
        return obtain(
            self._thread,
            self._election.campaign(value, timeout, on_loss=tell_twin),
            on_loss,
            cancel_on_loss=cancel_on_loss,
            kind=Leadership,
        )

    def leader(self, *, timeout: Timeout = None) -> Leader | None:
        """Ask who leads now; None if nobody does."""
        return self._thread.run(lambda: self._election.leader(timeout=timeout))

    def observe(self) -> Observation:
        """Observe who leads, and what it proclaims: an iterator of `Leader`.

            for leader in election.observe():
                ...

        It begins with the leader there is, and gives each change of it, or of what it says. While
        nobody leads there is nothing to tell. It goes on whatever happens to the connection; what
        was compacted before it was read is left out, but never the last. It ends with
        `HistoryLost` or `Closed`, and when it is cancelled.
        """
        return Observation(self._thread, self._election.observe())
