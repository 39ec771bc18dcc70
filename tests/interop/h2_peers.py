"""The library `h2` on real sockets: a client for our server, and a server for our channel."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes, Settings

from tests.interop.demo import DEADLINE_S

PREFIX_BYTES: Final = 5

Fields = list[tuple[str, str]]
HEAD: Final[Fields] = [(":status", "200"), ("content-type", "application/grpc")]
OK: Final[Fields] = [("grpc-status", "0")]


def framed(message: bytes, *, is_packed: bool = False) -> bytes:
    """Put gRPC's prefix before a message."""
    return bytes([is_packed]) + len(message).to_bytes(4, "big") + message


def fields(path: str, *more: tuple[str, str]) -> Fields:
    """The head of a call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *more,
    ]


def _text(pairs: object) -> dict[str, str]:
    assert isinstance(pairs, list)
    return {str(name): str(value) for name, value in pairs}


@dataclass
class Stream:
    """What has come in on a stream."""

    head: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    is_ended: bool = False
    reset: int | None = None

    @property
    def body(self) -> bytes:
        """All bytes of DATA."""
        return b"".join(self.pieces)

    @property
    def status(self) -> str:
        """The status of gRPC."""
        return (self.head | self.trailers)["grpc-status"]


class H2Peer:
    """One side of a connection; it acknowledges what it takes, unless it is told not to."""

    def __init__(self, sock: socket.socket, *, is_client: bool) -> None:
        self.sock = sock
        self._is_client = is_client
        self.sock.settimeout(DEADLINE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = H2Connection(H2Configuration(client_side=is_client, header_encoding="utf-8"))
        self.streams: dict[int, Stream] = {}
        self.takes_data = True
        self.goaway: int | None = None

    def start(self, settings: dict[SettingCodes, int] | None = None) -> None:
        """Say the first words, with these settings."""
        self.h2.local_settings = Settings(
            client=self._is_client,
            initial_values={SettingCodes.ENABLE_PUSH: 0, **(settings or {})},
        )
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        """Send what there is to say."""
        self.sock.sendall(self.h2.data_to_send())

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def pump(self) -> bool:
        """Take what comes in next; False if there is nothing any more."""
        data = self.sock.recv(65_536)
        for event in self.h2.receive_data(data) if data else []:
            self._note(event)
        self.flush()
        return bool(data)

    def until(self, condition: Callable[[], bool]) -> None:
        """Take what comes in until this is so."""
        while not condition():
            assert self.pump(), "the peer hung up"

    def stream(self, number: int) -> Stream:
        """What has come in on a stream so far."""
        return self.streams.setdefault(number, Stream())

    def _note(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id=int(number)) | RequestReceived(stream_id=int(number)):
                self.stream(number).head = _text(event.headers)
            case TrailersReceived(stream_id=int(number)):
                self.stream(number).trailers = _text(event.headers)
            case DataReceived(stream_id=int(number), data=bytes(data)):
                self.stream(number).pieces.append(data)
                if self.takes_data and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, number)
            case StreamEnded(stream_id=int(number)):
                self.stream(number).is_ended = True
            case StreamReset(stream_id=int(number)):
                self.stream(number).reset = int(event.error_code or 0)
            case ConnectionTerminated():
                self.goaway = int(event.error_code or 0)
            case WindowUpdated() | InformationalResponseReceived() | _:
                pass

    def send(self, number: int, data: bytes, piece_bytes: int, **conditions: object) -> None:
        """Send bytes in pieces of no more than this, as the windows allow."""
        while data:
            room = min(self.h2.local_flow_control_window(number), piece_bytes)
            if not room:
                assert self.pump(), "the peer hung up"
                continue
            self.h2.send_data(number, data[:room], **conditions)  # type: ignore[arg-type]
            data = data[room:]
            self.flush()

    def end(self, number: int) -> None:
        """End our side of a stream."""
        self.h2.end_stream(number)
        self.flush()


class H2Client(H2Peer):
    """A client of a server of ours."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), DEADLINE_S), is_client=True)

    def open(self, head: Fields, **conditions: object) -> int:
        """Begin a call."""
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, head, **conditions)  # type: ignore[arg-type]
        self.flush()
        return number


Script = Callable[[H2Peer], None]


class H2Server:
    """A server that does with each connection what its next script says; the last says it again."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def target(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            sock, _ = self._listening.accept()
            if not self._scripts:
                sock.close()
                return
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            thread = threading.Thread(target=self._play, args=(script, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Script, sock: socket.socket) -> None:
        with sock:
            try:
                script(H2Peer(sock, is_client=False))
            except BaseException as failure:  # noqa: BLE001  the test gets it
                self.failures.append(failure)

    def close(self) -> None:
        """End; a script that has failed fails the test."""
        self._scripts.clear()
        socket.create_connection(self._listening.getsockname(), DEADLINE_S).close()  # wakes it
        for thread in (self._accepting, *self._threads):
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a script never ends"
        self._listening.close()
        assert not self.failures, self.failures
