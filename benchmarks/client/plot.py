"""The plot: calls in a second, processor time for a call, and what keeps leases alive."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.client import calls, keeping
from benchmarks.client.calls import TITLES, name_of
from benchmarks.client.clients import AETCD, ASYNCIO, BARE, CLIENTS, ETCD3, SYNC, UVLOOP
from benchmarks.client.driving import CALLS
from benchmarks.client.keeping import MESSAGES, naive_per_s
from benchmarks.client.report import SERVER_NAMES, Results, ours_first
from benchmarks.client.targets import IN_FLIGHT
from benchmarks.common.plotting import drawing
from benchmarks.common.stats import Spread
from benchmarks.transport.samples import CPU_US, RATE, Cell, Cells, spread_of

COLOURS: Final = {
    ASYNCIO: "#332288",
    UVLOOP: "#88CCEE",
    SYNC: "#44AA99",
    AETCD: "#CC6677",
    ETCD3: "#DDCC77",
    BARE: "#BBBBBB",
}
NAIVE: Final = "a naive client,\ncomputed"


def write_plot(results: Results, leases: int, ttl_s: float, path: Path) -> None:
    """Draw everything; the suffix of `path` chooses the format."""
    with drawing(path, 1, 3, figsize=(14.0, 4.8), width_ratios=(3, 3, 2)) as axes:
        title = f"Calls to etcd in a second, {IN_FLIGHT} in flight"
        _draw_calls(axes[0], results.cells, RATE, title, "calls/s")
        title = "Processor time of the client for a call"
        _draw_calls(axes[1], results.cells, CPU_US, title, "µs")
        _draw_keeping(axes[2], results.cells, leases, ttl_s)


def _draw_calls(axes: Any, cells: Cells, name: str, title: str, label: str) -> None:
    whos = ours_first(CLIENTS)
    width = 0.8 / len(whos)
    for number, who in enumerate(whos):
        bars = {}
        for place, call in enumerate(CALLS):
            samples = cells.get(Cell(calls.PART, name_of(call, IN_FLIGHT), who))
            if samples:
                bars[place - 0.4 + width * (number + 0.5)] = spread_of(samples, name)
        if bars:
            _draw_bars(axes, bars, width, [COLOURS[who]], who)
    axes.set_xticks(range(len(CALLS)), [TITLES[call] for call in CALLS])
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08)
        )
    _dress(axes, title, label)


def _draw_keeping(axes: Any, cells: Cells, leases: int, ttl_s: float) -> None:
    what = keeping.name_of(leases, ttl_s)
    bars = {
        name.replace(", ", ",\n"): spread_of(samples, MESSAGES)
        for server, name in SERVER_NAMES.items()
        if (samples := cells.get(Cell(keeping.PART, what, server)))
    }
    if bars:
        naive = naive_per_s(leases, ttl_s)
        bars[NAIVE] = Spread(naive, naive, naive)
        colours = [COLOURS[ASYNCIO]] * (len(bars) - 1) + ["#999999"]
        _draw_bars(axes, dict(enumerate(bars.values())), 0.7, colours, None)
    axes.set_xticks(range(len(bars)), list(bars), fontsize=9)
    _dress(axes, f"Keeping {what}", "messages/s")


def _draw_bars(
    axes: Any,
    bars: Mapping[float, Spread],
    width: float,
    colours: Sequence[str],
    label: str | None,
) -> None:
    """Draw bars, each with its quartiles and its median in figures."""
    medians = [each.median for each in bars.values()]
    errors = [
        [each.median - each.low for each in bars.values()],
        [each.high - each.median for each in bars.values()],
    ]
    axes.bar(list(bars), medians, width * 0.92, color=colours, label=label)
    axes.errorbar(list(bars), medians, yerr=errors, fmt="none", ecolor="#555555", linewidth=1)
    for at, value in bars.items():
        place: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center"}
        axes.annotate(_short(value.median), (at, value.high), fontsize=6.5, **place)


def _short(value: float) -> str:
    return f"{value / 1e3:.1f}k" if value >= 999.5 else f"{value:.3g}"


def _dress(axes: Any, title: str, label: str) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel(f"{label} (log scale)")
    if axes.has_data():
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.margins(y=0.12)
