"""Durations, ends, the two sentinels, and their form on the wire."""

import copy
import math
import operator
import pickle
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from leasehold import ANY, FOREVER
from leasehold.basics.durations import (
    NEVER,
    WIRE_ANY_MS,
    WIRE_FOREVER_MS,
    WIRE_MAX_MS,
    Requested,
    check_duration,
    check_end,
    check_positive,
    check_requested,
    check_seconds,
    datetime_of,
    duration_of,
    from_wire_ms,
    seconds_of,
    to_wire_ms,
)

CHECKS: list[Any] = [check_requested, check_positive, check_duration, check_seconds]
WHEN = datetime(2025, 6, 15, tzinfo=UTC)


class NoOffset(tzinfo):
    """A time zone that does not know its offset, which makes a datetime naive."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> str:
        return "nowhere"


@pytest.mark.parametrize("now", [0, 1.5, -3.0, 1e308, 10**400, timedelta(days=1), WHEN])
def test_now_plus_forever_is_forever(now: Any) -> None:
    assert now + FOREVER is FOREVER
    assert FOREVER + now is FOREVER
    assert FOREVER - now is FOREVER


@pytest.mark.parametrize("now", [0, 1.5, timedelta(days=1), WHEN])
def test_nothing_can_be_reckoned_with_any(now: Any) -> None:
    for left, right in ((now, ANY), (ANY, now)):
        for operation in (operator.add, operator.sub, operator.mul):
            with pytest.raises(TypeError):
                operation(left, right)


@pytest.mark.parametrize("sentinel", [ANY, FOREVER])
@pytest.mark.parametrize("number", [0, -1, -2, math.inf, 2**63 - 1])
def test_a_sentinel_is_not_a_number(sentinel: Any, number: float) -> None:
    assert sentinel != number
    assert not isinstance(sentinel, int | float)
    with pytest.raises(TypeError):
        float(sentinel)
    with pytest.raises(TypeError):
        _ = sentinel < number


@pytest.mark.parametrize("sentinel", [ANY, FOREVER])
def test_a_sentinel_stays_itself_when_copied_or_pickled(sentinel: object) -> None:
    assert copy.deepcopy(sentinel) is sentinel
    assert copy.copy(sentinel) is sentinel
    assert pickle.loads(pickle.dumps(sentinel)) is sentinel  # noqa: S301  our own bytes


def test_sentinels_show_their_names() -> None:
    assert [repr(ANY), str(ANY), repr(FOREVER), str(FOREVER)] == [
        "ANY",
        "ANY",
        "FOREVER",
        "FOREVER",
    ]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (10, 10.0),
        (0.25, 0.25),
        (5e-324, 5e-324),
        (1.7e308, 1.7e308),
        (timedelta(minutes=1), 60.0),
        (timedelta(microseconds=1), 1e-6),
    ],
)
@pytest.mark.parametrize("check", CHECKS)
def test_seconds_and_timedeltas_become_float_seconds(
    check: Any, value: Any, seconds: float
) -> None:
    checked = check(value, "it")
    assert (checked, type(checked)) == (seconds, float)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, timedelta(0)])
def test_zero_is_asked_for_only_where_it_is_allowed(zero: Any) -> None:
    assert math.copysign(1.0, check_requested(zero)) == 1.0  # type: ignore[arg-type]
    for check in CHECKS[1:]:
        with pytest.raises(ValueError, match="it must be more than zero"):
            check(zero, "it")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", [None, "10", True, False, 1j, [1.0], WHEN, object()])
def test_what_is_no_duration_is_a_type_error_that_names_it(check: Any, value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        check(value, "ttl")
    assert "ttl must be seconds" in str(caught.value)
    assert repr(value) in str(caught.value)


def is_allowed(sentinel: Any, check: Any) -> bool:
    try:
        check(sentinel, "ttl")
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("check", CHECKS)
def test_a_wrong_type_is_told_which_sentinels_are_allowed(check: Any) -> None:
    with pytest.raises(TypeError) as caught:
        check("5", "ttl")
    for sentinel in (FOREVER, ANY):
        assert (repr(sentinel) in str(caught.value)) == is_allowed(sentinel, check)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "not NaN"),
        (math.inf, "must be finite, not inf; for no end use FOREVER"),
        (-math.inf, "must be finite, not -inf; for no end use FOREVER"),
        (-1, "must not be negative, got -1; to leave the choice use ANY"),
        (-1e308, "must not be negative, got -1e+308; to leave the choice use ANY"),
        (-5e-324, "must not be negative, got -5e-324; to leave the choice use ANY"),
        (timedelta.min, "must not be negative, got datetime.timedelta(days=-999999999); use ANY"),
        (10**400, "beyond what a float can hold; for no end use FOREVER"),
        (-(10**400), "beyond what a float can hold; for no end use FOREVER"),
    ],
)
def test_nan_infinity_and_negative_durations_are_value_errors(
    check: Any, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^ttl ") as caught:
        check(value, "ttl")
    assert message.partition(";")[0] in str(caught.value)
    for sentinel in (FOREVER, ANY):
        is_recommended = f"use {sentinel!r}" in str(caught.value)
        assert is_recommended == (f"use {sentinel!r}" in message and is_allowed(sentinel, check))


@pytest.mark.parametrize(
    ("sentinel", "check", "allowed"),
    [
        (ANY, check_requested, True),
        (ANY, check_positive, True),
        (ANY, check_duration, False),
        (ANY, check_seconds, False),
        (FOREVER, check_requested, True),
        (FOREVER, check_positive, True),
        (FOREVER, check_duration, True),
        (FOREVER, check_seconds, False),
    ],
)
def test_each_sentinel_is_taken_only_where_it_has_a_meaning(
    sentinel: Any, check: Any, allowed: bool
) -> None:
    if allowed:
        assert check(sentinel, "ttl") is sentinel
        return
    with pytest.raises(ValueError, match=f"^ttl must be .*{sentinel} is not allowed here"):
        check(sentinel, "ttl")


@pytest.mark.parametrize(("duration", "seconds"), [(FOREVER, NEVER), (0.0, 0.0), (7.5, 7.5)])
def test_seconds_of_and_duration_of_undo_each_other(duration: Any, seconds: float) -> None:
    assert seconds_of(duration) == seconds
    assert duration_of(seconds) == duration


@pytest.mark.parametrize(
    "end",
    [
        FOREVER,
        WHEN,
        WHEN.astimezone(timezone(timedelta(hours=-7))),
        datetime.max.replace(tzinfo=UTC),
    ],
)
def test_an_end_is_an_aware_datetime_or_forever(end: Any) -> None:
    assert check_end(end) is end


@pytest.mark.parametrize("value", [None, ANY, 10.0, "2025-06-15", timedelta(1), WHEN.date()])
def test_what_is_no_end_is_a_type_error_that_names_it(value: Any) -> None:
    with pytest.raises(
        TypeError, match="desired_end must be an aware datetime or FOREVER"
    ) as caught:
        check_end(value, "desired_end")
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [datetime(2025, 6, 15), datetime(2025, 6, 15, tzinfo=NoOffset())])  # noqa: DTZ001
def test_a_naive_datetime_is_a_value_error_that_names_it(value: datetime) -> None:
    with pytest.raises(ValueError, match="has no time zone") as caught:
        check_end(value)
    assert repr(value) in str(caught.value)


def test_a_wall_clock_end_becomes_an_aware_datetime_in_utc() -> None:
    assert datetime_of(WHEN.timestamp()) == WHEN
    assert datetime_of(NEVER) is FOREVER


@pytest.mark.parametrize("seconds", [1e12, 1e18, 1.7e308])
def test_an_end_beyond_all_datetimes_becomes_the_latest_which_is_earlier_than_the_truth(
    seconds: float,
) -> None:
    assert datetime_of(seconds) == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("seconds", [-1e12, -1e18, -1.7e308])
def test_an_end_before_all_datetimes_does_not_become_a_late_one(seconds: float) -> None:
    assert datetime_of(seconds) == datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("requested", "ttl_ms"),
    [
        (ANY, WIRE_ANY_MS),
        (FOREVER, WIRE_FOREVER_MS),
        (0.0, 0),
        (0.001, 1),
        (10.0, 10_000),
        (1.001, 1_001),
        (300.0, 300_000),
    ],
)
def test_a_duration_goes_over_the_wire_and_back(requested: Requested, ttl_ms: int) -> None:
    assert to_wire_ms(requested) == ttl_ms
    assert from_wire_ms(ttl_ms) == requested


def test_the_wire_values_of_the_sentinels_are_their_own() -> None:
    assert (WIRE_ANY_MS, WIRE_FOREVER_MS) == (-1, -2)


def test_whole_milliseconds_survive_any_number_of_hops() -> None:
    for ttl_ms in (*range(10_000), 999_999_999, 1_700_000_000_123):
        assert to_wire_ms(from_wire_ms(ttl_ms)) == ttl_ms


@pytest.mark.parametrize("seconds", [0.0019, 1.0009999, 2.9999999, 1e6 + 0.0004])
def test_the_wire_rounds_down_since_a_holder_must_not_count_on_more_than_it_has(
    seconds: float,
) -> None:
    decoded = from_wire_ms(to_wire_ms(seconds))
    assert isinstance(decoded, float)
    assert seconds - 0.001 < decoded <= seconds


@pytest.mark.parametrize("seconds", [5e-324, 1e-9, 0.00099])
def test_what_is_not_zero_never_becomes_zero_on_the_wire(seconds: float) -> None:
    assert to_wire_ms(seconds) == 1


@pytest.mark.parametrize("seconds", [1e16, 1e300, 1.7e308])
def test_a_duration_beyond_the_wire_is_held_at_its_maximum(seconds: float) -> None:
    assert to_wire_ms(seconds) == WIRE_MAX_MS
    assert from_wire_ms(WIRE_MAX_MS) == WIRE_MAX_MS / 1000.0


@pytest.mark.parametrize("ttl_ms", [-3, -(2**63), 2**63])
def test_other_values_on_the_wire_are_refused_by_name(ttl_ms: int) -> None:
    with pytest.raises(ValueError, match=f"got {ttl_ms}$"):
        from_wire_ms(ttl_ms)


@pytest.mark.parametrize("other", [None, "5", ANY, FOREVER])
def test_no_other_arithmetic_is_defined_for_forever(other: Any) -> None:
    with pytest.raises(TypeError):
        FOREVER + other
    with pytest.raises(TypeError):
        FOREVER - other
