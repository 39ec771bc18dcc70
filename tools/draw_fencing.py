"""Draw docs/img/fencing.svg: a holder that was paused, at a storage without a fence and with one.

    python tools/draw_fencing.py [path]

It needs matplotlib, which is in the dependency group `bench`. What the storage does in the picture
is taken from `Fence`.
"""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common.plotting import drawing
from leasehold.errors import StaleToken
from leasehold.fencing import Fence
from tools.lanes import (
    HOLDER,
    PAUSED,
    SERVER,
    SMALL,
    WARNING,
    draw_bar,
    draw_lanes,
    draw_mark,
    draw_message,
    write_above,
)

FIGURE: Final = Path(__file__).parents[1] / "docs" / "img" / "fencing.svg"

TTL_S: Final = 10.0
WAY_S: Final = 0.5
"""How long a message is under way: exaggerated, to be seen."""

ANNA, BERT = 41, 58
SERVICE_LANE, BERT_LANE, ANNA_LANE, STORAGE_LANE = 3.0, 2.0, 1.0, 0.0
STORAGE: Final = "#666666"

ANNA_READS_S, PAUSED_S, LEASE_END_S = 2.0, 3.2, WAY_S + TTL_S
BERT_HAS_S, BERT_READS_S, BERT_WRITES_S = 11.2, 12.3, 14.1
WAKES_S, END_S = 15.9, 18.6


def write_figure(path: Path) -> None:
    """Draw both scenes; the suffix of `path` chooses the format."""
    with drawing(path, 2, 1, figsize=(10.5, 9.4)) as (without, fenced):
        without.figure.get_layout_engine().set(h_pad=0.16)
        _draw_scene(without, None, "A lock alone: the service is right, and a sale is lost")
        _draw_scene(fenced, Fence(), "The same with a fence: what comes too late is refused")
        fenced.set_xlabel(f"seconds, for a TTL of {TTL_S:g}")


def _draw_scene(axes: Any, fence: Fence | None, title: str) -> None:
    """Draw what each does, and what the storage has and has seen."""
    lanes = {
        "lock service": SERVICE_LANE,
        "Bert": BERT_LANE,
        "Anna": ANNA_LANE,
        "storage": STORAGE_LANE,
    }
    draw_lanes(axes, lanes, title)
    _draw_locks(axes)
    _read(axes, fence, ANNA_READS_S, ANNA_LANE, ANNA)
    _read(axes, fence, BERT_READS_S, BERT_LANE, BERT)
    _write(axes, fence, BERT_WRITES_S, BERT_LANE, BERT)
    _write(axes, fence, WAKES_S, ANNA_LANE, ANNA)
    _draw_content(axes, is_fenced=fence is not None)


def _draw_content(axes: Any, *, is_fenced: bool) -> None:
    """Draw what the storage has, and the highest token that it has seen."""
    changes = [
        (0.0, 10, None),
        (ANNA_READS_S + WAY_S, 10, ANNA),
        (BERT_READS_S + WAY_S, 10, BERT),
        (BERT_WRITES_S + WAY_S, 9, BERT),
        (WAKES_S + WAY_S, 9, BERT),
        (END_S, 0, None),
    ]
    for (begin, left, token), (end, _, _) in pairwise(changes):
        seen = f"\nseen {token}" if is_fenced and token else ""
        draw_bar(axes, STORAGE_LANE, begin, end - 0.05, STORAGE, f"{left} left{seen}")


def _draw_locks(axes: Any) -> None:
    """Draw the part that both diagrams share: the holder, and the client that believes to be."""
    draw_bar(axes, SERVICE_LANE, WAY_S, LEASE_END_S, SERVER, "Anna has the lock")
    draw_bar(axes, SERVICE_LANE, BERT_HAS_S, END_S, SERVER, "Bert has the lock")
    draw_bar(axes, BERT_LANE, BERT_HAS_S + WAY_S, END_S, HOLDER, "")
    draw_bar(axes, ANNA_LANE, 2 * WAY_S, PAUSED_S, HOLDER, "")
    draw_bar(axes, ANNA_LANE, PAUSED_S, WAKES_S, PAUSED, "paused: she cannot notice")
    write_above(axes, LEASE_END_S, SERVICE_LANE, "her lease ends", SERVER)
    for at, lane, token in ((0.0, ANNA_LANE, ANNA), (BERT_HAS_S - WAY_S, BERT_LANE, BERT)):
        draw_message(axes, (at, lane), (at + WAY_S, SERVICE_LANE))
        draw_message(axes, (at + WAY_S, SERVICE_LANE), (at + 2 * WAY_S, lane))
        middle = (lane + SERVICE_LANE) / 2
        axes.text(at + 1.9 * WAY_S, middle, f"token {token}", va="center", fontsize=SMALL)


def _read(axes: Any, fence: Fence | None, at: float, lane: float, token: int) -> None:
    draw_message(axes, (at, lane), (at + WAY_S, STORAGE_LANE))
    if fence is not None:
        fence.admit(token)
    _say(axes, at + WAY_S, "reads 10" + ("" if fence is None else f"\nwith {token}"), "black", "o")


def _write(axes: Any, fence: Fence | None, at: float, lane: float, token: int) -> None:
    colour, marker, text = HOLDER, "o", "writes 9"
    if fence is None:
        if token == ANNA:
            colour, text = WARNING, "writes 9\nas well"
    else:
        text = f"9 with {token}:\ntaken"
        try:
            fence.admit(token)
        except StaleToken:
            colour, marker, text = WARNING, "X", f"9 with {token}:\nrefused"
    draw_message(axes, (at, lane), (at + WAY_S, STORAGE_LANE), colour)
    _say(axes, at + WAY_S, text, colour, marker)


def _say(axes: Any, at: float, text: str, colour: str, marker: str) -> None:
    draw_mark(axes, at, STORAGE_LANE, text, colour, marker)


if __name__ == "__main__":
    write_figure(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURE)
