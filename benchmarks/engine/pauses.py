"""Pauses of the event loop: in each of the measurements, and the worst of each part."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.engine import calls, expiry, long_calls, start, watches
from benchmarks.engine.samples import Cell, Cells, pause_of, spread_of
from benchmarks.engine.targets import PAUSE

GROUPS: Final = {
    "calls of clients": list(calls.NAMES),
    "watches": [watches.FAN_OUT, watches.BESIDE],
    "leases that end together": [expiry.EXPIRY],
    "start-up": [start.FROM_BATCHES, start.FROM_TABLES],
    "range of all keys": [long_calls.READ],
    "list of all leases": [long_calls.LIST],
    "delete of many keys": [long_calls.DELETE],
    "end of a lease with many keys": [long_calls.REVOKE],
    "compaction": [long_calls.COMPACT],
}
"""The groups of the table of targets."""

NOTHING: Final = "-"
MS: Final = 1e3


def pause_cells(cells: Cells) -> list[Cell]:
    """What pauses were measured in, plain."""
    whats = {what for group in GROUPS.values() for what in group}
    return [cell for cell in cells if cell.what in whats and not cell.tuned and cells[cell]]


def largest(found: Iterable[Cell]) -> list[Cell]:
    """Of each thing in each place, only the one with the largest number."""
    most: dict[tuple[str, str], Cell] = {}
    for cell in found:
        known = most.get((cell.what, cell.where))
        if known is None or known.count < cell.count:
            most[cell.what, cell.where] = cell
    return list(most.values())


def worst_pauses(cells: Cells) -> list[list[str]]:
    """A row for each group: the measurement with the longest pause, and the target."""
    rows = []
    for title, whats in GROUPS.items():
        found = [cell for cell in pause_cells(cells) if cell.what in whats]
        if not found:
            continue
        worst = max(found, key=lambda cell: spread_of(cells[cell], pause_of).median)
        among = f", the worst of {len(found)}: {label(worst)}" if len(found) > 1 else ""
        rows.append([f"longest pause, {title}{among}", *_verdicts(cells, worst)])
    return rows


def label(cell: Cell) -> str:
    """What a cell is, in words."""
    return f"{cell.what}, {count(cell.count)}, {cell.where}"


def _verdicts(cells: Cells, cell: Cell) -> list[str]:
    plain = spread_of(cells[cell], pause_of)
    again = cells.get(replace(cell, tuned=True))
    row = [spread(plain.scaled(MS)), str(PAUSE), PAUSE.verdict(plain)]
    if not again:
        return [*row, NOTHING, NOTHING]
    tuned = spread_of(again, pause_of)
    return [*row, spread(tuned.scaled(MS)), PAUSE.verdict(tuned)]


def pause_table(cells: Cells) -> Table:
    """Each measurement at its largest number, with what may have kept the loop."""
    rows = []
    for cell in largest(pause_cells(cells)):
        samples = cells[cell]
        plain, asked, reached, tuned, tuned_reached = _verdicts(cells, cell)
        rows.append(
            [
                label(cell),
                plain,
                spread(spread_of(samples, lambda each: each.pause.busy_s).scaled(MS)),
                spread(spread_of(samples, lambda each: each.pause.collector_s).scaled(MS)),
                spread(spread_of(samples, lambda each: each.quiet.longest_s).scaled(MS)),
                f"{asked}: {reached}",
                tuned if tuned == NOTHING else f"{tuned}: {tuned_reached}",
            ]
        )
    headings = [
        "",
        "longest pause",
        "longest turn, processor time",
        "longest collection",
        "idle loop",
        "target",
        "tuned",
    ]
    note = (
        "median over the rounds (quartiles); a pause is the excess of a sleep of 1 ms, including "
        "delays by the scheduler and other threads, as is the longest of the idle loop, just "
        f"before; of all samples the longest pause was {_longest(cells)}"
    )
    return Table("Pauses of the event loop, ms", headings, rows, note)


def _longest(cells: Cells) -> str:
    longest = [(max(map(pause_of, cells[cell])), label(cell)) for cell in pause_cells(cells)]
    if not longest:
        return "none"
    pause_s, where = max(longest)
    return f"{figure(pause_s * MS)} ms ({where})"
