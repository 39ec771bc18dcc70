"""From measurements to tables."""

from collections.abc import Sequence
from typing import Final

from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, figure, spread
from benchmarks.etcd.samples import (
    LAST_S,
    LATENCY,
    LEASE_BYTES,
    MEDIAN_S,
    OFFERED,
    OWN_US,
    P50_MS,
    P99_MS,
    PER_CPU,
    RATE,
    START_S,
    THROUGHPUT,
    Cell,
    Pair,
    Results,
    ratio,
    spread_of,
)
from benchmarks.etcd.servers import BASELINE, ETCD, OURS
from benchmarks.etcd.syncs import Syncs
from benchmarks.etcd.targets import TARGETS, Target
from benchmarks.etcd.workloads import CASES

NOTHING: Final = "-"
OTHER_FIGURES: Final = {
    LAST_S: "until the last is gone, s",
    MEDIAN_S: "until half are gone, s",
    LEASE_BYTES: "bytes of memory for a lease",
    START_S: "start until the first response, s",
}


def tables(results: Results, syncs: Sequence[Syncs] = ()) -> list[Table]:
    """Every table of the report, in order; those of parts that were not measured are left out."""
    made = [
        target_table(results),
        _throughput(results),
        _latencies(results),
        _others(results),
        _costs(results),
        _syncs(syncs),
    ]
    return [table for table in made if table.rows]


def target_table(results: Results) -> Table:
    """Targets, what was measured, and whether it is reached."""
    rows: list[list[str]] = []
    for target in () if BASELINE in _servers(results) else TARGETS:
        values = [target.measured(results, name) for name in target.figures]
        if any(values):
            shown = [cell for value in values for cell in (_shown(value), _verdict(target, value))]
            rows.append([target.title, str(target), *shown, *[NOTHING] * (4 - len(shown))])
    pairs = [len(some) for cell, some in results.cells.items() if cell.part == THROUGHPUT]
    note = (
        "ours to etcd's, pair by pair: median (quartiles); throughput: "
        f"{min(pairs, default=0)} to {max(pairs, default=0)} pairs for each kind of headers, and "
        "the worse of constant and changing headers counts"
    )
    headings = ["", "target", "on all cores", "reached", "per processor second", "reached"]
    return Table("Targets", headings, rows, "; ".join([note, *results.missing]))


def _verdict(target: Target, value: Spread | None) -> str:
    return NOTHING if value is None else target.verdict(value)


def _shown(value: Spread | None) -> str:
    return NOTHING if value is None else spread(value)


def _servers(results: Results) -> tuple[str, str]:
    names = {name for pairs in results.cells.values() for pair in pairs for name in pair.figures}
    return (BASELINE if BASELINE in names else ETCD), OURS


def _both(servers: Sequence[str], pairs: Sequence[Pair], name: str) -> list[str]:
    return [_shown(spread_of(pairs, server, name)) for server in servers]


def _title(cell: Cell) -> str:
    return CASES[cell.what].title if cell.what in CASES else cell.what


def _throughput(results: Results) -> Table:
    servers = _servers(results)
    rows = [
        [
            _title(cell),
            cell.headers,
            *_both(servers, pairs, RATE),
            _shown(ratio(pairs, RATE)),
            *_both(servers, pairs, PER_CPU),
            _shown(ratio(pairs, PER_CPU)),
        ]
        for cell, pairs in results.cells.items()
        if cell.part == THROUGHPUT
    ]
    headings = [
        "workload",
        "headers",
        *(f"{server}, calls/s" for server in servers),
        "ratio",
        *(f"{server}, calls per processor second" for server in servers),
        "ratio",
    ]
    note = (
        "median (quartiles); a processor second is one of the server's process, in user and "
        "system, on any core; RenewAll is counted in leases, etcd's KeepAlive in messages"
    )
    return Table("Throughput and processor time", headings, rows, note)


def _latencies(results: Results) -> Table:
    servers = _servers(results)
    rows = [
        [
            _title(cell),
            figure(max(pair.figures[ETCD][OFFERED] for pair in pairs)),
            *_both(servers, pairs, P50_MS),
            *_both(servers, pairs, P99_MS),
            _shown(ratio(pairs, P99_MS)),
        ]
        for cell, pairs in results.cells.items()
        if cell.part == LATENCY
    ]
    headings = ["call", "calls/s", *(f"{s}, {p}" for p in ("p50", "p99") for s in servers), "ratio"]
    note = "half of etcd's peak; counted from when a call was due; the ratio is that of the p99"
    return Table("Latency at a fixed rate, ms", [*headings], rows, note)


def _others(results: Results) -> Table:
    servers = _servers(results)
    rows = [
        [
            f"{cell.what}: {title}",
            *_both(servers, pairs, name),
            _shown(ratio(pairs, name)),
            f"{len(pairs)}",
        ]
        for cell, pairs in results.cells.items()
        for name, title in OTHER_FIGURES.items()
        if any(spread_of(pairs, server, name) for server in servers)
    ]
    return Table("Expiry, memory, start-up", ["", *servers, "ratio", "rounds"], rows)


def _costs(results: Results) -> Table:
    servers = _servers(results)
    rows = [
        [_title(cell), cell.headers, *_both(servers, pairs, OWN_US), *_both(servers, pairs, P50_MS)]
        for cell, pairs in results.cells.items()
        if cell.part == THROUGHPUT
    ]
    headings = [
        "workload",
        "headers",
        *(f"processor time on {server}, µs per call" for server in servers),
        *(f"p50 on {server}, ms" for server in servers),
    ]
    note = (
        "the load shares the machine with the server, so its own cost matters; with many calls in "
        "flight, the latency mostly depends on the number of calls ahead"
    )
    return Table("The load itself", headings, rows, note)


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
        "requires at least one sync for each"
    )
    return Table("Syncs", headings, rows, note)
