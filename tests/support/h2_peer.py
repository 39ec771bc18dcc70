"""Clients for a `ServerConnection` without sockets: one that keeps the rules, one that need not.

`Peer` is the library `h2`, so the RFC is interpreted by an independent implementation.
`RawPeer` writes frames by hand, for what `h2` would refuse to send. Both call `Service`.
"""

from dataclasses import dataclass, field
from typing import Final

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import Pages, PagesOnly
from leasehold.grpc.protocol import PREFIX_BYTES, framed
from leasehold.grpc.routes import Answer, Exchange, Method, ServerStream, Subscription
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode
from leasehold.http2.limits import ConnectionLimits
from tests.support.virtual_loop import VirtualLoop

ONCE: Final = "/test.Service/Once"
MANY: Final = "/test.Service/Many"
WATCH: Final = "/test.Service/Watch"
END: Final = frames.END_STREAM
END_HEADERS: Final = frames.END_HEADERS
MAX_ROUNDS: Final = 100_000
"""How often both sides of a peer may speak in turn before a test has failed."""

Fields = list[tuple[str, str]]


class Ear:
    """The listener of one subscription; notes what happens to it."""

    def __init__(self, service: "Service", stream: ServerStream) -> None:
        self.service = service
        self.stream = stream
        self.heard_all: list[bytes] = []
        self.ended_times = 0
        self.gone_times = 0
        self.relieved_times = 0

    def message_received(self, message: bytes) -> None:
        self.heard_all.append(message)
        if self.service.fails is not None:
            raise self.service.fails

    def ended(self) -> None:
        self.ended_times += 1
        if self.service.ended_fails is not None:
            raise self.service.ended_fails
        if self.service.ends_when_client_does:
            self.stream.end()

    def gone(self) -> None:
        self.gone_times += 1
        if self.service.gone_fails is not None:
            raise self.service.gone_fails

    def relieved(self) -> None:
        """Count."""
        self.relieved_times += 1


class Service:
    """Gives each message back, or fails; its answers wait for `position`."""

    def __init__(self) -> None:
        self.position = 0
        self.fails: Exception | None = None
        self.open_fails: Exception | None = None
        self.ended_fails: Exception | None = None
        self.gone_fails: Exception | None = None
        self.ends_when_client_does = True
        self.heard: list[bytes] = []
        self.ears: list[Ear] = []
        self.methods: dict[str, Method] = {
            ONCE: Exchange(self.echo),
            MANY: Exchange(self.echo, is_unary=False),
            WATCH: Subscription(self.listen),
        }

    def echo(self, message: bytes) -> Answer:
        self.heard.append(message)
        if self.fails is not None:
            raise self.fails
        return message, self.position

    def listen(self, stream: ServerStream) -> Ear:
        if self.open_fails is not None:
            raise self.open_fails
        self.ears.append(Ear(self, stream))
        return self.ears[-1]


@dataclass
class Reply:
    """What came back on one stream."""

    head: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    is_ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        """The status of gRPC, from trailers or the only block."""
        return int((self.head | self.trailers)["grpc-status"])

    @property
    def why(self) -> str:
        """The percent-encoded message of gRPC."""
        return (self.head | self.trailers).get("grpc-message", "")

    @property
    def messages(self) -> list[bytes]:
        """The messages in the body, which must be complete."""
        found, at = [], 0
        while at < len(self.body):
            size = int.from_bytes(self.body[at + 1 : at + PREFIX_BYTES], "big")
            assert self.body[at] == 0
            assert len(self.body) >= at + PREFIX_BYTES + size, "a message is cut off"
            found.append(self.body[at + PREFIX_BYTES : at + PREFIX_BYTES + size])
            at += PREFIX_BYTES + size
        return found


