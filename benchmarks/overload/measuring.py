"""An overload in phases: quiet, flood, recovery; leases are kept and a key is read all the time."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final

from benchmarks.common.children import Later, MeasurementFailed, in_child
from benchmarks.common.processes import cpu_s_of, resident_bytes_of
from benchmarks.common.progress import tell
from benchmarks.etcd import messages
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.expiry import make_leases
from benchmarks.etcd.load import put_load
from benchmarks.etcd.servers import OURS, Server, running
from benchmarks.etcd.workloads import CASES, PREFIX
from benchmarks.longrun.flood import DRAIN_S, FloodResult, run_flood
from benchmarks.longrun.histogram import Histogram
from benchmarks.longrun.keepers import Keep, KeepersResult, keep, put_read_key, still_there

QUIET, FLOOD, RECOVERY = "before", "at twice the load", "afterwards"
TIMES: Final = 2.0
"""How many times the sustainable load is offered."""

SPARE_S: Final = 30.0
LOOK_S: Final = 0.5
WELL_S: Final = 0.1
"""A Put that is answered within this time is as good as before."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of one run. Times are seconds."""

    calibration_s: float
    quiet_s: float
    flood_s: float
    recovery_s: float
    connections: int
    leases: int
    ttl_s: int
    reads_per_s: float
    flood_connections: int

    @property
    def most_s(self) -> float:
        """The time limit of a run."""
        phases_s = self.quiet_s + self.flood_s + self.recovery_s
        return 2 * self.calibration_s + phases_s + 8 * SPARE_S


