"""Compare the client with others, print the tables, and write them into the documentation."""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.client import calls, keeping
from benchmarks.client.calls import Calls
from benchmarks.client.keeping import measure_keeping
from benchmarks.client.page import PLOT, write_page
from benchmarks.client.plot import write_plot
from benchmarks.client.report import Results, tables
from benchmarks.client.scale import FULL, QUICK, Scale
from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir
from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.common.tables import Table
from benchmarks.transport.samples import Run

PARTS: Final = (calls.PART, keeping.PART)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    results = _measure(options, disk_of(options))
    made = tables(results, options.scale.leases, options.scale.ttl_s)
    show(results, made, options.json)
    if options.output is not None:
        _write(options.output, results, made, options.scale)


def _measure(options: argparse.Namespace, base: Path) -> Results:
    run = Run()
    parts = options.only or PARTS
    with tempfile.TemporaryDirectory(dir=base, prefix="bench-client-") as directory:
        if calls.PART in parts:
            Calls(run, options.scale, Path(directory)).measure()
        if keeping.PART in parts:
            measure_keeping(run, options.scale, Path(directory))
    return Results(machine_line(), run.cells, run.missing)


def _write(directory: Path, results: Results, made: Sequence[Table], scale: Scale) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plotted = can_plot()
    if plotted:
        write_plot(results, scale.leases, scale.ttl_s, directory / PLOT)
    else:
        tell(NO_PLOT)
    page = write_page(directory, results.machine, made, plot=plotted)
    tell(f"wrote {page.name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.client", __doc__, PARTS)
    with_data_dir(parser)
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, if there is time for them")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one sample")
    parser.add_argument("--leases", type=int, metavar="N", help="to be kept alive")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.seconds:
        scale = replace(scale, seconds=options.seconds)
    if options.leases:
        scale = replace(scale, leases=options.leases)
    options.scale = scale
    if options.output is None and not (options.quick or options.only):
        options.output = DOCS
    return options


if __name__ == "__main__":
    main()
