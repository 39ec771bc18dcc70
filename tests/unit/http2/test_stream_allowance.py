"""Open streams and waiting messages: how much of them the connections of a server may have."""

import tracemalloc
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import framed
from leasehold.grpc.routes import NO_HANDLER, Answer, Exchange, Subscription
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.header_encoder import literals
from leasehold.http2.inbound import CREDIT_BYTES, ReceiveAccount
from leasehold.http2.limits import MIB, ConnectionLimits
from leasehold.http2.stream import MAX_ENDED_HERE, RESERVED_STREAMS, STREAM_SHARES
from tests.support.virtual_loop import Turn, VirtualLoop

LIMITS = ConnectionLimits(max_streams=64)
SHARED = STREAM_SHARES * LIMITS.max_streams
SILENT = b"/a.B/Watch"
UNARY = b"/a.B/C"
LATER = b"/a.B/Later"
PIECE_BYTES = frames.MIN_MAX_FRAME_BYTES


@dataclass
class Server:
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    account: ReceiveAccount = field(default_factory=lambda: ReceiveAccount(LIMITS))
    reports: list[str] = field(default_factory=list)
    is_idle: bool = False
    executed: int = 0

    def connect(self) -> "Client":
        return Client(self)


class Client:
    def __init__(self, server: Server) -> None:
        self.sent = bytearray()
        self.server = server
        self.connection = ServerConnection(
            {
                UNARY.decode(): Exchange(self._call),
                LATER.decode(): Exchange(self._later),
                SILENT.decode(): Subscription(lambda _: NO_HANDLER, reads_context=False),
            },
            DurabilityGate(),
            self.sent.extend,
            limits=LIMITS,
            loop=server.loop,
            report=server.reports.append,
            account=server.account,
        )
        self.connection.receive(frames.settings({}))
        self.number = -1

    def _call(self, message: bytes) -> Answer:
        self.server.executed += 1
        return message, 0

    def _later(self, message: bytes) -> Coroutine[Any, Any, Answer]:
        return self._when_idle(message)

    async def _when_idle(self, message: bytes) -> Answer:
        while not self.server.is_idle:
            await Turn()
        self.server.executed += 1
        return b"", 0

    def begin(self, path: bytes = SILENT) -> list[tuple[int, int]]:
        """Begin a stream; return the streams that were reset, and why."""
        self.take()
        self.connection.receive(self.headers(path))
        return [
            (number, int.from_bytes(payload, "big"))
            for kind, number, payload in self.take()
            if kind == frames.RST_STREAM
        ]

    def headers(self, path: bytes = SILENT) -> bytes:
        self.number += 2
        block = literals(
            (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", path),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
            )
        )
        return frames.frame(frames.HEADERS, frames.END_HEADERS, self.number, block)

    def take(self) -> list[tuple[int, int, bytes]]:
        """Take the frames that were sent."""
        found, at = [], 0
        while at < len(self.sent):
            word, _, number = frames.HEAD.unpack_from(self.sent, at)
            end = at + frames.HEAD_BYTES + (word >> 8)
            found.append((word & 0xFF, number, bytes(self.sent[at + frames.HEAD_BYTES : end])))
            at = end
        del self.sent[:]
        return found

    def send(self, message: bytes) -> None:
        data = framed(message)
        for at in range(0, len(data), PIECE_BYTES):
            flags = frames.END_STREAM if at + PIECE_BYTES >= len(data) else 0
            piece = data[at : at + PIECE_BYTES]
            self.connection.receive(frames.frame(frames.DATA, flags, self.number, piece))

    def fill(self) -> None:
        """Begin streams that stay silent, until one is refused or there are the most."""
        while self.streams < LIMITS.max_streams and not self.begin():
            pass

    def reset(self, number: int) -> None:
        code = int(ErrorCode.CANCEL).to_bytes(4, "big")
        self.connection.receive(frames.frame(frames.RST_STREAM, 0, number, code))

    @property
    def streams(self) -> int:
        return len(self.connection._streams)


def exhausted() -> tuple[Server, list[Client]]:
    """Make a server whose shared streams are all in use."""
    server, clients = Server(), []
    while server.account.pool.taken < SHARED:
        clients.append(server.connect())
        clients[-1].fill()
        assert len(clients) < 2 * STREAM_SHARES
    return server, clients


def test_all_connections_together_have_a_limited_number_of_streams() -> None:
    server, clients = exhausted()
    clients += [server.connect() for _ in range(100)]
    for client in clients:
        client.fill()
    most = SHARED + len(clients) * RESERVED_STREAMS
    assert most - LIMITS.max_streams <= sum(client.streams for client in clients) <= most
    assert "8192 shared ones are used" in server.reports[0]
    assert len(server.reports) <= len(clients)


