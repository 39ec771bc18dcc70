"""Renews the members of all sets of a server, with one `RenewalManager`.

Leases of different sets that have the same grantor share a call. Immediately before each send the
set's end and the ownership of its shard are checked: after a set has ended, or is served by another
server, nothing more is sent for it.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from leasehold.basics.durations import FOREVER, NEVER, datetime_of, duration_of
from leasehold.basics.histogram import Histogram
from leasehold.clock import Clock
from leasehold.leases.lease import Lease
from leasehold.leases.renewal_manager import RenewalManager, RenewalNotice
from leasehold.leases.renewal_plan import NoticeKind
from leasehold.leases.renewal_times import BatchTiming, When, renew_floor
from leasehold.renewal.grantors import Grantors, UndecodableLease
from leasehold.renewal.live_set import LiveSet
from leasehold.renewal.state import Member
from leasehold.renewal.stored import shown
from leasehold.services.leased_record import LeasedRecord

logger = logging.getLogger(__name__)

EARLY_S: Final = 15.0
"""How long before its end a member is renewed at the latest: a take-over takes about 12 s, since
the session of the former server has to end (10 s)."""

EARLY: Final = 0.4
"""The same as a part of short terms. It leaves time in which leases can share a call, since only
those past half of their term do."""

RTT_S: Final = 1.0
BATCH_WINDOW_S: Final = 300.0
"""As for a renewal manager by default."""

RESUMED: Final = 500
"""Members of a set that are resumed in one turn of the event loop: about 10 ms."""

ORDER_S: Final = 1e-6
"""The time between two members that are due after a restart: it keeps their order."""

PAST_S: Final = 1.0
"""How much earlier members are due whose stored ends have passed."""


class TakeOverTiming:
    """Renews early enough for a restart or a take-over; else as a renewal manager does."""

    def __init__(self) -> None:
        self._usual = BatchTiming(RTT_S, BATCH_WINDOW_S)
        self.retry = self._usual.retry
        self.call_timeout_s = self._usual.call_timeout_s

    def renew(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a renewal."""
        usual = self._usual.renew(now, sent_at, end, term_s)
        floor = renew_floor(sent_at, end)
        early = max(floor, end - min(EARLY_S, term_s * EARLY))
        due_at = min(usual.due_at, early)
        return When(due_at, max(due_at - BATCH_WINDOW_S, end - term_s / 2, floor))


class MemberRenewals:
    """The leases of all members that this server renews."""

    def __init__(
        self, grantors: Grantors, clock: Clock, on_left: Callable[[LiveSet], object]
    ) -> None:
        """`on_left` is called with a set when a member has left it without a call."""
        self._grantors = grantors
        self._clock = clock
        self._on_left = on_left
        self._manager = RenewalManager(
            timing=TakeOverTiming(), on_trouble=self._has_trouble, clock=clock
        )
        self._sets: dict[Lease, LiveSet] = {}
        self.retries = 0
        """Renewals that have failed, and were retried."""

    def __len__(self) -> int:
        return len(self._manager)

    @property
    def lateness_s(self) -> Histogram:
        """How late renewal calls were."""
        return self._manager.lateness_s

    def begin(self, live: LiveSet, member: Member, left_s: float, due_at: float = NEVER) -> None:
        """Keep a member alive that has so much time left, with a first renewal at `due_at`."""
        self._begin(live, member, self._lease(live, member, left_s), due_at)

    def resume(self, live: LiveSet) -> Iterator[None]:
        """Keep the members of a set alive that was loaded: renew them now, in their order.

        The work is done in steps, since a set may have 100,000 members.

        Stored ends are lower bounds: a member leaves if its grantor refuses, or does not
        answer for one full term from now on. Members of all sets whose ends have passed come first.
        """
        now, wall = self._clock.boottime(), self._clock.wall()
        members = list(live.state.members.values())
        for place, member in enumerate(members):
            if place and place % RESUMED == 0:
                yield
            if live.is_stopped:
                return
            if live.state.members.get(member.digest) is not member:
                continue  # it was removed meanwhile
            lease = self._lease(live, member, member.term_s)
            if not isinstance(lease, UndecodableLease):
                live.unconfirmed.add(member.digest)
            # All are due, so that they share calls.
            due_at = (
                now - (len(members) - place) * ORDER_S - (PAST_S if member.end <= wall else 0.0)
            )
            self._begin(live, member, lease, due_at)

    def _lease(self, live: LiveSet, member: Member, left_s: float) -> Lease:
        """Return the lease of a member; one whose reference cannot be used has its recorded end."""
        may_send = partial(_may_send, live.record)
        lease = self._grantors.lease(
            member.reference,
            duration_of(left_s),
            member.term,
            set_id=live.record.id,
            may_send=may_send,
        )
        if not isinstance(lease, UndecodableLease):
            return lease
        left_s = max(0.0, member.end - self._clock.wall())
        lease = self._grantors.lease(
            member.reference, duration_of(left_s), set_id=live.record.id, may_send=may_send
        )
        logger.warning(
            "renewal set %s has a lease that cannot be renewed: %r", live.record.id, lease
        )
        return lease

    def _begin(self, live: LiveSet, member: Member, lease: Lease, due_at: float) -> None:
        live.leases[member.digest] = lease
        self._sets[lease] = live
        self._manage(live, member, lease, due_at)

    def replaced(self, live: LiveSet, member: Member) -> None:
        """Use the new terms of a member, which keeps its lease."""
        lease = live.leases.get(member.digest)
        if lease is not None:  # else `resume` comes to it
            due_at = NEVER if live.is_confirmed(member) else self._clock.boottime()
            self._manage(live, member, lease, due_at)

    def _manage(self, live: LiveSet, member: Member, lease: Lease, due_at: float) -> None:
        # A request for less would shorten its end, although it is never sent.
        is_usable = not isinstance(lease, UndecodableLease)
        self._manager.renew_until(
            lease,
            datetime_of(member.terms.desired_end),
            member.terms.renew if is_usable else FOREVER,
            partial(self._departed, live, member),
            due_at=due_at,
        )

    def stop(self, live: LiveSet, member: Member) -> None:
        """Stop renewing a member; its lease is not cancelled."""
        lease = live.leases.pop(member.digest, None)
        live.unconfirmed.discard(member.digest)
        if lease is not None:
            del self._sets[lease]
            if lease in self._manager:
                self._manager.remove(lease)

    def close(self) -> None:
        """Stop renewing, and abort the calls under way."""
        self._manager.close()

    def _departed(self, live: LiveSet, member: Member, notice: RenewalNotice) -> None:
        """Called when the manager has given a lease up, or its desired end has come."""
        live.record_end(member, self._clock)
        is_failure = notice.kind is NoticeKind.FAILED
        if not live.state.leave(member, is_failure=is_failure, error=notice.error):
            return
        del live.leases[member.digest], self._sets[notice.lease]
        live.unconfirmed.discard(member.digest)
        if is_failure:
            live.last_error = "a lease expired" if notice.error is None else shown(notice.error)
        self._on_left(live)

    def _has_trouble(self, lease: Lease, error: BaseException) -> None:
        self.retries += 1
        live = self._sets.get(lease)
        if live is not None:
            live.last_error = shown(error)


def _may_send(record: LeasedRecord[LiveSet]) -> None:
    """Raise unless the set lives and is served here, by the clock."""
    record.check_live()
