"""Measure the engine, print the tables, and write them into the documentation."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir
from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.engine.page import PAUSES_PLOT, PLOT, write_page
from benchmarks.engine.parts import PARTS, Run
from benchmarks.engine.plot import write_pauses_plot, write_plot
from benchmarks.engine.report import Results, tables
from benchmarks.engine.scale import FULL, QUICK, Scale


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    results = _measure(options, disk_of(options))
    show(results, tables(results), options.json)
    if options.output is not None:
        _write(options.output, results)
    if results.missing:
        sys.exit("some of it could not be measured")


def _measure(options: argparse.Namespace, base: Path) -> Results:
    with tempfile.TemporaryDirectory(dir=base, prefix="bench-engine-") as directory:
        run = Run(Path(directory), options.scale)
        run.measure(options.only or PARTS)
    return Results(machine_line(), run.cells, run.missing)


def _write(directory: Path, results: Results) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plotted = can_plot()
    if plotted:
        write_plot(results, directory / PLOT)
        write_pauses_plot(results, directory / PAUSES_PLOT)
    else:
        tell(NO_PLOT)
    page = write_page(directory, results.machine, tables(results), plot=plotted)
    tell(f"wrote {page.name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.engine", __doc__, PARTS)
    with_data_dir(parser)
    parser.add_argument(
        "--sizes", type=_sizes, metavar="N,N,...", help="numbers of keys for calls, ascending"
    )
    parser.add_argument(
        "--most", type=int, metavar="N", help="no number of keys, watches or leases above this"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each measurement")
    options = parser.parse_args(arguments)
    options.scale = _scale(options)
    if options.output is None and not (options.quick or options.only or options.most):
        options.output = DOCS
    return options


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    if options.sizes:
        scale = replace(scale, sizes=options.sizes)
    if options.rounds:
        scale = replace(scale, rounds=options.rounds, few=options.rounds)
    return scale.at_most(options.most) if options.most else scale


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
        raise argparse.ArgumentTypeError("sizes must be at least 1, and ascending")
    return sizes


if __name__ == "__main__":
    main()
