"""Counting what a client sends: messages in the bytes of a connection, whatever the protocol.

Nothing here reads or writes: bytes go in as they come, in pieces of any length. This is run in the
environments of other clients too, so it needs nothing but Python.
"""

from typing import Final, Protocol

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = 9
DATA: Final = 0
PADDED: Final = 0x8
MESSAGE_HEAD: Final = 5
"""Of gRPC: whether it is compressed, and how long it is."""
LENGTH: Final = 4
"""Of a message of ZooKeeper."""
END: Final = b"\r\n"


class Messages(Protocol):
    """Counts the messages of one connection, in one direction."""

    count: int

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        ...


class GrpcMessages:
    """Messages of gRPC, in the DATA frames of HTTP/2 that a client sends."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = bytearray()
        self._preface = len(PREFACE)
        self._streams: dict[int, bytearray] = {}
        """What has come of messages that are not whole."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        held = self._bytes
        held += data
        if self._preface:
            if len(held) < self._preface:
                return
            if bytes(held[: self._preface]) != PREFACE:
                raise ValueError(f"no client of HTTP/2 begins with {bytes(held[:24])!r}")
            del held[: self._preface]
            self._preface = 0
        while len(held) >= FRAME_HEAD:
            size = FRAME_HEAD + int.from_bytes(held[:3])
            if len(held) < size:
                return
            if held[3] == DATA:
                payload = held[FRAME_HEAD:size]
                if held[4] & PADDED:
                    payload = payload[1 : len(payload) - payload[0]]
                self._take(int.from_bytes(held[5:FRAME_HEAD]), payload)
            del held[:size]

    def _take(self, stream: int, payload: bytearray) -> None:
        rest = self._streams.pop(stream, bytearray()) + payload
        while len(rest) >= MESSAGE_HEAD:
            size = MESSAGE_HEAD + int.from_bytes(rest[1:MESSAGE_HEAD])
            if len(rest) < size:
                break
            self.count += 1
            del rest[:size]
        if rest:
            self._streams[stream] = rest


class RedisMessages:
    """Commands to Redis: arrays of strings."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._bytes += data
        while (size := self._size()) is not None:
            self.count += 1
            del self._bytes[:size]

    def _size(self) -> int | None:
        """Of the first command, if all of it is there."""
        head = self._line(0, b"*")
        if head is None:
            return None
        strings, at = head
        for _ in range(strings):
            found = self._line(at, b"$")
            if found is None:
                return None
            length, at = found
            at += length + len(END)
        return at if at <= len(self._bytes) else None

    def _line(self, at: int, kind: bytes) -> tuple[int, int] | None:
        """The number in a line, and where the next one begins."""
        end = self._bytes.find(END, at)
        if end < 0:
            return None
        if self._bytes[at : at + 1] != kind:
            raise ValueError(f"{bytes(self._bytes[at:end])!r} does not begin with {kind!r}")
        return int(self._bytes[at + 1 : end]), end + len(END)


class ZooKeeperMessages:
    """Requests to ZooKeeper, pings too: each begins with its length."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        held = self._bytes
        held += data
        while len(held) >= LENGTH:
            size = LENGTH + int.from_bytes(held[:LENGTH])
            if len(held) < size:
                return
            self.count += 1
            del held[:size]


GRPC, RESP, JUTE = "grpc", "resp", "jute"
PROTOCOLS: Final[dict[str, type[Messages]]] = {
    GRPC: GrpcMessages,
    RESP: RedisMessages,
    JUTE: ZooKeeperMessages,
}
