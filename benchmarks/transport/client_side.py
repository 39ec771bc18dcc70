"""The client: our channel and those of grpcio, making the same calls to the same server, in turns.

Every client has a process that stays through the run, and a new connection in each sample. One
table is made with our server at the other end, one with grpcio's: there the server is what takes
most of the time, and the processor time of the client says more than calls in a second.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.progress import tell
from benchmarks.etcd.script import CHANGING, CONSTANT
from benchmarks.transport import grpcio_clients, our_client
from benchmarks.transport.echo import PIECE
from benchmarks.transport.samples import BYTES_RATE, RATE, Cell, Figures, Run, in_turns
from benchmarks.transport.scale import Scale
from benchmarks.transport.servers import GRPCIO_AIO, GRPCIO_THREADS, PLAIN, running
from benchmarks.transport.workers import Worker

OF_OURS, OF_GRPCIO = "client, our server", "client, grpcio's server"
ON_ASYNCIO, ON_UVLOOP = "our channel, asyncio", "our channel, uvloop"
CLIENTS: Final = (ON_ASYNCIO, ON_UVLOOP, GRPCIO_AIO, GRPCIO_THREADS)

IN_FLIGHT: Final = (1, 16, 64)
ECHO_STREAM: Final = "echo on one stream, 32 messages in flight"
DOWNLOAD: Final = "messages of 64 KiB"


def name_of(in_flight: int, headers: str) -> str:
    """What a cell of unary calls is called."""
    return f"unary, {in_flight} in flight, {headers} timeout"


UNARY: Final = {
    name_of(in_flight, headers): (in_flight, headers == CHANGING)
    for in_flight in IN_FLIGHT
    for headers in (CONSTANT, CHANGING)
}
"""By what: calls in flight, and whether each has another timeout."""

WHATS: Final = {
    OF_OURS: (*UNARY, ECHO_STREAM, DOWNLOAD),
    OF_GRPCIO: (*(what for what, (_, changing) in UNARY.items() if changing), ECHO_STREAM),
}

_UNARY: Final[dict[str, Callable[..., Figures]]] = {
    ON_ASYNCIO: partial(our_client.unary, on_uvloop=False),
    ON_UVLOOP: partial(our_client.unary, on_uvloop=True),
    GRPCIO_AIO: grpcio_clients.aio_unary,
    GRPCIO_THREADS: grpcio_clients.threads_unary,
}
_STREAM: Final[dict[str, Callable[..., Figures]]] = {
    ON_ASYNCIO: partial(our_client.stream, on_uvloop=False),
    ON_UVLOOP: partial(our_client.stream, on_uvloop=True),
    GRPCIO_AIO: grpcio_clients.aio_stream,
    GRPCIO_THREADS: grpcio_clients.threads_stream,
}
_DOWNLOAD: Final[dict[str, Callable[..., Figures]]] = {
    ON_ASYNCIO: partial(our_client.download, on_uvloop=False),
    ON_UVLOOP: partial(our_client.download, on_uvloop=True),
    GRPCIO_AIO: grpcio_clients.aio_download,
    GRPCIO_THREADS: grpcio_clients.threads_download,
}


@dataclass(slots=True)
class ClientSide:
    """The calls of one run."""

    run: Run
    scale: Scale
    _workers: dict[str, Worker] = field(default_factory=lambda: {who: Worker() for who in CLIENTS})

    def measure(self) -> None:
        """Make all rounds."""
        with ExitStack() as stack:
            for worker in self._workers.values():
                stack.callback(worker.end)
            servers = {
                OF_OURS: stack.enter_context(running(PLAIN)),
                OF_GRPCIO: stack.enter_context(running(GRPCIO_AIO)),
            }
            for number in rounds_within(self.scale.rounds, self.scale.client_s):
                tell(f"client: round {number + 1} of {self.scale.rounds}")
                for part, whats in WHATS.items():
                    for what in whats:
                        for who in in_turns(CLIENTS, number):
                            cell = Cell(part, what, who)
                            call = partial(self._call, cell, servers[part].port)
                            self.run.take(number, cell, call)

    def _call(self, cell: Cell, port: int) -> Figures:
        call, limit_s = self._workers[cell.who].call, self.scale.limit_s
        seconds = self.scale.client_seconds
        if cell.what == ECHO_STREAM:
            return call(limit_s, _STREAM[cell.who], port, seconds)
        if cell.what == DOWNLOAD:
            figures = call(limit_s, _DOWNLOAD[cell.who], port, seconds)
            return {**figures, BYTES_RATE: figures[RATE] * len(PIECE)}
        in_flight, changing = UNARY[cell.what]
        return call(limit_s, _UNARY[cell.who], port, in_flight, seconds, changing=changing)
