"""The local callers that wait for a lock, and the client that stands in the queue for them."""

import asyncio
from collections import deque

from leasehold.errors import LockDenied, SessionExpired, fresh
from leasehold.locks.guards import LockOptions
from leasehold.locks.lock_events import LockEventKind as Kind
from leasehold.locks.lock_events import LockLog
from leasehold.locks.lock_keys import Claim
from leasehold.locks.lock_queue import LockEntry, QueueSnapshot
from leasehold.locks.ownership import Guard


class LocalWaiter:
    """A caller that waits for a guard."""

    __slots__ = ("_name", "answers_before", "future", "options", "tries")

    def __init__(self, name: str, options: LockOptions, *, tries: bool) -> None:
        self._name = name
        self.options = options
        self.tries = tries
        """Whether it waits for an answer only, not for its turn."""
        self.answers_before = 0
        """The number of answers of the server before it was added."""
        self.future: asyncio.Future[Guard] = asyncio.get_running_loop().create_future()

    def deny(self, holder: str, *, is_own: bool = False) -> None:
        """Report that the lock is held: by another client, or by another guard of this one."""
        self.fail(LockDenied(self._name, holder, is_own=is_own))

    def fail(self, error: BaseException) -> None:
        """Complete it with an error, unless it has left."""
        if not self.future.done():
            self.future.set_exception(error)


class LocalWaiters(deque[LocalWaiter]):
    """The callers that wait for a lock, in order of arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.stir = asyncio.Event()
        """Set when the task that works for them has to check for changes."""

    def only_ask(self) -> bool:
        """Whether the next caller has `timeout=0`."""
        return bool(self) and self[0].tries

    def fail(self, error: BaseException) -> bool:
        """Complete all with an error; return False if there were none."""
        waiters = [self.popleft() for _ in range(len(self))]
        for waiter in waiters:
            waiter.fail(fresh(error))
        return bool(waiters)


class LockContender:
    """Waits for the client's turn, and denies callers with `timeout=0` when there is an answer."""

    def __init__(self, waiters: LocalWaiters, log: LockLog, name: str, who: str) -> None:
        self._waiters = waiters
        self._log = log
        self._name = name
        self._who = who
        self._ahead = ""
        self.last_holder = ""
        """The last holder that we have waited for."""
        self.answers = 0
        """How often the server has returned the queue."""

    @property
    def is_behind(self) -> bool:
        """Whether it waits for a known holder."""
        return bool(self._ahead)

    @property
    def holder(self) -> str:
        """The holder of the lock, or the client that is about to hold it."""
        return self._ahead or self._who

    async def contend(self, entry: LockEntry) -> QueueSnapshot | None:
        """Wait for our turn; None if no caller is left, and our key is deleted."""
        if not self._waiters:
            return await entry.withdraw()
        try:
            seen = await entry.enter(Claim(self._who, tries=self._waiters.only_ask()))
            self._saw(seen)
            self._report(Kind.ASKED)
            while seen.own is not None and seen.ahead is not None:
                if not self._waiters:
                    return await entry.withdraw()
                refusal = await self._wait(entry, seen)
                if refusal is not None:
                    kept = await self._deny(entry, refusal)
                    if kept is not None or entry.is_withdrawn:
                        return kept  # callers that have come in the meantime start over
                seen = await entry.look()
                self.answers += 1
                if seen.ahead is None and seen.own is not None:
                    self._report(Kind.RECALL_ACCEPTED)
        finally:
            self._ahead = ""
        if seen.own is None:
            raise SessionExpired(entry.session.lease.id, "its key in the queue was deleted")
        return seen

    def _saw(self, seen: QueueSnapshot) -> None:
        """Record the key ahead."""
        self.answers += 1
        self._ahead = seen.holder if seen.ahead is not None else ""
        self.last_holder = self._ahead or self.last_holder

    def _report(self, kind: Kind) -> None:
        self._log.record("client", kind, self._name, self._ahead)

    async def _wait(self, entry: LockEntry, seen: QueueSnapshot) -> Kind | None:
        """Wait for the key ahead; return its answer to `timeout=0` unless that is the lock."""
        assert seen.ahead is not None
        waiters = self._waiters
        self._saw(seen)
        only_asks = waiters.only_ask()

        def has_changed() -> bool:
            return not waiters or waiters.only_ask() != only_asks  # the next one waits differently

        if not only_asks:
            await entry.wait(seen, None, waiters.stir, has_changed)
            return None
        if seen.owner is None or seen.ahead.key != seen.owner.key:
            return Kind.RECALL_REFUSED
        recall_s = waiters[0].options.recall_s
        is_in_time = await entry.wait(seen, recall_s, waiters.stir, has_changed)
        if not waiters.only_ask():
            return None
        if entry.is_refused:
            return Kind.RECALL_REFUSED
        return None if is_in_time else Kind.RECALL_UNANSWERED

    async def _deny(self, entry: LockEntry, refusal: Kind) -> QueueSnapshot | None:
        """Deny callers with `timeout=0`; our key is deleted first, unless other callers need it.

        If we own the lock by then, they are not denied, and the queue as it was read is returned.
        """
        self._report(refusal)
        waiter = self._waiters[0]
        kept = await entry.withdraw() if len(self._waiters) == 1 else None
        if kept is not None or not self._waiters or self._waiters[0] is not waiter:
            return kept
        self._waiters.popleft()
        self._report(Kind.DENIED)
        waiter.deny(self._ahead)
        return None
