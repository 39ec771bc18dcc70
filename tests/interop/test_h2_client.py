"""The library `h2` as a client of our server, for what gRPC's own clients do not do."""

import gzip
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from h2.settings import SettingCodes

from leasehold.errors import Status
from tests.interop import demo
from tests.interop.demo import Kind
from tests.interop.h2_peers import H2Client, fields, framed
from tests.interop.our_demo import OurServer

Connect = Callable[..., H2Client]
HELLO: Final = framed(b"hello, world")

unary_paths = pytest.mark.parametrize("path", [demo.ECHO, demo.LATER])


@pytest.fixture
def connect(our_server: OurServer) -> Iterator[Connect]:
    """Connect, and say these settings."""
    made: list[H2Client] = []

    def connect_one(settings: dict[SettingCodes, int] | None = None) -> H2Client:
        client = H2Client(our_server.port)
        made.append(client)
        client.start(settings)
        return client

    yield connect_one
    for client in made:
        client.close()


@unary_paths
def test_a_window_of_one_octet(connect: Connect, path: str) -> None:
    client = connect({SettingCodes.INITIAL_WINDOW_SIZE: 1})
    number = client.open(fields(path))
    client.send(number, HELLO, 1_000)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert stream.body == HELLO
    assert {len(piece) for piece in stream.pieces} == {1}
    assert stream.status == "0"


def test_no_window_at_all_until_later(connect: Connect) -> None:
    client = connect({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    number = client.open(fields(demo.LATER))
    client.send(number, HELLO, 1_000)
    client.end(number)
    other = client.open(fields("/no.such.Service/Method"), end_stream=True)
    client.until(lambda: client.stream(other).is_ended)  # an end needs no window
    assert client.stream(other).status == str(int(Status.UNIMPLEMENTED))
    stream = client.stream(number)
    assert stream.body == b""
    client.h2.increment_flow_control_window(7, number)
    client.flush()
    client.until(lambda: len(stream.body) == 7)
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    client.flush()
    client.until(lambda: stream.is_ended)
    assert (stream.body, stream.status) == (HELLO, "0")


@unary_paths
@pytest.mark.parametrize("pad_length", [None, 0, 1, 255])
@pytest.mark.parametrize("piece_bytes", [1, 3, 5, 1_000])
def test_a_message_in_any_pieces_with_any_padding(
    connect: Connect, path: str, pad_length: int | None, piece_bytes: int
) -> None:
    client = connect()
    number = client.open(fields(path))
    client.send(number, HELLO, piece_bytes, pad_length=pad_length)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert (stream.body, stream.status) == (HELLO, "0")


def test_padding_counts_for_windows(connect: Connect) -> None:
    """More is sent than the windows have room for, and nearly all of it is padding."""
    client = connect()
    number = client.open(fields(demo.SUM))
    for _ in range(20_000):
        while client.h2.local_flow_control_window(number) < 300:
            assert client.pump(), "the server hung up"
        client.h2.send_data(number, framed(b"1"), pad_length=255)
        if len(client.h2._data_to_send) > 65_536:
            client.flush()
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert (stream.body, stream.status) == (framed(b"20000"), "0")


@pytest.mark.parametrize("frame_bytes", [1, 64])
def test_a_head_in_many_continuations(connect: Connect, frame_bytes: int) -> None:
    client = connect()
    client.until(lambda: client.h2.max_outbound_frame_size > 0 and client.pump())
    client.h2.max_outbound_frame_size = frame_bytes
    text = "x" * 100
    number = client.open(fields(demo.METADATA, ("x-text", text), ("x-octets-bin", "AAEC")))
    client.send(number, HELLO, frame_bytes)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert (stream.body, stream.status) == (HELLO, "0")
    for pairs in (stream.head, stream.trailers):
        assert (pairs["x-text"], pairs["x-octets-bin"]) == (text, "AAEC")


def test_metadata_that_needs_continuations_comes_back(connect: Connect) -> None:
    """Ours, this time: what is said twice is longer than a frame."""
    client = connect()
    many = [(f"x-{index}", chr(97 + index % 26) * 4_000) for index in range(3)]
    number = client.open(fields(demo.METADATA, *many))
    client.send(number, HELLO, 1_000)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert many == [pair for pair in stream.head.items() if pair in many]
    assert many == [pair for pair in stream.trailers.items() if pair in many]


def test_compression_is_told_and_agreed_upon(connect: Connect) -> None:
    said = b"all work and no play " * 1_000
    client = connect()
    for accepts in (None, "gzip", "identity", "deflate, gzip"):
        agreed = [] if accepts is None else [("grpc-accept-encoding", accepts)]
        number = client.open(fields(demo.ECHO, ("grpc-encoding", "gzip"), *agreed))
        packed = framed(gzip.compress(said), is_packed=True)
        client.send(number, packed, 10_000)
        client.end(number)
        stream = client.stream(number)
        client.until(lambda stream=stream: stream.is_ended)  # type: ignore[misc]
        assert stream.status == "0"
        if accepts is not None and "gzip" in accepts:
            assert stream.head["grpc-encoding"] == "gzip"
            assert (stream.body[0], gzip.decompress(stream.body[5:])) == (1, said)
        else:
            assert "grpc-encoding" not in stream.head
            assert stream.body == framed(said)


def test_an_unknown_compression_is_refused_with_what_is_known(connect: Connect) -> None:
    client = connect()
    number = client.open(fields(demo.ECHO, ("grpc-encoding", "snappy")))
    client.send(number, framed(b"?", is_packed=True), 1_000)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert stream.status == str(int(Status.UNIMPLEMENTED))
    assert "gzip" in stream.head["grpc-accept-encoding"]


def test_a_failure_before_the_first_message_is_one_block(connect: Connect) -> None:
    client = connect()
    number = client.open(fields(demo.path(demo.FAIL, Kind.ONE_TO_ONE)))
    client.send(number, framed(demo.Failing(Status.ABORTED, "é%").encoded()), 1_000)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert stream.trailers == {}
    assert stream.head[":status"] == "200"
    assert stream.status == str(int(Status.ABORTED))
    assert stream.head["grpc-message"] == "%C3%A9%25"


@pytest.mark.parametrize("timeout", ["1", "H", "123456789S", "-1S", "1x", "1.5S"])
def test_a_time_that_is_none_is_refused(connect: Connect, timeout: str) -> None:
    client = connect()
    number = client.open(fields(demo.LATER, ("grpc-timeout", timeout)))
    client.send(number, HELLO, 1_000)
    client.end(number)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended or stream.reset is not None)
    assert stream.status == str(int(Status.INTERNAL))


def test_a_client_that_says_good_bye_gets_its_answers(
    our_server: OurServer, connect: Connect, name: str
) -> None:
    client = connect()
    number = client.open(fields(demo.HOLD))
    client.send(number, framed(name.encode()), 1_000)
    client.end(number)
    our_server.notes.wait("held", name)
    client.sock.sendall(bytes.fromhex("000008 07 00 00000000 00000000 00000000"))  # GOAWAY
    our_server.notes.say("released", name)
    stream = client.stream(number)
    client.until(lambda: stream.is_ended)
    assert (stream.body, stream.status) == (framed(name.encode()), "0")
