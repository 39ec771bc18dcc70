"""Measure the transport, print the tables, and write them into the documentation."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.common.command import DOCS, command, show
from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.transport.client_side import ClientSide
from benchmarks.transport.memory import MEMORY, measure_memory
from benchmarks.transport.page import PLOT, write_page
from benchmarks.transport.plot import write_plot
from benchmarks.transport.report import Results, tables
from benchmarks.transport.samples import Run
from benchmarks.transport.scale import FULL, QUICK
from benchmarks.transport.server_side import SERVER, ServerSide

CLIENT: Final = "client"
PARTS: Final = (SERVER, CLIENT, MEMORY)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    results = _measure(options)
    show(results, tables(results), options.json)
    if options.output is not None:
        _write(options.output, results)


def _measure(options: argparse.Namespace) -> Results:
    run = Run()
    parts = options.only or PARTS
    if SERVER in parts:
        ServerSide(run, options.scale).measure()
    if CLIENT in parts:
        ClientSide(run, options.scale).measure()
    if MEMORY in parts:
        measure_memory(run, options.scale)
    return Results(machine_line(), run.cells, run.missing)


def _write(directory: Path, results: Results) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plotted = can_plot()
    if plotted:
        write_plot(results, directory / PLOT)
    else:
        tell(NO_PLOT)
    page = write_page(directory, results.machine, tables(results), plot=plotted)
    tell(f"wrote {page.name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.transport", __doc__, PARTS)
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, if there is time for them")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one sample")
    parser.add_argument("--connections", type=int, metavar="N", help="idle ones to be weighed")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds, few=options.rounds)
    if options.seconds:
        scale = replace(scale, seconds=options.seconds, client_seconds=options.seconds)
    if options.connections:
        scale = replace(scale, connections=options.connections)
    options.scale = scale
    if options.output is None and not (options.quick or options.only):
        options.output = DOCS
    return options


if __name__ == "__main__":
    main()
