"""The benchmark of the transport: its arithmetic, its report, and each load at a tiny size."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.common.children import MeasurementFailed
from benchmarks.common.page import END, begin
from benchmarks.common.stats import Spread
from benchmarks.transport import (
    client_side,
    driving,
    loads,
    memory,
    page,
    report,
    server_side,
    skeleton,
    targets,
)
from benchmarks.transport.plot import write_plot
from benchmarks.transport.samples import (
    BYTES_RATE,
    CPU_US,
    OFFERED,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    RATE,
    RESIDENT,
    Cell,
    Cells,
    Figures,
    Run,
    Sample,
    in_turns,
    spread_of,
    times,
)
from benchmarks.transport.scale import QUICK
from benchmarks.transport.servers import GRPCIO_AIO, GRPCIO_THREADS, PLAIN, SESSIONS, running
from benchmarks.transport.workers import Worker

ROOT = Path(__file__).resolve().parents[2]
HAS_MATPLOTLIB = find_spec("matplotlib") is not None
NO_MATPLOTLIB = "matplotlib draws the plot; it is in the dependency group `bench`, not in `dev`"

STEADY, CHANGED = (1.0, 1.1), (1.0, 2.0)
TINY = replace(QUICK, seconds=0.02, client_seconds=0.0, paced_s=0.02, connections=5)
"""A starved client has no time to measure; it still makes one call."""
CALLED = {RATE: 1000.0, P50_MS: 2.0, P99_MS: 3.0, CPU_US: 100.0, OTHER_CPU_US: 5.0}


def taken(number: int, figures: Figures | float, speeds: tuple[float, ...] = STEADY) -> Sample:
    """A sample, as if it had been measured."""
    return Sample(number, figures if isinstance(figures, dict) else {RATE: figures}, speeds)


# The arithmetic.


def test_everyone_is_first_in_some_round() -> None:
    assert [list(in_turns("abc", number)) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_unsteady_samples_are_left_out_beside_enough_steady_ones() -> None:
    few = [taken(0, 1.0), taken(1, 2.0), taken(2, 9.0, CHANGED)]
    assert spread_of(few, RATE).median == 2.0
    assert spread_of([*few, taken(3, 3.0)], RATE) == Spread(2.0, 1.5, 2.5)


def test_ratios_are_taken_between_samples_of_the_same_round() -> None:
    ours = [taken(0, 10.0), taken(2, 90.0), taken(3, 80.0)]
    theirs = [taken(0, 1.0), taken(1, 1.0), taken(3, 10.0)]
    assert times(ours, theirs, RATE) == Spread(9.0, 8.5, 9.5)
    assert times([taken(5, 1.0)], theirs, RATE) is None
    assert times([taken(0, 1.0)], [taken(0, 0.0)], RATE) is None


def test_targets_are_reached_by_the_median() -> None:
    assert targets.UNARY.verdict(Spread(5.0, 1.0, 9.0)) == "reached"
    assert targets.UNARY.verdict(Spread(4.99, 4.0, 9.0)) == "NOT reached"
    assert str(targets.UNARY) == "at least 5.00 times"
    assert targets.no_slower(Spread(1.0, 0.9, 1.2)) == "reached"
    assert targets.no_slower(Spread(1.01, 0.99, 1.2)) == "within the spread"
    assert targets.no_slower(Spread(1.02, 1.01, 1.2)) == "NOT reached"


def test_timeouts_are_constant_or_all_different_and_never_none() -> None:
    constant, changing = driving.timeouts_s(changing=False), driving.timeouts_s(changing=True)
    assert {next(constant) for _ in range(100)} == {driving.TIMEOUT_S}
    drawn = [next(changing) for _ in range(100)]
    assert len(set(drawn)) == 100
    assert all(4.0 < each < driving.TIMEOUT_S for each in drawn)


# The report.


def measured() -> Cells:
    """Some of everything, as if it had been measured."""
    cells: Cells = {}
    parts = {
        server_side.SERVER: (
            (*server_side.UNARY, server_side.DOWNLOAD, server_side.BY_H2LOAD, server_side.PACED),
            server_side.SERVERS,
        ),
        **{part: (whats, client_side.CLIENTS) for part, whats in client_side.WHATS.items()},
    }
    for part, (whats, whos) in parts.items():
        for what in whats:
            for who in whos:
                better = 1.0 if "grpcio" in who else 6.0
                figures = {**CALLED, RATE: 1000.0 * better, CPU_US: 120.0 / better}
                if what == server_side.PACED:
                    figures[OFFERED] = 500.0
                if what in (server_side.DOWNLOAD, client_side.DOWNLOAD):
                    figures[BYTES_RATE] = 1e8
                cells[Cell(part, what, who)] = [taken(number, figures) for number in range(2)]
    for who in memory.SERVERS:
        cells[Cell(memory.MEMORY, memory.name_of(5_000), who)] = [taken(0, {RESIDENT: 9000.0})]
    return cells


def test_verdicts_stand_beside_the_figures_and_what_is_missing_is_named() -> None:
    cells = measured()
    slow = Cell(client_side.OF_OURS, client_side.name_of(16, "changing"), client_side.ON_ASYNCIO)
    cells[slow] = [taken(number, {**CALLED, RATE: 4000.0}) for number in range(2)]
    table = report.target_table(report.Results("a machine", cells, ["round 1 of it: late"]))
    by_label = {row[0]: row[1:] for row in table.rows}
    label = "server, ours, plain functions: unary, 10 x 32 in flight, changing headers"
    asked = "at least 5.00 times"
    assert by_label[label] == ["6,000", "1,000", "6.00", asked, "reached", "6.00", "reached"]
    label = "client, our channel, asyncio: unary, 16 in flight, changing timeout"
    assert by_label[label][2:] == ["4.00", asked, "NOT reached", "1.20", "NOT reached"]
    assert table.note.startswith("19 of 20 reached by calls in a second, 19 of 20 reached by proc")
    assert "missing: round 1 of it: late" in table.note


def test_every_part_has_its_table_and_what_was_not_measured_has_none() -> None:
    made = {table.title: table for table in report.tables(report.Results("a", measured()))}
    assert list(made) == [
        "Targets",
        "Server: unary calls of 32 bytes",
        "Server: latency at a fixed rate",
        "Server: streams",
        "Server: the same from h2load",
        "Client: unary calls to our server",
        "Client: unary calls to the server of grpcio aio",
        "Client: streams",
        "Bytes of an idle connection",
    ]
    first, second, *_ = made["Server: unary calls of 32 bytes"].rows
    assert first[:3] == [server_side.MANY_CONSTANT, PLAIN, "6,000"]
    assert second[0] == ""
    rows = made["Bytes of an idle connection"].rows
    assert [row[1] for row in rows][-1] == GRPCIO_AIO
    assert rows[0][2:] == ["9,000", "1.00"]
    assert "2 rounds" in made["Client: streams"].note
    assert report.tables(report.Results("a machine", {})) == []


def test_raw_results_can_be_written_down() -> None:
    raw = json.loads(json.dumps(report.Results("a machine", measured(), ["it"]).as_json()))
    assert raw["missing"] == ["it"]
    assert raw["cells"][0]["cell"]["who"] == PLAIN
    assert raw["cells"][0]["samples"][1]["round"] == 1


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason=NO_MATPLOTLIB)
def test_the_plot_is_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    for number, cells in enumerate((measured(), {})):
        path = tmp_path / f"{number}.svg"
        write_plot(report.Results("a machine", cells), path)
        assert "<svg" in path.read_text(encoding="utf-8")


def test_the_page_has_a_place_for_each_command() -> None:
    text = (ROOT / "docs" / page.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(page.COMMAND)) == text.count(begin(page.SKELETON_COMMAND)) == 1
    assert text.count(END) == 2


def test_one_command_leaves_the_results_of_the_other_as_they_are(tmp_path: Path) -> None:
    written = tmp_path / page.PAGE
    written.write_text(
        f"# A\n{begin(page.COMMAND)}\n{END}\n# B\n{begin(page.SKELETON_COMMAND)}\n{END}\n"
    )
    costs = {"Put, constant headers": 10.0}
    table = skeleton.compared([costs], [costs])
    page.write_skeleton(tmp_path, "one machine", table)
    page.write_page(tmp_path, "another machine", [], plot=False)
    text = written.read_text()
    assert text.index("another machine") < text.index("# B") < text.index("one machine")


def test_versions_are_compared_neighbour_by_neighbour() -> None:
    printed = "Put, constant headers      12.50 µs\nKeepAlive on a long stream   3.00 µs\n"
    assert skeleton.parse_costs(printed) == {
        "Put, constant headers": 12.5,
        "KeepAlive on a long stream": 3.0,
    }
    with pytest.raises(ValueError, match="no costs"):
        skeleton.parse_costs("Traceback")
    table = skeleton.compared(
        [{"Put": 10.0}, {"Put": 20.0}, {"Put": 10.0}], [{"Put": 9.0}, {"Put": 18.0}, {"Put": 11.0}]
    )
    assert table.rows == [["Put", "10.0 (10.0..15.0)", "11.0 (10.0..14.5)", "0.90 (0.90..1.00)",
                           "reached"]]  # fmt: skip
    assert "3 alternations" in table.note


# How it is measured.


def test_a_worker_that_fails_is_another_one_afterwards() -> None:
    worker = Worker()
    try:
        assert worker.call(60.0, abs, -4) == 4
        with pytest.raises(MeasurementFailed, match="ValueError"):
            worker.call(60.0, int, "nothing")
        assert worker.call(60.0, int, "7") == 7
    finally:
        worker.end()


def test_what_fails_is_missing_and_the_rest_goes_on() -> None:
    def fail() -> Figures:
        raise MeasurementFailed("Traceback\n  ...\nOSError: too few files")

    run, cell = Run(), Cell("server", "it", PLAIN)
    run.take(0, cell, fail)
    run.take(1, cell, lambda: {RATE: 1.0})
    assert run.missing == [f"round 1 of it, {PLAIN}: OSError: too few files"]
    assert [each.round for each in run.cells[cell]] == [1]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process for loads that change the collector's settings."""
    made = Worker()
    yield made
    made.end()


