"""Who sees everything: true time, both ends of every lease, and every notice.

The oracle holds the shipped code to what the spec page says, at the moment when it could be wrong:

- a landlord ends no lease before the end it last promised, counted on its own clock;
- when a landlord ends a lease, its holder has stopped trusting it;
- every lease ends exactly once, and its owner is told once;
- a manager gives at most one notice for a lease, a failure only for a reason.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any

from leasehold import EndReason, LeaseView, NoticeKind, RenewalNotice, is_definite
from leasehold.basics.durations import Duration, seconds_of
from leasehold.testing import Host, Simulation
from tests.simulation.remote import RemoteLease

CLOCK_GRAIN_S = 1e-6
"""What rounding may do to readings of different clocks."""


NOTICE_S = 1.5
"""A holder that is awake learns of a lapse within this time."""


class Violation(AssertionError):
    """The code under test broke a promise."""


class Oracle:
    """Watches one landlord and all its holders."""

    def __init__(self, sim: Simulation, landlord_host: Host) -> None:
        self._sim = sim
        self._host = landlord_host
        self._copies = 0
        self._safe_until: dict[Hashable, float] = {}
        self._cookies: dict[object, Hashable] = {}
        self.held: dict[Hashable, RemoteLease] = {}
        self.crashed: set[str] = set()
        self.ends: Counter[object] = Counter()
        self.awake_from: dict[str, float] = {}
        self.batches: list[int] = []
        self.notices: dict[Hashable, RenewalNotice] = {}

    @property
    def grants(self) -> int:
        """How many leases the landlord has granted, those of repeated calls included."""
        return len(self._cookies)

    def new_copy(self) -> int:
        """Tell apart the grants of a call that was executed twice."""
        self._copies += 1
        return self._copies

    # What the landlord does.

    def granted(self, view: LeaseView[Any]) -> None:
        """See a grant."""
        self._cookies[view.resource] = view.cookie
        self.promised(view.cookie, view.remaining)

    def promised(self, cookie: Hashable, granted: Duration) -> None:
        """See a promise at the moment when it is made."""
        pace = 1.0 + self._host.drift_ppm / 1e6
        self._safe_until[cookie] = self._sim.now + seconds_of(granted) / pace

    def ended(self, resource: object, reason: EndReason) -> None:
        """See an end: the landlord's `on_ended`."""
        self.ends[resource] += 1
        if self.ends[resource] > 1:
            raise Violation(f"the owner of {resource} was told twice")
        cookie = self._cookies[resource]
        if reason is EndReason.EXPIRED:
            self._check_expiry(cookie)

    def _check_expiry(self, cookie: Hashable) -> None:
        early_s = self._safe_until[cookie] - self._sim.now
        if early_s > CLOCK_GRAIN_S:
            raise Violation(f"lease {cookie!r} ended {early_s:.6f} s before its promised end")
        lease = self.held.get(cookie)
        if lease is None or lease.route.holder.name in self.crashed:
            return
        trusted_s = seconds_of(lease.remaining)
        if trusted_s > CLOCK_GRAIN_S:
            raise Violation(f"{lease!r} ended while its holder still trusted it")

    # What a holder's manager does.

    def noticed(self, notice: RenewalNotice) -> None:
        """See a notice: the managers' listener."""
        cookie = notice.lease.cookie
        if cookie in self.notices:
            raise Violation(f"a second notice for {notice.lease!r}")
        if notice.lease in notice.manager:
            raise Violation(f"{notice.lease!r} had not left when its listener was called")
        self.notices[cookie] = notice
        if notice.kind is NoticeKind.FAILED and not self._is_over(notice):
            raise Violation(f"gave up {notice.lease!r} with time left, after {notice.error!r}")
        self._check_in_time(notice)

    def _check_in_time(self, notice: RenewalNotice) -> None:
        """A lapse is noticed when it happens, or when its holder wakes up."""
        lease = notice.lease
        assert isinstance(lease, RemoteLease)
        holder = lease.route.holder
        late_s = holder.clock.boottime() - lease._holding.end
        awake_s = self._sim.now - self.awake_from.get(holder.name, 0.0)
        if min(late_s, awake_s) > NOTICE_S:
            raise Violation(f"the lapse of {lease!r} was noticed {late_s:.3f} s late")

    @staticmethod
    def _is_over(notice: RenewalNotice) -> bool:
        definite = notice.error is not None and is_definite(notice.error)
        return definite or seconds_of(notice.lease.remaining) <= CLOCK_GRAIN_S

    def lapses(self) -> list[RenewalNotice]:
        """Notices of leases that ended although nobody refused them."""
        return [
            notice
            for notice in self.notices.values()
            if notice.kind is NoticeKind.FAILED
            and not (notice.error is not None and is_definite(notice.error))
        ]
