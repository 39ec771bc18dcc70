"""Calls at fixed times, whether those before are answered or not.

A load that waits for answers sends less while a server stalls, and hardly sees the stall. Here the
times at which calls are due are fixed in advance, and how long a call took counts from then: also
for a call that could not be sent when it was due, because the server or the machine was behind.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from select import select
from time import perf_counter
from typing import Final

from benchmarks.common.stats import quantile
from benchmarks.etcd.connection import Connection, Trailers
from benchmarks.etcd.script import HeaderWriter, Script

SEND_BYTES: Final = 1 << 17
"""Bytes that are passed to the socket in one call."""

LOOK_S: Final = 0.05
"""How long a pause may be in which nothing is due and nothing comes."""


class PacedCalls(Connection):
    """Calls of one message each, sent when they are due, as far as the server lets us."""

    _unsent = memoryview(b"")
    """What the socket has not taken yet."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.handshake()
        self.sock.setblocking(False)
        self.due: deque[float] = deque()
        """When the calls that were not sent yet should have been."""
        self.sent = 0
        self.answered = 0
        self.latencies_s: list[float] = []
        self.refused: list[tuple[float, Trailers]] = []
        """How long it took to be refused, and with which words."""
        self._due_of: dict[int, float] = {}
        self._script: Script | None = None

    def stock(self, headers: HeaderWriter, path: str, bodies: Iterator[bytes], ahead: int) -> None:
        """Encode calls until so many are ahead."""
        rest, first = None, 0
        if self._script is not None:
            rest, first = self._script.after(self.sent - self._script.first), self.sent
        missing = max(0, ahead - (0 if rest is None else len(rest)))
        some = [next(bodies) for _ in range(missing)]
        self._script = Script(headers, path, some, first=first, rest=rest)

    @property
    def in_flight(self) -> int:
        """Calls that were sent, or half of them, and not answered."""
        return len(self._due_of)

    @property
    def is_stuck(self) -> bool:
        """Whether the socket has not taken everything yet."""
        return bool(self._unsent)

    def push(self) -> None:
        """Send what is due, as far as socket, window and the number of streams allow."""
        script = self._script
        assert script is not None, "stock() comes first"
        if self._unsent and not self._write(self._unsent):
            return
        at = self.sent - script.first
        room = (self.max_streams or len(script)) - len(self._due_of)
        count = min(len(self.due), room, len(script) - at)
        sizes = script.data_bytes
        while count > 0 and sizes[at + count] - sizes[at] > self.window:
            count -= 1
        if count <= 0:
            return
        self.window -= sizes[at + count] - sizes[at]
        due_of, due = self._due_of, self.due
        for call in range(self.sent, self.sent + count):
            due_of[call] = due.popleft()
        self.sent += count
        self._write(script.content[script.starts[at] : script.starts[at + count]])

    def _write(self, data: memoryview) -> bool:
        """Hand on as much as the socket takes; whether that was all."""
        while data:
            try:
                taken = self.sock.send(data[:SEND_BYTES])
            except BlockingIOError:
                break
            data = data[taken:]
        self._unsent = data
        return not data

    def _send(self, data: bytes | memoryview) -> None:
        """Send a frame that is not a call, after the rest of one that is under way."""
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + bytes(data))
        else:
            self._write(memoryview(data))

    def _ended(self, stream: int, now: float) -> int:
        self.answered += 1
        self.latencies_s.append(now - self._due_of.pop(stream >> 1))
        return 1

    def _failed(self, stream: int, trailers: Trailers, now: float) -> int:
        self.answered += 1
        self.refused.append((now - self._due_of.pop(stream >> 1), trailers))
        return 1

    def _data(self, _stream: int, _data: bytes, _start: int, _end: int, _now: float) -> int:
        return 0


class Pacer:
    """Spreads calls evenly in time and over connections."""

    def __init__(self, connections: Sequence[PacedCalls], per_s: float) -> None:
        if per_s <= 0.0:
            raise ValueError(f"a rate is more than 0, not {per_s}")
        self._connections = connections
        self._every_s = 1.0 / per_s

    def run(self, seconds: float, drain_s: float) -> float:
        """Make all calls that are due in so many seconds, and wait for their answers.

        Calls without an answer after another `drain_s` are given up. Returns the time at which the
        first was due.
        """
        by_sock = {each.sock: each for each in self._connections}
        calls = int(seconds / self._every_s)
        began, told = perf_counter(), 0
        end = began + seconds + drain_s
        while True:
            now = perf_counter()
            told = self._tell(began, told, min(calls, int((now - began) / self._every_s) + 1))
            for each in self._connections:
                each.push()
            idle = told == calls and not any(
                each.due or each.in_flight for each in by_sock.values()
            )
            if idle or now > end:
                return began
            next_s = LOOK_S if told == calls else began + told * self._every_s - perf_counter()
            stuck = [each.sock for each in self._connections if each.is_stuck]
            ready, _, _ = select(list(by_sock), stuck, (), min(LOOK_S, max(0.0, next_s)))
            now = perf_counter()
            for sock in ready:
                by_sock[sock].receive(now)

    def _tell(self, began: float, told: int, until: int) -> int:
        """Pass due calls to the connections in turn."""
        connections, every_s = self._connections, self._every_s
        for number in range(told, until):
            connections[number % len(connections)].due.append(began + number * every_s)
        return max(told, until)


def latencies_ms(connections: Sequence[PacedCalls], *fractions: float) -> list[float]:
    """Quantiles of how long calls took; one without an answer counts as endless."""
    values = [each for one in connections for each in one.latencies_s]
    values += [float("inf")] * sum(one.in_flight + len(one.due) for one in connections)
    return [1e3 * quantile(values, fraction) for fraction in fractions]
