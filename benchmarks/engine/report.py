"""From measurements to tables."""

from collections.abc import Callable, Iterable, Sequence

from benchmarks.common import results as common
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.engine import calls, expiry, long_calls, memory, renewals, start, watches
from benchmarks.engine.pauses import pause_table, worst_pauses
from benchmarks.engine.samples import (
    DISK,
    MEMORY,
    PLACES,
    Cell,
    Cells,
    Sample,
    growth,
    named,
    spread_of,
)
from benchmarks.engine.targets import RENEWAL

NOTHING = "-"
MS = 1e3
MB = 1e-6


Results = common.Results[Cell, Sample]


def tables(results: Results) -> list[Table]:
    """Every table of the report, in order; those of parts that were not measured are left out."""
    made = [
        target_table(results),
        _calls(results.cells),
        _fan_out(results.cells),
        _beside(results.cells),
        _expiry(results.cells),
        _bytes(results.cells),
        _start(results.cells),
        _long(results.cells),
        pause_table(results.cells),
    ]
    return [table for table in made if table is not None and table.rows]


def shown(cells: Cells, cell: Cell, value: Callable[[Sample], float], factor: float = 1.0) -> str:
    """One figure of a cell with its spread; a dash if it was not measured."""
    samples = cells.get(cell)
    return spread(spread_of(samples, value).scaled(factor)) if samples else NOTHING


def counts_of(cells: Cells, what: str) -> list[int]:
    """The numbers at which something was measured, in order."""
    return sorted({cell.count for cell in cells if cell.what == what})


def rounds_line(samples: Iterable[Sequence[Sample]]) -> str:
    """How many rounds there were, and in how many of them the machine's speed changed."""
    groups = [group for group in samples if group]
    if not groups:
        return "no rounds"
    most, fewest = max(map(len, groups)), min(map(len, groups))
    rounds = f"{most}" if most == fewest else f"{fewest} to {most}"
    total = sum(map(len, groups))
    unsteady = sum(not each.steady for group in groups for each in group)
    return (
        f"{rounds} rounds, median and quartiles; in {unsteady} of {total} samples the machine's "
        "speed changed"
    )


def _rounds_of(cells: Cells, whats: Iterable[str]) -> str:
    wanted = set(whats)
    return rounds_line(samples for cell, samples in cells.items() if cell.what in wanted)


# Targets.


def target_table(results: Results) -> Table:
    """The targets, with the measured figures."""
    rows = [*_asked_of_renewals(results.cells), *worst_pauses(results.cells)]
    headings = ["", "measured, ms", "target", "", "with a tuned collector, ms", ""]
    note = (
        "median over the rounds (quartiles); tuned: measured again with the settings of the "
        "server, because the collector caused the delay"
    )
    missing = [f"missing: {each}" for each in results.missing]
    return Table("Targets", headings, rows, "; ".join([note, *missing]))


def _asked_of_renewals(cells: Cells) -> list[list[str]]:
    rows = []
    for where in PLACES:
        for number in counts_of(cells, long_calls.READ):
            plain = _renewal(cells, Cell(long_calls.READ, where, number))
            if plain is None:
                continue
            tuned = _renewal(cells, Cell(long_calls.READ, where, number, tuned=True))
            control = _renewal(cells, Cell(long_calls.NOTHING, where, 0))
            idle = "" if control is None else f" (idle: {figure(control.median * MS)})"
            rows.append(
                [
                    f"renewal during a range of {count(number)} keys {where}, p99{idle}",
                    spread(plain.scaled(MS)),
                    str(RENEWAL),
                    RENEWAL.verdict(plain),
                    NOTHING if tuned is None else spread(tuned.scaled(MS)),
                    NOTHING if tuned is None else RENEWAL.verdict(tuned),
                ]
            )
    return rows


def _renewal(cells: Cells, cell: Cell) -> Spread | None:
    samples = cells.get(cell)
    return spread_of(samples, named(renewals.RENEW_P99_S)) if samples else None


# Calls and watches.


def _calls(cells: Cells) -> Table | None:
    sizes = counts_of(cells, calls.name_of(calls.PUT, calls.MANY))
    if not sizes:
        return None
    rows = []
    for name in calls.NAMES:
        for where in PLACES:
            row = [Cell(name, where, size) for size in sizes]
            first, last = cells.get(row[0]), cells.get(row[-1])
            ratio = spread(growth(last, first, calls.RATE)) if first and last else NOTHING
            rates = [shown(cells, cell, named(calls.RATE)) for cell in row]
            rows.append([f"{name}, {where}", *rates, ratio])
    headings = [
        "call",
        *(f"{count(size)} keys" for size in sizes),
        f"{count(sizes[-1])} / {count(sizes[0])}",
    ]
    return Table("Calls in a second", headings, rows, _rounds_of(cells, calls.NAMES))


def _fan_out(cells: Cells) -> Table | None:
    numbers = counts_of(cells, watches.FAN_OUT)
    if not numbers:
        return None
    rows = []
    for where in PLACES:
        row = [Cell(watches.FAN_OUT, where, number) for number in numbers]
        rows.append([where, *(shown(cells, cell, named(watches.LAST_S), MS) for cell in row)])
    headings = ["", *(f"{count(number)} watches" for number in numbers)]
    title = "From a put to the last of its watches, ms"
    return Table(title, headings, rows, _rounds_of(cells, [watches.FAN_OUT]))


