"""The client's side of an HTTP/2 connection, as cheap as Python allows.

Theory of operation. What is sent is a slice of a `Script`; what arrives is a sequence of frames, of
which only the headers are looked at. A block of headers is decoded when it is seen for the first
time, and every answer must have status 200 and end with `grpc-status: 0`, or the load fails at
once. A block that changes nothing in the header table means the same when it is seen again, until
another one does change the table. So accepted blocks of the first kind are remembered, and all of
them are forgotten when one of the second kind arrives.

A server may send nothing here that a load could wait for and count as done: a stream that is reset,
a connection that goes away, or an answer without trailers is an error. A reset without an error is
none: Go's server sends it after an answer that it had ready before it saw the end of the request.
"""

import socket
from struct import Struct

from hpack import Decoder

from benchmarks.etcd.go_hpack import TABLE_SIZE
from benchmarks.etcd.script import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

RECEIVE_BYTES = 1 << 18
CONNECT_TIMEOUT_S = 5.0

HEADER_TABLE_SIZE, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 3, 4
DEFAULT_WINDOW = 65_535
OUR_WINDOW = 1 << 30
"""So large that no stream of a round uses it up; the connection's is filled again in bulk."""

REFILL = OUR_WINDOW // 4

_FRAME = Struct(">IBI").unpack_from
_SETTING = Struct(">HI")
_WORD = Struct(">I")
_PADDED_OR_PRIORITY = 0x28


Trailers = dict[bytes, bytes]


class LoadFailed(Exception):
    """The server did something that makes the round worthless."""


class BadStatus(LoadFailed):
    """A call ended with another status than OK."""

    def __init__(self, trailers: Trailers) -> None:
        super().__init__(f"an answer that ends with {trailers}")
        self.status = int(trailers.get(b"grpc-status", b"-1"))


class Connection:
    """Frames in and out of one socket; what a completed call is, is for the subclass."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.table_size = TABLE_SIZE
        self.max_streams: int | None = None
        self.window = DEFAULT_WINDOW
        self.stream_window = DEFAULT_WINDOW
        self._rest = b""
        self._decoder = Decoder()
        self._known: set[bytes] = set()
        self._known_trailers: set[bytes] = set()
        self._known_failures: dict[bytes, Trailers] = {}
        self._consumed = 0
        self._settled = False
        setting = _SETTING.pack(INITIAL_WINDOW_SIZE, OUR_WINDOW)
        self._send(PREFACE + frame(SETTINGS, 0, 0, setting) + _window_update(OUR_WINDOW))

    def handshake(self) -> None:
        """Wait for the server's settings, which the header table depends on."""
        while not self._settled:
            self.receive(0.0)

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def receive(self, now: float) -> int:
        """Process arrived data, and return the number of completed calls."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the server closed a connection")
        if self._rest:
            data = self._rest + data
        position, size, done = 0, len(data), 0
        known, known_trailers = self._known, self._known_trailers
        while size - position >= FRAME_HEADER:
            head, flags, stream = _FRAME(data, position)
            start = position + FRAME_HEADER
            end = start + (head >> 8)
            if end > size:
                break
            kind = head & 0xFF
            if kind == HEADERS:
                block = data[start:end]
                if not flags & END_STREAM:
                    if block not in known:
                        self._learn(block, flags)
                elif block in known_trailers or (failure := self._failure(block, flags)) is None:
                    done += self._ended(stream, now)
                else:
                    done += self._failed(stream, failure, now)
            elif kind == DATA:
                self._consumed += end - start
                if flags & END_STREAM:
                    raise LoadFailed(f"stream {stream} ended without trailers")
                done += self._data(stream, data, start, end, now)
            else:
                self._control(kind, flags, stream, data[start:end])
            position = end
        self._rest = data[position:]
        if self._consumed >= REFILL:
            self._send(_window_update(self._consumed))
            self._consumed = 0
        return done

    def _ended(self, stream: int, now: float) -> int:
        raise NotImplementedError

    def _failed(self, _stream: int, trailers: Trailers, _now: float) -> int:
        """Handle a call that ended with another status than OK; most loads cannot go on then."""
        raise BadStatus(trailers)

    def _data(self, stream: int, data: bytes, start: int, end: int, now: float) -> int:
        raise NotImplementedError

    def _stream_window(self, stream: int, more: int) -> None:
        """Room on one stream; it matters only to those that stay open."""

    def _send(self, data: bytes | memoryview) -> None:
        sent = self.sock.send(data)
        if sent != len(data):
            raise LoadFailed(f"the socket took {sent} of {len(data)} bytes: too much is in flight")

    def _failure(self, block: bytes, flags: int) -> Trailers | None:
        """What a call has failed with, by its trailers; None if it has not."""
        failure = self._known_failures.get(block)
        if failure is None:
            fields = self._learn(block, flags)
            failure = None if fields.get(b"grpc-status") == b"0" else fields
        return failure

    def _learn(self, block: bytes, flags: int) -> Trailers:
        if flags & _PADDED_OR_PRIORITY or not flags & END_HEADERS:
            raise LoadFailed(f"a HEADERS frame with flags {flags:#x} is not handled here")
        table = self._decoder.header_table
        before = (table.maxsize, len(table.dynamic_entries))
        newest = table.dynamic_entries[0] if table.dynamic_entries else None
        fields = {
            bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)
        }
        now_newest = table.dynamic_entries[0] if table.dynamic_entries else None
        changed = (table.maxsize, len(table.dynamic_entries)) != before or now_newest is not newest
        if changed:
            self._known.clear()
            self._known_trailers.clear()
            self._known_failures.clear()
        if b":status" in fields and fields[b":status"] != b"200":
            raise LoadFailed(f"an answer with {fields}")
        if not changed:
            if not flags & END_STREAM:
                self._known.add(block)
            elif fields.get(b"grpc-status") == b"0":
                self._known_trailers.add(block)
            else:
                self._known_failures[block] = fields
        return fields

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            more = _WORD.unpack(payload)[0]
            if stream:
                self._stream_window(stream, more)
            else:
                self.window += more
        elif kind == PING:
            if not flags & ACK:
                self._send(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            if not flags & ACK:
                self._settings(payload)
        elif kind == RST_STREAM:
            error = _WORD.unpack(payload)[0]
            if error:  # else the answer came first: a call without one is missed at the end
                raise LoadFailed(f"stream {stream} was reset with error {error}")
        elif kind == GOAWAY:
            raise LoadFailed(f"the server goes away: {payload[4:]!r}")
        else:
            raise LoadFailed(f"a frame of type {kind} is not handled here")

    def _settings(self, payload: bytes) -> None:
        settings = dict(_SETTING.iter_unpack(payload))
        self.table_size = min(TABLE_SIZE, settings.get(HEADER_TABLE_SIZE, TABLE_SIZE))
        self.max_streams = settings.get(MAX_CONCURRENT_STREAMS)
        self.stream_window = settings.get(INITIAL_WINDOW_SIZE, DEFAULT_WINDOW)
        self._send(frame(SETTINGS, ACK, 0, b""))
        self._settled = True


def _window_update(more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, 0, _WORD.pack(more))
