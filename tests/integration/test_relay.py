"""A wire over real sockets: what passes, what waits, what arrives late, and what never does.

That nothing has passed is known once the wire says that it holds it.
"""

import contextlib
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from leasehold.testing import Wire
from leasehold.testing import relay as wires
from leasehold.testing.relay import HELD_MAX_BYTES, Direction
from tests.support.scripts import until

DEADLINE_S = 20.0
PIECE_BYTES = 256 * 1024
"""What asyncio reads at once."""


class Server:
    """Somebody who listens, and does what a test says."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(DEADLINE_S)
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.open: list[socket.socket] = []

    def accept(self) -> socket.socket:
        accepted, _ = self._listening.accept()
        accepted.settimeout(DEADLINE_S)
        self.open.append(accepted)
        return accepted

    def has_visitor(self) -> bool:
        self._listening.setblocking(False)
        try:
            self.open.append(self._listening.accept()[0])
        except BlockingIOError:
            return False
        finally:
            self._listening.settimeout(DEADLINE_S)
        return True

    def close(self) -> None:
        for each in (self._listening, *self.open):
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with Wire(server.endpoint) as wire:
        yield wire


@pytest.fixture
def dial(wire: Wire) -> Iterator[Callable[[], socket.socket]]:
    """Connect as a client."""
    opened = []

    def dial() -> socket.socket:
        host, _, port = wire.endpoint.rpartition(":")
        client = socket.create_connection((host, int(port)), DEADLINE_S)
        opened.append(client)
        return client

    yield dial
    for each in opened:
        each.close()


Dial = Callable[[], socket.socket]


def _receive(sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = sock.recv(size - len(received))
        assert piece, f"it has ended, after {bytes(received)!r}"
        received += piece
    return bytes(received)


def _is_silent(sock: socket.socket) -> bool:
    """Whether nothing has come, and no end."""
    sock.setblocking(False)
    try:
        sock.recv(1)
    except BlockingIOError:
        return True
    finally:
        sock.settimeout(DEADLINE_S)
    return False


def _pair(dial: Dial, server: Server) -> tuple[socket.socket, socket.socket]:
    client = dial()
    client.sendall(b"hello")
    accepted = server.accept()
    assert _receive(accepted, 5) == b"hello"
    return client, accepted


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# What passes.


def test_everything_passes_unchanged_in_both_directions(dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    sent = os.urandom(3_000_000)
    for source, target in ((client, accepted), (accepted, client)):
        sending = threading.Thread(target=source.sendall, args=(sent,))
        sending.start()
        received = _receive(target, len(sent))
        sending.join(DEADLINE_S)
        assert hashlib.sha256(received).digest() == hashlib.sha256(sent).digest()


def test_one_who_reads_nothing_stops_the_sender_and_loses_nothing(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    sent = os.urandom(16_000_000)  # more than all buffers of the system
    sending = threading.Thread(target=client.sendall, args=(sent,))
    sending.start()
    until(lambda: not _is_reading(wire))
    assert sending.is_alive()
    assert _receive(accepted, len(sent)) == sent
    sending.join(DEADLINE_S)


def test_a_half_that_is_closed_leaves_the_other_open(dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    client.shutdown(socket.SHUT_WR)
    assert accepted.recv(1) == b""
    accepted.sendall(b"answer")
    accepted.close()
    assert _receive(client, 6) == b"answer"
    assert client.recv(1) == b""


@pytest.mark.parametrize("resets", ["client", "server"])
def test_a_reset_passes(resets: str, wire: Wire, dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    lost, other = (client, accepted) if resets == "client" else (accepted, client)
    _reset(lost)
    with pytest.raises(ConnectionResetError):
        other.recv(1)
    until(lambda: not wire._connections)


def test_where_nobody_listens_connections_are_reset(dial: Dial, server: Server) -> None:
    server.close()
    with pytest.raises(ConnectionResetError):
        dial().recv(1)


# A partition.


def test_a_cut_lets_nothing_through_and_what_was_sent_arrives_when_it_is_mended(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut()
    client.sendall(b"one")
    accepted.sendall(b"answer")
    until(lambda: wire.held_bytes() == 9)
    client.sendall(b"two")
    until(lambda: wire.held_bytes("to_server") == 6)
    assert wire.held_bytes("to_client") == 6
    assert wire.holds("etw")
    assert wire.holds(b"etw", "to_server")
    assert not wire.holds("etw", "to_client")
    assert _is_silent(client)
    assert _is_silent(accepted)
    wire.mend()
    assert _receive(accepted, 6) == b"onetwo"
    assert _receive(client, 6) == b"answer"
    assert wire.held_bytes() == 0


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_one_direction_may_be_cut_alone(
    direction: Direction, wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    cut, free = (client, accepted) if direction == "to_server" else (accepted, client)
    wire.cut(direction)
    cut.sendall(b"held")
    until(lambda: wire.held_bytes(direction) == 4)
    free.sendall(b"free")
    assert _receive(cut, 4) == b"free"
    assert _is_silent(free)
    wire.mend()
    assert _receive(free, 4) == b"held"


def test_a_direction_that_is_cut_stays_so_when_the_other_is(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut("to_server")
    wire.cut("to_client")
    client.sendall(b"one")
    accepted.sendall(b"two")
    until(lambda: wire.held_bytes("to_server") == 3 and wire.held_bytes("to_client") == 3)


@pytest.mark.parametrize("direction", ["both", "to_server", "to_client"])
def test_new_connections_of_one_who_is_cut_off_are_silent(
    direction: Direction, wire: Wire, dial: Dial, server: Server
) -> None:
    wire.cut(direction)
    client = dial()
    client.sendall(b"hello")
    until(lambda: wire.held_bytes("to_server") == 5)
    assert not server.has_visitor()
    assert _is_silent(client)
    wire.mend()
    accepted = server.accept()
    assert _receive(accepted, 5) == b"hello"
    accepted.sendall(b"answer")
    assert _receive(client, 6) == b"answer"


@pytest.mark.parametrize("direction", ["both", "to_server", "to_client"])
def test_a_connection_that_was_made_and_given_up_during_a_cut_was_never_there(
    direction: Direction, wire: Wire, dial: Dial, server: Server
) -> None:
    wire.cut(direction)
    client = dial()
    client.sendall(b"given up")
    until(lambda: wire.held_bytes() == 8)
    client.close()
    until(lambda: wire.held_bytes() == 0)
    wire.mend()
    _pair(dial, server)
    assert not server.has_visitor()


def test_a_cut_is_mended_when_its_seconds_are_over(wire: Wire, dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    began = time.monotonic()
    wire.cut(seconds=timedelta(milliseconds=200))
    client.sendall(b"late")
    assert _receive(accepted, 4) == b"late"
    assert time.monotonic() - began >= 0.2
    client.sendall(b"soon")
    assert _receive(accepted, 4) == b"soon"


def test_the_seconds_of_the_last_cut_count(wire: Wire, dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    wire.cut(seconds=0.2)
    wire.cut()
    assert wire._mending is None
    wire.cut(seconds=3600.0)
    began = time.monotonic()
    wire.cut(seconds=0.1)
    client.sendall(b"late")
    assert _receive(accepted, 4) == b"late"
    assert time.monotonic() - began >= 0.1


def test_a_cut_may_end_with_a_reset(wire: Wire, dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    wire.cut()
    client.sendall(b"lost")
    until(lambda: wire.held_bytes() == 4)  # a moment later it might be reset already
    wire.cut(seconds=0.1, reset=True)
    for each in (client, accepted):
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    _pair(dial, server)


def test_a_wire_that_is_mended_with_a_reset_delivers_nothing_of_before(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut()
    client.sendall(b"lost")
    until(lambda: wire.held_bytes() == 4)
    wire.mend(reset=True)
    for each in (client, accepted):
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    _pair(dial, server)


def test_reset_ends_all_connections_and_new_ones_can_be_made(
    wire: Wire, dial: Dial, server: Server
) -> None:
    both = [*_pair(dial, server), *_pair(dial, server)]
    wire.reset()
    for each in both:
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    _pair(dial, server)


@pytest.mark.parametrize("ends", [socket.socket.close, _reset])
def test_what_the_server_said_before_it_ended_arrives_and_so_does_the_end(
    ends: Callable[[socket.socket], None], wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut()
    accepted.sendall(b"last words")
    until(lambda: wire.held_bytes() == 10)
    ends(accepted)
    until(lambda: all(connection.server._has_ended for connection in wire._connections))
    assert _is_silent(client)
    wire.mend()
    if ends is _reset:  # which may overtake what came before
        with pytest.raises(ConnectionResetError):
            _receive(client, 64)
    else:
        assert _receive(client, 10) == b"last words"
        assert client.recv(1) == b""


def test_what_waits_is_limited_and_nothing_is_lost(wire: Wire, dial: Dial, server: Server) -> None:
    client, accepted = _pair(dial, server)
    sent = os.urandom(16_000_000)
    wire.cut()
    sending = threading.Thread(target=client.sendall, args=(sent,))
    sending.start()
    until(lambda: not _is_reading(wire))
    assert HELD_MAX_BYTES <= wire.held_bytes() < HELD_MAX_BYTES + PIECE_BYTES
    assert sending.is_alive()
    wire.mend()
    assert _receive(accepted, len(sent)) == sent
    sending.join(DEADLINE_S)


def test_a_client_that_has_gone_unseen_is_no_trouble_when_the_end_of_the_server_arrives(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut()
    client.setblocking(False)
    while _is_reading(wire):  # it looks at its client no more when so much waits
        with contextlib.suppress(BlockingIOError):
            client.send(bytes(PIECE_BYTES))
    accepted.close()
    until(lambda: all(connection.server._has_ended for connection in wire._connections))
    _reset(client)
    wire.mend()
    until(lambda: not wire._connections)


def _is_reading(wire: Wire) -> bool:
    """Whether the wire takes more from its only client."""
    [connection] = wire._connections
    transport = connection.client._transport
    assert transport is not None
    return transport.is_reading()


# Stragglers.


def test_held_connections_hold_and_new_ones_work(wire: Wire, dial: Dial, server: Server) -> None:
    old, accepted = _pair(dial, server)
    wire.hold_current()
    old.sendall(b"old")
    accepted.sendall(b"answer")
    until(lambda: wire.held_bytes() == 9)
    new, newly = _pair(dial, server)
    newly.sendall(b"welcome")
    assert _receive(new, 7) == b"welcome"
    assert _is_silent(old)
    assert _is_silent(accepted)
    wire.release_held()
    assert _receive(accepted, 3) == b"old"
    assert _receive(old, 6) == b"answer"


def test_mending_a_cut_does_not_release_what_is_held_nor_the_other_way_round(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.hold_current()
    wire.cut()
    client.sendall(b"held")
    until(lambda: wire.held_bytes() == 4)
    wire.mend()
    assert wire.held_bytes() == 4
    wire.cut()
    wire.release_held()
    assert wire.held_bytes() == 4
    assert _is_silent(accepted)
    wire.mend()
    assert _receive(accepted, 4) == b"held"


@pytest.mark.parametrize("gives_up", [socket.socket.close, _reset])
@pytest.mark.parametrize("how", ["cut", "hold"])
def test_what_a_client_sent_before_it_gave_up_arrives_and_the_server_is_not_told(
    gives_up: Callable[[socket.socket], None], how: str, wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.cut() if how == "cut" else wire.hold_current()
    client.sendall(b"straggler")
    until(lambda: wire.held_bytes() == 9)
    gives_up(client)
    until(lambda: all(connection.is_orphan for connection in wire._connections))
    assert _is_silent(accepted)
    wire.mend() if how == "cut" else wire.release_held()
    assert _receive(accepted, 9) == b"straggler"
    accepted.sendall(b"answer to nobody")
    assert _is_silent(accepted)
    _pair(dial, server)
    assert _is_silent(accepted)
    assert wire.held_bytes() == 0
    accepted.close()
    until(lambda: len(wire._connections) == 1)


def test_only_the_client_learns_that_held_connections_were_hung_up(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.hold_current()
    other, _ = _pair(dial, server)
    client.sendall(b"straggler")
    until(lambda: wire.held_bytes() == 9)
    wire.hang_up_held()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    accepted.sendall(b"to nobody")
    assert _is_silent(accepted)
    assert _is_silent(other)
    _pair(dial, server)
    assert wire.held_bytes() == 9
    wire.release_held()
    assert _receive(accepted, 9) == b"straggler"
    assert _is_silent(accepted)


def test_requests_may_be_executed_and_their_answers_be_lost(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.hold_current("to_client")
    client.sendall(b"request")
    assert _receive(accepted, 7) == b"request"
    accepted.sendall(b"answer")
    until(lambda: wire.held_bytes("to_client") == 6)
    wire.hang_up_held()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert wire.held_bytes() == 0
    wire.release_held()
    assert _is_silent(accepted)
    wire.reset()
    with pytest.raises(ConnectionResetError):
        accepted.recv(1)


# Limits, errors and the end.


def test_connections_are_limited(
    wire: Wire, dial: Dial, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wires, "CONNECTIONS_MAX", 1)
    client, accepted = _pair(dial, server)
    with pytest.raises(ConnectionResetError):
        dial().recv(1)
    client.sendall(b"still here")
    assert _receive(accepted, 10) == b"still here"


def test_a_closed_wire_resets_and_refuses_and_says_so(
    wire: Wire, dial: Dial, server: Server
) -> None:
    client, accepted = _pair(dial, server)
    wire.close()
    wire.close()
    for each in (client, accepted):
        with pytest.raises(ConnectionResetError):
            each.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dial()
    with pytest.raises(RuntimeError, match="is closed: make another one"):
        wire.cut()
    assert wire.is_closed
    assert "closed" in repr(wire)


def test_nothing_is_left_of_a_closed_wire(server: Server) -> None:
    before = set(threading.enumerate())
    with Wire(server.endpoint):
        assert len(set(threading.enumerate()) - before) == 1
    assert not set(threading.enumerate()) - before


def test_it_says_where_it_leads_and_how_it_is_cut(wire: Wire, server: Server) -> None:
    wire.cut("to_client")
    assert repr(wire) == f"<Wire {wire.endpoint} to {server.endpoint}, cut ['to_client']>"
    with Wire(f"https://{server.endpoint}") as encrypted:
        assert encrypted.endpoint.startswith("https://127.0.0.1:")


def test_what_is_wrong_is_refused(wire: Wire) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Wire("unix:/run/x.sock")
    with pytest.raises(TypeError, match="None"):
        Wire(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not 'up'"):
        wire.cut("up")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be bytes or str"):
        wire.holds(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not None"):
        wire.hold_current(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds must be more than zero"):
        wire.cut(seconds=0)
    with pytest.raises(ValueError, match="reset needs seconds"):
        wire.cut(reset=True)
