"""Calls in a second: both servers alive, one of them busy, in short turns.

The machine's speed changes by up to four times, for seconds or minutes. So a pair is a slice of
less than a second on one server and right after it the same on the other; which one goes first
changes from pair to pair. There are many pairs, and what counts is the ratio in each.

A slice begins with a moment that does not count, and ends when everything is answered: nothing of
it is left to the other server's turn. What the next slice sends is encoded in between.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from benchmarks.etcd.control import Control
from benchmarks.etcd.load import Load
from benchmarks.etcd.samples import (
    OWN_US,
    P50_MS,
    P99_MS,
    PER_CPU,
    RATE,
    THROUGHPUT,
    Cell,
    Figures,
    Pair,
)
from benchmarks.etcd.script import CHANGING, CONSTANT
from benchmarks.etcd.servers import ETCD, Server
from benchmarks.etcd.workloads import CASES, Case, Workload

WARM_SHARE: Final = 0.2
"""How much of a slice comes before what counts."""

SPARE: Final = 1.5
"""How much faster than ever before a server may be, before it runs out of encoded calls."""

FIRST_CALLS: Final = 2_000
"""For the first slice, which does not count: how many are needed is not known yet."""


@dataclass(slots=True)
class Side:
    """One server with one load on it, a slice at a time."""

    server: Server
    case: Case
    workload: Workload
    load: Load
    best_per_s: float = 0.0
    acknowledged: int = 0

    def slice(self, seconds: float) -> Figures:
        """Run the load for a time, and wait until all of it is answered."""
        calls = int(self.best_per_s * SPARE * seconds * (1.0 + WARM_SHARE))
        self.load.encode(self.workload, max(calls, FIRST_CALLS // self.case.worth))
        result = self.load.run(seconds, self.server.pid, WARM_SHARE * seconds)
        self.acknowledged += result.acknowledged
        self.best_per_s = max(self.best_per_s, result.calls_per_s)
        worth = self.case.worth
        cost_us = (result.server_cpu_us_per_call or 0.0) / worth
        return {
            RATE: result.calls_per_s * worth,
            PER_CPU: 1e6 / cost_us if cost_us else 0.0,
            OWN_US: result.own_cpu_us_per_call / worth,
            P50_MS: result.p50_ms or 0.0,
            P99_MS: result.p99_ms or 0.0,
        }


def headers_of(case: Case) -> tuple[str, ...]:
    """The kinds of headers that make a difference."""
    return (CHANGING,) if case.streams or case.beside else (CONSTANT, CHANGING)


def side_of(server: Server, case: Case, workload: Workload, headers: str) -> Side:
    """Connect a load."""
    changing = headers == CHANGING
    first = case.connections if changing else 0
    load = Load(server.port, case, changing=changing, first_connection=first)
    return Side(server, case, workload, load)


def measure_case(
    name: str, servers: Sequence[Server], *, pairs: int, seconds: float, most_s: float
) -> Iterator[tuple[Cell, Pair]]:
    """Measure one case with all its kinds of headers, and verify what was done at the end.

    No pair is begun after `most_s`.
    """
    cases = {each.name: _case_for(each, name) for each in servers}
    controls = {each.name: Control(each.port) for each in servers}
    workloads = {server: case.workload(controls[server]) for server, case in cases.items()}
    for workload in workloads.values():
        workload.prepare()
    sides = {
        headers: [
            side_of(each, cases[each.name], workloads[each.name], headers) for each in servers
        ]
        for headers in headers_of(CASES[name])
    }
    yield from _in_turns(name, sides, pairs=pairs, seconds=seconds, most_s=most_s)
    for server, workload in workloads.items():
        mine = [one for some in sides.values() for one in some if one.server.name == server]
        samples = [sample for one in mine for sample in one.load.samples()]
        workload.verify(sum(one.acknowledged for one in mine), samples)


def _case_for(server: Server, name: str) -> Case:
    case = CASES[name]
    return CASES[case.beside] if case.beside and server.name == ETCD else case


def _in_turns(
    name: str, sides: dict[str, list[Side]], *, pairs: int, seconds: float, most_s: float
) -> Iterator[tuple[Cell, Pair]]:
    for some in sides.values():
        for side in some:
            side.slice(seconds)
    gc.collect()
    gc.freeze()
    gc.disable()
    for number in within(pairs, most_s):
        for headers, some in sides.items():
            order = some if number % 2 == 0 else some[::-1]
            figures = {side.server.name: side.slice(seconds) for side in order}
            yield Cell(THROUGHPUT, name, headers), Pair(figures)
    gc.enable()


def within(rounds: int, most_s: float, clock: Callable[[], float] = monotonic) -> Iterator[int]:
    """Count rounds; after the first, none is begun once so much time has passed."""
    began = clock()
    for number in range(rounds):
        if number and clock() - began > most_s:
            return
        yield number
