"""The parts of the benchmark, in order. A failed part is reported as missing; the rest goes on."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import MeasurementFailed, each_from_child, in_child
from benchmarks.common.progress import tell
from benchmarks.common.tables import figure
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.estates import prepare_start, time_start, weigh
from benchmarks.etcd.expiry import cell_of, measure_expiry
from benchmarks.etcd.latency import CASES_OF_LATENCY, measure_latency
from benchmarks.etcd.samples import (
    EXPIRY,
    LATENCY,
    MEMORY,
    P99_MS,
    PER_CPU,
    RATE,
    START,
    THROUGHPUT,
    Cell,
    Figures,
    Pair,
)
from benchmarks.etcd.scale import Scale
from benchmarks.etcd.servers import ETCD, OURS, CannotStart, Server, running
from benchmarks.etcd.throughput import measure_case
from benchmarks.etcd.workloads import CASES, Unverified

BOTH: Final = (ETCD, OURS)
FAILURES: Final = (MeasurementFailed, CannotStart, LoadFailed, Unverified, OSError)
SPARE_S: Final = 40.0
"""For what a measurement does before its first pair and after its last one."""

Cells = dict[Cell, list[Pair]]


@dataclass(slots=True)
class Run:
    """One run: what was measured so far, and what could not be."""

    base: Path
    scale: Scale
    servers: Sequence[str] = BOTH
    cells: Cells = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def measure(self, part: str, cases: Iterable[str]) -> None:
        """Measure one part."""
        if part == THROUGHPUT:
            for name in cases:
                self._in_slices(CASES[name].title, partial(self._throughput, name))
        elif part == LATENCY and ETCD in self.servers:
            for name in CASES_OF_LATENCY:
                self._in_slices(f"latency of {CASES[name].title}", partial(self._latency, name))
        elif part == EXPIRY:
            self._alternate(part, cell_of(self.scale.ending), self._expiry)
        elif part == MEMORY:
            self._alternate(part, Cell(MEMORY, f"{self.scale.weighed:,} leases"), self._memory)
        elif part == START:
            self._attempt(part, self._start)

    # In slices, on two servers that live.

    def _in_slices(
        self, what: str, pairs: Callable[[list[Server]], Iterator[tuple[Cell, Pair]]]
    ) -> None:
        def measure() -> None:
            with self._directory() as directory, ExitStack() as stack:
                servers = [stack.enter_context(running(name, directory)) for name in self.servers]
                for cell, pair in pairs(servers):
                    self._add(cell, pair)

        tell(what)
        self._attempt(what, measure)

    def _throughput(self, name: str, servers: list[Server]) -> Iterator[tuple[Cell, Pair]]:
        scale = self.scale
        return each_from_child(
            scale.throughput_s + SPARE_S,
            measure_case,
            name,
            servers,
            pairs=scale.pairs,
            seconds=scale.slice_s,
            most_s=scale.throughput_s,
        )

    def _latency(self, name: str, servers: list[Server]) -> Iterator[tuple[Cell, Pair]]:
        scale = self.scale
        return each_from_child(
            scale.latency_s + SPARE_S,
            measure_latency,
            name,
            servers,
            pairs=scale.paced_pairs,
            seconds=scale.paced_s,
            most_s=scale.latency_s,
        )

    # One server after the other, each fresh.

    def _alternate(
        self, part: str, cell: Cell, measure: Callable[[], Iterator[dict[str, Figures]]]
    ) -> None:
        def collect() -> None:
            for figures in measure():
                self._add(cell, Pair(figures))

        self._attempt(part, collect)

    def _expiry(self) -> Iterator[dict[str, Figures]]:
        scale = self.scale

        def end(server: Server) -> Figures:
            return in_child(
                scale.limit_s,
                measure_expiry,
                server,
                scale.ending,
                scale.ending_ttl_s,
                scale.limit_s / 2,
            )

        return self._fresh_rounds(EXPIRY, scale.endings, scale.expiry_s, end)

    def _memory(self) -> Iterator[dict[str, Figures]]:
        scale = self.scale

        def grow(server: Server) -> Figures:
            return weigh(server, scale.weighed, scale.limit_s)

        return self._fresh_rounds(MEMORY, scale.weighings, scale.memory_s, grow)

    def _fresh_rounds(
        self, part: str, rounds: int, most_s: float, measure: Callable[[Server], Figures]
    ) -> Iterator[dict[str, Figures]]:
        for number in rounds_within(rounds, most_s):
            figures = {}
            for name in self.servers if number % 2 == 0 else self.servers[::-1]:
                tell(f"{part}, round {number + 1}: {name}")
                with self._directory() as directory, running(name, directory) as server:
                    figures[name] = measure(server)
            yield figures

    def _start(self) -> None:
        scale = self.scale
        cell = Cell(START, f"{scale.stored:,} leases on disk")
        with self._directory() as directory:
            places = []
            for name in self.servers:
                tell(f"{START}: {scale.stored:,} leases on {name}")
                places.append(prepare_start(name, directory, scale.stored, scale.limit_s))
            for number in rounds_within(scale.starts, scale.start_s):
                order = places if number % 2 == 0 else places[::-1]
                figures = {
                    place.name: time_start(place, scale.stored, scale.start_s) for place in order
                }
                self._add(cell, Pair(figures))

    # What all have in common.

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(
            dir=self.base, prefix="bench-etcd-", ignore_cleanup_errors=True
        ) as directory:
            yield Path(directory)

    def _add(self, cell: Cell, pair: Pair) -> None:
        self.cells.setdefault(cell, []).append(pair)
        shown = {
            server: ", ".join(
                f"{name} {figure(value)}"
                for name, value in figures.items()
                if name in (RATE, PER_CPU, P99_MS) or cell.part not in (THROUGHPUT, LATENCY)
            )
            for server, figures in pair.figures.items()
        }
        tell(f"  {cell.what} {cell.headers}: {shown}")

    def _attempt(self, what: str, measure: Callable[[], None]) -> None:
        try:
            measure()
        except FAILURES as error:
            tell(f"{what} failed: {error}")
            last = (str(error).strip() or repr(error)).splitlines()[-1]
            self.missing.append(f"{what} could not be measured to its end: {last}")
