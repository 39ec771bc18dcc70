"""The plot: cost per operation over the number of leases, and memory over grants and cancels."""

from pathlib import Path
from typing import Any

from benchmarks.common.plotting import drawing
from benchmarks.common.stats import Spread
from benchmarks.common.tables import count
from benchmarks.lease_core.memory import ChurnSample
from benchmarks.lease_core.operations import (
    CANCEL,
    EXPIRE,
    GRANT,
    POP,
    RENEW,
    RENEW_ALL,
    WRITE,
    SizeResult,
)
from benchmarks.lease_core.report import Results, series

LINES = {
    GRANT: ("#CC6677", "grant"),
    EXPIRE: ("#882255", "expire"),
    CANCEL: ("#B8860B", "cancel"),
    RENEW: ("#117733", "renew"),
    RENEW_ALL: ("#332288", "renew_all, per lease"),
    POP: ("#882255", "control: heap pop, dict delete"),
    WRITE: ("#117733", "control: dict lookup, write"),
}
CONTROL_LINES = (POP, WRITE)
LABEL_GAP = 0.045
"""Between the labels of two lines, as a part of the height."""


def write_plot(results: Results, path: Path) -> None:
    """Draw the plot; the suffix of `path` chooses the format."""
    with drawing(path, 2, 1, figsize=(9.0, 9.5), height_ratios=(3, 2)) as (costs, memory):
        _draw_costs(costs, results.sizes)
        _draw_memory(memory, results.churn)


def _draw_costs(axes: Any, sizes: list[SizeResult]) -> None:
    xs = [each.size for each in sizes]
    ends: list[tuple[float, str, str]] = []
    for name, (colour, label) in LINES.items():
        spreads = [Spread.of(series(each, name, collector_on=False)).scaled(1e-3) for each in sizes]
        medians = [each.median for each in spreads]
        lows, highs = [each.low for each in spreads], [each.high for each in spreads]
        style = "--" if name in CONTROL_LINES else "-"
        axes.plot(xs, medians, style, marker="o", markersize=4, color=colour)
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
        ends.append((medians[-1], label, colour))
    axes.set_xscale("log")
    axes.set_xticks(xs, [count(x) for x in xs])
    axes.minorticks_off()
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("live leases (log scale)")
    axes.set_ylabel("µs per operation")
    axes.set_title("Cost per operation, collector off (median and quartiles)", loc="left")
    _label_ends(axes, ends)


def _label_ends(axes: Any, ends: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its right end, moved up where two would overlap."""
    top = axes.get_ylim()[1]
    lowest = 0.0
    for end, label, colour in sorted(ends):
        at = max(end / top, lowest)
        lowest = at + LABEL_GAP
        axes.text(1.0, at, label, color=colour, va="center", transform=axes.transAxes)


def _draw_memory(axes: Any, samples: list[ChurnSample]) -> None:
    xs = [sample.done for sample in samples]
    queue = axes.twinx()
    fewest = [sample.queue_min / sample.live for sample in samples]
    most = [sample.queue_max / sample.live for sample in samples]
    queue.fill_between(xs, fewest, most, color="#bbbbbb", linewidth=0)
    queue.set_ylabel("queue entries per live lease,\nfewest to most", color="#666666")
    queue.set_ylim(0.0, 2.0)
    queue.set_yticks([0.0, 0.5, 1.0, 1.5, 2.0])
    queue.spines["right"].set_visible(True)
    megabytes = [sample.live_bytes / 1e6 for sample in samples]
    axes.plot(xs, megabytes, color="#117733", linewidth=2.5)
    axes.set_ylim(0.0, 2.5 * max(*megabytes, 1.0))
    axes.set_ylabel("resident, MB", color="#117733")
    axes.set_xlabel("leases granted and cancelled")
    axes.xaxis.set_major_formatter(lambda value, _: count(int(value)) if value else "0")
    title = f"Memory with {samples[0].live:,} live leases, while others come and go"
    axes.set_title(title, loc="left")
    axes.set_zorder(queue.get_zorder() + 1)
    axes.patch.set_visible(False)
