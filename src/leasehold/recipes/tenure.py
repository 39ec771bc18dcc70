"""`Tenure`: a lock that a client has, from when its key was the oldest until it is gone.

Theory of operation. A client that has a lock keeps it: in use by one guard, or *idle*, in its
cache. There is one claim to the lock, a `LockClaim`. While the lock is idle the claim is in a list,
the slot. A caller acquires the lock by popping the claim, and releases it by appending the claim
again. Both operations are atomic in Python, so an idle lock is acquired in the caller's own thread,
without a message. The client's loop pops the claim as well, to give it to a local waiter or to give
up the key. It sets `wanted` first: from then on the cache answers no one, and a release has the
loop look at the slot.

A signal handler may raise an exception between any two of these steps, in the caller's thread. The
claim is then neither idle nor with a guard. Its finalizer posts that to the loop, which has the
claim in hand from then on. The same finalizer finds guards that were forgotten.

Whether the lock can be relied on depends on the end of the session and the clock. The clock is read
when the claim is taken and in each check. A claim that was taken too late is dropped. The caller
that finds the end of the session passed reports it, which ends the session for good, even if a late
answer renews it at this moment.
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


class LockClaim:
    """The right to use the lock of a tenure: idle, with a guard, or on its way between the two."""

    __slots__ = ("depths", "tenure")

    def __init__(self, tenure: "Tenure") -> None:
        self.depths: list[int] = []
        """One entry for each guard that has it: 0 for the first, 1 for each nested one."""
        self.tenure: Tenure | None = tenure
        """None once the loop has it in hand: this object does not stand for the lock any more."""

    def __del__(self) -> None:
        # Not run in a release: the claim goes back to the slot.
        tenure = getattr(self, "tenure", None)  # it may have been interrupted while it was made
        if tenure is not None and not tenure.is_over:
            tenure.dropped(is_forgotten=tenure.is_noted and bool(self.depths))


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
        "is_noted",
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
        self._slot: list[LockClaim] = []
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
        self.is_noted = False
        """Whether its guard was returned by `acquire`: the work under it may outlast the guard."""
        self.is_over = False
        self.why_lost = ""
        self.lost = Signal()

    # In any thread.

    def take(self, options: LockOptions) -> Guard | None:
        """Take it out of the cache; None if it is not there, or must not be used."""
        if self.wanted:
            return None
        try:
            claim = self._slot.pop()
        except IndexError:
            return None
        try:
            if self._now() >= self.holding.end:
                self.session.found_over()
                return None
            guard = self._guard(claim, options)
        except BaseException:  # of a signal handler: the traceback refers to the claim
            self.cell.post(self._recover, claim)
            raise
        return None if self.is_over else guard  # a loss at this moment is told to no guard

    def _guard(self, claim: LockClaim, options: LockOptions) -> Guard:
        self.options = options
        self.is_noted = False
        self.count = count = self.count + 1
        token = _new_token((self.revision, count))
        claim.depths.append(0)
        guard = Guard(self, claim, token, options)
        if options.on_loss is not None or options.cancel_on_loss:
            self.guard = ref(guard)
        if self.nested:
            self.nested = []
        return guard

    def put_back(self, claim: LockClaim, options: LockOptions) -> bool:
        """Have it back from its guard; False if the loop has to look at it.

        Raises `LockLost` if it was lost in the meantime.
        """
        try:
            now = self.check()
            self.guard = None
            self.released_at = now
            if not options.cache or (self.has_waiters and options.recall):
                self.wanted = True  # until the loop has looked
            self._slot.append(claim)
        except BaseException:  # the traceback must not keep a claim that is not back in the slot
            del claim
            raise
        return not self.wanted

    def check(self) -> float:
        """Raise `LockLost` unless it can be relied on now; give what the clock says."""
        now = self._now()
        if now >= self.holding.end or self.is_over:
            self.cell.check_process()
            if now >= self.holding.end:
                self.session.found_over()
            raise self.as_lost()
        return now

    def dropped(self, *, is_forgotten: bool) -> None:
        """Have the claim back that has no owner; from its finalizer."""
        self.cell.dropped(self, is_forgotten=is_forgotten)

    def _recover(self, claim: LockClaim) -> None:
        """Have a claim in hand that was taken and has not reached its guard; on the loop."""
        if claim.tenure is not None:
            claim.tenure = None
            self.cell.returned(self)

    def nested_dropped(
        self, claims: list[LockClaim], options: LockOptions, *, is_forgotten: bool
    ) -> None:
        """Have a nested guard released that was garbage-collected; from its finalizer."""

        def release() -> None:
            if claims:
                claim = claims.pop()
                if claim.depths and claim.depths.pop() == 0:
                    with suppress(LockLost):
                        if not self.put_back(claim, options):
                            self.cell.look_at_claim(self)

        if is_forgotten:
            self.cell.forgotten(self, lambda: bool(claims) and self.is_live, release)
        else:
            self.cell.post(release)

    def seize(self) -> bool:
        """Have the claim in hand, if it is idle; False if it is in use."""
        try:
            self._slot.pop().tenure = None
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

    def give(self, options: LockOptions) -> Guard:
        """Make the guard of a caller that has waited for it."""
        return self._guard(LockClaim(self), options)

    def let(self) -> None:
        """Let it be idle."""
        self._slot.append(LockClaim(self))

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
