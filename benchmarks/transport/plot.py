"""The plot: calls in a second, processor time, and bytes of a connection."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.common.plotting import drawing
from benchmarks.common.stats import Spread
from benchmarks.etcd.script import CHANGING, CONSTANT
from benchmarks.transport import client_side, memory, server_side
from benchmarks.transport.client_side import IN_FLIGHT, OF_OURS, name_of
from benchmarks.transport.memory import MEMORY
from benchmarks.transport.report import Results
from benchmarks.transport.samples import CPU_US, RATE, RESIDENT, Cell, Cells, spread_of
from benchmarks.transport.server_side import SERVER
from benchmarks.transport.servers import (
    COROUTINE,
    GRPCIO_AIO,
    GRPCIO_THREADS,
    ON_ASYNCIO,
    PLAIN,
)

COLOURS: Final = {
    PLAIN: "#332288",
    COROUTINE: "#88CCEE",
    ON_ASYNCIO: "#44AA99",
    client_side.ON_ASYNCIO: "#44AA99",
    client_side.ON_UVLOOP: "#332288",
    GRPCIO_AIO: "#CC6677",
    GRPCIO_THREADS: "#DDCC77",
}
STYLES: Final = {CONSTANT: "--", CHANGING: "-"}

LOADS: Final = {
    server_side.MANY_CONSTANT: "10 x 32,\nconstant",
    server_side.MANY_CHANGING: "10 x 32,\nchanging",
    server_side.ALONE_CONSTANT: "1 x 1,\nconstant",
    server_side.ALONE_CHANGING: "1 x 1,\nchanging",
}
SIDES: Final = {
    Cell(SERVER, server_side.MANY_CONSTANT, ""): "server,\nconstant",
    Cell(SERVER, server_side.MANY_CHANGING, ""): "server,\nchanging",
    Cell(OF_OURS, name_of(64, CONSTANT), ""): "client,\nconstant",
    Cell(OF_OURS, name_of(64, CHANGING), ""): "client,\nchanging",
}


def write_plot(results: Results, path: Path) -> None:
    """Draw everything; the suffix of `path` chooses the format."""
    with drawing(path, 2, 2, figsize=(11.0, 9.0)) as axes:
        _draw_server(axes[0][0], results.cells)
        _draw_client(axes[0][1], results.cells)
        _draw_costs(axes[1][0], results.cells)
        _draw_memory(axes[1][1], results.cells)


def found(cells: Cells, cell: Cell, name: str) -> Spread | None:
    """A figure, if it was measured."""
    samples = cells.get(cell)
    return spread_of(samples, name) if samples else None


def _draw_bars(
    axes: Any, groups: Sequence[Sequence[tuple[str, Spread | None]]], labels: Sequence[str]
) -> None:
    """Draw groups of bars, each with its quartiles and its median in figures."""
    named = set()
    for place, group in enumerate(groups):
        bars = [(who, value) for who, value in group if value is not None]
        width = 0.8 / max(1, len(bars))
        for number, (who, value) in enumerate(bars):
            at = place - 0.4 + width * (number + 0.5)
            errors = [[value.median - value.low], [value.high - value.median]]
            label = None if who in named else who
            named.add(who)
            axes.bar(at, value.median, width * 0.92, color=COLOURS[who], label=label)
            axes.errorbar(at, value.median, yerr=errors, color="#555555", linewidth=1)
            axes.annotate(
                _short(value.median),
                (at, value.high),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set_xticks(range(len(labels)), labels, fontsize=9)


def _short(value: float) -> str:
    if value >= 1e4:
        return f"{value / 1e3:,.0f}k"
    return f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.3g}"


def _dress(axes: Any, title: str, ylabel: str, *, log: bool = True) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel(f"{ylabel} (log scale)" if log else ylabel)
    if log and axes.has_data():
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.margins(y=0.12)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14)
        )


def _draw_server(axes: Any, cells: Cells) -> None:
    groups = [
        [(who, found(cells, Cell(SERVER, what, who), RATE)) for who in server_side.SERVERS]
        for what in LOADS
    ]
    _draw_bars(axes, groups, list(LOADS.values()))
    _dress(axes, "Server: unary calls in a second, by load and headers", "calls/s")


def _draw_client(axes: Any, cells: Cells) -> None:
    for who in client_side.CLIENTS:
        for headers, style in STYLES.items():
            line = {
                in_flight: value
                for in_flight in IN_FLIGHT
                if (value := found(cells, Cell(OF_OURS, name_of(in_flight, headers), who), RATE))
            }
            if not line:
                continue
            look = {"color": COLOURS[who], "linestyle": style}
            medians = [value.median for value in line.values()]
            label = f"{who}, {headers}"
            axes.plot(list(line), medians, marker="o", markersize=4, label=label, **look)
            lows, highs = zip(*((each.low, each.high) for each in line.values()), strict=True)
            axes.fill_between(list(line), lows, highs, color=look["color"], alpha=0.12, linewidth=0)
    if axes.has_data():
        axes.set_xscale("log", base=2)
        axes.set_xticks(IN_FLIGHT, [f"{number} in flight" for number in IN_FLIGHT])
        axes.minorticks_off()
    _dress(axes, "Client: unary calls in a second, by calls in flight and timeout", "calls/s")


def _draw_costs(axes: Any, cells: Cells) -> None:
    groups = []
    for place in SIDES:
        whos = server_side.SERVERS if place.part == SERVER else client_side.CLIENTS
        groups.append(
            [(who, found(cells, Cell(place.part, place.what, who), CPU_US)) for who in whos]
        )
    _draw_bars(axes, groups, list(SIDES.values()))
    _dress(axes, "Processor time for a unary call, many in flight", "µs")


def _draw_memory(axes: Any, cells: Cells) -> None:
    whats = list(dict.fromkeys(cell.what for cell in cells if cell.part == MEMORY))
    groups = [
        [(who, found(cells, Cell(MEMORY, what, who), RESIDENT)) for who in memory.SERVERS]
        for what in whats
    ]
    _draw_bars(axes, groups, whats)
    _dress(axes, "Bytes of an idle connection", "bytes", log=False)
