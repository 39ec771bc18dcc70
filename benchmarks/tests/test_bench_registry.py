"""The benchmark of the registry: its report, and that it measures what it says."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

from benchmarks.common.page import END, begin
from benchmarks.common.results import Results
from benchmarks.registry import __main__ as program
from benchmarks.registry.departures import EventCell, EventSample, measure_events
from benchmarks.registry.lookups import (
    MATCHES,
    TEMPLATES,
    LookupCell,
    LookupSample,
    item,
    measure,
    registry_of,
)

ROOT = Path(__file__).resolve().parents[2]


def test_the_number_of_matches_does_not_depend_on_the_number_of_items() -> None:
    for count in (100, 1_000):
        items = [item(number, count) for number in range(count)]
        for by, template in TEMPLATES.items():
            wanted = template(count // 2, count)
            found = sum(map(wanted.matches, items))
            assert found == (1 if by == "id" else MATCHES)


def test_a_registry_with_items_is_looked_up(tmp_path: Path) -> None:
    async def run() -> list[LookupSample]:
        async with registry_of(100, tmp_path) as (server, channel, _):
            cells = [LookupCell(100, by) for by in TEMPLATES]
            return [await measure(server, channel, cell, 0.1, Random(1)) for cell in cells]

    assert all(each.per_s > 0.0 for each in asyncio.run(run()))


def test_every_listener_receives_the_end_of_a_service(tmp_path: Path) -> None:
    found = asyncio.run(measure_events(5, 2, tmp_path))
    assert found.events_per_s > 0.0
    assert found.last_ms >= found.first_ms


def test_the_tables_have_a_row_for_each_cell() -> None:
    lookup, event = LookupSample(1e4, 50.0, 5.0, 20.0), EventSample(1e4, 50.0, 5.0, 20.0)
    cells: dict[program.Cell, list[program.Sample]] = {
        LookupCell(100, "id"): [lookup],
        LookupCell(100, "id", is_stale=True): [lookup],
        EventCell(1_000): [event],
    }
    memory = [program.Memory(100, 1_500.0)]
    lookups, events = program.tables(Results("a machine", cells), program.FULL, memory)
    assert lookups.rows[1] == [
        "100",
        "Leasehold",
        "id, stale",
        "10,000",
        "50.0",
        "5.00",
        "20.0",
        "1,500",
    ]
    assert events.rows == [["1,000", "Leasehold", "10,000", "50.0", "5.00", "20.0"]]


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / program.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(program.COMMAND)) == text.count(END) == 1


def test_a_run_prints_and_writes_its_tables(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "benchmarks.registry", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / program.PAGE).read_text(encoding="utf-8")):
        assert "Lookups" in text
        assert "Events" in text
