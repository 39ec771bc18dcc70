"""Fencing tokens: their order, and how they are written and read."""

import pickle
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.fencing.token import MAX_PART, Token

parts = st.integers(min_value=0, max_value=MAX_PART)
tokens = st.builds(Token, parts, parts)


def test_tokens_are_ordered_by_revision_then_by_count() -> None:
    assert Token(7, 1) < Token(7, 2) < Token(8, 0)
    assert Token(9, 0) < Token(10, 0)
    assert max(Token(3, 9), Token(4, 1)) == Token(4, 1)
    assert Token(7, 1) == Token(7, 1)
    assert len({Token(7, 1), Token(7, 1), Token(7, 2)}) == 2


def test_the_int_of_a_token_is_its_create_revision() -> None:
    assert int(Token(123, 4)) == 123


def test_a_token_is_written_with_its_revision_and_its_count() -> None:
    assert str(Token(123, 4)) == f"{Token(123, 4)}" == "123-4"
    assert repr(Token(123, 4)) == "Token(revision=123, count=4)"


@given(tokens)
def test_the_text_of_a_token_cannot_be_mistaken_for_a_number(token: Token) -> None:
    for number in (int, float, Decimal, Fraction):
        with pytest.raises((ValueError, ArithmeticError)):
            number(str(token))


@given(tokens)
def test_the_text_of_earlier_versions_with_a_point_is_read(token: Token) -> None:
    assert Token.parse(f"{token.revision}.{token.count}") == token


def test_a_token_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Token(1, 2).count = 3  # type: ignore[misc]


def test_a_revision_alone_is_read_with_the_count_0() -> None:
    assert Token.parse("123") == Token(123, 0)


@given(tokens)
def test_what_is_written_is_read_as_the_same_token(token: Token) -> None:
    assert Token.parse(str(token)) == token
    assert isinstance(Token.parse(str(token)), Token)
    assert pickle.loads(pickle.dumps(token)) == token  # noqa: S301  our own bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1.",
        ".1",
        "1.2.3",
        "-",
        "1-",
        "1-2-3",
        "1.2-3",
        "1--2",
        "1:2",
        "-1",
        "+1",
        "1.-2",
        " 1",
        "1.2\n",
        "1,2",
        "1_000",
        "0x10",
        "1e3",
        "007",
        "1.02",
        "1-02",
        "١٢",
        "NaN",
        str(MAX_PART + 1),
        f"1.{MAX_PART + 1}",
        "9" * 5000,
    ],
)
def test_other_text_is_no_token_and_the_error_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a fencing token: expected '123-4'") as error:
        Token.parse(text)
    assert repr(text[:60]) in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("text", [None, 5, b"1.2", Token(1, 2)])
def test_only_text_is_read(text: object) -> None:
    with pytest.raises(TypeError, match=r"such as '123-4'"):
        Token.parse(text)  # type: ignore[arg-type]
