"""The lease table: every live lease of one grantor, and the rules that hold for all of them.

Theory of operation. There is one table, cookie to lease, and beside it only the expiry queue, which
holds cookies. A lease that ends leaves the table first; the notification for its owner is put into
`ended`, from which the shell takes it once the table is consistent again.

A lease is alive until the *expiry step* ends it. Its rules, all in `settle`:

- never before its deadline in lease time, as decided by `LeasePolicy.is_current`;
- never while renewals may be waiting in the sockets, according to the clock (`may_end`);
- never within the grace that follows a long stall (`earliest_end`), which moves the deadline.

The step runs for all due leases in `expire`, and for one lease at each access to it, so that no
caller ever sees a lease that should be gone.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from leasehold.basics.durations import NEVER, Duration, Forever, Requested, duration_of
from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import EndReason, LeaseDenied, UnknownLease
from leasehold.leases.expiry_queue import Deadline, ExpiryQueue
from leasehold.leases.lease_clock import LeaseClock
from leasehold.leases.policies import LeasePolicy, check_granted, check_policy

RECHECK_S: Final = 0.250
"""The interval between two looks at a lease that its policy keeps beyond its deadline."""

REMEMBERED_ENDS: Final = 1024
"""How many ended leases are remembered, by cookie and reason only, to answer late calls."""

R = TypeVar("R")


class LeasedResource(Deadline, Generic[R]):
    """A live lease on the side of its grantor."""

    __slots__ = ("cookie", "resource", "term_s")

    def __init__(self, cookie: Hashable, resource: R, now: float) -> None:
        self.deadline = now  # with `Deadline.__init__` inlined: it is a third of all this
        self.queued_at = NEVER
        self.ticket = 0
        self.cookie = cookie
        self.resource = resource
        self.term_s = 0.0

    @property
    def end(self) -> float | Forever:
        """When the lease ends, in lease time."""
        return duration_of(self.deadline)

    @property
    def pending(self) -> bool:
        """Whether the grant is still to be answered, so that its term has not begun."""
        return self.deadline == NEVER and self.term_s != NEVER

    def __repr__(self) -> str:
        return f"<LeasedResource {self.cookie!r}: {self.resource!r} until {self.end!r}>"


class EndedLease(NamedTuple, Generic[R]):
    """A lease that has left the table."""

    leased: LeasedResource[R]
    reason: EndReason
    lateness_s: float


class LeaseTable(Generic[R]):
    """The live leases of one grantor, in lease time.

    `clock.advance` must have been called in this turn before any method is. `on_placed` is called
    with a lease that is new, or ends earlier than it did: a timer for the next end may have to be
    set to an earlier time.
    """

    def __init__(
        self,
        policy: LeasePolicy,
        clock: LeaseClock,
        on_placed: Callable[[LeasedResource[R]], None] | None = None,
    ) -> None:
        self._policy = check_policy(policy)
        self._on_placed = on_placed
        self.clock = clock
        self.ended: deque[EndedLease[R]] = deque()
        self._leases: dict[Hashable, LeasedResource[R]] = {}
        self._queue: ExpiryQueue[Hashable, LeasedResource[R]] = ExpiryQueue(self._leases)
        self._remembered = _RememberedEnds()
        self.policy = policy

    @property
    def policy(self) -> LeasePolicy:
        """The policy that decides the length of terms; a new one applies to later calls."""
        return self._policy

    @policy.setter
    def policy(self, policy: LeasePolicy) -> None:
        check_policy(policy)
        self._policy.detach(self)
        self._policy = policy
        self._asks_policy = type(policy).is_current is not LeasePolicy.is_current
        self._bounded = type(policy).bound_s is not LeasePolicy.bound_s
        same = type(policy).renew is LeasePolicy.renew  # then it would only call `grant`
        self._policy_renew = policy.grant if same else policy.renew
        policy.attach(self)

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, cookie: Hashable) -> bool:
        """Return whether a lease is in the table; it may be due to leave it."""
        return cookie in self._leases

    def __iter__(self) -> Iterator[LeasedResource[R]]:
        return iter(self._leases.values())

    def grant(
        self, cookie: Hashable, resource: R, requested: Requested, *, pending: bool = False
    ) -> tuple[LeasedResource[R], Duration]:
        """Begin a lease; return it and the length of its term.

        A `pending` lease does not age until `answer` is called: a term starts when its grant is
        answered, not when it was requested, because the disk may be slow.
        """
        now = self.clock.now
        if requested == 0.0:
            raise ValueError("duration must be more than zero")
        if cookie is None:
            raise TypeError("cookie must not be None: it identifies the lease")
        namesake = self._leases.get(cookie)
        if namesake is not None and self.settle(namesake):
            raise ValueError(
                f"cookie {cookie!r} is already used by a live lease: choose another one"
            )
        leased = LeasedResource(cookie, resource, now)
        try:
            granted = self._policy.grant(leased, requested, now)
        except LeaseDenied as denied:
            _complete(denied, None, requested)
            raise
        granted, term_s = self._in_bounds(granted, requested)
        if cookie in self._leases:  # the policy called back in
            raise ValueError(
                f"cookie {cookie!r} is already used by a live lease: choose another one"
            )
        leased.term_s = term_s
        leased.deadline = NEVER if pending else now + term_s
        self._leases[cookie] = leased
        if not pending:
            self._place(leased)
        elif self._bounded and self._on_placed is not None:
            self._on_placed(leased)  # it has no end of its own yet, but that of its grantor
        return leased, granted

    def _in_bounds(self, granted: Duration, requested: Requested) -> tuple[Duration, float]:
        """Check a policy's answer, and clamp it to the policy's own bound; return both forms."""
        if type(granted) is float and 0.0 < granted < NEVER and not self._bounded:
            return granted, granted
        term_s = check_granted(self._policy, granted, requested)
        if self._bounded:
            term_s = min(term_s, self._policy.bound_s())
        return duration_of(term_s), term_s

    def restore(self, leases: Iterable[tuple[Hashable, R, float, float]]) -> None:
        """Fill an empty table with leases of an earlier run.

        Each is a cookie, a resource, a term and the remaining time.

        For grantors whose policy would always give the same answer: it is not called. `on_placed`
        is not called: the grantor starts to keep time when it serves.
        """
        assert not self._leases, "only an empty table is filled"
        now, table = self.clock.now, self._leases
        for cookie, resource, term_s, left_s in leases:
            table[cookie] = leased = LeasedResource(cookie, resource, now + left_s)
            leased.term_s = term_s
        self._queue.schedule_all()

    def place(
        self, cookie: Hashable, resource: R, term_s: float, left_s: float
    ) -> LeasedResource[R]:
        """Add a lease of an earlier run, or of another grantor, with the time that remains of it.

        The policy is not called.
        """
        assert cookie not in self._leases, "a lease is placed once"
        leased = LeasedResource(cookie, resource, self.clock.now + left_s)
        leased.term_s = term_s
        self._leases[cookie] = leased
        self._place(leased)
        return leased

    def move(self, leased: LeasedResource[R], term_s: float, deadline: float) -> None:
        """Move the end of a live lease, to undo a renewal that could not be stored."""
        assert self._leases.get(leased.cookie) is leased, "the lease is live"
        leased.term_s, leased.deadline = term_s, deadline
        self._place(leased)

    def take_back(self, leased: LeasedResource[R]) -> None:
        """Undo a grant that never reached its holder: no notification, and no remembered end."""
        if self._leases.get(leased.cookie) is leased:
            del self._leases[leased.cookie]
            self._queue.discard(leased)

    def answer(self, cookie: Hashable) -> None:
        """Begin a pending lease's term now. On any other lease this is an error."""
        leased = self.current(cookie)
        if leased.deadline != NEVER:  # one that never ends has nothing to begin
            raise ValueError(
                f"lease {shown_lease(cookie)} is not pending: its term has already begun"
            )
        self.begin(leased)

    def begin(self, leased: LeasedResource[R]) -> None:
        """Begin the term of a pending lease now, if this very lease is still there."""
        term_s = leased.term_s
        if leased.deadline != NEVER or term_s == NEVER:
            return  # it has begun, or has nothing to begin
        if self._leases.get(leased.cookie) is not leased:
            return
        if self._bounded:
            term_s = min(term_s, self._policy.bound_s())  # the bound has come nearer meanwhile
        leased.deadline = self.clock.now + term_s
        self._place(leased)

    def find(self, cookie: Hashable) -> LeasedResource[R] | None:
        """Return a lease without the expiry step: it may be due to leave. None if there is none."""
        return self._leases.get(cookie)

    def current(self, cookie: Hashable) -> LeasedResource[R]:
        """Return the live lease, or raise `UnknownLease`. Runs the expiry step for it first."""
        leased = self._leases.get(cookie)
        if leased is None:
            if cookie is None:
                raise TypeError("cookie must not be None: it identifies the lease")
            raise UnknownLease(cookie, self._remembered.reason(cookie))
        if (self._asks_policy or leased.deadline <= self.clock.now) and not self.settle(leased):
            raise UnknownLease(cookie, EndReason.EXPIRED)
        return leased

    def renew(self, cookie: Hashable, requested: Requested) -> Duration:
        """Begin a new term now and return its length; a term of zero ends the lease."""
        now = self.clock.now
        leased = self._leases.get(cookie)
        if leased is None or self._asks_policy or leased.deadline <= now:
            leased = self.current(cookie)
        if requested == 0.0:
            self._end(leased, EndReason.CANCELLED)
            return 0.0
        try:
            granted = self._policy_renew(leased, requested, now)
        except LeaseDenied as denied:
            _complete(denied, cookie, requested)
            raise
        granted, term_s = self._in_bounds(granted, requested)
        if self._leases.get(cookie) is not leased:  # the policy called back in, and ended it
            raise UnknownLease(cookie, self._remembered.reason(cookie))
        deadline = now + term_s
        if deadline < leased.deadline:
            return self._shorten(leased, requested, term_s)
        leased.deadline = deadline
        leased.term_s = term_s
        if deadline < leased.queued_at:  # it had no end until now
            self._place(leased)
        return granted

    def repeat(self, cookie: Hashable) -> LeasedResource[R] | None:
        """Begin the same term again, now, if a lease is surely alive; else None: use `renew`.

        One lookup and one write, for grantors whose policy would always give the same answer: it is
        not called. A pending lease has yet to begin its term, so there is nothing to repeat.
        """
        leased = self._leases.get(cookie)
        if leased is None or not self.clock.now < leased.deadline < NEVER:
            return None
        leased.deadline = self.clock.now + leased.term_s
        return leased

    def repeat_all(self, cookies: Iterable[Hashable]) -> list[LeasedResource[R] | None]:
        """`repeat` for many leases, independently."""
        now, get = self.clock.now, self._leases.get
        found = []
        for cookie in cookies:
            leased = get(cookie)
            if leased is not None:
                if now < leased.deadline < NEVER:
                    leased.deadline = now + leased.term_s
                else:
                    leased = None
            found.append(leased)
        return found

    def _shorten(self, leased: LeasedResource[R], requested: Requested, term_s: float) -> Duration:
        """Renew to an earlier end than the current one, as far as that was requested."""
        if leased.pending:
            self.answer(leased.cookie)
            return self.renew(leased.cookie, requested)
        now = self.clock.now
        asked_s = requested if type(requested) is float else NEVER  # ANY does not request less
        if now + asked_s >= leased.deadline:
            return self._keep(leased)
        leased.term_s = min(max(term_s, asked_s), self._policy.bound_s())
        leased.deadline = now + leased.term_s
        self._place(leased)
        return leased.term_s

    def _keep(self, leased: LeasedResource[R]) -> Duration:
        """Renew without moving the end, unless it lies beyond the policy's bound now.

        It can: lease time stands still in a stall, a bound in real time comes nearer.
        """
        bound_s = self._policy.bound_s()
        if self.clock.now + bound_s < leased.deadline:
            leased.deadline = self.clock.now + bound_s
            self._place(leased)
        return duration_of(leased.deadline - self.clock.now)

    def _place(self, leased: LeasedResource[R]) -> None:
        self._queue.schedule(leased.cookie, leased)
        if self._on_placed is not None:
            self._on_placed(leased)

    def cancel(self, cookie: Hashable) -> None:
        """End a lease now."""
        self._end(self.current(cookie), EndReason.CANCELLED)

    def expire(self, budget: int) -> bool:
        """Run the expiry step for `budget` entries at most; return True if more may be due.

        An error of the policy ends no lease, and is raised after the others were processed.
        """
        now, over = self.clock.now, self._is_over()
        if not (self.clock.may_end or over):
            return False
        may_live = self._asks_policy or self.clock.earliest_end(NEVER) > now
        failure: BaseException | None = None
        for leased in self._take_due(budget):
            try:
                alive = may_live and self.settle(leased)
            except BaseException as error:  # noqa: BLE001  raised below
                alive, failure = True, error
            if alive:
                later = leased.deadline > now  # a grace moved it
                at = leased.deadline if later else now + RECHECK_S
                self._queue.schedule(leased.cookie, leased, at)
            elif not may_live:  # the result of `settle`, without calling the policy
                self._end(leased, EndReason.EXPIRED)
        if failure is not None:
            raise failure
        return bool(self._leases) if over else self._queue.next_at() <= now

    def next_at(self) -> float:
        """Return when the expiry step is next due, in lease time; `NEVER` if it is not."""
        at = self._queue.next_at()
        if self._bounded and self._leases:
            return min(at, self.clock.now + self._policy.bound_s())
        return at

    def _is_over(self) -> bool:
        """Whether the policy's bound has come, so that no lease may run on."""
        return self._bounded and self._policy.bound_s() <= 0.0

    def _take_due(self, budget: int) -> list[LeasedResource[R]]:
        if self._is_over():  # all of them, whatever their deadlines in lease time
            return list(islice(self._leases.values(), budget))
        return [leased for _, leased in self._queue.pop_due(self.clock.now, budget)]

    def settle(self, leased: LeasedResource[R]) -> bool:
        """Run the expiry step for one lease; return True if it is alive."""
        clock = self.clock
        if self._policy.is_current(leased, clock.now):
            return True
        if not self._is_over():  # a bound in real time allows no grace
            if not clock.may_end:
                return True
            earliest_end = clock.earliest_end(leased.term_s)
            if earliest_end > clock.now:
                leased.deadline = max(leased.deadline, earliest_end)
                return True
        self._end(leased, EndReason.EXPIRED)
        return False

    def _end(self, leased: LeasedResource[R], reason: EndReason) -> None:
        del self._leases[leased.cookie]
        self._queue.discard(leased)
        self._remembered.add(leased.cookie, reason)
        late_s = self.clock.now - leased.deadline
        self.ended.append(EndedLease(leased, reason, late_s if late_s > 0.0 else 0.0))


def _complete(denied: LeaseDenied, lease: object, requested: Requested) -> None:
    """Complete a policy's denial with the lease and the requested duration."""
    denied.lease = lease if denied.lease is None else denied.lease
    denied.requested = requested if denied.requested is None else denied.requested


class _RememberedEnds:
    """The reasons of the last `REMEMBERED_ENDS` ends, by cookie."""

    __slots__ = ("_at", "_reasons", "_ring")

    def __init__(self) -> None:
        self._reasons: dict[Hashable, EndReason] = {}
        self._ring: list[Hashable] = [None] * REMEMBERED_ENDS
        self._at = 0

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, cookie: Hashable, reason: EndReason) -> None:
        """Add an end, and drop the oldest. A cookie that ended twice is dropped early."""
        self._reasons.pop(self._ring[self._at], None)
        self._ring[self._at] = cookie
        self._at = (self._at + 1) % REMEMBERED_ENDS
        self._reasons[cookie] = reason

    def reason(self, cookie: Hashable) -> EndReason:
        """Return why a lease has ended, if that is still known."""
        return self._reasons.get(cookie, EndReason.UNKNOWN)
