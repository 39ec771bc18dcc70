"""Measure the renewal service, print the tables, and write them into the documentation."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.command import (
    DOCS,
    command,
    disk_of,
    show,
    with_data_dir,
    write_page,
)
from benchmarks.common.machine import machine_line
from benchmarks.common.results import Results
from benchmarks.common.tables import Table, figure
from benchmarks.renewal.batched import Batched, measure_batched
from benchmarks.renewal.grantor import Renewing
from benchmarks.renewal.one_by_one import measure_one_by_one
from benchmarks.renewal.scale import FULL, QUICK, Scale

PAGE = "benchmarks-renewal.md"
COMMAND = "make bench"
ONE_BY_ONE = 0
"""The number of sets of the client that renews each lease alone."""


@dataclass(frozen=True)
class Cell:
    """How the leases are kept: in so many sets, or one by one."""

    sets: int


@dataclass(frozen=True)
class Found:
    """What one measurement has found."""

    renewing: Renewing
    batched: Batched | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(dir=disk_of(options), prefix="bench-renewal-") as directory:
        results = Results(machine_line(), asyncio.run(run(scale, Path(directory))))
    made = tables(results, scale)
    show(results, made, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, results, made)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.renewal", __doc__)
    with_data_dir(parser)
    options = parser.parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


async def run(scale: Scale, directory: Path) -> dict[Cell, list[Found]]:
    """Measure each number of sets, and the client that renews one by one.

    They share the time in which leases are only renewed; everything else is done in turn.
    """
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        batched = {
            sets: tasks.create_task(measure_batched(scale, sets, directory, turn))
            for sets in scale.sets
        }
        alone = tasks.create_task(measure_one_by_one(scale, directory, turn))
    cells = {
        Cell(sets): [Found(task.result().renewing, task.result())] for sets, task in batched.items()
    }
    return cells | {Cell(ONE_BY_ONE): [Found(alone.result())]}


def tables(results: Results[Cell, Found], scale: Scale) -> list[Table]:
    """The tables of all results."""
    found = {cell.sets: each for cell, samples in results.cells.items() for each in samples}
    return [_renewing(found, scale), _sets(found, scale)]


def _renewing(found: dict[int, Found], scale: Scale) -> Table:
    rows = []
    for sets, each in found.items():
        renewing = each.renewing
        us = 1e6 / renewing.renewals_per_s
        rows.append(
            [
                _name(sets),
                figure(renewing.messages_per_s),
                figure(renewing.renewals_per_s),
                figure(100 * renewing.cpu_s_per_s),
                figure(100 * renewing.grantor_cpu_s_per_s),
                figure(us * renewing.cpu_s_per_s),
                figure(us * renewing.grantor_cpu_s_per_s),
                f"{renewing.lapses:,}",
            ]
        )
    return Table(
        f"{scale.leases:,} leases of {scale.ttl_s:g} s kept alive",
        [
            "how",
            "messages/s",
            "renewals/s",
            "processor share, %",
            "that of the grantor, %",
            "µs per renewal",
            "at the grantor, µs",
            "lapses",
        ],
        rows,
        "means of the time in which every lease was renewed "
        f"{scale.rounds} times; a share of 100 % is one core",
    )


def _sets(found: dict[int, Found], scale: Scale) -> Table:
    rows: list[list[Any]] = []
    for sets, each in found.items():
        if each.batched is None:
            continue
        adding, restart = each.batched.adding, each.batched.restart
        rows.append(
            [
                _name(sets),
                figure(adding.per_s),
                figure(adding.cpu_us),
                figure(adding.bytes_per_lease),
                figure(restart.renewed_s),
                figure(restart.cpu_s),
                f"{restart.lapses:,}",
                f"{each.batched.members:,}",
            ]
        )
    return Table(
        f"{scale.leases:,} leases in renewal sets",
        [
            "how",
            "added/s",
            "µs to add one",
            "bytes per lease",
            "restart: all renewed after, s",
            "processor time, s",
            "lapses",
            "members after it",
        ],
        rows,
        "time and memory are those of the service; it was killed, and started again immediately",
    )


def _name(sets: int) -> str:
    if sets == ONE_BY_ONE:
        return "one by one"
    return "one set" if sets == 1 else f"{sets:,} sets"


if __name__ == "__main__":
    main()
