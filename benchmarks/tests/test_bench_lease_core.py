"""The benchmark runs end to end, in its quick mode, so that it cannot rot."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.common.page import END, begin
from benchmarks.common.stats import Spread, differences, quantile, ratios
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.lease_core import page

ROOT = Path(__file__).resolve().parents[2]
TITLES = [
    "Cost per operation",
    "The controls",
    "Additional cost from 50 to 200 live leases",
    "The collector",
    "Bytes per lease",
    "Memory over grants and cancels",
    "leases that end at one instant",
    "Single calls while the queue is rebuilt",
    "RenewalManager with",
    "Where the time goes",
]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a quick run wrote its page and plot, and what it printed."""
    directory = tmp_path_factory.mktemp("benchmark")
    command = [sys.executable, "-m", "benchmarks.lease_core", "--quick", "--sizes", "50,200"]
    done = subprocess.run(  # noqa: S603  our own module
        [*command, "--output", str(directory), "--json", str(directory / "raw.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory, done.stdout


def test_every_table_is_printed_and_written(quick_run: tuple[Path, str]) -> None:
    directory, printed = quick_run
    written = (directory / page.PAGE).read_text(encoding="utf-8")
    for title in TITLES:
        assert title in printed
        assert title in written
    assert " 0 leases lost" in printed
    assert (directory / "raw.json").stat().st_size > 0


@pytest.mark.skipif(
    find_spec("matplotlib") is None,
    reason="matplotlib draws the plot; it is in the dependency group `bench`, not in `dev`",
)
def test_the_plot_is_written(quick_run: tuple[Path, str]) -> None:
    directory, _ = quick_run
    assert "<svg" in (directory / page.PLOT).read_text(encoding="utf-8")


def test_a_page_keeps_what_people_wrote_around_the_results(tmp_path: Path) -> None:
    path = tmp_path / page.PAGE
    path.write_text(f"before\n{begin(page.COMMAND)}\nold\n{END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        page.write_page(tmp_path, "a machine", [Table("T", ["a", "b"], [["1", "2"]])], plot=False)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("### T") == 1


def test_a_page_without_markers_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / page.PAGE).write_text("by hand", encoding="utf-8")
    with pytest.raises(ValueError, match="has lost its markers"):
        page.write_page(tmp_path, "a machine", [], plot=False)


def test_spreads_are_medians_with_quartiles_and_ratios_are_by_round() -> None:
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)
    assert ratios([2.0, 40.0], [1.0, 10.0]) == Spread(3.0, 2.5, 3.5)
    assert differences([2.0, 40.0], [1.0, 10.0]).median == 15.5
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_figures_have_three_digits() -> None:
    assert [figure(x) for x in (0.0, 0.1234, 12.34, 1234.5)] == ["0", "0.12", "12.3", "1,234"]
    assert [count(n) for n in (999, 1_000, 1_500, 100_000, 1_000_000)] == [
        "999",
        "1 k",
        "1,500",
        "100 k",
        "1 M",
    ]
    assert spread(Spread(1.0, 0.5, 2.0)) == "1.00 (0.50..2.00)"