def request_fields(path: str = ONCE, **changed: str) -> Fields:
    """The header fields of a call; `content_type="x"` changes or adds `content-type`."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    for name, value in changed.items():
        key = f":{name}" if f":{name}" in fields else name.replace("_", "-")
        fields[key] = value
    return list(fields.items())


class Peer:
    """A client that keeps to the rules, and the server that it talks to."""

    def __init__(
        self,
        service: Service | None = None,
        gate: DurabilityGate | None = None,
        *,
        pages: Pages | None = None,
        limits: ConnectionLimits | None = None,
        loop: VirtualLoop | None = None,
    ) -> None:
        self.service = service or Service()
        self.gate = DurabilityGate() if gate is None else gate
        self.loop = loop or VirtualLoop()
        self.replies: dict[int, Reply] = {}
        self.events: list[Event] = []
        self.takes_data = True
        """Whether what comes in is acknowledged, so that the windows open again."""
        self._arrived: list[bytes] = []
        self.server = ServerConnection(
            self.service.methods,
            self.gate,
            self._arrived.append,
            web=PagesOnly(pages),
            limits=limits,
            loop=self.loop,
        )
        config = H2Configuration(client_side=True, header_encoding="utf-8")
        self.client = H2Connection(config)
        self.client.initiate_connection()
        preface = self.client.data_to_send()
        assert preface.startswith(frames.PREFACE)
        self.server.receive(preface[len(frames.PREFACE) :])
        self.pump()

    @property
    def goaway(self) -> ErrorCode | None:
        """How the server ended the connection, if it did."""
        ends = [event for event in self.events if isinstance(event, ConnectionTerminated)]
        return ErrorCode(ends[0].error_code or 0) if ends else None

    def pump(self) -> None:
        """Transfer data in both directions until neither side sends more."""
        for _ in range(MAX_ROUNDS):
            arrived, self._arrived[:] = b"".join(self._arrived), []
            for event in self.client.receive_data(arrived) if arrived else []:
                self._note(event)
            said = self.client.data_to_send()
            if said:
                self.server.receive(said)
            elif not self._arrived:
                return
        raise AssertionError("the two never stop talking")

    def _note(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case ResponseReceived(stream_id=int(number), headers=list(headers)):
                self.reply(number).head = {str(name): str(value) for name, value in headers}
            case TrailersReceived(stream_id=int(number), headers=list(headers)):
                self.reply(number).trailers = {str(name): str(value) for name, value in headers}
            case DataReceived(stream_id=int(number), data=bytes(data)):
                self.reply(number).body += data
                if self.takes_data and event.flow_controlled_length:
                    self.client.acknowledge_received_data(event.flow_controlled_length, number)
            case StreamEnded(stream_id=int(number)):
                self.reply(number).is_ended = True
            case StreamReset(stream_id=int(number)):
                self.reply(number).reset = int(event.error_code or 0)

    def reply(self, stream_id: int) -> Reply:
        """What came back on a stream so far."""
        return self.replies.setdefault(stream_id, Reply())

    def open(self, path: str = ONCE, *, end: bool = False, **changed: str) -> int:
        """Begin a call, without handing it over yet."""
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, request_fields(path, **changed), end_stream=end)
        return stream_id

    def say(self, stream_id: int, *messages: bytes, end: bool = False) -> None:
        """Send messages on a stream, as far as its window goes, without handing them over yet."""
        self.send(stream_id, b"".join(map(framed, messages)), end=end)

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream; pass it on whenever the window is closed."""
        while data:
            room = min(
                self.client.local_flow_control_window(stream_id),
                self.client.max_outbound_frame_size,
            )
            if not room:
                self.pump()
                assert self.client.local_flow_control_window(stream_id), "the window stays closed"
                continue
            piece, data = data[:room], data[room:]
            self.client.send_data(stream_id, piece, end_stream=end and not data)
            end = end and bool(data)
        if end:
            self.client.end_stream(stream_id)

    def begin(self, message: bytes = b"hello", path: str = ONCE) -> int:
        """Make a unary call, without handing it over yet."""
        stream_id = self.open(path)
        self.say(stream_id, message, end=True)
        return stream_id

    def call(self, message: bytes = b"hello", path: str = ONCE) -> Reply:
        """Make a unary call, and return the response."""
        stream_id = self.begin(message, path)
        self.pump()
        return self.reply(stream_id)

    def release(self, position: int) -> None:
        """Let the gate release, and take what comes of it."""
        self.gate.release(position)
        self.pump()


