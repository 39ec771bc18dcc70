"""`client.semaphore`: a limited number of holders, first come, first served.

Keys are `<name>/semaphore/<limit>.<lease in hex>.<number>`: a key with fewer than `limit` others
ahead is admitted.
"""

import asyncio
import sys
from types import TracebackType
from typing import Final

from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.pending import Pending
from leasehold.engine.key import Octets
from leasehold.engine.time_limits import Timeout
from leasehold.locks.guard_base import Blocks
from leasehold.locks.lock_keys import Claim, name_of, text_of
from leasehold.locks.lock_options import OnLoss, check_wait
from leasehold.locks.queue import CountedQueue, QueuePosition, check_count
from leasehold.locks.queue_acquisition import QueueGuard, acquire_in_queue
from leasehold.locks.recipe_context import RecipeContext

MAX_LIMIT: Final = 1_000_000
"""The highest limit of a semaphore."""


class Semaphore:
    """Admits a limited number of holders. A handle: creating it sends nothing."""

    def __init__(
        self,
        context: RecipeContext,
        name: Octets,
        limit: int,
        *,
        timeout: Timeout = None,
        on_loss: OnLoss | None = None,
        cancel_on_loss: bool = False,
    ) -> None:
        self._context = context
        octets = name_of(name)
        self.name = text_of(octets)
        """Its name."""
        self.limit = check_count(limit, "limit", MAX_LIMIT, "what a semaphore can count")
        """The maximum number of holders."""
        self._queue = CountedQueue(octets, b"semaphore", limit, "limit")
        self._timeout_s = check_wait(timeout)
        check_plain_callback(on_loss, "on_loss")
        self._on_loss = on_loss
        self._cancel_on_loss = cancel_on_loss
        self._blocks: Blocks[QueueGuard] = Blocks()

    def acquire(self, timeout: Timeout = None) -> Pending[QueueGuard]:
        """Acquire it: to be awaited, or entered with `async with`.

        Waits for `timeout` seconds, by default the semaphore's own timeout; 0 does not wait for a
        free position. Raises `LockDenied`, which names a holder.
        """
        wait_s = self._timeout_s if timeout is None else check_wait(timeout)
        value = Claim(self._context.who).encode()
        return Pending(
            lambda: acquire_in_queue(self._context, self._queue, value, self._guard, wait_s),
            f"acquire() of semaphore {self.name!r}",
        )

    def _guard(self, position: QueuePosition) -> QueueGuard:
        return QueueGuard(position, on_loss=self._on_loss, cancel_on_loss=self._cancel_on_loss)

    async def __aenter__(self) -> QueueGuard:
        frame = sys._getframe(1)  # noqa: SLF001  no public alternative
        guard = await self.acquire()
        guard.enter()
        self._blocks.enter(asyncio.current_task(), guard, frame)
        return guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        frame = sys._getframe(1)  # noqa: SLF001
        self._blocks.leave(asyncio.current_task(), frame).leave(exc_type)
