"""Durations, their value on the wire, and leases as bytes: round trips and damage."""

import math
import struct
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    NEVER,
    WIRE_MAX_MS,
    Duration,
    DurationLike,
    Requested,
    check_duration,
    check_positive,
    check_requested,
    check_seconds,
    datetime_of,
    duration_of,
    from_wire_ms,
    seconds_of,
    to_wire_ms,
)
from leasehold.landlord.landlord import Landlord
from leasehold.leases import lease_codec
from leasehold.leases.expiry_strategies import lazy
from leasehold.leases.policies import DurationPolicy
from leasehold.testing import VirtualClock
from tests.property.support import bad_durations, effort, naive_seconds, positive

lengths = st.floats(0.0, allow_nan=False, allow_infinity=False)
sentinels: st.SearchStrategy[Requested] = st.sampled_from([ANY, FOREVER])


@given(st.one_of(positive, lengths, st.integers(0, 10**300), st.timedeltas(timedelta(0))))
def test_a_good_duration_keeps_its_value(value: DurationLike) -> None:
    checked = check_requested(value)
    assert checked == naive_seconds(value)
    assert checked in (ANY, FOREVER) or type(checked) is float
    assert check_requested(checked) == checked


@given(bad_durations)
def test_nan_bool_infinity_and_negative_durations_are_refused(value: DurationLike) -> None:
    for check in (check_requested, check_positive, check_duration):
        with pytest.raises((TypeError, ValueError)):
            check(value)
    with pytest.raises((TypeError, ValueError)):
        check_seconds(value, "x")  # type: ignore[arg-type]


@given(st.floats() | st.integers() | st.timedeltas())
def test_a_number_is_a_duration_exactly_if_it_is_finite_and_not_negative(
    value: float | timedelta,
) -> None:
    seconds = value / timedelta(seconds=1) if isinstance(value, timedelta) else value
    good = seconds >= 0 and seconds <= 1.7976931348623157e308
    try:
        checked = check_requested(value)
    except ValueError:
        assert not good
    else:
        assert good
        assert isinstance(checked, float)
        assert math.copysign(1.0, checked) == 1.0  # no negative zero


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, timedelta(0)])
def test_zero_is_a_request_but_no_length_of_a_grant(zero: DurationLike) -> None:
    assert check_requested(zero) == 0.0
    with pytest.raises(ValueError, match="more than zero"):
        check_positive(zero)


@given(lengths | st.timedeltas() | st.just(math.inf))
def test_forever_never_takes_part_in_arithmetic(other: float | timedelta) -> None:
    assert FOREVER + other is FOREVER
    assert other + FOREVER is FOREVER
    assert FOREVER - other is FOREVER


@given(lengths | st.just(FOREVER))
def test_core_form_round_trips(duration: Duration) -> None:
    assert duration_of(seconds_of(duration)) == duration


@given(lengths | sentinels)
@example(5e-324)
@example(0.0009999)
@example(2.0**63 / 1000)
@example(1.7976931348623157e308)
def test_the_wire_never_makes_a_duration_longer_nor_zero(duration: Requested) -> None:
    ttl_ms = to_wire_ms(duration)
    assert -(2**63) <= ttl_ms < 2**63
    arrived = from_wire_ms(ttl_ms)
    if not isinstance(duration, float):
        assert arrived is duration
        return
    assert isinstance(arrived, float)
    assert (arrived == 0.0) == (duration == 0.0)
    if duration >= 0.001:
        assert arrived <= duration
        assert duration - arrived <= 0.001 + duration * 1e-15 or ttl_ms == WIRE_MAX_MS
    else:
        assert arrived <= 0.001


@given(st.integers(0, WIRE_MAX_MS))
def test_what_came_over_the_wire_never_grows_when_sent_on(ttl_ms: int) -> None:
    """Relaying must not lose a millisecond each time either, as far as a float can say it."""
    once = to_wire_ms(from_wire_ms(ttl_ms))
    if ttl_ms <= 2**53:
        assert once <= ttl_ms
        assert once >= ttl_ms - 1
    assert abs(once - ttl_ms) <= max(1, ttl_ms * 2.0**-52)


@given(st.integers())
def test_other_negative_and_oversized_wire_values_are_refused(ttl_ms: int) -> None:
    assume(ttl_ms < -2 or ttl_ms > WIRE_MAX_MS)
    with pytest.raises(ValueError, match="ttl_ms"):
        from_wire_ms(ttl_ms)


