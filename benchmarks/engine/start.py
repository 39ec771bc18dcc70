"""Start-up: how long an engine takes to open, and what it takes in memory then."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import in_child
from benchmarks.common.progress import tell
from benchmarks.engine.engines import VALUE, key_of, tune
from benchmarks.engine.estate import check_estate, estate, folded
from benchmarks.engine.memory import directory_bytes, peak_bytes
from benchmarks.engine.samples import DISK, Cell, Cells, Sample
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from benchmarks.lease_core.children import resident_bytes
from leasehold.engine.embedded import open_engine

FROM_BATCHES, FROM_TABLES = "start from batches", "start after compaction"
OPEN_S, RESIDENT, PEAK, FILES = "open_s", "resident_bytes", "peak_bytes", "file_bytes"
QUIET_S: Final = 0.25


def measure_start(
    base: Path, scale: Scale, only: Sequence[Cell] | None = None, *, tuned: bool = False
) -> Cells:
    """Open a directory that was never compacted, and one that was, by turns."""
    directories = {FROM_BATCHES: estate(base, scale), FROM_TABLES: folded(base, scale)}
    wanted = [Cell(what, DISK, scale.keys, tuned) for what in directories]
    found: Cells = {cell: [] for cell in (wanted if only is None else only)}
    for number in rounds_within(scale.few, scale.start_s):
        tell(f"start: round {number + 1} of {scale.few}")
        for cell, samples in found.items():
            path = str(directories[cell.what])
            taken = in_child(
                scale.limit_s, open_once, path, scale.keys, scale.leases, tuned=cell.tuned
            )
            samples.append(taken)
    return found


def open_once(path: str, keys: int, leases: int, *, tuned: bool) -> Sample:
    """Open a directory in this process, which has done nothing else."""
    return asyncio.run(_open_once(path, keys, leases, tuned=tuned))


async def _open_once(path: str, keys: int, leases: int, *, tuned: bool) -> Sample:
    if tuned:
        tune()
    files = directory_bytes(Path(path))
    before = resident_bytes() or 0
    async with AsyncExitStack() as stack:

        async def measure() -> float:
            began_s = monotonic()
            engine = await stack.enter_async_context(open_engine(path))
            await engine.put(key_of(0), VALUE)
            took_s = monotonic() - began_s
            stack.push_async_callback(check_estate, engine, keys, leases)
            return took_s

        def figures(took_s: float) -> dict[str, float]:
            grown, peak = (resident_bytes() or 0) - before, peak_bytes() - before
            return {OPEN_S: took_s, RESIDENT: grown, PEAK: peak, FILES: files}

        return await sample(measure, figures, QUIET_S)
