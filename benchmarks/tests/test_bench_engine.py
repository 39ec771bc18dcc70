"""The benchmark of the engine: its arithmetic, its report, and each measurement at a tiny size."""

import asyncio
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.common import budget
from benchmarks.common.children import MeasurementFailed, in_child
from benchmarks.common.page import END, begin
from benchmarks.common.stats import Spread
from benchmarks.engine import (
    calls,
    engines,
    expiry,
    long_calls,
    memory,
    page,
    parts,
    report,
    samples,
    start,
    targets,
    watches,
)
from benchmarks.engine.estate import build_estate, build_history, compact_estate
from benchmarks.engine.pauses import largest, worst_pauses
from benchmarks.engine.plot import write_pauses_plot, write_plot
from benchmarks.engine.renewals import RENEW_MAX_S, RENEW_P99_S, Renewals
from benchmarks.engine.samples import DISK, MEMORY, Cell, Cells, Pause, Sample
from benchmarks.engine.scale import FULL, QUICK
from benchmarks.engine.ticker import sample

ROOT = Path(__file__).resolve().parents[2]
HAS_MATPLOTLIB = find_spec("matplotlib") is not None
NO_MATPLOTLIB = "matplotlib draws the plots; it is in the dependency group `bench`, not in `dev`"

TINY = replace(
    QUICK,
    watches=(3, 5),
    expiring=(1, 5),
    keys=1_500,
    leases=20,
    many=1_200,
    revisions=50,
    weighed=10,
    rounds=1,
    few=1,
    seconds=0.01,
)

STEADY, CHANGED = (1.0, 1.1), (1.0, 2.0)


def taken(
    figures: dict[str, float] | None = None,
    *,
    pause_ms: float = 1.0,
    collector_ms: float = 0.0,
    speeds: tuple[float, ...] = STEADY,
) -> Sample:
    """A sample, as if it had been measured."""
    pause = Pause(pause_ms / 1e3, pause_ms / 2e3, collector_ms / 1e3)
    return Sample(figures or {}, pause, Pause(0.0005), speeds)


def with_x(x: float, speeds: tuple[float, ...] = STEADY) -> Sample:
    """A sample with one figure."""
    return taken({"x": x}, speeds=speeds)


# The arithmetic.


def test_unsteady_samples_are_left_out_beside_enough_steady_ones() -> None:
    few = [with_x(1.0), with_x(2.0), with_x(9.0, CHANGED)]
    assert samples.spread_of(few, samples.named("x")).median == 2.0
    assert samples.spread_of([*few, with_x(3.0)], samples.named("x")) == Spread(2.0, 1.5, 2.5)


def test_growth_compares_rounds_in_which_the_machine_was_as_fast_for_both() -> None:
    bases = [with_x(1.0), with_x(2.0), with_x(4.0), with_x(1.0)]
    ours = [with_x(2.0), with_x(4.0), with_x(8.0), with_x(50.0, (2.0, 2.0))]
    assert samples.growth(ours, bases, "x") == Spread(2.0, 2.0, 2.0)
    assert samples.growth(ours[2:], bases[2:], "x").median == 26.0


def test_a_target_is_reached_by_what_was_measured() -> None:
    assert targets.PAUSE.verdict(Spread(0.0499, 0.0, 9.0)) == "reached"
    assert targets.PAUSE.verdict(Spread(0.0500, 0.0, 9.0)) == "NOT reached"
    assert targets.RENEWAL.verdict(Spread(0.0099, 0.0, 9.0)) == "reached"
    assert targets.RENEWAL.verdict(Spread(0.0101, 0.0, 0.0101)) == "NOT reached"
    assert str(targets.PAUSE) == "under 50.0 ms"


@pytest.mark.parametrize(
    ("pause_ms", "collector_ms", "is_to_blame"),
    [
        pytest.param(40.0, 39.0, False, id="no pause is too long"),
        pytest.param(200.0, 60.0, True, id="the collection alone is too long"),
        pytest.param(70.0, 25.0, True, id="without the collection it would be short enough"),
        pytest.param(200.0, 25.0, False, id="it would be too long without it"),
    ],
)
def test_the_collector_is_to_blame_for_what_would_be_in_time_without_it(
    pause_ms: float, collector_ms: float, *, is_to_blame: bool
) -> None:
    found = [taken(pause_ms=pause_ms, collector_ms=collector_ms)] * 3
    assert targets.is_collectors_fault(found) == is_to_blame


