"""Watchers of keys that one writer counts up: each must see every number, in order, once.

The writer puts 0, 1, 2, ... into each key in turn, at a fixed rate. A watcher that misses an event,
sees one twice or out of order sees another number than the next one.
"""

import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Final

from benchmarks.common.processes import raise_file_limit
from benchmarks.etcd import messages
from benchmarks.etcd.connection import Connection, LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.pacing import PacedCalls
from benchmarks.etcd.script import (
    DATA,
    MESSAGE_PREFIX,
    HeaderWriter,
    constant_timeout,
    frame,
    stream_of,
    with_prefix,
)
from benchmarks.longrun.histogram import Seconds

PREFIX: Final = b"watched/"
LOOK_S: Final = 0.2
AHEAD: Final = 500
KEPT_REVISIONS: Final = 1_000
"""What a compaction leaves of the past."""


@dataclass(slots=True)
class WatchingResult:
    """What was written, and what was seen."""

    watchers: int
    began: float = 0.0
    written: int = 0
    expected: int = 0
    """Events of all watchers together."""
    seen: int = 0
    wrong: int = 0
    """Events that were not the next one of their watcher."""
    refused: int = 0
    events: Seconds = field(default_factory=Seconds)
    """How long after its Put was due an event came."""
    compactions: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Watching:
    """The watched keys, and the duration."""

    port: int
    connections: int
    streams: int
    """On each connection, each with one watch."""
    keys: int
    puts_per_s: float
    seconds: float
    compact_every_s: float = 60.0
    drain_s: float = 20.0

    @property
    def watchers(self) -> int:
        """How many."""
        return self.connections * self.streams

    def key(self, number: int) -> bytes:
        """One of the keys."""
        return PREFIX + b"%04d" % number


class Watchers(Connection):
    """A connection with a stream for each watch."""

    def __init__(self, what: Watching, first: int, log: WatchingResult) -> None:
        super().__init__(what.port)
        self.handshake()
        self._log = log
        self._every_s = what.keys / what.puts_per_s
        self._partial: dict[int, bytearray] = {}
        self.next_of: dict[int, int] = {}
        self._offset_of: dict[int, float] = {}
        self._created = 0
        headers = HeaderWriter(f"127.0.0.1:{what.port}", constant_timeout(), self.table_size)
        for call in range(what.streams):
            number, stream = (first + call) % what.keys, stream_of(call)
            create = messages.message(messages.message(what.key(number)))
            opening = headers.next_frame(stream, messages.WATCH, is_timed=False)
            self._send(opening + frame(DATA, 0, stream, with_prefix(create)))
            self._partial[stream], self.next_of[stream] = bytearray(), 0
            self._offset_of[stream] = number / what.puts_per_s
        while self._created < what.streams:
            self.receive(0.0)
        self.sock.setblocking(False)

    def _ended(self, stream: int, _now: float) -> int:
        raise LoadFailed(f"the watch on stream {stream} has ended")

    def _data(self, stream: int, data: bytes, start: int, end: int, now: float) -> int:
        have = self._partial[stream]
        have += data[start:end]
        position = found = 0
        while len(have) - position >= MESSAGE_PREFIX:
            size = int.from_bytes(have[position + 1 : position + MESSAGE_PREFIX], "big")
            after = position + MESSAGE_PREFIX + size
            if len(have) < after:
                break
            self._told(stream, bytes(have[position + MESSAGE_PREFIX : after]), now)
            position = after
            found += 1
        del have[:position]
        return found

    def _told(self, stream: int, answer: bytes, now: float) -> None:
        log = self._log
        if messages.number(answer, 3):
            self._created += 1
        if messages.number(answer, 4):
            raise LoadFailed(f"the watch on stream {stream} was cancelled")
        for event in messages.parts(answer, 11):
            value = int(messages.parts(messages.parts(event, 2)[0], 5)[0])
            log.seen += 1
            log.wrong += value != self.next_of[stream]
            self.next_of[stream] = value + 1
            due = log.began + value * self._every_s + self._offset_of[stream]
            log.events.add(due, now - due)


class Writer(PacedCalls):
    """Counts the keys up, one after the other."""

    def __init__(self, what: Watching, log: WatchingResult) -> None:
        super().__init__(what.port)
        self._log = log
        self._what = what
        self._headers = HeaderWriter(f"127.0.0.1:{what.port}", constant_timeout(), self.table_size)
        self._bodies = self._count_up()

    def write(self, until: int) -> None:
        """Send Puts up to a total number, each when it is due."""
        every_s = 1.0 / self._what.puts_per_s
        while self._log.written < until:
            self.due.append(self._log.began + self._log.written * every_s)
            self._log.written += 1
        if self.due:
            self.stock(self._headers, messages.PUT, self._bodies, max(AHEAD, len(self.due)))
            self.push()

    def _count_up(self) -> Iterator[bytes]:
        for value in count():
            for number in range(self._what.keys):
                yield messages.put_request(self._what.key(number), b"%d" % value)


def watch(what: Watching) -> WatchingResult:
    """Write and watch for a time."""
    raise_file_limit()
    log = WatchingResult(what.watchers)
    try:
        _watch(what, log)
    except (LoadFailed, OSError, ValueError) as error:
        log.failure = str(error) or repr(error)
    return log


def _watch(what: Watching, log: WatchingResult) -> None:
    firsts = range(0, what.watchers, what.streams)
    watchers = [Watchers(what, first, log) for first in firsts]
    writer, control = Writer(what, log), Control(what.port)
    by_fd: dict[int, Connection] = {each.sock.fileno(): each for each in (*watchers, writer)}
    with select.epoll(len(by_fd)) as poller:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        log.began = perf_counter()
        _serve(what, log, writer, control, poller, by_fd)
    log.refused = len(writer.refused)
    rounds, more = divmod(log.written, what.keys)
    log.expected = sum(
        rounds + ((first + call) % what.keys < more)
        for first in firsts
        for call in range(what.streams)
    )


def _serve(
    what: Watching,
    log: WatchingResult,
    writer: Writer,
    control: Control,
    poller: select.epoll,
    by_fd: dict[int, Connection],
) -> None:
    end = log.began + what.seconds
    compact_at = log.began + what.compact_every_s
    share = what.watchers / what.keys
    while (now := perf_counter()) < end + what.drain_s:
        writer.write(int((min(now, end) - log.began) * what.puts_per_s))
        if now >= end and log.seen >= int(log.written * share) and not writer.in_flight:
            break
        if now >= compact_at and now < end:
            compact_at += what.compact_every_s
            log.compactions += compact(control)
        for fd, _ in poller.poll(min(LOOK_S, 1.0 / what.puts_per_s)):
            by_fd[fd].receive(perf_counter())


def compact(control: Control) -> int:
    """Have all but the last revisions forgotten; how many compactions that were."""
    answer = control.call(messages.RANGE, messages.range_request(PREFIX))
    revision = messages.number(messages.parts(answer, 1)[0], 3) - KEPT_REVISIONS
    if revision <= 1:
        return 0
    control.call(messages.COMPACT, messages.message(revision))
    return 1
