"""The state that recipes of a client share: engine, session, tasks that outlive their callers.

A caller may be cancelled, or time out, at any point. So the calls to the engine for a recipe are
made in a `DetachedTask`, which is kept here: the caller waits for its outcome and nothing else. If
the caller is gone the task is notified that it is not wanted any more, and runs until it has
cleaned up.
"""

import asyncio
import itertools
import logging
import os
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from leasehold.basics.durations import check_seconds
from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import CallTimeouts
from leasehold.errors import Closed
from leasehold.locks.lock_events import LockLog
from leasehold.locks.lock_keys import MAX_WHO
from leasehold.locks.watch_subscriptions import WatchSubscriptions
from leasehold.sessions.client_session import SESSION_TTL_MIN_S, Sessions
from leasehold.sessions.lease_keeper import END_S

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEAVE_S: Final = END_S
"""How long the close of a client waits for tasks that clean up."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def this_process() -> str:
    """Return the name of this process, as shown to clients that wait for our lock."""
    return f"{socket.gethostname()}:{os.getpid()}"


def check_who(who: str) -> str:
    """Check the name of a client."""
    if not isinstance(who, str):
        raise TypeError(f"name must be a str, not {who!r}")
    if not 0 < len(who) <= MAX_WHO:
        raise ValueError(f"name must have 1 to {MAX_WHO} characters, got {len(who)}")
    if _CONTROL.search(who):
        raise ValueError(f"name must be text without line ends and control characters, not {who!r}")
    try:
        who.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"name must be text that can be encoded as UTF-8, not {who!r}: {error}"
        ) from None
    return who


class _KeyTurn:
    """The lock for a key of this client, and how many callers hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class RecipeContext:
    """The common state of all recipes of one client."""

    def __init__(self, engine: Engine, sessions: Sessions, patience: CallTimeouts) -> None:
        self.engine = engine
        self.sessions = sessions
        self.keeper = sessions.keeper
        self.random = sessions.keeper.random
        self.patience = patience
        self.owner = patience.owner
        self.who = sessions.who
        self.log = LockLog(sessions.keeper.clock)
        self.is_forked = False
        """Whether this is a child of the process that owns everything here."""
        self.subscriptions = WatchSubscriptions(engine)
        """The watches on queues."""
        self.numbers = itertools.count(1)
        """Numbers for keys: no other key of this client has had the next one."""
        self._tasks: dict[asyncio.Task[None], Callable[[], object]] = {}
        """The running tasks, each with the function that asks it to end."""
        self._turns: dict[bytes, _KeyTurn] = {}

    def check_call(self) -> None:
        """Raise if the client is closed, in a child process, and in another event loop."""
        self.keeper.check()
        self.owner.check()

    def check_process(self) -> None:
        """Raise in a child process."""
        if self.is_forked:
            self.engine.check()

    def start(
        self, work: Coroutine[Any, Any, None], end: Callable[[], object]
    ) -> asyncio.Task[None]:
        """Run a task independently of its caller; `end` notifies it that it is not wanted."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = end
        task.add_done_callback(self._tasks.pop)
        return task

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Use a key of this name exclusively within this client; first come, first served."""
        turn = self._turns.setdefault(key, _KeyTurn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def end_tasks(self) -> None:
        """End all tasks, as far as possible in a short time: the session's end does the rest."""
        for end in list(self._tasks.values()):
            end()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=LEAVE_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def close(self) -> None:
        """Cancel the watches on queues."""
        await self.subscriptions.close()


class DetachedTask(ABC, Generic[T]):
    """A task that runs for a caller, and ends in order if the caller is gone."""

    def __init__(self, context: RecipeContext) -> None:
        self._context = context
        self.outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.is_wanted = True
        self._task = context.start(self._guarded(), self._end)

    @abstractmethod
    async def _run(self) -> None:
        """Do the work: call `_succeed`, or raise; clean up in any case."""

    @abstractmethod
    def _give_up(self) -> None:
        """Called when the outcome is not wanted any more."""

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the outcome; return False if there is none within this time."""
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
        """Give up the task: its outcome is not wanted any more."""
        self.is_wanted = False
        self._give_up()
        if not self.outcome.cancel() and not self.outcome.cancelled():
            self.outcome.exception()  # mark it as retrieved

    def _end(self) -> None:
        """End with the client."""
        self._fail(Closed("the client was closed"))
        self.is_wanted = False
        self._give_up()

    def _succeed(self, outcome: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def _fail(self, error: BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # the caller may be gone before it retrieves it

    async def _guarded(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            self._fail(Closed("the client was closed"))
        except Exception as error:
            if self.outcome.done():
                logger.exception("the cleanup of an acquisition has failed")
            self._fail(error)


def check_client(session_ttl: float | timedelta, name: str | None) -> tuple[float, str]:
    """Check the TTL of a session, and the name of a client."""
    who = this_process() if name is None else check_who(name)
    ttl_s = check_seconds(session_ttl, "session_ttl")
    if ttl_s < SESSION_TTL_MIN_S:
        raise ValueError(
            f"session_ttl must be at least {SESSION_TTL_MIN_S:g} s, not {ttl_s:g}: it has to be "
            "renewed three times in that time"
        )
    return ttl_s, who
