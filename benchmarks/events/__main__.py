"""Measure deliveries of events, print the table, and write it into the documentation."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.command import DOCS, command, show, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.processes import raise_file_limit
from benchmarks.common.progress import tell
from benchmarks.common.results import Results
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, spread
from benchmarks.events.deliveries import FULL, LOADS, QUICK, Sample, Scale, measure, served

PAGE = "benchmarks-events.md"
COMMAND = "make bench"


@dataclass(frozen=True)
class Cell:
    """A load, and how many listeners hang."""

    load: str
    hanging: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    raise_file_limit()
    results = Results(machine_line(), asyncio.run(run(scale)))
    made = [table(results, scale)]
    show(results, made, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, results, made)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = command("benchmarks.events", __doc__).parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


async def run(scale: Scale) -> dict[Cell, list[Sample]]:
    """Measure each load without hanging listeners and with them, in turn."""
    cells: dict[Cell, list[Sample]] = {}
    async with served(scale.endpoints) as endpoints:
        for _ in range(scale.rounds):
            for load in LOADS:
                for hanging in (0, scale.hanging):
                    tell(f"{load.name}, {hanging} of {scale.listeners} listeners hang")
                    found = await measure(load, endpoints, scale, hanging)
                    cells.setdefault(Cell(load.name, hanging), []).append(found)
    return cells


def table(results: Results[Cell, Sample], scale: Scale) -> Table:
    """The table of all results."""
    rows = []
    for cell, samples in results.cells.items():
        figures = (
            [each.events_per_s for each in samples],
            [each.cpu_us_per_event for each in samples],
            [each.p50_ms for each in samples],
            [each.p99_ms for each in samples],
            [each.max_ms for each in samples],
        )
        rows.append(
            [cell.load, str(cell.hanging), *(spread(Spread.of(values)) for values in figures)]
        )
    return Table(
        f"Events to {scale.listeners:,} listeners at {scale.endpoints} endpoints",
        [
            "load",
            "hanging",
            "events/s",
            "processor time of the sender, µs per event",
            "p50, ms",
            "p99, ms",
            "max, ms",
        ],
        rows,
        f"median (quartiles) of {scale.rounds} rounds; healthy listeners only",
    )


if __name__ == "__main__":
    main()
