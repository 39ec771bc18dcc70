"""Measure the engine, print the tables, and write them into the documentation."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.engine.page import PAUSES_PLOT, PLOT, write_page
from benchmarks.engine.parts import PARTS, Run
from benchmarks.engine.plot import write_pauses_plot, write_plot
from benchmarks.engine.report import Results, tables
from benchmarks.engine.scale import FULL, QUICK, Scale
from benchmarks.etcd.servers import on_memory

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    base = options.data_dir or Path(tempfile.gettempdir())
    if on_memory(base):
        sys.exit(f"{base} is kept in memory, where a sync costs nothing: give --data-dir on a disk")
    results = _measure(options, base)
    print(f"\n{results.machine}")
    for table in tables(results):
        print(table.as_text())
    if options.json is not None:
        text = json.dumps(results.as_json(), indent=1)
        options.json.write_text(text, encoding="utf-8")
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument(
        "--sizes", type=_sizes, metavar="N,N,...", help="numbers of keys for calls, ascending"
    )
    parser.add_argument(
        "--most", type=int, metavar="N", help="no number of keys, watches or leases above this"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each measurement")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        metavar="PART",
        help=f"only this part (may be given again): {', '.join(PARTS)}",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="on a disk; a temporary one")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where page and plots are written (docs/, if everything is measured at full size)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw results as well")
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
