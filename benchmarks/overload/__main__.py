"""Offer our server twice the Puts that it can bear, and see what becomes of everything else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.progress import tell
from benchmarks.overload.measuring import Overload, Scale, measure
from benchmarks.overload.report import tables

COMMAND: Final = "python -m benchmarks.overload"
PAGE: Final = "benchmarks-overload.md"

FULL: Final = Scale(
    calibration_s=10.0,
    quiet_s=15.0,
    flood_s=300.0,
    recovery_s=20.0,
    connections=20,
    leases=50,
    ttl_s=5,
    reads_per_s=100.0,
    flood_connections=16,
)
QUICK: Final = replace(
    FULL, calibration_s=2.0, quiet_s=4.0, flood_s=15.0, recovery_s=5.0, leases=20
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it from the command line."""
    parser = command("benchmarks.overload", __doc__)
    with_data_dir(parser)
    parser.add_argument("--seconds", type=float, metavar="S", help="length of the flood")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.seconds:
        scale = replace(scale, flood_s=options.seconds)
    if options.output is None and not (options.quick or options.seconds):
        options.output = DOCS
    tell(f"this ends within {scale.most_s / 60:.0f} minutes")
    result = Overload(machine_line())
    measure(result, scale, disk_of(options))
    report = tables(result)
    show(result, report, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, result, report)


if __name__ == "__main__":
    main()
