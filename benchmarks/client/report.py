"""From measurements to tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from benchmarks.client import calls, keeping
from benchmarks.client.calls import WHATS
from benchmarks.client.clients import AETCD, BARE, CLIENTS, ETCD3, OTHERS, OURS
from benchmarks.client.driving import RENEW
from benchmarks.client.keeping import (
    BYTES,
    CPU,
    LONGEST_MS,
    MESSAGES,
    RENEWALS,
    SERVER_CPU,
    naive_per_s,
)
from benchmarks.client.targets import IN_FLIGHT, LEAST_TIMES, PAIRS, Pair, verdict
from benchmarks.common import results as common
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, figure, spread
from benchmarks.etcd.servers import ETCD
from benchmarks.etcd.servers import OURS as LEASEHOLD
from benchmarks.etcd.targets import NO
from benchmarks.transport.report import NOTHING, rounds_line, shown
from benchmarks.transport.samples import (
    CPU_US,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    RATE,
    Cell,
    Cells,
    Sample,
    spread_of,
    times,
)

Results = common.Results[Cell, Sample]

SERVER_NAMES: Final = {LEASEHOLD: "our client, on Leasehold", ETCD: "our client, on etcd"}


def tables(results: Results, leases: int, ttl_s: float) -> list[Table]:
    """Every table of the report, in order; those of parts that were not measured are left out."""
    made = [
        target_table(results),
        _calls(results.cells),
        _keeping(results.cells, leases, ttl_s),
    ]
    return [table for table in made if table.rows]


def compared(cells: Cells, one: Cell, base: Cell, name: str) -> Spread | None:
    """How many times the figure of one cell is that of another, round by round."""
    samples, bases = cells.get(one), cells.get(base)
    return times(samples, bases, name) if samples and bases else None


def _cell(what: str, who: str) -> Cell:
    return Cell(calls.PART, what, who)


# Targets.


def target_table(results: Results) -> Table:
    """The targets, with the measured figures."""
    rows = [row for pair in PAIRS if (row := _asked(results.cells, pair))]
    by_rate, by_cpu = (sum(row[column] != NO for row in rows) for column in (5, 7))
    headings = ["", "ours, calls/s", "theirs, calls/s", f"{BARE}, times", "ours, times", ""]
    headings += ["times less processor", ""]
    note = (
        f"target: at least {LEAST_TIMES:g} times; {by_rate} of {len(rows)} reached by calls per "
        f"second, which also depend on etcd, and {by_cpu} by the client's own processor time; "
        f"ratios are taken round by round; {BARE} is the upper bound"
    )
    missing = [f"missing: {each}" for each in results.missing]
    return Table("Targets", headings, rows, "; ".join([note, *missing]))


def _asked(cells: Cells, pair: Pair) -> list[str] | None:
    ours, other = _cell(pair.what, pair.ours), _cell(pair.what, pair.other)
    rate, saved = compared(cells, ours, other, RATE), compared(cells, other, ours, CPU_US)
    if rate is None or saved is None:
        return None
    return [
        f"{pair.what}: {pair.ours}, compared with {pair.other}",
        shown(cells[ours], RATE),
        shown(cells[other], RATE),
        _times(cells, pair.what, BARE, pair.other),
        spread(rate),
        verdict(rate),
        spread(saved),
        verdict(saved),
    ]


# Calls.


def _calls(cells: Cells) -> Table:
    rows = [row for what in WHATS for row in _rows(cells, what)]
    headings = ["", "client", "calls/s", "p50, ms", "p99, ms", "processor, µs", "etcd's, µs"]
    headings += [f"calls/s, times {other}" for other in OTHERS]
    measured = (samples for cell, samples in cells.items() if cell.part == calls.PART)
    note = (
        f"{rounds_line(measured)}; processor time for each call, of the client's process with all "
        "its threads, and of etcd, which shares the machine with it"
    )
    return Table("Calls to etcd 3.5.1", headings, rows, note)


def _rows(cells: Cells, what: str) -> Iterator[list[str]]:
    label = what
    for who in ours_first(CLIENTS):
        samples = cells.get(_cell(what, who))
        if samples:
            names = (RATE, P50_MS, P99_MS, CPU_US, OTHER_CPU_US)
            beside = [_times(cells, what, who, other) for other in OTHERS]
            yield [label, who, *(shown(samples, name) for name in names), *beside]
            label = ""


def ours_first(whos: Iterable[str]) -> list[str]:
    """The order in tables and plots, independent of the order of measurement."""
    return sorted(whos, key=lambda who: (who not in OURS, (*OURS, *OTHERS, BARE).index(who)))


def _times(cells: Cells, what: str, who: str, other: str) -> str:
    found = None if who == other else compared(cells, _cell(what, who), _cell(what, other), RATE)
    return NOTHING if found is None else spread(found)


# Leases that are kept alive.


def _keeping(cells: Cells, leases: int, ttl_s: float) -> Table:
    what = keeping.name_of(leases, ttl_s)
    rows = [
        _kept(name, samples)
        for server, name in SERVER_NAMES.items()
        if (samples := cells.get(Cell(keeping.PART, what, server)))
    ]
    if rows:
        rows += _naive(cells, naive_per_s(leases, ttl_s))
    headings = ["", "messages/s", "bytes/s", "renewals/s", "client, CPU s/s", "server, CPU s/s"]
    note = (
        "messages are counted at the client, bytes without gRPC's overhead; the last column is the "
        "most processor time that its event loop spent in one turn. A naive client sends a "
        "message for "
        "each lease after each third of its term: computed, with the processor time that a renewal "
        f"took at {IN_FLIGHT} in flight"
    )
    return Table(f"Keeping {what} alive", [*headings, "longest, ms"], rows, note)


def _kept(name: str, samples: Sequence[Sample]) -> list[str]:
    figures = (MESSAGES, BYTES, RENEWALS, CPU, SERVER_CPU, LONGEST_MS)
    return [name, *(_small(spread_of(samples, each).median) for each in figures)]


def _naive(cells: Cells, per_s: float) -> Iterator[list[str]]:
    what = calls.name_of(RENEW, IN_FLIGHT)
    rate = _small(per_s)
    for other in (AETCD, ETCD3):
        samples = cells.get(_cell(what, other))
        if samples:
            used = (spread_of(samples, name).scaled(per_s / 1e6) for name in (CPU_US, OTHER_CPU_US))
            shares = [_small(each.median) for each in used]
            yield [f"naive, with {other}", rate, NOTHING, rate, *shares, NOTHING]


def _small(value: float) -> str:
    """Three digits that count, also of what is far below one."""
    return f"{value:.3g}" if 0.0 < abs(value) < 0.1 else figure(value)
