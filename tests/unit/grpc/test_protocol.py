"""Messages of gRPC in bytes, and the texts of its errors."""

import gzip
import random
import tracemalloc
import zlib
from urllib.parse import unquote

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import (
    GZIP,
    PREFIX,
    PREFIX_BYTES,
    MessageReader,
    RpcError,
    compress,
    decompress,
    framed,
    percent_decoded,
    percent_encoded,
)

MAX_BYTES = 2 * 1024 * 1024
VARIED = random.Random(1).randbytes(50_000).hex().encode()
"""Packs to about half."""


@pytest.fixture
def reader() -> MessageReader:
    return MessageReader(MAX_BYTES)


def test_a_prefix_says_not_compressed_and_how_long() -> None:
    assert framed(b"abc") == b"\0\0\0\0\x03abc"


def test_messages_come_out_as_they_went_in(reader: MessageReader) -> None:
    assert reader.feed(framed(b"one") + framed(b"") + framed(b"three")) == [b"one", b"", b"three"]
    assert reader.is_between_messages


@pytest.mark.parametrize("size", range(1, 12))
def test_messages_may_be_cut_into_pieces_of_any_size(reader: MessageReader, size: int) -> None:
    data = framed(b"one") + framed(b"") + framed(b"three")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [found for piece in pieces for found in reader.feed(piece)] == [b"one", b"", b"three"]
    assert reader.is_between_messages


def test_a_part_of_a_prefix_is_a_part_of_a_message(reader: MessageReader) -> None:
    assert reader.feed(b"\0") == []
    assert not reader.is_between_messages


def test_a_message_at_the_limit_is_taken(reader: MessageReader) -> None:
    assert reader.feed(framed(bytes(MAX_BYTES))) == [bytes(MAX_BYTES)]


def test_a_message_over_the_limit_is_refused_by_its_prefix(reader: MessageReader) -> None:
    with pytest.raises(RpcError) as refused:
        reader.feed(framed(bytes(MAX_BYTES + 1))[:PREFIX_BYTES])
    assert refused.value.status == Status.RESOURCE_EXHAUSTED
    assert refused.value.message == ("grpc: received message larger than max (2097153 vs. 2097152)")


def test_a_compressed_message_without_an_encoding_is_refused(reader: MessageReader) -> None:
    with pytest.raises(RpcError) as refused:
        reader.feed(b"\1" + bytes(4))
    assert refused.value.status == Status.INTERNAL
    assert refused.value.message == "grpc: compressed flag set with identity or empty encoding"


@pytest.mark.parametrize("flag", [2, 255])
def test_a_flag_that_is_neither_compressed_nor_not_is_refused(
    reader: MessageReader, flag: int
) -> None:
    with pytest.raises(
        RpcError, match=f"INTERNAL: grpc: compressed flag must be 0 or 1, got {flag}"
    ):
        reader.feed(bytes((flag,)) + bytes(4))


# gzip.


@pytest.mark.parametrize("message", [b"", b"x", bytes(1_000), VARIED])
def test_what_was_compressed_is_what_it_was(message: bytes) -> None:
    data = compress(message)
    flag, length = PREFIX.unpack_from(data)
    assert (flag, length) == (1, len(data) - PREFIX_BYTES)
    assert gzip.decompress(data[PREFIX_BYTES:]) == message
    assert MessageReader(MAX_BYTES, GZIP).feed(data) == [message]


def test_plain_and_compressed_messages_may_be_mixed_and_cut_anywhere() -> None:
    data = compress(b"one" * 100) + framed(b"two") + compress(b"three" * 100)
    for size in (1, 7, 50):
        reader = MessageReader(MAX_BYTES, GZIP)
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        found = [message for piece in pieces for message in reader.feed(piece)]
        assert found == [b"one" * 100, b"two", b"three" * 100]
        assert reader.is_between_messages


def test_a_message_that_unpacks_to_just_the_limit_is_taken_and_one_octet_more_is_not() -> None:
    assert decompress(gzip.compress(bytes(1_000)), 1_000) == bytes(1_000)
    with pytest.raises(RpcError) as refused:
        decompress(gzip.compress(bytes(1_001)), 1_000)
    assert refused.value.status == Status.RESOURCE_EXHAUSTED


