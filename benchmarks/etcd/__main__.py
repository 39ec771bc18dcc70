"""Measure our server and etcd side by side, print the tables, write them into the documentation."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir
from benchmarks.common.machine import machine_line
from benchmarks.common.page import write_results
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.etcd import syncs
from benchmarks.etcd.parts import BOTH, FAILURES, Run
from benchmarks.etcd.plot import write_plot
from benchmarks.etcd.profile import profile, top_functions
from benchmarks.etcd.report import tables
from benchmarks.etcd.samples import PARTS, THROUGHPUT, Results
from benchmarks.etcd.scale import FULL, QUICK
from benchmarks.etcd.servers import BASELINE, BASELINE_CHECKOUT, OURS
from benchmarks.etcd.syncs import Syncs, measure_syncs
from benchmarks.etcd.workloads import CASES

COMMAND: Final = "make bench-etcd"
PAGE: Final = "benchmarks.md"
PLOT: Final = "img/etcd.svg"
SYNCS: Final = "syncs"
SYNC_CASES: Final = ("put", "put-one")
PROFILE_S: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    base = disk_of(options)
    if options.profile:
        _profile(options, base)
        return
    run = Run(base, options.scale, options.servers)
    results: Results = Results(machine_line(), run.cells, run.missing)
    counted: list[Syncs] = []
    for part in options.parts:
        if part == SYNCS:
            counted += _syncs(run)
        else:
            run.measure(part, options.cases)
        if options.output is not None:  # even if a later part fails
            _write(options.output, results, counted)
    show(results, tables(results, counted), options.json)


def _syncs(run: Run) -> list[Syncs]:
    if not syncs.is_there():
        run.missing.append(syncs.HOW_TO_GET)
        return []
    counted = []
    for case in SYNC_CASES:
        for server in run.servers:
            tell(f"syncs of {server}: {CASES[case].title}")
            try:
                counted.append(measure_syncs(server, case, run.scale.sync_s, run.base))
            except FAILURES as error:
                run.missing.append(f"syncs of {server} could not be counted: {error}")
    return counted


def _write(directory: Path, results: Results, counted: Sequence[Syncs]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    parts = [f"Measured with {results.machine}; etcd 3.5.1, both as they start by default."]
    if can_plot():
        write_plot(results, directory / PLOT)
        parts.append(f"![Ratios of Leasehold to etcd, and the targets]({PLOT})")
    else:
        tell(NO_PLOT)
    parts.extend(table.as_markdown() for table in tables(results, counted))
    write_results(directory / PAGE, COMMAND, parts)
    tell(f"wrote {PAGE}")


def _profile(options: argparse.Namespace, base: Path) -> None:
    for case in options.cases:
        result, folded = profile(case, PROFILE_S, base)
        print(f"\n{case}: {result.calls_per_s:,.0f}/s; folded stacks in {folded}")
        for name, share in top_functions(folded.read_text(encoding="utf-8")):
            print(f"  {share:6.1%}  {name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    every = (*PARTS, SYNCS)
    parser = command("benchmarks.etcd", __doc__, (*every, *CASES))
    with_data_dir(parser)
    parser.add_argument("--pairs", type=int, metavar="N", help="pairs of slices of each kind")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one slice")
    parser.add_argument("--server", choices=(*BOTH, "both"), default="both")
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="CHECKOUT",
        help="compare with our own server of another checkout instead of etcd",
    )
    parser.add_argument("--profile", action="store_true", help="record ours with py-spy instead")
    options = parser.parse_args(arguments)
    only = options.only or [*every]
    options.cases = [name for name in CASES if name in only] or list(CASES)
    options.parts = [
        part
        for part in every
        if part in only or (part == THROUGHPUT and any(name in only for name in CASES))
    ]
    scale = QUICK if options.quick else FULL
    scale = replace(scale, pairs=options.pairs or scale.pairs)
    options.scale = replace(scale, slice_s=options.seconds or scale.slice_s)
    options.servers = BOTH if options.server == "both" else (options.server,)
    if options.baseline is not None:
        os.environ[BASELINE_CHECKOUT] = str(options.baseline.resolve(strict=True))
        options.servers = (BASELINE, OURS)
    partial = options.quick or options.only or options.servers != BOTH
    if options.output is None and not partial:
        options.output = DOCS
    return options


if __name__ == "__main__":
    main()
