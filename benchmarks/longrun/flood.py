"""Puts at a fixed rate, for minutes, independent of responses.

All calls of a connection look the same but for the number of their stream, so they are put together
as they are sent, for less than a microsecond each.
"""

from collections import Counter
from dataclasses import dataclass, field
from struct import Struct
from time import perf_counter
from typing import Final

from benchmarks.etcd import messages
from benchmarks.etcd.connection import Trailers
from benchmarks.etcd.pacing import PacedCalls, Pacer
from benchmarks.etcd.script import (
    DATA,
    END_STREAM,
    FRAME_HEADER,
    HeaderWriter,
    constant_timeout,
    frame,
    stream_of,
    with_prefix,
)
from benchmarks.etcd.workloads import PREFIX, VALUE
from benchmarks.longrun.histogram import Histogram, Seconds

PRIMERS: Final = 2
"""Calls after which the headers are all in the table, and every block is the same."""

RESOURCE_EXHAUSTED: Final = b"8"
TOO_MANY: Final = b"etcdserver: too many requests"
MAX_IN_FLIGHT: Final = 2_000


@dataclass(slots=True)
class FloodResult:
    """What became of the calls."""

    began: float
    ended: float
    due: int
    acknowledged: int
    refused: int
    others: dict[str, int]
    """Other failures, by their words."""
    unanswered: int
    puts: Seconds = field(default_factory=Seconds)
    refusals: Seconds = field(default_factory=Seconds)


class FloodCalls(PacedCalls):
    """One connection of the flood."""

    def __init__(self, port: int, number: int) -> None:
        self.puts, self.refusals = Seconds(), Seconds()
        self.acknowledged = self.refused_calls = 0
        self.others: Counter[str] = Counter()
        super().__init__(port)
        self._body = messages.put_request(PREFIX + b"flood/%03d" % number, VALUE)
        headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout(), self.table_size)
        opening = b""
        for call in range(PRIMERS + 1):
            opening = headers.next_frame(stream_of(call), messages.PUT)
            if call < PRIMERS:
                self._prime(opening, call)
        message = with_prefix(self._body)
        data = frame(DATA, END_STREAM, 0, message)
        middle = opening[FRAME_HEADER:] + data[: FRAME_HEADER - 4]
        self._pack = Struct(f">5sI{len(middle)}sI{len(message)}s").pack
        self._head, self._middle, self._message = opening[:5], middle, message

    def _prime(self, opening: bytes, call: int) -> None:
        self._due_of[call] = perf_counter()
        message = with_prefix(self._body)
        self._send(opening + frame(DATA, END_STREAM, stream_of(call), message))
        self.window -= len(message)
        self.sent += 1

    def push(self) -> None:
        """Send what is due, as far as socket, window and the number of streams allow."""
        if self._unsent and not self._write(self._unsent):
            return
        room = (self.max_streams or MAX_IN_FLIGHT) - len(self._due_of)
        count = min(len(self.due), room, self.window // len(self._message), MAX_IN_FLIGHT)
        if count <= 0:
            return
        first, after = stream_of(self.sent), stream_of(self.sent + count)
        for call in range(self.sent, self.sent + count):
            self._due_of[call] = self.due.popleft()
        self.sent += count
        self.window -= count * len(self._message)
        pack, head, middle, message = self._pack, self._head, self._middle, self._message
        calls = [pack(head, stream, middle, stream, message) for stream in range(first, after, 2)]
        self._write(memoryview(b"".join(calls)))

    def _ended(self, stream: int, now: float) -> int:
        due = self._due_of.pop(stream >> 1)
        self.acknowledged += 1
        self.puts.add(due, now - due)
        return 1

    def _failed(self, stream: int, trailers: Trailers, now: float) -> int:
        due = self._due_of.pop(stream >> 1)
        words = trailers.get(b"grpc-message", b"")
        if words == TOO_MANY and trailers.get(b"grpc-status") == RESOURCE_EXHAUSTED:
            self.refused_calls += 1
            self.refusals.add(due, now - due)
        else:
            self.others[words.decode(errors="replace")] += 1
        return 1


def run_flood(port: int, per_s: float, seconds: float, connections: int) -> FloodResult:
    """Make Puts at a fixed rate for a time."""
    calls = [FloodCalls(port, number) for number in range(connections)]
    due = int(per_s * seconds)
    began = Pacer(calls, per_s).run(seconds, DRAIN_S)
    puts, refusals = Seconds(), Seconds()
    others: Counter[str] = Counter()
    for each in calls:
        _merge(puts, each.puts)
        _merge(refusals, each.refusals)
        others.update(each.others)
        each.close()
    return FloodResult(
        began=began,
        ended=began + seconds,
        due=due,
        acknowledged=sum(each.acknowledged for each in calls),
        refused=sum(each.refused_calls for each in calls),
        others=dict(others),
        unanswered=sum(each.in_flight + len(each.due) for each in calls),
        puts=puts,
        refusals=refusals,
    )


DRAIN_S: Final = 20.0
"""How long the answers to the last calls may take."""


def _merge(whole: Seconds, part: Seconds) -> None:
    for second, histogram in part.by_second.items():
        whole.by_second.setdefault(second, Histogram()).merge(histogram)
