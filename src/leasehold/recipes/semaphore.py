"""`client.semaphore`: so many at a time, first come, first served.

Keys are `<name>/semaphore/<limit>.<lease in hex>.<number>`: who has fewer than `limit` others ahead
is let in.
"""

import asyncio
from types import TracebackType
from typing import Final

from leasehold.callbacks import check_plain_callback
from leasehold.client.patience import Timeout
from leasehold.client.texts import Octets
from leasehold.pending import Pending
from leasehold.recipes.blocks import Blocks
from leasehold.recipes.counted import CountedLine, check_count
from leasehold.recipes.line import Place
from leasehold.recipes.line_guard import LineGuard, OnLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import Claim, name_of, text_of
from leasehold.recipes.options import check_wait
from leasehold.recipes.stay import stay

MAX_LIMIT: Final = 1_000_000
"""The highest limit of a semaphore."""


class Semaphore:
    """Lets in so many at a time. A handle: it costs nothing until it is acquired."""

    def __init__(
        self,
        lines: Lines,
        name: Octets,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        self._lines = lines
        octets = name_of(name)
        self.name = text_of(octets)
        """What it is called."""
        self.limit = check_count(limit, "limit", MAX_LIMIT, "what a semaphore can count")
        """How many are let in at a time."""
        self._line = CountedLine(octets, b"semaphore", limit, "limit")
        self._timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss
        self._blocks: Blocks[LineGuard] = Blocks()

    def acquire(self, timeout: Timeout = None) -> Pending[LineGuard]:
        """Be one of those that are let in: to be awaited, or entered with `async with`.

        Waits for `timeout` seconds, or as the semaphore was made to; 0 only asks. `LockDenied`
        names a holder.
        """
        wait_s = self._timeout_s if timeout is None else check_wait(timeout)
        value = Claim(self._lines.who).encode()
        return Pending(
            lambda: stay(self._lines, self._line, value, self._guard, wait_s),
            f"acquire() of semaphore {self.name!r}",
        )

    def _guard(self, place: Place) -> LineGuard:
        return LineGuard(place, on_loss=self._on_loss, cancel_on_loss=self._cancel_on_loss)

    async def __aenter__(self) -> LineGuard:
        guard = await self.acquire()
        guard.enter()
        self._blocks.enter(asyncio.current_task(), guard)
        return guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._blocks.leave(asyncio.current_task()).leave(exc_type)
