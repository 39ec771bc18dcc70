"""Measure the lease core, print the tables, and write them into the documentation."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common.machine import machine_line
from benchmarks.common.plotting import NO_PLOT, can_plot
from benchmarks.common.progress import tell
from benchmarks.lease_core.children import in_child
from benchmarks.lease_core.manager import measure_manager
from benchmarks.lease_core.mass_expiry import MassExpiry, measure_mass_expiry
from benchmarks.lease_core.memory import measure_bytes, measure_churn
from benchmarks.lease_core.operations import Effort, measure_operations
from benchmarks.lease_core.page import PLOT, write_page
from benchmarks.lease_core.plot import write_plot
from benchmarks.lease_core.profile import measure_profile
from benchmarks.lease_core.rebuild import measure_rebuild
from benchmarks.lease_core.report import Results, tables

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    sizes: tuple[int, ...]
    effort: Effort
    traced: tuple[int, ...]
    churn: int
    expiry_count: int
    expiry_runs: int
    rebuild: int
    managed: int
    minutes: int
    profiled: int


FULL = Scale(
    sizes=(1_000, 100_000, 1_000_000),
    effort=Effort(rounds=13, operations=4_000),
    traced=(1_000, 100_000),
    churn=1_000_000,
    expiry_count=100_000,
    expiry_runs=4,
    rebuild=1_000_000,
    managed=100_000,
    minutes=4,
    profiled=20_000,
)

QUICK = Scale(
    sizes=(100, 1_000),
    effort=Effort(rounds=2, operations=200),
    traced=(1_000,),
    churn=20_000,
    expiry_count=1_000,
    expiry_runs=1,
    rebuild=2_000,
    managed=1_000,
    minutes=2,
    profiled=200,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    results = measure(scale, options.sizes or scale.sizes)
    report = tables(results)
    print(f"\n{results.machine}")
    for table in report:
        print(table.as_text())
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        plotted = can_plot()
        if plotted:
            write_plot(results, options.output / PLOT)
        else:
            tell(NO_PLOT)
        page = write_page(options.output, results.machine, report, plot=plotted)
        tell(f"wrote {page.name}")


def measure(scale: Scale, sizes: Sequence[int]) -> Results:
    """Measure everything, one thing after the other."""
    per_size = measure_operations(sizes, scale.effort, tell)
    tell(f"memory: {scale.churn:,} grants and cancels")
    churn = in_child(measure_churn, scale.churn)
    traced = [in_child(measure_bytes, size) for size in scale.traced]
    runs: dict[bool, list[MassExpiry]] = {True: [], False: []}
    for number in range(scale.expiry_runs):
        tell(f"expiry of {scale.expiry_count:,} together: run {number + 1} of {scale.expiry_runs}")
        for on, done in runs.items():
            done.append(in_child(measure_mass_expiry, scale.expiry_count, collector_on=on))
    tell(f"rebuild of the queue at {scale.rebuild:,}")
    rebuild = in_child(measure_rebuild, scale.rebuild)
    tell(f"renewal manager with {scale.managed:,} leases")
    manager = in_child(measure_manager, scale.managed, scale.minutes)
    tell("profiles")
    return Results(
        machine=machine_line(),
        sizes=per_size,
        bytes_per_lease=traced,
        churn=churn,
        expiry_count=scale.expiry_count,
        expiry_on=runs[True],
        expiry_off=runs[False],
        rebuild=rebuild,
        manager=manager,
        profiles=in_child(measure_profile, 5 * scale.profiled, scale.profiled),
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lease_core", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where page and plot are written (docs/; with --quick nowhere)",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="N,N,...",
        help="numbers of live leases, ascending; ratios are to the first",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw results as well")
    options = parser.parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
        raise argparse.ArgumentTypeError("sizes must be at least 1, and ascending")
    return sizes


if __name__ == "__main__":
    main()
