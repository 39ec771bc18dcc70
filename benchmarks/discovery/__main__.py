"""Measure events of the discovery service, print the tables, and write them into the docs."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.progress import tell
from benchmarks.common.results import Results
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.discovery.group_changes import (
    CONCURRENT_CALLS,
    ChangeCell,
    ChangeSample,
    resident_bytes,
    stage_of,
)

PAGE: Final = "benchmarks-discovery.md"
COMMAND: Final = "make bench"


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    registrations: int
    registrars: int
    rounds: int


FULL: Final = Scale(registrations=10_000, registrars=100, rounds=3)
QUICK: Final = Scale(registrations=50, registrars=5, rounds=1)


@dataclass(frozen=True)
class Registered:
    """How fast registrations are made, and the memory of each."""

    per_s: float
    bytes_empty: float
    """Without registrars."""
    bytes_full: float
    """With all registrars."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(dir=disk_of(options), prefix="bench-discovery-") as directory:
        cells, registered = asyncio.run(run(scale, Path(directory)))
    results = Results(machine_line(), cells)
    made = tables(results, scale, registered)
    show(results, made, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, results, made)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.discovery", __doc__)
    with_data_dir(parser)
    options = parser.parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


async def run(
    scale: Scale, directory: Path
) -> tuple[dict[ChangeCell, list[ChangeSample]], Registered]:
    """Make the registrations, then let registrars enter and leave their group."""
    cells: dict[ChangeCell, list[ChangeSample]] = {}
    async with stage_of(scale.registrars, directory / "data") as stage:
        before = resident_bytes()
        tell(f"{scale.registrations:,} registrations")
        per_s = await stage.register(scale.registrations)
        empty = resident_bytes()
        full = empty
        for _ in range(scale.rounds):
            for registrars in (1, scale.registrars):
                tell(f"{registrars} registrars of {scale.registrars} enter and leave the group")
                for is_member in (True, False):
                    sample = await stage.change(registrars, is_member=is_member)
                    cells.setdefault(ChangeCell(registrars), []).append(sample)
                    full = max(full, resident_bytes()) if is_member else full
    return cells, Registered(
        per_s, (empty - before) / scale.registrations, (full - before) / scale.registrations
    )


def tables(
    results: Results[ChangeCell, ChangeSample], scale: Scale, registered: Registered
) -> list[Table]:
    """The tables of all results."""
    rows = []
    for cell, samples in results.cells.items():
        figures = (
            [each.events_per_s for each in samples],
            [each.reports_per_s for each in samples],
            [each.cpu_us for each in samples],
            [each.last_ms for each in samples],
        )
        rows.append([count(cell.registrars), *(spread(Spread.of(values)) for values in figures)])
    note = (
        f"median (quartiles) of {2 * scale.rounds} changes; {scale.registrations:,} registrations, "
        f"{scale.registrars} registrars"
    )
    changes = Table(
        "Changes of groups",
        [
            "registrars that change together",
            "events/s",
            "registrars reported/s",
            "processor time, µs per event",
            "change to the last event, ms",
        ],
        rows,
        note,
    )
    memory = Table(
        "Registrations",
        ["made/s", "bytes each, without registrars", f"with {scale.registrars} registrars"],
        [
            [
                figure(registered.per_s),
                figure(registered.bytes_empty),
                figure(registered.bytes_full),
            ]
        ],
        f"{scale.registrations:,} registrations, {CONCURRENT_CALLS} made at the same time",
    )
    return [changes, memory]


if __name__ == "__main__":
    main()
