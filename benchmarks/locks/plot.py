"""The plot: acquiring, handing over, a crowd, and consistency traffic."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.common.plotting import drawing
from benchmarks.common.stats import Spread
from benchmarks.etcd.servers import ETCD, OURS
from benchmarks.locks.contenders import CONTENDERS, IN_TABLES
from benchmarks.locks.contest import CROWDING, HANDING_OVER, REACQUIRING
from benchmarks.locks.driving import PAIR_US, TOOK_S
from benchmarks.locks.model import share_of_no_lease
from benchmarks.locks.report import Results, cell
from benchmarks.locks.scale import Scale
from benchmarks.locks.servers import REDIS, ZOOKEEPER
from benchmarks.locks.traffic import SHARING, load_of, shares
from benchmarks.transport.samples import P50_MS, P99_MS, Cells, spread_of

COLOURS: Final = {OURS: "#332288", ETCD: "#88CCEE", REDIS: "#CC6677", ZOOKEEPER: "#DDCC77"}
CURVES: Final = {1: "#332288", 10: "#CC6677"}
STEPS: Final = 300
MOST_PERCENT: Final = 140


def write_plot(results: Results, scale: Scale, path: Path) -> None:
    """Draw everything; the suffix of `path` chooses the format."""
    cells = results.cells
    with drawing(path, 2, 2, figsize=(14.0, 9.0)) as axes:
        _draw_bars(axes[0][0], _bars(cells, REACQUIRING, PAIR_US), "µs")
        axes[0][0].set_title("Acquire and release, uncontended", loc="left", fontsize=11)
        _draw_bars(
            axes[0][1], _bars(cells, HANDING_OVER, P50_MS), "ms", _bars(cells, HANDING_OVER, P99_MS)
        )
        axes[0][1].set_title("Handing over: p50, and p99 as a line", loc="left", fontsize=11)
        _draw_bars(axes[1][0], _bars(cells, CROWDING, TOOK_S), "s", is_log=False)
        title = f"{scale.clients * scale.turns} acquisitions by {scale.clients} clients together"
        axes[1][0].set_title(title, loc="left", fontsize=11)
        _draw_traffic(axes[1][1], cells, max(scale.terms_s))


def _bars(cells: Cells, part: str, name: str) -> dict[str, Spread]:
    return {
        who: spread_of(samples, name)
        for who in IN_TABLES
        if (samples := cells.get(cell(part, who)))
    }


def _draw_bars(
    axes: Any,
    bars: Mapping[str, Spread],
    unit: str,
    ends: Mapping[str, Spread] | None = None,
    *,
    is_log: bool = True,
) -> None:
    """Draw bars to the right, each with its quartiles, or with a line to where another one ends."""
    for place, (who, value) in enumerate(bars.items()):
        colour = COLOURS[CONTENDERS[who].server]
        axes.barh(place, value.median, 0.7, color=colour)
        low, high = (value.median, ends[who].median) if ends else (value.low, value.high)
        axes.plot([low, high], [place, place], color="#555555", linewidth=1)
        label = f"  {_short(value.median)}" + (f", {_short(high)}" if ends else "")
        axes.annotate(label, (max(high, value.median), place), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), list(bars), fontsize=9)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{unit} (log scale)" if is_log else unit)
    if bars:
        axes.set_xscale("log" if is_log else "linear")
        axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _draw_traffic(axes: Any, cells: Cells, longest_s: float) -> None:
    terms = [longest_s * step / STEPS for step in range(STEPS + 1)]
    for sharing in SHARING:
        colour, load = CURVES[sharing], load_of(sharing)
        model = [100 * share_of_no_lease(load, each) for each in terms]
        axes.plot(terms, model, color=colour, label=f"model, S = {sharing}")
        ours = shares(cells, sharing)
        if ours:
            heights = [100 * each.median for each in ours.values()]
            axes.plot(list(ours), heights, "o--", color=colour, label=f"ours, S = {sharing}")
    axes.set_title("Consistency traffic, relative to no lease", loc="left", fontsize=11)
    axes.set_xlabel("term, s")
    axes.set_ylabel("%")
    axes.set_ylim(0, MOST_PERCENT)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
