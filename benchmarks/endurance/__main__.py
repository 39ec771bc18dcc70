"""Keep very many leases, connections and watchers for minutes: nothing may be lost, or grow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.progress import tell
from benchmarks.endurance.measuring import Endurance, Scale, measure
from benchmarks.endurance.report import tables

COMMAND: Final = "python -m benchmarks.endurance"
PAGE: Final = "benchmarks-endurance.md"

FULL: Final = Scale(
    seconds=600.0,
    connections=5_000,
    leases=20,
    ttl_s=90,
    watch_connections=50,
    watch_streams=20,
    keys=100,
    puts_per_s=100.0,
)
QUICK: Final = replace(
    FULL,
    seconds=40.0,
    connections=500,
    ttl_s=30,
    watch_connections=10,
    keys=20,
    compact_every_s=10.0,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it from the command line."""
    parser = command("benchmarks.endurance", __doc__)
    with_data_dir(parser)
    parser.add_argument("--seconds", type=float, metavar="S", help="how long the load runs")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.seconds:
        scale = replace(scale, seconds=options.seconds)
    if options.output is None and not (options.quick or options.seconds):
        options.output = DOCS
    tell(f"this ends within {scale.most_s / 60:.0f} minutes")
    result = Endurance(machine_line(), scale)
    measure(result, disk_of(options))
    report = tables(result)
    show(result, report, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, result, report)


if __name__ == "__main__":
    main()
