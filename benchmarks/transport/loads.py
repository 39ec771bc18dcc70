"""Loads on a server: those of the benchmark against etcd, and two that only this one needs.

All of them speak to the socket themselves, cheaper than any client, and look at every answer's
status. See `benchmarks.etcd.load` for how calls are kept in flight.
"""

import gc
from collections.abc import Iterator, Sequence
from itertools import repeat
from random import Random
from select import select
from socket import socket
from time import perf_counter, process_time
from typing import Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.common.stats import quantile
from benchmarks.etcd.calls import UnaryCalls
from benchmarks.etcd.connection import Connection, LoadFailed
from benchmarks.etcd.h2load import put_h2load
from benchmarks.etcd.load import POLL_S, WARM_UP_S, LoadResult, put_load
from benchmarks.etcd.script import (
    DATA,
    END_STREAM,
    HeaderWriter,
    Script,
    constant_timeout,
    frame,
    stream_of,
    timeouts,
    with_prefix,
)
from benchmarks.etcd.workloads import Case, Unverified, Workload
from benchmarks.transport.echo import BODY, DOWNLOAD, PIECE, STREAM, UNARY, wanted
from benchmarks.transport.samples import (
    BYTES_RATE,
    CPU_US,
    OFFERED,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    RATE,
    Figures,
)

CONNECTIONS, IN_FLIGHT = 10, 32
DOWNLOADS, DOWNLOAD_PIECES = 4, 256
"""Connections on which pieces come in, and how many of them one call is for."""

PACED_CONNECTIONS: Final = 10


class Echo(Workload):
    """What is sent comes back."""

    path = UNARY
    same_answer = True

    def prepare(self) -> None:
        """Look whether it does."""
        if self.control.call(UNARY, BODY) != BODY:
            raise Unverified("the echo is none")

    def body(self) -> bytes:
        """Always the same."""
        return BODY

    def bodies(self, _connection: int) -> Iterator[bytes]:
        """Always the same."""
        return repeat(BODY)

    def verify(self, done: int, samples: Sequence[bytes]) -> str:
        """Look at the last answers."""
        if any(sample != BODY for sample in samples):
            raise Unverified("the echo is another one")
        return f"{done:,} answers"


class EchoStream(Echo):
    """The same, on streams that stay open."""

    path = STREAM


MANY: Final = Case("many", "unary", Echo, 0.0, CONNECTIONS, IN_FLIGHT, most_per_s=100_000)
ALONE: Final = Case("alone", "unary, one in flight", Echo, 0.0, 1, 1, most_per_s=20_000)
STREAMS: Final = Case("streams", "streams", EchoStream, 0.0, CONNECTIONS, IN_FLIGHT, streams=1)


def load_unary(
    port: int, pid: int, case: Case, *, seconds: float, changing: bool, most_per_s: float
) -> Figures:
    """Keep calls in flight, or messages on streams."""
    most = min(case.most_per_s, int(most_per_s)) or case.most_per_s
    return _figures(
        put_load(port, case, seconds=seconds, changing=changing, server_pid=pid, most_per_s=most)
    )


def load_h2load(port: int, pid: int, *, seconds: float) -> Figures:
    """Have h2load keep calls in flight, with the headers that it sends."""
    return _figures(put_h2load(port, MANY, seconds=seconds, server_pid=pid))


def _figures(result: LoadResult) -> Figures:
    figures = {
        RATE: result.calls_per_s,
        CPU_US: result.server_cpu_us_per_call or 0.0,
        OTHER_CPU_US: result.own_cpu_us_per_call,
    }
    if result.p50_ms is not None and result.p99_ms is not None:
        figures |= {P50_MS: result.p50_ms, P99_MS: result.p99_ms}
    return figures


# At a fixed rate.


