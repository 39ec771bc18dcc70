"""The longest single call while the expiry queue is rebuilt, at a large number of live leases."""

import asyncio
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns

from benchmarks.common.stats import quantile
from benchmarks.lease_core.collector import collector
from benchmarks.lease_core.estate import Estate, long_terms
from benchmarks.lease_core.inside import is_rebuilding, queue_of, table_bytes


@dataclass(frozen=True, slots=True)
class Calls:
    """How long the calls of one kind took, in nanoseconds of processor time."""

    name: str
    count: int
    median_ns: float
    p999_ns: float
    max_ns: float
    max_wall_ns: float
    """The longest in real time, with all that the scheduler did to it."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A full cycle: stale entries gather, then the queue is rebuilt."""

    size: int
    longest_queue: int
    calls: list[Calls]


class _Recorder:
    def __init__(self, name: str) -> None:
        self.name = name
        self.wall_ns: list[int] = []
        self.cpu_ns: list[int] = []

    def add(self, wall_ns: int, cpu_ns: int) -> None:
        self.wall_ns.append(wall_ns)
        self.cpu_ns.append(cpu_ns)

    def result(self) -> Calls:
        return Calls(
            self.name,
            len(self.wall_ns),
            quantile(self.cpu_ns, 0.5),
            quantile(self.cpu_ns, 0.999),
            max(self.cpu_ns),
            max(self.wall_ns),
        )


def measure_rebuild(size: int) -> Rebuild:
    """Cancel and grant at `size` live leases until the queue was rebuilt once."""
    return asyncio.run(_measure(size))


async def _measure(size: int) -> Rebuild:
    estate = Estate(size, with_control=False)
    with collector(on=False):
        return _cycle(estate)


def _cycle(estate: Estate) -> Rebuild:
    """Replace leases one by one. The collector is off: it is measured separately."""
    landlord, queue, cookies = estate.landlord, queue_of(estate.landlord), estate.cookies
    terms = long_terms(estate.rng, 2 * estate.size)
    quiet = _Recorder("cancel, between rebuilds"), _Recorder("grant, between rebuilds")
    busy = _Recorder("cancel, during a rebuild"), _Recorder("grant, during a rebuild")
    growing = _Recorder("grant in which the dict of leases grows")
    longest, seen, dict_bytes = 0, False, table_bytes(landlord)
    while terms and not (seen and not is_rebuilding(queue)):
        seen = seen or is_rebuilding(queue)
        cancelled, granted = busy if is_rebuilding(queue) else quiet
        number = estate.rng.randrange(len(cookies))
        cookie, term = cookies[number], terms.pop()
        wall_0, cpu_0 = perf_counter_ns(), thread_time_ns()
        landlord.cancel(cookie)
        cpu_1, wall_1 = thread_time_ns(), perf_counter_ns()
        cpu_2 = thread_time_ns()
        lease = landlord.grant(None, term)
        cpu_3, wall_3 = thread_time_ns(), perf_counter_ns()
        cancelled.add(wall_1 - wall_0, cpu_1 - cpu_0)
        grew = table_bytes(landlord) != dict_bytes
        (growing if grew else granted).add(wall_3 - wall_1, cpu_3 - cpu_2)
        dict_bytes = table_bytes(landlord)
        cookies[number] = lease.cookie
        longest = max(longest, len(queue))
    kinds = [*quiet, *busy, growing, _record_nothing(len(quiet[0].wall_ns))]
    return Rebuild(estate.size, longest, [kind.result() for kind in kinds if kind.wall_ns])


def _record_nothing(count: int) -> _Recorder:
    """The noise of clock and scheduler: as many measurements, of nothing."""
    nothing = _Recorder("no call at all")
    for _ in range(count):
        wall_0, cpu_0 = perf_counter_ns(), thread_time_ns()
        cpu_1, wall_1 = thread_time_ns(), perf_counter_ns()
        nothing.add(wall_1 - wall_0, cpu_1 - cpu_0)
    return nothing
