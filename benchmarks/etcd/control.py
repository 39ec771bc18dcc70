"""One call at a time, for what comes before a load and after it."""

from random import Random

from benchmarks.etcd.connection import Connection, LoadFailed
from benchmarks.etcd.script import (
    DATA,
    END_STREAM,
    MESSAGE_PREFIX,
    HeaderWriter,
    frame,
    stream_of,
    timeouts,
    with_prefix,
)

CALL_TIMEOUT_S = 20.0


class Control(Connection):
    """A connection that waits for every answer."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.sock.settimeout(CALL_TIMEOUT_S)
        self._calls = 0
        self._answer = bytearray()
        self.handshake()
        self._headers = HeaderWriter(f"127.0.0.1:{port}", timeouts(Random(0)), self.table_size)

    def call(self, path: str, body: bytes) -> bytes:
        """Make a unary call and return the encoded answer; a bad status is a `BadStatus`."""
        stream = stream_of(self._calls)
        self._calls += 1
        self._answer.clear()
        opening = self._headers.next_frame(stream, path)
        self._send(opening + frame(DATA, END_STREAM, stream, with_prefix(body)))
        while not self.receive(0.0):
            pass
        size = int.from_bytes(self._answer[1:MESSAGE_PREFIX], "big")
        if len(self._answer) != MESSAGE_PREFIX + size:
            raise LoadFailed(f"{path} answered with {len(self._answer)} bytes, not one message")
        return bytes(self._answer[MESSAGE_PREFIX:])

    def _ended(self, _stream: int, _now: float) -> int:
        return 1

    def _data(self, _stream: int, data: bytes, start: int, end: int, _now: float) -> int:
        self._answer += data[start:end]
        return 0
