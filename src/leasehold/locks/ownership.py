"""`Ownership` of a lock by a client, and the `Guard`s under it: the cache of a lock.

Theory of operation. A client owns a lock from when its key is the oldest until the key is gone. It
keeps the lock in use by one guard, or *idle*, in its cache. There is one right to the lock, an
entry in a list. It is idle, in the slot of the `Ownership`, or in use, in the list `shares` of one
acquisition. There it is followed by an entry for each guard of `again`. A guard that is released
moves the last entry of `shares` to the slot; the last guard moves the right itself. Any other entry
in the slot has no meaning.

A signal handler may raise an exception between any two instructions of a program, so entries move
from list to list in one call of C code (`slot.extend(map(pop, ...))`): at any time the right is in
exactly one list. So an idle lock is acquired in the caller's own thread, without a request and
without waiting. The client's loop takes the right in the same way, to pass it to a local waiter or
to delete the key, and sets `wanted` first: while that is set, nothing is acquired from the cache,
and after a release the loop checks the slot. A right that goes back to the slot at that very moment
is found there, by the loop or by the caller that has put it back: both check again.

The `Ownership` has a weak reference to each guard from before it is given a share until after it is
released. So if a guard is garbage-collected, at any point and in any cycle, the event loop moves
its share. That happens once: a guard refers to `shares` in a list, `claims`, from which only one
caller can take it.

The session's end and the clock decide whether the lock is held. Both are read when the right is
taken, and in each check. A right that was taken too late is dropped, and so is never used again;
the caller that finds the end of the session in the past reports that, which ends the session for
good, even if a late answer renews it at this very moment.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import iconcat
from typing import Final
from weakref import ref

from leasehold.basics.event_loop import call_on, post
from leasehold.basics.forgotten import post_forgotten
from leasehold.errors import Forked, LeaseholdError, LockLost, NotHeld
from leasehold.fencing.token import Token
from leasehold.locks.guards import AnyGuard, LockOptions, OnLoss
from leasehold.locks.lock_events import LockEventKind
from leasehold.locks.recipe_context import RecipeContext
from leasehold.sessions.kept_lease import CancelScope, Signal
from leasehold.sessions.session import Session

RIGHT: Final = 0
"""The right to the lock: the first entry of `shares`."""

NESTED: Final = 1
"""The share of a guard that `again` has returned."""

pop: Final = list.pop

_new_token = partial(tuple.__new__, Token)
"""Takes half the time of `Token()`; one is made for each guard."""


class Ownership:
    """One ownership of a lock, by one client."""

    __slots__ = (
        "__weakref__",
        "_now",
        "_slot",
        "carried",
        "context",
        "count",
        "guards",
        "has_waiters",
        "holding",
        "is_counted",
        "is_over",
        "key",
        "log",
        "lost",
        "name",
        "on_released",
        "options",
        "released_at",
        "revision",
        "session",
        "wanted",
        "why_lost",
    )

    def __init__(
        self,
        context: RecipeContext,
        name: str,
        session: Session,
        key: bytes,
        revision: int,
        carried: int,
        options: LockOptions,
        on_released: "Callable[[Ownership], object]",
    ) -> None:
        """`on_released` is called on the loop when a guard was released that it has to handle."""
        self.context = context
        self.on_released = on_released
        self.session = session
        self.key = key
        self.revision = revision
        """The create revision of its key: the first part of all its tokens."""
        self.carried = carried
        """How often it was acquired by its previous holders; less for guards of ours that did not
        reach their callers."""
        self.options = options
        """The options of the last holder."""
        self.is_counted = options.count
        """Whether one of its holders has used `count=True`."""
        self.log = context.log
        self.name = name
        self.count = 0
        """The number of guards so far: the second part of tokens."""
        self.holding = session.lease.holding
        self._now = now = context.keeper.clock.boottime
        self._slot: list[int] = []
        """Contains the right while it is idle."""
        self.wanted = False
        """Whether there are waiters, in this client or another one."""
        self.has_waiters = False
        """Whether other clients are in the queue behind us."""
        self.released_at = now()
        self.guards: set[GuardRef] = set()
        """The guards that have it in use, or are about to. Weak references: a guard that its
        program has forgotten must be found by the garbage collector."""
        self.is_over = False
        self.why_lost = ""
        self.lost = Signal()

    # In any thread.

    def take(self, options: LockOptions) -> "Guard | None":
        """Take the right from the cache; None if it is not there, or must not be used."""
        if self.wanted or not self._slot:
            return None
        shares: list[int] = []
        claims = [shares]
        guard = Guard(self, claims, options)
        try:
            shares.extend(map(pop, (self._slot,)))
        except IndexError:  # another thread has taken it
            shares.append(NESTED)
        if shares[0] != RIGHT:
            claims.clear()
            self.guards.discard(guard.reference)
            return None
        if self._now() >= self.holding.end:
            self.session.found_over()
            return None
        self.options = options
        if options.count:
            self.is_counted = True
        self.count = count = self.count + 1
        guard.token = _new_token((self.revision, count))
        return None if self.is_over else guard  # a loss at this moment is reported to no guard

    def give(self, options: LockOptions) -> "Guard":
        """Make a guard that has the right; on the loop, which has taken it."""
        guard = Guard(self, [[RIGHT]], options)
        self.options = options
        if options.count:
            self.is_counted = True
        self.count += 1
        guard.token = Token(self.revision, self.count)
        return guard

    def put_back(self, claims: list[list[int]], options: LockOptions) -> bool:
        """Take back the share of a guard; False if the loop has to handle the lock.

        Raises `IndexError` if that was done before, and `LockLost` if it was lost in the meantime.
        """
        shares = claims[0]
        try:
            now = self.check()
        except LockLost:
            claims.pop()
            raise
        # Until the next step another thread may release it, too, so nothing here is final.
        self.released_at = now
        is_kept = options.cache and not (self.has_waiters and options.recall)
        if not is_kept:
            self.wanted = True
        self._slot.extend(map(pop, map(pop, (claims,))))
        if shares:  # other guards still hold it
            with suppress(ValueError):  # a caller of `take` has found that this was not the right
                self._slot.remove(NESTED)
            return True
        return is_kept and not self.wanted

    def check(self) -> float:
        """Raise `LockLost` unless it is held now; return the time."""
        now = self._now()
        if now >= self.holding.end or self.is_over:
            self.context.check_process()
            if now >= self.holding.end:
                self.session.found_over()
            raise self.as_lost()
        return now

    def seize(self) -> bool:
        """Take the right for good, or until `let`; False if it is in use."""
        while self._slot:
            with suppress(IndexError):
                if self._slot.pop() == RIGHT:
                    return True
        return False

    @property
    def is_live(self) -> bool:
        """Whether it is held now, by the clock."""
        return not self.is_over and self._now() < self.holding.end

    @property
    def remaining_s(self) -> float:
        """How long it is still held."""
        return 0.0 if self.is_over else max(0.0, self.holding.end - self._now())

    def as_lost(self) -> LockLost:
        """Return the error for a caller that relies on it after its end."""
        why = self.why_lost or f"{self.session.as_expired()}"
        return LockLost(self.name, self.session.lease.id, why)

    # On the loop, which has the right.

    def let(self) -> None:
        """Put the right back into the slot, idle."""
        self._slot.append(RIGHT)

    def idle_at(self) -> float:
        """Return the earliest time at which it may have been idle for long enough."""
        since = self.released_at if self._slot else self._now()
        return since + self.options.idle_s

    @property
    def total(self) -> int:
        """How often it was acquired, by us and by the previous holders."""
        return self.carried + self.count

    def lose(self, why: str, error: BaseException | None = None) -> None:
        """Mark it as lost."""
        if self.is_over:
            return
        self.end(why)
        self.lost.set()
        for reference in list(self.guards):
            guard = reference()
            if guard is not None:
                guard.was_lost(error)

    def end(self, why: str) -> None:
        """Mark it as over, lost or given up."""
        self.why_lost = why
        self.is_over = True
        self.wanted = True
        self._slot.clear()


class Guard(AnyGuard):
    """A lock that is held until `release`."""

    __slots__ = ("__weakref__", "_claims", "_ownership", "options", "reference")

    def __init__(self, ownership: Ownership, claims: list[list[int]], options: LockOptions) -> None:
        """Make a guard without a token; `claims` contains the list `shares`, or will."""
        # Everything is set here and not by `super`, as in `enter` and `leave`: cached locks are
        # acquired often.
        self._cancel_scope = None
        self.twin = None
        self._ownership = ownership
        self._claims = claims
        self.options = options
        self.reference = reference = GuardRef(self, _collected)
        reference.is_handed_over = False
        reference.guard_state = (ownership, claims, options)
        ownership.guards.add(reference)

    def hand_over(self) -> "Guard":
        """Record that the application gets it: if it is collected from now on, it was forgotten."""
        self.reference.is_handed_over = True
        return self

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._ownership.name

    @property
    def key(self) -> bytes:
        """Its key at the server, which exists while the lock is held."""
        return self._ownership.key

    @property
    def lost(self) -> Signal:
        """Set once the lock is lost. It only notifies; `check` decides."""
        return self._ownership.lost

    @property
    def jeopardy(self) -> Signal:
        """Set while there is no contact to the server, and the lock may yet be lost."""
        return self._ownership.session.lease.jeopardy

    @property
    def is_released(self) -> bool:
        """Whether it was released."""
        return not self._claims

    @property
    def is_held(self) -> bool:
        """Whether the lock is held now, by the clock."""
        return bool(self._claims) and self._ownership.is_live

    @property
    def remaining(self) -> float:
        """How long it is still held unless it is renewed, in seconds; 0.0 once it is not held."""
        return self._ownership.remaining_s if self._claims else 0.0

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held now: by the clock, whatever was reported.

        Its cause is `Closed`, `Forked` or `HistoryLost` if the client was closed, belongs to the
        parent process, or has found another keyspace. After a release it raises `NotHeld`.
        """
        if not self._claims:
            raise self._not_held()
        try:
            self._ownership.context.keeper.check()
        except LeaseholdError as error:
            raise LockLost(self.name, self._ownership.session.lease.id, str(error)) from error
        self._ownership.check()

    def put_by(self) -> None:
        """Have the loop handle the lock: `put_back` has returned False."""
        ownership = self._ownership
        call_on(ownership.context.owner.loop, ownership.on_released, ownership)

    def put_back(self) -> bool:
        """Release it in any thread; False if the loop has to handle the lock afterwards."""
        ownership = self._ownership
        if not self._claims:
            ownership.context.keeper.check()
            raise self._not_held()
        if ownership.log.is_on:
            ownership.log.record(
                "application", LockEventKind.RELEASED, ownership.name, token=self.token
            )
        try:
            is_done = ownership.put_back(self._claims, self.options)
        except IndexError:  # another thread has released it
            raise self._not_held() from None
        ownership.guards.discard(self.reference)  # so that no callback runs when it is collected
        return is_done

    def settle(self) -> None:
        """Release it, or complete a release that was interrupted; on the loop."""
        settle(self.reference)

    def take_back(self) -> None:
        """Release it, on the loop, for a caller that is gone: it was not acquired."""
        if self._claims and len(self._claims[0]) == 1:  # nested guards are not counted
            self._ownership.carried -= 1
        settle(self.reference)

    def as_lost(self) -> LockLost:
        """Return the error for a caller that relies on it after its end."""
        return self._ownership.as_lost()

    def again(self) -> "Guard":
        """Acquire the lock once more; it is free when both guards are released.

        The token is the same: to a resource they are one holder.
        """
        return self.nest().hand_over()

    def nest(self) -> "Guard":
        """Acquire as `again` does, for a caller that calls `hand_over` itself."""
        self.check()
        try:
            shares = self._claims[0]
        except IndexError:
            raise self._not_held() from None
        claims: list[list[int]] = []
        nested = Guard(self._ownership, claims, self.options)
        nested.token = self.token
        claims.extend(map(iconcat, (shares,), ((NESTED,),)))  # its share and its position, together
        if shares[0] != RIGHT:  # another thread has released the last share before
            claims.clear()
            raise self._not_held()
        return nested

    def _not_held(self) -> NotHeld:
        ownership = self._ownership
        if ownership.log.is_on:
            ownership.log.record("application", LockEventKind.RELEASE_NOT_HELD, ownership.name)
        return NotHeld(f"this guard of {ownership.name!r} was released before")

    def enter(self) -> None:
        """Enter its block, in the running task."""
        if self.options.cancel_on_loss:
            self._cancel_scope = CancelScope()
            self._cancel_scope.enter()

    def leave(self, exc_type: type[BaseException] | None) -> None:
        """Exit its block; raises `LockLost` if it was lost, unless the block has raised."""
        if self._cancel_scope is not None:
            super().leave(exc_type)
            return
        if not self._claims:
            return  # released in the block
        try:
            if not self.put_back():
                self.put_by()
        except Forked:
            return  # the parent process still holds it
        except LockLost:
            if exc_type is None:
                raise

    # The options of the lock.

    @property
    def _on_loss(self) -> OnLoss | None:
        return self.options.on_loss

    @property
    def _cancel_on_loss(self) -> bool:
        return self.options.cancel_on_loss


