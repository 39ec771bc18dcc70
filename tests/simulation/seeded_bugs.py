"""Bugs to switch on, each a mistake that somebody could make, to see that the simulation finds it.

A bug replaces a piece of the shipped code for the length of a `with` block. `scenario` is the run
that must fail with it, for one of the first few seeds.
"""

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from leasehold import Lease, LeaseClock
from leasehold.basics.durations import NEVER, duration_of
from leasehold.engine.remote.send_ledger import SendLedger
from leasehold.errors import EndReason
from leasehold.leases import renewal_manager, renewal_plan, renewal_times
from leasehold.leases.expiry_queue import ExpiryQueue
from leasehold.leases.holder_view import Send
from leasehold.leases.lease_table import LeasedResource, LeaseTable
from leasehold.leases.renewal_plan import Departure, NoticeKind, RenewalPlan
from leasehold.testing import HostClock
from tests.simulation import keepalive, scenarios
from tests.simulation.remote import RemoteLease

Patch = AbstractContextManager[object]


@dataclass(frozen=True)
class SeededBug:
    """A mistake, how to make it, and the run that it must not survive."""

    name: str
    make: Callable[[], Patch]
    scenario: Callable[[int], object]


# In the grantor.


def _lease_time_runs_fast() -> Patch:
    original = LeaseClock.advance
    return patch.object(LeaseClock, "advance", lambda self, now: original(self, now * 1.01))


def _time_runs_on_in_a_stall() -> Patch:
    return patch.object(LeaseClock, "advance", LeaseClock.elapse)


def _ends_before_waiting_renewals_are_read() -> Patch:
    original = LeaseClock._cut

    def cut(self: LeaseClock, cut_s: float) -> None:
        original(self, cut_s)
        self.may_end = True

    return patch.object(LeaseClock, "_cut", cut)


def _no_grace_after_a_long_stall() -> Patch:
    return patch.object(LeaseClock, "earliest_end", lambda _self, _term_s: -NEVER)


def _a_renewed_lease_drops_out_of_the_queue() -> Patch:
    original = ExpiryQueue.pop_due

    def pop_due(self: Any, now: float, budget: int) -> list[Any]:
        while self._heap and self._heap[0][0] <= now:
            _, ticket, key = self._heap[0]
            item = self._table.get(key)
            if item is None or item.ticket != ticket or item.deadline <= now:
                break
            self._heap.pop(0)
            self._unqueue(item)
        return original(self, now, budget)

    return patch.object(ExpiryQueue, "pop_due", pop_due)


def _an_ended_lease_stays_in_the_queue() -> Patch:
    return patch.object(ExpiryQueue, "_tidy", lambda _self: None)


def _an_owner_is_not_told_of_leases_found_dead() -> Patch:
    original = LeaseTable.expire

    def expire(self: Any, budget: int) -> bool:
        more = original(self, budget)
        if len(self.ended) > 1:
            self.ended.pop()
        return more

    return patch.object(LeaseTable, "expire", expire)


def _an_owner_is_told_twice() -> Patch:
    original: Any = LeaseTable._end

    def end(self: Any, leased: LeasedResource[Any], reason: EndReason) -> None:
        original(self, leased, reason)
        self.ended.append(self.ended[-1])

    return patch.object(LeaseTable, "_end", end)


def _a_renewal_adds_nothing() -> Patch:
    def renew(self: Any, cookie: Hashable, _requested: object) -> object:
        return duration_of(self.current(cookie).term_s)

    return patch.object(LeaseTable, "renew", renew)


# In the holder.


def _terms_count_from_the_answer() -> Patch:
    original = Lease.settle

    def settle(self: Lease, send: Send, outcome: Any) -> None:
        send.sent_at = self._clock.boottime()
        original(self, send, outcome)

    return patch.object(Lease, "settle", settle)


def _holders_count_on_a_clock_that_sleeps() -> Patch:
    return patch.object(HostClock, "boottime", HostClock.monotonic)


def _no_margin_for_drifting_clocks() -> Patch:
    return patch.object(RemoteLease, "margin", 0.0)


