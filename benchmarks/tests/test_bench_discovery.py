"""The benchmark of the discovery service: its report, and that it measures what it says."""

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks.common.page import END, begin
from benchmarks.common.results import Results
from benchmarks.discovery import __main__ as program
from benchmarks.discovery.group_changes import ChangeCell, ChangeSample, stage_of

ROOT = Path(__file__).resolve().parents[2]


def test_every_registration_receives_each_change(tmp_path: Path) -> None:
    async def run() -> list[ChangeSample]:
        async with stage_of(3, tmp_path / "data") as stage:
            await stage.register(4)
            return [
                await stage.change(count, is_member=is_member)
                for count in (1, 3)
                for is_member in (True, False)
            ]

    samples = asyncio.run(run())  # it waits for all events
    assert all(each.reports_per_s >= each.events_per_s > 0.0 for each in samples)


def test_the_tables_have_a_row_for_each_cell() -> None:
    sample = ChangeSample(1e4, 2e4, 50.0, 20.0)
    registered = program.Registered(1e3, 2e3, 3e3)
    cells = {ChangeCell(1): [sample], ChangeCell(100): [sample]}
    changes, memory = program.tables(Results("a machine", cells), program.FULL, registered)
    assert changes.rows == [
        ["1", "10,000", "20,000", "50.0", "20.0"],
        ["100", "10,000", "20,000", "50.0", "20.0"],
    ]
    assert memory.rows == [["1,000", "2,000", "3,000"]]


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / program.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(program.COMMAND)) == text.count(END) == 1


def test_a_run_prints_and_writes_its_tables(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "benchmarks.discovery", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / program.PAGE).read_text(encoding="utf-8")):
        assert "Changes of groups" in text
        assert "Registrations" in text
