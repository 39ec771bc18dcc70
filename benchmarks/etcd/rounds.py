"""Both servers under every load, in alternating rounds.

A round measures each cell (a workload, its headers, its cores) once on either server, one right
after the other, and the order changes from one pair to the next: what slows the machine for a while
slows both sides of a pair, and what is slow about being second does not hit the same server always.

On a shared machine a core may be several times slower in one second than in the next. So a fixed
piece of work, which has nothing to do with either server, is timed before, between and after the
two loads of a pair. If it shows that the speed changed, the pair is measured again, a few times at
most; a pair that stayed unsteady is kept, and marked.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, perf_counter

from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.h2load import put_h2load
from benchmarks.etcd.journals import count_grants
from benchmarks.etcd.load import LoadResult
from benchmarks.etcd.servers import ETCD, OURS, ROOT, Server, running
from benchmarks.etcd.workloads import CASES, COUNT_IN_JOURNAL, Unverified

CONSTANT, CHANGING = "constant", "changing"
ALL_CORES, PER_CORE = "all cores", "per core"
LOAD_TIMEOUT_S = 90.0
STEADY = 1.4
WORK_TIMES, WORK_STEPS = 5, 200_000
SPARE = 3.0
"""How much faster than ever before a server may be, before it runs out of encoded calls."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured side by side."""

    case: str
    headers: str
    cores: str

    def __str__(self) -> str:
        return f"{CASES[self.case].title}, {self.headers} headers, {self.cores}"


@dataclass(frozen=True, slots=True)
class Pair:
    """One cell in one round, on each server that was asked for."""

    cell: Cell
    results: dict[str, LoadResult]
    steady: bool = True
    """Whether the machine was about as fast for one as for the other."""


def cells(cases: Sequence[str], *, with_h2load: bool, with_pinning: bool) -> list[Cell]:
    """Every cell that can be measured here."""
    return [
        Cell(case, headers, cores)
        for case in cases
        for headers in ((CONSTANT, CHANGING) if with_h2load else (CHANGING,))
        if headers == CHANGING or not CASES[case].streams
        for cores in ((ALL_CORES, PER_CORE) if with_pinning else (ALL_CORES,))
    ]


def can_pin() -> bool:
    """Whether there is a core for the server and another for the load."""
    return hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1


def measure_rounds(
    chosen: Sequence[Cell],
    servers: Sequence[str],
    *,
    rounds: int,
    attempts: int,
    seconds: float,
    most_s: float,
    base: Path,
    tell: Tell,
) -> Iterator[Pair]:
    """Measure round by round; no round is begun that would likely end after `most_s`.

    A pair is measured again only while there is time left for all that are still to come.
    """
    started, longest_s = monotonic(), 0.0
    best: dict[tuple[str, str], float] = {}
    for number in range(rounds):
        begun = monotonic()
        if begun - started + longest_s > most_s:
            tell(f"no time for more than {number} rounds")
            return
        for place, cell in enumerate(chosen):
            order = servers if (number + place) % 2 == 0 else list(reversed(servers))
            for _ in range(attempts):
                pair = _measure_pair(cell, order, seconds, base, best)
                rates = ", ".join(
                    f"{one} {pair.results[one].calls_per_s:,.0f}/s" for one in servers
                )
                changed = "" if pair.steady else "; the machine's speed changed"
                tell(f"round {number + 1} of {rounds}: {cell}: {rates}{changed}")
                pace_s = most_s * (number * len(chosen) + place + 1) / (rounds * len(chosen))
                if pair.steady or monotonic() - started > pace_s:
                    break
            yield pair
        longest_s = max(longest_s, monotonic() - begun)


def _measure_pair(
    cell: Cell,
    order: Sequence[str],
    seconds: float,
    base: Path,
    best: dict[tuple[str, str], float],
) -> Pair:
    results: dict[str, LoadResult] = {}
    speeds = [work_s()]
    for name in order:
        known = best.get((cell.case, name), 0.0)
        results[name] = measure(cell, name, seconds, base, known_per_s=known)
        best[cell.case, name] = max(known, results[name].calls_per_s)
        speeds.append(work_s())
    return Pair(cell, results, steady=is_steady(speeds))


def work_s() -> float:
    """How long a fixed piece of work takes now; the best of a few, to leave out interruptions."""
    took_s = []
    for _ in range(WORK_TIMES):
        start = perf_counter()
        for _ in range(WORK_STEPS):
            pass
        took_s.append(perf_counter() - start)
    return min(took_s)


def is_steady(speeds: Sequence[float]) -> bool:
    """Whether the same work took about as long each time."""
    return max(speeds) <= STEADY * min(speeds)


def measure(
    cell: Cell, name: str, seconds: float, base: Path, *, known_per_s: float = 0.0
) -> LoadResult:
    """One load on one fresh server, verified; how fast it was before says how much to encode."""
    server_cores = load_cores = None
    if cell.cores == PER_CORE:
        first, *others = sorted(os.sched_getaffinity(0))
        server_cores, load_cores = {first}, set(others[:1])
    with tempfile.TemporaryDirectory(dir=base, prefix="bench-etcd-") as directory:
        try:
            with running(name, Path(directory), cores=server_cores) as server:
                result = _load(cell, server, seconds, load_cores, known_per_s)
            if result.verified == COUNT_IN_JOURNAL:
                result = replace(result, verified=_count_in_journal(result, server))
        except (LoadFailed, Unverified) as error:
            raise RuntimeError(f"{cell}: {name} failed: {error}") from error
    return result


def _count_in_journal(result: LoadResult, server: Server) -> str:
    granted = count_grants(server.data)
    if granted != result.acknowledged:
        raise Unverified(f"{result.acknowledged} leases granted, {granted} in the journal")
    return f"{granted:,} leases are in the journal"


def _load(
    cell: Cell, server: Server, seconds: float, cores: set[int] | None, known_per_s: float
) -> LoadResult:
    case = CASES[cell.case]
    if cell.headers == CONSTANT:
        return put_h2load(server.port, case, seconds=seconds, server_pid=server.pid, cores=cores)
    most_per_s = min(case.most_per_s, int(SPARE * known_per_s) or case.most_per_s)
    return run_load(cell.case, server, seconds, cores, most_per_s)


def run_load(
    case: str,
    server: Server,
    seconds: float,
    cores: set[int] | None = None,
    most_per_s: int | None = None,
) -> LoadResult:
    """Our own load, in a process of its own."""
    done = subprocess.run(  # noqa: S603  our own module
        [
            *(sys.executable, "-m", "benchmarks.etcd.load", "--json"),
            *("--port", str(server.port), "--workload", case, "--seconds", str(seconds)),
            *("--server-pid", str(server.pid)),
            *("--most-per-s", str(most_per_s or CASES[case].most_per_s)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
        preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise RuntimeError(f"the load {case} on {server.name} failed:\n{done.stderr}")
    return LoadResult(**json.loads(done.stdout))


BOTH = (ETCD, OURS)
