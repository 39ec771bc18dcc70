"""All locks of a client, by name."""

import asyncio

from leasehold.basics.fork_hooks import call_in_child, stop_calling_in_child
from leasehold.errors import Closed, UnknownLease
from leasehold.locks.client_lock import ClientLock
from leasehold.locks.lock_events import LockEventKind
from leasehold.locks.lock_options import RECALL_S, LockOptions
from leasehold.locks.recipe_context import RecipeContext


class LockRegistry:
    """The locks of a client that have any state: held, cached or wanted."""

    def __init__(self, context: RecipeContext) -> None:
        self.context = context
        self.log = context.log
        self.owner = context.owner
        self.patience = context.patience
        sessions = context.sessions
        self.defaults = LockOptions(
            cache=True, recall=True, idle_s=sessions.ttl_s, recall_s=RECALL_S
        )
        self.locks: dict[bytes, ClientLock] = {}
        """May be read in any thread."""
        sessions.on_renewed = self._renewed
        sessions.on_jeopardy = self._in_jeopardy
        sessions.on_lost = self._lost
        call_in_child(self, LockRegistry.abandon)

    def get(self, name: bytes) -> ClientLock:
        """Return the only object for a lock, to be used before the loop runs again."""
        lock = self.locks.get(name)
        if lock is not None:
            lock.expire_by_clock()
            lock = self.locks.get(name)  # it may have been dropped with its lock
        if lock is None:
            lock = ClientLock(self.context, name, self.defaults, self._forget_if_unused)
            self.locks[name] = lock
        return lock

    def _forget_if_unused(self, lock: ClientLock) -> None:
        if lock.is_unused() and self.locks.get(lock.name) is lock:
            del self.locks[lock.name]

    async def close(self) -> None:
        """Close all locks."""
        stop_calling_in_child(self)
        self.context.sessions.close()
        error = Closed("the client was closed")
        storing = [lock.close(error) for lock in list(self.locks.values())]
        await asyncio.gather(*(each for each in storing if each is not None))
        await self.context.close()

    def abandon(self) -> None:
        """Make all locks unusable in a child process: the cached ones are the parent's."""
        self.context.is_forked = True
        for lock in self.locks.values():
            if lock.ownership is not None:
                lock.ownership.end("it is held by the parent of this process")

    # Events of the session, for the log: one for each lock that it holds.

    def _renewed(self) -> None:
        self._record(LockEventKind.AUTO_RENEWED)

    def _in_jeopardy(self, _error: BaseException | None) -> None:
        self._record(LockEventKind.DISCONNECTED)

    def _lost(self, error: BaseException | None) -> None:
        if not isinstance(error, UnknownLease):
            self._record(LockEventKind.RENEWAL_TIMED_OUT)

    def _record(self, kind: LockEventKind) -> None:
        if self.log.update():
            for lock in list(self.locks.values()):
                if lock.ownership is not None:
                    self.log.record("client", kind, lock.text)
