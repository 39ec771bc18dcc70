"""Bugs of holders to switch on, to see that the simulation finds them; as in `seeded_bugs`."""

import asyncio
from collections.abc import Hashable
from typing import Any
from unittest.mock import patch

from leasehold import HeldLease, Lease, LeaseLost
from leasehold.engine.remote.send_ledger import SendLedger
from leasehold.leases import renewal_times
from leasehold.leases.holder_view import Holding, Send
from leasehold.leases.renewal_times import SessionTiming, When
from leasehold.sessions import kept_lease
from leasehold.sessions.lease_keeper import Keeper
from leasehold.testing import HostClock
from tests.simulation import holders
from tests.simulation.seeded_bugs import Patch, SeededBug


def _a_renewal_counts_from_its_answer() -> Patch:
    original = Lease.settle

    def settle(self: Lease, send: Send, outcome: Any) -> None:
        send.sent_at = self._clock.boottime()
        original(self, send, outcome)

    return patch.object(Lease, "settle", settle)


def _a_grant_counts_from_its_answer() -> Patch:
    original = Lease.__init__

    def init(self: Any, granted: Any, *, sent_at: float, **named: Any) -> None:
        del sent_at
        original(self, granted, **named)

    return patch.object(Lease, "__init__", init)


def _the_signal_is_trusted_instead_of_the_clock() -> Patch:
    def check(self: HeldLease) -> None:
        if self.lost or self.is_ended:
            raise LeaseLost(self.id, "so it was told")

    return patch.object(HeldLease, "check", check)


def _no_margin() -> Patch:
    return patch.object(kept_lease, "session_margin_s", 0.0)


def _counts_on_a_clock_that_sleeps() -> Patch:
    return patch.object(HostClock, "boottime", HostClock.monotonic)


def _an_answer_is_credited_to_a_later_send() -> Patch:
    def sent(self: Any, key: Hashable, send: object) -> bool:
        self._outstanding[key] = send
        return True

    return patch.multiple(SendLedger, sent=sent, __contains__=lambda _self, _key: False)


def _an_answer_is_credited_to_the_last_send() -> Patch:
    original = Holding.answered

    def answered(self: Holding, send: Send, granted: Any) -> None:
        send.sent_at = self.last_sent_at
        original(self, send, granted)

    return patch.object(Holding, "answered", answered)


def _a_renewal_is_not_tried_again() -> Patch:
    def retry(_self: SessionTiming, now: float, *_rest: float) -> When:
        return When(now + 1e9, now + 1e9)

    return patch.object(SessionTiming, "retry", retry)


def _renews_late() -> Patch:
    return patch.multiple(renewal_times, SESSION_RENEW=0.8, SESSION_ALONG=0.8)


def _waits_for_an_answer_until_the_end() -> Patch:
    return patch.object(SessionTiming, "call_timeout_s", lambda _self, left_s: left_s)


def _a_grant_without_an_answer_is_forgotten() -> Patch:
    return patch.object(Keeper, "_end_later", lambda *_args, **_named: None)


def _a_client_leaves_its_leases() -> Patch:
    async def close(self: Any) -> None:
        self._manager.close()
        await asyncio.sleep(0)

    return patch.object(Keeper, "close", close)


HOLDER_BUGS = [
    SeededBug(make.__name__.strip("_"), make, scenario)
    for make, scenario in (
        (_a_renewal_counts_from_its_answer, holders.late_answers),
        (_a_grant_counts_from_its_answer, holders.storms),
        (_the_signal_is_trusted_instead_of_the_clock, holders.storms),
        (_no_margin, holders.storms),
        (_counts_on_a_clock_that_sleeps, holders.storms),
        (_an_answer_is_credited_to_a_later_send, holders.late_answers),
        (_an_answer_is_credited_to_the_last_send, holders.late_answers),
        (_a_renewal_is_not_tried_again, holders.short_outages),
        (_renews_late, holders.short_outages),
        (_waits_for_an_answer_until_the_end, holders.short_outages),
        (_a_grant_without_an_answer_is_forgotten, holders.hasty),
        (_a_client_leaves_its_leases, holders.short_outages),
    )
]
