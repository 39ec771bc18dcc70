"""A server under the control of a test, frame by frame; and connections to it, real or not.

`RawServer` enforces no rules, so it can break all of them. `Wire` connects it to a
`ClientConnection`, `Net` to the channels of a virtual event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import hpack

from leasehold.errors import ConnectFailed
from leasehold.grpc.client_call import StreamingCall, UnaryCall
from leasehold.grpc.client_connection import CLIENT_LIMITS, ClientConnection
from leasehold.grpc.client_headers import RequestHeads
from leasehold.grpc.client_protocol import ClientProtocol, MakeConnection
from leasehold.grpc.endpoints import Endpoint
from leasehold.grpc.protocol import framed
from leasehold.http2 import frames
from leasehold.http2.frames import END_HEADERS, END_STREAM, ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from tests.support.h2_peer import Frame

PATH: Final = "/test.Service/Method"
OK: Final = (("grpc-status", "0"),)
HEAD: Final = ((":status", "200"), ("content-type", "application/grpc"))


@dataclass
class Request:
    """The frames that a server has received of a call."""

    fields: list[tuple[str, str]]
    body: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    reset: int | None = None

    @property
    def head(self) -> dict[str, str]:
        return dict(self.fields)


class RawServer:
    """Receives frames, and sends those of the test."""

    def __init__(self, transmit: Callable[[bytes], None]) -> None:
        self.transmit = transmit
        self.requests: dict[int, Request] = {}
        self.frames: list[Frame] = []
        self.answers_pings = True
        self.acknowledges = True
        self.on_request: Callable[[int], None] | None = None
        """Called when a client has ended its side of a call."""
        self._tail = b""
        self._has_preface = False
        self._decoder = hpack.Decoder()
        self._encoder = hpack.Encoder()

    # Receiving.

    def receive(self, data: bytes) -> None:
        data = self._tail + data
        if not self._has_preface:
            assert data.startswith(frames.PREFACE)
            data, self._has_preface = data[len(frames.PREFACE) :], True
        at = 0
        while len(data) - at >= frames.HEAD_BYTES:
            end = at + frames.HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            number = int.from_bytes(data[at + 5 : at + 9], "big")
            self._take(Frame(data[at + 3], data[at + 4], number, data[at + 9 : end]))
            at = end
        self._tail = data[at:]

    def _take(self, frame: Frame) -> None:
        self.frames.append(frame)
        request = self.requests.get(frame.stream_id)
        if frame.kind == frames.HEADERS:
            assert frame.flags & END_HEADERS, "tests have short heads"
            fields = self._decoder.decode(frame.payload)
            request = Request([(str(name), str(value)) for name, value in fields])
            self.requests[frame.stream_id] = request
        elif frame.kind == frames.DATA:
            assert request is not None, frame
            request.body += frame.payload
        elif frame.kind == frames.RST_STREAM:
            assert request is not None, frame
            request.reset = int(frame.code)
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK and self.acknowledges:
            self.send(frames.frame(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK and self.answers_pings:
            self.send(frames.frame(frames.PING, frames.ACK, 0, frame.payload))
        is_end = frame.kind in (frames.HEADERS, frames.DATA) and frame.flags & END_STREAM
        if request is not None and is_end:
            request.is_ended = True
            if self.on_request is not None:
                self.on_request(frame.stream_id)

    def heard(self, kind: int) -> list[Frame]:
        return [each for each in self.frames if each.kind == kind]

    @property
    def goaway(self) -> ErrorCode | None:
        """How the client has ended the connection, if it has."""
        ends = self.heard(frames.GOAWAY)
        return ends[0].code if ends else None

    # Sending.

    def send(self, *chunks: bytes) -> None:
        self.transmit(b"".join(chunks))

    def greet(self, settings: dict[Setting, int] | None = None) -> None:
        self.send(frames.settings(settings or {}))

    def block(self, stream_id: int, fields: Any, flags: int = 0) -> bytes:
        encoded = self._encoder.encode(list(fields))
        return frames.frame(frames.HEADERS, END_HEADERS | flags, stream_id, encoded)

    def head(self, stream_id: int, *metadata: tuple[str, str]) -> None:
        self.send(self.block(stream_id, (*HEAD, *metadata)))

    def say(self, stream_id: int, message: bytes) -> None:
        self.send(frames.frame(frames.DATA, 0, stream_id, framed(message)))

    def trailers(self, stream_id: int, fields: Any = OK) -> None:
        self.send(self.block(stream_id, fields, END_STREAM))

    def answer(self, stream_id: int, message: bytes = b"answer") -> None:
        self.head(stream_id)
        self.say(stream_id, message)
        self.trailers(stream_id)

    def reset(self, stream_id: int, code: int = ErrorCode.REFUSED_STREAM) -> None:
        self.send(frames.frame(frames.RST_STREAM, 0, stream_id, code.to_bytes(4, "big")))

    def good_bye(
        self, last_id: int, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "maintenance"
    ) -> None:
        self.send(frames.goaway(last_id, code, why))


class Wire:
    """A client's connection and a raw server, back to back."""

    def __init__(
        self,
        settings: dict[Setting, int] | None = None,
        limits: ConnectionLimits = CLIENT_LIMITS,
        *,
        greets: bool = True,
    ) -> None:
        self._to_server: list[bytes] = []
        self._to_client: list[bytes] = []
        self.changes: list[bool] = []
        self.now = 0.0
        self.flushes = 0
        self.client: ClientConnection = ClientConnection(
            self._to_server.append,
            lambda: self.now,
            limits=limits,
            schedule_flush=self._flush_soon,
            on_change=lambda: self.changes.append(self.client.is_ready),
        )
        self.server = RawServer(self._to_client.append)
        self.heads = RequestHeads(b"http", b"localhost", b"test/1")
        self._loop = asyncio.new_event_loop()
        if greets:
            self.server.greet(settings)
            self.pump()

    def _flush_soon(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self._loop.close()

    def pump(self) -> None:
        """Transfer data in both directions until neither side sends more."""
        for _ in range(1000):
            if self.flushes:
                self.flushes = 0
                self.client.flush()
            if not self._to_server and not self._to_client:
                return
            said, self._to_server[:] = b"".join(self._to_server), []
            if said:
                self.server.receive(said)
            heard, self._to_client[:] = b"".join(self._to_client), []
            if heard:
                self.client.receive(heard)
        raise AssertionError("the two never stop talking")

    def unary(self, message: bytes = b"hello") -> UnaryCall:
        fields = self.heads.get(PATH, None, None)
        future: asyncio.Future[bytes] = self._loop.create_future()
        call = UnaryCall(fields, self.client.limits.max_message_bytes, future)
        self.client.begin(call, message)
        return call

    def stream(self) -> StreamingCall:
        fields = self.heads.get(PATH, None, None)
        call = StreamingCall(fields, self.client.limits.max_message_bytes)
        self.client.begin(call)
        return call

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine that has nothing to wait for, or only for what is called meanwhile."""
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, 5.0))


def no_leak(client: ClientConnection) -> bool:
    """Whether a connection has nothing left of any call."""
    outbound = client._outbound
    queued = len(outbound._ready) + len(outbound._starved) + len(client._pending)
    left = (len(client._streams), queued, outbound.unsent_bytes, client._inbound.buffered_bytes)
    return left == (0, 0, 0, 0)


class VirtualTransport(asyncio.Transport):
    """The client's end of a connection to a raw server, in a virtual loop."""

    def __init__(self, protocol: ClientProtocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.protocol = protocol
        self.server = RawServer(self._deliver)
        self.hangs = False
        """Whether what is written stays where it is, and so does the end."""
        self.writes = 0
        self._is_closing = False
        self._is_gone = False

    def write(self, data: Any) -> None:
        self.writes += 1
        if not self._is_closing and not self.hangs:
            self._loop.call_soon(self.server.receive, bytes(data))

    def _deliver(self, data: bytes) -> None:
        self._loop.call_soon(self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if not self._is_closing:
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        if not self.hangs:
            self.hang_up()

    def abort(self) -> None:
        self.hang_up()

    def hang_up(self, error: Exception | None = None) -> None:
        """End the connection, from either side."""
        self._is_closing = True
        self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if not self._is_gone:
            self._is_gone = True
            self.protocol.connection_lost(error)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(ClientProtocol, protocol)


class Net:
    """Where the channels of a virtual loop connect to."""

    def __init__(self) -> None:
        self.dialed: list[str] = []
        self.down: set[str] = set()
        """Addresses that refuse connections."""
        self.silent: set[str] = set()
        """Addresses that take connections, and say nothing."""
        self.delay_s = 0.0
        self.settings: dict[Setting, int] = {}
        self.made: asyncio.Queue[VirtualTransport] = asyncio.Queue()
        self.transports: list[VirtualTransport] = []
        self.serve: Callable[[RawServer], None] | None = None
        """Prepares each new server."""

    async def connect(self, make_connection: MakeConnection, endpoint: Endpoint) -> ClientProtocol:
        """Connect as `connecting.connect` does."""
        address = str(endpoint)
        self.dialed.append(address)
        await asyncio.sleep(self.delay_s)
        if address in self.down:
            raise ConnectFailed(f"cannot connect to {address}: Connection refused")
        line = make_connection(endpoint)
        transport = VirtualTransport(line)
        transport.server.acknowledges = address not in self.silent
        line.connection_made(transport)
        if address not in self.silent:
            transport.server.greet(self.settings)
            if self.serve is not None:
                self.serve(transport.server)
        self.transports.append(transport)
        self.made.put_nowait(transport)
        return line


def echoing(server: RawServer) -> None:
    """Have a server answer each unary call with its message."""

    def answer(stream_id: int) -> None:
        server.answer(stream_id, bytes(server.requests[stream_id].body[5:]))

    server.on_request = answer
