"""The plots: what things cost over their number, and the pauses of the event loop."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.common.plotting import drawing
from benchmarks.common.stats import Spread
from benchmarks.common.tables import count
from benchmarks.engine import calls, expiry, watches
from benchmarks.engine.pauses import MS, label, largest, pause_cells
from benchmarks.engine.report import Results, counts_of
from benchmarks.engine.samples import (
    DISK,
    MEMORY,
    PLACES,
    Cell,
    Cells,
    named,
    pause_of,
    spread_of,
)
from benchmarks.engine.targets import PAUSE

CALL_COLOURS: Final = {
    calls.PUT: "#CC6677",
    calls.TXN: "#882255",
    calls.GET: "#117733",
    calls.PAGE: "#332288",
}
PLACE_COLOURS: Final = {MEMORY: "#88CCEE", DISK: "#332288"}
STYLES: Final = {MEMORY: "--", DISK: "-"}
PLAIN_COLOUR, TUNED_COLOUR, QUIET_COLOUR = "#CC6677", "#117733", "#999999"


def write_plot(results: Results, path: Path) -> None:
    """Draw calls, watches and expiry; the suffix of `path` chooses the format."""
    with drawing(path, 2, 2, figsize=(11.0, 9.5)) as axes:
        _draw_calls(axes[0][0], results.cells)
        _draw_expiry(axes[0][1], results.cells)
        _draw_fan_out(axes[1][0], results.cells)
        _draw_beside(axes[1][1], results.cells)


def write_pauses_plot(results: Results, path: Path) -> None:
    """Draw the longest pause of each measurement, and the target."""
    shown = largest(pause_cells(results.cells))
    with drawing(path, 1, 1, figsize=(11.0, 1.6 + 0.3 * len(shown))) as axes:
        _draw_pauses(axes, results.cells, shown)


def points(cells: Cells, what: str, where: str, name: str, factor: float) -> dict[int, Spread]:
    """A figure by the numbers at which it was measured."""
    found = {}
    for number in counts_of(cells, what):
        samples = cells.get(Cell(what, where, number))
        if samples:
            found[number] = spread_of(samples, named(name)).scaled(factor)
    return found


def _draw_line(axes: Any, xs: Sequence[int], line: Sequence[Spread], **look: Any) -> None:
    axes.plot(xs, [value.median for value in line], marker="o", markersize=4, **look)
    lows, highs = [value.low for value in line], [value.high for value in line]
    axes.fill_between(xs, lows, highs, color=look["color"], alpha=0.15, linewidth=0)


def _dress(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.17)
        )


def _scale(axes: Any, numbers: Sequence[int]) -> None:
    """Make both axes logarithmic, with ticks that can be read."""
    from matplotlib.ticker import LogLocator  # noqa: PLC0415  optional

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if numbers:
        axes.set_xscale("log")
        axes.set_xticks(numbers, [count(number) for number in numbers])
    axes.minorticks_off()


def _draw_calls(axes: Any, cells: Cells) -> None:
    numbers: list[int] = []
    for call, colour in CALL_COLOURS.items():
        for where in PLACES:
            line = points(cells, calls.name_of(call, calls.MANY), where, calls.RATE, 1.0)
            if line:
                numbers = list(line)
                look = {"color": colour, "linestyle": STYLES[where], "label": f"{call}, {where}"}
                _draw_line(axes, numbers, list(line.values()), **look)
    _scale(axes, numbers)
    title = f"Calls in a second, {calls.MANY} in flight"
    _dress(axes, title, "keys (log scale)", "calls/s (log scale)")


def _draw_expiry(axes: Any, cells: Cells) -> None:
    for where in PLACES:
        for name, which, style in ((expiry.P50_S, "p50", "-"), (expiry.MAX_S, "last", ":")):
            line = points(cells, expiry.EXPIRY, where, name, MS)
            look = {"color": PLACE_COLOURS[where], "linestyle": style}
            if line:
                label = f"{which}, {where}"
                _draw_line(axes, list(line), list(line.values()), label=label, **look)
    _scale(axes, counts_of(cells, expiry.EXPIRY))
    title = "Lateness of leases that end together"
    _dress(axes, title, "leases (log scale)", "ms (log scale)")


def _draw_fan_out(axes: Any, cells: Cells) -> None:
    for where in PLACES:
        line = points(cells, watches.FAN_OUT, where, watches.LAST_S, MS)
        if line:
            look = {"color": PLACE_COLOURS[where], "label": where}
            _draw_line(axes, list(line), list(line.values()), **look)
    _scale(axes, counts_of(cells, watches.FAN_OUT))
    title = "From a put to the last of the watches that match"
    _dress(axes, title, "watches (log scale)", "ms (log scale)")


def _draw_beside(axes: Any, cells: Cells) -> None:
    numbers = counts_of(cells, watches.BESIDE)
    for where in PLACES:
        line = points(cells, watches.BESIDE, where, watches.PUT_S, 1e6)
        if line:
            look = {"color": PLACE_COLOURS[where], "label": where}
            _draw_line(axes, [numbers.index(each) for each in line], list(line.values()), **look)
    axes.set_xticks(range(len(numbers)), [count(each) if each else "none" for each in numbers])
    axes.set_ylim(bottom=0.0)
    _dress(axes, "A put with watches, one of which matches", "watches", "µs")


def _draw_pauses(axes: Any, cells: Cells, shown: Sequence[Cell]) -> None:
    axes.axvline(PAUSE.under_s * MS, color="black", linewidth=2, label="target")
    for row, cell in enumerate(shown):
        quiet = spread_of(cells[cell], lambda each: each.quiet.longest_s)
        _mark(axes, row, quiet, "|", QUIET_COLOUR)
        _mark(axes, row, spread_of(cells[cell], pause_of), "o", PLAIN_COLOUR)
        tuned = cells.get(replace(cell, tuned=True))
        if tuned:
            _mark(axes, row, spread_of(tuned, pause_of), "s", TUNED_COLOUR)
    for text, marker, colour in (
        ("as Python starts", "o", PLAIN_COLOUR),
        ("tuned", "s", TUNED_COLOUR),
        ("idle loop", "|", QUIET_COLOUR),
    ):
        axes.plot([], [], marker, color=colour, label=text)
    axes.set_yticks(range(len(shown)), [label(cell) for cell in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("ms (log scale); median and quartiles of the longest in each round")
    axes.set_title("Longest pauses of the event loop", loc="left", pad=24)
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0))


def _mark(axes: Any, row: int, value: Spread, marker: str, colour: str) -> None:
    value = value.scaled(MS)
    axes.plot([value.low, value.high], [row, row], color=colour, linewidth=1.6, alpha=0.6)
    axes.plot(value.median, row, marker, color=colour, markersize=7)