class GuardRef(ref[Guard]):
    """A weak reference to a guard, with the shares of the guard.

    It has a callback, in place of a finalizer of the guard, which does not run for a guard that was
    released: in a finalizer, Python would print an exception of a signal handler and not raise it.
    """

    __slots__ = ("guard_state", "is_handed_over")

    guard_state: "tuple[Ownership, list[list[int]], LockOptions]"
    is_handed_over: bool
    """Whether the application has received the guard, so that its work may still be running."""


def _collected(reference: GuardRef) -> None:
    """Have a collected guard released; may run in any thread, between any two instructions."""
    state = getattr(reference, "guard_state", None)  # `__init__` may have been interrupted
    if state is None or state[0].is_over or not state[1]:
        return
    ownership, claims, _ = state
    context = ownership.context
    if reference.is_handed_over:
        post_forgotten(
            context.owner.loop,
            ownership.name,
            context.sessions.ttl_s,
            lambda: bool(claims) and ownership.is_live,
            lambda: settle(reference),
        )
    else:
        post(context.owner.loop, settle, reference)


def settle(reference: GuardRef) -> None:
    """Release the shares of a guard, unless that was done, and handle the lock; on the loop."""
    ownership, claims, options = reference.guard_state
    with suppress(IndexError, LockLost):
        ownership.put_back(claims, options)
    ownership.guards.discard(reference)
    ownership.on_released(ownership)