def test_a_bomb_is_refused_without_unpacking_all_of_it() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 50_000
    tracemalloc.start()
    try:
        with pytest.raises(RpcError, match=r"larger than max \(unpacked more vs. 10000\)"):
            decompress(bomb, 10_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


PACKED = gzip.compress(b"a message that is long enough", mtime=0)


@pytest.mark.parametrize("cut", [0, 1, 5, 10, 15, len(PACKED) - 8, len(PACKED) - 1])
def test_what_is_cut_off_is_internal(cut: int) -> None:
    with pytest.raises(RpcError, match="failed to decompress the message") as refused:
        decompress(PACKED[:cut], MAX_BYTES)
    assert refused.value.status == Status.INTERNAL


def _with(at: int) -> bytes:
    return PACKED[:at] + bytes((PACKED[at] ^ 0xFF,)) + PACKED[at + 1 :]


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage, and no gzip at all",
        zlib.compress(b"another format"),
        _with(0),
        _with(2),
        _with(15),
        _with(len(PACKED) - 8),  # the checksum
        _with(len(PACKED) - 1),  # the length
    ],
)
def test_what_is_no_gzip_or_damaged_is_internal(garbage: bytes) -> None:
    with pytest.raises(RpcError, match="failed to decompress the message") as refused:
        decompress(garbage, MAX_BYTES)
    assert refused.value.status == Status.INTERNAL


@pytest.mark.parametrize("trailing", [b"x", b"\0", b"garbage", PACKED, PACKED[:5]])
def test_what_comes_behind_the_end_is_internal(trailing: bytes) -> None:
    with pytest.raises(RpcError, match="failed to decompress the message") as refused:
        decompress(PACKED + trailing, MAX_BYTES)
    assert refused.value.status == Status.INTERNAL


def test_a_compressed_message_over_the_limit_is_refused_by_its_prefix() -> None:
    reader = MessageReader(1_000, GZIP)
    with pytest.raises(RpcError, match=r"\(1001 vs. 1000\)"):
        reader.feed(PREFIX.pack(1, 1_001))


# Texts.


def test_printable_ascii_is_left_alone_but_for_the_percent_sign() -> None:
    plain = "".join(map(chr, range(0x20, 0x7F))).strip()
    assert percent_encoded(plain) == plain.replace("%", "%25").encode()


@pytest.mark.parametrize("message", ["grüße: 100 %\n\0\x7f", "\U0001f600", "", "a%20b"])
def test_a_message_is_what_it_was_once_decoded(message: str) -> None:
    encoded = percent_encoded(message)
    assert unquote(encoded.decode("ascii")) == message
    assert all(0x20 <= byte <= 0x7E for byte in encoded)


@pytest.mark.parametrize("message", [" a", "a ", "  ", " "])
def test_no_message_begins_or_ends_with_a_space_for_no_field_may(message: str) -> None:
    encoded = percent_encoded(message)
    assert encoded == encoded.strip()
    assert unquote(encoded.decode()) == message


@pytest.mark.parametrize("message", ["", "plain", "grüße: 100 %\n\0", "\U0001f600", " a "])
def test_what_was_encoded_can_be_decoded(message: str) -> None:
    assert percent_decoded(percent_encoded(message)) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"100%", "100%"), (b"%zz", "%zz"), (b"%ff", "\ufffd"), (b"%C3", "\ufffd")],
)
def test_what_was_badly_encoded_is_decoded_as_far_as_it_can_be(data: bytes, message: str) -> None:
    assert percent_decoded(data) == message


def test_half_a_character_does_not_keep_an_error_from_being_told() -> None:
    assert percent_encoded("file \udc80") == b"file ?"


def test_an_error_shows_its_status_and_message() -> None:
    assert str(RpcError(Status.NOT_FOUND, "no lease")) == "NOT_FOUND: no lease"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((Status.OK, "all is well"), ValueError),
        ((5, "a number"), ValueError),
        ((Status.NOT_FOUND, ValueError("x")), TypeError),
        ((Status.NOT_FOUND, None), TypeError),
        ((Status.NOT_FOUND, "x", 0, (("key", "value"),)), TypeError),
        ((Status.NOT_FOUND, "x", 0, {"key": "value"}), TypeError),
    ],
)
def test_an_error_that_could_not_be_told_is_refused_where_it_is_made(
    arguments: tuple[object, ...], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        RpcError(*arguments)  # type: ignore[arg-type]
