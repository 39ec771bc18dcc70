"""When to renew a lease, and when to retry: two timings.

`BatchTiming` is Jini's, in units of `rtt_s`, the time allowed for a round trip, with one
addition: two requests for the same lease are never closer than a floor. Jini's rules request the
next renewal immediately where a term is shorter than the round trip, which is a tight loop.

`SessionTiming` is for holders whose end other processes wait for: early, with quick retries.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S

RENEWAL_FLOOR: Final = 1 / 3
"""The part of a term that must have passed since the last send before it is renewed."""

RETRY_FLOOR: Final = 1 / 10
"""The interval between two attempts, as a part of the shorter of term and round trip."""

MIN_INTERVAL_S: Final = 0.005
"""No two requests for one lease are closer than this, whatever its term."""


def lead_s(remaining_s: float, rtt_s: float) -> float:
    """Return how long before its end a lease with this much left is to be renewed."""
    if remaining_s <= 2 * rtt_s:
        return rtt_s
    if remaining_s <= 8 * rtt_s:
        return remaining_s / 2
    if remaining_s <= WEEK_S:
        return remaining_s / 8
    if remaining_s <= 2 * WEEK_S:
        return DAY_S
    return 3 * DAY_S


def retry_delay_s(left_s: float, rtt_s: float) -> float:
    """Return how long to wait after an indefinite failure, with this much left to the end."""
    if left_s <= rtt_s:
        return 0.0
    if left_s <= 3 * rtt_s:
        return rtt_s
    if left_s <= HOUR_S:
        return left_s / 3
    if left_s <= DAY_S:
        return HOUR_S / 2
    if left_s <= WEEK_S:
        return 3 * HOUR_S
    return 8 * HOUR_S


def renew_floor(sent_at: float, end: float) -> float:
    """Return the earliest time to renew a lease last requested at `sent_at` that ends at `end`."""
    return sent_at + max(MIN_INTERVAL_S, (end - sent_at) * RENEWAL_FLOOR)


def renew_at(now: float, sent_at: float, end: float, rtt_s: float) -> float:
    """Return when to renew a lease last requested at `sent_at` that ends at `end`."""
    return max(end - lead_s(end - now, rtt_s), renew_floor(sent_at, end))


def retry_floor(sent_at: float, term_s: float, rtt_s: float) -> float:
    """Return the earliest time to retry after the attempt sent at `sent_at` failed indefinitely."""
    return sent_at + max(MIN_INTERVAL_S, min(rtt_s, term_s) * RETRY_FLOOR)


def retry_at(now: float, sent_at: float, end: float, term_s: float, rtt_s: float) -> float:
    """Return when to retry after the attempt sent at `sent_at` failed indefinitely at `now`."""
    return max(now + retry_delay_s(end - now, rtt_s), retry_floor(sent_at, term_s, rtt_s))


class When(NamedTuple):
    """When a lease is to be renewed, and from when on it may be renewed along with another one."""

    due_at: float
    batchable_at: float


class Timing(Protocol):
    """Decides when leases are renewed. All times are the holder's."""

    def renew(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan the renewal of a lease that was last requested at `sent_at`."""
        ...

    def retry(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a retry, after the attempt of `sent_at` failed indefinitely at `now`."""
        ...

    def call_timeout_s(self, left_s: float) -> float:
        """Return how long to wait for an answer, with this much left."""
        ...


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """Renews late, together with leases that will be due within the batch window."""

    rtt_s: float
    batch_window_s: float

    def renew(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a renewal."""
        due_at = renew_at(now, sent_at, end, self.rtt_s)
        half_time = end - term_s / 2
        # The end may be nearer than the term suggests: the floor keeps the lease from joining every
        # call.
        floor = renew_floor(sent_at, end)
        return When(due_at, max(due_at - self.batch_window_s, half_time, floor))

    def retry(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a retry."""
        at = retry_at(now, sent_at, end, term_s, self.rtt_s)
        # It may be renewed with others once half of the wait is over: else leases that failed
        # together, with different ends, would each make a call of their own from then on.
        floor = retry_floor(sent_at, term_s, self.rtt_s)
        return When(at, max(now + (at - now) / 2, floor))

    def call_timeout_s(self, left_s: float) -> float:
        """Return a third of the remaining time, so that there is time for another attempt."""
        return max(self.rtt_s, left_s / 3)


SESSION_RENEW: Final = 1 / 3
"""The part of its term after which a session is renewed."""

SESSION_ALONG: Final = 1 / 4
"""The part after which it may be renewed along with others."""

SESSION_RETRY: Final = 1 / 20
SESSION_RETRY_MIN_S: Final = 0.05
JEOPARDY: Final = 1 / 3
"""If a renewal is not answered for this part of the term, the session is in jeopardy."""


@dataclass(frozen=True, slots=True)
class SessionTiming:
    """Renews after a third of a term, and retries every twentieth."""

    def renew(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a renewal."""
        del now, end
        floor = sent_at + MIN_INTERVAL_S
        due_at = max(sent_at + term_s * SESSION_RENEW, floor)
        return When(due_at, max(sent_at + term_s * SESSION_ALONG, floor))

    def retry(self, now: float, sent_at: float, end: float, term_s: float) -> When:
        """Plan a retry."""
        del end
        wait_s = max(SESSION_RETRY_MIN_S, term_s * SESSION_RETRY)
        at = max(now, sent_at + wait_s)
        return When(at, max(now, sent_at + wait_s / 2))

    def call_timeout_s(self, left_s: float) -> float:
        """Return half of the remaining time."""
        return max(SESSION_RETRY_MIN_S, left_s / 2)
