"""`Tenure`: a lock that a client has, from when its key was the oldest until it is gone.

Theory of operation. A client that has a lock keeps it: in use by one guard, or *idle*, in its
cache. There is one claim to it, an object in a list, the slot. Whoever takes it out of there has
the lock, and puts it back in the end: two operations that are atomic in Python, so a lock that is
idle is answered in the caller's own thread, without a message and without waiting for anybody. The
client's loop takes the claim like anybody else, to give it to a local waiter or to give up the key,
and says so first in `wanted`: while that is set nobody is answered from the cache, and who releases
the lock leaves the claim to the loop. A claim that goes back to the slot at that very moment is
found there, by the loop or by who has put it: both look again.

Whether the lock can be relied on is a matter of the session's end and the clock, which is read by
each who takes the claim, and in each check. A claim that was taken too late is dropped: nobody
will get it again, and whoever has found the session's end passed says so, which ends it for good,
even if a late answer renews it at this very moment.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from leasehold.client.signal import Signal
from leasehold.errors import LockLost
from leasehold.recipes.events import LockLog
from leasehold.recipes.guard import Guard
from leasehold.recipes.options import LockOptions
from leasehold.recipes.session import Session
from leasehold.recipes.token import Token

if TYPE_CHECKING:
    from leasehold.recipes.cell import Cell

_new_token = partial(tuple.__new__, Token)
"""Half as long as `Token()` takes, and one is made for each guard."""


class Tenure:
    """One ownership of a lock, by one client."""

    __slots__ = (
        "__weakref__",
        "_now",
        "_slot",
        "carried",
        "cell",
        "count",
        "guard",
        "has_waiters",
        "holding",
        "is_over",
        "key",
        "log",
        "lost",
        "name",
        "nested",
        "options",
        "released_at",
        "revision",
        "session",
        "wanted",
        "why_lost",
    )

    def __init__(
        self,
        cell: "Cell",
        session: Session,
        key: bytes,
        revision: int,
        carried: int,
        options: LockOptions,
        log: LockLog,
        now: Callable[[], float],
    ) -> None:
        self.cell = cell
        self.session = session
        self.key = key
        self.revision = revision
        """The create revision of its key: the first part of all its tokens."""
        self.carried = carried
        """How often it was acquired by those who had it before."""
        self.options = options
        """As of who had it last."""
        self.log = log
        self.name = cell.text
        self.count = 0
        """How many guards there were: the second part of tokens."""
        self.holding = session.lease.holding
        self._now = now
        self._slot: list[bool] = []
        """Where the claim is while it is idle."""
        self.wanted = False
        """Whether somebody waits for it, here or elsewhere."""
        self.has_waiters = False
        """Whether others are in line behind us."""
        self.released_at = now()
        self.guard: ref[Guard] | None = None
        """The guard that has it in use, if it is to be told of a loss. A weak reference: a guard
        that its program has forgotten must be found by the garbage collector."""
        self.nested: list[ref[Guard]] = []
        """The guards within that one."""
        self.is_over = False
        self.why_lost = ""
        self.lost = Signal()

    # In any thread.

    def take(self, options: LockOptions) -> Guard | None:
        """Take it out of the cache; None if it is not there, or must not be used."""
        if self.wanted:
            return None
        try:
            self._slot.pop()
        except IndexError:
            return None
        if self._now() >= self.holding.end:
            self.session.found_over()
            return None
        guard = self.give(options)
        return None if self.is_over else guard  # a loss at this moment is told to no guard

    def give(self, options: LockOptions) -> Guard:
        """Give it to somebody; the claim is in hand."""
        self.options = options
        self.count = count = self.count + 1
        token = _new_token((self.revision, count))
        guard = Guard(self, [0], token, options)
        if options.on_loss is not None or options.cancel_on_loss:
            self.guard = ref(guard)
        if self.nested:
            self.nested = []
        return guard

    def put_back(self, options: LockOptions) -> bool:
        """Have it back from its guard; False if the loop has to see to it.

        Raises `LockLost` if it was lost in the meantime.
        """
        now = self.check()
        self.guard = None
        self.released_at = now
        if self.wanted or not options.cache or (self.has_waiters and options.recall):
            return False
        self._slot.append(True)
        return not self._is_seized_if_wanted()

    def check(self) -> float:
        """Raise `LockLost` unless it can be relied on now; give what the clock says."""
        now = self._now()
        if now >= self.holding.end or self.is_over:
            self.cell.check_process()
            if now >= self.holding.end:
                self.session.found_over()
            raise self.as_lost()
        return now

    def forgotten(self, claims: list[list[int]], options: LockOptions) -> None:
        """Have the claims of a guard released that was garbage-collected; from its finalizer."""

        def release() -> None:
            if claims and claims.pop().pop() == 0:
                with suppress(LockLost):
                    if not self.put_back(options):
                        self.cell.returned(self)

        self.cell.forgotten(self, lambda: bool(claims) and self.is_live, release)

    def _is_seized_if_wanted(self) -> bool:
        """Look again: somebody may have come while it went back."""
        return self.wanted and self.seize()

    def seize(self) -> bool:
        """Take the claim for good, or until `let`; False if it is in use."""
        try:
            self._slot.pop()
        except IndexError:
            return False
        return True

    @property
    def is_live(self) -> bool:
        """Whether it can be relied on now: by the clock."""
        return not self.is_over and self._now() < self.holding.end

    @property
    def remaining_s(self) -> float:
        """How long it may still be relied on."""
        return 0.0 if self.is_over else max(0.0, self.holding.end - self._now())

    def as_lost(self) -> LockLost:
        """Make the error for whoever relies on it for too long."""
        why = self.why_lost or f"{self.session.as_expired()}"
        return LockLost(self.name, self.session.lease.id, why)

    # On the loop, with the claim in hand.

    def let(self) -> None:
        """Let it be idle."""
        self._slot.append(True)

    def idle_at(self) -> float:
        """When it may have been idle for long enough, at the earliest."""
        since = self.released_at if self._slot else self._now()
        return since + self.options.idle_s

    @property
    def total(self) -> int:
        """How often it was acquired, by us and by those before."""
        return self.carried + self.count

    def lose(self, why: str, error: BaseException | None = None) -> None:
        """Learn that it is lost."""
        if self.is_over:
            return
        self.end(why)
        self.lost.set()
        for reference in (self.guard, *self.nested):
            guard = None if reference is None else reference()
            if guard is not None:
                guard.was_lost(error)

    def end(self, why: str) -> None:
        """Be over, lost or given up."""
        self.why_lost = why
        self.is_over = True
        self.wanted = True
        self._slot.clear()
