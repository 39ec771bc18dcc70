"""The parts of the benchmark, one after the other, each in processes of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import MeasurementFailed, in_child
from benchmarks.common.progress import tell
from benchmarks.engine.calls import measure_calls
from benchmarks.engine.estate import folded, history
from benchmarks.engine.expiry import measure_expiry
from benchmarks.engine.long_calls import (
    COMPACT,
    long_cells,
    measure_compaction,
    measure_long_calls,
)
from benchmarks.engine.memory import measure_memory
from benchmarks.engine.samples import MEMORY, PLACES, Cell, Cells
from benchmarks.engine.scale import Scale
from benchmarks.engine.start import measure_start
from benchmarks.engine.targets import is_collectors_fault
from benchmarks.engine.watches import measure_watches

CALLS, WATCHES, EXPIRY, WEIGHT = "calls", "watches", "expiry", "memory"
START, LONG, COMPACTION = "start", "long-calls", "compaction"
PARTS: Final = (CALLS, WATCHES, EXPIRY, WEIGHT, START, LONG, COMPACTION)


@dataclass(slots=True)
class Run:
    """One run: what was measured so far, and what could not be."""

    base: Path
    scale: Scale
    cells: Cells = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    _began_s: float = field(default_factory=monotonic)
    _took_s: dict[str, float] = field(default_factory=dict)
    _again: dict[str, list[Cell]] = field(default_factory=dict)

    def measure(self, parts: Sequence[str]) -> None:
        """Measure parts as a plain program would, then what the collector spoiled, tuned."""
        for part in parts:
            began_s = monotonic()
            found = self._measure_part(part, None)
            self._took_s[part] = monotonic() - began_s
            self.cells |= found
            self._again[part] = [
                replace(cell, tuned=True)
                for cell, samples in found.items()
                if part != WEIGHT and is_collectors_fault(samples)
            ]
        for part, cells in self._again.items():
            if cells and self._has_time(part):
                tell(f"{part}: again with a tuned collector")
                self.cells |= self._measure_part(part, cells)

    def _has_time(self, part: str) -> bool:
        if monotonic() - self._began_s + self._took_s[part] <= self.scale.most_s:
            return True
        self.missing.append(f"no time was left for {part} with a tuned collector")
        return False

    def _measure_part(self, part: str, only: Sequence[Cell] | None) -> Cells:
        tell(part)
        try:
            if part == CALLS:
                return measure_calls(self.base, self.scale, only, tuned=only is not None)
            if part == WEIGHT:
                return measure_memory(self.base, self.scale)
            if part == START:
                return measure_start(self.base, self.scale, only, tuned=only is not None)
        except MeasurementFailed as error:
            self._fail(part, error)
            return {}
        found: Cells = {}
        for where in PLACES:
            cells = None if only is None else [cell for cell in only if cell.where == where]
            if cells is None or cells:
                tell(f"{part}: {where}")
                try:
                    found |= self._measure_at(part, where, cells)
                except MeasurementFailed as error:
                    self._fail(f"{part} {where}", error)
        return found

    def _fail(self, what: str, error: MeasurementFailed) -> None:
        tell(f"{what} failed: {error}")
        last = str(error).strip().splitlines()[-1]
        self.missing.append(f"{what} could not be measured: {last}")

    def _measure_at(self, part: str, where: str, only: Sequence[Cell] | None) -> Cells:
        base, scale, tuned = self.base, self.scale, only is not None
        if part == LONG:
            source = None if where == MEMORY else folded(base, scale)
            cells = long_cells(where, scale) if only is None else only
            return in_child(scale.limit_s, measure_long_calls, source, scale, cells)
        if part == COMPACTION:
            return self._measure_compaction(where, tuned=tuned)
        measure = measure_watches if part == WATCHES else measure_expiry
        return in_child(scale.limit_s, measure, where, base, scale, only, tuned=tuned)

    def _measure_compaction(self, where: str, *, tuned: bool) -> Cells:
        scale = self.scale
        source = None if where == MEMORY else history(self.base, scale)
        cell = Cell(COMPACT, where, scale.revisions, tuned)
        samples = [
            in_child(scale.limit_s, measure_compaction, source, scale, tuned=tuned)
            for _ in rounds_within(scale.few, scale.compaction_s)
        ]
        return {cell: samples}
