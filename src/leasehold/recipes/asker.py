"""Somebody who waits for a lock, in this client."""

import asyncio

from leasehold.errors import LockDenied
from leasehold.recipes.guard import Guard
from leasehold.recipes.options import LockOptions


class Asker:
    """Waits for a guard; or, to count, for how often the lock was acquired."""

    __slots__ = ("_name", "counts", "future", "options", "tries")

    def __init__(
        self, name: str, options: LockOptions, *, tries: bool, counts: bool = False
    ) -> None:
        self._name = name
        self.options = options
        self.tries = tries
        """Whether it waits for an answer only, and not for its turn."""
        self.counts = counts
        self.future: asyncio.Future[Guard | int] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        """Whether it is still there."""
        return not self.future.done()

    def grant(self, guard: Guard) -> None:
        """Give it what it waits for."""
        self.future.set_result(guard)

    def count(self, total: int) -> None:
        """Tell it how often the lock was acquired."""
        if self.is_waiting:
            self.future.set_result(total)

    def deny(self, holder: str) -> None:
        """Tell it that somebody else has the lock."""
        self.fail(LockDenied(self._name, holder))

    def fail(self, error: BaseException) -> None:
        """Tell it that it waits for nothing."""
        if self.is_waiting:
            self.future.set_exception(error)
