"""What is written on a command line: ids of leases, times, numbers, addresses."""

from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.basics.durations import FOREVER
from leasehold.cli import argument_types


@given(st.integers(-argument_types.MAX_ID - 1, argument_types.MAX_ID).filter(bool))
def test_an_id_is_read_back_as_it_is_printed(number: int) -> None:
    assert argument_types.lease_id(argument_types.shown_id(number)) == number
    assert argument_types.lease_id(f"{number:x}") == number
    assert argument_types.lease_id(f"{number:#X}") == number
    assert argument_types.lease_id(f"dec:{number}") == number


@given(
    st.integers(10**16, argument_types.MAX_ID) | st.integers(-argument_types.MAX_ID - 1, -(10**16))
)
def test_an_id_with_more_than_16_digits_is_decimal(number: int) -> None:
    assert argument_types.lease_id(str(number)) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0x", "x", "-", "--5", "5-", "-0", "-8000000000000001", "dec:-", "-dec:5"),
        *("7a 11", "0x7a11h", "dec:", "dec:7a", "1" * 20, "8" + "0" * 15),
        *("9223372036854775808", "dec:9223372036854775808", "0x" + "1" * 17, "\u0661", "1_0"),
    ],
)
def test_what_is_no_id_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"lease id.*: write it as it is print"):
        argument_types.lease_id(text)


def test_an_id_that_may_have_been_meant_in_decimal_is_asked_about() -> None:
    assert argument_types.other_reading(0x21) == "; if 21 is decimal, write dec:21"
    assert argument_types.other_reading(-0x21) == "; if -21 is decimal, write dec:-21"
    assert argument_types.other_reading(0x7A) == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("2.5", 2.5), ("0.001", 0.001), ("500ms", 0.5), ("1m30s", 90.0), ("7d", 604800)],
)
def test_a_time_is_in_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert argument_types.term_s(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "x", "1e3", "1 s", "1s1", "0.0001", "inf"])
def test_what_is_no_time_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not a duration: write seconds, such as 30"):
        argument_types.term_s(text)


def test_a_term_may_be_endless() -> None:
    assert argument_types.term_or_forever("forever") is FOREVER
    assert argument_types.term_or_forever("90") == 90.0
    with pytest.raises(ArgumentTypeError, match=r"'ever' is not a duration: .*, or forever$"):
        argument_types.term_or_forever("ever")
    assert argument_types.shown_term(float("inf")) == "forever"
    assert argument_types.shown_term(90.0) == "1m30s"


@pytest.mark.parametrize("text", ["0", "0s", "0.000", "9000000001", "104167d"])
def test_a_duration_out_of_range_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"at most 9000000000 seconds, got '{text}'"):
        argument_types.term_s(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0s"), (9.94, "9.9s"), (10.9, "10s"), (59.9, "59s"), (90.5, "1m30s"), (7200, "2h")],
)
def test_time_that_is_left_is_never_rounded_up_by_a_second(seconds: float, shown: str) -> None:
    assert argument_types.shown_remaining(seconds) == shown


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1.5", "9" * 19, "\u0661"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be a whole number of at least 1"):
        argument_types.count(text)


def test_addresses_have_commas_between_them() -> None:
    assert [str(each) for each in argument_types.addresses("a:1, https://b:2,,[::1]:3")] == [
        "a:1",
        "https://b:2",
        "[::1]:3",
    ]


@pytest.mark.parametrize("text", ["", " ", ",", "host", "a:1,b", "ftp://a:1", "a:99999", "a" * 999])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"127\.0\.0\.1"):
        argument_types.endpoints(text)


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_bytes_of_the_command_line_are_those_of_the_shell(data: bytes) -> None:
    assert argument_types.key_bytes(data.decode("utf-8", "surrogateescape")) == data
