"""All that a connection will send, encoded before the clock starts.

A script is one run of bytes and the places where each call in it begins. Stream numbers follow from
the order of the calls, so they are in it too; to send the next so many calls is to send a slice.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import cycle
from random import Random

from benchmarks.etcd.go_hpack import TABLE_SIZE, Field, GoEncoder

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 0x01, 0x01, 0x04
FRAME_HEADER = 9
MESSAGE_PREFIX = 5

CONSTANT, CHANGING = "constant", "changing"
"""What headers can be from one call to the next."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

USER_AGENT = b"grpc-go/1.38.0"
API_VERSION: Field = (b"client-api-version", b"3.5")
FIRST_TIMEOUT_US = 4_999_999
LAST_TIMEOUT_US = 4_000_000
"""A Go client with a limit of five seconds sends what is left of it. All have seven digits."""

LONGEST_STEP_US = 39
CONSTANT_TIMEOUT_US = 5_000_000


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    head = len(payload) << 8 | kind
    return head.to_bytes(4, "big") + bytes((flags,)) + stream.to_bytes(4, "big") + payload


def with_prefix(body: bytes) -> bytes:
    """A message as gRPC frames it: not compressed, its length, itself."""
    return b"\0" + len(body).to_bytes(4, "big") + body


def stream_of(call: int) -> int:
    """The number of the stream on which a connection's call goes out."""
    return 2 * call + 1


def timeouts(rng: Random) -> Iterator[bytes]:
    """A different `grpc-timeout` for each call, falling in uneven steps."""
    left_us = FIRST_TIMEOUT_US
    while True:
        left_us -= rng.randint(1, LONGEST_STEP_US)
        if left_us < LAST_TIMEOUT_US:
            left_us = FIRST_TIMEOUT_US - rng.randint(1, LONGEST_STEP_US)
        yield b"%du" % left_us


def constant_timeout() -> Iterator[bytes]:
    """The same `grpc-timeout` for each call."""
    return cycle([b"%du" % CONSTANT_TIMEOUT_US])


class HeaderWriter:
    """The header blocks of one connection, with the fields of etcd's Go client in their order."""

    def __init__(
        self, authority: str, timeouts: Iterator[bytes], table_size: int = TABLE_SIZE
    ) -> None:
        self._encoder = GoEncoder(table_size)
        self._timeouts = timeouts
        self._before: tuple[Field, ...] = ((b":method", b"POST"), (b":scheme", b"http"))
        self._after: tuple[Field, ...] = (
            (b":authority", authority.encode()),
            (b"content-type", b"application/grpc"),
            (b"user-agent", USER_AGENT),
            (b"te", b"trailers"),
        )

    def next_frame(self, stream: int, path: str, *, is_timed: bool = True) -> bytes:
        """The HEADERS frame that opens a stream; one that is to stay open has no timeout."""
        fields = [*self._before, (b":path", path.encode()), *self._after]
        if is_timed:
            fields.append((b"grpc-timeout", next(self._timeouts)))
        block = self._encoder.encode((*fields, API_VERSION))
        return frame(HEADERS, END_HEADERS, stream, block)


class Script:
    """The calls of one connection in the order in which they go out.

    The first of them is the connection's call number `first`. `rest` has calls that are encoded
    already and come before the others: header blocks build on each other, so none may be left out.
    """

    def __init__(
        self,
        headers: HeaderWriter,
        path: str,
        bodies: Iterable[bytes],
        *,
        first: int = 0,
        rest: "Script | None" = None,
    ) -> None:
        pieces: list[bytes | memoryview] = []
        self.content: memoryview
        self.first = first
        self.starts = [0]
        self.data_bytes = [0]
        size = payload = 0
        if rest is not None and len(rest):
            pieces.append(rest.content)
            self.first, self.starts, self.data_bytes = (
                rest.first,
                [*rest.starts],
                [*rest.data_bytes],
            )
            size, payload = self.starts[-1], self.data_bytes[-1]
        for call, body in enumerate(bodies, self.first + len(self)):
            stream = stream_of(call)
            data = frame(DATA, END_STREAM, stream, with_prefix(body))
            piece = headers.next_frame(stream, path) + data
            pieces.append(piece)
            size += len(piece)
            payload += len(data) - FRAME_HEADER
            self.starts.append(size)
            self.data_bytes.append(payload)
        self.content = memoryview(b"".join(pieces))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def after(self, sent: int) -> "Script":
        """What is left when so many of the calls were sent."""
        left = copy(self)
        start, payload = self.starts[sent], self.data_bytes[sent]
        left.first = self.first + sent
        left.starts = [each - start for each in self.starts[sent:]]
        left.data_bytes = [each - payload for each in self.data_bytes[sent:]]
        left.content = self.content[start:]
        return left
