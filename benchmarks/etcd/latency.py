"""How long calls take at half of the load that etcd can bear, the same on both servers.

First etcd shows its peak, with calls kept in flight. Then calls are made at half of that rate, in
turns, and their time counts from when they were due (`pacing`).
"""

import gc
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.pacing import PacedCalls, Pacer, latencies_ms
from benchmarks.etcd.samples import (
    LATENCY,
    OFFERED,
    P50_MS,
    P99_MS,
    RATE,
    Cell,
    Figures,
    Pair,
)
from benchmarks.etcd.script import CHANGING, HeaderWriter, timeouts
from benchmarks.etcd.servers import ETCD, Server
from benchmarks.etcd.throughput import side_of, within
from benchmarks.etcd.workloads import CASES, Workload

CASES_OF_LATENCY: Final = ("put", "range")
SHARE_OF_PEAK: Final = 0.5
PEAK_SLICES: Final = 4
PEAK_S: Final = 0.5
CONNECTIONS: Final = 10
DRAIN_S: Final = 20.0


class PacedSide:
    """One server with a load at a fixed rate, a slice at a time."""

    def __init__(self, server: Server, workload: Workload, per_s: float) -> None:
        self.server = server
        self._workload = workload
        self._per_s = per_s
        self._connections = [PacedCalls(server.port) for _ in range(CONNECTIONS)]
        self._sources = [
            (
                HeaderWriter(
                    f"127.0.0.1:{server.port}", timeouts(Random(number)), connection.table_size
                ),
                workload.bodies(number),
            )
            for number, connection in enumerate(self._connections)
        ]

    def slice(self, seconds: float) -> Figures:
        """Make the calls of so many seconds."""
        share = int(self._per_s * seconds) // CONNECTIONS + 2
        for connection, (headers, bodies) in zip(self._connections, self._sources, strict=True):
            connection.stock(headers, self._workload.path, bodies, share)
            connection.latencies_s.clear()
        Pacer(self._connections, self._per_s).run(seconds, DRAIN_S)
        if any(each.refused or each.in_flight or each.due for each in self._connections):
            raise LoadFailed(f"not all calls were answered at {self._per_s:,.0f} a second")
        p50_ms, p99_ms = latencies_ms(self._connections, 0.5, 0.99)
        return {OFFERED: self._per_s, P50_MS: p50_ms, P99_MS: p99_ms}


def measure_latency(
    name: str, servers: Sequence[Server], *, pairs: int, seconds: float, most_s: float
) -> Iterator[tuple[Cell, Pair]]:
    """Measure one kind of call; no pair is begun after `most_s`."""
    case = CASES[name]
    workloads = {each.name: case.workload(Control(each.port)) for each in servers}
    for workload in workloads.values():
        workload.prepare()
    etcd = next(each for each in servers if each.name == ETCD)
    peak = side_of(etcd, case, workloads[ETCD], CHANGING)
    per_s = SHARE_OF_PEAK * max(peak.slice(PEAK_S)[RATE] for _ in range(PEAK_SLICES))
    sides = [PacedSide(each, workloads[each.name], per_s) for each in servers]
    for side in sides:
        side.slice(seconds)
    gc.collect()
    gc.freeze()
    gc.disable()
    for number in within(pairs, most_s):
        order = sides if number % 2 == 0 else sides[::-1]
        figures = {side.server.name: side.slice(seconds) for side in order}
        yield Cell(LATENCY, name), Pair(figures)
    gc.enable()
