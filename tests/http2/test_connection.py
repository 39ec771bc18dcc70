"""What concerns a whole connection: PING, GOAWAY, errors (RFC 9113, 5.4, 6.7, 6.8, 7)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import POST
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting


@pytest.mark.parametrize("data", [bytes(8), b"h2 alive", b"\xff" * 8])
def test_ping_is_answered_with_its_own_payload(peer: Peer, data: bytes) -> None:
    """6.7: with ACK, and the same eight bytes."""
    peer.send(wire.ping(data))
    answer = peer.expect("an answer to PING", lambda frame: frame.is_a(Kind.PING))
    assert (answer.flags, answer.payload) == (wire.ACK, data)


def test_pings_are_answered_in_order(peer: Peer) -> None:
    """6.7: each of them."""
    sent = [b"ping%04d" % number for number in range(100)]
    peer.send(*map(wire.ping, sent))
    received = [
        peer.expect("PING", lambda frame: frame.is_a(Kind.PING)).payload for _ in range(len(sent))
    ]
    assert received == sent


def test_an_acknowledgement_of_ping_is_not_answered(peer: Peer) -> None:
    """6.7: also of one that was never sent."""
    peer.send(wire.frame(Kind.PING, wire.ACK, 0, b"not sent"))
    before = peer.expect_ping_answered()
    assert not [frame for frame in before if frame.is_a(Kind.PING)]


def test_goaway_of_the_client_lets_the_server_finish(peer: Peer) -> None:
    """6.8: what was asked for before is still answered, to its end."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 1))
    peer.send(peer.request(1))
    assert peer.expect_data(1).payload
    peer.send(wire.goaway(0, Code.NO_ERROR, b"good bye"), wire.window_update(1, 1000))
    assert len(peer.expect_answer(1).body) > 1


def test_goaway_of_the_client_lets_it_finish_its_request(peer: Peer) -> None:
    """6.8: a request that has begun may go on."""
    peer.send(peer.request(1, POST, ends=False), wire.goaway(), wire.data(1, b"test", ends=True))
    peer.expect_answer(1)


@pytest.mark.parametrize("code", [Code.NO_ERROR, Code.INTERNAL_ERROR, 0xFF, 0xFFFFFFFF])
def test_goaway_with_any_code_is_taken(peer: Peer, code: int) -> None:
    """6.8, 7: unknown codes have no special effect."""
    peer.send(peer.request(1), wire.goaway(0, code, b"why"))
    peer.expect_answer(1)


@pytest.mark.parametrize("code", [Code.NO_ERROR, Code.CANCEL, 0xFF, 0xFFFFFFFF])
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "open"])
def test_rst_stream_with_any_code_ends_the_stream_only(peer: Peer, code: int, ends: bool) -> None:
    """6.4, 7: unknown codes have no special effect, and the stream is not answered any more."""
    peer.send(peer.request(1, POST, ends=ends), wire.rst_stream(1, code))
    peer.expect_ping_answered()
    peer.send(peer.request(3))
    peer.expect_answer(3)


def test_rst_stream_is_not_answered_with_rst_stream(peer: Peer) -> None:
    """5.4.2: else two peers could go on forever."""
    peer.send(peer.request(1, POST, ends=False), wire.rst_stream(1), wire.rst_stream(1))
    before = peer.expect_ping_answered()
    assert not [frame for frame in before if frame.is_a(Kind.RST_STREAM)]


def test_a_connection_error_names_the_last_stream_and_ends_the_connection(peer: Peer) -> None:
    """5.4.1, 6.8: GOAWAY tells which requests were taken, then the connection is closed."""
    peer.send(peer.request(1), peer.request(3))
    peer.expect_answer(1)
    peer.expect_answer(3)
    peer.send(wire.frame(Kind.PING, 0, 3, bytes(8)))
    last = peer.expect("GOAWAY", lambda frame: frame.is_a(Kind.GOAWAY))
    assert (last.word, last.code) == (3, Code.PROTOCOL_ERROR)
    peer.expect_end()


def test_nothing_is_done_after_a_connection_error(peer: Peer) -> None:
    """5.4.1: what was sent behind the error is not answered."""
    peer.send(wire.frame(Kind.PING, 0, 1, bytes(8)), wire.ping(b"too late"), peer.request(1))
    said = peer.expect_end()
    assert [frame.code for frame in said if frame.is_a(Kind.GOAWAY)] == [Code.PROTOCOL_ERROR]
    assert not [frame for frame in said if frame.kind in (Kind.PING, Kind.HEADERS)]
