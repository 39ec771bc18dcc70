"""From measurements to tables."""

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.common import results as common
from benchmarks.common.tables import Table, figure, spread
from benchmarks.locks import holding, traffic
from benchmarks.locks.contenders import CACHED, CONTENDERS, IN_TABLES
from benchmarks.locks.contest import (
    COUNTING,
    CROWDING,
    HANDING_OVER,
    REACQUIRING,
    takes_part,
)
from benchmarks.locks.driving import (
    ACQUIRE_US,
    BYTES,
    HANDED_OVER,
    MESSAGES,
    PAIR_US,
    TOOK_S,
)
from benchmarks.locks.scale import Scale
from benchmarks.locks.targets import MOST_US, SHARE, TERM_S, within
from benchmarks.transport.report import NOTHING, rounds_line, shown
from benchmarks.transport.samples import (
    CPU_US,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    Cell,
    Cells,
    Sample,
    spread_of,
    times,
)

Results = common.Results[Cell, Sample]

NOT_MEASURED: Final = "not measured"


def tables(results: Results, scale: Scale) -> list[Table]:
    """Every table of the report, in order; those of parts that were not measured are left out."""
    made = [
        target_table(results),
        _reacquiring(results),
        _handing_over(results),
        _crowd(results, scale),
        holding.table(results.cells),
        *traffic.tables(results.cells),
    ]
    return [table for table in made if table.rows]


def cell(part: str, who: str) -> Cell:
    """One contender in one part of the contest."""
    return Cell(part, part, who)


def _small(value: float) -> str:
    """Three digits that count, also of what is far below one."""
    return f"{value:.3g}" if 0.0 < abs(value) < 0.1 else figure(value)


# Targets.


def target_table(results: Results) -> Table:
    """The targets, with the measured figures."""
    cells = results.cells
    rows = []
    for who, most_us in MOST_US.items():
        samples, counted = cells.get(cell(REACQUIRING, who)), cells.get(cell(COUNTING, who))
        if samples:
            took = spread_of(samples, ACQUIRE_US)
            what = f"acquiring again, {who}"
            rows.append([what, f"{most_us:g} µs", f"{spread(took)} µs", within(took, most_us)])
        if counted:
            sent = spread_of(counted, MESSAGES)
            what = f"messages of that, {who}"
            rows.append([what, "0", _small(sent.median), within(sent, 0.0)])
    share = traffic.share_at(cells, TERM_S)
    if share is not None:
        about, found = f"about {SHARE:.0%}", f"{share.median:.1%}"
        what = f"consistency traffic with a term of {TERM_S:g} s, relative to ours without leases"
        rows.append([what, about, found, within(share, 1.1 * SHARE)])
    note = "; ".join(f"missing: {each}" for each in results.missing)
    return Table("Targets", ["", "target, at most", "measured", ""], rows, note)


# The contest.


def _rows(results: Results, part: str, columns: int) -> Iterator[tuple[str, str, list[str] | None]]:
    """The contenders of a part, with their servers; and a row with the reason if not measured."""
    reasons = dict(each.split(": ", 1) for each in results.missing)
    if not any(each.part == part for each in results.cells):
        return
    for who in IN_TABLES:
        if not takes_part(who, part):
            continue
        server = CONTENDERS[who].server
        if results.cells.get(cell(part, who)):
            yield who, server, None
        elif who in reasons:
            why = f"{NOT_MEASURED}: {reasons[who]}"
            yield who, server, [who, server, why, *[NOTHING] * (columns - 3)]


def _reacquiring(results: Results) -> Table:
    headings = ["", "server", "acquire, µs", "acquire and release, µs", "times ours, cached"]
    headings += ["processor, µs", "server's, µs", "messages", "bytes"]
    cells, rows = results.cells, []
    for who, server, absent in _rows(results, REACQUIRING, len(headings)):
        rows.append(absent or [who, server, *_reacquired(cells, who)])
    measured = (samples for each, samples in cells.items() if each.part == REACQUIRING)
    note = (
        f"{rounds_line(measured)}; processor time for acquiring and releasing once, of the "
        "client's process with all its threads, and of the server; messages are those of the "
        "client, and bytes those of both sides, counted on the wire"
    )
    return Table("An uncontended lock", headings, rows, note)


def _reacquired(cells: Cells, who: str) -> list[str]:
    samples, counted = cells[cell(REACQUIRING, who)], cells.get(cell(COUNTING, who))
    base = cells.get(cell(REACQUIRING, CACHED))
    ratio = times(samples, base, PAIR_US) if base and who != CACHED else None
    names = (ACQUIRE_US, PAIR_US)
    row = [shown(samples, name) for name in names]
    row.append(spread(ratio) if ratio else NOTHING)
    row += [shown(samples, name) for name in (CPU_US, OTHER_CPU_US)]
    if not counted:
        return [*row, NOTHING, NOTHING]
    return [*row, *(_small(spread_of(counted, name).median) for name in (MESSAGES, BYTES))]


def _handing_over(results: Results) -> Table:
    headings = ["", "server", "p50, ms", "p99, ms", "hand-overs in a sample"]
    cells, rows = results.cells, []
    for who, server, absent in _rows(results, HANDING_OVER, len(headings)):
        samples = cells.get(cell(HANDING_OVER, who), [])
        figures = (
            [shown(samples, name) for name in (P50_MS, P99_MS, HANDED_OVER)] if samples else []
        )
        rows.append(absent or [who, server, *figures])
    measured = (samples for each, samples in cells.items() if each.part == HANDING_OVER)
    note = (
        f"{rounds_line(measured)}; from just before one client releases the lock until another "
        "one, which waits for it, has acquired it"
    )
    return Table("Handing over", headings, rows, note)


def _crowd(results: Results, scale: Scale) -> Table:
    headings = ["", "server", "all together, s", "for an acquisition, beyond holding it, ms"]
    rows = []
    acquisitions = scale.clients * scale.turns
    for who, server, absent in _rows(results, CROWDING, len(headings)):
        row = [who, server, *_crowded(results.cells.get(cell(CROWDING, who), []), scale)]
        rows.append(absent or row)
    note = (
        f"{acquisitions} acquisitions by {scale.clients} clients that start together, "
        f"{scale.turns} by each; the lock is held for {scale.hold_s:g} s each time; "
        f"a lease of {scale.ttl_s:g} s"
    )
    return Table(f"{scale.clients} clients on one lock", headings, rows, note)


def _crowded(samples: Sequence[Sample], scale: Scale) -> list[str]:
    if not samples:
        return []
    took_s, acquisitions = spread_of(samples, TOOK_S), scale.clients * scale.turns
    beyond_ms = 1e3 * (took_s.median / acquisitions - scale.hold_s)
    return [spread(took_s), _small(beyond_ms)]
