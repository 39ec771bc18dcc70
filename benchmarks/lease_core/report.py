"""From measurements to tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common.stats import Spread, differences, ratios
from benchmarks.common.tables import Table, count, figure, spread
from benchmarks.lease_core.manager import Managed
from benchmarks.lease_core.mass_expiry import MassExpiry
from benchmarks.lease_core.memory import BytesPerLease, ChurnSample
from benchmarks.lease_core.operations import (
    CANCEL,
    COLLECTOR,
    CONTROLS,
    EXPIRE,
    GRANT,
    RENEW,
    RENEW_ALL,
    RENEW_IN_ORDER,
    SizeResult,
)
from benchmarks.lease_core.profile import Profiled
from benchmarks.lease_core.rebuild import Rebuild

OPERATIONS = (RENEW, RENEW_IN_ORDER, RENEW_ALL, GRANT, CANCEL, EXPIRE)


@dataclass(frozen=True, slots=True)
class Results:
    """All that one run measured."""

    machine: str
    sizes: list[SizeResult]
    bytes_per_lease: list[BytesPerLease]
    churn: list[ChurnSample]
    expiry_count: int
    expiry_on: list[MassExpiry]
    expiry_off: list[MassExpiry]
    rebuild: Rebuild
    manager: Managed
    profiles: list[Profiled]


def tables(results: Results) -> list[Table]:
    """Every table of the report, in order."""
    return [
        _costs(results.sizes),
        _controls(results.sizes),
        _growth(results.sizes),
        _collector(results.sizes),
        _bytes(results.bytes_per_lease, results.sizes),
        _churn(results.churn),
        _mass_expiry(results),
        _rebuild(results.rebuild),
        _manager(results.manager),
        _profiles(results.profiles),
    ]


def series(result: SizeResult, name: str, *, collector_on: bool) -> list[float]:
    """One operation at one size, round by round."""
    return [each[name] for each in (result.on if collector_on else result.off)]


def _headings(sizes: Sequence[SizeResult], first: str) -> list[str]:
    base = sizes[0]
    return [
        first,
        *(f"{count(each.size)}, µs" for each in sizes),
        *(f"{count(each.size)} / {count(base.size)}" for each in sizes[1:]),
    ]


def _cost_row(
    label: str, name: str, sizes: Sequence[SizeResult], *, collector_on: bool
) -> list[str]:
    all_series = [series(each, name, collector_on=collector_on) for each in sizes]
    return [
        label,
        *(spread(Spread.of(values).scaled(1e-3)) for values in all_series),
        *(spread(ratios(values, all_series[0])) for values in all_series[1:]),
    ]


def _costs(sizes: Sequence[SizeResult]) -> Table:
    rows = [
        _cost_row(f"{name}, collector {state}", name, sizes, collector_on=state == "on")
        for name in OPERATIONS
        for state in ("on", "off")
    ]
    note = (
        "processor time per operation, by number of live leases; median of "
        f"{len(sizes[0].on)} rounds and quartiles; leases in random order, but for the neighbours"
    )
    return Table("Cost per operation", _headings(sizes, "operation"), rows, note)


def _controls(sizes: Sequence[SizeResult]) -> Table:
    rows = [
        _cost_row(f"{control} (for {' and '.join(names)})", control, sizes, collector_on=False)
        for control, names in _by_control().items()
    ]
    note = (
        "the least that any program does for the same purpose, on as many plain objects in the "
        "same order, in the same rounds with the collector off"
    )
    return Table("The controls", _headings(sizes, "control"), rows, note)


def _by_control() -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for name, control in CONTROLS.items():
        result.setdefault(control, []).append(name.partition(",")[0])
    return result


def _growth(sizes: Sequence[SizeResult]) -> Table:
    base, largest = sizes[0], sizes[-1]

    def grown(name: str, *, collector_on: bool) -> Spread:
        bases = series(base, name, collector_on=collector_on)
        return differences(series(largest, name, collector_on=collector_on), bases)

    rows = []
    for name in OPERATIONS:
        control = CONTROLS.get(name)
        cells = [
            spread(grown(name, collector_on=True).scaled(1e-3)),
            spread(grown(name, collector_on=False).scaled(1e-3)),
            "-" if control is None else spread(grown(control, collector_on=False).scaled(1e-3)),
        ]
        rows.append([name, *cells])
    title = f"Additional cost from {count(base.size)} to {count(largest.size)} live leases, µs"
    headings = ["operation", "collector on", "collector off", "its control"]
    return Table(title, headings, rows, "round by round; median and quartiles")


def _collector(sizes: Sequence[SizeResult]) -> Table:
    rows = [
        [
            count(each.size),
            figure(each.built.grant_ns / 1e3),
            figure(each.built.collector_ns / 1e3),
            spread(Spread.of(series(each, COLLECTOR, collector_on=True)).scaled(1e-3)),
            figure(each.collections.normal_ns / 1e6),
            figure(each.collections.frozen_ns / 1e6),
        ]
        for each in sizes
    ]
    headings = [
        "leases",
        "grant while growing, µs",
        "of it collector, µs",
        "collector per grant and cancel, µs",
        "full collection, ms",
        "after gc.freeze, ms",
    ]
    return Table("The collector", headings, rows, "a full collection stops the whole process")


def _bytes(measured: Sequence[BytesPerLease], sizes: Sequence[SizeResult]) -> Table:
    resident = {each.size: each.built.resident_bytes for each in sizes}
    rows = []
    for size in sorted({each.size for each in measured} | set(resident)):
        traced = next((each for each in measured if each.size == size), None)
        grown = resident.get(size)
        rows.append(
            [
                count(size),
                *(
                    ["-", "-", "-"]
                    if traced is None
                    else [figure(traced.landlord), figure(traced.holder), figure(traced.manager)]
                ),
                "-" if grown is None else figure(grown),
            ]
        )
    parts = ", ".join(f"{name} {figure(size)}" for name, size in measured[-1].by_module.items())
    headings = [
        "leases",
        "at the landlord",
        "holder's object",
        "managed",
        "resident, landlord only",
    ]
    note = (
        "the first three as allocated (tracemalloc), each on top of the one before it; the last "
        f"from the operating system; the landlord's part by module that allocates: {parts}"
    )
    return Table("Bytes per lease", headings, rows, note)


def _churn(samples: Sequence[ChurnSample]) -> Table:
    rows = [
        [
            f"{sample.done:,}",
            f"{sample.live:,}",
            figure(sample.live_bytes / 1e6),
            f"{sample.live_blocks:,}",
            f"{sample.queue_min:,}..{sample.queue_max:,}",
        ]
        for sample in samples[:: max(1, len(samples) // 10)]
    ]
    headings = ["grants and cancels", "live leases", "resident, MB", "blocks", "queue entries"]
    peak = max(samples, key=lambda sample: sample.live_bytes)
    note = (
        "relative to the state before the first lease; blocks are those of Python's allocator; of "
        f"{len(samples)} samples the largest: {figure(peak.live_bytes / 1e6)} MB after "
        f"{peak.done:,}, {max(each.live_blocks for each in samples):,} blocks, "
        f"{max(each.queue_max for each in samples):,} queue entries"
    )
    return Table("Memory over grants and cancels at long terms", headings, rows, note)


def _mass_expiry(results: Results) -> Table:
    def row(label: str, state: str, runs: Sequence[MassExpiry]) -> list[str]:
        def cell(name: str) -> str:
            return spread(Spread.of([getattr(run, name) * 1e3 for run in runs]))

        names = ["total_s", "cpu_s", "late_p50_s", "late_p99_s", "busy_max_s", "pause_max_s"]
        return [f"{label} {state}", *map(cell, [*names, "quiet_pause_max_s", "collector_max_s"])]

    rows = [
        row("collector", "on", results.expiry_on),
        row("collector", "off", results.expiry_off),
    ]
    headings = [
        "",
        "total = latest",
        "processor",
        "lateness p50",
        "lateness p99",
        "longest turn",
        "longest pause",
        "when idle",
        "longest collection",
    ]
    longest = max(run.pause_max_s for run in [*results.expiry_on, *results.expiry_off])
    title = f"{results.expiry_count:,} leases that end at one instant, ms"
    note = (
        f"{len(results.expiry_on)} runs each, median and quartiles; a turn of the event loop in "
        "processor time, the rest in real time, including delays by the scheduler, which also "
        f"pause an idle loop; the longest pause of all runs {figure(longest * 1e3)} ms"
    )
    return Table(title, headings, rows, note)


def _rebuild(rebuild: Rebuild) -> Table:
    rows = [
        [
            calls.name,
            f"{calls.count:,}",
            figure(calls.median_ns / 1e3),
            figure(calls.p999_ns / 1e3),
            figure(calls.max_ns / 1e3),
            figure(calls.max_wall_ns / 1e3),
        ]
        for calls in rebuild.calls
    ]
    headings = ["call", "calls", "median", "p99.9", "longest", "longest, real time"]
    title = f"Single calls while the queue is rebuilt at {count(rebuild.size)} live leases, µs"
    note = (
        f"processor time but for the last column; collector off; longest queue "
        f"{rebuild.longest_queue:,} entries; the last row is the noise of clock and scheduler"
    )
    return Table(title, headings, rows, note)


def _manager(managed: Managed) -> Table:
    rows = [
        [
            str(number),
            f"{minute.calls:,}",
            f"{minute.leases:,}",
            f"{minute.leases / minute.calls if minute.calls else 0.0:,.0f}",
            f"{minute.largest:,}",
            figure(minute.cpu_s),
            figure(minute.turn_max_s * 1e3),
        ]
        for number, minute in enumerate(managed.minutes, start=1)
    ]
    headings = [
        "virtual minute",
        "calls",
        "renewals",
        "leases per call",
        "largest call",
        "processor s",
        "longest turn, ms",
    ]
    title = f"RenewalManager with {managed.leases:,} leases of 60 s"
    note = (
        f"landlord and manager in one process; granted over the minute before the first; "
        f"{managed.lost} leases lost"
    )
    return Table(title, headings, rows, note)


def _profiles(profiles: Sequence[Profiled]) -> Table:
    rows = [
        [each.operation, ", ".join(f"{name} {share:.0%}" for name, share in each.parts)]
        for each in profiles
    ]
    note = (
        "own time of the largest parts by cProfile, which overstates the cost of Python functions"
    )
    return Table("Where the time goes", ["operation", "functions"], rows, note)
