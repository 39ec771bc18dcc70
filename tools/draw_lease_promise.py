"""Draw docs/img/lease-promise.svg: what holder and server know of a lease, and when.

    python tools/draw_lease_promise.py [path]

It needs matplotlib, which is in the dependency group `bench`. The times are those that the client
keeps: what it leaves out of a term, and when it renews, is taken from the code.
"""

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common.plotting import drawing
from leasehold.leases.holder_view import session_margin_s
from leasehold.leases.renewal_times import JEOPARDY, SESSION_RENEW
from tools.lanes import (
    BAR,
    HOLDER,
    PAUSED,
    SERVER,
    SMALL,
    WARNING,
    draw_bar,
    draw_lanes,
    draw_line,
    draw_mark,
    draw_message,
    write_above,
    write_below,
)

FIGURE: Final = Path(__file__).parents[1] / "docs" / "img" / "lease-promise.svg"

TTL_S: Final = 10.0
WAY_S: Final = 0.7
"""How long a message is under way: exaggerated, to be seen."""

TRUSTED_S: Final = TTL_S - session_margin_s(TTL_S)
RENEW_S: Final = TTL_S * SESSION_RENEW


def write_figure(path: Path) -> None:
    """Draw both scenes; the suffix of `path` chooses the format."""
    with drawing(path, 2, 1, figsize=(10.5, 8.6), height_ratios=[3, 4]) as (above, below):
        above.figure.get_layout_engine().set(h_pad=0.16)
        _draw_cut_off(above)
        _draw_paused(below)
        below.set_xlabel(f"seconds, for a TTL of {TTL_S:g}")


def _draw_cut_off(axes: Any) -> None:
    """Draw a holder that cannot reach the server any more."""
    server, holder = 1.0, 0.0
    draw_lanes(axes, {"server": server, "holder": holder}, "No contact: the holder stops first")
    sent_at, renewed_at = 0.0, RENEW_S
    trusted_end = renewed_at + TRUSTED_S
    server_end = renewed_at + WAY_S + TTL_S
    draw_bar(axes, server, sent_at + WAY_S, server_end, SERVER, "the lease is there")
    draw_bar(axes, holder, sent_at + 2 * WAY_S, trusted_end, HOLDER, "may be relied on")
    for at, what in ((sent_at, "grant"), (renewed_at, "renew")):
        draw_message(axes, (at, holder), (at + WAY_S, server))
        draw_message(axes, (at + WAY_S, server), (at + 2 * WAY_S, holder))
        write_below(axes, at, holder, f"{what}\nsent")
        write_below(axes, at + 2 * WAY_S, holder, "answer")
    for number in (2, 3):
        _lost(axes, number * RENEW_S, holder, server)
    axes.text(2 * RENEW_S + 0.75, 0.5, "no answer", color=WARNING, va="center", fontsize=SMALL)
    jeopardy_at = renewed_at + TTL_S * (SESSION_RENEW + JEOPARDY)
    write_below(axes, jeopardy_at, holder, "jeopardy", WARNING)
    draw_line(axes, trusted_end, holder - 0.26, server - BAR / 2, HOLDER)
    draw_line(axes, server_end, holder - 0.26, server + 0.26, SERVER)
    write_below(axes, trusted_end, holder, "trusted\nend: lost", HOLDER)
    write_above(axes, server_end, server, "server's end:\nkeys are deleted", SERVER)
    _span(axes, trusted_end, server_end, 0.5)
    note = "margin, and the\nway of the request"
    axes.text(server_end + 0.2, 0.5, note, va="center", fontsize=SMALL)


def _draw_paused(axes: Any) -> None:
    """Draw a holder that is stopped between its check and its write."""
    server, second, first, storage = 3.0, 2.0, 1.0, 0.0
    lanes = {"server": server, "holder B": second, "holder A": first, "storage": storage}
    draw_lanes(axes, lanes, "A pause: what is written too late is refused, by its token")
    server_end = WAY_S + TTL_S
    stops_at, granted_at, wakes_at, end = 4.0, server_end + 1.2, 15.6, 18.0
    draw_bar(axes, server, WAY_S, server_end, SERVER, "lease of A")
    draw_bar(axes, server, granted_at, end, SERVER, "lease of B")
    draw_bar(axes, second, granted_at + WAY_S, end, HOLDER, "may be relied on")
    draw_bar(axes, first, 2 * WAY_S, stops_at, HOLDER, "")
    draw_bar(axes, first, stops_at, wakes_at, PAUSED, "")
    axes.text(
        stops_at + 0.3, first - 0.01, "stopped: it cannot notice", va="center", fontsize=SMALL
    )
    _ask(axes, 0.0, first, server, "token 41")
    _ask(axes, granted_at - WAY_S, second, server, "token 58")
    write_below(axes, stops_at, first, "check():\nit is held", HOLDER)
    write_below(axes, TRUSTED_S, first, "trusted end", HOLDER)
    axes.plot([TRUSTED_S] * 2, [first - BAR / 2 - 0.06, first + BAR / 2], color=HOLDER, zorder=3)
    write_above(axes, server_end, server, "server's end", SERVER)
    draw_message(axes, (13.4, second), (13.9, storage))
    draw_mark(axes, 13.9, storage, "write with 58:\ntaken", HOLDER, "o")
    draw_message(axes, (wakes_at, first), (wakes_at + 0.7, storage), WARNING)
    draw_mark(axes, wakes_at + 0.7, storage, "write with 41:\nrefused", WARNING, "X")


def _ask(axes: Any, at: float, holder: float, server: float, token: str) -> None:
    """Draw a grant, and the token in its answer."""
    draw_message(axes, (at, holder), (at + WAY_S, server))
    draw_message(axes, (at + WAY_S, server), (at + 2 * WAY_S, holder))
    axes.text(at + 1.7 * WAY_S, (holder + server) / 2, token, va="center", fontsize=SMALL)


def _lost(axes: Any, at: float, holder: float, server: float) -> None:
    half = (at + WAY_S / 2, (holder + server) / 2)
    draw_message(axes, (at, holder), (half[0], half[1] + BAR / 2), WARNING)
    axes.plot(*half, "x", color=WARNING, markersize=10, markeredgewidth=2.2, zorder=5)


def _span(axes: Any, begin: float, end: float, level: float) -> None:
    style = {"arrowstyle": "<->", "color": "black", "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(end, level), xytext=(begin, level), arrowprops=style)


if __name__ == "__main__":
    write_figure(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURE)