def load_paced(port: int, pid: int, *, per_s: float, seconds: float) -> Figures:
    """Make calls at a fixed rate, independent of answers.

    How long a call took counts from when it was due. `select` waits for less than a millisecond if
    it is told to, which `epoll` cannot.
    """
    connections = [UnaryCalls(port, 1) for _ in range(PACED_CONNECTIONS)]
    calls = int(per_s * (WARM_UP_S + seconds)) // PACED_CONNECTIONS + 1
    for number, connection in enumerate(connections):
        connection.handshake()
        connection.sock.setblocking(False)
        values = timeouts(Random(number))
        headers = HeaderWriter(f"127.0.0.1:{port}", values, connection.table_size)
        connection.prepare(Script(headers, UNARY, repeat(BODY, calls)))
    gc.collect()
    cpu_s, own_s, began = cpu_s_of(pid), process_time(), perf_counter()
    _pace(connections, calls * len(connections), 1.0 / per_s)
    took_s = perf_counter() - began
    cpu_s, own_s = cpu_s_of(pid) - cpu_s, process_time() - own_s
    done = sum(each.done for each in connections)
    warm = int(per_s * WARM_UP_S) // PACED_CONNECTIONS
    latencies_s = [each_s for one in connections for each_s in one.latencies_s[warm:]]
    for connection in connections:
        connection.close()
    return {
        OFFERED: per_s,
        RATE: done / took_s,
        P50_MS: 1e3 * quantile(latencies_s, 0.5),
        P99_MS: 1e3 * quantile(latencies_s, 0.99),
        CPU_US: 1e6 * cpu_s / done,
        OTHER_CPU_US: 1e6 * own_s / done,
    }


def _pace(connections: Sequence[UnaryCalls], calls: int, every_s: float) -> None:
    by_sock = {each.sock: each for each in connections}
    socks = list(by_sock)
    sent = done = 0
    began = perf_counter()
    while done < calls:
        now = perf_counter()
        while sent < calls and (due := began + sent * every_s) <= now:
            connections[sent % len(connections)].advance(1, due)
            sent += 1
        wait_s = POLL_S if sent == calls else max(0.0, began + sent * every_s - perf_counter())
        ready, _, _ = select(socks, (), (), wait_s)
        if not ready and sent == calls:
            raise LoadFailed(f"no answer for {POLL_S} s")
        now = perf_counter()
        for sock in ready:
            done += by_sock[sock].receive(now)


# Large messages.


class Downloads(Connection):
    """A connection on which pieces come in, call after call."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.received_bytes = 0
        self.is_busy = False
        self._calls = 0
        self._call_bytes = 0
        self.handshake()
        self._headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout(), self.table_size)

    def begin(self) -> None:
        """Make the next call."""
        number = stream_of(self._calls)
        self._calls += 1
        self._call_bytes = 0
        self.is_busy = True
        request = frame(DATA, END_STREAM, number, with_prefix(wanted(DOWNLOAD_PIECES)))
        self._send(self._headers.next_frame(number, DOWNLOAD) + request)

    def _ended(self, _stream: int, _now: float) -> int:
        expected = DOWNLOAD_PIECES * len(with_prefix(PIECE))
        if self._call_bytes != expected:
            raise LoadFailed(f"{self._call_bytes} bytes arrived, expected {expected}")
        self.is_busy = False
        return 1

    def _data(self, _stream: int, _data: bytes, start: int, end: int, _now: float) -> int:
        self.received_bytes += end - start
        self._call_bytes += end - start
        return 0


def load_downloads(port: int, pid: int, *, seconds: float) -> Figures:
    """Receive pieces on several connections for a time, and count their bytes."""
    connections = [Downloads(port) for _ in range(DOWNLOADS)]
    by_sock = {each.sock: each for each in connections}
    for connection in connections:
        connection.begin()
    _download(by_sock, perf_counter() + WARM_UP_S)
    warm = sum(each.received_bytes for each in connections)
    cpu_s, own_s, began = cpu_s_of(pid), process_time(), perf_counter()
    _download(by_sock, began + seconds)
    took_s = perf_counter() - began
    cpu_s, own_s = cpu_s_of(pid) - cpu_s, process_time() - own_s
    received_bytes = sum(each.received_bytes for each in connections) - warm
    _finish(by_sock)
    pieces = received_bytes / len(PIECE)
    for connection in connections:
        connection.close()
    return {
        RATE: pieces / took_s,
        BYTES_RATE: received_bytes / took_s,
        CPU_US: 1e6 * cpu_s / pieces,
        OTHER_CPU_US: 1e6 * own_s / pieces,
    }


def _download(by_sock: dict[socket, Downloads], deadline: float) -> None:
    while True:
        for connection in _ready(by_sock):
            if connection.receive(0.0):
                connection.begin()
        if perf_counter() >= deadline:
            return


def _finish(by_sock: dict[socket, Downloads]) -> None:
    """Take the rest: to hang up in the middle of it would be another load."""
    while any(each.is_busy for each in by_sock.values()):
        for connection in _ready(by_sock):
            connection.receive(0.0)


def _ready(by_sock: dict[socket, Downloads]) -> list[Downloads]:
    ready, _, _ = select(list(by_sock), (), (), POLL_S)
    if not ready:
        raise LoadFailed(f"nothing came for {POLL_S} s")
    return [by_sock[sock] for sock in ready]
