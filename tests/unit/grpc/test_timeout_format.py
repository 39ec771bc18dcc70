"""How long a call may take, as gRPC writes it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.grpc.call_context import MAX_TIMEOUT_S, format_timeout, is_timeout, parse_timeout

FORM = re.compile(rb"[0-9]{1,8}[numSMH]")


@pytest.mark.parametrize(
    ("text", "timeout_s"),
    [(b"1S", 1.0), (b"0n", 0.0), (b"250m", 0.25), (b"2M", 120.0), (b"99999999H", MAX_TIMEOUT_S)],
)
def test_each_unit_is_read(text: bytes, timeout_s: float) -> None:
    assert parse_timeout(text) == timeout_s
    assert is_timeout(text)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"S", b"1", b"1s", b"-1S", b"+1S", b"1.5S", b" 1S", b"1S ", b"1S\n", b"123456789S"),
        *(b"1SS", b"1_0S", "\u0661S".encode(), b"0x1S", b"infS"),
    ],
)
def test_what_is_no_timeout_is_refused_and_shown(text: bytes) -> None:
    with pytest.raises(ValueError, match="malformed grpc-timeout: ") as refused:
        parse_timeout(text)
    assert repr(text) in str(refused.value)
    assert not is_timeout(text)


@settings(deadline=None, derandomize=True)
@given(st.floats(0, 1e12) | st.floats(0, 1e-6) | st.floats(0, 100))
def test_what_is_written_can_be_read_and_has_at_most_eight_digits(timeout_s: float) -> None:
    assert FORM.fullmatch(format_timeout(timeout_s))
    parse_timeout(format_timeout(timeout_s))


@settings(deadline=None, derandomize=True)
@given(st.floats(1e-9, MAX_TIMEOUT_S) | st.floats(1e-3, 1e3))
def test_a_timeout_is_never_written_shorter_and_at_most_a_tenth_longer(timeout_s: float) -> None:
    written_s = parse_timeout(format_timeout(timeout_s))
    assert timeout_s * (1 - 1e-6) <= written_s <= timeout_s * (1.1 + 1e-6) + 1e-9


@settings(deadline=None, derandomize=True)
@given(st.floats(1e-9, MAX_TIMEOUT_S))
def test_no_more_than_two_digits_tell_one_timeout_from_another(timeout_s: float) -> None:
    text = format_timeout(timeout_s)
    if text != b"99999999H":
        assert len(text[:-1].rstrip(b"0")) <= 2


def test_calls_with_the_same_budget_write_the_same_though_a_little_time_has_passed() -> None:
    written = {format_timeout(5.0 - index * 1e-4) for index in range(100)}
    assert written == {b"5000000u"}


@pytest.mark.parametrize(
    ("timeout_s", "text"),
    [(0.0, b"1n"), (1e-12, b"1n"), (0.099, b"99000000n"), (0.1, b"100000u"), (1e15, b"99999999H")],
)
def test_the_smallest_unit_that_has_room_is_written(timeout_s: float, text: bytes) -> None:
    assert format_timeout(timeout_s) == text
