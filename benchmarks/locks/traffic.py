"""Consistency traffic: Leasehold's messages, and Gray and Cheriton's model."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.common.children import in_child
from benchmarks.common.progress import tell
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, figure
from benchmarks.locks.model import Workload, messages_per_s, share_of_no_lease
from benchmarks.locks.scale import Scale
from benchmarks.transport.report import NOTHING
from benchmarks.transport.samples import Cell, Cells, Figures, Run, spread_of

PART: Final = "traffic"
SHARING: Final = (1, 10)
OURS: Final = "ours"
MESSAGES: Final = "messages_per_s"
TERM_S: Final = "term_s"
READS: Final = "reads"


def load_of(sharing: int) -> Workload:
    """The V system's rates, where each datum is in so many caches."""
    return Workload(sharing=sharing, clients=sharing)


def name_of(sharing: int, term_s: float) -> str:
    """What a cell is called."""
    return f"S = {sharing}, {term_s:g} s"


def measured(cells: Cells, sharing: int) -> dict[float, Spread]:
    """Messages in a second, by term."""
    found = {}
    for cell, samples in cells.items():
        if cell.part == PART and samples and cell.what.startswith(f"S = {sharing}, "):
            found[samples[0].figures[TERM_S]] = spread_of(samples, MESSAGES)
    return dict(sorted(found.items()))


def shares(cells: Cells, sharing: int) -> dict[float, Spread]:
    """The same as shares of what there is with no lease at all."""
    found = measured(cells, sharing)
    base = found.get(0.0)
    if base is None:
        return {}
    return {term_s: each.scaled(1 / base.median) for term_s, each in found.items()}


def share_at(cells: Cells, term_s: float) -> Spread | None:
    """The share at this term, of what only one client uses."""
    return shares(cells, 1).get(term_s)


def tables(cells: Cells) -> Sequence[Table]:
    """One for each degree of sharing."""
    return [_table(cells, sharing) for sharing in SHARING]


def _table(cells: Cells, sharing: int) -> Table:
    load, ours = load_of(sharing), shares(cells, sharing)
    rows = [
        [
            f"{term_s:g} s" if term_s else "none",
            figure(messages_per_s(load, term_s)),
            f"{share_of_no_lease(load, term_s):.1%}",
            figure(each.median),
            f"{ours[term_s].median:.1%}" if term_s in ours else NOTHING,
        ]
        for term_s, each in measured(cells, sharing).items()
    ]
    headings = ["term", "model, messages/s", "of no lease", "ours, messages/s", "of no lease"]
    note = (
        f"R = {load.reads_per_s:g} and W = {load.writes_per_s:g} in a second for each of "
        f"{load.clients} clients, each datum in {sharing} caches; messages of both sides"
    )
    title = f"Consistency traffic, S = {sharing}"
    return Table(title, headings, rows, note)


def measure_traffic(run: Run, scale: Scale) -> None:
    """Have the workload run in virtual time, a run for each term and degree of sharing."""
    for sharing in SHARING:
        tell(f"consistency traffic: {sharing} sharing")
        for term_s in scale.terms_s:
            cell = Cell(PART, name_of(sharing, term_s), OURS)
            measure = partial(in_child, scale.limit_s, figures, sharing, term_s, scale.traffic_s)
            run.take(0, cell, measure)


def figures(sharing: int, term_s: float, seconds: float) -> Figures:
    """Run the workload. In a process of its own."""
    from benchmarks.locks.simulated import simulate  # noqa: PLC0415  tables need no simulation

    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it ends in the middle of everything
    done = simulate(load_of(sharing), term_s, seconds / sharing)
    return {MESSAGES: done.messages / done.seconds, TERM_S: term_s, READS: done.reads}
