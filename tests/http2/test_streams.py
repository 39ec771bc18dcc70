"""The life of streams: their numbers, states and number (RFC 9113, 5.1)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, PLAIN_GET, POST, Fields, written
from tests.http2.calls import GRANT, GRANT_MESSAGE, check_went_well
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting

# 5.1: idle.


@pytest.mark.parametrize("stream_id", [1, 2, 3, 4, wire.MAX_WINDOW])
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        pytest.param(Kind.DATA, b"test", id="DATA"),
        pytest.param(Kind.RST_STREAM, wire.word(Code.CANCEL), id="RST_STREAM"),
        pytest.param(Kind.WINDOW_UPDATE, wire.word(100), id="WINDOW_UPDATE"),
        pytest.param(Kind.CONTINUATION, PLAIN_GET, id="CONTINUATION"),
    ],
)
def test_an_idle_stream_takes_only_headers_and_priority(
    peer: Peer, kind: Kind, payload: bytes, stream_id: int
) -> None:
    """5.1: anything else is a PROTOCOL_ERROR of the connection, also on a stream of the server."""
    peer.send(wire.frame(kind, wire.END_HEADERS, stream_id, payload))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


def test_a_stream_above_those_in_use_is_idle(peer: Peer) -> None:
    """5.1: that another stream is open does not help."""
    peer.send(peer.request(1, POST, ends=False), wire.data(3, b"test"))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


# 5.1: open, and half-closed (remote).


def test_a_request_may_come_in_many_frames(peer: Peer) -> None:
    """5.1, 8.1: DATA of any length, also none."""
    peer.send(peer.request(1, POST, ends=False), wire.data(1, b"te"), wire.data(1))
    peer.send(wire.data(1, b"st"), wire.data(1, ends=True))
    peer.expect_answer(1)


def test_a_half_closed_stream_takes_window_update_and_priority(peer: Peer) -> None:
    """5.1: the answer still needs its window."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1), wire.priority(1), wire.window_update(1, 1))
    assert len(peer.expect_data(1).payload) == 1


def test_a_half_closed_stream_takes_rst_stream(peer: Peer) -> None:
    """5.1: and nothing more comes on it, even when there is room for it."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1), wire.rst_stream(1))
    peer.expect_ping_answered()
    peer.set((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW))
    peer.expect_ping_answered()
    assert 1 not in peer.conduct.answers or not peer.conduct.answers[1].body


@pytest.mark.parametrize("fields", [GET, POST], ids=["GET", "POST"])
@pytest.mark.parametrize("window", [0, wire.DEFAULT_WINDOW], ids=["unanswered", "answered"])
def test_data_after_the_end_of_a_request_is_an_error(
    peer: Peer, fields: Fields, window: int
) -> None:
    """5.1, 6.1: STREAM_CLOSED, whether the answer is still under way or not."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, window))
    peer.send(peer.request(1, fields), wire.data(1, b"test", ends=True))
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


@pytest.mark.parametrize("stream_id", [1, 5])
@pytest.mark.parametrize("window", [0, wire.DEFAULT_WINDOW], ids=["unanswered", "answered"])
def test_headers_after_the_end_of_a_request_are_an_error(
    peer: Peer, stream_id: int, window: int
) -> None:
    """5.1: STREAM_CLOSED, whether the answer is still under way or not."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, window))
    peer.send(peer.request(stream_id), peer.request(stream_id))
    peer.expect_stream_error(stream_id, {Code.STREAM_CLOSED})


def test_trailers_after_the_end_of_a_request_are_an_error(peer: Peer) -> None:
    """5.1, 8.1: END_STREAM on the head says that there are no trailers."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1, POST), wire.headers(1, peer.block([(b"x-test", b"ok")])))
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


# 5.1: closed.


def test_a_closed_stream_takes_what_may_have_been_on_its_way(peer: Peer) -> None:
    """5.1: PRIORITY, WINDOW_UPDATE and RST_STREAM may have been sent before the end was seen."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.send(wire.priority(1), wire.window_update(1, 10), wire.rst_stream(1), wire.priority(1))
    peer.expect_ping_answered()


def test_data_on_an_answered_stream_is_an_error(peer: Peer) -> None:
    """5.1, 6.1: STREAM_CLOSED, of the stream or the connection."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.send(wire.data(1, b"test", ends=True))
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


def test_headers_on_an_answered_stream_end_the_connection(peer: Peer) -> None:
    """5.1, 5.1.1: STREAM_CLOSED: a number is used once."""
    peer.send(peer.request(1))
    peer.expect_answer(1)
    peer.send(peer.request(1))
    peer.expect_connection_error({Code.STREAM_CLOSED})


