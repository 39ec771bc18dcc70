"""Values as people write them: what is read, what is refused, and what is written is read again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.settings.options import OPTIONS, Option
from leasehold.cli.settings.value_types import (
    ADDRESS,
    DIRECTORY,
    POLICY,
    SWITCH,
    choice,
    count,
    show_size,
    show_term_ms,
    size,
    term,
)
from leasehold.leases.policies import MAX_TERM_MS, TermPolicy

QUOTA = size("2GiB", 1, 1024**5)
TIME = term("1h", 1, 10**15)
AGE = term("1h", 1000, 10**15, none="off")
NUMBER = count("1000", 1, 10**6)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("2GiB", 2 * 1024**3),
        ("2gib", 2 * 1024**3),
        ("512 MiB", 512 * 1024**2),
        ("500MB", 500_000_000),
        ("3kB", 3000),
        ("3KiB", 3072),
        ("7B", 7),
        ("1TiB", 1024**4),
    ],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert QUOTA.parse(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "2 gigs", "2.5GiB", "-1", "0", "1e9", "2G", "9" * 19, "2000TiB", "٣"]
)
def test_a_wrong_size_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(repr(text))} .* such as 2GiB$"):
        QUOTA.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("7d", 604800.0),
        ("1ms", 0.001),
    ],
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert TIME.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "h", "1w", "-1s", "0s", "1 hour", "0.5ms", "1e3s", "s1", "off", "1s2", "1S"]
)
def test_a_wrong_length_of_time_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(repr(text))} .* such as 1h$"):
        TIME.parse(text)


def test_off_is_none_where_it_may_be_and_the_form_says_so() -> None:
    assert AGE.parse("off") is AGE.parse("OFF") is None
    assert AGE.show(None) == "off"
    with pytest.raises(ValueError, match=r"or off$"):
        AGE.parse("never")


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("100000", 100_000), ("100_000", 100_000), ("100,000", 100_000)]
)
def test_a_number_is_read(text: str, number: int) -> None:
    assert NUMBER.parse(text) == number


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.0", "ten", "1e3", "1,0", "1000001", "9" * 30, "off"]
)
def test_a_wrong_number_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(repr(text))} .* such as 1000$"):
        NUMBER.parse(text)


def test_a_bound_that_is_missed_is_told() -> None:
    with pytest.raises(
        ValueError, match="'9000000' is too large: write at most 1,000,000, such as"
    ):
        NUMBER.parse("9000000")
    with pytest.raises(ValueError, match="'1ms' is too small: write at least 1s, such as 1h"):
        AGE.parse("1ms")


def test_whole_seconds_are_asked_for_where_only_these_will_do() -> None:
    with pytest.raises(ValueError, match="'2500ms' is not a whole number of seconds: write one"):
        term("2s", 1000, 10**6, unit_ms=1000).parse("2500ms")
    form = "'0.5' is not a duration: write whole seconds with s, m, h or d, such as 2s"
    with pytest.raises(ValueError, match=form):
        term("2s", 1000, 10**6, unit_ms=1000).parse("0.5")


def test_memory_is_no_directory() -> None:
    assert DIRECTORY.parse("memory:") is None
    assert DIRECTORY.show(None) == "memory:"


def test_words_are_known_whatever_their_case() -> None:
    kind = choice(["debug", "info"])
    assert kind.parse("INFO") == "info"
    with pytest.raises(ValueError, match=r"^'loud' is not a valid choice: write debug or info$"):
        kind.parse("loud")
    assert SWITCH.parse("True") is True
    with pytest.raises(ValueError, match=r"^'yes' is not a boolean"):
        SWITCH.parse("yes")


def test_several_addresses_in_one_are_told_apart() -> None:
    with pytest.raises(ValueError, match="has a comma: write several addresses as"):
        ADDRESS.parse("127.0.0.1:1,127.0.0.1:2")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("a:", TermPolicy()),
        ("a:min=1s", TermPolicy(minimum_ms=1000)),
        ("a:max=10s", TermPolicy(maximum_ms=10_000, default_ms=10_000)),
        ("a:min=5m", TermPolicy(minimum_ms=300_000, default_ms=300_000)),
        ("a:default=2s,max=3s,min=1s", TermPolicy(1000, 3000, 2000)),
    ],
)
def test_a_policy_is_read_and_what_it_does_not_say_is_as_near_to_60_s_as_may_be(
    text: str, policy: TermPolicy
) -> None:
    assert POLICY.parse(text) == ("a", policy)


@pytest.mark.parametrize(
    "text",
    ["", "a", ":", ":min=1s", "a:min", "a:min=", "a:min=1", "a:most=1s", "a:min=1s,min=2s",
     "a:min=2s,max=1s", "a:default=1s,min=2s", "a b:min=1s", "a:max=9000000001s", "a:min=0s"],
)  # fmt: skip
def test_a_wrong_policy_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=r": write "):
        POLICY.parse(text)


@given(st.integers(1, 10**17))
def test_what_is_written_of_a_size_or_a_time_is_read_again(number: int) -> None:
    assert size("1B", 1, 10**17).parse(show_size(number)) == number
    length_ms = number % MAX_TERM_MS + 1
    assert round(TIME.parse(show_term_ms(length_ms)) * 1000) == length_ms


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_default_and_the_example_of_each_option_are_values_of_its_kind(option: Option) -> None:
    kind = option.kind
    kind.parse(kind.example)
    if option.has_default:
        values = option.default if kind.is_list else (option.default,)
        for value in values:
            assert kind.parse(kind.show(value)) == value