def test_no_connection_has_more_than_a_share() -> None:
    client = Server().connect()
    client.fill()
    assert client.streams == LIMITS.max_streams
    assert client.begin() == [(client.number, ErrorCode.REFUSED_STREAM)]
    assert client.server.account.pool.taken == LIMITS.max_streams - RESERVED_STREAMS
    assert LIMITS.max_streams * STREAM_SHARES == SHARED


def test_calls_are_served_while_others_hold_all_shared_streams() -> None:
    server, _ = exhausted()
    client = server.connect()
    for number in range(1, RESERVED_STREAMS):
        assert not client.begin()
        assert client.streams == number
    for _ in range(100):
        assert not client.begin(UNARY)
        client.send(b"hello")
    assert server.executed == 100
    assert not client.begin()
    assert client.begin(UNARY) == [(client.number, ErrorCode.REFUSED_STREAM)]
    assert server.executed == 100, "a refused call is not executed"


def test_streams_are_returned_when_they_end() -> None:
    server = Server()
    client = server.connect()
    client.fill()
    for number in range(1, client.number + 1, 2):
        client.reset(number)
    assert server.account.pool.taken == LIMITS.max_streams - RESERVED_STREAMS
    client.connection.drop_overdue(0.0)
    assert server.account.pool.taken == 0
    client.fill()
    assert client.streams == LIMITS.max_streams


def test_streams_that_are_in_use_are_not_returned() -> None:
    server = Server()
    client = server.connect()
    client.fill()
    client.connection.drop_overdue(0.0)
    assert server.account.pool.taken == LIMITS.max_streams - RESERVED_STREAMS
    for number in range(1, 2 * 44, 2):
        client.reset(number)
    client.connection.drop_overdue(0.0)
    assert client.streams == 20
    assert server.account.pool.taken == 40 - RESERVED_STREAMS


def announced(client: Client) -> list[int]:
    """Return the limits on streams that were sent to a client since it was last asked."""
    return [
        frames.parse_settings(payload)[Setting.MAX_CONCURRENT_STREAMS]
        for kind, _, payload in client.take()
        if kind == frames.SETTINGS and payload
    ]


def test_a_client_is_told_how_many_streams_it_may_have() -> None:
    """So that it waits with further calls, instead of trying again and again."""
    server, clients = exhausted()
    client = server.connect()
    assert announced(client) == [LIMITS.max_streams]
    for _ in range(RESERVED_STREAMS):
        client.begin()
    client.connection.receive(client.headers())
    client.connection.receive(client.headers())
    assert announced(client) == [RESERVED_STREAMS], "once"
    client.connection.drop_overdue(0.0)
    assert announced(client) == []
    clients[0].connection.lost()
    client.connection.drop_overdue(0.0)
    assert announced(client) == [LIMITS.max_streams]
    client.fill()
    assert client.streams == LIMITS.max_streams


@pytest.mark.parametrize("how", ["lost", "closed", "stopped"])
def test_a_connection_that_is_gone_returns_its_streams_once(how: str) -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    client.fill()
    other.fill()
    if how == "closed":
        client.connection.close(ErrorCode.PROTOCOL_ERROR, "wrong")
    elif how == "stopped":
        client.connection.stop_taking()
    client.connection.drop_overdue(0.0)
    client.connection.lost()
    client.connection.lost()
    assert server.account.pool.taken == LIMITS.max_streams - RESERVED_STREAMS
    assert client.begin() in ([], [(client.number, ErrorCode.REFUSED_STREAM)])
    assert client.streams == 0


def test_messages_of_calls_that_wait_count_as_received() -> None:
    """A client that sends large writes while the store is busy has to wait in the end."""
    server = Server()
    client = server.connect()
    sent_bytes = 0
    while client.connection._inbound.owed <= CREDIT_BYTES:
        assert not client.begin(LATER)
        client.send(bytes(MIB))
        sent_bytes += MIB
        assert client.streams * MIB <= server.account.used_bytes <= client.streams * (MIB + 100)
        assert sent_bytes <= LIMITS.max_buffered_bytes, "the window is given back all the time"
    assert not client.begin(UNARY)
    client.send(b"renewal")
    assert server.executed == 1
    server.is_idle = True
    server.loop.run_tasks()
    assert server.executed == 1 + sent_bytes // MIB, "none of them is refused"
    assert server.account.used_bytes == 0
    assert client.connection._inbound.owed == 0


def test_a_call_that_is_given_up_does_not_count_any_more() -> None:
    server = Server()
    client = server.connect()
    client.begin(LATER)
    client.send(bytes(MIB))
    assert server.account.used_bytes >= MIB
    client.reset(client.number)
    server.loop.run_tasks()
    assert server.account.used_bytes == 0


def test_refused_streams_take_next_to_no_memory() -> None:
    server, _ = exhausted()
    client = server.connect()
    client.fill()
    tracemalloc.start()
    try:
        for _ in range(MAX_ENDED_HERE):
            assert client.begin()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 20_000
