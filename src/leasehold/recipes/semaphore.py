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
from leasehold.recipes.counted import CountedLine, check_count
from leasehold.recipes.line import Place
from leasehold.recipes.line_guard import LineGuard, OnLoss
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import Claim, name_of, text_of
from leasehold.recipes.options import check_wait
from leasehold.recipes.stay import stay

MAX_LIMIT: Final = 1_000_000
"""The highest limit of a semaphore."""

DEFAULT: Final = object()


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
        self._entered: dict[asyncio.Task[object] | None, list[LineGuard]] = {}

    def acquire(self, timeout: Timeout | object = DEFAULT) -> Pending[LineGuard]:
        """Be one of those that are let in: to be awaited, or entered with `async with`.

        `timeout` is how long to wait for others, as the semaphore was made with unless told
        otherwise: None for as long as it takes, 0 only asks; `LockDenied` then.
        """
        wait_s = self._timeout_s if timeout is DEFAULT else check_wait(timeout)  # type: ignore[arg-type]
        value = Claim(self._lines.who).encode()
        return Pending(lambda: stay(self._lines, self._line, value, self._guard, wait_s))

    def _guard(self, place: Place) -> LineGuard:
        return LineGuard(place, on_loss=self._on_loss, cancel_on_loss=self._cancel_on_loss)

    async def __aenter__(self) -> LineGuard:
        guard = await self.acquire()
        await guard.__aenter__()
        self._entered.setdefault(asyncio.current_task(), []).append(guard)
        return guard

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task = asyncio.current_task()
        if task not in self._entered:  # it was entered by another one
            task = next(reversed(self._entered))
        guards = self._entered[task]
        guard = guards.pop()
        if not guards:
            del self._entered[task]
        await guard.__aexit__(exc_type, exc, traceback)
