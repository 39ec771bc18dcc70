"""Messages of gRPC in octets, and the texts of its errors."""

from urllib.parse import unquote

import pytest

from leasehold.errors import Status
from leasehold.rpc.grpc import (
    MAX_MESSAGE_BYTES,
    PREFIX_BYTES,
    MessageReader,
    RpcError,
    framed,
    percent_encoded,
)


@pytest.fixture
def reader() -> MessageReader:
    return MessageReader()


def test_a_prefix_says_not_compressed_and_how_long() -> None:
    assert framed(b"abc") == b"\0\0\0\0\x03abc"


def test_messages_come_out_as_they_went_in(reader: MessageReader) -> None:
    assert reader.feed(framed(b"one") + framed(b"") + framed(b"three")) == [b"one", b"", b"three"]
    assert reader.is_between_messages


@pytest.mark.parametrize("size", range(1, 12))
def test_messages_may_be_cut_into_pieces_of_any_size(reader: MessageReader, size: int) -> None:
    octets = framed(b"one") + framed(b"") + framed(b"three")
    pieces = [octets[at : at + size] for at in range(0, len(octets), size)]
    assert [found for piece in pieces for found in reader.feed(piece)] == [b"one", b"", b"three"]
    assert reader.is_between_messages


def test_a_part_of_a_prefix_is_a_part_of_a_message(reader: MessageReader) -> None:
    assert reader.feed(b"\0") == []
    assert not reader.is_between_messages


def test_a_message_at_the_limit_is_taken(reader: MessageReader) -> None:
    assert reader.feed(framed(bytes(MAX_MESSAGE_BYTES))) == [bytes(MAX_MESSAGE_BYTES)]


def test_a_message_over_the_limit_is_refused_by_its_prefix(reader: MessageReader) -> None:
    with pytest.raises(RpcError) as refused:
        reader.feed(framed(bytes(MAX_MESSAGE_BYTES + 1))[:PREFIX_BYTES])
    assert refused.value.status == Status.RESOURCE_EXHAUSTED
    assert refused.value.message == ("grpc: received message larger than max (2097153 vs. 2097152)")


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_a_compressed_message_is_refused(reader: MessageReader, flag: int) -> None:
    with pytest.raises(RpcError) as refused:
        reader.feed(bytes((flag,)) + bytes(4))
    assert refused.value.status == Status.UNIMPLEMENTED


def test_printable_ascii_is_left_alone_but_for_the_percent_sign() -> None:
    plain = "".join(map(chr, range(0x20, 0x7F))).strip()
    assert percent_encoded(plain) == plain.replace("%", "%25").encode()


@pytest.mark.parametrize("message", ["grüße: 100 %\n\0\x7f", "\U0001f600", "", "a%20b"])
def test_a_message_is_what_it_was_once_decoded(message: str) -> None:
    encoded = percent_encoded(message)
    assert unquote(encoded.decode("ascii")) == message
    assert all(0x20 <= octet <= 0x7E for octet in encoded)


@pytest.mark.parametrize("message", [" a", "a ", "  ", " "])
def test_no_message_begins_or_ends_with_a_space_for_no_field_may(message: str) -> None:
    encoded = percent_encoded(message)
    assert encoded == encoded.strip()
    assert unquote(encoded.decode()) == message


def test_half_a_character_does_not_keep_an_error_from_being_told() -> None:
    assert percent_encoded("file \udc80") == b"file ?"


def test_an_error_shows_its_status_and_message() -> None:
    assert str(RpcError(Status.NOT_FOUND, "no lease")) == "NOT_FOUND: no lease"
