"""Bytes of an idle connection: by how much a server grows with thousands that have made a call.

What the system keeps for a socket is not in it.
"""

import socket
from functools import cache, partial
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import in_child
from benchmarks.common.processes import raise_file_limit, settled_bytes
from benchmarks.common.progress import tell
from benchmarks.common.tables import count
from benchmarks.etcd.connection import CONNECT_TIMEOUT_S
from benchmarks.etcd.script import (
    ACK,
    DATA,
    END_STREAM,
    FRAME_HEADER,
    HEADERS,
    PREFACE,
    SETTINGS,
    HeaderWriter,
    constant_timeout,
    frame,
    with_prefix,
)
from benchmarks.transport.echo import BODY, UNARY
from benchmarks.transport.samples import RESIDENT, Cell, Figures, Run, in_turns
from benchmarks.transport.scale import Scale
from benchmarks.transport.servers import GRPCIO_AIO, ON_ASYNCIO, PLAIN, Server, running

MEMORY: Final = "memory"
SERVERS: Final = (PLAIN, ON_ASYNCIO, GRPCIO_AIO)
WARM_UP: Final = 100
"""Connections before the first look: what a server sets up once is not counted."""

CONNECTIONS_PER_STEP: Final = 100
"""Connections that are made before the first of them is waited for."""

RECEIVE_BYTES: Final = 4096
SPARE_FILES: Final = 200


def name_of(connections: int) -> str:
    """What a cell is called."""
    return f"{count(connections)} idle connections"


def measure_memory(run: Run, scale: Scale) -> None:
    """Make all rounds, each server in a fresh process."""
    what = name_of(scale.connections)
    for number in rounds_within(scale.few, scale.memory_s):
        tell(f"memory: round {number + 1} of {scale.few}")
        for who in in_turns(SERVERS, number):
            run.take(number, Cell(MEMORY, what, who), partial(_weigh, who, scale))


def _weigh(who: str, scale: Scale) -> Figures:
    with running(who) as server:
        return in_child(scale.limit_s, weigh, server, scale.connections)


def weigh(server: Server, connections: int) -> Figures:
    """Hold a number of connections, each of which has made a call, and measure the server."""
    allowed = raise_file_limit()
    if allowed < WARM_UP + connections + SPARE_FILES:
        raise OSError(f"a process may have {allowed} files here, too few for {connections} sockets")
    held = idlers(server.port, WARM_UP)
    before = settled_bytes(server.pid)
    held += idlers(server.port, connections)
    grown = settled_bytes(server.pid) - before
    for each in held:
        each.close()
    return {RESIDENT: grown / connections}


class Idler:
    """A connection that makes one call, and then nothing; it costs the one who holds it little."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S)
        self._sock.sendall(_opening(port))

    def wait(self) -> None:
        """Wait for the end of the answer."""
        received = b""
        while not _has_ended(received):
            more = self._sock.recv(RECEIVE_BYTES)
            if not more:
                raise OSError("the server closed a connection")
            received += more
        if BODY not in received:
            raise OSError("the echo is none")
        self._sock.sendall(frame(SETTINGS, ACK, 0, b""))

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


def idlers(port: int, number: int) -> list[Idler]:
    """Open a number of connections that have made a call."""
    made = []
    for first in range(0, number, CONNECTIONS_PER_STEP):
        some = [Idler(port) for _ in range(min(CONNECTIONS_PER_STEP, number - first))]
        for each in some:
            each.wait()
        made += some
    return made


@cache
def _opening(port: int) -> bytes:
    headers = HeaderWriter(f"127.0.0.1:{port}", constant_timeout())
    call = headers.next_frame(1, UNARY) + frame(DATA, END_STREAM, 1, with_prefix(BODY))
    return PREFACE + frame(SETTINGS, 0, 0, b"") + call


def _has_ended(received: bytes) -> bool:
    """Whether an answer has its trailers; what they say is another load's business."""
    position = 0
    while position + FRAME_HEADER <= len(received):
        size = int.from_bytes(received[position : position + 3], "big")
        kind, flags = received[position + 3], received[position + 4]
        position += FRAME_HEADER + size
        if kind == HEADERS and flags & END_STREAM:
            return position <= len(received)
    return False
