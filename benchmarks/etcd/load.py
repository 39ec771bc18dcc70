"""Put a load on a server that runs on this machine, and return how many calls it answered.

Theory of operation. Connections are opened, what the calls need is made, and all calls are encoded;
then the clock starts. Each connection keeps its number of calls in flight. What is answered during
the warm-up does not count, nor what is answered after the deadline, but it is waited for: the
number of acknowledged calls is exact, and is compared with what the server has done. One thread,
one epoll, no objects per call: the load must cost much less than the server, with which it shares
the machine.
"""

import argparse
import gc
import json
import select
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from random import Random
from time import perf_counter, process_time

from benchmarks.common.children import in_child
from benchmarks.common.processes import cpu_s_of
from benchmarks.common.stats import quantile
from benchmarks.etcd.calls import Calls, StreamCalls, UnaryCalls
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.script import (
    MESSAGE_PREFIX,
    HeaderWriter,
    constant_timeout,
    timeouts,
)
from benchmarks.etcd.servers import Server
from benchmarks.etcd.workloads import CASES, Case, Workload

WARM_UP_S = 0.3
POLL_S = 5.0
"""The time without an answer after which the load fails."""

DRAIN_S = 20.0
"""For the calls that are in flight when time is up."""

LOAD_TIMEOUT_S = 90.0
ALL_S = 300.0
"""For a number of calls, however many."""

LEASES_ON_A_STREAM = 50


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load measured."""

    workload: str
    calls_per_s: float
    seconds: float
    acknowledged: int
    """With those of the warm-up and those that came in after the deadline."""

    own_cpu_us_per_call: float
    """Of the load itself."""

    server_cpu_us_per_call: float | None
    """Of the server's process, if its number was given."""

    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    """Latencies; h2load does not report them in this form."""

    ended_early: bool = False
    """The encoded calls did not last until the deadline."""

    verified: str = ""


class Load:
    """All connections of one load."""

    def __init__(self, port: int, case: Case, *, changing: bool, first_connection: int = 0) -> None:
        self.case = case
        self._first_connection = first_connection
        """Connections have numbers, so that two loads can do different things."""
        self._sources: list[tuple[HeaderWriter, Iterator[bytes]]] = []
        self._authority = f"127.0.0.1:{port}"
        self._changing = changing
        kind = StreamCalls if case.streams else UnaryCalls
        self.connections: list[Calls] = [
            kind(port, case.in_flight) for _ in range(case.connections)
        ]
        for connection in self.connections:
            connection.handshake()
            if connection.max_streams is not None and connection.max_streams < case.in_flight:
                raise LoadFailed(f"the server takes only {connection.max_streams} streams")

    def encode(self, workload: Workload, calls: int) -> None:
        """Encode what will be sent; again, between two runs, to have so many calls ahead."""
        if not self._sources:
            self._open(workload)
        share = calls // len(self.connections) + 1
        for connection, (headers, bodies) in zip(self.connections, self._sources, strict=True):
            if isinstance(connection, UnaryCalls):
                connection.restock(headers, workload.path, bodies, share)

    def _open(self, workload: Workload) -> None:
        for number, connection in enumerate(self.connections, self._first_connection):
            rng = Random(number)
            chosen = timeouts(rng) if self._changing else constant_timeout()
            headers = HeaderWriter(self._authority, chosen, connection.table_size)
            bodies = workload.bodies(number)
            self._sources.append((headers, bodies))
            if isinstance(connection, StreamCalls):
                loops = [list(islice(bodies, LEASES_ON_A_STREAM)) for _ in range(self.case.streams)]
                connection.prepare(headers, workload.path, loops)

    def run(
        self, seconds: float, server_pid: int | None, warm_up_s: float = WARM_UP_S
    ) -> LoadResult:
        """Keep the calls in flight until time is up, then wait for the last of them."""
        server_cpu_s = None if server_pid is None else cpu_s_of(server_pid)
        own_cpu_s = process_time()
        before = self._done()
        with select.epoll(len(self.connections)) as poller:
            by_fd = {each.sock.fileno(): each for each in self.connections}
            for fd in by_fd:
                poller.register(fd, select.EPOLLIN)
            started = perf_counter()
            for connection in self.connections:
                connection.begin(started)
            self._turn(poller, by_fd, started + warm_up_s)
            warm, begun = self._done(), perf_counter()
            for connection in self.connections:
                connection.latencies_s.clear()
            ended_early = self._turn(poller, by_fd, begun + seconds, warm)
            ended = perf_counter()
            counted = self._done() - warm
            latencies_s = [each for one in self.connections for each in one.latencies_s]
            self._drain(poller, by_fd, ended + DRAIN_S)
        own_cpu_s = process_time() - own_cpu_s
        acknowledged = self._done() - before
        if not counted:
            raise LoadFailed(f"no call was answered within {ended - begun:.1f} s")
        server_cpu_us = None
        if server_cpu_s is not None and server_pid is not None:
            server_cpu_us = 1e6 * (cpu_s_of(server_pid) - server_cpu_s) / acknowledged
        return LoadResult(
            workload=self.case.name,
            calls_per_s=counted / (ended - begun),
            seconds=ended - begun,
            acknowledged=acknowledged,
            own_cpu_us_per_call=1e6 * own_cpu_s / acknowledged,
            server_cpu_us_per_call=server_cpu_us,
            p50_ms=1e3 * quantile(latencies_s, 0.5),
            p99_ms=1e3 * quantile(latencies_s, 0.99),
            max_ms=1e3 * max(latencies_s),
            ended_early=ended_early,
        )

    def make_all(self, workload: Workload, calls: int) -> int:
        """Make a number of calls, as fast as they are answered; return how many were."""
        self.encode(workload, calls - len(self.connections))
        deadline = perf_counter() + ALL_S
        with select.epoll(len(self.connections)) as poller:
            by_fd = {each.sock.fileno(): each for each in self.connections}
            for fd, connection in by_fd.items():
                poller.register(fd, select.EPOLLIN)
                connection.begin(perf_counter())
            while any(not each.exhausted or each.done < each.sent for each in self.connections):
                now = perf_counter()
                ready = poller.poll(POLL_S)
                if not ready or now > deadline:
                    raise LoadFailed(f"not all of {calls} calls were answered")
                for fd, _ in ready:
                    connection = by_fd[fd]
                    connection.advance(connection.receive(now), now)
        return self._done()

    def samples(self) -> list[bytes]:
        """The last answer on each connection."""
        return [each.sample[MESSAGE_PREFIX:] for each in self.connections]

    def close(self) -> None:
        """Hang up."""
        for connection in self.connections:
            connection.close()

    def _done(self) -> int:
        return sum(each.done for each in self.connections)

    def _turn(
        self, poller: select.epoll, by_fd: dict[int, Calls], deadline: float, answered: int = -1
    ) -> bool:
        """Send and receive until the deadline, or until a connection has nothing left to send.

        It goes on after the deadline until more than `answered` calls are answered.
        """
        poll, clock = poller.poll, perf_counter
        while True:
            ready = poll(POLL_S)
            now = clock()
            if not ready:
                raise LoadFailed(f"no answer for {POLL_S} s")
            if now >= deadline and self._done() > answered:
                return False
            for fd, _ in ready:
                connection = by_fd[fd]
                connection.advance(connection.receive(now), now)
                if connection.exhausted:
                    return True

    def _drain(self, poller: select.epoll, by_fd: dict[int, Calls], deadline: float) -> None:
        while any(each.done < each.sent for each in self.connections):
            now = perf_counter()
            if now > deadline:
                raise LoadFailed(f"calls are unanswered {DRAIN_S} s after the last was sent")
            for fd, _ in poller.poll(POLL_S):
                by_fd[fd].receive(now)


