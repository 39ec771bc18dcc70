"""When to renew a lease, and when to try again.

The steps are Jini's, in units of `rtt_s`, the time allowed for a round trip, with one addition: two
requests for the same lease are never closer than a floor. Jini's rules ask for the next renewal
"at once" where a term is shorter than the round trip, which is a tight loop.
"""

from typing import Final

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S

RENEWAL_FLOOR: Final = 1 / 3
"""The part of a term that must have passed since the last send before it is renewed."""

RETRY_FLOOR: Final = 1 / 10
"""The part of the shorter of term and round trip that lies between two attempts."""

MIN_INTERVAL_S: Final = 0.005
"""No two requests for one lease are closer than this, whatever its term."""


def lead_s(remaining_s: float, rtt_s: float) -> float:
    """How long before its end a lease with this much left is to be renewed."""
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
    """How long to wait after an indefinite failure, with this much left to the actual end."""
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
    """Before when not to renew a lease that was last asked for at `sent_at` and ends at `end`."""
    return sent_at + max(MIN_INTERVAL_S, (end - sent_at) * RENEWAL_FLOOR)


def renew_at(now: float, sent_at: float, end: float, rtt_s: float) -> float:
    """When to renew a lease that was last asked for at `sent_at` and ends at `end`."""
    return max(end - lead_s(end - now, rtt_s), renew_floor(sent_at, end))


def retry_floor(sent_at: float, term_s: float, rtt_s: float) -> float:
    """Before when not to try again after the attempt sent at `sent_at` failed indefinitely."""
    return sent_at + max(MIN_INTERVAL_S, min(rtt_s, term_s) * RETRY_FLOOR)


def retry_at(now: float, sent_at: float, end: float, term_s: float, rtt_s: float) -> float:
    """When to try again after the attempt sent at `sent_at` failed indefinitely at `now`."""
    return max(now + retry_delay_s(end - now, rtt_s), retry_floor(sent_at, term_s, rtt_s))
