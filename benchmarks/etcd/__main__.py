"""Measure our server and etcd side by side, print the tables, write them into the documentation."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common.machine import machine_line
from benchmarks.common.page import write_results
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.etcd import h2load, syncs
from benchmarks.etcd.plot import write_plot
from benchmarks.etcd.profile import profile, top_functions
from benchmarks.etcd.report import Results, missing_tools, tables
from benchmarks.etcd.rounds import BOTH, can_pin, cells, measure_rounds
from benchmarks.etcd.servers import ROOT, on_memory
from benchmarks.etcd.syncs import measure_syncs
from benchmarks.etcd.workloads import CASES

DOCS = ROOT / "docs"
COMMAND = "make bench-etcd"
PAGE = "benchmarks.md"
PLOT = "img/etcd.svg"
SYNC_CASES = ("put", "put-one")
PROFILE_S = 5.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    rounds: int
    attempts: int
    seconds: float
    sync_s: float
    most_s: float
    """No round is begun that would likely end later."""


FULL = Scale(rounds=5, attempts=3, seconds=1.0, sync_s=1.5, most_s=660.0)
QUICK = Scale(rounds=1, attempts=1, seconds=0.3, sync_s=0.3, most_s=120.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    base = options.data_dir or Path(tempfile.gettempdir())
    if on_memory(base):
        sys.exit(f"{base} is kept in memory, where a sync costs nothing: give --data-dir on a disk")
    if options.profile:
        _profile(options, base)
        return
    results = _measure(options, base)
    report = tables(results)
    print(f"\n{results.machine}")
    for table in report:
        print(table.as_text())
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    if options.output is not None:
        _write(options.output, results)


def _measure(options: argparse.Namespace, base: Path) -> Results:
    servers = BOTH if options.server == "both" else (options.server,)
    cases = options.only or list(CASES)
    chosen = cells(cases, with_h2load=h2load.is_there(), with_pinning=can_pin())
    missing = missing_tools()
    for how in missing:
        tell(how)
    pairs = measure_rounds(
        chosen,
        servers,
        rounds=options.rounds,
        attempts=options.scale.attempts,
        seconds=options.seconds,
        most_s=options.scale.most_s,
        base=base,
        tell=tell,
    )
    results = Results(machine_line(), options.seconds, list(pairs), missing=missing)
    for case in SYNC_CASES:
        for server in servers if case in cases and syncs.is_there() else ():
            tell(f"syncs of {server}: {CASES[case].title}")
            results.syncs.append(measure_syncs(server, case, options.scale.sync_s, base))
    return results


def _write(directory: Path, results: Results) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    parts = [f"Measured with {results.machine}; etcd 3.5.1, both as they start by default."]
    if can_plot():
        write_plot(results, directory / PLOT)
        parts.append(f"![Throughput of ours to etcd's, and what was asked for]({PLOT})")
    else:
        tell(NO_PLOT)
    parts.extend(table.as_markdown() for table in tables(results))
    write_results(directory / PAGE, COMMAND, parts)
    tell(f"wrote {PAGE}")


def _profile(options: argparse.Namespace, base: Path) -> None:
    for case in options.only or list(CASES):
        result, folded = profile(case, max(options.seconds, PROFILE_S), base)
        print(f"\n{case}: {result.calls_per_s:,.0f}/s; folded stacks in {folded}")
        for name, share in top_functions(folded.read_text(encoding="utf-8")):
            print(f"  {share:6.1%}  {name}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.etcd", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--rounds", type=int, metavar="N", help="pairs of rounds of each kind")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of one load")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(CASES),
        metavar="WORKLOAD",
        help=f"only this one (may be given again): {', '.join(CASES)}",
    )
    parser.add_argument("--server", choices=(*BOTH, "both"), default="both")
    parser.add_argument("--profile", action="store_true", help="record ours with py-spy instead")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="on a disk; a temporary one")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where page and plot are written (docs/, if everything is measured at full length)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw results as well")
    options = parser.parse_args(arguments)
    options.scale = QUICK if options.quick else FULL
    partial = options.quick or options.only or options.server != "both"
    if options.output is None and not partial:
        options.output = DOCS
    options.rounds = options.rounds or options.scale.rounds
    options.seconds = options.seconds or options.scale.seconds
    return options


if __name__ == "__main__":
    main()
