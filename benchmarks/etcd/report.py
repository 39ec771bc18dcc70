"""From measurements to tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, figure, spread
from benchmarks.etcd import h2load, syncs
from benchmarks.etcd.load import LoadResult
from benchmarks.etcd.rounds import ALL_CORES, CHANGING, CONSTANT, PER_CORE, Cell, Pair
from benchmarks.etcd.servers import ETCD, OURS
from benchmarks.etcd.syncs import Syncs
from benchmarks.etcd.workloads import CASES, Case

COLUMNS = [
    (ALL_CORES, CONSTANT),
    (ALL_CORES, CHANGING),
    (PER_CORE, CONSTANT),
    (PER_CORE, CHANGING),
]
NOTHING = "-"

FEWEST_STEADY = 3
"""With fewer, unsteady pairs count as well: one lucky pair must not decide for all the others."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that one run measured."""

    machine: str
    seconds: float
    pairs: list[Pair]
    syncs: list[Syncs] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def of(self, cell: Cell) -> list[Pair]:
        """One cell, round by round: the steady pairs, or all if those are too few to go by."""
        pairs = [pair for pair in self.pairs if pair.cell == cell]
        steady = [pair for pair in pairs if pair.steady]
        return steady if len(steady) >= FEWEST_STEADY else pairs

    def cells(self) -> list[Cell]:
        """What was measured, in order."""
        return list(dict.fromkeys(pair.cell for pair in self.pairs))

    def cases(self) -> list[Case]:
        """The workloads that were measured, in order."""
        return [CASES[name] for name in dict.fromkeys(cell.case for cell in self.cells())]


def ratio(pairs: Iterable[Pair]) -> Spread | None:
    """Our throughput to etcd's, pair by pair: the median, the least and the most."""
    values = [
        pair.results[OURS].calls_per_s / pair.results[ETCD].calls_per_s
        for pair in pairs
        if OURS in pair.results and ETCD in pair.results
    ]
    return Spread(Spread.of(values).median, min(values), max(values)) if values else None


def worst(results: Results, case: Case, cores: str) -> float | None:
    """The lesser of the ratios with constant and with changing headers: the one that counts."""
    found = [
        value.median
        for headers in (CONSTANT, CHANGING)
        if (value := ratio(results.of(Cell(case.name, headers, cores)))) is not None
    ]
    return min(found, default=None)


def tables(results: Results) -> list[Table]:
    """Every table of the report, in order."""
    report = []
    if any(len(pair.results) > 1 for pair in results.pairs):
        report.append(_ratios(results))
    report += [_throughput(results), _latencies(results), _costs(results)]
    if results.syncs:
        report.append(_syncs(results.syncs))
    return report


def _ratios(results: Results) -> Table:
    rows = []
    for case in results.cases():
        cells = [ratio(results.of(Cell(case.name, headers, cores))) for cores, headers in COLUMNS]
        shown = [
            _missing(case, headers) if value is None else spread(value)
            for value, (_, headers) in zip(cells, COLUMNS, strict=True)
        ]
        reached = [_reached(worst(results, case, cores), case) for cores in (ALL_CORES, PER_CORE)]
        rows.append([case.title, f"{case.bar:.1f}", *shown, *reached])
    headings = [
        "workload",
        "asked for",
        *(f"{cores}, {headers} headers" for cores, headers in COLUMNS),
        *(f"reached on {cores}" for cores in ("all cores", "one core")),
    ]
    counts = [len(results.of(cell)) for cell in results.cells()]
    unsteady = sum(not pair.steady for pair in results.pairs)
    left_out = len(results.pairs) - sum(counts)
    note = (
        f"ours to etcd's, of calls answered in a second; {min(counts)} to {max(counts)} pairs of "
        f"{figure(results.seconds)} s for each, median (least..most); in {unsteady} of "
        f"{len(results.pairs)} pairs the machine's speed changed, of which {left_out} are left "
        "out; the worse of constant (h2load) and "
        "changing headers (our own load) says whether it is reached"
    )
    return Table("Throughput beside etcd 3.5.1", headings, rows, _with_missing(note, results))