def _beside(cells: Cells) -> Table | None:
    numbers = counts_of(cells, watches.BESIDE)
    if not numbers:
        return None
    rows = []
    for where in PLACES:
        row = [Cell(watches.BESIDE, where, number) for number in numbers]
        base, last = cells.get(row[0]), cells.get(row[-1])
        ratio = spread(growth(last, base, watches.PUT_S)) if base and last else NOTHING
        costs = [shown(cells, cell, named(watches.PUT_S), 1e6) for cell in row]
        rows.append([where, *costs, ratio])
    headings = [
        "",
        *(f"{count(number)} watches" if number else "none" for number in numbers),
        f"{count(numbers[-1])} / none",
    ]
    note = f"{_rounds_of(cells, [watches.BESIDE])}; {watches.IN_FLIGHT} puts in flight"
    title = "A put with watches on other keys and prefixes, one of which matches, µs"
    return Table(title, headings, rows, note)


# Leases that end.


def _expiry(cells: Cells) -> Table:
    names = [
        expiry.MIN_S,
        expiry.P50_S,
        expiry.P99_S,
        expiry.MAX_S,
        expiry.AFTER_ANSWER_S,
    ]
    rows = []
    for cell in cells:
        if cell.what == expiry.EXPIRY:
            tuned = ", tuned" if cell.tuned else ""
            late = [shown(cells, cell, named(name), MS) for name in names]
            rows.append([f"{count(cell.count)} {cell.where}{tuned}", *late])
    headings = ["leases", "first", "p50", "p99", "last", "last, from the response"]
    note = (
        f"{_rounds_of(cells, [expiry.EXPIRY])}; from the end of each lease's own term until a "
        "watch reports the delete of its key; the last column counts the term from the response "
        "to all renewals"
    )
    return Table("Lateness of leases that end together, ms", headings, rows, note)


# Memory and start-up.


def _bytes(cells: Cells) -> Table:
    rows = []
    for kind in memory.KINDS:
        for number in counts_of(cells, kind):
            on_disk, in_memory = Cell(kind, DISK, number), Cell(kind, MEMORY, number)
            rows.append(
                [
                    kind,
                    shown(cells, on_disk, named(memory.TRACED)),
                    shown(cells, on_disk, named(memory.RESIDENT)),
                    shown(cells, on_disk, named(memory.REOPENED)),
                    shown(cells, in_memory, named(memory.RESIDENT)),
                    shown(cells, on_disk, named(memory.WRITTEN)),
                    shown(cells, on_disk, named(memory.FOLDED)),
                ]
            )
    headings = [
        "for each",
        "allocated",
        "resident, as it was written",
        "resident, opened again",
        'resident, "memory:"',
        "in files, as it was written",
        "in files, compacted",
    ]
    weighed = max((cell.count for cell in cells if cell.what in memory.KINDS), default=0)
    note = (
        f"{_rounds_of(cells, memory.KINDS)}; {count(weighed)} of each, keys of 11 bytes, values "
        "of 100; allocated as tracemalloc counts it, resident as the system does"
    )
    return Table("Bytes", headings, rows, note)


def _start(cells: Cells) -> Table:
    rows = []
    for cell in cells:
        if cell.what in (start.FROM_BATCHES, start.FROM_TABLES):
            tuned = ", tuned" if cell.tuned else ""
            rows.append(
                [
                    f"{cell.what}, {count(cell.count)} keys{tuned}",
                    shown(cells, cell, named(start.OPEN_S)),
                    shown(cells, cell, named(start.RESIDENT), MB),
                    shown(cells, cell, named(start.PEAK), MB),
                    shown(cells, cell, named(start.FILES), MB),
                ]
            )
    headings = ["", "until the first put, s", "resident, MB", "at most, MB", "files, MB"]
    note = (
        f"{_rounds_of(cells, [start.FROM_BATCHES, start.FROM_TABLES])}; each in a fresh process, "
        "beyond what that had before; the files are in the system's cache"
    )
    return Table("Start-up", headings, rows, note)


# Long calls.


def _long(cells: Cells) -> Table:
    whats = [
        long_calls.NOTHING,
        long_calls.READ,
        long_calls.LIST,
        long_calls.DELETE,
        long_calls.REVOKE,
        long_calls.COMPACT,
    ]
    rows = [_long_row(cells, cell) for what in whats for cell in cells if cell.what == what]
    headings = ["", "took, ms", "renewal p50, ms", "p99", "longest", "dropping the result, ms"]
    note = (
        f"{_rounds_of(cells, whats)}; a renewal is due every {figure(renewals.EVERY_S * MS)} ms, "
        "and is counted from when it was due"
    )
    return Table("Long calls, and renewals during them", headings, rows, note)


def _long_row(cells: Cells, cell: Cell) -> list[str]:
    names = [
        long_calls.TOOK_S,
        renewals.RENEW_P50_S,
        renewals.RENEW_P99_S,
        renewals.RENEW_MAX_S,
        long_calls.DROPPED_S,
    ]
    number = f", {count(cell.count)}" if cell.count else ""
    tuned = ", tuned" if cell.tuned else ""
    return [
        f"{cell.what}{number}, {cell.where}{tuned}",
        *(shown(cells, cell, named(name), MS) for name in names),
    ]