def test_rounds_end_before_the_time_does_but_there_is_always_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(budget, "monotonic", lambda: now_s)
    done = []
    for number in budget.rounds_within(5, 10.0):
        done.append(number)
        now_s += 4.0
    assert done == [0, 1]  # a third one would end at 12
    assert list(budget.rounds_within(1, 0.0)) == [0]


def test_a_smaller_scale_has_no_number_twice() -> None:
    small = FULL.at_most(10_000)
    assert small.sizes == (1_000, 10_000)
    assert small.expiring == (1, 10_000)
    assert (small.keys, small.leases, small.many, small.revisions) == (10_000,) * 4
    assert small.rounds == FULL.rounds


# The report.


def measured() -> Cells:
    """Some of everything, as if it had been measured."""
    late = dict.fromkeys(
        (expiry.MIN_S, expiry.P50_S, expiry.P99_S, expiry.MAX_S, expiry.AFTER_ANSWER_S), 0.02
    )
    renewed = {"renew_p50_s": 0.001, RENEW_P99_S: 0.012, RENEW_MAX_S: 0.03}
    took = {long_calls.TOOK_S: 1.0, long_calls.DROPPED_S: 0.1}
    opened = {start.OPEN_S: 3.0, start.RESIDENT: 1e6, start.PEAK: 2e6, start.FILES: 3e6}
    weighed = dict.fromkeys((memory.TRACED, memory.RESIDENT), 500.0)
    filed = dict.fromkeys((memory.REOPENED, memory.WRITTEN, memory.FOLDED), 250.0)
    cells: Cells = {}
    for where in samples.PLACES:
        for size, rate in ((1_000, 50_000.0), (1_000_000, 40_000.0)):
            for name in calls.NAMES:
                cells[Cell(name, where, size)] = [taken({calls.RATE: rate})] * 2
        for number in (0, 10_000):
            cells[Cell(watches.BESIDE, where, number)] = [taken({watches.PUT_S: 2e-5})]
        cells[Cell(watches.FAN_OUT, where, 10_000)] = [taken({watches.LAST_S: 0.1})]
        cells[Cell(expiry.EXPIRY, where, 100_000)] = [taken(late)]
        cells[Cell(long_calls.NOTHING, where, 0)] = [taken(took | renewed)]
        cells[Cell(long_calls.READ, where, 1_000_000)] = [taken(took | renewed, pause_ms=80.0)]
        cells[Cell(memory.KEY, where, 50)] = [taken(weighed | filed)]
    tuned = {**renewed, RENEW_P99_S: 0.006}
    cells[Cell(long_calls.READ, DISK, 1_000_000, tuned=True)] = [taken(took | tuned, pause_ms=30.0)]
    for what in (start.FROM_BATCHES, start.FROM_TABLES):
        cells[Cell(what, DISK, 1_000_000)] = [taken(opened, pause_ms=300.0)]
    return cells


def test_verdicts_stand_beside_the_figures_tuned_ones_as_well() -> None:
    table = report.target_table(report.Results("a machine", measured(), ["expiry in memory: late"]))
    by_label = {row[0]: row[1:] for row in table.rows}
    renewal = by_label["renewal during a range of 1 M keys on disk, p99 (idle: 12.0)"]
    assert renewal == ["12.0", "under 10.0 ms", "NOT reached", "6.00", "reached"]
    renewal = by_label["renewal during a range of 1 M keys in memory, p99 (idle: 12.0)"]
    assert renewal[2:] == ["NOT reached", "-", "-"]
    calm = next(row for label, row in by_label.items() if "calls of clients" in label)
    assert calm == ["1.00", "under 50.0 ms", "reached", "-", "-"]
    assert "missing: expiry in memory: late" in table.note


def test_the_worst_of_each_group_is_shown() -> None:
    cells = measured()
    cells[Cell(watches.FAN_OUT, MEMORY, 10)] = [taken({watches.LAST_S: 0.1}, pause_ms=70.0)]
    row = next(row for row in worst_pauses(cells) if "watches" in row[0])
    assert row[0].endswith(f"the worst of 7: {watches.FAN_OUT}, 10, in memory")
    assert row[1:4] == ["70.0", "under 50.0 ms", "NOT reached"]
    assert Cell(watches.FAN_OUT, MEMORY, 10) not in largest(cells)


