"""The dynamic table stays in step, whatever becomes of a header block (RFC 9113, 4.3, 5.1).

A block changes the table even if nobody looks at its fields: because its stream is refused, reset,
or over. Each test has such a block insert a path, and then a request refer to it: a server that
has not decoded the block finds nothing there, and ends the connection.
"""

import pytest

from tests.http2 import wire
from tests.http2.blocks import (
    AUTHORITY,
    FIRST_DYNAMIC,
    METHOD_GET,
    PLAIN_GET,
    POST,
    SCHEME_HTTP,
    Fields,
    indexed,
    inserting,
    plain,
    written,
)
from tests.http2.calls import GRANT, GRANT_MESSAGE, UNKNOWN_METHOD, check_went_well
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting

INSERT_PATH = inserting(b":path", b"/in-step")
INSERT_TYPE = inserting(b"content-type", b"application/grpc")
MALFORMED = plain(b"connection", b"close")
PLAIN_POST = written(POST)


def expect_in_step(peer: Peer, stream_id: int) -> None:
    """A request whose path is the newest entry of the table is answered."""
    block = indexed(METHOD_GET) + indexed(SCHEME_HTTP) + indexed(FIRST_DYNAMIC)
    peer.send(wire.headers(stream_id, block + plain(AUTHORITY, b"localhost")))
    peer.expect_answer(stream_id)


def test_after_a_malformed_request(peer: Peer) -> None:
    """8.1.1: also behind the field that is wrong."""
    peer.send(wire.headers(1, PLAIN_GET + MALFORMED + inserting(b"x-first", b"") + INSERT_PATH))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    expect_in_step(peer, 3)


def test_after_malformed_trailers(peer: Peer) -> None:
    """8.1: a pseudo-field in trailers is an entry like others."""
    peer.send(wire.headers(1, PLAIN_POST, ends=False), wire.headers(1, INSERT_PATH))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    expect_in_step(peer, 3)


def test_after_trailers_on_a_stream_that_the_server_has_reset(peer: Peer) -> None:
    """5.1: the client may not have seen the reset; everything is decoded and thrown away."""
    peer.send(
        wire.headers(1, PLAIN_POST + MALFORMED, ends=False),
        wire.data(1, b"test"),
        wire.window_update(1, 1),
        wire.headers(1, INSERT_PATH),
    )
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    expect_in_step(peer, 3)


def test_frames_on_a_stream_that_the_server_has_reset_are_ignored(peer: Peer) -> None:
    """5.1: of any type, until the client has seen the reset; then it is silent itself."""
    peer.send(
        wire.headers(1, PLAIN_POST + MALFORMED, ends=False),
        wire.data(1, b"test"),
        wire.priority(1),
        wire.window_update(1, 1),
        wire.data(1, b"test", padding=3),
        wire.headers(1, INSERT_PATH[:4], ends_headers=False),
        wire.continuation(1, INSERT_PATH[4:]),
        wire.rst_stream(1),
    )
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    resets = [one.reset for one in peer.conduct.answers.values()]
    assert resets == [Code.PROTOCOL_ERROR], "the stream is reset, and the connection lives"
    expect_in_step(peer, 3)


def test_after_a_refused_stream(peer: Peer) -> None:
    """5.1.2: a request too many is decoded before it is refused."""
    limit = peer.conduct.server_settings.get(Setting.MAX_CONCURRENT_STREAMS)
    if limit is None:
        pytest.skip("this server takes any number of streams")
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(*(wire.headers(2 * number + 1, PLAIN_GET) for number in range(limit)))
    refused = 2 * limit + 1
    rest = indexed(METHOD_GET) + indexed(SCHEME_HTTP) + plain(AUTHORITY, b"localhost")
    peer.send(wire.headers(refused, rest + INSERT_PATH))
    peer.expect_stream_error(refused, {Code.PROTOCOL_ERROR, Code.REFUSED_STREAM})
    peer.set((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW))
    peer.expect_answer(1)
    expect_in_step(peer, refused + 2)


def test_after_too_large_a_head(peer: Peer) -> None:
    """6.5.2, 10.5.1: refused with an answer or an error of the stream; the connection lives."""
    limit = peer.conduct.server_settings.get(Setting.MAX_HEADER_LIST_SIZE, 65536)
    fields = [plain(b"x-%d" % number, b"v" * 4000) for number in range(limit // 4000 + 1)]
    pieces = [PLAIN_GET, *fields, INSERT_PATH]
    peer.send(wire.headers(1, pieces[0], ends_headers=False))
    peer.send(*(wire.continuation(1, piece, ends_headers=False) for piece in pieces[1:-1]))
    peer.send(wire.continuation(1, pieces[-1]))
    last = peer.expect(
        "an answer or an error",
        lambda frame: frame.stream_id == 1 and frame.kind in (Kind.HEADERS, Kind.RST_STREAM),
    )
    if last.is_a(Kind.HEADERS):
        assert peer.conduct.answers[1].status == 431
    expect_in_step(peer, 3)


def test_after_headers_on_a_stream_that_the_client_has_reset(peer: Peer) -> None:
    """5.1: an error, after which others go on if it is one of the stream."""
    peer.send(wire.headers(1, PLAIN_POST, ends=False), wire.rst_stream(1))
    peer.send(wire.headers(1, INSERT_PATH))
    last = peer.expect(
        "an error",
        lambda frame: frame.kind in (Kind.RST_STREAM, Kind.GOAWAY),
    )
    assert last.code == Code.STREAM_CLOSED
    if last.is_a(Kind.RST_STREAM):
        expect_in_step(peer, 3)


@pytest.mark.parametrize(
    "fields", [POST, UNKNOWN_METHOD, GRANT], ids=["plain", "unknown-method", "call"]
)
def test_after_the_server_has_answered_before_the_client_has_ended(
    peer: Peer, fields: Fields
) -> None:
    """5.1, 8.1: the rest of the request is taken, and its trailers are decoded.

    A server may answer at once, or wait for the end of the request; here it has time for either,
    and cannot tell that what comes then was not under way before.
    """
    peer.send(wire.headers(1, written(fields), ends=False))
    peer.expect_ping_answered()
    peer.send(wire.data(1, GRANT_MESSAGE), wire.window_update(1, 1), wire.priority(1))
    peer.expect_ping_answered()
    trailer = inserting(b"x-in-step", b"yes")
    peer.send(wire.headers(1, trailer))
    peer.expect_answer(1)
    peer.expect_ping_answered()
    assert peer.conduct.answers[1].reset in (None, Code.NO_ERROR)
    peer.send(wire.headers(3, PLAIN_GET + indexed(FIRST_DYNAMIC)))
    peer.expect_answer(3)


@pytest.mark.usefixtures("ours")
def test_a_call_may_refer_to_what_a_refused_block_has_inserted(peer: Peer) -> None:
    """4.3: the type of the call is only known by the malformed request before it."""
    peer.send(wire.headers(1, PLAIN_POST + MALFORMED + INSERT_TYPE))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    rest = [field for field in GRANT if field[0] != b"content-type"]
    peer.send(
        wire.headers(3, written(rest) + indexed(FIRST_DYNAMIC), ends=False),
        wire.data(3, GRANT_MESSAGE, ends=True),
    )
    check_went_well(peer.expect_answer(3))
