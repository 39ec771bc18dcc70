"""The plot: ratios of Leasehold to etcd, with their quartiles, and the targets."""

from pathlib import Path
from typing import Any, Final

from benchmarks.common.plotting import drawing
from benchmarks.etcd.samples import PER_CPU, Results
from benchmarks.etcd.targets import TARGETS

ON_ALL, PER_CORE = "on all cores", "per processor second"
COLOURS: Final = {ON_ALL: "#332288", PER_CORE: "#CC6677"}
MARKERS: Final = {ON_ALL: "o", PER_CORE: "s"}
STEP: Final = 0.22
"""Between two marks of one row, as a part of the room that it has."""

TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)


def write_plot(results: Results, path: Path) -> None:
    """Draw the plot; the suffix of `path` chooses the format."""
    rows = [target for target in TARGETS if not target.is_absolute]
    rows = [each for each in rows if any(each.measured(results, name) for name in each.figures)]
    with drawing(path, 1, 1, figsize=(9.5, 1.8 + 0.55 * len(rows))) as axes:
        _draw(axes, results, rows)


def _draw(axes: Any, results: Results, rows: list[Any]) -> None:
    reached = [1.0]
    for row, target in enumerate(rows):
        axes.plot([target.bound] * 2, [row - 0.4, row + 0.4], color="black", linewidth=3, zorder=1)
        reached.append(target.bound)
        for name in target.figures:
            value = target.measured(results, name)
            if value is None:
                continue
            kind = PER_CORE if name == PER_CPU else ON_ALL
            at = row + (STEP if kind == PER_CORE else -STEP) * (len(target.figures) > 1)
            axes.plot([value.low, value.high], [at, at], color=COLOURS[kind], linewidth=1.6)
            axes.plot(value.median, at, MARKERS[kind], color=COLOURS[kind], markersize=7)
            reached += [max(value.low, TICKS[0]), value.high]
    titles = [f"{each.title} ({'≥' if each.is_least else '≤'})" for each in rows]
    axes.set_yticks(range(len(rows)), titles)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    _scale(axes, min(reached) / 1.15, max(reached) * 1.15)
    axes.axvline(1.0, color="#999999", linewidth=1, linestyle="--", zorder=0)
    axes.set_title("Leasehold to etcd 3.5.1, and the targets", loc="left")
    _legend(axes)


def _scale(axes: Any, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("times etcd's (log scale); median and quartiles of all pairs")


def _legend(axes: Any) -> None:
    for kind, colour in COLOURS.items():
        axes.plot([], [], MARKERS[kind], color=colour, label=kind)
    axes.plot([], [], color="black", linewidth=3, label="target: at least (≥) or at most (≤)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=3, frameon=False)
