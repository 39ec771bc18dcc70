"""`Landlord`: any program can grant leases on its own resources.

The landlord is a thin shell. `core.table` has the rules, `expiry` decides when somebody looks for
due leases, and this module brings them together with clocks, owners and lease objects. A landlord
belongs to one thread, that of its event loop if it has one.
"""

import logging
import secrets
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

from leasehold.callbacks import check_callable, check_plain_callback
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core import codec
from leasehold.core.duration import (
    ANY,
    Duration,
    DurationLike,
    Forever,
    Requested,
    check_positive,
    check_requested,
    duration_of,
)
from leasehold.core.lease_clock import LeaseClock
from leasehold.core.policy import LeasePolicy
from leasehold.core.table import LeasedResource, LeaseTable
from leasehold.errors import Closed, EndReason, UnknownLease
from leasehold.expiry import SLICE_S, ExpiryStrategy, exact
from leasehold.lease import Lease, Outcome, remaining_s_of
from leasehold.lease_ids import shown_lease

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LeaseView(Generic[R]):
    """A live lease at one moment, as its landlord knows it."""

    resource: R
    cookie: Hashable
    end: float | Forever
    """In lease time: compare it with `Landlord.now`."""
    remaining: Duration


class BatchResult(NamedTuple):
    """What became of each entry of a batch; `outcomes` has the order of the request."""

    cookies: Sequence[Hashable]
    outcomes: Sequence[Outcome]

    @property
    def failures(self) -> list[tuple[Hashable, BaseException]]:
        """Every failure, with its lease."""
        pairs = zip(self.cookies, self.outcomes, strict=True)
        return [(cookie, out) for cookie, out in pairs if isinstance(out, BaseException)]


def unguessable_cookie() -> str:
    """Make a cookie that nobody can guess: who knows it can renew and cancel the lease."""
    return secrets.token_hex(16)