def _missing(case: Case, headers: str) -> str:
    return "h2load cannot" if case.streams and headers == CONSTANT else NOTHING


def _reached(value: float | None, case: Case) -> str:
    if value is None:
        return NOTHING
    return f"{'yes' if value >= case.bar else 'NO'}, {figure(value)}"


def _with_missing(note: str, results: Results) -> str:
    return "; ".join([note, *results.missing])


def _values(
    pairs: Sequence[Pair], server: str, value: Callable[[LoadResult], float | None]
) -> list[float]:
    found = (value(pair.results[server]) for pair in pairs if server in pair.results)
    return [each for each in found if each is not None]


def _cell(pairs: Sequence[Pair], server: str, value: Callable[[LoadResult], float | None]) -> str:
    values = _values(pairs, server, value)
    return spread(Spread.of(values)) if values else NOTHING


def _throughput(results: Results) -> Table:
    rows = []
    for cell in results.cells():
        pairs = results.of(cell)
        row = [_cell(pairs, server, lambda one: one.calls_per_s) for server in (ETCD, OURS)]
        row += [_cell(pairs, server, _calls_per_cpu_s) for server in (ETCD, OURS)]
        rows.append([CASES[cell.case].title, cell.headers, cell.cores, *row])
    headings = [
        "workload",
        "headers",
        "cores",
        "etcd, calls/s",
        "ours, calls/s",
        "etcd, calls per processor second",
        "ours, calls per processor second",
    ]
    note = (
        "median and quartiles; a processor second is one of the server's process, in user and "
        "system, on whatever core; 'per core' has the server on one core and the load on another"
    )
    return Table("Throughput and processor time", headings, rows, _with_missing(note, results))


def _calls_per_cpu_s(result: LoadResult) -> float | None:
    cost_us = result.server_cpu_us_per_call
    return 1e6 / cost_us if cost_us else None


def _latencies(results: Results) -> Table:
    rows = [
        [
            CASES[cell.case].title,
            cell.cores,
            *(
                _cell(results.of(cell), server, value)
                for value in (lambda one: one.p50_ms, lambda one: one.p99_ms)
                for server in (ETCD, OURS)
            ),
        ]
        for cell in results.cells()
        if cell.headers == CHANGING
    ]
    headings = ["workload", "cores", *(f"{s}, {p}" for p in ("p50", "p99") for s in (ETCD, OURS))]
    note = "our own load; with many in flight most of it is waiting for one's turn"
    return Table("How long a call takes, ms", headings, rows, note)


def _costs(results: Results) -> Table:
    rows = [
        [
            CASES[cell.case].title,
            "h2load" if cell.headers == CONSTANT else "our own",
            cell.cores,
            *(
                _cell(results.of(cell), server, lambda one: one.own_cpu_us_per_call)
                for server in (ETCD, OURS)
            ),
        ]
        for cell in results.cells()
    ]
    headings = ["workload", "load", "cores", *(f"on {server}" for server in (ETCD, OURS))]
    note = "the load shares the machine with the server, so its own cost matters"
    return Table("What the load itself costs, µs of processor time per call", headings, rows, note)


def _syncs(counted: Sequence[Syncs]) -> Table:
    rows = [
        [
            CASES[each.case].title,
            each.server,
            f"{each.puts:,}",
            f"{each.batches:,}",
            f"{each.syncs:,}",
            figure(1e3 * each.syncs / each.puts),
            figure(each.syncs / each.batches) if each.batches else NOTHING,
        ]
        for each in counted
    ]
    headings = [
        "workload",
        "server",
        "Puts acknowledged",
        "batches",
        "syncs",
        "syncs per 1,000 Puts",
        "syncs per batch",
    ]
    note = (
        "`fsync` and `fdatasync` as strace counts them, which slows both servers down; a batch is "
        "a row of our journal, and a sync of etcd's write-ahead log by its own count; durability "
        "asks for at least one sync for each"
    )
    return Table("Syncs", headings, rows, note)


def missing_tools() -> list[str]:
    """What could not be run, and how to get it."""
    tools = ((h2load.is_there(), h2load.HOW_TO_GET), (syncs.is_there(), syncs.HOW_TO_GET))
    return [how for there, how in tools if not there]
