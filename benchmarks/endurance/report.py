"""From what was measured to tables."""

from typing import Final

from benchmarks.common.tables import Table, figure
from benchmarks.endurance.measuring import WARM_SHARE, Endurance
from benchmarks.longrun.histogram import Histogram, Seconds

FLAT_SHARE_PER_MINUTE: Final = 0.005
"""Memory that grows by less of itself in a minute is called flat."""

MB: Final = 1e-6
EVER: Final = (0.0, float("inf"))


def tables(result: Endurance) -> list[Table]:
    """Targets, how long everything took, and memory over time."""
    made = [_target_table(result), _times(result), _memory(result)]
    return [table for table in made if table.rows]


def _target_table(result: Endurance) -> Table:
    rows = []
    held, watched, slope = result.held, result.watched, result.slope()
    if held is not None:
        gone = 0 if result.leases_left is None else held.leases - result.leases_left
        lost = max(len(set(held.lost)), gone)
        shown = f"{lost:,} of {held.leases:,}"
        rows.append(["leases lost", "0", shown, _yes(is_so=not lost and not held.failure)])
        late = held.overtaken + held.unanswered
        rows.append(["renewals without a response", "0", f"{late:,}", _yes(is_so=not late)])
    if watched is not None:
        missed = watched.expected - watched.seen
        is_so = not missed and not watched.wrong and not watched.failure and watched.seen > 0
        shown = f"{missed:,} missing, {watched.wrong:,} out of order, of {watched.expected:,}"
        rows.append(["events at each watcher", "all, in order", shown, _yes(is_so=is_so)])
    if slope is not None and result.memory:
        per_minute = 60.0 * slope / result.memory[-1][1]
        shown = f"{per_minute:+.2%} in a minute"
        is_so = per_minute < FLAT_SHARE_PER_MINUTE
        rows.append(["memory", "flat: under +0.5 % in a minute", shown, _yes(is_so=is_so)])
    scale = result.scale
    note = (
        f"{scale.connections + scale.watch_connections:,} connections, "
        f"{scale.connections * scale.leases:,} leases of {scale.ttl_s} s, each renewed three times "
        f"in its term, {scale.watch_connections * scale.watch_streams:,} watchers, "
        f"{scale.puts_per_s:,.0f} Puts a second, history compacted every "
        f"{scale.compact_every_s:.0f} s, for {scale.seconds:,.0f} s"
    )
    headings = ["", "target", "measured", "reached"]
    return Table("Targets", headings, rows, "; ".join([note, *result.missing]))


def _yes(*, is_so: bool) -> str:
    return "yes" if is_so else "NO"


def _times(result: Endurance) -> Table:
    rows = []
    if result.held is not None:
        rows.append(["renewals", *_quantiles(result.held.renewals)])
    if result.watched is not None:
        rows.append(["events, from when their Put was due", *_quantiles(result.watched.events)])
    headings = ["", "number", "p50", "p99", "p99.9", "longest"]
    note = "counted from when each was due; all renewals of a connection are due at the same time"
    return Table("Latency, ms", headings, rows, note)


def _quantiles(seconds: Seconds) -> list[str]:
    whole: Histogram = seconds.between(*EVER)
    values = [whole.quantile(each) for each in (0.5, 0.99, 0.999)]
    return [f"{len(whole):,}", *(figure(1e3 * value) for value in (*values, whole.max_s))]


def _memory(result: Endurance) -> Table:
    if not result.memory:
        return Table("Memory", [], [])
    steps = 6
    at = [result.memory[(len(result.memory) - 1) * step // steps] for step in range(steps + 1)]
    headings = ["after", *(f"{seconds:.0f} s" for seconds, _ in at)]
    rows = [["MB", *(figure(size * MB) for _, size in at)]]
    note = (
        f"the slope is that of the line that fits best, without the first {WARM_SHARE:.0%} of the "
        f"time; the server used {figure(result.server_cores)} of a processor"
    )
    return Table("Memory of the server", headings, rows, note)
