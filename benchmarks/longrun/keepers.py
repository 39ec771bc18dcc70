"""Holders of leases: each lease is renewed on a long stream when it is due, and must never be lost.

How long a renewal took counts from when it was due, as with all loads at a fixed rate.
"""

import heapq
import select
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    with_prefix,
)
from benchmarks.longrun.histogram import Seconds

LOOK_S: Final = 0.2
"""How long nothing may be due."""

READ_KEY: Final = b"kept/untouched"


class Keeper(Connection):
    """A connection with one stream on which all its leases are renewed together."""

    def __init__(self, port: int, leases: Sequence[int], log: "KeepersResult") -> None:
        super().__init__(port)
        self.handshake()
        self._log = log
        headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout(), self.table_size)
        self._send(headers.next_frame(1, messages.LEASE_KEEP_ALIVE, is_timed=False))
        bodies = [with_prefix(messages.lease_request(lease)) for lease in leases]
        self._renewals = b"".join(frame(DATA, 0, 1, body) for body in bodies)
        self._body_bytes = sum(map(len, bodies))
        self._own_window = self.stream_window
        self._waiting: dict[int, float] = {}
        self._leases = leases
        self._partial = b""
        self.sock.setblocking(False)

    def renew(self, due: float) -> None:
        """Send the renewals."""
        if self._waiting:
            self._log.overtaken += len(self._waiting)
        if min(self.window, self._own_window) < self._body_bytes:
            raise LoadFailed("the server takes no more renewals on a stream")
        self.window -= self._body_bytes
        self._own_window -= self._body_bytes
        self._waiting = dict.fromkeys(self._leases, due)
        self._send(self._renewals)

    @property
    def waiting(self) -> int:
        """Renewals that are not answered."""
        return len(self._waiting)

    def _stream_window(self, _stream: int, more: int) -> None:
        self._own_window += more

    def _ended(self, stream: int, _now: float) -> int:
        raise LoadFailed(f"stream {stream} was to stay open, and ended")

    def _data(self, _stream: int, data: bytes, start: int, end: int, now: float) -> int:
        have = self._partial + data[start:end]
        position = found = 0
        while len(have) - position >= MESSAGE_PREFIX:
            size = int.from_bytes(have[position + 1 : position + MESSAGE_PREFIX], "big")
            after = position + MESSAGE_PREFIX + size
            if after > len(have):
                break
            self._answered(have[position + MESSAGE_PREFIX : after], now)
            position = after
            found += 1
        self._partial = have[position:]
        return found

    def _answered(self, answer: bytes, now: float) -> None:
        lease, ttl_s = messages.lease_id_and_ttl_s(answer)
        due = self._waiting.pop(lease, None)
        if ttl_s <= 0:
            self._log.lost.append(lease)
        elif due is not None:
            self._log.renewals.add(due, now - due)


@dataclass(slots=True)
class KeepersResult:
    """What became of the leases."""

    leases: int
    began: float = 0.0
    renewals: Seconds = field(default_factory=Seconds)
    reads: Seconds = field(default_factory=Seconds)
    lost: list[int] = field(default_factory=list)
    overtaken: int = 0
    """Renewals that were not answered when the next one was due."""
    unanswered: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept, and for how long."""

    port: int
    connections: int
    leases: int
    """On each connection, numbered from 1 on over all of them."""
    ttl_s: int
    seconds: float
    reads_per_s: float = 0.0

    @property
    def all(self) -> int:
        """How many leases."""
        return self.connections * self.leases


class ReadingCalls(PacedCalls):
    """Reads of an unchanged key."""

    def __init__(self, port: int, log: Seconds) -> None:
        super().__init__(port)
        self._log = log
        self.headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout(), self.table_size)

    def _ended(self, stream: int, now: float) -> int:
        due = self._due_of.pop(stream >> 1)
        self._log.add(due, now - due)
        return 1


def keep(what: Keep) -> KeepersResult:
    """Renew all leases, each three times in a term, spread evenly; the leases must be there."""
    raise_file_limit()
    log = KeepersResult(what.all)
    try:
        _keep(what, log)
    except (LoadFailed, OSError) as error:
        log.failure = str(error)
    return log


def _keep(what: Keep, log: KeepersResult) -> None:
    keepers = [
        Keeper(what.port, range(first, first + what.leases), log)
        for first in range(1, what.all + 1, what.leases)
    ]
    reader = ReadingCalls(what.port, log.reads)
    by_fd: dict[int, Connection] = {each.sock.fileno(): each for each in (*keepers, reader)}
    with select.epoll(len(by_fd)) as poller:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        log.began = perf_counter()
        _serve(what, log, keepers, reader, poller, by_fd)
    log.unanswered = sum(each.waiting for each in keepers)


def _serve(
    what: Keep,
    log: KeepersResult,
    keepers: Sequence[Keeper],
    reader: ReadingCalls,
    poller: select.epoll,
    by_fd: dict[int, Connection],
) -> None:
    every_s = what.ttl_s / 3
    end = log.began + what.seconds
    agenda = [(log.began + every_s * place / len(keepers), place) for place in range(len(keepers))]
    heapq.heapify(agenda)
    read_at = log.began if what.reads_per_s else end
    bodies = iter(lambda: messages.range_request(READ_KEY), None)
    while (now := perf_counter()) < end:
        while agenda[0][0] <= now:
            due, place = agenda[0]
            keepers[place].renew(due)
            heapq.heapreplace(agenda, (due + every_s, place))
        while read_at <= now:
            reader.due.append(read_at)
            read_at += 1.0 / what.reads_per_s
        if reader.due:
            reader.stock(reader.headers, messages.RANGE, bodies, len(reader.due))
            reader.push()
        wait_s = min(agenda[0][0], read_at, end) - perf_counter()
        for fd, _ in poller.poll(max(0.0, min(LOOK_S, wait_s))):
            by_fd[fd].receive(perf_counter())


def put_read_key(control: Control) -> None:
    """Make the key that is read."""
    control.call(messages.PUT, messages.put_request(READ_KEY, b"untouched"))


def still_there(control: Control) -> int:
    """How many leases the server has."""
    return len(messages.leases_of(control.call(messages.LEASE_LEASES, b"")))
