"""Calls that touch very many keys or leases, and what others notice of them."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

from benchmarks.common.budget import rounds_within
from benchmarks.engine.engines import KEEP_ALL, LONG_TTL_S, MEMORY_PATH, key_of, put_keys, tune
from benchmarks.engine.estate import fill_estate, fill_history
from benchmarks.engine.renewals import Renewals
from benchmarks.engine.samples import Cell, Cells, Sample
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from leasehold.engine.embedded import open_engine
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.values import DeleteResult
from leasehold.keyspace.keyspace import FROM_KEY

NOTHING: Final = "nothing"
READ, LIST = "range of all keys", "list all leases"
DELETE, REVOKE = "delete many keys", "revoke a lease with many keys"
COMPACT: Final = "compaction"
TOOK_S, DROPPED_S = "took_s", "dropped_s"

NOTHING_S: Final = 0.5
"""How long renewals are watched while nothing else is done."""

QUIET_S: Final = 0.25
MANY_PREFIX: Final = b"many/"

Call = Callable[[], Awaitable[Any]]


def long_cells(where: str, scale: Scale, *, tuned: bool = False) -> list[Cell]:
    """What is measured on a large engine."""
    counts = {
        NOTHING: 0,
        READ: scale.keys,
        LIST: scale.leases,
        DELETE: scale.many,
        REVOKE: scale.many,
    }
    return [Cell(what, where, number, tuned) for what, number in counts.items()]


def measure_long_calls(source: Path | None, scale: Scale, cells: Sequence[Cell]) -> Cells:
    """Measure on a copy of a directory, or for None on an engine in memory."""
    return asyncio.run(_measure_long_calls(source, scale, cells))


async def _measure_long_calls(source: Path | None, scale: Scale, cells: Sequence[Cell]) -> Cells:
    found: Cells = {cell: [] for cell in cells}
    async with opened_copy(source) as engine:
        if source is None:
            await fill_estate(engine, scale.keys, scale.leases)
        if any(cell.tuned for cell in cells):
            tune()
        calls = _LongCalls(engine, scale.many)
        for _ in rounds_within(scale.few, scale.long_s):
            for cell in cells:
                found[cell].append(await measure_beside(engine, await calls.make(cell.what)))
    return found


def measure_compaction(source: Path | None, scale: Scale, *, tuned: bool) -> Sample:
    """Compact all revisions of a copy of a directory, or for None of an engine in memory."""
    return asyncio.run(_measure_compaction(source, scale, tuned=tuned))


async def _measure_compaction(source: Path | None, scale: Scale, *, tuned: bool) -> Sample:
    async with opened_copy(source) as engine:
        if source is None:
            await fill_history(engine, scale.revisions)
        revision = (await engine.put(key_of(0), b"")).revision
        assert revision > scale.revisions, f"there are {revision} revisions"
        if tuned:
            tune()
        return await measure_beside(engine, lambda: engine.compact(revision, wait=True))


@asynccontextmanager
async def opened_copy(source: Path | None) -> AsyncIterator[Engine]:
    """Open a copy of a directory, which goes afterwards; for None an empty engine in memory."""
    if source is None:
        async with open_engine(MEMORY_PATH, compaction=KEEP_ALL) as engine:
            yield engine
        return
    with tempfile.TemporaryDirectory(dir=source.parent) as directory:
        shutil.copytree(source, directory, dirs_exist_ok=True)
        async with open_engine(directory, compaction=KEEP_ALL) as engine:
            yield engine


async def measure_beside(engine: Engine, call: Call) -> Sample:
    """Make a call while renewals go on; what it gives is dropped afterwards, and that is timed."""
    results: list[Any] = []
    renewals = Renewals(engine)

    async def measure() -> float:
        async with renewals:
            began_s = monotonic()
            results.append(await call())
            return monotonic() - began_s

    def figures(took_s: float) -> dict[str, float]:
        began_s = monotonic()
        results.clear()
        return {TOOK_S: took_s, DROPPED_S: monotonic() - began_s, **renewals.figures()}

    return await sample(measure, figures, QUIET_S)


class _LongCalls:
    """Prepares the data that each call needs, and returns the call."""

    def __init__(self, engine: Engine, many: int) -> None:
        self._engine = engine
        self._many = [key_of(number, MANY_PREFIX) for number in range(many)]

    async def make(self, what: str) -> Call:
        """Get ready for a call."""
        engine = self._engine
        if what == NOTHING:
            return lambda: asyncio.sleep(NOTHING_S)
        if what == READ:
            return lambda: engine.range(b"\0", FROM_KEY)
        if what == LIST:
            return engine.leases
        if what == DELETE:
            await put_keys(engine, self._many)
            return self._delete
        assert what == REVOKE, f"there is no call {what!r}"
        lease = (await engine.grant(LONG_TTL_S)).id
        await put_keys(engine, self._many, [lease] * len(self._many))
        return lambda: self._revoke(lease)

    async def _delete(self) -> DeleteResult:
        done = await self._engine.delete(MANY_PREFIX, prefix_end(MANY_PREFIX))
        assert done.deleted == len(self._many), f"{done.deleted} keys were there"
        return done

    async def _revoke(self, lease: int) -> None:
        await self._engine.revoke(lease)
        left = await self._engine.range(MANY_PREFIX, prefix_end(MANY_PREFIX), count_only=True)
        assert not left.total, f"{left.total} keys are left"
