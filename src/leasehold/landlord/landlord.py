"""`Landlord`: any program can grant leases on its own resources.

The landlord is a thin shell. `leases.lease_table` has the rules, `leases.expiry_strategies` decides
when to look for due leases, and this module brings them together with clocks, hooks and lease
objects. A landlord belongs to one thread, that of its event loop if it has one; `leasehold.sync`
has one for threads.

Hooks. `on_granted`, `on_renewed` and `on_ended` are the owner's view of its leases:

- They are called in the order of the events: for each lease granted once, then renewed once for
  each renewal, then ended once. A lease whose grant failed has none of them.
- An event is queued when the table has changed, and the hook is called when the table is consistent
  again. So a hook may call the landlord; the events of such a call are delivered after the hook.
- A hook that raises stops nothing: neither the call that it reports, nor other hooks.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

from leasehold.basics.callbacks import check_callable, check_plain_callback
from leasehold.basics.durations import (
    ANY,
    Duration,
    DurationLike,
    Forever,
    Requested,
    check_positive,
    check_requested,
    duration_of,
)
from leasehold.basics.lease_ids import shown_lease
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.errors import Closed, EndReason, UnknownLease
from leasehold.landlord.landlord_lease import BatchResult, LandlordLease
from leasehold.leases import lease_codec
from leasehold.leases.expiry_strategies import SLICE_S, ExpiryStrategy, exact
from leasehold.leases.lease import Lease, Outcome, remaining_s_of
from leasehold.leases.lease_clock import LeaseClock
from leasehold.leases.lease_table import EndedLease, LeasedResource, LeaseTable
from leasehold.leases.policies import LeasePolicy

logger = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseView(Generic[R]):
    """A live lease at one moment, as recorded by its landlord."""

    resource: R
    cookie: Hashable
    end: float | Forever
    """In lease time: compare it with `Landlord.now`."""
    remaining: Duration


class _Change(NamedTuple, Generic[R]):
    """A grant or a renewal whose hook is to be called."""

    name: str
    hook: "Callable[[R, LeaseView[R]], object]"
    leased: LeasedResource[R]
    view: LeaseView[R]


def unguessable_cookie() -> str:
    """Return an unguessable cookie: any client that has it can renew and cancel the lease."""
    return secrets.token_hex(16)


class Landlord(Generic[R]):
    """Grants leases on resources of type R, and takes the resources back when the leases end."""

    def __init__(
        self,
        policy: LeasePolicy,
        *,
        on_granted: Callable[[R, LeaseView[R]], object] | None = None,
        on_renewed: Callable[[R, LeaseView[R]], object] | None = None,
        on_ended: Callable[[R, EndReason], object] | None = None,
        expiry: ExpiryStrategy | None = None,
        lease_factory: "Callable[[Landlord[R], Hashable, Duration, float], Lease] | None" = None,
        cookies: Callable[[], Hashable] = unguessable_cookie,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a landlord; it is inactive until it grants its first lease.

        `on_granted(resource, view)` is called once for each lease, `on_renewed(resource, view)` for
        each renewal, and `on_ended(resource, reason)` once for each lease, after it has left the
        table; in this order. `view` is the lease as it was then. A resource is any object.
        `lease_factory(landlord, cookie, granted, sent_at)` makes the lease that a holder gets, with
        a first term of `granted` that counts from `sent_at`. `cookies` makes a new name for each
        lease. `name` is this landlord's own name in leases; it must stay the same across restarts
        if leases are stored as bytes.
        """
        check_plain_callback(on_granted, "on_granted")
        check_plain_callback(on_renewed, "on_renewed")
        check_plain_callback(on_ended, "on_ended")
        check_callable(lease_factory, "lease_factory")
        check_callable(cookies, "cookies")
        strategy = exact() if expiry is None else expiry
        if not isinstance(strategy, ExpiryStrategy):
            raise TypeError(f"expiry must be a strategy such as exact() or lazy(), not {expiry!r}")
        self.name = secrets.token_hex(8) if name is None else name
        self.clock = clock
        self.monotonic = clock.monotonic
        self._on_granted = on_granted
        self._on_renewed = on_renewed
        self._on_ended = on_ended
        self._make_lease = LandlordLease if lease_factory is None else lease_factory
        self._make_cookie = cookies
        self._delivering = False
        self._closed = False
        self.table: LeaseTable[R] = LeaseTable(
            policy, LeaseClock(clock.monotonic()), self._on_placed
        )
        self._changes: deque[EndedLease[R] | _Change[R]] = deque()
        """Events that came before all of `self._ended`; only used with the first two hooks."""
        self._ended = self.table.ended
        self._renew = self.table.renew if on_renewed is None else self._renew_and_record
        self._reaper = strategy.reaper_for(self)
        self._enter = self._reaper.enter  # the first thing in each call

    def __repr__(self) -> str:
        return f"<Landlord {self.name!r} with {len(self)} leases>"

    def __len__(self) -> int:
        """The number of leases in the table; some may be due to leave it."""
        return len(self.table)

    @property
    def policy(self) -> LeasePolicy:
        """The policy that decides the length of terms; a new one applies to later calls."""
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
        self._reaper.prepare()
        try:
            leased, granted = self.table.grant(
                self._make_cookie(), resource, requested, pending=pending
            )
            if self._on_granted is not None:
                self._record("on_granted", self._on_granted, leased)
            try:
                lease = self._make_lease(self, leased.cookie, granted, sent_at)
                if not isinstance(lease, Lease):
                    raise TypeError(f"lease_factory must return a Lease, not {lease!r}")
                return lease
            except BaseException:
                self._take_back(leased)
                raise
        finally:
            self._deliver()

    def answer(self, cookie: Hashable) -> None:
        """Begin the term of a pending lease: its grant is being answered now."""
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
            return self._renew(cookie, requested)
        except UnknownLease:
            _refuse_lease(cookie)
            raise
        finally:
            if self._ended or self._changes:
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
        """Renew many leases; each succeeds or fails independently.

        A bad duration is refused before any lease is renewed.
        """
        checked = [(cookie, check_requested(duration)) for cookie, duration in wants]
        self._enter()
        outcomes: list[Outcome] = []
        renew = self._renew
        for cookie, requested in checked:
            try:
                outcomes.append(renew(cookie, requested))
            except Exception as error:  # noqa: BLE001  an outcome, paired with its lease
                outcomes.append(error)
        self._deliver()
        return BatchResult([cookie for cookie, _ in checked], outcomes)

    def cancel_all(self, cookies: Iterable[Hashable]) -> BatchResult:
        """End many leases; each succeeds, with the outcome 0.0, or fails independently."""
        return self.renew_all([(cookie, 0.0) for cookie in cookies])

    def resource(self, cookie: Hashable) -> LeaseView[R]:
        """Return a live lease; raise `UnknownLease` from its end on."""
        self._enter()
        try:
            leased = self.table.current(cookie)
        except UnknownLease:
            _refuse_lease(cookie)
            raise
        finally:
            self._deliver()
        return self._view(leased)

    def _view(self, leased: LeasedResource[R]) -> LeaseView[R]:
        remaining = duration_of(max(0.0, leased.deadline - self.table.clock.now))
        return LeaseView(leased.resource, leased.cookie, leased.end, remaining)

    def lease_from_bytes(self, data: bytes) -> Lease:
        """Return a lease of this landlord from the bytes of `Lease.to_bytes`."""
        self._enter()
        record = lease_codec.decode(data)
        if record.grantor != self.name:
            raise ValueError(f"lease belongs to landlord {record.grantor!r}, not to {self.name!r}")
        remaining = duration_of(remaining_s_of(record, self.clock.wall()))
        return self._make_lease(self, record.cookie, remaining, self.clock.boottime())

    def close(self) -> None:
        """Stop: no lease is ended any more, and every further call is refused.

        Hooks are still called for what has happened already.
        """
        self._closed = True
        self._enter = self._refuse
        self._reaper.close()
        self.policy.detach(self.table)
        self._deliver()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _refuse(self) -> None:
        raise Closed(f"landlord {self.name!r} was closed")

    def _on_placed(self, leased: LeasedResource[R]) -> None:
        self._reaper.placed(leased)

    def reap(self, budget: int) -> bool:
        """Run the expiry step, bounded, and call the hooks. For the reaper."""
        if self._closed:
            return False
        more = False
        try:
            more = self.table.expire(budget)
        except Exception:
            logger.exception("the policy of landlord %r failed in is_current", self.name)
        finally:
            self._deliver()
        return more or bool(self._ended or self._changes)

    def expire_one(self, leased: LeasedResource[R]) -> bool:
        """Run the expiry step for one live lease; return True if it stays alive. For the reaper."""
        try:
            return self.table.settle(leased)
        except Exception:
            logger.exception("the policy of landlord %r failed in is_current", self.name)
            return True
        finally:
            self._deliver()

    def _renew_and_record(self, cookie: Hashable, requested: Requested) -> Duration:
        granted = self.table.renew(cookie, requested)
        leased = self.table.find(cookie)
        if leased is not None:  # else it was ended, with a term of zero
            assert self._on_renewed is not None
            self._record("on_renewed", self._on_renewed, leased)
        return granted

    def _record(
        self, name: str, hook: Callable[[R, LeaseView[R]], object], leased: LeasedResource[R]
    ) -> None:
        """Queue an event for its hook, after all events before it."""
        self._changes.extend(self._ended)
        self._ended.clear()
        self._changes.append(_Change(name, hook, leased, self._view(leased)))

    def _take_back(self, leased: LeasedResource[R]) -> None:
        """Undo a grant whose lease object could not be made.

        If `on_granted` was called for it, because the lease factory called the landlord, the lease
        is cancelled: its owner must be notified of the end.
        """
        if self.table.find(leased.cookie) is not leased:
            return
        recorded = [each for each in self._changes if each.leased is leased]
        if self._on_granted is not None and not recorded:
            self.table.renew(leased.cookie, 0.0)
            return
        for each in recorded:
            self._changes.remove(each)
        self.table.take_back(leased)
        self._reaper.removed(leased)

    def _deliver(self) -> None:
        """Call the hooks: once for each event, in order; one that raises stops no other.

        A hook may call back into the landlord. Events of that call wait for their turn here, and so
        do those that there is no time for in this turn of the event loop.
        """
        ended, changes = self._ended, self._changes
        if self._delivering or not (ended or changes):
            return
        self._delivering = True
        log_expiry = logger.isEnabledFor(logging.DEBUG)
        stop_at = self.monotonic() + SLICE_S
        try:
            while ended or changes:
                event = changes.popleft() if changes else ended.popleft()
                if isinstance(event, _Change):
                    self._call(event.name, event.hook, event.leased, event.view)
                else:
                    leased, reason, late_s = event
                    self._reaper.removed(leased)
                    if log_expiry and reason is EndReason.EXPIRED:
                        shown = shown_lease(leased.cookie)
                        logger.debug("lease %s expired, %.6f s late", shown, late_s)
                    if self._on_ended is not None:
                        self._call("on_ended", self._on_ended, leased, reason)
                if self.monotonic() >= stop_at and not self._closed:
                    break
        finally:
            self._delivering = False
            if ended or changes:
                self._reaper.reap_soon()

    def _call(
        self, name: str, hook: Callable[[R, T], object], leased: LeasedResource[R], detail: T
    ) -> None:
        try:
            hook(leased.resource, detail)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a CancelledError, too: it is not this task that was cancelled
            why = f" ({detail})" if isinstance(detail, EndReason) else ""
            logger.exception("lease %s%s: %s failed", shown_lease(leased.cookie), why, name)


def _refuse_lease(cookie: Hashable) -> None:
    if isinstance(cookie, Lease):
        raise TypeError(f"cookie must not be a lease: pass lease.cookie of {cookie!r}")
