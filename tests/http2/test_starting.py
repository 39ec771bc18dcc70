"""Starting HTTP/2, and what a connection is told first (RFC 9113, 3.4)."""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, PLAIN_GET
from tests.http2.peer import Connect, Peer
from tests.http2.wire import Code, Kind, Setting

GREETING = wire.PREFACE + wire.settings()


def test_the_first_frame_of_the_server_is_settings(connect: Connect) -> None:
    """3.4: the server connection preface is a SETTINGS frame, before anything else."""
    peer = connect()
    peer.send_raw(wire.PREFACE)
    peer.send(wire.settings((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW)))
    first = peer.next_frame()
    assert first is not None
    assert first.is_a(Kind.SETTINGS, 0)
    assert not first.has(wire.ACK)


def test_a_request_need_not_wait_for_the_server(connect: Connect) -> None:
    """3.4: a client may send frames right after its preface, before the server's settings."""
    peer = connect()
    peer.send_raw(wire.PREFACE)
    peer.send(wire.settings(), peer.request(1))
    peer.expect_answer(1)


def test_a_connection_may_come_in_single_octets(connect: Connect) -> None:
    """4.1: frames are a stream of bytes; TCP may cut them anywhere."""
    peer = connect()
    request = wire.settings() + peer.request(1, GET, ends=False) + wire.data(1, b"body", ends=True)
    for frame in wire.split(request):
        peer.conduct.sent(frame)
    for byte in wire.PREFACE + request:
        peer.send_raw(bytes((byte,)))
    peer.expect_answer(1)


@pytest.mark.parametrize(
    "preface",
    [
        pytest.param(b"INVALID CONNECTION PREFACE\r\n\r\n", id="no-http-at-all"),
        pytest.param(wire.PREFACE[:-1] + b"\r", id="wrong-last-byte"),
        pytest.param(wire.PREFACE.replace(b"SM", b"SN"), id="wrong-second-half"),
        pytest.param(wire.PREFACE.replace(b"2.0", b"2.1"), id="wrong-version"),
        pytest.param(b"\x00" * len(wire.PREFACE), id="zeros"),
    ],
)
def test_a_wrong_preface_ends_the_connection(connect: Connect, preface: bytes) -> None:
    """3.4: an invalid preface is a connection error; the GOAWAY may be left out.

    What is said, if anything, must be HTTP/2: whoever asks is not taken for a client of HTTP/1.1.
    """
    peer = connect()
    peer.send_raw(preface)
    said = peer.expect_end()
    assert all(one.code == Code.PROTOCOL_ERROR for one in said if one.is_a(Kind.GOAWAY))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(wire.ping(), id="PING"),
        pytest.param(wire.headers(1, PLAIN_GET), id="HEADERS"),
        pytest.param(wire.window_update(0, 1), id="WINDOW_UPDATE"),
        pytest.param(wire.priority(1), id="PRIORITY"),
        pytest.param(wire.goaway(), id="GOAWAY"),
        pytest.param(wire.settings_ack(), id="SETTINGS-ack"),
        pytest.param(wire.frame(0x20, 0, 0, b"unknown"), id="unknown"),
    ],
)
def test_the_first_frame_of_the_client_must_be_settings(connect: Connect, first: bytes) -> None:
    """3.4: SETTINGS are a part of the client's preface; without them it is invalid."""
    peer = connect()
    peer.send_raw(wire.PREFACE)
    peer.send(first)
    peer.expect_connection_error({Code.PROTOCOL_ERROR})


@pytest.mark.parametrize("length", [1, 14, len(wire.PREFACE) - 1, len(GREETING) - 1])
def test_a_client_may_leave_within_its_preface(connect: Connect, length: int) -> None:
    """3.4: half a preface and then nothing does no harm to anybody."""
    leaving = connect()
    leaving.send_raw(GREETING[:length])
    leaving.close()
    staying: Peer = connect()
    staying.greet()
    staying.expect_ping_answered()
