"""Metadata: what may be sent, how it looks on the wire, and what is read of it."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import Status
from leasehold.grpc.call_context import MAX_SHOWN, Metadata, decode_metadata, encode_metadata
from leasehold.grpc.protocol import RpcError
from leasehold.http2.hpack import Field

keys = st.from_regex(r"x-[0-9a-z_.-]{0,10}", fullmatch=True).filter(
    lambda key: not key.endswith("-bin")
)
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)).map(str.strip)
pairs = st.tuples(keys, texts) | st.tuples(keys.map(lambda key: f"{key}-bin"), st.binary())


def _fields(*pairs: tuple[bytes, bytes]) -> tuple[Field, ...]:
    return tuple(Field(*pair) for pair in pairs)


@settings(deadline=None, derandomize=True)
@given(st.lists(pairs).map(tuple))
def test_what_is_sent_is_what_is_read_in_the_same_order(metadata: Metadata) -> None:
    fields = encode_metadata(metadata)
    assert decode_metadata(_fields(*fields)) == metadata
    assert all(b"=" not in value for name, value in fields if name.endswith(b"-bin"))


def test_a_mapping_will_do() -> None:
    metadata: dict[str, str | bytes] = {"x-a": "1", "x-b-bin": b"\0"}
    assert encode_metadata(metadata) == ((b"x-a", b"1"), (b"x-b-bin", b"AA"))


def test_a_key_may_come_more_than_once() -> None:
    assert decode_metadata(_fields((b"x-a", b"1"), (b"x-a", b"2"))) == (("x-a", "1"), ("x-a", "2"))


@pytest.mark.parametrize("key", ["", "X-Upper", "x a", "x:y", ":path", "ü", "x\n", "x/y"])
def test_a_key_with_other_characters_is_refused_and_shown(key: str) -> None:
    with pytest.raises(ValueError, match="cannot be a metadata key") as refused:
        encode_metadata({key: "1"})
    assert repr(key) in str(refused.value)


@pytest.mark.parametrize(
    "key",
    ["grpc-timeout", "grpc-x", "te", "content-type", "host", "content-length", "user-agent"],
)
def test_a_key_that_grpc_or_http_uses_itself_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no name that gRPC or HTTP reserve"):
        encode_metadata({key: "1"})


@pytest.mark.parametrize("key", ["connection", "transfer-encoding", "upgrade", "keep-alive"])
def test_a_key_that_no_message_of_http2_may_have_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no name that gRPC or HTTP reserve"):
        encode_metadata({key: "1"})


@pytest.mark.parametrize("value", ["ü", "a\nb", "\0", "\x7f"])
def test_text_that_is_not_printable_is_refused_with_a_way_out(value: str) -> None:
    with pytest.raises(ValueError, match="use a key that ends with '-bin'"):
        encode_metadata({"x-a": value})


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("x-a", b"bytes", "the value of metadata 'x-a' must be a str"),
        ("x-a", 1, "the value of metadata 'x-a' must be a str"),
        ("x-a", None, "the value of metadata 'x-a' must be a str"),
        ("x-a-bin", "text", "the value of metadata 'x-a-bin' must be bytes"),
        (b"x-a", "text", "a metadata key must be a str"),
        (None, "text", "a metadata key must be a str"),
    ],
)
def test_another_type_is_a_type_error(key: object, value: object, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        encode_metadata([(key, value)])  # type: ignore[list-item]


def test_spaces_at_both_ends_are_dropped_for_no_field_may_have_them() -> None:
    assert encode_metadata({"x-a": "  a b "}) == ((b"x-a", b"a b"),)


def test_what_grpc_and_http_use_themselves_is_no_metadata() -> None:
    fields = _fields(
        (b":path", b"/"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"grpc-encoding", b"gzip"),
        (b"grpc-status", b"0"),
        (b"user-agent", b"x"),
        (b"x-mine", b"1"),
        (b"authorization", b"Basic abc"),
    )
    assert decode_metadata(fields) == (("x-mine", "1"), ("authorization", "Basic abc"))


@pytest.mark.parametrize("padding", [b"", b"=", b"=="])
def test_binary_is_read_with_and_without_padding(padding: bytes) -> None:
    for value in (b"", b"a", b"ab", b"abc", bytes(range(256))):
        padded = base64.b64encode(value)
        for written in (padded, padded.rstrip(b"=")):
            assert decode_metadata(_fields((b"x-bin", written))) == (("x-bin", value),)


def test_several_binary_values_may_be_joined_by_commas() -> None:
    assert decode_metadata(_fields((b"x-bin", b"AA,AQ==, Ag"))) == (
        ("x-bin", b"\0"),
        ("x-bin", b"\1"),
        ("x-bin", b"\2"),
    )


@pytest.mark.parametrize("value", [b"a", b"*", b"AA=A", b"\xff\xff", b"====="])
def test_binary_that_is_not_base64_is_internal(value: bytes) -> None:
    with pytest.raises(RpcError) as refused:
        decode_metadata(_fields((b"x-bin", value)))
    assert (refused.value.status, "not base64" in refused.value.message) == (Status.INTERNAL, True)


def test_text_that_is_not_ascii_is_read_octet_by_octet() -> None:
    assert decode_metadata(_fields((b"x-a", b"\xff\x80"))) == (("x-a", "\xff\x80"),)


def test_of_a_key_that_is_refused_no_more_than_a_line_is_repeated() -> None:
    field = Field(b"x" * 4_000 + b"-bin", b"not base64!")
    with pytest.raises(RpcError) as caught:
        decode_metadata([field])
    assert len(caught.value.message) < 2 * MAX_SHOWN
