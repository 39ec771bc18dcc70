"""The benchmark of events: its report, and that hanging listeners do not delay healthy ones."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.page import END, begin
from benchmarks.common.results import Results
from benchmarks.events import __main__ as program
from benchmarks.events.deliveries import (
    CALL_S,
    FEWEST_CALLS,
    LOADS,
    Load,
    Sample,
    Scale,
    measure,
    served,
)
from leasehold.events.delivery import MAX_CALLS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_healthy_listeners_are_not_delayed_by_hanging_ones(load: Load) -> None:
    scale = Scale(listeners=40, endpoints=4, hanging=10, seconds=0.2, rounds=1)

    async def run() -> Sample:
        async with served(scale.endpoints) as endpoints:
            return await measure(load, endpoints, scale, scale.hanging)

    found = asyncio.run(run())
    # Each was served again and again before a single hanging call has ended.
    assert found.still_hanging == scale.hanging
    assert found.fewest_calls >= FEWEST_CALLS
    assert found.max_ms < 1e3 * CALL_S


def test_more_hanging_listeners_than_counted_calls_do_not_stop_the_others() -> None:
    hanging = MAX_CALLS + 10
    scale = Scale(listeners=hanging + 20, endpoints=4, hanging=hanging, seconds=0.2, rounds=1)

    async def run() -> Sample:
        async with served(scale.endpoints) as endpoints:
            return await measure(LOADS[0], endpoints, scale, hanging)

    found = asyncio.run(run())
    assert found.still_hanging == hanging
    assert found.fewest_calls >= FEWEST_CALLS


def test_the_table_has_a_row_for_each_load_with_and_without_hanging_listeners() -> None:
    sample = Sample(1e4, 50.0, 5.0, 20.0, 30.0, 3, 10)
    cells = {program.Cell(load.name, hanging): [sample] for load in LOADS for hanging in (0, 10)}
    made = program.table(Results("a machine", cells), Scale(1_000, 100, 10, 5.0, 1))
    assert made.title == "Events to 1,000 listeners at 100 endpoints"
    assert made.rows[1] == ["one event in a call", "10", "10,000", "50.0", "5.00", "20.0", "30.0"]
    assert len(made.rows) == 4


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / program.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(program.COMMAND)) == text.count(END) == 1


def test_a_run_prints_and_writes_its_table(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "benchmarks.events", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / program.PAGE).read_text(encoding="utf-8")):
        assert "Events to 100 listeners at 10 endpoints" in text
