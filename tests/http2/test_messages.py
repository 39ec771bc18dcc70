"""Requests and their answers: methods, trailers, the length of content (RFC 9113, 8.1, 8.5)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, POST, Fields, changed, with_field, without
from tests.http2.calls import GRANT, GRANT_MESSAGE, check_went_well
from tests.http2.peer import Peer
from tests.http2.wire import Code, Kind, Setting

CONNECT: Fields = [(b":method", b"CONNECT"), (b":authority", b"example.org:443")]


def test_a_get_is_answered_with_a_body(peer: Peer) -> None:
    """8.1: HEADERS, then DATA; five bytes at least, so that windows can be tried out."""
    peer.send(peer.request(1))
    assert len(peer.expect_answer(1).body) >= 5


def test_a_head_is_answered_without_a_body(peer: Peer) -> None:
    """8.1; RFC 9110, 9.3.2: the same head, and no content."""
    peer.send(peer.request(1), peer.request(3, changed(GET, b":method", b"HEAD")))
    of_get, of_head = peer.expect_answer(1), peer.expect_answer(3)
    assert of_head.body == b""
    assert of_head.status == of_get.status


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"M-SEARCH"])
def test_any_method_is_answered(peer: Peer, method: bytes) -> None:
    """8.1: with content, and without."""
    fields = changed(GET, b":method", method)
    peer.send(peer.request(1, fields, ends=False), wire.data(1, b"test", ends=True))
    peer.send(peer.request(3, fields))
    peer.expect_answer(1)
    peer.expect_answer(3)


def test_options_may_ask_for_the_server_itself(peer: Peer) -> None:
    """8.3.1: the path of OPTIONS may be an asterisk."""
    peer.send(peer.request(1, changed(changed(GET, b":method", b"OPTIONS"), b":path", b"*")))
    peer.expect_answer(1)


@pytest.mark.usefixtures("ours")
def test_a_call_is_answered(peer: Peer) -> None:
    """8.1: HEADERS, DATA, trailers."""
    peer.send(peer.request(1, GRANT, ends=False), wire.data(1, GRANT_MESSAGE, ends=True))
    check_went_well(peer.expect_answer(1))


# 8.1: trailers.


@pytest.mark.parametrize("data", [b"", b"test"], ids=["no-content", "content"])
def test_a_request_may_end_with_trailers(peer: Peer, data: bytes) -> None:
    """8.1: whether there was DATA or not, and whether they were announced or not."""
    content = [wire.data(1, data)] if data else []
    peer.send(
        peer.request(1, with_field(POST, b"trailer", b"x-test"), ends=False),
        *content,
        wire.headers(1, peer.block([(b"x-test", b"ok"), (b"x-other", b"")])),
    )
    peer.expect_answer(1)


@pytest.mark.usefixtures("ours")
def test_a_call_may_end_with_trailers(peer: Peer) -> None:
    """8.1: instead of an END_STREAM on its message."""
    peer.send(
        peer.request(1, GRANT, ends=False),
        wire.data(1, GRANT_MESSAGE),
        wire.headers(1, peer.block([(b"x-test", b"ok")])),
    )
    check_went_well(peer.expect_answer(1))


@pytest.mark.parametrize(
    "trailers",
    [
        pytest.param([(b"x-test", b"ok"), (b":path", b"/")], id="pseudo-field-last"),
        pytest.param([(b":method", b"POST")], id="pseudo-field"),
        pytest.param([(b":status", b"200")], id="pseudo-field-of-answers"),
        pytest.param([(b":unknown", b"1")], id="unknown-pseudo-field"),
        pytest.param([(b"X-Test", b"ok")], id="upper-case"),
        pytest.param([(b"", b"ok")], id="no-name"),
        pytest.param([(b"x-te st", b"ok")], id="space-in-name"),
        pytest.param([(b"x-test", b"o\nk")], id="line-feed"),
        pytest.param([(b"x-test", b"o\0k")], id="nul"),
        pytest.param([(b"x-test", b" ok")], id="space-before"),
        pytest.param([(b"connection", b"close")], id="connection"),
        pytest.param([(b"transfer-encoding", b"chunked")], id="transfer-encoding"),
    ],
)
@pytest.mark.parametrize("fields", [POST, GRANT], ids=["plain", "call"])
def test_malformed_trailers_are_an_error(peer: Peer, fields: Fields, trailers: Fields) -> None:
    """8.1, 8.2, 8.3: they must not have what a head must not have, nor pseudo-fields."""
    peer.send(
        peer.request(1, fields, ends=False),
        wire.data(1, GRANT_MESSAGE[:3]),
        wire.headers(1, peer.block(trailers)),
    )
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("fields", [POST, GRANT], ids=["plain", "call"])
@pytest.mark.parametrize("data", [b"", b"test"], ids=["no-content", "content"])
def test_trailers_must_end_the_stream(peer: Peer, fields: Fields, data: bytes) -> None:
    """8.1: a second HEADERS frame without END_STREAM is malformed."""
    content = [wire.data(1, data)] if data else []
    trailers = wire.headers(1, peer.block([(b"x-test", b"ok")]), ends=False)
    peer.send(peer.request(1, fields, ends=False), *content, trailers)
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


def test_pseudo_fields_in_what_does_not_end_the_stream_are_an_error(peer: Peer) -> None:
    """8.1, 8.3: both mistakes at once."""
    peer.send(
        peer.request(1, POST, ends=False),
        wire.data(1, b"test"),
        wire.headers(1, peer.block([(b":method", b"POST")]), ends=False),
    )
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("kind", ["DATA", "HEADERS"])
def test_nothing_may_come_after_trailers(peer: Peer, kind: str) -> None:
    """5.1, 8.1: trailers have ended the stream."""
    peer.set((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.request(1, POST, ends=False), wire.headers(1, peer.block([(b"x-test", b"ok")])))
    peer.send(wire.data(1) if kind == "DATA" else wire.headers(1, peer.block([(b"x-b", b"")])))
    peer.expect_stream_error(1, {Code.STREAM_CLOSED})


# 8.1.1: content-length.


@pytest.mark.parametrize(
    ("length", "pieces"),
    [
        (b"4", [b"test"]),
        (b"8", [b"test", b"test"]),
        (b"4", [b"te", b"", b"st", b""]),
        (b"0", [b""]),
        (b"0004", [b"test"]),
    ],
    ids=repr,
)
def test_content_of_the_announced_length_is_taken(
    peer: Peer, length: bytes, pieces: list[bytes]
) -> None:
    """8.1.1: the sum of all DATA is what counts."""
    fields = with_field(POST, b"content-length", length)
    peer.send(peer.request(1, fields, ends=False))
    peer.send(*(wire.data(1, piece) for piece in pieces), wire.data(1, ends=True))
    peer.expect_answer(1)


def test_no_content_may_be_announced(peer: Peer) -> None:
    """8.1.1: zero is the length of a request that ends with its head."""
    peer.send(peer.request(1, with_field(GET, b"content-length", b"0")))
    peer.expect_answer(1)


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("length", [b"1", b"4", b"18446744073709551616"])
def test_announced_content_must_come(peer: Peer, method: bytes, length: bytes) -> None:
    """8.1.1: a head that ends the stream has no content."""
    fields = with_field(changed(GET, b":method", method), b"content-length", length)
    peer.send(peer.request(1, fields))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("how", ["DATA", "empty-DATA", "trailers"])
@pytest.mark.parametrize(
    ("length", "pieces"),
    [
        (b"1", [b"test"]),
        (b"1", [b"test", b"test"]),
        (b"0", [b"test"]),
        (b"5", [b"test"]),
        (b"9", [b"test", b"test"]),
        (b"4", [b"test", b"t"]),
        (b"18446744073709551620", [b"test"]),
    ],
    ids=repr,
)
def test_content_of_another_length_is_an_error(
    peer: Peer, length: bytes, pieces: list[bytes], how: str
) -> None:
    """8.1.1: more or less than was announced, however the request ends."""
    fields = with_field(POST, b"content-length", length)
    frames = [wire.data(1, piece, ends=False) for piece in pieces]
    opening = peer.request(1, fields, ends=False)
    if how == "DATA":
        frames[-1] = wire.data(1, pieces[-1], ends=True)
    elif how == "empty-DATA":
        frames.append(wire.data(1, ends=True))
    else:
        frames.append(wire.headers(1, peer.block([(b"x-test", b"ok")])))
    peer.send(opening, *frames)
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("off_by", [-1, 0, 1])
def test_the_message_of_a_call_has_the_announced_length(peer: Peer, off_by: int) -> None:
    """8.1.1: as for other content."""
    length = b"%d" % (len(GRANT_MESSAGE) + off_by)
    fields = with_field(GRANT, b"content-length", length)
    peer.send(peer.request(1, fields, ends=False), wire.data(1, GRANT_MESSAGE, ends=True))
    if off_by:
        peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
    else:
        check_went_well(peer.expect_answer(1))


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"+4", b"0x4", b"4.0", b"four", b"4 4", b"4,5"], ids=repr
)
def test_a_length_must_be_a_number(peer: Peer, length: bytes) -> None:
    """8.1.1; RFC 9110, 8.6: anything but digits is malformed."""
    fields = with_field(POST, b"content-length", length)
    peer.send(peer.request(1, fields, ends=False), wire.data(1, b"test", ends=True))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize(
    "lengths", [(b"4", b"5"), (b"5", b"4"), (b"4", b"x"), (b"4", b"4", b"0")], ids=repr
)
def test_different_lengths_are_an_error(peer: Peer, lengths: tuple[bytes, ...]) -> None:
    """8.1.1; RFC 9110, 8.6: even if one of them is right."""
    fields = [*POST, *((b"content-length", length) for length in lengths)]
    peer.send(peer.request(1, fields, ends=False), wire.data(1, b"test", ends=True))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("lengths", [(b"4", b"4"), (b"4, 4",)], ids=["fields", "list"])
def test_equal_lengths_are_one_or_an_error(peer: Peer, lengths: tuple[bytes, ...]) -> None:
    """RFC 9110, 8.6: the same number again may be taken for one, or for malformed."""
    fields = [*POST, *((b"content-length", length) for length in lengths)]
    peer.send(peer.request(1, fields, ends=False), wire.data(1, b"test", ends=True))
    last = peer.expect(
        "an answer or an error",
        lambda frame: frame.stream_id == 1 and frame.kind in (Kind.HEADERS, Kind.RST_STREAM),
    )
    assert last.is_a(Kind.HEADERS) or last.code == Code.PROTOCOL_ERROR
    peer.expect_ping_answered()


# 8.5: CONNECT.


def test_a_tunnel_is_not_offered(peer: Peer) -> None:
    """8.5: a well-formed CONNECT gets an answer that is no success, or CONNECT_ERROR."""
    peer.send(peer.request(1, CONNECT, ends=False), wire.data(1, b"hello", ends=True))
    last = peer.expect(
        "an answer or an error",
        lambda frame: frame.stream_id == 1 and frame.kind in (Kind.HEADERS, Kind.RST_STREAM),
    )
    if last.is_a(Kind.HEADERS):
        assert peer.conduct.answers[1].status >= 300
    else:
        assert last.code in (Code.CONNECT_ERROR, Code.REFUSED_STREAM)
    peer.expect_ping_answered()


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([*CONNECT, (b":path", b"/")], id="path"),
        pytest.param([*CONNECT, (b":scheme", b"http")], id="scheme"),
        pytest.param([*CONNECT, (b":scheme", b"http"), (b":path", b"/")], id="scheme-and-path"),
        pytest.param(without(CONNECT, b":authority"), id="no-authority"),
        pytest.param(
            [*CONNECT, (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", b"/")],
            id="protocol-that-was-not-offered",
        ),
    ],
)
def test_a_malformed_connect_is_an_error(peer: Peer, fields: Fields) -> None:
    """8.5: :scheme and :path are left out, :authority is not."""
    peer.send(peer.request(1, fields))
    peer.expect_stream_error(1, {Code.PROTOCOL_ERROR})
