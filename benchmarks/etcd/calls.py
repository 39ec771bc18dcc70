"""What a load does on one connection: calls that end, or messages on streams that stay.

Both keep as many calls in flight as they were told to: a completed one makes room for the next.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from benchmarks.etcd.connection import Connection, LoadFailed
from benchmarks.etcd.script import (
    DATA,
    FRAME_HEADER,
    MESSAGE_PREFIX,
    HeaderWriter,
    Script,
    frame,
    stream_of,
    with_prefix,
)


class Calls(Connection):
    """A connection with so many calls in flight."""

    def __init__(self, port: int, in_flight: int) -> None:
        super().__init__(port)
        self.in_flight = in_flight
        self.sent = 0
        self.done = 0
        self.latencies_s: list[float] = []
        self.sample = b""
        """The last answer, as gRPC frames it."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to be sent."""
        return False

    def begin(self, now: float) -> None:
        """Send the first calls."""
        self.sock.setblocking(False)
        self.advance(self.in_flight, now)

    def advance(self, room: int, now: float) -> None:
        """Send so many more calls, and those that had to wait for the server's window."""
        raise NotImplementedError


class UnaryCalls(Calls):
    """Calls of one message each, from a script."""

    def __init__(self, port: int, in_flight: int) -> None:
        super().__init__(port, in_flight)
        self._script: Script | None = None
        self._sent_at: list[float] = []
        self._owed = 0
        self._first = 0

    def prepare(self, script: Script) -> None:
        """What to send next; nothing may be in flight."""
        self._script = script
        self._first = script.first
        self.sent = self.done = self._owed = 0
        self._sent_at.clear()

    def restock(self, headers: HeaderWriter, path: str, bodies: Iterator[bytes], ahead: int) -> int:
        """Encode calls until so many are ahead; return how many were acknowledged since last."""
        done, rest, first = self.done, None, 0
        if self._script is not None:
            rest, first = self._script.after(self.sent), self._first + self.sent
        missing = max(0, ahead - (0 if rest is None else len(rest)))
        self.prepare(Script(headers, path, islice(bodies, missing), first=first, rest=rest))
        return done

    @property
    def exhausted(self) -> bool:
        """Whether the script is at its end."""
        return self._script is None or self.sent == len(self._script)

    def advance(self, room: int, now: float) -> None:
        """Send the next calls of the script, as one slice of it."""
        script = self._script
        assert script is not None, "prepare() comes first"
        self._owed += room
        first = self.sent
        after = min(first + self._owed, len(script))
        sizes = script.data_bytes
        while sizes[after] - sizes[first] > self.window:
            after -= 1
        count = after - first
        if not count:
            return
        self._owed -= count
        self.window -= sizes[after] - sizes[first]
        self.sent = after
        self._sent_at += [now] * count
        self._send(script.content[script.starts[first] : script.starts[after]])

    def _ended(self, stream: int, now: float) -> int:
        self.done += 1
        self.latencies_s.append(now - self._sent_at[(stream >> 1) - self._first])
        return 1

    def _data(self, _stream: int, data: bytes, start: int, end: int, _now: float) -> int:
        self.sample = data[start:end]
        return 0


@dataclass(slots=True)
class _Stream:
    """One stream that stays open, and the messages that go round on it."""

    frames: list[bytes]
    window: int
    owed: int = 0
    position: int = 0
    sent_at: deque[float] = field(default_factory=deque)
    rest: bytes = b""


class StreamCalls(Calls):
    """Messages on streams that stay open for the whole load, each answered by a message."""

    def __init__(self, port: int, in_flight: int) -> None:
        super().__init__(port, in_flight)
        self._streams: dict[int, _Stream] = {}

    def prepare(self, headers: HeaderWriter, path: str, bodies: list[list[bytes]]) -> None:
        """Open a stream for each list of messages; they are sent on it again and again."""
        share, over = divmod(self.in_flight, len(bodies))
        if over:
            raise ValueError(f"{self.in_flight} in flight do not spread over {len(bodies)} streams")
        for call, messages in enumerate(bodies):
            number = stream_of(call)
            frames = [frame(DATA, 0, number, with_prefix(message)) for message in messages]
            self._streams[number] = _Stream(frames, self.stream_window, owed=share)
            self._send(headers.next_frame(number, path, is_timed=False))

    def begin(self, now: float) -> None:
        """Send the first messages."""
        self.sock.setblocking(False)
        self.advance(0, now)

    def advance(self, _room: int, now: float) -> None:
        """Send on each stream as many messages as were answered on it."""
        out: list[bytes] = []
        for stream in self._streams.values():
            while stream.owed:
                message = stream.frames[stream.position]
                size = len(message) - FRAME_HEADER
                if size > stream.window or size > self.window:
                    break
                stream.window -= size
                self.window -= size
                stream.owed -= 1
                stream.position = (stream.position + 1) % len(stream.frames)
                stream.sent_at.append(now)
                out.append(message)
        if out:
            self.sent += len(out)
            self._send(b"".join(out))

    def _stream_window(self, stream: int, more: int) -> None:
        self._streams[stream].window += more

    def _ended(self, stream: int, _now: float) -> int:
        raise LoadFailed(f"stream {stream} was to stay open, and ended")

    def _data(self, number: int, data: bytes, start: int, end: int, now: float) -> int:
        stream = self._streams[number]
        if stream.rest:
            data, start = stream.rest + data[start:end], 0
            end = len(data)
        count = 0
        while end - start >= MESSAGE_PREFIX:
            after = start + MESSAGE_PREFIX + int.from_bytes(data[start + 1 : start + 5], "big")
            if after > end:
                break
            count += 1
            self.latencies_s.append(now - stream.sent_at.popleft())
            self.sample = data[start:after]
            start = after
        stream.rest = data[start:end]
        stream.owed += count
        self.done += count
        return count
