"""Compare the locks with others, print the tables, and write them into the documentation."""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir
from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.common.tables import Table
from benchmarks.locks import contest, holding, traffic
from benchmarks.locks.contest import Contest
from benchmarks.locks.holding import measure_holding
from benchmarks.locks.page import PLOT, write_page
from benchmarks.locks.plot import write_plot
from benchmarks.locks.report import Results, tables
from benchmarks.locks.scale import FULL, QUICK, Scale
from benchmarks.locks.traffic import measure_traffic
from benchmarks.transport.samples import Run

PARTS: Final = (*contest.PARTS, holding.PART, traffic.PART)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    results = _measure(options, disk_of(options))
    made = tables(results, options.scale)
    show(results, made, options.json)
    if options.output is not None:
        _write(options.output, results, made, options.scale)


def _measure(options: argparse.Namespace, base: Path) -> Results:
    run = Run()
    parts = options.only or PARTS
    with tempfile.TemporaryDirectory(dir=base, prefix="bench-locks-") as directory:
        in_contest = tuple(part for part in contest.PARTS if part in parts)
        if in_contest:
            Contest(run, options.scale, Path(directory)).measure(in_contest)
        if holding.PART in parts:
            measure_holding(run, options.scale, Path(directory))
        if traffic.PART in parts:
            measure_traffic(run, options.scale)
    return Results(machine_line(), run.cells, run.missing)


def _write(directory: Path, results: Results, made: Sequence[Table], scale: Scale) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plotted = can_plot()
    if plotted:
        write_plot(results, scale, directory / PLOT)
    else:
        tell(NO_PLOT)
    page = write_page(directory, results.machine, made, plot=plotted)
    tell(f"wrote {page.name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.locks", __doc__, PARTS)
    with_data_dir(parser)
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, if there is time for them")
    parser.add_argument("--locks", type=int, metavar="N", help="that one client holds")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.locks:
        scale = replace(scale, locks=options.locks)
    options.scale = scale
    if options.output is None and not (options.quick or options.only):
        options.output = DOCS
    return options


if __name__ == "__main__":
    main()
