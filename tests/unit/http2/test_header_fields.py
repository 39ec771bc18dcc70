"""What HTTP allows in header fields (RFC 9113, 8.2 and 8.3)."""

import pytest

from leasehold.http2.frames import ErrorCode, StreamFailed
from leasehold.http2.header_fields import (
    check_request,
    check_response,
    check_trailers,
    content_length,
)
from leasehold.http2.hpack import Field

Pairs = list[tuple[bytes, bytes]]
REQUEST: Pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x")]


def _fields(pairs: Pairs) -> tuple[Field, ...]:
    return tuple(Field(*pair) for pair in pairs)


def test_the_pseudo_fields_of_a_request_are_given() -> None:
    pairs = [*REQUEST, (b":authority", b"here"), (b"x-a", b"1")]
    assert check_request(_fields(pairs)) == dict(pairs[:4])


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_pseudo_field_that_is_missing_or_empty_is_malformed(
    index: int, *, is_empty: bool
) -> None:
    name = REQUEST[index][0]
    instead = [(name, b"")] if is_empty else []
    pairs = [*REQUEST[:index], *instead, *REQUEST[index + 1 :]]
    with pytest.raises(StreamFailed, match=f"{name.decode()} is missing or empty") as failed:
        check_request(_fields(pairs))
    assert failed.value.code == ErrorCode.PROTOCOL_ERROR


def test_connect_needs_an_authority_and_nothing_else() -> None:
    assert check_request(_fields([(b":method", b"CONNECT"), (b":authority", b"x")]))
    with pytest.raises(StreamFailed, match=":authority is missing or empty"):
        check_request(_fields([(b":method", b"CONNECT")]))
    for extra in REQUEST[1:]:
        with pytest.raises(StreamFailed, match="CONNECT must not have :scheme or :path"):
            check_request(_fields([(b":method", b"CONNECT"), (b":authority", b"x"), extra]))


@pytest.mark.parametrize("name", [b"X-Upper", b"", b"x y", b"x:y", b"x\0", b"\xff", b"x\n", b"x("])
def test_a_name_that_is_no_token_in_lower_case_is_malformed(name: bytes) -> None:
    with pytest.raises(StreamFailed, match="malformed"):
        check_request(_fields([*REQUEST, (name, b"1")]))


@pytest.mark.parametrize("value", [b"a\0b", b"a\rb", b"a\nb", b" a", b"a ", b"\ta", b"a\t", b" "])
def test_a_value_with_a_line_break_or_a_space_at_an_end_is_malformed(value: bytes) -> None:
    for pairs in ([*REQUEST, (b"x-a", value)], [*REQUEST[:2], (b":path", value)]):
        with pytest.raises(StreamFailed, match="contains an invalid character"):
            check_request(_fields(pairs))


@pytest.mark.parametrize("value", [b"", b"a", b"a b", b"a\tb", b"\xff\x80", b"\x01"])
def test_any_other_value_is_taken(value: bytes) -> None:
    check_request(_fields([*REQUEST, (b"x-a", value)]))


@pytest.mark.parametrize(
    "name", [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"]
)
def test_a_field_of_the_connection_is_malformed(name: bytes) -> None:
    with pytest.raises(StreamFailed, match="is not allowed in HTTP/2"):
        check_request(_fields([*REQUEST, (name, b"x")]))


def test_te_may_only_say_trailers() -> None:
    check_request(_fields([*REQUEST, (b"te", b"trailers")]))
    with pytest.raises(StreamFailed, match="te must be trailers"):
        check_request(_fields([*REQUEST, (b"te", b"trailers, deflate")]))


@pytest.mark.parametrize("name", [b":status", b":protocol", b":", b":path"])
def test_a_pseudo_field_that_is_unknown_or_repeated_is_malformed(name: bytes) -> None:
    with pytest.raises(
        StreamFailed, match="repeated, comes after a regular field, or is not allowed"
    ):
        check_request(_fields([*REQUEST, (name, b"x")]))


def test_a_pseudo_field_behind_a_regular_one_is_malformed() -> None:
    with pytest.raises(StreamFailed, match="comes after a regular field"):
        check_request(_fields([*REQUEST[:2], (b"x-a", b"1"), REQUEST[2]]))


@pytest.mark.parametrize("name", [b":path", b":status", b":x"])
def test_trailers_have_no_pseudo_fields(name: bytes) -> None:
    check_trailers(_fields([(b"x-a", b"1")]))
    with pytest.raises(StreamFailed):
        check_trailers(_fields([(name, b"1")]))


def test_the_status_of_an_answer_is_given() -> None:
    assert check_response(_fields([(b":status", b"200"), (b"x-a", b"1")])) == 200


@pytest.mark.parametrize("status", [b"", b"20", b"2000", b"abc", b"+20", b"2.0"])
def test_a_status_has_three_digits(status: bytes) -> None:
    with pytest.raises(StreamFailed, match=":status must be three digits"):
        check_response(_fields([(b":status", status)]))


def test_an_answer_without_a_status_is_malformed() -> None:
    with pytest.raises(StreamFailed, match=":status must be three digits"):
        check_response(_fields([(b"x-a", b"1")]))


@pytest.mark.parametrize(
    ("said", "length"), [([], None), ([b"0"], 0), ([b"12"], 12), ([b"12", b"12"], 12)]
)
def test_a_length_is_read(said: list[bytes], length: int | None) -> None:
    assert content_length(_fields([(b"content-length", value) for value in said])) == length


@pytest.mark.parametrize(
    "said", [[b"1", b"2"], [b""], [b"-1"], [b"+1"], [b"1.0"], [b"0x1"], [b"9" * 19]]
)
def test_a_length_that_is_none_is_malformed(said: list[bytes]) -> None:
    with pytest.raises(StreamFailed, match="content-length"):
        content_length(_fields([(b"content-length", value) for value in said]))
