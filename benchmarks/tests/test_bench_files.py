"""The benchmark of single-writer files: its report, and that it measures what it says."""

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks.common.page import END, begin
from benchmarks.common.results import Results
from benchmarks.files import __main__ as program
from benchmarks.files.workloads import (
    LEASED,
    PLAIN,
    AppendCell,
    OpenCell,
    Rate,
    RecoveryCell,
    append_leased,
    files_of,
    recover,
)

ROOT = Path(__file__).resolve().parents[2]


def test_appends_and_recoveries_leave_nothing_open(tmp_path: Path) -> None:
    async def run() -> None:
        async with files_of(tmp_path / "server", 2) as (files, client):
            assert (await append_leased(files, AppendCell(LEASED, 2, 10, 2), 3)).per_s > 0.0
            assert (await recover(files, client, 3)).per_s > 0.0
            assert not [info async for info in files.open_files()]
            assert not [info async for info in files.list()]

    asyncio.run(run())


def test_the_tables_have_a_row_for_each_cell() -> None:
    cells: dict[program.Cell, list[Rate]] = {
        AppendCell(PLAIN, 1, 100): [Rate(1000.0)],
        AppendCell(LEASED, 1, 100): [Rate(500.0)],
        AppendCell(PLAIN, 3, 100, 16): [Rate(1000.0)],
        AppendCell(LEASED, 3, 100, 16): [Rate(2000.0)],
        OpenCell("create, close", 1): [Rate(200.0)],
        RecoveryCell(1000): [Rate(100.0)],
    }
    appends, openings, recoveries = program.tables(Results("a machine", cells), program.FULL)
    assert appends.rows == [
        ["100", "1", "1", "1,000", "500", "0.50", "0.05"],
        ["100", "3", "16", "1,000", "2,000", "2.00", "0.20"],
    ]
    assert openings.rows == [["create, close", "1", "200", "5.00"]]
    assert recoveries.rows == [["1 k", "100", "10.0"]]


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / program.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(program.COMMAND)) == text.count(END) == 1


def test_a_run_prints_and_writes_its_tables(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "benchmarks.files", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / program.PAGE).read_text(encoding="utf-8")):
        assert "Appends" in text
        assert "Recovery" in text