class Landlord(Generic[R]):
    """Grants leases on resources of type R, and takes the resources back when the leases end."""

    def __init__(
        self,
        policy: LeasePolicy,
        *,
        on_ended: Callable[[R, EndReason], object] | None = None,
        expiry: ExpiryStrategy | None = None,
        lease_factory: "Callable[[Landlord[R], Hashable, Duration, float], Lease] | None" = None,
        cookies: Callable[[], Hashable] = unguessable_cookie,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make a landlord; it does nothing by itself until it grants its first lease.

        `on_ended(resource, reason)` is called once for each lease, after it has left the table.
        `lease_factory(landlord, cookie, granted, sent_at)` makes the lease that a holder gets, with
        a first term of `granted` that counts from `sent_at`. `cookies` makes a new name for each
        lease. `name` is this landlord's own name in leases; it
        must stay the same across restarts if leases are stored as bytes.
        """
        check_plain_callback(on_ended, "on_ended")
        check_callable(lease_factory, "lease_factory")
        check_callable(cookies, "cookies")
        strategy = exact() if expiry is None else expiry
        if not isinstance(strategy, ExpiryStrategy):
            raise TypeError(f"expiry must be a strategy such as exact() or lazy(), not {expiry!r}")
        self.name = secrets.token_hex(8) if name is None else name
        self.clock = clock
        self.monotonic = clock.monotonic
        self._on_ended = on_ended
        self._make_lease = LandlordLease if lease_factory is None else lease_factory
        self._make_cookie = cookies
        self._delivering = False
        self._closed = False
        self.table: LeaseTable[R] = LeaseTable(
            policy, LeaseClock(clock.monotonic()), self._on_placed
        )
        self._caretaker = strategy.attend(self)
        self._enter = self._caretaker.enter  # the first thing in each call

    def __repr__(self) -> str:
        return f"<Landlord {self.name!r} with {len(self)} leases>"

    def __len__(self) -> int:
        """The number of leases in the table; some may be due to leave it."""
        return len(self.table)

    @property
    def policy(self) -> LeasePolicy:
        """What decides the length of terms; a new one holds from the next grant or renewal on."""
        return self.table.policy

    @policy.setter
    def policy(self, policy: LeasePolicy) -> None:
        self.table.policy = policy

    @property
    def now(self) -> float:
        """Lease time."""
        self._enter()
        return self.table.clock.now

    @property
    def lag_s(self) -> float:
        """How far lease time is behind, from all stalls together."""
        return self.table.clock.lag_s

    def grant(self, resource: R, duration: DurationLike = ANY, *, pending: bool = False) -> Lease:
        """Lease `resource` out, for `duration` at most, as the policy decides.

        The term of a `pending` lease begins when `answer` is called.
        """
        requested = check_positive(duration)
        sent_at = self.clock.boottime()
        self._enter()
        self._caretaker.prepare()
        try:
            leased, granted = self.table.grant(
                self._make_cookie(), resource, requested, pending=pending
            )
            try:
                lease = self._make_lease(self, leased.cookie, granted, sent_at)
                if not isinstance(lease, Lease):
                    raise TypeError(f"lease_factory must make a Lease, not {lease!r}")
                return lease
            except BaseException:
                self.table.take_back(leased)
                self._caretaker.left(leased)
                raise
        finally:
            self._deliver()

    def answer(self, cookie: Hashable) -> None:
        """Let the term of a pending lease begin: its grant is being answered now."""
        self._enter()
        try:
            self.table.answer(cookie)
        finally:
            self._deliver()

    def renew(self, cookie: Hashable, duration: DurationLike = ANY) -> Duration:
        """Begin a new term of `duration` from now, as the policy decides; return its length."""
        requested = check_requested(duration)
        self._enter()
        try:
            return self.table.renew(cookie, requested)
        except UnknownLease:
            _refuse_lease(cookie)
            raise
        finally:
            if self.table.ended:
                self._deliver()

    def cancel(self, cookie: Hashable) -> None:
        """End a lease now."""
        self._enter()
        try:
            self.table.cancel(cookie)
        except UnknownLease:
            _refuse_lease(cookie)
            raise
        finally:
            self._deliver()

    def renew_all(self, wants: Iterable[tuple[Hashable, DurationLike]]) -> BatchResult:
        """Renew many leases; each succeeds or fails by itself.

        A bad duration is refused before any lease is renewed.
        """
        checked = [(cookie, check_requested(duration)) for cookie, duration in wants]
        self._enter()
        outcomes: list[Outcome] = []
        renew = self.table.renew
        for cookie, requested in checked:
            try:
                outcomes.append(renew(cookie, requested))
            except Exception as error:  # noqa: BLE001  an outcome, paired with its lease
                outcomes.append(error)
        self._deliver()
        return BatchResult([cookie for cookie, _ in checked], outcomes)

    def cancel_all(self, cookies: Iterable[Hashable]) -> BatchResult:
        """End many leases; each succeeds, with the outcome 0.0, or fails by itself."""
        return self.renew_all([(cookie, 0.0) for cookie in cookies])

    def resource(self, cookie: Hashable) -> LeaseView[R]:
        """Look at a live lease; `UnknownLease` from its end on."""
        self._enter()
        try:
            leased = self.table.current(cookie)
        except UnknownLease:
            _refuse_lease(cookie)
            raise
        finally:
            self._deliver()
        remaining = duration_of(max(0.0, leased.deadline - self.table.clock.now))
        return LeaseView(leased.resource, cookie, leased.end, remaining)

    def lease_from_bytes(self, data: bytes) -> Lease:
        """Make a lease of this landlord from what `Lease.to_bytes` made."""
        self._enter()
        record = codec.decode(data)
        if record.grantor != self.name:
            raise ValueError(f"a lease of landlord {record.grantor!r}, and this is {self.name!r}")
        remaining = duration_of(remaining_s_of(record, self.clock.wall()))
        return self._make_lease(self, record.cookie, remaining, self.clock.boottime())

    def close(self) -> None:
        """Stop: no lease is ended any more, and every further call is refused.

        Owners of leases that have ended already are told.
        """
        self._closed = True
        self._enter = self._refuse
        self._caretaker.close()
        self.policy.detach(self.table)
        self._deliver()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _refuse(self) -> None:
        raise Closed(f"landlord {self.name!r} was closed")

    def _on_placed(self, leased: LeasedResource[R]) -> None:
        self._caretaker.placed(leased)

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded, and tell the owners. For caretakers."""
        if self._closed:
            return False
        more = False
        try:
            more = self.table.expire(budget)
        except Exception:
            logger.exception("the policy of landlord %r failed in is_current", self.name)
        finally:
            self._deliver()
        return more or bool(self.table.ended)

    def look(self, leased: LeasedResource[R]) -> bool:
        """Run the expiry step for one live lease; True if it stays alive. For caretakers."""
        try:
            return self.table.settle(leased)
        except Exception:
            logger.exception("the policy of landlord %r failed in is_current", self.name)
            return True
        finally:
            self._deliver()

    def _deliver(self) -> None:
        """Tell the owners of what ended: once each, in order, one that raises stops no other.

        An owner may call back into the landlord. What ends meanwhile waits its turn here, and so
        does what there is no time for in this turn of the event loop.
        """
        ended = self.table.ended
        if self._delivering or not ended:
            return
        self._delivering = True
        log_expiry = logger.isEnabledFor(logging.DEBUG)
        stop_at = self.monotonic() + SLICE_S
        try:
            while ended:
                leased, reason, late_s = ended.popleft()
                self._caretaker.left(leased)
                if log_expiry and reason is EndReason.EXPIRED:
                    shown = shown_lease(leased.cookie)
                    logger.debug("lease %s expired, %.6f s late", shown, late_s)
                if self._on_ended is not None:
                    self._tell(leased, reason)
                if self.monotonic() >= stop_at and not self._closed:
                    break
        finally:
            self._delivering = False
            if ended:
                self._caretaker.hurry()

    def _tell(self, leased: LeasedResource[R], reason: EndReason) -> None:
        assert self._on_ended is not None
        try:
            self._on_ended(leased.resource, reason)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            shown = shown_lease(leased.cookie)
            logger.exception("on_ended failed for lease %s (%s)", shown, reason)


def _refuse_lease(cookie: Hashable) -> None:
    if isinstance(cookie, Lease):
        raise TypeError(
            f"a landlord knows leases by their cookies: pass lease.cookie of {cookie!r}"
        )


class LandlordLease(Lease):
    """A lease of a landlord in this process."""

    __slots__ = ("_cookie", "_landlord")

    def __init__(
        self, landlord: Landlord[R], cookie: Hashable, granted: Duration, sent_at: float
    ) -> None:
        super().__init__(granted, sent_at=sent_at, clock=landlord.clock)
        self._landlord = landlord
        self._cookie = cookie

    @property
    def grantor(self) -> Hashable:
        return self._landlord.name

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @property
    def batch_key(self) -> Hashable:
        return self._landlord

    async def ask_renew(self, requested: Requested) -> Duration:
        return self._landlord.renew(self._cookie, requested)

    async def ask_cancel(self) -> None:
        self._landlord.cancel(self._cookie)

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        return self._landlord.renew_all([(lease.cookie, want) for lease, want in wants]).outcomes

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        return self._landlord.cancel_all([lease.cookie for lease in leases]).outcomes
