"""Measure lookups and events of the registry, print the tables, and write them into the docs."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.common.command import DOCS, command, disk_of, show, with_data_dir, write_page
from benchmarks.common.machine import machine_line
from benchmarks.common.processes import raise_file_limit
from benchmarks.common.progress import tell
from benchmarks.common.results import Results
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.etcd.servers import OURS, CannotStart
from benchmarks.locks.servers import ZOOKEEPER
from benchmarks.registry.departures import EventCell, EventSample, measure_events
from benchmarks.registry.lookups import TEMPLATES, LookupCell, LookupSample, measure, registry_of
from benchmarks.registry.zookeeper_events import measure_zookeeper_events
from benchmarks.registry.zookeeper_lookups import MAX_ITEMS, measure_zookeeper, zookeeper_of

PAGE: Final = "benchmarks-registry.md"
COMMAND: Final = "make bench"
SEED: Final = 19
SHOWN: Final = {OURS: "Leasehold", ZOOKEEPER: "ZooKeeper"}


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    items: tuple[int, ...]
    listeners: int
    beside: int
    """Listeners of the comparison with ZooKeeper: each is a session there."""
    services: int
    """Registrations that each listener receives an event of."""
    seconds: float
    rounds: int


FULL: Final = Scale(
    (100, 10_000, 1_000_000), listeners=1_000, beside=100, services=20, seconds=2.0, rounds=3
)
QUICK: Final = Scale((100, 1_000), listeners=20, beside=5, services=5, seconds=0.2, rounds=1)

Cell = LookupCell | EventCell
Sample = LookupSample | EventSample


@dataclass(frozen=True)
class Memory:
    """The memory of the server for one item."""

    items: int
    bytes_per_item: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = _parse(arguments)
    scale = QUICK if options.quick else FULL
    raise_file_limit()
    with tempfile.TemporaryDirectory(dir=disk_of(options), prefix="bench-registry-") as directory:
        cells, memory = asyncio.run(run(scale, Path(directory)))
        missing = run_zookeeper(scale, Path(directory), cells)
    results = Results(machine_line(), cells, missing)
    made = tables(results, scale, memory)
    show(results, made, options.json)
    if options.output is not None:
        write_page(options.output, PAGE, COMMAND, results, made)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command("benchmarks.registry", __doc__)
    with_data_dir(parser)
    options = parser.parse_args(arguments)
    if options.output is None and not options.quick:
        options.output = DOCS
    return options


async def run(scale: Scale, directory: Path) -> tuple[dict[Cell, list[Sample]], list[Memory]]:
    """Measure lookups for each number of items, then events."""
    cells: dict[Cell, list[Sample]] = {}
    memory: list[Memory] = []
    random = Random(SEED)
    for items in scale.items:
        async with registry_of(items, directory) as (server, channel, bytes_per_item):
            memory.append(Memory(items, bytes_per_item))
            for _ in range(scale.rounds):
                for by in TEMPLATES:
                    for is_stale in (False, True):
                        cell = LookupCell(items, by, is_stale)
                        tell(f"{items:,} items, by {by}{', stale' if is_stale else ''}")
                        found = await measure(server, channel, cell, scale.seconds, random)
                        cells.setdefault(cell, []).append(found)
    for _ in range(scale.rounds):
        for listeners in (scale.listeners, scale.beside):
            tell(f"events to {listeners:,} listeners")
            sample = await measure_events(listeners, scale.services, directory)
            cells.setdefault(EventCell(listeners), []).append(sample)
    return cells, memory


def run_zookeeper(scale: Scale, directory: Path, cells: dict[Cell, list[Sample]]) -> list[str]:
    """Measure ZooKeeper; return why that could not be done, if it could not."""
    random = Random(SEED)
    for items in scale.items:
        if items > MAX_ITEMS:
            continue
        try:
            with zookeeper_of(items, directory) as (server, client):
                for _ in range(scale.rounds):
                    for by in ("id", "type"):
                        tell(f"{items:,} items, by {by}, ZooKeeper")
                        cell = LookupCell(items, by, server=ZOOKEEPER)
                        found = measure_zookeeper(server, client, cell, scale.seconds, random)
                        cells.setdefault(cell, []).append(found)
        except CannotStart as error:
            return [str(error)]
    for _ in range(scale.rounds):
        tell(f"events to {scale.beside:,} listeners, ZooKeeper")
        sample = measure_zookeeper_events(scale.beside, scale.services, directory)
        cells.setdefault(EventCell(scale.beside, ZOOKEEPER), []).append(sample)
    return []


def tables(results: Results[Cell, Sample], scale: Scale, memory: Sequence[Memory]) -> list[Table]:
    """The tables of all results."""
    return [_lookups(results, scale, memory), _events(results, scale)]


def _lookups(results: Results[Cell, Sample], scale: Scale, memory: Sequence[Memory]) -> Table:
    rows = []
    bytes_of = {each.items: each.bytes_per_item for each in memory}
    for cell, samples in results.cells.items():
        found = [each for each in samples if isinstance(each, LookupSample)]
        if not isinstance(cell, LookupCell):
            continue
        figures = (
            [each.per_s for each in found],
            [each.server_us for each in found],
            [each.p50_ms for each in found],
            [each.p99_ms for each in found],
        )
        rows.append(
            [
                count(cell.items),
                SHOWN[cell.server],
                cell.by + (", stale" if cell.is_stale else ""),
                *(spread(Spread.of(values)) for values in figures),
                figure(bytes_of[cell.items]) if cell.server == OURS else "",
            ]
        )
    return Table(
        "Lookups",
        [
            "items",
            "server",
            "by",
            "lookups/s",
            "processor time of the server, µs",
            "p50, ms",
            "p99, ms",
            "bytes per item",
        ],
        rows,
        f"median (quartiles) of {scale.rounds} rounds; 16 lookups under way, one match by id, 10 "
        "by type and attribute" + "".join(f"; missing: {why}" for why in results.missing),
    )


def _events(results: Results[Cell, Sample], scale: Scale) -> Table:
    rows = []
    for cell, samples in results.cells.items():
        found = [each for each in samples if isinstance(each, EventSample)]
        if not isinstance(cell, EventCell):
            continue
        figures = (
            [each.events_per_s for each in found],
            [each.server_us for each in found],
            [each.first_ms for each in found],
            [each.last_ms for each in found],
        )
        shown = [f"{cell.listeners:,}", SHOWN[cell.server]]
        rows.append([*shown, *(spread(Spread.of(values)) for values in figures)])
    return Table(
        "Events",
        [
            "listeners",
            "server",
            "events/s",
            "processor time of the server, µs per event",
            "end of a lease to the first event, ms",
            "to the last one, ms",
        ],
        rows,
        f"median (quartiles) of {scale.rounds} rounds",
    )


if __name__ == "__main__":
    main()