@pytest.mark.parametrize("who", SESSIONS)
def test_every_server_answers_every_load(
    who: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "WARM_UP_S", 0.02)
    with running(who) as server:
        port, pid = server.port, server.pid
        for case in (loads.MANY, loads.ALONE, loads.STREAMS):
            figures = worker.call(
                60.0,
                loads.load_unary,
                port,
                pid,
                case,
                seconds=TINY.seconds,
                changing=True,
                most_per_s=20_000,
            )
            assert figures[RATE] > 0.0
        figures = loads.load_paced(port, pid, per_s=200.0, seconds=TINY.paced_s)
        assert 0.0 < figures[P50_MS] <= figures[P99_MS]
        assert loads.load_downloads(port, pid, seconds=TINY.seconds)[BYTES_RATE] > 0.0
        assert RESIDENT in memory.weigh(server, TINY.connections)


def test_every_client_makes_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "WARM_UP_S", 0.01)
    few = {client_side.OF_GRPCIO: client_side.WHATS[client_side.OF_OURS][-3:]}
    monkeypatch.setattr(client_side, "WHATS", few)
    run = Run()
    client_side.ClientSide(run, TINY).measure()
    assert not run.missing
    assert {cell.who for cell in run.cells} == set(client_side.CLIENTS)
    assert all(only.figures[RATE] > 0.0 for (only,) in run.cells.values())


def test_a_wrong_answer_is_noticed() -> None:
    with pytest.raises(driving.WrongAnswer):
        driving.check(b"another")


def test_a_run_prints_its_tables_and_writes_page_plot_and_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.transport", "--quick", "--only", "memory"]
    done = subprocess.run(  # noqa: S603  our own module
        [
            *(*command, "--connections", "10", "--rounds", "1"),
            *("--output", str(tmp_path), "--json", str(tmp_path / "raw.json")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Bytes of an idle connection" in done.stdout
    assert GRPCIO_AIO in (tmp_path / page.PAGE).read_text(encoding="utf-8")
    raw = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))
    assert raw["cells"][0]["samples"]
    assert GRPCIO_THREADS not in done.stdout