@dataclass(slots=True)
class Phase:
    """How long renewals, reads and Puts took, and what became of them."""

    name: str
    seconds: float
    renewals: Histogram
    reads: Histogram
    puts: Histogram = field(default_factory=Histogram)
    refusals: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Overload:
    """All that one run measured."""

    machine: str
    sustainable_per_s: float = 0.0
    offered_per_s: float = 0.0
    after_per_s: float = 0.0
    """What was sustainable afterwards."""
    recovered_s: float | None = None
    """From the end of the flood to the first Put with an immediate response."""
    phases: list[Phase] = field(default_factory=list)
    leases: int = 0
    lost: int = 0
    unanswered_renewals: int = 0
    acknowledged: int = 0
    refused: int = 0
    unanswered: int = 0
    other_failures: dict[str, int] = field(default_factory=dict)
    written: int = 0
    """By how much the versions of the keys have grown."""
    quiet_bytes: int = 0
    peak_bytes: int = 0
    server_cores: float = 0.0
    """Processor time of the server in a second of the flood."""
    missing: list[str] = field(default_factory=list)

    def phase(self, name: str) -> Phase | None:
        """What was measured in a phase, if it came to it."""
        return next((each for each in self.phases if each.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """The same in plain lists and dicts."""
        plain = asdict(self)
        for phase in plain["phases"]:
            for name, value in phase.items():
                if isinstance(value, Histogram):
                    phase[name] = {"max_s": value.max_s, "counts": sorted(value.counts.items())}
        return plain


def measure(result: Overload, scale: Scale, base: Path) -> None:
    """Measure into `result`, which keeps partial results after a failure."""
    try:
        with (
            TemporaryDirectory(dir=base, prefix="bench-overload-", ignore_cleanup_errors=True) as d,
            running(OURS, Path(d)) as server,
        ):
            _measure(result, scale, server)
    except (MeasurementFailed, LoadFailed, OSError) as error:
        tell(f"failed: {error}")
        result.missing.append((str(error).strip() or repr(error)).splitlines()[-1])


def _measure(result: Overload, scale: Scale, server: Server) -> None:
    tell("sustainable load")
    result.sustainable_per_s = _sustainable(server, scale)
    result.offered_per_s = TIMES * result.sustainable_per_s
    result.leases = scale.connections * scale.leases
    control = Control(server.port)
    put_read_key(control)
    in_child(SPARE_S, make_all_leases, server.port, result.leases, scale.ttl_s)
    held_s = scale.quiet_s + scale.flood_s + DRAIN_S + scale.recovery_s
    what = Keep(
        server.port, scale.connections, scale.leases, scale.ttl_s, held_s, scale.reads_per_s
    )
    keepers, over_at = Later(keep, what), perf_counter() + held_s + SPARE_S
    try:
        tell(f"{result.leases} leases are kept")
        sleep(scale.quiet_s)
        began = perf_counter()
        result.quiet_bytes = resident_bytes_of(server.pid)
        flooded = _flood(result, scale, server)
        result.recovered_s = _recovered(server.port, flooded.ended, scale.recovery_s)
    finally:
        tell("waiting for the holders of leases")
        held = keepers.result(max(SPARE_S, over_at - perf_counter()))
    _note(result, held, flooded, (began - scale.quiet_s, began), scale)
    result.lost = max(result.lost, result.leases - still_there(control))
    result.written = written(control)
    tell("sustainable load once more")
    result.after_per_s = _sustainable(server, scale)


def make_all_leases(port: int, leases: int, ttl_s: int) -> None:
    """Have leases with the numbers from 1 on."""
    make_leases(port, range(1, leases + 1), ttl_s, with_keys=False)


def _sustainable(server: Server, scale: Scale) -> float:
    limit_s = scale.calibration_s + 2 * SPARE_S
    seconds = scale.calibration_s
    return in_child(limit_s, put_load, server.port, CASES["put"], seconds=seconds).calls_per_s


def _flood(result: Overload, scale: Scale, server: Server) -> FloodResult:
    tell(f"{result.offered_per_s:,.0f} Puts a second for {scale.flood_s:g} s")
    flood = Later(
        run_flood, server.port, result.offered_per_s, scale.flood_s, scale.flood_connections
    )
    began, used_s = perf_counter(), cpu_s_of(server.pid)
    while perf_counter() < began + scale.flood_s:
        sleep(LOOK_S)
        result.peak_bytes = max(result.peak_bytes, resident_bytes_of(server.pid))
    result.server_cores = (cpu_s_of(server.pid) - used_s) / (perf_counter() - began)
    return flood.result(DRAIN_S + 2 * SPARE_S)


def _recovered(port: int, ended: float, most_s: float) -> float | None:
    """How long after the flood a Put gets an immediate response again."""
    control = Control(port)
    while perf_counter() < ended + most_s + DRAIN_S:
        began = perf_counter()
        control.call(messages.PUT, messages.put_request(b"recovery", b""))
        now = perf_counter()
        if now - began < WELL_S:
            control.close()
            return max(0.0, began - ended)
    return None


def _note(
    result: Overload,
    held: KeepersResult,
    flooded: FloodResult,
    quiet: tuple[float, float],
    scale: Scale,
) -> None:
    result.lost = len(set(held.lost))
    result.unanswered_renewals = held.unanswered + held.overtaken
    if held.failure:
        result.missing.append(f"the leases were not kept to the end: {held.failure}")
    result.acknowledged, result.refused = flooded.acknowledged, flooded.refused
    result.unanswered, result.other_failures = flooded.unanswered, flooded.others
    flood = (flooded.began, flooded.ended)
    after = (flooded.ended + (result.recovered_s or 0.0), held.began + scale.most_s)
    for name, (begin, end) in {QUIET: quiet, FLOOD: flood, RECOVERY: after}.items():
        result.phases.append(
            Phase(
                name,
                end - begin,
                held.renewals.between(begin, end),
                held.reads.between(begin, end),
                flooded.puts.between(begin, end),
                flooded.refusals.between(begin, end),
            )
        )


def written(control: Control) -> int:
    """How often the keys of the flood were written."""
    request = messages.range_request(PREFIX, messages.prefix_end(PREFIX))
    found = messages.key_values(control.call(messages.RANGE, request))
    return sum(version for key, version, _ in found if key.startswith(PREFIX + b"flood/"))
