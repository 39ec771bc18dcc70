"""Arguments of calls of a renewal set, checked before anything is sent."""

import math
from datetime import timedelta

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    DurationLike,
    Requested,
    check_positive,
    check_requested,
    to_wire_ms,
)


def check_leased(duration: DurationLike, object_id: str | None, what: str) -> Requested:
    """Check the arguments that create an object, such as a set, or find one; return the duration.

    `what` names the object.
    """
    if object_id is None:
        return check_positive(duration)
    if not isinstance(object_id, str):
        raise TypeError(f"id must be a str, not {object_id!r}")
    if duration is not ANY:
        raise ValueError(
            f"duration applies only to a new {what}: renew the lease of an existing one instead"
        )
    return ANY


def desired_ms(desired: DurationLike) -> int:
    """Return a desired duration for the wire: anything below zero, and ANY, counts as zero."""
    if desired is ANY or _is_negative(desired):
        return 0
    return to_wire_ms(check_requested(desired, "desired_duration"))


def _is_negative(value: object) -> bool:
    if isinstance(value, timedelta):
        return value < timedelta(0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value < 0 and value != -math.inf


def renew_ms(renew: DurationLike, desired: DurationLike) -> int:
    """Return the duration of renewals for the wire."""
    requested = check_positive(renew, "renew_duration")
    if requested is ANY and desired is not FOREVER:
        raise ValueError("renew_duration may be ANY only with a desired_duration of FOREVER")
    return to_wire_ms(requested)


def min_warning_ms(min_warning: float | timedelta) -> int:
    """Return the time of a warning for the wire."""
    seconds = check_requested(min_warning, "min_warning", sentinels="")
    if not isinstance(seconds, float):
        raise ValueError(f"min_warning must be a number of seconds, not {seconds}")
    return to_wire_ms(seconds)