def _an_answer_is_credited_to_a_later_send() -> Patch:
    def sent(self: Any, key: Hashable, send: object) -> bool:
        self._outstanding[key] = send
        return True

    return patch.object(SendLedger, "sent", sent)


def _a_new_connection_inherits_old_sends() -> Patch:
    shared: dict[Any, Any] = {}

    def init(self: Any) -> None:
        self._outstanding = shared

    return patch.multiple(SendLedger, __init__=init, broken=lambda _self: [])


# In the renewal manager.


def _definite_errors_are_retried() -> Patch:
    return patch.object(renewal_plan, "is_definite", lambda _error: False)


def _indefinite_errors_are_final() -> Patch:
    return patch.object(renewal_plan, "is_definite", lambda _error: True)


def _a_failed_renewal_is_never_retried() -> Patch:
    return patch.object(renewal_times, "retry_at", lambda *_args: NEVER)


def _renews_when_it_is_too_late() -> Patch:
    return patch.object(renewal_times, "lead_s", lambda _remaining_s, _rtt_s: 0.001)


def _renews_without_a_floor() -> Patch:
    return patch.multiple(renewal_times, RENEWAL_FLOOR=0.0, MIN_INTERVAL_S=0.0)


def _renews_one_by_one() -> Patch:
    return patch.object(renewal_plan, "MAX_BATCH", 1)


def _a_failure_is_noticed_and_kept() -> Patch:
    def depart(self: Any, managed: Any, kind: NoticeKind) -> Departure[Any]:
        return Departure(kind, managed.lease, managed.terms, managed.error)

    return patch.object(RenewalPlan, "_depart", depart)


def _a_lapse_is_not_noticed() -> Patch:
    original = RenewalPlan.step

    def step(self: Any, now: float, capacity: int) -> Any:
        return original(self, now, capacity)._replace(departures=[])

    return patch.object(RenewalPlan, "step", step)


def _a_sleeping_machine_sleeps_past_the_end() -> Patch:
    return patch.object(renewal_manager, "SUSPEND_CHECK_S", 1e6)


def _calls_wait_for_ever() -> Patch:
    return patch.multiple(renewal_plan, MAX_CALL_S=1e9, max=lambda *_values: 1e9, create=True)


SEEDED_BUGS = [
    SeededBug(make.__name__.strip("_"), make, scenario)
    for make, scenario in (
        (_lease_time_runs_fast, scenarios.stormy),
        (_time_runs_on_in_a_stall, scenarios.stall),
        (_ends_before_waiting_renewals_are_read, scenarios.brink),
        (_no_grace_after_a_long_stall, scenarios.stall),
        (_a_renewed_lease_drops_out_of_the_queue, scenarios.calm),
        (_an_ended_lease_stays_in_the_queue, scenarios.turnover),
        (_an_owner_is_not_told_of_leases_found_dead, scenarios.stormy),
        (_an_owner_is_told_twice, scenarios.stormy),
        (_a_renewal_adds_nothing, scenarios.calm),
        (_terms_count_from_the_answer, scenarios.stormy),
        (_holders_count_on_a_clock_that_sleeps, scenarios.stormy),
        (_no_margin_for_drifting_clocks, scenarios.stormy),
        (_an_answer_is_credited_to_a_later_send, keepalive.keep_alive),
        (_a_new_connection_inherits_old_sends, keepalive.keep_alive),
        (_definite_errors_are_retried, scenarios.refused),
        (_indefinite_errors_are_final, scenarios.calm),
        (_a_failed_renewal_is_never_retried, scenarios.calm),
        (_renews_when_it_is_too_late, scenarios.calm),
        (_renews_without_a_floor, scenarios.hurried),
        (_renews_one_by_one, scenarios.calm),
        (_a_failure_is_noticed_and_kept, scenarios.stormy),
        (_a_lapse_is_not_noticed, scenarios.stormy),
        (_a_sleeping_machine_sleeps_past_the_end, scenarios.stormy),
        (_calls_wait_for_ever, scenarios.stormy),
    )
]
