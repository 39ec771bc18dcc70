"""Very many leases: what they take in memory, and how long a server with them takes to start."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from benchmarks.common.children import in_child
from benchmarks.common.processes import settled_bytes
from benchmarks.etcd import messages
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.expiry import make_leases
from benchmarks.etcd.samples import LEASE_BYTES, START_S, Figures
from benchmarks.etcd.servers import Place, Server, running, starting
from benchmarks.etcd.workloads import TTL_S, Unverified

CHUNK: Final = 10_000
LOOK_S: Final = 0.005
SETTLE_S: Final = 3.0
"""Before memory is looked at: etcd writes its log away, and collects."""


def weigh(server: Server, leases: int, limit_s: float) -> Figures:
    """The growth of a server with a number of leases."""
    sleep(SETTLE_S)
    before = settled_bytes(server.pid)
    in_child(limit_s, fill, server.port, range(1, leases + 1))
    sleep(SETTLE_S)
    return {LEASE_BYTES: (settled_bytes(server.pid) - before) / leases}


def fill(port: int, ids: range) -> int:
    """Have leases with these numbers."""
    for first in range(ids.start, ids.stop, CHUNK):
        make_leases(port, range(first, min(first + CHUNK, ids.stop)), TTL_S, with_keys=False)
    return len(ids)


def prepare_start(name: str, directory: Path, leases: int, limit_s: float) -> Place:
    """Leave a number of leases on disk, for a server to be started on."""
    with running(name, directory) as server:
        in_child(limit_s, fill, server.port, range(1, leases + 1))
    return Place(name, server.data)


def time_start(place: Place, leases: int, most_s: float) -> Figures:
    """Start a server on what there is, until it answers the first call: about the last lease."""
    began = perf_counter()
    with starting(place) as server:
        answer = _first_answer(server.port, leases, began + most_s)
        took_s = perf_counter() - began
    if messages.lease_id_and_ttl_s(answer)[1] < 1:
        raise Unverified(f"lease {leases} is not there after a start")
    return {START_S: took_s}


def _first_answer(port: int, lease_id: int, deadline: float) -> bytes:
    for control in _attempts(lambda: Control(port), deadline):
        with suppress(LoadFailed, OSError):
            request = messages.lease_request(lease_id)
            return control.call(messages.LEASE_TIME_TO_LIVE, request)
        control.close()
    raise LoadFailed("the server does not answer")


def _attempts(connect: Callable[[], Control], deadline: float) -> Iterator[Control]:
    while perf_counter() < deadline:
        with suppress(LoadFailed, OSError):
            yield connect()
        sleep(LOOK_S)