def test_every_part_has_its_table_and_what_was_not_measured_has_none() -> None:
    made = report.tables(report.Results("a machine", measured()))
    titles = [table.title for table in made]
    assert titles == [
        "Targets",
        "Calls in a second",
        "From a put to the last of its watches, ms",
        "A put with watches on other keys and prefixes, one of which matches, µs",
        "Lateness of leases that end together, ms",
        "Bytes",
        "Start-up",
        "Long calls, and renewals during them",
        "Pauses of the event loop, ms",
    ]
    rates = next(table for table in made if table.title == "Calls in a second")
    assert rates.rows[0] == ["put, 1 in flight, in memory", "50,000", "40,000", "0.80"]
    assert "2 rounds" in rates.note
    assert "0 of 64 samples" in rates.note
    assert report.tables(report.Results("a machine", {})) == []


def test_raw_results_can_be_written_down() -> None:
    results = report.Results("a machine", measured(), ["something"])
    raw = json.loads(json.dumps(results.as_json()))
    assert raw["missing"] == ["something"]
    first = raw["cells"][0]
    assert first["cell"]["what"] == "put, 1 in flight"
    assert first["samples"][0]["figures"] == {"calls_per_s": 50_000.0}


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason=NO_MATPLOTLIB)
def test_the_plots_are_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    for number, cells in enumerate((measured(), {})):
        results = report.Results("a machine", cells)
        for name, write in (("costs", write_plot), ("pauses", write_pauses_plot)):
            path = tmp_path / f"{name}-{number}.svg"
            write(results, path)
            assert "<svg" in path.read_text(encoding="utf-8")


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / page.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(page.COMMAND)) == text.count(END) == 1


# How it is measured.


def test_a_child_answers_or_fails_or_is_ended_in_time() -> None:
    assert in_child(60.0, math.sqrt, 4.0) == 2.0
    with pytest.raises(MeasurementFailed, match="ValueError"):
        in_child(60.0, int, "nothing")
    with pytest.raises(MeasurementFailed, match="not done within 0 s"):
        in_child(0.1, time.sleep, 600.0)


def test_a_pause_is_what_keeps_the_loop() -> None:
    async def keep() -> float:
        time.sleep(0.03)  # noqa: ASYNC251  that is what is measured
        return 7.0

    found = asyncio.run(sample(keep, lambda result: {"x": result}, 0.01))
    assert found.figures == {"x": 7.0}
    assert found.pause.longest_s > 0.025
    assert len(found.speeds) == 2


def test_a_renewal_counts_from_when_it_was_due() -> None:
    async def keep() -> dict[str, float]:
        async with engines.opened(MEMORY, Path()) as engine, Renewals(engine) as renewals:
            await asyncio.sleep(0.01)
            time.sleep(0.04)  # noqa: ASYNC251  renewals come due meanwhile
        return renewals.figures()

    figures = asyncio.run(keep())
    assert 0.03 < figures[RENEW_P99_S] <= figures[RENEW_MAX_S]


def test_calls_of_all_kinds_are_answered() -> None:
    async def measure() -> list[Sample]:
        async with engines.opened(MEMORY, Path()) as engine:
            await engines.load_keys(engine, 150)
            return [await calls.measure_call(engine, 150, name, 0.01) for name in calls.NAMES]

    assert all(each.figures[calls.RATE] > 0.0 for each in asyncio.run(measure()))


def test_watches_are_told_of_everything(tmp_path: Path) -> None:
    found = watches.measure_watches(DISK, tmp_path, TINY)
    assert {(cell.what, cell.count) for cell in found} == {
        *((watches.FAN_OUT, number) for number in (3, 5)),
        *((watches.BESIDE, number) for number in (0, 3, 5)),
    }
    assert all(len(taken_in) == 1 for taken_in in found.values())


def test_leases_end_together_and_are_seen_to_go(tmp_path: Path) -> None:
    found = expiry.measure_expiry(MEMORY, tmp_path, TINY)
    for cell, (only,) in found.items():
        assert cell.count in TINY.expiring
        assert only.figures[expiry.MIN_S] <= only.figures[expiry.MAX_S] < 60.0


