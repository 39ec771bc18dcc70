"""Durations, and the two that are not numbers.

`ANY` leaves the choice to the grantor, `FOREVER` never ends. Both are sentinels: a number that
stands for "very long" ends in an overflow sooner or later. `now + FOREVER` is `FOREVER`, and so is
`FOREVER - now`; no other arithmetic is defined for either.

Internally an *end* is a float, and a lease that never ends has the end `NEVER` (IEEE infinity,
which saturates and orders after every other end). The functions below convert between sentinels and
`NEVER`. In the public API `NEVER` occurs in `LeasePolicy.bound_s` only.
"""

import enum
import math
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias


class Forever(enum.Enum):
    """The type of `FOREVER`."""

    FOREVER = "FOREVER"

    def __repr__(self) -> str:
        return "FOREVER"

    __str__ = __repr__

    def __add__(self, other: object) -> "Forever":
        return self if isinstance(other, int | float | timedelta | datetime) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: object) -> "Forever":
        return self.__add__(other)


class AnyDuration(enum.Enum):
    """The type of `ANY`."""

    ANY = "ANY"

    def __repr__(self) -> str:
        return "ANY"

    __str__ = __repr__


FOREVER: Final = Forever.FOREVER
ANY: Final = AnyDuration.ANY
NEVER: Final = math.inf

Duration: TypeAlias = float | Forever
"""A length of time that was granted or measured: seconds, or `FOREVER`."""

Requested: TypeAlias = float | Forever | AnyDuration
"""A length of time that is requested, checked: seconds, `FOREVER` or `ANY`."""

DurationLike: TypeAlias = float | timedelta | Forever | AnyDuration
"""The types that callers may pass for a duration."""

End: TypeAlias = datetime | Forever
"""A point in time at the API: an aware datetime, or `FOREVER`."""

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def check_requested(
    value: DurationLike, name: str = "duration", *, sentinels: str = "FOREVER or ANY"
) -> Requested:
    """Return `value` as a float or a sentinel; raise TypeError or ValueError.

    `sentinels` names those that are allowed here, for messages.
    """
    if type(value) is float and 0.0 < value < NEVER:  # almost every call
        return value
    if value is ANY or value is FOREVER:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        more = (
            f", a timedelta, {sentinels}"
            if " or " in sentinels
            else f", a timedelta or {sentinels}"
        )
        forms = f"seconds (int or float){more if sentinels else ' or a timedelta'}"
        raise TypeError(f"{name} must be {forms}, not {value!r}")
    no_end = "; for no end use FOREVER" if "FOREVER" in sentinels else ""
    choice = "; to leave the choice use ANY" if "ANY" in sentinels else ""
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond what a float can hold{no_end}") from None
    if math.isnan(seconds):
        raise ValueError(f"{name} must be a number of seconds, not NaN")
    if math.isinf(seconds):
        raise ValueError(f"{name} must be finite, not {value!r}{no_end}")
    if seconds < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}{choice}")
    return seconds + 0.0  # a negative zero becomes zero


def check_positive(
    value: DurationLike, name: str = "duration", *, sentinels: str = "FOREVER or ANY"
) -> Requested:
    """Like `check_requested`, and refuse zero."""
    requested = check_requested(value, name, sentinels=sentinels)
    if requested == 0.0:
        raise ValueError(f"{name} must be more than zero")
    return requested


def check_duration(
    value: DurationLike, name: str = "duration", *, sentinels: str = "FOREVER"
) -> Duration:
    """Like `check_positive`, and refuse ANY."""
    requested = check_positive(value, name, sentinels=sentinels)
    if requested is ANY:
        raise ValueError(f"{name} must be a length of time; ANY is not allowed here")
    return requested


def check_seconds(value: float | timedelta, name: str) -> float:
    """Like `check_duration`, and refuse FOREVER: for settings that must be finite."""
    seconds = check_duration(value, name, sentinels="")
    if seconds is FOREVER:
        raise ValueError(f"{name} must be finite; FOREVER is not allowed here")
    return seconds


def seconds_of(duration: Duration) -> float:
    """Convert a duration to seconds, with `NEVER` for FOREVER."""
    return NEVER if duration is FOREVER else duration


def duration_of(seconds: float) -> Duration:
    """Convert seconds to a duration, with FOREVER for `NEVER`."""
    return FOREVER if seconds == NEVER else seconds


def check_end(value: End, name: str = "end") -> End:
    """Raise unless `value` is an aware datetime or FOREVER."""
    if value is FOREVER:
        return value
    if not isinstance(value, datetime):
        raise TypeError(
            f"{name} must be an aware datetime or FOREVER, not {value!r}; a duration is not "
            "accepted here"
        )
    if value.utcoffset() is None:
        raise ValueError(
            f"{name} must be an aware datetime, as datetime.now(UTC); {value!r} has no time zone"
        )
    return value


def datetime_of(unix_seconds: float) -> End:
    """Convert a Unix time to an aware datetime, clamped to the range of datetime.

    The latest is earlier than the true end, which is the safe side for a holder; an end before the
    earliest has passed either way.
    """
    if unix_seconds == NEVER:
        return FOREVER
    try:
        return datetime.fromtimestamp(unix_seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return _LATEST if unix_seconds > 0.0 else _EARLIEST


WIRE_ANY_MS: Final = -1
WIRE_FOREVER_MS: Final = -2
WIRE_MAX_MS: Final = 2**63 - 1


def to_wire_ms(requested: Requested) -> int:
    """Encode a duration as the `ttl_ms` of our wire: an int64, with negative values for sentinels.

    Rounded down, since a holder must never count on more than it has, but a positive duration never
    becomes zero: that would end a lease. A number beyond the int64 is clamped to its maximum.
    """
    if requested is ANY:
        return WIRE_ANY_MS
    if requested is FOREVER:
        return WIRE_FOREVER_MS
    if requested == 0.0:
        return 0
    scaled = requested * 1000.0
    if scaled >= WIRE_MAX_MS:
        return WIRE_MAX_MS
    nearest = round(scaled)  # 1.001 * 1000.0 is less than 1001, but 1001 / 1000.0 is 1.001
    return max(1, nearest if nearest / 1000.0 <= requested else nearest - 1)


def from_wire_ms(ttl_ms: int) -> Requested:
    """Decode a result of `to_wire_ms`; other negative values are refused."""
    if ttl_ms == WIRE_ANY_MS:
        return ANY
    if ttl_ms == WIRE_FOREVER_MS:
        return FOREVER
    if not 0 <= ttl_ms <= WIRE_MAX_MS:
        raise ValueError(
            f"ttl_ms must be from 0 to 2**63-1, -1 (ANY) or -2 (FOREVER), got {ttl_ms}"
        )
    return ttl_ms / 1000.0
