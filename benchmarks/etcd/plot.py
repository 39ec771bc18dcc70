"""The plot: ratios of our throughput to etcd's, with their spread, and what was asked for."""

from pathlib import Path
from typing import Any

from benchmarks.common.plotting import drawing
from benchmarks.etcd.report import COLUMNS, Results, ratio
from benchmarks.etcd.rounds import ALL_CORES, CHANGING, CONSTANT, PER_CORE, Cell

COLOURS = {CONSTANT: "#332288", CHANGING: "#CC6677"}
MARKERS = {ALL_CORES: "o", PER_CORE: "s"}
STEP = 0.17
"""Between two marks of one workload, as a part of the room that it has."""

TICKS = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)


def write_plot(results: Results, path: Path) -> None:
    """Draw the plot; the suffix of `path` chooses the format."""
    height = 1.6 + 0.85 * len(results.cases())
    with drawing(path, 1, 1, figsize=(9.5, height)) as axes:
        _draw(axes, results)


def _draw(axes: Any, results: Results) -> None:
    cases = results.cases()
    reached = [1.0]
    for row, case in enumerate(cases):
        axes.plot([case.bar] * 2, [row - 0.4, row + 0.4], color="black", linewidth=3, zorder=1)
        reached.append(case.bar)
        for place, (cores, headers) in enumerate(COLUMNS):
            value = ratio(results.of(Cell(case.name, headers, cores)))
            if value is None:
                continue
            at = row + (place - 1.5) * STEP
            colour = COLOURS[headers]
            axes.plot([value.low, value.high], [at, at], color=colour, linewidth=1.6, alpha=0.6)
            axes.plot(value.median, at, MARKERS[cores], color=colour, markersize=7)
            reached += [value.low, value.high]
    axes.set_yticks(range(len(cases)), [case.title for case in cases])
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    _scale(axes, min(reached) / 1.15, max(reached) * 1.15)
    axes.axvline(1.0, color="#999999", linewidth=1, linestyle="--", zorder=0)
    axes.set_title("Throughput of ours to etcd 3.5.1's, and what was asked for", loc="left")
    _legend(axes)


def _scale(axes: Any, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("times etcd's (log scale); median, least and most of all pairs of rounds")


def _legend(axes: Any) -> None:
    for cores, headers in COLUMNS:
        label = f"{cores}, {headers} headers"
        axes.plot([], [], MARKERS[cores], color=COLOURS[headers], label=label)
    axes.plot([], [], color="black", linewidth=3, label="asked for")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=3, frameon=False)