def test_a_directory_is_built_opened_compacted_and_opened_again(tmp_path: Path) -> None:
    path = str(tmp_path / "estate")
    build_estate(path, 300, 20)
    before = start.open_once(path, 300, 20, tuned=False)
    compact_estate(path)
    after = start.open_once(path, 300, 20, tuned=False)
    assert before.figures[start.FILES] > 0.0
    assert after.figures[start.OPEN_S] > 0.0


def test_long_calls_are_made_beside_renewals() -> None:
    found = long_calls.measure_long_calls(None, TINY, long_calls.long_cells(MEMORY, TINY))
    assert {cell.what: cell.count for cell in found} == {
        long_calls.NOTHING: 0,
        long_calls.READ: 1_500,
        long_calls.LIST: 20,
        long_calls.DELETE: 1_200,
        long_calls.REVOKE: 1_200,
    }
    assert all(RENEW_P99_S in only.figures for (only,) in found.values())


def test_all_revisions_are_compacted(tmp_path: Path) -> None:
    path = tmp_path / "history"
    build_history(str(path), TINY.revisions)
    for source in (None, path):
        found = long_calls.measure_compaction(source, TINY, tuned=False)
        assert found.figures[long_calls.TOOK_S] > 0.0


@pytest.mark.parametrize("kind", memory.KINDS)
def test_each_kind_is_weighed(kind: str, tmp_path: Path) -> None:
    assert memory.measure_traced(kind, engines.MEMORY_PATH, 50) > 0.0
    path = tmp_path / "weighed"
    assert memory.RESIDENT in memory.measure_grown(kind, str(path), 50).figures
    written = memory.directory_bytes(path)
    memory.measure_reopened(str(path), 50)
    assert written > 0


def test_what_fails_is_missing_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Cells:
        raise MeasurementFailed("Traceback\n  ...\nOSError: no disk")

    cell = Cell(start.FROM_TABLES, DISK, 7)
    monkeypatch.setattr(parts, "measure_memory", fail)
    monkeypatch.setattr(parts, "measure_start", lambda *_, **__: {cell: [taken()]})
    run = parts.Run(tmp_path, TINY)
    run.measure([parts.WEIGHT, parts.START])
    assert list(run.cells) == [cell]
    assert run.missing == ["memory could not be measured: OSError: no disk"]


def test_what_the_collector_spoiled_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, calm = Cell(start.FROM_BATCHES, DISK, 7), Cell(start.FROM_TABLES, DISK, 7)
    again = replace(slow, tuned=True)

    def measure(_base: Path, _scale: object, only: list[Cell] | None, *, tuned: bool) -> Cells:
        if only is None:
            return {slow: [taken(pause_ms=90.0, collector_ms=80.0)], calm: [taken()]}
        assert tuned
        return {cell: [taken()] for cell in only}

    monkeypatch.setattr(parts, "measure_start", measure)
    run = parts.Run(tmp_path, TINY)
    run.measure([parts.START])
    assert list(run.cells) == [slow, calm, again]
    late = parts.Run(tmp_path, replace(TINY, most_s=-1.0))
    late.measure([parts.START])
    assert again not in late.cells
    assert late.missing == ["no time was left for start with a tuned collector"]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a run of some parts wrote its page and plots, and what it printed."""
    directory = tmp_path_factory.mktemp("benchmark")
    command = [
        sys.executable,
        "-m",
        "benchmarks.engine",
        "--quick",
        "--sizes",
        "50",
        "--most",
        "60",
    ]
    done = subprocess.run(  # noqa: S603  our own module
        [
            *(*command, "--rounds", "1", "--only", "calls", "--only", "compaction"),
            *("--output", str(directory), "--json", str(directory / "raw.json")),
            *("--data-dir", str(directory)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory, done.stdout


def test_a_run_prints_and_writes_its_tables(quick_run: tuple[Path, str]) -> None:
    directory, printed = quick_run
    written = (directory / page.PAGE).read_text(encoding="utf-8")
    for title in ("Targets", "Calls in a second", "Long calls", "Pauses of the event"):
        assert title in printed
        assert title in written
    assert (directory / "raw.json").stat().st_size > 0
    assert not list(directory.glob("bench-engine-*"))


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason=NO_MATPLOTLIB)
def test_a_run_draws_its_plots(quick_run: tuple[Path, str]) -> None:
    directory, _ = quick_run
    for plot in (page.PLOT, page.PAUSES_PLOT):
        assert "<svg" in (directory / plot).read_text(encoding="utf-8")
