"""All places in line of a client: what they share, and what is seen to when the client ends.

What talks to the engine for a place runs in a task of its own, which is kept here: whoever waits
for it may be cancelled at any time, and does not interrupt it.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from leasehold.client.ending import END_S
from leasehold.recipes.feeds import Feeds
from leasehold.recipes.locks import Locks

LEAVE_S: Final = END_S
"""How long the end of a client waits for places that are being left."""


class _Turn:
    """Who of this client has a key, and how many have it or wait for that."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Lines:
    """What the places of one client have in common."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self.engine = locks.engine
        self.sessions = locks.sessions
        self.patience = locks.patience
        self.who = locks.who
        self.random = locks.sessions.keeper.random
        self._numbers = itertools.count(1)
        self._tasks: dict[asyncio.Task[None], Callable[[], object]] = {}
        """What is under way, and how it is told to come to its end."""
        self._turns: dict[bytes, _Turn] = {}

    @property
    def feeds(self) -> Feeds:
        """What happens to the lines."""
        return self._locks.feeds

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process whose places these are."""
        return self._locks.is_forked

    def check(self) -> None:
        """Refuse to work after the end, and in a child process."""
        self._locks.check()

    def check_call(self) -> None:
        """Refuse a call after the end, in a child process and in another event loop."""
        self._locks.check_call()

    def next_number(self) -> int:
        """Give a number that no other place of this client has had."""
        return next(self._numbers)

    def start(
        self, work: Coroutine[Any, Any, None], end: Callable[[], object]
    ) -> asyncio.Task[None]:
        """Do something whoever waits for it; `end` tells it that it is not wanted any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = end
        task.add_done_callback(self._tasks.pop)
        return task

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Be the only one of this client that has a key of this name; first come, first served."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def close(self) -> None:
        """Leave all places, as far as that is possible soon: the session's end does the rest."""
        for end in list(self._tasks.values()):
            end()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=LEAVE_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
