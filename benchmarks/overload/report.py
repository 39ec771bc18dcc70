"""From what was measured to tables."""

from typing import Final

from benchmarks.common.tables import Table, figure
from benchmarks.longrun.histogram import Histogram
from benchmarks.overload.measuring import FLOOD, Overload

RENEWAL_P99_S: Final = 0.020
MB: Final = 1e-6


def tables(result: Overload) -> list[Table]:
    """Targets, and how long everything took."""
    return [_target_table(result), _times(result), _counts(result)]


def _target_table(result: Overload) -> Table:
    flood = result.phase(FLOOD)
    rows = []
    if flood is not None and len(flood.renewals):
        p99_s = flood.renewals.quantile(0.99)
        shown = f"{figure(1e3 * p99_s)} ms"
        rows.append(["renewal, p99", "under 20 ms", shown, _yes(p99_s < RENEWAL_P99_S)])
        rows.append(["leases lost", "0", f"{result.lost:,}", _yes(not result.lost)])
        excess = result.written - result.acknowledged
        is_all = 0 <= excess <= result.unanswered
        shown = f"{result.acknowledged:,} acknowledged, {result.written:,} written"
        rows.append(["Puts acknowledged and lost", "0", shown, _yes(is_all)])
        others = sum(result.other_failures.values())
        rows.append(["failures other than refusals", "0", f"{others:,}", _yes(not others)])
        well = result.recovered_s
        shown = "not" if well is None else f"after {figure(well)} s"
        rows.append(["recovers without intervention", "yes", shown, _yes(well is not None)])
    offered = (
        f"{result.offered_per_s:,.0f} Puts a second were offered, twice the "
        f"{result.sustainable_per_s:,.0f} that were sustainable before, regardless of responses"
    )
    kept = f"{result.leases:,} leases were kept on long streams"
    note = "; ".join([offered, kept, *result.missing])
    return Table("Targets", ["", "target", "measured", "reached"], rows, note)


def _yes(reached: bool) -> str:
    return "yes" if reached else "NO"


def _times(result: Overload) -> Table:
    rows = []
    for phase in result.phases:
        for what, histogram in (
            ("renewals", phase.renewals),
            ("reads of an unchanged key", phase.reads),
            ("executed Puts", phase.puts),
            ("refused Puts", phase.refusals),
        ):
            if len(histogram):
                rows.append([phase.name, what, f"{len(histogram):,}", *_quantiles(histogram)])
    headings = ["", "", "number", "p50", "p90", "p99", "p99.9", "longest"]
    note = "counted from when each was due; whole seconds of each phase"
    return Table("Latency, ms", headings, rows, note)


def _quantiles(histogram: Histogram) -> list[str]:
    values = [histogram.quantile(each) for each in (0.5, 0.9, 0.99, 0.999)]
    return [figure(1e3 * value) for value in (*values, histogram.max_s)]


def _counts(result: Overload) -> Table:
    flood = result.phase(FLOOD)
    seconds = flood.seconds if flood is not None else 0.0
    rates = [
        ("sustainable before, Puts a second", result.sustainable_per_s),
        ("offered, Puts a second", result.offered_per_s),
        ("executed, per second of the flood", result.acknowledged / seconds if seconds else 0.0),
        ("refused, per second of the flood", result.refused / seconds if seconds else 0.0),
        ("without a response", result.unanswered),
        ("sustainable afterwards, Puts a second", result.after_per_s),
        ("renewals without a response before the next was due", result.unanswered_renewals),
        ("memory of the server before, MB", result.quiet_bytes * MB),
        ("memory of the server at most, MB", result.peak_bytes * MB),
        ("processors the server used during the flood", result.server_cores),
    ]
    return Table("The flood", ["", "measured"], [[name, figure(value)] for name, value in rates])
