"""Header blocks in several frames (RFC 9113, 4.3, 6.2, 6.10)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, PLAIN_GET, POST
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind

LONG_FIELD = (b"x-dummy0", b"x" * 4000)


def test_a_block_may_be_split_at_every_octet(peer: Peer) -> None:
    """4.3, 6.10: also within a string or an integer."""
    for cut in range(1, len(PLAIN_GET)):
        stream_id = 2 * cut - 1
        peer.send(
            wire.headers(stream_id, PLAIN_GET[:cut], ends_headers=False),
            wire.continuation(stream_id, PLAIN_GET[cut:]),
        )
        peer.expect_answer(stream_id)


def test_a_block_may_come_in_single_octets(peer: Peer) -> None:
    """6.10: any number of CONTINUATION frames can be sent."""
    block = peer.block(GET)
    peer.send(
        wire.headers(1, block[:1], ends_headers=False),
        *(wire.continuation(1, bytes((byte,)), ends_headers=False) for byte in block[1:-1]),
        wire.continuation(1, block[-1:]),
    )
    peer.expect_answer(1)


@pytest.mark.parametrize("where", ["before", "between", "after"])
def test_a_continuation_may_be_empty(peer: Peer, where: str) -> None:
    """6.10: nothing is as good a fragment as any other."""
    block = peer.block(GET)
    empty = wire.continuation(1, b"", ends_headers=False)
    pieces = {
        "before": (b"", empty, wire.continuation(1, block)),
        "between": (block[:5], empty, wire.continuation(1, block[5:])),
        "after": (block, empty, wire.continuation(1, b"")),
    }
    first, *others = pieces[where]
    peer.send(wire.headers(1, first, ends_headers=False), *others)
    peer.expect_answer(1)


def test_large_fields_may_come_in_continuations(peer: Peer) -> None:
    """6.10: fields of 4000 bytes, the second time by reference to the dynamic table."""
    peer.send(
        wire.headers(1, peer.block(GET), ends_headers=False),
        wire.continuation(1, peer.block([LONG_FIELD]), ends_headers=False),
        wire.continuation(1, peer.block([LONG_FIELD])),
    )
    peer.expect_answer(1)


def test_end_stream_of_headers_holds_after_the_continuations(peer: Peer) -> None:
    """6.2: the stream is over with the block, and DATA after it comes too late."""
    block = peer.block(POST)
    peer.send(
        wire.headers(1, block[:5], ends=True, ends_headers=False),
        wire.continuation(1, block[5:]),
        wire.data(1, b"test", ends=True),
    )
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


def test_trailers_may_be_continued(peer: Peer) -> None:
    """6.10, 8.1: trailers are a block like others."""
    opening, trailers = peer.request(1, POST, ends=False), peer.block([(b"x-test", b"ok")])
    peer.send(
        opening,
        wire.data(1, b"test"),
        wire.headers(1, trailers[:1], ends_headers=False),
        wire.continuation(1, trailers[1:]),
    )
    peer.expect_answer(1)


@pytest.mark.parametrize("after", ["HEADERS", "CONTINUATION"])
@pytest.mark.parametrize(
    "between",
    [
        pytest.param(wire.data(1, b"test", ends=True), id="DATA"),
        pytest.param(wire.headers(1, PLAIN_GET), id="HEADERS"),
        pytest.param(wire.headers(3, PLAIN_GET), id="HEADERS-of-another-stream"),
        pytest.param(wire.priority(1), id="PRIORITY"),
        pytest.param(wire.rst_stream(1), id="RST_STREAM"),
        pytest.param(wire.settings(), id="SETTINGS"),
        pytest.param(wire.settings_ack(), id="SETTINGS-ack"),
        pytest.param(wire.ping(), id="PING"),
        pytest.param(wire.goaway(), id="GOAWAY"),
        pytest.param(wire.window_update(0, 1), id="WINDOW_UPDATE"),
        pytest.param(wire.window_update(1, 1), id="WINDOW_UPDATE-of-the-stream"),
        pytest.param(wire.continuation(3, b""), id="CONTINUATION-of-another-stream"),
        pytest.param(wire.continuation(0, b""), id="CONTINUATION-of-no-stream"),
        pytest.param(wire.frame(0x16, 0, 0, bytes(8)), id="unknown"),
        pytest.param(wire.frame(0x16, 0, 1, b""), id="unknown-on-the-stream"),
    ],
)
def test_nothing_may_stand_within_a_header_block(peer: Peer, after: str, between: bytes) -> None:
    """4.3, 5.5, 6.2, 6.10: a PROTOCOL_ERROR of the connection, even for unknown types."""
    block = peer.block(GET)
    begun = wire.headers(1, block[:2], ends_headers=False)
    if after == "CONTINUATION":
        begun += wire.continuation(1, block[2:4], ends_headers=False)
        block = block[2:]
    peer.send(begun, between, wire.continuation(1, block[2:]))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "open"])
def test_a_continuation_after_a_whole_block_ends_the_connection(peer: Peer, ends: bool) -> None:
    """6.10: a CONTINUATION must follow a frame without END_HEADERS."""
    peer.send(
        peer.request(1, POST, ends=ends), wire.continuation(1, peer.block([(b"x-more", b"1")]))
    )
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


def test_a_continuation_after_the_last_one_ends_the_connection(peer: Peer) -> None:
    """6.10: a CONTINUATION must follow a frame without END_HEADERS."""
    peer.send(
        wire.headers(1, peer.block(GET), ends_headers=False),
        wire.continuation(1, peer.block([LONG_FIELD])),
        wire.continuation(1, peer.block([LONG_FIELD])),
    )
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


def test_a_continuation_after_data_ends_the_connection(peer: Peer) -> None:
    """6.10: a CONTINUATION must follow a frame without END_HEADERS."""
    peer.send(
        peer.request(1, POST, ends=False),
        wire.data(1, b"test"),
        wire.continuation(1, peer.block([(b"x-more", b"1")])),
    )
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


def test_a_continuation_of_an_answered_request_ends_the_connection(peer: Peer) -> None:
    """5.1, 6.10: the stream is closed, and nothing is continued."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.send(wire.continuation(1, peer.block([LONG_FIELD])))
    peer.expect_connection_error({Code.PROTOCOL_ERROR, Code.STREAM_CLOSED})


def test_a_continuation_of_a_reset_stream_ends_the_connection(peer: Peer) -> None:
    """5.1, 6.10: the stream is closed, and nothing is continued."""
    peer.send(
        peer.request(1, POST, ends=False),
        wire.rst_stream(1),
        wire.continuation(1, peer.block([LONG_FIELD])),
    )
    peer.expect_connection_error({Code.PROTOCOL_ERROR, Code.STREAM_CLOSED})


@pytest.mark.parametrize("piece", [b"", b"\x00", b"x" * 1000], ids=["empty", "small", "large"])
def test_a_block_without_end_is_cut_off(peer: Peer, piece: bytes) -> None:
    """10.5: a server bounds what it keeps of one block, and how long it goes on with nothing."""
    one = wire.frame(Kind.CONTINUATION, 0, 1, piece)
    peer.send(wire.headers(1, PLAIN_GET, ends_headers=False), one * (4_000_000 // len(one)))
    peer.expect_connection_error(
        {Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR, Code.COMPRESSION_ERROR, Code.INTERNAL_ERROR}
    )
