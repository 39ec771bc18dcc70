"""One server, the holders of its leases, its watchers, and its memory second by second."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final

from benchmarks.common.children import Later, MeasurementFailed, in_child
from benchmarks.common.processes import cpu_s_of, resident_bytes_of
from benchmarks.common.progress import tell
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.estates import CHUNK
from benchmarks.etcd.expiry import make_leases
from benchmarks.etcd.servers import OURS, CannotStart, Server, running
from benchmarks.longrun.keepers import Keep, KeepersResult, keep, still_there
from benchmarks.longrun.watching import Watching, WatchingResult, watch

WARM_SHARE: Final = 1 / 3
"""How much of the time memory may take to find its level: that part is not in the slope."""

GRANT_S: Final = 180.0
CONNECT_S: Final = 120.0
SPARE_S: Final = 60.0
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of one run. Times are seconds."""

    seconds: float
    connections: int
    leases: int
    """On each connection."""
    ttl_s: int
    watch_connections: int
    watch_streams: int
    keys: int
    puts_per_s: float
    compact_every_s: float = 60.0

    @property
    def most_s(self) -> float:
        """The time limit of a run."""
        return self.seconds + GRANT_S + 2 * CONNECT_S + 2 * SPARE_S


@dataclass(slots=True)
class Endurance:
    """All that one run measured."""

    machine: str
    scale: Scale
    held: KeepersResult | None = None
    watched: WatchingResult | None = None
    leases_left: int | None = None
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the beginning, and bytes."""
    server_cores: float = 0.0
    missing: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """What there is in plain lists and dicts."""
        held, watched = self.held, self.watched
        return {
            "machine": self.machine,
            "memory": self.memory,
            "missing": self.missing,
            "leases": None if held is None else held.leases,
            "lost": None if held is None else len(set(held.lost)),
            "events": None if watched is None else [watched.expected, watched.seen, watched.wrong],
        }

    def slope(self) -> float | None:
        """By how many bytes memory grows in a second, once it has found its level."""
        first = WARM_SHARE * self.scale.seconds
        return slope([sample for sample in self.memory if sample[0] >= first])


def slope(samples: Sequence[tuple[float, float]]) -> float | None:
    """The steepness of the line that fits best."""
    if len(samples) < 2:
        return None
    middle_x = sum(x for x, _ in samples) / len(samples)
    middle_y = sum(y for _, y in samples) / len(samples)
    width = sum((x - middle_x) ** 2 for x, _ in samples)
    return sum((x - middle_x) * (y - middle_y) for x, y in samples) / width if width else None


def measure(result: Endurance, base: Path) -> None:
    """Measure into `result`, which keeps partial results after a failure."""
    try:
        with (
            TemporaryDirectory(
                dir=base, prefix="bench-endurance-", ignore_cleanup_errors=True
            ) as d,
            running(OURS, Path(d)) as server,
        ):
            _measure(result, server)
    except (MeasurementFailed, LoadFailed, CannotStart, OSError) as error:
        tell(f"failed: {error}")
        result.missing.append((str(error).strip() or repr(error)).splitlines()[-1])


def make_all_leases(port: int, leases: int, ttl_s: int) -> None:
    """Have leases with the numbers from 1 on."""
    for first in range(1, leases + 1, CHUNK):
        make_leases(port, range(first, min(first + CHUNK, leases + 1)), ttl_s, with_keys=False)


def _measure(result: Endurance, server: Server) -> None:
    scale = result.scale
    what = Keep(server.port, scale.connections, scale.leases, scale.ttl_s, scale.seconds)
    watching = Watching(
        server.port,
        scale.watch_connections,
        scale.watch_streams,
        scale.keys,
        scale.puts_per_s,
        scale.seconds,
        scale.compact_every_s,
    )
    tell(f"{what.all:,} leases")
    in_child(GRANT_S, make_all_leases, server.port, what.all, scale.ttl_s)
    tell(f"{scale.connections:,} connections that keep them, {watching.watchers:,} watchers")
    keepers, watchers = Later(keep, what), Later(watch, watching)
    try:
        _look(result, server)
    finally:
        _collect(result, keepers, watchers)
    control = Control(server.port)
    result.leases_left = still_there(control)


def _look(result: Endurance, server: Server) -> None:
    """Note the memory of the server every second, as long as the load runs."""
    began, used_s = perf_counter(), cpu_s_of(server.pid)
    while (at := perf_counter() - began) < result.scale.seconds:
        result.memory.append((at, resident_bytes_of(server.pid)))
        if len(result.memory) % 60 == 0:
            tell(f"{at:.0f} s: {result.memory[-1][1] / 1e6:.0f} MB")
        sleep(LOOK_S)
    result.server_cores = (cpu_s_of(server.pid) - used_s) / (perf_counter() - began)


def _collect(
    result: Endurance, keepers: Later[KeepersResult], watchers: Later[WatchingResult]
) -> None:
    limit_s = CONNECT_S + SPARE_S
    try:
        result.held = keepers.result(limit_s)
    except MeasurementFailed as error:
        result.missing.append(f"the holders of leases: {error}")
    try:
        result.watched = watchers.result(limit_s)
    except MeasurementFailed as error:
        result.missing.append(f"the watchers: {error}")
    for who in (result.held, result.watched):
        if who is not None and who.failure:
            result.missing.append(f"{type(who).__name__}: {who.failure}")
