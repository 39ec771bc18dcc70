"""Timing diagrams: a lane for each process, with bars, and messages between them.

Used by the scripts `draw_*`. It needs matplotlib, which is in the dependency group `bench`.
"""

from typing import Any, Final

PAUSED: Final = "#BBBBBB"
SERVER, HOLDER, WARNING = "#332288", "#117733", "#CC6677"
BAR: Final = 0.34
SMALL: Final = 9.5


def draw_mark(axes: Any, at: float, lane: float, text: str, colour: str, marker: str) -> None:
    """Draw an event, with a text below."""
    axes.plot(at, lane, marker, color=colour, markersize=10, zorder=5)
    write_below(axes, at, lane, text, colour)


def draw_lanes(axes: Any, lanes: dict[str, float], title: str) -> None:
    """Draw a labelled line for each process."""
    axes.set_title(title, loc="left", fontsize=13, pad=16)
    axes.set_xlim(-0.6, 19.2)
    axes.set_ylim(-0.75, max(lanes.values()) + 0.55)
    axes.set_yticks(list(lanes.values()), list(lanes), fontsize=12)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks(range(0, 19, 2))
    axes.spines["left"].set_visible(False)
    for level in lanes.values():
        axes.axhline(level, color="#DDDDDD", linewidth=1, zorder=0)


def draw_bar(axes: Any, lane: float, begin: float, end: float, colour: str, text: str) -> None:
    """Draw the duration of a state."""
    axes.broken_barh([(begin, end - begin)], (lane - BAR / 2, BAR), color=colour, zorder=2)
    shade = "black" if colour == PAUSED else "white"
    middle = (begin + end) / 2
    axes.text(middle, lane - 0.01, text, color=shade, ha="center", va="center", fontsize=SMALL)


def draw_message(
    axes: Any, begin: tuple[float, float], end: tuple[float, float], colour: str = "black"
) -> None:
    """Draw a message from one lane to another: each end is a time and a lane."""
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=_edge(end, begin), xytext=_edge(begin, end), arrowprops=style, zorder=4)


def _edge(point: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Begin or end at the edge of a lane's bar."""
    return point[0], point[1] + (BAR / 2 if other[1] > point[1] else -BAR / 2)


def draw_line(axes: Any, at: float, low: float, high: float, colour: str) -> None:
    """Draw a deadline across lanes."""
    axes.plot([at, at], [low, high], color=colour, linewidth=1.6, linestyle="--")


def write_below(axes: Any, at: float, lane: float, text: str, colour: str = "black") -> None:
    """Write below a lane."""
    place = {"ha": "center", "va": "top", "fontsize": SMALL, "color": colour}
    axes.text(at, lane - BAR / 2 - 0.08, text, **place)


def write_above(axes: Any, at: float, lane: float, text: str, colour: str) -> None:
    """Write above a lane."""
    place = {"ha": "center", "va": "bottom", "fontsize": SMALL, "color": colour}
    axes.text(at, lane + BAR / 2 + 0.08, text, **place)