@given(st.floats(allow_nan=False, min_value=-1e11, max_value=NEVER))
def test_an_end_as_a_datetime_is_aware_and_never_later(unix_seconds: float) -> None:
    end = datetime_of(unix_seconds)
    if unix_seconds == NEVER:
        assert end is FOREVER
        return
    assert isinstance(end, datetime)
    assert end.utcoffset() == timedelta(0)
    latest = datetime.max.replace(tzinfo=UTC).timestamp()
    if 0.0 <= unix_seconds < latest - 1:
        assert abs(end.timestamp() - unix_seconds) < 1e-4


# Leases as bytes.

names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.binary(max_size=40),
    st.integers(),
    st.sampled_from([0, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 2**2000, -(2**2000)]),
)
ends = st.floats(allow_nan=False).filter(lambda end: end != -math.inf)
records = st.builds(
    lease_codec.EncodedLease, st.sampled_from(lease_codec.EncodedEnd), ends, names, names
)


@given(records)
def test_both_forms_round_trip(record: lease_codec.EncodedLease) -> None:
    decoded = lease_codec.decode(lease_codec.encode(record))
    assert decoded == record
    assert type(decoded.grantor) is type(record.grantor)
    assert type(decoded.cookie) is type(record.cookie)


@given(st.sampled_from(["duration", "absolute"]), st.floats(0.001, 1e9) | st.just(FOREVER))
def test_a_lease_comes_back_from_its_bytes(form: str, duration: float) -> None:
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(DurationPolicy(FOREVER, 1.0), expiry=lazy(), clock=clock)
    lease = landlord.grant("thing", duration)
    again = landlord.lease_from_bytes(lease.to_bytes(form))  # type: ignore[arg-type]
    assert again == lease
    assert hash(again) == hash(lease)
    if lease.remaining is FOREVER:
        assert again.remaining is FOREVER
    else:
        assert again.remaining == pytest.approx(lease.remaining, abs=1e-6)


@given(records, st.data())
@effort(300)
def test_damage_is_a_value_error_and_nothing_else(
    record: lease_codec.EncodedLease, data: st.DataObject
) -> None:
    good = lease_codec.encode(record)
    damaged = bytearray(good)
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "insert", "drop", "swap"]))
    at = data.draw(st.integers(0, len(good) - 1))
    match kind:
        case "flip":
            damaged[at] ^= data.draw(st.integers(1, 255))
        case "cut":
            del damaged[at:]
        case "grow":
            damaged += data.draw(st.binary(min_size=1, max_size=9))
        case "insert":
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        case "drop":
            del damaged[at]
        case "swap":
            damaged[at], damaged[0] = damaged[0], damaged[at]
    assume(damaged != good)
    with pytest.raises(ValueError, match="lease"):
        lease_codec.decode(bytes(damaged))


def _sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


@given(records, st.data())
@effort(300)
def test_damage_under_a_right_checksum_is_a_value_error_or_a_lease(
    record: lease_codec.EncodedLease, data: st.DataObject
) -> None:
    """A checksum keeps out accidents, not malice: the parser must stand by itself."""
    body = bytearray(lease_codec.encode(record)[:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body))) :]
    if data.draw(st.booleans()):
        body += data.draw(st.binary(max_size=12))
    try:
        decoded = lease_codec.decode(_sealed(bytes(body)))
    except ValueError:
        return
    assert lease_codec.decode(lease_codec.encode(decoded)) == decoded
    assert not math.isnan(decoded.end_s)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_value_error(junk: bytes) -> None:
    for data in (junk, lease_codec.MAGIC + junk, _sealed(lease_codec.MAGIC + b"\x01\x01" + junk)):
        try:
            lease_codec.decode(data)
        except ValueError:
            continue
        assert data[:2] == lease_codec.MAGIC


@given(st.sampled_from([None, 1.5, (1, 2), True, frozenset()]), st.booleans())
def test_a_name_of_another_kind_is_refused(name: object, as_grantor: bool) -> None:
    grantor, cookie = (name, "c") if as_grantor else ("g", name)
    with pytest.raises(TypeError, match="bytes, str or int"):
        lease_codec.encode(
            lease_codec.EncodedLease(lease_codec.EncodedEnd.DURATION, 1.0, grantor, cookie)
        )


def test_too_many_bytes_are_refused_both_ways() -> None:
    record = lease_codec.EncodedLease(
        lease_codec.EncodedEnd.DURATION, 1.0, b"g", b"c" * lease_codec.MAX_LEASE_BYTES
    )
    with pytest.raises(ValueError, match="at most"):
        lease_codec.encode(record)
    with pytest.raises(ValueError, match="at most"):
        lease_codec.decode(_sealed(b"LH\x01\x01" + bytes(lease_codec.MAX_LEASE_BYTES)))
