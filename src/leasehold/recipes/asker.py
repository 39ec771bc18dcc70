"""Those who wait for a lock, in this client."""

import asyncio
from collections import deque

from leasehold.errors import LockDenied
from leasehold.recipes.guard import Guard
from leasehold.recipes.options import LockOptions
from leasehold.stored_errors import fresh


class Asker:
    """Waits for a guard; or, to count, for how often the lock was acquired."""

    __slots__ = ("_name", "answers_before", "counts", "future", "options", "tries")

    def __init__(
        self, name: str, options: LockOptions, *, tries: bool, counts: bool = False
    ) -> None:
        self._name = name
        self.options = options
        self.tries = tries
        """Whether it waits for an answer only, and not for its turn."""
        self.counts = counts
        self.answers_before = 0
        """How many answers of the server there were before it came."""
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


class Askers:
    """All who wait for a lock, in the order in which they came."""

    def __init__(self) -> None:
        self._queue: deque[Asker] = deque()
        self.stir = asyncio.Event()
        """Set when whoever waits for their sake has something to look at."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Asker:
        """Who is next."""
        return self._queue[0]

    def only_ask(self) -> bool:
        """Whether who is next wants an answer only."""
        return bool(self._queue) and self._queue[0].tries

    def add(self, asker: Asker) -> None:
        """Let somebody wait, after those who do already."""
        self._queue.append(asker)

    def next(self) -> Asker:
        """Take who is next."""
        return self._queue.popleft()

    def remove(self, asker: Asker) -> bool:
        """Let somebody go; False if it is not there any more."""
        try:
            self._queue.remove(asker)
        except ValueError:
            return False
        self.stir.set()
        return True

    def fail(self, error: BaseException) -> bool:
        """Tell all that they wait for nothing; False if there was nobody."""
        queue, self._queue = self._queue, deque()
        for asker in queue:
            asker.fail(fresh(error))
        return bool(queue)
