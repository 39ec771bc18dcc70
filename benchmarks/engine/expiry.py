"""Leases that end together: how late their keys are seen to go.

All leases are renewed by one call, shortly before they end. That call takes a while itself, and
each lease ends a term after its own renewal, so lateness is counted lease by lease: from the moment
at which the call took the lease's id, plus the term, to the moment at which a watch reports the
deleted key.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.stats import quantile
from benchmarks.engine.engines import grant_leases, key_of, opened, pieces, put_keys, tune
from benchmarks.engine.samples import Cell, Cells
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from leasehold.engine.interface import Engine, Watch, prefix_end

EXPIRY: Final = "leases that end together"
P50_S, P99_S, MAX_S, MIN_S = "late_p50_s", "late_p99_s", "late_max_s", "late_min_s"
AFTER_ANSWER_S: Final = "last_after_answer_s"
"""How long after the term that began when the renewals were answered the last key was gone."""

TTL_S: Final = 1.0
TTL_PER_LEASE_S: Final = 5e-5
"""Both together are the term: long enough for all leases to be renewed while others are made."""

LEASES_PER_BATCH: Final = 1_000
"""Leases that are made between two looks at the clock."""

WAIT_S: Final = 120.0
QUIET_S: Final = 0.25
PREFIX: Final = b"end/"


def measure_expiry(
    where: str, base: Path, scale: Scale, only: Sequence[Cell] | None = None, *, tuned: bool = False
) -> Cells:
    """Let all numbers of leases end, or only some."""
    wanted = [Cell(EXPIRY, where, number, tuned) for number in scale.expiring]
    return asyncio.run(_measure(where, base, scale, wanted if only is None else list(only)))


async def _measure(where: str, base: Path, scale: Scale, wanted: Sequence[Cell]) -> Cells:
    found: Cells = {cell: [] for cell in wanted}
    async with opened(where, base) as engine:
        for _ in rounds_within(scale.few, scale.expiry_s):
            for cell in wanted:
                ending = _Ending(engine, cell.count)
                await ending.prepare()
                if cell.tuned:
                    tune()
                found[cell].append(await sample(ending.see, ending.figures, QUIET_S))
    return found


class _Ending:
    """A number of leases with a key each, that are to end together."""

    def __init__(self, engine: Engine, leases: int) -> None:
        self._engine = engine
        self._leases = leases
        self._ttl_s = round(TTL_S + TTL_PER_LEASE_S * leases, 1)
        self._ids: list[int] = []
        self._asked_s: list[float] = []
        self._renewed_s = monotonic()

    async def prepare(self) -> None:
        """Make them, and none of them may end before its time."""
        for many in pieces(self._leases, LEASES_PER_BATCH):
            first = len(self._ids)
            ids = await grant_leases(self._engine, many, self._ttl_s)
            keys = [key_of(first + number, PREFIX) for number in range(many)]
            await put_keys(self._engine, keys, ids)
            self._ids += ids
            if monotonic() - self._renewed_s > self._ttl_s / 4:
                await self._renew()
        await self._renew()

    async def _renew(self) -> None:
        """Renew all, and note when each one was taken up."""
        self._asked_s.clear()
        renewed = await self._engine.renew_all(self._noted())
        assert not renewed.failures, f"{len(renewed.failures)} leases have ended before their time"
        self._renewed_s = monotonic()

    def _noted(self) -> Iterator[int]:
        for lease in self._ids:
            self._asked_s.append(monotonic())
            yield lease

    async def see(self) -> dict[bytes, float]:
        """Renew all, and record when the delete of each key was reported."""
        watch = self._engine.watch(PREFIX, prefix_end(PREFIX), puts=False)
        async with watch, asyncio.timeout(WAIT_S):
            seeing = asyncio.create_task(self._see(watch))
            await self._renew()
            return await seeing

    async def _see(self, watch: Watch) -> dict[bytes, float]:
        gone_s: dict[bytes, float] = {}
        async for events in watch:
            now_s = monotonic()
            for event in events.events:
                gone_s[event.key] = now_s
            if len(gone_s) == self._leases:
                break
        return gone_s

    def figures(self, gone_s: dict[bytes, float]) -> dict[str, float]:
        """How late that was."""
        late_s = [
            gone_s[key_of(number, PREFIX)] - asked_s - self._ttl_s
            for number, asked_s in enumerate(self._asked_s)
        ]
        return {
            P50_S: quantile(late_s, 0.50),
            P99_S: quantile(late_s, 0.99),
            MAX_S: max(late_s),
            MIN_S: min(late_s),
            AFTER_ANSWER_S: max(gone_s.values()) - self._renewed_s - self._ttl_s,
        }