@dataclass(frozen=True)
class Frame:
    """A frame that the server sent."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def code(self) -> ErrorCode:
        """The error code of a GOAWAY or RST_STREAM."""
        at = 4 if self.kind == frames.GOAWAY else 0
        return ErrorCode(int.from_bytes(self.payload[at : at + 4], "big"))


class RawPeer:
    """A client that sends the given frames, and its server."""

    def __init__(
        self,
        service: Service | None = None,
        gate: DurabilityGate | None = None,
        *,
        greets: bool = True,
        limits: ConnectionLimits | None = None,
        loop: VirtualLoop | None = None,
    ) -> None:
        self.service = service or Service()
        self.gate = DurabilityGate() if gate is None else gate
        self.loop = loop or VirtualLoop()
        self.encoder = hpack.Encoder()
        self._arrived: list[bytes] = []
        self.server = ServerConnection(
            self.service.methods,
            self.gate,
            self._arrived.append,
            limits=limits,
            loop=self.loop,
        )
        if greets:
            self.server.receive(frames.frame(frames.SETTINGS, 0, 0))
            self.taken()

    def block(self, path: str = ONCE, **changed: str) -> bytes:
        """Encode the header block of a call."""
        return self.encoder.encode(request_fields(path, **changed))

    def request(self, stream_id: int, path: str = ONCE, flags: int = 0, **changed: str) -> bytes:
        """Write the HEADERS frame of a call."""
        block = self.block(path, **changed)
        return frames.frame(frames.HEADERS, END_HEADERS | flags, stream_id, block)

    def unary(self, stream_id: int, message: bytes = b"hello") -> bytes:
        """Write a whole unary call."""
        return self.request(stream_id) + frames.frame(frames.DATA, END, stream_id, framed(message))

    def send(self, *data: bytes) -> list[Frame]:
        """Pass data to the server, and return the frames that it sends."""
        self.server.receive(b"".join(data))
        return self.taken()

    def taken(self) -> list[Frame]:
        """Take the frames that the server sent."""
        data, self._arrived[:] = b"".join(self._arrived), []
        return split_frames(data)

    def goaway(self, *data: bytes) -> ErrorCode:
        """Pass data to the server that must end the connection; return the error code."""
        last = self.send(*data)[-1]
        assert last.kind == frames.GOAWAY, last
        assert self.server.is_closing
        return last.code

    def reset(self, *data: bytes) -> tuple[int, ErrorCode]:
        """Pass data to the server that must reset a stream; return its id and the error code."""
        last = self.send(*data)[-1]
        assert last.kind == frames.RST_STREAM, last
        assert not self.server.is_closing
        return last.stream_id, last.code


def split_frames(data: bytes) -> list[Frame]:
    """Split data into frames, of which the last must be whole."""
    found, at = [], 0
    while at < len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        assert end <= len(data), "a frame is cut off"
        number = int.from_bytes(data[at + 5 : at + 9], "big")
        found.append(Frame(data[at + 3], data[at + 4], number, data[at + 9 : end]))
        at = end
    return found


def kinds(sent: list[Frame]) -> list[int]:
    """The types of frames, in order."""
    return [one.kind for one in sent]


def no_leak(server: ServerConnection) -> bool:
    """Whether a connection has nothing left of any call."""
    outbound = server._outbound
    queued = len(outbound._ready) + len(outbound._starved)
    return (
        len(server._streams),
        queued,
        outbound.unsent_bytes,
        server._inbound.buffered_bytes,
    ) == (0,) * 4
