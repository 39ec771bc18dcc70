"""Bytes for a key, for a lease, and for a lease with a key: in memory and on disk."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import in_child
from benchmarks.common.progress import tell
from benchmarks.engine.engines import MEMORY_PATH, grant_leases, key_of, put_keys
from benchmarks.engine.samples import MEMORY, PLACES, Cell, Cells, Sample
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from benchmarks.lease_core.children import resident_bytes
from leasehold.engine.embedded import open_engine
from leasehold.engine.interface import Engine

KEY, LEASE, LEASED = "a key", "a lease", "a lease with a key"
TRACED, RESIDENT, REOPENED = "traced_bytes", "resident_bytes", "reopened_bytes"
WRITTEN, FOLDED = "written_bytes", "folded_bytes"
QUIET_S: Final = 0.05

Fill = Callable[[Engine, int], Awaitable[None]]


async def _fill_keys(engine: Engine, many: int) -> None:
    await put_keys(engine, [key_of(number) for number in range(many)])


async def _fill_leases(engine: Engine, many: int) -> None:
    await grant_leases(engine, many)


async def _fill_leased(engine: Engine, many: int) -> None:
    keys = [key_of(number) for number in range(many)]
    await put_keys(engine, keys, await grant_leases(engine, many))


KINDS: Final[dict[str, Fill]] = {KEY: _fill_keys, LEASE: _fill_leases, LEASED: _fill_leased}


def measure_memory(base: Path, scale: Scale) -> Cells:
    """Weigh all kinds in both places, each in fresh processes."""
    found: Cells = {Cell(kind, where, scale.weighed): [] for kind in KINDS for where in PLACES}
    for number in rounds_within(scale.few, scale.memory_s):
        tell(f"memory: round {number + 1} of {scale.few}")
        for place, (cell, samples) in enumerate(found.items()):
            samples.append(_weigh(cell, base / f"weighed-{number}-{place}", scale.limit_s))
    return found


def _weigh(cell: Cell, directory: Path, limit_s: float) -> Sample:
    """Fill an engine twice, once watched and once not; open and fold what was written."""
    kind, many = cell.what, cell.count
    if cell.where == MEMORY:
        return in_child(limit_s, measure_grown, kind, MEMORY_PATH, many)
    traced = in_child(limit_s, measure_traced, kind, str(directory / "traced"), many)
    path = directory / "grown"
    grown = in_child(limit_s, measure_grown, kind, str(path), many)
    written = directory_bytes(path) / many
    reopened = in_child(limit_s, measure_reopened, str(path), many)
    figures = {
        **grown.figures,
        TRACED: traced,
        REOPENED: reopened,
        WRITTEN: written,
        FOLDED: directory_bytes(path) / many,
    }
    return replace(grown, figures=figures)


def measure_traced(kind: str, path: str, many: int) -> float:
    """Count what Python's allocators have given, for each."""

    async def measure() -> float:
        async with open_engine(path) as engine:
            gc.collect()
            tracemalloc.start()
            await KINDS[kind](engine, many)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        return grown / many

    return asyncio.run(measure())


def measure_grown(kind: str, path: str, many: int) -> Sample:
    """See how much the process grows, for each."""

    async def measure() -> Sample:
        async with open_engine(path) as engine:

            async def fill() -> int:
                before = resident_bytes() or 0
                await KINDS[kind](engine, many)
                gc.collect()
                return (resident_bytes() or 0) - before

            return await sample(fill, lambda grown: {RESIDENT: grown / many}, QUIET_S)

    return asyncio.run(measure())


def measure_reopened(path: str, many: int) -> float:
    """See how much the process grows by opening it again, for each; then fold it."""

    async def measure() -> float:
        before = resident_bytes() or 0
        async with open_engine(path) as engine:
            gc.collect()
            grown = (resident_bytes() or 0) - before
            # Batches are folded that lie before a compacted revision, those of leases as well.
            await engine.put(b"last", b"")
            await engine.compact((await engine.put(b"last", b"")).revision, wait=True)
        return grown / many

    return asyncio.run(measure())


def directory_bytes(directory: Path) -> int:
    """The length of all files together."""
    return sum(path.stat().st_size for path in directory.iterdir())


def peak_bytes() -> int:
    """The most that this process has occupied in memory so far, where the system reports it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
