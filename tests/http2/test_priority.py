"""Priority, which changes nothing any more, and must still be taken (RFC 9113, 5.3, 6.2, 6.3)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, POST
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind


@pytest.mark.parametrize("weight", [0, 255])
@pytest.mark.parametrize("is_exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("on", [0, 3, 4])
def test_priority_before_a_request_is_taken(
    peer: Peer, weight: int, is_exclusive: bool, on: int
) -> None:
    """5.3.2, 6.3: whatever a stream depends on, with any weight."""
    peer.send(wire.priority(1, on, weight, is_exclusive=is_exclusive), peer.request(1))
    peer.expect_answer(1)


@pytest.mark.parametrize("stream_id", [3, 4, 1001, wire.MAX_WINDOW])
def test_priority_of_an_idle_stream_does_not_open_it(peer: Peer, stream_id: int) -> None:
    """5.1, 6.3: a lower stream can still be opened afterwards."""
    peer.send(wire.priority(stream_id, 0), peer.request(1))
    peer.expect_answer(1)


def test_priority_can_stand_anywhere_on_a_stream(peer: Peer) -> None:
    """6.3: idle, open, half-closed, closed."""
    peer.send(wire.priority(1), peer.request(1, POST, ends=False), wire.priority(1))
    peer.send(wire.data(1, b"test"), wire.priority(1), wire.data(1, ends=True), wire.priority(1))
    peer.expect_answer(1)
    peer.send(wire.priority(1))
    peer.expect_ping_answered()


def test_headers_with_priority_are_taken(peer: Peer) -> None:
    """6.2: the priority is skipped."""
    for stream_id, priority in enumerate(
        (wire.dependency(), wire.dependency(9, 0, is_exclusive=True), wire.dependency(2, 7))
    ):
        peer.send(wire.headers(2 * stream_id + 1, peer.block(GET), priority=priority))
        peer.expect_answer(2 * stream_id + 1)


def test_headers_that_depend_on_themselves_are_an_error(peer: Peer) -> None:
    """RFC 7540, 5.3.1: a stream cannot depend on itself; RFC 9113 has left the rule out.

    Suites for the older text look for it, and no client does it.
    """
    peer.send(wire.headers(1, peer.block(GET), priority=wire.dependency(1)))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("state", ["idle", "open"])
def test_priority_that_depends_on_itself_is_an_error(peer: Peer, state: str) -> None:
    """RFC 7540, 5.3.1: as for HEADERS. An idle stream cannot be reset: the connection ends."""
    if state == "open":
        peer.send(peer.request(1, POST, ends=False), wire.priority(1, 1))
        peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    else:
        peer.send(wire.priority(1, 1))
        peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("length", [0, 4, 6])
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "open"])
def test_priority_of_a_wrong_length_is_an_error_of_the_stream(
    peer: Peer, length: int, ends: bool
) -> None:
    """6.3: FRAME_SIZE_ERROR of the stream."""
    peer.send(peer.request(1, ends=ends), wire.frame(Kind.PRIORITY, 0, 1, bytes(length)))
    peer.expect_stream_error(1, {Code.FRAME_SIZE_ERROR})


@pytest.mark.parametrize("length", range(wire.PRIORITY_BYTES))
def test_headers_too_short_for_their_priority_end_the_connection(peer: Peer, length: int) -> None:
    """4.2: too small for what its flags promise: FRAME_SIZE_ERROR."""
    flags = wire.END_HEADERS | wire.END_STREAM | wire.PRIORITISED
    peer.send(wire.frame(Kind.HEADERS, flags, 1, bytes(length)))
    peer.expect_connection_error({Code.FRAME_SIZE_ERROR})
