"""`Errand`: something that is done for whoever waits for it, and comes to its end without them.

The caller waits for `outcome` and nothing else, so that it may be cancelled, or run out of time, at
any point. The errand is told then that it is not wanted any more, and goes on until nothing of it
is left.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from leasehold.errors import Closed
from leasehold.recipes.lines import Lines

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Errand(ABC, Generic[T]):
    """A task of its own, whose outcome is a `T`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.is_wanted = True
        self._task = lines.start(self._guarded(), self._end)

    @abstractmethod
    async def _run(self) -> None:
        """Do it: `_succeed`, or raise; and take away what is left in any case."""

    @abstractmethod
    def _give_up(self) -> None:
        """Learn that nobody wants it any more."""

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the outcome; False if there is none within this time."""
        try:
            done, _ = await asyncio.wait([self.outcome], timeout=timeout_s)
        except BaseException:
            self.abandon()
            raise
        return bool(done)

    def take(self) -> T:
        """Return the outcome, and keep no reference to it: its owner may forget it."""
        outcome, self.outcome = self.outcome, asyncio.get_running_loop().create_future()
        self.outcome.cancel()
        return outcome.result()

    def abandon(self) -> None:
        """Want nothing of it any more."""
        self.is_wanted = False
        self._give_up()
        if not self.outcome.cancel() and not self.outcome.cancelled():
            self.outcome.exception()  # it was told, to nobody

    def _end(self) -> None:
        """Come to an end with the client."""
        self._fail(Closed("the client was closed"))
        self.is_wanted = False
        self._give_up()

    def _succeed(self, outcome: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def _fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # the caller may be gone before it looks

    async def _guarded(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            self._fail(Closed("the client was closed"))
        except Exception as error:
            if self.outcome.done():
                logger.exception("what was left of an acquisition was not cleared away")
            self._fail(error)
