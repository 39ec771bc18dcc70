"""The server: an echo on each transport, under the same loads, in turns.

All servers are alive through the whole run, and all but one have nothing to do. A round puts every
load on every server, and in each round another server is the first.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import MeasurementFailed
from benchmarks.common.progress import tell
from benchmarks.etcd import h2load
from benchmarks.etcd.script import CHANGING, CONSTANT
from benchmarks.etcd.workloads import Case
from benchmarks.transport.loads import (
    ALONE,
    MANY,
    STREAMS,
    load_downloads,
    load_h2load,
    load_paced,
    load_unary,
)
from benchmarks.transport.samples import RATE, Cell, Figures, Run, in_turns
from benchmarks.transport.scale import Scale
from benchmarks.transport.servers import (
    COROUTINE,
    GRPCIO_AIO,
    GRPCIO_THREADS,
    PLAIN,
    Server,
    running,
)
from benchmarks.transport.workers import Worker

SERVER: Final = "server"
SERVERS: Final = (PLAIN, COROUTINE, GRPCIO_AIO, GRPCIO_THREADS)

MANY_CONSTANT: Final = f"unary, 10 x 32 in flight, {CONSTANT} headers"
MANY_CHANGING: Final = f"unary, 10 x 32 in flight, {CHANGING} headers"
ALONE_CONSTANT: Final = f"unary, 1 x 1 in flight, {CONSTANT} headers"
ALONE_CHANGING: Final = f"unary, 1 x 1 in flight, {CHANGING} headers"
ECHO_STREAMS: Final = "echo on 10 streams, 32 messages in flight on each"
DOWNLOAD: Final = "messages of 64 KiB to 4 clients"
BY_H2LOAD: Final = "unary, 10 x 32 in flight, h2load"
PACED: Final = "unary, at half of what grpcio aio takes"

UNARY: Final[dict[str, tuple[Case, bool]]] = {
    MANY_CONSTANT: (MANY, False),
    MANY_CHANGING: (MANY, True),
    ALONE_CONSTANT: (ALONE, False),
    ALONE_CHANGING: (ALONE, True),
    ECHO_STREAMS: (STREAMS, False),
}
"""By what: the load, and whether its headers change."""

SPARE: Final = 2.0
"""How much faster than ever before a server may be, before it runs out of encoded calls."""


@dataclass(slots=True)
class ServerSide:
    """The loads of one run, and what is known of the servers so far."""

    run: Run
    scale: Scale
    _worker: Worker = field(default_factory=Worker)

    def measure(self) -> None:
        """Make all rounds."""
        whats = [*UNARY, DOWNLOAD]
        if h2load.is_there():
            whats.append(BY_H2LOAD)
        else:
            self.run.missing.append(f"no second opinion: {h2load.HOW_TO_GET}")
        whats.append(PACED)  # it depends on the results so far
        with ExitStack() as stack:
            stack.callback(self._worker.end)
            servers = [stack.enter_context(running(who)) for who in SERVERS]
            for number in rounds_within(self.scale.rounds, self.scale.server_s):
                tell(f"server: round {number + 1} of {self.scale.rounds}")
                for what in whats:
                    for server in in_turns(servers, number):
                        cell = Cell(SERVER, what, server.who)
                        self.run.take(number, cell, partial(self._load, what, server))

    def _load(self, what: str, server: Server) -> Figures:
        limit_s, seconds = self.scale.limit_s, self.scale.seconds
        call, port, pid = self._worker.call, server.port, server.pid
        if what == DOWNLOAD:
            return call(limit_s, load_downloads, port, pid, seconds=seconds)
        if what == BY_H2LOAD:
            return call(limit_s, load_h2load, port, pid, seconds=seconds)
        if what == PACED:
            per_s = self._half_of_grpcio()
            return call(limit_s, load_paced, port, pid, per_s=per_s, seconds=self.scale.paced_s)
        case, changing = UNARY[what]
        most = SPARE * max(self._rates(what, server.who), default=0.0)
        return call(
            limit_s,
            load_unary,
            port,
            pid,
            case,
            seconds=seconds,
            changing=changing,
            most_per_s=most,
        )

    def _rates(self, what: str, who: str) -> list[float]:
        samples = self.run.cells.get(Cell(SERVER, what, who), ())
        return [each.figures[RATE] for each in samples]

    def _half_of_grpcio(self) -> float:
        rates = self._rates(MANY_CHANGING, GRPCIO_AIO)
        if not rates:
            raise MeasurementFailed("the maximum rate of grpcio aio was not measured")
        return median(rates) / 2
