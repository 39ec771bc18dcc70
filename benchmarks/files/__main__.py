"""Measure single-writer files, print the tables, and write them into the documentation."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.progress import tell
from benchmarks.common.results import Results
from benchmarks.common.stats import Spread, ratios
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.files.workloads import (
    LEASED,
    OPENINGS,
    PLAIN,
    RECOVERED_BYTES,
    AppendCell,
    OpenCell,
    Rate,
    RecoveryCell,
    append_leased,
    append_plain,
    files_of,
    open_and_close,
    recover,
)

PAGE: Final = "benchmarks-files.md"
COMMAND: Final = "make bench"

Cell = AppendCell | OpenCell | RecoveryCell


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    appends: tuple[tuple[int, int, int], ...]
    """Sizes of appends in bytes, files at the same time, and appends to each in a round."""
    opened: int
    recovered: tuple[int, ...]
    rounds: int


FULL: Final = Scale(
    ((100, 1, 400), (100, 16, 100), (64 * 1024, 1, 200), (4 * 1024 * 1024, 1, 16)),
    opened=200,
    recovered=(10, 100, 1_000),
    rounds=3,
)
QUICK: Final = Scale(((100, 1, 5), (100, 2, 3)), opened=3, recovered=(3,), rounds=1)
REPLICAS: Final = (1, 3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(dir=disk_of(options), prefix="bench-files-") as directory:
        cells = asyncio.run(run(scale, Path(directory)))
    results = Results(machine_line(), cells)
    made = tables(results, scale)
    show(results, made, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, results, made)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.files", __doc__)
    with_data_dir(parser)
    options = parser.parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


async def run(scale: Scale, directory: Path) -> dict[Cell, list[Rate]]:
    """Measure everything, plain files and ours in turn."""
    cells: dict[Cell, list[Rate]] = {}
    for replicas in REPLICAS:
        async with files_of(directory / f"server-{replicas}", replicas) as (files, client):
            for number in range(scale.rounds):
                tell(f"{replicas} replicas, round {number + 1} of {scale.rounds}")
                for size_bytes, together, times in scale.appends:
                    plain = AppendCell(PLAIN, replicas, size_bytes, together)
                    rate = await append_plain(directory, plain, times)
                    cells.setdefault(plain, []).append(rate)
                    leased = AppendCell(LEASED, replicas, size_bytes, together)
                    rate = await append_leased(files, leased, times)
                    cells.setdefault(leased, []).append(rate)
                for what in OPENINGS:
                    rate = await open_and_close(files, what, scale.opened)
                    cells.setdefault(OpenCell(what.strip(), replicas), []).append(rate)
                if replicas == max(REPLICAS):
                    for lost in scale.recovered:
                        rate = await recover(files, client, lost)
                        cells.setdefault(RecoveryCell(lost), []).append(rate)
    return cells


def tables(results: Results[Cell, Rate], scale: Scale) -> list[Table]:
    """The tables of all results."""
    return [_appends(results.cells), _openings(results.cells, scale), _recoveries(results.cells)]


def _per_s(samples: Sequence[Rate]) -> list[float]:
    return [sample.per_s for sample in samples]


def _appends(cells: dict[Cell, list[Rate]]) -> Table:
    rows = []
    for cell, samples in cells.items():
        if not isinstance(cell, AppendCell) or cell.how == PLAIN:
            continue
        plain = _per_s(cells[replace(cell, how=PLAIN)])
        ours = _per_s(samples)
        rows.append(
            [
                f"{cell.size_bytes:,}",
                str(cell.replicas),
                str(cell.files),
                spread(Spread.of(plain)),
                spread(Spread.of(ours)),
                spread(ratios(ours, plain)),
                figure(Spread.of(ours).median * cell.size_bytes / 1e6),
            ]
        )
    return Table(
        "Appends",
        [
            "bytes, each flushed",
            "replicas",
            "files",
            "plain files: appends/s",
            "Leasehold: appends/s",
            "ratio",
            "MB/s",
        ],
        rows,
        "median (quartiles) of the rounds; appends to all files together",
    )


def _openings(cells: dict[Cell, list[Rate]], scale: Scale) -> Table:
    rows = [
        [
            cell.what,
            str(cell.replicas),
            spread(Spread.of(_per_s(samples))),
            figure(1000 / Spread.of(_per_s(samples)).median),
        ]
        for cell, samples in cells.items()
        if isinstance(cell, OpenCell)
    ]
    return Table(
        "Opening and closing",
        ["what", "replicas", "files/s", "ms each"],
        rows,
        f"median (quartiles) of the rounds, {scale.opened:,} files each, one after the other",
    )


def _recoveries(cells: dict[Cell, list[Rate]]) -> Table:
    rows = [
        [
            count(cell.files),
            spread(Spread.of(_per_s(samples))),
            figure(cell.files / Spread.of(_per_s(samples)).median),
        ]
        for cell, samples in cells.items()
        if isinstance(cell, RecoveryCell)
    ]
    return Table(
        "Recovery of the files of a holder that is gone",
        ["files", "files/s", "all, s"],
        rows,
        f"median (quartiles) of the rounds; {RECOVERED_BYTES:,} flushed bytes each, 3 replicas",
    )


if __name__ == "__main__":
    main()