def test_headers_on_a_long_closed_stream_end_the_connection(peer: Peer) -> None:
    """5.1, 5.1.1: also when others have been opened and closed since."""
    for stream_id in range(1, 41, 2):
        peer.send(peer.request(stream_id))
        peer.expect_answer(stream_id)
    peer.send(peer.request(1))
    peer.expect_connection_error({Code.STREAM_CLOSED, Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("kind", ["DATA", "HEADERS"])
def test_frames_after_rst_stream_of_the_client_are_an_error(peer: Peer, kind: str) -> None:
    """5.1: STREAM_CLOSED: who has reset a stream must be silent on it."""
    peer.send(peer.request(1, ends=False), wire.rst_stream(1))
    peer.send(wire.data(1, b"test", ends=True) if kind == "DATA" else peer.request(1))
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


# 5.1.1: numbers.


@pytest.mark.parametrize("stream_id", [2, 4, 1000, wire.MAX_WINDOW - 1])
def test_a_client_cannot_open_a_stream_of_the_server(peer: Peer, stream_id: int) -> None:
    """5.1.1: even numbers are a PROTOCOL_ERROR of the connection."""
    peer.send(peer.request(stream_id))
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("stream_id", [3, 5, 1001, wire.MAX_WINDOW])
def test_numbers_may_be_skipped(peer: Peer, stream_id: int) -> None:
    """5.1.1: a new number must be above those before, and odd, and nothing else."""
    peer.send(peer.request(stream_id))
    peer.expect_answer(stream_id)


def test_a_number_that_was_skipped_cannot_be_used(peer: Peer) -> None:
    """5.1.1: it is closed by the higher one, and an unexpected number in either reading."""
    peer.send(peer.request(5), peer.request(3))
    peer.expect_connection_error({Code.PROTOCOL_ERROR, Code.STREAM_CLOSED})


def test_data_on_a_skipped_number_is_an_error(peer: Peer) -> None:
    """5.1, 5.1.1: the stream went from idle to closed."""
    peer.send(peer.request(5, POST, ends=False), wire.data(3, b"test"))
    peer.expect_stream_error(3, {Code.PROTOCOL_ERROR, Code.STREAM_CLOSED})


# 5.1.2: how many.


def test_more_streams_than_allowed_are_refused(peer: Peer) -> None:
    """5.1.2: PROTOCOL_ERROR or REFUSED_STREAM for the one too many; there is room again later."""
    limit = peer.conduct.server_settings.get(Setting.MAX_CONCURRENT_STREAMS)
    if limit is None:
        pytest.skip("this server takes any number of streams")
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(*(wire.headers(2 * number + 1, PLAIN_GET) for number in range(limit + 1)))
    refused = 2 * limit + 1
    peer.expect_stream_error(refused, {Code.PROTOCOL_ERROR, Code.REFUSED_STREAM})
    resets = [number for number, one in peer.conduct.answers.items() if one.reset is not None]
    assert resets == [refused], "only the last one is too many"
    peer.send(wire.window_update(1, 1000))
    peer.expect_answer(1)
    peer.send(wire.headers(refused + 2, PLAIN_GET), wire.window_update(refused + 2, 1000))
    peer.expect_answer(refused + 2)


@pytest.mark.usefixtures("ours")
def test_more_calls_than_allowed_are_refused(peer: Peer) -> None:
    """5.1.2: calls that their clients have not ended count too."""
    limit = peer.conduct.server_settings[Setting.MAX_CONCURRENT_STREAMS]
    head, refused = written(GRANT), 2 * limit + 1
    peer.send(*(wire.headers(2 * number + 1, head, ends=False) for number in range(limit + 1)))
    peer.expect_stream_error(refused, {Code.PROTOCOL_ERROR, Code.REFUSED_STREAM})
    resets = [number for number, one in peer.conduct.answers.items() if one.reset is not None]
    assert resets == [refused], "only the last one is too many"
    for stream_id in (1, refused + 2):
        opening = wire.headers(stream_id, head, ends=False) if stream_id != 1 else b""
        peer.send(opening, wire.data(stream_id, GRANT_MESSAGE, ends=True))
        check_went_well(peer.expect_answer(stream_id))


def test_streams_that_the_client_resets_make_room(peer: Peer) -> None:
    """5.1.2: a closed stream does not count, however it was closed."""
    limit = peer.conduct.server_settings.get(Setting.MAX_CONCURRENT_STREAMS, 1000)
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    half = limit // 2 + 1
    first, second = range(1, 2 * half, 2), range(2 * half + 1, 4 * half, 2)
    peer.send(*(wire.headers(stream_id, PLAIN_GET) for stream_id in first))
    peer.send(*(wire.rst_stream(stream_id) for stream_id in first))
    peer.send(*(wire.headers(stream_id, PLAIN_GET) for stream_id in second))
    peer.expect_ping_answered()
    assert not [one for one in peer.conduct.answers.values() if one.reset is not None]


def test_streams_are_answered_independently(peer: Peer) -> None:
    """5: one that waits for its client does not hold up another."""
    peer.send(peer.request(1, POST, ends=False), peer.request(3))
    peer.expect_answer(3)
    peer.send(wire.data(1, b"test", ends=True))
    peer.expect_answer(1)
