"""Padding of DATA and HEADERS (RFC 9113, 6.1, 6.2)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, POST
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind


@pytest.mark.parametrize("padding", [0, 1, 8, 255])
def test_padding_of_data_is_not_content(peer: Peer, padding: int) -> None:
    """6.1: padding is taken off before the length of the content is compared."""
    fields = [*POST, (b"content-length", b"4")]
    peer.send(
        peer.request(1, fields, ends=False), wire.data(1, b"test", ends=True, padding=padding)
    )
    peer.expect_answer(1)


@pytest.mark.parametrize("padding", [0, 255])
def test_data_may_be_nothing_but_padding(peer: Peer, padding: int) -> None:
    """6.1: one byte less than the payload is the most that is allowed."""
    fields = [*POST, (b"content-length", b"0")]
    peer.send(peer.request(1, fields, ends=False), wire.data(1, ends=True, padding=padding))
    peer.expect_answer(1)


@pytest.mark.parametrize("padding", [0, 1, 8, 255])
@pytest.mark.parametrize("priority", [None, wire.dependency()], ids=["plain", "prioritised"])
def test_padding_of_headers_is_not_part_of_the_block(
    peer: Peer, padding: int, priority: bytes | None
) -> None:
    """6.2: with and without a priority before the block."""
    peer.send(wire.headers(1, peer.block(GET), padding=padding, priority=priority))
    peer.expect_answer(1)


def test_padding_before_a_continuation_is_not_part_of_the_block(peer: Peer) -> None:
    """6.2, 6.10: the padding stands within the block on the wire, and is no part of it."""
    block = peer.block(GET)
    peer.send(
        wire.headers(1, block[:4], ends_headers=False, padding=3), wire.continuation(1, block[4:])
    )
    peer.expect_answer(1)


def test_padding_of_trailers_is_not_part_of_the_block(peer: Peer) -> None:
    """6.2: trailers are HEADERS like others."""
    peer.send(
        peer.request(1, POST, ends=False),
        wire.headers(1, peer.block([(b"x-test", b"ok")]), padding=9, priority=wire.dependency()),
    )
    peer.expect_answer(1)


@pytest.mark.parametrize("excess", [0, 1, 100])
@pytest.mark.parametrize("content", [b"", b"test"], ids=["empty", "content"])
def test_more_padding_than_data_ends_the_connection(
    peer: Peer, content: bytes, excess: int
) -> None:
    """6.1: padding of the payload's length, or more, is a PROTOCOL_ERROR of the connection."""
    payload_bytes = 1 + len(content)
    payload = bytes((payload_bytes + excess,)) + content
    opening = peer.request(1, [*POST, (b"content-length", b"4")], ends=False)
    peer.send(opening, wire.frame(Kind.DATA, wire.PADDED | wire.END_STREAM, 1, payload))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("excess", [1, 2, 100])
def test_more_padding_than_headers_ends_the_connection(peer: Peer, excess: int) -> None:
    """6.2: padding that exceeds what remains for the block is a PROTOCOL_ERROR."""
    block = peer.block(GET)
    payload = bytes((len(block) + excess,)) + block
    flags = wire.PADDED | wire.END_STREAM | wire.END_HEADERS
    peer.send(wire.frame(Kind.HEADERS, flags, 1, payload))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


def test_padding_does_not_reach_into_the_priority(peer: Peer) -> None:
    """6.2: the priority is taken off first, and then there is no room for the padding."""
    flags = wire.PADDED | wire.PRIORITISED | wire.END_STREAM | wire.END_HEADERS
    peer.send(wire.frame(Kind.HEADERS, flags, 1, b"\x03" + wire.dependency() + b"\x82"))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.HEADERS], ids=["DATA", "HEADERS"])
def test_a_padded_frame_must_say_how_much(peer: Peer, kind: Kind) -> None:
    """4.2, 6.1: without any payload there is no pad length, and no room for it either."""
    opening = peer.request(1, POST, ends=False) if kind == Kind.DATA else b""
    flags = wire.PADDED | wire.END_STREAM | (wire.END_HEADERS if kind == Kind.HEADERS else 0)
    peer.send(opening, wire.frame(kind, flags, 1))
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR, Code.PROTOCOL_ERROR})
