"""The benchmark of the renewal service: its report, and that leases are renewed in batches."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.page import END, begin
from benchmarks.common.results import Results
from benchmarks.renewal import __main__ as program
from benchmarks.renewal.batched import Adding, Batched, Restart, measure_batched
from benchmarks.renewal.grantor import Counts, Renewing, renewing_between
from benchmarks.renewal.one_by_one import measure_one_by_one
from benchmarks.renewal.scale import FULL, Scale

ROOT = Path(__file__).resolve().parents[2]

SMALL = Scale(leases=1_000, ttl_s=8.0, sets=(1, 10), rounds=1, adding=500, adds_at_once=64)
"""Leases of 8 s are renewed at half of their terms: that leaves 4 s on a busy machine."""

LASTING = Scale(leases=300, ttl_s=60.0, sets=(1,), rounds=0, adding=300, adds_at_once=64)
"""For a restart: no machine is so slow that it takes a minute."""


@pytest.mark.parametrize("sets", SMALL.sets)
def test_leases_of_all_sets_are_renewed_in_batches(sets: int, tmp_path: Path) -> None:
    found = asyncio.run(measure_batched(SMALL, sets, tmp_path))
    assert found.renewing.lapses == 0
    assert found.renewing.renewals_per_s > 20 * found.renewing.messages_per_s > 0


def test_after_a_restart_all_leases_are_renewed_before_they_lapse(tmp_path: Path) -> None:
    found = asyncio.run(measure_batched(LASTING, 3, tmp_path))
    assert found.restart.lapses == 0
    assert found.members == LASTING.leases


def test_the_other_client_sends_a_message_for_each_renewal(tmp_path: Path) -> None:
    found = asyncio.run(measure_one_by_one(SMALL, tmp_path))
    assert found.lapses == 0
    # A message that is sent before the counters are read may be answered after that.
    assert found.messages_per_s == pytest.approx(found.renewals_per_s, rel=0.2)


def test_figures_are_those_of_the_time_between_two_readings() -> None:
    before = Counts(renewals=100, batches=1, expired=3, leases=50, cpu_s=1.0, at_s=10.0)
    after = Counts(renewals=300, batches=5, expired=4, leases=49, cpu_s=2.0, at_s=30.0)
    found = renewing_between(before, after, 4, 0.5)
    assert found == Renewing(0.2, 10.0, 0.025, 0.05, lapses=4)


def test_the_tables_have_a_row_for_each_way_to_keep_leases() -> None:
    renewing = Renewing(2.0, 2_000.0, 0.02, 0.01, 0)
    batched = Batched(Adding(500.0, 400.0, 4_000.0), renewing, Restart(5.0, 4.0, 0), 100_000)
    cells = {program.Cell(sets): [program.Found(renewing, batched)] for sets in FULL.sets}
    cells[program.Cell(program.ONE_BY_ONE)] = [program.Found(renewing)]
    kept, sets = program.tables(Results("a machine", cells), FULL)
    assert kept.title == "100,000 leases of 60 s kept alive"
    assert [row[0] for row in kept.rows] == ["one set", "100 sets", "one by one"]
    assert kept.rows[0][1:] == ["2.00", "2,000", "2.00", "1.00", "10.0", "5.00", "0"]
    assert [row[0] for row in sets.rows] == ["one set", "100 sets"]
    assert sets.rows[0][1:] == ["500", "400", "4,000", "5.00", "4.00", "0", "100,000"]


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / program.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(program.COMMAND)) == text.count(END) == 1


def test_a_run_prints_and_writes_its_tables(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "benchmarks.renewal", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, (tmp_path / program.PAGE).read_text(encoding="utf-8")):
        assert "1,000 leases of 8 s kept alive" in text
        assert "1,000 leases in renewal sets" in text