def put_load(
    port: int,
    case: Case,
    *,
    seconds: float,
    changing: bool = True,
    server_pid: int | None = None,
    most_per_s: int | None = None,
) -> LoadResult:
    """Prepare, load and verify."""
    control = Control(port)
    workload = case.workload(control)
    workload.prepare()
    load = Load(port, case, changing=changing)
    load.encode(workload, int((most_per_s or case.most_per_s) * (seconds + WARM_UP_S)))
    gc.collect()
    gc.freeze()
    gc.disable()
    result = load.run(seconds, server_pid)
    gc.enable()
    verified = workload.verify(result.acknowledged, load.samples())
    load.close()
    control.close()
    return replace(result, verified=verified)


def put_load_on(server: Server, case: str, seconds: float) -> LoadResult:
    """The same in a process of its own."""
    return in_child(
        LOAD_TIMEOUT_S,
        put_load,
        server.port,
        CASES[case],
        seconds=seconds,
        server_pid=server.pid,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one load from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.etcd.load", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workload", choices=list(CASES), default="put")
    parser.add_argument("--connections", type=int)
    parser.add_argument("--in-flight", type=int, help="calls in flight on each connection")
    parser.add_argument("--streams", type=int, help="for long streams: how many a connection has")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--most-per-s", type=int, help="encode so many calls for each second")
    parser.add_argument("--headers", choices=("changing", "constant"), default="changing")
    parser.add_argument("--server-pid", type=int, help="report this process's processor time")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args(arguments)
    chosen = {
        name: getattr(options, name)
        for name in ("connections", "in_flight", "streams")
        if getattr(options, name) is not None
    }
    result = put_load(
        options.port,
        replace(CASES[options.workload], **chosen),
        seconds=options.seconds,
        changing=options.headers == "changing",
        server_pid=options.server_pid,
        most_per_s=options.most_per_s,
    )
    print(json.dumps(asdict(result)) if options.json else _line(result))


def _line(result: LoadResult) -> str:
    text = (
        f"{result.workload}: {result.calls_per_s:,.0f}/s over {result.seconds:.2f} s, "
        f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, max {result.max_ms:.1f} ms, "
        f"load {result.own_cpu_us_per_call:.1f} µs/call"
    )
    if result.server_cpu_us_per_call is not None:
        text += f", server {result.server_cpu_us_per_call:.1f} µs/call"
    if result.ended_early:
        text += ", ended early: all encoded calls were sent"
    return f"{text}; verified: {result.verified}"


if __name__ == "__main__":
    main()
