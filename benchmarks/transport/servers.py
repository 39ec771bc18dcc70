"""The servers that are measured, each in a process of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.common.children import Child
from benchmarks.transport.grpcio_servers import serve_grpcio_aio, serve_grpcio_threads
from benchmarks.transport.our_server import serve_ours

PLAIN, COROUTINE = "ours, plain functions", "ours, coroutines"
ON_ASYNCIO: Final = "ours, on asyncio"
GRPCIO_AIO, GRPCIO_THREADS = "grpcio aio", "grpcio, threads"

START_S: Final = 30.0

SESSIONS: Final[dict[str, Callable[..., None]]] = {
    PLAIN: partial(serve_ours, plain=True),
    COROUTINE: partial(serve_ours, plain=False),
    ON_ASYNCIO: partial(serve_ours, on_uvloop=False),
    GRPCIO_AIO: serve_grpcio_aio,
    GRPCIO_THREADS: serve_grpcio_threads,
}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    who: str
    port: int
    pid: int


@contextmanager
def running(who: str) -> Iterator[Server]:
    """Start a server in a fresh process, and end it."""
    child = Child(SESSIONS[who])
    try:
        port, pid = child.receive(START_S)
        yield Server(who, port, pid)
    finally:
        child.end()
